"""What `bonafed train` shows of model rewards: every client's part, and the federation beside baselines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from bonafed.cli.tables import plain_table

if TYPE_CHECKING:
    from rich.table import Table

_DUST = 1e-12  # of a contribution: what rounding leaves of nothing
_NAMES = {
    "rewards": "model rewards",
    "honest": "  all honest",
    "fedavg-ft": "FedAvg tuned",
    "lg-fedavg": "LG-FedAvg",
    "cgsv": "CGSV",
    "rank": "Rank",
}


def show_rewards(place: Path, summary: dict[str, Any], how: str) -> None:
    """The summary as tables."""
    from rich.console import Console

    console = Console(highlight=False)
    title = f"Run {escape(place.name)}: {how}"
    console.print(plain_table(title, "", ["", ""], [list(row) for row in _overview(summary)]))
    console.print(_clients(summary))
    console.print(_methods(summary))
    if summary["cheats"]:
        console.print(_cheats(summary))
    for note in summary["notes"]:
        console.print(f"note: {note}", soft_wrap=True, markup=False)
    console.print(f"in {place}", soft_wrap=True, markup=False)


def _overview(summary: dict[str, Any]) -> list[tuple[str, str]]:
    judged = f"{summary['test_samples']:,} test samples, {summary['validation_samples']:,} for validation"
    return [
        ("mechanism", summary["mechanism"]),
        ("data", escape(Path(summary["data"]).name)),
        ("model", f"{summary['model']}, {summary['parameters']:,} parameters"),
        ("clients", f"{summary['clients']:,}"),
        ("rounds", f"{summary['rounds']:,}"),
        ("contribution", summary["measure"]),
        ("judged on", judged),
        ("seconds, all methods", f"{summary['seconds']:,.2f}"),
    ]


def _clients(summary: dict[str, Any]) -> Table:
    rows = []
    for row in summary["per_client"]:
        rows.append(
            [
                str(row["client"]),
                f"{row['samples']:,}",
                f"{row['contribution']:.4g}" if row["contribution"] > _DUST else "0",
                _rate(row["reward_rate"]),
                f"{row['standalone_accuracy']:.2%}",
                f"{row['accuracy']:.2%}",
                _verdict(row),
            ]
        )
    columns = ["client", "samples", "gives", "rate", "alone", "together", "joining paid"]
    caption = (
        "gives: its contribution as measured last; rate: its reward rate, mean over the rounds it was in; "
        "alone and together: accuracy of its own model, and of the one the federation gave it"
    )
    return plain_table("What every client was given", caption, columns, rows)


def _verdict(row: dict[str, Any]) -> str:
    """Whoever has what it had alone counts as not worse off, in IPR as well."""
    if row["accuracy"] == row["standalone_accuracy"]:
        return "no change"
    return "yes" if row["joining_pays"] else "no"


def _methods(summary: dict[str, Any]) -> Table:
    rows = [["alone", "", "", "", "", f"{summary['standalone_accuracy']:.2%}", ""]]
    for name, found in summary["methods"].items():
        rows.append(
            [
                _NAMES[name],
                f"{found['ipr_accuracy']:.2f}",
                f"{found['ipr_loss']:.2f}",
                _rho(found["rho_test"]),
                _rho(found["rho_validation"]),
                f"{found['average']:.2%}",
                f"{found['best']:.2%}",
            ]
        )
    columns = ["", "IPR acc.", "IPR loss", "rho test", "rho val.", "mean", "best"]
    caption = (
        "IPR: share of clients not worse off than alone, by accuracy and by loss; rho: correlation with "
        "the accuracy alone, on the test and on the validation samples; mean and best: accuracy"
    )
    return plain_table("The federation", caption, columns, rows)


def _rho(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def _rate(value: float | None) -> str:
    return "never there" if value is None else f"{value:.3f}"


def _cheats(summary: dict[str, Any]) -> Table:
    rows = []
    for row in summary["cheats"]:
        rows.append(
            [
                str(row["client"]),
                row["cheat"],
                f"{row['accuracy']:.2%} ({row['honest_accuracy']:.2%})",
                f"{_rate(row['reward_rate'])} ({_rate(row['honest_reward_rate'])})",
                f"{row['share']:.4f} ({row['honest_share']:.4f})",
                "yes" if row["seen"] else "no",
                f"{row['others_accuracy']:.2%} ({row['others_honest_accuracy']:.2%})",
            ]
        )
    columns = ["client", "cheat", "accuracy", "rate", "share", "seen", "others' accuracy"]
    caption = "in brackets: had everybody been honest; seen: its share of contributions is a tenth lower"
    return plain_table("Cheats", caption, columns, rows, left=(0, 1))
