"""From plain data back to priors and menus: the reading side of a published contract.

Everything here comes from outside and is checked as it enters; a missing or misplaced field is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import CurveMenu, Menu, StepMenu
from bonafed.economics.discrete import Discrete, Empirical
from bonafed.economics.normals import NormalMixture, TruncatedNormal
from bonafed.economics.priors import (
    ContinuousPrior,
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
    args = checks.vector("prior.args", data["args"], sign="any") if data.get("args") else ()
    given = data.get("kwds", {})
    if not isinstance(given, dict):
        raise InvalidValue("prior.kwds", "must be an object", repr(given)[:60])
    kwds = {str(k): checks.number(f"prior.{k}", v) for k, v in given.items()}
    try:
        frozen = distribution(*args, **kwds)
    except TypeError as error:
        raise InvalidValue("prior.kwds", f"must be parameters of {name}", sorted(kwds)) from error
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


def menu_from_json(data: object) -> Menu:
    """The menu that `Menu.to_json` described; its published levels are checked by `verify`."""
    kind = checks.one_of("menu.kind", field(data, "kind", "menu"), ("steps", "curve"))
    prior = prior_from_json(field(data, "prior", "menu"))
    budget = checks.positive("menu.budget", field(data, "budget", "menu"))
    costs, probabilities, payments = published_levels(data)
    if kind == "steps":
        if costs[-1] < prior.high:
            raise InvalidValue(
                "menu.levels.cost", f"must reach the highest cost {prior.high:g}", float(costs[-1])
            )
        return StepMenu(prior, budget, costs, probabilities, payments)
    if not isinstance(prior, ContinuousPrior):
        raise InvalidValue("menu.prior", "must have a density for a curve menu", prior)
    scale = checks.positive("menu.scale", field(data, "scale", "menu"))
    threshold = checks.between("menu.threshold", field(data, "threshold", "menu"), prior.low, prior.high)
    return CurveMenu(prior, budget, scale, threshold)


def published_levels(data: object) -> tuple[Floats, Floats, Floats]:
    """Costs, probabilities and payments as written in the file."""
    levels = field(data, "levels", "menu")
    costs = checks.vector("menu.levels.cost", field(levels, "cost", "menu.levels"))
    if np.any(np.diff(costs) <= 0):
        raise InvalidValue("menu.levels.cost", "must be strictly increasing", "a fall or a tie")

    def column(name: str) -> Floats:
        values = field(levels, name, "menu.levels")
        return checks.vector(f"menu.levels.{name}", values, length=costs.size)

    return costs, column("probability"), column("payment")
