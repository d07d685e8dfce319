"""Truncated normal priors, one or a mixture, exact in both tails.

With z_i = (c - m_i)/s_i and responsibilities omega_i (which component a cost c comes from),

    G(c)/g(c) = sum_i omega_i(c) s_i h(z_i, zl_i),   h(z, zl) = (Phi(z) - Phi(zl))/phi(z),

so that no density has to be represented where it underflows.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
import scipy  # its submodules load on first use
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.priors import ContinuousPrior, Spelled, refuse_empty
from bonafed.errors import InvalidValue

_ROOT_2PI = math.sqrt(2 * math.pi)
# Squares of standardised costs overflow where the density vanishes; what follows is zero, or refused.
_FAR_OUT = np.errstate(over="ignore", invalid="ignore", divide="ignore")
_LEGENDRE = np.polynomial.legendre.leggauss(20)
_NODES, _WEIGHTS = (_LEGENDRE[0] + 1) / 2, _LEGENDRE[1] / 2  # Gauss rule on [0, 1]


def _interval_mass(z_low: ArrayLike, z: ArrayLike) -> Floats:
    """Phi(z) - Phi(z_low) for z >= z_low, taken on the side where nothing cancels."""
    z_low, z = np.asarray(z_low), np.asarray(z)
    upper = scipy.special.ndtr(-z_low) - scipy.special.ndtr(-z)
    lower = scipy.special.ndtr(z) - scipy.special.ndtr(z_low)
    return np.where(z_low > 0, upper, lower)


def _hazard_close_to_low(z: Floats, step: Floats) -> Floats:
    """h(z, z - step) as the integral of phi(z - s)/phi(z) over [0, step]; nothing cancels."""
    s = step[..., None] * _NODES
    with np.errstate(over="ignore"):
        return np.asarray(step * (np.exp(s * (z[..., None] - s / 2)) @ _WEIGHTS))


def _mills(z: Floats) -> Floats:
    """Phi(z)/phi(z): no underflow for z << 0."""
    return np.asarray(math.sqrt(math.pi / 2) * scipy.special.erfcx(-z / math.sqrt(2)))


class _TruncatedNormals(ContinuousPrior):
    """Normal components, each with a weight, truncated to [low, high] as a whole."""

    __slots__ = ()

    @abstractmethod
    def _components(self) -> tuple[Floats, Floats, Floats]:
        """Weights, means and standard deviations, each (k,)."""

    def _standardised(self, cost: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Weights (k,), sds (k,), z of the cost (..., k) and of the lower end (k,)."""
        weights, means, sds = self._components()
        return weights, sds, (cost[..., None] - means) / sds, (self.low - means) / sds

    @_FAR_OUT
    def _total_mass(self) -> float:
        weights, _, z_high, z_low = self._standardised(np.asarray(self.high))
        return float(weights @ _interval_mass(z_low, z_high))

    @_FAR_OUT
    def pdf(self, c: ArrayLike) -> Floats:
        cost = np.asarray(c, dtype=np.float64)
        weights, sds, z, _ = self._standardised(cost)
        density = np.exp(-z * z / 2) @ (weights / sds) / (_ROOT_2PI * self._total_mass())
        return np.where((cost >= self.low) & (cost <= self.high), density, 0.0)

    @_FAR_OUT
    def cdf(self, c: ArrayLike) -> Floats:
        cost = np.clip(np.asarray(c, dtype=np.float64), self.low, self.high)
        weights, _, z, z_low = self._standardised(cost)
        return np.clip(_interval_mass(z_low, z) @ weights / self._total_mass(), 0.0, 1.0)

    @_FAR_OUT
    def hazard_term(self, c: ArrayLike) -> Floats:
        cost = np.asarray(c, dtype=np.float64)
        weights, sds, z, z_low = self._standardised(cost)
        log_weight = np.log(weights / sds)
        log_density = scipy.special.logsumexp(log_weight - z * z / 2, axis=-1, keepdims=True)
        low = np.broadcast_to(z_low, z.shape)

        def share(standardised: Floats) -> Floats:  # omega, but for where phi is taken
            return np.exp(log_weight - standardised * standardised / 2 - log_density)

        step = (cost - self.low)[..., None] / sds
        close = step * (1 + np.abs(z)) < 1.0
        near = share(z) * sds * _hazard_close_to_low(z, np.where(close, step, 0.0))
        # Phi(z) - Phi(zl) by the tail on whose side both are; the exponents stay together.
        below = sds * (_mills(np.minimum(z, 0)) * share(z) - _mills(np.minimum(low, 0)) * share(low))
        above = sds * (_mills(-np.maximum(low, 0)) * share(low) - _mills(-np.maximum(z, 0)) * share(z))
        # A component that lies in between counts with its mass: w (Phi(z) - Phi(zl)) / g.
        across = weights * _interval_mass(low, z) * _ROOT_2PI * np.exp(-log_density)
        tail = np.where(low > 0, above, np.where(z <= 0, below, across))
        return np.asarray(np.where(close, near, tail).sum(axis=-1))

    def landmarks(self) -> Floats:
        _, means, sds = self._components()
        costs = (means[:, None] + sds[:, None] * np.linspace(-9, 9, 145)).ravel()
        return np.asarray(costs[(costs > self.low) & (costs < self.high)])


