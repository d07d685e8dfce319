"""The contribution game: what a reward rule makes clients do (paper 4.1, Appendix B; theory D4).

Client i contributes p_i >= 0 (data, rounds, effort) at a cost c_i each, and is rewarded by a share s_i of
what the others contribute:

    u_i = g(p_i + s_i sum_{j != i} p_j) - c_i p_i,         g increasing and concave.

    standard   s_i = 1                                everybody gets the same model
    relative   s_i = p_i/max_j p_j
    ceiling    s_i = min(p_i/p_ceil, 1)^(1-kappa)     mechanism (1)

All three are s = min(p_i/M, 1)^e: e = 0; M = the largest contribution, e = 1; M = p_ceil, e = 1 - kappa.
(Of the relative rule only others count for M: above them s = 1 anyway.) So for fixed others, of sum P,

    x(p) = p + min(p/M, 1)^e P  is concave with one kink, at M; hence u_i is concave, with best response
    (a)  g'^{-1}(c) - P                  if that is above M: the share cannot grow any more;
    (b)  M                               if u_i still rises below M: the kink;
    (c)  the root of u_i' in (0, M)      otherwise, by a bracket, or 0 if u_i' <= 0 at 0.

Facts (proofs in docs/theory/rewards.md): under the standard rule the total is g'^{-1}(min c), and only the
cheapest pay. Under the relative rule N identical clients have a whole interval of symmetric equilibria,
g'(Nx) <= c <= N g'(Nx): from what one client alone would contribute (Proposition 3, true; its proof omits
the deviation check) to the social optimum. Under the ceiling rule several equilibria exist too when
c > g'(0). That is why equilibria are searched from several starts, and each carries what the best deviation
gains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

_HALVINGS = 60  # of a bracket: down to rounding
_ROUNDING = 2.0**-51  # relative: two guesses this close are one
_FAR = 2.0**200  # a marginal worth that has not fallen to the cost by here never will


@dataclass(frozen=True, slots=True)
class Worth:
    """g: what contributions are worth to a client. Any increasing concave function with its derivative."""

    name: str
    value: Callable[[Floats], Floats]  # g, elementwise
    slope: Callable[[Floats], Floats]  # g', elementwise; must not rise


EXPONENTIAL = Worth("exp", lambda x: -np.expm1(-x), lambda x: np.exp(-x))
FRACTION = Worth("frac", lambda x: x / (1 + x), lambda x: 1 / (1 + x) ** 2)
LOGARITHM = Worth("log", np.log1p, lambda x: 1 / (1 + x))
WORTHS: Mapping[str, Worth] = {one.name: one for one in (EXPONENTIAL, FRACTION, LOGARITHM)}


def contribution_at_slope(worth: Worth, slope: ArrayLike) -> Floats:
    """g'^{-1}: the contribution at which one more unit is worth `slope`; 0 if g'(0) is not above it."""
    target = checks.vector("slope", np.atleast_1d(np.asarray(slope, dtype=np.float64)), sign="positive")
    high = np.ones(target.size)
    while (above := worth.slope(high) > target).any():
        if high.max() > _FAR:
            lowest = float(target[above][0])
            raise InvalidValue("worth", f"must fall to a slope of {lowest:g} somewhere", worth.name)
        high = np.where(above, 2 * high, high)
    low = np.where(high > 1, high / 2, 0.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rises = worth.slope(middle) > target
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return np.where(worth.slope(np.zeros(target.size)) > target, (low + high) / 2, 0.0)


@dataclass(frozen=True, slots=True)
class RewardRule:
    """A reward rule; make one by `standard`, `relative` or `with_ceiling`."""

    ceiling: float | None  # p_ceil > 0, contribution with the full share; None: the largest contribution
    sharing: float  # kappa in [0, 1]; 1 gives everybody everything

    def __post_init__(self) -> None:
        if self.ceiling is not None:
            checks.positive("ceiling", self.ceiling)
        checks.between("sharing", self.sharing, 0.0, 1.0)

    def __str__(self) -> str:
        if self.sharing == 1:
            return "standard"
        limit = "relative" if self.ceiling is None else f"ceiling {self.ceiling:.4g}"
        return limit + (f", sharing {self.sharing:.4g}" if self.sharing else "")


def standard() -> RewardRule:
    """Everybody receives the same model: s = 1."""
    return RewardRule(ceiling=None, sharing=1.0)


def relative(sharing: float = 0.0) -> RewardRule:
    """s = (p/max p)^(1-kappa)."""
    return RewardRule(ceiling=None, sharing=sharing)


def with_ceiling(ceiling: float, sharing: float = 0.5) -> RewardRule:
    """s = min(p/p_ceil, 1)^(1-kappa): mechanism (1)."""
    return RewardRule(ceiling=checks.positive("ceiling", ceiling), sharing=sharing)


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """Clients with costs, and what contributions are worth to them."""

    costs: Floats  # (N,) c, > 0, per unit of contribution, in units of g
    worth: Worth
    standalone: Floats  # (N,) g'^{-1}(c), what each would contribute alone

    @property
    def clients(self) -> int:
        """N, the number of clients."""
        return self.costs.size

    @property
    def standalone_utility(self) -> Floats:
        """(N,) of learning alone, without a federation."""
        return np.asarray(self.worth.value(self.standalone) - self.costs * self.standalone)


def game(costs: ArrayLike, worth: Worth | str = "exp") -> Game:
    """A game of clients with these costs; `worth` is exp, frac, log or one of your own.

    The slope of your own is checked at points up to four times the socially best total: it must be finite,
    not negative, and must not rise.
    """
    c = checks.vector("costs", costs, sign="positive")
    for cost in c:
        checks.moderate("costs", cost)  # whose square is a number: equilibria need it
    g = WORTHS[checks.one_of("worth", worth, tuple(WORTHS))] if isinstance(worth, str) else worth
    far = 4 * float(contribution_at_slope(g, [c.min() / c.size])[0])
    slopes = np.asarray(g.slope(np.linspace(0, max(far, 1e-6), 1001)), dtype=np.float64)
    if not (np.isfinite(slopes).all() and (slopes >= 0).all()):
        raise InvalidValue("worth", "must have a finite slope that is not negative", g.name)
    if (np.diff(slopes) > 1e-9 * slopes[0]).any():
        raise InvalidValue("worth", "must be concave: its slope must not rise", g.name)
    return Game(c, g, contribution_at_slope(g, c))


class Optimum(NamedTuple):
    """The most that all clients together can have."""

    total: float  # sum of contributions
    welfare: float  # sum of utilities


def social_optimum(game: Game) -> Optimum:
    """Everybody gets everything and the cheapest pay: max N g(X) - min(c) X, at g'(X) = min(c)/N."""
    n, c = game.clients, float(game.costs.min())
    total = contribution_at_slope(game.worth, [c / n])
    return Optimum(float(total[0]), n * float(game.worth.value(total)[0]) - c * float(total[0]))


