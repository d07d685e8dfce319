"""What an honest report can be, and who is found to report something else (theory C3.4 to C3.7).

An agent's loss F_k is mu-strongly convex and L_g-smooth, mu and L_g being what the agents agreed on, and B
bounds the gradient of every sample's loss at w = 0. So for the gradients g, g' of F_k at any models w, w'

    consistent   |g - g' - (L_g + mu)/2 (w - w')| <= (L_g - mu)/2 |w - w'|
    bounded      |g - mu w| <= B + (L_g - mu) |w|, for the softmax <= B

The first says at once that the slope is at most L_g, the curvature at least mu, and the gradient
co-coercive in between. Both need no trust, only the agent's own reports. An honest report is computed to a
relative accuracy tau, within tau S(w) of the gradient, S(w) = B + L_g |w|; twice that is allowed for, the
second half for the arithmetic of the check. So nobody is named who reports the gradients of a loss as
agreed on, by the triangle inequality. Whoever reports those of another such loss, gamma F_k for a gamma that smoothness
permits, is not named either: what that is worth is the payments' business.

Where the loss is not convex nothing ties two gradients together; there only the bound is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import BonafedError
from bonafed.mechanisms.faithful.problems import Problem

ReportCheck = Literal["gradients", "numbers"]  # of a loss as agreed on, or anything finite: for studies
FAR = 1e100  # norm of a report that is still computed with: its square is a number
GROWTH = 1e6  # of models and sums of reports, against the first: beyond, nothing can be concluded


class UnusableReport(BonafedError):
    """What an agent reported is no gradient of its loss; says which agent, and what came instead."""

    def __init__(self, agent: int, problem: str, *, certain: bool = True) -> None:
        self.agent, self.problem = agent, problem
        self.certain = certain  # whether an honest agent could not have come to this
        super().__init__(f"report of agent {agent} must be a gradient of its loss, got {problem}")


def usable_report(agent: int, report: object, shape: tuple[int, ...]) -> Floats:
    """What an agent sent, as numbers of one's own, if it can be added to those of the others."""
    if report is None:
        raise UnusableReport(agent, "nothing")
    if isinstance(report, BaseException):
        raise UnusableReport(agent, f"no answer ({_said(report)})")
    try:
        found = np.asarray(report)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last is torch's
        raise UnusableReport(agent, f"no numbers ({type(report).__name__})") from None
    if found.dtype.kind not in "iuf":  # not complex, which would lose a part, nor text that can be parsed
        kind = type(report).__name__ if found.dtype.kind in "OUSV" else found.dtype.name
        raise UnusableReport(agent, f"no real numbers ({kind})")
    if found.shape != shape:
        raise UnusableReport(agent, f"shape {found.shape} instead of {shape}")
    with np.errstate(over="ignore"):
        numbers = np.array(found, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise UnusableReport(agent, "NaN or inf")
    return numbers


def _said(error: BaseException) -> str:
    text = str(error)
    return type(error).__name__ + (f": {text}" if text else "")


class Change(NamedTuple):
    """From one report of an agent to another, row by row, against what a loss as agreed on allows."""

    distance: Floats  # (m,) |w - w'|
    excess: Floats  # (m,) by which the change leaves the ball of (C3.4); at most 0, but for rounding
    slope: Floats  # (m,) |g - g'|
    rise: Floats  # (m,) (g - g')·(w - w')


def change(models: Floats, reports: Floats, mu: float, smoothness: float) -> Change:
    """Of models and reports, both differences (m, P)."""
    distance = np.linalg.norm(models, axis=1)
    off = np.linalg.norm(reports - (smoothness + mu) / 2 * models, axis=1)
    rise = np.einsum("mp,mp->m", reports, models)
    excess = off - (smoothness - mu) / 2 * distance
    return Change(distance, excess, np.linalg.norm(reports, axis=1), rise)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Models that agents are sent at once, row by row, each of some run: those of one payment, say."""

    models: Floats  # (m, P)
    runs: NDArray[np.int64]  # (m,) increasing


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """What is remembered of an agent."""

    model: Floats  # (P,) the first it was sent
    report: Floats  # (P,) and its answer
    asked: Asked  # the last it was sent, of which
    rows: NDArray[np.int64]  # (r,) are its own,
    reports: Floats  # (r, P) and its answers to these

    def last(self, runs: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Models and reports (m, P) before these: of the same run, or of the first one if it is new."""
        known = self.asked.runs[self.rows]
        place = np.minimum(np.searchsorted(known, runs), known.size - 1)
        place[known[place] != runs] = 0
        return self.asked.models[self.rows[place]], self.reports[place]


class Watch:
    """Holds every report against what an honest one can be.

    Of every agent it keeps the first report and the last of each run of models: by (C3.6) the consistency
    of consecutive reports is what keeps training and payments from diverging; the first one shows slow
    drifts, and whoever is somebody else when training begins again.
    """

    def __init__(self, problem: Problem, check: ReportCheck = "gradients") -> None:
        checks.literal("check_reports", check, ReportCheck)
        self._problem = problem
        self._strict = check == "gradients"
        self._kept: dict[int, _Kept] = {}

    @property
    def names_liars(self) -> bool:
        """Whether reports that all pass cannot diverge."""
        return self._strict and self._problem.strongly_convex

    def accept(self, agent: int, report: object, asked: Asked, rows: NDArray[np.int64]) -> Floats:
        """The report (r, P) for these rows of what was asked, which is kept and must not change any more.

        `UnusableReport` if no honest one is like it.
        """
        models = asked.models[rows]
        try:
            found = usable_report(agent, report, models.shape)
        except UnusableReport as bad:
            far = bool((np.linalg.norm(models, axis=1) > GROWTH).any())
            raise UnusableReport(
                agent, bad.problem, certain=bad.problem != "NaN or inf" or not far
            ) from bad
        self._require_bounded(agent, found, models)
        if self.names_liars:
            kept = self._kept.get(agent) or _Kept(models[0], found[0], asked, rows, found)
            scale = self._rounding(kept)
            self._require_consistent(agent, models, found, kept.model[None], kept.report[None], scale)
            self._require_consistent(agent, models, found, *kept.last(asked.runs[rows]), scale)
            self._kept[agent] = _Kept(kept.model, kept.report, asked, rows, found)
        return found

    def _require_bounded(self, agent: int, reports: Floats, models: Floats) -> None:
        problem = self._problem
        with np.errstate(over="ignore"):  # inf is above any bound
            size = np.linalg.norm(reports - problem.regulariser * models, axis=1)
        away = np.linalg.norm(models, axis=1)
        most = np.full(away.size, FAR) + problem.smoothness * away
        if self._strict:
            rounding = 2 * problem.precision * (problem.gradient_bound + problem.smoothness * away)
            most = np.minimum(most, problem.largest_gradient(away) + rounding)
        worst = int(np.argmax(size - most))
        if size[worst] > most[worst]:
            text = (
                f"a gradient of norm {size[worst]:.3g}, where an honest one has at most {most[worst]:.3g}"
            )
            raise UnusableReport(agent, text)

    def _rounding(self, kept: _Kept) -> Callable[[Floats], Floats]:
        """Models (m, P) -> 2 tau S(w), S(w) = B + L_g |w|; without B, what the first report says of it."""
        problem = self._problem
        bound, smooth = problem.gradient_bound, problem.smoothness
        if math.isinf(bound):
            bound = float(np.linalg.norm(kept.report) + smooth * np.linalg.norm(kept.model))
        return lambda models: 2 * problem.precision * (bound + smooth * np.linalg.norm(models, axis=1))

    def _require_consistent(
        self,
        agent: int,
        models: Floats,
        reports: Floats,
        model: Floats,
        report: Floats,
        rounding: Callable[[Floats], Floats],
    ) -> None:
        mu, smooth = self._problem.regulariser, self._problem.smoothness
        seen = change(models - model, reports - report, mu, smooth)
        allowed = rounding(models) + rounding(model)
        worst = int(np.argmax(seen.excess - allowed))
        if seen.excess[worst] > allowed[worst]:
            distance, slope = float(seen.distance[worst]), float(seen.slope[worst])
            if slope > smooth * distance + allowed[worst]:
                what = f"more than L_g = {smooth:.3g} allows"
            else:
                what = (
                    f"with a curvature of {seen.rise[worst] / distance**2:.3g}, which no loss has that is "
                    f"{mu:.3g}-strongly convex and {smooth:.3g}-smooth"
                )
            text = f"gradients that differ by {slope:.3g} at models {distance:.3g} apart, {what}"
            raise UnusableReport(agent, text)
