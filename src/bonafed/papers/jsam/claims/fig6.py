"""Figure 6: test accuracy against money."""

from __future__ import annotations

from collections.abc import Sequence

from bonafed.papers.claim import Check, Claim, Row, at_least, at_most
from bonafed.papers.jsam.accuracy import PAPER, QUICK, SMOKE, all_sums, cells, draw, levels, rows, small
from bonafed.papers.jsam.columns import difference, together


def judge(table: Sequence[Row]) -> list[Check]:
    """In every panel JSAM is ahead of USBM, and money buys accuracy."""
    found = []
    for s in levels(table):
        ahead = together(small(table, "JSAM", s), "over_usbm")
        found.append(at_least(f"s {s:g}: JSAM's accuracy less USBM's, mean over the sums", ahead, 0.0))
    ends = [(mine[0], mine[-1]) for s in levels(table) if (mine := all_sums(table, "USBM", s))]
    least = difference(*(together(rows, "accuracy") for rows in zip(*ends, strict=True)))
    found.append(at_most("USBM's accuracy at the smallest sum less that at the largest", least, 0.0))
    return found


CLAIM = Claim(
    identifier="jsam-fig6",
    paper="jsam",
    place="figure 6, MNIST",
    says="At small to moderate sums of money JSAM is more accurate than USBM, whatever the similarity s of "
    "the clients' data, and more money buys more accuracy.",
    presets={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"read": "exchanged"},
    erratum="J-16",
    about="""Private training with the privacy that each mechanism buys: clients are drawn with
replacement, one step per draw on the clipped gradient of all of a client's records, delta = 1e-5, costs
uniform on [0, 1], s % of the data spread uniformly and the rest by label with at most two classes per
client. Money is what is paid for the costs at hand. A seed fixes partition, costs, coins and noise, and
all mechanisms share it; differences are taken seed by seed. Noise from a seed can be repeated, and
protects nobody: these runs are measurements.

What the paper leaves open: the learning rate; how many clients BBM takes (half fits its money in the
tables); Q, for which its observation 6 implies 8 to 10, and 9 is taken. BBM chooses by the clients'
losses before training. The noise is the exact one for what was sold, with sensitivity 2C/M (errata
J-10, J-13), which is M/2 times less than (7) adds.

Preset quick trains softmax regression for 30 rounds, clip 1, at two sums; its first weights are
drawn, since with weights of 0 all clients have the same loss. Its accuracies are not the paper's: 30
rounds at a rate that suits noisy runs do not reach the 90 % that softmax regression can reach on MNIST.
What can be compared is who is ahead of whom.

JSAM's objective knows nothing of s: it weighs bias against noise alike in all panels, although there is
no bias to fear for s = 100, and much for s = 0, where one client that is drawn most of the time holds two
of ten classes (erratum J-16).

The four panels of CIFAR-10 are a claim of their own (jsam-fig6-cifar10). The control reads JSAM's runs
as USBM's and the other way round.""",
)