def symmetric_interval(game: Game) -> tuple[float, float]:
    """Contributions x of the symmetric equilibria of the relative rule among identical clients.

    They are all x with c/N <= g'(Nx) <= c. The lower end is the bad equilibrium of Proposition 3, the upper
    end the social optimum.
    """
    c, n = game.costs, game.clients
    if (c != c[0]).any():
        raise InvalidValue("costs", "must be identical for symmetric equilibria", c)
    ends = contribution_at_slope(game.worth, [c[0], c[0] / n]) / n
    return float(ends[0]), float(ends[1])


class _Rules(NamedTuple):
    """B rules side by side."""

    ceiling: Floats  # (B,) M; NaN: the largest other contribution
    exponent: Floats  # (B,) e = 1 - kappa

    @staticmethod
    def of(rules: list[RewardRule]) -> _Rules:
        ceilings = [np.nan if rule.ceiling is None else rule.ceiling for rule in rules]
        return _Rules(np.array(ceilings, dtype=np.float64), 1 - np.array([rule.sharing for rule in rules]))

    def take(self, rows: NDArray[np.intp]) -> _Rules:
        return _Rules(self.ceiling[rows], self.exponent[rows])


class _View(NamedTuple):
    """What clients see of the others; all (B, k), for k clients in each of B situations."""

    others: Floats  # P, the sum of the others' contributions
    knee: Floats  # M, the contribution from which on the share is full
    exponent: Floats  # e


