"""Ways to cheat, before they are tried: about the gradient, about the searches, about the way (theory C9).

What an agent may aim at when payments are made in few exchanges:

    the optimiser   a curvature that is too large or negative, answers that differ between the trials of one
                    message, a sign that changes at every request so that no step is accepted, a field that
                    passes all checks and is the gradient of nothing
    the phases      one thing in training and another in the payments: another multiple, another's data
    the segment     slopes inflated, not monotone, shifted, or those of another loss with the same ends

`Trick.loss` says whose gradients an agent's *reports* are, where they are somebody's: the payments of the
others can then be compared with exact ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.learning.problems.agreed import Agreed
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.adversaries.agents import Agent, OnTheWay, later, truthful


class Trick(NamedTuple):
    """A way to cheat, before it is tried."""

    name: str
    make: Callable[[], Agent]  # a fresh agent: some remember
    factor: float | None = None  # of the gradient, if that is all the deviation is
    honest_reports: bool = False  # whether its gradients are true, and only its slopes are not

    @property
    def loss(self) -> float | None:
        """The multiple of its loss that its reports are gradients of; None: they are not."""
        return 1.0 if self.honest_reports else self.factor


def aimed(problem: Agreed, training: int, seed: int) -> list[Trick]:
    """Tricks against the protocol by exchanges, whose training takes so many with the truth."""
    steep, third = problem.smoothness - problem.regulariser, max(1, training // 3)
    return [
        Trick("a curvature of 1000 L_g", partial(cheats.bend, 1000 * problem.smoothness)),
        Trick("a curvature of L_g more", partial(cheats.bend, steep)),
        Trick("a negative curvature", partial(cheats.bend, -2 * problem.regulariser)),
        Trick("a field that is no gradient", partial(cheats.circulate, steep / 50)),
        Trick("a strong field that is no gradient", partial(cheats.circulate, 10 * steep)),
        Trick("3 x at all trials but the first", partial(cheats.per_trial, 3.0)),
        Trick("its sign changes at every request", partial(cheats.alternate, -1.0)),
        Trick("noise from the third exchange on", lambda: later(truthful, _noisy(seed), 2)),
        Trick("1, then 2 x in training", lambda: later(truthful, cheats.amplify(2.0), third)),
        Trick("3 x in training, 1 x later", lambda: later(cheats.amplify(3.0), truthful, training)),
        Trick("1 x in training, 3 x later", lambda: later(truthful, cheats.amplify(3.0), training)),
        Trick("silent on the way", partial(_on_the_way, lambda _t, s: s * np.nan), honest_reports=True),
        *(Trick(name, partial(_on_the_way, lie), honest_reports=True) for name, lie in _SLOPES.items()),
        Trick("slopes of another loss", partial(_on_the_way, _straighter)),  # not its own: it passes
    ]


def _noisy(seed: int) -> Agent:
    return cheats.add_noise(0.5, np.random.default_rng(seed))


def _on_the_way(lie: Callable[[Floats, Floats], Floats]) -> Agent:
    return OnTheWay(truthful, lie)


def _straighter(nodes: Floats, slopes: Floats) -> Floats:
    """Half-way to the straight line between the ends: those of a loss as agreed on, but not of its own."""
    line = slopes[:, :1] + (slopes[:, -1:] - slopes[:, :1]) * nodes
    return np.asarray((slopes + line) / 2)


def _inner(nodes: Floats) -> Floats:
    """0 at both ends of the way, 1 in its middle."""
    return 4 * nodes * (1 - nodes)


_SLOPES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "slopes times 3": lambda _t, s: 3 * s,
    "slopes times 1/3": lambda _t, s: s / 3,
    "slopes raised between the ends": lambda t, s: s + _inner(t) * np.abs(s).max(1, keepdims=True),
    "slopes that fall": lambda _t, s: s[:, ::-1],
    "slopes of minus its loss": lambda _t, s: -s,
    "slopes shifted": lambda _t, s: s + np.abs(s).max(1, keepdims=True),
    "constant slopes": lambda _t, s: np.broadcast_to(s.mean(1, keepdims=True), s.shape).copy(),
    "slopes that jump": lambda t, s: np.where(t < 0.5, s[:, :1], s[:, -1:]),
    "slopes that bend late": lambda t, s: s[:, :1] + (s[:, -1:] - s[:, :1]) * t**8,
}
