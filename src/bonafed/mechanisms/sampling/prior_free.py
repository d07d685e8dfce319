"""Client sampling when nothing is known about the costs but their upper end.

Algorithm 1' (theory A6), the safe form of the paper's Algorithm 1. Clients are approached one after
the other, in an order the server draws at random. Each is shown a menu made only from the reports
of those before it, so that its own report cannot change its menu:

    (T)  truthful and individually rational for every cost in [0, highest]: Theorem 1 on each menu;
    (B)  the expected payments (over the sampling coins) of all clients together never exceed the
         budget per round, for every realisation of the costs;
    (F)  nobody admitted is sampled with a probability below `floor` > 0.

(B) and (F) hold because the money for the floor of everyone still to come is set aside first: with
N' clients left (this one included) and remaining money B_j,

    slack = B_j - N' highest floor,   excess = t(lowest report) - highest floor,

a menu whose dearest term needs more than the slack is shrunk towards the floor by slack/excess.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import Allocation, Settlement, StepMenu, step_rents
from bonafed.economics.discrete import Discrete, Estimator, estimate, pool, virtual_costs
from bonafed.errors import InvalidValue, ReportRefused
from bonafed.mechanisms.sampling.menus import solve_scale

PriorFreeVariant = Literal["safe", "printed"]
# Relative money kept back so that the budget also holds after rounding of the sums.
ROUNDING_RESERVE = 1e-12
_NEVER = 2.0**62  # more reports than there will ever be


class Offer(NamedTuple):
    """Terms before they are shrunk, and the estimate they were made from."""

    support: Floats  # (J,) costs of the estimated prior
    masses: Floats  # (J,) their probabilities
    target: float  # money per client and round the terms were made for
    costs: Floats  # (K,) increasing levels, the last is the highest admitted cost
    probabilities: Floats  # (K,)
    rents: Floats  # (K,) sum over j > k of q_j (c_j - c_{j-1}), money per round

    @property
    def dearest(self) -> float:
        """t at the lowest level, the largest expected payment of a menu (theory A1)."""
        return float(self.costs[0] * self.probabilities[0] + self.rents[0])


def offer(support: Floats, masses: Floats, target: float, costs: Floats, probabilities: Floats) -> Offer:
    """The truthful terms for given probabilities: the rents of equation (16)."""
    return Offer(support, masses, target, costs, probabilities, step_rents(costs, probabilities))


def one_term_offer(highest: float, probability: float) -> Offer:
    """The same terms for every report."""
    top = np.array([highest])
    return offer(top, np.ones(1), probability * highest, top, np.array([probability]))


@dataclass(frozen=True, slots=True)
class PriorFreeSampling:
    """The rules of the sequence; `start()` opens it, `run()` plays it for given reports.

    >>> rules = PriorFreeSampling(clients=10, budget=3.0, highest=1.5, initial=3)
    >>> state = rules.start()
    >>> terms, state = state.settle(0.4)   # publish state.menu, receive a report, settle
    >>> round(terms.payment, 9), round(state.remaining, 9)
    (1.5, 2.7)
    """

    clients: int  # N
    budget: float  # b, money per round for all clients together
    highest: float  # highest admitted cost
    initial: int | None = None  # n0 first clients on uniform terms; default a tenth, at most 50
    initial_probability: float | None = None  # of those; default min(1, b/(N highest))
    floor: float | None = None  # smallest probability; default a tenth of that
    estimator: Estimator = "plus"
    variant: PriorFreeVariant = "safe"
    refresh: float = 0.0  # new menu when the reports grew by this share; 0: for every client

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("clients", checks.whole("clients", self.clients))
        put("budget", checks.positive("budget", self.budget))
        put("highest", checks.positive("highest", self.highest))
        checks.literal("estimator", self.estimator, Estimator)
        checks.literal("variant", self.variant, PriorFreeVariant)
        put("refresh", checks.non_negative("refresh", self.refresh))
        first = min(-(-self.clients // 10), 50) if self.initial is None else self.initial
        put("initial", checks.whole("initial", first, at_least=0))
        if self.first_clients > self.clients:
            raise InvalidValue("initial", f"must not exceed clients = {self.clients}", first)
        if self.variant == "printed" and self.first_clients == 0:
            raise InvalidValue("initial", "must be at least 1 for the printed algorithm", 0)
        fair = min(1.0, self.budget / (self.clients * self.highest))
        start = fair if self.initial_probability is None else self.initial_probability
        low = 0.1 * fair if self.floor is None else self.floor
        put("initial_probability", checks.between("initial_probability", start, 0.0, 1.0))
        put("floor", checks.positive("floor", low))
        if self.lowest_probability > min(fair, self.first_probability):
            limit = min(fair, self.first_probability)
            raise InvalidValue(
                "floor",
                f"must not exceed {limit:.6g} (budget / (clients highest), initial_probability)",
                low,
            )
        self._keep_rounding_reserve()

    def _keep_rounding_reserve(self) -> None:
        needed = self.highest * (
            self.first_clients * self.first_probability
            + (self.clients - self.first_clients) * self.lowest_probability
        )
        if needed > self.budget * (1 + ROUNDING_RESERVE):
            raise InvalidValue(
                "initial_probability",
                f"must leave the floor for the rest: {needed:g} needed, budget {self.budget:g}",
                self.initial_probability,
            )
        if needed > self.budget * (1 - ROUNDING_RESERVE):
            shave = (1 - 2 * ROUNDING_RESERVE) * self.budget / needed
            object.__setattr__(self, "initial_probability", self.first_probability * shave)
            object.__setattr__(self, "floor", self.lowest_probability * shave)

    @property
    def first_clients(self) -> int:
        """n0, resolved."""
        return int(self.initial or 0)

    @property
    def first_probability(self) -> float:
        """Probability of the first clients, resolved."""
        return float(self.initial_probability or 0.0)

    @property
    def lowest_probability(self) -> float:
        """The floor, resolved."""
        return float(self.floor or 0.0)

    def order(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """The order in which clients are approached: the server's draw, never the clients'."""
        return rng.permutation(self.clients)

    def start(self) -> PriorFreeState:
        """The sequence before its first client."""
        opening = PriorFreeState(
            self, 0, self.budget, np.empty(0), one_term_offer(self.highest, self.first_probability)
        )
        return _refreshed(opening)

    def run(self, reports: ArrayLike) -> PriorFreeRun:
        """Play the whole sequence for reports in the order of approach."""
        try:
            values = np.asarray(reports, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidValue("reports", "must be a list of numbers", repr(reports)[:60]) from error
        if values.shape != (self.clients,):
            raise InvalidValue("reports", f"must have {self.clients} values", values.shape)
        _refuse_nonsense(values)
        parts = list(_play(self.start(), values))
        return PriorFreeRun(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in _RECORDED)
        )

    def allocate(self, reports: ArrayLike) -> Allocation:
        """What each client gets, reports in the order of approach (the interface of the audit)."""
        played = self.run(reports)
        return Allocation(played.probability, played.expected_payment)


@dataclass(frozen=True, slots=True, eq=False)
class PriorFreeRun:
    """The accounts of a sequence, one entry per client in the order of approach."""

    probability: Floats  # of being sampled in a round
    payment: Floats  # money per participation
    remaining: Floats  # money left before the client's offer
    shrink: Floats  # factor by which its menu was shrunk towards the floor; 1: not at all

    @property
    def expected_payment(self) -> Floats:
        """(n,) money per round, in expectation over the sampling coin."""
        return self.probability * self.payment

    @property
    def spent(self) -> float:
        """Expected money per round, all clients."""
        return float(self.expected_payment.sum())


_RECORDED = ("probability", "payment", "remaining", "shrink")


@dataclass(frozen=True, slots=True, eq=False)
class PriorFreeState:
    """Between two clients: publish `menu`, receive a report, `settle`, go on."""

    rules: PriorFreeSampling
    position: int  # clients served so far
    remaining: float  # B_j, money per round not yet committed
    reports: Floats  # sorted reports of the clients served so far
    terms: Offer  # the current offer before it is shrunk
    reports_at_refresh: int = 0  # number of reports the current offer was made from
    closing: bool = False  # printed variant: line 16 reached, uniform terms for all the rest

    @property
    def clients_left(self) -> int:
        return self.rules.clients - self.position

    @property
    def shrink(self) -> float:
        """Factor kappa of theory A6 for the next client."""
        slack, excess = self.slack_and_excess()
        return 1.0 if excess <= slack else slack / excess

    @property
    def menu(self) -> StepMenu:
        """The menu to publish to the next client."""
        self._require_client()
        terms = self.terms
        q, rent = _shrunk(self, np.arange(terms.costs.size), self.shrink)
        return StepMenu(
            Discrete(terms.support, terms.masses),
            terms.target,
            terms.costs,
            q,
            _payments(terms.costs, q, rent),
        )

    def settle(self, report: float) -> tuple[Settlement, PriorFreeState]:
        """Terms for the next client's report, and the state after it."""
        self._require_client()
        value = np.asarray([checks.number("report", report)])
        _refuse_nonsense(value)
        part, following = _serve(self, value)
        q, r = float(part.probability[0]), float(part.payment[0])
        return Settlement(float(value[0]), q, r), following

    def slack_and_excess(self) -> tuple[float, float]:
        rules = self.rules
        if rules.variant == "printed" or self.position < rules.first_clients:
            return np.inf, 0.0
        kept_back = self.clients_left * rules.highest * rules.lowest_probability
        slack = max(0.0, self.remaining - kept_back - ROUNDING_RESERVE * rules.budget)
        return slack, self.terms.dearest - rules.highest * rules.lowest_probability

    def batch(self) -> int:
        """How many of the next clients certainly see exactly the current terms, at least 1."""
        rules = self.rules
        if self.position < rules.first_clients:
            return rules.first_clients - self.position
        if self.closing:
            return self.clients_left
        if rules.refresh == 0.0 or rules.variant == "printed":
            return 1
        until_refresh = _next_refresh(self.reports_at_refresh, rules.refresh) - self.reports.size
        slack, excess = self.slack_and_excess()
        affordable = self.clients_left if excess <= 0 else int(slack / excess * (1 - 1e-9))
        return max(1, min(until_refresh, affordable, self.clients_left))

    def _require_client(self) -> None:
        if self.clients_left == 0:
            raise InvalidValue("sequence", "must have clients left", 0)


