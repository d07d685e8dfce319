"""How many participants the rounds of a run will have: where nobody is, and where too few for secure sums.

A secure sum shows the server what its participants add up to and nothing else. It is opened only where two
participants contribute besides those who may collude with the server: the answer of one would be shown. A
round with fewer cannot be held, and nobody is paid for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from bonafed.checks import Floats
from bonafed.economics.attendance import participant_counts
from bonafed.presentation.documents import JSONObject, counted

FEW: Final = 0.05  # share of rounds without anybody, above which somebody should know
IN_A_SUM: Final = 2  # participants besides colluders in a secure sum that is opened
WORTH_SAYING = 0.05  # rounds


@dataclass(frozen=True, slots=True, eq=False)
class Lottery:
    """What verifiable coins decide: each client by itself in every round, or so many draws among all."""

    chances: Floats  # (N,) probabilities of being in a round, or of being drawn
    draws: int | None = None  # per round, with replacement; None: each client by a coin of its own


@dataclass(frozen=True, slots=True)
class Unheld:
    """Rounds with participants, but too few of them for a secure sum."""

    needed: int  # participants in a round
    chance: float  # that a round is one of them
    rounds: float  # how many are to be expected
    participations: float  # in them, which nobody is paid for
    ever: float  # the probability that the run has one
    held: float  # the chance that a round has enough


@dataclass(frozen=True, eq=False)
class Attendance:
    """Who will be in the rounds of a run, as far as chance decides it; rounds are independent and alike."""

    chances: Floats  # (N,) of each client's coin, or of being drawn
    rounds: int
    draws: int | None = None  # per round, with replacement; None: a coin each

    @classmethod
    def of(cls, lottery: Lottery, rounds: int) -> Attendance:
        """Where a lottery decides."""
        return cls(lottery.chances, rounds, lottery.draws)

    @cached_property
    def empty_rounds(self) -> float:
        """Rounds without anybody, on average."""
        return self.rounds * float(participant_counts(self.chances, 0, self.draws)[0])

    def unheld(self, colluders: int = 0) -> Unheld:
        """What secure sums cannot hold, if so many participants may collude with the server."""
        needed = IN_A_SUM + colluders
        nobody, *short = participant_counts(self.chances, needed - 1, self.draws).tolist()
        chance = min(1.0, sum(short))
        each = sum(count * p for count, p in enumerate(short, 1))
        if self.draws is not None:
            each = self.draws * chance
        rounds = self.rounds
        held = max(0.0, 1 - nobody - chance)
        return Unheld(needed, chance, rounds * chance, rounds * each, 1 - (1 - chance) ** rounds, held)

    def to_json(self, colluders: int = 0) -> JSONObject:
        """Plain data."""
        return {"empty_rounds": self.empty_rounds, "secure_sums": asdict(self.unheld(colluders))}

    def sentences(self, colluders: int = 0) -> list[str]:
        """What to know before a run."""
        found = asdict(self.unheld(colluders))
        return [empty_in_words(self.empty_rounds, self.rounds), *unheld_in_words(found, self.rounds)]


def empty_in_words(expected: float, rounds: int) -> str:
    """How many rounds will have nobody in them, on average."""
    if expected >= rounds:
        return "Nobody will be in any round."
    return f"Rounds without anybody: {few(expected)} of {rounds:,} are to be expected."


def unheld_in_words(found: Mapping[str, Any], rounds: int) -> list[str]:
    """What secure sums would cost, where that is worth saying; `found` is an `Unheld` as plain data."""
    if found["rounds"] < WORTH_SAYING:
        return []
    colluders = found["needed"] - IN_A_SUM
    besides = f", as {colluders} may collude with the server" if colluders else ""
    fewer = ", fewer colluders" if colluders else ""
    return [
        f"With secure sums a round needs {found['needed']} participants{besides}. Of "
        f"{counted(rounds, 'round')}, {few(found['rounds'])} are expected to have some but fewer, each "
        f"with a chance of {found['chance']:.1%}. Such a round cannot be held: "
        f"{few(found['participations'])} participations are expected to be unpaid. More clients, more "
        f"money{fewer} or the same money for fewer rounds leave fewer such rounds."
    ]


def few(count: float) -> str:
    """A number of rounds on average."""
    return f"{count:,.1f}" if count >= WORTH_SAYING else "fewer than 0.1"
