"""How a run of faithful learning is settled: losses of test samples, columns, and the statement.

What the plain and the private mechanism share is here too: weights, and the model as a module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats, finite_or_none
from bonafed.economics.money import charged
from bonafed.economics.statement import NO_WORSE, Statement, within_error
from bonafed.learning.federation import Alone, Federation, Losses, Objective, Reply, Roster, Task
from bonafed.learning.problems.convex import tiles
from bonafed.mechanisms.faithful.accounts import AgentAccounts, ComparedLosses
from bonafed.mechanisms.faithful.private.noise import PAPER_STEPS
from bonafed.mechanisms.faithful.protocol.payments import FaithfulOutcome
from bonafed.mechanisms.faithful.section import Faithful
from bonafed.presentation.documents import Cell

if TYPE_CHECKING:
    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import Program


_AT_ONCE = 1 << 22  # losses of test samples, of several models
DECIMALS = 6  # of payments, in units of loss
_LOSSES = (
    "loss", "overall_loss", "loss_with_the_others_model", "loss_alone", "fresh_loss", "fresh_loss_alone"
)  # fmt: skip
FORMS = (
    dict.fromkeys(_LOSSES, ".4f") | dict.fromkeys(("weight", "payment"), ".4g") | {"payment_error": ".2g"}
)


def weights_of(section: Faithful, members: Roster) -> Floats:
    """(K,) p, sum 1."""
    sizes = np.asarray(members.sizes, dtype=np.float64)
    if section.weights == "equal":
        sizes = np.ones(sizes.size)
    return np.asarray(sizes / sizes.sum())


def payment_steps_of(section: Faithful) -> int:
    """T_2, that of the paper unless configured."""
    return PAPER_STEPS[1] if section.payment_steps is None else section.payment_steps


def linear_model(model: Floats, classes: int, scale: float) -> NDArray[np.float32]:
    """(P,) as the parameters of a linear module: the scale of features goes into the weights."""
    matrix = model.reshape(-1, classes or 1).T / scale
    return np.concatenate([matrix[:, :-1].ravel(), matrix[:, -1]]).astype(np.float32)


def is_softmax(module: object) -> bool:
    """Whether a module is the linear one whose loss is convex."""
    from torch import nn

    parts = list(module.children()) if isinstance(module, nn.Module) else []
    return [type(part) for part in parts] == [nn.Flatten, nn.Linear]


@dataclass(frozen=True, slots=True, eq=False)
class FaithfulJudges:
    """The server's own test samples, and the model as a program."""

    program: Program
    test: Samples

    def fresh(
        self, federation: Federation, to_module: Callable[[Floats], NDArray[np.float32]]
    ) -> Callable[[Floats], Floats] | None:
        """Losses on test samples, weighted by each agent's class shares; None if these are unknown."""
        import torch

        from bonafed.learning.evaluate import sample_losses

        labels, class_shares = self.test.labels, getattr(federation, "class_shares", None)
        if not len(labels) or class_shares is None:
            return None
        shares = class_shares()
        shares = np.ones((len(federation.members), 1)) if shares is None else shares
        kinds = shares.shape[1]
        group = np.zeros(len(labels), dtype=np.int64) if kinds == 1 else labels.numpy()
        counts = np.bincount(group, minlength=kinds)
        part = shares * (counts > 0)
        if (part.sum(1) == 0).any():
            return None  # an agent holds only classes of which there is no test sample
        part = part / part.sum(1, keepdims=True)

        def by_class(models: Floats) -> Floats:
            weights = torch.from_numpy(np.stack([to_module(model) for model in models]))
            each = sample_losses(self.program, weights, self.test)
            return np.stack([np.bincount(group, row, kinds) for row in each]) / np.maximum(counts, 1)

        def losses(models: Floats) -> Floats:
            some = tiles(len(models), max(1, _AT_ONCE // len(labels)))
            return np.asarray(np.concatenate([by_class(models[rows]) for rows in some]) @ part.T)

        return losses


def columns_of(accounts: AgentAccounts, weights: Floats) -> Mapping[str, Sequence[Cell]]:
    """One cell per agent: payments with all digits, and the losses they compare with."""
    columns: dict[str, Sequence[Cell]] = {
        "weight": weights.tolist(),
        "payment": accounts.payment.tolist(),
        "payment_error": [finite_or_none(x) for x in accounts.error.tolist()],
        "loss": [finite_or_none(x) for x in accounts.loss.tolist()],
        "overall_loss": [finite_or_none(x) for x in accounts.overall.tolist()],
        "loss_with_the_others_model": [finite_or_none(x) for x in accounts.others.tolist()],
        "loss_alone": [finite_or_none(x) for x in accounts.alone.tolist()],
    }
    if (
        accounts.fresh is not None
        and accounts.fresh_alone is not None
        and accounts.no_worse_alone is not None
    ):
        columns |= {
            "fresh_loss": [finite_or_none(x) for x in accounts.fresh.tolist()],
            "fresh_loss_alone": [finite_or_none(x) for x in accounts.fresh_alone.tolist()],
            NO_WORSE: accounts.no_worse_alone,
        }
    return columns


def losses_of(federation: Federation, objective: Objective, models: Floats) -> Floats:
    """(K, m) of all clients under the same models; NaN where a client does not answer."""
    names, count = federation.members.names, len(models)
    tasks = [Task(f"losses of {count} models, {name}", name, models, Losses(objective)) for name in names]
    return _ask_losses(federation, tasks, count)


def _ask_losses(federation: Federation, tasks: Sequence[Task], count: int) -> Floats:
    answers = federation.replies(tasks)
    replies = [answers[task.identifier] for task in tasks]
    return np.array([r.values[:, 0] if isinstance(r, Reply) else np.full(count, math.nan) for r in replies])


def reported_losses(
    federation: Federation, objective: Objective, outcome: FaithfulOutcome, start: Floats, *,
    steps: int | None, rate: float,
) -> ComparedLosses:  # fmt: skip
    """Losses with the others' model, and alone, as clients report them.

    Each trains alone from `start` for so many steps; None: until the minimum of a strongly convex loss.
    """
    names = federation.members.names
    work = Alone(objective, rate=rate) if steps is None else Alone(objective, steps=steps, rate=rate)
    training = [Task(f"alone, {name}", name, start[None], work) for name in names]
    answers = federation.replies(training)
    own = [answers[task.identifier] for task in training]
    tasks = []
    for k, name in enumerate(names):
        reply = own[k]
        alone = reply.values[0] if isinstance(reply, Reply) else outcome.payments.models[k]
        models = np.stack([outcome.payments.models[k], alone])
        tasks.append(Task(f"losses without and alone, {name}", name, models, Losses(objective)))
    losses = _ask_losses(federation, tasks, 2)
    missing = [not isinstance(reply, Reply) for reply in own]
    return ComparedLosses(losses[:, 0], np.where(missing, math.nan, losses[:, 1]))


def statement(
    outcome: FaithfulOutcome,
    accounts: AgentAccounts,
    names: tuple[str, ...],
    weights: Floats,
    notes: Sequence[str],
) -> Statement:
    """What everybody owes, how far a payment may be off, and who was left out."""
    left_out = [{**asdict(out), "agent": names[out.agent]} for out in outcome.left_out]
    left_out_notes = [
        f"agent {out['agent']} was left out: in {out['where']} it reported {out['problem']}. The model "
        "was trained without it, and it owes nothing; if it keeps the last model it was sent, it "
        f"owes {out['due']:.4g}"
        for out in left_out
    ]
    error = finite_or_none(float(np.max(accounts.error)))
    totals: dict[str, Cell] = {"payments in all": float(accounts.payment.sum())}
    if error is not None:
        totals["payments below VCG by at most"] = error
    facts: dict[str, Any] = {}
    if outcome.exchanges is not None:
        residual = float(outcome.payments.error.max())
        totals |= {
            "part from searches not finished": residual,
            "part from integration": outcome.integration_error,
            "distance to Gauss-Legendre": outcome.gauss_distance,
            "exchanges": outcome.exchanges,
        }
        facts = {
            "exchanges": outcome.exchanges, "training_exchanges": outcome.training_steps,
            "residual_error": residual, "gauss_distance": outcome.gauss_distance,
        }  # fmt: skip
    return Statement(
        "faithful", names, charged(accounts.payment, DECIMALS), unit="loss", decimals=DECIMALS,
        columns=columns_of(accounts, weights), forms=FORMS, totals=totals, findings=accounts.checks,
        notes=(*left_out_notes, *within_error(names, accounts.payment, accounts.error), *notes),
        facts={
            "payments": accounts.payment.tolist(), "payment_steps": outcome.payments.steps,
            "certified_error": error, "integration_error": outcome.integration_error,
            "training_error": finite_or_none(outcome.training_error), "left_out": left_out, **facts,
        },
    )  # fmt: skip
