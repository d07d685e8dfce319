"""The configuration of a run of model rewards: the table [rewards], and rules that span tables.

[data]       the test samples are split into validation and test
[training]   a number as learning_rate; rewards.presence says who takes part
[rewards]    measure, sharing, recovery, ceiling, reference, own, presence, baselines, agents, ...
[run]        checkpoints and evaluations are further apart: a round leaves one model per client
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from bonafed import checks
from bonafed.errors import InvalidValue, refuse
from bonafed.learning.sections import Run
from bonafed.mechanisms.protocol import Config
from bonafed.mechanisms.rewards.cheats import parse_cheat
from bonafed.mechanisms.rewards.server import Own, Reference
from bonafed.sections import Section, key, one_of, texts

MeasureName = Literal[
    "standalone",
    "validation",
    "data size",
    "participation",
    "presence",
    "cosine",
    "leave one out",
    "shapley",
    "completed shapley",
]  # how contributions are measured
Baseline = Literal["fedavg-ft", "lg-fedavg", "cgsv", "rank"]
BASELINES: tuple[Baseline, ...] = ("fedavg-ft", "lg-fedavg", "cgsv", "rank")
STANDALONE, REWARDS, HONEST = "standalone", "rewards", "honest"  # phases that are no baselines


def agents(name: str, value: object) -> tuple[str, ...]:
    """Who cheats, and how; nobody twice."""
    by_client: dict[int, str] = {}
    for item in texts(name, value, '["3 free-ride"]'):
        number = parse_cheat(name, item).number
        if number in by_client:
            raise InvalidValue(name, f"must name {number} once", f"{by_client[number]!r} and {item!r}")
        by_client[number] = item
    return tuple(by_client.values())


def _baselines(name: str, value: object) -> tuple[str, ...]:
    names = BASELINES if value == "all" else texts(name, value, '["fedavg-ft", "rank"], or "all"')
    for item in names:
        checks.literal(name, item, Baseline)
    return tuple(dict.fromkeys(names))


def unit(name: str, value: object) -> float:
    """Between 0 and 1."""
    return checks.between(name, value, 0.0, 1.0)


def _validation(name: str, value: object) -> float:
    """A share of the test samples, or a number of them."""
    count = checks.number(name, value)
    if count >= 1:
        return checks.whole(name, value)
    if count <= 0:
        raise InvalidValue(name, "must be between 0 and 1, ends excluded, or a number of samples", count)
    return count


def _presence(name: str, value: object) -> float:
    return unit(name, checks.positive(name, value))


def _pairs(name: str, value: Any) -> int:
    """An even number: orders are drawn in pairs, and their spread needs two."""
    count = checks.whole(name, value, at_least=4)
    if count % 2:
        raise InvalidValue(name, "must be even", count)
    return count


@dataclass(frozen=True)
class Rewards(Section):
    """How good a model each client is given (`bonafed.mechanisms.rewards`)."""

    measure: str = key(
        one_of(MeasureName),
        "standalone",
        help="How contributions are measured: " + ", ".join(get_args(MeasureName)) + ".",
    )
    sharing: float = key(unit, 0.5, help="kappa: 0 rewards in proportion, 1 gives everybody everything.")
    recovery: float = key(
        unit, 0.01, help="q: probability of being handed the reference model, per round and client."
    )
    ceiling: float | None = key(
        checks.positive, None, help="Contribution that earns everything; the largest if left out."
    )
    reference: str = key(one_of(Reference), "max", help='Reward rate of the reference model; or "median".')
    own: str = key(
        one_of(Own), "paper", help='Weight of the own update; "unbiased": as much as anybody else\'s.'
    )
    presence: float = key(
        _presence,
        1.0,
        help="Rates at which clients take part rise evenly from this to 1; the paper has 0.5.",
    )
    baselines: Sequence[str] = key(
        _baselines, (), help='Also trained: fedavg-ft, lg-fedavg, cgsv, rank; or "all".'
    )
    agents: Sequence[str] = key(
        agents, (), help='Who cheats: "3 free-ride", "3 noise SCALE", "3 amplify FACTOR", "3 copy CLIENT".'
    )
    validation: float = key(
        _validation, 0.2,
        help="Share of the test samples that measures may look at while training; 1 or more: their number, "
        "taken from the end.",
    )  # fmt: skip
    ranking: int | None = key(
        checks.whole, None, help="How many of these, the first ones, Rank looks at; all if left out."
    )
    fine_tuning: str = key(
        one_of(Literal["last", "first"]),
        "last",
        help='Learning rate of FedAvg\'s additional round: that of the last or the "first" round.',
    )
    shapley_orders: int = key(
        _pairs, 20, help="Orders drawn for Shapley values with more than ten clients."
    )

    @property
    def measured(self) -> bool:
        """Whether contributions follow from what is uploaded."""
        return self.measure in ("cosine", "leave one out", "shapley", "completed shapley")

    @property
    def phases(self) -> tuple[str, ...]:
        """What is trained, one after the other; "honest" is the same federation without the cheats."""
        return (STANDALONE, REWARDS, *((HONEST,) if self.agents else ()), *self.baselines)


@dataclass(frozen=True)
class RewardsRun(Run):
    """A round leaves one model per client, so checkpoints and evaluations are further apart."""

    checkpoint_every: int = key(checks.whole, 5, help="Rounds.")
    evaluate_every: int = key(checks.whole, 10, help="Rounds.")


def check(config: Config) -> Config:
    """Check the rules that span tables; the config with every value resolved."""
    training = config.local
    problems = []
    if training.participation != 1.0:
        rule = "must not be given with rewards: rewards.presence says who takes part"
        problems.append(InvalidValue("training.participation", rule, repr(training.participation)))
    if isinstance(training.learning_rate, str):
        rule = "must be a number with rewards"
        problems.append(InvalidValue("training.learning_rate", rule, repr(training.learning_rate)))
    refuse(problems)
    if training.weight_decay is None:
        return replace(config, training=replace(config.stated, weight_decay=0.0))
    return config


def rewards_of(config: Config) -> Rewards:
    """The table [rewards] of a config that has it."""
    if not isinstance(config.own, Rewards):
        raise InvalidValue("rewards", "must be a table of the config", config.own)
    return config.own
