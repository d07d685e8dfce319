"""Every release of private data, the epsilon they add up to, and which delta may be promised (P1 to P6).

A record is charged for the releases it is in, not for all releases of its client: given who is in which
batch, the others do not depend on it.

One rule says which delta may be promised to whoever holds n records (theory P1). An (epsilon, delta)
promise holds but for an event of probability delta. A mechanism that publishes each of n records whole with
probability delta keeps it, and publishes one with probability n delta or so. So a delta of 1/n promises
nothing, whatever epsilon is, and one above 1/(10 n) little.

>>> require_small_delta("delta", 1e-5, 600)
>>> require_small_delta("delta", 0.5, 600)
Traceback (most recent call last):
    ...
bonafed.errors.InvalidValue: delta must be below 1/600, as a client holds 600 records: with more, a whole \
record may be given away; choose 0.0001 or less, got 0.5
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.learning.privacy.calibration import SampledReleases, sampled_epsilon, spent_epsilon

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
        own = [r for r in self.releases if r.client == client]
        if self.adjacency(client) == ADD_OR_REMOVE:
            return sampled_epsilon(
                (SampledReleases(r.multiplier, r.rate, r.times) for r in own if r.rate is not None), delta
            )
        total = sum(r.times / r.multiplier**2 for r in own)
        return spent_epsilon(1 / math.sqrt(total), 1, delta) if total else 0.0

    @property
    def clients(self) -> tuple[int, ...]:
        """Clients with at least one release, in order."""
        return tuple(sorted({r.client for r in self.releases}))


SAFE = 10  # times the records: a delta up to 1 over this is not remarked upon
_LEAST = 1e-300  # what is computed from a smaller one is beyond double precision


def delta_rule(name: str, value: object) -> float:
    """A delta by itself, before it is known how many records it is for."""
    number = checks.positive(name, value)
    if number >= 1:
        raise InvalidValue(name, "must be between 0 and 1, ends excluded", number)
    if number < _LEAST:
        raise InvalidValue(name, f"must be at least {_LEAST:g}", number)
    return number


def require_small_delta(name: str, value: float, records: int) -> None:
    """Refuse a delta that promises nothing to a client with so many records."""
    if records > 0 and value >= 1 / records:  # 1/49 is refused, though 49 times it is below 1
        rule = (
            f"must be below 1/{records:,}, as a client holds {records:,} records: with more, a whole "
            f"record may be given away; choose {_safe(records)} or less"
        )
        raise InvalidValue(name, rule, value)


def delta_note(value: float, records: int) -> str | None:
    """What to say of a delta that promises little to a client with so many records; None: nothing."""
    if records <= 0 or value * records * SAFE <= 1:
        return None
    return (
        f"delta {value:g} is above 1/({SAFE} x {records:,}): with a chance of up to "
        f"{min(1.0, value * records):.2g} a client with {records:,} records gives away a whole one; choose "
        f"{_safe(records)} or less"
    )


def checked_delta(name: str, value: float, sizes: Iterable[int]) -> list[str]:
    """Refuse a delta that promises nothing to the smallest client; what else to say of it, perhaps nothing.

    What promises something to the smallest client may promise little to the largest, who is warned for.

    >>> checked_delta("delta", 1e-5, [40, 600])
    []
    """
    held = [size for size in sizes if size > 0]
    if not held:
        return []
    require_small_delta(name, value, min(held))
    note = delta_note(value, max(held))
    return [] if note is None else [note]


def _safe(records: int) -> str:
    """1/(10 n), rounded down to one digit."""
    exponent = math.floor(-math.log10(SAFE * records) + 1e-9)
    digit = max(1, math.floor(10.0**-exponent / (SAFE * records) * (1 + 1e-9)))
    return f"{digit * 10.0**exponent:.0e}" if exponent < -4 else f"{digit * 10.0**exponent:g}"
