"""`bonafed advise convergence`: the weights and bounds are those of Proposition 1 on the data."""

import json

import numpy as np
import pytest
from tests.natural import write_heart

from bonafed import InvalidValue, Uniform
from bonafed.learning.data import datasets
from bonafed.learning.data.partition import partition
from bonafed.learning.problems.constants import estimate_constants
from bonafed.mechanisms.sampling import optimal_menu
from bonafed.mechanisms.sampling.advice import (
    ConvergenceOptions,
    advise,
    compared_bounds,
    convergence_model,
)
from bonafed.mechanisms.sampling.slice import SLICE

OPTIONS = {
    "clients": 4,
    "rounds": 50,
    "budget": 100.0,
    "prior": "uniform:0.5,1.5",
    "partition": "label_count:3",
}


@pytest.fixture(scope="module")
def few_digits(tmp_path_factory):
    """A file of small images: the constants of all digits take a second."""
    data = datasets.load("digits")
    path = tmp_path_factory.mktemp("data") / "few.npz"
    np.savez(path, features=data.features[:120, :, ::2, ::2], labels=data.labels[:120])
    return str(path)


@pytest.fixture(scope="module")
def answer(few_digits):
    return advise(ConvergenceOptions(**OPTIONS, data=few_digits)).data


def test_weights_follow_from_the_constants(answer):
    found = answer["constants"]
    lip, mu = found["smoothness"], found["strong_convexity"]
    squares = np.square(found["gradient_bounds"])
    assert mu == 0.01
    assert answer["data_weights"] == pytest.approx(
        (8 * lip * 5 * squares / (mu**2 * 16)).tolist(), rel=1e-12
    )
    noise = np.square(found["gradient_noise"]).sum() / 16
    beta = (
        2 * lip / (mu**2 * 5) * (noise + 8 * 25 * squares.mean())
        + 12 * lip**2 / (mu**2 * 5) * found["heterogeneity"]
        + 4 * lip**2 / (mu * 5) * found["initial_distance"] ** 2
    )
    assert answer["constant_term"] == pytest.approx(beta, rel=1e-12)


def test_bounds_are_those_of_the_contracts(answer):
    weights, rows = np.array(answer["data_weights"]), answer["mechanisms"]
    share = 100 / (4 * 50)
    best = optimal_menu(Uniform(0.5, 1.5), share)
    assert rows["uniform"]["mean_probability"] == pytest.approx(share / 1.5)
    assert rows["uniform"]["sampling_term"] == pytest.approx(weights.sum() * 1.5 / share)
    assert rows["prior-based"]["mean_probability"] == pytest.approx(best.expected_probability)
    expected = weights.sum() * best.expected_inverse_probability
    assert rows["prior-based"]["sampling_term"] == pytest.approx(expected)
    for row in rows.values():
        assert row["bound"] == pytest.approx((row["sampling_term"] + answer["constant_term"]) / 50)


def test_whoever_knows_more_has_a_lower_bound(answer):
    terms = [row["sampling_term"] for row in answer["mechanisms"].values()]
    assert terms == sorted(terms, reverse=True)
    assert len(set(terms)) == 4


def test_weights_of_equal_clients_change_nothing(few_digits):
    options = ConvergenceOptions(**{**OPTIONS, "clients": 3, "partition": "iid"}, data=few_digits)
    model = convergence_model(options.constants(), 5)
    object.__setattr__(model, "correction_bounds", np.ones(3))
    rows = compared_bounds(options, model)
    assert rows["prior-based"]["bound"] == pytest.approx(rows["prior-based, by weight"]["bound"], rel=1e-9)


