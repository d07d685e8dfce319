"""A published contract checked by someone who did not write it.

`verify` trusts nothing that was computed by the writer. The terms it checks are those that will be settled:
what the file's prior and scale give at any cost. It recomputes

    (1) the scale, from prior, weights, clients, rounds and the spend that the contract is made for;
    (2) the table of terms, at the very costs it must be shown at, and terms between and beyond these;
    (3) the probabilities of a curve menu from its rule, without the writer's tables;
    (4) the payments from the probabilities, by Theorem 1, with another quadrature;
    (5) that probabilities are at most 1 and do not rise, and payments cover costs;
    (6) the expected spend, from the terms alone, against the budget;
    (7) by search, that no lie pays;
    (8) where a confidence is promised, the bound on overspending.

(1) and (2) compare to 1e-10: whoever changes a number of the file by 1e-6 of itself or more either changes
nothing that is settled, or is detected. Clients, rounds and budget can be changed together with all that
follows from them: that is a different contract, with a different digest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from bonafed.checks import Floats
from bonafed.economics.audit import audit, expected_transfer, largest_gain
from bonafed.economics.contracts import CurveMenu, Menu, step_payments
from bonafed.economics.findings import Finding, Kind
from bonafed.economics.priors import Prior
from bonafed.errors import ReportRefused
from bonafed.mechanisms.sampling.plan import SamplingPlan, plan_to_spend
from bonafed.mechanisms.sampling.published import Levels, SamplingContract, table_gaps
from bonafed.mechanisms.sampling.spend import exceedance_bound

_SAME = 1e-10  # what is computed twice by the same formulas
_RTOL = 1e-8  # ... and by others
_ATOL = 1e-12  # rounding of a probability
_BISECTIONS = 60  # of an interval, after which floating point knows no middle
_NEVER = 1e-100  # a probability at which the payment is never made, and only has to cover the cost


def verify(data: object) -> list[Finding]:
    """Findings about the file of a posted menu (see the module docstring)."""
    return verify_menus(SamplingContract.from_json(data))


def verify_menus(published: SamplingContract) -> list[Finding]:
    """Findings about a contract that was read from a file."""
    contract = published.plan
    findings = [_scale(contract)]
    for number, (group, menu, table) in enumerate(
        zip(contract.groups, contract.menus, published.levels, strict=True)
    ):
        label = "" if len(contract.menus) == 1 else f"group {number}: "
        scale = math.inf if contract.scale is None else contract.scale * math.sqrt(group.weight)
        findings += [
            replace(check, claim=label + check.claim) for check in _verify_menu(menu, table, scale)
        ]
    spends = [expected_transfer(menu, menu.prior, [menu.threshold]) for menu in contract.menus]
    total = contract.rounds * math.fsum(g.clients * t for g, t in zip(contract.groups, spends, strict=True))
    findings.append(
        Finding(
            "expected spend",
            total <= contract.intended_spend * (1 + _RTOL),
            f"{total:,.6g} of {contract.intended_spend:,.6g} over the run",
            kind=Kind.BUDGET,
        )
    )
    if contract.confidence is not None:
        risk = exceedance_bound(contract.lotteries(), contract.rounds, contract.total_budget)
        findings.append(
            Finding(
                "overspending",
                risk <= (1 - contract.confidence) * (1 + _RTOL) + _ATOL,
                f"probability at most {risk:.3g}, promised {1 - contract.confidence:.3g}",
            )
        )
    return findings


def _scale(contract: SamplingPlan) -> Finding:
    """(1): tau is what the money buys, no more and no less."""
    again = plan_to_spend(
        contract.intended_spend,
        contract.groups,
        contract.membership,
        contract.total_budget,
        contract.rounds,
        contract.confidence,
    ).scale
    published = contract.scale
    if published is None or again is None:
        words = ["everybody in every round" if x is None else f"{x:.12g}" for x in (published, again)]
        if published is again:
            return Finding("scale", True, words[0])
        return Finding("scale", False, f"{words[0]}, recomputed {words[1]}")
    return Finding(
        "scale",
        abs(published - again) <= _SAME * again,
        f"{published:.12g}, recomputed {again:.12g} from what the contract is to spend",
    )


def _verify_menu(menu: Menu, table: Levels, scale: float) -> list[Finding]:
    costs, q, r = table
    q_again = _rule(menu.prior, scale, costs)
    r_again = step_payments(costs, q)
    if isinstance(menu, CurveMenu):
        r_again = _curve_payments_again(menu, costs, q_again)
        r_again = np.where(q_again > _NEVER, r_again, np.maximum(r, costs))
    lies = audit(menu, menu.prior.low, menu.prior.high, claims=("truthful", "feasible"))
    return [
        _shown(menu, table),
        _compare("probabilities", costs, q, q_again),
        _compare("payments", costs, r, r_again),
        _between_and_beyond(menu, table),
        Finding("at most 1", bool(np.all(q <= 1)), f"largest probability {np.max(q):.17g}"),
        Finding(
            "monotone",
            bool(np.all(np.diff(q) <= _ATOL)),
            f"largest rise of the probability {np.max(np.diff(q), initial=0.0):.1e}",
        ),
        Finding(
            "individually rational",
            bool(np.all(r >= costs)),
            f"smallest margin {np.min(r - costs):.3g}",
            kind=Kind.PARTICIPATION,
        ),
        _no_lie_among(costs, q, r),
        *lies.findings,
    ]


def _shown(menu: Menu, table: Levels) -> Finding:
    """(2): the table shows the terms that will be paid."""
    for name, gap in table_gaps(menu, table).items():
        if np.any(gap > 0):
            at = int(np.argmax(gap))
            due = float(menu.price(table.cost[at])[name == "payment"])
            claim = f"the {name} shown at cost {table.cost[at]:.6g} is {getattr(table, name)[at]:.12g}"
            return Finding("table", False, f"{claim}, that of the contract {due:.12g}")
    return Finding("table", True, f"shows the terms of the contract at {table.cost.size} costs")


def _between_and_beyond(menu: Menu, table: Levels) -> Finding:
    """(2): terms follow the rule between levels, are the lowest's below, and none above."""
    name, low, high = "between and beyond", menu.prior.low, float(table.cost[-1])
    inside = np.concatenate([(table.cost[1:] + table.cost[:-1]) / 2, menu.prior.quantile(_SPREAD)])
    inside = np.unique(inside[(inside >= low) & (inside <= high)])
    q, r = menu.price(inside)
    if isinstance(menu, CurveMenu):
        rule = _rule(menu.prior, menu.scale, inside)
        off = np.abs(q - rule) - (_RTOL * rule + _ATOL)
        if np.any(off > 0):
            at = int(np.argmax(off))
            return Finding(
                name, False, f"at cost {inside[at]:.6g}: {q[at]:.9g}, by the rule {rule[at]:.9g}"
            )
    else:  # a report is rounded up to the next level
        up = np.searchsorted(table.cost, inside)
        q_up, r_up = menu.price(table.cost[up])
        if not (np.array_equal(q, q_up) and np.array_equal(r, r_up)):
            return Finding(name, False, "a report between two levels does not get the terms of the next")
    if np.any(r < inside):
        return Finding(name, False, f"a cost of {inside[int(np.argmin(r - inside))]:.6g} is not covered")
    if [float(x) for x in menu.price(low / 2)] != [float(x) for x in menu.price(low)]:
        return Finding(name, False, f"a report below {low:.6g} does not get its terms")
    if high != menu.prior.high or not _refuses(menu, math.nextafter(high, math.inf)):
        return Finding(
            name, False, f"the last level {high:.6g} is not the highest cost {menu.prior.high:.6g}"
        )
    detail = f"as promised at {inside.size} costs between, below {low:.6g}, and none above {high:.6g}"
    return Finding(name, True, detail)


