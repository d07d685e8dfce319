"""What is read, split or prepared is not read, split or prepared again: calls and opens are counted."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.unit.test_front import CONFIG

import bonafed
from bonafed.runs import config as configs
from bonafed.runs import data, integrity, prepare
from bonafed.runs import folder as folders

OPENED: Counter[Path] = Counter()
WATCHED: list[Path] = []


def _count(event, arguments):
    if event == "open" and WATCHED and isinstance(arguments[0], str | Path):
        path = Path(arguments[0]).absolute()
        if WATCHED[0] in path.parents:
            OPENED[path] += 1


sys.addaudithook(_count)


@pytest.fixture
def counted(monkeypatch):
    """How often each of these functions is called."""
    calls = Counter()

    def count(module, name):
        function = getattr(module, name)

        def counting(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, counting)

    for name in ("_split", "_digest", "_load"):
        count(data, name)
    count(prepare, "build_program")
    return calls


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("once") / "run"
    bonafed.train(CONFIG, folder=folder)
    return folder


@pytest.mark.parametrize(
    "words", [("train", "--resume"), ("report", "--save", "../page.html"), ("runs",), ("runs", "--check")]
)
def test_a_finished_run_is_read_once(finished, bonafed, words, monkeypatch, tmp_path):
    OPENED.clear()
    monkeypatch.setattr(sys.modules[__name__], "WATCHED", [finished])
    code, _, err = bonafed(*words[:1], *words[1:], str(finished))
    assert (code, err) == (0, "")
    assert OPENED
    assert set(OPENED.values()) == {1}, OPENED


def test_a_run_that_goes_on_is_read_anew(tmp_path):
    path = tmp_path / "note.txt"
    path.write_bytes(b"one")
    with folders.reading_once():
        assert folders.read_bytes(path) == b"one"
        path.write_bytes(b"two")
        assert folders.read_bytes(path) == b"two"  # the folder holds no run that has ended
        (tmp_path / folders.SUMMARY).write_bytes(b"{}")
        assert folders.read_bytes(path) == b"two"
        path.write_bytes(b"three")
        assert folders.read_bytes(path) == b"two"
    assert folders.read_bytes(path) == b"three"


def test_reports_without_a_contract_prepare_once(bonafed, counted):
    bonafed("train", "--write-example", "sampling")
    Path("r.csv").write_text("client,cost\n" + "".join(f"c{n},{0.6 + n / 20}\n" for n in range(10)))
    few = ["--set", "training.rounds=1", "--set", "partition.clients=10"]
    code, _, err = bonafed("train", "sampling.toml", *few, "--reports", "r.csv")
    assert (code, err) == (0, "")
    assert counted == {"_load": 1, "_split": 1, "_digest": 1, "build_program": 1}


def test_a_comparison_splits_and_digests_once(counted):
    text = CONFIG.replace("rounds = 3", "rounds = 1") + (
        '[compare]\nmechanisms = ["fedavg", "sampling"]\nbudget = 9.0\ncosts = "uniform:0.5,1.5"\n'
    )
    compared = bonafed.compare(text)
    assert [entrant.result is not None for entrant in compared.entrants] == [True, True]
    assert (counted["_load"], counted["_split"], counted["_digest"]) == (1, 1, 1)


def test_shared_data_are_those_that_a_run_would_prepare(tmp_path, monkeypatch):
    made = configs.from_tables(configs.toml.loads(CONFIG))
    held = data.hold(made)
    again = data.in_another_run(held, made)
    assert again is not None
    assert (again.digest, again.config) == (held.digest, held.config)
    np.savez(tmp_path / "own.npz", features=np.eye(8), labels=np.arange(8) % 2)
    monkeypatch.chdir(tmp_path)
    own = configs.from_tables(configs.toml.override(configs.toml.loads(CONFIG), "data.name=own.npz"))
    assert data.in_another_run(data.hold(own), own) is not None
    for change in ("run.seed=5", "partition.clients=3", "partition.kind=typicality", "data.classes=10"):
        tables = configs.toml.override(configs.toml.loads(CONFIG), change)
        if "typicality" in change:
            tables["partition"]["delta"] = 0.5
        assert data.in_another_run(held, configs.from_tables(tables)) is None


def test_everything_around_a_run_that_changed_is_noted(finished, monkeypatch):
    assert integrity.changed_versions(finished) == {}
    around = integrity.surroundings()
    assert set(around) == {"bonafed", "python", "numpy", "scipy", "torch", "platform", "processor"}
    for name, then in around.items():
        monkeypatch.setattr(integrity, "surroundings", lambda name=name: {**around, name: "9.9"})
        assert integrity.changed_versions(finished) == {name: (then, "9.9")}
