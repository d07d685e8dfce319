"""The paper's example of manipulation (Fig. 1): how much should agent 1 overstate its gradient?

Two agents fit y = a + b x with n_1 = 50 and n_2 = 400 samples, weights p_k = n_k/n, squared loss
(y - a - b x)^2, x uniform on [0, 1], y = 1 - 2x + kappa, kappa normal and truncated to [-3, 3]: around
`mean` for agent 1, around 0 for agent 2. "N(mean, 2)" does not say whether 2 is the variance or the
standard deviation (erratum F-E14): `READINGS` has both.

An agent 1 that amplifies its gradient by gamma makes FedAvg converge to the least squares of gamma times
its own sum of squares plus the other's. With A_k = X_k'X_k, M = E[xx'], theta_k the true line of agent k,
v_k the variance of its truncated kappa and S = gamma A_1 + A_2,

    w - theta_1 = S^-1 (A_2 (theta_2 - theta_1) + gamma X_1'e_1 + X_2'e_2),

so that agent 1's expected excess risk for given X is, exactly,

    (1)  tr[M S^-1 (gamma^2 v_1 A_1 + v_2 A_2) S^-1] + d'A_2 S^-1 M S^-1 A_2 d,    d = theta_2 - theta_1,

and what its own training samples show of the loss is

    (2)  v_1 - 2 gamma v_1 tr(A_1 S^-1)/n_1 + (1) with A_1/n_1 for M.

Only the mean over X is simulated; the noise never is. (2) falls in gamma always: what the paper calls
empirical loss must be the loss on fresh samples (F-E14). (1) has its least at a *finite* gamma even for
agents far apart, where the text says that agent 1 "prefers an infinitely large gamma": with u = 1/gamma,
the noise falls by 2u v_1 tr(M A_1^-1 A_2 A_1^-1) at first, and the bias only rises by order u^2. That
optimum is large (hundreds) and gains little over learning alone. In the bound (16) the distance is of
order u, so there gamma* is infinite. The bound, which the paper draws beside the loss, needs a Lipschitz
constant and strong convexity per sample; this example has neither, so it is not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.sections import Section, key
from bonafed.shown import Document
from bonafed.studies.grid import Results, Study, report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

READINGS: Mapping[str, float] = {"variance 2": math.sqrt(2.0), "standard deviation 2": 2.0}
MEANS = (0.1, 2.0)  # of the two panels: agents alike, and far apart
_END = 3.0  # kappa is truncated to [-3, 3]
_SECOND_MOMENT = np.array([[1.0, 1 / 2], [1 / 2, 1 / 3]])  # M, for (1, x) and x uniform on [0, 1]


class Noise(NamedTuple):
    """What truncation leaves of a normal distribution."""

    mean: float
    variance: float
    mass: float  # of the normal distribution within the ends


@dataclass(frozen=True)
class Example:
    """Two agents, as in Fig. 1."""

    mean: float  # of agent 1's kappa, before truncation
    deviation: float = math.sqrt(2.0)  # of both kappa, before truncation
    counts: tuple[int, int] = (50, 400)  # samples

    def __post_init__(self) -> None:
        checks.number("mean", self.mean)
        checks.positive("deviation", self.deviation)
        if len(self.counts) != 2:
            raise InvalidValue("counts", "must be two numbers of samples", self.counts)
        for count in self.counts:
            # E[1/sum (x - mean)^2], the variance of a fitted slope, is finite from four points on
            checks.whole("counts", count, at_least=4)

    @property
    def weight(self) -> float:
        """p_1."""
        return self.counts[0] / sum(self.counts)

    @property
    def noise(self) -> tuple[Noise, Noise]:
        """Agent 1's and agent 2's kappa."""
        return _truncate(self.mean, self.deviation), _truncate(0.0, self.deviation)

    @property
    def distance(self) -> float:
        """||P_1 - sum p_j P_j|| of (16) = (1 - p_1) times the integral of |f_1 - f_2|.

        f_1/f_2 is monotone, so the densities cross once, at x, and the integral is 2 |F_1(x) - F_2(x)|.
        """
        m, s = self.mean, self.deviation
        first, second = self.noise
        if m == 0:
            return 0.0
        x = m / 2 + s**2 * math.log(first.mass / second.mass) / m
        shares = [
            float(ndtr((x - at) / s) - ndtr((-_END - at) / s)) / mass  # F_1(x), F_2(x)
            for at, mass in ((m, first.mass), (0.0, second.mass))
        ]
        return 2 * (1 - self.weight) * abs(shares[0] - shares[1])


class Curve(NamedTuple):
    """What agent 1 gets by each factor; means over the drawn x and their standard errors."""

    factor: Floats  # (m,) gamma; infinity is learning alone
    excess: Floats  # (m,) (1): expected loss on fresh samples, above the best line's
    excess_error: Floats  # (m,) standard error of the mean over x
    loss: Floats  # (m,) excess plus the variance of the noise
    training_loss: Floats  # (m,) (2): expected loss on its own training samples


def _truncate(mean: float, deviation: float) -> Noise:
    a, b = (-_END - mean) / deviation, (_END - mean) / deviation
    mass = float(ndtr(b) - ndtr(a))
    if mass < 1e-12:
        raise InvalidValue("mean", f"must leave kappa some mass within +-{_END:g}", mean)
    low, high = (math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) for z in (a, b))
    shift = (low - high) / mass
    variance = deviation**2 * (1 + (a * low - b * high) / mass - shift**2)
    return Noise(mean + deviation * shift, variance, mass)


def _designs(example: Example, designs: int, seed: int) -> tuple[Floats, Floats]:
    """(designs, 2, 2) the A_1 and A_2 of drawn x."""
    rng = np.random.default_rng(seed)
    matrices = []
    for n in example.counts:
        x = rng.random((designs, n))
        first, second = x.sum(1), (x**2).sum(1)
        matrices.append(np.stack([np.full(designs, float(n)), first, first, second], 1).reshape(-1, 2, 2))
    return matrices[0], matrices[1]


def manipulation_curve(
    example: Example, factors: ArrayLike, *, designs: int = 4000, seed: int = 0
) -> Curve:
    """(1) and (2) for every factor, all with the same drawn x, so that curves are smooth in the factor."""
    gammas = np.atleast_1d(np.asarray(factors, dtype=np.float64))
    if gammas.ndim != 1 or not gammas.size or np.isnan(gammas).any() or (gammas <= 0).any():
        raise InvalidValue("factors", "must be positive; infinity is learning alone", factors)
    draws = checks.whole("designs", designs, at_least=2)
    first, second = _designs(example, draws, checks.seed("seed", seed))
    points = [_at(example, float(gamma), first, second) for gamma in gammas]
    excess = np.array([risk.mean() for risk, _ in points])
    error = np.array([risk.std(ddof=1) / math.sqrt(draws) for risk, _ in points])
    training = np.array([loss.mean() for _, loss in points])
    return Curve(gammas, excess, error, excess + example.noise[0].variance, training)


def _at(example: Example, gamma: float, first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """(designs,) of (1) and of (2) for one factor."""
    # only the ratio of the two weights matters; this form has its limit, gamma = infinity, in it
    own, other = (1.0, 0.0) if math.isinf(gamma) else (gamma / (1 + gamma), 1 / (1 + gamma))
    mine, theirs = example.noise
    inverse = np.linalg.inv(own * first + other * second)
    gap = np.array([theirs.mean - mine.mean, 0.0])  # the lines differ in the intercept only
    bias = other * np.einsum("nij,njk,k->ni", inverse, second, gap)
    spread = own**2 * mine.variance * first + other**2 * theirs.variance * second
    covariance = inverse @ spread @ inverse + bias[:, :, None] * bias[:, None, :]
    risk = np.einsum("ij,nji->n", _SECOND_MOMENT, covariance)
    moment = first / example.counts[0]
    overfit = own * np.einsum("nij,nji->n", moment, inverse)  # how far the line follows agent 1's noise
    training = mine.variance * (1 - 2 * overfit) + np.einsum("nij,nji->n", moment, covariance)
    return risk, training


def best_factor(example: Example, *, designs: int = 4000, seed: int = 0) -> float:
    """The gamma up to 10,000 of least expected loss; infinity if learning alone is as good as it."""
    first, second = _designs(
        example, checks.whole("designs", designs, at_least=2), checks.seed("seed", seed)
    )

    def risk(log_gamma: float) -> float:
        return float(_at(example, math.exp(log_gamma), first, second)[0].mean())

    grid = np.linspace(math.log(1e-2), math.log(1e4), 57)
    values = [risk(float(point)) for point in grid]
    alone = float(_at(example, math.inf, first, second)[0].mean())
    if alone <= min(values):
        return math.inf
    at = min(max(int(np.argmin(values)), 1), grid.size - 2)
    least = minimize_scalar(
        risk, bounds=(grid[at - 1], grid[at + 1]), method="bounded", options={"xatol": 1e-6}
    )
    return math.exp(float(least.x))


def figure(*, designs: int = 1000, seed: int = 0) -> Figure:
    """Fig. 1 (a) and (b): agent 1's expected loss against gamma, agents alike and far apart."""
    from bonafed.style import BLUE, GREY, RED, sheet

    picture = sheet(9, 3.6)
    gammas = np.geomspace(0.25, 1000, 100)
    for axes, mean in zip(picture.subplots(1, 2), MEANS, strict=True):
        for (name, deviation), colour in zip(READINGS.items(), (BLUE, RED), strict=True):
            example = Example(mean, deviation)
            curve = manipulation_curve(example, [*gammas, math.inf], designs=designs, seed=seed)
            axes.plot(gammas, curve.excess[:-1], color=colour, lw=1.8, label=name)
            axes.axhline(curve.excess[-1], color=colour, ls=":", lw=1)
            best = best_factor(example, designs=designs, seed=seed)
            if math.isfinite(best):
                least = manipulation_curve(example, best, designs=designs, seed=seed).excess
                axes.plot([best], least, "o", color=colour)
        axes.axvline(1, color=GREY, lw=0.8)
        axes.set(xscale="log", xlabel="gamma, factor on agent 1's gradient", ylim=(0, None))
        verdict = "overstate a little" if mean == MEANS[0] else "nearly learn alone (dotted)"
        axes.set_title(f"mean {mean:g}: {verdict}")
    picture.axes[0].set_ylabel("agent 1's expected excess loss")
    picture.axes[0].legend(frameon=False, fontsize=8)
    return picture


