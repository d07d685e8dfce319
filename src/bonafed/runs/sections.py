"""The tables of a run's config file: what they have in common, and those that every kind of run has.

Every key carries its rule. An unknown key, a missing one and an impossible value are refused under their
dotted name, `run.seed must be a whole number of at least 0, got -1`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.learning.partition import options_of
from bonafed.learning.work import local_steps
from bonafed.mechanisms.deviations import Deviation

PROPOSITION_1 = "proposition-1"  # the learning rates that follow the convergence theorem
PROPOSITION_1_PRINTED = "proposition-1-printed"  # those its paper prints (erratum S-E11)
BY_THEOREM = (PROPOSITION_1, PROPOSITION_1_PRINTED)
Check = Callable[[str, Any], Any]
NoiseSource = Literal["secret", "reproducible"]
REPRODUCIBLE = (
    "the noise is reproducible: whoever knows the seed, which is in this folder, takes it off again, so "
    "that the epsilon is a figure for studies and protects nobody"
)
_MOMENTUM = 0.9  # unless told otherwise; written into the config of every run, whatever its optimizer


def text(name: str, value: object) -> str:
    """Any text."""
    if not isinstance(value, str):
        raise InvalidValue(name, "must be text", repr(value))
    return value


def word(name: str, value: object) -> str:
    """Text that is not empty."""
    if not text(name, value):
        raise InvalidValue(name, "must not be empty", repr(value))
    return str(value)


def flag(name: str, value: object) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise InvalidValue(name, "must be true or false", repr(value))
    return value


def noise_source(name: str, value: object) -> str:
    """Where the noise of a private run comes from (`bonafed.learning.noise`)."""
    return checks.literal(name, value, NoiseSource)


def natural(name: str, value: object) -> int:
    """0, 1, 2, ..."""
    return checks.whole(name, value, at_least=0)


def texts(name: str, value: object, example: str) -> Sequence[str]:
    """A list."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidValue(name, f"must be a list such as {example}", repr(value))
    return value


def deviations(
    name: str, value: object, parse: Callable[[str, object], Deviation], example: str
) -> tuple[str, ...]:
    """Who does not follow the protocol, in the words `parse` understands; nobody twice."""
    seen: dict[int, str] = {}
    for item in texts(name, value, f'["{example}"]'):
        number = parse(name, item).number
        if number in seen:
            raise InvalidValue(name, f"must name {number} once", f"{seen[number]!r} and {item!r}")
        seen[number] = item
    return tuple(seen.values())


def key(check: Check, default: Any = MISSING) -> Any:
    """A key with its rule; None as default: may be left out."""
    metadata = {"check": _optional(check) if default is None else check}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