def _next_refresh(reports: int, growth: float) -> int:
    """The number of reports at which the menu made from `reports` is replaced."""
    return max(reports + 1, int(min(np.ceil(reports * (1 + growth)), _NEVER)))


def _play(state: PriorFreeState, reports: Floats) -> Iterator[PriorFreeRun]:
    while state.clients_left:
        part, state = _serve(state, reports[state.position : state.position + state.batch()])
        yield part


def _serve(state: PriorFreeState, reports: Floats) -> tuple[PriorFreeRun, PriorFreeState]:
    """Settle consecutive clients that see the same terms; one client, or `state.batch()`."""
    rules, kappa = state.rules, state.shrink
    ok = reports <= rules.highest
    level = np.searchsorted(state.terms.costs, np.where(ok, reports, rules.highest))  # round up
    q, rent = _shrunk(state, level, kappa)
    r = _payments(state.terms.costs[level], q, rent)
    q, r = np.where(ok, q, 0.0), np.where(ok, r, 0.0)  # not admitted: nothing, and not stored
    money = np.cumsum(np.concatenate([[state.remaining], -(q * r)]))  # one after the other
    past = np.sort(np.concatenate([state.reports, reports[ok]]), kind="stable")
    part = PriorFreeRun(q, r, money[:-1], np.full(q.size, kappa))
    following = replace(state, position=state.position + q.size, remaining=float(money[-1]), reports=past)
    return part, _refreshed(following)


