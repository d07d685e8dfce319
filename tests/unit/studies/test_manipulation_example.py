import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import truncnorm

from bonafed.errors import InvalidValue
from bonafed.studies.faithful.manipulation import (
    MEANS,
    READINGS,
    Example,
    best_factor,
    figure,
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


def test_the_figure_has_both_panels_and_readings():
    drawn = figure(designs=50)
    assert [axes.get_title().split(":")[0] for axes in drawn.axes] == ["mean 0.1", "mean 2"]
    labels = [text.get_text() for text in drawn.axes[0].get_legend().get_texts()]
    assert labels == list(READINGS)
    for axes, mean in zip(drawn.axes, MEANS, strict=True):
        curve = next(line for line in axes.lines if line.get_label() == "variance 2")
        example = Example(mean)
        assert curve.get_ydata()[0] == manipulation_curve(example, 0.25, designs=50).excess[0]
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png")
    assert buffer.getvalue()[:4] == b"\x89PNG"


def test_the_study_is_the_best_factor_of_every_panel_and_reading():
    from bonafed.studies.faithful.manipulation import STUDY
    from bonafed.studies.grid import run

    rows = run(STUDY, STUDY.options(designs=50)).data["rows"]
    assert [(row["mean"], row["reading"]) for row in rows] == [(m, r) for m in MEANS for r in READINGS]
    for row in rows:
        assert row["best_factor"] == best_factor(Example(row["mean"], READINGS[row["reading"]]), designs=50)
        assert row["excess_by_the_best"] < min(row["excess_by_the_truth"], row["excess_alone"])
