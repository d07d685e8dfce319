"""Figure 3(b): the training loss on EMNIST, costs exponential."""

from __future__ import annotations

from bonafed.papers.sampling.losses import NO_EMNIST, loss_claim
from bonafed.papers.sampling.runs import EXPONENTIAL

CLAIM = loss_claim(
    identifier="sampling-fig3b",
    place="figure 3(b), section 6",
    says="On EMNIST, with exponentially distributed costs, the training loss under the prior-based "
    "mechanism is lower than under uniform sampling.",
    data="emnist-balanced",
    here="fashion-mnist",
    open_data=NO_EMNIST,
    costs=EXPONENTIAL,
)
