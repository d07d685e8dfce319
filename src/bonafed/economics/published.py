"""From plain data back to priors: the reading side of a published contract.

Everything here comes from outside and is checked as it enters; a missing or misplaced field is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bonafed import checks
from bonafed.economics.discrete import Discrete, Empirical
from bonafed.economics.normals import NormalMixture, TruncatedNormal
from bonafed.economics.priors import (
    JSONObject,
    Prior,
    ScaledBeta,
    TruncatedExponential,
    Uniform,
    from_scipy,
)
from bonafed.errors import InvalidValue


def field(data: object, name: str, where: str) -> Any:
    """A field of a JSON object, or an error that names it."""
    if not isinstance(data, dict):
        raise InvalidValue(where, "must be an object", type(data).__name__)
    if name not in data:
        raise InvalidValue(f"{where}.{name}", "must be present", "nothing")
    return data[name]


def _scipy(data: JSONObject) -> Prior:
    from scipy import stats

    name = field(data, "name", "prior")
    distribution = getattr(stats, name, None) if isinstance(name, str) else None
    if not isinstance(distribution, stats.rv_continuous):
        raise InvalidValue("prior.name", "must be a continuous scipy.stats distribution", name)
    given = field(data, "parameters", "prior")
    if not isinstance(given, dict):
        raise InvalidValue("prior.parameters", "must be an object", repr(given)[:60])
    parameters = {str(k): checks.number(f"prior.parameters.{k}", v) for k, v in given.items()}
    try:
        frozen = distribution(**parameters)
    except TypeError as error:
        raise InvalidValue("prior.parameters", f"must be those of {name}", sorted(parameters)) from error
    return from_scipy(frozen, field(data, "low", "prior"), field(data, "high", "prior"))


def _numbers(data: JSONObject, *names: str) -> list[Any]:
    return [field(data, name, "prior") for name in names]


_PRIORS: dict[str, Callable[[JSONObject], Prior]] = {
    "uniform": lambda d: Uniform(*_numbers(d, "low", "high")),
    "exponential": lambda d: TruncatedExponential(*_numbers(d, "rate", "low", "high")),
    "normal": lambda d: TruncatedNormal(*_numbers(d, "mean", "sd", "low", "high")),
    "beta": lambda d: ScaledBeta(*_numbers(d, "alpha", "beta", "low", "high")),
    "mixture": lambda d: NormalMixture(*_numbers(d, "weights", "means", "sds", "low", "high")),
    "discrete": lambda d: Discrete(*_numbers(d, "costs", "weights")),
    "empirical": lambda d: Empirical(*_numbers(d, "samples", "highest", "estimator")),
    "scipy": _scipy,
}


def prior_from_json(data: Any) -> Prior:
    """The prior that `Prior.to_json` described."""
    kind = checks.one_of("prior.kind", field(data, "kind", "prior"), tuple(_PRIORS))
    return _PRIORS[kind](data)
