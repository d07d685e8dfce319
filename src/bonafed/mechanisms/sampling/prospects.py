"""What a contract means for one participant, before it signs: what it would earn, and what a lie would.

A client of cost c that states z is in each of R rounds with probability q(z) and is paid r(z) each time;
what it is left with over the run is (r(z) - c) K with K Binomial(R, q(z)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import Menu, Outcomes
from bonafed.mechanisms.sampling.spend import CostLottery, spend_distribution

_REPORTS = 4001  # reports tried, evenly from 0 to the highest cost, besides the levels


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a participant of a given cost can expect of a menu over a run; money is over the run."""

    cost: float  # money per participation
    admitted: bool  # whether stating it leads to terms
    probability: float  # of being sampled in a round; 0 if not admitted
    payment: float  # money per participation; 0 if not admitted
    income: float  # mean of all payments
    income_sd: float  # their standard deviation over the coins
    income_low: float  # 1 % quantile,
    income_high: float  # ... and 99 %
    profit: float  # mean of what is left after the cost of taking part
    profit_sd: float
    lie: float | None  # the best other report found; None: all reports get the same terms
    gain: float  # what it wins on average compared with the truth; negative: it loses
    tries: int  # other reports looked at


def prospect(menu: Menu, rounds: int, cost: float) -> Prospect:
    """What a participant of this cost earns over so many rounds, and the best lie found.

    >>> from bonafed.economics import Uniform
    >>> from bonafed.mechanisms.sampling import plan
    >>> contract = plan(Uniform(0.5, 1.5), total_budget=10_000, clients=100, rounds=200)
    >>> mine = prospect(contract.menu, contract.rounds, cost=1.0)
    >>> print(f"left with {mine.profit:.2f} +- {mine.profit_sd:.2f}; the best lie gains {mine.gain:.1e}")
    left with 29.71 +- 2.92; the best lie gains -3.5e-07
    """
    c = checks.non_negative("cost", cost)
    highest = float(menu.levels()[-1])
    inside = c <= highest
    q, r = (float(x) for x in menu.price(c)) if inside else (0.0, 0.0)
    left = r - c if inside else 0.0
    lie, gain, tries = _best_lie(menu, c, q, r, highest)
    spend = spend_distribution([CostLottery(1, Outcomes(np.ones(1), np.array([q]), np.array([r])))], rounds)
    tosses = math.sqrt(rounds * q * (1 - q))
    return Prospect(
        c, inside, q, r, rounds * q * r, tosses * r, spend.quantile(0.01), spend.quantile(0.99),
        rounds * q * left, tosses * left, lie, rounds * gain, tries,
    )  # fmt: skip


def _best_lie(menu: Menu, c: float, q: float, r: float, highest: float) -> tuple[float | None, float, int]:
    """The other report of largest gain per round, the gain, and how many were tried.

    Reports that lead to the same terms as the truth do not count.
    """
    levels = menu.levels()
    between = (levels[1:] + levels[:-1]) / 2
    reports: Floats = np.unique(np.concatenate([np.linspace(0.0, highest, _REPORTS), levels, between]))
    probability, payment = menu.price(reports)
    other = (probability != q) | (payment != r)
    if not other.any():
        return None, 0.0, int(reports.size)
    gain = np.where(other, probability * (payment - c) - q * (r - c), -np.inf)
    best = int(np.argmax(gain))
    return float(reports[best]), float(gain[best]), int(reports.size)
