"""Every release of private data, and the epsilon they add up to (theory P3, P6).

A record is charged for the releases it is in, not for all releases of its client: given who is in which
batch, the others do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bonafed.errors import InvalidValue
from bonafed.learning.privacy.gaussian import spent_epsilon
from bonafed.learning.privacy.sampled import SampledReleases, sampled_epsilon

Adjacency = Literal["replace one", "add or remove one"]  # records in which neighbouring data sets differ
Batches = Literal["passes", "poisson"]  # how the records of a step are chosen (theory P2, P6)
REPLACE: Adjacency = "replace one"
ADD_OR_REMOVE: Adjacency = "add or remove one"


class Release(NamedTuple):
    """Noisy gradients that a client released in one round, all with the same noise."""

    client: int
    round_number: int
    multiplier: float  # noise standard deviation over L2 sensitivity
    times: int  # how many of them any one record can be in
    steps: int | None = None  # how many there were; None: as many as `times`
    rate: float | None = None  # probability of being in each, by a secret coin; None: certain

    @property
    def adjacency(self) -> Adjacency:
        """What the sensitivity refers to: replacing a record, or adding or removing one."""
        return REPLACE if self.rate is None else ADD_OR_REMOVE


@dataclass(frozen=True, slots=True)
class Ledger:
    """Every release of private data, in order; adding to it gives a new ledger."""

    releases: tuple[Release, ...] = ()

    def add(self, releases: Iterable[Release]) -> Ledger:
        """The ledger with these releases added."""
        return Ledger((*self.releases, *releases))

    def adjacency(self, client: int) -> Adjacency:
        """What a client's epsilon refers to; releases of different kinds have no common epsilon."""
        kinds = {r.adjacency for r in self.releases if r.client == client}
        if len(kinds) > 1:
            rule = f"must all be for {REPLACE!r} or all for {ADD_OR_REMOVE!r}"
            raise InvalidValue(f"releases of client {client}", rule, "both")
        return kinds.pop() if kinds else REPLACE

    def epsilon(self, client: int, delta: float) -> float:
        """The (epsilon, delta) privacy a record of a client has lost so far; 0 if it released nothing.

        Gaussian releases compose exactly: their inverse squared multipliers add up.
        """
        mine = [r for r in self.releases if r.client == client]
        if self.adjacency(client) == ADD_OR_REMOVE:
            return sampled_epsilon(
                (SampledReleases(r.multiplier, r.rate, r.times) for r in mine if r.rate is not None), delta
            )
        total = sum(r.times / r.multiplier**2 for r in mine)
        return spent_epsilon(1 / math.sqrt(total), 1, delta) if total else 0.0

    @property
    def clients(self) -> tuple[int, ...]:
        """Clients with at least one release, in order."""
        return tuple(sorted({r.client for r in self.releases}))
