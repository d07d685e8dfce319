"""Batch, steps and rate of private training, from public numbers only (theory P9).

N clients hold n_k records each and count p_k in the model; R rounds, P weights of the model, clip C, the
promise (epsilon_k, delta) to every record, sigma_1 = noise_multiplier(epsilon, delta) of a single release.

    (11.1)  a^2 = P sum over k of (p_k 2 sigma_1(epsilon_k)/n_k)^2     noise at every client
            a^2 = P max over k of (p_k 2 sigma_1(epsilon_k)/n_k)^2     noise once on the sum
    (11.2)  batch: all records of each client
    (11.3)  steps of a round  E = min(5, max(1, ceil(10/(4 a R)))),    on the sum 1
    (11.4)  rate = min(4/C, 10/(a C E R))

a is the noise of the whole run over the furthest that clipped gradients can take the model, whatever R, E
and the rate are. What counts is the sum of the rates of all steps: for a convex loss whose minimum is at
distance D the loss is at most D^2/tau + tau (C a)^2 above the least one at the sum tau, which is best at
D/(C a). D and the largest stable rate are not known before the run; D = 10 and rates up to 4/C were good on
two data sets (measured, theory P9). E and the rate follow: as few steps as reach that sum, five a round at
most, since clients that take more drift apart where their data differ.

Where the batches are stated and hold d_k < n_k records, a pass has n_k/d_k steps and costs a record what a
step on all records does: a^2 has n_k d_k in the place of n_k^2, and E counts passes. Batches drawn by coins
move the sum half as far, as their promise is for adding or removing a record, and their noise over a run
hardly depends on their size (amplification): a is half that of all records.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.learning.privacy.calibration import EPSILONS, Calibration, noise_multiplier
from bonafed.learning.privacy.ledger import Batches

REACH = 10.0  # sum of the rates times a C: how far a good model is
STEADY = 4.0  # rate times C: what was still stable where it was tried
MOST_STEPS = 5  # of a client in a round
DWARFED = 1 / 3  # a: beyond it, noise hides most of what could be learned, and no rule helps


def noise_share(
    weights: ArrayLike,
    epsilon: ArrayLike,
    sizes: ArrayLike,
    delta: float,
    parameters: int,
    *,
    on_sum: bool = False,
    batch_size: int | None = None,
    batches: Batches = "passes",
    calibration: Calibration = "exact",
) -> float:
    """(11.1): a, for (N,) weights p_k, promises and records; one number stands for all clients.

    >>> round(noise_share([0.1] * 10, 1.0, 144, 1e-5, 650), 2)
    0.42
    >>> round(noise_share([0.1] * 10, 1.0, 144, 1e-5, 650, batch_size=36), 2)
    0.84
    """
    p = checks.vector("weights", weights)
    promised = np.broadcast_to(np.asarray(epsilon, dtype=np.float64), p.shape)
    held = np.broadcast_to(np.asarray(sizes, dtype=np.float64), p.shape)
    there = (p > 0) & (promised > 0) & (held > 0)  # nobody else releases anything
    if not there.any():
        return 0.0
    p, held = p[there], held[there]
    different, which = np.unique(np.clip(promised[there], *EPSILONS), return_inverse=True)
    sigma = np.array([noise_multiplier(each, delta, 1, calibration) for each in different.tolist()])[which]
    if batches == "poisson":
        moved = p * sigma / held
    else:
        batch = held if batch_size is None else np.minimum(batch_size, held)
        moved = p * 2 * sigma / np.sqrt(held * batch)
    # scaled by the largest, whose square may be beyond double precision
    largest = float(moved.max())
    spread = 1.0 if on_sum else math.sqrt(float(np.sum((moved / largest) ** 2)))
    return math.sqrt(parameters) * largest * spread


def steps_for(share: float, rounds: int, *, on_sum: bool = False) -> int:
    """(11.3): E; as few steps as reach the best sum of rates at the largest stable rate.

    >>> steps_for(0.026, 20), steps_for(0.13, 20), steps_for(0.026, 20, on_sum=True)
    (5, 1, 1)
    """
    if on_sum:
        return 1
    most = STEADY * share * rounds * MOST_STEPS
    return MOST_STEPS if most <= REACH else max(1, math.ceil(REACH / (STEADY * share * rounds)))


def rate_for(share: float, clip: float, steps: float) -> float:
    """(11.4): the rate of every step, for so many steps of a client over the run, E R.

    >>> round(rate_for(0.13, 1.0, 20), 2), rate_for(0.13, 0.5, 1)
    (3.85, 8.0)
    """
    best = share * steps  # over 10/C
    return STEADY / clip if STEADY * best <= REACH else REACH / (best * clip)
