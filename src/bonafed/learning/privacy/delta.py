"""Which delta may be promised to whoever holds n records (theory P1): one rule, wherever a delta enters.

An (epsilon, delta) promise holds but for an event of probability delta. A mechanism that publishes each of
n records whole with probability delta keeps it, and publishes one with probability n delta or so. So a
delta of 1/n promises nothing, whatever epsilon is, and one above 1/(10 n) little.

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

from bonafed import checks
from bonafed.errors import InvalidValue

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
