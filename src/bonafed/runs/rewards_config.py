"""What a run of model rewards was asked to do.

[data]       name, folder; the test samples are split into validation and test
[partition]  kind, clients, and the options of that kind
[model]      name
[training]   rounds, batch_size, epochs or steps, learning_rate, learning_rate_decay, optimizer, ...
[rewards]    measure, sharing, recovery, ceiling, reference, own, presence, baselines, agents, ...
[run]        seed, folder, checkpoint_every, evaluate_every, cores
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.cheats import parse_cheat
from bonafed.mechanisms.rewards.rates import Reference
from bonafed.mechanisms.rewards.server import Own
from bonafed.runs.sections import (
    Data,
    EngineRun,
    Model,
    Partition,
    Section,
    Training,
    deviations,
    key,
    texts,
)

MeasureName = Literal[
    "standalone", "data size", "participation", "cosine", "leave one out", "shapley"
]  # how contributions are found
Baseline = Literal["fedavg-ft", "lg-fedavg", "cgsv", "rank"]
_BASELINES: tuple[Baseline, ...] = ("fedavg-ft", "lg-fedavg", "cgsv", "rank")


def _agents(name: str, value: object) -> tuple[str, ...]:
    return deviations(name, value, parse_cheat, "3 free-ride")


def _baselines(name: str, value: object) -> tuple[str, ...]:
    wanted = _BASELINES if value == "all" else texts(name, value, '["fedavg-ft", "rank"], or "all"')
    for item in wanted:
        checks.literal(name, item, Baseline)
    return tuple(dict.fromkeys(wanted))


def _unit(name: str, value: object) -> float:
    return checks.between(name, value, 0.0, 1.0)


def _open_unit(name: str, value: object) -> float:
    share = checks.number(name, value)
    if not 0 < share < 1:
        raise InvalidValue(name, "must be between 0 and 1, ends excluded", share)
    return share


def _pairs(name: str, value: Any) -> int:
    """An even number: orders are drawn in pairs, and their spread needs two."""
    count = checks.whole(name, value, at_least=4)
    if count % 2:
        raise InvalidValue(name, "must be even", count)
    return count


@dataclass(frozen=True)
class Rewards(Section):
    """Who is given how good a model (`bonafed.mechanisms.rewards`)."""

    measure: str = key(lambda name, v: checks.literal(name, v, MeasureName), "standalone")
    sharing: float = key(_unit, 0.5)  # kappa: 0 rewards in proportion, 1 gives everybody everything
    recovery: float = key(_unit, 0.01)  # q: probability of being handed the reference model, per round
    ceiling: float | None = key(checks.positive, None)  # contribution that earns all; None: the largest
    reference: str = key(lambda name, v: checks.literal(name, v, Reference), "max")  # or "median"
    own: str = key(lambda name, v: checks.literal(name, v, Own), "paper")  # or "unbiased"
    presence: float = key(lambda name, v: _unit(name, checks.positive(name, v)), 1.0)
    # rates at which clients take part rise evenly from `presence` to 1; 0.5 in the paper's 6.3
    baselines: Sequence[str] = field(default=(), metadata={"check": _baselines})
    agents: Sequence[str] = field(default=(), metadata={"check": _agents})  # who cheats: "3 free-ride"
    validation: float = key(_open_unit, 0.2)  # share of the test samples that measures may look at
    shapley_orders: int = key(_pairs, 20)  # drawn for "shapley", with more than ten clients

    def table(self) -> dict[str, Any]:
        return {**super().table(), "baselines": list(self.baselines), "agents": list(self.agents)}


@dataclass(frozen=True)
class RewardsRun(EngineRun):
    """A round leaves one model per client: checkpoints and evaluations are farther apart."""

    checkpoint_every: int = key(checks.whole, 5)  # rounds
    evaluate_every: int = key(checks.whole, 10)  # rounds


@dataclass(frozen=True)
class RewardsConfig:
    """A run of model rewards; made by `config.read` or `config.from_tables`, or directly."""

    SECTIONS: ClassVar[Mapping[str, type[Section]]] = {
        "data": Data,
        "partition": Partition,
        "model": Model,
        "training": Training,
        "rewards": Rewards,
        "run": RewardsRun,
    }
    OPTIONAL: ClassVar[Sequence[str]] = ("run",)

    data: Data
    partition: Partition
    model: Model
    training: Training
    rewards: Rewards
    run: RewardsRun = field(default_factory=RewardsRun)

    def __post_init__(self) -> None:
        given = self.training
        for name, default, instead in (
            ("participation", 1.0, "rewards.presence says who is there"),
            ("on_bad_update", "raise", "an update that is not finite stops the run"),
        ):
            if getattr(given, name) != default:
                value = repr(getattr(given, name))
                raise InvalidValue(f"training.{name}", f"must not be given with rewards: {instead}", value)
        if isinstance(given.learning_rate, str):
            rule = "must be a number with rewards"
            raise InvalidValue("training.learning_rate", rule, repr(given.learning_rate))
        if given.weight_decay is None:
            object.__setattr__(self, "training", replace(given, weight_decay=0.0))

    @property
    def methods(self) -> tuple[str, ...]:
        """What is trained, one after the other; "honest" is the same federation without the cheats."""
        honest = ("honest",) if self.rewards.agents else ()
        return ("standalone", "rewards", *honest, *self.rewards.baselines)

    @property
    def rounds(self) -> int:
        """Of all methods together."""
        return self.training.rounds * len(self.methods)

    @property
    def scheme(self) -> str:
        """In one word, for lists of runs."""
        return "model rewards"
