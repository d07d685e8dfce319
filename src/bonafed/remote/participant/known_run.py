"""A run that a participant agreed to, or is about to: what it knows of it, and what it may be asked for.

A new task must be for the model, the rounds and the steps of the config, and no more often than was agreed.
What it gives away must stay within what was sold, and within the policy, by the participant's own ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bonafed.errors import InvalidValue
from bonafed.learning.federation import Roster, Train
from bonafed.learning.privacy.ledger import Ledger, Release
from bonafed.learning.work import step_count
from bonafed.mechanisms.protocol import Config, Mechanism
from bonafed.remote.participant.journal import Journal
from bonafed.remote.participant.local_data import Bench
from bonafed.remote.participant.own_account import own_account
from bonafed.remote.participant.policy import Policy
from bonafed.remote.tasks import Asked

_SLACK = 1e-9  # of an epsilon, for rounding


@dataclass(frozen=True, slots=True, eq=False)
class KnownRun:
    """What a participant knows of a run, by which it decides what it answers."""

    run: str  # its number
    name: str  # of the participant
    config: Config
    members: Roster
    mechanism: Mechanism[Any]
    bench: Bench  # the program of the run on the participant's records
    journal: Journal
    policy: Policy

    def require_sold(self, asked: Asked, new: list[Asked]) -> None:
        """A new task must be within what was agreed on: the work, and privacy by my own ledger."""
        if self.journal.fact(self.run, "sold") is not None:
            if self.bench.release_of(asked) is None:
                rule = "must be clipped and noised: privacy was promised"
                raise InvalidValue("work", rule, f"{type(asked.task.work).__name__} without noise")
            everything = [r for each in (*new, asked) for r in self.bench.release_of(each) or ()]
            self.charge(everything)
        self.require_agreed([asked], new)

    def require_agreed(self, asked: Sequence[Asked], before: Sequence[Asked] = ()) -> None:
        """New work is for this model, in the rounds and with the steps of the config, and no more often."""
        rounds, size = self.mechanism.rounds, self.bench.program.size
        for each in asked:
            work, width = each.task.work, each.task.models.shape[1]
            if width != size:
                raise InvalidValue("models", f"must have {size:,} weights", width)
            if not isinstance(work, Train):
                continue
            if rounds is not None and work.round_number > rounds:
                raise InvalidValue("round", f"must be at most {rounds}, as agreed", work.round_number)
            if self.config.training is not None:
                most = self.config.local.local_steps(self.bench.records)
                if (steps := step_count(self.bench.records, work.training)) > most:
                    raise InvalidValue("steps", f"must be at most {most}, as agreed", steps)
        trained = sum(isinstance(each.task.work, Train) for each in (*before, *asked))
        if rounds is not None and any(isinstance(each.task.work, Train) for each in asked):
            self._require_few(rounds, trained - 1)

    def _require_few(self, rounds: int, more: int) -> None:
        """I train once a round, or as often as anybody may be drawn for it."""
        contract = self.mechanism.contract
        draws = 1 if contract is None or contract.draws is None else contract.draws
        most = rounds * max(draws, getattr(self.config.own, "clients_per_round", 1))
        account = own_account(self.journal, self.run, self.name, self.members)
        if account.asked + more >= most:
            raise InvalidValue(
                "tasks of training", f"must be at most {most}, as agreed", account.asked + more + 1
            )

    def charge(self, releases: Sequence[Release]) -> None:
        """Refuse what would exceed what I sold."""
        sold = self.journal.fact(self.run, "sold")
        if sold is None:
            return
        if not releases:
            raise InvalidValue("work", "must be clipped and noised: privacy was promised", "without noise")
        drawn = "poisson" in (
            getattr(part, "batches", "") for part in (self.config.privacy, self.config.own)
        )
        if not drawn and any(release.rate is not None for release in releases):
            rule = 'must be "passes": what I sold is for replacing a record'
            raise InvalidValue("batches", rule, '"poisson"')
        epsilon, delta = sold
        position = self.bench.position
        given = Ledger((*self.journal.releases(self.run, position), *releases)).epsilon(position, delta)
        limit = epsilon if self.policy.max_epsilon is None else min(epsilon, self.policy.max_epsilon)
        if given > limit * (1 + _SLACK):
            rule = f"must stay within {limit:.6g}, the epsilon that I sold"
            raise InvalidValue("epsilon", rule, f"{given:.6g} after this")
        if self.policy.max_epsilon_in_all is not None:
            most, all_runs = self.policy.max_epsilon_in_all, given + self._given_elsewhere()
            if all_runs > most * (1 + _SLACK):
                rule = f"must stay within {most:.6g} over all runs, what I give away at most"
                raise InvalidValue("epsilon", rule, f"{all_runs:.6g} after this")

    def _given_elsewhere(self) -> float:
        """Epsilon that other runs were given, added up: records may be in all of them."""
        total = 0.0
        for other in self.journal.runs:
            sold = self.journal.fact(other, "sold")
            if other != self.run and sold is not None:
                total += Ledger(tuple(self.journal.releases(other, 0))).epsilon(0, sold[1])
        return total
