"""What `bonafed train` shows of faithful learning: a statement per agent, and the four promises."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from bonafed.cli.tables import plain_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MARKS = {True: "holds", False: "DOES NOT HOLD", None: "not promised"}


def show_faithful(place: Path, summary: dict[str, Any], how: str) -> None:
    """The summary as tables."""
    from rich.console import Console

    console = Console(highlight=False)
    title = f"Run {escape(place.name)}: {how}"
    console.print(plain_table(title, "", ["", ""], [list(row) for row in _overview(summary)]))
    console.print(_statement(summary))
    if summary["agents"][0]["fresh_loss"] is not None:
        console.print(_fresh(summary))
    rows = [[check["name"], _MARKS[check["holds"]], check["text"]] for check in summary["checks"]]
    console.print(plain_table("Promises", "", ["promise", "here", ""], rows, left=(0, 1, 2)))
    _say(console, place, summary)


def _say(console: Console, place: Path, summary: dict[str, Any]) -> None:
    for out in summary.get("left_out", ()):
        console.print(
            f"note: agent {out['agent']} was left out: in {out['where']} it reported {out['problem']}. The "
            "model was trained without it, and it owes nothing; should it keep the last model it was sent, "
            f"it owes {out['due']:.4g}",
            soft_wrap=True,
            markup=False,
        )
    if "epsilon" in summary:
        console.print(
            f"note: losses are private; whoever simulates finds them in {place.name}.private, "
            "simulation.json",
            soft_wrap=True,
            markup=False,
        )
    for note in summary["notes"]:
        console.print(f"note: {note}", soft_wrap=True, markup=False)
    console.print(f"in {place}", soft_wrap=True, markup=False)


def _overview(summary: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("mechanism", summary["mechanism"]),
        ("data", escape(Path(summary["data"]).name)),
        ("model", f"{summary['model']}, {summary['parameters']:,} parameters"),
        ("agents", f"{summary['clients']:,}"),
        ("training steps", f"{summary['rounds']:,}"),
    ]
    if "payment_steps" in summary:
        rows.append(("payment steps", f"{summary['payment_steps']:,}"))
    if summary.get("certified_error") is not None:
        rows.append(("payments below VCG by at most", f"{summary['certified_error']:.2g}"))
    if summary["test_accuracy"] is not None:
        rows.append(("test accuracy", f"{summary['test_accuracy']:.2%}"))
    if "epsilon" in summary:
        rows.append(("epsilon given away", f"{summary['epsilon']:.4g} at delta {summary['delta']:g}"))
    rows.append(("payments in all", f"{summary['total_payment']:.4g}"))
    rows.append(("seconds of training", f"{summary['seconds']:,.2f}"))
    return rows


def _statement(summary: dict[str, Any]) -> Table:
    caption = (
        "in units of loss, regulariser included; alone: with a model of its own, which always fits its own "
        "samples best"
    )
    columns = ["agent", "loss", "payment", "overall loss", "with the others' model", "alone"]
    keys = ("loss", "payment", "overall_loss", "loss_with_the_others_model", "loss_alone")
    if "epsilon" in summary:
        paid = [[str(row["agent"]), f"{row['payment']:.4f}"] for row in summary["agents"]]
        return plain_table("Payments", "in units of loss", ["agent", "payment"], paid)
    rows = [[str(row["agent"]), *(_number(row[key]) for key in keys)] for row in summary["agents"]]
    return plain_table("Statement of every agent, on its own samples", caption, columns, rows)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"


def _fresh(summary: dict[str, Any]) -> Table:
    caption = "test samples, weighted by the agent's share of every class; losses without the regulariser"
    rows = []
    for row in summary["agents"]:
        shared, alone = row["fresh_loss"], row["fresh_loss_alone"]
        verdict = "yes" if row["joining_pays"] else "no"
        cells = (shared, None if shared is None else shared + row["payment"], alone)
        rows.append([str(row["agent"]), *map(_number, cells), verdict])
    columns = ["agent", "loss", "with payment", "alone", "joining pays"]
    return plain_table("Was it worth joining? On fresh samples", caption, columns, rows)
