"""Contracts of sampling behind the protocol: names, order, rounding, files, coins, audits."""

import csv
import io
import itertools
import json
import math
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest

from bonafed import InvalidValue, Uniform
from bonafed.contracts.per_turn import approach_order
from bonafed.contracts.published import Agreement
from bonafed.contracts.terms import PaidTerms, Turns
from bonafed.economics.findings import all_hold
from bonafed.mechanisms.contract_files import contract_from_json, read_contract
from bonafed.mechanisms.protocol import Attack, Common
from bonafed.mechanisms.sampling import PriorFreeSampling, plan
from bonafed.mechanisms.sampling.benchmark import BenchmarkContract
from bonafed.mechanisms.sampling.contracts import read
from bonafed.mechanisms.sampling.published import SamplingContract
from bonafed.mechanisms.sampling.rules import PriorFreeContract
from bonafed.mechanisms.sampling.section import SamplingSection
from bonafed.mechanisms.sampling.slice import SLICE
from bonafed.sections import section_from

BELIEF = Uniform(0.5, 1.5)
NAMES = ("ada", "ben", "cyd", "dan", "eve", "fay")
REPORTS = dict(zip(NAMES, (0.7, 1.4, 0.5, 1.1, 1.2, 0.9), strict=True))
COMMITMENT = "ab" * 32


def menu():
    return SamplingContract.of(plan(BELIEF, 60.0, 6, 20))


def grouped():
    weights = [1.0, 2.5, 1.0, 2.5, 1.0, 1.0]
    return SamplingContract.of(plan(BELIEF, 60.0, 6, 20, weights=weights, names=NAMES))


def rules():
    return PriorFreeContract(PriorFreeSampling(6, 3.0, 1.5), 20)


def benchmark(scheme):
    return BenchmarkContract(scheme, BELIEF, 6, 20, 60.0)


CONTRACTS = {
    "menu": menu,
    "groups": grouped,
    "prior-free": rules,
    "uniform": lambda: benchmark("uniform"),
    "complete information": lambda: benchmark("complete information"),
}


@pytest.fixture(params=CONTRACTS)
def contract(request):
    return CONTRACTS[request.param]()


def by_name(terms):
    return {row["client"]: row for row in terms.to_json()["clients"]}


def test_the_order_of_reports_does_not_matter(contract):
    expected = by_name(contract.settle(REPORTS))
    for order in itertools.islice(itertools.permutations(NAMES), 0, None, 97):
        terms = contract.settle({name: REPORTS[name] for name in order})
        assert terms.clients == order
        for name, row in by_name(terms).items():
            for key in ("cost", "admitted", "probability", "payment"):
                assert row[key] == pytest.approx(expected[name][key], rel=1e-12)


def test_a_file_says_the_same_and_its_digest_is_of_its_bytes(contract, tmp_path):
    digest = contract.write(tmp_path / "c.json")
    again = read_contract(tmp_path / "c.json")
    assert (again.digest, again.content) == (digest, contract.content)
    assert by_name(again.settle(REPORTS)) == by_name(contract.settle(REPORTS))
    assert again.mechanism == "sampling"
    assert (again.clients, again.rounds, again.draws) == (6, 20, None)


def test_every_honest_contract_verifies(contract):
    assert all_hold(contract.verify())


def test_terms_are_those_that_coins_can_be_tossed_for(contract):
    terms = contract.settle(REPORTS)
    assert isinstance(terms, PaidTerms)
    assert np.array_equal(terms.lottery.chances, terms.probability)
    two_delivered = Turns.of([1, 0, 1, 0, 0, 0], asked=[1, 1, 1, 0, 0, 0])
    assert terms.due_in(1, [0, 2], two_delivered) == math.fsum([terms.payment[0], terms.payment[2]])


def test_amounts_cover_the_costs_and_hardly_exceed_the_payments(contract):
    terms = contract.settle(REPORTS)
    for times in ((0, 1, 2, 3, 4, 5), (20,) * 6):
        for amount, pay, cost, count in zip(
            terms.amounts(Turns.of(times)),
            terms.payment.tolist(),
            terms.reports.tolist(),
            times,
            strict=True,
        ):
            assert Decimal(amount) / 100 >= Decimal(repr(cost)) * count
            assert Decimal(amount) / 100 < Decimal(repr(pay)) * count + Decimal("0.01")


