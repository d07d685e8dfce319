"""Rich tables for people; every number comes from the description that --json prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bonafed.checks import finite_or_none
from bonafed.cli.sketch import sketch
from bonafed.economics.audit import AuditReport
from bonafed.economics.claims import Finding
from bonafed.economics.priors import JSONObject
from bonafed.mechanisms.sampling.plan import SamplingPlan

_CASES = {
    1: "nobody is sampled in every round",
    2: "costs up to {threshold:.4g} are sampled in every round",
    3: "the budget pays for everybody in every round",
}


def new_console() -> Console:
    """Where tables go."""
    return Console(highlight=False)


def loss(value: float) -> str:
    """Four digits after the point; a loss may also be as large as a number can be."""
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"


def say_json(value: JSONObject | list[JSONObject]) -> None:
    """Plain data for programs; null for NaN and infinity, which JSON does not have."""
    typer.echo(json.dumps(_finite(value), indent=1, allow_nan=False))


def _finite(value: object) -> object:
    if isinstance(value, float):
        return finite_or_none(value)
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, (list, tuple)) else value


def new_table(title: str, columns: Sequence[str]) -> Table:
    """An empty table; a first column without a name holds names."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k == 0 and not column else "right")
    return table


def plain_table(
    title: str,
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[int] = (0,),
) -> Table:
    """Rows of text, numbers to the right; `left` are the columns of words."""
    table = Table(
        title=title, title_justify="left", title_style="bold", caption=caption or None,
        caption_justify="left", show_header=any(columns),
    )  # fmt: skip
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place in left else "right")
    for row in rows:
        table.add_row(*row)
    return table


def show_quote(
    contract: SamplingPlan, description: JSONObject, written: Iterable[Path], estimated: bool
) -> None:
    """The quote of a known or (from a file of past costs) estimated prior."""
    console = new_console()
    case = _CASES[description["case"]].format(**description)
    console.print(
        f"[bold]Truthful sampling contract[/]: {contract.clients:,} clients, "
        f"{contract.rounds:,} rounds, budget {contract.total_budget:,.10g}; {case}."
    )
    if estimated:
        console.print(
            f"Prior estimated from {description['past_costs']:,} past costs; highest cost admitted "
            f"{contract.menu.prior.high:.6g} (set it with --highest; otherwise the largest of the file)."
        )
    for left, right, value in [] if estimated else description["ironed_intervals"]:
        console.print(
            f"Costs from {left:.4g} to {right:.4g} share one price: the prior is irregular there "
            f"and is ironed (virtual cost {value:.4g})."
        )
    terms = new_table(
        "Terms to publish",
        ["cost", "probability", "payment", "expected per round", "profit per round"],
    )
    for row in description["terms"]:
        terms.add_row(*(f"{value:.4f}" for value in row.values()))
    console.print(terms)
    _show_curve(console, contract)
    show_spend(console, description)
    same = "expected spend" if contract.confidence is not None else "budget"
    _show_benchmarks(console, f"What the same {same} buys", description["benchmarks"])
    console.print(
        "probability: of being sampled in a round; payment: per participation; a report above "
        f"{contract.menu.prior.high:.6g} is refused. Figures rounded for display; --save keeps all digits."
    )
    say_written(console, written)


