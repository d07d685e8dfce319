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
optimum is large (hundreds) and gains little over learning alone.

The bound (16), which the paper draws beside the loss without stating its constants, asks for a strongly
convex loss per sample, and none is here: a single sample does not determine a line. Its proof needs less,
and what it needs the example has, since x and kappa are bounded:

    mu       of the expected risk alone, (68): twice the least eigenvalue of M
    L_ell    (7), at any line that is best for some mix of the agents: these have the true slope and an
             intercept between the agents' own, so |y - a - b x| <= 3 + |m|, m the mean of agent 1's
             truncated kappa, and |gradient| <= 2 sqrt(2) (3 + |m|)
    range    of the loss at such a line, at most (3 + |m|)^2

`printed_bound` is (16) with these. `bound` is what the proof gives for them: Hoeffding's inequality takes
the range of a partial derivative, 2 times 6, in place of L_ell (F-E12), and (73) and (74) take half the
range of the loss each in place of 1. Either is a bound on the excess (1), and far above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

READINGS: Mapping[str, float] = {"variance 2": math.sqrt(2.0), "standard deviation 2": 2.0}
MEANS = (0.1, 2.0)  # of the two panels: agents alike, and far apart
_DIMENSION = 2  # d, numbers of a line
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
        """The weight p_1 of agent 1, its share of all samples."""
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
    first_noise, second_noise = example.noise
    inverse = np.linalg.inv(own * first + other * second)
    gap = np.array([second_noise.mean - first_noise.mean, 0.0])  # the lines differ in the intercept only
    bias = other * np.einsum("nij,njk,k->ni", inverse, second, gap)
    spread = own**2 * first_noise.variance * first + other**2 * second_noise.variance * second
    covariance = inverse @ spread @ inverse + bias[:, :, None] * bias[:, None, :]
    risk = np.einsum("ij,nji->n", _SECOND_MOMENT, covariance)
    moment = first / example.counts[0]
    overfit = own * np.einsum("nij,nji->n", moment, inverse)  # how far the line follows agent 1's noise
    training = first_noise.variance * (1 - 2 * overfit) + np.einsum("nij,nji->n", moment, covariance)
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


class Constants(NamedTuple):
    """What the bound (16) is made of: c (S + gamma^2 p_1^2/n_1)/D^2 + h ||P_1 - sum p_j P_j||/D."""

    noise: float  # c
    distance: float  # h; 2 as printed


def constants(example: Example, delta: float = 0.01, *, printed: bool, logarithm: bool = True) -> Constants:
    """Those of the example; without the `logarithm`, 2d/delta in its place, as Chebyshev's inequality would
    have it: what figure 1c is not about."""
    if not 0 < checks.number("delta", delta) < 1:
        raise InvalidValue("delta", "must be between 0 and 1, ends excluded", delta)
    largest = _END + abs(example.noise[0].mean)  # of |y - a - b x|
    convexity = 2 * float(np.linalg.eigvalsh(_SECOND_MOMENT)[0])
    spread = 2 * math.sqrt(2) * largest if printed else 2 * 2 * _END
    chance = 2 * _DIMENSION / delta
    noise = spread**2 * _DIMENSION * (math.log(chance) if logarithm else chance) / (4 * convexity)
    return Constants(noise, 2.0 if printed else largest**2)


def bound(example: Example, factors: ArrayLike, of: Constants) -> Floats:
    """(m,) (16) for every factor; infinity is learning alone, (13)."""
    (n_1, n_2), p = example.counts, example.weight
    gammas = np.atleast_1d(np.asarray(factors, dtype=np.float64))
    u = 1 / (1 + (gammas - 1) * p)  # 1/D; 1 - (1 - p) u is agent 1's share
    noise = of.noise * (((1 - p) * u) ** 2 / n_2 + (1 - (1 - p) * u) ** 2 / n_1)
    return np.asarray(noise + of.distance * example.distance * u)


def best_factor_of_bound(example: Example, of: Constants) -> float:
    """The gamma of the least bound, a parabola in u = 1/D (F-E13); infinity if that is least at u = 0."""
    ""
    (n_1, n_2), p = example.counts, example.weight
    towards = of.noise * (1 - p) / n_1 - of.distance * example.distance / 2
    u = towards / (of.noise * (1 - p) ** 2 * (1 / n_1 + 1 / n_2))
    return 1 + (1 / u - 1) / p if u > 0 else math.inf
