"""Every argument of every prior: name, rule and value."""

import numpy as np
import pytest
from scipy import stats

from bonafed.economics import (
    Discrete,
    Empirical,
    NormalMixture,
    ScaledBeta,
    TruncatedExponential,
    TruncatedNormal,
    Uniform,
    from_scipy,
    prior_from_json,
)
from bonafed.errors import InvalidValue

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Uniform(1.0, 1.0), "low must be below high = 1, got 1.0"),
        (lambda: Uniform(-0.1, 1.0), "low must not be negative, got -0.1"),
        (lambda: Uniform(0.1, INF), "high must be finite: truncate an unbounded prior, got inf"),
        (lambda: Uniform("0", 1.0), "low must be a number, got '0'"),
        (lambda: TruncatedExponential(0.0, 0, 1), "rate must be positive, got 0.0"),
        (lambda: TruncatedExponential(1.0, 2, 1), "low must be below high = 1, got 2.0"),
        (lambda: TruncatedNormal(NAN, 1, 0, 1), "mean must be finite, got nan"),
        (lambda: TruncatedNormal(1, -1, 0, 1), "sd must be positive, got -1.0"),
        (lambda: TruncatedNormal(0, 1, 0, -1), "low must be below high = -1, got 0.0"),
        (
            lambda: TruncatedNormal(0, 0.01, 1, 2),
            "[low, high] must contain some of the distribution's mass, got [1.0, 2.0]",
        ),
        (lambda: ScaledBeta(0, 1, 0, 1), "alpha must be positive, got 0.0"),
        (lambda: ScaledBeta(1, -2, 0, 1), "beta must be positive, got -2.0"),
        (lambda: NormalMixture([0.5, 0.6], [0, 1], [1, 1], 0, 1), "weights must sum to 1, got sum 1.1"),
        (lambda: NormalMixture([0.5, 0.5], [0], [1, 1], 0, 1), "means must have 2 values, got 1"),
        (
            lambda: NormalMixture([0.5, 0.5], [0, 1], [1, 0], 0, 1),
            "sds must be positive, got 0 at position 1",
        ),
        (lambda: Discrete([], []), "costs must not be empty, got 0 values"),
        (lambda: Discrete([1, 1], [0.5, 0.5]), "costs must be strictly increasing, got 1 before 1"),
        (lambda: Discrete([2, 1], [0.5, 0.5]), "costs must be strictly increasing, got 2 before 1"),
        (lambda: Discrete([-1, 1], [0.5, 0.5]), "costs must not be negative, got -1 at position 0"),
        (lambda: Discrete([1, 2], [0.5]), "weights must have 2 values, got 1"),
        (lambda: Discrete([1, 2], [0.5, 0.4]), "weights must sum to 1, got sum 0.9"),
        (lambda: Discrete([1, 2], [1.0, 0.0]), "weights must be positive, got 0 at position 1"),
        (lambda: Discrete([0.0], [1.0]), "highest cost must be positive, got 0.0"),
        (lambda: Empirical([1.0], 0.0), "highest must be positive, got 0.0"),
        (lambda: Empirical([1.0, 2.0], 1.5), "samples must not exceed highest = 1.5, got 2.0"),
        (lambda: Empirical([], 1.5), "samples must not be empty, got 0 values"),
        (lambda: Empirical([1.0], 1.5, "best"), "estimator must be one of plus, mle, got 'best'"),
        (
            lambda: from_scipy(stats.gamma(3), -1, 2),
            "low must not be negative, got -1.0",
        ),
        (
            lambda: from_scipy(stats.uniform(1, 1), 0.5, 2),
            "[low, high] must lie inside the distribution's support [1, 2], got [0.5, 2.0]",
        ),
        (
            lambda: from_scipy(stats.norm(0, 0.01), 1, 2),
            "[low, high] must contain some of the distribution's mass, got [1.0, 2.0]",
        ),
    ],
)
def test_bad_arguments(make, said):
    with pytest.raises(InvalidValue) as caught:
        make()
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "frozen", [stats.poisson(3), 7, stats.gamma], ids=["discrete", "number", "not frozen"]
)
def test_only_frozen_continuous_distributions(frozen):
    with pytest.raises(InvalidValue, match="frozen must be a frozen continuous distribution, such as"):
        from_scipy(frozen, 0.5, 2)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (3, "prior must be an object, got int"),
        ({}, "prior.kind is required"),
        ({"kind": "cauchy"}, "prior.kind must be one of"),
        ({"kind": "uniform", "low": 0}, "prior.high is required"),
        ({"kind": "uniform", "low": 0, "high": "1"}, "high must be a number, got '1'"),
        ({"kind": "normal", "mean": 1, "low": 0, "high": 1}, "prior.sd is required"),
        (
            {"kind": "empirical", "samples": [1], "highest": 2},
            "prior.estimator is required",
        ),
        ({"kind": "discrete", "costs": [1], "weights": [0.4]}, "weights must sum to 1, got sum 0.4"),
        ({"kind": "scipy", "low": 0, "high": 1}, "prior.name is required"),
        (
            {"kind": "scipy", "name": "poisson", "low": 0, "high": 1},
            "prior.name must be a continuous scipy.stats distribution, got poisson",
        ),
        (
            {"kind": "scipy", "name": "test", "low": 0, "high": 1},
            "prior.name must be a continuous scipy.stats distribution, got test",
        ),
    ],
)
def test_bad_json(data, said):
    with pytest.raises(InvalidValue) as caught:
        prior_from_json(data)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("given", [None, [1], "x", {"shape": 2.0}, {"a": "2"}, {"a": [1]}, {}])
