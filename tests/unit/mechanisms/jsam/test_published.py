"""Contracts that buy privacy: as files, verified, settled by name, seen by a participant; and forged."""

import copy
import csv
import io
import json
import math
import os
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bonafed.contracts.terms import Turns
from bonafed.economics import Discrete, Empirical, NormalMixture, TruncatedExponential, Uniform, money
from bonafed.economics.registry import prior_in_words
from bonafed.errors import InvalidValue
from bonafed.mechanisms.contract_files import contract_from_json as any_contract
from bonafed.mechanisms.jsam import Cheapest, Jsam, settle, unbiased
from bonafed.mechanisms.jsam.noise import Ingredients
from bonafed.mechanisms.jsam.published import JsamContract, publish
from bonafed.mechanisms.jsam.section import cap
from bonafed.mechanisms.jsam.slice import SLICE

PRIORS = {
    "uniform": Uniform(0, 1),
    "exponential": TruncatedExponential(1, 0.2, 2),
    "mixture": NormalMixture([0.5, 0.5], [0.6, 1.5], [0.1, 0.15], 0.1, 2),
    "discrete": Discrete([0.3, 0.6, 1.0], [0.3, 0.3, 0.4]),
    "empirical": Empirical([0.31, 0.5, 0.52, 0.77, 0.9, 1.2], 1.5),
}
NAMES = ("ada", "ben", "cleo", "dora", "eve", "fay")
MADE = Ingredients(dimension=10, smoothness=0.5, records=20, steps=2, passes=1)
WAYS = {
    "plain": {},
    "budget": {"budget": 2.0},
    "ingredients": {"noise": MADE},
    "unbiased": {"scheme": "unbiased"},
    "cheapest": {"scheme": "cheapest", "members": 3},
    "coins": {"coin_commitment": "ab" * 32},
    "on sums": {"noise_at": "sum"},
    "on sums, budget": {"noise_at": "sum", "budget": 2.0},
    "on sums, cheapest": {"noise_at": "sum", "scheme": "cheapest", "members": 3},
}
CAPPED = {
    "cap": {"max_epsilon": 0.8},
    "caps": {"max_epsilon": dict(zip(NAMES, (0.5, 0.8, 1.0, 0.7, 0.9, 0.6), strict=True))},
    "cap and budget": {"max_epsilon": 0.8, "budget": 1.0},
    "on sums, cap": {"noise_at": "sum", "max_epsilon": 0.3, "scheme": "unbiased"},
    "on sums, best under a cap": {"noise_at": "sum", "max_epsilon": 0.3},
}


@cache
def made(prior="uniform", way="plain"):
    options = {**WAYS, **CAPPED}[way]
    given = {name: value for name, value in options.items() if name not in ("noise", "budget")}
    noise = options.get("noise", 1.0)
    contract = JsamContract(6, PRIORS[prior], 5.0, noise, 100, 1.0, clients_per_round=4, **given)
    return publish(contract, options["budget"]) if "budget" in options else contract


def reports(contract, seed=1):
    costs = contract.prior.sample(np.random.default_rng(seed), 6)
    return dict(zip(NAMES, costs.tolist(), strict=True))


EDITS = 30 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 12
DEEP = pytest.mark.deep  # verified in a second or more each: those that combine what others have
CASES = [
    *(("uniform", way) for way in WAYS),
    *((prior, way) for prior in ("exponential", "discrete") for way in ("plain", "on sums, budget")),
    *(
        pytest.param(prior, way, marks=DEEP)
        for prior in ("exponential", "discrete")
        for way in WAYS
        if way not in ("plain", "on sums, budget")
    ),
    *(("uniform", way) for way in CAPPED if way != "cap and budget"),
    pytest.param("uniform", "cap and budget", marks=DEEP),
    pytest.param("mixture", "plain", marks=DEEP),
    ("empirical", "budget"),
    ("discrete", "cap"),
]


@pytest.mark.parametrize(("prior", "way"), CASES)
def test_a_file_is_read_as_it_was_written_and_verifies(prior, way):
    contract = made(prior, way)
    again = any_contract(json.loads(contract.content))
    assert isinstance(again, JsamContract)
    assert (again.content, again.digest) == (contract.content, contract.digest)
    assert [str(finding) for finding in again.verify() if not finding.holds] == []
    page = str(again.document())
    assert again.digest in page
    assert prior_in_words(contract.prior) in page
    stated = reports(contract)
    assert again.settle(stated).to_json() == contract.settle(stated).to_json()