def test_a_commitment_makes_it_another_contract(contract):
    committed = contract.with_coins(COMMITMENT)
    assert (contract.coin_commitment, committed.coin_commitment) == (None, COMMITMENT)
    assert committed.digest != contract.digest
    assert read(json.loads(committed.content)).coin_commitment == COMMITMENT
    assert contract.table()["coins"] == "seed"
    assert committed.table()["coins"] == "verifiable"


def test_the_table_of_a_config_is_one(contract):
    section = section_from(SamplingSection, "sampling", contract.table())
    assert section.total_budget == 60.0
    assert section_from(SamplingSection, "sampling", section.table()) == section


def test_what_a_participant_signs_has_everything(contract):
    document = contract.document()
    assert contract.digest in str(document)
    assert document.files["contract"] == contract.content
    data = document.data
    assert (data["clients"], data["rounds"], data["budget"], data["decimals"]) == (6, 20, 60.0, 2)
    assert "coins   " not in str(document)
    assert f"coins   {COMMITMENT}" in str(contract.with_coins(COMMITMENT).document())


def test_simulated_reports_can_be_settled(contract):
    drawn = contract.question.simulate(6, 5)
    assert drawn.shape == (6,)
    assert np.array_equal(drawn, contract.question.simulate(6, 5))
    assert not np.array_equal(drawn, contract.question.simulate(6))
    assert contract.settle(dict(zip(NAMES, drawn.tolist(), strict=True))).admitted.all()


def test_who_does_not_report_does_not_take_part(contract):
    terms = contract.settle({"ada": 0.7, "cyd": 0.5})
    assert terms.clients == ("ada", "cyd")
    assert "2 of 6 clients have reported" in terms.cautions[0]
    with pytest.raises(InvalidValue, match="reports must come from at least one client"):
        contract.settle({})
    with pytest.raises(
        InvalidValue, match="reports must come from at most the contract's 6 clients, got 7"
    ):
        contract.settle({**REPORTS, "gil": 1.0})


def test_groups_are_by_name():
    terms = by_name(grouped().settle(REPORTS | {"ada": 1.0, "ben": 1.0}))
    assert terms["ben"]["probability"] > terms["ada"]["probability"]  # the heavier one
    assert "group 1" in str(grouped().document())
    assert grouped().document().data["names"] == list(NAMES)
    with pytest.raises(
        InvalidValue, match="reports must come from clients that the contract lists, got 'gil'"
    ):
        grouped().settle({"gil": 1.0})
    data = json.loads(grouped().content)
    with pytest.raises(InvalidValue, match=r"contract.names must be all different, got 'ada' twice"):
        read({**data, "names": ["ada", "ada", *NAMES[2:]]})
    with pytest.raises(InvalidValue, match="names must be 6 different names"):
        plan(BELIEF, 60.0, 6, 20, weights=[1, 2, 1, 2, 1, 1], names=["ada"])


def test_nobody_chooses_when_it_is_approached():
    """The order follows from the rules and the names: not from reports, nor from the order of a file."""
    digest = rules().digest
    order = [NAMES[place] for place in approach_order(digest, NAMES)]
    assert order == [NAMES[::-1][place] for place in approach_order(digest, NAMES[::-1])]
    terms = rules().settle(REPORTS)
    played = PriorFreeSampling(6, 3.0, 1.5).run([REPORTS[name] for name in order])
    assert [by_name(terms)[name]["probability"] for name in order] == played.probability.tolist()
    assert order != [NAMES[place] for place in approach_order(rules().with_coins(COMMITMENT).digest, NAMES)]


def test_who_may_still_choose_its_name_chooses_its_place():
    """Which is why the rules say when the names were listed."""
    digest, others = rules().digest, list(NAMES[1:])
    places = {
        approach_order(digest, [f"ada{number}", *others]).index(0) for number in range(200)
    }  # fmt: skip
    assert places == set(range(6))
    said = str(rules().document())
    assert "those the operator had listed before these rules were published" in " ".join(said.split())


