"""What a contract means for one participant, before it signs: what it would earn, and what a lie would.

What a client sells depends on what the others report, too. They are believed to have costs drawn from the
prior and to state them, which is their best choice whatever anybody states. So of many draws of the others

    the mean and the spread of epsilon, of the payment and of what is left after the cost of epsilon,
    the largest gain of any other report on average, and in any single draw: none, as the payments of
    theory B3 are truthful whatever the others report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.terms import EARNINGS, Earning
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.presentation.documents import Cell, Column, Document, Shown, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DRAWS, _LYING = 200, 20  # of the others' costs; of these, draws in which the participant is let lie
_CAPPED_DRAWS, _CAPPED_LYING = 50, 8  # ... under a cap, where each takes longer
_REPORTS = 61  # other reports tried, evenly from 0 to the highest cost


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a client of a given cost and cap can expect; money is over the run."""

    max_epsilon: float | None  # its cap
    epsilon: float  # mean of what it sells
    epsilon_sd: float  # over the others' costs
    sale_probability: float  # probability that anything is bought from it
    payment: float  # mean of the payment
    payment_sd: float
    profit: float  # mean of what is left after cost times epsilon
    profit_sd: float
    lie: float  # the other report of largest gain on average
    gain: float  # what it wins on average compared with the truth; negative: it loses
    largest_gain: float  # of any report in any draw
    records: int | None = None  # that it holds, where sizes count

    @property
    def kind(self) -> str:
        """Of participant, where a contract tells them apart."""
        if self.records is not None:
            return f"{self.records:,} records"
        return "" if self.max_epsilon is None else f"epsilon {self.max_epsilon:g} at most"


@dataclass(frozen=True, eq=False, repr=False)
class Prospect(Shown):
    """What a participant of a given cost can expect of a contract."""

    cost: float  # money per unit of epsilon
    admitted: bool  # whether stating it leads to terms
    outlooks: tuple[Outlook, ...]  # one, or where caps or sizes differ that of the lowest and the highest
    reports: Floats  # (R,) reports tried
    utility: Floats  # (R,) mean of what is left for each of them
    draws: int = 0  # of the others' costs
    lying: int = 0  # of these, draws in which it was let lie: those of `utility` and of the gains

    def document(self) -> Document:
        if not self.admitted:
            text = f"A cost of {self.cost:g} is above the highest that the contract admits: no terms."
            return Document((text,), self._data())
        names = ("epsilon sold", "payment", "left after the cost of epsilon")
        tables = []
        for outlook in self.outlooks:
            means = (outlook.epsilon, outlook.payment, outlook.profit)
            spreads = (outlook.epsilon_sd, outlook.payment_sd, outlook.profit_sd)
            rows: tuple[tuple[Cell, ...], ...] = tuple(zip(names, means, spreads, strict=True))
            kind = f", {outlook.kind}" if outlook.kind else ""
            columns = (Column("", left=True), Column("mean", ",.4g"), Column("spread", ",.2g"))
            title = f"A participant whose unit of epsilon costs {self.cost:g}{kind}"
            verdict = "no other report earns more" if outlook.largest_gain <= self._room else "A LIE PAYS"
            caption = (
                f"over {self.draws:,} draws of the others' costs; something is bought in "
                f"{outlook.sale_probability:.0%} of them; {verdict}: the best of {self.reports.size:,}, "
                f"{outlook.lie:.4g}, gains {outlook.gain:.1e} on average over {self.lying:,} of them"
            )
            tables.append(Table(title, columns, rows, caption))
        pays = any(outlook.largest_gain > self._room for outlook in self.outlooks)
        return Document(tuple(tables), self._data(), self._draw, holds=not pays)

    @property
    def _room(self) -> float:
        """Gains up to this are rounding."""
        return 1e-9 * max((outlook.payment + outlook.payment_sd for outlook in self.outlooks), default=0.0)

    def _data(self) -> dict[str, object]:
        earnings = [Earning("", False, 0.0, 0.0, None, 0.0)] if not self.admitted else [
            Earning(
                each.kind if len(self.outlooks) > 1 else "", True,
                each.payment, each.profit, each.lie, each.gain,
            )
            for each in self.outlooks
        ]  # fmt: skip
        return {
            "cost": self.cost, "admitted": self.admitted, "draws": self.draws,
            "tries": int(self.reports.size), "outlooks": [asdict(outlook) for outlook in self.outlooks],
            EARNINGS: [asdict(earning) for earning in earnings],
        }  # fmt: skip

    def _draw(self) -> Figure:
        from bonafed.mechanisms.jsam.figures import prospect_figure

        kind = self.outlooks[-1].kind if len(self.outlooks) > 1 else ""  # whose utility it is
        return prospect_figure(self.cost, self.reports, self.utility, self.lying, kind)


