"""`bonafed verify`: check a published contract without trusting its author, and see what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bonafed.cli.coins import rounds_table
from bonafed.cli.options import Json, number
from bonafed.contracts.coins import Coins
from bonafed.contracts.roster import check_contract
from bonafed.contracts.signatures import signature_holds, signature_path
from bonafed.contracts.transcript import check_openings, read_transcript
from bonafed.economics.findings import Finding, all_hold, findings_table
from bonafed.errors import InvalidValue, MissingValue
from bonafed.mechanisms.contract_files import read_contract
from bonafed.presentation import terminal
from bonafed.presentation.documents import Document
from bonafed.runs.coins import verify_run
from bonafed.sections import at_most_one


def verify(
    contract_file: Annotated[Path | None, typer.Argument(metavar="[CONTRACT.json]", hidden=True)] = None,
    cost: Annotated[
        float | None,
        typer.Option(
            help="What taking part costs you; shows what you would earn, and what the best lie would.",
            parser=number,
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="PUBLIC.pem", help="The operator's key: check CONTRACT.json.sig against it."),
    ] = None,
    coins: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Check who was in which round, in a run folder or in opened coins."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a published contract: its terms, truthfulness, rationality and spend.

    Shows what you would sign, and its SHA-256. Recomputes the terms that will be settled and searches for
    a profitable lie; trusts nothing that its author computed. Exit code 0: all checks hold; 1: one does
    not; 2: not a contract.

    With --coins, reopens every commitment, recomputes who was in which round, and compares both this and
    the money with what a run recorded.

    Example: bonafed verify contract.json --cost 0.9
    """
    if coins is not None:
        at_most_one(coins=coins, cost=cost, key=key)
        verify_coins(coins, contract_file, as_json)
        return
    if contract_file is None:
        raise MissingValue("CONTRACT.json", "or --coins is required")
    terminal.show(_verification(contract_file, cost, key), as_json=as_json)


def _verification(path: Path, cost: float | None, key: Path | None) -> Document:
    """What is signed, what one would earn, and every check."""
    contract = read_contract(path)
    parts = [contract.document()]
    if cost is not None:
        parts.append(contract.prospect(cost))
    with terminal.working("verifying"):
        findings = list(contract.verify())
    if key is not None:
        findings.append(_signature(contract.content, path, key))
    checks = findings_document(f"Verification of {path}", findings, "the contract")
    return Document(
        tuple(block for part in (*parts, checks) for block in part.blocks),
        {name: value for part in (*parts, checks) for name, value in part.data.items()},
        holds=checks.holds,
    )


def check_coins(path: Path, contract: Path | None) -> tuple[list[Finding], Coins | None]:
    """What `bonafed verify --coins` checks: a run, or opened coins and, if there is one, their contract."""
    if path.is_dir():
        if contract is not None:
            raise InvalidValue("CONTRACT.json", "must not be given with the coins of a run", contract)
        return verify_run(path), None

    transcript = read_transcript(path)
    findings, coins = check_openings(transcript)
    if contract is not None:
        findings.insert(0, check_contract(transcript.roster, read_contract(contract)))
    return findings, coins


def verify_coins(path: Path, contract: Path | None, as_json: bool) -> None:
    """Show what `check_coins` finds; exit code 1 if a check fails."""
    findings, coins = check_coins(path, contract)
    document = findings_document(
        f"Verification of the coins of {path}", findings, "the record of the coins"
    )
    if document.holds and coins is not None:
        document = replace(document, blocks=(*document.blocks, rounds_table(path, coins)))
    terminal.show(document, as_json=as_json)


def findings_document(title: str, findings: Sequence[Finding], subject: str) -> Document:
    """Findings as a document, with a verdict."""
    holds = all_hold(findings)
    verdict = "Every check holds." if holds else f"{subject[0].upper()}{subject[1:]} fails a check."
    return Document(
        (findings_table(title, findings), verdict),
        {"holds": holds, "findings": [finding.to_json() for finding in findings]},
        holds=holds,
    )


def _signature(content: bytes, contract: Path, key: Path) -> Finding:
    """Whether the operator's key signed this contract."""
    path = signature_path(contract)
    if not path.is_file():
        return Finding("signature", False, f"{path} is missing: the contract is not signed")
    if signature_holds(content, path.read_bytes(), key):
        return Finding("signature", True, f"{path} matches {key} and exactly this contract")
    return Finding("signature", False, f"{path} does not match {key}, or not this contract")