@final
@dataclass(frozen=True, slots=True, init=False)
class TruncatedNormal(_TruncatedNormals):
    """A normal distribution cut to [low, high].

    `mean` and `sd` of the constructor are those before the cut; the attribute `mean` is, as for
    every prior, the expected cost.
    """

    kind: ClassVar[str] = "normal"
    fields: ClassVar[Mapping[str, str]] = {"mean": "location", "sd": "sd", "low": "low", "high": "high"}
    spelled: ClassVar[Spelled | None] = Spelled("MEAN,SD,LOW,HIGH", unbounded=2)

    location: float  # mean before the cut
    sd: float  # standard deviation before the cut, > 0
    low: float
    high: float

    def __init__(self, mean: float, sd: float, low: float, high: float) -> None:
        object.__setattr__(self, "location", checks.number("mean", mean))
        object.__setattr__(self, "sd", checks.positive("sd", sd))
        bottom, top = checks.support(low, high)
        object.__setattr__(self, "low", bottom)
        object.__setattr__(self, "high", top)
        refuse_empty(self._total_mass(), bottom, top)

    def _components(self) -> tuple[Floats, Floats, Floats]:
        return np.ones(1), np.array([self.location]), np.array([self.sd])


@final
@dataclass(frozen=True, slots=True, init=False)
class NormalMixture(_TruncatedNormals):
    """A mixture of normals, truncated to [low, high] as a whole; often irregular."""

    kind: ClassVar[str] = "mixture"
    fields: ClassVar[Mapping[str, str]] = {
        "weights": "weights",
        "means": "means",
        "sds": "sds",
        "low": "low",
        "high": "high",
    }
    spelled: ClassVar[Spelled | None] = Spelled("LOW,HIGH,WEIGHT,MEAN,SD[,WEIGHT,MEAN,SD]...")

    weights: tuple[float, ...]  # shares of the components, sum 1
    means: tuple[float, ...]
    sds: tuple[float, ...]  # > 0
    low: float
    high: float

    def __init__(
        self, weights: ArrayLike, means: ArrayLike, sds: ArrayLike, low: float, high: float
    ) -> None:
        w = checks.shares("weights", weights)
        m = checks.vector("means", means, sign="any", length=w.size)
        s = checks.vector("sds", sds, sign="positive", length=w.size)
        bottom, top = checks.support(low, high)
        object.__setattr__(self, "weights", tuple(w.tolist()))
        object.__setattr__(self, "means", tuple(m.tolist()))
        object.__setattr__(self, "sds", tuple(s.tolist()))
        object.__setattr__(self, "low", bottom)
        object.__setattr__(self, "high", top)
        refuse_empty(self._total_mass(), bottom, top)

    @classmethod
    def from_numbers(cls, *numbers: float) -> Self:
        parts = numbers[2:]
        if not parts or len(parts) % 3:
            raise InvalidValue("mixture", "must give weight,mean,sd for each part", len(parts))
        return cls(parts[0::3], parts[1::3], parts[2::3], *numbers[:2])

    def _components(self) -> tuple[Floats, Floats, Floats]:
        return np.array(self.weights), np.array(self.means), np.array(self.sds)
