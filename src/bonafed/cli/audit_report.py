"""What every audit command says at its end."""

from __future__ import annotations

from pathlib import Path

import typer

from bonafed.cli import tables
from bonafed.economics.audit import AuditReport
from bonafed.economics.priors import JSONObject


def finish(
    name: str, report: AuditReport, as_json: bool, plot: Path | None, note: str | None = None
) -> None:
    """Say what was found; exit code 1 if a claim fails."""
    if as_json:
        described = _as_json(name, report)
        tables.say_json(described if note is None else {**described, "note": note})
    else:
        tables.show_audit(name, report, plot, note)
    if not report.passed:
        raise typer.Exit(1)


def _as_json(name: str, report: AuditReport) -> JSONObject:
    return {
        "subject": name,
        "passed": report.passed,
        "findings": [
            {
                "claim": f.claim,
                "holds": f.holds,
                "tries": f.tries,
                "largest": f.number,
                "witness": None
                if f.witness is None
                else {
                    "text": f.witness.text,
                    "true_cost": f.witness.true_cost,
                    "report": f.witness.report,
                    "gain": f.witness.gain,
                    "client": f.witness.client,
                    "reports": f.witness.others,
                },
            }
            for f in report.findings
        ],
    }
