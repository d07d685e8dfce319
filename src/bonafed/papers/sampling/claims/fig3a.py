"""Figure 3(a): the training loss on MNIST, costs exponential."""

from __future__ import annotations

from bonafed.papers.sampling.losses import loss_claim
from bonafed.papers.sampling.runs import EXPONENTIAL

CLAIM = loss_claim(
    identifier="sampling-fig3a",
    place="figure 3(a), section 6",
    says="On MNIST, with exponentially distributed costs, the training loss under the prior-based "
    "mechanism is lower than under uniform sampling.",
    data="mnist",
    costs=EXPONENTIAL,
)
