"""Verifiable coins of a published contract: whose roster it is, and what a client looks for in it.

The contract may be of any mechanism that pays for participation. That it is worth signing is checked by
`PublishedContract.verify`, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from bonafed.contracts.coins import (
    SECRET_BYTES,
    CoinRoster,
    Coins,
    commit,
    commit_nonce,
    make_roster,
    toss,
)
from bonafed.contracts.published import Agreement, PublishedContract
from bonafed.contracts.terms import PaidTerms, Reports
from bonafed.economics.findings import Finding
from bonafed.errors import InvalidValue, MissingValue

_SAME = 1e-10  # what is computed by the same formulas, perhaps on two machines


def require_commitment(contract: PublishedContract) -> str:
    """The commitment to the server's secret; a contract without one is refused."""
    if contract.coin_commitment is None:
        rule = (
            "must be in the contract (quote --commit-coins): without them nobody can check who is sampled"
        )
        raise MissingValue("coins", rule)
    return contract.coin_commitment


def settle_paid(contract: PublishedContract, reports: Reports) -> PaidTerms:
    """The terms of a contract that pays for participation; no other kind has coins to toss."""
    terms = contract.settle(reports)
    if not isinstance(terms, PaidTerms):
        raise InvalidValue("contract", "must pay for participation to have coins", contract.mechanism)
    return terms


def contract_roster(
    contract: PublishedContract, reports: Reports, commitments: Mapping[str, str]
) -> CoinRoster:
    """Everybody's line, by name: its commitment, and its chance by the contract."""
    commitment = require_commitment(contract)
    for name in reports:
        if name not in commitments:
            raise InvalidValue("commitments", f"must include one of {name}", "none")
    for name in commitments:
        if name not in reports:
            raise InvalidValue("reports", f"must include one of {name}", "none")
    terms = settle_paid(contract, reports)
    hashes = {name: commitments[name] for name in terms.clients}
    lottery = terms.lottery
    return make_roster(contract.digest, commitment, contract.rounds, hashes, lottery.chances, lottery.draws)


def check_contract(roster: CoinRoster, contract: PublishedContract) -> Finding:
    """Whether the roster is of this contract."""
    for name, value, due in (
        ("digest", roster.contract, contract.digest),
        ("commitment", roster.commitment, require_commitment(contract)),
        ("rounds", roster.rounds, contract.rounds),
        ("draws", roster.draws, contract.draws),
    ):
        if value != due:
            return Finding("contract", False, f"{name} {value} on the roster, {due} in the contract")
    most = contract.clients
    if most is not None and len(roster.names) > most:
        text = f"clients {len(roster.names)} on the roster, {most} in the contract"
        return Finding("contract", False, text)
    return Finding("contract", True, contract.digest)


def require_own_line(
    roster: CoinRoster, contract: PublishedContract, name: str, nonce: bytes, report: float
) -> float:
    """A client's chance, once contract, commitment and chance are known to be its own: it may reveal.

    Where a chance depends on the reports of others it is taken as it stands.
    """
    check = check_contract(roster, contract)
    if not check.holds:
        raise InvalidValue("roster", "must belong to this contract", check.text)
    if name not in roster.names:
        raise InvalidValue("client", "must be on the roster: do not reveal", repr(name)[:60])
    place = roster.names.index(name)
    commitment = commit_nonce(roster.contract, name, nonce)
    if roster.commitments[place] != commitment:
        rule = f"must hold the commitment of {name}'s nonce, {commitment[:12]}...: do not reveal"
        raise InvalidValue("roster", rule, f"{roster.commitments[place][:12]}...")
    chance, due = float(roster.chances[place]), contract.chance(name, report)
    if due is not None and abs(chance - due) > _SAME * due:
        rule = f"must give {name} the chance {due!r} of the contract at cost {report:g}: do not reveal"
        raise InvalidValue("roster", rule, repr(chance))
    return chance


def simulate(
    agreement: Agreement, entropy: Callable[[int], bytes], secret: bytes | None = None
) -> Agreement:
    """The same agreement with coins, after the whole protocol with clients that all reveal.

    The contract with the server's commitment differs from the one without, and the terms
    are settled under it. `secret` belongs to a contract that was published with a commitment.
    """
    contract = agreement.contract
    if contract is None:
        raise InvalidValue("coins", "must belong to a published contract", "nothing published")
    if contract.coin_commitment is not None and secret is None:
        raise MissingValue("secret of the coins", "is required: the contract commits to it")
    key = entropy(SECRET_BYTES) if secret is None else secret
    committed = contract if contract.coin_commitment is not None else contract.with_coins(commit(key))
    nonces = {name: entropy(SECRET_BYTES) for name in agreement.members.names}
    commitments = {name: commit_nonce(committed.digest, name, nonce) for name, nonce in nonces.items()}
    roster = contract_roster(committed, agreement.reports, commitments)
    return with_tossed(replace(agreement, contract=committed), toss(roster, key, nonces))


def with_tossed(agreement: Agreement, coins: Coins) -> Agreement:
    """The agreement with coins that were tossed for it, settled under the contract that commits to them."""
    contract = agreement.contract
    if contract is None:
        raise InvalidValue("coins", "must belong to a published contract", "nothing published")
    if contract.coin_commitment is None:
        contract = contract.with_coins(coins.roster.commitment)
    if contract.digest != coins.roster.contract:
        rule = f"must belong to the contract of this run ({contract.digest[:12]}...)"
        raise InvalidValue("coins", rule, f"those of {coins.roster.contract[:12]}...")
    terms = contract.settle(agreement.reports)
    return replace(agreement, contract=contract, terms=terms, coins=coins)
