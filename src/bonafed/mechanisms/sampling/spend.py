"""How far realised spend may stray from its expectation.

A budget on expected payments is kept on average over the costs and over the sampling coins. In a
run of R rounds a client of terms (q, r) is paid r times a Binomial(R, q) number of times; clients
are independent. Two answers are computed from the same lotteries:

    distribution   mean and standard deviation by summation; quantiles and the probability of exceeding a
                   sum from a lattice on which each client's total is split fairly between the two
                   neighbouring points (same mean), added up over clients by fast Fourier transform.
                   More than 2,000 different lotteries: the normal limit, and `method` says so.
    bound          never below the true probability: the smaller of (i) the same lattice with every
                   client's total rounded UP, plus what may have wrapped around it, and (ii) the
                   Chernoff bound, min over theta of exp(sum_n log E[exp(theta X_n)] - theta x).

A continuous prior enters through the Gauss rule of `CurveMenu.outcomes`, whose mean is not too low.
`confidence` in `plan` uses the bound, so that the promise errs on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy  # its submodules load on first use
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import Outcomes
from bonafed.economics.discrete import expectation
from bonafed.errors import InvalidValue

_SPAN = 24.0  # width of the lattice in standard deviations,
_RARE = 8  # ... plus so many clients that cost far more than the others
_MOST_LOTTERIES = 2000  # beyond, the distribution is normal for every practical purpose
Rounding = Literal["fair", "up"]
_LARGEST: dict[Rounding, int] = {"fair": 18, "up": 20}  # size of the lattice, as a power of 2


class CostLottery(NamedTuple):
    """What each of `clients` independent clients may cost over a whole run."""

    clients: int
    outcomes: Outcomes


@dataclass(frozen=True, slots=True, eq=False)
class SpendDistribution:
    """Total realised spend of a run, over cost draw and sampling coins."""

    mean: float  # money
    sd: float  # money
    method: Literal["lattice", "normal"]
    sums: Floats  # (M,) increasing amounts of money; empty if the normal limit is used
    cdf: Floats  # (M,) probability that the spend is at most that
    most: float = math.inf  # money that can be spent at all: everybody in every round

    def quantile(self, p: float) -> float:
        """The amount that the spend does not exceed with probability p."""
        level = checks.between("p", p, 0.0, 1.0)
        if self.sd == 0:
            return self.mean
        if self.method == "normal":
            amount = max(0.0, self.mean + self.sd * float(scipy.special.ndtri(level)))
        else:
            at = int(np.searchsorted(self.cdf, level))
            amount = float(self.sums[min(at, self.sums.size - 1)])
        return min(amount, self.most)

    def probability_above(self, amount: float) -> float:
        """P(spend > amount)."""
        limit = checks.number("amount", amount)
        if self.sd == 0:
            return float(self.mean > limit)
        if limit >= self.most * (1 - 1e-12):
            return 0.0
        if self.method == "normal":
            return float(scipy.special.ndtr((self.mean - limit) / self.sd))
        at = int(np.searchsorted(self.sums, limit * (1 + 1e-12), side="right")) - 1
        return 1.0 if at < 0 else float(max(0.0, 1.0 - self.cdf[at]))


def spend_distribution(lotteries: Sequence[CostLottery], rounds: int) -> SpendDistribution:
    """The distribution of the total spend (see the module docstring)."""
    mean, sd = _moments(lotteries, rounds)
    if sd <= 1e-12 * mean:
        return SpendDistribution(mean, 0.0, "lattice", np.empty(0), np.empty(0))
    most = _most(lotteries, rounds)
    if len(lotteries) > _MOST_LOTTERIES:
        return SpendDistribution(mean, sd, "normal", np.empty(0), np.empty(0), most)
    sums, cdf = _lattice(lotteries, rounds, mean, sd, "fair")
    return SpendDistribution(mean, sd, "lattice", sums, cdf, most)


def known_lotteries(probability: ArrayLike, payment: ArrayLike) -> list[CostLottery]:
    """Lotteries of clients whose terms are already settled: only the coins are left."""
    q, r = checks.vector("probability", probability), checks.vector("payment", payment)
    terms, counts = np.unique(np.stack([q, r]), axis=1, return_counts=True)
    one = np.ones(1)
    return [CostLottery(int(n), Outcomes(one, terms[:1, i], terms[1:, i])) for i, n in enumerate(counts)]


def exceedance_bound(lotteries: Sequence[CostLottery], rounds: int, amount: float) -> float:
    """A number that P(spend > amount) certainly does not exceed."""
    mean, sd = _moments(lotteries, rounds)
    if sd <= 1e-12 * mean:
        return float(mean > amount * (1 + 1e-12))
    bound = _chernoff(lotteries, rounds, amount)
    if len(lotteries) <= _MOST_LOTTERIES:
        sums, cdf = _lattice(lotteries, rounds, mean, sd, "up")
        at = int(np.searchsorted(sums, amount, side="right")) - 1
        # What wraps is the sum rounded up, larger than the spend by up to a step for each client.
        clients = sum(lottery.clients for lottery in lotteries)
        wrapped = _chernoff(lotteries, rounds, float(sums[-1] - clients * (sums[1] - sums[0])))
        lattice = (
            1.0 if at < 0 else 1.0 - float(cdf[at]) + wrapped + 1e-12
        )  # rounding, and the binomial tails
        bound = min(bound, lattice)
    return min(1.0, bound)


def _moments(lotteries: Sequence[CostLottery], rounds: int) -> tuple[float, float]:
    """Mean and sd: variance = E[R r^2 q (1 - q)] + R^2 Var(q r), summed over clients."""
    mean = variance = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        for clients, (mass, q, r) in lotteries:
            t = q * r
            centre = expectation(mass, t)
            coins = rounds * expectation(mass, r * r * q * (1 - q))
            costs = rounds * rounds * expectation(mass, (t - centre) ** 2)
            mean += clients * rounds * centre
            variance += clients * (coins + costs)
    if not math.isfinite(variance):
        largest = max(float(outcomes.payment.max()) for _, outcomes in lotteries)
        raise InvalidValue("payment", "must be smaller: the variance of the spend is not finite", largest)
    return mean, math.sqrt(variance)


def _lattice(
    lotteries: Sequence[CostLottery], rounds: int, mean: float, sd: float, rounding: Rounding
) -> tuple[Floats, Floats]:
    """Amounts and cdf on an even lattice around the mean; sums are taken modulo its width."""
    clients = sum(lottery.clients for lottery in lotteries)
    top = _most(lotteries, rounds)
    # Wide enough for the bulk and for rare clients that are paid often, one at a time.
    width = _SPAN * sd + _RARE * max(_likely_most(o, rounds) for _, o in lotteries)
    finest = 2000.0 * clients if rounding == "up" else 64 * min(width, top) / sd
    size = 1 << int(np.clip(math.ceil(math.log2(finest)), 14, _LARGEST[rounding]))
    covers_all = top <= width and size > 2 * clients
    # If the lattice can hold every possible sum (each client rounded up once), nothing wraps.
    step = top / (size - clients - 2) if covers_all else width / size
    step = _of_payments(lotteries, step)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    for count, outcomes in lotteries:
        one = np.fft.rfft(_client_total(outcomes, rounds, step, size, rounding))
        spectrum *= one**count
    pmf: Floats = np.maximum(np.fft.irfft(spectrum, size), 0.0)
    # The lattice is a circle; cut it open at zero, or half the bulk below the mean.
    first = 0 if covers_all else max(0, math.floor((mean - _SPAN / 2 * sd) / step))
    pmf = np.roll(pmf, -(first % size))
    sums = np.asarray((first + np.arange(size)) * step, dtype=np.float64)
    return sums, np.asarray(np.minimum(np.cumsum(pmf) / pmf.sum(), 1.0), dtype=np.float64)


def _most(lotteries: Sequence[CostLottery], rounds: int) -> float:
    """Money if everybody has the highest payment in every round."""
    return rounds * sum(n * float(o.payment.max(initial=0.0)) for n, o in lotteries)


def _of_payments(lotteries: Sequence[CostLottery], step: float) -> float:
    """The step, or the next larger one of which the payment, if there is only one, is a multiple.

    Sums are then points of the lattice: a budget of just so many payments is on one side of it.
    """
    payments = np.unique(np.concatenate([o.payment for _, o in lotteries]))
    payments = payments[payments > 0]
    if payments.size != 1 or payments[0] < step:
        return step
    return float(payments[0] / math.floor(payments[0] / step))


def _likely_most(outcomes: Outcomes, rounds: int) -> float:
    """More than one client costs but for a probability of 1e-20."""
    _, q, r = outcomes
    mean, spread = rounds * q, np.sqrt(rounds * q * (1 - q))
    return float(np.max(r * np.minimum(rounds, mean + 10 * spread + 10), initial=0.0))


def _client_total(outcomes: Outcomes, rounds: int, step: float, size: int, rounding: Rounding) -> Floats:
    """(size,) probability of one client's total over the run, on the circular lattice."""
    mass, q, r = outcomes
    tosses = [_binomial(rounds, float(probability)) for probability in q]
    place = np.concatenate([pay * k / step for pay, (k, _) in zip(r, tosses, strict=True)])
    chance = np.concatenate([w * pmf for w, (_, pmf) in zip(mass, tosses, strict=True)])

    def put(points: NDArray[np.int64], weights: Floats) -> Floats:
        return np.asarray(np.bincount(points % size, weights, minlength=size), dtype=np.float64)

    if rounding == "up":
        return put(np.ceil(place * (1 - 1e-15)).astype(np.int64), chance)
    below = np.floor(place).astype(np.int64)
    part = place - below
    return put(below, chance * (1 - part)) + put(below + 1, chance * part)