@dataclass(frozen=True)
class Section:
    """A table of the file; every value is held against the rule of its key."""

    def __post_init__(self) -> None:
        for item in fields(self):
            check: Check = item.metadata["check"]
            object.__setattr__(self, item.name, check(item.name, getattr(self, item.name)))
        self._agree()

    def _agree(self) -> None:
        """Rules between keys."""

    def table(self) -> dict[str, Any]:
        """The section as plain data."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(frozen=True)
class Data(Section):
    """Which data."""

    name: str = key(word)  # a name that `datasets.load` knows, or the user's own .npz or .csv
    folder: str = key(text, "")  # of the files; empty: $BONAFED_DATA, the cache; own files: here
    classes: int | None = key(checks.whole, None)  # one more than the largest label; private runs want it


@dataclass(frozen=True)
class Partition(Section):
    """Who holds which samples."""

    kind: str = key(word, "iid")  # a name of `partition.PARTITIONS`
    clients: int | None = key(checks.whole, None)  # may be left out for natural: one per owner
    options: Mapping[str, Any] = field(default_factory=dict, metadata={"check": lambda _, value: value})

    def _agree(self) -> None:
        known = {key: must for key, must in _options_of(self.kind).items() if key != "groups"}
        for key, value in self.options.items():
            if key not in known:
                raise unknown("", key, value, ["kind", "clients", *known])
        for key, must in known.items():
            if must and key not in self.options:
                raise InvalidValue(key, f"must be given for {self.kind}", "nothing")
        if self.clients is None and self.kind != "natural":
            raise InvalidValue("clients", "must be given", "nothing")

    def table(self) -> dict[str, Any]:
        return {"kind": self.kind, "clients": self.clients, **self.options}


def _options_of(kind: str) -> dict[str, bool]:
    try:
        return options_of(kind)
    except InvalidValue as error:
        raise InvalidValue("kind", error.rule, error.value) from error


@dataclass(frozen=True)
class Model(Section):
    """Which model."""

    name: str = key(word)  # a name of `models.MODELS`


def _share(name: str, value: object) -> float:
    if value == "all":
        return 1.0
    share = checks.positive(name, value)
    return checks.between(name, share, 0.0, 1.0)


def _rate(name: str, value: object) -> float | str:
    if isinstance(value, str):
        if value not in BY_THEOREM:
            rule = f'must be a number, "{PROPOSITION_1}" or "{PROPOSITION_1_PRINTED}"'
            raise InvalidValue(name, rule, repr(value))
        return value
    return checks.positive(name, value)


def _decay(name: str, value: object) -> float:
    return checks.between(name, checks.positive(name, value), 0.0, 1.0)


@dataclass(frozen=True)
class Training(Section):
    """What happens in a round, and how often."""

    rounds: int = key(checks.whole)
    learning_rate: float | str = key(_rate)  # of the first round, or "proposition-1"
    batch_size: int = key(checks.whole, 32)
    epochs: int | None = key(checks.whole, None)  # local passes; 1 if neither is given
    steps: int | None = key(checks.whole, None)  # or local steps
    learning_rate_decay: float = key(_decay, 1.0)  # factor from round to round
    smoothness: float | None = key(checks.positive, None)  # L, for proposition-1
    strong_convexity: float | None = key(checks.positive, None)  # mu, for proposition-1
    optimizer: str = key(word, "sgd")
    momentum: float = key(checks.non_negative, _MOMENTUM)  # for the optimizer of that name
    weight_decay: float | None = key(checks.non_negative, None)  # 0; mu for proposition-1
    participation: float = key(_share, 1.0)  # share of the clients in a round, at least one client
    on_bad_update: str = key(word, "raise")  # or "skip": leave the client out of that round

    def local_steps(self, size: int) -> int:
        """Of a client of `size` samples in a round."""
        return local_steps(size, self.batch_size, self.epochs, self.steps)

    def _agree(self) -> None:
        if self.epochs is not None and self.steps is not None:
            raise InvalidValue("steps", "must not be given with epochs", self.steps)
        if self.epochs is None and self.steps is None:
            object.__setattr__(self, "epochs", 1)
        if self.optimizer != "momentum" and self.momentum != _MOMENTUM:
            rule = f'must not be given unless optimizer is "momentum" (it is "{self.optimizer}")'
            raise InvalidValue("momentum", rule, self.momentum)
        if self.learning_rate in BY_THEOREM:
            if self.learning_rate_decay != 1:
                rule = f"must be 1 with {self.learning_rate}, which decays by itself"
                raise InvalidValue("learning_rate_decay", rule, self.learning_rate_decay)
            return
        for name in ("smoothness", "strong_convexity"):
            if getattr(self, name) is not None:
                rule = f'must not be given unless learning_rate is "{PROPOSITION_1}"'
                raise InvalidValue(name, rule, getattr(self, name))


@dataclass(frozen=True)
class Run(Section):
    """Randomness, the folder, and how often something is written."""

    seed: int = key(checks.seed, 0)  # of everything but the costs
    folder: str = key(text, "")  # empty: runs/<name of the config file>
    checkpoint_every: int = key(checks.whole, 1)  # rounds
    evaluate_every: int = key(checks.whole, 1)  # rounds


@dataclass(frozen=True)
class EngineRun(Run):
    """Of a run whose clients are trained by the engine, which can use several cores."""

    cores: int = key(natural, 0)  # to train on; 0: all; changes time and memory, not the result

    @property
    def cores_here(self) -> int:
        """The cores, where all are wanted those that this machine gives the process."""
        if self.cores:
            return self.cores
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def named(section: str, **names: str) -> Iterator[None]:
    """Errors inside are told under the section's name, some under another key's.

    `model="name"` is a key of the section, `clip="privacy.clip"` one of another section.
    """
    try:
        yield
    except InvalidValue as error:
        key = names.get(error.name, error.name)
        elsewhere = error.name in names and "." in key
        raise InvalidValue(key if elsewhere else f"{section}.{key}", error.rule, error.value) from error


def unknown(prefix: str, key: str, value: object, known: list[str]) -> InvalidValue:
    """The error for a key nobody knows, with the nearest one that is known."""
    near = difflib.get_close_matches(key, known, 1)
    hint = f"did you mean {near[0]}?" if near else "known are " + ", ".join(known)
    return InvalidValue(f"{prefix}{key}", f"must not be given, it is unknown ({hint})", repr(value))
