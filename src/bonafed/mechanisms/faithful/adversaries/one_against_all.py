"""One agent against the protocol by exchanges: what it ends with, and do certificates hold?

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
from typing import NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import BadReport, Diverged
from bonafed.learning.problems.convex import Ints, Problem
from bonafed.learning.problems.minima import minima
from bonafed.mechanisms.faithful.exchanges import Exchanges
from bonafed.mechanisms.faithful.outcome import Outcome
from bonafed.mechanisms.faithful.protocol import outcome_of

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


def run_out(problem: Problem, course: Exchanges) -> Outcome:
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


def _left_out(problem: Problem, outcome: Outcome, bad: BadReport, outside: float, exchanges: int) -> Played:
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
    found = minima(problem, mixes, model, _EXACT)
    return np.asarray((mixes * (problem.losses(model[None]) - problem.losses(found))).sum(1))


def _outside(problem: Problem, agent: int, outcome: Outcome, loss: float | None) -> float:
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
