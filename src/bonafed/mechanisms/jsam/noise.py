"""Q, how much noise harms training: a number, or what it is made of (theory B0)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.errors import InvalidValue, MissingValue
from bonafed.mechanisms.jsam.thresholds import Ints
from bonafed.presentation.documents import JSONObject


def noise_scale(
    delta: float,
    dimension: int,
    rounds: int,
    smoothness: float,
    records: int,
    c2: float = math.sqrt(2.0),
) -> float:
    """Q = 2 c2^2 log(1/delta) D sqrt(T) L (2/M)^2 from its ingredients (theory B0; errata J-9, J-10b).

    D is the number of parameters, T the number of steps of the server's model, M = `records` how many
    records every release averages, the same for all clients: the noise added is sigma 2C/M, not the
    printed sigma C, and Q must be that of the noise that is added. c2 is the constant of Lemma 1; sqrt(2)
    is its value for small epsilon under zCDP. It is not a constant (theory B5), which is why the noise of
    the training itself is calibrated exactly.

    >>> round(noise_scale(delta=1e-5, dimension=650, rounds=1000, smoothness=0.5, records=600), 2)
    5.26
    """
    d = checks.positive("delta", delta)
    checks.between("delta", d, 0.0, 1.0 - 1e-16)
    size, turns = checks.whole("dimension", dimension), checks.whole("rounds", rounds)
    smooth, constant = checks.positive("smoothness", smoothness), checks.positive("c2", c2)
    averaged = checks.whole("records", records)
    printed = 2 * constant * constant * math.log(1 / d) * size * math.sqrt(turns) * smooth
    return printed * (2 / averaged) ** 2


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What Q is made of, besides delta and the rounds of the run.

    A client that is drawn takes some steps, and each moves the model: T is rounds times steps. A record is
    in fewer of them, one of every pass, and the noise is for those (theory P3), so that Q shrinks by passes
    over steps.
    """

    dimension: int  # parameters of the model
    smoothness: float  # L of the loss
    records: int  # M of a client that each release averages; where sizes count, at most
    steps: int = 1  # of a client that is drawn
    passes: int = 1  # through its records in these steps, begun ones counted in full
    c2: float = math.sqrt(2.0)  # the constant of Lemma 1

    def __post_init__(self) -> None:
        for name in ("dimension", "records", "steps", "passes"):
            object.__setattr__(self, name, checks.whole(name, getattr(self, name)))
        for name in ("smoothness", "c2"):
            object.__setattr__(self, name, checks.positive(name, getattr(self, name)))

    def scale(self, delta: float, rounds: int) -> float:
        """Q of a run of so many rounds."""
        value = noise_scale(
            delta, self.dimension, rounds * self.steps, self.smoothness, self.records, self.c2
        )
        return checks.positive("noise_scale", value * self.passes / self.steps)

    def to_json(self) -> JSONObject:
        """Plain data from which `noise_of` makes the same."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


Noise = float | Ingredients


def noise_of(name: str, value: object) -> Noise:
    """A number, or a table of ingredients."""
    if isinstance(value, Ingredients):
        return value
    if not isinstance(value, Mapping):
        return checks.positive(name, value)
    names = [item.name for item in fields(Ingredients)]
    for key in value:
        if key not in names:
            raise InvalidValue(f"{name}.{key}"[:90], "must be one of " + ", ".join(names), repr(key)[:60])
    for key in ("dimension", "smoothness", "records"):
        if key not in value:
            raise MissingValue(f"{name}.{key}")
    try:
        return Ingredients(**_plain(value))
    except InvalidValue as error:
        raise error.renamed(f"{name}.{error.name}") from error


def _plain(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): part for key, part in value.items()}


def scale_of(noise: Noise, delta: float, rounds: int, *, by_size: bool = False) -> float:
    """Q itself; where sizes count it is that of M = 2, which `averaged` goes with (theory B7)."""
    if not isinstance(noise, Ingredients):
        return noise
    return (replace(noise, records=2) if by_size else noise).scale(delta, rounds)


def averaged(noise: Noise, sizes: Ints) -> Ints | None:
    """(N,) records per release where sizes count: all that a client has, or `records` if that is less.

    None where Q is a number: it then is that of every client.
    """
    return np.minimum(sizes, noise.records) if isinstance(noise, Ingredients) else None
