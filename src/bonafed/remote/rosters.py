"""Rosters and agreements as plain data: what is sent, and whether two say the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.federation import Roster
from bonafed.remote.messages import JSONObject
from bonafed.sections import natural

_RTOL = 1e-9  # of what two machines compute by the same formulas
_OPTIONAL = ("feature_bound", "smoothness", "strong_convexity")


def roster_to_json(members: Roster) -> JSONObject:
    """Plain data from which `roster_from_json` makes the same roster."""
    return {
        "names": list(members.names), "sizes": members.sizes.tolist(), "shape": list(members.shape),
        "classes": members.classes, "vocabulary": members.vocabulary,
        "class_names": list(members.class_names),
        **{name: getattr(members, name) for name in _OPTIONAL},
    }  # fmt: skip


def roster_from_json(data: object) -> Roster:
    """The roster that plain data state."""
    if not isinstance(data, dict):
        raise MissingValue("members")
    known = ("names", "sizes", "shape", "classes", "vocabulary", "class_names", *_OPTIONAL)
    if sorted(map(str, data)) != sorted(known):
        raise InvalidValue(
            "members", f"must have the keys {', '.join(known)}", ", ".join(map(str, data))[:90]
        )
    for name in ("names", "sizes", "shape", "class_names"):
        if not isinstance(data[name], list):
            raise InvalidValue(f"members.{name}", "must be a list", type(data[name]).__name__)
    sizes = [natural("members.sizes", size) for size in data["sizes"]]
    optional = {
        name: None if data[name] is None else checks.positive(f"members.{name}", data[name])
        for name in _OPTIONAL
    }
    return Roster(
        checks.names("members.names", data["names"]), np.array(sizes, dtype=np.int64),
        tuple(natural("members.shape", length) for length in data["shape"]),
        natural("members.classes", data["classes"]), optional["feature_bound"],
        natural("members.vocabulary", data["vocabulary"]), optional["smoothness"],
        optional["strong_convexity"], checks.names("members.class_names", data["class_names"]),
    )  # fmt: skip


def same(said: Any, due: Any, name: str) -> str | None:
    """Where plain data differ from what they should be, numbers but for rounding; None: nowhere."""
    if isinstance(due, dict):
        if not isinstance(said, dict) or said.keys() != due.keys():
            return name
        places = ((said[key], due[key], f"{name}.{key}") for key in due)
        return next((found for place in places if (found := same(*place)) is not None), None)
    if isinstance(due, list | tuple):
        if not isinstance(said, list) or len(said) != len(due):
            return name
        rows = (
            (one, other, f"{name}[{at}]") for at, (one, other) in enumerate(zip(said, due, strict=True))
        )
        return next((found for row in rows if (found := same(*row)) is not None), None)
    if isinstance(due, float) and isinstance(said, int | float) and not isinstance(said, bool):
        return None if math.isclose(said, due, rel_tol=_RTOL, abs_tol=1e-12) else name
    return None if said == due and isinstance(said, bool) == isinstance(due, bool) else name
