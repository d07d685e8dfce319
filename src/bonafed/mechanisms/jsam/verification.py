"""A published contract checked by someone who did not write it.

A file holds no term that its writer computed, but for the weight and an example: terms follow from its
numbers by the formulas of theory B3. Reading checks the example against them; `verify` checks whether they
keep their promises, at profiles of costs drawn from the prior and at hostile ones:

    (1) the weight is the one that the expected budget buys, no more and no less;
    (2) payments are that sum on average over fresh draws, which the writer did not choose;
    (3) the plan is the best of its scheme, against plans made in other ways;
    (4) payments are report times epsilon plus the integral of epsilon above the report, between the sums
        from below and from above that a falling epsilon allows;
    (5) by search, that no lie pays, nobody loses, epsilon falls in the own report and keeps to the cap;
    (6) amounts in money that can be paid cover what clients stated.

Whoever changes a number of the file breaks the example or one of these, or has written another contract,
with another digest: clip, delta, rounds and draws are the operator's to choose, and what a participant
signs names them beside the digest.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from bonafed.checks import Floats
from bonafed.economics import money
from bonafed.economics.audit import Claim, audit
from bonafed.economics.discrete import FinitePrior
from bonafed.economics.findings import Finding
from bonafed.economics.priors import Uniform
from bonafed.mechanisms.jsam.payments import admit, capped_rule, virtual_costs_of
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.mechanisms.jsam.rules import Fixed, Rule
from bonafed.mechanisms.jsam.schemes import DRAWS
from bonafed.mechanisms.jsam.thresholds import Ints, objective
from bonafed.presentation.documents import counted

_PROFILES = 2  # drawn from the prior, besides hostile ones
_LIARS = 3  # clients of a profile that may lie
_POINTS = 31  # reports of the first sweep
_FEW_POINTS = 11  # ... where each takes long
_SUMS = 801  # reports at which epsilon is summed up
_PAID = 8  # of these, reports whose payment is compared
_FRESH = 400  # draws of all costs that the writer did not choose
_SETTLED = 24  # of these, settled and rounded
_FEW_SETTLED = 2  # ... where that takes long
_PLANS = 40  # plans made in other ways
_NEXT = 2e-6  # relative: a weight that is larger by this spends more than was promised
_RTOL = 1e-9
_ERRORS = 5.0  # standard errors that a mean over draws may be off
_CLAIMS: tuple[Claim, ...] = ("truthful", "individually rational", "monotone", "feasible")


def verify(contract: JsamContract) -> list[Finding]:
    """Findings about a contract (see the module docstring)."""
    names = contract.names
    caps = contract.caps(names)
    rule = capped_rule(contract.rule, caps)
    profiles, liars, points, settlements = _profiles(contract), _liars(contract.clients), _POINTS, _SETTLED
    if caps is not None and not isinstance(contract.prior, Uniform | FinitePrior):  # a second for each case
        profiles, liars, points, settlements = profiles[:_PROFILES], liars[-1:], _FEW_POINTS, _FEW_SETTLED
    findings: list[Finding] = []
    if contract.expected_budget is not None:
        findings += [_weight(contract, rule), _average(contract, rule)]
    findings += [_plan(contract, rule, caps, profiles), _payments(contract, caps, profiles, liars)]
    limit = np.inf if caps is None else float(np.max(caps))
    lies = audit(
        contract.responding(caps), contract.prior.low, contract.prior.high, profiles=profiles,
        clients=liars, claims=_CLAIMS, points=points, quantity_limit=limit,
        unit="over the run",
    )  # fmt: skip
    return [*findings, *lies.findings, _amounts(contract, names, settlements)]


def _profiles(contract: JsamContract) -> list[Floats]:
    """Costs that clients may have: likely ones, and hostile ones."""
    prior, n = contract.prior, contract.clients
    rng = np.random.default_rng(1)
    likely = [prior.sample(rng, n) for _ in range(_PROFILES)]
    alike = np.full(n, prior.mean)
    one_cheap = np.full(n, prior.high)
    one_cheap[0] = prior.low
    return [*likely, alike, one_cheap]


def _liars(clients: int) -> list[int]:
    places = np.unique(np.linspace(0, clients - 1, _LIARS).round().astype(int))
    return [int(place) for place in places]


def _expected(contract: JsamContract, rule: Rule, draws: Floats, eta: float) -> Floats:
    """(S,) money that the plan expects to pay for costs drawn, (S, N)."""
    virtual = virtual_costs_of(draws, contract.prior)
    return rule.spending(virtual, eta, contract.noise_scale)


def _draws(contract: JsamContract, count: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return np.array([contract.prior.sample(rng, contract.clients) for _ in range(count)])


def _weight(contract: JsamContract, rule: Rule) -> Finding:
    """(1), on the draws that the format fixes."""
    budget = contract.expected_budget
    assert budget is not None
    draws = _draws(contract, DRAWS, 0)
    now = float(_expected(contract, rule, draws, contract.eta).mean())
    more = float(_expected(contract, rule, draws, contract.eta * (1 + _NEXT)).mean())
    text = f"eta {contract.eta:.12g} buys {now:,.9g} of {budget:,.9g} on average over {DRAWS} draws"
    if now > budget * (1 + _RTOL):
        return Finding("weight", False, f"{text}: too much", now)
    if more <= budget:
        return Finding("weight", False, f"{text}: a larger weight would still keep to it", now)
    return Finding("weight", True, text, now)


def _average(contract: JsamContract, rule: Rule) -> Finding:
    """(2): within the errors of both averages."""
    budget = contract.expected_budget
    assert budget is not None
    spend = _expected(contract, rule, _draws(contract, _FRESH, 2), contract.eta)
    error = float(spend.std(ddof=1)) * math.sqrt(1 / _FRESH + 1 / DRAWS)
    mean = float(spend.mean())
    text = f"{mean:,.6g} +- {error:.2g} over {_FRESH} fresh draws, promised {budget:,.6g}"
    return Finding("expected spend", mean <= budget + _ERRORS * error + _RTOL * budget, text, mean)


def _plan(
    contract: JsamContract, rule: Rule, caps: float | Floats | None, profiles: list[Floats]
) -> Finding:
    """(3): by the objective of Problem 3 from its definition."""
    rng = np.random.default_rng(3)
    eta, scale, tries = contract.eta, contract.noise_scale, 0
    for costs in profiles:
        group = admit(costs, contract.prior)
        v = group.virtual_costs
        plan = rule.plan(v, eta, scale)
        if contract.scheme != "jsam":
            problem = _other_scheme(contract, plan.selection, v)
            if problem is not None:
                return Finding("plan", False, problem)
            tries += 1
            continue
        at, fair, half = contract.noise_at, _fair(contract), _half(contract)
        least = objective(plan.selection, plan.privacy * half, v / half, eta, scale, fair, noise_at=at)
        for selection in _selections(v / half, fair, rng):
            other = Fixed(selection, noise_at=at, shares=fair).plan(v / half, eta, scale)
            privacy = other.privacy if caps is None else np.minimum(other.privacy, caps)
            value = objective(selection, privacy, v / half, eta, scale, fair, noise_at=at)
            tries += 1
            # under a cap the plan is the best of a set that does not depend on the reports, not of all
            if value < least * (1 - _RTOL) and caps is None:
                text = f"objective {least:.9g}, but {value:.9g} is possible"
                return Finding("plan", False, text, value - least, tries=tries)
    kind = "no plan is better" if contract.scheme == "jsam" and caps is None else "as the scheme says"
    return Finding("plan", True, f"{kind}, {tries} tries", tries=tries)


def _fair(contract: JsamContract) -> Floats:
    """(N,) p^u"""
    held = np.ones(contract.clients) if contract.held is None else contract.held
    return np.asarray(held / held.sum())


def _half(contract: JsamContract) -> Floats:
    """(N,) M_k/2: what a unit of epsilon counts where Q is that of M = 2 (theory B7)."""
    return np.ones(contract.clients) if contract.averaged is None else contract.averaged / 2


def _selections(v: Floats, fair: Floats, rng: np.random.Generator) -> list[Floats]:
    """Plans made in other ways: thresholds with a leader, and random ones."""
    n = v.size
    order = np.argsort(v, kind="stable")
    selections = []
    for h in np.unique(np.linspace(1, n, min(n, _PLANS // 2)).round().astype(int)).tolist():
        selection = np.zeros(n)
        selection[order[:h]] = fair[order[:h]]
        selection[order[0]] += fair[order[h:]].sum()
        selections.append(selection)
    return [*selections, *rng.dirichlet(np.full(n, 0.5), _PLANS // 2)]


def _other_scheme(contract: JsamContract, selection: Floats, v: Floats) -> str | None:
    """What is wrong with a baseline's selection; None: nothing."""
    if contract.held is not None:
        fair = np.allclose(selection, _fair(contract), rtol=_RTOL)
        return None if fair else "the scheme selects everybody by its share of the records"
    members = v.size if contract.members is None else min(contract.members, v.size)
    selected_clients: Ints = np.flatnonzero(selection > 0)
    alike = np.allclose(selection[selected_clients], 1 / members, rtol=_RTOL)
    dearer = v[selected_clients].max() > np.sort(v)[members - 1]
    if selected_clients.size == members and alike and not dearer:
        return None
    selected = f"{counted(selected_clients.size, 'client')} selected"
    return f"{selected}; the scheme selects the {members} cheapest alike"


