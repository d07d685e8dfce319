"""The tables of a config that are about learning: data, partition, model, training, privacy, run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bonafed import checks
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.data.partition import options_of
from bonafed.learning.data.real_federations import choices as natural_choices
from bonafed.learning.data.scaling import Standardise, standardise_rule
from bonafed.learning.privacy import ADD_OR_REMOVE, REPLACE, Batches, Calibration, delta_rule
from bonafed.learning.server import HALF, Aggregation, Server, ServerOptimizer
from bonafed.learning.work import Augmentation, LocalTraining, Optimizer, local_steps
from bonafed.sections import Section, key, named, natural, one_of, text, unknown, word

PROPOSITION_1 = "proposition-1"  # the learning rates that follow the convergence theorem
PROPOSITION_1_PRINTED = "proposition-1-printed"  # those its paper prints (erratum S-E11)
BY_THEOREM = (PROPOSITION_1, PROPOSITION_1_PRINTED)
NoiseSource = Literal["secret", "reproducible"]
NoiseAt = Literal["client", "sum"]  # who adds noise: every client to its gradients, or all once to a sum
BadUpdatePolicy = Literal["raise", "skip"]
REPRODUCIBLE = (
    "the noise is reproducible: whoever knows the seed, which is in this folder, can remove it, so that "
    "the epsilon is a figure for studies and protects nobody"
)
NOISE_AT = (
    'Each client adds noise to its gradients, which protects also against the server; or "sum": noise is '
    "added once to the sum, far less of it, which protects against whoever sees models, not against a "
    "server that sees single updates."
)
DELTA = "Of differential privacy: below 1/n of n records, at best below 1/(10 n)."
# of [training], where it leaves them open and nothing is hidden in noise
_LEARNING_RATE = 0.1
_BATCH_SIZE = 32
_IN_NOISE = "in a private run as its noise has it, if left out"
_MOMENTUM = 0.9  # the default; written into the config of every run, whatever its optimizer


def _classes(name: str, value: object) -> int | tuple[str, ...]:
    """How many classes there are, or what they are called."""
    if not isinstance(value, list | tuple):
        return checks.whole(name, value)
    if not value:
        raise InvalidValue(name, "must name a class", "an empty list")
    return checks.names(name, value, one=name)


@dataclass(frozen=True)
class Data(Section):
    """The table [data]: which data set, and what is read of it."""

    name: str = key(
        word, help="A data set that bonafed knows, or your own .npz or .csv file.", example='"digits"'
    )
    folder: str = key(text, "", help="Folder of the files; if empty, $BONAFED_DATA or the cache.")
    classes: int | tuple[str, ...] | None = key(
        _classes, None, help="One more than the largest label, or the names of the classes in their order."
    )
    standardise: Standardise | None = key(
        standardise_rule, None, help='Features by stated or public constants, or "per client".'
    )
    clients: str | None = key(
        word, None, help="Of ist: hospitals or countries; of schools: schools, authorities."
    )
    patients: str | None = key(word, None, help="Of heart: those with complete records, or all.")
    study: str | None = key(word, None, help="Of schools: mathachieve or chem97.")
    minimum_rows: int | None = key(
        checks.whole, None, help="Of heart, ist, schools: the records that a client must have, 1."
    )

    def _agree(self) -> None:
        for name, value in natural_choices.chosen(self.name, self.choices).items():
            object.__setattr__(self, name, value)

    @property
    def choices(self) -> dict[str, object]:
        """What is stated of a data set with real clients."""
        given = {name: getattr(self, name) for name in natural_choices.KEYS}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Partition(Section):
    """Who holds which samples."""

    kind: str = key(word, "iid", help="How samples are dealt out to clients.")
    clients: int | None = key(checks.whole, None, help="How many; for natural, one per owner if left out.")
    options: Mapping[str, Any] = field(
        default_factory=dict, metadata={"check": lambda _, value: value, "help": "Options of the kind."}
    )

    def _agree(self) -> Iterator[InvalidValue]:
        options = {name: required for name, required in _options_of(self.kind).items() if name != "groups"}
        for name, value in self.options.items():
            if name not in options:
                yield unknown("", name, value, ["kind", "clients", *options])
        for name, required in options.items():
            if required and name not in self.options:
                yield MissingValue(name, f"is required for {self.kind}, such as {name} = {_EXAMPLES[name]}")
        if self.clients is None and self.kind != "natural":
            yield MissingValue("clients", "is required, such as clients = 10")

    def table(self) -> dict[str, Any]:
        return {"kind": self.kind, "clients": self.clients, **self.options}

    @classmethod
    def reading(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        """Its own keys, and those of the kind."""
        own = {name: value for name, value in table.items() if name in ("kind", "clients")}
        return {**own, "options": {name: value for name, value in table.items() if name not in own}}


# of the options that a kind of partition cannot do without, as they stand in a file
_EXAMPLES = {"beta": "0.5", "k": "2", "sigma": "0.1", "s": "10", "delta": "0.5"}


def _options_of(kind: str) -> dict[str, bool]:
    try:
        return options_of(kind)
    except InvalidValue as error:
        raise error.renamed("kind") from error


@dataclass(frozen=True)
class Model(Section):
    """The table [model]: which model is trained."""

    name: str = key(word, help="A model that bonafed knows.", example='"softmax"')


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


def _share_kept(name: str, value: object) -> float:
    return checks.between(name, value, 0.0, 1.0)


def _below_one(name: str, value: object) -> float:
    share = checks.non_negative(name, value)
    if share >= 1:
        raise InvalidValue(name, "must be below 1", share)
    return share


# by optimizer of the server: the keys that it knows, and their defaults; None: must be given
_OF_SERVER: Mapping[str, Mapping[str, float | None]] = {
    "sgd": {"server_learning_rate": 1.0},
    "momentum": {"server_learning_rate": 1.0, "server_momentum": 0.9},
    "adam": {
        "server_learning_rate": None, "server_momentum": 0.9, "server_beta_2": 0.99, "server_tau": 1e-3,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Training(Section):
    """What happens in a round, and how often."""

    rounds: int = key(checks.whole, help="Number of rounds.", example="50")
    learning_rate: float | str | None = key(
        _rate, None, help=f'In the first round, or "{PROPOSITION_1}"; 0.1, {_IN_NOISE}.'
    )
    batch_size: int | None = key(checks.whole, None, help=f"Records per step; 32, {_IN_NOISE}.")
    epochs: int | None = key(checks.whole, None, help=f"Local passes per round; 1, {_IN_NOISE}.")
    steps: int | None = key(checks.whole, None, help="Local steps per round, instead of epochs.")
    learning_rate_decay: float = key(_decay, 1.0, help="Factor from round to round.")
    smoothness: float | None = key(checks.positive, None, help="L, for proposition-1.")
    strong_convexity: float | None = key(checks.positive, None, help="mu, for proposition-1.")
    optimizer: str = key(one_of(Optimizer), "sgd", help="sgd, momentum or adam, made anew each round.")
    momentum: float = key(checks.non_negative, _MOMENTUM, help="For the optimizer of that name.")
    weight_decay: float | None = key(checks.non_negative, None, help="Default 0; mu for proposition-1.")
    augmentation: str = key(
        one_of(Augmentation), "none", help='Of images while training; or "crop-and-flip".'
    )
    participation: float = key(_share, 1.0, help="Share of clients per round if nobody is paid.")
    on_bad_update: str = key(
        one_of(BadUpdatePolicy),
        "raise",
        help='If an answer is unusable; or "skip": go on without it. Who gives none at all is skipped.',
    )
    aggregation: str | None = key(
        one_of(Aggregation),
        None,
        help='"plain", or "memory": what clients sent last stands in for them while they are not in.',
    )
    memory_weight: float | None = key(_share_kept, None, help="For memory: how much it counts; 0.5.")
    server_optimizer: str = key(
        one_of(ServerOptimizer), "sgd", help="sgd, momentum or adam, kept from round to round."
    )
    server_learning_rate: float | None = key(
        checks.positive, None, help="Factor of the server's step; 1, to be given for adam."
    )
    server_momentum: float | None = key(_below_one, None, help="For momentum and adam; 0.9.")
    server_beta_2: float | None = key(_below_one, None, help="For adam; 0.99.")
    server_tau: float | None = key(checks.positive, None, help="For adam, added to the root; 0.001.")

    @property
    def steps_left_open(self) -> bool:
        """Whether neither steps nor passes are stated."""
        return self.epochs is None and self.steps is None

    @property
    def batch(self) -> int:
        """Records per step, where that is settled."""
        assert self.batch_size is not None  # `Config.local`: stated, or chosen for it
        return self.batch_size

    def without_noise(self) -> Training:
        """The same with what is left open as in a run that hides nothing in noise."""
        return replace(
            self,
            learning_rate=_LEARNING_RATE if self.learning_rate is None else self.learning_rate,
            batch_size=self.batch_size or _BATCH_SIZE,
            epochs=1 if self.steps_left_open else self.epochs,
        )

    def local_steps(self, size: int) -> int:
        """Local steps per round of a client with `size` samples."""
        return local_steps(size, self.batch, self.epochs, self.steps)

    def _agree(self) -> Iterator[InvalidValue]:
        if self.epochs is not None and self.steps is not None:
            yield InvalidValue("steps", "must not be given with epochs", self.steps)
        if self.learning_rate is None and (self.optimizer, self.server_optimizer) != ("sgd", "sgd"):
            rule = "is required unless optimizer and server_optimizer are sgd, such as learning_rate = 0.01"
            yield MissingValue("learning_rate", rule)
        if self.optimizer != "momentum" and self.momentum != _MOMENTUM:
            rule = f'must not be given unless optimizer is "momentum" (it is "{self.optimizer}")'
            yield InvalidValue("momentum", rule, self.momentum)
        yield from self._agree_on_server()
        if self.learning_rate in BY_THEOREM:
            if self.learning_rate_decay != 1:
                rule = f"must be 1 with {self.learning_rate}, which decays by itself"
                yield InvalidValue("learning_rate_decay", rule, self.learning_rate_decay)
            return
        for name in ("smoothness", "strong_convexity"):
            if getattr(self, name) is not None:
                rule = f'must not be given unless learning_rate is "{PROPOSITION_1}"'
                yield InvalidValue(name, rule, getattr(self, name))

    def _agree_on_server(self) -> Iterator[InvalidValue]:
        """The keys of the server's step, with defaults where they mean something, refused where not."""
        if self.aggregation == "memory":
            if self.memory_weight is None:
                object.__setattr__(self, "memory_weight", HALF)
        elif self.memory_weight is not None and self.aggregation == "plain":
            rule = 'must not be given unless aggregation is "memory" (it is "plain")'
            yield InvalidValue("memory_weight", rule, self.memory_weight)
        way = self.server_optimizer
        known = _OF_SERVER[way]
        for name in _OF_SERVER["adam"]:
            value = getattr(self, name)
            if value is not None and name not in known:
                others = " or ".join(f'"{other}"' for other, keys in _OF_SERVER.items() if name in keys)
                rule = f'must not be given unless server_optimizer is {others} (it is "{way}")'
                yield InvalidValue(name, rule, value)
            if value is None and name in known:
                if known[name] is None:
                    rule = f'is required for server_optimizer = "{way}", such as {name} = 0.01'
                    yield MissingValue(name, rule)
                object.__setattr__(self, name, known[name])
        if self.learning_rate in BY_THEOREM:
            rule = f"with {self.learning_rate}, whose theorem adds up the changes as they are"
            if self.server_optimizer != "sgd":
                yield InvalidValue("server_optimizer", f"must be sgd {rule}", repr(self.server_optimizer))
            if self.server_learning_rate != 1:
                yield InvalidValue("server_learning_rate", f"must be 1 {rule}", self.server_learning_rate)

    @property
    def server(self) -> Server:
        """What the server does with updates."""
        given = {
            "memory_weight": self.memory_weight,
            "learning_rate": self.server_learning_rate,
            "momentum": self.server_momentum,
            "beta_2": self.server_beta_2,
            "tau": self.server_tau,
        }
        return Server(
            aggregation=self.aggregation or "plain",  # type: ignore[arg-type]  # checked to be one of them
            optimizer=self.server_optimizer,  # type: ignore[arg-type]
            **{name: value for name, value in given.items() if value is not None},
        )

    def local_training(
        self,
        learning_rate: float,
        clip: float | None = None,
        clip_key: str = "privacy.clip",
        batches: Batches = "passes",
    ) -> LocalTraining:
        """What clients do in a round; `clip_key` is the key of the config that the clip comes from."""
        with named("training", clip=clip_key):
            return LocalTraining(
                batch_size=self.batch,
                learning_rate=learning_rate,
                epochs=self.epochs,
                steps=self.steps,
                optimizer=self.optimizer,  # type: ignore[arg-type]  # checked to be one of them
                momentum=self.momentum,
                weight_decay=self.weight_decay or 0.0,
                clip=clip,
                batches=batches,
                augmentation=self.augmentation,  # type: ignore[arg-type]  # likewise
            )


