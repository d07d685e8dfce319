"""What the server believes about a private cost.

A prior is a frozen description of a distribution on [low, high]; everything Theorem 2 needs from
it is exposed as the theorem's own quantity, in a form that keeps its digits at the ends of the
support (theory A2, A4):

    hazard term     G(c)/g(c), never computed as G divided by g where that loses digits
    virtual cost    phi(c) = c + G(c)/g(c)
    root density    sqrt(phi(c)) g(c) = sqrt(c g(c)^2 + G(c) g(c)), finite where g vanishes

Pooling of irregular priors (ironing, theory A3) is in `ironing.py`; finite supports in `discrete.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, final

import numpy as np
import scipy  # its submodules load on first use
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

if TYPE_CHECKING:
    from scipy.stats.distributions import rv_frozen

JSONObject = dict[str, Any]


class IronedInterval(NamedTuple):
    """One pool of the ironed virtual cost (theory A3)."""

    left: float  # first cost of the pool
    right: float  # last cost of the pool
    virtual_cost: float  # the constant value of the ironed virtual cost in it


class Spelled(NamedTuple):
    """How a prior is typed, KIND:NUMBER,NUMBER,..."""

    form: str  # what to type after the colon; "..." at its end: any number of numbers
    unbounded: int = 0  # with so many numbers the support was left out

    @property
    def numbers(self) -> int | None:
        """How many are expected; None: any."""
        return None if self.form.endswith("...") else self.form.count(",") + 1


class Prior(ABC):
    """A belief about a client's cost per participation, on a bounded support.

    The constants `low` and `high` are money per participation, 0 <= low <= high < infinity.
    """

    kind: ClassVar[str] = ""  # its name in files and on the command line; "": not for publication
    fields: ClassVar[Mapping[str, str]] = {}  # in JSON, in order of its arguments: name -> attribute
    spelled: ClassVar[Spelled | None] = None  # how a user types it; None: it is too long for that

    low: float
    high: float

    @abstractmethod
    def cdf(self, c: ArrayLike) -> Floats:
        """P(cost <= c), the distribution function."""

    @abstractmethod
    def quantile(self, u: ArrayLike) -> Floats:
        """The smallest cost whose cdf is at least u, for u in [0, 1]."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """E[cost], the mean cost."""

    @abstractmethod
    def virtual_cost(self, c: ArrayLike) -> Floats:
        """phi(c): what a unit of participation at cost c costs the server in expectation."""

    @abstractmethod
    def ironed_virtual_cost(self, c: ArrayLike) -> Floats:
        """The pooled, non-decreasing version of phi (theory A3); equal to phi for regular priors."""

    @property
    @abstractmethod
    def ironed_intervals(self) -> tuple[IronedInterval, ...]:
        """The pools, in order of cost; empty for a regular prior."""

    @property
    def is_regular(self) -> bool:
        """Whether phi is non-decreasing (Assumption 5), so that nothing needs ironing."""
        return not self.ironed_intervals

    def to_json(self) -> JSONObject:
        """Plain data from which `prior_from_json` rebuilds the prior."""
        if not self.kind:
            raise InvalidValue(
                "prior", "must state its kind and fields to be published", type(self).__name__
            )
        return {"kind": self.kind, **{name: _plain(getattr(self, at)) for name, at in self.fields.items()}}

    @classmethod
    def from_json(cls, get: Callable[[str], Any]) -> Self:
        """The prior that `to_json` described; `get` gives a field by its name, or refuses by it."""
        build: Callable[..., Self] = cls
        return build(*(get(name) for name in cls.fields))

    @classmethod
    def from_numbers(cls, *numbers: float) -> Self:
        """The prior of the numbers that a user typed, in the order of `spelled`."""
        build: Callable[..., Self] = cls
        return build(*numbers)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Independent costs, by inversion, so that one uniform number is one cost."""
        return self.quantile(rng.random(size))


