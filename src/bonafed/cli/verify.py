"""`bonafed verify`: check a published contract without trusting who wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bonafed.cli import tables
from bonafed.cli.coins import verify_coins
from bonafed.cli.quote import Json
from bonafed.economics.published import field
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling import rules, verification
from bonafed.mechanisms.sampling.canonical import read_contract


def verify(
    contract: Annotated[Path | None, typer.Argument(metavar="[CONTRACT.json]", hidden=True)] = None,
    coins: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Check who was sampled, in a run folder or in opened coins."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a published contract: payments, truthfulness, rationality and spend.

    Recomputes the payments from the probabilities and the spend from the terms, and searches for a
    profitable lie; trusts nothing the writer computed. Also reads the rules written by
    `bonafed quote --prior-free --save`. Exit code 0: all checks hold; 1: one does not; 2: not a contract.

    With --coins, opens every commitment again, recomputes who was in which round, and compares that and
    the money with what a run has recorded.

    Example: bonafed verify contract.json
    """
    if coins is not None:
        verify_coins(coins, contract, as_json)
        return
    if contract is None:
        raise InvalidValue("CONTRACT.json", "or --coins must be given", "nothing")
    data = read_contract(contract)
    is_rules = field(data, "format", "contract") == rules.RULES_FORMAT
    checks = rules.verify_rules(data) if is_rules else verification.verify(data)
    holds = all(check.holds for check in checks)
    if as_json:
        listed = [{"check": c.name, "holds": c.holds, "detail": c.detail} for c in checks]
        tables.say_json({"holds": holds, "checks": listed})
    else:
        tables.show_checks(contract, checks)
    if not holds:
        raise typer.Exit(1)
