"""After Proposition 11: three ways to trade."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bonafed.mechanisms.faithful.theory.bounds import Tradeoff, TradeoffSetting, privacy_tradeoff
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    at_least,
    at_most,
    number,
    where,
    within,
)
from bonafed.papers.faithful.claims.fig2 import Bound

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BETA = 0.01
_PRIVATE, _OPEN, _ACCURATE = "less alpha", "eta2 and alpha^2 together", "more alpha"


def rows(bound: Bound, _: Results) -> list[Row]:
    """Along each way, from its beginning to its end: T_1 = T_2 and the bound, corrected constants."""
    smooth = bound.regulariser + 0.5
    largest = 1 / ((bound.agents - 1) * smooth)
    ways = {
        _PRIVATE: [(largest, alpha) for alpha in np.geomspace(10.0, 1e-4, bound.points)],
        _OPEN: [(largest * s, 1000.0 * s**0.5) for s in np.geomspace(0.01, 1.0, bound.points)],
        _ACCURATE: [(largest, alpha) for alpha in np.geomspace(10.0, 1e6, bound.points)],
    }
    listed: list[Row] = []
    for way, points in ways.items():
        if bound.jumbled:
            points = points[::-1]
        for number_, (step, alpha) in enumerate(points):
            setting = TradeoffSetting(
                step, bound.dimension, 2**0.5, bound.agents, float(alpha), _BETA, bound.regulariser,
                bound.smallest, smooth,
            )  # fmt: skip
            found: Tradeoff = privacy_tradeoff(setting)
            listed.append({
                "way": way, "point": number_, "eta2": float(step), "alpha": float(alpha),
                "steps": found.steps, "bound": found.loss if found.steps else found.start,
                "start": found.start,
            })  # fmt: skip
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
    """Each way changes what it should; the bound of the first does not diverge, which is the correction."""
    ways = {way: where(table, way=way) for way in (_PRIVATE, _OPEN, _ACCURATE)}
    ends = {way: (points[0], points[-1]) for way, points in ways.items()}
    change = {
        way: {part: number(end, part) - number(begin, part) for part in ("steps", "bound")}
        for way, (begin, end) in ends.items()
    }
    middle = ways[_PRIVATE][len(ways[_PRIVATE]) // 2]
    last = ends[_PRIVATE][1]
    grows = number(last, "bound") / number(middle, "bound")
    begin, end = ends[_ACCURATE]
    vanishing = number(end, "bound") / number(begin, "bound")
    compared = [
        (at_most, f"{_PRIVATE}: steps at the end", number(last, "steps"), 0.0),
        (at_most, f"{_OPEN}: change of steps", change[_OPEN]["steps"], 0.0),
        (at_most, f"{_OPEN}: change of the bound", change[_OPEN]["bound"], 0.0),
        (at_least, f"{_ACCURATE}: change of steps", change[_ACCURATE]["steps"], 0.0),
        (at_most, f"{_ACCURATE}: bound over that at the beginning", vanishing, 0.001),
    ]
    found = [
        rule(what, Estimate(value), limit, corrected=corrected)
        for corrected in (False, True)
        for rule, what, value, limit in compared
    ]
    return [
        *found,
        at_least(f"{_PRIVATE}: bound at the end over that half way", Estimate(grows), 10.0),
        within(
            f"{_PRIVATE}: bound at the end over B, where no step is taken",
            Estimate(number(last, "bound") / number(last, "start")), 1.0, 1e-9, corrected=True,
        ),
    ]  # fmt: skip


def draw(table: Sequence[Row]) -> Figure:
    """Steps and bound along each way."""
    from bonafed.papers.faithful.figures import guidelines_figure

    return guidelines_figure(table)


CLAIM = Claim(
    identifier="faithful-guidelines",
    paper="faithful",
    place="guidelines 1 to 3 after proposition 11",
    says="alpha to 0 takes no steps and makes the payment loss diverge; eta_2 growing with alpha^2 lowers "
    "steps and loss; alpha to infinity takes ever more steps and makes the loss vanish.",
    presets={"smoke": Bound(points=5), "quick": Bound(points=25), "paper": Bound(points=25)},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"jumbled": True},
    erratum="F-D9",
    about="Corrected constants (F-D9); d, n_(1) and mu are those of figures 3 to 5. The loss bound does "
    "not diverge for alpha to 0: where (57) takes no step, payments are off by at most what the start is, "
    "B of (59), however little alpha is; the printed (58) tends to minus infinity there. The other two "
    "ways are as the paper says.",
)
