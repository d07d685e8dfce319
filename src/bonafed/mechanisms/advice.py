"""`bonafed advise mechanism`: which mechanism fits, from what the catalogue says of each; and all advice
that belongs to no mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bonafed.mechanisms.catalogue import Burden, Fit, mechanisms
from bonafed.mechanisms.private_training import PRIVATE_TRAINING
from bonafed.mechanisms.protocol import Command
from bonafed.presentation.documents import Column, Document, Table
from bonafed.sections import Section, key, one_of

Answer = Literal["yes", "no"]
_UNSUITED: Mapping[Burden, str] = {
    "none": "pays for costs that clients here do not have",
    "participation": "does not make up for the work of taking part",
    "privacy": "does not make up for lost privacy",
}


@dataclass(frozen=True)
class Situation(Section):
    """What a federation is like, in four answers."""

    money: Answer = key(one_of(Answer), help="May money change hands?")
    costs: Burden = key(one_of(Burden), help="What joining costs clients that you have to make up for.")
    one_model: Answer = key(one_of(Answer), "yes", help="Must everybody get the same model?")
    prior: Answer = key(
        one_of(Answer), "no", help="Do you know, or have past data on, what clients' costs are like?"
    )


def objections(fit: Fit, situation: Situation) -> list[str]:
    """Why a mechanism of this kind does not suit the situation; empty if it does.

    >>> fit = mechanisms()["jsam"].fit
    >>> objections(fit, Situation("yes", "privacy", prior="yes"))
    []
    >>> objections(fit, Situation("no", "privacy"))
    ['money changes hands', 'something must be known about costs']
    """
    reasons = []
    if fit.money and situation.money == "no":
        reasons.append("money changes hands")
    if situation.costs not in fit.burdens:
        reasons.append(_UNSUITED[situation.costs])
    if fit.one_model != (situation.one_model == "yes"):
        reasons.append(
            "everybody gets the same model" if fit.one_model else "models differ between clients"
        )
    if fit.needs_prior and situation.prior == "no":
        reasons.append("something must be known about costs")
    return reasons


def first_command(fit: Fit, situation: Situation) -> str:
    """The command to begin with; nothing is taken for known that is not.

    >>> first_command(mechanisms()["sampling"].fit, Situation("yes", "participation"))
    'bonafed quote sampling --prior-free --highest C'
    """
    return fit.begin_blind if situation.prior == "no" and fit.begin_blind else fit.begin


def advise(situation: Situation) -> Document:
    """Every mechanism, whether it fits, and why not."""
    fits = {name: entry.fit for name, entry in mechanisms().items() if entry.fit is not None}
    verdicts = {name: objections(fit, situation) for name, fit in fits.items()}
    fitting = [name for name, reasons in verdicts.items() if not reasons]
    rows = tuple(
        (name, not reasons, fits[name].promise if not reasons else "; ".join(reasons))
        for name, reasons in verdicts.items()
    )
    columns = (Column("mechanism", left=True), Column("fits", left=True), Column("", left=True))
    begin = [f"Begin with: {first_command(fits[name], situation)}" for name in fitting]
    if not fitting:
        least = min(verdicts, key=lambda name: len(verdicts[name]))
        begin = [f"None fits. Nearest is {least}: {'; '.join(verdicts[least])}."]
    data = {
        "situation": situation.table(),
        "fitting": fitting,
        "mechanisms": {
            name: {"fits": not reasons, "objections": reasons} for name, reasons in verdicts.items()
        },
    }
    return Document((Table("Which mechanism", columns, rows), *begin), data)


ADVICE: Mapping[str, Command] = {
    "mechanism": Command(
        "Which mechanism fits your federation.",
        Situation,
        advise,
        "Four answers about money, costs, models and what is known; says what fits, and why the rest does "
        "not.",
        "bonafed advise mechanism --money yes --costs participation",
    ),
    "private-training": PRIVATE_TRAINING,
}
