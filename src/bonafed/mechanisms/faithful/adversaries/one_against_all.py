"""One agent against the protocol by exchanges: the lies it may try, and what it ends with (theory C9).

A lie may aim at:

    the optimiser   a curvature that is too large or negative, answers that differ between the trials of one
                    message, a sign that changes at every request so that no step is accepted, a field that
                    passes all checks and is the gradient of nothing
    the phases      one thing in training and another in the payments: another multiple, another's data
    the segment     slopes inflated, not monotone, shifted, or those of another loss with the same ends

`Trick.loss` says whose gradients an agent's *reports* are, where they are somebody's: the payments of the
others can then be compared with exact ones.

What the liar ends with is the best that is left to it:

    the run ends with it       F_k(w) + P_k
    it is left out             F_k of the others' model, for nothing; or F_k of the last model it was sent,
                               and what it owes for that
    the run stops              nothing

Certificates are compared with exact payments: that of the liar always, as it is made of the others' true
reports; those of the others where the liar's reports are the gradients of some loss, or it was left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import BadReport, Diverged
from bonafed.learning.problems.agreed import Agreed
from bonafed.learning.problems.convex import Ints, Problem
from bonafed.learning.problems.minima import minima
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.adversaries.agents import Agent, OnTheWay, later, truthful
from bonafed.mechanisms.faithful.protocol.exchanges import Exchanges
from bonafed.mechanisms.faithful.protocol.payments import FaithfulOutcome
from bonafed.mechanisms.faithful.protocol.variants import outcome_of


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
_EXACT = 1e-10  # gradient norm of the minima that payments are compared with


class Played(NamedTuple):
    """How the protocol ended for an agent that deviates."""

    loss: float  # F_k of the model it is left with; NaN if there is none
    payment: float  # what it owes for that
    doubt: float  # how far that payment may be below the exact one
    outside: float  # how far some payment is outside its certificate; negative: inside, by so much
    exchanges: int
    end: str = ""  # what happened, if it did not come to its regular end
    where: str = ""  # the agent was recognised there


def run_out(problem: Problem, course: Exchanges) -> FaithfulOutcome:
    """The protocol to its end."""
    at = course.begin()
    while not at.done:
        at = course.advance(at)
    return outcome_of(at, problem.losses(at.model[None])[0])


def play(problem: Problem, agent: int, course: Exchanges, loss: float | None) -> Played:
    """Run the protocol; `loss` is the multiple of its loss that the agent's gradients belong to, if any."""
    at = course.begin()
    try:
        while not at.done:
            at = course.advance(at)
    except Diverged as error:
        stopped = f"the run stops in exchange {at.exchanges + 1}: {str(error).partition(':')[0]}"
        return Played(math.nan, math.nan, 0.0, -math.inf, at.exchanges, stopped)
    outcome = outcome_of(at, problem.losses(at.model[None])[0])
    outside = _outside(problem, agent, outcome, loss)
    if not at.bad_reports:
        own = float(outcome.losses[agent])
        amount, residual = float(outcome.payments.amount[agent]), float(outcome.payments.error[agent])
        return Played(own, amount, residual + outcome.integration_error, outside, at.exchanges)
    (bad,) = at.bad_reports
    return _left_out(problem, outcome, bad, outside, at.exchanges)


def _left_out(
    problem: Problem, outcome: FaithfulOutcome, bad: BadReport, outside: float, exchanges: int
) -> Played:
    """The better of the others' model for nothing, and the last one it was sent for what that costs."""
    (out,) = outcome.left_out
    free, kept = problem.losses(np.stack([outcome.model, bad.model]))[:, bad.agent].tolist()
    text = f"in {bad.where} it sends {bad.problem}; it is left out"
    if kept + out.due < free:
        text += f", and does best to keep the last model it was sent, for {out.due:.4f}"
        return Played(kept, out.due, 0.0, outside, exchanges, text, bad.where)
    text += ", has the others' model and owes nothing"
    return Played(free, 0.0, 0.0, outside, exchanges, text, bad.where)


def lost_by_others(problem: Problem, reported: Floats, model: Floats, agents: Ints) -> Floats:
    """(a,) what the others lose by the model against the best without each of the agents, exactly.

    `reported` (K,) is the mix of losses that all reports together are the gradients of.
    """
    mixes = np.where(np.arange(problem.agents) == agents[:, None], 0.0, reported)
    best_models = minima(problem, mixes, model, _EXACT)
    return np.asarray((mixes * (problem.losses(model[None]) - problem.losses(best_models))).sum(1))


def _outside(problem: Problem, agent: int, outcome: FaithfulOutcome, loss: float | None) -> float:
    """The largest excess of a payment over what its certificate (C9.6) allows, on either side."""
    p, reported, compared = problem.weights, problem.weights.copy(), np.arange(problem.agents)
    if outcome.left_out:
        reported[agent] = 0.0
        p = reported = reported / reported.sum()
        compared = np.delete(compared, agent)
    elif loss is None or loss <= 0:  # of the others' payments nothing exact is known
        compared = np.array([agent])
    else:
        reported[agent] *= loss
    exact = lost_by_others(problem, reported, outcome.model, compared) / p[compared]
    amount, residual = outcome.payments.amount[compared], outcome.payments.error[compared]
    return float(np.maximum(amount - exact, exact - amount - residual).max() - outcome.integration_error)
