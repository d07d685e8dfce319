"""Sizes of the claims of section VII: figures 3 and 4, 5a, 5b. Claims of one figure share their cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bonafed.papers.faithful.curves import ByClusters, ByHeterogeneity, ByPrivacy, BySamples

_DIGITS: Mapping[str, Any] = {"data": "digits", "regulariser": 0.003, "samples": 600, "seeds": 3}
_PAPER_SEEDS = 5

BY_SAMPLES = {
    "smoke": BySamples(**_DIGITS, sizes=(200.0, 1000.0), factors=(100.0,)),
    "quick": BySamples(),
    "paper": BySamples(seeds=_PAPER_SEEDS, sizes=(1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 60_000.0)),
}
BY_HETEROGENEITY = {
    "smoke": ByHeterogeneity(**_DIGITS, deltas=(0.0, 0.15, 0.9), factors=(100.0,)),
    "quick": ByHeterogeneity(),
    "paper": ByHeterogeneity(seeds=_PAPER_SEEDS, deltas=(0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.9)),
}
BY_PRIVACY = {
    "smoke": ByPrivacy(**_DIGITS, alphas=(0.3, 300.0), regularisers=(0.003, 0.1)),
    "quick": ByPrivacy(),
    "paper": ByPrivacy(
        seeds=_PAPER_SEEDS, alphas=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0), payment_steps=(2, 5, 20)
    ),
}
BY_CLUSTERS = {
    "smoke": ByClusters(**_DIGITS, clusters=(2.0, 4.0, 10.0)),
    "quick": ByClusters(),
    "paper": ByClusters(seeds=_PAPER_SEEDS, clusters=tuple(float(count) for count in range(2, 11))),
}

SETTING = (
    "K = 10 agents of weight 1/10, n of the 60,000 training images, softmax regression (784 x 10, no "
    "intercept) on rows scaled to norm 1, mu = 0.001 (the paper does not state its own), so L_g = 0.501; "
    "the partition of section VII with Delta; beta = 0.01, T1 = 80, T2 = 20, L = K. FFL is the exact "
    "minimum of F with exact payments, every loss certified to 1e-9; FFL by steps is Algorithm 1 with the "
    "paper's T1 and T2, its sign and its step corrected (F-E1, F-E3); DP-FFL is Algorithm 2 as printed, "
    "its noise calibrated exactly (F-D7); manipulated is the fixed point of FedAvg while agent 3 reports "
    "gamma times its gradient (the paper does not state gamma); local is each agent's own minimum. Test "
    "samples: expected on an agent's own distribution, Delta parts of its own class and 1 - Delta of all "
    "10,000 test images, without regulariser. Numbers are means over the agents, in nats; curves are "
    "compared seed by seed. On the training loss local learning is below everything, since each agent's "
    "own minimum is the least there is (theory C1.5): the paper's comparison can only be of expected "
    "losses."
)
NOISE = (
    "DP-FFL at alpha = 0.1 is not close to FFL. Every sum of gradients gets noise in each of 7840 "
    "coordinates, whose norm is several times that of any gradient (F-D13); and with little noise, too, T1 "
    "= 80 steps do not finish training at this mu. Accuracy therefore depends on n more than that of any "
    "other scheme. Its payments are no better: the noise of the T2 steps makes the leave-one-out models "
    "longer, so that the regulariser's part of a payment is negative and the server pays out; an overall "
    "loss below zero at small alpha is no merit."
)
AS_BEFORE = "Setting and schemes are those of the claim faithful-fig3a."
NOISE_BEFORE = "Why DP-FFL is so far from FFL is told at the claim faithful-private-local."
