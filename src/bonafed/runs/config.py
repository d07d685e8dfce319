"""What a training run was asked to do, as frozen values, and as TOML in both directions.

    [data]       name, folder
    [partition]  kind, clients, and the options of that kind
    [model]      name
    [training]   rounds, batch_size, epochs or steps, learning_rate, ...
    [privacy]    optional: clip, epsilon, delta, calibration
    [contract]   optional: prior, total_budget, scheme, cost_seed, confidence
    [jsam]       optional: prior, eta or budget or expected_budget, noise_scale, clip, delta, scheme, ...
    [run]        seed, folder, checkpoint_every, evaluate_every, threads

Every key carries its rule. An unknown key, a missing one and an impossible value are refused under their
dotted name, `training.rounds must be a whole number of at least 1, got 0`. What only the data can tell
(whether the partition exists, whether the model fits) is refused by `bonafed.runs.setting`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from bonafed import checks
from bonafed.economics.priors import Prior
from bonafed.economics.published import prior_from_json
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.learning.partition import options_of
from bonafed.mechanisms.jsam.training import WITH_MEMBERS
from bonafed.mechanisms.jsam.training import Scheme as JsamScheme
from bonafed.runs import toml

PROPOSITION_1 = "proposition-1"  # the learning rate that follows the convergence theorem
Check = Callable[[str, Any], Any]
ReadPrior = Callable[[str], Prior]
S = TypeVar("S", bound="_Section")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(name, "must be text", repr(value))
    return value


def _word(name: str, value: object) -> str:
    if not _text(name, value):
        raise InvalidValue(name, "must not be empty", repr(value))
    return str(value)


def _natural(name: str, value: object) -> int:
    return checks.whole(name, value, at_least=0)


def _share(name: str, value: object) -> float:
    if value == "all":
        return 1.0
    share = checks.positive(name, value)
    return checks.between(name, share, 0.0, 1.0)


def _rate(name: str, value: object) -> float | str:
    if isinstance(value, str):
        if value != PROPOSITION_1:
            raise InvalidValue(name, f'must be a number or "{PROPOSITION_1}"', repr(value))
        return value
    return checks.positive(name, value)


def _decay(name: str, value: object) -> float:
    return checks.between(name, checks.positive(name, value), 0.0, 1.0)


def _prior(name: str, value: object) -> Prior:
    if not isinstance(value, Prior):
        raise InvalidValue(name, "must be a table with a kind, or KIND:NUMBER,NUMBER,...", repr(value))
    return value


def _key(check: Check, default: Any = MISSING) -> Any:
    """A key with its rule; None as default: may be left out."""
    metadata = {"check": _optional(check) if default is None else check}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


@dataclass(frozen=True)
class _Section:
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
class Data(_Section):
    """Which data."""

    name: str = _key(_word)  # a name that `datasets.load` knows, or the user's own .npz or .csv
    folder: str = _key(_text, "")  # where the files are; empty: $BONAFED_DATA, then the cache


@dataclass(frozen=True)
class Partition(_Section):
    """Who holds which samples."""

    kind: str = _key(_word, "iid")  # a name of `partition.PARTITIONS`
    clients: int | None = _key(checks.whole, None)  # may be left out for natural: one per owner
    options: Mapping[str, Any] = field(default_factory=dict, metadata={"check": lambda _, value: value})

    def _agree(self) -> None:
        known = {key: must for key, must in _options_of(self.kind).items() if key != "groups"}
        for key, value in self.options.items():
            if key not in known:
                raise _unknown("", key, value, ["kind", "clients", *known])
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
class Model(_Section):
    """Which model."""

    name: str = _key(_word)  # a name of `models.MODELS`


@dataclass(frozen=True)
class Training(_Section):
    """What happens in a round, and how often."""

    rounds: int = _key(checks.whole)
    learning_rate: float | str = _key(_rate)  # of the first round, or "proposition-1"
    batch_size: int = _key(checks.whole, 32)
    epochs: int | None = _key(checks.whole, None)  # local passes; 1 if neither is given
    steps: int | None = _key(checks.whole, None)  # or local steps
    learning_rate_decay: float = _key(_decay, 1.0)  # factor from round to round
    smoothness: float | None = _key(checks.positive, None)  # L, for proposition-1
    strong_convexity: float | None = _key(checks.positive, None)  # mu, for proposition-1
    optimizer: str = _key(_word, "sgd")
    momentum: float = _key(checks.non_negative, 0.9)
    weight_decay: float | None = _key(checks.non_negative, None)  # 0; mu for proposition-1
    participation: float = _key(_share, 1.0)  # share of the clients in a round, at least one client
    on_bad_update: str = _key(_word, "raise")  # or "skip": leave the client out of that round

    def _agree(self) -> None:
        if self.epochs is not None and self.steps is not None:
            raise InvalidValue("steps", "must not be given with epochs", self.steps)
        if self.epochs is None and self.steps is None:
            object.__setattr__(self, "epochs", 1)
        if self.learning_rate == PROPOSITION_1:
            if self.learning_rate_decay != 1:
                rule = f"must be 1 with {PROPOSITION_1}, which decays by itself"
                raise InvalidValue("learning_rate_decay", rule, self.learning_rate_decay)
            return
        for name in ("smoothness", "strong_convexity"):
            if getattr(self, name) is not None:
                rule = f'must not be given unless learning_rate is "{PROPOSITION_1}"'
                raise InvalidValue(name, rule, getattr(self, name))


@dataclass(frozen=True)
class Privacy(_Section):
    """Every client's promise: (epsilon, delta) over the whole run, for replacing one of its records."""

    clip: float = _key(checks.positive)  # largest norm of one record's gradient
    epsilon: float = _key(checks.positive)
    delta: float = _key(checks.positive)
    calibration: str = _key(lambda name, v: checks.literal(name, v, Literal["exact", "printed"]), "exact")


