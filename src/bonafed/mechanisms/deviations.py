"""How a deviation from a protocol is written: `NUMBER KIND [ARGUMENT]`, e.g. "3 amplify 5"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.sections import texts
from bonafed.text import numeral


class Deviation(NamedTuple):
    """Who does what."""

    number: int  # of the agent or client
    kind: str
    argument: float  # 0 for kinds without one


def parse_deviation(name: str, text: object, kinds: Mapping[str, str], example: str) -> Deviation:
    """A deviation of one of the `kinds`, each with the name of its argument or ""; refused under `name`.

    >>> parse_deviation("agents", "3 amplify 5", {"amplify": "FACTOR", "stale": ""}, "3 stale")
    Deviation(number=3, kind='amplify', argument=5.0)
    """
    words = text.split() if isinstance(text, str) else []
    if len(words) < 2 or not _is_number(words[0]) or words[1] not in kinds:
        allowed = ", ".join(f"{kind} {argument}".strip() for kind, argument in kinds.items())
        raise InvalidValue(name, f"must look like '{example}'; known kinds: {allowed}", repr(text))
    number, kind = int(words[0]), words[1]
    if len(words) != 2 + bool(kinds[kind]):
        rule = f"must have {'one argument' if kinds[kind] else 'no argument'} after {kind}"
        raise InvalidValue(name, rule, repr(text))
    if not kinds[kind]:
        return Deviation(number, kind, 0.0)
    try:
        argument = numeral(words[2])
    except ValueError as error:
        raise InvalidValue(name, f"must have a number after {kind}", repr(text)) from error
    return Deviation(number, kind, checks.number(name, argument))


def _is_number(word: str) -> bool:
    """Digits 0 to 9 that fit into a machine integer."""
    return word.isascii() and word.isdecimal() and len(word) <= 18


def deviations(
    name: str, value: object, parse: Callable[[str, object], Deviation], example: str
) -> tuple[str, ...]:
    """Who does not follow the protocol, in the form `parse` understands; nobody twice."""
    seen: dict[int, str] = {}
    for item in texts(name, value, f'["{example}"]'):
        number = parse(name, item).number
        if number in seen:
            raise InvalidValue(name, f"must name {number} once", f"{seen[number]!r} and {item!r}")
        seen[number] = item
    return tuple(seen.values())
