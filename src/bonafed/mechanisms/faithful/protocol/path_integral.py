"""What a function has changed on the way between two models, from slopes at nodes (theory C9).

With d = w - W and phi(t) = grad f(W + t d)·d, f(w) - f(W) is the integral of phi over [0, 1]. An agent is
sent W, w and nodes t and answers the numbers phi_j(t); a payment is made of their sum over j != k.

**Lemma.** Let phi increase and |phi''| <= R phi'. On a piece of length h in which phi rises by D, the
trapezoid rule errs by at most D h min(R h/12, 1/2) (theory C9.4).

Of equal pieces, N times that is known before anybody is asked, as phi(0) and phi(1) follow from gradients
that were reported: so one request with enough nodes suffices. Eight further nodes are those of Gauss and
Legendre: their value has no certificate, and is reported beside the other.

**What an honest answer is.** phi_j(t) - mu |d|^2 t is the slope of a convex, (L_g - mu)-smooth part with
|psi''| <= R psi'. So between nodes a < b

    mu |d|^2 (b - a) <= phi_j(b) - phi_j(a) <= L_g |d|^2 (b - a),

the slopes psi' of neighbouring pieces differ by a factor of e^{R (c - a)} at most, c the end of the second,
and at t = 0 and 1 the answer is the gradient that was reported for W and w, times d. Numbers that are
computed to a relative accuracy tau are within tau S |d| of these, S the largest B + L_g |w| on the way; as
for gradients twice that is allowed for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import UnusableReport
from bonafed.learning.problems.agreed import Agreed

MOST_PIECES = 4096
_GAUSS = 8
_AT, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(_GAUSS)
_GAUSS_NODES = (_AT + 1) / 2


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Equal pieces, and the nodes of Gauss and Legendre between."""

    pieces: int

    @property
    def all(self) -> Floats:
        """The nodes of both rules, increasing."""
        return np.sort(np.concatenate([self._ends, _GAUSS_NODES]))

    @property
    def _ends(self) -> Floats:
        return np.arange(self.pieces + 1) / self.pieces

    def ends(self, slopes: Floats) -> Floats:
        """(m, N + 1) the slopes (m, t) at the ends of the pieces."""
        return np.asarray(slopes[:, np.searchsorted(self.all, self._ends)])

    def trapezoid(self, slopes: Floats) -> Floats:
        """(m,) the integrals by the trapezoid rule."""
        at = self.ends(slopes)
        return np.asarray((at[:, :-1] + at[:, 1:]).sum(1) / (2 * self.pieces))

    def gauss(self, slopes: Floats) -> Floats:
        """(m,) the integrals by Gauss and Legendre."""
        at = slopes[:, np.searchsorted(self.all, _GAUSS_NODES)]
        return np.asarray((at * (_GAUSS_WEIGHTS / 2)).sum(1))

    def error(self, slopes: Floats, bend: Floats, rounding: Floats | float = 0.0) -> Floats:
        """(m,) the bound of the lemma on the trapezoid's error; `bend` (m,) is R.

        `rounding` (m,) is how far the slopes are from the truth at most: so is their mean, and the rise is
        within twice that.
        """
        at = self.ends(slopes)
        return rounding + quadrature_bound(self.pieces, at[:, -1] - at[:, 0] + 2 * rounding, bend)


def quadrature_bound(pieces: int, rise: Floats, bend: Floats) -> Floats:
    """(m,) the lemma for equal pieces, where phi rises by so much in all."""
    h = 1 / pieces
    return np.asarray(np.maximum(rise, 0.0) * h * np.minimum(bend * h / 12, 0.5))


def nodes_for(rise: Floats, bend: Floats, allowed: Floats) -> Nodes:
    """As many pieces as bring the bound of the lemma down to what is allowed (m,), if not too many."""
    with np.errstate(invalid="ignore"):  # no rise and R unknown is 0 times inf: one piece is enough
        by_bend = np.sqrt(np.maximum(rise, 0.0) * bend / (12 * allowed))
        by_rise = np.maximum(rise, 0.0) / (2 * allowed)
    needed = math.ceil(min(float(np.max(np.fmin(by_bend, by_rise), initial=1.0)), MOST_PIECES))
    short = bool((quadrature_bound(needed, rise, bend) > allowed).any())  # by rounding
    return Nodes(needed + 1 if short and needed < MOST_PIECES else needed)


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """What is known of an agent's slopes before it answers, on each of m ways."""

    squares: Floats  # (m,) |d|^2
    bend: Floats  # (m,) R
    scale: Floats  # (m,) S, the largest B + L_g |w| on the way
    begins: Floats  # (m,) grad F_j(W)·d as reported; NaN if it was not
    ends: Floats  # (m,) grad F_j(w)·d as reported


def require_slopes(problem: Agreed, agent: int, way: Way, nodes: Floats, slopes: Floats) -> None:
    """Raises `UnusableReport` if no honest agent answers these slopes (m, t)."""
    lengths = np.sqrt(way.squares)
    allowed = 2 * problem.precision * way.scale * lengths  # of one slope
    for name, at, reported in (("first", 0, way.begins), ("last", -1, way.ends)):
        off = np.abs(slopes[:, at] - reported)
        if (off > 2 * allowed).any():  # NaN: nothing was reported
            i = int(np.argmax(np.nan_to_num(off - 2 * allowed, nan=-np.inf)))
            text = f"a slope of {slopes[i, at]:.6g} at the {name} node, where it reported {reported[i]:.6g}"
            raise UnusableReport(agent, text)
    steps, rises = np.diff(nodes), np.diff(slopes, axis=1)
    least = problem.regulariser * way.squares[:, None] * steps - 2 * allowed[:, None]
    most = problem.smoothness * way.squares[:, None] * steps + 2 * allowed[:, None]
    if (rises < least).any() or (rises > most).any():
        i, at = _worst(np.maximum(least - rises, rises - most))
        text = (
            f"slopes that change by {rises[i, at]:.3g} from t = {nodes[at]:.4g} to {nodes[at + 1]:.4g}, "
            f"where at least {least[i, at]:.3g} and at most {most[i, at]:.3g} is possible"
        )
        raise UnusableReport(agent, text)
    _require_smooth(problem, agent, way, nodes, rises, allowed)


def _require_smooth(
    problem: Agreed, agent: int, way: Way, nodes: Floats, rises: Floats, allowed: Floats
) -> None:
    """Neighbouring pieces: their mean slopes without mu differ by a factor e^{R (c - a)} at most."""
    steps = np.diff(nodes)
    known = np.isfinite(way.bend)
    if steps.size < 2 or not known.any():
        return
    slope = rises[known] / steps - problem.regulariser * way.squares[known, None]
    doubt = 2 * allowed[known, None] / steps
    factor = np.exp(np.minimum(way.bend[known, None] * (steps[:-1] + steps[1:]), 700.0))
    for one, other in ((slice(None, -1), slice(1, None)), (slice(1, None), slice(None, -1))):
        most = factor * np.maximum(slope[:, other] + doubt[:, other], 0.0) + doubt[:, one]
        if (slope[:, one] > most).any():
            i, at = _worst(slope[:, one] - most)
            text = (
                f"slopes that bend near t = {nodes[at + 1]:.4g} from {slope[i, at]:.3g} to "
                f"{slope[i, at + 1]:.3g}, faster than its loss can"
            )
            raise UnusableReport(agent, text)


def _worst(excess: Floats) -> tuple[int, int]:
    i, at = np.unravel_index(np.argmax(excess), excess.shape)
    return int(i), int(at)