@dataclass(frozen=True)
class Contract(_Section):
    """Who is sampled how often for what money (`bonafed.mechanisms.sampling.training`)."""

    prior: Prior = _key(_prior)  # noqa: RUF009  # of a client's cost per participation
    total_budget: float = _key(checks.positive)  # money, whole run
    scheme: str = _key(_word, "optimal")  # "uniform", "complete information"
    cost_seed: int = _key(_natural, 0)  # the costs are drawn from the prior
    confidence: float | None = _key(checks.number, None)  # see `plan`

    def table(self) -> dict[str, Any]:
        return {**super().table(), "prior": self.prior.to_json()}


@dataclass(frozen=True)
class Jsam(_Section):
    """Whose privacy is bought, how much of it, for what money (`bonafed.mechanisms.jsam.training`)."""

    prior: Prior = _key(_prior)  # noqa: RUF009  # of a client's cost per unit of epsilon
    noise_scale: float = _key(checks.positive)  # Q: how much noise harms the training
    clip: float = _key(checks.positive)  # largest norm of one record's gradient
    eta: float | None = _key(checks.positive, None)  # weight of the training loss against money; or
    budget: float | None = _key(checks.positive, None)  # money at most for these costs; or
    expected_budget: float | None = _key(checks.positive, None)  # money on average over the prior
    delta: float = _key(checks.positive, 1e-5)
    clients_per_round: int = _key(checks.whole, 10)  # drawn with replacement
    scheme: str = _key(lambda name, v: checks.literal(name, v, JsamScheme), "jsam")
    members: int | None = _key(checks.whole, None)  # M of "cheapest" and "largest losses"
    cost_seed: int = _key(_natural, 0)  # the costs are drawn from the prior

    def _agree(self) -> None:
        ways = ("eta", "budget", "expected_budget")
        given = [name for name in ways if getattr(self, name) is not None]
        if not given:
            raise InvalidValue("eta", "must be given, or budget, or expected_budget", "nothing")
        if len(given) > 1:
            raise InvalidValue(given[1], f"must not be given with {given[0]}", getattr(self, given[1]))
        if self.scheme in WITH_MEMBERS and self.members is None:
            raise InvalidValue("members", f"must be given for {self.scheme}", "nothing")
        if self.scheme not in WITH_MEMBERS and self.members is not None:
            rule = "must not be given unless scheme is " + " or ".join(WITH_MEMBERS)
            raise InvalidValue("members", rule, self.members)

    def table(self) -> dict[str, Any]:
        return {**super().table(), "prior": self.prior.to_json()}


@dataclass(frozen=True)
class Run(_Section):
    """Randomness, the folder, and how often something is written."""

    seed: int = _key(_natural, 0)  # of everything but the costs
    folder: str = _key(_text, "")  # empty: runs/<name of the config file>
    checkpoint_every: int = _key(checks.whole, 1)  # rounds
    evaluate_every: int = _key(checks.whole, 1)  # rounds
    threads: int = _key(_natural, 0)  # 0: one per core; changes the time, not the result


@dataclass(frozen=True)
class Config:
    """A training run; made by `read` or `from_tables`, or directly."""

    data: Data
    partition: Partition
    model: Model
    training: Training
    privacy: Privacy | None = None
    contract: Contract | None = None
    jsam: Jsam | None = None
    run: Run = field(default_factory=Run)

    def __post_init__(self) -> None:
        paid = self.contract is not None or self.jsam is not None
        if paid and self.training.participation != 1:
            rule = "must be left to " + ("the contract" if self.contract is not None else "jsam")
            raise InvalidValue("training.participation", rule, self.training.participation)
        if self.jsam is None:
            return
        for name in ("contract", "privacy"):
            if getattr(self, name) is not None:
                raise InvalidValue(name, "must not be given with jsam", f"a section [{name}]")
        if self.training.optimizer != "sgd":
            raise InvalidValue("training.optimizer", "must be sgd with jsam", repr(self.training.optimizer))

    @property
    def clip(self) -> float | None:
        """Largest norm of one record's gradient; None: the run is not private."""
        private = self.privacy or self.jsam
        return None if private is None else private.clip

    @property
    def delta(self) -> float | None:
        """Of the clients' privacy; None: the run is not private."""
        private = self.privacy or self.jsam
        return None if private is None else private.delta


