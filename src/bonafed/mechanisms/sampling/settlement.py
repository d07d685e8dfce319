"""From a published contract and what clients report to the terms of every client.

A menu is posted: a client's terms follow from the contract and its own report, nobody else's. A client
whose report is above the highest cost that the contract admits does not take part; the others' terms are as
they were. Under prior-free rules clients are approached in the order of their reports, and a client's terms
depend on those before it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.discrete import Empirical
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling.plan import SamplingPlan
from bonafed.mechanisms.sampling.prior_free import PriorFreeSampling
from bonafed.mechanisms.sampling.spend import SpendDistribution, known_lotteries, spend_distribution


@dataclass(frozen=True, eq=False)
class SettledTerms:
    """What every client was promised, in the order of the reports."""

    reports: Floats  # (N,) money per participation
    admitted: NDArray[np.bool_]  # (N,) False for reports above the highest cost: not in any round
    probability: Floats  # (N,) of being sampled in a round; 0 if not admitted
    payment: Floats  # (N,) money per participation, at least the report; 0 if not admitted
    rounds: int
    total_budget: float  # money, whole run

    @cached_property
    def spend(self) -> SpendDistribution:
        """The distribution of realised spend: costs are known now, only the coins are left."""
        if not self.admitted.any():
            return SpendDistribution(0.0, 0.0, "lattice", np.empty(0), np.empty(0))
        lotteries = known_lotteries(self.probability[self.admitted], self.payment[self.admitted])
        return spend_distribution(lotteries, self.rounds)


def settle_contract(contract: SamplingPlan, reports: ArrayLike) -> SettledTerms:
    """The terms of a contract for one report per client.

    >>> from bonafed.economics import Uniform
    >>> from bonafed.mechanisms.sampling import plan
    >>> terms = settle_contract(plan(Uniform(0.5, 1.5), 300, clients=3, rounds=100), [0.7, 1.6, 1.1])
    >>> terms.admitted.tolist(), terms.probability.round(3).tolist()
    ([True, False, True], [0.883, 0.0, 0.642])
    """
    c = checks.vector("reports", reports, length=contract.clients)
    highest = np.array([menu.levels()[-1] for menu in contract.menus])[contract.membership]
    inside = c <= highest
    q, r = np.zeros(c.size), np.zeros(c.size)
    q[inside], r[inside] = contract.price(c[inside], np.flatnonzero(inside))
    if q.max() > 1:
        raise InvalidValue("contract", "must hold probabilities of at most 1", float(q.max()))
    return SettledTerms(c, inside, q, r, contract.rounds, contract.total_budget)


def settle_rules(rules: PriorFreeSampling, rounds: int, reports: ArrayLike) -> SettledTerms:
    """The terms of prior-free rules for reports in the order of approach."""
    c = checks.vector("reports", reports, length=rules.clients)
    turns = checks.whole("rounds", rounds)
    done = rules.run(c)  # passes over whoever is not admitted
    inside = c <= rules.highest
    return SettledTerms(c, inside, done.probability, done.payment, turns, turns * rules.budget)


def reports_behind_prior(contract: SamplingPlan, reports: ArrayLike) -> int:
    """How many reports are among the past costs that the prior of their client was estimated from.

    Each past cost stands for one report at most, whatever the order.
    """
    c = checks.vector("reports", reports, length=contract.clients)
    found = 0
    for index, group in enumerate(contract.groups):
        if isinstance(group.prior, Empirical):
            stated = Counter(c[contract.membership == index].tolist())
            found += (stated & Counter(group.prior.samples.tolist())).total()
    return found


def designed_from_reports(contract: SamplingPlan, terms: SettledTerms) -> list[str]:
    """A caution where the contract was probably made from the very reports it is settled for.

    A menu is truthful for a client whose report did not make it (theory A6). Where at least half of all
    reports are among the past costs behind the prior, the two are probably the same statements.
    """
    behind, everybody = reports_behind_prior(contract, terms.reports), terms.reports.size
    if not behind or 2 * behind < everybody:
        return []
    return [
        f"{behind:,} of {everybody:,} reports are among the past costs that the contract was made from. If "
        "these are the same statements, the contract is not truthful: a report then moves the terms it is "
        "paid by, and overstating may pay. Prior-free rules (bonafed quote --prior-free) are made for "
        "learning costs from the clients themselves."
    ]


def overspending(terms: SettledTerms) -> list[str]:
    """A caution where these reports cost more than the budget, which is kept on average over the prior."""
    if terms.spend.mean <= terms.total_budget * (1 + 1e-9):
        return []
    return [
        f"the expected spend for these reports, {terms.spend.mean:,.6g}, exceeds the budget of "
        f"{terms.total_budget:,.6g}. The contract keeps it on average over the costs it believes in; these "
        "are cheaper, so more clients are sampled more often."
    ]
