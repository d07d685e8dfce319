"""Both sides' accounts of a run, and where they differ.

A participant counts by itself what it answered, what of that the server has said that it counts, and what
its records have lost. A statement must say the same of it: participations, privacy and, where clients are
paid by terms that everybody can compute, the amount that follows from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bonafed.contracts.published import Agreement
from bonafed.contracts.terms import PaidTerms, Turns
from bonafed.economics.claims import Statement
from bonafed.learning.federation import Roster
from bonafed.learning.privacy.ledger import Ledger
from bonafed.remote.journal import Journal
from bonafed.remote.messages import JSONObject

_RTOL = 1e-6  # of an epsilon that two sides compute


@dataclass(frozen=True, slots=True)
class OwnAccount:
    """What a participant's own ledger says of a run."""

    client: str
    answered: int  # tasks
    accepted: int  # of these, what the server says that it counts
    participations: int  # accepted tasks of local training
    asked: int  # tasks of local training that were answered, accepted or not
    sold: float | None  # epsilon; None: no privacy was promised
    given: float | None  # epsilon of everything that left, whether or not it arrived
    counted: float | None  # epsilon of what the server says that it counts

    def to_json(self) -> JSONObject:
        """Plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


def own_account(journal: Journal, run: str, client: str, members: Roster) -> OwnAccount:
    """By the journal alone."""
    place, sold = members.index[client], journal.fact(run, "sold")
    tasks = [name for name in journal.identifiers(run) if name not in ("describe", "report", "agree")]
    accepted = set(journal.identifiers(run, accepted=True))
    counted = [name for name in tasks if name in accepted]
    training = {name for name in tasks if _work(journal, run, name) == "train"}
    trained = len(training & set(counted))
    epsilon = given = None
    if sold is not None:
        epsilon = Ledger(tuple(journal.releases(run, place, accepted=True))).epsilon(place, sold[1])
        given = Ledger(tuple(journal.releases(run, place))).epsilon(place, sold[1])
    return OwnAccount(
        client,
        len(tasks),
        len(counted),
        trained,
        len(training),
        None if sold is None else sold[0],
        given,
        epsilon,
    )


def _work(journal: Journal, run: str, identifier: str) -> Any:
    answered = journal.answered(run, identifier)
    return None if answered is None else answered.answer.get("work")


def differences(said: object, mine: OwnAccount, agreement: Agreement, name: str) -> list[str]:
    """What a statement says otherwise than my ledger, in words; empty if both agree."""
    try:
        statement = Statement.from_json(said)  # type: ignore[arg-type]  # whatever it is
        row, place = statement.row(name), statement.clients.index(name)
        cells = {column: statement.columns[column][place] for column in statement.columns}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        return [f"the statement cannot be read ({type(error).__name__})"]
    found = []
    told = cells.get("participations")
    if told is not None and told != mine.participations:
        found.append(f"participations: {told} in the statement, {mine.participations} in my ledger")
    epsilon = cells.get("epsilon")
    if (
        mine.counted is not None
        and isinstance(epsilon, int | float)
        and not math.isclose(epsilon, mine.counted, rel_tol=_RTOL, abs_tol=1e-9)
    ):
        found.append(f"epsilon: {epsilon:.6g} in the statement, {mine.counted:.6g} in my ledger")
    if isinstance(agreement.terms, PaidTerms) and "participations" in statement.columns:
        delivered = [int(cell) for cell in statement.columns["participations"]]  # type: ignore[arg-type]
        asked = [int(cell) for cell in statement.columns.get("sampled", delivered)]  # type: ignore[arg-type]
        due = agreement.terms.amounts(Turns.of(delivered, asked))[place]
        if statement.amounts[place] != due:
            found.append(f"amount: {row['amount']} in the statement, {statement.written(due)} by the terms")
    return found