def test_a_cap_under_a_continuous_prior_verifies():
    contract = JsamContract(4, PRIORS["exponential"], 5.0, 1.0, 100, 1.0, max_epsilon=0.8)
    assert [str(finding) for finding in contract.verify() if not finding.holds] == []


@pytest.mark.parametrize("way", [*WAYS, *CAPPED])
def test_terms_are_those_of_the_theory_whatever_the_order(way):
    contract = made("uniform", way)
    stated = reports(contract)
    terms = contract.settle(stated)
    rule = {"unbiased": unbiased(6), "cheapest": Cheapest(3)}.get(contract.scheme)
    if contract.noise_at == "sum":
        rule = (rule or Jsam()).on_sum()
    caps = contract.caps(NAMES)
    due = settle(
        list(stated.values()),
        contract.prior,
        contract.eta,
        contract.noise_scale,
        rule=rule,
        max_epsilon=caps,
    )
    np.testing.assert_allclose(terms.epsilon, due.allocation.privacy, rtol=1e-12)
    np.testing.assert_allclose(terms.settlement.payment, due.payment, rtol=1e-12)
    for order in (reversed(NAMES), ("fay", "ada", "eve", "ben", "dora", "cleo")):
        other = contract.settle({name: stated[name] for name in order})
        mine = {row["client"]: row for row in other.to_json()["terms"]}
        assert mine == {row["client"]: row for row in terms.to_json()["terms"]}


def test_amounts_are_rounded_once_however_often_they_are_shown(monkeypatch):
    calls, owed = [], money.owed
    monkeypatch.setattr(money, "owed", lambda *args, **options: calls.append(1) or owed(*args, **options))
    terms = made("uniform").settle(dict.fromkeys(NAMES, 0.6))
    assert terms.document().data["spend"] == sum(terms.promised) / 100
    assert len(calls) == 1


