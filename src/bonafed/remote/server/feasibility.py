"""What a federation cannot do, and what chance will do to its rounds: said before anybody works.

What follows from the config alone is refused before anybody is connected to, and known without PyTorch.
"""

from __future__ import annotations

from dataclasses import asdict

from bonafed.contracts.attendance import (
    FEW,
    IN_A_SUM,
    WORTH_SAYING,
    empty_in_words,
    unheld_in_words,
)
from bonafed.contracts.published import Agreement
from bonafed.errors import InvalidValue
from bonafed.mechanisms.protocol import Config
from bonafed.remote.secure_sums.plan import threshold_for
from bonafed.remote.sums import NOT_SECURE


def require_ways(config: Config, colluders: int | None) -> None:
    """Refuse what the server asks of clients but is not to see, before it asks anybody for anything."""
    if config.noise_at == "sum" and colluders is None:
        raise InvalidValue("noise_at", NOT_SECURE, '"sum"')
    remembers = config.training is not None and config.training.aggregation == "memory"
    if remembers and colluders is not None:
        rule = 'must be "plain" with --secure-sums, where the server sees no single answer to remember'
        raise InvalidValue("training.aggregation", rule, '"memory"')


def require_honest(config: Config, members: int, colluders: int) -> None:
    """Refuse more colluders than secure sums of so many members allow for, and rounds of too few."""
    try:
        threshold_for(members, colluders)
    except InvalidValue as error:
        raise error.renamed("--colluders") from error
    share = 1.0 if config.training is None else config.training.participation
    needed, here = IN_A_SUM + colluders, max(1, round(share * members))
    if here < needed:
        rule = f"must leave {needed} of {members} members in a round with --secure-sums"
        raise InvalidValue("training.participation", rule, f"{share:g}, which leaves {here}")


def before_the_run(agreement: Agreement, rounds: int | None, colluders: int | None) -> list[str]:
    """What chance will do to the rounds of a run; colluders None: the server sees single answers.

    A run of secure sums of which no round can be held is refused.
    """
    attendance = agreement.attendance(rounds)
    if attendance is None:
        return []
    many = attendance.empty_rounds > FEW * attendance.rounds
    said = [empty_in_words(attendance.empty_rounds, attendance.rounds)] if many else []
    if colluders is None:
        return said
    unheld = attendance.unheld(colluders)
    if attendance.rounds * unheld.held < WORTH_SAYING:
        rule = f"must not be given where no round can be expected to have {unheld.needed} participants"
        raise InvalidValue("--secure-sums", rule, f"a chance of {unheld.held:.2g} for a round")
    return [*said, *unheld_in_words(asdict(unheld), attendance.rounds)]
