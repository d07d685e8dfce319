"""A sampling contract as a file, and its verification by someone who did not write it.

`verify` trusts nothing that was computed by the writer. From the published prior, probabilities and
payments it recomputes

    (1) the probabilities of a curve menu from its rule, without the writer's tables;
    (2) the payments from the probabilities, by Theorem 1, with another quadrature;
    (3) that probabilities are at most 1 and do not rise, and payments cover costs;
    (4) the expected spend, from the published terms alone, against the budget;
    (5) by search, that no lie pays;
    (6) where a confidence is promised, the bound on overspending.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.audit import audit, expected_transfer, largest_gain
from bonafed.economics.contracts import CurveMenu, Menu, step_payments
from bonafed.economics.priors import JSONObject
from bonafed.economics.published import field, menu_from_json, published_levels
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import write_together
from bonafed.mechanisms.sampling.plan import MOST_CLIENTS, MOST_ROUNDS, Group, SamplingPlan
from bonafed.mechanisms.sampling.spend import exceedance_bound

FORMAT = "bonafed-sampling-contract"
VERSION = 1
_RTOL = 1e-8  # published against recomputed terms
_ATOL = 1e-12  # rounding of a probability
_NEVER = 1e-100  # a probability at which the payment is never made, and only has to cover the cost


def contract_to_json(contract: SamplingPlan) -> JSONObject:
    """Plain data to publish; `contract_from_json` rebuilds the plan."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "total_budget": contract.total_budget,
        "rounds": contract.rounds,
        "confidence": contract.confidence,
        "groups": [
            {"clients": g.clients, "weight": g.weight, "menu": m.to_json()}
            for g, m in zip(contract.groups, contract.menus, strict=True)
        ],
        "membership": None if len(contract.groups) == 1 else contract.membership.tolist(),
    }


def contract_from_json(data: object) -> SamplingPlan:
    """The plan of a published contract; every field is checked."""
    kind = field(data, "format", "contract")
    if kind != FORMAT:
        raise InvalidValue("contract.format", f"must be {FORMAT!r}", repr(kind))
    version = field(data, "version", "contract")
    if version != VERSION:
        raise InvalidValue("contract.version", f"must be {VERSION}", version)
    money = checks.positive("contract.total_budget", field(data, "total_budget", "contract"))
    rounds = checks.whole("contract.rounds", field(data, "rounds", "contract"), at_most=MOST_ROUNDS)
    confidence = field(data, "confidence", "contract")
    if confidence is not None:
        confidence = checks.number("contract.confidence", confidence)
        if not 0 < confidence < 1:
            rule = "must be between 0 and 1, ends excluded"
            raise InvalidValue("contract.confidence", rule, confidence)
    entries = field(data, "groups", "contract")
    if not isinstance(entries, list) or not entries:
        raise InvalidValue("contract.groups", "must be a non-empty list", entries)
    menus = tuple(menu_from_json(field(e, "menu", "group")) for e in entries)
    groups = tuple(
        Group(
            menu.prior,
            checks.positive("group.weight", field(e, "weight", "group")),
            checks.whole("group.clients", field(e, "clients", "group")),
        )
        for e, menu in zip(entries, menus, strict=True)
    )
    membership = _membership(field(data, "membership", "contract"), groups)
    return SamplingPlan(money, rounds, groups, menus, membership, confidence)


def _membership(listed: object, groups: tuple[Group, ...]) -> NDArray[np.int64]:
    counts = [g.clients for g in groups]
    if sum(counts) > MOST_CLIENTS:
        raise InvalidValue("group.clients", f"must not exceed {MOST_CLIENTS} in all", sum(counts))
    if listed is None:
        return np.repeat(np.arange(len(groups)), counts)
    if not isinstance(listed, list) or not all(isinstance(k, int) and 0 <= k < len(groups) for k in listed):
        raise InvalidValue("contract.membership", "must be a list of group indices", "another")
    membership = np.array(listed, dtype=np.int64)
    if not np.array_equal(np.bincount(membership, minlength=len(groups)), counts):
        raise InvalidValue("contract.membership", "must match the groups' clients", "other counts")
    return membership


def save_contract(contract: SamplingPlan, path: Path) -> None:
    """Write the contract to a file; an existing file is replaced only by a complete new one."""
    write_together({path: contract_bytes(contract)})


def contract_bytes(contract: SamplingPlan) -> bytes:
    """The contract as the content of a file."""
    return (json.dumps(contract_to_json(contract), indent=1, allow_nan=False) + "\n").encode()