def _view(rules: _Rules, p: Floats, who: list[int]) -> _View:
    rest = [np.delete(p, i, axis=1) for i in who]
    others = np.stack([part.sum(1) for part in rest], axis=1)
    largest = np.stack([part.max(1, initial=0.0) for part in rest], axis=1)
    ceiling = rules.ceiling[:, None]
    exponent = np.broadcast_to(rules.exponent[:, None], others.shape)
    # With e = 0 the share is 1 from the start: no knee.
    knee = np.where(exponent == 0, 0.0, np.where(np.isnan(ceiling), largest, ceiling))
    return _View(others, knee, exponent)


def _share(view: _View, p: Floats) -> Floats:
    below = np.minimum(p, view.knee)  # the minimum first: no overflow over a tiny knee
    ratio = np.divide(below, view.knee, out=np.ones_like(p), where=view.knee > 0)
    return np.asarray(ratio**view.exponent)


def _best_response(game: Game, view: _View, who: list[int]) -> Floats:
    """(B, k) cases (a), (b), (c) of the module's docstring."""
    c, slope = np.broadcast_to(game.costs[who], view.knee.shape), game.worth.slope
    above = game.standalone[who] - view.others  # (a)
    limit = np.where(view.others > 0, view.knee, 0.0)  # nothing to share: as if the share were full
    safe = np.where(limit > 0, limit, 1.0)
    with np.errstate(over="ignore"):  # over a tiny knee the gain is infinite: case (b)
        gain = view.exponent * view.others / safe  # e P/M: what the share adds to x', at the knee
    at_knee = slope(limit + view.others) * (1 + gain) - c  # u' just below the knee
    steep = np.where(gain > 0, np.where(view.exponent < 1, np.inf, 1 + gain), 1.0)  # x' at 0
    rises = slope(np.zeros_like(gain)) > c / steep  # u' > 0 at 0
    kink = (at_knee >= 0) | (limit == 0)  # (b)
    result = np.where(above > limit, above, np.where(kink, limit, 0.0))
    inside = (above <= limit) & ~kink & rises  # (c)
    if inside.any():
        e, others, knee = view.exponent[inside], view.others[inside], limit[inside]
        cost, extra = c[inside], gain[inside]

        def marginal(p: Floats) -> Floats:
            """u'/x' = g'(x) - c/x', of the sign of u' but finite at 0, where x' may be infinite."""
            ratio = p / knee
            small = ratio ** (1 - e)
            return np.asarray(slope(p + ratio**e * others) - cost * small / (small + extra))

        result[inside] = _root(marginal, knee)
    return np.asarray(result)


def _root(falling: Callable[[Floats], Floats], high: Floats) -> Floats:
    """(k,) roots in [0, high] of functions positive at 0 and negative at `high`, by Ridders' method.

    It keeps the root in a bracket that at least halves in each step, and needs a quarter of the
    evaluations of bisection.
    """
    low, high = np.zeros_like(high), high.copy()
    below, above = falling(low), falling(high)
    guess = (low + high) / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        at_middle = falling(middle)
        scale = np.sqrt(at_middle**2 - below * above)
        # The scale is 0 only where all three values are: the middle is as good as any point.
        shift = np.divide(at_middle, scale, out=np.zeros_like(scale), where=scale > 0)
        old, guess = guess, middle + (middle - low) * shift
        at_guess = falling(guess)
        for point, value in ((middle, at_middle), (guess, at_guess)):
            positive, within = value > 0, (point > low) & (point < high)
            raise_, lower = positive & within, ~positive & within
            low, below = np.where(raise_, point, low), np.where(raise_, value, below)
            high, above = np.where(lower, point, high), np.where(lower, value, above)
        if (np.abs(guess - old) <= _ROUNDING * guess).all():
            break
    return guess


def _utility(game: Game, view: _View, p: Floats, who: list[int]) -> Floats:
    return np.asarray(game.worth.value(p + _share(view, p) * view.others) - game.costs[who] * p)


