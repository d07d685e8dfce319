"""Priors with finitely many costs: known, or estimated from past reports.

With costs c_1 < ... < c_K, masses f_k and F_k = f_1 + ... + f_k (theory A2, equation (14)):

    phi_1 = c_1,   phi_k = c_k + (c_k - c_{k-1}) F_{k-1} / f_k,

and a report between two costs is rounded UP to the next one, which is what makes the payments
(16) equal to the integral form (3).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.priors import IronedInterval, Prior, Spelled
from bonafed.errors import InvalidValue

Estimator = Literal["plus", "mle"]


def virtual_costs(costs: Floats, masses: Floats) -> Floats:
    """Equation (14): phi_k of sorted costs."""
    below = np.cumsum(masses)[:-1]  # F_{k-1}
    phi = costs.copy()
    phi[1:] += np.diff(costs) * below / masses[1:]
    return phi


def pool(phi: Floats, masses: Floats) -> Floats:
    """Ironing (theory A3): the isotonic regression of phi with weights f is its optimal pooling."""
    if phi.size < 2 or np.all(phi[1:] >= phi[:-1]):
        return phi
    from scipy.optimize import isotonic_regression  # heavy import, only irregular priors need it

    return np.asarray(isotonic_regression(phi, weights=masses).x)


class FinitePrior(Prior):
    """A prior on finitely many costs; subclasses hold or estimate `costs` and `masses`."""

    __slots__ = ()

    costs: Floats  # (K,) strictly increasing, money per participation
    masses: Floats  # (K,) probabilities, > 0, sum 1

    def index(self, c: ArrayLike) -> NDArray[np.intp]:
        """k(c) = min{k: c_k >= c}: the level a report is rounded up to (K where above `high`)."""
        return np.asarray(np.searchsorted(self.costs, np.asarray(c, dtype=np.float64)))

    def cdf(self, c: ArrayLike) -> Floats:
        cost = np.asarray(c, dtype=np.float64)
        upto = np.searchsorted(self.costs, cost, side="right")
        return np.concatenate([[0.0], self._cumulative()])[upto]

    def quantile(self, u: ArrayLike) -> Floats:
        level = np.asarray(u, dtype=np.float64)
        return self.costs[np.searchsorted(self._cumulative(), level)]

    @property
    def mean(self) -> float:
        return expectation(self.masses, self.costs)

    def virtual_cost(self, c: ArrayLike) -> Floats:
        return virtual_costs(self.costs, self.masses)[self.index(c)]

    def ironed_virtual_cost(self, c: ArrayLike) -> Floats:
        return self.ironed_virtual_costs()[self.index(c)]

    def ironed_virtual_costs(self) -> Floats:
        """(K,) the ironed virtual cost at each support point."""
        return pool(virtual_costs(self.costs, self.masses), self.masses)

    @property
    def ironed_intervals(self) -> tuple[IronedInterval, ...]:
        phi, ironed = virtual_costs(self.costs, self.masses), self.ironed_virtual_costs()
        starts = np.concatenate([[0], np.flatnonzero(np.diff(ironed) > 0) + 1])
        ends = np.concatenate([starts[1:] - 1, [ironed.size - 1]])
        return tuple(
            IronedInterval(float(self.costs[i]), float(self.costs[j]), float(ironed[i]))
            for i, j in zip(starts, ends, strict=True)
            if np.any(np.diff(phi[i : j + 1]) < 0)
        )

    @abstractmethod
    def _cumulative(self) -> Floats:
        """(K,) F_k, with F_K exactly 1."""


def _cumulative(masses: Floats) -> Floats:
    total = np.cumsum(masses)
    total[-1] = 1.0
    return total


@final
@dataclass(frozen=True, slots=True, eq=False, init=False)
class Discrete(FinitePrior):
    """Known costs with known weights.

    >>> Discrete([0.4, 0.7, 1.0], [0.5, 0.25, 0.25]).virtual_cost([0.4, 0.7, 1.0])
    array([0.4, 1.3, 1.9])
    """

    kind: ClassVar[str] = "discrete"
    fields: ClassVar[Mapping[str, str]] = {"costs": "costs", "weights": "masses"}
    spelled: ClassVar[Spelled | None] = Spelled("COST,WEIGHT[,COST,WEIGHT]...")

    costs: Floats
    masses: Floats
    low: float
    high: float

    def __init__(self, costs: ArrayLike, weights: ArrayLike) -> None:
        values = checks.vector("costs", costs)
        masses = checks.shares("weights", weights, length=values.size)
        if np.any(np.diff(values) <= 0):
            raise InvalidValue("costs", "must be strictly increasing", _disorder(values))
        if values[-1] <= 0:
            raise InvalidValue("highest cost", "must be positive", float(values[-1]))
        object.__setattr__(self, "costs", values)
        object.__setattr__(self, "masses", masses)
        object.__setattr__(self, "low", float(values[0]))
        object.__setattr__(self, "high", float(values[-1]))

    @classmethod
    def from_numbers(cls, *numbers: float) -> Self:
        if len(numbers) % 2 or not numbers:
            raise InvalidValue("discrete", "must give cost,weight for each cost", len(numbers))
        return cls(numbers[0::2], numbers[1::2])

    def _cumulative(self) -> Floats:
        return _cumulative(self.masses)


@final
@dataclass(frozen=True, slots=True, eq=False, init=False)
class Empirical(FinitePrior):
    """A prior estimated from past costs; `highest` is the highest cost the server admits.

    `plus` (default, theory A6): n samples and one more atom at `highest`, each of mass 1/(n+1);
    the next cost falls into each of these round-up cells with probability 1/(n+1).
    `mle`: mass 1/n per sample, the largest moved up to `highest` so that nobody is left out.
    """

    kind: ClassVar[str] = "empirical"
    fields: ClassVar[Mapping[str, str]] = {
        "samples": "samples",
        "highest": "high",
        "estimator": "estimator",
    }

    samples: Floats  # (n,) the past costs, sorted
    estimator: Estimator
    costs: Floats
    masses: Floats
    low: float
    high: float

    def __init__(self, samples: ArrayLike, highest: float, estimator: Estimator = "plus") -> None:
        top = checks.positive("highest", highest)
        past = np.sort(checks.vector("samples", samples))
        checks.literal("estimator", estimator, Estimator)
        if past[-1] > top:
            raise InvalidValue("samples", f"must not exceed highest = {top:g}", float(past[-1]))
        costs, masses = estimate(past, top, estimator)
        past.setflags(write=False)
        object.__setattr__(self, "samples", past)
        object.__setattr__(self, "estimator", estimator)
        object.__setattr__(self, "costs", costs)
        object.__setattr__(self, "masses", masses)
        object.__setattr__(self, "low", float(costs[0]))
        object.__setattr__(self, "high", top)

    def _cumulative(self) -> Floats:
        return _cumulative(self.masses)


def estimate(sorted_reports: Floats, highest: float, estimator: Estimator) -> tuple[Floats, Floats]:
    """Support and masses estimated from sorted reports (theory A6); no reports: all at `highest`."""
    if estimator == "plus" or sorted_reports.size == 0:
        values = np.append(sorted_reports, highest)
    else:
        values = np.where(sorted_reports == sorted_reports[-1], highest, sorted_reports)
    first = np.concatenate([[True], values[1:] > values[:-1]])
    starts = np.flatnonzero(first)
    counts = np.diff(np.append(starts, values.size))
    return values[starts], counts / values.size


def _disorder(values: Floats) -> str:
    where = int(np.flatnonzero(np.diff(values) <= 0)[0])
    return f"{values[where]:g} before {values[where + 1]:g}"


def expectation(masses: Floats, values: Floats) -> float:
    """sum of masses * values.

    Not a dot product: for long vectors that may run on several threads, and then the last digits, and with
    them a published contract, would depend on the number of cores.
    """
    return float(np.sum(masses * values))