def prospect(contract: JsamContract, cost: float, seed: int = 0) -> Prospect:
    """What a participant of this cost can expect, and the best lie.

    >>> from bonafed.economics import Uniform
    >>> contract = JsamContract(10, Uniform(0, 1), eta=5, noise=1.0, rounds=100, clip=1.0)
    >>> mine = prospect(contract, 0.3).outlooks[0]
    >>> mine.profit > 0 >= mine.largest_gain
    True
    """
    c = checks.non_negative("report", cost)
    reports = np.unique(np.append(np.linspace(0.0, contract.prior.high, _REPORTS), c))
    if c > contract.prior.high:
        return Prospect(c, False, (), reports, np.zeros(reports.size))
    caps = contract.caps(contract.names)
    places = [0]
    if contract.held is not None or isinstance(contract.max_epsilon, Mapping):
        each = np.asarray(caps if contract.held is None else contract.held)
        places = sorted({int(each.argmin()), int(each.argmax())})
    rng, draws = np.random.default_rng(seed), _DRAWS if caps is None else _CAPPED_DRAWS
    others = np.array([contract.prior.sample(rng, contract.clients) for _ in range(draws)])
    outlooks, utility = [], np.zeros(reports.size)
    for place in places:
        outlook, utility = _outlook(contract, caps, place, c, reports, others)
        outlooks.append(outlook)
    return Prospect(c, True, tuple(outlooks), reports, utility, draws, _lying(caps))


def _lying(caps: float | Floats | None) -> int:
    return _LYING if caps is None else _CAPPED_LYING


def _outlook(
    contract: JsamContract,
    caps: float | Floats | None,
    place: int,
    cost: float,
    reports: Floats,
    others: Floats,
) -> tuple[Outlook, Floats]:
    """Of the client at this place, and its mean utility for every report tried."""
    mechanism, lying = contract.responding(caps), _lying(caps)
    own = np.array([cost])
    terms = np.array([mechanism.respond(costs, place, own) for costs in others])[:, :, 0]  # (S, 2)
    epsilon, payment = terms.T
    left = payment - cost * epsilon
    answers = np.array([mechanism.respond(costs, place, reports) for costs in others[:lying]])  # (S, 2, R)
    utility = answers[:, 1] - cost * answers[:, 0]
    truth = int(np.searchsorted(reports, cost))
    gain = np.delete(utility - utility[:, [truth]], truth, axis=1)
    mean = gain.mean(0)
    best = int(np.argmax(mean))
    mine = None if caps is None else float(np.broadcast_to(caps, others.shape[1:])[place])
    outlook = Outlook(
        mine,
        float(epsilon.mean()), float(epsilon.std()), float(np.mean(epsilon > 0)),
        float(payment.mean()), float(payment.std()), float(left.mean()), float(left.std()),
        float(np.delete(reports, truth)[best]), float(mean[best]), float(gain.max()),
        None if contract.held is None else int(contract.held[place]),
    )  # fmt: skip
    return outlook, utility.mean(0)
