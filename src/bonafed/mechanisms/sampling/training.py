"""Federated averaging under a sampling contract: who is in a round, at what weight, for what money.

    (1)  costs are drawn from the prior, one per client, and reported honestly;
    (2)  the scheme turns them into a probability q_n and a payment r_n per participation,
             optimal               the truthful contract of `plan`
             uniform               one q for all; the only truthful such contract pays the highest cost
             complete information  the server knows every cost and pays exactly that
         all three planned for the same total budget;
    (3)  in every round each client is in with probability q_n, independently, its change weighted by
         1/(N q_n), so that the expected change is the mean over all clients (Proposition 1);
    (4)  whoever is in is paid r_n, whether or not its update turns out to be usable.

Everything is a pure function of its arguments; the coins of a round come from (seed, round) alone, or are
verifiable ones (`bonafed.mechanisms.coins`), which nobody can know before he reports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Participation, unbiased
from bonafed.mechanisms.coins import Coins
from bonafed.mechanisms.sampling.menus import complete_information, uniform_menu
from bonafed.mechanisms.sampling.plan import plan
from bonafed.randomness import Purpose, generator, round_generator

Scheme = Literal["optimal", "uniform", "complete information"]


@dataclass(frozen=True, slots=True, eq=False)
class SampledTerms:
    """What was agreed with every client for the whole run."""

    costs: Floats  # (N,) money per participation, what each client reported
    probability: Floats  # (N,) of being in a round
    payment: Floats  # (N,) money per participation
    rounds: int
    total_budget: float  # money, whole run

    @property
    def expected_spend(self) -> float:
        """Money over the whole run, in expectation over the coins, for these costs."""
        return self.rounds * math.fsum(self.probability * self.payment)

    @property
    def sampling_term(self) -> float:
        """sum of s_n/q_n, here with s_n = 1: what the convergence bound depends on."""
        return math.fsum(1 / self.probability)


def draw_costs(prior: Prior, clients: int, seed: int) -> Floats:
    """(1): (clients,) money per participation."""
    number = checks.seed("seed", seed)
    rng = generator(number, Purpose.COSTS)
    return prior.sample(rng, checks.whole("clients", clients))


def sampled_terms(
    prior: Prior,
    total_budget: float,
    rounds: int,
    costs: Floats,
    scheme: Scheme = "optimal",
    confidence: float | None = None,
) -> SampledTerms:
    """(2): the terms of every client under a scheme; `confidence` as in `plan`, for the optimal one.

    >>> from bonafed.economics import Uniform
    >>> belief = Uniform(0.5, 1.5)
    >>> terms = sampled_terms(belief, 1000, 100, draw_costs(belief, 20, seed=0), "uniform")
    >>> terms.probability[0].round(4), terms.payment[0]
    (np.float64(0.3333), np.float64(1.5))
    """
    checks.literal("scheme", scheme, Scheme)
    c, turns = checks.vector("costs", costs), checks.whole("rounds", rounds)
    money = checks.positive("total_budget", total_budget)
    if confidence is not None and scheme != "optimal":
        rule = f"must not be given unless scheme is optimal (it is {scheme})"  # no other can be shrunk
        raise InvalidValue("confidence", rule, confidence)
    share = money / turns / c.size  # money per client and round
    if scheme == "optimal":
        q, r = plan(prior, money, c.size, turns, confidence=confidence).menu.price(c)
    elif scheme == "uniform":
        q, r = uniform_menu(prior, share).price(c)
    else:
        known = complete_information(c, share)
        q, r = known.probability, known.payment
    return SampledTerms(c, q, r, turns, money)


def participation(terms: SampledTerms, coins: int | Coins, round_number: int) -> Participation:
    """(3): who is in a round; the same for the same coins and round. A number is a seed."""
    if isinstance(coins, Coins):
        who = coins.participants(round_number)
        return Participation(who, 1 / (terms.probability.size * terms.probability[who]))
    return unbiased(round_generator(coins, Purpose.COINS, round_number), terms.probability)


def spend(terms: SampledTerms, who: Participation) -> float:
    """(4): what a round costs, money."""
    return math.fsum(terms.payment[who.clients])
