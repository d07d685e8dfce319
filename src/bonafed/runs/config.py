"""What a training run was asked to do, as frozen values, and as TOML in both directions.

    [data]       name, folder, classes
    [partition]  kind, clients, and the options of that kind
    [model]      name
    [training]   rounds, batch_size, epochs or steps, learning_rate, ...
    [privacy]    optional: clip, epsilon, delta, batches, adjacency, calibration, noise
    [contract]   optional: prior, total_budget, scheme, cost_seed, confidence, coins
    [jsam]       optional: prior, eta or budget or expected_budget, noise_scale or smoothness, clip, delta,
                 max_epsilon, scheme, ...
    [run]        seed, folder, checkpoint_every, evaluate_every, cores

A file with a table [faithful] or [rewards] is another kind of run (`faithful_config`, `rewards_config`). An
unknown key, a missing one and an impossible value are refused under their dotted name, `training.rounds
must be a whole number of at least 1, got 0`. What only the data can tell (whether the partition exists,
whether the model fits) is refused by `bonafed.runs.setting`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, cast

from bonafed import checks
from bonafed.economics.priors import Prior
from bonafed.economics.registry import parse_prior, prior_from_json
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.learning.datasets import is_own_file
from bonafed.learning.privacy import ADD_OR_REMOVE, REPLACE, Adjacency, Batches, Calibration
from bonafed.mechanisms.jsam.training import LARGEST_LOSSES, WITH_MEMBERS
from bonafed.mechanisms.jsam.training import Scheme as JsamScheme
from bonafed.runs import toml
from bonafed.runs.faithful_config import FaithfulConfig
from bonafed.runs.rewards_config import RewardsConfig
from bonafed.runs.sections import (
    Data,
    EngineRun,
    Model,
    NoiseSource,
    Partition,
    Section,
    Training,
    flag,
    key,
    named,
    noise_source,
    text,
    unknown,
    word,
)

S = TypeVar("S", bound=Section)


def _prior(name: str, value: object) -> Prior:
    if not isinstance(value, Prior):
        raise InvalidValue(name, "must be a table with a kind, or KIND:NUMBER,NUMBER,...", repr(value))
    return value


def _cap(name: str, value: object) -> float | tuple[float, ...]:
    """One number, or a list of them, one per client."""
    if isinstance(value, list | tuple):
        return tuple(checks.vector(name, value, sign="positive").tolist())
    return checks.positive(name, value)


def _coins(name: str, value: object) -> str:
    return checks.literal(name, value, Literal["seed", "verifiable"])


@dataclass(frozen=True)
class Privacy(Section):
    """Every client's promise: (epsilon, delta) over the whole run, to each of its records (theory P)."""

    clip: float = key(checks.positive)  # largest norm of one record's gradient
    epsilon: float = key(checks.positive)
    delta: float = key(checks.positive)
    batches: str = key(lambda name, v: checks.literal(name, v, Batches), "passes")  # or "poisson"
    adjacency: str = key(text, "")  # what the promise is for; follows from the batches
    calibration: str = key(lambda name, v: checks.literal(name, v, Calibration), "exact")
    noise: str = key(noise_source, "secret")  # or "reproducible": the seed takes it off again

    def _agree(self) -> None:
        right = ADD_OR_REMOVE if self.batches == "poisson" else REPLACE
        if self.adjacency not in ("", right):
            rule = f'must be "{right}" with batches = "{self.batches}", whose promise it is'
            raise InvalidValue("adjacency", rule, repr(self.adjacency))
        object.__setattr__(self, "adjacency", right)
        if self.batches == "poisson" and self.calibration != "exact":
            rule = 'must be "exact" with batches = "poisson": the others know of no sampling'
            raise InvalidValue("calibration", rule, repr(self.calibration))


@dataclass(frozen=True)
class Contract(Section):
    """Who is sampled how often for what money (`bonafed.mechanisms.sampling.training`)."""

    prior: Prior = key(_prior)  # of a client's cost per participation
    total_budget: float = key(checks.positive)  # money, whole run
    scheme: str = key(word, "optimal")  # "uniform", "complete information"
    cost_seed: int = key(checks.seed, 0)  # the costs are drawn from the prior
    confidence: float | None = key(checks.number, None)  # see `plan`
    coins: str = key(_coins, "seed")  # who is sampled when comes from run.seed; or "verifiable"

    def table(self) -> dict[str, Any]:
        return {**super().table(), "prior": self.prior.to_json()}