def can_draw() -> bool:
    """Whether the terminal knows the characters of a sketch."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def _show_curve(console: Console, contract: SamplingPlan) -> None:
    if not can_draw():
        return
    menu = contract.menu
    costs = np.linspace(menu.prior.low, menu.prior.high, 400)
    if menu.prior.low == menu.prior.high:
        return
    q, r = menu.price(costs)
    low = float(min(r.min(), costs[0]))
    console.print(
        sketch(
            costs,
            [
                ("probability of being sampled (left scale)", q, (0.0, 1.0)),
                ("payment per participation (right scale)", r, (low, float(menu.prior.high))),
            ],
        )
    )


def show_spend(console: Console, description: JSONObject) -> None:
    """What is spent on average, and how far it may stray."""
    spend, budget = description["spend"], description["budget"]
    table = new_table("Money over the whole run", ["", "amount", "of budget"])
    rows = [
        ("budget", budget),
        ("expected spend", spend["expected"]),
        ("standard deviation of realised spend", spend["standard_deviation"]),
        *((f"realised spend, {float(p):.0%} quantile", amount) for p, amount in spend["quantiles"].items()),
    ]
    for name, amount in rows:
        table.add_row(name, f"{amount:,.2f}", f"{amount / budget:.2%}")
    table.add_row(
        "probability that realised spend exceeds the budget",
        f"{spend['probability_of_exceeding_budget']:.3g}",
        "",
    )
    console.print(table)
    if description.get("confidence") is not None:  # of a contract whose costs are not known yet
        console.print(
            f"Shrunk so that realised spend stays within the budget with probability "
            f"{description['confidence']:g} or more."
        )


def _show_benchmarks(console: Console, title: str, rows: Iterable[JSONObject]) -> None:
    table = new_table(
        title,
        ["", "mean probability", "mean 1/probability", "sampling error against uniform"],
    )
    listed = list(rows)
    uniform = listed[1]["mean_inverse_probability"]
    for row in listed:
        table.add_row(
            row["name"],
            f"{row['mean_probability']:.4f}",
            f"{row['mean_inverse_probability']:.4f}",
            f"{row['mean_inverse_probability'] / uniform - 1:+.1%}",
        )
    console.print(table)


def show_prior_free(description: JSONObject, written: Iterable[Path]) -> None:
    """The quote when no prior is known."""
    console = new_console()
    rules, example = description["rules"], description["example"]
    console.print(
        f"[bold]Prior-free truthful sampling[/]: {rules['clients']:,} clients, {rules['rounds']:,} "
        f"rounds, at most {rules['budget_per_round']:,.6g} per round in expectation over the sampling "
        "coins, whatever the costs turn out to be."
    )
    console.print(
        f"The first {rules['initial']} clients: probability {rules['initial_probability']:.4f}, payment "
        f"{rules['highest']:.4g}. Every later client is shown a menu made from earlier reports only; "
        f"nobody is sampled with probability below {rules['floor']:.4g}. Clients are approached in an "
        "order drawn by the server."
    )
    source = (
        "the costs of the file, in an order drawn at random"
        if example["costs"] == "file"
        else "costs drawn evenly from 0 to the highest"
    )
    table = new_table(
        f"Example, probability @ payment: {source}",
        ["cost", *(f"client {t['client']:,}" for t in example["terms"])],
    )
    for k, cost in enumerate(example["terms"][0]["cost"]):
        cells = (f"{t['probability'][k]:.3f} @ {t['payment'][k]:.3f}" for t in example["terms"])
        table.add_row(f"{cost:.3f}", *cells)
    console.print(table)
    total = rules["budget_per_round"] * rules["rounds"]
    inverse = example["mean_inverse_probability"]
    console.print(
        f"In the example {example['expected_spend']:,.2f} of {total:,.2f} is committed, give or take "
        f"{example['standard_deviation_of_coins']:,.2f} by the sampling coins. Mean 1/probability "
        f"{'undefined, nobody is admitted' if inverse is None else f'{inverse:.4f}'}; uniform sampling of "
        f"the same budget {example['uniform_inverse_probability']:.4f}."
    )
    if example["not_admitted"]:
        console.print(f"{example['not_admitted']} costs above the highest were not admitted.")
    say_written(console, written)


def show_published(path: Path, description: JSONObject) -> None:
    """What a published contract says, and what it means for a participant who gave its cost."""
    console = new_console()
    budget = f"{description['budget']:,.10g} over the run"
    if description["confidence"] is not None:
        budget += (
            f"; realised spend stays within with probability {description['confidence']:g} at least, "
            f"expected spend {description['intended_spend']:,.6g}"
        )
    rows = [
        ("clients", f"{description['clients']:,}"),
        ("rounds", f"{description['rounds']:,}"),
        ("budget", budget),
    ]
    groups = description.get("groups", [])
    for number, group in enumerate(groups):
        several = f"group {number}: {group['clients']:,} clients of weight {group['weight']:g}, "
        words = (several if len(groups) > 1 else "") + _prior_in_words(group["prior"])
        rows.append(("prior", f"{words}; reports above {group['highest']:.6g} are refused"))
    if not groups:
        names = ("highest", "initial", "initial_probability", "floor", "estimator", "refresh")
        rows += [(name.replace("_", " "), _word(description[name])) for name in names]
    rows.append(("sampled", description["sampled"]))
    title = f"{escape(str(path))}: {description['kind']}"
    console.print(plain_table(title, "", ["", ""], rows, left=(0, 1)))
    if description["coin_commitment"] is not None:
        console.print(f"coins   {description['coin_commitment']}", soft_wrap=True)
    console.print(f"SHA-256 {description['sha256']}", soft_wrap=True)
    for number, prospect in enumerate(description.get("prospects", [])):
        where = f" in group {number}" if len(groups) > 1 else ""
        console.print(f"A client of cost {prospect['cost']:g}{where}: {_prospect_in_words(prospect)}")


def _prior_in_words(prior: JSONObject) -> str:
    return ", ".join([prior["kind"], *(f"{k} {_word(v)}" for k, v in prior.items() if k != "kind")])


def _word(value: object) -> str:
    """A number, a word, or the beginning of a list."""
    if isinstance(value, list):
        more = f" and {len(value) - 6:,} more" if len(value) > 6 else ""
        return "(" + " ".join(_word(v) for v in value[:6]) + more + ")"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{k} {_word(v)}" for k, v in value.items()) + ")"
    return f"{value:.10g}" if isinstance(value, (int, float)) else str(value)


def _prospect_in_words(found: JSONObject) -> str:
    if found["lie"] is None:
        lie = "Every report gets the same terms: there is nothing to lie about."
    elif found["gain"] > 0:
        lie = (
            f"The best lie of {found['tried']:,} tried is to state {found['lie']:.6g}, "
            f"which gains {found['gain']:.3g}."
        )
    else:
        lie = (
            f"No lie gains: the best of {found['tried']:,} tried, to state {found['lie']:.6g}, "
            f"gains {found['gain']:.3g}."
        )
    if not found["admitted"]:
        return f"not admitted, it earns nothing. {lie}"
    return (
        f"in a round with probability {found['probability']:.4f}, paid {found['payment']:.6g} each time. "
        f"Over the run it is paid {found['paid']:,.6g} on average (sd over the coins "
        f"{found['paid_sd']:,.4g}, 1 % to 99 %: {found['paid_low']:,.6g} to {found['paid_high']:,.6g}) "
        f"and is left with {found['profit']:,.6g} after its cost (sd {found['profit_sd']:,.4g}). {lie}"
    )


def show_checks(path: Path, checks: Sequence[Finding]) -> None:
    """The outcome of `verify`."""
    console = new_console()
    table = Table(title=f"Verification of {escape(str(path))}", title_justify="left", title_style="bold")
    for column in ("check", "", "detail"):
        table.add_column(column)
    for check in checks:
        table.add_row(check.claim, _mark(check.holds), check.text)
    console.print(table)
    good = all(check.holds for check in checks)
    console.print("[green]Every check holds.[/]" if good else "[red]The contract fails a check.[/]")


def show_audit(name: str, report: AuditReport, plot: Path | None, note: str | None = None) -> None:
    """The findings of an audit."""
    console = new_console()
    table = Table(title=f"Audit of {name}", title_justify="left", title_style="bold")
    for column in ("claim", "", "finding"):
        table.add_column(column)
    for finding in report.findings:
        table.add_row(finding.claim, _mark(finding.holds), finding.text)
    console.print(table)
    if note is not None:
        console.print(note)
    if plot is not None:
        say_written(console, [plot])


def _mark(holds: bool | None) -> str:
    return "[green]holds[/]" if holds else "[red]FAILS[/]"


def say_written(console: Console, written: Iterable[Path]) -> None:
    """Which files were written; a path is shown as it is, whatever brackets it has."""
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True, markup=False)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on standard error while something takes its time; silent when not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield
