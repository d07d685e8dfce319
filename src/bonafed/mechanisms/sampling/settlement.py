"""From a published contract and what clients report to the terms of every client.

A menu is posted: a client's terms follow from the contract and its own report, nobody else's. A client
whose report is above the highest cost that the contract admits does not take part; the others' terms are as
they were. Under prior-free rules clients are approached one after the other, and a client's terms depend on
those before it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.per_turn import ContractPerTurn, TermsPerTurn
from bonafed.contracts.terms import did_not_report, past_reports
from bonafed.economics.budgets import BudgetPromise
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling.plan import SamplingPlan
from bonafed.mechanisms.sampling.prior_free import PriorFreeSampling
from bonafed.mechanisms.sampling.spend import SpendDistribution, known_lotteries, spend_distribution
from bonafed.presentation.documents import Block, JSONObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.presentation.documents import Draw

NAME = "sampling"
# keys of the table that a contract decides; one that it does not set must be left out
_ABSENT = dict.fromkeys(("prior", "confidence", "highest", "initial_share", "initial_probability"))


@dataclass(frozen=True, eq=False, repr=False)
class SettledTerms(TermsPerTurn):
    """What every client was promised by a sampling contract, and how far spend may stray."""

    @cached_property
    def spend(self) -> SpendDistribution:
        """The distribution of realised spend: costs are known now, only the coins are left."""
        if not self.admitted.any():
            return SpendDistribution(0.0, 0.0, "lattice", np.empty(0), np.empty(0))
        lotteries = known_lotteries(self.probability[self.admitted], self.payment[self.admitted])
        return spend_distribution(lotteries, self.rounds)

    @property
    def sampling_term(self) -> float:
        """sum of s_n/q_n over who is admitted, here with s_n = 1: what the convergence bound depends on."""
        return math.fsum(1 / self.probability[self.admitted])

    def money(self) -> JSONObject:
        from bonafed.mechanisms.sampling.report import spend_to_json

        return {"spend": spend_to_json(self.spend, self.total_budget)}

    def money_blocks(self, data: JSONObject) -> Sequence[Block]:
        from bonafed.mechanisms.sampling.report import spend_blocks

        return spend_blocks(data)

    def figure(self) -> Draw:
        def draw() -> Figure:
            from bonafed.mechanisms.sampling.figures import terms_figure

            return terms_figure(self)

        return draw


def settle_contract(contract: SamplingPlan, reports: ArrayLike) -> SettledTerms:
    """The terms of a contract for one report per client.

    >>> from bonafed.economics import Uniform
    >>> from bonafed.mechanisms.sampling import plan
    >>> terms = settle_contract(plan(Uniform(0.5, 1.5), 300, clients=3, rounds=100), [0.7, 1.6, 1.1])
    >>> terms.admitted.tolist(), terms.probability.round(3).tolist()
    ([True, False, True], [0.883, 0.0, 0.642])

    Clients have the names that the contract lists, or numbers.
    """
    c = checks.vector("reports", reports, length=contract.clients)
    return terms_at(contract, contract.names or _numbered(c.size), c, np.arange(c.size))


def terms_at(
    contract: SamplingPlan, names: tuple[str, ...], c: Floats, places: NDArray[np.int64]
) -> SettledTerms:
    """Of these costs of clients at these places of the contract's membership."""
    highest = np.array([menu.levels()[-1] for menu in contract.menus])[contract.membership[places]]
    inside = c <= highest
    q, r = np.zeros(c.size), np.zeros(c.size)
    q[inside], r[inside] = contract.price(c[inside], places[inside])
    if q.max() > 1:
        raise InvalidValue("contract", "must hold probabilities of at most 1", float(q.max()))
    return SettledTerms(names, c, inside, q, r, contract.rounds, contract.total_budget, contract.decimals)


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def settle_rules(rules: PriorFreeSampling, rounds: int, reports: ArrayLike) -> SettledTerms:
    """The terms of prior-free rules for reports in the order of approach."""
    c = checks.vector("reports", reports, length=rules.clients)
    turns = checks.whole("rounds", rounds)
    run = rules.run(c)  # passes over whoever is not admitted
    inside = c <= rules.highest
    return SettledTerms(
        _numbered(c.size), c, inside, run.probability, run.payment, turns, turns * rules.budget
    )


def missing(terms: SettledTerms, clients: int, share: float | None = None) -> list[str]:
    """A caution where not everybody has reported; `share` is their part of the budget, if it is known."""
    if len(terms.clients) == clients:
        return []
    money = ", and their money is not spent"
    if share is not None:
        money = (
            ". The terms of those who reported do not change: on average over costs "
            f"{share * terms.total_budget:,.2f} of the budget of {terms.total_budget:,.10g} is spent"
        )
    return [did_not_report(len(terms.clients), clients, money) + "."]


def share_of_budget(contract: SamplingPlan, places: NDArray[np.int64]) -> float:
    """What the clients at these places spend on average over the costs believed in, of the budget."""
    each = np.array([menu.expected_spend for menu in contract.menus])[contract.membership[places]]
    return contract.rounds * math.fsum(each) / contract.total_budget


def reports_behind_prior(
    contract: SamplingPlan, reports: ArrayLike, places: NDArray[np.int64] | None = None
) -> int:
    """How many reports are among the past costs that the prior of their client was estimated from.

    `places` are those of the reports' clients among the contract's, where not all have reported.
    """
    length = contract.clients if places is None else places.size
    c = checks.vector("reports", reports, length=length)
    groups = contract.membership if places is None else contract.membership[places]
    return sum(past_reports(c[groups == index], group.prior) for index, group in enumerate(contract.groups))


def designed_from_reports(
    contract: SamplingPlan, terms: SettledTerms, places: NDArray[np.int64] | None = None
) -> list[str]:
    """A caution where the contract was probably made from the very reports it is settled for.

    A menu is truthful for a client whose report did not make it (theory A6). Where at least half of all
    reports are among the past costs behind the prior, the two are probably the same statements.
    """
    behind, everybody = reports_behind_prior(contract, terms.reports, places), terms.reports.size
    if not behind or 2 * behind < everybody:
        return []
    return [
        f"{behind:,} of {everybody:,} reports are among the past costs that the contract was made from. If "
        "these are the same statements, the contract is not truthful: a report then moves the terms it is "
        "paid by, and overstating may pay. Prior-free rules (bonafed quote sampling --prior-free) are made "
        "for learning costs from the clients themselves."
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


class SamplingKind(ContractPerTurn):
    """What the three kinds of sampling contracts share."""

    mechanism = NAME

    @property
    @abstractmethod
    def expected_spend(self) -> float | None:
        """Money over the run, on average over costs and coins; None: nothing is believed about costs."""

    @property
    def confidence(self) -> float | None:
        """Probability that the budget is kept; None: it is kept on average over the coins."""
        return None

    def budget_promise(self, terms: TermsPerTurn) -> BudgetPromise:
        believed, money = self.expected_spend, terms.total_budget
        if believed is None:  # the promise is for every realisation of the costs
            return BudgetPromise(money, "the coins, whatever the costs", expected=terms.expected_spend)
        return BudgetPromise(
            money, "the costs believed in and the coins", self.confidence, expected=believed
        )

    def settings(self) -> Mapping[str, Any]:
        return {**_ABSENT, "total_budget": self.total_budget, **self.scheme_settings()}

    @abstractmethod
    def scheme_settings(self) -> Mapping[str, Any]:
        """The scheme of the config's table, and the keys that only this scheme knows."""
