"""Figure 3 and the text on it: learning with more samples, with and without privacy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bonafed.papers.claim import Check, Claim, Row, at_least, at_most, drawn_by, estimate
from bonafed.papers.faithful.curves import (
    DIGITS,
    FFL,
    LOCAL,
    MANIPULATED,
    PAPER_SEEDS,
    PRIVATE,
    BySamples,
    cells,
    curve,
    names,
    slug,
    table,
)

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
BY_SAMPLES = {
    "smoke": BySamples(**DIGITS, sizes=(200.0, 1000.0), factors=(100.0,)),
    "quick": BySamples(),
    "paper": BySamples(seeds=PAPER_SEEDS, sizes=(1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 60_000.0)),
}
more_samples_claim = partial(Claim, paper="faithful", presets=BY_SAMPLES, cells=cells)


# Figure 3a: losses against the number of samples


def fig3a_checks(rows: Sequence[Row]) -> list[Check]:
    """FFL is below manipulated FedAvg and local learning at every n."""
    comparisons = []
    for name in names(rows, MANIPULATED):
        for row in curve(rows, name):
            for column, what in (("loss", "global loss"), ("test_loss", "expected loss")):
                above = estimate(row, f"{column}_less_ffl")
                comparisons.append(
                    at_least(f"{what} of {name} less FFL's, n {row['samples']:.0f}", above, 0.0)
                )
    for row in curve(rows, FFL):
        what = f"FFL's expected loss with payment less local learning's, n {row['samples']:.0f}"
        comparisons.append(at_most(what, estimate(row, "test_overall_less_local"), 0.0))
    return comparisons


FIG3A = more_samples_claim(
    identifier="faithful-fig3a",
    place="figure 3a, section VII",
    says="FFL has a lower global loss than FedAvg manipulated by one agent, and a lower overall loss than "
    "local learning, for every number of samples.",
    rows=table("loss", "overall", "test_loss", "test_overall", less=(FFL, LOCAL)),
    judge=fig3a_checks,
    draw=drawn_by("faithful", "loss_figure"),
    control={"exchanged": "schemes"},
    about=SETTING
    + "\n\nWhat the same figure says of DP-FFL are the claims faithful-private-manipulated and "
    "faithful-private-local.",
)


# Figure 3b: accuracy against the number of samples


def fig3b_checks(rows: Sequence[Row]) -> list[Check]:
    """Both benchmarks are below FFL at every n."""
    return [
        at_most(
            f"accuracy of {name} less FFL's, n {row['samples']:.0f}",
            estimate(row, "accuracy_less_ffl"),
            0.0,
        )
        for name in (*names(rows, MANIPULATED), LOCAL)
        for row in curve(rows, name)
    ]


FIG3B = more_samples_claim(
    identifier="faithful-fig3b",
    place="figure 3b, section VII",
    says="FFL is more accurate on test samples than manipulated FedAvg and than local learning, for every "
    "number of samples.",
    rows=table("accuracy", less=(FFL,)),
    judge=fig3b_checks,
    draw=drawn_by("faithful", "accuracy_figure"),
    control={"exchanged": "schemes"},
    about=AS_BEFORE
    + "\n\nThe paper calls the harm of one manipulating agent significant. At its n = 10,000 and Delta = "
    "0.05 that needs a large gamma: the figure has what gamma = 10 and 100 do. With a step of 1/L_g "
    "training itself diverges for gamma > 1 + 1/p_k = 11; the fixed point is what a smaller step reaches.",
)


# Section VII: whom more samples help most


def samples_checks(rows: Sequence[Row]) -> list[Check]:
    """From the smallest n to the largest, FFL changes by less than either benchmark.

    What a benchmark has caught up with FFL is its own change less FFL's.
    """
    last = curve(rows, FFL)[-1]
    comparisons = []
    for other in (LOCAL, MANIPULATED):
        beginning = other.split()[0]
        for column, what, sign in (("accuracy", "accuracy", 1), ("test_loss", "expected loss", -1)):
            ahead = estimate(last, f"{column}_less_{beginning}_since_first")
            change = ahead._replace(value=sign * ahead.value)
            comparisons.append(
                at_most(f"gain of FFL by more samples less that of {other}: {what}", change, 0.0)
            )
    return comparisons


SAMPLES = more_samples_claim(
    identifier="faithful-samples",
    place="section VII, on figure 3",
    says="The number of samples has a greater impact on local learning and on manipulated FedAvg than on "
    "FFL.",
    rows=table("accuracy", "test_loss", less=(LOCAL, MANIPULATED), since_first=True),
    judge=samples_checks,
    draw=drawn_by("faithful", "accuracy_figure"),
    control={"exchanged": "points"},
    about=AS_BEFORE
    + "\n\nCompared is the change from the smallest n to the largest, seed by seed; of the manipulated "
    "ones, the one with the largest gamma. What the same sentence says of DP-FFL is the claim "
    "faithful-private-samples.",
)


# Figure 3b: DP-FFL against local learning, and against manipulated FedAvg


def private_claim(other: str, named: str, about: str) -> Claim:
    """DP-FFL is more accurate than another way to learn, at every n; `named` as the text has it."""
    column = slug(other)

    def judge(rows: Sequence[Row]) -> list[Check]:
        return [
            at_least(
                f"accuracy of {name} less that of {named}, n {row['samples']:.0f}",
                estimate(row, f"accuracy_less_{column}"),
                0.0,
            )
            for name in names(rows, PRIVATE)
            for row in curve(rows, name)
        ]

    return more_samples_claim(
        identifier=f"faithful-private-{column}",
        place="figure 3, section VII",
        says=f"DP-FFL with alpha = 0.1, too, outperforms {named}, for every number of samples.",
        rows=table("test_loss", "accuracy", less=(other,)),
        judge=judge,
        draw=drawn_by("faithful", "accuracy_figure"),
        control={"exchanged": "points"},
        erratum="F-D13",
        about=f"{AS_BEFORE}\n\n{about}",
    )


PRIVATE_LOCAL = private_claim(LOCAL, "local learning", NOISE)
PRIVATE_MANIPULATED = private_claim(MANIPULATED, "manipulated FedAvg", NOISE_BEFORE)


# Section VII: what more samples do for DP-FFL


def private_samples_checks(rows: Sequence[Row]) -> list[Check]:
    """From the smallest n to the largest, DP-FFL changes by less than local learning."""
    return [
        at_most(
            f"gain in accuracy of {name} by more samples less that of local learning",
            estimate(curve(rows, name)[-1], "accuracy_less_local_since_first"),
            0.0,
        )
        for name in names(rows, PRIVATE)
    ]


PRIVATE_SAMPLES = more_samples_claim(
    identifier="faithful-private-samples",
    place="section VII, on figure 3",
    says="The number of samples has a greater impact on local learning than on DP-FFL, too.",
    rows=table("accuracy", less=(LOCAL,), since_first=True),
    judge=private_samples_checks,
    draw=drawn_by("faithful", "accuracy_figure"),
    control={"alphas": (10.0,)},
    erratum="F-D13",
    about=f"{AS_BEFORE}\n\n{NOISE_BEFORE}",
)


CLAIMS = (FIG3A, FIG3B, SAMPLES, PRIVATE_LOCAL, PRIVATE_MANIPULATED, PRIVATE_SAMPLES)
