"""Privacy bought, trained with, and accounted for: digits from a config file, and the accuracy study."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bonafed import UnreadableFile
from bonafed.lab import jsam_accuracy as lab


def test_ten_clients_sell_their_privacy_and_the_model_learns(trained):
    trained("--write-example", "jsam")
    quiet = ["--json", "--set", "run.evaluate_every=100", "--set", "run.checkpoint_every=100"]
    said = json.loads(trained("jsam.toml", "--folder", "bought", *quiet))
    assert said["test_accuracy"] >= 0.75
    assert said["eta"] == 60
    assert max(said["epsilon_sold"]) == said["max_epsilon"] == 5  # a privacy worth buying
    assert said["notes"] == []  # exactly truthful
    sold, given = np.array(said["epsilon_sold"]), np.array(said["epsilon_per_client"])
    assert np.all(given <= sold)
    assert said["largest_epsilon_ratio"] <= 1
    assert np.all(np.array(said["payment"]) >= np.array(said["costs"]) * sold * (1 - 1e-12))
    assert sum(said["times_drawn"]) == 30 * 5
    hard = ["--set", "jsam.eta=", "--set", "jsam.budget=0.5"]
    dear = json.loads(trained("jsam.toml", "--folder", "dear", *quiet, *hard))
    assert dear["spend"] <= dear["budget"] == 0.5
    assert dear["notes"][0].startswith("a hard budget depends on the reports")
    assert dear["clients_selected"] < said["clients_selected"]
    assert max(dear["times_drawn"]) > 30  # drawn more often than there are rounds
    assert np.all(np.array(dear["epsilon_per_client"]) <= np.array(dear["epsilon_sold"]))
    assert dear["test_accuracy"] < said["test_accuracy"]


BASE = lab.Cell("jsam", 1.0, 0.0, 0, data="digits", clients=12, rounds=4, clients_per_round=3)


def test_a_study_is_taken_up_where_it_was_left(tmp_path, monkeypatch, capsys):
    results = tmp_path / "cells.jsonl"
    wanted = lab.cells(BASE, money=[1.0, 100.0], similarity=[100.0], seeds=2)
    assert len(wanted) == 8
    first = lab.study(wanted[:3], results)
    assert all(found.epsilon_ratio <= 1 and found.spend <= cell.money for cell, found in first.items())
    with results.open("ab") as file:
        file.write(b'{"cell": {"scheme"')  # killed while writing
    trained, run = [], lab.run_cell

    def counted(cell, *rest):
        trained.append(cell)
        return run(cell, *rest)

    monkeypatch.setattr(lab, "run_cell", counted)
    words = "--data digits --clients 12 --rounds 4 --clients-per-round 3 --money 1 100 --similarity 100"
    more = ["--seeds", "2", "--results", str(results), "--plot", str(tmp_path / "a.png")]
    assert lab.main([*words.split(), *more]) == 0
    out, err = capsys.readouterr()
    assert trained == wanted[3:]
    assert err.startswith("4/8  s 100, money 100, USBM, seed 0: accuracy ")
    assert out.startswith("| s | money | JSAM (clients) | USBM (clients) | JSAM - USBM |\n|---|")
    assert out.count("±") == 6
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert lab.study(wanted, results) | first == lab.read_cells(results)
    assert len(trained) == 5  # nothing twice


def test_a_cell_is_the_same_every_time():
    from bonafed.learning import datasets

    data = datasets.load("digits")
    cell = replace(BASE, scheme="cheapest", members=5, money=30.0)
    one, two = (replace(lab.run_cell(cell, data, cores), seconds=0.0) for cores in (1, 2))
    assert one == two
    assert one.selected == 5


def test_what_is_no_study_is_refused(tmp_path, capsys):
    path = tmp_path / "cells.jsonl"
    path.write_text("{}\n")
    with pytest.raises(UnreadableFile, match=r"cells\.jsonl, line 1: must be the result of a cell"):
        lab.read_cells(path)
    assert lab.main(["--money", "-1", "--results", str(path)]) == 2
    assert capsys.readouterr().err == "error: money must be positive, got -1.0\n"
    assert lab.main(["--schemes", "best", "--results", str(Path(tmp_path) / "new")]) == 2