def _shrunk(state: PriorFreeState, level: NDArray[np.intp], kappa: float) -> tuple[Floats, Floats]:
    """Probability and rent at the given levels, shrunk towards the floor by kappa."""
    terms, rules = state.terms, state.rules
    q, rent = terms.probabilities[level], terms.rents[level]
    if kappa < 1.0:
        low = rules.lowest_probability
        floor_rent = (rules.highest - terms.costs[level]) * low
        q = low + kappa * (q - low)
        rent = np.maximum(floor_rent + kappa * (rent - floor_rent), 0.0)
    return q, rent


def _payments(costs: Floats, q: Floats, rent: Floats) -> Floats:
    """r = c + rent/q >= c, so individually rational also after rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(q > 0, costs + rent / q, 0.0)


def _refreshed(state: PriorFreeState) -> PriorFreeState:
    """The state with a new offer where one is due."""
    rules = state.rules
    if state.clients_left == 0 or state.closing or state.position < rules.first_clients:
        return state
    due = _next_refresh(state.reports_at_refresh, rules.refresh) if rules.refresh else 0
    if state.position > rules.first_clients and state.reports.size < due:
        return state
    if rules.variant == "printed":
        from bonafed.mechanisms.sampling.printed import printed_offer

        terms, closing = printed_offer(state)
        return replace(state, terms=terms, closing=closing, reports_at_refresh=state.reports.size)
    target = state.remaining / state.clients_left
    costs, masses = estimate(state.reports, rules.highest, rules.estimator)
    q = floored_probabilities(costs, masses, target, rules.lowest_probability)
    terms = offer(costs, masses, target, costs, q)
    return replace(state, terms=terms, reports_at_refresh=state.reports.size)


def floored_probabilities(costs: Floats, masses: Floats, target: float, floor: float) -> Floats:
    """q = clip(tau/sqrt(phibar), floor, 1) with expected spend `target` under the estimate."""
    if target >= costs[-1]:
        return np.ones(costs.size)
    psi = pool(virtual_costs(costs, masses), masses)
    root = np.sqrt(psi)
    heads = np.concatenate([[0.0], np.cumsum(masses * psi)])
    roots = np.concatenate([[0.0], np.cumsum(masses * root)])
    floored = root.size  # levels from here on are at the floor
    while True:
        budget = target - floor * (heads[-1] - heads[floored])

        def parts(tau: float, end: int = floored) -> tuple[float, float]:
            capped = min(int(np.searchsorted(root, tau, side="right")), end)
            return float(heads[capped]), float(roots[end] - roots[capped])

        # Adding levels at the floor costs money, so tau falls and the set only grows.
        tau = solve_scale(parts, float(budget))
        start = int(np.searchsorted(root, tau / floor, side="right"))
        if start >= floored:
            break
        floored = start
    with np.errstate(divide="ignore"):
        return np.clip(tau / root, floor, 1.0)


def _refuse_nonsense(reports: Floats) -> None:
    bad = ~(reports >= 0)  # NaN too
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        raise ReportRefused("report", "must be a number not below 0", reports[where])