def test_bad_json_of_scipy_parameters(given):
    """A parameter the distribution does not have, or no object at all: an error that says so."""
    with pytest.raises(InvalidValue, match=r"prior\.parameters"):
        prior_from_json({"kind": "scipy", "name": "gamma", "parameters": given, "low": 0.5, "high": 1})


def test_a_scipy_distribution_has_one_description_however_it_was_spelled():
    spelled = [stats.gamma(3.0), stats.gamma(a=3), stats.gamma(3, 0.0), stats.gamma(3, scale=1.0)]
    described = [from_scipy(frozen, 0.5, 6.0).to_json() for frozen in spelled]
    assert all(each == described[0] for each in described)
    assert described[0]["parameters"] == {"a": 3.0, "loc": 0.0, "scale": 1.0}


class TestFinite:
    PRIOR = Discrete([0.4, 0.7, 1.0], [0.5, 0.25, 0.25])

    def test_cdf_and_quantile(self):
        assert self.PRIOR.cdf([0.3, 0.4, 0.69, 0.7, 1.0]).tolist() == [0.0, 0.5, 0.5, 0.75, 1.0]
        assert self.PRIOR.quantile([0.0, 0.5, 0.51, 0.75, 0.76, 1.0]).tolist() == [
            0.4,
            0.4,
            0.7,
            0.7,
            1.0,
            1.0,
        ]
        assert self.PRIOR.mean == pytest.approx(0.625, rel=1e-15)

    def test_arrays_cannot_be_changed(self):
        with pytest.raises(ValueError, match="read-only"):
            self.PRIOR.costs[0] = 0.1
        with pytest.raises(ValueError, match="read-only"):
            self.PRIOR.masses[0] = 0.1

    def test_the_callers_arrays_are_copied(self):
        costs = np.array([0.5, 1.0])
        prior = Discrete(costs, [0.5, 0.5])
        costs[0] = 0.9
        assert prior.low == 0.5
        assert prior.costs[0] == 0.5

    def test_empirical_ties_and_the_highest_cost(self):
        plus = Empirical([0.5, 0.5, 1.5], 1.5)
        assert plus.costs.tolist() == [0.5, 1.5]
        assert plus.masses.tolist() == [0.5, 0.5]
        mle = Empirical([0.5, 0.5, 0.9, 0.9], 1.5, "mle")
        assert mle.costs.tolist() == [0.5, 1.5]
        assert mle.masses.tolist() == [0.5, 0.5]
        assert Empirical([0.0, 0.0], 1.0).low == 0.0
