"""Writing TOML (the standard library only reads it), and changing single keys of it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from bonafed.errors import InvalidValue

Tables = dict[str, dict[str, Any]]
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The text that `tomllib` reads as these tables; keys that are None are left out.

    >>> print(dumps({"training": {"rounds": 5, "learning_rate": 0.1, "steps": None}}), end="")
    [training]
    rounds = 5
    learning_rate = 0.1
    """
    parts = []
    for name, table in tables.items():
        lines = [f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if value is not None]
        parts.append(f"[{_key(name)}]\n" + "".join(lines))
    return "\n".join(parts)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(value))  # NumPy's are floats that call themselves otherwise
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inside = (f"{_key(str(k))} = {_value(v)}" for k, v in value.items() if v is not None)
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise InvalidValue("value", "must be text, a number, a truth value, a list or a table", repr(value))


def override(tables: Mapping[str, Any], change: str) -> dict[str, Any]:
    """The tables with one key set: `a.b=c`, c in TOML. What is not TOML is text: words need no quotes.

    Nothing after the sign, `a.b=`, leaves the key out.

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
        others = {key: known for key, known in tables.items() if key != first}
        return others if value is None else {**tables, first: value}
    inner = tables.get(first, {})
    if not isinstance(inner, Mapping):
        raise InvalidValue("--set", f"must name a key, and {first} is not a table", path)
    return {**tables, first: _with(inner, rest, value, path)}


def _parsed(text: str) -> object:
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if list(found) == ["value"] else text