def _binomial(n: int, p: float) -> tuple[Floats, Floats]:
    """Support and probabilities of Binomial(n, p), but for tails of less than 1e-18."""
    if p >= 1.0 or p <= 0.0:
        return np.array([n * p]), np.ones(1)
    reach = 10 * math.sqrt(n * p * (1 - p)) + 50
    k = np.arange(max(0, math.floor(n * p - reach)), min(n, math.ceil(n * p + reach)) + 1)
    # Ratios of neighbours, added up from the lowest: no large logarithms that cancel.
    with np.errstate(under="ignore"):
        steps = np.log((n - k[:-1]) / k[1:]) + (math.log(p) - math.log1p(-p))
        log_pmf = np.concatenate([[0.0], np.cumsum(steps)])
        pmf = np.exp(log_pmf - log_pmf.max())
    pmf /= pmf.sum()
    return k.astype(np.float64), pmf


def _chernoff(lotteries: Sequence[CostLottery], rounds: int, amount: float) -> float:
    """min over theta >= 0 of exp(log E exp(theta S) - theta amount)."""

    def exponent(theta: float) -> tuple[float, float]:
        """Value and derivative of the (convex) exponent at theta."""
        value, slope = -theta * amount, -amount
        for clients, (mass, q, r) in lotteries:
            with np.errstate(divide="ignore"):
                one_round = np.logaddexp(np.log1p(-q), np.log(q) + theta * r)
                terms = np.log(mass) + rounds * one_round
                tilted = np.log(q) + theta * r - one_round
            total = np.logaddexp.reduce(terms)
            value += clients * float(total)
            slope += clients * expectation(np.exp(terms - total), rounds * r * np.exp(tilted))
        return value, slope

    if exponent(0.0)[1] >= 0:  # the amount is below the mean: no bound
        return 1.0
    low, high = 0.0, 1.0 / max(amount, 1e-300)
    while exponent(high)[1] < 0 and high < 1e6 / amount * 1e6:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if exponent(middle)[1] < 0:
            low = middle
        else:
            high = middle
    return float(min(1.0, math.exp(min(0.0, exponent(high)[0]))))
