"""`quote sampling` and `audit sampling` as data: options in, documents out."""

import json

import numpy as np
import pytest

from bonafed import InvalidValue
from bonafed.mechanisms.sampling.commands import ATTACK, QUOTE
from bonafed.mechanisms.sampling.contracts import read
from bonafed.sections import section_from

COMMON = {"clients": 20, "rounds": 30, "budget": 300.0}
KNOWN = {**COMMON, "prior": "uniform:0.5,1.5"}
FREE = {**COMMON, "prior_free": True, "highest": 1.5}


def quote(**options):
    return QUOTE.answer(section_from(QUOTE.options, "quote", options))


def attack(**options):
    return ATTACK.answer(section_from(ATTACK.options, "audit", options))


def test_the_quote_is_of_the_contract_that_is_saved():
    document = quote(**KNOWN, coins="ab" * 32, decimals=3, at="0.6,0.9")
    contract = read(json.loads(document.files["contract"]))
    assert contract.coin_commitment == "ab" * 32
    assert contract.plan.decimals == 3
    assert [row["cost"] for row in document.data["terms"]] == [0.6, 0.9]
    q, r = contract.plan.menu.price(np.array([0.6, 0.9]))
    assert [row["probability"] for row in document.data["terms"]] == q.tolist()
    assert [row["payment"] for row in document.data["terms"]] == r.tolist()
    assert "Terms to publish" in str(document)
    json.dumps(document.data, allow_nan=False)


def test_rules_are_quoted_without_a_prior():
    document = quote(**FREE)
    assert read(json.loads(document.files["contract"])).rules.highest == 1.5
    assert "whatever the costs turn out to be" in str(document).replace("\n", " ")
    json.dumps(document.data, allow_nan=False)


def test_a_prior_from_past_costs(tmp_path):
    (tmp_path / "past.csv").write_text("cost\n0.5\n0.7\n0.7\n1.2\n")
    document = quote(**COMMON, past_costs=str(tmp_path / "past.csv"))
    assert document.data["past_costs"] == 4
    assert "Prior estimated from 4 past costs" in str(document)
    assert quote(**COMMON, past_costs=str(tmp_path / "past.csv"), highest=2.0).data["prior"] is not None


def test_shrunk_until_it_is_safe():
    document = quote(**KNOWN, confidence=0.95)
    assert document.data["spend"]["probability_of_exceeding_budget"] <= 0.05
    assert "Shrunk so that realised spend" in str(document)


@pytest.mark.parametrize("options", [KNOWN, FREE])
def test_it_can_be_drawn(options):
    assert quote(**options).figure().axes


@pytest.mark.parametrize(
    ("variant", "holds"),
    [("corrected", True), ("uniform", True), ("pay-as-bid", False)],
)
def test_an_audit_finds_what_it_should(variant, holds):
    document = attack(**KNOWN, variant=variant, points=101)
    assert document.holds is holds
    assert document.data["passed"] is holds
    assert document.figure().axes
    assert {finding["claim"] for finding in document.data["findings"]} >= {"truthful", "within budget"}


def test_prior_free_rules_are_audited_too():
    assert attack(**FREE, profiles=2, points=31).holds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (COMMON, "must be one of --prior, --past-costs, --prior-free, got none"),
        ({**KNOWN, "past_costs": "x.csv"}, "must be one of --prior, --past-costs, --prior-free, got two"),
        ({**KNOWN, "highest": 2.0}, "highest must not be given with --prior"),
        ({**COMMON, "prior_free": True}, "highest is required with --prior-free"),
        ({**FREE, "confidence": 0.9}, "confidence must not be given with --prior-free"),
        ({**KNOWN, "reports": "x.csv"}, "reports requires --prior-free"),
        ({**KNOWN, "at": "0.6,x"}, "at must be numbers"),
        ({**KNOWN, "coins": "no"}, "must be 64 hexadecimal digits in lower case"),
        ({**KNOWN, "budget": 0.0}, "budget must be positive"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidValue, match=message):
        quote(**options)