class ContinuousPrior(Prior):
    """A prior with a density on [low, high]; subclasses give density and cdf."""

    @abstractmethod
    def pdf(self, c: ArrayLike) -> Floats:
        """Density g(c); 0 outside the support."""

    def hazard_term(self, c: ArrayLike) -> Floats:
        """G(c)/g(c) on the support; 0 at `low`, which is its limit (theory A4)."""
        cost = np.asarray(c, dtype=np.float64)
        density, mass = self.pdf(cost), self.cdf(cost)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(mass > 0, mass / density, 0.0)
        return np.where(np.isnan(ratio), 0.0, ratio)

    def virtual_cost(self, c: ArrayLike) -> Floats:
        cost = np.asarray(c, dtype=np.float64)
        return np.asarray(cost + self.hazard_term(cost))

    def root_density(self, c: ArrayLike) -> Floats:
        """sqrt(phi(c)) g(c) = sqrt(c g^2 + G g): the integrand of E[sqrt(phi)]."""
        cost = np.asarray(c, dtype=np.float64)
        g, phi = self.pdf(cost), self.virtual_cost(cost)
        with np.errstate(invalid="ignore"):
            direct = g * np.sqrt(phi)
        # Where the density is too small for phi, the roots apart keep the product from underflowing.
        return np.where(np.isfinite(direct), direct, np.sqrt(g) * np.sqrt(cost * g + self.cdf(cost)))

    def ironed_virtual_cost(self, c: ArrayLike) -> Floats:
        value = self.virtual_cost(c)
        cost = np.asarray(c, dtype=np.float64)
        for pool in self.ironed_intervals:
            inside = (cost >= pool.left) & (cost <= pool.right)
            value = np.where(inside, pool.virtual_cost, value)
        return value

    @property
    def ironed_intervals(self) -> tuple[IronedInterval, ...]:
        from bonafed.economics.ironing import iron

        return iron(self)

    @property
    def mean(self) -> float:
        from bonafed.economics.curves import cost_curve

        return float(cost_curve(self).head(np.asarray(self.high)))

    def quantile(self, u: ArrayLike) -> Floats:
        from bonafed.economics.ironing import invert_cdf

        return invert_cdf(self, np.asarray(u, dtype=np.float64))

    def landmarks(self) -> Floats:
        """Costs where the density has a feature too narrow for an even grid to find."""
        return np.empty(0)


def _between_ends(c: Floats, low: float, high: float, inside: Floats) -> Floats:
    """Zero outside [low, high]: the density of a truncated distribution."""
    return np.where((c >= low) & (c <= high), inside, 0.0)