_SECTIONS: dict[str, type[_Section]] = {
    "data": Data,
    "partition": Partition,
    "model": Model,
    "training": Training,
    "privacy": Privacy,
    "contract": Contract,
    "jsam": Jsam,
    "run": Run,
}
_OPTIONAL = ("privacy", "contract", "jsam", "run")
_HARMLESS = (("run", "folder"), ("run", "threads"), ("run", "checkpoint_every"))


@contextmanager
def named(section: str, **names: str) -> Iterator[None]:
    """Errors inside are told under the section's name, some under another key's: `model="name"`."""
    try:
        yield
    except InvalidValue as error:
        key = names.get(error.name, error.name)
        raise InvalidValue(f"{section}.{key}", error.rule, error.value) from error


def read(path: Path, changes: Sequence[str] = (), read_prior: ReadPrior | None = None) -> Config:
    """The config of a file, with changes `section.key=value`."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UnreadableFile(path, f"not TOML: {error}") from error
    for change in changes:
        tables = toml.override(tables, change)
    return from_tables(tables, read_prior)


def from_tables(tables: Mapping[str, Any], read_prior: ReadPrior | None = None) -> Config:
    """The config of plain data; `read_prior` understands a prior written as text."""
    for name, value in tables.items():
        if name not in _SECTIONS:
            raise _unknown("", name, value, list(_SECTIONS))
        if not isinstance(value, Mapping):
            raise InvalidValue(name, f"must be a section [{name}]", repr(value))
    given: dict[str, Any] = {}
    for name, kind in _SECTIONS.items():
        if name in tables or name not in _OPTIONAL:
            given[name] = _section(kind, name, _with_defaults(name, tables), read_prior)
    return Config(**given)


def _with_defaults(name: str, tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table; under jsam a client that is drawn takes one step unless told otherwise."""
    table: Mapping[str, Any] = tables.get(name, {})
    if name == "training" and "jsam" in tables and not {"epochs", "steps"} & set(table):
        return {**table, "steps": 1}
    return table


def _section(kind: type[S], name: str, table: Mapping[str, Any], read_prior: ReadPrior | None) -> S:
    values = dict(table)
    if kind is Partition:  # keys of its own, and those of the kind
        options = {key: values.pop(key) for key in table if key not in ("kind", "clients")}
        values["options"] = options
    if kind in (Contract, Jsam) and "prior" in values:
        values["prior"] = _read_prior(name, values["prior"], read_prior)
    known = {item.name: item for item in fields(kind)}
    for key, value in values.items():
        if key not in known:
            raise _unknown(f"{name}.", key, value, list(known))
    for key, item in known.items():
        if key not in values and item.default is MISSING and item.default_factory is MISSING:
            raise InvalidValue(f"{name}.{key}", "must be given", "nothing")
    with named(name):
        return kind(**values)


def _read_prior(section: str, value: object, read_prior: ReadPrior | None) -> object:
    try:
        if isinstance(value, Mapping):
            return prior_from_json(dict(value))
        return read_prior(value) if isinstance(value, str) and read_prior is not None else value
    except InvalidValue as error:
        raise InvalidValue(f"{section}.prior: {error.name}", error.rule, error.value) from error


def _unknown(prefix: str, key: str, value: object, known: list[str]) -> InvalidValue:
    near = difflib.get_close_matches(key, known, 1)
    hint = f"did you mean {near[0]}?" if near else "known are " + ", ".join(known)
    return InvalidValue(f"{prefix}{key}", f"must not be given, it is unknown ({hint})", repr(value))


def to_tables(config: Config) -> toml.Tables:
    """Plain data from which `from_tables` makes the same config."""
    sections = {name: getattr(config, name) for name in _SECTIONS}
    return {name: section.table() for name, section in sections.items() if section is not None}


def to_toml(config: Config) -> str:
    """The whole config, defaults written out, as the text of a file."""
    return toml.dumps(to_tables(config))


def differences(one: Config, other: Config) -> list[tuple[str, Any, Any]]:
    """Dotted keys in which two configs differ, with both values; not those that change no result."""
    found = []
    a, b = to_tables(one), to_tables(other)
    for section in _SECTIONS:
        first, second = a.get(section, {}), b.get(section, {})
        for key in dict.fromkeys([*first, *second]):
            if (section, key) not in _HARMLESS and first.get(key) != second.get(key):
                found.append((f"{section}.{key}", first.get(key), second.get(key)))
    return found
