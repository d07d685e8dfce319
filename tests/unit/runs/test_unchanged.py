"""A run never goes on under anything else than it began with."""

import json

import numpy as np
import pytest

import bonafed
from bonafed import Uniform, UnreadableFile
from bonafed.runs.log import RunLog

CONFIG = """
[data]
name = "digits"
classes = 10

[partition]
kind = "iid"
clients = 4

[model]
name = "softmax"

[training]
rounds = 6
learning_rate = 0.2
steps = 2

[run]
checkpoint_every = 2
cores = 1
"""
PRIVATE = CONFIG + "\n[privacy]\nepsilon = 8.0\ndelta = 1e-5\nclip = 1.0\n"
REPORTS = {"ada": 0.6, "ben": 1.4, "cleo": 0.9, "dan": 1.1}


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A run that was cut short after so many lines; the folder."""

    def begin(config, lines, **more):
        place, append = tmp_path / "run", RunLog.append

        def cut(self, record):
            append(self, record)
            if record.round == lines:
                raise KeyboardInterrupt

        monkeypatch.setattr(RunLog, "append", cut)
        with pytest.raises(KeyboardInterrupt):
            bonafed.train(config, folder=place, **more)
        monkeypatch.setattr(RunLog, "append", append)
        return place

    return begin


def contract():
    return bonafed.sampling.contract(Uniform(0.5, 1.5), total_budget=18.0, clients=4, rounds=6)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_left_alone_it_goes_on(stopped):
    place = stopped(CONFIG, 3, contract=contract(), reports=REPORTS)
    result = bonafed.train(CONFIG, folder=place, resume=True, contract=contract(), reports=REPORTS)
    assert result.summary["rounds"] == 6


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("agreement.json", '"dan": 1.1', '"dan": 0.5'),
        ("agreement.json", '"published": true', '"published": false'),
        ("contract.json", '"clients": 4', '"clients": 9'),
        ("config.toml", "learning_rate = 0.2", "learning_rate = 0.3"),
        ("versions.json", '"seed": ', '"seed": 1'),
        ("SHA256SUMS", "  start.npy", "0  start.npy"),
        ("metrics.jsonl", '"steps": ', '"steps": 1'),
    ],
)
@pytest.mark.parametrize("lines", [1, 3], ids=["before a checkpoint", "after one"])
def test_an_edited_file_is_refused_by_name(stopped, name, old, new, lines):
    place = stopped(CONFIG, lines, contract=contract(), reports=REPORTS)
    if name == "metrics.jsonl" and lines == 1:
        return  # lines without a checkpoint are written again
    edit(place / name, old, new)
    given = {"contract": contract(), "reports": REPORTS}
    with pytest.raises((UnreadableFile, bonafed.InvalidValue)) as refused:
        bonafed.train((place / "config.toml").read_text(), folder=place, resume=True, **given)
    assert name in str(refused.value) or "learning_rate" in str(refused.value)


def test_a_missing_agreement_is_refused_and_invents_no_clients(stopped):
    place = stopped(CONFIG, 3, contract=contract(), reports=REPORTS)
    (place / "agreement.json").unlink()
    with pytest.raises(UnreadableFile, match=r"agreement\.json: is missing"):
        bonafed.train(CONFIG, folder=place, resume=True, contract=contract(), reports=REPORTS)


def test_another_start_is_refused(stopped):
    place = stopped(CONFIG, 1)
    weights = np.load(place / "start.npy")
    np.save(place / "start.npy", weights + 1)
    with pytest.raises(UnreadableFile, match=r"start\.npy: was changed since the run began"):
        bonafed.train(CONFIG, folder=place, resume=True)


def test_another_promise_of_privacy_is_refused(stopped):
    place = stopped(PRIVATE, 5)
    edit(place / "config.toml", "epsilon = 8.0", "epsilon = 0.5")
    with pytest.raises(UnreadableFile, match=r"config\.toml: was changed since the run began"):
        bonafed.train((place / "config.toml").read_text(), folder=place, resume=True)


def test_coins_of_another_run_are_refused(stopped, tmp_path):
    coins = CONFIG + '\n[sampling]\nprior = "uniform:0.5,1.5"\ntotal_budget = 18.0\ncoins = "verifiable"\n'
    place = stopped(coins, 3)
    other = tmp_path / "other"
    bonafed.train(coins, folder=other)
    unopened = json.loads((place / "coins.json").read_text())
    foreign = json.loads((other / "coins.json").read_text())
    foreign.pop("secret", None)
    assert foreign != unopened
    (place / "coins.json").write_text(json.dumps(foreign))
    with pytest.raises((UnreadableFile, bonafed.InvalidValue)):
        bonafed.train(coins, folder=place, resume=True)


def test_a_folder_may_be_moved(stopped, tmp_path):
    place = stopped(CONFIG, 3)
    moved = tmp_path / "elsewhere"
    place.rename(moved)
    assert bonafed.train(CONFIG, folder=moved, resume=True).summary["rounds"] == 6
