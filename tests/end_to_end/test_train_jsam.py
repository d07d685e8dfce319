"""Privacy bought, trained with, and accounted for: digits from a config file, and the accuracy study."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bonafed import UnreadableFile
from bonafed.lab import jsam_accuracy as lab
from bonafed.mechanisms.jsam import noise_scale


def test_ten_clients_sell_their_privacy_and_the_model_learns(trained):
    trained("--write-example", "jsam")
    quiet = ["--json", "--set", "run.evaluate_every=100", "--set", "run.checkpoint_every=100"]
    said = json.loads(trained("jsam.toml", "--folder", "bought", *quiet))
    same_each_time = ["--set", "jsam.noise=reproducible"]  # of secret noise no single run promises anything
    learned = json.loads(trained("jsam.toml", "--folder", "learned", *quiet, *same_each_time))
    assert learned["test_accuracy"] >= 0.7
    assert said["eta"] == 60
    assert max(said["epsilon_sold"]) == said["max_epsilon"] == 5  # a privacy worth buying
    assert said["notes"] == []  # exactly truthful
    sold, given = np.array(said["epsilon_sold"]), np.array(said["epsilon_per_client"])
    assert np.all(given <= sold)
    assert said["largest_epsilon_ratio"] <= 1
    assert np.all(np.array(said["payment"]) >= np.array(said["reports"]) * sold * (1 - 1e-12))
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
    head = "| s | money | JSAM (clients, epsilon) | USBM (clients, epsilon) | JSAM - USBM |\n|---|"
    assert out.startswith(head)
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


def test_q_is_made_of_the_records_a_release_averages_and_the_cap_is_kept():
    from bonafed.learning import datasets
    from bonafed.learning.partition import partition

    data = datasets.load("digits")
    free = lab.run_cell(replace(BASE, similarity=100.0), data)
    rng = np.random.default_rng(np.random.SeedSequence((0, 100_000)))
    parts = partition("similarity", data.labels, 12, rng, s=100.0)
    smallest = min(part.size for part in parts)
    assert free.noise_scale == noise_scale(1e-5, 650, rounds=4, smoothness=0.5, records=smallest)
    assert replace(free, seconds=0.0) == replace(
        lab.run_cell(replace(BASE, similarity=100.0, noise_scale=free.noise_scale), data), seconds=0.0
    )
    cap = free.largest_epsilon / 2
    capped = lab.run_cell(replace(BASE, similarity=100.0, max_epsilon=cap), data)
    assert capped.largest_epsilon == cap
    assert capped.epsilon_ratio <= 1
    assert capped.spend <= 1


def test_results_of_earlier_versions_are_read_and_not_taken_for_new_ones(tmp_path):
    path = tmp_path / "cells.jsonl"
    cell = asdict(replace(BASE, noise_scale=1.0))
    del cell["smoothness"], cell["max_epsilon"]
    outcome = asdict(lab.Outcome(0.5, 1.0, 0.9, 7, 0.1, 1.0, 2.0))
    del outcome["largest_epsilon"], outcome["noise_scale"]
    path.write_text(json.dumps({"cell": cell, "outcome": outcome}) + "\n")
    (known,) = lab.read_cells(path)
    assert known == replace(BASE, noise_scale=1.0) != BASE
    assert "(7, nan)" in lab.table(lab.points(lab.read_cells(path)))


def test_what_is_no_study_is_refused(tmp_path, capsys):
    path = tmp_path / "cells.jsonl"
    path.write_text("{}\n")
    with pytest.raises(UnreadableFile, match=r"cells\.jsonl, line 1: must be the result of a cell"):
        lab.read_cells(path)
    assert lab.main(["--money", "-1", "--results", str(path)]) == 2
    assert capsys.readouterr().err == "error: money must be positive, got -1.0\n"
    assert lab.main(["--schemes", "best", "--results", str(Path(tmp_path) / "new")]) == 2
