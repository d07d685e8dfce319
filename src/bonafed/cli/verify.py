"""`bonafed verify`: check a published contract without trusting who wrote it, and see what it means."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bonafed.cli import inputs, tables
from bonafed.cli.coins import verify_coins
from bonafed.cli.quote import Json
from bonafed.economics.claims import Finding
from bonafed.economics.priors import JSONObject
from bonafed.errors import InvalidValue
from bonafed.mechanisms.contracts.canonical import read_object
from bonafed.mechanisms.contracts.signatures import signature_holds, signature_path
from bonafed.mechanisms.sampling import rules
from bonafed.mechanisms.sampling.prospects import prospect
from bonafed.mechanisms.sampling.published import Published
from bonafed.mechanisms.sampling.verification import verify_published

_COINS = "in every round each client by a coin of its own, with the probability that its report is given; "


def verify(
    contract: Annotated[Path | None, typer.Argument(metavar="[CONTRACT.json]", hidden=True)] = None,
    cost: Annotated[
        float | None,
        typer.Option(help="What taking part costs you: what you would earn, and what the best lie would."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="PUBLIC.pem", help="The operator's key: check CONTRACT.json.sig against it."),
    ] = None,
    coins: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Finding who was sampled, in a run folder or in opened coins."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a published contract: its terms, truthfulness, rationality and spend.

    Says what you would sign: clients, rounds, money, prior, how who is sampled is decided, and the SHA-256
    of it all. Recomputes the terms that will be settled, and the spend from these, and searches for a
    profitable lie; trusts nothing the writer computed. Also reads the rules written by
    `bonafed quote --prior-free --save`. Exit code 0: all checks hold; 1: one does not; 2: not a contract.

    With --coins, opens every commitment again, recomputes who was in which round, and compares that and
    the money with what a run has recorded.

    Example: bonafed verify contract.json --cost 0.9
    """
    if coins is not None:
        inputs.at_most_one(coins=coins, cost=cost, key=key)
        verify_coins(coins, contract, as_json)
        return
    if contract is None:
        raise InvalidValue("CONTRACT.json", "or --coins must be given", "nothing")
    data = read_object(contract)
    found = rules.read_published(data)
    description: JSONObject = _facts(found)
    if cost is not None:
        description["prospects"] = _prospects(found, cost)
    checks = verify_published(found) if isinstance(found, Published) else rules.verify_rules(data)
    if key is not None:
        checks.append(_signature(found.content, contract, key))
    holds = all(check.holds for check in checks)
    if as_json:
        listed = [{"check": c.claim, "holds": c.holds, "detail": c.text} for c in checks]
        tables.say_json({**description, "holds": holds, "checks": listed})
    else:
        tables.show_published(contract, description)
        tables.show_checks(contract, checks)
    if not holds:
        raise typer.Exit(1)


def _facts(found: Published | rules.PublishedRules) -> JSONObject:
    """What a participant signs, as plain data."""
    if isinstance(found, Published):
        plan = found.plan
        facts: JSONObject = {
            "kind": "sampling contract",
            "sha256": found.digest,
            "clients": plan.clients,
            "rounds": plan.rounds,
            "budget": plan.total_budget,
            "confidence": plan.confidence,
            "intended_spend": plan.intended_spend,
            "groups": [
                {
                    "clients": g.clients,
                    "weight": g.weight,
                    "prior": g.prior.to_json(),
                    "highest": g.prior.high,
                }
                for g in plan.groups
            ],
        }
        commitment = plan.coin_commitment
    else:
        free, commitment = found.rules, found.coin_commitment
        facts = {
            "kind": "prior-free rules",
            "sha256": found.digest,
            "clients": free.clients,
            "rounds": found.rounds,
            "budget": found.total_budget,
            "confidence": None,
            "highest": free.highest,
            "initial": free.first_clients,
            "initial_probability": free.first_probability,
            "floor": free.lowest_probability,
            "estimator": free.estimator,
            "refresh": free.refresh,
        }
    if commitment is None:
        coins = "nothing in this file binds the server to the coins it tosses"
    else:
        coins = "the server is held to a secret that it committed to"
    return {**facts, "coin_commitment": commitment, "sampled": _COINS + coins}


def _prospects(found: Published | rules.PublishedRules, cost: float) -> list[JSONObject]:
    """What a participant of this cost would earn, in each group that it may be in."""
    if not isinstance(found, Published):
        rule = "must be asked of a contract: under prior-free rules terms depend on those who report before"
        raise InvalidValue("--cost", rule, cost)
    plan = found.plan
    return [asdict(prospect(menu, plan.rounds, cost)) for menu in plan.menus]


def _signature(content: bytes, contract: Path, key: Path) -> Finding:
    """Whether the operator's key signed this contract."""
    path = signature_path(contract)
    if not path.is_file():
        return Finding("signature", False, f"{path} is missing: the contract is not signed")
    if signature_holds(content, path.read_bytes(), key):
        return Finding("signature", True, f"{path} is of {key}, for just this contract")
    return Finding("signature", False, f"{path} is not of {key}, or not for this contract")
