"""The tables [faithful], [privacy] and [run] of a run, and the options of `bonafed audit faithful`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bonafed import checks
from bonafed.errors import InvalidValue, refuse
from bonafed.learning.privacy import delta_rule
from bonafed.learning.sections import DELTA, NOISE_AT, NoiseAt, NoiseSource, Run
from bonafed.mechanisms.deviations import deviations
from bonafed.mechanisms.faithful.adversaries.agents import agent_kind
from bonafed.mechanisms.faithful.private.noise import PrivateCalibration, PrivateVariant
from bonafed.mechanisms.faithful.protocol.payments import BadReportPolicy
from bonafed.mechanisms.faithful.protocol.reports import ReportCheck
from bonafed.mechanisms.faithful.protocol.stepwise import PaymentRule
from bonafed.mechanisms.faithful.protocol.variants import ProtocolVariant
from bonafed.mechanisms.protocol import Config
from bonafed.sections import Section, key, natural, one_of, word

NO_WORSE_UNPAID = "no worse than without paying"  # with the others' model for nothing
NAMES = ("efficiency", "faithfulness", NO_WORSE_UNPAID, "budget balance")  # of the four promises
PaymentMethod = Literal["gradients", "newton", "exact"]
WeightRule = Literal["equal", "samples"]
AuditVariant = Literal[
    "exchanges", "stepwise", "left", "printed", "fedavg", "clusters", "private", "private-printed",
]  # fmt: skip
PRIVATE_VARIANTS: Mapping[str, PrivateVariant] = {
    "private": "corrected",
    "private-printed": "printed",
}
_OF_REPORTS = (
    ("rule", "trapezoid"),
    ("agents", ()),
    ("check_reports", "gradients"),
)  # keys that apply only where payments come from reports, with their defaults


def _agents(name: str, value: object) -> tuple[str, ...]:
    return deviations(name, value, agent_kind, "3 amplify 5")


def _share(name: str, value: object) -> float:
    return checks.between(name, checks.positive(name, value), 0, 1)


def _two_or_more(name: str, value: object) -> int:
    return checks.whole(name, value, 2)


def _unit(name: str, value: object) -> float:
    return checks.between(name, checks.number(name, value), 0.0, 1.0)


def _part(name: str, value: object) -> float:
    return checks.between(name, value, 1e-6, 1 - 1e-6)


@dataclass(frozen=True)
class Faithful(Section):
    """How the shared model is trained and what is owed for it."""

    regulariser: float = key(
        checks.moderate, help="mu: adds mu/2 |w|^2 to every agent's loss.", example="0.01"
    )
    training_steps: int | None = key(
        checks.whole, None, help="T_1 of the stepwise variants (1500; in a private run, as planned)."
    )
    payment_steps: int | None = key(
        natural, None, help="T_2 of theirs, at least (20; in a private run, as planned)."
    )
    epsilon: float = key(checks.positive, 1e-3, help="Certified error of a payment, in units of loss.")
    step_share: float | None = key(
        _share, None, help="Of the stepwise variants: fraction of the largest safe payment step (1)."
    )
    rule: str | None = key(
        one_of(PaymentRule), None, help='Of theirs: how payments are integrated, "trapezoid" or "left".'
    )
    variant: str | None = key(
        one_of(ProtocolVariant),
        None,
        help='"exchanges", some twenty; "stepwise": plain steps, if the loss is not convex; "printed".',
    )
    payments: str = key(
        one_of(PaymentMethod), "gradients", help='Or "newton" or "exact", which need simulated clients.'
    )
    clusters: int | None = key(
        _two_or_more, None, help="Train fewer leave-one-out models; payments may sum to less than zero."
    )
    weights: str = key(one_of(WeightRule), "equal", help='Of the agents; or "samples": by sample count.')
    on_bad_report: str = key(
        one_of(BadReportPolicy),
        "raise",
        help='Or "leave out": go on without an agent that contradicts itself, or gives no answer.',
    )
    check_reports: str = key(
        one_of(ReportCheck), "gradients", help='Or "numbers": believe whatever is finite.'
    )
    learning_rate: float | None = key(
        checks.positive, None, help="Only for models whose loss is not convex."
    )
    agents: Sequence[str] = field(
        default=(),
        metadata={
            "check": _agents, "help": 'Simulated agents that cheat: "3 amplify 5".', "metavar": None,
            "flag": None,
        },
    )  # fmt: skip

    def _agree(self) -> Iterator[InvalidValue]:
        if self.payments != "gradients":
            for name, default in _OF_REPORTS:
                if getattr(self, name) not in (None, default):
                    rule = f'must not be given with payments = "{self.payments}", which asks for no reports'
                    yield InvalidValue(name, rule, repr(getattr(self, name)))
        if self.variant == "printed" and (self.payments != "gradients" or self.clusters is not None):
            other = "clusters" if self.clusters is not None else f'payments = "{self.payments}"'
            yield InvalidValue("variant", f"must not be given with {other}", repr(self.variant))
        if self.clusters is not None:
            for name, default in (("payments", "gradients"), *_OF_REPORTS):
                if getattr(self, name) not in (None, default):
                    yield InvalidValue(name, "must not be given with clusters", repr(getattr(self, name)))

    def table(self) -> dict[str, Any]:
        return {**super().table(), "agents": list(self.agents)}


@dataclass(frozen=True)
class FaithfulPrivacy(Section):
    """What every sample is promised: (epsilon, delta) over training and payments if it is replaced."""

    epsilon: float = key(
        checks.positive, help="Privacy loss allowed per record; the paper's alpha.", example="4.0"
    )
    delta: float = key(delta_rule, help=DELTA + " The paper's beta.", example="1e-5")
    clip: float = key(
        checks.positive,
        math.sqrt(2.0),
        help="Largest norm of a record's gradient; sqrt(2) clips nothing here.",
    )
    calibration: str = key(one_of(PrivateCalibration), "exact", help='Of the noise; "zcdp", "printed".')
    loss_bound: float | None = key(
        checks.positive, None, help="Largest change in a record's loss that counts; None: no limit."
    )
    split: float | None = key(
        _part, None, help="Share of the privacy loss spent on gradients; as planned if left out."
    )
    noise: str = key(
        one_of(NoiseSource), "secret", help='Or "reproducible": whoever has the seed can remove it.'
    )
    noise_at: str = key(one_of(NoiseAt), "sum", help=NOISE_AT)


@dataclass(frozen=True)
class FaithfulRun(Run):
    """Steps are short, so checkpoints and evaluations are further apart; not of exchanges."""

    checkpoint_every: int = key(checks.whole, 100, help="Exchanges (10) or training steps (100).")
    evaluate_every: int = key(checks.whole, 50, help="Exchanges (5) or training steps (50).")


@dataclass(frozen=True)
class FaithfulAuditOptions(Section):
    """Of `bonafed audit faithful`."""

    data: str = key(word, "digits", metavar="NAME", help="Data set, or an .npz or .csv file.")
    samples: int = key(_two_or_more, 1200, help="Training samples, drawn at random.")
    side: int = key(checks.whole, 4, metavar="S", help="Images are pooled to S x S pixels.")
    agents: int | None = key(
        _two_or_more, None, metavar="K", help="Agents (10, or the owners the data names)."
    )
    delta: float | None = key(
        _unit, None, help="How much their data differ: 0 not at all, 1 a label each (0.5)."
    )
    regulariser: float = key(
        checks.moderate, 0.003, metavar="MU", help="mu/2 |w|^2 is added to every loss."
    )
    agent: str | None = key(
        word, None, metavar="N", help="The agent that cheats, or all, one at a time (3)."
    )
    epsilon: float = key(
        checks.positive, 1e-3, help="Certified error of training and of payments, in units of loss."
    )
    variant: AuditVariant = key(
        one_of(AuditVariant),
        "exchanges",
        help="The mechanism to attack: exchanges (the default of training); stepwise (plain gradient "
        "steps); left (those, and payments by the left rule); printed (the paper's "
        "step and number of payment steps) and fedavg (no payments), which can be gamed; clusters (fewer "
        "leave-one-out models; the budget may not balance); private (with noise); or "
        "private-printed (payments measured from the shared model), which can be gamed.",
    )
    clusters: int | None = key(
        checks.whole, None, metavar="L", help="With --variant clusters: how many (half the agents)."
    )
    alpha: float | None = key(
        checks.positive, None, help="With a private variant: the epsilon promised to samples (10)."
    )
    beta: float | None = key(delta_rule, None, help="Likewise: the delta (1e-5).")
    trials: int | None = key(
        _two_or_more, None, help="Likewise: draws of the noise that gains are averaged over (16)."
    )
    noise_at: NoiseAt | None = key(
        one_of(NoiseAt), None, help='Likewise: noise once on a "sum" (the default), or at every "client".'
    )
    seed: int = key(checks.seed, 0, help="Of samples, owners, noise and clusters.")

    def _agree(self) -> None:
        if self.clusters is not None and self.variant != "clusters":
            raise InvalidValue("clusters", "must not be given without --variant clusters", self.clusters)
        for name in ("alpha", "beta", "trials", "noise_at"):
            value = getattr(self, name)
            if value is not None and self.variant not in PRIVATE_VARIANTS:
                rule = "must not be given without a private variant"
                raise InvalidValue(name, rule, repr(value) if isinstance(value, str) else f"{value:g}")


def by_exchanges(tables: Mapping[str, Any]) -> bool:
    """Whether a run of these tables is in few exchanges."""
    own, model = tables.get("faithful", {}), tables.get("model", {})
    convex = isinstance(model, Mapping) and model.get("name") == "softmax"
    chosen = isinstance(own, Mapping) and own.get("variant") in (None, "exchanges")
    return convex and chosen and "privacy" not in tables


def own_section(config: Config) -> Faithful:
    """[faithful] of a config that has it."""
    assert isinstance(config.own, Faithful)  # as the slice says
    return config.own


def check(config: Config) -> Config:
    """Check the rules that span several tables."""
    section = own_section(config)
    if config.privacy is None:
        return config
    refuse(list(_against_privacy(config, section)))
    return config


def _against_privacy(config: Config, section: Faithful) -> Iterator[InvalidValue]:
    """What a private run does not go with."""
    if config.model.name != "softmax":
        yield InvalidValue("model.name", "must be softmax in a private run", repr(config.model.name))
    for name, default in (
        ("payments", "gradients"), ("rule", "trapezoid"), ("agents", ()), ("step_share", 1.0),
        ("on_bad_report", "raise"), ("check_reports", "gradients"),
    ):  # fmt: skip
        if getattr(section, name) not in (None, default):
            rule = "must not be given in a private run, whose payments are noisy loss differences"
            yield InvalidValue(f"faithful.{name}", rule, repr(section.table()[name]))
    if section.variant == "exchanges":
        rule = "must be stepwise or printed in a private run: its noise would ruin what exchanges learn"
        yield InvalidValue("faithful.variant", rule, repr(section.variant))
    if section.payment_steps == 0:
        yield InvalidValue("faithful.payment_steps", "must be at least 1 in a private run", 0)


def with_steps(config: Config, training: int, payment: int) -> Config:
    """The config with its numbers of steps resolved."""
    section = own_section(config)
    return replace(config, own=replace(section, training_steps=training, payment_steps=payment))