def utilities(game: Game, rule: RewardRule, contributions: ArrayLike) -> Floats:
    """(N,) u_i at given contributions."""
    p = checks.vector("contributions", contributions, length=game.clients)[None]
    everyone = list(range(game.clients))
    return np.asarray(_utility(game, _view(_Rules.of([rule]), p, everyone), p, everyone)[0])


def best_responses(game: Game, rule: RewardRule, contributions: ArrayLike) -> Floats:
    """(N,) what each client would best contribute if the others kept to theirs."""
    p = checks.vector("contributions", contributions, length=game.clients)[None]
    everyone = list(range(game.clients))
    return np.asarray(_best_response(game, _view(_Rules.of([rule]), p, everyone), everyone)[0])


@dataclass(frozen=True, slots=True, eq=False)
class Equilibrium:
    """Where clients end up that answer each other, one after the other."""

    start: str  # name of the start it was reached from
    contributions: Floats  # (N,) p
    share: Floats  # (N,) s in [0, 1], of the others' contributions
    utility: Floats  # (N,) u
    gain: float  # the most any client can still gain by deviating; 0 up to rounding in an equilibrium
    converged: bool  # nobody moved more than the tolerance in the last sweep

    @property
    def total(self) -> float:
        """The sum of all contributions."""
        return float(self.contributions.sum())

    @property
    def welfare(self) -> float:
        """The sum of all utilities."""
        return float(self.utility.sum())


def starts(game: Game) -> dict[str, Floats]:
    """Where to start from: nobody contributes, little, much, and Proposition 3's g'^{-1}(c)/N."""
    n, much = game.clients, social_optimum(game).total
    return {
        "zero": np.zeros(n),
        "low": np.full(n, 0.01 * much / n),
        "high": np.full(n, max(much, float(game.standalone.max()))),
        "bad": game.standalone / n,
    }


def equilibria(
    game: Game,
    rule: RewardRule,
    begin: Mapping[str, ArrayLike] | None = None,
    *,
    tolerance: float = 1e-13,
    sweeps: int = 5000,
) -> list[Equilibrium]:
    """One equilibrium per start, by sequential best responses, client 0 first."""
    points = starts(game) if begin is None else begin
    if not points:
        raise InvalidValue("begin", "must name at least one start", "none")
    rows = [checks.vector(f"start {name}", p, length=game.clients) for name, p in points.items()]
    rest = settle_all(game, [rule] * len(rows), np.stack(rows), tolerance=tolerance, sweeps=sweeps)
    return [
        Equilibrium(
            name, rest.p[k], rest.share[k], rest.utility[k], float(rest.gain[k]), bool(rest.still[k])
        )
        for k, name in enumerate(points)
    ]


class RestPoints(NamedTuple):
    """Where B rules lead from B starts."""

    p: Floats  # (B, N) contributions
    share: Floats  # (B, N)
    utility: Floats  # (B, N)
    gain: Floats  # (B,) of the best deviation
    still: NDArray[np.bool_]  # (B,) the last sweep moved nobody


def settle_all(
    game: Game, rules: list[RewardRule], begin: Floats, *, tolerance: float = 1e-13, sweeps: int = 5000
) -> RestPoints:
    """Sequential best responses for many (rule, start) pairs at once; each pair as if it were alone."""
    limit = checks.positive("tolerance", tolerance)
    every, p = _Rules.of(rules), np.array(begin, dtype=np.float64)
    moving = np.arange(p.shape[0])
    for _ in range(checks.whole("sweeps", sweeps)):
        now, some = p[moving], every.take(moving)
        before = now.copy()
        for i in range(game.clients):
            now[:, i] = _best_response(game, _view(some, now, [i]), [i])[:, 0]
        p[moving] = now
        moving = moving[np.abs(now - before).max(1) > limit * np.maximum(now.max(1), 1.0)]
        if moving.size == 0:
            break
    still = np.ones(p.shape[0], dtype=np.bool_)
    still[moving] = False
    everyone = list(range(game.clients))
    view = _view(every, p, everyone)
    utility = _utility(game, view, p, everyone)
    best = _utility(game, view, _best_response(game, view, everyone), everyone)
    return RestPoints(p, _share(view, p), utility, (best - utility).max(1), still)
