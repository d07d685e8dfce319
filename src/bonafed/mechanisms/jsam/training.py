"""Private federated learning under JSAM: who is drawn when, at what noise, for what money (paper II-C, VI).

    (1)  costs (privacy sensitivities: money per unit of epsilon) are drawn from the prior, one per client,
         and reported honestly;
    (2)  the scheme turns them into selection probabilities p_k, privacy budgets epsilon_k and payments,
             jsam                  the exact optimum
             unbiased              USBM: every client alike
             cheapest              FSBM-M: the M lowest virtual costs, alike
             largest losses        BBM: the M largest local losses before training, alike
             complete information  JSAM-CI: the server knows every cost and pays cost times epsilon
         at a given weight eta, or at the largest weight that a sum of money allows;
    (3)  the whole schedule is drawn before training: m clients per round, with replacement, by p. T_k is
         how often client k is drawn, with multiplicity, and known before the first gradient (theory B5);
    (4)  every gradient of client k carries the noise that makes all those a record of its is in, T_k if it
         takes one step whenever it is drawn, together (epsilon_k, delta)-private, exactly; a client drawn
         twice in a round releases twice;
    (5)  the round's change is the mean of what was received;
    (6)  payments are made once, before the first round. They buy the right to epsilon_k: a client that is
         never drawn releases nothing and is paid all the same.

BBM asks every client for its loss, a number computed from private data and released without noise. The
paper asks for it; it is outside what the ledger of releases counts.

Everything is a pure function of its arguments; the schedule comes from the seed alone, or from verifiable
coins (`bonafed.mechanisms.coins`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue
from bonafed.learning.privacy import noise_multiplier
from bonafed.mechanisms.jsam.budget import (
    eta_for_budget,
    eta_for_expected_budget,
    known_expected_weight,
    known_weight,
)
from bonafed.mechanisms.jsam.complete import complete_information
from bonafed.mechanisms.jsam.payments import PrivacySettlement, capped_rule, lowest_cost, settle
from bonafed.mechanisms.jsam.rules import Cheapest, Jsam, Rule, largest_losses, unbiased
from bonafed.randomness import Purpose, generator

if TYPE_CHECKING:
    from bonafed.learning.federation import Participation  # heavy: PyTorch
    from bonafed.mechanisms.coins import Coins

Calibrate = Callable[[float, int], float]  # epsilon, releases -> noise multiplier
Scheme = Literal["jsam", "unbiased", "cheapest", "complete information", "largest losses"]
LARGEST_LOSSES = "largest losses"
WITH_MEMBERS = ("cheapest", LARGEST_LOSSES)
DRAWS = 100  # of all costs, for an expectation over them
_ALIKE = 1e-5  # relative: losses this close differ by rounding only


@dataclass(frozen=True, slots=True, eq=False)
class PrivacyTerms:
    """What was agreed with every client for the whole run, and when each is drawn."""

    settlement: PrivacySettlement  # selection, epsilon and payment of each client; reports are the costs
    schedule: NDArray[np.int64]  # (T, m) the clients of each round, repeated if drawn more than once
    noise_scale: float | None = None  # Q behind the plan
    records: int | None = None  # M of which Q was made; None: Q was given

    @property
    def costs(self) -> Floats:
        """(N,) money per unit of epsilon, what each client reported."""
        return self.settlement.reports

    @property
    def epsilon(self) -> Floats:
        """(N,) the privacy budget each client sold, for the whole run."""
        return self.settlement.allocation.privacy

    @property
    def times_drawn(self) -> NDArray[np.int64]:
        """(N,) T_k, with multiplicity."""
        return np.bincount(self.schedule.ravel(), minlength=self.costs.size)

    @property
    def spend(self) -> float:
        """Money paid to all, once."""
        return self.settlement.spend


def draw_costs(prior: Prior, clients: int, seed: int) -> Floats:
    """(1): (clients,) money per unit of epsilon."""
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
) -> PrivacySettlement:
    """(2): the settlement of a scheme. Exactly one of eta, budget and expected_budget says how much to buy.

    `budget` holds for these costs, `expected_budget` on average over the prior (see `budget.py` for what
    each promises). `members` is M of "cheapest" and "largest losses"; `losses` are the local ones.
    `max_epsilon` caps what is bought from a client, for all alike or one each (theory B9).

    >>> from bonafed.economics import Uniform
    >>> belief = Uniform(0, 1)
    >>> done = settle_scheme(belief, draw_costs(belief, 20, seed=0), noise_scale=1, budget=2.0)
    >>> round(done.spend, 6) <= 2, done.allocation.threshold
    (True, 14)
    """
    checks.literal("scheme", scheme, Scheme)
    c = checks.vector("costs", costs)
    _require_one(eta=eta, budget=budget, expected_budget=expected_budget)
    scale = checks.positive("noise_scale", noise_scale)
    if scheme == "complete information":
        _require_members(scheme, c.size, members)
        if budget is not None:
            eta = known_weight(c, scale, budget, max_epsilon)
        elif expected_budget is not None:
            eta = known_expected_weight(_draws(prior, c.size), scale, expected_budget, max_epsilon)
        assert eta is not None
        return complete_information(c, eta, scale, max_epsilon=max_epsilon)
    rule = capped_rule(_rule(scheme, c.size, members, losses), max_epsilon)
    if budget is not None:
        return eta_for_budget(c, prior, budget, scale, rule=rule, max_epsilon=max_epsilon).settlement
    if expected_budget is not None:
        eta = eta_for_expected_budget(
            prior, c.size, expected_budget, scale, rule=rule, max_epsilon=max_epsilon, samples=DRAWS
        )
    assert eta is not None
    return settle(c, prior, eta, scale, rule=rule)


def _require_one(**ways: float | None) -> None:
    """One way of saying how much to buy."""
    given = {name: value for name, value in ways.items() if value is not None}
    for name, value in given.items():
        checks.positive(name, value)
    if not given:
        raise InvalidValue("eta", "must be given, or budget, or expected_budget", "nothing")
    if len(given) > 1:
        first, second, *_ = given
        raise InvalidValue(second, f"must not be given with {first}", given[second])


def _require_members(scheme: Scheme, clients: int, members: int | None) -> int:
    """M where the scheme has one (0 where not), and nothing where it has none."""
    if scheme not in WITH_MEMBERS:
        if members is not None:
            rule = "must not be given unless scheme is " + " or ".join(WITH_MEMBERS)
            raise InvalidValue("members", rule, members)
        return 0
    if members is None:
        raise InvalidValue("members", f"must be given for {scheme}", "nothing")
    if checks.whole("members", members) > clients:
        raise InvalidValue("members", f"must be at most the number of clients, {clients}", members)
    return members


def _rule(scheme: Scheme, clients: int, members: int | None, losses: ArrayLike | None) -> Rule:
    m = _require_members(scheme, clients, members)
    if scheme == "jsam":
        return Jsam()
    if scheme == "unbiased":
        return unbiased(clients)
    if scheme == "cheapest":
        return Cheapest(m)
    if losses is None:
        raise InvalidValue("losses", f"must be given for {scheme}", "nothing")
    local = checks.vector("losses", losses, sign="any", length=clients)
    if m < clients and np.ptp(local) <= _ALIKE * np.abs(local).max():
        raise InvalidValue("scheme", "must be another: all clients have the same local loss", repr(scheme))
    return largest_losses(local, m)


def _draws(prior: Prior, clients: int) -> Floats:
    """(DRAWS, clients) costs, those of `eta_for_expected_budget`."""
    rng = np.random.default_rng(0)
    return np.maximum([prior.sample(rng, clients) for _ in range(DRAWS)], lowest_cost(prior))


def draw_schedule(
    selection: ArrayLike, rounds: int, clients_per_round: int, seed: int
) -> NDArray[np.int64]:
    """(3): (rounds, clients_per_round) client numbers, each drawn by the selection probabilities."""
    p = checks.vector("selection", selection)
    size = (checks.whole("rounds", rounds), checks.whole("clients_per_round", clients_per_round))
    rng = generator(checks.seed("seed", seed), Purpose.SCHEDULE)
    return rng.choice(p.size, size=size, p=p / p.sum())


def schedule_of(coins: Coins) -> NDArray[np.int64]:
    """(3) of verifiable coins; the draws must be complete, as they are if every client has revealed."""
    if coins.roster.draws is None or coins.withheld:
        raise InvalidValue("coins", "must be draws among clients that have all revealed", coins.withheld)
    return np.array([coins.participants(number) for number in range(1, coins.roster.rounds + 1)])


def noise_multipliers(
    terms: PrivacyTerms, delta: float, passes: ArrayLike = 1, calibrate: Calibrate | None = None
) -> Floats:
    """(4): (N,) noise over sensitivity of each client's releases; 0 for those never drawn.

    `passes` is how often a client goes through its records each time it is drawn, begun passes counted in
    full, one number or one each: so many releases a record can be in (theory P3). `calibrate` gives the
    noise for a promise over so many releases; that of ideal noise if not given.
    """
    releases = terms.times_drawn * np.asarray(passes, dtype=np.int64)
    found = np.zeros(releases.size)
    for k in np.flatnonzero(releases).tolist():
        epsilon, times = float(terms.epsilon[k]), int(releases[k])
        found[k] = calibrate(epsilon, times) if calibrate else noise_multiplier(epsilon, delta, times)
    return found


def participation(terms: PrivacyTerms, round_number: int) -> Participation:
    """(5): who is in round 1, 2, ...; each release is an equal share of the mean."""
    from bonafed.learning.federation import Participation

    who = terms.schedule[round_number - 1]
    return Participation(who, np.full(who.size, 1 / who.size), is_mean=True)


def spend(terms: PrivacyTerms, round_number: int) -> float:
    """(6): what is paid in a round, money: everything in the first."""
    return terms.spend if round_number == 1 else 0.0