def test_equal_reports_are_settled_by_name_and_leave_equal_utility():
    contract = made("discrete")
    terms = contract.settle(dict.fromkeys(NAMES, 0.6))
    again = contract.settle(dict.fromkeys(reversed(NAMES), 0.6))
    assert dict(zip(terms.clients, terms.epsilon, strict=True)) == dict(
        zip(again.clients, again.epsilon, strict=True)
    )
    utility = terms.settlement.utility(np.full(6, 0.6))
    np.testing.assert_allclose(utility, utility[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("decimals", [0, 2, 6])
def test_amounts_cover_costs_and_are_rounded_down_otherwise(decimals):
    contract = JsamContract(6, Uniform(0, 1), 5.0, 1.0, 100, 1.0, decimals=decimals)
    for seed in range(20):
        terms = contract.settle(reports(contract, seed))
        paid, due = np.array(terms.promised) / 10**decimals, terms.settlement.payment
        cost = terms.reports * terms.epsilon
        assert np.all(paid >= cost * (1 - 1e-12))
        assert np.all((paid <= due * (1 + 1e-12)) | (paid - cost < 10.0**-decimals))
        everybody = Turns.of([3] * 6)
        assert terms.amounts(everybody) == terms.promised
        assert terms.due_in(99, (), everybody) == 0
        assert terms.due_in(100, (), everybody) == terms.spend


def test_terms_as_a_table_and_as_csv():
    contract = made()
    terms = contract.settle({**reports(contract), "eve": 1.5})
    said = terms.document()
    assert "not admitted" in str(said)
    rows = list(csv.DictReader(io.StringIO(said.files["csv"].decode())))
    assert [row["client"] for row in rows] == list(NAMES)
    assert rows[4]["admitted"] == "0"
    assert [float(row["epsilon"]) for row in rows] == terms.epsilon.tolist()
    assert sum(round(float(row["amount"]) * 100) for row in rows) == sum(terms.promised)
    assert terms.plot().axes


def test_cautions_are_told():
    wide = JsamContract(6, Uniform(0, 1), 5000.0, 100.0, 100, 1.0)
    assert "hardly a promise of privacy" in wide.settle(reports(wide)).cautions[0]
    cheap = made("uniform", "budget").settle(dict.fromkeys(NAMES, 0.01))
    dear = made("uniform", "budget").settle(dict.fromkeys(NAMES, 0.99))
    assert any("on average over the prior" in caution for caution in cheap.cautions + dear.cautions)
    past = made("empirical")
    same = past.settle(dict(zip(NAMES, PRIORS["empirical"].samples.tolist(), strict=True)))
    assert any("lying may pay" in caution for caution in same.cautions)


@pytest.mark.parametrize("prior", list(PRIORS))
def test_a_participant_sees_that_no_lie_pays(prior):
    contract = made(prior)
    cost = float(contract.prior.quantile(0.3))
    said = contract.prospect(cost)
    assert said.holds
    outlook = said.data["outlooks"][0]
    assert outlook["largest_gain"] <= 1e-9 * outlook["payment"]
    assert outlook["profit"] >= 0
    assert "no other report earns more" in str(said)
    assert not contract.prospect(contract.prior.high * 1.01).data["admitted"]
    with pytest.raises(InvalidValue, match=r"^report must not be negative, got -1.0"):
        contract.prospect(-1)


def test_a_participant_with_a_cap_of_its_own_sees_both_ends():
    said = made("uniform", "caps").prospect(0.4)
    assert [outlook["max_epsilon"] for outlook in said.data["outlooks"]] == [0.5, 1.0]
    assert said.figure().axes


def test_what_is_asked_and_the_table_of_a_run():
    contract = made("uniform", "budget")
    assert (contract.question.name, contract.question.unit) == ("cost", "money per unit of epsilon")
    assert contract.question.simulate(5).shape == (5,)
    section = SLICE.section(**contract.table())
    assert (section.eta, section.expected_budget) == (contract.eta, 2.0)
    assert contract.draws == 4
    assert contract.with_coins("cd" * 32).coin_commitment == "cd" * 32


BAD = [
    ({"version": 2}, "contract.version must be 1, got 2"),
    ({"eta": -1.0}, "contract.eta must be positive, got -1.0"),
    ({"eta": "5"}, "contract.eta must be a number, got '5'"),
    ({"delta": 1.0}, "contract.delta must be between 0 and 1, ends excluded, got 1.0"),
    ({"clients": 6.5}, "contract.clients must be a whole number of at least 1, got 6.5"),
    ({"clients": 6.0}, "contract.clients must be 6, got 6.0"),
    ({"rounds": True}, "contract.rounds must be a number, got True"),
    (
        {"scheme": "largest losses"},
        "contract.scheme must be one of jsam, unbiased, cheapest, got 'largest ",
    ),
    ({"scheme": "cheapest"}, "contract.members is required for cheapest"),
    ({"members": 3}, "contract.members must not be given unless scheme is cheapest or largest losses"),
    ({"members": None}, "contract.members must be left out if there is none, got null"),
    (
        {"max_epsilon": [1.0, 2.0]},
        "contract.max_epsilon must be a number or a mapping of numbers by client, got [1.0, 2.0]",
    ),
    ({"max_epsilon": {"ada": 1.0}}, "contract.max_epsilon must be one number, or 6, one per client, got 1"),
    ({"decimals": 12}, "contract.decimals must not exceed 9, got 12"),
    ({"noise_scale": {"dimension": 3}}, "contract.noise_scale.smoothness is required"),
    ({"noise_scale": {"Q": 3}}, "contract.noise_scale.Q must be one of dimension, smoothness, records"),
    ({"budget": 3.0}, "contract.budget must be absent, got 3.0"),
    (
        {"coins": {"commitment": "x"}},
        "contract.coins.commitment must be 64 hexadecimal digits in lower case, got 'x'",
    ),
    ({"example": {}}, "contract.example.report is required"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[next(iter(change)) for change, _ in BAD])
def test_a_file_that_says_something_else_is_refused(change, message):
    data = {**json.loads(made().content), **change}
    with pytest.raises(InvalidValue) as refused:
        JsamContract.from_json(data)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("name", ["eta", "noise_scale", "prior", "example", "decimals"])
def test_nothing_may_be_missing(name):
    data = json.loads(made().content)
    del data[name]
    with pytest.raises(InvalidValue, match=f"{name} is required"):
        JsamContract.from_json(data)


def test_reports_of_others_are_refused():
    contract = made("uniform", "caps")
    with pytest.raises(
        InvalidValue, match=r"^reports must come from at most the contract's 6 clients, got 7"
    ):
        contract.settle(dict.fromkeys((*NAMES, "zoe"), 0.5))
    with pytest.raises(InvalidValue, match=r"^reports must come from at least one client, got none"):
        contract.settle({})
    stranger = {**dict.fromkeys(NAMES[:5], 0.5), "zoe": 0.5}
    with pytest.raises(
        InvalidValue, match=r"^reports must come from clients that the contract lists, got 'zoe'"
    ):
        contract.settle(stranger)
    with pytest.raises(InvalidValue, match=r"^report of ada must not be negative, got -0.5"):
        contract.settle({**dict.fromkeys(NAMES, 0.5), "ada": -0.5})


def test_an_overstated_weight_is_found_out_by_verification():
    contract = made("uniform", "budget")
    for factor in (1 + 1e-5, 1 - 1e-5, 2.0):
        forged = replace(contract, eta=contract.eta * factor, example_in_file=None)
        assert next(f.claim for f in forged.verify() if f.holds is False) == "weight"


def numbers(data, path=()):
    """Where the numbers of a file are."""
    if isinstance(data, dict):
        return [found for key, part in data.items() for found in numbers(part, (*path, key))]
    if isinstance(data, list):
        return [found for key, part in enumerate(data) for found in numbers(part, (*path, key))]
    return [path] if isinstance(data, (int, float)) else []


def at(data, path):
    for key in path:
        data = data[key]
    return data


def edited(data, rng):
    """One number changed by a relative 1e-6 to 1."""
    places = numbers(data)
    path = places[int(rng.integers(len(places)))]
    size = float(rng.choice([-1, 1]) * 10 ** rng.uniform(-6, 0))
    old = at(data, path)
    if isinstance(old, int):
        new = old + int(math.copysign(max(1, round(abs(old * size))), size))
    else:
        new = old * (1 + size) if old else size
    changed = copy.deepcopy(data)
    at(changed, path[:-1])[path[-1]] = new
    return path, changed


# what the operator may choose, and the example need not depend on: another contract, by its digest
MAY_CHANGE = {"clip", "delta", "rounds", "clients_per_round", "decimals", "max_epsilon"}
FORGED = [
    (prior, way)
    for prior in ("uniform", "discrete", "empirical", "exponential")
    for way in ("plain", "budget", "ingredients", "cheapest")
] + [
    ("uniform", "cap"),
    ("uniform", "on sums"),
    ("discrete", "on sums, budget"),
    ("uniform", "on sums, cap"),
]


def forge(prior, way, rng):
    """The outcome of one edit: 'refused', 'the same', 'another contract', or what went wrong."""
    original = made(prior, way)
    path, forged = edited(json.loads(original.content), rng)
    try:
        contract = JsamContract.from_json(forged)
    except InvalidValue:
        return "refused"
    assert contract.digest != original.digest
    if path[0] in MAY_CHANGE:
        return "another contract"
    stated = reports(original)
    ours, theirs = (one.settle(stated).settlement for one in (original, contract))
    same = all(
        np.allclose(a, b, rtol=1e-9, atol=1e-12)
        for a, b in (
            (ours.payment, theirs.payment),
            (ours.allocation.privacy, theirs.allocation.privacy),
            (ours.allocation.selection, theirs.allocation.selection),
        )
    )
    if same:
        return "the same"
    if any(finding.holds is False for finding in contract.verify()):
        return "refused"
    return f"{prior}, {way}: {path} settles to other terms"


@pytest.mark.parametrize(("prior", "way"), FORGED)
def test_every_edit_is_refused_or_settles_to_the_same_terms(prior, way):
    rng = np.random.default_rng([19, len(prior), len(way)])
    outcomes = [forge(prior, way, rng) for _ in range(EDITS)]
    assert set(outcomes) <= {"refused", "the same", "another contract"}
    assert outcomes.count("refused") >= EDITS / 3


def test_where_noise_is_added_cannot_be_changed_unseen():
    """Each way of turning one into the other is refused, or shows in the example or in verification."""
    here, there = (json.loads(made("uniform", way).content) for way in ("plain", "on sums"))
    assert here["example"] != there["example"]
    assert "noise_at" not in here
    assert "clients_per_round" not in there
    without = {name: value for name, value in there.items() if name != "noise_at"}
    for forged in (
        {**here, "noise_at": "sum"},
        {**here, "noise_at": "client"},
        {name: value for name, value in {**here, "noise_at": "sum"}.items() if name != "clients_per_round"},
        without,
        {**without, "clients_per_round": 4},
        {**there, "noise_at": "nowhere"},
        {**there, "clients_per_round": 4},
        {**there, "coins": here.get("coins", {"commitment": "ab" * 32})},
    ):
        with pytest.raises(InvalidValue):
            JsamContract.from_json(forged)


def test_a_contract_on_sums_says_whom_participants_trust():
    page = str(made("uniform", "on sums").document())
    assert "you trust the server" in page
    assert "everybody selected, with its weight" in page
    assert "you trust the server" not in str(made("uniform", "plain").document())
    terms = str(made("uniform", "on sums").settle(reports(made())).document())
    assert "weight: in the sum of every round" in terms


@pytest.mark.parametrize("most", [1e300, 1e-300])
def test_caps_whose_powers_are_no_numbers_are_refused(most):
    with pytest.raises(InvalidValue, match=r"max_epsilon must be between 1e-50 and 1e\+50, got 1e"):
        cap("max_epsilon", most)
