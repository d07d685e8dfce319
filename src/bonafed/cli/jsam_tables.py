"""What `bonafed jsam quote` shows to people; every number comes from the description that --json prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console

from bonafed.cli import tables
from bonafed.cli.sketch import sketch
from bonafed.economics.priors import JSONObject

_ROWS = 11  # clients shown where there are many
_HEADINGS = {
    "settlement": "Joint selection and privacy compensation",
    "shares": "Selection and privacy for unequal shares of the data, plan only",
    "fairness floor": "Selection and privacy with a fairness floor, plan only",
    "printed": "Selection and privacy by the paper's Algorithm 1, plan only",
}


def show(description: JSONObject, written: Mapping[Path, bytes]) -> None:
    """A quote, with payments or without."""
    console = tables.new_console()
    _show_heading(console, description)
    _show_terms(console, description)
    _show_run(console, description)
    if description["comparison"]:
        _show_comparison(console, description)
    _show_notes(console, description)
    tables.say_written(console, written)


def _show_heading(console: Console, description: JSONObject) -> None:
    seed = description["seed"]
    drawn = "" if seed is None else f" with costs drawn from the prior (seed {seed})"
    console.print(
        f"[bold]{_HEADINGS[description['kind']]}[/]: {description['clients']:,} clients{drawn}, "
        f"weight of the loss eta {description['eta']:.6g}, noise scale {description['noise_scale']:.6g}."
    )
    cap = description.get("max_epsilon")
    if cap is not None:
        most = "a cap of its own" if isinstance(cap, list) else f"epsilon {cap:.6g} at most"
        console.print(f"From each client {most} is bought; the cap is public, and payments stay truthful.")
    refused = description["clients"] - description["admitted"]
    if refused:
        console.print(
            f"{refused:,} not admitted: the report is above the highest cost "
            f"{description['highest']:.6g} of the prior. Such a client sells nothing and is paid nothing; "
            f"N counts the {description['admitted']:,} others."
        )
    source, money = description.get("eta_from"), description.get("budget")
    if source == "budget":
        console.print(
            f"eta is the largest weight at which the payments for these reports stay within {money:,.10g}. "
            "It depends on the reports, so that exact truthfulness is lost; --expected-budget keeps it."
        )
    elif source == "expected budget":
        console.print(
            f"eta follows from the prior alone: with it the payments are {money:,.10g} on average (over "
            f"{description['draws']:,} draws of all costs); for these reports they may be more or less. "
            "Truthful."
        )


def _show_terms(console: Console, description: JSONObject) -> None:
    rows = sorted(description["terms"], key=lambda row: (row["report"], row["client"]))
    shown = _shown(len(rows), description["threshold"])
    paid = description["kind"] == "settlement"
    names = {"selection": "selected with", "epsilon": "epsilon"}
    if paid:
        names |= {"payment": "payment", "utility": "utility"}
    title = "Terms, in order of the report" if paid else "Plan, in order of the report"
    table = tables.new_table(title, ["client", "report", *names.values()])
    for at in shown:
        row = rows[at]
        terms = [_amount(row[name]) for name in names] if row["admitted"] else ["not admitted"]
        table.add_row(f"{row['client']:,}", _amount(row["report"]), *terms)
    console.print(table)
    if len(shown) < len(rows):
        console.print(f"{len(rows) - len(shown):,} more clients are not shown; --json has all of them.")
        if paid:
            _show_curve(console, [row for row in rows if row["admitted"]])


def _shown(clients: int, threshold: int) -> list[int]:
    """Places worth a row: all of a few, else evenly spread ones, and the last selected with the next."""
    if clients <= 2 * _ROWS:
        return list(range(clients))
    spread = np.linspace(0, clients - 1, _ROWS).round().astype(int).tolist()
    return sorted({*spread, 1, threshold - 1, min(threshold, clients - 1)})


def _show_curve(console: Console, rows: list[JSONObject]) -> None:
    names = ("report", "epsilon", "payment")
    costs, epsilon, payment = (np.array([row[name] for row in rows]) for name in names)
    if not tables.can_draw() or costs[0] == costs[-1]:
        return
    console.print(
        sketch(
            costs,
            [
                ("epsilon bought (left scale)", epsilon, (0.0, float(epsilon.max()))),
                ("payment (right scale)", payment, (0.0, float(payment.max()))),
            ],
        )
    )


def _show_run(console: Console, description: JSONObject) -> None:
    names = {
        "expected_money": "expected money B, the sum of epsilon times virtual cost",
        "payments": "payments for these reports",
        "loss": "bound on the training loss that is left",
        "objective": "objective, eta times that bound plus B",
        "lower_bound": "no plan has a smaller objective than",
        "price_of_floor": "price of the floor in the objective",
    }
    table = tables.new_table("Over the whole run", ["", "amount"])
    table.add_row("clients selected (threshold h)", f"{description['threshold']:,}")
    for key, name in names.items():
        if description.get(key) is not None:
            table.add_row(name, _amount(description[key]))
    console.print(table)


def _show_comparison(console: Console, description: JSONObject) -> None:
    rows = description["comparison"]
    names = {
        "expected_money": "expected",
        "payments": "paid",
        "loss": "loss",
        "objective": "objective",
    }
    if description["payments"] is None:
        del names["payments"]
    first = rows[0]
    table = tables.new_table(
        "At the same weight eta", ["", "selected", *names.values(), f"vs {first['name']}"]
    )
    for row in rows:
        table.add_row(
            row["name"],
            f"{row['selected']:,}",
            *(_amount(row[name]) for name in names),
            f"{row['objective'] / first['objective'] - 1:+.1%}",
        )
    console.print(table)


def _show_notes(console: Console, description: JSONObject) -> None:
    kind = description["kind"]
    for warning in description["warnings"]:
        console.print(f"[bold]Note[/]: {warning}.")
    if description.get("max_epsilon") is not None and description["gap"] > 0:
        console.print(
            "Under the cap the plan is the best of a set of selections fixed in advance, which keeps it "
            f"truthful; no plan has an objective that is lower by more than {description['gap']:.2%}."
        )
    if kind == "settlement":
        console.print(
            "report: cost of one unit of epsilon; selected with: probability of each draw; payment: for "
            "the whole run; utility: payment minus report times epsilon, if the report is true. Payments "
            "equal B only on average over the prior. The server minimises the objective, eta times the "
            "loss bound plus B. USBM: everybody alike; FSBM-M: the M cheapest; BBM-M: the M largest "
            "losses; JSAM-CI: if the server knew every cost and paid no more."
        )
    if kind == "shares":
        _show_proof(console, description)
    if kind == "printed" and description["selection_sum"] > 1 + 1e-9:
        console.print(
            f"The printed probabilities sum to {description['selection_sum']:.6g}: for h = 1 Algorithm 1 "
            "counts client 1 twice (erratum J-4)."
        )
    if kind != "settlement":
        console.print("Only the plan is shown: truthful payments for it are not implemented.")
    console.print("Clients are numbered from 0. Figures rounded for display; --json has all digits.")


def _show_proof(console: Console, description: JSONObject) -> None:
    """What is known about the best plan for unequal shares."""
    if description["proved_optimal"]:
        console.print("The plan is proved optimal.")
    else:
        console.print(
            "The plan is not proved optimal: the best objective may be up to "
            f"{description['gap']:.2%} lower."
        )
    if description["admitted"] < description["clients"]:
        console.print("Shares count among the clients admitted.")


def _amount(value: float) -> str:
    """Four decimals, but digits where these would show none or too many."""
    return f"{value:,.4f}" if value == 0 or 0.001 <= abs(value) < 1e9 else f"{value:.3e}"
