"""A small data set for the studies of faithful learning."""

import numpy as np
import pytest

from bonafed.papers.faithful.cases import Case


@pytest.fixture(scope="module")
def blobs(tmp_path_factory):
    """Three overlapping clouds of points in five dimensions, 240 to train on and 90 to test."""
    rng = np.random.default_rng(5)
    labels = np.arange(330) % 3
    features = 1.0 + rng.standard_normal((330, 5)) + 1.5 * np.eye(3, 5)[labels]
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    np.savez(
        path, features=features[:240], labels=labels[:240],
        test_features=features[240:], test_labels=labels[240:],
    )  # fmt: skip
    return str(path)


@pytest.fixture(scope="module")
def base(blobs):
    return Case("faithful", samples=150, delta=0.4, data=blobs, agents=4, regulariser=0.02)
