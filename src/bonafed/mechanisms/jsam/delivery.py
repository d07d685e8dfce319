"""Paid for the epsilon that was given: what a client is owed that did not answer whenever it was drawn.

The schedule is fixed beforehand (theory B5): client k is drawn T_k times, and its noise makes T_k releases
together (epsilon_k, delta)-private. Of these it delivers g_k, which together are (eps(g), delta)-private
for a smaller eps(g), exactly, as g Gaussian releases are one of less noise. It is paid (theory B11)

    (1)  lambda_k pi_k,   lambda_k = eps(g_k)/epsilon_k  in [0, 1],
    (2)  all of pi_k if it delivered whenever it was drawn; so also if it never was: the payment buys the
         right to epsilon_k,
    (3)  rounded as ever, never below what lambda_k epsilon_k costs it by its own report.

lambda depends on epsilon_k, delta, g_k and T_k alone, so that anybody can compute it again; not on which
releases are missing. It is no share of rounds: the first releases give away more than later ones. With
noise on the sum (theory B10) T_k is the number of rounds, and the same holds of its calibration.

Truth stays best: whoever states z and delivers g is left with lambda (pi(z) - c epsilon(z)), which is at
most max(0, U(z; c)), hence at most U(c; c) >= 0: what it has from the truth and all deliveries.
"""

from __future__ import annotations

from functools import lru_cache

from bonafed.learning.privacy import noise_multiplier, spent_epsilon


@lru_cache(maxsize=4096)  # many clients are alike
def given_share(epsilon: float, delta: float, delivered: int, asked: int) -> float:
    """(1): the share of epsilon that so many releases give away at the noise of all that were asked for.

    >>> [round(given_share(1.0, 1e-5, count, 10), 3) for count in (0, 1, 5, 9, 10)]
    [0.0, 0.285, 0.684, 0.944, 1.0]
    """
    if delivered == asked:  # (2)
        return 1.0
    if not delivered or not epsilon:
        return 0.0
    noise = noise_multiplier(epsilon, delta, asked)
    return min(1.0, spent_epsilon(noise, delivered, delta) / epsilon)