def test_a_file_that_shows_other_terms_than_it_pays_is_not_settled():
    data = json.loads(menu().content)
    data["groups"][0]["levels"]["payment"][0] *= 1.01
    contract = contract_from_json(data)
    assert not all_hold(contract.verify())
    with pytest.raises(InvalidValue, match="must show the terms that prior and scale give"):
        contract.settle(REPORTS)


def test_a_chance_that_depends_on_nobody_else_can_be_looked_up(contract):
    chance = contract.chance("ada", 0.7)
    if chance is not None:
        assert chance == by_name(contract.settle(REPORTS))["ada"]["probability"]
    else:
        assert isinstance(contract, PriorFreeContract) or contract.scheme == "complete information"


def test_terms_show_themselves():
    terms = menu().settle({**REPORTS, "eve": 1.6})
    document = terms.document()
    assert "not admitted" in str(document)
    rows = list(csv.DictReader(io.StringIO(document.files["csv"].decode())))
    assert [row["client"] for row in rows] == list(NAMES)
    assert float(rows[0]["probability"]) == terms.probability[0]
    assert [row["admitted"] for row in rows] == ["1", "1", "1", "1", "0", "1"]


def test_a_prospect_is_of_a_posted_menu(contract):
    if contract.chance("ada", 0.7) is None:
        with pytest.raises(InvalidValue, match="cost cannot be priced alone"):
            contract.prospect(0.7)
    else:
        assert all(mine["gain"] <= 1e-9 for mine in contract.prospect(0.7).data["prospects"])


def test_the_audit_of_a_run_finds_no_lie_but_where_costs_are_believed(contract):
    agreement = Agreement(None, REPORTS, contract, contract.settle(REPORTS))
    findings = SLICE.audit(Attack(SimpleNamespace(), agreement, None))
    broken = {finding.claim for finding in findings if finding.holds is False}
    known = isinstance(contract, BenchmarkContract) and contract.scheme == "complete information"
    assert broken == ({"truthful"} if known else set())


def test_it_is_compared_where_there_is_money_and_a_belief():
    table = SLICE.compare(Common(None, budget=60.0, costs=BELIEF))
    assert section_from(SamplingSection, "sampling", table).total_budget == 60.0
    assert "needs a budget" in SLICE.compare(Common(None))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"scheme": "cheap"}, "sampling.scheme must be one of optimal, uniform, complete information, pri"),
        ({"prior": None}, "sampling.prior is required for optimal"),
        ({"scheme": "prior-free"}, "sampling.prior must not be given unless scheme is optimal or uniform"),
        ({"scheme": "prior-free", "prior": None}, "sampling.highest is required for prior-free"),
        ({"highest": 1.0}, "sampling.highest must not be given unless scheme is prior-free"),
        (
            {"scheme": "uniform", "confidence": 0.9},
            "sampling.confidence must not be given unless scheme is",
        ),
        ({"decimals": 12}, "sampling.decimals must not exceed 9"),
        ({"coins": "fair"}, "sampling.coins must be one of seed, verifiable"),
        ({"total_budgt": 3}, "did you mean total_budget"),
    ],
)
def test_sections_that_make_no_sense_are_refused(table, message):
    with pytest.raises(InvalidValue, match=message):
        section_from(
            SamplingSection, "sampling", {"prior": "uniform:0.5,1.5", "total_budget": 9.0, **table}
        )


def test_decimals_are_part_of_the_contract():
    whole = SamplingContract.of(replace(plan(BELIEF, 60.0, 6, 20), decimals=0))
    assert whole.digest != menu().digest
    terms = whole.settle(REPORTS)
    assert terms.amounts(Turns.of([1] * 6)) == tuple(
        max(math.floor(pay), math.ceil(cost))
        for pay, cost in zip(terms.payment, terms.reports, strict=True)
    )
    assert "rounded to 0 decimals" in str(whole.document())