def test_the_partition_is_that_of_a_run(few_digits):
    """The seed deals out as `partition` does."""
    options = ConvergenceOptions(**OPTIONS, data=few_digits, seed=3)
    labels = datasets.load(few_digits).labels
    parts = partition("label_count", labels, 4, np.random.default_rng(3), k=3)
    assert options.constants().gradient_bounds.shape == (len(parts),)
    other = ConvergenceOptions(**OPTIONS, data=few_digits, seed=4)
    assert not np.array_equal(options.constants().gradient_bounds, other.constants().gradient_bounds)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": -1}, "budget must be positive, got -1"),
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"regulariser": 0}, "regulariser must be positive, got 0"),
        ({"partition": "label_dirichlet"}, "partition must be label_dirichlet:BETA, got 'label_dirichlet'"),
        ({"partition": "iid:3"}, "partition must be iid, got 'iid:3'"),
        ({"partition": "label_count:1,2"}, "partition must be label_count:K, got 'label_count:1,2'"),
        ({"partition": "label_count:1.5"}, "partition must be a whole number of at least 1, got 1.5"),
        (
            {"partition": "feature_noise:1"},
            "partition must leave the records as they are, got 'feature_noise:1",
        ),
        ({"partition": "dealt"}, "partition must be one of "),
        ({"prior": "uniform:2,1"}, "prior: low must be below high = 1, got 2.0"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(change, message):
    with pytest.raises(InvalidValue) as caught:
        ConvergenceOptions(**{**OPTIONS, **change})
    assert message in str(caught.value)


def test_clients_may_hold_what_is_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("BONAFED_DATA", str(tmp_path))
    write_heart(tmp_path / "heart")
    options = {**OPTIONS, "clients": 4, "partition": "natural"}
    found = ConvergenceOptions(**options, data="heart").constants()
    data = datasets.load("heart", folder=tmp_path)
    parts = [np.flatnonzero(data.groups == owner) for owner in range(4)]
    like = {"classes": 2, "regulariser": 0.01, "batch_size": 32}
    expected = estimate_constants(data.features, data.labels, parts, **like)
    assert found.gradient_bounds.tolist() == expected.gradient_bounds.tolist()
    with pytest.raises(InvalidValue, match="clients must be the number of owners in the data, 4, got 3"):
        ConvergenceOptions(**{**options, "clients": 3}, data="heart").constants()
    with pytest.raises(
        InvalidValue, match="partition must not be natural, as digits does not say who owns"
    ):
        ConvergenceOptions(**options, data="digits").constants()


def test_data_without_classes_are_refused():
    with pytest.raises(InvalidValue, match="data must be numbers with classes"):
        ConvergenceOptions(**{**OPTIONS, "partition": "iid"}, data="synthetic-ridge").constants()


def test_it_is_a_command(bonafed, few_digits):
    assert "convergence" in SLICE.advice
    words = ["--clients", "4", "--rounds", "50", "--budget", "100", "--prior", "uniform:0.5,1.5"]
    code, out, _ = bonafed("advise", "convergence", *words, "--data", few_digits, "--json")
    assert code == 0
    assert len(json.loads(out)["data_weights"]) == 4
    code, _, refusal = bonafed("advise", "convergence", *words[:-2], "--data", few_digits)
    assert code != 0
    assert "prior" in refusal


def test_unscaled_data_are_noted_and_standardise_makes_the_bound_usable(tmp_path):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 2))
    y = (x[:, 0] + 0.3 * x[:, 1] > 0).astype(int)
    path = tmp_path / "own.npz"

    def asked(features, **options):
        np.savez(path, features=features, labels=y)
        document = advise(ConvergenceOptions(**{**OPTIONS, "partition": "iid"}, data=str(path), **options))
        return document.data["mechanisms"]["uniform"]["bound"], document.data["hint"], str(document)

    usual, hint, _ = asked(x)
    assert hint is None
    apart, hint, text = asked(x * [1.0, 10_000.0])
    assert "differ in scale by more than 100" in hint
    assert f"note: {hint}" in text
    large, hint, _ = asked(x * 10_000.0)
    assert "features reach" in hint
    assert "--standardise" in hint
    assert min(apart, large) > 1e6 * usual
    for scale in ([1.0, 10_000.0], 10_000.0):
        bound, hint, _ = asked(x * scale, standardise=True)
        assert hint is None
        assert bound == pytest.approx(usual, rel=1.0)
