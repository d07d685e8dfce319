"""Adaptive piecewise polynomials: tabulate a function once, price a million reports from it.

Each panel holds a polynomial in its own centred coordinate u in [-1, 1], found by Chebyshev
interpolation; panels are halved until the last coefficients are below the tolerance. Compared with
scipy.interpolate.PPoly, the centred coordinate keeps three more digits, and nothing heavy has to be
imported before a quote can be printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from bonafed.checks import Floats

_DEGREE = 9
_TOLERANCE = 4e-14  # of the last two Chebyshev coefficients against the size in the panel
_PER_EXPONENT = 1e-15  # ... plus this for each factor e it lies below the largest: rounding of exponents
_VANISHED = 1e-145  # what is smaller is zero: its square is no longer a precise double
_BLURRED = 1e-9  # relative width of rounding in a panel from which masses replace densities
_DEEPEST = 60  # halvings of a panel, towards singular ends of the support
_MOST_PANELS = 20_000
_UNSEEN = 1e-14  # mass in a panel at whose nodes the density vanishes: more than rounding of the cdf
_MISSED = (1e-8, 1e-6)  # mass of a panel by nodes and by cdf: absolute and relative difference allowed

_NODES = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
# (degree+1, nodes): values at the nodes -> Chebyshev coefficients
_TO_CHEBYSHEV = np.linalg.inv(chebyshev.chebvander(_NODES, _DEGREE))
# Chebyshev coefficients -> coefficients of powers of u, lowest first
_TO_POWERS = np.stack(
    [
        np.pad(chebyshev.cheb2poly(row), (0, _DEGREE + 1 - chebyshev.cheb2poly(row).size))
        for row in np.eye(_DEGREE + 1)
    ],
    axis=1,
)
# (nodes,) values at the nodes -> integral over [-1, 1]
_TO_INTEGRAL = np.array([0.0 if k % 2 else 2 / (1 - k * k) for k in range(_DEGREE + 1)]) @ _TO_CHEBYSHEV


@final
@dataclass(frozen=True, slots=True, eq=False)
class Piecewise:
    """A piecewise polynomial on consecutive panels."""

    breaks: Floats  # (P+1,) borders of the panels, increasing
    powers: Floats  # (degree+1, P) coefficients of u^0, u^1, ... per panel

    def locate(self, x: Floats) -> NDArray[np.intp]:
        """Index of the panel of each x; x outside the table counts to the first or last panel."""
        return np.searchsorted(self.breaks[1:-1], x, side="right")

    def __call__(self, x: Floats, panel: NDArray[np.intp] | None = None) -> Floats:
        where = self.locate(x) if panel is None else panel
        left, right = self.breaks[where], self.breaks[where + 1]
        u = ((x - left) - (right - x)) / (right - left)
        value = self.powers[-1][where]
        for row in self.powers[-2::-1]:
            value = value * u + row[where]
        return np.asarray(value)

    def tail(self) -> Piecewise:
        """The function x -> integral from x to the right end, exactly integrated."""
        half = np.diff(self.breaks) / 2
        orders = np.arange(1, self.powers.shape[0] + 1)[:, None]
        rising = self.powers / orders * half  # coefficients of u^1, ... of the antiderivative
        at_right, at_left = rising.sum(axis=0), (rising * (-1.0) ** orders).sum(axis=0)
        beyond = np.concatenate([np.cumsum((at_right - at_left)[:0:-1])[::-1], [0.0]])
        return Piecewise(self.breaks, np.concatenate([(beyond + at_right)[None], -rising]))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what is not finite is not smooth
def fit(
    functions: Callable[[Floats], Floats],
    breaks: Floats,
    *,
    by_mass: Callable[[Floats], Floats],
    cdf: Callable[[Floats], Floats],
) -> list[Piecewise]:
    """Tabulate m functions on a common mesh.

    `functions` maps costs (k,) to values (m + 1, k), not negative; the last is the density, which is not
    tabulated. Each is resolved relative to its own size in each panel, however small that is, because a
    budget may be decided in a far tail; never finer than what rounding of its argument and exponent does to
    it. A panel whose density lacks the mass that the cdf has there hides a mode between its nodes: it
    is halved however smooth it looks. Where an integrable end of the support cannot be resolved by halving,
    or is blurred by rounding, a function that is `by_mass(c)` times the density is replaced by the constant
    with the exact mass of the panel (NaN: not such a function).
    """
    left, right = breaks[:-1], breaks[1:]
    depth = np.zeros(left.size, dtype=np.int64)  # halvings since the density was seen
    panels: list[tuple[Floats, Floats, Floats]] = []
    largest = np.full((1, 1), _VANISHED)
    while left.size:
        half = (right - left) / 2
        nodes = (left + right)[:, None] / 2 + half[:, None] * _NODES
        everything = functions(nodes.ravel()).reshape(-1, left.size, _DEGREE + 1)
        values, density = everything[:-1], everything[-1]
        # of each function: one may be steady where another has no bound
        finite = np.asarray(np.isfinite(values).all(axis=2))
        values = np.where(finite[:, :, None], values, 0.0)
        coefficients = values @ _TO_CHEBYSHEV.T
        size = np.maximum(np.abs(values).max(axis=2), _VANISHED)
        largest = np.maximum(largest, size.max(axis=1, keepdims=True))
        rounding = 4 * np.spacing(np.abs(right)) / half
        exponent = _PER_EXPONENT * np.log(largest / size)
        allowed = size * (_TOLERANCE + rounding + exponent)
        rest = np.abs(coefficients[:, :, -2:]).max(axis=2)
        smooth = (finite & (rest <= allowed)).all(axis=0)
        hidden = smooth.copy()
        if smooth.any():
            hidden[smooth] = _hides_mass(
                density[smooth], left[smooth], right[smooth], rounding[smooth], cdf
            )
        resolved = smooth & ~hidden
        deep = (depth >= _DEEPEST) & ~hidden
        stop = resolved | (rounding > 1) | deep | (left.size > _MOST_PANELS)
        # So close to an end the density itself is lost to rounding of c; the cdf is not.
        blurred = stop & (~resolved | (rounding > _BLURRED))
        for accept, exact in ((stop & ~blurred, False), (blurred, True)):
            if accept.any():
                powers: Floats = np.asarray(coefficients[:, accept] @ _TO_POWERS.T, np.float64)
                if exact:
                    powers = _with_exact_mass(
                        powers, left[accept], right[accept], resolved[accept], by_mass, cdf
                    )
                panels.append((left[accept], right[accept], powers))
        middle = (left + right)[~stop] / 2
        left, right = np.concatenate([left[~stop], middle]), np.concatenate([middle, right[~stop]])
        depth = np.tile(np.where(hidden, 0, depth + 1)[~stop], 2)
    lefts = np.concatenate([part[0] for part in panels])
    order = np.argsort(lefts)
    borders = np.append(lefts[order], breaks[-1])
    powers = np.concatenate([part[2] for part in panels], axis=1)[:, order]
    return [Piecewise(borders, np.ascontiguousarray(table.T)) for table in powers]


def _hides_mass(
    density: Floats, left: Floats, right: Floats, rounding: Floats, cdf: Callable[[Floats], Floats]
) -> NDArray[np.bool_]:
    """Whether panels hold mass that the density at their nodes (p, nodes) does not show."""
    below, above = cdf(np.stack([left, right]))
    mass, integral = above - below, density @ _TO_INTEGRAL * (right - left) / 2
    agree = np.abs(integral - mass) <= _MISSED[0] + (_MISSED[1] + 8 * rounding) * mass
    unseen = density.max(axis=1, initial=0.0) <= _VANISHED
    return np.asarray(np.where(unseen, mass > _UNSEEN, ~agree))


def _with_exact_mass(
    powers: Floats,
    left: Floats,
    right: Floats,
    resolved: NDArray[np.bool_],
    by_mass: Callable[[Floats], Floats],
    cdf: Callable[[Floats], Floats],
) -> Floats:
    """Replace factor * density by factor(middle) * mass / width.

    Done where the function is unresolved, and where it is blurred and its factor is steady, as at an end
    where the density grows without bound; where it falls to zero the fit is better, and little is at stake.
    """
    middle, quarter = (left + right) / 2, (right - left) / 4
    factor, mass = by_mass(middle), cdf(right) - cdf(left)
    with np.errstate(invalid="ignore"):
        change = np.abs(by_mass(middle + quarter) - by_mass(middle - quarter))
        constant = np.where((mass > 0) | np.isnan(factor), factor * mass / (right - left), 0.0)
        replaces = np.isfinite(constant) & (~resolved | (change <= 0.01 * np.abs(factor)))
    replacement = np.zeros_like(powers)
    replacement[:, :, 0] = constant
    return np.where(replaces[:, :, None], replacement, powers)