@final
@dataclass(frozen=True, slots=True)
class Uniform(ContinuousPrior):
    """Every cost in [low, high] equally likely; phi(c) = 2c - low.

    >>> Uniform(0.5, 1.5).virtual_cost([0.5, 1.0, 1.5])
    array([0.5, 1.5, 2.5])
    """

    kind: ClassVar[str] = "uniform"
    fields: ClassVar[Mapping[str, str]] = {"low": "low", "high": "high"}
    spelled: ClassVar[Spelled | None] = Spelled("LOW,HIGH")

    low: float  # lowest cost, money per participation
    high: float  # highest cost

    def __post_init__(self) -> None:
        low, high = checks.support(self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def pdf(self, c: ArrayLike) -> Floats:
        cost = np.asarray(c, dtype=np.float64)
        return _between_ends(cost, self.low, self.high, np.full_like(cost, 1 / self._width))

    def cdf(self, c: ArrayLike) -> Floats:
        return np.clip((np.asarray(c, dtype=np.float64) - self.low) / self._width, 0.0, 1.0)

    def quantile(self, u: ArrayLike) -> Floats:
        level = np.asarray(u, dtype=np.float64)
        return np.clip(self.low + level * self._width, self.low, self.high)

    def hazard_term(self, c: ArrayLike) -> Floats:
        return np.asarray(np.asarray(c, dtype=np.float64) - self.low)

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    @property
    def ironed_intervals(self) -> tuple[IronedInterval, ...]:
        return ()

    @property
    def _width(self) -> float:
        return self.high - self.low


@final
@dataclass(frozen=True, slots=True)
class TruncatedExponential(ContinuousPrior):
    """Density proportional to exp(-rate (c - low)) on [low, high].

    phi(c) = c + (exp(rate (c - low)) - 1)/rate: the truncation cancels (theory A4).
    """

    kind: ClassVar[str] = "exponential"
    fields: ClassVar[Mapping[str, str]] = {"rate": "rate", "low": "low", "high": "high"}
    spelled: ClassVar[Spelled | None] = Spelled("RATE,LOW,HIGH", unbounded=1)

    rate: float  # per unit of money, > 0
    low: float
    high: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", checks.positive("rate", self.rate))
        low, high = checks.support(self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @np.errstate(over="ignore")  # so far out that nothing is there
    def pdf(self, c: ArrayLike) -> Floats:
        cost = np.asarray(c, dtype=np.float64)
        inside = self.rate * np.exp(-self.rate * np.maximum(cost - self.low, 0.0)) / self._mass
        return _between_ends(cost, self.low, self.high, inside)

    @np.errstate(over="ignore")  # so far out that all is below
    def cdf(self, c: ArrayLike) -> Floats:
        cost = np.clip(np.asarray(c, dtype=np.float64), self.low, self.high)
        return np.clip(-np.expm1(-self.rate * (cost - self.low)) / self._mass, 0.0, 1.0)

    def quantile(self, u: ArrayLike) -> Floats:
        level = np.asarray(u, dtype=np.float64)
        with np.errstate(divide="ignore"):  # level 1 of a steep prior is `high`
            cost = self.low - np.log1p(-level * self._mass) / self.rate
        return np.clip(cost, self.low, self.high)

    def hazard_term(self, c: ArrayLike) -> Floats:
        cost = np.asarray(c, dtype=np.float64)
        with np.errstate(over="ignore"):  # beyond the largest double it is infinite
            return np.asarray(np.expm1(self.rate * (cost - self.low)) / self.rate)

    @property
    def ironed_intervals(self) -> tuple[IronedInterval, ...]:
        return ()

    @property
    def _mass(self) -> float:
        return -math.expm1(-self.rate * (self.high - self.low))


@final
@dataclass(frozen=True, slots=True)
class ScaledBeta(ContinuousPrior):
    """Beta(alpha, beta) stretched from [0, 1] to [low, high]."""

    kind: ClassVar[str] = "beta"
    fields: ClassVar[Mapping[str, str]] = {"alpha": "alpha", "beta": "beta", "low": "low", "high": "high"}
    spelled: ClassVar[Spelled | None] = Spelled("ALPHA,BETA,LOW,HIGH")

    alpha: float  # > 0
    beta: float  # > 0
    low: float
    high: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", checks.positive("alpha", self.alpha))
        object.__setattr__(self, "beta", checks.positive("beta", self.beta))
        low, high = checks.support(self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def pdf(self, c: ArrayLike) -> Floats:
        cost = np.asarray(c, dtype=np.float64)
        x, rest = (cost - self.low) / self._width, (self.high - cost) / self._width
        with np.errstate(divide="ignore", invalid="ignore"):
            log_density = (
                scipy.special.xlogy(self.alpha - 1, x)
                + scipy.special.xlogy(self.beta - 1, rest)
                - scipy.special.betaln(self.alpha, self.beta)
            )
        return _between_ends(cost, self.low, self.high, np.exp(log_density) / self._width)

    def cdf(self, c: ArrayLike) -> Floats:
        x = (np.asarray(c, dtype=np.float64) - self.low) / self._width
        return np.asarray(scipy.special.betainc(self.alpha, self.beta, np.clip(x, 0.0, 1.0)))

    def quantile(self, u: ArrayLike) -> Floats:
        x = scipy.special.betaincinv(self.alpha, self.beta, np.asarray(u, dtype=np.float64))
        return np.clip(self.low + x * self._width, self.low, self.high)

    def hazard_term(self, c: ArrayLike) -> Floats:
        cost = np.asarray(c, dtype=np.float64)
        x = (cost - self.low) / self._width
        # G/g = width x (1-x)/alpha 2F1(alpha+beta, 1; alpha+1; x): no underflow where G does.
        start = np.minimum(x, 0.25)
        series = scipy.special.hyp2f1(self.alpha + self.beta, 1.0, self.alpha + 1, start)
        with np.errstate(over="ignore", invalid="ignore"):  # almost all mass at the lower end
            near = self._width * start * (1 - start) / self.alpha * series
        # Named, not super(): slots=True builds the class anew, and the empty cell of super() breaks.
        return np.where(x <= 0.25, near, ContinuousPrior.hazard_term(self, cost))

    @property
    def mean(self) -> float:
        return self.low + self._width * self.alpha / (self.alpha + self.beta)

    @property
    def _width(self) -> float:
        return self.high - self.low


@final
@dataclass(frozen=True, slots=True, eq=False, init=False)
class ScipyPrior(ContinuousPrior):
    """Any continuous SciPy distribution, cut to [low, high]; made by `from_scipy`."""

    kind: ClassVar[str] = "scipy"
    fields: ClassVar[Mapping[str, str]] = {
        "name": "_name",
        "parameters": "_parameters",
        "low": "low",
        "high": "high",
    }

    low: float
    high: float
    _frozen: Any  # the distribution before the cut
    _below: float  # its mass below `low`
    _mass: float  # its mass in [low, high]

    def __init__(self, frozen: rv_frozen, low: float, high: float) -> None:
        bottom, top = checks.support(low, high)
        object.__setattr__(self, "_frozen", frozen)
        object.__setattr__(self, "low", bottom)
        object.__setattr__(self, "high", top)
        first, last = self._frozen.support()
        if self.low < first or self.high > last:
            raise InvalidValue(
                "[low, high]",
                f"must lie inside the distribution's support [{first:g}, {last:g}]",
                [self.low, self.high],
            )
        below = float(self._frozen.cdf(self.low))
        upper_tails = float(self._frozen.sf(self.low) - self._frozen.sf(self.high))
        object.__setattr__(self, "_below", below)
        object.__setattr__(self, "_mass", max(float(self._frozen.cdf(self.high)) - below, upper_tails))
        refuse_empty(self._mass, self.low, self.high)

    def pdf(self, c: ArrayLike) -> Floats:
        cost = np.asarray(c, dtype=np.float64)
        inside = np.asarray(self._frozen.pdf(cost)) / self._mass
        return _between_ends(cost, self.low, self.high, inside)

    def cdf(self, c: ArrayLike) -> Floats:
        cost = np.clip(np.asarray(c, dtype=np.float64), self.low, self.high)
        if self._below < 0.5:
            mass = self._frozen.cdf(cost) - self._below
        else:  # a difference of upper tails keeps its digits there
            mass = self._frozen.sf(self.low) - self._frozen.sf(cost)
        return np.clip(np.asarray(mass) / self._mass, 0.0, 1.0)

    @classmethod
    def from_json(cls, get: Callable[[str], Any]) -> Self:
        from scipy import stats

        name = get("name")
        distribution = getattr(stats, name, None) if isinstance(name, str) else None
        if not isinstance(distribution, stats.rv_continuous):
            raise InvalidValue("prior.name", "must be a continuous scipy.stats distribution", name)
        numbers = get("parameters")
        if not isinstance(numbers, dict):
            raise InvalidValue("prior.parameters", "must be an object", repr(numbers)[:60])
        parameters = {str(k): checks.number(f"prior.parameters.{k}", v) for k, v in numbers.items()}
        try:
            frozen = distribution(**parameters)
        except TypeError as error:
            rule = f"must be those of {name}"
            raise InvalidValue("prior.parameters", rule, sorted(parameters)) from error
        return cls(frozen, get("low"), get("high"))

    @property
    def _name(self) -> str:
        return str(self._frozen.dist.name)

    @property
    def _parameters(self) -> dict[str, float]:
        """All of them by name, so that a distribution has one description however it was spelled."""
        dist = self._frozen.dist
        names = [*(dist.shapes.split(", ") if dist.shapes else []), "loc", "scale"]
        arguments = {**dict(zip(names, self._frozen.args, strict=False)), **self._frozen.kwds}
        return {name: float(value) for name, value in {"loc": 0.0, "scale": 1.0, **arguments}.items()}


def from_scipy(frozen: rv_frozen, low: float, high: float) -> ScipyPrior:
    """A prior from any frozen continuous distribution of `scipy.stats`, cut to [low, high].

    >>> from scipy import stats
    >>> from_scipy(stats.gamma(3), 0.5, 6.0).is_regular
    True
    """
    dist = getattr(frozen, "dist", None)
    if dist is None or not hasattr(dist, "pdf") or not hasattr(frozen, "support"):
        raise InvalidValue(
            "frozen", "must be a frozen continuous distribution, such as scipy.stats.gamma(3)", frozen
        )
    return ScipyPrior(frozen, low, high)


def _plain(value: Any) -> Any:
    """A field as JSON has it."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def refuse_empty(mass: float, low: float, high: float) -> None:
    """A truncation that keeps (almost) nothing of the distribution is a mistake."""
    if not mass > 1e-200:
        raise InvalidValue("[low, high]", "must contain some of the distribution's mass", [low, high])
