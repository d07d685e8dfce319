"""Rules for input from outside, checked where it enters; one message form for all.

Inside the package code trusts its types: nothing here is called twice for the same value.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.errors import InvalidValue
from bonafed.text import alike

Floats = NDArray[np.float64]
T = TypeVar("T", bound=str)
_LARGER = "a larger integer"  # it may have thousands of digits
LONGEST_NAME = 200  # characters
_DEEPEST = 16  # levels of lists and tables in a config or a contract
_MOST = 10**17  # of anything counted; whether it fits into memory is decided where it is allocated


def shallow(value: object) -> bool:
    """Whether lists and tables are nested no deeper than anything here is: what is cannot even be shown.

    >>> deep: object = 1
    >>> for _ in range(3000):
    ...     deep = [deep]
    >>> shallow(deep), shallow([[1.0], {"a": 2}])
    (False, True)
    """
    level: list[object] = [value]
    for _ in range(_DEEPEST):
        inner: list[object] = []
        for part in level:
            if isinstance(part, Mapping):
                inner.extend(part.values())
            elif isinstance(part, (list, tuple)):
                inner.extend(part)
        if not inner:
            return True
        level = inner
    return False


def number(name: str, value: object) -> float:
    """A finite real number (bool and text are not numbers)."""
    if isinstance(value, (bool, np.bool_, str)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise InvalidValue(name, "must be a number", repr(value))
    try:
        result = float(value)
    except OverflowError as error:
        raise InvalidValue(name, "must be below 1.8e308 in size", _LARGER) from error
    if not math.isfinite(result):
        raise InvalidValue(name, "must be finite", result)
    return result


def finite_or_none(value: float) -> float | None:
    """The number, or None for NaN and infinity, which JSON does not have."""
    return float(value) if math.isfinite(value) else None


def positive(name: str, value: object) -> float:
    """A finite number above 0."""
    result = number(name, value)
    if result <= 0:
        raise InvalidValue(name, "must be positive", result)
    return result


def moderate(name: str, value: object) -> float:
    """A positive number whose square, and the square of its inverse, are still numbers.

    >>> moderate("regulariser", 1e300)
    Traceback (most recent call last):
        ...
    bonafed.errors.InvalidValue: regulariser must be between 1e-100 and 1e+100, got 1e+300
    """
    return between(name, positive(name, value), 1e-100, 1e100)


def non_negative(name: str, value: object) -> float:
    """A finite number not below 0."""
    result = number(name, value)
    if result < 0:
        raise InvalidValue(name, "must not be negative", result)
    return result


def whole(name: str, value: object, at_least: int = 1, at_most: int = _MOST) -> int:
    """A whole number not below `at_least` and not above `at_most`."""
    result = number(name, value)
    # An integer is kept as it is: above 2**53 its double may be a different number.
    exact = int(value) if isinstance(value, (int, np.integer)) else int(result)
    if result != int(result) or exact < at_least:
        raise InvalidValue(name, f"must be a whole number of at least {at_least}", value)
    if exact > at_most:
        raise InvalidValue(name, f"must not exceed {at_most}", exact)
    return exact


def seed(name: str, value: object) -> int:
    """A whole number that every random number generator accepts."""
    return whole(name, value, at_least=0, at_most=2**64 - 1)


def between(name: str, value: object, low: float, high: float) -> float:
    """A number in the closed interval [low, high]."""
    result = number(name, value)
    if not low <= result <= high:
        raise InvalidValue(name, f"must be between {low:g} and {high:g}", result)
    return result


def one_of(name: str, value: object, allowed: Sequence[T]) -> T:
    """One of the allowed words."""
    for option in allowed:
        if value == option:
            return option
    raise InvalidValue(name, "must be one of " + ", ".join(allowed), repr(value))


def one_name(name: str, value: object) -> str:
    """The name of a client, or of a class: one rule wherever names enter, so that no two places disagree.

    It is on one line, drawn as it is spelled (no control characters, none that reverse or hide others), and
    in Unicode form NFC, so that equal names have equal bytes, in files and under signatures.
    """
    if not isinstance(value, str):
        raise InvalidValue(name, "must be text", repr(value)[:60])
    value = str(value)  # of NumPy's kind of text, too
    if not value.isprintable() or not 0 < len(value) <= LONGEST_NAME or not alike(value):
        raise InvalidValue(name, f"must be 1 to {LONGEST_NAME} printable characters", repr(value)[:60])
    if value != value.strip(" "):
        raise InvalidValue(name, "must not begin or end with a space", repr(value))
    if not unicodedata.is_normalized("NFC", value):
        raise InvalidValue(name, "must be in Unicode form NFC", ascii(value)[:60])
    return value


def first_alike(names: Iterable[str]) -> tuple[int, int] | None:
    """The indices of the first two names that people cannot tell apart; None: all differ."""
    seen: dict[str, int] = {}
    for k, name in enumerate(names):
        first = seen.setdefault(alike(name), k)
        if first != k:
            return first, k
    return None


def names(name: str, values: Iterable[object], one: str = "name of a client") -> tuple[str, ...]:
    """Names by the rule of `one_name`, no two of which people would take for the same."""
    result = tuple(one_name(one, value) for value in values)
    pair = first_alike(result)
    if pair is not None:
        first, other = (result[k] for k in pair)
        if first == other:
            raise InvalidValue(name, "must be all different", f"{first!r} twice")
        rule = "must be all different, by more than case, width or spaces"
        raise InvalidValue(name, rule, f"{first!r} and {other!r}")
    return result


def literal(name: str, value: object, kind: object) -> str:
    """One of the words of a `Literal` type."""
    options: tuple[str, ...] = get_args(kind)
    return one_of(name, value, options)


def support(low: object, high: object, *, single: bool = False) -> tuple[float, float]:
    """A cost interval 0 <= low < high < infinity; with `single` also of one cost, low = high."""
    if isinstance(high, (float, np.floating)) and math.isinf(high):
        raise InvalidValue("high", "must be finite: truncate an unbounded prior", high)
    bottom, top = non_negative("low", low), number("high", high)
    if bottom > top or (bottom == top and not single):
        raise InvalidValue("low", f"must be below high = {top:g}", bottom)
    return bottom, top


def vector(
    name: str,
    values: ArrayLike,
    *,
    sign: Literal["any", "non-negative", "positive"] = "non-negative",
    length: int | None = None,
) -> Floats:
    """A non-empty one-dimensional array of finite numbers, copied and read-only."""
    if _has_text(values):  # which NumPy would read as Python does, 0_1 as 1
        raise InvalidValue(name, "must be a list of numbers", repr(values)[:60])
    try:
        result = np.array(values, dtype=np.float64)
    except OverflowError as error:
        raise InvalidValue(name, "must be below 1.8e308 in size", _LARGER) from error
    except (TypeError, ValueError) as error:
        raise InvalidValue(name, "must be a list of numbers", repr(values)[:60]) from error
    if result.ndim != 1:
        raise InvalidValue(name, "must be one-dimensional", f"shape {result.shape}")
    if result.size == 0:
        raise InvalidValue(name, "must not be empty", "0 values")
    if length is not None and result.size != length:
        raise InvalidValue(name, f"must have {length} values", result.size)
    bad = ~np.isfinite(result)
    if bad.any():
        raise InvalidValue(name, "must be finite", _first(result, bad))
    if sign != "any":
        bad = result < 0 if sign == "non-negative" else result <= 0
        if bad.any():
            rule = "must not be negative" if sign == "non-negative" else "must be positive"
            raise InvalidValue(name, rule, _first(result, bad))
    result.setflags(write=False)
    return result


def _has_text(values: object) -> bool:
    """Whether there is text among the values, however deep."""
    waiting = [values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str | bytes):
            return True
        if isinstance(value, list | tuple):
            waiting.extend(value)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "USO":
            waiting.extend(value.ravel().tolist())
    return False


def shares(name: str, values: ArrayLike, *, length: int | None = None) -> Floats:
    """Positive weights that sum to 1 (to 1e-9); returned summing to 1 to rounding.

    Weights that do already are returned as they are, so that published weights keep their bits.
    """
    result = vector(name, values, sign="positive", length=length)
    total = float(result.sum())
    if abs(total - 1.0) > 1e-9:
        raise InvalidValue(name, "must sum to 1", f"sum {total:.12g}")
    if abs(total - 1.0) <= 1e-13:
        return result
    normalised: Floats = result / total
    normalised.setflags(write=False)
    return normalised


def _first(values: Floats, bad: NDArray[np.bool_]) -> str:
    where = int(np.flatnonzero(bad)[0])
    return f"{values[where]:g} at position {where}"
