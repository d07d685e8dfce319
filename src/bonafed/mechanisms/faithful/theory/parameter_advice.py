"""Advice for a federation that is planned: its clusters, its privacy, and what the paper promises of it.

    bonafed advise clusters               how many leave-one-out models do payments need?
    bonafed advise privacy-tradeoff       what do noise and privacy leave of model and payments?
    bonafed advise faithfulness           what could a lie gain at most?

The last one says what an agent could gain by any lie (Proposition 6, Corollary 2), how far the model is
from the best one (Propositions 4 and 10), and by how much joining could still be worse than learning alone
where one model for all is best (Proposition 7, Corollary 3), without privacy and with it. All are upper
bounds from `guarantees`, with the corrections there; they are loose, and tell what matters most. A bound
that is not below the gap between the first model and the best rules nothing out, and is called vacuous.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.learning.privacy import delta_note, delta_rule, require_small_delta
from bonafed.learning.sections import DELTA, NOISE_AT, NoiseAt
from bonafed.mechanisms.faithful.private.noise import PrivateTerms
from bonafed.mechanisms.faithful.protocol.payments import cluster_count
from bonafed.mechanisms.faithful.theory.bounds import (
    AgentPopulation,
    efficiency_bound,
)
from bonafed.mechanisms.faithful.theory.guarantees import (
    PrivateBoundTerms,
    faithfulness_bound,
    participation_slack,
    private_efficiency_bound,
    private_faithfulness_bound,
    private_participation_slack,
)
from bonafed.mechanisms.faithful.theory.population_advice import (
    class_count,
    computable,
    federation_size,
    open_unit,
    planned,
)
from bonafed.presentation.documents import Cell, Column, Document, Table
from bonafed.sections import Section, key, one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_NAMES = {
    "lie": "gained by a lie", "model": "model above the best", "joining": "joining above learning alone",
}  # fmt: skip
_STIFFEST = 1e12  # smoothness by strong convexity; 1 - mu/L_g must differ from 1 in a double


@dataclass(frozen=True)
class PromiseOptions(Section):
    """A federation of equal agents."""

    agents: int = key(federation_size, 10, metavar="K", help="How many.")
    samples: int = key(checks.whole, 1000, help="Samples of each agent.")
    parameters: int = key(checks.whole, 170, help="Of the model.")
    regulariser: float = key(computable, 0.1, metavar="MU", help="Strong convexity of the losses.")
    smoothness: float | None = key(computable, None, help="L_g; if left out mu + 1/2, that of softmax.")
    gradient_bound: float = key(
        computable, math.sqrt(2.0), help="Largest norm of a sample's gradient; 1.414 for softmax."
    )
    gap: float = key(
        computable, math.log(10.0), help="Loss of the first model above the least; log 10: ten labels."
    )
    training_steps: int = key(
        lambda name, value: checks.whole(name, value, 0), 80, help="T_1 of training without privacy."
    )
    payment_error: float = key(computable, 0.001, help="Certified error of a payment, in units of loss.")
    failure_probability: float = key(open_unit, 0.05, help="With which a bound may fail to hold.")
    epsilon: float | None = key(
        computable, None, help="Privacy loss allowed per record; if left out there is no privacy."
    )
    delta: float = key(delta_rule, 1e-5, help=DELTA)

    def _agree(self) -> None:
        if self.epsilon is not None:
            require_small_delta("delta", self.delta, self.samples)
        stiff = self.smooth / self.regulariser
        if self.epsilon is not None and not 1 < stiff <= _STIFFEST:
            rule = (
                f"must be above the regulariser, and at most {_STIFFEST:g} times as much, for a private run"
            )
            raise InvalidValue("smoothness", rule, self.smooth)

    @property
    def population(self) -> AgentPopulation:
        """What the bounds depend on; data distributions are not among it (Remark 2)."""
        k = self.agents
        return AgentPopulation(
            np.full(k, 1 / k), np.full(k, float(self.samples)), np.ones((k, 1)), self.gradient_bound,
            self.parameters, self.regulariser, self.failure_probability,
        )  # fmt: skip

    @property
    def smooth(self) -> float:
        """L_g, the smoothness of the loss."""
        return self.regulariser + 0.5 if self.smoothness is None else self.smoothness


def faithfulness(options: PromiseOptions) -> Document:
    """What could a lie gain at most, and what do privacy and unfinished training add to that?"""
    agents, smooth, steps = options.population, options.smooth, options.training_steps
    off = options.payment_error
    columns = {
        "without privacy": (
            faithfulness_bound(agents, smooth, steps, options.gap, off),
            efficiency_bound(agents, smooth, steps, options.gap),
            participation_slack(agents, 0, smooth, steps, options.gap, off),
            steps,
        )
    }
    if options.epsilon is not None:
        terms = PrivateBoundTerms(
            smooth, options.gradient_bound, options.epsilon, options.delta, options.gap, off
        )
        noisy = terms.tradeoff(agents).steps
        columns["private"] = (
            private_faithfulness_bound(agents, terms),
            private_efficiency_bound(agents, terms, noisy),
            private_participation_slack(agents, terms),
            noisy,
        )
    lie, excess, *_ = next(reversed(columns.values()))
    sampling = efficiency_bound(agents, smooth, 0, 0.0)
    advice = (
        f"No lie gains an agent more than {lie:.4g}, in units of loss: twice the error of payments, and "
        f"{options.agents} times {excess:.4g}, which bounds how far the model is from the best one. "
        f"Were training finished, {sampling:.4g} would be left of it, which only more samples lower."
    )
    vacuous = {
        kind: [name for name, value in zip(_NAMES, values, strict=False) if not value < options.gap]
        for kind, values in columns.items()
    }
    rows: tuple[tuple[Cell, ...], ...] = tuple((kind, *values) for kind, values in columns.items())
    shown = (Column("", left=True), *(Column(name, ".4g") for name in (*_NAMES.values(), "steps")))
    note = "the last bound is for agents for whom one model is best of all clusterings (Assumption 3)"
    data = {
        "question": "faithfulness", "lie": lie, "vacuous": vacuous,
        "bounds": {
            kind: dict(zip((*_NAMES, "steps"), values, strict=True)) for kind, values in columns.items()
        },
    }  # fmt: skip
    table = Table("At most, in units of loss", shown, rows, note)

    def draw() -> Figure:
        from bonafed.mechanisms.faithful.figures import choices_figure

        return choices_figure(
            "What could a lie gain?",
            {kind: values[0] for kind, values in columns.items()},
            "at most (loss)",
        )

    little = None if options.epsilon is None else delta_note(options.delta, options.samples)
    cautions = () if little is None else (f"Caution: {little}.",)
    return Document((advice, *cautions, *_vacuous(vacuous, options.gap), table), data, draw)


def _vacuous(names_of: Mapping[str, Sequence[str]], gap: float) -> list[str]:
    """Which bounds say nothing, in words."""
    sentences = [
        f"Vacuous {kind.replace('private', 'with privacy')}: {', '.join(map(_NAMES.__getitem__, names))}."
        for kind, names in names_of.items()
        if names
    ]
    rule = (
        f"A bound that is not below {gap:.4g}, all that training can lower the mean loss by, rules nothing"
    )
    return [" ".join([*sentences, f"{rule} out."])] if sentences else []


_ALPHAS = (0.5, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)


@dataclass(frozen=True)
class ClusterOptions(Section):
    """A federation whose payments are to be approximated."""

    agents: int = key(federation_size, metavar="K", help="How many.")
    epsilon: float = key(computable, 0.01, help="Payments may be this far from VCG, in units of loss.")
    regulariser: float = key(computable, 0.1, metavar="MU", help="Strong convexity of the losses.")
    smoothness: float | None = key(computable, None, help="L_g; if left out mu + 1/2, that of softmax.")
    gradient_bound: float = key(computable, math.sqrt(2.0), help="Largest norm of an agent's gradient.")


def clusters(options: ClusterOptions) -> Document:
    """How many leave-one-out models do payments within epsilon of VCG need (Theorem 2)?"""
    smooth = options.regulariser + 0.5 if options.smoothness is None else options.smoothness

    def count(epsilon: float) -> int:
        return cluster_count(options.agents, smooth, options.gradient_bound, options.regulariser, epsilon)

    minimum = count(options.epsilon)
    advice = f"{minimum} clusters keep payments within {options.epsilon:g} of VCG"
    if minimum < options.agents:
        share = minimum / options.agents
        advice += (
            f", with {share:.0%} of the work of one model without each of {options.agents} agents. Lying "
            "does not pay for any number of clusters, but payments may then sum to less than zero: the "
            "safe choice is one cluster per agent."
        )
    else:
        advice += ": as many as agents. Nothing is saved; leave clusters out."
    grid = options.epsilon * np.geomspace(0.1, 100, 7)
    rows = tuple((float(epsilon), count(float(epsilon))) for epsilon in grid)
    table = Table("", (Column("epsilon (loss)", ".3g"), Column("clusters")), rows)
    data = {
        "question": "clusters", "agents": options.agents, "epsilon": options.epsilon, "clusters": minimum,
        "table": [{"epsilon": epsilon, "clusters": number} for epsilon, number in rows],
    }  # fmt: skip

    def draw() -> Figure:
        from bonafed.mechanisms.faithful.figures import curve_figure

        x = options.epsilon * np.geomspace(0.1, 100, 60)
        y = np.array([count(float(epsilon)) for epsilon in x], dtype=np.float64)
        labels = ("distance from VCG payments (loss)", "clusters")
        return curve_figure(
            "Clusters that payments need", x, {"clusters": y}, labels, ("epsilon", options.epsilon),
            log_x=True,
        )  # fmt: skip

    return Document((advice, table), data, draw)


@dataclass(frozen=True)
class PrivacyOptions(Section):
    """A private federation that is being planned."""

    agents: int = key(planned, 10, metavar="K", help="How many.")
    samples: int = key(checks.whole, 1000, help="Samples of each agent.")
    parameters: int = key(checks.whole, 170, help="Of the softmax model, constants included.")
    classes: int = key(class_count, 10, help="Of the labels.")
    regulariser: float = key(computable, 0.003, metavar="MU", help="mu/2 |w|^2 is added to every loss.")
    epsilon: float = key(computable, 10.0, help="Privacy loss allowed per record over the whole run.")
    delta: float = key(delta_rule, 1e-5, help=DELTA)
    noise_at: NoiseAt = key(one_of(NoiseAt), "sum", help=NOISE_AT)

    def _agree(self) -> None:
        require_small_delta("delta", self.delta, self.samples)
        if self.parameters < self.classes:
            rule = f"must be at least the number of classes, {self.classes}"
            raise InvalidValue("parameters", rule, self.parameters)


def privacy_tradeoff(options: PrivacyOptions) -> Document:
    """What is left of model and payments at an epsilon, and what it would take to make them usable?"""
    from bonafed.mechanisms.faithful.private.noise import PublicFacts
    from bonafed.mechanisms.faithful.private.plan import (
        PrivateFaithfulPlan,
        enough_for_payments,
        plan_private,
    )

    k = options.agents
    facts = PublicFacts(
        np.full(k, float(options.samples)), np.full(k, 1 / k), [np.array([j]) for j in range(k)],
        options.regulariser, math.sqrt(2.0), options.parameters, options.classes, options.noise_at,
    )  # fmt: skip

    def plan_at(epsilon: float) -> PrivateFaithfulPlan:
        return plan_private(facts, PrivateTerms(alpha=epsilon, beta=options.delta))

    plan = plan_at(options.epsilon)
    off, size = float(plan.payment_error.max()), float(plan.payment_scale.max())
    if plan.usable:
        advice = (
            f"Payments are meaningful at epsilon {options.epsilon:g}: off by about {off:.2g} where "
            f"{size:.2g} is owed, after {plan.training_steps} and {plan.payment_steps} steps."
        )
    else:
        enough = enough_for_payments(facts, alpha=options.epsilon, beta=options.delta)
        samples = "no number of samples" if enough.samples is None else f"{enough.samples:,} samples in all"
        epsilon = "no epsilon" if enough.alpha is None else f"an epsilon of {enough.alpha:g}"
        advice = (
            f"Do not charge such payments at epsilon {options.epsilon:g}: they would be off by about "
            f"{off:.2g} where {size:.2g} is owed; {samples}, or {epsilon}, would be enough."
        )
    epsilons = sorted({*_ALPHAS, options.epsilon})
    plans = {alpha: plan_at(alpha) for alpha in epsilons}
    rows = tuple(
        (alpha, p.training_steps, p.payment_steps, p.model_error, float(p.payment_error.max()), p.usable)
        for alpha, p in plans.items()
    )
    columns = (
        Column("epsilon", "g"), Column("training steps"), Column("payment steps"),
        Column("model off by", ".2g"), Column("payments off by", ".2g"), Column("payments usable"),
    )  # fmt: skip
    data = {
        "question": "privacy-tradeoff", "epsilon": options.epsilon, "usable": plan.usable,
        "noise_at": options.noise_at,
        "payment_error": off, "payment_scale": size, "model_error": plan.model_error,
        "table": [
            {"epsilon": a, "training_steps": t1, "payment_steps": t2, "model_error": m, "payment_error": e,
             "usable": u}
            for a, t1, t2, m, e, u in rows
        ],
    }  # fmt: skip
    caption = "estimates, in units of loss, of the best plan at each epsilon"
    table = Table(f"{k} agents with {options.samples:,} samples each", columns, rows, caption)

    def draw() -> Figure:
        from bonafed.mechanisms.faithful.figures import curve_figure

        lines = {
            "payments": np.array([float(p.payment_error.max()) for p in plans.values()]),
            "model": np.array([p.model_error for p in plans.values()]),
            "what is owed": np.full(len(plans), size),
        }
        labels = ("epsilon", "off by (loss)")
        return curve_figure(
            "What privacy costs", np.array(epsilons), lines, labels, ("epsilon", options.epsilon),
            log_x=True, log_y=True,
        )  # fmt: skip

    note = delta_note(options.delta, options.samples)
    cautions = () if note is None else (f"Caution: {note}.",)
    return Document((advice, *cautions, table), data, draw)