# What is shown


@dataclass(frozen=True)
class Draws(Section):
    """What the means are over."""

    designs: int = key(
        lambda name, value: checks.whole(name, value, at_least=2), 1000, help="Drawn x to average over."
    )
    seed: int = key(checks.seed, 0, help="Of the draws.")


def _show(draws: Draws, _: Results) -> Document:
    many = {"designs": draws.designs, "seed": draws.seed}
    rows = []
    for mean in MEANS:
        for reading, deviation in READINGS.items():
            example = Example(mean, deviation)
            best = best_factor(example, **many)
            truth, least, alone = manipulation_curve(example, [1.0, best, math.inf], **many).excess.tolist()
            rows.append({
                "mean": mean, "reading": reading, "distance": example.distance, "best_factor": best,
                "excess_by_the_truth": truth, "excess_by_the_best": least, "excess_alone": alone,
            })  # fmt: skip
    note = "Excess: agent 1's expected loss on fresh samples above that of the best line (erratum F-E14)."
    return report(
        "How much should agent 1 overstate its gradient?", rows, lambda: figure(**many), notes=(note,)
    )


STUDY = Study(
    "How much should an agent overstate its gradient? (faithful paper, figure 1)", Draws, _show,
    example="bonafed reproduce faithful-manipulation --plot figure1.png",
)  # fmt: skip