_SPREAD = (np.arange(32) + 0.5) / 32  # quantiles of the prior at which terms are looked at


def _refuses(menu: Menu, report: float) -> bool:
    try:
        menu.price(report)
    except ReportRefused:
        return True
    return False


def _no_lie_among(costs: Floats, q: Floats, r: Floats) -> Finding:
    """No client gains by claiming another's level, judged from the published numbers alone."""
    # Neighbours alone would not do: they imply the rest for exact numbers and a q that does not rise, but
    # these numbers are not trusted, and small gains from level to level add up.
    gain, i, j = largest_gain(costs, q * r - costs * q, q, q * r, same=True)
    if gain <= 1e-9 * float(np.max(q * r)):
        return Finding(
            "published levels", True, f"no client gains by claiming another level, {costs.size**2:,} pairs"
        )
    lie = f"cost {costs[i]:.6g} gains {gain:.3g} per round by claiming {costs[j]:.6g}"
    return Finding("published levels", False, lie)


def _compare(name: str, costs: Floats, published: Floats, again: Floats) -> Finding:
    gap = np.abs(published - again)
    at = int(np.argmax(gap - _RTOL * np.abs(again)))
    if gap[at] <= _RTOL * abs(again[at]) + _ATOL:
        return Finding(name, True, f"as recomputed at {costs.size} levels, to {gap.max():.1e}")
    return Finding(name, False, f"at cost {costs[at]:.6g}: {published[at]:.9g}, recomputed {again[at]:.9g}")


