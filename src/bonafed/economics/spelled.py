"""Priors written as text, KIND:NUMBER,NUMBER,..., as a user types them or writes them into a config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bonafed.economics.discrete import Discrete
from bonafed.economics.normals import NormalMixture, TruncatedNormal
from bonafed.economics.priors import Prior, ScaledBeta, TruncatedExponential, Uniform
from bonafed.economics.published import prior_from_json
from bonafed.errors import InvalidValue


class _Kind(NamedTuple):
    form: str  # what to type after the colon
    numbers: int  # how many are expected; -1: any
    unbounded: int  # with so many numbers the support was left out
    build: Callable[..., Prior]


def _mixture(low: float, high: float, *parts: float) -> Prior:
    if not parts or len(parts) % 3:
        raise InvalidValue("mixture", "must give weight,mean,sd for each part", len(parts))
    return NormalMixture(parts[0::3], parts[1::3], parts[2::3], low, high)


def _discrete(*numbers: float) -> Prior:
    if len(numbers) % 2 or not numbers:
        raise InvalidValue("discrete", "must give cost,weight for each cost", len(numbers))
    return Discrete(numbers[0::2], numbers[1::2])


_KINDS: dict[str, _Kind] = {
    "uniform": _Kind("LOW,HIGH", 2, 0, Uniform),
    "exponential": _Kind("RATE,LOW,HIGH", 3, 1, TruncatedExponential),
    "normal": _Kind("MEAN,SD,LOW,HIGH", 4, 2, TruncatedNormal),
    "beta": _Kind("ALPHA,BETA,LOW,HIGH", 4, 0, ScaledBeta),
    "mixture": _Kind("LOW,HIGH,WEIGHT,MEAN,SD[,WEIGHT,MEAN,SD]...", -1, 0, _mixture),
    "discrete": _Kind("COST,WEIGHT[,COST,WEIGHT]...", -1, 0, _discrete),
}
PRIOR_FORMS = "; ".join(f"{name}:{kind.form}" for name, kind in _KINDS.items())


def parse_prior(text: str) -> Prior:
    """A prior from its text.

    >>> parse_prior("uniform:0.5,1.5").mean
    1.0
    """
    name, _, rest = text.partition(":")
    if name not in _KINDS:
        raise InvalidValue("prior kind", "must be one of " + ", ".join(_KINDS), repr(name))
    kind = _KINDS[name]
    numbers = parse_numbers(f"prior {name}", rest, kind.form)
    if kind.unbounded and len(numbers) == kind.unbounded:
        raise InvalidValue(f"prior {name}", f"must be bounded: truncate it, {name}:{kind.form}", repr(text))
    if kind.numbers >= 0 and len(numbers) != kind.numbers:
        raise InvalidValue(f"prior {name}", f"must be {name}:{kind.form}", repr(text))
    return kind.build(*numbers)


def parse_numbers(name: str, text: str, form: str = "NUMBER,NUMBER,...") -> list[float]:
    """A list of numbers separated by commas."""
    numbers = []
    for word in text.split(","):
        try:
            numbers.append(float(word))
        except ValueError:
            raise InvalidValue(name, f"must be numbers {form}", repr(word)) from None
    return numbers


def prior(name: str, value: object) -> Prior:
    """The rule of a key that holds a prior: one, its JSON form, or `KIND:NUMBER,NUMBER,...`."""
    try:
        if isinstance(value, Prior):
            return value
        if isinstance(value, Mapping):
            return prior_from_json(dict(value))
        if isinstance(value, str):
            return parse_prior(value)
    except InvalidValue as error:
        raise InvalidValue(f"{name}: {error.name}", error.rule, error.value) from error
    raise InvalidValue(name, "must be a table with a kind, or KIND:NUMBER,NUMBER,...", repr(value))
