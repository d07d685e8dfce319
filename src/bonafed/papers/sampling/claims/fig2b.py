"""Figure 2(b): the training loss on EMNIST, costs uniform."""

from __future__ import annotations

from bonafed.papers.sampling.losses import NO_EMNIST, loss_claim

CLAIM = loss_claim(
    identifier="sampling-fig2b",
    place="figure 2(b), section 6",
    says="On EMNIST, with uniformly distributed costs, the training loss under the prior-based mechanism "
    "is lower than under uniform sampling, 90 % of it.",
    data="emnist-balanced",
    here="fashion-mnist",
    open_data=NO_EMNIST,
    share=0.9,
)
