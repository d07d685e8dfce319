"""Everything `bonafed jsam quote` says, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.priors import JSONObject, Prior
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam import (
    Admitted,
    Cheapest,
    Plan,
    PrivacySettlement,
    Rule,
    allocate,
    allocate_unequal,
    allocate_with_floor,
    complete_information,
    largest_losses,
    least_objective,
    settle,
    unbiased,
)
from bonafed.mechanisms.jsam.payments import privacy_warning, spread_out


class Quote(NamedTuple):
    """What a quote is asked for."""

    prior: Prior
    reports: Floats  # (n,) money per unit of epsilon
    group: Admitted  # those not above the highest cost
    noise_scale: float  # Q
    seed: int | None  # of the reports, if they were drawn
    max_epsilon: float | Floats | None = None  # bought from a client, at most; one for all, or (n,)

    @property
    def caps_admitted(self) -> float | Floats | None:
        """The caps of those not above the highest cost."""
        if self.max_epsilon is None or isinstance(self.max_epsilon, float):
            return self.max_epsilon
        return self.max_epsilon[self.group.clients]


class Weight(NamedTuple):
    """eta, and where it comes from."""

    eta: float
    source: Literal["given", "budget", "expected budget"]
    money: float | None  # the sum it was found for
    draws: int | None = None  # of all costs, behind an average


class PlanOnly(NamedTuple):
    """A plan for which payments are not known."""

    kind: Literal["shares", "fairness floor", "printed"]
    shares: Floats | None = None  # (n,) of the data
    floor: float | None = None
    grid: float | None = None

    @property
    def option(self) -> str:
        """What the user typed for it."""
        words = {"shares": "--shares", "fairness floor": "--fairness-floor", "printed": "--variant printed"}
        return words[self.kind]


def describe(
    request: Quote,
    weight: Weight,
    settlement: PrivacySettlement,
    members: list[int],
    losses: Floats | None,
) -> JSONObject:
    """A quote with payments, and the baselines at the same weight."""
    plan = settlement.allocation
    utility = settlement.utility(request.reports)
    rows = _rows(request, plan)
    for k, row in enumerate(rows):
        row["payment"] = float(settlement.payment[k])
        row["payment_error"] = float(settlement.payment_error[k])
        row["utility"] = float(utility[k])
    return {
        **_common(request, weight.eta, plan),
        "kind": "settlement",
        "eta_from": weight.source,
        "budget": weight.money,
        "draws": weight.draws,
        "payments": settlement.spend,
        **_under_cap(request, weight.eta, plan),
        "terms": rows,
        "comparison": [
            _compared("JSAM", plan, settlement.spend),
            *_baselines(request, weight.eta, members, losses),
        ],
    }


def _under_cap(request: Quote, eta: float, plan: Plan) -> JSONObject:
    """The cap, and how much better a plan under it could be; without one the plan is the best there is."""
    caps = request.caps_admitted
    if caps is None:
        return {"max_epsilon": None}
    least = least_objective(request.group.virtual_costs, eta, request.noise_scale, caps)
    given = request.max_epsilon if isinstance(request.max_epsilon, float) else np.asarray(caps).tolist()
    gap = max(0.0, 1 - least / plan.objective)
    return {"max_epsilon": given, "lower_bound": least, "gap": gap}


def _baselines(
    request: Quote, eta: float, members: list[int], losses: Floats | None
) -> Iterator[JSONObject]:
    """Every baseline for the clients that are admitted."""
    clients, lifted, _ = request.group
    caps = request.caps_admitted
    rules: dict[str, Rule] = {"USBM": unbiased(clients.size)}
    for m in (
        members if caps is None or isinstance(caps, float) else []
    ):  # the cheapest want one cap for all
        rules[f"FSBM-{m}"] = Cheapest(m)
    for m in [] if losses is None else members:
        rules[f"BBM-{m}"] = largest_losses(np.asarray(losses)[clients], m)
    for name, rule in rules.items():
        done = settle(
            request.reports[clients], request.prior, eta, request.noise_scale, rule=rule, max_epsilon=caps
        )
        yield _compared(name, done.allocation, done.spend)
    known = complete_information(lifted, eta, request.noise_scale, max_epsilon=caps)
    yield _compared("JSAM-CI", known.allocation, known.spend)


def describe_plan(request: Quote, eta: float, wanted: PlanOnly) -> JSONObject:
    """A plan without payments, beside the exact one."""
    v, scale = request.group.virtual_costs, request.noise_scale
    exact = allocate(v, eta, scale)
    if wanted.kind == "shares":
        assert wanted.shares is not None
        held = wanted.shares[request.group.clients]
        found = allocate_unequal(v, held / held.sum(), eta, scale)
        plan, compared = found.plan, []
        more: JSONObject = {
            "proved_optimal": found.optimal,
            "lower_bound": found.lower_bound,
            "gap": found.gap,
            "shares": wanted.shares.tolist(),
        }
    elif wanted.kind == "fairness floor":
        assert wanted.floor is not None
        if wanted.floor > 1 / v.size:
            rule = f"must be at most 1/N = {1 / v.size:g}"
            raise InvalidValue("fairness_floor", rule, wanted.floor)
        fair = allocate_with_floor(v, eta, scale, wanted.floor)
        plan, compared = fair.plan, [("no floor", exact), ("with floor", fair.plan)]
        more = {"fairness_floor": wanted.floor, "price_of_floor": fair.price}
    else:
        plan = _printed(v, eta, scale, wanted.grid)
        compared = [("exact", exact), ("printed", plan)]
        more = {"grid": wanted.grid, "selection_sum": float(plan.selection.sum())}
    return {
        **_common(request, eta, plan),
        "kind": wanted.kind,
        **more,
        "payments": None,
        "terms": _rows(request, spread_out(plan, request.group.clients, request.reports.size)),
        "comparison": [_compared(name, other, None) for name, other in compared],
    }


def _printed(v: Floats, eta: float, noise_scale: float, grid: float | None) -> Plan:
    """Algorithm 1 wants its clients in order of virtual cost."""
    order = np.argsort(v, kind="stable")
    step = checks.positive("grid", grid)
    plan = allocate(v[order], eta, noise_scale, "printed", grid=step)
    selection, privacy = np.empty(v.size), np.empty(v.size)
    selection[order], privacy[order] = plan.selection, plan.privacy
    return Plan(selection, privacy, plan.total, plan.objective, plan.threshold, plan.distance, plan.eta)


def _common(request: Quote, eta: float, plan: Plan) -> JSONObject:
    return {
        "clients": request.reports.size,
        "admitted": request.group.clients.size,
        "costs": "file" if request.seed is None else "drawn",
        "seed": request.seed,
        "prior": request.prior.to_json(),
        "highest": request.prior.high,
        "eta": eta,
        "noise_scale": request.noise_scale,
        "threshold": plan.threshold,
        "expected_money": plan.total,
        "loss": plan.loss,
        "objective": plan.objective,
        "warnings": [] if (warning := privacy_warning(plan.privacy)) is None else [warning],
    }


def _rows(request: Quote, plan: Plan) -> list[JSONObject]:
    """One per client; a plan for all."""
    inside = np.isin(np.arange(request.reports.size), request.group.clients)
    virtual = np.full(request.reports.size, np.nan)
    virtual[inside] = request.group.virtual_costs
    return [
        {
            "client": k,
            "report": float(request.reports[k]),
            "admitted": bool(inside[k]),
            "virtual_cost": float(virtual[k]) if inside[k] else None,
            "selection": float(plan.selection[k]),
            "epsilon": float(plan.privacy[k]),
        }
        for k in range(request.reports.size)
    ]


def _compared(name: str, plan: Plan, payments: float | None) -> JSONObject:
    return {
        "name": name,
        "selected": plan.threshold,
        "expected_money": plan.total,
        "payments": payments,
        "loss": plan.loss,
        "objective": plan.objective,
    }
