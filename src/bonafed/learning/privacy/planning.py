"""How long to train in noise: rounds, rate and batch of a private run from the noise it will have.

N clients of n records each, T rounds of one step on all records at rate eta, clip C, P weights. The noise
that T releases need is sqrt(T) times that of one, so that of the mean of a round has the squared norm

    T V,    sqrt(V) = C a,    a = 2 sigma_1 sqrt(P/N)/n,    sigma_1 = noise_multiplier(epsilon, delta).

For a convex loss of smoothness L, at distance D from its minimum, and eta <= 1/(2L) (theory P9),

    E[mean loss] - least loss <= D^2/tau + tau V,    tau = eta T:

rounds and rate count through their product alone, which is best at D/sqrt(V). Batches of d < n have n/d
for V, hence batches of all records. D and L are not known before the run; in units of the clip they are
about D = 10/C, and rates up to 3/C^2 are stable; a third of that is taken (measured, theory P9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bonafed.learning.privacy.gaussian import noise_multiplier

REACH = 10.0  # D times clip, in units of loss: how far a good model is
STEADY = 1.0  # rate times clip^2: a third of what was still stable where it was tried
MOST_ROUNDS = 1000  # more would change nothing but the time it takes
DWARFED = 1 / 3  # a: beyond it, noise hides most of what could be learned, whatever rounds and rate are


@dataclass(frozen=True, slots=True)
class PrivatePlan:
    """What to do with a promise."""

    share: float  # a: noise of the whole run over the furthest that clipped gradients can take the model
    noise_multiplier: float  # of every release
    noise: float  # expected norm of the noise in the mean gradient of a round; its signal is at most clip
    rounds: int
    learning_rate: float
    batch_size: int

    @property
    def dwarfed(self) -> bool:
        """Whether noise hides most of what could be learned."""
        return self.share > DWARFED


def noise_share(
    records: int, clients: int, epsilon: float, delta: float, parameters: int, batch_size: int | None = None
) -> float:
    """a, of batches of all records or of `batch_size`.

    >>> round(noise_share(144, 10, 1.0, 1e-5, 650), 2), round(noise_share(144, 10, 1.0, 1e-5, 650, 36), 2)
    (0.42, 0.84)
    """
    batch = min(batch_size or records, records)
    return 2 * noise_multiplier(epsilon, delta) * math.sqrt(parameters / (clients * records * batch))


def planned(
    records: int, clients: int, epsilon: float, delta: float, clip: float, parameters: int
) -> PrivatePlan:
    """Rounds, rate and batch; where tau is short of one steady step, one shorter step."""
    share = noise_share(records, clients, epsilon, delta, parameters)
    time = REACH / (share * clip**2)  # tau
    rounds = min(MOST_ROUNDS, max(1, math.ceil(time * clip**2 / STEADY)))
    return PrivatePlan(
        share,
        noise_multiplier(epsilon, delta, rounds),
        share * clip * math.sqrt(rounds),
        rounds,
        min(STEADY / clip**2, time / rounds),
        records,
    )
