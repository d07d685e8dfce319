"""How a quote of bought privacy is shown, as data and as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.contracts.attendance import empty_in_words, unheld_in_words
from bonafed.economics.priors import Prior
from bonafed.economics.statement import within_error
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.jsam.allocation import SelectionPlan, allocate
from bonafed.mechanisms.jsam.budget import complete_information
from bonafed.mechanisms.jsam.cap_bound import least_objective
from bonafed.mechanisms.jsam.payments import (
    Admitted,
    PrivacySettlement,
    privacy_warning,
    settle,
)
from bonafed.mechanisms.jsam.rules import Cheapest, Rule, largest_losses, unbiased
from bonafed.mechanisms.jsam.schemes import rule_of
from bonafed.mechanisms.jsam.terms import RECORDS, SELECTED, SELECTION
from bonafed.mechanisms.jsam.thresholds import Ints
from bonafed.mechanisms.left_open import HIDDEN
from bonafed.mechanisms.promises import ON_SUM
from bonafed.presentation.documents import (
    Block,
    Column,
    JSONObject,
    Sketch,
    SketchCurve,
    Table,
    counted,
    pairs,
)

_ROWS = 11  # clients shown where there are many


class Quote(NamedTuple):
    """The request behind a quote."""

    prior: Prior
    names: tuple[str, ...]  # (n,) of the clients
    reports: Floats  # (n,) money per unit of epsilon
    group: Admitted  # those not above the highest cost
    noise_scale: float  # Q
    seed: int | None  # of the reports, if they were drawn
    max_epsilon: float | Floats | None = None  # bought from a client, at most; one for all, or (n,)
    noise_at: NoiseAt = "client"
    sizes: Ints | None = None  # (n,) records of each client, where their shares are what is fair
    averaged: Ints | None = None  # (n,) records per release, where sizes count and Q is made of them

    @property
    def rule(self) -> Rule:
        """The optimum, without the cap."""
        return self.rule_of("jsam")

    def rule_of(self, scheme: Literal["jsam", "unbiased"]) -> Rule:
        """Of a scheme, for all clients."""
        return rule_of(
            scheme, len(self.names), noise_at=self.noise_at, sizes=self.sizes, records=self.averaged
        )

    @property
    def sizes_by_name(self) -> dict[str, int] | None:
        """Records by client, where sizes count."""
        return None if self.sizes is None else dict(zip(self.names, self.sizes.tolist(), strict=True))

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


def describe(
    request: Quote, weight: Weight, settlement: PrivacySettlement, members: list[int], losses: Floats | None
) -> JSONObject:
    """A quote, and the baselines at the same weight."""
    plan = settlement.allocation
    utility = settlement.utility(request.reports)
    common = _common(request, weight.eta, plan)
    common["warnings"] += within_error(request.names, settlement.payment, settlement.payment_error)
    rows = _rows(request, plan)
    for k, row in enumerate(rows):
        row["payment"] = float(settlement.payment[k])
        row["payment_error"] = float(settlement.payment_error[k])
        row["utility"] = float(utility[k])
    return {
        **common,
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


def _under_cap(request: Quote, eta: float, plan: SelectionPlan) -> JSONObject:
    """The cap, and how much better a plan under it could be; without one the plan is the best there is."""
    caps = request.caps_admitted
    if caps is None:
        return {"max_epsilon": None}
    v, scale = request.group.virtual_costs, request.noise_scale
    if request.noise_at == "sum":
        least = allocate(v, eta, scale, noise_at="sum").objective  # without the cap
    else:
        least = least_objective(v, eta, scale, caps)
    each = request.max_epsilon
    limits = each if isinstance(each, float) else np.asarray(each).tolist()
    gap = max(0.0, 1 - least / plan.objective)
    return {"max_epsilon": limits, "lower_bound": least, "gap": gap}


def _baselines(
    request: Quote, eta: float, members: list[int], losses: Floats | None
) -> Iterator[JSONObject]:
    """Every baseline for the clients that are admitted."""
    clients, lifted, _ = request.group
    if request.sizes is not None:
        yield from _baselines_by_size(request, eta)
        return
    caps = request.caps_admitted
    rules: dict[str, Rule] = {"USBM": unbiased(clients.size)}
    one_cap = caps is None or isinstance(caps, float)  # the cheapest need one cap for all
    for m in members if one_cap else []:
        rules[f"FSBM-{m}"] = Cheapest(m)
    for m in [] if losses is None else members:
        rules[f"BBM-{m}"] = largest_losses(np.asarray(losses)[clients], m)
    for name, rule in rules.items():
        choice = rule.on_sum() if request.noise_at == "sum" else rule
        settlement = settle(
            request.reports[clients], request.prior, eta, request.noise_scale, rule=choice, max_epsilon=caps
        )
        yield _compared(name, settlement.allocation, settlement.spend)
    complete = complete_information(
        lifted, eta, request.noise_scale, max_epsilon=caps, noise_at=request.noise_at
    )
    yield _compared("JSAM-CI", complete.allocation, complete.spend)


def _baselines_by_size(request: Quote, eta: float) -> Iterator[JSONObject]:
    """Those that know of sizes."""
    everybody = request.rule_of("unbiased")
    settlement = settle(request.reports, request.prior, eta, request.noise_scale, rule=everybody)
    yield _compared("USBM", settlement.allocation, settlement.spend)
    clients, lifted, _ = request.group
    admitted = np.isin(np.arange(request.reports.size), clients)
    known = complete_information(lifted, eta, request.noise_scale, rule=request.rule.among(admitted))
    yield _compared("JSAM-CI", known.allocation, known.spend)


def _common(request: Quote, eta: float, plan: SelectionPlan) -> JSONObject:
    return {
        "clients": request.reports.size,
        "admitted": request.group.clients.size,
        "costs": "file" if request.seed is None else "drawn",
        "seed": request.seed,
        "prior": request.prior.to_json(),
        "highest": request.prior.high,
        "eta": eta,
        "noise_scale": request.noise_scale,
        "noise_at": request.noise_at,
        "sizes": None if request.sizes is None else request.sizes.tolist(),
        "threshold": plan.threshold,
        "expected_money": plan.total,
        "loss": plan.loss,
        "objective": plan.objective,
        "warnings": [] if (warning := privacy_warning(plan.privacy)) is None else [warning],
    }


def _rows(request: Quote, plan: SelectionPlan) -> list[JSONObject]:
    """One per client; a plan for all."""
    inside = np.isin(np.arange(request.reports.size), request.group.clients)
    virtual = np.full(request.reports.size, np.nan)
    virtual[inside] = request.group.virtual_costs
    fair = None if request.sizes is None else request.sizes / request.sizes.sum()
    return [
        {
            "client": request.names[k],
            "report": float(request.reports[k]),
            "admitted": bool(inside[k]),
            "virtual_cost": float(virtual[k]) if inside[k] else None,
            **({} if fair is None else {RECORDS: float(fair[k])}),
            "selection": float(plan.selection[k]),
            "epsilon": float(plan.privacy[k]),
        }
        for k in range(request.reports.size)
    ]


def _compared(name: str, plan: SelectionPlan, payments: float | None) -> JSONObject:
    return {
        "name": name,
        "selected": plan.threshold,
        "expected_money": plan.total,
        "payments": payments,
        "loss": plan.loss,
        "objective": plan.objective,
    }


def quote_blocks(description: JSONObject) -> list[Block]:
    """A quote as it is shown."""
    blocks: list[Block] = [*_heading(description), *_terms(description), _run(description)]
    if description["comparison"]:
        blocks.append(_comparison(description))
    if (attendance := description.get("attendance")) is not None:
        rounds = attendance["rounds"]
        blocks.append(empty_in_words(attendance["empty_rounds"], rounds))
        blocks += unheld_in_words(attendance["secure_sums"], rounds)
    return [*blocks, *_notes(description)]


def _heading(description: JSONObject) -> Iterator[str]:
    seed = description["seed"]
    origin = "" if seed is None else f" with costs drawn from the prior (seed {seed})"
    yield (
        f"Joint selection and privacy compensation: {counted(description['clients'], 'client')}{origin}, "
        f"weight of the loss eta {description['eta']:.6g}, noise scale {description['noise_scale']:.6g}."
    )
    cap = description.get("max_epsilon")
    if cap is not None:
        most = "a cap of its own" if isinstance(cap, list) else f"epsilon {cap:.6g} at most"
        yield f"From each client {most} is bought; the cap is public, and payments stay truthful."
    refused = description["clients"] - description["admitted"]
    if refused:
        yield (
            f"{refused:,} not admitted: the report is above the highest cost "
            f"{description['highest']:.6g} of the prior. Such a client sells nothing and is paid nothing; "
            f"N counts the {description['admitted']:,} others."
        )
    source, money = description.get("eta_from"), description.get("budget")
    if source == "budget":
        yield (
            f"eta is the largest weight at which the payments for these reports stay within {money:,.10g}. "
            "It depends on the reports, so that exact truthfulness is lost; --expected-budget keeps it."
        )
    elif source == "expected budget":
        yield (
            f"eta follows from the prior alone: with it the payments are {money:,.10g} on average (over "
            f"{description['draws']:,} draws of all costs); for these reports they may be more or less. "
            "Truthful."
        )


def _terms(description: JSONObject) -> Iterator[Block]:
    rows = sorted(description["terms"], key=lambda row: row["report"])
    indices = _shown(len(rows), description["threshold"])
    names = {"selection": SELECTED[description["noise_at"]], "epsilon": "epsilon"}
    if description["sizes"] is not None:
        names = {RECORDS: "of the records", **names}
    names |= {"payment": "payment", "utility": "utility"}
    columns = (Column("client", left=True), Column("report"), *(Column(name) for name in names.values()))
    cells = []
    for index in indices:
        row = rows[index]
        terms = [_amount(row[name]) for name in names]
        if not row["admitted"]:
            terms = ["not admitted", *[""] * (len(names) - 1)]
        cells.append((row["client"], _amount(row["report"]), *terms))
    yield Table("Terms, in order of the report", columns, tuple(cells))
    if len(indices) < len(rows):
        more = len(rows) - len(indices)
        verb = "is" if more == 1 else "are"
        yield f"{counted(more, 'more client')} {verb} not shown; --json has all of them."
        yield from _sketch([row for row in rows if row["admitted"]])


def _sketch(rows: list[JSONObject]) -> Iterator[Sketch]:
    """Epsilon and payment by report, in order of the report."""
    costs = [row["report"] for row in rows]
    if costs[0] == costs[-1]:
        return
    names = {"epsilon": "epsilon bought (left scale)", "payment": "payment (right scale)"}
    columns = {name: [row[name] for row in rows] for name in names}
    curves = tuple(SketchCurve(names[name], values, 0.0, max(values)) for name, values in columns.items())
    yield Sketch("report", costs, curves)


def _shown(clients: int, threshold: int) -> list[int]:
    """Places worth a row: all of a few, else evenly spread ones, and the last selected with the next."""
    if clients <= 2 * _ROWS:
        return list(range(clients))
    spread = np.linspace(0, clients - 1, _ROWS).round().astype(int).tolist()
    return sorted({*spread, 1, threshold - 1, min(threshold, clients - 1)})


def _run(description: JSONObject) -> Table:
    names = {
        "expected_money": "expected money B, the sum of epsilon times virtual cost",
        "payments": "payments for these reports",
        "loss": "bound on the training loss that is left",
        "objective": "objective, eta times that bound plus B",
        "lower_bound": "no plan has a smaller objective than",
    }
    amounts = [
        (name, _amount(description[key])) for key, name in names.items() if description.get(key) is not None
    ]
    return pairs(
        "Over the whole run",
        [("clients selected (threshold h)", f"{description['threshold']:,}"), *amounts],
    )


def _comparison(description: JSONObject) -> Table:
    rows = description["comparison"]
    names = {"expected_money": "expected", "payments": "paid", "loss": "loss", "objective": "objective"}
    if description["payments"] is None:
        del names["payments"]
    first = rows[0]
    columns = (
        Column("", left=True), Column("selected", ","), *(Column(name) for name in names.values()),
        Column(f"vs {first['name']}", "+.1%"),
    )  # fmt: skip
    cells = tuple(
        (
            row["name"],
            row["selected"],
            *(_amount(row[name]) for name in names),
            row["objective"] / first["objective"] - 1,
        )
        for row in rows
    )
    return Table("At the same weight eta", columns, cells)


def _notes(description: JSONObject) -> Iterator[str]:
    for warning in description["warnings"]:
        yield f"note: {warning}"
    if description.get("training") is not None:
        yield f"note: {_training(description['training'])}"
    if description.get("max_epsilon") is not None and description["gap"] > 0:
        yield (
            "Under the cap the plan is the best of a set of selections fixed in advance, which keeps it "
            f"truthful; no plan has an objective that is lower by more than {description['gap']:.2%}."
        )
    if description["noise_at"] == "sum":
        yield f"note: {ON_SUM}. Whoever is selected takes part in every round."
    yield (
        f"report: cost of one unit of epsilon; {SELECTION[description['noise_at']]}; payment: for "
        "the whole run; utility: payment minus report times epsilon, if the report is true. Payments "
        "equal B only on average over the prior. The server minimises the objective, eta times the "
        "loss bound plus B. USBM: everybody alike; FSBM-M: the M cheapest; BBM-M: the M largest "
        "losses; JSAM-CI: if the server knew every cost and paid no more."
    )
    if description["sizes"] is not None:
        yield (
            "Sizes count: fair is to select each client by its share of the records of those admitted. "
            "USBM does; M clients alike (FSBM, BBM) are not compared."
        )
    if "contract" in description:
        yield f"The contract to publish has the SHA-256 {description['contract']}; --save writes it."
    yield "Figures rounded for display; --json has all digits."


def _training(chosen: JSONObject) -> str:
    """Batch, steps and rate of private training under this plan."""
    said = (
        f"a run whose [training] states no batch size, steps or learning rate has batches of all records, "
        f"{counted(chosen['steps'], 'step')} a round and learning rate {chosen['learning_rate']:.3g} at "
        f"clip {chosen['for_clip']:g}; over the run, noise is {chosen['noise_share']:.1%} of the furthest "
        "that clipped gradients can move the model"
    )
    return f"{said}, which {HIDDEN}" if chosen["dwarfed"] else said


def _amount(value: float) -> str:
    """Four decimals, but digits where these would show none or too many."""
    return f"{value:,.4f}" if value == 0 or 0.001 <= abs(value) < 1e9 else f"{value:.3e}"
