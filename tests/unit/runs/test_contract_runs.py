"""Runs under a contract of sampling: exactly this contract, these reports, a statement that adds up."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.federations import TABLES

from bonafed import InvalidValue, Uniform
from bonafed.contracts.coins import commit
from bonafed.economics.findings import all_hold
from bonafed.mechanisms.sampling import plan
from bonafed.mechanisms.sampling.contracts import prior_free_contract
from bonafed.mechanisms.sampling.published import SamplingContract
from bonafed.runs import coins, config, folder, prepare, training

PAID = ("training.rounds=12", "sampling.prior=uniform:0.5,1.5", "sampling.total_budget=24")
FREE = (
    "training.rounds=12",
    "sampling.scheme=prior-free",
    "sampling.highest=1.5",
    "sampling.total_budget=24",
)
SCHEMES = {
    "optimal": PAID,
    "confidence": (*PAID, "sampling.confidence=0.9"),
    "uniform": (*PAID, "sampling.scheme=uniform"),
    "complete information": (*PAID, "sampling.scheme=complete information"),
    "prior-free": FREE,
    "no decimals": (*PAID, "sampling.decimals=0"),
}
REPORTS = {"ada": 0.6, "ben": 1.2, "cyd": 0.9, "dan": 1.5}
SECRET = bytes(range(32))


@pytest.fixture(params=SCHEMES)
def changes(request):
    return SCHEMES[request.param]


def by_client(statement, column):
    return dict(zip(statement.clients, statement.columns[column], strict=True))


def test_the_statement_keeps_what_was_promised(make, small, changes):
    result = training.train(prepare.prepare(make(*changes), dataset=small))
    statement = result.statement
    assert [f.claim for f in statement.findings] == ["stated costs are covered", "budget", "rounds add up"]
    assert all_hold(statement.findings)
    spend = sum(record["spend"] for record in result.metrics)
    assert statement.totals["spend"] == pytest.approx(spend, rel=1e-12)
    assert statement.totals["budget"] == 24.0
    times, pay, cost = (np.array(statement.columns[name]) for name in ("participations", "payment", "cost"))
    unit = 10**-statement.decimals
    assert np.all(np.array(statement.amount) >= times * cost - 1e-12)
    assert np.all(np.abs(np.array(statement.amount) - times * pay) < unit)
    there = [name for record in result.metrics for name in record["participants"]]
    assert times.tolist() == [there.count(name) for name in statement.clients]


def test_verifiable_coins_of_every_scheme_verify(make, small, tmp_path, changes, kill_in, ending):
    config = make(*changes, "sampling.coins=verifiable")

    def entropy():
        return np.random.default_rng(2).bytes

    training.train(prepare.prepare(config, dataset=small), tmp_path / "whole" / "run", entropy=entropy())
    assert all_hold(coins.verify_run(tmp_path / "whole" / "run"))
    with pytest.raises(kill_in.error):
        training.train(
            prepare.prepare(config, dataset=small), tmp_path / "run", on_round=kill_in(5), entropy=entropy()
        )
    training.train(prepare.prepare(config, dataset=small), tmp_path / "run", resume=True)
    assert ending(tmp_path / "run") == ending(tmp_path / "whole" / "run")
    assert all_hold(coins.verify_run(tmp_path / "run"))


def test_a_run_is_under_exactly_the_published_contract_and_reports(make, small, tmp_path):
    published = SamplingContract.of(plan(Uniform(0.4, 1.6), 20.0, 4, 12, confidence=0.8, decimals=3))
    config = make("training.rounds=12")
    made = prepare.prepare(config, dataset=small, contract=published, reports=REPORTS)
    statement = training.train(made, tmp_path / "run").statement
    assert (tmp_path / "run" / "contract.json").read_bytes() == published.content
    assert by_client(statement, "cost") == REPORTS
    terms = published.settle(REPORTS)
    assert by_client(statement, "payment") == dict(zip(terms.clients, terms.payment.tolist(), strict=True))
    assert statement.decimals == 3
    agreement = folder.read_json(tmp_path / "run", folder.AGREEMENT)
    assert (agreement["reports"], agreement["contract"]) == (REPORTS, published.digest)
    assert json.loads(json.dumps(terms.to_json()["rounds"])) == 12


def test_groups_of_a_published_contract_are_by_name(make, small):
    weights, names = [1.0, 3.0, 1.0, 3.0], ("dan", "cyd", "ben", "ada")
    published = SamplingContract.of(plan(Uniform(0.4, 1.6), 20.0, 4, 12, weights=weights, names=names))
    even = dict.fromkeys(REPORTS, 1.0)
    made = prepare.prepare(make("training.rounds=12"), dataset=small, contract=published, reports=even)
    statement = training.train(made).statement
    chance = by_client(statement, "probability")
    assert chance["ada"] == chance["cyd"] > chance["ben"] == chance["dan"]
    with pytest.raises(InvalidValue, match=r'sampling\.scheme must not be "published" unless a contract'):
        prepare.prepare(make("sampling.scheme=published", "sampling.total_budget=9"), dataset=small)


def test_a_contract_that_does_not_fit_the_run_is_refused(make, small):
    published = SamplingContract.of(plan(Uniform(0.4, 1.6), 20.0, 4, 12))
    with pytest.raises(
        InvalidValue, match=r"training.rounds must be 12, as in the published contract, got 5"
    ):
        prepare.prepare(make(), dataset=small, contract=published, reports=REPORTS)
    few = SamplingContract.of(plan(Uniform(0.4, 1.6), 20.0, 3, 5))
    with pytest.raises(
        InvalidValue, match=r"partition\.clients must be at most 3, as in the published contract, got 4"
    ):
        prepare.prepare(make(), dataset=small, contract=few, reports=REPORTS)


def test_a_contract_that_commits_needs_its_secret(make, small, tmp_path):
    published = SamplingContract.of(plan(Uniform(0.4, 1.6), 20.0, 4, 12)).with_coins(commit(SECRET))
    config = make("training.rounds=12")
    made = prepare.prepare(config, dataset=small, contract=published, reports=REPORTS)
    with pytest.raises(InvalidValue, match="secret of the coins is required: the contract commits"):
        training.train(made, tmp_path / "run")
    training.train(made, tmp_path / "run", secret=SECRET)
    assert (tmp_path / "run" / "contract.json").read_bytes() == published.content
    assert all_hold(coins.verify_run(tmp_path / "run"))


def test_who_is_not_admitted_is_in_no_round_and_the_others_are_unbiased(make, small):
    published = SamplingContract.of(plan(Uniform(0.4, 1.4), 20.0, 4, 12))
    made = prepare.prepare(make("training.rounds=12"), dataset=small, contract=published, reports=REPORTS)
    statement = training.train(made).statement
    assert statement.row("dan")["amount"] == "0.00"  # whose cost is above the highest
    q = made.agreement.terms.probability
    who = made.mechanism.rules.participation(made.agreement, 1)
    assert np.array_equal(who.weights, 1 / (3 * q[who.clients]))


def contract_and_tables(**own):
    """A published contract, and the tables of a config that says this beside it."""
    published = SamplingContract.of(plan(Uniform(0.5, 1.5), 50.0, 4, 5))
    return {**TABLES, "sampling": own}, published


def test_a_config_may_repeat_the_published_contract_in_other_words():
    tables, published = contract_and_tables(prior="uniform:0.5,1.5", total_budget=50, coins="seed")
    made = prepare.under(tables, published)
    assert (made.own.total_budget, made.own.prior.to_json()) == (50.0, Uniform(0.5, 1.5).to_json())


def test_a_budget_that_was_divided_by_the_rounds_is_still_the_same():
    rules = prior_free_contract(1.5, total_budget=50, clients=4, rounds=11)
    assert rules.total_budget != 50  # 11 * (50 / 11)
    tables = {**TABLES, "sampling": {"total_budget": 50, "scheme": "prior-free", "highest": 1.5}}
    tables["training"] = {**tables["training"], "rounds": 11}  # as many as the contract is for
    assert prepare.under(tables, rules).own.highest == 1.5


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            {"confidence": 0.9},
            "sampling.confidence must be left out, as in the published contract, got 0.9",
        ),
        ({"highest": 1.5}, "sampling.highest must be left out, as in the published contract, got 1.5"),
        ({"total_budget": 51}, "sampling.total_budget must be as in the published contract, 50.0, got 51"),
        ({"prior": "uniform:0.5,1.6"}, "sampling.prior must be as in the published contract, {"),
        ({"decimals": "2"}, "sampling.decimals must be a number, got '2'"),
        ({"pior": 2}, "sampling.pior is unknown (did you mean prior?), got 2"),
        ({"coins": "verifiable"}, "sampling.coins must be as in the published contract, 'seed', got 'veri"),
    ],
)
def test_a_config_that_contradicts_the_published_contract_is_refused(own, message):
    tables, published = contract_and_tables(**own)
    with pytest.raises(InvalidValue) as refused:
        prepare.under(tables, published)
    assert str(refused.value).startswith(message)


def test_the_table_of_the_mechanism_must_be_one():
    _, published = contract_and_tables()
    with pytest.raises(InvalidValue, match=r"^sampling must be a section \[sampling\], got 5"):
        prepare.under({**TABLES, "sampling": 5}, published)


def test_coins_other_than_those_of_the_published_contract_are_refused(small):
    tables, published = contract_and_tables()
    own = {**published.table(), "coins": "verifiable"}
    chosen = replace(config.from_tables({**tables, "sampling": own}), contract=published)
    with pytest.raises(
        InvalidValue, match=r"^sampling\.coins must be as in the published contract, 'seed'"
    ):
        prepare.prepare(chosen, dataset=small)