def read_contract(path: Path) -> JSONObject:
    """The JSON object of a contract file, not yet trusted."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(path, "not a contract: the file is not text") from error
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise UnreadableFile(path, f"not JSON: {error.msg}", error.lineno) from error
    except RecursionError as error:
        raise UnreadableFile(path, "not a contract: too many brackets inside each other") from error
    except ValueError as error:  # integers of thousands of digits
        raise UnreadableFile(path, "not a contract: a number has too many digits") from error
    if not isinstance(data, dict):
        raise UnreadableFile(path, "not a contract: the file must hold one JSON object")
    return data


class Check(NamedTuple):
    """One thing verified."""

    name: str
    holds: bool
    detail: str


def verify(data: object) -> list[Check]:
    """Check a published contract (see the module docstring)."""
    contract = contract_from_json(data)
    entries = field(data, "groups", "contract")
    found: list[Check] = []
    for number, (entry, menu) in enumerate(zip(entries, contract.menus, strict=True)):
        label = "" if len(entries) == 1 else f"group {number}: "
        found += [
            Check(label + check.name, check.holds, check.detail)
            for check in _verify_menu(entry["menu"], menu)
        ]
    spends = [expected_transfer(menu, menu.prior) for menu in contract.menus]
    total = contract.rounds * math.fsum(g.clients * t for g, t in zip(contract.groups, spends, strict=True))
    found.append(
        Check(
            "expected spend",
            total <= contract.total_budget * (1 + _RTOL),
            f"{total:,.6g} of {contract.total_budget:,.6g} over the run",
        )
    )
    if contract.confidence is not None:
        risk = exceedance_bound(contract.lotteries(), contract.rounds, contract.total_budget)
        found.append(
            Check(
                "overspending",
                risk <= (1 - contract.confidence) * (1 + _RTOL) + _ATOL,
                f"probability at most {risk:.3g}, promised {1 - contract.confidence:.3g}",
            )
        )
    return found


def _verify_menu(published: JSONObject, menu: Menu) -> list[Check]:
    costs, q, r = published_levels(published)
    if isinstance(menu, CurveMenu):
        q_again, r_again = _curve_terms_again(menu, costs)
        r_again = np.where(q_again > _NEVER, r_again, np.maximum(r, costs))
    else:
        q_again, r_again = q, step_payments(costs, q)
    prior = menu.prior
    lies = audit(menu, prior.low, prior.high, claims=("truthful", "feasible"))
    return [
        _compare("probabilities", costs, q, q_again),
        _compare("payments", costs, r, r_again),
        Check("at most 1", bool(np.all(q <= 1)), f"largest probability {np.max(q):.17g}"),
        Check(
            "monotone",
            bool(np.all(np.diff(q) <= _ATOL)),
            f"largest rise of the probability {np.max(np.diff(q), initial=0.0):.1e}",
        ),
        Check(
            "individually rational", bool(np.all(r >= costs)), f"smallest margin {np.min(r - costs):.3g}"
        ),
        _no_lie_among(costs, q, r),
        *(Check(f.claim, f.holds, f.detail) for f in lies.findings),
    ]


def _no_lie_among(costs: Floats, q: Floats, r: Floats) -> Check:
    """No published level is worth claiming for a client of another: from the published numbers alone."""
    # Neighbours alone would not do: they imply the rest for exact numbers and a q that does not rise, but
    # these numbers are not trusted, and small gains from level to level add up.
    gain, i, j = largest_gain(costs, q * r - costs * q, q, q * r, same=True)
    if gain <= 1e-9 * float(np.max(q * r)):
        return Check(
            "published levels", True, f"no level is worth claiming by another, {costs.size**2:,} pairs"
        )
    lie = f"cost {costs[i]:.6g} gains {gain:.3g} per round by claiming {costs[j]:.6g}"
    return Check("published levels", False, lie)


def _compare(name: str, costs: Floats, published: Floats, again: Floats) -> Check:
    gap = np.abs(published - again)
    at = int(np.argmax(gap - _RTOL * np.abs(again)))
    if gap[at] <= _RTOL * abs(again[at]) + _ATOL:
        return Check(name, True, f"as recomputed at {costs.size} levels, to {gap.max():.1e}")
    return Check(name, False, f"at cost {costs[at]:.6g}: {published[at]:.9g}, recomputed {again[at]:.9g}")


def _curve_terms_again(menu: CurveMenu, costs: Floats) -> tuple[Floats, Floats]:
    """Rule (1) and Theorem 1 by adaptive quadrature from the prior alone, no tables."""
    from scipy.integrate import quad

    prior = menu.prior

    def probability(c: float) -> float:
        phi = float(prior.ironed_virtual_cost(c))
        return min(1.0, menu.scale / math.sqrt(phi)) if phi > 0 else 1.0

    asked = costs.size
    if costs[-1] < prior.high:
        costs = np.append(costs, prior.high)
    pools = (x for p in prior.ironed_intervals for x in (p.left, p.right))
    kinks = [menu.cutoff, *pools, *prior.landmarks()[::4]]
    rent = np.zeros(costs.size)
    for k in range(costs.size - 2, -1, -1):
        inside = [x for x in kinks if costs[k] < x < costs[k + 1]]
        edges = [costs[k], *sorted(inside), costs[k + 1]]
        area = math.fsum(
            quad(probability, a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for a, b in pairwise(edges)
        )
        rent[k] = rent[k + 1] + area
    q = np.array([probability(c) for c in costs])
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(q > 0, costs + rent / q, prior.high)
    return q[:asked], r[:asked]
