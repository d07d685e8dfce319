"""What the plain and the private form share: weights, the model as a module, fresh samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats, finite_or_none
from bonafed.economics.claims import NO_WORSE
from bonafed.learning.federation import Federation, Roster
from bonafed.learning.problems.convex import tiles
from bonafed.mechanisms.faithful.private import PAPER_STEPS
from bonafed.mechanisms.faithful.section import Faithful
from bonafed.mechanisms.faithful.statement import Statement as Accounts
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
class Judges:
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


def columns_of(accounts: Accounts, weights: Floats) -> Mapping[str, Sequence[Cell]]:
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