def _payments(
    contract: JsamContract, caps: float | Floats | None, profiles: list[Floats], liars: list[int]
) -> Finding:
    """(4)"""
    mechanism, prior = contract.responding(caps), contract.prior
    grid = np.linspace(prior.low, prior.high, _SUMS) if prior.low < prior.high else np.array([prior.low])
    few = np.unique(np.linspace(0, grid.size - 1, _PAID).round().astype(int))
    width, checked = np.diff(grid), 0
    for costs in profiles:
        for client in liars:
            epsilon = mechanism.privacy(costs, client, grid)
            privacy, payment = mechanism.respond(costs, client, grid[few])
            rent = payment - grid[few] * privacy
            below = np.concatenate([np.cumsum((width * epsilon[1:])[::-1])[::-1], [0.0]])
            above = np.concatenate([np.cumsum((width * epsilon[:-1])[::-1])[::-1], [0.0]])
            room = _RTOL * float(payment.max(initial=0.0)) + 1e-300
            off = np.maximum(below[few] - rent, rent - above[few])
            checked += few.size
            if not np.all(off <= room):
                at = int(np.argmax(off))
                text = (
                    f"client {client} at report {grid[few][at]:.6g}: a rent of {rent[at]:.9g}, "
                    f"the integral is {below[few][at]:.9g} to {above[few][at]:.9g}"
                )
                return Finding("payments", False, text, float(off[at]), tries=checked)
    return Finding("payments", True, f"as the integral of epsilon says, {checked:,} reports", tries=checked)


def _amounts(contract: JsamContract, names: list[str], settlements: int) -> Finding:
    """(6)"""
    unit = Fraction(1, 10**contract.decimals)
    for costs in _draws(contract, settlements, 4):
        terms = contract.terms_for(dict(zip(names, costs.tolist(), strict=True)))
        payments = np.array(terms.promised) / 10**contract.decimals
        cost = terms.reports * terms.epsilon
        short = cost - payments
        if np.any(short > _RTOL * cost):
            client = terms.clients[int(np.argmax(short))]
            return Finding(
                "amounts", False, f"client {client} is paid less than it stated", float(short.max())
            )
        due = sum(Fraction(repr(payment)) for payment in terms.settlement.payment.tolist())  # as written
        if sum(terms.promised) * unit > due + contract.clients * unit:
            reserve = money.reserve(contract.clients, contract.decimals)
            return Finding("amounts", False, f"rounding adds more than {reserve:g}", terms.spend)
    text = f"cover what clients stated, rounded to {contract.decimals} decimals, {settlements} profiles"
    return Finding("amounts", True, text, tries=settlements)
