"""The smallest federation in which what sampling and memory do to training can be computed exactly (A5).

N clients want different values of one weight: update_n = -a (w - b_n), with b_n of mean 0 and mean square
`spread`. Each is in a round with probability q. With v_n = a b_n and z_n = y_n - v_n, and all means over
clients, the second moments

    E w^2,    E w mean(z),    E mean(z^2),    E mean(v z)

follow from those of the round before by a linear map: the change is unbiased, E[w' | past] = (1 - a) w, and
its variance is (1 - q)/(q N) mean((-a w - g z_n + (1 - g) v_n)^2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bonafed.checks import Floats


@dataclass(frozen=True, slots=True)
class QuadraticFederation:
    """N clients with losses a (w - b_n)^2/2, and a step of rate 1."""

    clients: int  # N
    probability: float  # q, of being in a round
    pull: float  # a: how much of the way to b_n an update goes
    spread: float  # mean of b_n^2; the b_n sum to 0, so that w = 0 is best

    def _map(self, g: float) -> tuple[Floats, Floats]:
        """A and c of moments' = A moments + c."""
        q, a, n = self.probability, self.pull, self.clients
        noise, shared = (1 - q) / (q * n), (1 - q) / n
        matrix = np.array([
            [(1 - a) ** 2 + noise * a * a, 2 * noise * a * g, noise * g * g, -2 * noise * g * (1 - g)],
            [
                -(1 - a) * q * a + shared * a * a, (1 - a) * (1 - q) + shared * (1 + g) * a, shared * g,
                -shared * (1 - g),
            ],
            [q * a * a, 0.0, 1 - q, 0.0],
            [0.0, 0.0, 0.0, 1 - q],
        ])  # fmt: skip
        return matrix, np.array([noise * (1 - g) ** 2 * a * a * self.spread, 0.0, 0.0, 0.0])

    def growth(self, memory_weight: float) -> float:
        """By what factor second moments grow or fall per round in the long run; beyond 1 they explode."""
        return float(np.abs(np.linalg.eigvals(self._map(memory_weight)[0])).max())

    def errors(self, memory_weight: float, rounds: int, start: float = 0.0) -> Floats:
        """(rounds + 1,) E w^2 before the first round, from w = start, and after every round."""
        matrix, constant = self._map(memory_weight)
        wanted = self.pull**2 * self.spread  # mean of v_n^2; nothing has been received, so z_n = -v_n
        moments = np.array([start**2, 0.0, wanted, -wanted])
        found = [moments[0]]
        for _ in range(rounds):
            moments = matrix @ moments + constant
            found.append(moments[0])
        return np.array(found)
