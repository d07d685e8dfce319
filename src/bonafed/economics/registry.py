"""Every kind of prior there is, read from plain data or from what a user typed.

A prior states its kind, its JSON fields and how it is spelled (`Prior.kind`, `fields`, `spelled`); to be
read it needs its line in `_CLASSES` and nothing else. All of this comes from outside and is checked as it
enters; a missing or misplaced field is named.

>>> prior_from_json({"kind": "uniform", "low": 0.5, "high": 1.5}) == parse_prior("uniform:0.5,1.5")
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bonafed import checks
from bonafed.economics.discrete import Discrete, Empirical
from bonafed.economics.normals import NormalMixture, TruncatedNormal
from bonafed.economics.priors import Prior, ScaledBeta, ScipyPrior, TruncatedExponential, Uniform
from bonafed.errors import InvalidValue, MissingValue
from bonafed.text import numeral

_CLASSES: tuple[type[Prior], ...] = (
    Uniform,
    TruncatedExponential,
    TruncatedNormal,
    ScaledBeta,
    NormalMixture,
    Discrete,
    Empirical,
    ScipyPrior,
)
PRIORS = {prior.kind: prior for prior in _CLASSES}
_SPELLED = {kind: prior.spelled for kind, prior in PRIORS.items() if prior.spelled is not None}
PRIOR_FORMS = "; ".join(f"{kind}:{spelled.form}" for kind, spelled in _SPELLED.items())


def prior_from_json(data: Any) -> Prior:
    """The prior that `Prior.to_json` described."""
    kind = checks.one_of("prior.kind", field(data, "kind", "prior"), tuple(PRIORS))
    return PRIORS[kind].from_json(lambda name: field(data, name, "prior"))


def parse_prior(text: str) -> Prior:
    """A prior from its text, KIND:NUMBER,NUMBER,..., as typed or written into a config.

    >>> parse_prior("uniform:0.5,1.5").mean
    1.0
    """
    kind, _, rest = text.partition(":")
    if kind not in _SPELLED:
        raise InvalidValue("prior kind", "must be one of " + ", ".join(_SPELLED), repr(kind))
    spelled = _SPELLED[kind]
    numbers = parse_numbers(f"prior {kind}", rest, spelled.form)
    if spelled.unbounded and len(numbers) == spelled.unbounded:
        rule = f"must be bounded: truncate it, {kind}:{spelled.form}"
        raise InvalidValue(f"prior {kind}", rule, repr(text))
    if spelled.numbers is not None and len(numbers) != spelled.numbers:
        raise InvalidValue(f"prior {kind}", f"must be {kind}:{spelled.form}", repr(text))
    return PRIORS[kind].from_numbers(*numbers)


def parse_numbers(name: str, text: str, form: str = "NUMBER,NUMBER,...") -> list[float]:
    """A list of numbers separated by commas."""
    numbers = []
    for word in text.split(","):
        try:
            numbers.append(numeral(word))
        except ValueError:
            raise InvalidValue(name, f"must be numbers {form}", repr(word)) from None
    return numbers


def field(data: object, name: str, where: str) -> Any:
    """A field of a JSON object, or an error that names it."""
    if not isinstance(data, dict):
        raise InvalidValue(where, "must be an object", type(data).__name__)
    if name not in data:
        raise MissingValue(f"{where}.{name}")
    return data[name]


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
        own = error.name if error.name.startswith(name) else f"{name}: {error.name}"
        raise error.renamed(own) from error
    raise InvalidValue(name, "must be a table with a kind, or KIND:NUMBER,NUMBER,...", repr(value))


def prior_in_words(belief: Prior) -> str:
    """Its kind and its numbers, as on the page of a contract.

    >>> prior_in_words(Uniform(0.5, 1.5))
    'uniform, low 0.5, high 1.5'
    """
    numbers = dict(belief.to_json())
    kind = numbers.pop("kind")
    return ", ".join([kind, *(f"{name} {number_in_words(value)}" for name, value in numbers.items())])


def number_in_words(value: object) -> str:
    """A number, a word, or the beginning of a list."""
    if isinstance(value, list):
        more = f" and {len(value) - 6:,} more" if len(value) > 6 else ""
        return "(" + " ".join(number_in_words(v) for v in value[:6]) + more + ")"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{k} {number_in_words(v)}" for k, v in value.items()) + ")"
    return f"{value:.10g}" if isinstance(value, (int, float)) else str(value)
