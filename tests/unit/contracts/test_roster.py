"""Coins of a published contract: every line follows from it, by name, and a client looks for its own."""

import json

import numpy as np
import pytest

from bonafed import InvalidValue, Uniform
from bonafed.contracts.coins import commit, commit_nonce
from bonafed.contracts.roster import (
    check_contract,
    contract_roster,
    require_commitment,
    require_own_line,
)
from bonafed.mechanisms.sampling import (
    PriorFreeContract,
    PriorFreeSampling,
    SamplingContract,
    plan,
)
from bonafed.mechanisms.sampling.contracts import read

REPORTS = {"ada": 0.7, "ben": 1.4, "cyd": 0.5}
NONCES = {name: bytes([place]) * 32 for place, name in enumerate(REPORTS)}
PLAIN = SamplingContract.of(plan(Uniform(0.5, 1.5), 30.0, 3, 20))
CONTRACT = PLAIN.with_coins(commit(bytes(32)))
RULES = PriorFreeContract(PriorFreeSampling(3, 1.5, 1.5), 20).with_coins(commit(bytes(32)))


def roster(contract=CONTRACT, reports=REPORTS):
    commitments = {name: commit_nonce(contract.digest, name, NONCES[name]) for name in reversed(reports)}
    return contract_roster(contract, reports, commitments)


def test_lines_are_by_name_whatever_the_order_of_commitments():
    made = roster()
    assert made.names == tuple(REPORTS)
    assert np.array_equal(made.chances, CONTRACT.settle(REPORTS).probability)
    assert made.commitments[1] == commit_nonce(CONTRACT.digest, "ben", NONCES["ben"])
    assert check_contract(made, CONTRACT).holds
    assert check_contract(roster(RULES), RULES).holds


def test_a_contract_without_a_commitment_has_no_coins():
    with pytest.raises(InvalidValue, match="coins must be in the contract"):
        require_commitment(PLAIN)


@pytest.mark.parametrize(
    ("reports", "commitments", "message"),
    [
        (REPORTS, {"ada": "0" * 64}, "commitments must include one of ben, got none"),
        ({"ada": 1.0}, {"ada": "0" * 64, "eve": "0" * 64}, "reports must include one of eve, got none"),
    ],
)
def test_reports_and_commitments_are_of_the_same_clients(reports, commitments, message):
    with pytest.raises(InvalidValue, match=message):
        contract_roster(CONTRACT, reports, commitments)


def test_a_client_finds_its_own_line():
    made = roster()
    for name, report in REPORTS.items():
        chance = require_own_line(made, CONTRACT, name, NONCES[name], report)
        assert chance == CONTRACT.chance(name, report)
    assert require_own_line(roster(RULES), RULES, "ada", NONCES["ada"], 0.7) > 0  # as it stands


@pytest.mark.parametrize(
    ("contract", "name", "nonce", "report", "message"),
    [
        (PLAIN.with_coins("ab" * 32), "ada", NONCES["ada"], 0.7, "roster must belong to this contract"),
        (CONTRACT, "eve", NONCES["ada"], 0.7, "client must be on the roster: do not reveal, got 'eve'"),
        (CONTRACT, "ada", NONCES["ben"], 0.7, "must hold the commitment of ada's nonce"),
        (CONTRACT, "ada", NONCES["ada"], 0.8, "must give ada the chance .* at cost 0.8: do not reveal"),
    ],
)
def test_a_line_that_is_not_its_own_is_not_revealed_for(contract, name, nonce, report, message):
    with pytest.raises(InvalidValue, match=message):
        require_own_line(roster(), contract, name, nonce, report)


def test_a_roster_of_more_clients_than_the_contract_is_for():
    few = read(json.loads(SamplingContract.of(plan(Uniform(0.5, 1.5), 30.0, 2, 20)).content))
    other = few.with_coins(commit(bytes(32)))
    made = roster()
    forged = type(made)(other.digest, *(getattr(made, n) for n in made.__slots__[1:]))
    assert check_contract(forged, other).text == "clients 3 on the roster, 2 in the contract"