@dataclass(frozen=True)
class Jsam(Section):
    """Whose privacy is bought, how much of it, for what money (`bonafed.mechanisms.jsam.training`)."""

    prior: Prior = key(_prior)  # of a client's cost per unit of epsilon
    clip: float = key(checks.positive)  # largest norm of one record's gradient
    noise_scale: float | None = key(checks.positive, None)  # Q: how much noise harms; contains (2/M)^2; or
    smoothness: float | None = key(checks.positive, None)  # L of the loss, of which Q is made with the rest
    eta: float | None = key(checks.positive, None)  # weight of the training loss against money; or
    budget: float | None = key(checks.positive, None)  # money at most for these costs; or
    expected_budget: float | None = key(checks.positive, None)  # money on average over the prior
    delta: float = key(checks.positive, 1e-5)
    clients_per_round: int = key(checks.whole, 10)  # drawn with replacement
    scheme: str = key(lambda name, v: checks.literal(name, v, JsamScheme), "jsam")
    members: int | None = key(checks.whole, None)  # M of "cheapest" and "largest losses"
    max_epsilon: float | tuple[float, ...] | None = key(
        _cap, None
    )  # bought from a client, at most; or a list
    cost_seed: int = key(checks.seed, 0)  # the costs are drawn from the prior
    noise: str = key(noise_source, "secret")  # or "reproducible": the seed takes it off again
    clear_losses: bool = key(flag, False)  # of "largest losses": told to the server without noise
    coins: str = key(_coins, "seed")  # who is drawn when comes from run.seed; or "verifiable"

    def _agree(self) -> None:
        if (self.scheme == LARGEST_LOSSES) != self.clear_losses:
            raise InvalidValue("clear_losses", *_about_losses(self.scheme, self.clear_losses))
        if self.noise_scale is None and self.smoothness is None:
            raise InvalidValue("noise_scale", "must be given, or smoothness", "nothing")
        if self.noise_scale is not None and self.smoothness is not None:
            raise InvalidValue("smoothness", "must not be given with noise_scale", self.smoothness)
        if isinstance(self.max_epsilon, tuple) and self.scheme == "cheapest":
            rule = "must be one for all clients with cheapest"
            raise InvalidValue("max_epsilon", rule, list(self.max_epsilon))
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
        caps = list(self.max_epsilon) if isinstance(self.max_epsilon, tuple) else self.max_epsilon
        return {**super().table(), "prior": self.prior.to_json(), "max_epsilon": caps}


def _about_losses(scheme: str, accepted: bool) -> tuple[str, str]:
    """Rule and value where a scheme and what was accepted do not go together."""
    if accepted:
        return f"must not be true unless scheme is {LARGEST_LOSSES}", f'true with "{scheme}"'
    rule = (
        f"must be true for {LARGEST_LOSSES}: every client tells its loss in clear, and no epsilon covers it"
    )
    return rule, "false"


@dataclass(frozen=True)
class Config:
    """A run of federated averaging; made by `read` or `from_tables`, or directly."""

    SECTIONS: ClassVar[Mapping[str, type[Section]]] = {
        "data": Data,
        "partition": Partition,
        "model": Model,
        "training": Training,
        "privacy": Privacy,
        "contract": Contract,
        "jsam": Jsam,
        "run": EngineRun,
    }
    OPTIONAL: ClassVar[Sequence[str]] = ("privacy", "contract", "jsam", "run")

    data: Data
    partition: Partition
    model: Model
    training: Training
    privacy: Privacy | None = None
    contract: Contract | None = None
    jsam: Jsam | None = None
    run: EngineRun = field(default_factory=EngineRun)

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
    def rounds(self) -> int:
        """How many."""
        return self.training.rounds

    @property
    def scheme(self) -> str | None:
        """What was agreed with the clients, in a word; None without a contract."""
        paying = self.contract or self.jsam
        return None if paying is None else paying.scheme

    @property
    def clip(self) -> float | None:
        """Largest norm of one record's gradient; None: the run is not private."""
        private = self.privacy or self.jsam
        return None if private is None else private.clip

    @property
    def noise(self) -> NoiseSource | None:
        """Where the noise comes from; None: the run is not private."""
        private = self.privacy or self.jsam
        return None if private is None else cast(NoiseSource, private.noise)

    @property
    def delta(self) -> float | None:
        """Of the clients' privacy; None: the run is not private."""
        private = self.privacy or self.jsam
        return None if private is None else private.delta

    @property
    def batches(self) -> Batches:
        """How the records of a step are chosen."""
        return "passes" if self.privacy is None else cast(Batches, self.privacy.batches)

    @property
    def adjacency(self) -> Adjacency | None:
        """What the clients' privacy is for; None: the run is not private."""
        if self.privacy is not None:
            return cast(Adjacency, self.privacy.adjacency)
        return None if self.jsam is None else REPLACE


