import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import truncnorm

from bonafed.errors import InvalidValue
from bonafed.mechanisms.faithful.theory.bounds import AgentPopulation, best_manipulation, manipulated_risk
from bonafed.papers.faithful import amplifying
from bonafed.papers.faithful.manipulation import (
    MEANS,
    READINGS,
    Example,
    best_factor,
    best_factor_of_bound,
    bound,
    constants,
    manipulation_curve,
)

examples = st.builds(
    Example,
    mean=st.floats(-2.5, 2.5),
    deviation=st.floats(0.3, 3.0),
    counts=st.tuples(st.integers(5, 60), st.integers(5, 300)),
)


def simulated(example, gamma, repetitions, rng):
    """Excess and training loss of agent 1 with every sample drawn and every line fitted."""
    found = np.empty((repetitions, 2))
    centre = example.noise[0].mean
    means = (example.mean, 0.0)
    for i in range(repetitions):
        rows, targets, scales = [], [], (math.sqrt(gamma), 1.0)
        for n, mean in zip(example.counts, means, strict=True):
            kappa = np.empty(0)
            while kappa.size < n:
                drawn = rng.normal(mean, example.deviation, 4 * n)
                kappa = np.append(kappa, drawn[np.abs(drawn) <= 3])[:n]
            x = rng.random(n)
            rows.append(np.column_stack([np.ones(n), x]))
            targets.append(1 - 2 * x + kappa)
        design = np.concatenate([s * r for s, r in zip(scales, rows, strict=True)])
        aim = np.concatenate([s * t for s, t in zip(scales, targets, strict=True)])
        (intercept, slope), *_ = np.linalg.lstsq(design, aim, rcond=None)
        a, b = intercept - (1 + centre), slope + 2
        found[i] = a**2 + a * b + b**2 / 3, np.mean((targets[0] - rows[0] @ (intercept, slope)) ** 2)
    return found


@pytest.mark.parametrize("gamma", [0.4, 3.0])
def test_the_curve_is_the_mean_of_simulated_fits(gamma):
    example = Example(1.0, 1.3, (12, 18))
    drawn = simulated(example, gamma, 3000, np.random.default_rng(0))
    error = drawn.std(0, ddof=1) / math.sqrt(len(drawn))
    found = manipulation_curve(example, gamma)
    assert abs(found.excess[0] - drawn[:, 0].mean()) <= 3 * error[0]
    assert abs(found.training_loss[0] - drawn[:, 1].mean()) <= 3 * error[1]
    assert found.excess_error[0] < error[0] / 3  # the noise is not simulated


@given(example=examples)
def test_distance_and_moments_are_those_of_the_truncated_normals(example):
    ends = [((-3 - m) / example.deviation, (3 - m) / example.deviation) for m in (example.mean, 0.0)]
    first, second = (
        truncnorm(*end, loc=m, scale=example.deviation)
        for end, m in zip(ends, (example.mean, 0.0), strict=True)
    )
    mean, variance = first.stats("mv")
    assert example.noise[0].mean == pytest.approx(float(mean), abs=1e-6)
    assert example.noise[0].variance == pytest.approx(float(variance), rel=1e-5)
    points = np.linspace(-3, 3, 20_001)
    gap = np.trapezoid(np.abs(first.pdf(points) - second.pdf(points)), points)
    assert example.distance == pytest.approx((1 - example.weight) * gap, abs=1e-4)


def test_distance_to_many_digits():
    example = Example(2.0)
    first, second = (truncnorm((-3 - m) / 2**0.5, (3 - m) / 2**0.5, m, 2**0.5) for m in (2.0, 0.0))
    gap, _ = quad(lambda x: abs(first.pdf(x) - second.pdf(x)), -3, 3, limit=200, epsabs=1e-12)
    assert example.distance == pytest.approx((1 - 50 / 450) * gap, abs=1e-9)
    assert Example(0.0).distance == 0


@given(example=examples)
def test_training_loss_always_falls_and_the_best_factor_is_finite(example):
    gammas = np.append(np.geomspace(0.1, 1000, 12), math.inf)
    curve = manipulation_curve(example, gammas, designs=50)
    assert np.all(np.diff(curve.training_loss) < 1e-12)
    assert curve.loss == pytest.approx(curve.excess + example.noise[0].variance)
    near_alone = manipulation_curve(example, [1e5, 1e6, math.inf], designs=50).excess
    assert near_alone[0] < near_alone[1] < near_alone[2]  # learning alone is never quite the best


def test_the_best_factor_is_a_minimum():
    for deviation in READINGS.values():
        alike, apart = (best_factor(Example(mean, deviation), designs=500) for mean in MEANS)
        assert 1 < alike < 2 < 100 < apart < math.inf
        for example, best in ((Example(MEANS[0], deviation), alike), (Example(MEANS[1], deviation), apart)):
            around = manipulation_curve(example, [best / 1.1, best, best * 1.1], designs=500).excess
            assert around.argmin() == 1


def test_equal_agents_of_equal_noise_are_best_off_with_the_truth():
    """No distance and p_k = n_k/n: gamma* = 1 (the same follows from (16), erratum F-E13)."""
    assert best_factor(Example(0.0, 1.0, (20, 30)), designs=2000) == pytest.approx(1.0, abs=0.01)


