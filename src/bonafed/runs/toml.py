"""Reading and writing TOML, and changing single keys in it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import tomli_w

from bonafed import checks
from bonafed.errors import InvalidValue

_TOO_DEEP = "nested too deeply"
Tables = dict[str, dict[str, Any]]


def loads(text: str) -> dict[str, Any]:
    """The tables of a text; ValueError says in one line why it is none."""
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # integers of thousands of digits
        raise ValueError("a number has too many digits") from None
    if not checks.shallow(tables):
        raise ValueError(_TOO_DEEP)
    return tables


def dumps(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The text that `tomllib` reads as these tables; keys that are None are left out.

    >>> print(dumps({"training": {"rounds": 5, "learning_rate": 0.1, "steps": None}}), end="")
    [training]
    rounds = 5
    learning_rate = 0.1
    """
    try:
        return tomli_w.dumps(_present(tables))
    except TypeError as error:
        rule = "must be text, numbers, truth values, lists or tables"
        raise InvalidValue("values", rule, str(error)) from error


def _present(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without keys that are None, also in nested tables."""
    return {
        str(key): _present(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }


def override(tables: Mapping[str, Any], change: str) -> dict[str, Any]:
    """The tables with one key set: `a.b=c`, c in TOML. What is not TOML is text, so words need no quotes.

    Nothing after the equals sign, `a.b=`, removes the key.

    >>> override({"model": {"name": "softmax"}}, "model.name=small-cnn")
    {'model': {'name': 'small-cnn'}}
    >>> override({"training": {"rounds": 3, "epochs": 1}}, "training.epochs=")
    {'training': {'rounds': 3}}
    """
    path, equals, text = change.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or len(keys) < 2 or not all(keys):
        raise InvalidValue("--set", "must be SECTION.KEY=VALUE", repr(change))
    return _with(tables, keys, _parsed(text.strip()) if text.strip() else None, path)


def _with(tables: Mapping[str, Any], keys: list[str], value: object, path: str) -> dict[str, Any]:
    first, *rest = keys
    if not rest:
        others = {key: entry for key, entry in tables.items() if key != first}
        return others if value is None else {**tables, first: value}
    inner = tables.get(first, {})
    if not isinstance(inner, Mapping):
        raise InvalidValue("--set", f"must name a key, and {first} is not a table", path)
    return {**tables, first: _with(inner, rest, value, path)}


def _parsed(text: str) -> object:
    try:
        tables = loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    except ValueError as error:
        raise InvalidValue("--set", f"must be a value ({error})", f"{text[:20]}...") from None
    return tables["value"] if list(tables) == ["value"] else text
