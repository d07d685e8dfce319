"""What was agreed with every client: how often it may be drawn, what epsilon it sells, what it is paid.

Amounts are rounded to the smallest unit of money so that nobody is paid less than what it stated that its
epsilon costs (`bonafed.economics.money`); all else is rounded down. They are paid after the last round, by
the epsilon that was given (`payments.given_share`).

A contract holds an `Example` of its terms: what its numbers come to for some clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.attendance import Lottery
from bonafed.contracts.terms import PaidTerms, Turns, did_not_report, past_reports
from bonafed.economics import money
from bonafed.economics.priors import Prior
from bonafed.economics.registry import field
from bonafed.economics.statement import within_error
from bonafed.errors import InvalidValue
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.jsam.payments import PrivacySettlement, given_share, privacy_warning
from bonafed.presentation.documents import (
    Block,
    Cell,
    Column,
    Document,
    JSONObject,
    Table,
    counted,
    pairs,
)
from bonafed.text import csv_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MOST_ROWS = 20  # clients shown; all of them are in the CSV and in the plain data
NOT_ADMITTED = "not admitted"
SELECTED = {"client": "selected with", "sum": "weight"}  # heading of the selection
COLUMN = {"client": "selection", "sum": "weight"}  # of a statement
RECORDS = "share_of_records"  # of a statement, where sizes count
SELECTION = {
    "client": "selected with: probability of each draw",
    "sum": "weight: in the sum of every round",
}


@dataclass(frozen=True, eq=False, repr=False)
class JsamTerms(PaidTerms):
    """The settlement of a scheme for named clients, in money that can be paid."""

    clients: tuple[str, ...]  # (N,) names
    settlement: PrivacySettlement  # in their order
    prior: Prior  # behind it
    clients_per_round: int  # drawn with replacement
    rounds: int
    delta: float  # at which epsilon is sold
    decimals: int = money.DECIMALS  # decimals of an amount
    expected_budget: float | None = None  # money on average over the prior, where that was promised
    budget: float | None = None  # money at most for these reports, where that was asked for
    digest: str | None = None  # of the contract, where there is one
    noise_at: NoiseAt = "client"
    held: tuple[int, ...] | None = None  # (N,) records of each client, where their shares are what is fair
    expected_clients: int | None = None  # how many were to report; None: as many as did

    @property
    def fair(self) -> Floats | None:
        """(N,) shares of the records, where sizes count (theory B7)."""
        return None if self.held is None else np.array(self.held) / sum(self.held)

    @property
    def reports(self) -> Floats:
        """(N,) money per unit of epsilon, what each client stated."""
        return self.settlement.reports

    @property
    def epsilon(self) -> Floats:
        """(N,) the privacy that each client sells, for the whole run."""
        return self.settlement.allocation.privacy

    @property
    def selection(self) -> Floats:
        """(N,) probability of each draw; with noise on the sum, weight in every round."""
        return self.settlement.allocation.selection

    @property
    def columns(self) -> Mapping[str, Sequence[Cell]]:
        """Of a statement."""
        fair = {} if self.fair is None else {RECORDS: self.fair.tolist()}
        return {
            "cost": self.reports.tolist(),
            **fair,
            COLUMN[self.noise_at]: self.selection.tolist(),
            "epsilon_sold": self.epsilon.tolist(),
        }

    @property
    def lottery(self) -> Lottery:
        """Who is drawn in a round, as coins decide it; with noise on the sum, all selected are in it."""
        if self.noise_at == "sum":
            return Lottery((self.selection > 0).astype(np.float64))
        return Lottery(self.selection, self.clients_per_round)

    def due_in(self, round_number: int, who: Sequence[int], turns: Turns) -> float:
        """Money that becomes due in round 1, 2, ...: all of it in the last, when all has been given."""
        if round_number < self.rounds:
            return 0.0
        return float(sum(self.amounts(turns)) / 10**self.decimals)

    def amounts(self, turns: Turns) -> tuple[int, ...]:
        """(N,) smallest units of money for the epsilon that was given, once for the whole run."""
        share = self.shares(turns)
        payment, cost = self.settlement.payment * share, self.reports * self.epsilon * share
        return money.owed(payment, cost, decimals=self.decimals)

    def shares(self, turns: Turns) -> Floats:
        """(N,) of its epsilon that each client gave; 1 where it delivered all that was asked for."""
        pairs = zip(self.epsilon.tolist(), turns.delivered.tolist(), turns.asked.tolist(), strict=True)
        return np.array([given_share(epsilon, self.delta, *counts) for epsilon, *counts in pairs])

    @cached_property
    def promised(self) -> tuple[int, ...]:
        """(N,) smallest units of money, if everybody delivers whenever it is drawn."""
        nobody_missing = np.zeros(len(self.clients), dtype=np.int64)
        return self.amounts(Turns(nobody_missing, nobody_missing))

    @property
    def spend(self) -> float:
        """Money promised to all, once."""
        return float(sum(self.promised) / 10**self.decimals)

    @property
    def cautions(self) -> list[str]:
        """What to know before anybody signs."""
        settled = self.settlement
        warnings = self._missing()
        warnings += within_error(self.clients, settled.payment, settled.payment_error)
        if (warning := privacy_warning(self.epsilon)) is not None:
            warnings.append(warning)
        if self.expected_budget is not None and self.spend > self.expected_budget:
            warnings.append(
                f"the payments for these reports, {self.spend:,.6g}, exceed the "
                f"{self.expected_budget:,.6g} that they are on average over the prior: these clients are "
                "cheaper, so more is bought"
            )
        if self.budget is not None:
            warnings.append("a hard budget depends on the reports, so that exact truthfulness is lost")
        behind = past_reports(self.reports, self.prior)
        if behind and 2 * behind >= len(self.clients):
            warnings.append(
                f"{behind:,} of {len(self.clients):,} reports are among past costs behind the prior. "
                "If these are the same statements, a report moves the terms it is paid by: lying may pay"
            )
        return warnings

    def _missing(self) -> list[str]:
        """A caution where not everybody has reported."""
        if self.expected_clients is None or len(self.clients) == self.expected_clients:
            return []
        money = ""
        if self.expected_budget is not None:
            money = (
                f"; the {self.expected_budget:,.6g} on average are promised for all "
                f"{self.expected_clients:,}, and fewer clients may be paid more or less in all"
            )
        others = ", and the terms of those who reported are as if the others' costs were above the highest"
        return [did_not_report(len(self.clients), self.expected_clients, others + money)]

    def rows(self) -> list[JSONObject]:
        """One per client: everything that was promised to it."""
        plan, settlement = self.settlement.allocation, self.settlement
        return [
            {
                "client": name,
                "report": float(settlement.reports[k]),
                "admitted": bool(settlement.admitted[k]),
                **({} if self.fair is None else {RECORDS: float(self.fair[k])}),
                "selection": float(plan.selection[k]),
                "epsilon": float(plan.privacy[k]),
                "payment": float(settlement.payment[k]),
                "amount": amount / 10**self.decimals,
            }
            for k, (name, amount) in enumerate(zip(self.clients, self.promised, strict=True))
        ]

    def to_json(self) -> JSONObject:
        plan = self.settlement.allocation
        return {
            "contract": self.digest,
            "eta": plan.eta,
            "clients_selected": plan.threshold,
            "expected_spend": plan.total,  # whose mean over costs is the mean of what is paid
            "spend": self.spend,
            "decimals": self.decimals,
            "expected_budget": self.expected_budget,
            "budget": self.budget,
            "terms": self.rows(),
            "cautions": self.cautions,
        }

    def to_csv(self) -> bytes:
        """A row per client, all digits; reads back as reports, in the column that they come in."""
        rows = self.rows()
        for row, amount in zip(rows, self.promised, strict=True):
            row["amount"] = _written(amount, self.decimals)
        header = ["cost" if name == "report" else name for name in rows[0]]
        return csv_bytes([header, *(list(row.values()) for row in rows)])

    def document(self) -> Document:
        of_records = () if self.fair is None else (Column("of the records", ".4f"),)
        columns = (
            Column("client", left=True), Column("report", ".6g"), *of_records,
            Column(SELECTED[self.noise_at], ".4f"), Column("epsilon", ".4g"), Column("payment"),
        )  # fmt: skip
        rows = [
            (
                row["client"], row["report"], *([row[RECORDS]] if of_records else []),
                row["selection"] if row["admitted"] else NOT_ADMITTED,
                row["epsilon"], _written(amount, self.decimals),
            )
            for row, amount in zip(self.rows()[:_MOST_ROWS], self.promised, strict=False)
        ]  # fmt: skip
        more = len(self.clients) - len(rows)
        caption = (
            f"report: cost of one unit of epsilon; {SELECTION[self.noise_at]}; payment: once, at the end"
        )
        if of_records:
            caption += "; of the records: its share, which is what is fair"
        if more:
            caption += f"; and {counted(more, 'more client')}: the CSV file and --json list all of them"
        plan = self.settlement.allocation
        blocks: list[Block] = [
            Table("Terms", columns, tuple(rows), caption),
            pairs("Over the whole run", self._totals()),
            *(f"Caution: {caution}." for caution in self.cautions),
        ]
        blocks += self.attendance.sentences()
        if plan.threshold == 0:
            blocks.append("Nobody is selected.")
        data = {**self.to_json(), **self.attendance.to_json()}
        return Document(tuple(blocks), data, self._draw, {"csv": self.to_csv()})

    def _totals(self) -> list[tuple[str, str]]:
        admitted = int(np.count_nonzero(self.settlement.admitted))
        rows = [
            ("clients admitted", f"{admitted:,} of {len(self.clients):,}"),
            ("clients selected", f"{self.settlement.allocation.threshold:,}"),
            ("paid to all", f"{self.spend:,.{self.decimals}f}"),
        ]
        if self.digest is not None:
            rows.append(("contract (SHA-256)", self.digest))
        return rows

    def _draw(self) -> Figure:
        from bonafed.mechanisms.jsam.figures import terms_figure

        return terms_figure(self.rows(), self.noise_at)


def _written(minor: int, decimals: int) -> str:
    """An amount with all its digits."""
    return f"{minor // 10**decimals}.{minor % 10**decimals:0{decimals}d}" if decimals else f"{minor}"


def in_order(settlement: PrivacySettlement, places: Sequence[int]) -> PrivacySettlement:
    """The same settlement with client k at places[k] of it."""
    at = np.array(places, dtype=np.int64)
    plan = settlement.allocation
    return PrivacySettlement(
        settlement.reports[at], settlement.admitted[at],
        replace(plan, selection=plan.selection[at], privacy=plan.privacy[at]),
        settlement.payment[at], settlement.payment_error[at],
    )  # fmt: skip


_RTOL = 1e-9  # an example against the terms it shows: the same formulas, perhaps on two machines
_ATOL = 1e-12  # ... of the largest of them: what rounding makes of 0


class Example(NamedTuple):
    """Terms of some clients, of all of which the reports are the quantiles (k + 1/2)/N of the prior."""

    report: tuple[float, ...]  # money per unit of epsilon
    epsilon: tuple[float, ...]
    payment: tuple[float, ...]  # money, before it is rounded to what can be paid

    def require(self, due: Example) -> None:
        """Shows the terms that will be paid, which are those of `due`."""
        for name, value, right in zip(Example._fields, self, due, strict=True):
            if len(value) != len(right):
                raise InvalidValue(f"example.{name}", f"must have {len(right)} values", len(value))
            for client, (one, other) in enumerate(zip(value, right, strict=True)):
                if abs(one - other) > _RTOL * other + _ATOL * max(right):
                    rule = (
                        f"must show what the contract comes to at report {due.report[client]:g}, {other!r}"
                    )
                    raise InvalidValue(f"example.{name}", rule, one)


def example_from_json(data: object) -> Example:
    """The example of a file."""
    columns = (field(data, name, "example") for name in Example._fields)
    return Example(*(
        tuple(checks.vector(f"example.{name}", column).tolist())
        for name, column in zip(Example._fields, columns, strict=True)
    ))  # fmt: skip
