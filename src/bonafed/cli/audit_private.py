"""The private part of `bonafed audit faithful`: gains over the noise, with a confidence limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import typer
from rich.markup import escape

from bonafed import checks
from bonafed.cli import tables
from bonafed.economics.priors import JSONObject
from bonafed.errors import InvalidValue

if TYPE_CHECKING:
    from bonafed.economics.claims import Finding
    from bonafed.mechanisms.faithful.cheating import AgentData
    from bonafed.mechanisms.faithful.private import PrivateVariant
    from bonafed.mechanisms.faithful.private_cheating import PrivateAttempt, PrivateTerms
    from bonafed.mechanisms.faithful.private_plan import PrivatePlan

PRIVATE: Mapping[str, PrivateVariant] = {
    "private": "corrected",
    "private-continued": "continued",
    "private-printed": "printed",
}
_ALPHA, _BETA, _TRIALS = 10.0, 1e-5, 16
_NOTES: Mapping[PrivateVariant, str] = {
    "corrected": "What an agent gains by a lie lowers the federation's loss: it shortens training that "
    "noise or too few steps left unfinished.",
    "continued": "The models without an agent begin where it has brought the shared one: whoever spoils "
    "that point and repairs it afterwards pays less, without limit.",
    "printed": "The models without an agent begin at the shared one, which it has shaped, and go on "
    "training: it is charged for what was left to do, and overstating leaves less.",
}


def audit_private(
    held: AgentData,
    data: str,
    who: Sequence[int],
    variant: PrivateVariant,
    alpha: float | None,
    beta: float | None,
    trials: int | None,
    as_json: bool,
) -> None:
    """Attack, show, and exit with code 1 if a violation is found."""
    from bonafed.mechanisms.faithful.private_cheating import (
        PrivateTerms,
        private_attack,
        private_verdicts,
    )
    from bonafed.mechanisms.faithful.private_plan import PublicFacts, plan_private, plan_warning
    from bonafed.learning.problems.convex import SoftmaxRegression

    problem = held.problem()
    if not isinstance(problem, SoftmaxRegression):
        raise InvalidValue("--data", "must have classes for a private variant", data)
    terms = PrivateTerms(_ALPHA if alpha is None else alpha, _BETA if beta is None else beta, variant)
    count = checks.whole("trials", _TRIALS if trials is None else trials, at_least=2)
    groups = [np.array([k]) for k in range(problem.agents)]
    plan = None
    if variant == "corrected":
        facts = PublicFacts.of(problem, groups, terms.clip)
        plan = plan_private(facts, alpha=terms.alpha, beta=terms.beta)
        said = plan_warning(facts, plan, alpha=terms.alpha, beta=terms.beta)
        if said is not None:
            typer.echo(f"warning: {said}", err=True)
    tried = []
    for k in who:
        with tables.working(f"agent {k} cheats, {count} times each way"):
            tried += private_attack(problem, groups, k, terms, seeds=count)
    found = private_verdicts(problem, tried)
    subject = f"private faithful learning ({variant})"
    if as_json:
        tables.say_json(_as_json(subject, terms, count, plan, found, tried))
    else:
        _show(subject, data, terms, count, found, tried)
    if not all(verdict.holds for verdict in found):
        raise typer.Exit(1)


def _show(
    subject: str, data: str, terms: PrivateTerms, count: int, found: Sequence[Finding],
    tried: Sequence[PrivateAttempt],
) -> None:  # fmt: skip
    console = tables.new_console()
    claims = tables.new_table(f"Audit of {subject}", ["", "", "finding"])
    claims.columns[2].justify = "left"
    for verdict in found:
        mark = "[green]holds[/]" if verdict.holds else "[red]FAILS[/]"
        claims.add_row(verdict.claim, mark, verdict.text if verdict.holds else f"VIOLATED, {verdict.text}")
    console.print(claims)
    console.print(
        f"Samples of {escape(data)}, epsilon {terms.alpha:g} at delta {terms.beta:g}, {count} draws of the "
        "noise, the same for truth and lie. Gains are in units of loss; one counts if its lower confidence "
        "limit is above what is allowed."
    )
    table = tables.new_table(
        "What agents report", ["agent", "", "mean gain", "at least", "allowed", "federation", "pays"]
    )
    table.caption = "federation: what its loss falls by, over the agent's weight"
    for a in tried:
        table.add_row(
            str(a.agent), a.name, f"{a.gain:+.4f}", f"{a.lower:+.4f}", f"{a.allowed:.2g}", f"{a.fall:+.4f}",
            "[red]YES[/]" if a.pays else "no",
        )  # fmt: skip
    console.print(table)
    console.print(_NOTES[terms.variant], markup=False)


def _as_json(
    subject: str, terms: PrivateTerms, count: int, plan: PrivatePlan | None, found: Sequence[Finding],
    tried: Sequence[PrivateAttempt],
) -> JSONObject:  # fmt: skip
    planned = None
    if plan is not None:
        planned = {
            "training_steps": plan.training_steps, "payment_steps": plan.payment_steps, "split": plan.split,
            "payment_error": float(plan.payment_error.max()), "model_error": plan.model_error,
            "usable": plan.usable,
        }  # fmt: skip
    return {
        "subject": subject,
        "passed": all(verdict.holds for verdict in found),
        "alpha": terms.alpha,
        "beta": terms.beta,
        "trials": count,
        "plan": planned,
        "findings": [
            {
                "claim": v.claim, "holds": v.holds, "tries": v.tries, "largest": v.number,
                "allowed": v.allowed, "text": v.text,
            }
            for v in found
        ],
        "deviations": [
            {
                "agent": a.agent, "name": a.name, "factor": a.factor, "gain": a.gain, "at_least": a.lower,
                "allowed": a.allowed, "federation_gain_over_weight": a.fall, "pays": a.pays,
            }
            for a in tried
        ],
    }  # fmt: skip
