"""`bonafed advise faithfulness`: what the paper's propositions promise of a federation that is planned.

What an agent could gain by any lie (Proposition 6, Corollary 2), how far the model is from the best one
(Propositions 4 and 10), and by how much joining could still be worse than learning alone where one model
for all is best (Proposition 7, Corollary 3), without privacy and with it. All are upper bounds from
`guarantees`, with the corrections there; they are loose, and tell what matters most. A bound that is not
below the gap between the first model and the best rules nothing out, and is called vacuous.
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
from bonafed.learning.sections import DELTA
from bonafed.mechanisms.faithful.advice import computable, federation_size, open_unit
from bonafed.mechanisms.faithful.bounds import Population, efficiency_bound
from bonafed.mechanisms.faithful.guarantees import (
    PrivateTerms,
    faithfulness_bound,
    participation_slack,
    private_efficiency_bound,
    private_faithfulness_bound,
    private_participation_slack,
)
from bonafed.presentation.documents import Cell, Column, Document, Table
from bonafed.sections import Section, key

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
    def population(self) -> Population:
        """What the bounds depend on; data distributions are not among it (Remark 2)."""
        k = self.agents
        return Population(
            np.full(k, 1 / k), np.full(k, float(self.samples)), np.ones((k, 1)), self.gradient_bound,
            self.parameters, self.regulariser, self.failure_probability,
        )  # fmt: skip

    @property
    def smooth(self) -> float:
        """L_g."""
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
        terms = PrivateTerms(
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


def _vacuous(found: Mapping[str, Sequence[str]], gap: float) -> list[str]:
    """Which bounds say nothing, in words."""
    said = [
        f"Vacuous {kind.replace('private', 'with privacy')}: {', '.join(map(_NAMES.__getitem__, names))}."
        for kind, names in found.items()
        if names
    ]
    rule = (
        f"A bound that is not below {gap:.4g}, all that training can lower the mean loss by, rules nothing"
    )
    return [" ".join([*said, f"{rule} out."])] if said else []
