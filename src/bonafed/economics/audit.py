"""Search for a violated claim, and return the witness.

The audit knows nothing about the internals of what it checks. It accepts

    a menu        anything with `probability(c)` and `expected_payment(c)`, vectorised, or
    a mechanism   anything with `allocate(reports)` that returns `quantity` and `transfer`, (n,) each; it
                  may answer many reports of one participant at once with `respond`.

For fixed reports of the others, what participant i gives, X(z), and gets, T(z), depend on its report z
alone, so one sweep over z tests every true cost c at once: utility(c, z) = T(z) - c X(z). The sweep is
a grid of reports; then the search zooms into the best pair (true cost, lie) it found.

A claim that survives is not proved: the finding says how many pairs were tried and the largest gain. An
outcome that is not a finite number breaks every claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.curves import first_breaks
from bonafed.economics.discrete import FinitePrior, expectation
from bonafed.economics.findings import Finding, Witness, all_hold
from bonafed.economics.piecewise import fit
from bonafed.economics.priors import ContinuousPrior, Prior
from bonafed.errors import InvalidValue

Claim = Literal["truthful", "individually rational", "monotone", "feasible", "within budget"]
CLAIMS: tuple[Claim, ...] = (
    "truthful",
    "individually rational",
    "monotone",
    "feasible",
    "within budget",
)
_OF_QUANTITIES: tuple[Claim, ...] = ("monotone", "feasible")  # the others are about money
_ZOOM_POINTS = 31  # per side of the square the search zooms into
_PATIENCE = 2  # zooms without a better lie before the search stops
_MOST_TRIES = 20  # ... and in any case after so many times the size of the first grid
_PAIRS = 1 << 20  # of true cost and report, tried together


@runtime_checkable
class MenuLike(Protocol):
    """Terms for every report of one participant."""

    def probability(self, c: ArrayLike) -> Floats: ...

    def expected_payment(self, c: ArrayLike) -> Floats: ...


class AllocationLike(Protocol):
    """What each participant gives and gets."""

    @property
    def quantity(self) -> Floats: ...

    @property
    def transfer(self) -> Floats: ...


@runtime_checkable
class MechanismLike(Protocol):
    """Decides for all participants together."""

    def allocate(self, reports: ArrayLike) -> AllocationLike: ...


@runtime_checkable
class RespondingLike(MechanismLike, Protocol):
    """A mechanism that answers many reports of one participant at once, as `allocate` would one by one."""

    def respond(self, reports: Floats, client: int, own: Floats) -> tuple[Floats, Floats]:
        """(m,) quantity and transfer of `client` for its reports `own`, the others as in `reports`."""
        ...


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The findings of an audit, one per claim."""

    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether no claim was found violated."""
        return all_hold(self.findings)

    def __getitem__(self, claim: str) -> Finding:
        for finding in self.findings:
            if finding.claim == claim:
                return finding
        raise KeyError(claim)

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings)


class _Case(NamedTuple):
    """One participant facing fixed reports of the others."""

    respond: Callable[[Floats], tuple[Floats, Floats]]  # own reports -> (quantity, transfer)
    client: int | None
    name: str  # of the client, as its witness says it
    others: Floats | None
    unit: str  # of money, such as "per round"


class _Sweep(NamedTuple):
    """A case with its outcomes on the first grid of reports."""

    case: _Case
    grid: Floats
    quantity: Floats
    transfer: Floats


def audit(
    subject: MenuLike | MechanismLike,
    low: float,
    high: float,
    *,
    budget: float | None = None,
    prior: Prior | None = None,
    profiles: Sequence[ArrayLike] | None = None,
    clients: Sequence[int] | None = None,
    claims: Sequence[Claim] = CLAIMS,
    points: int = 401,
    tolerance: float = 1e-9,
    quantity_limit: float = 1.0,
    unit: str = "per round",
    names: Sequence[str] | None = None,
) -> AuditReport:
    """Look for a violation of each claim for costs in [low, high].

    For a mechanism, `profiles` are the cost vectors to try and `clients` the participants to let lie
    (default: all). `budget` is money per round: for a menu, of one client in expectation over `prior`;
    for a mechanism, of all together in every profile. The budget claim is left out where there is no
    budget (or no prior) to check it against. `tolerance` is relative to the largest transfer seen; for
    claims about quantities, to the largest quantity seen or the limit, whichever is less.
    `quantity_limit` is the largest feasible quantity: 1 for a probability. `unit` is what the witness says
    money is counted by, and `names` what participants are called there (numbers from 0, if left out).

    >>> from bonafed.economics import Uniform
    >>> from bonafed.mechanisms.sampling import optimal_menu
    >>> prior = Uniform(0.5, 1.5)
    >>> audit(optimal_menu(prior, 1.0), 0.5, 1.5, budget=1.0, prior=prior).passed
    True
    """
    bottom, top = checks.support(low, high, single=True)
    size = checks.whole("points", points, at_least=3)
    claims_to_test = [checks.one_of("claim", claim, CLAIMS) for claim in claims]
    relative = checks.positive("tolerance", tolerance)
    if budget is None or (prior is None and not isinstance(subject, MechanismLike)):
        claims_to_test = [claim for claim in claims_to_test if claim != "within budget"]
    sweeps: list[_Sweep] = []
    money = amount = 0.0 if budget is None else budget
    if set(claims_to_test) - {"within budget"}:
        grid = np.linspace(bottom, top, size if bottom < top else 2)  # one cost: nothing to lie about
        cases = _cases(subject, profiles, clients, unit, names)
        with np.errstate(over="ignore", invalid="ignore"):  # reported by the witness instead
            sweeps = [_Sweep(case, grid, *case.respond(grid)) for case in cases]
        broken = next((sweep for sweep in sweeps if not _finite(sweep).all()), None)
        if broken is not None:
            tries, witness = _not_finite(broken)
            return AuditReport(
                tuple(
                    Finding.searched(claim, tries, witness.gain, witness, unit=_unit(claim, unit))
                    for claim in claims_to_test
                )
            )
        money = max(float(np.abs(sweep.transfer).max()) for sweep in sweeps)
        amount = min(quantity_limit, max(float(np.abs(sweep.quantity).max()) for sweep in sweeps))
    findings = []
    for claim in claims_to_test:
        if claim == "within budget":
            tries, witness = _overspend(subject, budget, prior, profiles, unit)
        else:
            tries, witness = _worst([_SEARCHES[claim](sweep, quantity_limit) for sweep in sweeps])
        scale = amount if claim in _OF_QUANTITIES else money
        violated = witness.gain > relative * max(scale, 1e-300)
        counterexample = witness if violated else None
        findings.append(
            Finding.searched(claim, tries, witness.gain, counterexample, unit=_unit(claim, unit))
        )
    return AuditReport(tuple(findings))


def merge(reports: Sequence[AuditReport]) -> AuditReport:
    """One report of several: tries added up, the worst case of each claim kept."""
    by_claim: dict[str, Finding] = {}
    for finding in (f for report in reports for f in report.findings):
        earlier = by_claim.get(finding.claim)
        worse = max(filter(None, (earlier, finding)), key=lambda f: (not f.holds, f.number))
        tries = finding.tries + (0 if earlier is None else earlier.tries)
        by_claim[finding.claim] = Finding.searched(
            finding.claim, tries, worse.number, worse.witness, kind=worse.kind, unit=worse.unit
        )
    return AuditReport(tuple(by_claim.values()))


def _unit(claim: Claim, unit: str) -> str:
    """Of the number of a finding: money, as the witness counts it, or what a participant gives."""
    return "" if claim in _OF_QUANTITIES else f"money {unit}".strip()


def _cases(
    subject: Any,
    profiles: Sequence[ArrayLike] | None,
    clients: Sequence[int] | None,
    unit: str,
    names: Sequence[str] | None,
) -> Iterator[_Case]:
    if isinstance(subject, MechanismLike):
        if not profiles:
            raise InvalidValue("profiles", "must hold at least one cost vector", profiles)
        for profile in profiles:
            costs = checks.vector("profile", profile)
            for client in range(costs.size) if clients is None else clients:
                name = str(client) if names is None else names[client]
                yield _Case(_responder(subject, costs, client), client, name, costs, unit)
    elif isinstance(subject, MenuLike):
        yield _Case(lambda z: (subject.probability(z), subject.expected_payment(z)), None, "", None, unit)
    else:
        raise InvalidValue(
            "subject",
            "must have allocate(reports), or probability(c) and expected_payment(c)",
            subject,
        )


def _responder(
    mechanism: MechanismLike, costs: Floats, client: int
) -> Callable[[Floats], tuple[Floats, Floats]]:
    if isinstance(mechanism, RespondingLike):
        answer = mechanism.respond
        return lambda reports: answer(costs, client, reports)

    def respond(reports: Floats) -> tuple[Floats, Floats]:
        quantity, transfer = np.empty(reports.size), np.empty(reports.size)
        profile = costs.copy()
        for k, report in enumerate(reports):
            profile[client] = report
            outcome = mechanism.allocate(profile)
            quantity[k], transfer[k] = outcome.quantity[client], outcome.transfer[client]
        return quantity, transfer

    return respond


_Result = tuple[int, Witness]


def _worst(results: Sequence[_Result]) -> _Result:
    return sum(tries for tries, _ in results), max((w for _, w in results), key=lambda w: w.gain)


def _witness(case: _Case, text: str, cost: float, report: float, gain: float) -> Witness:
    others = None if case.others is None else tuple(case.others.tolist())
    who = "" if case.client is None else f"client {case.name}: "
    return Witness(who + text, cost, report, gain, case.client, others)


def _finite(sweep: _Sweep) -> NDArray[np.bool_]:
    """(m,) which outcomes are finite, also when four of them are added up as in a gain."""
    _, grid, quantity, transfer = sweep
    with np.errstate(over="ignore", invalid="ignore"):
        worth = 4 * quantity * max(1.0, float(grid[-1]))
        return np.asarray(np.isfinite(worth) & np.isfinite(4 * transfer))


def _not_finite(sweep: _Sweep) -> _Result:
    """The first report whose outcome is not finite."""
    case, grid, quantity, transfer = sweep
    at = int(np.argmin(_finite(sweep)))
    outcome = f"quantity {quantity[at]:.6g} and money {transfer[at]:.6g} {case.unit}"
    text = f"the outcome at report {grid[at]:.6g} is {outcome}: not finite, or too large to add up"
    return grid.size, _witness(case, text, float(grid[at]), float(grid[at]), math.inf)


def _best_lie(sweep: _Sweep, _limit: float) -> _Result:
    """The pair (true cost, report) of largest gain: the grid, then zooming in on its best pair."""
    case, grid, quantity, transfer = sweep
    costs, reports, tries = grid, grid, 0
    truth = (quantity, transfer)
    best = (-np.inf, float(grid[0]), float(grid[0]))
    fruitless = 0
    while fruitless < _PATIENCE and tries < _MOST_TRIES * grid.size**2:
        honest = truth[1] - costs * truth[0]
        gain, i, j = largest_gain(costs, honest, quantity, transfer, same=reports is costs)
        tries += costs.size * reports.size
        fruitless += 1
        if gain > best[0]:
            if gain > best[0] + 1e-12 * np.abs(transfer).max():
                fruitless = 0
            best = (gain, float(costs[i]), float(reports[j]))
        costs = _around(costs, i, best[1])
        reports = _around(reports, j, best[2])
        with np.errstate(over="ignore", invalid="ignore"):
            truth, (quantity, transfer) = case.respond(costs), case.respond(reports)
        for finer in (_Sweep(case, costs, *truth), _Sweep(case, reports, quantity, transfer)):
            if not _finite(finer).all():
                return tries, _not_finite(finer)[1]
    gain_found, cost, lie = best
    digits = next((d for d in (6, 9, 12) if f"{cost:.{d}g}" != f"{lie:.{d}g}"), 17)  # tell them apart
    gains = f"gains {gain_found:.6g} {case.unit}"
    text = f"a client of cost {cost:.{digits}g} {gains} by reporting {lie:.{digits}g}"
    return tries, _witness(case, text, cost, lie, gain_found)


class Gain(NamedTuple):
    """What the best lie wins, and which it is."""

    amount: float
    cost: int  # place of the true cost
    report: int  # place of the lie


def largest_gain(costs: Floats, honest: Floats, quantity: Floats, transfer: Floats, *, same: bool) -> Gain:
    """The largest transfer_j - cost_i quantity_j - honest_i over all pairs; the first among equals.

    `honest` (n,) is what the truth wins for each of the costs (n,); quantity and transfer (m,) are the
    outcomes of the reports. `same` says that report i is cost i: the truth, and no lie. Some costs are
    tried at a time: all pairs of 50,000 would take 20 GB.
    """
    rows = max(1, _PAIRS // quantity.size)
    gains: list[Gain] = []
    for start in range(0, costs.size, rows):
        part = slice(start, start + rows)
        gain = transfer[None, :] - costs[part, None] * quantity[None, :] - honest[part, None]
        if same:
            own = np.arange(gain.shape[0])
            gain[own, start + own] = -np.inf
        i, j = divmod(int(np.argmax(gain)), quantity.size)
        gains.append(Gain(float(gain[i, j]), start + i, j))
    return gains[int(np.argmax([best.amount for best in gains]))]


def _around(points: Floats, at: int, centre: float) -> Floats:
    """A finer grid between the neighbours of the best point."""
    left = points[max(at - 1, 0)]
    right = points[min(at + 1, points.size - 1)]
    return np.unique(np.append(np.linspace(left, right, _ZOOM_POINTS), centre))


def _worst_loss(sweep: _Sweep, _limit: float) -> _Result:
    case, grid, quantity, transfer = sweep
    loss = grid * quantity - transfer
    at = int(np.argmax(loss))
    text = f"an honest client of cost {grid[at]:.6g} loses {loss[at]:.6g} {case.unit} by joining"
    return grid.size, _witness(case, text, float(grid[at]), float(grid[at]), float(loss[at]))


def _worst_rise(sweep: _Sweep, _limit: float) -> _Result:
    case, grid, quantity, _ = sweep
    rise = np.diff(quantity)
    at = int(np.argmax(rise))
    text = f"the quantity rises by {rise[at]:.6g} between the reports {grid[at]:.6g} and {grid[at + 1]:.6g}"
    return rise.size, _witness(case, text, float(grid[at]), float(grid[at + 1]), float(rise[at]))


def _outside(sweep: _Sweep, limit: float) -> _Result:
    case, grid, quantity, _ = sweep
    excess = np.maximum(quantity - limit, -quantity)
    at = int(np.argmax(excess))
    text = f"the quantity at report {grid[at]:.6g} is {quantity[at]:.6g}, not in [0, {limit:g}]"
    return grid.size, _witness(case, text, float(grid[at]), float(grid[at]), float(excess[at]))


_SEARCHES: dict[Claim, Callable[[_Sweep, float], _Result]] = {
    "truthful": _best_lie,
    "individually rational": _worst_loss,
    "monotone": _worst_rise,
    "feasible": _outside,
}


def _overspend(
    subject: Any,
    budget: float | None,
    prior: Prior | None,
    profiles: Sequence[ArrayLike] | None,
    unit: str,
) -> _Result:
    limit = checks.positive("budget", budget)
    if isinstance(subject, MechanismLike):
        worst = (-np.inf, np.empty(0))
        for profile in profiles or ():
            costs = checks.vector("profile", profile)
            spend = _or_infinite(float(np.sum(subject.allocate(costs).transfer)))
            if spend - limit > worst[0]:
                worst = (spend - limit, costs)
        gain, costs = worst
        text = f"{gain + limit:.8g} is spent {unit}, the budget is {limit:.8g}"
        witness = Witness(text, np.nan, np.nan, float(gain), None, tuple(costs.tolist()))
        return len(profiles or ()), witness
    spend = _or_infinite(expected_transfer(subject, prior))
    text = f"expected spend {spend:.8g} per client and round, the budget is {limit:.8g}"
    return 1, Witness(text, np.nan, np.nan, spend - limit)


def _or_infinite(spend: float) -> float:
    """NaN counts as more than any budget."""
    return spend if math.isfinite(spend) else math.inf


def expected_transfer(menu: MenuLike, prior: Prior | None, kinks: Sequence[float] = ()) -> float:
    """E[t] of a menu over a prior, from the published terms alone.

    A kink of the terms that is known is better named: next to the border of a panel it goes unseen.
    """
    if isinstance(prior, FinitePrior):
        return expectation(prior.masses, menu.expected_payment(prior.costs))
    if not isinstance(prior, ContinuousPrior):
        raise InvalidValue("prior", "must be a continuous or a finite prior", prior)
    strange: list[float] = []

    def payment(c: Floats) -> Floats:
        payments = np.asarray(menu.expected_payment(c))
        strange.extend(payments[~np.isfinite(payments)])  # `fit` would leave them out of the sum
        return payments

    (density,) = fit(
        lambda c: prior.pdf(c) * np.stack([payment(c), np.ones_like(c)]),
        np.unique([*first_breaks(prior), *np.clip(kinks, prior.low, prior.high)]),
        by_mass=lambda c: payment(c)[None],
        cdf=prior.cdf,
    )
    return strange[0] if strange else float(density.tail()(np.asarray(prior.low)))
