"""How bought privacy is shown: the contract that a participant signs; a quote, as data and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.claims import within_error
from bonafed.economics.priors import Prior
from bonafed.economics.registry import prior_in_words
from bonafed.errors import InvalidValue
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.jsam.allocation import Plan, allocate
from bonafed.mechanisms.jsam.cap_bound import least_objective
from bonafed.mechanisms.jsam.complete import complete_information
from bonafed.mechanisms.jsam.floors import allocate_with_floor
from bonafed.mechanisms.jsam.noise import Ingredients
from bonafed.mechanisms.jsam.payments import (
    Admitted,
    PrivacySettlement,
    privacy_warning,
    settle,
    spread_out,
)
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.mechanisms.jsam.rules import Cheapest, Jsam, Rule, largest_losses, unbiased
from bonafed.mechanisms.jsam.sizes import allocate_unequal
from bonafed.mechanisms.jsam.terms import SELECTED, SELECTION
from bonafed.mechanisms.promises import ON_SUM
from bonafed.shown import Block, Column, Curve, Document, JSONObject, Sketch, Table, counted, pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 11  # clients shown where there are many
_CURVE = 81  # costs of a figure
_HEADINGS = {
    "settlement": "Joint selection and privacy compensation",
    "shares": "Selection and privacy for unequal shares of the data, plan only",
    "fairness floor": "Selection and privacy with a fairness floor, plan only",
    "printed": "Selection and privacy by the paper's Algorithm 1, plan only",
}
_EXAMPLE = (Column("report", ".4g"), Column("epsilon", ".4g"), Column("payment", ",.4f"))
_SCHEMES = {
    "jsam": "the plan that is best for loss and money together",
    "unbiased": "everybody alike",
    "cheapest": "the {members} cheapest, alike",
}


_PROTECTED = {
    "client": "You add noise to every gradient, from your own secret, so that no record of yours loses "
    "more than the epsilon you sold, at this delta.",
    "sum": "Noise is added once, to the sum of all gradients of a round, so that no record of yours loses "
    "more than the epsilon you sold, at this delta, to anybody who sees models or sums. Whoever adds it "
    "sees your gradients without noise: you trust the server with them.",
}


def contract_document(contract: JsamContract) -> Document:
    """What a participant signs."""
    cap = contract.max_epsilon
    rows = [
        ("clients", f"{contract.clients:,}"),
        ("prior", prior_in_words(contract.prior)),
        ("highest cost admitted", f"{contract.prior.high:.10g} per unit of epsilon"),
        ("rounds", f"{contract.rounds:,}"),
        ("draws per round", f"{contract.clients_per_round:,}, with replacement")
        if contract.noise_at == "client"
        else ("in a round", "everybody selected, with its weight"),
        ("who is selected", _SCHEMES[contract.scheme].format(members=contract.members)),
        ("weight of the loss eta", f"{contract.eta!r}"),
        ("noise scale Q", f"{contract.noise_scale!r}"),
        ("delta", f"{contract.delta!r}"),
        ("largest norm of a record's gradient", f"{contract.clip!r}"),
    ]
    if isinstance(contract.noise, Ingredients):
        parts = ", ".join(f"{name} {value!r}" for name, value in contract.noise.to_json().items())
        rows.append(("Q is made of", f"{parts}, with delta and rounds"))
    if cap is not None:
        most = f"{cap!r} from everybody" if isinstance(cap, float) else "of each client its own"
        rows.append(("epsilon at most", most))
    if contract.expected_budget is not None:
        rows.append(("payments on average over the prior", f"{contract.expected_budget!r}"))
    rows.append(("smallest unit of money", f"{10**-contract.decimals:.{contract.decimals}f}"))
    if contract.coin_commitment is not None:
        rows.append(("commitment of the coins", contract.coin_commitment))
    rows.append(("SHA-256 of the contract", contract.digest))
    blocks: list[Block] = [
        pairs("A contract to buy privacy", rows),
        Table(
            "An example, if costs were spread as expected",
            _EXAMPLE,
            tuple(zip(*contract.example, strict=True)),
        ),
        "You state what one unit of epsilon costs you. From all statements follow, by the numbers above "
        "and nothing else, how much you take part, the epsilon you sell over the whole run, and "
        "one payment, made after the last round, also if you are never asked to take part. It is at least "
        "what you state times your epsilon, rounded up if need be. If you do not answer every time you are "
        "asked, it shrinks with the epsilon that you give. Whatever the others state, nothing leaves you "
        "with more than to state the truth and to answer. Whoever states more than the highest cost is not "
        "in the run.",
        _PROTECTED[contract.noise_at],
    ]
    if isinstance(cap, Mapping):
        columns = (Column("client", left=True), Column("epsilon at most"))
        blocks.insert(1, Table("Caps", columns, tuple((name, most) for name, most in cap.items())))
    return Document(
        tuple(blocks),
        {**contract.to_json(), "digest": contract.digest},
        lambda: _draw_contract(contract),
        files={"contract": contract.content},
    )


def _draw_contract(contract: JsamContract) -> Figure:
    from bonafed.mechanisms.jsam.figures import contract_figure

    n, prior = contract.clients, contract.prior
    reports = np.asarray(prior.quantile((np.arange(n) + 0.5) / n))
    costs = np.linspace(max(prior.low, float(reports[0]) / 2), prior.high, _CURVE)
    subject = contract.responding(contract.caps(contract.names))
    epsilon, payment = subject.respond(reports, n // 2, costs)
    return contract_figure(costs, epsilon, payment, n)


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

    @property
    def rule(self) -> Rule:
        """The optimum, without the cap."""
        return Jsam(noise_at=self.noise_at)

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
    request: Quote, weight: Weight, settlement: PrivacySettlement, members: list[int], losses: Floats | None
) -> JSONObject:
    """A quote with payments, and the baselines at the same weight."""
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


def _under_cap(request: Quote, eta: float, plan: Plan) -> JSONObject:
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


def describe_plan(request: Quote, eta: float, kind: PlanOnly) -> JSONObject:
    """A plan without payments, beside the exact one."""
    v, scale = request.group.virtual_costs, request.noise_scale
    exact = allocate(v, eta, scale)
    if kind.kind == "shares":
        assert kind.shares is not None
        shares = kind.shares[request.group.clients]
        bounded = allocate_unequal(v, shares / shares.sum(), eta, scale)
        plan, compared = bounded.plan, []
        more: JSONObject = {
            "proved_optimal": bounded.optimal,
            "lower_bound": bounded.lower_bound,
            "gap": bounded.gap,
            "shares": kind.shares.tolist(),
        }
    elif kind.kind == "fairness floor":
        assert kind.floor is not None
        if kind.floor > 1 / v.size:
            rule = f"must be at most 1/N = {1 / v.size:g}"
            raise InvalidValue("fairness_floor", rule, kind.floor)
        fair = allocate_with_floor(v, eta, scale, kind.floor)
        plan, compared = fair.plan, [("no floor", exact), ("with floor", fair.plan)]
        more = {"fairness_floor": kind.floor, "price_of_floor": fair.price}
    else:
        plan = _printed(v, eta, scale, kind.grid)
        compared = [("exact", exact), ("printed", plan)]
        more = {"grid": kind.grid, "selection_sum": float(plan.selection.sum())}
    return {
        **_common(request, eta, plan),
        "kind": kind.kind,
        **more,
        "payments": None,
        "terms": _rows(request, spread_out(plan, request.group.clients, request.reports.size)),
        "comparison": [_compared(name, other, None) for name, other in compared],
    }


def _printed(v: Floats, eta: float, noise_scale: float, grid: float | None) -> Plan:
    """Algorithm 1 needs its clients in order of virtual cost."""
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
        "noise_at": request.noise_at,
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
            "client": request.names[k],
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


def quote_blocks(description: JSONObject) -> list[Block]:
    """A quote, with payments or without, as it is shown."""
    blocks: list[Block] = [*_heading(description), *_terms(description), _run(description)]
    if description["comparison"]:
        blocks.append(_comparison(description))
    return [*blocks, *_notes(description)]


def _heading(description: JSONObject) -> Iterator[str]:
    seed = description["seed"]
    origin = "" if seed is None else f" with costs drawn from the prior (seed {seed})"
    yield (
        f"{_HEADINGS[description['kind']]}: {counted(description['clients'], 'client')}{origin}, "
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
    places = _shown(len(rows), description["threshold"])
    names = {"selection": SELECTED[description["noise_at"]], "epsilon": "epsilon"}
    with_payments = description["kind"] == "settlement"
    if with_payments:
        names |= {"payment": "payment", "utility": "utility"}
    title = "Terms, in order of the report" if with_payments else "Plan, in order of the report"
    columns = (Column("client", left=True), Column("report"), *(Column(name) for name in names.values()))
    cells = []
    for place in places:
        row = rows[place]
        terms = [_amount(row[name]) for name in names]
        if not row["admitted"]:
            terms = ["not admitted", *[""] * (len(names) - 1)]
        cells.append((row["client"], _amount(row["report"]), *terms))
    yield Table(title, columns, tuple(cells))
    if len(places) < len(rows):
        more = len(rows) - len(places)
        verb = "is" if more == 1 else "are"
        yield f"{counted(more, 'more client')} {verb} not shown; --json has all of them."
        if with_payments:
            yield from _sketch([row for row in rows if row["admitted"]])


def _sketch(rows: list[JSONObject]) -> Iterator[Sketch]:
    """Epsilon and payment by report, in order of the report."""
    costs = [row["report"] for row in rows]
    if costs[0] == costs[-1]:
        return
    names = {"epsilon": "epsilon bought (left scale)", "payment": "payment (right scale)"}
    columns = {name: [row[name] for row in rows] for name in names}
    curves = tuple(Curve(names[name], values, 0.0, max(values)) for name, values in columns.items())
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
        "price_of_floor": "price of the floor in the objective",
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
    kind = description["kind"]
    for warning in description["warnings"]:
        yield f"note: {warning}"
    if description.get("max_epsilon") is not None and description["gap"] > 0:
        yield (
            "Under the cap the plan is the best of a set of selections fixed in advance, which keeps it "
            f"truthful; no plan has an objective that is lower by more than {description['gap']:.2%}."
        )
    if description["noise_at"] == "sum":
        yield f"note: {ON_SUM}. Whoever is selected takes part in every round."
    if kind == "settlement":
        yield (
            f"report: cost of one unit of epsilon; {SELECTION[description['noise_at']]}; payment: for "
            "the whole run; utility: payment minus report times epsilon, if the report is true. Payments "
            "equal B only on average over the prior. The server minimises the objective, eta times the "
            "loss bound plus B. USBM: everybody alike; FSBM-M: the M cheapest; BBM-M: the M largest "
            "losses; JSAM-CI: if the server knew every cost and paid no more."
        )
    if kind == "shares" and description["proved_optimal"]:
        yield "The plan is proved optimal."
    elif kind == "shares":
        gap = description["gap"]
        yield f"The plan is not proved optimal: the best objective may be up to {gap:.2%} lower."
    if kind == "shares" and description["admitted"] < description["clients"]:
        yield "Shares count among the clients admitted."
    if kind == "printed" and description["selection_sum"] > 1 + 1e-9:
        yield (
            f"The printed probabilities sum to {description['selection_sum']:.6g}: for h = 1 Algorithm 1 "
            "counts client 1 twice (erratum J-4)."
        )
    if kind != "settlement":
        yield "Only the plan is shown: truthful payments for it are not implemented."
    if "contract" in description:
        yield f"The contract to publish has the SHA-256 {description['contract']}; --save writes it."
    yield "Figures rounded for display; --json has all digits."


def _amount(value: float) -> str:
    """Four decimals, but digits where these would show none or too many."""
    return f"{value:,.4f}" if value == 0 or 0.001 <= abs(value) < 1e9 else f"{value:.3e}"
