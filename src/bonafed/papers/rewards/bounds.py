"""Convergence bounds of model rewards: Theorems 1 and 2, Proposition 2, with corrected terms (theory D3).

With L-smooth, mu-strongly convex losses, tau local steps, gradients bounded by G, variance Sigma^2,
Gamma = F* - mean of F_i*, D_1 = E|theta_1 - theta*|^2, and induced reward rates gamma'_{i,t} in [1/N, 1]:

    Q    = 2 L tau (2 tau + 3) Gamma + 2 tau^3 G^2 + tau^2 Sigma^2
    H_t  = (2 - 2 mu eta_t) tau^3 G^2

    Theorem 1   eta_t = 1/(mu tau (t + alpha)), alpha >= 4 L (tau + 1)/(mu tau):
                E F(theta_{i,T}) - F* <= L/(2 mu^2 tau^2) (B + C_T)/(alpha + T),
                B   = Q + (alpha + 1) mu^2 tau^2 D_1
                C_T = H_T/N sum_m sum_{t<=T} ((T+alpha)/(t+alpha))^2 (1/gamma'_{m,t} + 1/gamma'_{i,t} - 2)
    Theorem 2   eta_t = beta/(t + alpha), with recovery of the reference model with probability q:
                E F(theta_{i,T}) - F* <= L/2 x_T,  x_1 = D_1,
                x_{t+1} = (1 - 2 mu eta_t tau) x_t + eta_t^2 (Q + D_t + E_t)
                D_T = H_T/N sum_m sum_{t<=T} ((T+alpha)/(t+alpha))^2 (1/gamma'_{m,t} + 1/gamma'_{ref,t} - 2)
                      (1-q)^(T-t+1);     E_T the same with i in the place of the mean over m
    Proposition 2   x_T -> 0 if 1/gamma' = o(t/log t); see `limit_bound`.

Errata. R-1: the main text's D_T lacks the square and sums m up to T. R-2: the product of (44) must have
eta_l where eta_t is printed. R-3: T steps bound theta_{T+1}, T - 1 bound theta_T; and Theorem 2 has Q where
it says B. R-8: (55) has a spurious 1/T, so Proposition 2 needs o(t/log t), not o(t^2/log t); harmless,
since 1/gamma' <= N. R-9: (47) is right, and (46) loose by (1 + alpha)^2.

These are the paper's theorems; they do not hold for its own algorithm as it stands. Lemma D.2 needs every
reward to be an unbiased sample of all updates. The own update has weight 1/|S_i|, more than 1/N, so that is
false unless gamma = 1 or the data are alike (theory D2, R-12): with q = 0 clients drift to their own
optima, which no bound shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.section import unit
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    at_least,
    at_most,
    drawn_by,
    number,
    where,
)
from bonafed.sections import Section, flag, key

Recursion = Literal["exact", "T steps", "printed"]
Variant = Literal["exact", "printed"]


@dataclass(frozen=True, slots=True)
class TrainingProblem:
    """What the bounds depend on besides reward rates."""

    smoothness: float  # L > 0
    strong_convexity: float  # mu in (0, L]
    local_steps: int  # tau >= 1
    heterogeneity: float  # Gamma >= 0, F* - mean of the F_i*
    gradient_bound: float  # G >= 0, E|gradient|^2 <= G^2
    variance: float  # Sigma^2 >= 0, of stochastic gradients, averaged over clients
    shift: float  # alpha >= 0, of the learning rate
    start: float  # D_1 >= 0, E|theta_1 - theta*|^2

    def __post_init__(self) -> None:
        checks.positive("smoothness", self.smoothness)
        if checks.positive("strong_convexity", self.strong_convexity) > self.smoothness:
            raise InvalidValue(
                "strong_convexity",
                f"must not exceed smoothness = {self.smoothness:g}",
                self.strong_convexity,
            )
        checks.whole("local_steps", self.local_steps)
        for name in ("heterogeneity", "gradient_bound", "variance", "shift", "start"):
            checks.non_negative(name, getattr(self, name))

    @property
    def constant(self) -> float:
        """Q, the constant of Theorem 1."""
        tau, squares = self.local_steps, self.gradient_bound**2
        first = 2 * self.smoothness * tau * (2 * tau + 3) * self.heterogeneity
        return first + 2 * tau**3 * squares + tau**2 * self.variance

    @property
    def constant_with_start(self) -> float:
        """B = Q + (alpha + 1) mu^2 tau^2 D_1."""
        return (
            self.constant + (self.shift + 1) * (self.strong_convexity * self.local_steps) ** 2 * self.start
        )

    @property
    def least_shift(self) -> float:
        """4 L (tau + 1)/(mu tau): the least alpha of Theorem 1."""
        tau = self.local_steps
        return 4 * self.smoothness * (tau + 1) / (self.strong_convexity * tau)

    @property
    def least_rate(self) -> float:
        """beta = 1/(2 mu tau): what Proposition 2 takes for Theorem 2."""
        return 1 / (2 * self.strong_convexity * self.local_steps)

    def drift(self, eta: Floats) -> Floats:
        """H = (2 - 2 mu eta) tau^3 G^2, for learning rates of any shape."""
        return np.asarray(
            (2 - 2 * self.strong_convexity * eta) * self.local_steps**3 * self.gradient_bound**2
        )


def _rates(rates: ArrayLike) -> Floats:
    """(T, N) induced rates in (0, 1], checked."""
    gamma = np.asarray(rates, dtype=np.float64)
    if gamma.ndim != 2 or 0 in gamma.shape:
        raise InvalidValue("rates", "must be (rounds, clients)", f"shape {gamma.shape}")
    if not ((gamma > 0) & (gamma <= 1)).all():
        bad = gamma[~((gamma > 0) & (gamma <= 1))][0]
        raise InvalidValue("rates", "must be above 0 and at most 1", float(bad))
    return gamma


class PerformanceBound(NamedTuple):
    """Theorem 1: what is left of the gap to the optimum."""

    propagation: Floats  # (N,) C_T: what incomplete rewards of all clients cost client i
    bound: Floats  # (N,) on E F(theta_{i,T}) - F*


def performance_bound(problem: TrainingProblem, rates: ArrayLike) -> PerformanceBound:
    """Theorem 1, for induced rates (T, N): without recovery. It grows with T unless all rates are 1."""
    check_shift(problem)
    inverse = 1 / _rates(rates)
    rounds, a = inverse.shape[0], problem.shift
    mu, tau = problem.strong_convexity, problem.local_steps
    old = ((rounds + a) / (np.arange(1, rounds + 1) + a)) ** 2  # how much an early error has grown
    excess = old @ (inverse + inverse.mean(1, keepdims=True) - 2)
    propagation = problem.drift(np.array(1 / (mu * tau * (rounds + a)))) * excess
    scale = problem.smoothness / (2 * mu**2 * tau**2 * (a + rounds))
    return PerformanceBound(propagation, scale * (problem.constant_with_start + propagation))


def check_shift(problem: TrainingProblem) -> None:
    """Refuses an alpha below what Theorem 1 asks for."""
    if problem.shift < problem.least_shift * (1 - 1e-12):
        raise InvalidValue("shift", f"must be at least {problem.least_shift:g}", problem.shift)


class RecoveryBound(NamedTuple):
    """Theorem 2: what is left of the gap with recovery."""

    common: Floats  # (T,) D_t
    own: Floats  # (T, N) E_t
    bound: Floats  # (N,) on E F(theta_{i,T}) - F*


def recovery_bound(
    problem: TrainingProblem,
    rates: ArrayLike,
    reference: ArrayLike,
    recovery: float,
    *,
    rate: float | None = None,
    variant: Recursion = "exact",
) -> RecoveryBound:
    """Theorem 2, for induced rates (T, N) and those of the reference model, one or (T,).

    `recovery` is q in (0, 1], `rate` is beta, 1/(2 mu tau) unless given. "T steps" runs the recursion once
    more, to theta_{T+1} (R-3); "printed" is (44) with its product of eta_t, too small to be a bound (R-2).
    """
    checks.literal("variant", variant, Recursion)
    inverse = 1 / _rates(rates)
    rounds = inverse.shape[0]
    guide = np.broadcast_to(np.asarray(reference, dtype=np.float64), (rounds,))
    other = 1 / _rates(guide[:, None])
    q = checks.between("recovery", recovery, 1e-12, 1.0)
    eta = (problem.least_rate if rate is None else checks.positive("rate", rate)) / (
        np.arange(1, rounds + 1) + problem.shift
    )
    keep = 1 - 2 * problem.strong_convexity * problem.local_steps * eta
    if (keep < 0).any():
        raise InvalidValue("rate", "must leave 2 mu tau eta_t at most 1", rate)
    # Both sums fade by 1 - q per round: y_t = (1 - q)(y_{t-1} + excess_t eta_t^2), D_t = H_t y_t/eta_t^2.
    parts, fading = np.empty(inverse.shape), np.zeros(inverse.shape[1])
    for t in range(rounds):
        fading = (1 - q) * (fading + (inverse[t] + other[t] - 2) * eta[t] ** 2)
        parts[t] = problem.drift(eta[t]) * fading / eta[t] ** 2
    common = parts.mean(1)
    growth = (eta**2)[:, None] * (problem.constant + common[:, None] + parts)
    if variant == "printed":
        x = keep.prod() * problem.start + keep ** (rounds - 1 - np.arange(rounds)) @ growth
    else:
        x = np.full(inverse.shape[1], float(problem.start))
        for t in range(rounds if variant == "T steps" else rounds - 1):
            x = keep[t] * x + growth[t]
    return RecoveryBound(common, parts, problem.smoothness / 2 * x)


def printed_common_term(
    problem: TrainingProblem, rates: ArrayLike, reference: float, recovery: float
) -> float:
    """D_T of the main text, without the square (R-1); m is summed over the clients, not up to T."""
    inverse = 1 / _rates(rates)
    rounds, a = inverse.shape[0], problem.shift
    t = np.arange(1, rounds + 1)
    fade = (1 - checks.between("recovery", recovery, 0.0, 1.0)) ** (rounds - t + 1)
    excess = inverse.mean(1) + 1 / checks.between("reference", reference, 1e-300, 1.0) - 2
    last = problem.drift(np.array(problem.least_rate / (rounds + a)))
    return float(last * (((rounds + a) / (t + a)) * fade @ excess))


def fading_sum(shift: float, recovery: float) -> float:
    """(47): the sum over l >= 0 of (l + 1 + alpha)^2 (1-q)^(l+1), in closed form."""
    a, q = checks.non_negative("shift", shift), checks.between("recovery", recovery, 1e-12, 1.0)
    return (1 - q) * (a**2 * q**2 + 2 * a * q + 2 - q) / q**3


def tight_fading_sum(shift: float, recovery: float) -> float:
    """Sum over l of (1 + l/(1+alpha))^2 (1-q)^(l+1), which bounds the same terms as (46).

    (T+alpha)/(T-l+alpha) is at most 1 + l/(1+alpha), not only at most l + 1 + alpha: the sum is that of
    (47) over (1+alpha)^2, 2,000 times less at alpha = 45 (R-9).
    """
    return fading_sum(shift, recovery) / (1 + shift) ** 2


def limit_bound(
    problem: TrainingProblem,
    inverse_rate: ArrayLike,
    inverse_reference: float,
    recovery: float,
    rounds: int,
    *,
    variant: Variant = "exact",
) -> Floats:
    """Proposition 2, (54): (N,) bounds on E|theta_{i,T} - theta*|^2 that fall like log T/T.

    `inverse_rate` (N,) and `inverse_reference` are the largest 1/gamma' so far. If they stay bounded, as
    1/gamma' <= N makes sure, this goes to 0. "exact" takes the tight sum, "printed" (47).

        x_T <= [alpha D_1 + Y_T sum_{l<T} 1/(alpha + l)]/(T + alpha - 1),
        Y_T = beta^2 (Q + M A_i + M mean of A_m),  A_i = 1/gamma'_i + 1/gamma'_ref,  M = 2 tau^3 G^2 S
    """
    checks.literal("variant", variant, Variant)
    largest = checks.vector("inverse_rate", inverse_rate, sign="positive")
    both = largest + checks.positive("inverse_reference", inverse_reference)
    total = tight_fading_sum if variant == "exact" else fading_sum
    m = 2 * problem.local_steps**3 * problem.gradient_bound**2 * total(problem.shift, recovery)
    a, last = problem.shift, checks.whole("rounds", rounds, at_least=2)
    growth = problem.least_rate**2 * (problem.constant + m * both + m * both.mean())
    harmonic = float((1 / (a + np.arange(1, last))).sum())
    return np.asarray((a * problem.start + growth * harmonic) / (last + a - 1))


# Theorems 1 and 2, corollary 1, proposition 2: what the bounds say of rates, rounds and recovery


_RATES = (0.3, 0.5, 0.8, 1.0)  # induced rates of four clients
_PROBLEM = TrainingProblem(
    smoothness=4, strong_convexity=0.5, local_steps=3, heterogeneity=0.2, gradient_bound=1.5, variance=0.3,
    shift=45, start=2,
)  # fmt: skip
ALONE, RECOVERED, FULL = "theorem 1", "theorem 2", "corollary 1: all rates 1"


@dataclass(frozen=True)
class Bounds(Section):
    """What the bounds are computed for; the paper has no numbers."""

    rounds: int = key(lambda name, value: checks.whole(name, value, 100), 3200, help="The last T.")
    recovery: float = key(unit, 0.1, help="q of theorem 2.")
    backwards: bool = key(flag, False, help="Control: rounds and rates are read in the opposite order.")


def theorem1_rows(options: Bounds, _: Results) -> list[Row]:
    """Bounds for every client, theorem and number of rounds."""
    rows: list[Row] = []
    lengths = np.unique(np.geomspace(100, options.rounds, 6).round().astype(int)).tolist()
    read = lengths[::-1] if options.backwards else lengths
    clients = _RATES[::-1] if options.backwards else _RATES
    for rounds, length in zip(lengths, read, strict=True):
        rates = np.tile(clients, (length, 1))
        bounds = {
            ALONE: performance_bound(_PROBLEM, rates).bound,
            RECOVERED: recovery_bound(_PROBLEM, rates, 1.0, options.recovery).bound,
            FULL: performance_bound(_PROBLEM, np.ones_like(rates)).bound,
        }
        rows += [
            {"theorem": name, "rounds": rounds, "rate": rate, "bound": float(value)}
            for name, values in bounds.items()
            for rate, value in zip(_RATES, values, strict=True)
        ]
    return rows


def theorem1_checks(rows: Sequence[Row]) -> list[Check]:
    """Better for higher rates; without recovery towards 0 only if all rates are 1; with it, always."""
    last = max(number(row, "rounds") for row in rows)
    steps = [
        float(np.diff([number(row, "bound") for row in where(rows, theorem=name, rounds=int(last))]).max())
        for name in (ALONE, RECOVERED)
    ]

    def change(name: str) -> Estimate:
        own = [number(row, "bound") for row in where(rows, theorem=name, rate=_RATES[0])]
        return Estimate(own[-1] / own[0])

    return [
        at_most("largest change of the bound of theorem 1 where a rate grows", Estimate(steps[0]), 0.0),
        at_most("largest change of the bound of theorem 2 where a rate grows", Estimate(steps[1]), 0.0),
        at_least("bound of theorem 1 after the last round over that after 100", change(ALONE), 1.0),
        at_most("the same of theorem 2", change(RECOVERED), 0.5),
        at_most("the same if all rates are 1", change(FULL), 0.5),
    ]


THEOREM1 = Claim(
    identifier="rewards-theorem1",
    paper="rewards",
    place="theorems 1 and 2, corollary 1, proposition 2",
    says="Clients with higher reward rates have better guarantees; without recovery the bound does not "
    "vanish unless all rates are 1; with recovery it does.",
    presets={"smoke": Bounds(rounds=800), "quick": Bounds(), "paper": Bounds()},
    rows=theorem1_rows,
    judge=theorem1_checks,
    draw=drawn_by("rewards", "bounds_figure", FULL),
    control={"backwards": True},
    about="""\
Bounds of four clients with the induced rates 0.3, 0.5, 0.8 and 1, by the corrected formulas (errata R-1
to R-10), for a problem with L = 4, mu = 0.5, three local steps, and a reference model of rate 1. What is
judged are the formulas. That theorem 1 is a bound at all supposes rewards with the same mean for all
clients, which is false (R-12): without recovery models drift to their clients' own optima.""",
)


CLAIMS = (THEOREM1,)
