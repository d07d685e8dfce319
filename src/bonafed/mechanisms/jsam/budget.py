"""A sum of money instead of the weight eta.

The expected money B(eta) of the optimal plan does not fall in eta: of two weights the larger one buys at
least as much (add the two optimality inequalities). So a weight for a budget can be found by halving. There
are two ways to mean it, and they differ in what they promise:

    eta_for_expected_budget  the weight is fixed by the priors, before anyone reports, so that the
                             expected payments equal the budget. Truthful; what these reports cost may be
                             more or less.
    eta_for_budget           the largest weight (to 1e-9) at which the payments for THESE reports stay
                             within the budget. A hard limit; but the weight now depends on the reports,
                             so that every client has a small say in it and exact truthfulness is lost.

With complete information (JSAM-CI) the server knows every cost and pays exactly that. It is a benchmark,
not a mechanism: it gives nobody a reason to state its true cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue, NoSolution
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.jsam.allocation import allocate
from bonafed.mechanisms.jsam.on_sum import best_points, sorted_segments, weight_of
from bonafed.mechanisms.jsam.payments import PrivacySettlement, capped_rule, settle, virtual_costs_of
from bonafed.mechanisms.jsam.rules import Jsam, Rule
from bonafed.mechanisms.jsam.thresholds import distance_of, inner, spread_of

_CLOSE, _NEAR = 1e-9, 1e-6  # relative, of eta; the latter where it stands for an average over draws
_STALLS = 20  # doublings of eta that bought nothing more
_NOT_SPENT = "must be smaller: even with everybody at max_epsilon it cannot be spent"


class Budgeted(NamedTuple):
    """A weight, and the settlement it leads to."""

    eta: float
    settlement: PrivacySettlement


def eta_for_budget(
    reports: ArrayLike,
    prior: Prior | Sequence[Prior],
    budget: float,
    noise_scale: float,
    *,
    rule: Rule | None = None,
    max_epsilon: ArrayLike | None = None,
) -> Budgeted:
    """The largest eta found whose payments for these reports stay within the budget.

    The payments jump where one more client is selected, so they may stay below the budget. They are
    checked, whatever the search did: `settlement.spend <= budget`. Under a cap no weight spends more than
    the cap times the highest cost for everybody; a budget beyond what can be spent is refused.

    >>> from bonafed.economics import Uniform
    >>> weight = eta_for_budget([0.12, 0.35, 0.5, 0.71, 0.93], Uniform(0, 1), 2.0, noise_scale=1)
    >>> round(weight.settlement.spend, 6)
    2.0
    """
    money = checks.positive("budget", budget)

    def at(eta: float) -> PrivacySettlement:
        return settle(reports, prior, eta, noise_scale, rule=rule, max_epsilon=max_epsilon)

    low = _weight(lambda eta: at(eta).spend, money, max_epsilon)
    return Budgeted(low, at(low))


def eta_for_expected_budget(
    prior: Prior,
    clients: int,
    budget: float,
    noise_scale: float,
    *,
    rule: Rule | None = None,
    max_epsilon: ArrayLike | None = None,
    samples: int = 1000,
    seed: int = 0,
) -> float:
    """The eta at which the expected payments are the budget, over `samples` draws of all costs.

    Expected payments equal the expected sum of epsilon times virtual cost (theory B3), which needs no
    integrals. (They are a little less where the floor of `settle` stands for a virtual cost of 0.) The
    same draws serve every eta, so the search is over one increasing function.
    """
    money, n = checks.positive("budget", budget), checks.whole("clients", clients)
    rng = np.random.default_rng(checks.seed("seed", seed))
    if not isinstance(prior, Prior):
        raise InvalidValue("prior", "must be a prior", repr(prior)[:60])
    size = checks.whole("samples", samples)
    profiles = np.array([prior.sample(rng, n) for _ in range(size)])
    virtual = virtual_costs_of(profiles, prior)
    scale = checks.positive("noise_scale", noise_scale)
    choice = capped_rule(rule, max_epsilon)
    if isinstance(choice, Jsam) and choice.max_epsilon is None:
        return optimal_weight(virtual, scale, money, choice.noise_at)

    def expected(eta: float) -> float:
        return float(np.mean(choice.spending(virtual, eta, scale)))

    if max_epsilon is None:
        return largest_weight(lambda eta: expected(eta) <= money)
    return _average_weight(expected, money)


def _weight(spend: Callable[[float], float], money: float, max_epsilon: ArrayLike | None) -> float:
    """The largest weight at which `spend` is within `money`; a cap may keep it from being spent."""
    if max_epsilon is None:
        return largest_weight(lambda eta: spend(eta) <= money)
    top, spends = 0.0, [0.0]  # the largest weight allowed so far, and what each doubling led to

    def allowed(eta: float) -> bool:
        nonlocal top
        now = spend(eta)
        if now <= money and eta >= 2 * top:
            top = eta
            spends.append(now)
            if len(spends) > _STALLS and now <= spends[-_STALLS] * (1 + _CLOSE):
                raise InvalidValue("budget", _NOT_SPENT, money)
        return now <= money

    return largest_weight(allowed)


def _average_weight(expected: Callable[[float], float], money: float) -> float:
    """The weight (to 1e-6) at which an average under a cap, which is slow to take, is `money`."""
    low, spent_low = 1.0, expected(1.0)
    high, spent_high, before = low, spent_low, 0.0
    while spent_low > money:
        low, (high, spent_high) = low / 16, (low, spent_low)
        if low < 1e-200:
            raise NoSolution("no weight eta is small enough to stay within the budget")
        spent_low = expected(low)
    while spent_high <= money:
        if high > 16**5 and spent_high <= before * (1 + _CLOSE):
            raise InvalidValue("expected_budget", _NOT_SPENT, money)
        (low, spent_low), high, before = (high, spent_high), high * 16, spent_low
        if high > 1e200:
            raise NoSolution("the budget is never reached: every weight eta stays within it")
        spent_high = expected(high)
    halve = False
    while high > low * (1 + _NEAR):
        share = 0.5
        if not halve and spent_low > 0:  # money is nearly a power of the weight
            share = float(np.log(money / spent_low) / np.log(spent_high / spent_low))
        width = float(np.log(high / low))
        guess = low * float(np.exp(width * min(max(share, 0.01), 0.99)))
        spend = expected(guess)
        if spend <= money:
            low, spent_low = guess, spend
        else:
            high, spent_high = guess, spend
        halve = float(np.log(high / low)) > width / 2
    return low


def optimal_weight(
    virtual_costs: Floats, noise_scale: float, money: float, noise_at: NoiseAt = "client"
) -> float:
    """The eta at which the optimal plans for draws (S, N) cost `money` on average, all h of all at once."""
    if noise_at == "sum":
        return _weight_on_sum(virtual_costs, noise_scale, money)
    n = virtual_costs.shape[1]
    w = np.cbrt(np.sort(virtual_costs, axis=1)) ** 2
    h = np.arange(1, n + 1)
    spread = spread_of(n, h, w[:, :1], np.cumsum(w, axis=1))

    def expected(eta: float) -> float:
        total, value = inner(eta, distance_of(n, h), spread, noise_scale)
        best = np.argmin(value, axis=1)[:, None]
        return float(np.take_along_axis(total, best, axis=1).mean())

    return largest_weight(lambda eta: expected(eta) <= money)


def _weight_on_sum(virtual_costs: Floats, noise_scale: float, money: float) -> float:
    """The same where noise is on the sum."""
    costs = np.sort(virtual_costs, axis=1)
    segments, draws = sorted_segments(costs), len(costs)
    ranks = np.arange(costs.shape[1])

    def expected(eta: float) -> float:
        best = best_points(segments, eta, noise_scale, draws)
        each = best.at(np.s_[:, None])
        return float((each.level * weight_of(ranks, each, ranks.size) * costs).sum(1).mean())

    return largest_weight(lambda eta: expected(eta) <= money)


def known_weight(
    costs: Floats,
    noise_scale: float,
    money: float,
    max_epsilon: ArrayLike | None,
    noise_at: NoiseAt = "client",
    rule: Rule | None = None,
) -> float:
    """The largest eta at which the plan for known costs stays within `money`."""

    def spend(eta: float) -> float:
        return complete_information(
            costs, eta, noise_scale, max_epsilon=max_epsilon, noise_at=noise_at, rule=rule
        ).spend

    return _weight(spend, money, max_epsilon)


def known_expected_weight(
    profiles: Floats,
    noise_scale: float,
    money: float,
    max_epsilon: ArrayLike | None,
    noise_at: NoiseAt = "client",
    rule: Rule | None = None,
) -> float:
    """The eta at which plans for known costs, drawn (S, N), cost `money` on average."""
    if rule is not None:
        return largest_weight(lambda eta: float(rule.spending(profiles, eta, noise_scale).mean()) <= money)
    if max_epsilon is None:
        return optimal_weight(profiles, noise_scale, money, noise_at)

    def expected(eta: float) -> float:
        return float(
            np.mean(
                [
                    allocate(c, eta, noise_scale, max_epsilon=max_epsilon, noise_at=noise_at).total
                    for c in profiles
                ]
            )
        )

    return _average_weight(expected, money)


def largest_weight(allowed: Callable[[float], bool]) -> float:
    """The largest weight that is allowed, by doubling and halving."""
    low = 1.0
    while not allowed(low):
        low /= 16
        if low < 1e-200:
            raise NoSolution("no weight eta is small enough to stay within the budget")
    high = low * 2
    while allowed(high):
        low, high = high, high * 2
        if high > 1e200:
            raise NoSolution("the budget is never reached: every weight eta stays within it")
    while high - low > _CLOSE * low:
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def complete_information(
    costs: ArrayLike,
    eta: float,
    noise_scale: float,
    *,
    max_epsilon: ArrayLike | None = None,
    noise_at: NoiseAt = "client",
    rule: Rule | None = None,
) -> PrivacySettlement:
    """The optimal plan with costs in place of virtual costs; the payment is cost times epsilon.

    `rule` is the optimum where clients are not alike (`Unequal`); it knows neither caps nor sums.

    >>> benchmark = complete_information([0.12, 0.35, 0.5, 0.71, 0.93], eta=1, noise_scale=1)
    >>> benchmark.utility(benchmark.reports).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0]
    """
    c = checks.vector("costs", costs, sign="positive")
    if rule is None:
        plan = allocate(c, eta, noise_scale, max_epsilon=max_epsilon, noise_at=noise_at)
    else:
        plan = rule.plan(c, checks.positive("eta", eta), checks.positive("noise_scale", noise_scale))
    everyone = np.ones(c.size, dtype=np.bool_)
    return PrivacySettlement(c, everyone, plan, c * plan.privacy, np.zeros(c.size))
