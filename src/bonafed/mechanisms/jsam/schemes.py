"""Whose privacy is bought, how much of it, for what money: the schemes that a run can be under (paper VI).

    jsam                  the exact optimum
    unbiased              USBM: every client alike
    cheapest              FSBM-M: the M lowest virtual costs, alike
    largest losses        BBM: the M largest local losses before training, alike
    complete information  JSAM-CI: the server knows every cost and pays cost times epsilon

each at a given weight eta, or at the largest weight that a sum of money allows. The first three can be
published as a contract (`published.py`): what they buy follows from the reports alone.

Where sizes count (theory B7) "alike" is by the share of the records. "cheapest" and "largest losses" are
refused: M clients alike are a choice among equals, and by shares they would be another rule, which the
paper does not have. So are caps and noise on the sum, whose plans rest on clients that are alike.

BBM asks every client for its loss, a number computed from private data and released without noise. The
paper asks for it; it is outside what the ledger of releases counts.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.jsam.budget import (
    complete_information,
    eta_for_budget,
    eta_for_expected_budget,
    known_expected_weight,
    known_weight,
)
from bonafed.mechanisms.jsam.payments import PrivacySettlement, capped_rule, lowest_cost, settle
from bonafed.mechanisms.jsam.rules import Cheapest, Jsam, Rule, largest_losses, unbiased
from bonafed.mechanisms.jsam.sizes import Averaged, Unequal, unbiased_by_size, whole_sizes
from bonafed.randomness import Purpose, generator

Scheme = Literal["jsam", "unbiased", "cheapest", "complete information", "largest losses"]
PUBLISHED = ("jsam", "unbiased", "cheapest")  # what they buy follows from the reports alone
LARGEST_LOSSES = "largest losses"
OPTIMAL = ("jsam", "complete information")  # whose selection follows from the costs
WITH_MEMBERS = ("cheapest", LARGEST_LOSSES)
BY_SIZE = ("jsam", "unbiased", "complete information")  # possible where sizes count
DRAWS = 100  # of all costs, for an expectation over them
_ALIKE = 1e-5  # relative: losses this close differ by rounding only


def draw_costs(prior: Prior, clients: int, seed: int) -> Floats:
    """(clients,) money per unit of epsilon, as simulated clients know it."""
    number = checks.seed("seed", seed)
    rng = generator(number, Purpose.PRIVACY_COSTS)
    return prior.sample(rng, checks.whole("clients", clients))


def settle_scheme(
    prior: Prior,
    costs: ArrayLike,
    noise_scale: float,
    scheme: Scheme = "jsam",
    *,
    eta: float | None = None,
    budget: float | None = None,
    expected_budget: float | None = None,
    members: int | None = None,
    losses: ArrayLike | None = None,
    max_epsilon: ArrayLike | None = None,
    noise_at: NoiseAt = "client",
    sizes: ArrayLike | None = None,
    records: ArrayLike | None = None,
) -> PrivacySettlement:
    """The settlement of a scheme. Exactly one of eta, budget and expected_budget says how much to buy.

    `budget` holds for these costs, `expected_budget` on average over the prior (see `budget.py` for what
    each promises). `members` is M of "cheapest" and "largest losses"; `losses` are the local ones.
    `max_epsilon` caps what is bought from a client, for all alike or one each (theory B9). With `sizes`,
    records held, shares of these are fair; with `records` per release, Q is that of M = 2 (theory B7).

    >>> from bonafed.economics import Uniform
    >>> belief = Uniform(0, 1)
    >>> settlement = settle_scheme(belief, draw_costs(belief, 20, seed=0), noise_scale=1, budget=2.0)
    >>> round(settlement.spend, 6) <= 2, settlement.allocation.threshold
    (True, 14)
    """
    checks.literal("scheme", scheme, Scheme)
    c = checks.vector("costs", costs)
    _require_one(eta=eta, budget=budget, expected_budget=expected_budget)
    scale = checks.positive("noise_scale", noise_scale)
    if sizes is not None:
        refuse_with_sizes(scheme, max_epsilon, noise_at)
    if scheme == "complete information":
        _require_members(scheme, c.size, members)
        by_size = None if sizes is None else _by_size("jsam", c.size, sizes, records)
        if budget is not None:
            eta = known_weight(c, scale, budget, max_epsilon, noise_at, by_size)
        elif expected_budget is not None:
            draws = _draws(prior, c.size)
            eta = known_expected_weight(draws, scale, expected_budget, max_epsilon, noise_at, by_size)
        assert eta is not None
        return complete_information(c, eta, scale, max_epsilon=max_epsilon, noise_at=noise_at, rule=by_size)
    rule = capped_rule(rule_of(scheme, c.size, members, losses, noise_at, sizes, records), max_epsilon)
    if budget is not None:
        return eta_for_budget(c, prior, budget, scale, rule=rule, max_epsilon=max_epsilon).settlement
    if expected_budget is not None:
        eta = expected_weight(prior, c.size, expected_budget, scale, rule, max_epsilon)
    assert eta is not None
    return settle(c, prior, eta, scale, rule=rule)


def expected_weight(
    prior: Prior,
    clients: int,
    expected_budget: float,
    noise_scale: float,
    rule: Rule | None = None,
    max_epsilon: ArrayLike | None = None,
) -> float:
    """The weight that a quote, a contract and a run have for a sum of money on average over the prior."""
    return eta_for_expected_budget(
        prior, clients, expected_budget, noise_scale, rule=rule, max_epsilon=max_epsilon, samples=DRAWS
    )


def _require_one(**ways: float | None) -> None:
    """One way of saying how much to buy."""
    values = {name: value for name, value in ways.items() if value is not None}
    for name, value in values.items():
        checks.positive(name, value)
    if not values:
        raise MissingValue("eta", "or budget or expected_budget is required")
    if len(values) > 1:
        first, second, *_ = values
        raise InvalidValue(second, f"must not be given with {first}", values[second])


def _require_members(scheme: Scheme, clients: int, members: int | None) -> int:
    """M where the scheme has one, else 0; M is refused for schemes without one."""
    if scheme not in WITH_MEMBERS:
        if members is not None:
            rule = "must not be given unless scheme is " + " or ".join(WITH_MEMBERS)
            raise InvalidValue("members", rule, members)
        return 0
    if members is None:
        raise MissingValue("members", f"is required for {scheme}")
    if checks.whole("members", members) > clients:
        raise InvalidValue("members", f"must be at most the number of clients, {clients}", members)
    return members


def rule_of(
    scheme: Scheme,
    clients: int,
    members: int | None = None,
    losses: ArrayLike | None = None,
    noise_at: NoiseAt = "client",
    sizes: ArrayLike | None = None,
    records: ArrayLike | None = None,
) -> Rule:
    """How a scheme chooses a plan for so many clients."""
    if sizes is not None:
        _require_members(scheme, clients, members)
        refuse_with_sizes(scheme, None, noise_at)
        return _by_size(scheme, clients, sizes, records)
    rule = _rule_of(scheme, clients, members, losses)
    return rule.on_sum() if noise_at == "sum" else rule


def _rule_of(scheme: Scheme, clients: int, members: int | None, losses: ArrayLike | None) -> Rule:
    m = _require_members(scheme, clients, members)
    if scheme == "jsam":
        return Jsam()
    if scheme == "unbiased":
        return unbiased(clients)
    if scheme == "cheapest":
        return Cheapest(m)
    if losses is None:
        raise MissingValue("losses", f"is required for {scheme}")
    local = checks.vector("losses", losses, sign="any", length=clients)
    if m < clients and np.ptp(local) <= _ALIKE * np.abs(local).max():
        raise InvalidValue(
            "scheme", "must not be this one: all clients have the same local loss", repr(scheme)
        )
    return largest_losses(local, m)


def refuse_with_sizes(scheme: str, max_epsilon: object, noise_at: str) -> None:
    """What is for clients that are alike."""
    if scheme not in BY_SIZE:
        raise InvalidValue("scheme", f"must be one of {', '.join(BY_SIZE)} where sizes count", repr(scheme))
    if max_epsilon is not None:
        raise InvalidValue("max_epsilon", "must not be given where sizes count", repr(max_epsilon)[:60])
    if noise_at != "client":
        raise InvalidValue("noise_at", 'must be "client" where sizes count', repr(noise_at))


def _by_size(scheme: str, clients: int, sizes: ArrayLike, records: ArrayLike | None) -> Rule:
    """The rule where sizes count; with records per release, for Q of M = 2."""
    held = whole_sizes("sizes", sizes, clients)
    rule: Rule = unbiased_by_size(held) if scheme == "unbiased" else Unequal(held)
    return rule if records is None else Averaged(rule, records)


def _draws(prior: Prior, clients: int) -> Floats:
    """(DRAWS, clients) costs, those of `eta_for_expected_budget`."""
    rng = np.random.default_rng(0)
    return np.maximum([prior.sample(rng, clients) for _ in range(DRAWS)], lowest_cost(prior))
