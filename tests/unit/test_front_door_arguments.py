"""The front door checks its arguments: every public callable, every argument, called with a wrong type."""

import functools
import importlib
import inspect
import sys
from enum import Enum

import numpy as np
import pytest
from scipy import stats

import bonafed
from bonafed.door import checked
from bonafed.errors import InvalidValue, MissingValue

MODULES = [
    bonafed,
    *(importlib.import_module(f"bonafed.{name}") for name in ("economics", "front")),
    *(getattr(bonafed, name) for name in ("sampling", "jsam", "faithful", "rewards")),
]
# arguments that may be anything: plain data, whose reader says what is wrong with it
ANYTHING = {("prior_from_json", "data"), ("contract_from_json", "data"), ("verify", "data")}


class Odd:
    """Of no type that anybody asks for."""

    def __repr__(self):
        return "<odd>"


ODD = Odd()


@functools.cache
def callables():
    """Public functions, and public classes but for errors, abstract ones and named tuples of results."""
    seen = {}
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                result = issubclass(value, tuple | BaseException)
                if result or inspect.isabstract(value) or getattr(value, "_is_protocol", False):
                    continue
            elif not inspect.isfunction(value):
                continue
            seen[f"{module.__name__}.{name}"] = value
    return seen


def hollow(kind):
    """A value of this class that has nothing in it: nobody looks inside before all types are checked."""
    fields = getattr(kind, "__annotations__", {}) if getattr(kind, "_is_protocol", False) else {}
    made = type(kind.__name__, (kind,), {**dict.fromkeys(fields), "__repr__": lambda _self: "<hollow>"})
    made.__abstractmethods__ = frozenset()
    return (tuple if issubclass(kind, tuple) else object).__new__(made)


def candidates():
    """Values of every type that some argument takes."""
    classes = {
        value
        for name, module in tuple(sys.modules.items())
        if name.startswith("bonafed.")
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__.startswith("bonafed.")
        if not hasattr(value, "__getattr__")
    }
    simple = [
        1.0,
        "x",
        [],
        {},
        True,
        print,
        np.random.default_rng(0),
        stats.uniform(0, 1),
        "lattice",
        "uniform",
    ]
    words = ["lattice", "uniform", "corrected"]
    plain = [kind for kind in classes if not issubclass(kind, dict | BaseException | Enum)]
    return [*simple, *words, *map(hollow, sorted(plain, key=lambda kind: (kind.__module__, kind.__name__)))]


CANDIDATES = candidates()


def refusal(function, given, name):
    """The error about this argument, once those before it are of types that it takes."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == name:
            break
        if parameter.default is parameter.empty:
            for candidate in CANDIDATES:
                error = outcome(function, {**given, parameter.name: candidate})
                if not (isinstance(error, InvalidValue) and error.name == parameter.name):
                    given = {**given, parameter.name: candidate}
                    break
    return outcome(function, given)


def outcome(function, arguments):
    try:
        function(**arguments)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("place", callables())
def test_each_argument_of_a_wrong_type_is_refused_by_name_rule_and_value(place):
    function = callables()[place]
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if (place.rpartition(".")[2], name) in ANYTHING:
            continue
        required = {
            other.name: ODD
            for other in inspect.signature(function).parameters.values()
            if other.default is other.empty
        }
        error = refusal(function, {**required, name: ODD}, name)
        assert isinstance(error, InvalidValue), (name, error)
        assert error.name == name, str(error)
        assert str(error).startswith(f"{name} must ")
        assert str(error).endswith("got <odd>")


def test_the_front_door_names_what_it_was_given():
    for verb in (bonafed.train, bonafed.compare, bonafed.verify, bonafed.read_contract):
        with pytest.raises(InvalidValue, match=r"^(config|contract|path) must be .*, got 42$"):
            verb(42)
    with pytest.raises(InvalidValue, match=r"^fedration is unknown to train \(it knows config, data"):
        bonafed.train("a.toml", fedration=3)
    with pytest.raises(MissingValue, match=r"^prior, total_budget, clients, rounds are required by plan$"):
        bonafed.sampling.plan()
    with pytest.raises(InvalidValue, match=r"^call of Uniform must give low, high once each"):
        bonafed.Uniform(1, 2, 3)


def test_a_door_that_checks_nothing_is_found():
    def careless(budget, clients):
        return budget / clients

    assert isinstance(outcome(checked(careless), {"budget": ODD, "clients": ODD}), TypeError)


def test_what_fits_goes_through_unchanged():
    def mean(values: "list[float]", weight: float = 1.0, *rest: int) -> float:
        return weight * sum(values) / len(values)

    guarded = checked(mean)
    assert guarded([1.0, 3.0]) == guarded(np.array([1.0, 3.0]), np.float32(1)) == mean([1, 3])
    assert checked(guarded) is guarded
    assert guarded.__name__ == "mean"