AnyConfig = Config | FaithfulConfig | RewardsConfig
# the table that makes a file another kind of run
_KINDS: Mapping[str, type[AnyConfig]] = {"faithful": FaithfulConfig, "rewards": RewardsConfig}
# data may move: what they are is told by their digest (`bonafed.runs.versions.require_same_data`)
_HARMLESS = ("run.folder", "run.cores", "run.checkpoint_every", "data.folder")


def read(path: Path, changes: Sequence[str] = ()) -> AnyConfig:
    """The config of a file, with changes `section.key=value`."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UnreadableFile(path, f"not TOML: {error}") from error
    for change in changes:
        tables = toml.override(tables, change)
    return from_tables(tables)


def from_tables(tables: Mapping[str, Any]) -> AnyConfig:
    """The config of plain data."""
    if not isinstance(tables, Mapping):
        raise InvalidValue("config", "must be tables by name, such as {'data': {...}}", repr(tables)[:60])
    kind = next((_KINDS[name] for name in tables if name in _KINDS), Config)
    for name, value in tables.items():
        if name not in kind.SECTIONS:
            raise _not_here(kind, name, value)
        if not isinstance(value, Mapping):
            raise InvalidValue(name, f"must be a section [{name}]", repr(value))
    given: dict[str, Any] = {}
    for name, section in kind.SECTIONS.items():
        if name in tables or name not in kind.OPTIONAL:
            given[name] = _section(section, name, _with_defaults(name, tables))
    return kind(**given)


def _not_here(kind: type[AnyConfig], name: str, value: object) -> InvalidValue:
    """Why a table cannot be in the file of such a run."""
    elsewhere = {*Config.SECTIONS, *(section for such in _KINDS.values() for section in such.SECTIONS)}
    for other, such in _KINDS.items():
        if such is kind and name in elsewhere:
            return InvalidValue(name, f"must not be given with {other}", f"a section [{name}]")
    return unknown("", name, value, [*kind.SECTIONS, *(_KINDS if kind is Config else ())])


def _with_defaults(name: str, tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table; under jsam a client that is drawn takes one step unless told otherwise."""
    table: Mapping[str, Any] = tables.get(name, {})
    if name == "training" and "jsam" in tables and not {"epochs", "steps"} & set(table):
        return {**table, "steps": 1}
    return table


def _section(kind: type[S], name: str, table: Mapping[str, Any]) -> S:
    values = dict(table)
    if kind is Partition:  # keys of its own, and those of the kind
        options = {key: values.pop(key) for key in table if key not in ("kind", "clients")}
        values["options"] = options
    if kind in (Contract, Jsam) and "prior" in values:
        values["prior"] = _read_prior(name, values["prior"])
    known = {item.name: item for item in fields(kind)}
    for entry, value in values.items():
        if entry not in known:
            raise unknown(f"{name}.", entry, value, list(known))
    for entry, item in known.items():
        if entry not in values and item.default is MISSING and item.default_factory is MISSING:
            raise InvalidValue(f"{name}.{entry}", "must be given", "nothing")
    with named(name):
        return kind(**values)


def _read_prior(section: str, value: object) -> object:
    try:
        if isinstance(value, Mapping):
            return prior_from_json(dict(value))
        return parse_prior(value) if isinstance(value, str) else value
    except InvalidValue as error:
        raise InvalidValue(f"{section}.prior: {error.name}", error.rule, error.value) from error


def to_tables(config: AnyConfig) -> toml.Tables:
    """Plain data from which `from_tables` makes the same config."""
    sections = {name: getattr(config, name) for name in config.SECTIONS}
    return {name: section.table() for name, section in sections.items() if section is not None}


def to_toml(config: AnyConfig) -> str:
    """The whole config, defaults written out, as the text of a file."""
    return toml.dumps(to_tables(config))


def differences(one: AnyConfig, other: AnyConfig) -> list[tuple[str, Any, Any]]:
    """Dotted keys in which two configs differ, with both values; not those that change no result.

    Where the files of the data are is none of them either, nor is what the user's own file is called:
    whether the data are the same is for their digest to tell.
    """
    found = []
    a, b = to_tables(one), to_tables(other)
    for section in dict.fromkeys([*one.SECTIONS, *other.SECTIONS]):
        first, second = a.get(section, {}), b.get(section, {})
        for entry in dict.fromkeys([*first, *second]):
            dotted, value, then = f"{section}.{entry}", first.get(entry), second.get(entry)
            if value != then and not _is_harmless(dotted, value, then):
                found.append((dotted, value, then))
    return found


def _is_harmless(dotted: str, value: object, then: object) -> bool:
    """Whether such a change changes no result, given that the data are the same."""
    moved = dotted == "data.name" and all(is_own_file(str(name)) for name in (value, then))
    return moved or dotted in _HARMLESS
