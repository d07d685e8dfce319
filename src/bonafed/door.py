"""What users call refuses arguments of the wrong type, by name, rule and value, before anything is done.

A public module ends with `guard(globals())`: each callable that it lists is then checked against the types
that its signature declares. Code inside the package imports from where things are defined, and trusts them.
What a type cannot say (ranges, shapes, agreement between arguments) the callable checks itself.

>>> def pay(price: float, names: Sequence[str] = ()) -> float:
...     return price
>>> checked(pay)("two")
Traceback (most recent call last):
    ...
bonafed.errors.InvalidValue: price must be a number, got 'two'
>>> checked(pay)(2.0, 42)
Traceback (most recent call last):
    ...
bonafed.errors.InvalidValue: names must be a list, got 42
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from bonafed.errors import InvalidValue, MissingValue

F = TypeVar("F", bound=Callable[..., Any])
_SHOWN = 60  # characters of a value
_ABSTRACT = (collections.abc.Collection, collections.abc.Iterable, collections.abc.Set)

# by the name of a type: what it is called in a message, and who makes one
_CALLED = {
    "Path": "a path", "str": "text", "float": "a number", "int": "a whole number", "bool": "True or False",
    "Mapping": "a mapping", "dict": "a mapping", "Sequence": "a list", "tuple": "a list", "list": "a list",
    "Collection": "a list", "Iterable": "a list", "Callable": "a function", "ndarray": "an array",
    "rv_frozen": "a frozen continuous distribution, such as scipy.stats.gamma(3)",
    "Generator": "a generator (numpy.random.default_rng(seed))",
    "PublishedContract": "a contract (bonafed.read_contract reads one)",
    "Prior": "a prior, such as bonafed.Uniform(0.5, 1.5)",
    "Config": "a config (bonafed.runs.config.read reads one)",
    "Dataset": "a data set (bonafed.learning.data.datasets.from_arrays makes one)",
    "Module": "a torch.nn.Module",
    "Federation": "a federation (bonafed.learning.function_federation.FunctionFederation makes one)",
    "SamplingPlan": "a plan (bonafed.sampling.plan makes one)",
    "Slice": "a mechanism (bonafed.mechanisms.protocol.Slice)",
    "Problem": "a problem, such as bonafed.faithful.SoftmaxRegression",
    "PrivatePlan": "a plan (bonafed.faithful.plan_private makes one)",
}  # fmt: skip


def guard(module: dict[str, Any]) -> None:
    """Check the arguments of every callable that a public module lists in `__all__`."""
    for name in module["__all__"]:
        value = module.get(name)
        if isinstance(value, types.FunctionType):
            module[name] = checked(value)
        elif isinstance(value, type):
            _guard_class(value)


def _guard_class(kind: type) -> None:
    """Let a class check what it is made of; its identity stays, so that `isinstance` and pickling do."""
    made = kind.__dict__.get("__init__")
    abstract = getattr(kind, "_is_protocol", False) or issubclass(kind, BaseException)
    if isinstance(made, types.FunctionType) and not abstract:
        kind.__init__ = checked(made)  # type: ignore[misc]  # the same arguments


def checked(function: F) -> F:
    """The function, refusing arguments of other types than it declares."""
    if getattr(function, "checks_arguments", False):
        return function
    signature = inspect.signature(function)
    rules = functools.cache(lambda: _rules(function))

    @functools.wraps(function)
    def at_the_door(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise _unbound(function, signature, args, kwargs) from error
        for name, value in bound.arguments.items():
            rule, default = rules().get(name), signature.parameters[name].default
            if rule is not None and value is not default and not rule.fits(value):
                raise InvalidValue(name, f"must be {rule.words}", repr(value)[:_SHOWN])
        return function(*args, **kwargs)

    at_the_door.checks_arguments = True  # type: ignore[attr-defined]
    return at_the_door  # type: ignore[return-value]  # it takes and gives the same


def _unbound(
    function: Callable[..., Any],
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> InvalidValue:
    """Why a call does not match a signature: an argument is unknown, missing or one too many."""
    door = function.__qualname__.removesuffix(".__init__")
    known = [name for name in signature.parameters if name != "self"]
    for name, value in kwargs.items():
        if name not in known:
            return InvalidValue(
                name, f"is unknown to {door} (it knows {', '.join(known)})", repr(value)[:_SHOWN]
            )
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError as error:
        return InvalidValue(f"call of {door}", f"must give {', '.join(known)} once each", str(error))
    missing = [
        name
        for name, parameter in signature.parameters.items()
        if name not in given and parameter.default is parameter.empty
    ]
    return MissingValue(", ".join(missing), f"{'is' if len(missing) == 1 else 'are'} required by {door}")


class _Rule(typing.NamedTuple):
    """What fits a declared type, and what that is called."""

    fits: Callable[[Any], bool]
    words: str


def _rules(function: Callable[..., Any]) -> dict[str, _Rule]:
    """The rule of each argument by name; arguments that may be anything have none."""
    names = inspect.unwrap(function).__globals__
    rules = {}
    for name, parameter in inspect.signature(function).parameters.items():
        variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name != "self" and parameter.annotation is not parameter.empty and not variable:
            rule = _either(_parts(parameter.annotation, names))
            if rule is not None:
                rules[name] = rule
    return rules


def _parts(annotation: Any, names: Mapping[str, Any]) -> list[Any]:
    """The alternatives of a declared type; a name that only a type checker knows stays a text."""
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, dict(names))  # the signature's own, not a user's
        except NameError:
            if "|" not in annotation or "[" in annotation.partition("|")[0]:
                return [annotation.partition("[")[0].strip()]
            first, _, rest = annotation.partition("|")
            return [*_parts(first.strip(), names), *_parts(rest.strip(), names)]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [part for inner in typing.get_args(annotation) for part in _parts(inner, names)]
    return [annotation]


def _either(parts: Sequence[Any]) -> _Rule | None:
    """The rule of a union; None: anything fits."""
    if "ArrayLike" in map(str, parts) or _is_array_like(parts):
        own = [_single(part) for part in parts if _is_beside_arrays(part)]
        rules = [_Rule(_like_an_array, "a list of numbers"), *own]
    else:
        rules = [_single(part) for part in parts]
    if not rules or any(rule is None for rule in rules):
        return None
    known = [rule for rule in rules if rule is not None]
    calls = list(dict.fromkeys(rule.words for rule in known if rule.words))
    words = ", ".join(calls[:-1]) + " or " + calls[-1] if len(calls) > 1 else calls[0] if calls else "None"
    return _Rule(lambda value: any(rule.fits(value) for rule in known), words)


def _is_array_like(parts: Sequence[Any]) -> bool:
    """Whether these are the alternatives of `numpy.typing.ArrayLike`, whose name is lost."""
    return any("_SupportsArray" in str(part) for part in parts)


def _is_beside_arrays(part: Any) -> bool:
    """Whether it stands beside `ArrayLike` in a union: a function, or a class of this package."""
    ours = isinstance(part, type) and part.__module__.partition(".")[0] == __name__.partition(".")[0]
    return ours or typing.get_origin(part) is collections.abc.Callable


def _single(part: Any) -> _Rule | None:
    """The rule of one type; None: anything fits."""
    if part is None or part is type(None) or part == "None":
        return _Rule(lambda value: value is None, "")
    if isinstance(part, str):  # known to type checkers only: by its name, without importing it
        name = part.rpartition(".")[2]
        return _Rule(lambda value: _is_named(value, name), _called(name))
    origin = typing.get_origin(part) or part
    if origin is typing.Literal:
        words = typing.get_args(part)
        return _Rule(
            lambda value: any(value == word for word in words), "one of " + ", ".join(map(str, words))
        )
    if isinstance(part, TypeVar) and part.__bound__ is not None:
        return _single(part.__bound__)
    if typing.get_args(part) == (str, float):
        return _Rule(lambda value: isinstance(value, Mapping), "a mapping of numbers by client")
    if not isinstance(origin, type) or origin in (object, Any):
        return None  # anything
    return _of_class(origin)


def _of_class(kind: type) -> _Rule | None:
    name = _called(kind.__name__)
    if kind in (float, int):
        return _Rule(_is_number, name)
    if kind is bool:
        return _Rule(lambda value: isinstance(value, bool | np.bool_), name)
    if kind is np.ndarray:
        return _Rule(_like_an_array, name)
    if kind in (tuple, list) or kind is collections.abc.Sequence or kind in _ABSTRACT:
        return _Rule(lambda value: hasattr(value, "__iter__") and not isinstance(value, str | bytes), name)
    if kind is collections.abc.Callable:  # type: ignore[comparison-overlap]
        return _Rule(callable, name)
    if kind is dict:
        return _Rule(lambda value: isinstance(value, Mapping), name)
    if getattr(kind, "_is_protocol", False):
        wanted = [entry for entry in {**_annotated(kind), **vars(kind)} if not entry.startswith("_")]
        return _Rule(lambda value: all(_has(value, entry) for entry in wanted), name)
    return _Rule(lambda value: isinstance(value, kind), name)


def _annotated(kind: type) -> dict[str, Any]:
    return dict(getattr(kind, "__annotations__", {}))


def _called(name: str) -> str:
    """What a type is called in a message."""
    if name in _CALLED:
        return _CALLED[name]
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _has(value: object, entry: str) -> bool:
    """Whether it has this attribute; properties are not computed for the answer."""
    return hasattr(type(value), entry) or hasattr(value, entry)


def _is_number(value: object) -> bool:
    """Whether it can be a number; which of them, its own rule says."""
    return hasattr(value, "__float__") or hasattr(value, "__index__")


def _like_an_array(value: object) -> bool:
    return not isinstance(value, str | bytes) and (
        _is_number(value) or hasattr(value, "__array__") or hasattr(value, "__len__")
    )


def _is_named(value: object, name: str) -> bool:
    """Whether its class, or one that it is derived from, has this name."""
    return any(kind.__name__ == name for kind in type(value).__mro__)
