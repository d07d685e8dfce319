"""How much of the others' work a contribution earns (Wu, Amiri, Raskar, Low: equation (1), Algorithm 1).

With contributions p_i >= 0, a ceiling p_ceil beyond which more earns no more, and a sharing coefficient
kappa:

    reward rate        gamma_i  = min((p_i/p_ceil)^(1-kappa), 1)
    updates received   |S_i|    = 1 + ceil(gamma_i (N-1)): the own one, and a share gamma_i of the others'
    induced rate       gamma'_i = (gamma_i (N-1) + 1)/N, so |S_i| = ceil(gamma'_i N)
    reference          |S_ref|  = ceil(gamma'_ref N), gamma'_ref the largest (default) or median

kappa = 0 rewards in proportion, kappa = 1 gives everybody everything (federated averaging). The ceilings
are taken of x - 1e-9, because .07 * 100 is 7.000000000000001 in floating point. The paper does not say
what p_ceil its experiments use; the largest contribution is taken unless one is given (theory D1).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

Reference = Literal["max", "median"]
Counts = NDArray[np.int64]
_ROUNDING = 1e-9  # a count above a whole number by less than this is that whole number


def reward_rates(
    contributions: ArrayLike,
    *,
    sharing: float = 0.5,
    ceiling: float | None = None,
    name: str = "contributions",
    measured: bool = False,
) -> Floats:
    """(N,) gamma_i in [0, 1]; `name` is what a refused contribution is called in the message.

    Contributions that were `measured` may all be zero, in a round in which nobody's update helped: nobody
    earned anything then. Given ones may not, as they would for the whole training.

    >>> reward_rates([0.2, 0.5, 0.8, 1.0, 1.3], sharing=0, ceiling=1.0).tolist()
    [0.2, 0.5, 0.8, 1.0, 1.0]
    """
    p = checks.vector(name, contributions)
    kappa = checks.between("sharing", sharing, 0.0, 1.0)
    if not measured and not p.any():
        raise InvalidValue(name, "must not all be zero", f"{p.size} zeros")
    top = (float(p.max()) or 1.0) if ceiling is None else checks.positive("ceiling", ceiling)
    return np.asarray((np.minimum(p, top) / top) ** (1 - kappa))  # the minimum first: no overflow


def induced_rates(rates: ArrayLike, clients: int) -> Floats:
    """(n,) gamma'_i: the share of all N updates, the own one included."""
    gamma = _valid(rates)
    return np.asarray((gamma * (checks.whole("clients", clients) - 1) + 1) / clients)


def set_sizes(rates: ArrayLike, clients: int) -> Counts:
    """(n,) |S_i| in 1..N: how many updates go into each reward, the own one included.

    >>> set_sizes([0.07, 0.3, 0.7], 101).tolist()
    [8, 31, 71]
    """
    others = _valid(rates) * (checks.whole("clients", clients) - 1)
    return 1 + np.ceil(others - _ROUNDING).astype(np.int64)


def reference_size(rates: ArrayLike, clients: int, reference: Reference = "max") -> int:
    """|S_ref| in 1..N: how many updates go into the reference model."""
    checks.literal("reference", reference, Reference)
    induced = induced_rates(rates, clients)
    rate = float(induced.max() if reference == "max" else np.median(induced))
    return int(np.ceil(rate * clients - _ROUNDING))


def _valid(rates: ArrayLike) -> Floats:
    gamma = checks.vector("rates", rates)
    if gamma.max() > 1:
        raise InvalidValue("rates", "must not exceed 1", float(gamma.max()))
    return gamma
