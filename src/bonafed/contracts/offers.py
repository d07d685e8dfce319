"""Contracts that publish an offer: the table of a config, for so many clients and rounds.

A mechanism whose terms follow from the keys of its table alone writes what is new about it, the allocation,
the payment and the most that a run can spend. It has everything else from here: the file, the checks by
search, what is signed, what a participant would earn, and the table of a run under the contract.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.per_turn import ContractPerTurn, TermsPerTurn
from bonafed.contracts.terms import EARNINGS, Earning, Reports, did_not_report
from bonafed.economics.audit import AuditReport
from bonafed.economics.budgets import BudgetPromise
from bonafed.economics.findings import Finding, Kind
from bonafed.economics.money import units
from bonafed.economics.registry import field, number_in_words, prior_in_words
from bonafed.errors import InvalidValue
from bonafed.presentation.documents import Document, JSONObject, pairs
from bonafed.sections import Section, named, section_from

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLIENTS, MOST_ROUNDS = 10**6, 10**9  # in a contract: what is computed for them fits into memory
NOT_PUBLISHED = ("coins", "cost_seed")  # keys of a run, not of the contract
_REPORTS = 2001  # reports tried by a participant, evenly from 0 to beyond every cost and payment
_POINTS, _LIARS = 101, 12  # of the search for lies: reports of the first sweep, clients of a profile
_RTOL = 1e-12  # of a sum of money
_CURVE = 401  # costs of a figure


class Searched(Protocol):
    """A rule that a search tries to game."""

    def search(self, profiles: Sequence[ArrayLike], points: int) -> AuditReport:
        """Look for a violation of every claim in these profiles of costs."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class OfferContract(ContractPerTurn):
    """An offer to so many clients, for so many rounds.

    Class attributes of a mechanism:
        offer_kind: the table of its config, with the keys `decimals`, `prior`, `coins` and `cost_seed`.
    """

    offer_kind: ClassVar[type[Section]]

    offer: Any  # an `offer_kind` in which every key that the contract needs has a value
    clients: int
    rounds: int
    coin_commitment: str | None = None

    @abstractmethod
    def chances_and_payments(self, names: Sequence[str], costs: Floats) -> tuple[Floats, Floats]:
        """(N,) each: the probability of being in a round, and the payment each time; both 0: not in it."""

    @abstractmethod
    def subject(self) -> Searched:
        """What a search tries to game."""

    @property
    @abstractmethod
    def most_spent(self) -> float:
        """Money that no run can exceed, whatever is reported."""

    @abstractmethod
    def promises(self) -> Sequence[str]:
        """What the contract promises, in one sentence each; the first is about the money."""

    @property
    def decimals(self) -> int:  # type: ignore[override]  # of the offer
        return int(self.offer.decimals)

    def draw_costs(self, rng: np.random.Generator, clients: int) -> Floats:
        costs: Floats = self.offer.prior.sample(rng, clients)
        return costs

    def budget_promise(self, terms: TermsPerTurn) -> BudgetPromise:
        return BudgetPromise(self.total_budget)

    def fields(self) -> JSONObject:
        table = self.offer.table()
        published = {name: value for name, value in table.items() if name not in NOT_PUBLISHED}
        return {"clients": self.clients, "rounds": self.rounds, **published}

    @classmethod
    def from_fields(cls, data: JSONObject) -> Self:
        names = [item.name for item in fields(cls.offer_kind) if item.name not in NOT_PUBLISHED]
        stated = {name: field(data, name, "contract") for name in names}
        for name, value in stated.items():
            if value is None:  # a config may leave a key open, a contract states all that terms follow from
                raise InvalidValue(f"contract.{name}", "must be stated", "null")
        clients = checks.whole("contract.clients", field(data, "clients", "contract"), at_most=MOST_CLIENTS)
        rounds = checks.whole("contract.rounds", field(data, "rounds", "contract"), at_most=MOST_ROUNDS)
        offer = section_from(cls.offer_kind, "contract", stated)
        with named("contract"):
            return cls(offer, clients, rounds)

    def terms_for(self, reports: Reports) -> TermsPerTurn:
        names, costs = tuple(reports), np.array(list(reports.values()), dtype=np.float64)
        chances, payments = self.chances_and_payments(names, costs)
        terms = TermsPerTurn(
            names, costs, chances > 0, chances, payments, self.rounds, self.total_budget, self.decimals
        )
        silent = [did_not_report(len(names), self.clients, ".")] if len(names) < self.clients else []
        return terms.cautioned(*silent)

    def verify(self) -> Sequence[Finding]:
        """No lie pays, nobody loses, and the money suffices: by search, and for the most that is spent."""
        count, rng = min(self.clients, _LIARS), np.random.default_rng(0)
        profiles = [self.draw_costs(rng, count), np.zeros(count)]
        most, digits = self.most_spent, self.decimals
        whole = units(self.total_budget, digits) / 10**digits  # a sum that is not there is not shown
        text = f"a run spends {most:,.{digits}f} at most, of {whole:,.{digits}f}"
        holds = most <= self.total_budget * (1 + _RTOL)
        capped = Finding("money", holds, text, most, kind=Kind.BUDGET, unit="money")
        return [*self.subject().search(profiles, _POINTS).findings, capped]

    def prospect(self, report: float) -> Document:
        """What a participant would earn that nobody else keeps out, and the best lie."""
        cost = checks.non_negative("cost", report)
        paid, left = self._earned(cost, cost)
        highest = 2 * max(cost, paid / self.rounds, float(self.offer.prior.high))
        best, lie, tries = 0.0, None, 0
        for other in np.linspace(0.0, highest, _REPORTS).tolist():
            money, gain = self._earned(other, cost)
            if money != paid:  # other terms than the truth leads to
                tries += 1
                if lie is None or gain - left > best:
                    best, lie = gain - left, other
        terms = f"paid {paid:,.6g} over the run, and left with {left:,.6g}" if paid else "not in any round"
        lies = "Every report gets the same terms."
        if lie is not None:
            lies = f"The best lie of {tries:,} tried, to state {lie:.6g}, gains {best:,.4g}."
            if best <= 0:
                lies = (
                    f"No lie gains anything: of {tries:,} reports that lead to other terms, the best, "
                    f"{lie:.6g}, loses {abs(best):,.4g}."
                )
        kind = "" if self.is_posted else "if not kept out"  # by others who are in its place
        text = f"A client of cost {cost:g}{kind and ', ' + kind}: {terms}. {lies}"
        earning = Earning(kind, paid > 0, paid, left, lie, best + 0.0)  # never -0.0
        return Document((text,), {EARNINGS: [asdict(earning)]})

    def _earned(self, report: float, cost: float) -> tuple[float, float]:
        """Money over the run for a client alone with this report, and what its cost leaves of it."""
        chances, payments = self.chances_and_payments(("participant",), np.array([report]))
        times = self.rounds * float(chances[0])
        return times * float(payments[0]), times * (float(payments[0]) - cost)

    def signed(self) -> Document:
        rows = [(name.replace("_", " "), number_in_words(value)) for name, value in self.fields().items()]
        rows = [
            (name, prior_in_words(self.offer.prior) if name == "prior" else text) for name, text in rows
        ]
        money, *others = self.promises()
        table = pairs("What the contract states", [*rows, ("SHA-256", self.digest)])
        data = {**self.to_json(), "sha256": self.digest, "promises": [money, *others]}
        return Document((money, table, *others), data, self._figure)

    def _figure(self) -> Figure:
        """What a participant gets for every cost that it may state, where nobody keeps it out."""
        from bonafed.presentation.figures import BLUE, GREY, RED, sheet

        paid = float(self.chances_and_payments(("participant",), np.zeros(1))[1][0])
        costs = np.linspace(0.0, 1.25 * max(paid, float(self.offer.prior.high)), _CURVE)
        offered = [self.chances_and_payments(("participant",), costs[[at]]) for at in range(_CURVE)]
        chances, payments = np.array(offered)[:, :, 0].T
        figure = sheet(9.0, 3.4)
        left, right = figure.subplots(1, 2)
        left.plot(costs, chances, color=BLUE, lw=1.6, label="probability")
        left.set(xlabel="cost that is stated", ylabel="probability of being in a round", ylim=(-0.05, 1.1))
        left.set_title("Who takes part", loc="left")
        right.plot(costs, payments, color=RED, lw=1.6, label="payment")
        right.plot(costs, costs, color=GREY, lw=1.2, ls="--", label="the cost itself")
        right.set(xlabel="cost that is stated", ylabel="money for a delivery")
        right.set_title("What a delivery is paid", loc="left")
        right.legend(frameon=False)
        if not self.is_posted:
            figure.suptitle("For a participant that others do not keep out", fontsize=10)
        return figure

    def settings(self) -> Mapping[str, Any]:
        table = self.offer.table()
        return {name: value for name, value in table.items() if name not in (*NOT_PUBLISHED, "decimals")}