def test_same_seed_same_numbers_whatever_is_asked_together():
    example = Example(0.1)
    together = manipulation_curve(example, [1, 2, math.inf], designs=30, seed=4)
    for place, gamma in enumerate((1, 2, math.inf)):
        assert manipulation_curve(example, gamma, designs=30, seed=4).excess[0] == together.excess[place]
    assert manipulation_curve(example, 1, designs=30, seed=5).excess[0] != together.excess[0]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mean", lambda: Example(math.nan)),
        ("mean", lambda: Example(100.0, 1.0).noise),
        ("deviation", lambda: Example(0.0, 0.0)),
        ("counts", lambda: Example(0.0, 1.0, (3, 400))),
        ("counts", lambda: Example(0.0, 1.0, (50,))),
        ("factors", lambda: manipulation_curve(Example(0.1), [1.0, -1.0])),
        ("factors", lambda: manipulation_curve(Example(0.1), [math.nan])),
        ("designs", lambda: manipulation_curve(Example(0.1), 1.0, designs=1)),
        ("seed", lambda: best_factor(Example(0.1), seed=-1)),
    ],
)
def test_bad_input_is_refused_by_name(name, call):
    with pytest.raises(InvalidValue, match=f"^{name} must"):
        call()


@given(example=examples, gamma=st.floats(0.1, 100.0), delta=st.floats(0.001, 0.2), printed=st.booleans())
def test_the_bound_is_proposition_3(example, gamma, delta, printed):
    """By the AgentPopulation's (16), whose distance is that of two histograms with the example's."""
    of = constants(example, delta, printed=printed)
    p = example.weight
    half = example.distance / (1 - p) / 2  # ||P_1 - P_2||/2
    kinds = [[0.5 + half / 2, 0.5 - half / 2], [0.5 - half / 2, 0.5 + half / 2]]
    lipschitz = math.sqrt(of.noise * 4 * 0.1 / (2 * math.log(4 / delta)))
    stated = AgentPopulation([p, 1 - p], example.counts, kinds, lipschitz, 2, 0.1, delta)
    noise_only = manipulated_risk(replace(stated, distributions=[kinds[0]] * 2), gamma)[0]
    distance = manipulated_risk(stated, gamma)[0] - noise_only
    found = bound(example, gamma, of)[0]
    assert found == pytest.approx(noise_only + of.distance / 2 * distance, rel=1e-9)
    if printed:
        assert best_factor_of_bound(example, of) == pytest.approx(best_manipulation(stated)[0], rel=1e-6)


@given(example=examples, printed=st.booleans())
def test_the_bound_is_above_the_loss_and_least_where_it_says(example, printed):
    of = constants(example, printed=printed)
    gammas = np.append(np.geomspace(0.1, 1000, 12), math.inf)
    bounds = bound(example, gammas, of)
    assert np.all(bounds >= manipulation_curve(example, gammas, designs=50).excess)
    best = best_factor_of_bound(example, of)
    assert bound(example, best, of)[0] <= bounds.min() * (1 + 1e-12)


def test_the_constants_are_those_of_drawn_samples():
    """Gradients, losses and partial derivatives of any sample, at any line best for a mix of the agents."""
    example, rng = Example(2.0), np.random.default_rng(0)
    m = example.noise[0].mean
    x, kappa, mixed = rng.random(20_000), rng.uniform(-3, 3, 20_000), rng.uniform(0, m, 20_000)
    residual = kappa - mixed  # at the line of true slope whose intercept is 1 + mixed
    gradients = -2 * residual[:, None] * np.column_stack([np.ones_like(x), x])
    printed, right = (constants(example, printed=how) for how in (True, False))
    convexity = 2 * min(np.linalg.eigvals([[1, 1 / 2], [1 / 2, 1 / 3]]))
    log = 2 * math.log(4 / 0.01) / (4 * convexity)
    assert 0.9 < np.linalg.norm(gradients, axis=1).max() / math.sqrt(printed.noise / log) <= 1
    ranges = [2 * (residual.max() - residual.min()) for residual in (kappa - at for at in (0.0, m))]
    assert all(0.9 < spread / math.sqrt(right.noise / log) <= 1 for spread in ranges)
    assert 0.9 < (residual**2).max() / right.distance <= 1
    assert printed.distance == 2


def test_a_smaller_delta_moves_the_bound_by_a_logarithm_only():
    example = Example(0.1)
    noise = [constants(example, delta, printed=True).noise for delta in (0.1, 0.01, 0.001)]
    assert noise[2] - noise[1] == pytest.approx(noise[1] - noise[0])
    plain = [constants(example, delta, printed=True, logarithm=False).noise for delta in (0.1, 0.01)]
    assert plain[1] == pytest.approx(10 * plain[0])
    with pytest.raises(InvalidValue, match=r"^delta must be between 0 and 1"):
        constants(example, 1.0, printed=True)


def test_the_table_of_figure_1_has_both_readings_and_learning_alone():
    rows = amplifying.rows(amplifying.Draws(designs=50, points=3), {})
    assert [row["gamma"] for row in rows] == [0.25, pytest.approx(250**0.5), pytest.approx(1000), None] * 2
    for row in rows:
        example = Example(0.1, READINGS[row["reading"]])
        gamma = math.inf if row["gamma"] is None else row["gamma"]
        assert row["best_gamma"] == best_factor(example, designs=50)
        assert row["loss"] == manipulation_curve(example, gamma, designs=50).loss[0]
        assert row["loss"] < row["printed_bound"] < row["bound"]
