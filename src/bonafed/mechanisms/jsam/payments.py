"""What every client is paid for its privacy, so that the truth is its best report (theory B3).

    (i)   pi_k = c_k epsilon_k(c) + int_{c_k}^{c_max} epsilon_k(z, c_-k) dz

is truthful and individually rational whatever the others report (dominant strategies, ex post), because
epsilon_k does not rise in the own report. The integral needs no search for jumps of epsilon: with
V_k(x) the objective as a function of the own virtual cost x = v(z), epsilon_k = V_k'(x), so

    (ii)  v affine with slope a (a uniform prior: a = 2):  (V_k(v(c_max)) - V_k(v(c_k)))/a, exactly;
    (iii) otherwise, cells z_0 = c_k < ... < z_n = c_max:  sum of (V_{i+1} - V_i) dz_i/dx_i,
          exact where v is affine, plus what the bend of v adds where epsilon falls evenly in a cell;
    (iv)  where v is constant (ironed pools, finitely many costs) epsilon is, and adds epsilon times dz.

With g = z(x) minus its chord, what the secant alone lacks is the integral of g over the fall of epsilon: it
lies between that fall times the least and times the largest g, whatever epsilon does inside the cell. The
error bracket is the fall times twice the largest |g| of three, half way and at both quarters: where v bends
both ways g may vanish half way. A cell is halved until its halves add up to it or, where epsilon jumps,
until the bracket is small. As epsilon does not rise, a cell adds between epsilon at its right and at its
left end times dz.

Reports above the highest cost are not admitted: such a client is outside, with nothing sold and nothing
paid, and N counts the others. Epsilon is unbounded at virtual cost 0, so there is a floor. Where costs have
a density, reports below it count as the floor. Where they are finitely many, a report moved up would be
rounded up to the next of them, so it stays, and its virtual cost counts as at least the floor. Either way
what counts does not fall in the own report, which is all that (i) needs. At an atom at cost 0 epsilon is
largest and the payment that of the next cost: all the same to a client without a cost, a loss to others.

`variant="bayesian"` is the paper's interim payment, the mean of (i) over the others' costs, by Monte Carlo.
It is truthful on average over the others only.

A client that did not answer whenever it was drawn is paid for the epsilon that it gave. The schedule is
fixed beforehand (theory B5): client k is drawn T_k times, and its noise makes T_k releases together
(epsilon_k, delta)-private. Of these it delivers g_k, which together are (eps(g), delta)-private for a
smaller eps(g), exactly, as g Gaussian releases are one of less noise. It is paid (theory B11)

    (v)   lambda_k pi_k,   lambda_k = eps(g_k)/epsilon_k  in [0, 1],
    (vi)  all of pi_k if it delivered whenever it was drawn; so also if it never was: the payment buys the
          right to epsilon_k,
    (vii) rounded as ever, never below what lambda_k epsilon_k costs it by its own report.

lambda depends on epsilon_k, delta, g_k and T_k alone, so that anybody can compute it again; not on which
releases are missing. It is no share of rounds: the first releases give away more than later ones. With
noise on the sum (theory B10) T_k is the number of rounds, and the same holds of its calibration.

Truth stays best: whoever states z and delivers g is left with lambda (pi(z) - c epsilon(z)), which is at
most max(0, U(z; c)), hence at most U(c; c) >= 0: what it has from the truth and all deliveries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import Allocation
from bonafed.economics.discrete import FinitePrior
from bonafed.economics.priors import Prior, Uniform
from bonafed.errors import InvalidValue
from bonafed.learning.privacy import noise_multiplier, spent_epsilon
from bonafed.mechanisms.jsam.allocation import SelectionPlan
from bonafed.mechanisms.jsam.rules import Jsam, Rule
from bonafed.mechanisms.jsam.thresholds import Ints, ObjectiveTerms, Own
from bonafed.mechanisms.promises import HARDLY_A_PROMISE

PaymentVariant = Literal["ex-post", "bayesian"]
FLOOR = 1e-6  # of the highest cost: reports, or finitely many virtual costs, below count as this
_CELLS = 128  # of (iii) to begin with
_CHUNK = 1 << 18  # nodes asked at a time
_DEAREST = 1e300  # virtual cost where the density ends at 0
_AGREE = 1e-11  # of the payment: two sizes of cells agree
_SKEW = 0.25  # of the fall of epsilon in a cell: more is no even fall
_DEPTH = 48  # halvings of a cell
_QUARTERS = np.array([[0.25], [0.5], [0.75]])  # of a cell, where v is looked at
Ask = Callable[[Ints, Floats], Own]


@dataclass(frozen=True, slots=True, eq=False)
class PrivacySettlement:
    """Who is selected, whose privacy is bought, and what each is paid; in the order of the reports."""

    reports: Floats  # (n,) money per unit of epsilon
    admitted: NDArray[np.bool_]  # (n,) False for reports above the highest cost
    allocation: SelectionPlan  # selection and privacy (n,), 0 for those not admitted
    payment: Floats  # (n,) money for the whole run, >= report times epsilon; "bayesian": on average
    payment_error: Floats  # (n,) the payment is within this of (i); standard error for "bayesian"

    def utility(self, true_costs: ArrayLike) -> Floats:
        """(n,) payment minus true cost times epsilon."""
        return (
            self.payment
            - checks.vector("true_costs", true_costs, length=self.payment.size) * self.allocation.privacy
        )

    @property
    def spend(self) -> float:
        """Money paid to all."""
        return math.fsum(self.payment)


@np.errstate(over="ignore", invalid="ignore")  # what is infinite is refused in the end
def settle(
    reports: ArrayLike,
    prior: Prior | Sequence[Prior],
    eta: float,
    noise_scale: float,
    *,
    rule: Rule | None = None,
    max_epsilon: ArrayLike | None = None,
    variant: PaymentVariant = "ex-post",
    cells: int = _CELLS,
    samples: int = 200,
    rng: np.random.Generator | None = None,
) -> PrivacySettlement:
    """Allocation and payments for reported privacy sensitivities.

    `prior` is one belief for all or one per client. `rule` is the exact optimum (`Jsam`) if not given.
    `max_epsilon` is the most that is bought from a client, one number or one per client; it must be public,
    or stated and binding before costs are reported (theory B9). Payments stay truthful.
    `cells` are those of (iii) to begin with; `samples` and `rng` belong to `variant="bayesian"`.

    >>> from bonafed.economics import Uniform
    >>> settlement = settle([0.12, 0.35, 0.5, 0.71, 0.93], Uniform(0, 1), eta=1, noise_scale=1)
    >>> settlement.payment.round(4)
    array([0.407 , 0.2746, 0.2591, 0.2392, 0.    ])
    """
    checks.literal("variant", variant, PaymentVariant)
    c = checks.vector("reports", reports)
    weight, scale = checks.positive("eta", eta), checks.positive("noise_scale", noise_scale)
    inside, group = _admitted(c, _priors(prior, c.size), checks.whole("cells", cells))
    who = np.flatnonzero(inside)
    choice = capped_rule(rule, max_epsilon).among(inside)
    plan = choice.plan(group.virtual, weight, scale)
    if variant == "ex-post":
        amount, error = group.payments(choice, group.virtual, weight, scale)
        amount = np.maximum(amount, group.costs * plan.privacy)  # no loss, not even by rounding
    else:
        source = rng if rng is not None else np.random.default_rng(0)
        amount, error = _interim(group, choice, weight, scale, checks.whole("samples", samples, 2), source)
    if not np.isfinite(amount.sum()):
        raise InvalidValue(
            "eta", f"must be smaller for noise_scale {scale:g}: payments are not finite", weight
        )
    return PrivacySettlement(
        c, inside, spread_out(plan, who, c.size), _fill(amount, who, c.size), _fill(error, who, c.size)
    )


def privacy_warning(privacy: Floats) -> str | None:
    """A warning about a plan that buys more than anyone should call privacy; None: it does not."""
    much = int((privacy > HARDLY_A_PROMISE).sum())
    if not much:
        return None
    who = "1 client sells" if much == 1 else f"{much} clients sell"
    return (
        f"{who} more than epsilon {HARDLY_A_PROMISE:g}, up to {privacy.max():.4g}, which is hardly a "
        "promise of privacy: max_epsilon caps it"
    )


def capped_rule(rule: Rule | None, max_epsilon: ArrayLike | None) -> Rule:
    """The rule, the exact optimum if not given, under the cap if there is one."""
    choice = rule or Jsam()
    return choice if max_epsilon is None else choice.with_cap(max_epsilon)


class Admitted(NamedTuple):
    """The clients whose reports are not above the highest cost, as every rule sees them; (m,) each."""

    clients: Ints  # their places among the reports
    costs: Floats  # their reports, those below the floor lifted to it
    virtual_costs: Floats  # ironed (theory B4)


def admit(reports: ArrayLike, prior: Prior | Sequence[Prior]) -> Admitted:
    """Who is admitted, at what virtual cost.

    >>> from bonafed.economics import Uniform
    >>> admit([0.5, 1.2, 0.0], Uniform(0, 1))
    Admitted(clients=array([0, 2]), costs=array([5.e-01, 1.e-06]), virtual_costs=array([1.e+00, 2.e-06]))
    """
    c = checks.vector("reports", reports)
    inside, group = _admitted(c, _priors(prior, c.size), cells=1)
    lifted = np.maximum(group.costs, [lowest_cost(belief) for belief in group.priors])
    return Admitted(np.flatnonzero(inside), lifted, group.virtual)


@dataclass(frozen=True)
class JsamMechanism:
    """`settle` as something that can be audited: what a client gives is epsilon."""

    prior: Prior | Sequence[Prior]
    eta: float
    noise_scale: float
    rule: Rule | None = None
    max_epsilon: ArrayLike | None = None

    def plan(self, reports: Floats) -> SelectionPlan:
        """For reports none of which is above the highest cost."""
        _, group = _admitted(reports, _priors(self.prior, reports.size), _CELLS)
        return capped_rule(self.rule, self.max_epsilon).plan(group.virtual, self.eta, self.noise_scale)

    def allocate(self, reports: ArrayLike) -> Allocation:
        """(n,) epsilon and payment."""
        settlement = settle(
            reports, self.prior, self.eta, self.noise_scale, rule=self.rule, max_epsilon=self.max_epsilon
        )
        return Allocation(settlement.allocation.privacy, settlement.payment)

    @np.errstate(over="ignore", invalid="ignore")  # what is infinite is no outcome to the audit
    def respond(self, reports: Floats, client: int, own: Floats) -> tuple[Floats, Floats]:
        """(m,) epsilon and payment of one client for its reports `own`: `allocate`, for that one only."""
        group, ask, k, start, now = self._facing(reports, client, own)
        rent, _ = group.rent(ask, k, start, now.terms)
        payment = start * now.privacy + np.maximum(rent, 0.0)
        admitted = own <= group.priors[int(k[0])].high
        return np.where(admitted, now.privacy, 0.0), np.where(admitted, payment, 0.0)

    def privacy(self, reports: Floats, client: int, own: Floats) -> Floats:
        """(m,) epsilon of `respond`, without the payments, which take longer."""
        group, _, k, _, now = self._facing(reports, client, own)
        return np.where(own <= group.priors[int(k[0])].high, now.privacy, 0.0)

    def _facing(self, reports: Floats, client: int, own: Floats) -> tuple[_Group, Ask, Ints, Floats, Own]:
        """The admitted, what one of them is answered, its place (m times), reports that count, answers."""
        everyone = np.array(reports)
        priors = _priors(self.prior, everyone.size)
        belief = priors[client]
        everyone[client] = belief.high  # any admitted report: it is replaced below
        inside, group = _admitted(everyone, priors, _CELLS)
        rule = capped_rule(self.rule, self.max_epsilon).among(inside)

        def ask(clients: Ints, x: Floats) -> Own:
            return rule.own(group.virtual, self.eta, self.noise_scale, clients, x)

        k = np.full(own.size, np.count_nonzero(inside[:client]))
        start = np.clip(own, group.lowest[k], belief.high)
        return group, ask, k, start, ask(k, virtual_costs_of(start, belief))


def _priors(prior: Prior | Sequence[Prior], clients: int) -> list[Prior]:
    if isinstance(prior, Prior):
        return [prior] * clients
    priors = list(prior) if isinstance(prior, Sequence) else []
    if len(priors) != clients or not all(isinstance(belief, Prior) for belief in priors):
        raise InvalidValue("prior", f"must be one, or {clients}, one per client", repr(prior)[:60])
    return priors


def _fill(values: Floats, who: Ints, n: int) -> Floats:
    result = np.zeros(n)
    result[who] = values
    return result


def spread_out(plan: SelectionPlan, who: Ints, n: int) -> SelectionPlan:
    """A plan for the admitted in the places of all."""
    if who.size == n:
        return plan
    return SelectionPlan(
        _fill(plan.selection, who, n), _fill(plan.privacy, who, n),
        plan.total, plan.objective, plan.threshold, plan.distance, plan.eta,
    )  # fmt: skip


def _admitted(costs: Floats, priors: list[Prior], cells: int) -> tuple[NDArray[np.bool_], _Group]:
    """Which reports are admitted, and the group they form."""
    inside = costs <= np.array([belief.high for belief in priors])
    who = np.flatnonzero(inside)
    if not who.size:
        rule = "must not all be above the highest cost"
        raise InvalidValue("reports", rule, f"{costs.min():g} and more")
    return inside, _Group([priors[k] for k in who], costs[who], cells)


class _Group:
    """Admitted clients with their priors; equal priors are worked on together."""

    def __init__(self, priors: list[Prior], reports: Floats, cells: int) -> None:
        self.priors, self._cells = priors, cells
        self.lowest = np.array([
            belief.low if isinstance(belief, FinitePrior) else lowest_cost(belief)
            for belief in priors
        ])  # fmt: skip
        self.costs = np.maximum(reports, self.lowest)  # below, the terms are those at the lowest
        self._alike: dict[int, list[int]] = {}
        for k, belief in enumerate(priors):
            self._alike.setdefault(id(belief), []).append(k)
        self.virtual = self.virtual_of(self.costs)

    def virtual_of(self, costs: Floats) -> Floats:
        """(n,) ironed virtual costs, each under its client's prior (theory B4)."""
        result = np.empty(costs.size)
        for members in self._alike.values():
            result[members] = virtual_costs_of(costs[members], self.priors[members[0]])
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
            rent[k], error[k] = self.rent(ask, k, self.costs[k], now.terms.at(k))
        return self.costs * now.privacy + np.maximum(rent, 0.0), error

    def rent(self, ask: Ask, k: Ints, start: Floats, now: ObjectiveTerms) -> tuple[Floats, Floats]:
        """The integral of (i) for clients of one prior, from `start`, where V_k is `now`; its error."""
        belief = self.priors[int(k[0])]
        if isinstance(belief, Uniform) and belief.virtual_cost(belief.high) <= _DEAREST:  # (ii)
            top = ask(k, np.full(k.size, float(belief.virtual_cost(belief.high)))).terms.since(now)
            return top.value / 2, 8 * np.finfo(float).eps * top.size
        if isinstance(belief, FinitePrior):
            virtual = virtual_costs_of(belief.costs, belief)
            return _levels(ask, belief.costs, virtual, k, start), np.zeros(k.size)
        step = max(1, _CHUNK // (self._cells + 1))
        parts = [
            _cells(ask, belief, k[i : i + step], start[i : i + step], self._cells)
            for i in range(0, k.size, step)
        ]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def lowest_cost(belief: Prior) -> float:
    """Costs below count as this: the lowest of the prior, or the floor where that is higher."""
    return max(belief.low, FLOOR * belief.high)


def virtual_costs_of(reports: Floats, belief: Prior) -> Floats:
    """What a unit of epsilon counts at these reports: the ironed virtual cost, kept from 0 and infinity."""
    bottom = lowest_cost(belief)
    if isinstance(belief, FinitePrior):  # a report lifted from an atom below would count as the next one
        return np.clip(belief.ironed_virtual_cost(reports), bottom, _DEAREST)
    return np.minimum(belief.ironed_virtual_cost(np.maximum(reports, bottom)), _DEAREST)


def _levels(ask: Ask, costs: Floats, virtual: Floats, k: Ints, start: Floats) -> Floats:
    """(iv) for finitely many costs: a report is rounded up to the next of them."""
    rent = np.zeros(k.size)
    for j in range(costs.size):
        width = np.clip(costs[j] - np.maximum(start, costs[j - 1] if j else 0.0), 0.0, None)
        needed = width > 0
        if needed.any():
            epsilon = ask(k[needed], np.full(int(needed.sum()), float(virtual[j]))).privacy
            rent[needed] += width[needed] * epsilon
    return rent


class _Span(NamedTuple):
    """Ends of cells: costs, virtual costs, and what the client would face there; (m,) each."""

    cost: Floats  # z
    virtual: Floats  # x
    privacy: Floats  # epsilon
    bias: Floats  # ... and the terms of V
    noise: Floats
    rest: Floats

    @classmethod
    def facing(cls, cost: Floats, virtual: Floats, own: Own) -> _Span:
        return cls(cost, virtual, own.privacy, *own.terms)

    @property
    def terms(self) -> ObjectiveTerms:
        return ObjectiveTerms(self.bias, self.noise, self.rest)

    def take(self, keep: NDArray[np.bool_]) -> _Span:
        return _Span(*(part[keep] for part in self))

    def then(self, other: _Span) -> _Span:
        return _Span(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


def _cells(ask: Ask, belief: Prior, k: Ints, start: Floats, cells: int) -> tuple[Floats, Floats]:
    """(iii) and (iv), and an error bracket."""

    def virtual(cost: Floats) -> Floats:
        return np.minimum(belief.ironed_virtual_cost(cost), _DEAREST)

    def look(a: _Span, b: _Span, half_way: Floats | None = None) -> Floats:
        """(3, m) virtual costs at the quarters of cells; those half way may be known."""
        middle = (a.cost + b.cost) / 2
        first, last = virtual(np.stack([a.cost + middle, middle + b.cost]) / 2)
        return np.stack([first, virtual(middle) if half_way is None else half_way, last])

    z = _edges(belief, start, cells)
    who, x = np.repeat(np.arange(k.size), z.shape[1]), virtual(z.ravel())
    nodes = _Span(*(part.reshape(z.shape) for part in _Span.facing(z.ravel(), x, ask(k[who], x))))
    a, b = (_Span(*(part[:, cut].ravel() for part in nodes)) for cut in (np.s_[:-1], np.s_[1:]))
    who, inside = np.repeat(np.arange(k.size), z.shape[1] - 1), look(a, b)
    part, _ = _piece(a, b, inside)
    size = start * nodes.privacy[:, 0] + np.bincount(who, part, k.size)
    rent, bracket = np.zeros(k.size), np.zeros(k.size)
    for depth in range(1, _DEPTH + 1):  # every cell is measured by its halves
        first, x, last = inside
        middle = _Span.facing((a.cost + b.cost) / 2, x, ask(k[who], x))
        ends = a.then(middle), middle.then(b)
        inside = look(*ends, half_way=np.concatenate([first, last]))
        half, off = _piece(*ends, inside)
        both, bound = half.reshape(2, -1).sum(0), off.reshape(2, -1).sum(0)
        skew = np.abs(a.privacy + b.privacy - 2 * middle.privacy)
        even = skew <= _SKEW * np.abs(a.privacy - b.privacy)  # else epsilon jumps, and agreement is chance
        close = np.where(even, np.abs(both - part), bound) <= _AGREE * size[who]
        final = close | ~np.isfinite(both + size[who]) | (depth == _DEPTH)
        rent += np.bincount(who[final], both[final], k.size)
        bracket += np.bincount(who[final], bound[final], k.size)
        if final.all():
            break
        again = np.tile(~final, 2)
        who, inside, part = np.tile(who, 2)[again], inside[:, again], half[again]
        a, b = (end.take(again) for end in ends)
    return rent, bracket


def _edges(belief: Prior, start: Floats, cells: int) -> Floats:
    """Costs (m, n+1) from `start` to the highest; the ends of pools among them."""
    pools = [edge for pool in belief.ironed_intervals for edge in (pool.left, pool.right)]
    even = np.linspace(0.0, 1.0, cells + 1)
    z = start[:, None] + (belief.high - start)[:, None] * even
    z[:, -1] = belief.high
    inside = np.clip(np.array(pools), start[:, None], belief.high)
    return np.sort(np.concatenate([z, inside], axis=1), axis=1)


def _piece(a: _Span, b: _Span, inside: Floats) -> tuple[Floats, Floats]:
    """(iii) for one cell each, given virtual costs (3, m) at its quarters; and how far off it may be."""
    dz, dx, fall = b.cost - a.cost, b.virtual - a.virtual, a.privacy - b.privacy
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        secant = b.terms.since(a.terms).value * (dz / dx)
        gaps = dz * ((inside - a.virtual) / dx - _QUARTERS)  # -g: of z below its chord
        sag = gaps[1]
        off = 2 * np.abs(gaps).max(0) * fall  # twice, as g may be larger between, and sag is taken off
    steep, most = np.isfinite(secant) & (dx > 0), np.abs(fall) * dz
    low, high = np.minimum(a.privacy, b.privacy) * dz, np.maximum(a.privacy, b.privacy) * dz
    value = np.where(steep, np.clip(secant - sag * fall * (2 / 3), low, high), a.privacy * dz)
    return value, np.where(steep, np.minimum(np.abs(off), most), most)


def _interim(
    group: _Group, rule: Rule, eta: float, noise_scale: float, samples: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The mean of (i) over the others' costs, drawn from their priors, and its standard error."""
    profiles = np.empty((samples, group.costs.size))
    for s in range(samples):
        u = rng.random(group.costs.size)
        costs = np.array([float(b.quantile(v)) for b, v in zip(group.priors, u, strict=True)])
        lifted = np.maximum(costs, group.lowest)
        profiles[s] = group.payments(rule, group.virtual_of(lifted), eta, noise_scale)[0]
    return profiles.mean(0), profiles.std(0, ddof=1) / np.sqrt(samples)


@lru_cache(maxsize=4096)  # many clients are alike
def given_share(epsilon: float, delta: float, delivered: int, asked: int) -> float:
    """(v): the share of epsilon that so many releases give away at the noise of all that were asked for.

    >>> [round(given_share(1.0, 1e-5, count, 10), 3) for count in (0, 1, 5, 9, 10)]
    [0.0, 0.285, 0.684, 0.944, 1.0]
    """
    if delivered == asked:  # (vi)
        return 1.0
    if not delivered or not epsilon:
        return 0.0
    noise = noise_multiplier(epsilon, delta, asked)
    return min(1.0, spent_epsilon(noise, delivered, delta) / epsilon)
