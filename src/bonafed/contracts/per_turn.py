"""Contracts that pay for taking part: a chance of being in a round, and a payment for every delivery.

The two classes are bases: a mechanism adds how reports become chances and payments, and what it promises
about the money.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.attendance import Lottery
from bonafed.contracts.published import PublishedContract
from bonafed.contracts.terms import PaidTerms, Turns
from bonafed.economics.budgets import BudgetPromise
from bonafed.economics.money import DECIMALS, owed
from bonafed.learning.federation import Question
from bonafed.presentation.documents import Block, Cell, Column, Document, JSONObject, Table, counted
from bonafed.text import csv_bytes

if TYPE_CHECKING:
    from bonafed.presentation.documents import Draw

UNIT = "money per participation"
_ROWS = 20  # clients shown; all of them are in the plain data and in the file


@dataclass(frozen=True, eq=False, repr=False)
class TermsPerTurn(PaidTerms):
    """What every client was promised by a contract that pays for every delivery."""

    clients: tuple[str, ...]  # (N,) names
    reports: Floats  # (N,) money per participation
    admitted: NDArray[np.bool_]  # (N,) False for clients that are not in any round
    probability: Floats  # (N,) of being in a round; 0 if not admitted
    payment: Floats  # (N,) money per participation, at least the report; 0 if not admitted
    rounds: int
    total_budget: float  # money, whole run
    decimals: int = DECIMALS  # decimals of an amount that is paid
    cautions: tuple[str, ...] = ()  # what the contract does not promise for these reports

    @property
    def expected_spend(self) -> float:
        """Money over the whole run, in expectation over the coins, for these costs."""
        return self.rounds * math.fsum(self.probability * self.payment)

    @property
    def columns(self) -> Mapping[str, Sequence[Cell]]:
        return {
            "cost": self.reports.tolist(),
            "probability": self.probability.tolist(),
            "payment": self.payment.tolist(),
        }

    @property
    def lottery(self) -> Lottery:
        """A coin per client and round."""
        return Lottery(self.probability)

    def due_in(self, round_number: int, who: Sequence[int], turns: Turns) -> float:
        """Money of a round: everybody who delivers in it is paid."""
        return math.fsum(self.payment[list(who)])

    def amounts(self, turns: Turns) -> tuple[int, ...]:
        """(N,) smallest units: the payment times deliveries, rounded so that it covers their costs."""
        return owed(self.payment, self.reports, turns.delivered.tolist(), self.decimals)

    def cautioned(self, *cautions: str) -> Self:
        """The same terms with these cautions."""
        return replace(self, cautions=cautions)

    def to_json(self) -> JSONObject:
        """Everything that was promised, by client."""
        return {
            "clients": [
                {
                    "client": client,
                    "cost": float(cost),
                    "admitted": bool(inside),
                    "probability": float(q),
                    "payment": float(r),
                }
                for client, cost, inside, q, r in zip(
                    self.clients, self.reports, self.admitted, self.probability, self.payment, strict=True
                )
            ],
            "rounds": self.rounds,
            "budget": self.total_budget,
            "decimals": self.decimals,
        }

    def document(self) -> Document:
        """A row per client, the money now that costs are known, cautions."""
        data = {
            **self.to_json(),
            "expected_participants": float(self.probability.sum()),
            **self.attendance.to_json(),
            **self.money(),
            "cautions": list(self.cautions),
        }
        people, mean = data["clients"], f"{data['expected_participants']:,.4g}"
        rows = tuple(
            (
                row["client"],
                row["cost"],
                row["probability"] if row["admitted"] else "not admitted",
                row["payment"],
                row["probability"] * row["payment"],
            )
            for row in people[:_ROWS]
        )
        more = len(people) - len(rows)
        columns = (
            Column("client", left=True),
            *(Column(name, ".4f") for name in ("cost", "probability", "payment", "expected per round")),
        )
        rest = f"and {counted(more, 'more client')}: the saved file and --json list all of them"
        blocks = (
            f"{counted(len(people), 'client')}, {counted(self.rounds, 'round')}; "
            f"{mean} {'client' if mean == '1' else 'clients'} "
            "per round on average.",
            *self.attendance.sentences(),
            Table("Terms of every client", columns, rows, rest if more else ""),
            *self.money_blocks(data),
            "probability: of being sampled in a round; payment: each time it is.",
            *(f"note: {caution}" for caution in self.cautions),
        )
        header = ("client", "cost", "admitted", "probability", "payment")
        content = csv_bytes([header, *([row[name] for name in header] for row in people)])
        return Document(blocks, data, self.figure(), {"csv": content})

    def money(self) -> JSONObject:
        """What the mechanism adds to the plain data about the money of the run."""
        return {}

    def money_blocks(self, data: JSONObject) -> Sequence[Block]:
        """What the mechanism says about the money of the run."""
        return ()

    def figure(self) -> Draw | None:
        """What draws the terms; None: nothing does."""
        return None


class ContractPerTurn(PublishedContract):
    """A contract under which clients state a cost per participation, and every delivery is paid."""

    total_budget: float  # money, whole run

    @abstractmethod
    def draw_costs(self, rng: np.random.Generator, clients: int) -> Floats:
        """(clients,) costs of simulated clients, as the contract believes."""

    @abstractmethod
    def budget_promise(self, terms: TermsPerTurn) -> BudgetPromise:
        """What is promised about the money of the run, where these are its terms."""

    @property
    def listed(self) -> tuple[str, ...]:
        """The clients that it is for; (): anybody, so many at most."""
        return ()

    @property
    def question(self) -> Question:
        """A cost; simulated clients have one that is drawn from a seed, 0 unless told otherwise."""

        def simulate(clients: int, seed: int = 0) -> Floats:
            return self.draw_costs(np.random.default_rng(checks.seed("seed", seed)), clients)

        return Question("cost", UNIT, simulate, optional=True, names=self.listed)


def approach_order(digest: str, names: Sequence[str]) -> list[int]:
    """Places in `names` in the order in which clients are approached under a contract of this digest.

    The names must have been listed before the contract was published: who chooses its name chooses its
    place.

    >>> approach_order("00" * 32, ["ada", "ben", "eve"]) == approach_order("00" * 32, ["ada", "ben", "eve"])
    True
    """
    seed = bytes.fromhex(digest)
    keys = [hashlib.sha256(seed + name.encode()).digest() for name in names]
    return sorted(range(len(names)), key=keys.__getitem__)
