"""What an honest report can look like, and who reports something else (theory C3.4 to C3.7).

An agent's loss F_k is mu-strongly convex and L_g-smooth, mu and L_g being what the agents agreed on, and B
bounds the gradient of every sample's loss at w = 0. So for the gradients g, g' of F_k at any models w, w'

    consistent   |g - g' - (L_g + mu)/2 (w - w')| <= (L_g - mu)/2 |w - w'|
    bounded      |g - mu w| <= B + (L_g - mu) |w|, for the softmax <= B

The first says at once that the slope is at most L_g, the curvature at least mu, and the gradient
co-coercive in between. Both need no trust, only the agent's own reports. An honest report is computed to a
relative accuracy tau, within tau S(w) of the gradient, S(w) = B + L_g |w|; twice that is allowed for, the
second half for the arithmetic of the check. So nobody is named who reports the gradients of a loss as
agreed on, by the triangle inequality. Whoever reports those of another such loss, gamma F_k for a gamma
that smoothness permits, is not named either: what that is worth is the payments' business.

Where the loss is not convex nothing ties two gradients together; there only the bound is asked for.

Pairs of reports can all be consistent, and still be the gradients of nothing: a field that turns, say.
`contradiction` asks whether any loss as agreed on has all of them as its gradients. With h = g - mu w,
reports g_i at models w_i are gradients of one mu-strongly convex, L-smooth function if and only if there
are numbers f_i, its values without mu/2 |w|^2, such that for all i, j

    f_i - f_j >= c_ij,      c_ij = h_j·(w_i - w_j) + |h_i - h_j|^2/(2 (L - mu))

(Taylor, Hendrickx, Glineur 2017, Theorem 4). Such numbers exist if and only if no cycle i, j, k, ... has a
positive sum c_ij + c_jk + ...; the longest ways between all pairs tell (Floyd, Warshall). An honest report
is within tau S_i of the gradient, so its c_ij are off by at most

    tau (S_i + 2 S_j) |w_i - w_j| + tau^2 (S_i + S_j)^2/(2 (L - mu)):

twice that is taken off, the second half for rounding here. So nobody honest is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import UnusableReport
from bonafed.learning.federation import Failure, Reply
from bonafed.learning.function_federation import NOT_FINITE
from bonafed.learning.problems.agreed import Agreed

ReportCheck = Literal["gradients", "numbers"]  # of a loss as agreed on, or anything finite: for studies
FAR = 1e100  # norm of a report that is still computed with: its square is a number
GROWTH = 1e6  # of models and sums of reports, against the first: beyond, nothing can be concluded


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Models that agents are sent at once, row by row, each of some run: those of one payment, say."""

    models: Floats  # (m, P)
    runs: NDArray[np.int64]  # (m,) increasing
    norms: Floats  # (m,) of the models

    @classmethod
    def at(cls, models: Floats, runs: NDArray[np.int64] | None = None) -> Request:
        """These models, which are copied; row i belongs to run i unless `runs` says otherwise."""
        own = np.array(models)
        return cls(own, np.arange(len(own)) if runs is None else runs, np.linalg.norm(own, axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class _Memory:
    """The reports of an agent that are remembered."""

    model: Floats  # (1, P) the first it was sent
    report: Floats  # (1, P) and its answer
    request: Request  # the last it was sent, of which
    rows: NDArray[np.int64]  # (r,) are its own,
    reports: Floats  # (r, P) and its answers to these

    def last(self, runs: NDArray[np.int64]) -> NDArray[np.int64]:
        """(m,) which answer was the last in each of these runs; the first one if a run is new."""
        runs_before = self.request.runs[self.rows]
        positions = np.minimum(np.searchsorted(runs_before, runs), runs_before.size - 1)
        positions[runs_before[positions] != runs] = 0
        return np.asarray(positions)


class _Checks:
    """What an honest report can be, given others of the same agent."""

    def __init__(self, problem: Agreed, check: ReportCheck = "gradients") -> None:
        checks.literal("check_reports", check, ReportCheck)
        self._problem = problem
        self._strict = check == "gradients"

    @property
    def names_liars(self) -> bool:
        """Whether reports that all pass cannot diverge."""
        return self._strict and self._problem.strongly_convex

    def _values(self, agent: int, report: Reply | Failure, models: Floats, norms: Floats) -> Floats:
        """The report (r, P), if by itself it can be honest."""
        near = bool((norms <= GROWTH).all())
        if isinstance(report, Failure):
            may_be_honest = report.reason.startswith(NOT_FINITE)  # where models are far away
            raise UnusableReport(agent, report.reason, certain=near or not may_be_honest)
        values = np.asarray(report.values, dtype=np.float64)
        self._require_bounded(agent, values - self._problem.regulariser * models, norms, near)
        return values

    def _require_bounded(self, agent: int, data: Floats, norms: Floats, near: bool) -> None:
        """(C3.5), of reports without mu w, at models of these norms."""
        problem = self._problem
        with np.errstate(over="ignore"):  # inf is above any bound
            size = np.linalg.norm(data, axis=1)
        far = FAR + problem.smoothness * norms
        if (size > far).any():
            # can only be told from an honest report's if that is known not to run away with the model
            text = f"a gradient of norm {size.max():.3g}, too large to compute with"
            raise UnusableReport(agent, text, certain=near or self.names_liars)
        if self._strict:
            rounding = 2 * problem.precision * (problem.gradient_bound + problem.smoothness * norms)
            most = problem.largest_gradient(norms) + rounding
            if (size > most).any():
                worst = int(np.argmax(size > most))
                text = f"a gradient of norm {size[worst]:.3g} where {most[worst]:.3g} is the most it can be"
                raise UnusableReport(agent, text)

    def scale(self, model: Floats, report: Floats, norms: Floats) -> Floats:
        """(m,) S(w) = B + L_g |w| of models of these norms; without B, what the first report says of it."""
        bound, smooth = self._problem.gradient_bound, self._problem.smoothness
        if math.isinf(bound):
            bound = float(np.linalg.norm(report) + smooth * np.linalg.norm(model))
        return np.asarray(bound + smooth * norms)

    def _require_consistent(self, agent: int, models: Floats, reports: Floats, tolerance: Floats) -> None:
        """(C3.4), of differences of models and of the reports for them, (m, P)."""
        mu, smooth = self._problem.regulariser, self._problem.smoothness
        distance = np.linalg.norm(models, axis=1)
        off = np.linalg.norm(reports - (smooth + mu) / 2 * models, axis=1)
        excess = off - (smooth - mu) / 2 * distance
        if (excess <= tolerance).all():
            return
        worst = int(np.argmax(excess - tolerance))
        apart, slope = float(distance[worst]), float(np.linalg.norm(reports[worst]))
        if slope > smooth * apart + tolerance[worst]:
            what = f"more than L_g = {smooth:.3g} allows"
        else:
            bend = float(reports[worst] @ models[worst]) / apart**2
            what = (
                f"a curvature of {bend:.3g}, as no {mu:.3g}-strongly convex, {smooth:.3g}-smooth loss has"
            )
        text = f"gradients that differ by {slope:.3g} at models {apart:.3g} apart, {what}"
        if not apart:
            text = f"gradients that differ by {slope:.3g} at one and the same model"
        raise UnusableReport(agent, text)


class Watch(_Checks):
    """Checks every report against what an honest one can be.

    Of every agent it keeps the first report and the last of each run of models: by (C3.6) the consistency
    of consecutive reports is what keeps training and payments from diverging; the first one shows slow
    drifts, and agents that answer differently once training starts over.
    """

    def __init__(self, problem: Agreed, check: ReportCheck = "gradients") -> None:
        super().__init__(problem, check)
        self._memories: dict[int, _Memory] = {}

    def copy(self) -> Watch:
        """An independent copy of the memory."""
        other = Watch(self._problem, "gradients" if self._strict else "numbers")
        other._memories = dict(self._memories)
        return other

    def accept(
        self, agent: int, report: Reply | Failure, request: Request, rows: NDArray[np.int64]
    ) -> Floats:
        """The report (r, P) for these rows of the request, which is kept and must not change afterwards.

        Raises `UnusableReport` if no honest report looks like it.
        """
        models, norms = request.models[rows], request.norms[rows]
        values = self._values(agent, report, models, norms)
        if self.names_liars:
            memory = self._memories.get(agent) or _Memory(models[:1], values[:1], request, rows, values)
            first, said = memory.model, memory.report
            tau, of_first = 2 * self._problem.precision, np.linalg.norm(first, axis=1)
            here, there = self.scale(first, said, norms), self.scale(first, said, of_first)
            self._require_consistent(agent, models - first, values - said, tau * (here + there))
            last = memory.last(request.runs[rows])
            before = memory.rows[last]
            there = self.scale(first, said, memory.request.norms[before])
            change = models - memory.request.models[before]
            self._require_consistent(agent, change, values - memory.reports[last], tau * (here + there))
            self._memories[agent] = _Memory(first, said, request, rows, values)
        return values


class EarlierReports(NamedTuple):
    """What an agent has reported before."""

    models: Floats  # (n, P) the first it was sent at the beginning
    reports: Floats  # (n, P)


class Hearing(_Checks):
    """Checks every report of an exchange against all that is kept of what the same agent said before.

    Where exchanges are few, the reports of the whole training are kept, as the payments begin with them. So
    whoever says one thing in training and another later contradicts itself in some pair.
    """

    def __init__(
        self, problem: Agreed, check: ReportCheck, known: Mapping[int, EarlierReports] | None = None
    ) -> None:
        super().__init__(problem, check)
        self._known = {} if known is None else known
        self.heard: dict[int, tuple[NDArray[np.int64], Floats]] = {}  # rows, reports: by agent

    def accept(
        self, agent: int, report: Reply | Failure, request: Request, rows: NDArray[np.int64]
    ) -> Floats:
        """The report (r, P) for these rows of the request; raises `UnusableReport` as `Watch` does."""
        models, norms = request.models[rows], request.norms[rows]
        values = self._values(agent, report, models, norms)
        if self.names_liars:
            none = np.zeros((0, models.shape[1]))
            before = self._known.get(agent, EarlierReports(none, none))
            all_models = np.concatenate([before.models, models])
            all_values = np.concatenate([before.reports, values])
            scale = self.scale(all_models[0], all_values[0], np.linalg.norm(all_models, axis=1))
            scale *= 2 * self._problem.precision
            for i in range(len(before.models), len(all_models)):
                self._require_consistent(
                    agent,
                    all_models[i] - all_models[:i],
                    all_values[i] - all_values[:i],
                    scale[i] + scale[:i],
                )
        self.heard[agent] = rows, values
        return values


def contradiction(models: Floats, reports: Floats, mu: float, smooth: float, slack: Floats) -> float:
    """By how much reports (n, P) at models (n, P) miss being gradients of one loss; 0 if they may be.

    `slack` (n,) is tau S_i. The number is in units of loss, the sum of the first cycle that was found.
    """
    if smooth <= mu or len(models) < 2:
        return 0.0  # only |w|^2 has that curvature: pairs of reports tell
    h = reports - mu * models
    longest = np.empty((len(models), len(models)))
    for j in range(len(models)):
        ways, turns = models - models[j], h - h[j]
        lengths = np.sqrt((ways**2).sum(1))
        allowed = (slack + 2 * slack[j]) * lengths + (slack + slack[j]) ** 2 / (2 * (smooth - mu))
        longest[:, j] = (ways * h[j]).sum(1) + (turns**2).sum(1) / (2 * (smooth - mu)) - 2 * allowed
    np.fill_diagonal(longest, 0.0)
    for k in range(len(models)):
        longest = np.maximum(longest, longest[:, [k]] + longest[[k]])
        if (worst := float(longest.diagonal().max())) > 0:
            return worst
    return 0.0
