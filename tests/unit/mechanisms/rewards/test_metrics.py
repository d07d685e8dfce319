"""IPR, correlation, accuracy: by hand, and over seeds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.settlement import (
    Evaluation,
    Scores,
    correlation,
    participation_incentive,
    participation_incentive_by_loss,
    scores,
    summarise,
)

numbers = st.floats(-100, 100).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=8))
def test_correlation_is_pearsons(pairs):
    x, y = np.array(pairs).T
    found = correlation(x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)


def test_correlation_survives_tiny_differences_and_a_single_client():
    assert correlation([0.5, 0.5 + 1e-12, 0.5 + 2e-12], [1, 2, 3]) == pytest.approx(1.0, abs=1e-3)
    assert correlation([1e-200, 2e-200, 3e-200], [3, 2, 1]) == pytest.approx(-1.0)
    assert correlation([0.7], [0.3]) is None


def test_a_tie_counts_as_not_worse():
    assert participation_incentive([0.5, 0.4], [0.5, 0.5]) == 0.5
    assert participation_incentive_by_loss([1.0, 1.1], [1.0, 1.0]) == 0.5


def run(**changes):
    given_run = {
        "accuracy": [0.8, 0.9, 0.7], "loss": [0.5, 0.2, 0.6],
        "standalone_accuracy": [0.6, 0.7, 0.75], "standalone_loss": [0.7, 0.6, 0.5],
        "validation_accuracy": [0.62, 0.62, 0.8],
    }  # fmt: skip
    return Evaluation(**{**given_run, **changes})


def test_scores_have_both_correlations():
    found = scores(run())
    assert found.ipr_accuracy == pytest.approx(2 / 3)
    assert found.ipr_loss == pytest.approx(2 / 3)
    assert found.average == pytest.approx(0.8)
    assert found.best == 0.9
    assert found.increase == pytest.approx(0.35 / 3)
    assert found.rho_test == pytest.approx(np.corrcoef([0.8, 0.9, 0.7], [0.6, 0.7, 0.75])[0, 1])
    assert found.rho_validation == pytest.approx(np.corrcoef([0.8, 0.9, 0.7], [0.62, 0.62, 0.8])[0, 1])


def test_scoring_on_the_set_that_measured_contribution_raises_rho():
    """No relation at all, but the noise of one test set in both: rho looks good."""
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.05, 200)  # what this test set happens to like, per client
    standalone = 0.5 + noise
    final = 0.9 + 0.5 * noise + rng.normal(0, 0.02, 200)
    held_out = 0.5 + rng.normal(0, 0.05, 200)
    found = scores(run(
        accuracy=final, loss=1 - final, standalone_accuracy=standalone,
        standalone_loss=1 - standalone, validation_accuracy=held_out,
    ))  # fmt: skip
    assert found.rho_test > 0.6
    assert abs(found.rho_validation) < 0.2


def row(rho):
    return Scores(1.0, 0.9, rho, None, 0.8, 0.9, 0.1)


def test_over_seeds_undefined_is_said_and_not_averaged():
    found = summarise([row(0.2), row(None), row(0.6)])
    assert found["rho_test"].mean == pytest.approx(0.4)
    assert found["rho_test"].error == pytest.approx(math.sqrt(0.08) / math.sqrt(2))
    assert str(found["rho_test"]) == "0.400 +- 0.200 (defined in 2 of 3)"
    assert found["rho_validation"].mean is None
    assert str(found["rho_validation"]) == "undefined"
    assert str(found["ipr_loss"]) == "0.900 +- 0.000"
    assert str(summarise([row(0.2)])["rho_test"]) == "0.200"
    assert summarise([row(0.2)])["rho_test"].error is None


def test_bad_input_is_refused():
    with pytest.raises(InvalidValue, match="standalone_loss must have 3 values, got 2"):
        run(standalone_loss=[0.1, 0.2])
    with pytest.raises(InvalidValue, match="loss must be finite, got nan at position 1"):
        run(loss=[0.1, math.nan, 0.2])
    with pytest.raises(InvalidValue, match="contribution must have 2 values, got 3"):
        correlation([1, 2], [1, 2, 3])
    with pytest.raises(InvalidValue, match="runs must not be empty, got 0 runs"):
        summarise([])
