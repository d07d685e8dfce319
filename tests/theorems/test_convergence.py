"""Proposition 1, its constants written out term by term."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.mechanisms.sampling import ConvergenceModel
from tests.oracles.convergence import loss_bounds
from tests.theorems.strategies import powers_of_ten


@st.composite
def models(draw):
    n = draw(st.integers(1, 6))
    lip = draw(powers_of_ten(-1, 1))
    values = {
        "smoothness": lip,
        "strong_convexity": lip * draw(st.floats(0.01, 1)),
        "local_steps": draw(st.integers(1, 20)),
        "gradient_bounds": draw(st.lists(powers_of_ten(-1, 1), min_size=n, max_size=n)),
        "gradient_noise": draw(st.lists(st.floats(0, 3), min_size=n, max_size=n)),
        "heterogeneity": draw(st.floats(0, 2)),
        "initial_distance": draw(st.floats(0, 5)),
    }
    q = draw(st.lists(st.floats(0.01, 1), min_size=n, max_size=n))
    return values, np.array(q), draw(st.integers(1, 500))


@given(models())
def test_bound(case):
    v, q, rounds = case
    lip, mu, steps, n = v["smoothness"], v["strong_convexity"], v["local_steps"], len(q)
    spread = 0.0
    for noise in v["gradient_noise"]:
        spread += (noise / n) ** 2
    for g in v["gradient_bounds"]:
        spread += 8 * steps**2 * g**2 / n
    beta = 2 * lip * spread / (mu**2 * steps)
    beta += 12 * lip**2 * v["heterogeneity"] / (mu**2 * steps)
    beta += 4 * lip**2 * v["initial_distance"] ** 2 / (mu * steps)
    sampling = 0.0
    for g, p in zip(v["gradient_bounds"], q, strict=True):
        sampling += 8 * lip * steps * g**2 / (mu**2 * n**2) / p
    model = ConvergenceModel(**v)
    assert model.constant == pytest.approx(beta, rel=1e-12)
    assert model.bound(q, rounds) == pytest.approx((sampling + beta) / rounds, rel=1e-12)
    assert model.bound_for(sampling, rounds) == pytest.approx((sampling + beta) / rounds, rel=1e-12)
    expected = [8 * lip * steps * g**2 / (mu**2 * n**2) for g in v["gradient_bounds"]]
    assert model.data_weights == pytest.approx(expected, rel=1e-12)


@given(models(), st.integers(0, 5), st.floats(0.1, 0.99))
def test_sampling_anybody_less_raises_the_bound(case, who, factor):
    v, q, rounds = case
    model = ConvergenceModel(**v)
    less = q.copy()
    less[who % q.size] *= factor
    assert model.bound(less, rounds) > model.bound(q, rounds)


@given(models(), st.integers(0, 1000), st.data())
def test_learning_rate(case, r, data):
    v, *_ = case
    mu, steps = v["strong_convexity"], v["local_steps"]
    i = data.draw(st.integers(0, steps - 1))
    gamma = max(8 * v["smoothness"] / mu, steps)
    model = ConvergenceModel(**v)
    assert float(model.learning_rate(r, i)) == pytest.approx(2 / (mu * (gamma + steps * r + i)), rel=1e-12)
    printed = float(model.learning_rate(r, i, "printed"))
    assert printed == pytest.approx(2 / (mu * (gamma + r)), rel=1e-12)
    rates = model.learning_rate(np.arange(10)[:, None], np.arange(steps))
    assert rates.shape == (10, steps)
    assert np.all(np.diff(rates.ravel()) < 0)  # from step to step, from round to round
    assert model.learning_rate(np.arange(10)[:, None], np.arange(steps), "printed").shape == (10, steps)


@given(models(), st.floats(0, 1))
def test_the_recursion_of_the_proof_never_exceeds_the_bound(case, share):
    v, q, _ = case
    # the mean gradient at the start has norm mu |w_0 - w*| at least, by strong convexity
    farthest = np.sqrt(np.mean(np.square(v["gradient_bounds"]))) / v["strong_convexity"]
    v = {**v, "initial_distance": share * farthest}
    model, rounds = ConvergenceModel(**v), np.arange(60)
    rates = model.learning_rate(rounds[:, None], np.arange(v["local_steps"]))
    reached = loss_bounds(v, q, rates)
    stated = np.array([model.bound(q, int(r) + 1) for r in rounds])
    assert np.all(reached <= stated * (1 + 1e-12))


@given(models())
def test_bound_falls_as_one_over_rounds(case):
    v, q, rounds = case
    model = ConvergenceModel(**v)
    assert model.bound(q, 2 * rounds) == pytest.approx(model.bound(q, rounds) / 2, rel=1e-13)