@dataclass(frozen=True)
class Privacy(Section):
    """The promise to each record of every client: (epsilon, delta) over the whole run (theory P)."""

    clip: float = key(checks.positive, help="Largest norm of one record's gradient.", example="1.0")
    epsilon: float = key(
        checks.positive, help="Largest privacy loss of a record over the whole run.", example="4.0"
    )
    delta: float = key(delta_rule, help=DELTA, example="1e-5")
    batches: str = key(one_of(Batches), "passes", help='Or "poisson": drawn by secret coins.')
    adjacency: str = key(text, "", help="What the promise refers to; follows from the batches.")
    calibration: str = key(one_of(Calibration), "exact", help='Of the noise; or "zcdp", "printed".')
    noise: str = key(one_of(NoiseSource), "secret", help='Or "reproducible": the seed can remove it.')
    noise_at: str = key(one_of(NoiseAt), "client", help=NOISE_AT)

    def _agree(self) -> Iterator[InvalidValue]:
        if self.noise_at == "sum" and self.batches != "passes":
            rule = 'must be "passes" with noise_at = "sum", whose account is for replacing a record'
            yield InvalidValue("batches", rule, repr(self.batches))
        right = ADD_OR_REMOVE if self.batches == "poisson" else REPLACE
        if self.adjacency not in ("", right):
            rule = f'must be "{right}" with batches = "{self.batches}", whose promise it is'
            yield InvalidValue("adjacency", rule, repr(self.adjacency))
        object.__setattr__(self, "adjacency", right)
        if self.batches == "poisson" and self.calibration != "exact":
            rule = 'must be "exact" with batches = "poisson": the others do not account for sampled batches'
            yield InvalidValue("calibration", rule, repr(self.calibration))


@dataclass(frozen=True)
class Run(Section):
    """Seed, folder, cores, and how often something is written."""

    seed: int = key(checks.seed, 0, help="Of all randomness except costs and secret noise.")
    folder: str = key(text, "", help="Folder of the run; if empty, runs/<name of the config file>.")
    checkpoint_every: int = key(checks.whole, 1, help="Rounds between checkpoints.")
    evaluate_every: int = key(checks.whole, 1, help="Rounds between evaluations.")
    cores: int = key(natural, 0, help="Cores to train on; 0: all. Changes time and memory, not the result.")

    @property
    def cores_here(self) -> int:
        """The number of cores; for all, as many as this machine gives the process."""
        if self.cores:
            return self.cores
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
