"""The small federation that runs are tested with: it trains in a moment."""

from functools import partial

import numpy as np
import pytest

from bonafed.learning.data.datasets import from_arrays
from bonafed.runs import config, folder, private, toml

TABLES = {
    "data": {"name": "small"},
    "partition": {"kind": "iid", "clients": 4},
    "model": {"name": "softmax"},
    "training": {"rounds": 5, "learning_rate": 0.5, "batch_size": 8},
    "run": {"cores": 1, "seed": 3},
}


def configured(tables, *changes):
    """The config of these tables with changes such as "training.rounds=2"."""
    for change in changes:
        tables = toml.override(tables, change)
    return config.from_tables(tables)


@pytest.fixture
def make(request):
    """make("training.rounds=2", ...): the config of the small federation with changes.

    A module with TABLES of its own has those instead.
    """
    return partial(configured, getattr(request.module, "TABLES", TABLES))


@pytest.fixture
def ending():
    """ending(folder): what a run left there, but for the time it took."""

    def left(place):
        summary = {**folder.read_json(place, folder.SUMMARY), "seconds": 0}
        summary["statement"] = {**summary["statement"], "run": ""}  # its name, which the folder has
        lines = [{**line, "seconds": 0} for line in folder.read_rounds(place)]
        return summary, lines, (place / folder.MODEL).read_bytes()

    return left


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def kill_in():
    """kill_in(7): to be called after every round; ends the process, so to say, after the seventh."""

    def killer(moment):
        def after(record):
            if record.round == moment:
                raise Killed

        return after

    killer.error = Killed
    return killer


@pytest.fixture(scope="session")
def small():
    """120 samples of three classes, 30 for testing."""
    rng = np.random.default_rng(5)
    labels = np.arange(150) % 3
    features = rng.standard_normal((150, 6)).astype(np.float32)
    features[np.arange(150), labels] += 3
    return from_arrays(
        "small", features[:120], labels[:120], classes=3,
        test_features=features[120:], test_labels=labels[120:],
    )  # fmt: skip


@pytest.fixture
def one_secret(monkeypatch):
    """All runs get the same secret, so that one that was killed can be compared with one that was not."""
    monkeypatch.setattr(private.secrets, "token_bytes", lambda size: bytes(range(size)))
