"""What a run of faithful learning was asked to do.

[data]       name, folder, classes
[partition]  kind, clients, and the options of that kind
[model]      name: "softmax" is strongly convex (ridge regression for real targets), others are not
[faithful]   regulariser, training_steps, payment_steps, epsilon, rule, variant, payments, clusters, ...
[privacy]    optional: epsilon, delta, clip, calibration, loss_bound, split, noise
[run]        seed, folder, checkpoint_every, evaluate_every
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, cast

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.mechanisms.faithful.agents import agent_kind
from bonafed.mechanisms.faithful.private import PAPER_STEPS, PrivateCalibration
from bonafed.mechanisms.faithful.protocol import BadReportPolicy, PaymentRule, ProtocolVariant
from bonafed.mechanisms.faithful.reports import ReportCheck
from bonafed.runs.sections import (
    Check,
    Data,
    Model,
    NoiseSource,
    Partition,
    Run,
    Section,
    deviations,
    key,
    natural,
    noise_source,
)

PaymentMethod = Literal["gradients", "newton", "exact"]
WeightRule = Literal["equal", "samples"]


_OF_REPORTS = (
    ("rule", "trapezoid"),
    ("variant", "corrected"),
    ("agents", ()),
    ("check_reports", "gradients"),
)  # what has a meaning only where payments are made of reports, and its default


def _one_of(options: object) -> Check:
    return lambda name, value: checks.literal(name, value, options)


def _agents(name: str, value: object) -> tuple[str, ...]:
    return deviations(name, value, agent_kind, "3 amplify 5")


@dataclass(frozen=True)
class Faithful(Section):
    """How the shared model is trained and what is owed for it (`bonafed.mechanisms.faithful`)."""

    regulariser: float = key(checks.positive)  # mu: adds mu/2 |w|^2 to every agent's loss
    training_steps: int | None = key(checks.whole, None)  # T_1; 1500, of a private run as planned
    payment_steps: int | None = key(natural, None)  # T_2, at least; 20, of a private run as planned
    epsilon: float = key(checks.positive, 1e-3)  # certified error of a payment, in units of loss
    step_share: float = key(lambda name, v: checks.between(name, checks.positive(name, v), 0, 1), 1.0)
    rule: str = key(_one_of(PaymentRule), "trapezoid")  # or "left"
    variant: str = key(_one_of(ProtocolVariant), "corrected")  # or "printed": the paper's steps and stop
    payments: str = key(_one_of(PaymentMethod), "gradients")  # "newton": two steps; "exact"
    clusters: int | None = key(lambda name, v: checks.whole(name, v, 2), None)  # None: one per agent, safe
    weights: str = key(_one_of(WeightRule), "equal")  # p_k = 1/K, or by number of samples
    on_bad_report: str = key(_one_of(BadReportPolicy), "raise")  # or "leave out"
    check_reports: str = key(_one_of(ReportCheck), "gradients")  # or "numbers": believe what is finite
    learning_rate: float | None = key(checks.positive, None)  # only for models that are not convex
    agents: Sequence[str] = field(default=(), metadata={"check": _agents})  # those who cheat: "3 amplify 5"

    def _agree(self) -> None:
        if self.payments != "gradients":
            for name, default in _OF_REPORTS:
                if getattr(self, name) != default:
                    rule = f'must not be given with payments = "{self.payments}", which asks for no reports'
                    raise InvalidValue(name, rule, repr(getattr(self, name)))
        if self.clusters is not None:
            for name, default in (("payments", "gradients"), *_OF_REPORTS):
                if getattr(self, name) != default:
                    raise InvalidValue(name, "must not be given with clusters", repr(getattr(self, name)))

    def table(self) -> dict[str, object]:
        return {**super().table(), "agents": list(self.agents)}


@dataclass(frozen=True)
class FaithfulPrivacy(Section):
    """The promise to every sample: (epsilon, delta) over training and payments, for replacing it."""

    epsilon: float = key(checks.positive)  # the paper's alpha
    delta: float = key(checks.positive)  # beta
    clip: float = key(checks.positive, math.sqrt(2.0))  # clips nothing if features have norm 1 at most
    calibration: str = key(_one_of(PrivateCalibration), "exact")  # "zcdp", "printed"
    # B: largest change of one sample's loss that counts; where one counts less, the truth may not be best
    loss_bound: float | None = key(checks.positive, None)
    # of the privacy loss, for gradients; as planned if not given
    split: float | None = key(lambda name, v: checks.between(name, v, 1e-6, 1 - 1e-6), None)
    noise: str = key(noise_source, "secret")  # or "reproducible": the seed takes it off again


@dataclass(frozen=True)
class FaithfulRun(Run):
    """A step is short: checkpoints and evaluations are farther apart."""

    checkpoint_every: int = key(checks.whole, 100)  # training steps
    evaluate_every: int = key(checks.whole, 50)  # training steps


@dataclass(frozen=True)
class FaithfulConfig:
    """A run of faithful learning; made by `config.read` or `config.from_tables`, or directly."""

    SECTIONS: ClassVar[Mapping[str, type[Section]]] = {
        "data": Data,
        "partition": Partition,
        "model": Model,
        "faithful": Faithful,
        "privacy": FaithfulPrivacy,
        "run": FaithfulRun,
    }
    OPTIONAL: ClassVar[Sequence[str]] = ("privacy", "run")

    data: Data
    partition: Partition
    model: Model
    faithful: Faithful
    privacy: FaithfulPrivacy | None = None
    run: FaithfulRun = field(default_factory=FaithfulRun)

    @property
    def noise(self) -> NoiseSource | None:
        """Where the noise comes from; None: the run is not private."""
        return None if self.privacy is None else cast(NoiseSource, self.privacy.noise)

    @property
    def begins_anew(self) -> bool:
        """When resumed: cheats have a memory and noise comes from one stream, which no checkpoint keeps."""
        return bool(self.faithful.agents) or self.privacy is not None

    def __post_init__(self) -> None:
        if self.privacy is None:
            return
        if self.model.name != "softmax":
            raise InvalidValue("model.name", "must be softmax in a private run", repr(self.model.name))
        for name, default in (
            ("payments", "gradients"), ("rule", "trapezoid"), ("agents", ()), ("step_share", 1.0),
            ("on_bad_report", "raise"), ("check_reports", "gradients"),
        ):  # fmt: skip
            if getattr(self.faithful, name) != default:
                rule = "must not be given in a private run, whose payments are noisy loss differences"
                raise InvalidValue(f"faithful.{name}", rule, repr(self.faithful.table()[name]))
        if self.faithful.payment_steps == 0:
            raise InvalidValue("faithful.payment_steps", "must be at least 1 in a private run", 0)

    @property
    def rounds(self) -> int:
        """Training steps, T_1; of a private run those of its plan once it is prepared, else the paper's."""
        given = self.faithful.training_steps
        return given if given is not None else 1500 if self.privacy is None else PAPER_STEPS[0]

    @property
    def payment_steps(self) -> int:
        """T_2, likewise."""
        given = self.faithful.payment_steps
        return PAPER_STEPS[1] if given is None else given

    @property
    def scheme(self) -> str:
        """In one word, for lists of runs."""
        return "faithful" if self.privacy is None else "private faithful"
