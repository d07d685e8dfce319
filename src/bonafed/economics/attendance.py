"""How many participants a round has, where chance decides it: known before the first round.

    a coin each       the number is Poisson-binomial: a sum of independent coins of different chances
    d draws           with replacement, from one distribution: the number of different clients among them

Both are exact. Coins: polynomials 1 - q + q x are multiplied in pairs, up to the power that is asked for;
all terms are positive, so nothing cancels. Draws: were their number Poisson of mean d, the counts of the
clients would be independent and Poisson, of means d p_n; given that they add up to d, they are those of d
draws.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats


def participant_counts(chances: ArrayLike, most: int, draws: int | None = None) -> Floats:
    """(most + 1,) the probability that a round has 0, 1, ..., `most` different participants.

    `chances` (N,) are those of each client's coin, or of being drawn in one of so many `draws`; if these
    are all 0, nobody is drawn.

    >>> participant_counts([0.5, 0.5, 1.0], 3).tolist()
    [0.0, 0.25, 0.5, 0.25]
    >>> participant_counts([0.5, 0.5], 2, draws=2).round(12).tolist()
    [0.0, 0.5, 0.5]
    """
    q = checks.vector("chances", chances, sign="non-negative")
    size = checks.whole("most", most, at_least=0) + 1
    if draws is None or not q.any():
        return _of_coins(np.minimum(q, 1.0), size)
    return _of_draws(q / q.sum(), size, checks.whole("draws", draws))


def _of_coins(q: Floats, size: int) -> Floats:
    powers = np.zeros((max(1, q.size), max(2, size)))
    powers[:, 0] = 1.0
    powers[: q.size, 0], powers[: q.size, 1] = 1 - q, q
    powers = powers[:, :size]
    while len(powers) > 1:
        if len(powers) % 2:
            one = np.zeros((1, size))
            one[0, 0] = 1.0
            powers = np.concatenate([powers, one])
        left, right = powers[::2], powers[1::2]
        powers = np.stack([np.sum(left[:, : k + 1] * right[:, k::-1], axis=1) for k in range(size)], axis=1)
    return np.asarray(powers[0])


def _of_draws(p: Floats, size: int, draws: int) -> Floats:
    counts = np.arange(draws + 1)
    factorials = np.array([math.lgamma(k + 1) for k in counts.tolist()])
    ways = np.zeros((size, draws + 1))  # of j different clients, drawn k times together
    ways[0, 0] = 1.0
    for mean in (p[p > 0] * draws).tolist():
        times = np.exp(counts * math.log(mean) - mean - factorials)
        drawn = np.concatenate([[0.0], times[1:]])
        following = ways * times[0]
        for count, row in enumerate(ways[:-1], 1):
            following[count] += np.convolve(row, drawn)[: draws + 1]
        ways = following
    all_together = math.exp(draws * math.log(draws) - draws - factorials[-1])
    return np.asarray(ways[:, -1] / all_together)
