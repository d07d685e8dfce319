"""Partitions against definitions, published numbers and slow twins."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bonafed.errors import InvalidValue
from bonafed.learning.data.partition import (
    MOST_SIGMA,
    add_feature_noise,
    feature_noise_levels,
    iid,
    label_dirichlet,
    natural,
    options_of,
    partition,
    quantity_dirichlet,
    similarity,
    typicality,
)


def sizes(parts):
    return [part.size for part in parts]


@pytest.mark.parametrize(
    ("delta", "expected"),
    [  # spec, faithfulness vectors: clients' sizes for digits, default_rng(1)
        (0.05, [123, 117, 117, 122, 125, 133, 121, 109, 108, 125]),
        (0.5, [128, 120, 106, 116, 127, 127, 120, 124, 110, 122]),
        (0.9, [124, 117, 109, 128, 112, 123, 117, 128, 115, 127]),
    ],
)
def test_typicality_is_the_partition_of_the_faithfulness_vectors(delta, expected):
    labels = load_digits().target[np.random.default_rng(0).permutation(1797)[:1200]]
    assert sizes(typicality(labels, 10, np.random.default_rng(1), delta)) == expected


def test_typicality_with_more_clients_than_labels_draws_as_the_row_by_row_twin():
    labels = load_digits().target[:1200]
    rng = np.random.default_rng(1)
    owner = np.array([rng.choice(np.arange(y, 33, 10)) for y in labels])
    moved = rng.random(1200) < 0.4
    owner[moved] = rng.integers(0, 33, moved.sum())
    parts = typicality(labels, 33, np.random.default_rng(1), 0.6)
    assert all(np.array_equal(part, np.flatnonzero(owner == k)) for k, part in enumerate(parts))


def test_typicality_of_one_keeps_labels_at_home():
    labels = np.arange(3000) % 10
    for k, part in enumerate(typicality(labels, 20, np.random.default_rng(0), 1.0)):
        assert set(labels[part]) == {k % 10}


def test_dirichlet_shares_have_the_variance_of_the_distribution():
    rng = np.random.default_rng(0)
    labels = np.zeros(2000, dtype=np.int64)
    for beta in (0.5, 5.0):
        variance = 1 / (4 * (2 * beta + 1))  # of Beta(beta, beta)
        for draw in (label_dirichlet, quantity_dirichlet):
            shares = [draw(labels, 2, rng, beta, minimum=1)[0].size / 2000 for _ in range(2000)]
            assert np.mean(shares) == pytest.approx(0.5, abs=4 * np.sqrt(variance / 2000))
            assert np.var(shares) == pytest.approx(variance, rel=0.1)


def test_small_beta_concentrates_labels_and_large_beta_spreads_them():
    labels = np.arange(6000) % 10
    spread = {}
    for beta in (0.1, 100.0):
        parts = label_dirichlet(labels, 10, np.random.default_rng(0), beta)
        spread[beta] = np.mean([np.bincount(labels[part]).max() / part.size for part in parts])
    assert spread[0.1] > 0.3 > 0.15 > spread[100.0]


def test_sizes_follow_a_dirichlet_even_for_a_thousand_clients():
    parts = quantity_dirichlet(np.zeros(60_000, dtype=int), 1000, np.random.default_rng(0), 0.5)
    assert min(sizes(parts)) >= 10
    assert max(sizes(parts)) > 300


def test_similarity_follows_the_jsam_paper():
    labels = np.random.default_rng(3).permutation(
        np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842] * 2)
    )
    for s in (0, 30, 70, 100):
        parts = similarity(labels, 100, np.random.default_rng(0), s)
        assert max(sizes(parts)) - min(sizes(parts)) <= 1
        # beyond two classes, only the uniform part: about s/10 percent of a client's samples per class
        beyond = [np.sort(np.bincount(labels[part], minlength=10))[:-2].sum() / part.size for part in parts]
        assert np.mean(beyond) == pytest.approx(0.8 * s / 100, abs=0.05)


def test_noise_levels_are_variances_that_rise_to_sigma():
    assert np.allclose(feature_noise_levels(5, 0.2), [0.04, 0.08, 0.12, 0.16, 0.2], atol=0, rtol=1e-15)


def test_feature_noise_has_the_variance_of_each_client_and_copies():
    features = np.full((400, 1, 20, 20), 0.5, dtype=np.float32)
    parts = iid(np.arange(400) % 4, 4, np.random.default_rng(0))
    levels = feature_noise_levels(4, 0.1)
    levels[0] = 0
    noisy = add_feature_noise(features, parts, levels, np.random.default_rng(1))
    assert (features == 0.5).all()
    assert noisy.dtype == np.float32
    for part, level in zip(parts, levels, strict=True):
        assert np.var(noisy[part]) == pytest.approx(level, rel=0.03)
        assert np.mean(noisy[part]) == pytest.approx(0.5, abs=0.01)
    again = add_feature_noise(features, parts, levels, np.random.default_rng(1))
    assert np.array_equal(noisy, again)


def test_feature_noise_refuses_tokens_and_levels_that_do_not_fit():
    parts = iid([0, 1], 2, np.random.default_rng(0))
    with pytest.raises(
        InvalidValue, match="features must be real numbers for noise to be added, got int64"
    ):
        add_feature_noise(np.zeros((2, 3), dtype=np.int64), parts, [0.1, 0.2], np.random.default_rng(0))
    with pytest.raises(InvalidValue, match="levels must have 2 values, got 1"):
        add_feature_noise(np.zeros((2, 3), dtype=np.float32), parts, [0.1], np.random.default_rng(0))


def test_noise_beyond_single_precision_is_refused():
    parts, features = [np.array([0, 1])], np.ones((2, 1000), dtype=np.float32)
    for sigma in (1e74, 1e78, 1e200):
        rule = "sigma must be between 0 and 1e\\+73, got"
        with pytest.raises(InvalidValue, match=rule):
            partition("feature_noise", [0, 1], 1, np.random.default_rng(0), sigma=sigma)
        with pytest.raises(InvalidValue, match=rule):
            feature_noise_levels(1, sigma)
        with pytest.raises(InvalidValue, match="levels must not exceed 1e\\+73, got"):
            add_feature_noise(features, parts, [sigma], np.random.default_rng(0))
    largest = feature_noise_levels(1, MOST_SIGMA)
    assert np.isfinite(add_feature_noise(features, parts, largest, np.random.default_rng(0))).all()


def test_regression_targets_can_be_spread_evenly_or_by_quantity():
    targets = np.linspace(-1, 1, 50, dtype=np.float32)
    assert sizes(iid(targets, 5, np.random.default_rng(0))) == [10] * 5
    assert sum(sizes(quantity_dirichlet(targets, 3, np.random.default_rng(0), 1.0))) == 50


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dirichlet", {}, "partition must be one of iid, label_dirichlet, .*, got 'dirichlet'"),
        ("iid", {"beta": 1}, "option of partition iid must not be given, got 'beta'"),
        ("label_count", {"k": 1, "kk": 2}, "option of partition label_count must be one of k, got 'kk'"),
        (
            "label_dirichlet",
            {"minimum": 1},
            "beta is required for partition label_dirichlet",
        ),
        ("natural", {"groups": [1, 1]}, "clients must be the number of owners in the data, 1, got 2"),
        ("natural", {"groups": [1, 2, 3]}, "groups must name an owner for each of 2 samples, got 3"),
    ],
)
def test_the_registry_refuses_what_it_does_not_know(name, options, message):
    with pytest.raises(InvalidValue, match=message):
        partition(name, [0, 1], 2, np.random.default_rng(0), **options)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (["b", "a", "b"], [[1], [0, 2]]),
        (np.array(["b", "a", "b"], dtype=object), [[1], [0, 2]]),
        (["10", "9", "10"], [[1], [0, 2]]),  # by value, as in a CSV table
        (np.array([2**63 + 7, 3, 2**64 - 1], dtype=np.uint64), [[1], [0], [2]]),
        (np.array([-5, 3, -5], dtype=np.int8), [[0, 2], [1]]),
    ],
)
def test_owners_may_have_any_name(groups, expected):
    assert [part.tolist() for part in natural(groups)] == expected


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1.0, 2.0], "groups must be whole numbers or text, got float64"),
        ([True, False], "groups must be whole numbers or text, got bool"),
        (np.array(["a", None]), "groups must be whole numbers or text, got object"),
        (["a", ""], "groups must name an owner, got nothing in sample 1"),
    ],
)
def test_what_names_no_owner_is_refused(groups, message):
    with pytest.raises(InvalidValue, match=message):
        natural(groups)


def test_options_are_read_from_the_functions():
    assert options_of("iid") == {}
    assert options_of("quantity_dirichlet") == {"beta": True, "minimum": False}
    assert options_of("natural") == {"groups": True}
