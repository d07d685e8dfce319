"""What every client is paid for its privacy, so that the truth is its best report (spec B3).

    (i)   pi_k = c_k epsilon_k(c) + int_{c_k}^{c_max} epsilon_k(z, c_-k) dz

is truthful and individually rational whatever the others report (dominant strategies, ex post), because
epsilon_k does not rise in the own report. The integral needs no search for jumps of epsilon: with
V_k(x) the objective as a function of the own virtual cost x = v(z), epsilon_k = V_k'(x), so

    (ii)  v affine with slope a (a uniform prior: a = 2):  (V_k(v(c_max)) - V_k(v(c_k)))/a, exactly;
    (iii) otherwise, cells z_0 = c_k < ... < z_n = c_max:  sum of (V_{i+1} - V_i)(z_{i+1} - z_i)/(x_{i+1} - x_i),
          exact where v is affine, of order n^-2 otherwise, whatever epsilon does inside a cell;
    (iv)  where v is constant (ironed pools, finitely many costs) epsilon is, and adds epsilon times dz.

As epsilon does not rise, a cell contributes between epsilon at its right and at its left end times dz.

Reports above the highest cost are not admitted: such a client is outside, with nothing sold and nothing paid,
and N counts the others. Reports below the floor count as the floor, since epsilon is unbounded at cost 0.
`variant="bayesian"` is the paper's interim payment: the mean of (i) over the others' costs, by Monte Carlo. It
is truthful on average over the others only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import Allocation
from bonafed.economics.discrete import FinitePrior
from bonafed.economics.priors import Prior, Uniform
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam.allocation import Plan
from bonafed.mechanisms.jsam.ladder import Ints, Own
from bonafed.mechanisms.jsam.rules import Jsam, Rule

PaymentVariant = Literal["ex-post", "bayesian"]
FLOOR = 1e-6  # of the highest cost: reports below count as this
_CHUNK = 1 << 18  # nodes asked at a time
Ask = Callable[[Ints, Floats], Own]


@dataclass(frozen=True, slots=True, eq=False)
class PrivacySettlement:
    """Who is selected, whose privacy is bought, and what each is paid; in the order of the reports."""

    reports: Floats  # (n,) money per unit of epsilon
    admitted: NDArray[np.bool_]  # (n,) False for reports above the highest cost
    allocation: Plan  # selection and privacy (n,), 0 for those not admitted
    payment: Floats  # (n,) money for the whole run, >= report times epsilon
    payment_error: Floats  # (n,) the payment is within this of (i); standard error for "bayesian"

    def utility(self, true_costs: ArrayLike) -> Floats:
        """(n,) payment minus true cost times epsilon."""
        return self.payment - checks.vector("true_costs", true_costs) * self.allocation.privacy

    @property
    def spend(self) -> float:
        """Money paid to all."""
        return float(self.payment.sum())


def settle(
    reports: ArrayLike,
    prior: Prior | Sequence[Prior],
    eta: float,
    noise_scale: float,
    *,
    rule: Rule | None = None,
    variant: PaymentVariant = "ex-post",
    floor: float | None = None,
    cells: int = 400,
    samples: int = 200,
    rng: np.random.Generator | None = None,
) -> PrivacySettlement:
    """Allocation and payments for reported privacy sensitivities.

    `prior` is one belief for all or one per client. `rule` is the exact optimum (`Jsam`) if not given.
    `cells` are those of (iii); `samples` and `rng` belong to `variant="bayesian"`.

    >>> from bonafed.economics import Uniform
    >>> done = settle([0.12, 0.35, 0.5, 0.71, 0.93], Uniform(0, 1), eta=1, noise_scale=1)
    >>> done.payment.round(4)
    array([0.407 , 0.2746, 0.2591, 0.2392, 0.    ])
    """
    checks.literal("variant", variant, PaymentVariant)
    c = checks.vector("reports", reports)
    weight, scale = checks.positive("eta", eta), checks.positive("noise_scale", noise_scale)
    priors = _priors(prior, c.size)
    inside = c <= np.array([belief.high for belief in priors])
    who = np.flatnonzero(inside)
    if not who.size:
        raise InvalidValue("reports", "must not all be above the highest cost", f"{c.min():g} and more")
    group = _Group([priors[k] for k in who], c[who], floor, checks.whole("cells", cells))
    choice = (rule or Jsam()).among(who)
    plan = choice.plan(group.virtual, weight, scale)
    if variant == "ex-post":
        amount, error = group.payments(choice, group.virtual, weight, scale)
    else:
        source = rng if rng is not None else np.random.default_rng(0)
        amount, error = _interim(group, choice, weight, scale, checks.whole("samples", samples, 2), source)
    return PrivacySettlement(
        c, inside, _spread_out(plan, who, c.size), _fill(amount, who, c.size), _fill(error, who, c.size)
    )


@dataclass(frozen=True)
class JsamMechanism:
    """`settle` as something that can be audited: what a client gives is epsilon."""

    prior: Prior | Sequence[Prior]
    eta: float
    noise_scale: float
    rule: Rule | None = None

    def allocate(self, reports: ArrayLike) -> Allocation:
        """(n,) epsilon and payment."""
        done = settle(reports, self.prior, self.eta, self.noise_scale, rule=self.rule)
        return Allocation(done.allocation.privacy, done.payment)


def _priors(prior: Prior | Sequence[Prior], clients: int) -> list[Prior]:
    if isinstance(prior, Prior):
        return [prior] * clients
    found = list(prior)
    if len(found) != clients:
        raise InvalidValue("prior", f"must be one, or {clients}, one per client", len(found))
    return found


def _fill(values: Floats, who: Ints, n: int) -> Floats:
    result = np.zeros(n)
    result[who] = values
    return result


def _spread_out(plan: Plan, who: Ints, n: int) -> Plan:
    """A plan for the admitted in the places of all."""
    if who.size == n:
        return plan
    return Plan(
        _fill(plan.selection, who, n), _fill(plan.privacy, who, n),
        plan.total, plan.objective, plan.threshold, plan.distance, plan.eta,
    )  # fmt: skip


class _Group:
    """Admitted clients with their priors; equal priors are worked on together."""

    def __init__(self, priors: list[Prior], reports: Floats, floor: float | None, cells: int) -> None:
        self.priors, self._cells = priors, cells
        lowest = [_lowest(belief, floor) for belief in priors]
        self.costs = np.maximum(reports, lowest)  # lifted to the floor
        self._alike: dict[int, list[int]] = {}
        for k, belief in enumerate(priors):
            self._alike.setdefault(id(belief), []).append(k)
        self.virtual = self.virtual_of(self.costs)

    def virtual_of(self, costs: Floats) -> Floats:
        """(n,) ironed virtual costs, each under its client's prior (spec B4)."""
        result = np.empty(costs.size)
        for members in self._alike.values():
            result[members] = self.priors[members[0]].ironed_virtual_cost(costs[members])
        return result

    def payments(self, rule: Rule, others: Floats, eta: float, noise_scale: float) -> tuple[Floats, Floats]:
        """(i) for every client, the others at virtual costs `others`; and how far off it may be."""

        def ask(clients: Ints, x: Floats) -> Own:
            return rule.own(others, eta, noise_scale, clients, x)

        everyone = np.arange(self.costs.size)
        now = ask(everyone, self.virtual)
        rent, error = np.empty(self.costs.size), np.empty(self.costs.size)
        for members in self._alike.values():
            k = np.array(members)
            rent[k], error[k] = self._rent(ask, k, now)
        return self.costs * now.privacy + np.maximum(rent, 0.0), error

    def _rent(self, ask: Ask, k: Ints, now: Own) -> tuple[Floats, Floats]:
        """The integral of (i) for clients of one prior."""
        belief, start = self.priors[int(k[0])], self.costs[k]
        if isinstance(belief, Uniform):  # (ii)
            top = ask(k, np.full(k.size, float(belief.virtual_cost(belief.high)))).value
            return (top - now.value[k]) / 2, 8 * np.finfo(float).eps * top
        if isinstance(belief, FinitePrior):
            return _levels(ask, belief, k, start), np.zeros(k.size)
        step = max(1, _CHUNK // (self._cells + 1))
        parts = [
            _cells(ask, belief, k[i : i + step], start[i : i + step], self._cells)
            for i in range(0, k.size, step)
        ]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _lowest(belief: Prior, floor: float | None) -> float:
    bottom = FLOOR * belief.high if floor is None else checks.positive("floor", floor)
    if bottom > belief.high:
        raise InvalidValue("floor", f"must be at most the highest cost {belief.high:g}", bottom)
    return max(belief.low, bottom)


def _levels(ask: Ask, belief: FinitePrior, k: Ints, start: Floats) -> Floats:
    """(iv) for finitely many costs: a report is rounded up to the next of them."""
    costs = belief.costs
    virtual = belief.ironed_virtual_cost(costs)
    rent = np.zeros(k.size)
    for j in range(costs.size):
        width = np.clip(costs[j] - np.maximum(start, costs[j - 1] if j else 0.0), 0.0, None)
        needed = width > 0
        if needed.any():
            epsilon = ask(k[needed], np.full(int(needed.sum()), float(virtual[j]))).privacy
            rent[needed] += width[needed] * epsilon
    return rent


def _cells(ask: Ask, belief: Prior, k: Ints, start: Floats, cells: int) -> tuple[Floats, Floats]:
    """(iii) and (iv), and an error bracket."""
    z, x, slopes = _nodes(belief, start, cells)
    answer = ask(np.repeat(k, z.shape[1]), x.ravel())
    value, epsilon = answer.value.reshape(z.shape), answer.privacy.reshape(z.shape)
    dz, dx, dv = np.diff(z), np.diff(x), np.diff(value)
    with np.errstate(divide="ignore", invalid="ignore"):
        secant = np.where(dx > 0, dv / dx, epsilon[:, :-1])
    below, above = epsilon[:, 1:] * dz, epsilon[:, :-1] * dz
    part = np.clip(secant * dz, below, above)
    with np.errstate(divide="ignore", invalid="ignore"):
        varies = dv * (1 / slopes.min(2) - 1 / slopes.max(2))  # dV (max - min of dz/dx)
    bracket = np.where(np.isfinite(varies), np.minimum(varies, above - below), above - below)
    tail = epsilon[:, -1] * (belief.high - z[:, -1])
    return part.sum(1) + tail, bracket.sum(1) + tail


_FINER = 4  # slopes of the virtual cost looked at per cell


def _nodes(belief: Prior, start: Floats, cells: int) -> tuple[Floats, Floats, Floats]:
    """Costs (m, n+1) from `start` to the highest, virtual costs there, slopes (m, n, ...) around each cell."""
    edges = [edge for pool in belief.ironed_intervals for edge in (pool.left, pool.right)]
    even = np.linspace(0.0, 1.0, cells + 1)
    width = belief.high - start
    if not np.isfinite(belief.ironed_virtual_cost(belief.high)):
        even[-1] = 1 - 1e-9  # the density ends at 0: stop where the virtual cost is finite
    z = start[:, None] + width[:, None] * even
    if edges:
        inside = np.clip(np.array(edges), start[:, None], z[:, -1:])
        z = np.sort(np.concatenate([z, inside], axis=1), axis=1)
    fine = z[:, :-1, None] + np.diff(z)[:, :, None] * (np.arange(_FINER) / _FINER)
    fine = np.concatenate([fine.reshape(z.shape[0], -1), z[:, -1:]], axis=1)
    v = np.maximum.accumulate(np.minimum(belief.ironed_virtual_cost(fine), 1e300), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.diff(v) / np.diff(fine)
    padded = np.pad(slope, ((0, 0), (1, 1)), mode="edge")  # with the slope just before and after the cell
    around = np.lib.stride_tricks.sliding_window_view(padded, _FINER + 2, axis=1)[:, ::_FINER]
    return z, v[:, ::_FINER], around


def _interim(
    group: _Group, rule: Rule, eta: float, noise_scale: float, samples: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The mean of (i) over the others' costs, drawn from their priors, and its standard error."""
    drawn = np.empty((samples, group.costs.size))
    for s in range(samples):
        u = rng.random(group.costs.size)
        costs = np.array([float(b.quantile(v)) for b, v in zip(group.priors, u, strict=True)])
        lifted = np.maximum(costs, [_lowest(belief, None) for belief in group.priors])
        drawn[s] = group.payments(rule, group.virtual_of(lifted), eta, noise_scale)[0]
    return drawn.mean(0), drawn.std(0, ddof=1) / np.sqrt(samples)
