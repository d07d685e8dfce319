"""Who does not report does not take part: every mechanism that asks for reports says what it does then.

Either a run goes on without the silent, under the terms that its contract settles for the others, and its
statement names who is not in it; or it is refused before anybody trains, by `settle` and `train` alike.
"""

import re

import pytest

from bonafed.errors import InvalidValue
from bonafed.runs import listing
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train
from tests.laws import protocol, worlds

SILENT = ("cyd", "zoë")
KINDS = {
    "sampling": ("sampling", []),
    "prior-free": (
        "sampling",
        [("sampling", "scheme", "prior-free"), ("sampling", "prior", None), ("sampling", "highest", 1.5)],
    ),
    "uniform": ("sampling", [("sampling", "scheme", "uniform")]),
    "complete information": ("sampling", [("sampling", "scheme", "complete information")]),
    "verifiable coins": ("sampling", [("sampling", "coins", "verifiable")]),
    "jsam": ("jsam", []),
    "jsam, expected budget": ("jsam", [("jsam", "eta", None), ("jsam", "expected_budget", 5.0)]),
    "jsam, hard budget": ("jsam", [("jsam", "eta", None), ("jsam", "budget", 1.0)]),
    "jsam, everybody needed": ("jsam", [("jsam", "scheme", "complete information")]),
    "price lottery": ("price-lottery", []),
    "auction": ("auction", []),
    "posted price": ("posted-price", []),
    "posted price, seats": ("posted-price", [("posted_price", "seats", 2)]),
}
SENTENCE = (
    "reports must come from all 6 clients, as the terms of each depend on them: wait for the others, or "
    "begin again without them, got 4"
)


@pytest.fixture(autouse=True, scope="module")
def price_lottery():
    with worlds.registered():
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_without_the_silent_or_says_why_not(kind, tmp_path):
    name, changes = KINDS[kind]
    made = worlds.setting(name, *changes)
    question, contract = made.mechanism.question, made.mechanism.contract
    reports = {client: cost for client, cost in made.agreement.reports.items() if client not in SILENT}
    again = {"dataset": worlds.small(), "reports": reports}
    if not question.optional:
        assert contract is None, "a contract settles for fewer, or asks everybody"
        with pytest.raises(InvalidValue, match=re.escape(SENTENCE)):
            prepare(made.config, **again)
        return
    short = prepare(made.config, **again)
    assert short.agreement.silent == SILENT
    assert short.agreement.members.names == tuple(reports)
    result = train(short, tmp_path / "run")
    assert listing.overview(tmp_path / "run")["clients"] == len(reports)
    protocol.statement_adds_up(short, result)
    assert result.statement.clients == tuple(reports)
    assert "cyd, zoë did not report, do not take part and are owed nothing" in result.statement.notes
    assert any("4 of 6 clients have reported" in note for note in result.statement.notes)
    assert not {who for line in result.metrics for who in line["participants"]} & set(SILENT)
    if contract is not None:
        assert contract.question.optional
        settled = contract.settle(reports)
        assert protocol.terms_by_name(settled) == protocol.terms_by_name(short.agreement.terms)
        assert "4 of 6 clients have reported" in str(settled.document())


@pytest.mark.parametrize("kind", ["sampling", "uniform"])
def test_the_menu_of_those_who_report_does_not_change(kind):
    name, changes = KINDS[kind]
    made = worlds.setting(name, *changes)
    few = {client: cost for client, cost in made.agreement.reports.items() if client not in SILENT}
    contract = made.mechanism.contract
    whole, part = (
        protocol.terms_by_name(contract.settle(these)) for these in (made.agreement.reports, few)
    )
    assert part == {client: row for client, row in whole.items() if client in few}
    assert contract.settle(few).expected_spend < contract.settle(made.agreement.reports).expected_spend


def test_under_bought_privacy_silence_is_as_a_cost_above_the_highest():
    made = worlds.setting("jsam")
    contract, reports = made.mechanism.contract, made.agreement.reports
    few = {client: cost for client, cost in reports.items() if client not in SILENT}
    above = {client: few.get(client, 2 * contract.prior.high) for client in reports}
    part, whole = (protocol.terms_by_name(contract.settle(these)) for these in (few, above))
    assert part == {client: row for client, row in whole.items() if client in few}


def test_every_mechanism_that_asks_is_tried():
    asking = {name for name in worlds.all_names() if worlds.setting(name).mechanism.question is not None}
    assert asking == {name for name, _ in KINDS.values()}
