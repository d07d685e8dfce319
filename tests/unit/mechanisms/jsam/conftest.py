"""A small federation that trains in a moment, under [jsam]."""

import numpy as np
import pytest

from bonafed.learning.data.datasets import from_arrays
from bonafed.runs import config, private, toml

TABLES = {
    "data": {"name": "small"},
    "partition": {"kind": "iid", "clients": 4},
    "model": {"name": "softmax"},
    "training": {"rounds": 5, "learning_rate": 0.5, "batch_size": 8},
    "run": {"cores": 1, "seed": 3},
}


@pytest.fixture
def make():
    """make("training.rounds=2", ...): the config of the small federation with changes."""

    def made(*changes):
        tables = TABLES
        for change in changes:
            tables = toml.override(tables, change)
        return config.from_tables(tables)

    return made


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
