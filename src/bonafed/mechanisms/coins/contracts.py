"""Verifiable coins of a published contract: whose roster it is, and what a client looks for in it.

`data` is the object of a contract file, or of the rules of `bonafed quote --prior-free --save`. That the
contract is worth signing is checked by `bonafed verify`, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.economics.claims import Finding
from bonafed.errors import InvalidValue
from bonafed.mechanisms.coins.tossing import Roster, commit_nonce, make_roster
from bonafed.mechanisms.sampling import rules
from bonafed.mechanisms.sampling.plan import SamplingPlan
from bonafed.mechanisms.sampling.published import Published
from bonafed.mechanisms.sampling.settlement import settle_contract, settle_rules

_SAME = 1e-10  # what is computed by the same formulas, perhaps on two machines


class CommittedContract(NamedTuple):
    """What coins need to know of a contract."""

    digest: str  # SHA-256 of the canonical form
    commitment: str  # of the server's secret
    terms: SamplingPlan | rules.PublishedRules

    @property
    def rounds(self) -> int:
        """Of the run."""
        return self.terms.rounds


def committed_contract(data: object) -> CommittedContract:
    """From the file; refused if the server has committed to nothing."""
    published = rules.read_published(data)
    terms = published.plan if isinstance(published, Published) else published
    if terms.coin_commitment is None:
        rule = "must be in the contract (quote --commit-coins): without it who is sampled proves nothing"
        raise InvalidValue("coins", rule, "nothing")
    return CommittedContract(published.digest, terms.coin_commitment, terms)


def contract_roster(data: object, reports: ArrayLike, commitments: Mapping[str, str]) -> Roster:
    """Everybody's line: commitments by name, in the order of the reports; chances by the contract."""
    contract = committed_contract(data)
    if isinstance(contract.terms, SamplingPlan):
        settled = settle_contract(contract.terms, reports)
    else:
        settled = settle_rules(contract.terms.rules, contract.rounds, reports)
    chances = settled.probability
    return make_roster(contract.digest, contract.commitment, contract.rounds, commitments, chances)


def check_contract(roster: Roster, data: object) -> Finding:
    """Whether the roster is of this contract."""
    contract = committed_contract(data)
    for name, given, due in (
        ("digest", roster.contract, contract.digest),
        ("commitment", roster.commitment, contract.commitment),
        ("rounds", roster.rounds, contract.rounds),
        ("clients", len(roster.names), _clients(contract.terms)),
        ("draws", roster.draws, None),
    ):
        if given != due:
            return Finding("contract", False, f"{name} {given} on the roster, {due} in the contract")
    return Finding("contract", True, contract.digest)


def _clients(terms: SamplingPlan | rules.PublishedRules) -> int:
    return terms.clients if isinstance(terms, SamplingPlan) else terms.rules.clients


def require_own_line(roster: Roster, data: object, name: str, nonce: bytes, cost: float) -> float:
    """A client's chance, once contract, commitment and chance are found to be its own: it may reveal.

    Under prior-free rules a chance depends on the reports of others, and is taken as it stands.
    """
    check = check_contract(roster, data)
    if not check.holds:
        raise InvalidValue("roster", "must be of this contract", check.text)
    if name not in roster.names:
        raise InvalidValue("client", "must be on the roster: do not reveal", repr(name)[:60])
    place = roster.names.index(name)
    promised = commit_nonce(roster.contract, name, nonce)
    if roster.commitments[place] != promised:
        rule = f"must hold the commitment of {name}'s nonce, {promised[:12]}...: do not reveal"
        raise InvalidValue("roster", rule, f"{roster.commitments[place][:12]}...")
    chance, terms = float(roster.chances[place]), committed_contract(data).terms
    if isinstance(terms, SamplingPlan):
        everyone = [checks.non_negative("cost", cost)] * terms.clients
        due = float(settle_contract(terms, everyone).probability[place])
        if abs(chance - due) > _SAME * due:
            rule = f"must give {name} the chance {due!r} of the contract at cost {cost:g}: do not reveal"
            raise InvalidValue("roster", rule, repr(chance))
    return chance