def _rule(prior: Prior, scale: float, costs: ArrayLike) -> Floats:
    """(3): q(c) = min(1, scale/sqrt(phibar(c))), from the prior alone, no tables."""
    root = np.sqrt(prior.ironed_virtual_cost(costs))
    with np.errstate(divide="ignore", invalid="ignore"):  # of a cost of 0, or where both are infinite
        return np.where(root <= scale, 1.0, scale / root)


def _curve_payments_again(menu: CurveMenu, costs: Floats, q: Floats) -> Floats:
    """(4): Theorem 1 by adaptive quadrature of the rule."""
    prior = menu.prior
    pools = (x for p in prior.ironed_intervals for x in (p.left, p.right))
    # From a cut-off next to the lowest cost the probability may fall by orders of magnitude at once.
    graded = prior.low + (prior.high - prior.low) * 0.5 ** np.arange(8, 52, 4)
    graded = graded[graded > max(menu.cutoff, prior.low * (1 + 1e-9))]
    kinks = [menu.cutoff, *pools, *prior.landmarks()[::4], *graded]
    inside = np.array(kinks)[(costs[0] < np.array(kinks)) & (np.array(kinks) < costs[-1])]
    edges = np.unique(np.concatenate([costs, inside]))  # sorted
    areas = _areas(lambda c: _rule(prior, menu.scale, c), edges)
    above = np.concatenate([np.cumsum(areas[::-1])[::-1], [0.0]])
    rent = above[np.searchsorted(edges, costs)]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(q > 0, costs + rent / q, prior.high)


def _areas(function: Callable[[Floats], Floats], edges: Floats) -> Floats:
    """(k - 1,) the integrals between neighbouring edges (k,), all of them bisected until they are precise.

    Precise against the largest value, at the left: a rent is divided by it. What half as long intervals do
    not change is believed; whatever this misses shows in the comparison.
    """
    left, right, place = edges[:-1], edges[1:], np.arange(edges.size - 1)
    areas, precise = np.zeros(place.size), 1e-13 * function(left) * (right - left)
    whole = _gauss(function, left, right)
    for _ in range(_BISECTIONS):
        middle = (left + right) / 2
        halves = _gauss(function, left, middle), _gauss(function, middle, right)
        both = halves[0] + halves[1]
        good = np.abs(both - whole) <= np.maximum(precise[place], 1e-12 * np.abs(both))
        np.add.at(areas, place[good], both[good])
        if good.all():
            return areas
        left, middle, right = left[~good], middle[~good], right[~good]
        place, whole = np.tile(place[~good], 2), np.concatenate([half[~good] for half in halves])
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
    np.add.at(areas, place, whole)  # of what is too short to matter, next to a jump
    return areas


def _gauss(function: Callable[[Floats], Floats], left: Floats, right: Floats) -> Floats:
    """(k,) integrals by the Gauss-Legendre rule with 16 points, exact for polynomials of degree 31."""
    points, weights = np.polynomial.legendre.leggauss(16)
    half = (right - left) / 2
    values: Floats = half * (function((left + half)[:, None] + half[:, None] * points) @ weights)
    return values
