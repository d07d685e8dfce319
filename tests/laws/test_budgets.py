"""One rule for every budget: a run that spent more than was stated never says that its budget holds.

Every kind of contract is brought to spend too much: by clients that are cheaper than was believed, by coins
that fall badly, or by terms that are not what they should be. Whatever is said of it afterwards, nothing in
the statement, the table of runs, the page or the plain data calls the budget kept.
"""

from dataclasses import fields, replace

import numpy as np
import pytest

from bonafed.economics.budgets import BudgetPromise
from bonafed.economics.findings import Finding, Kind
from bonafed.mechanisms import catalogue
from bonafed.presentation.page import Badge
from bonafed.runs.pages import _kept
from bonafed.runs.summary import budget_in_words, budget_of
from tests.laws import protocol, worlds

CHEAP = ("sampling", "costs", "uniform:0.5,0.6")
PAST = {"kind": "empirical", "estimator": "plus", "highest": 1.5, "samples": [0.9, 1.0, 1.1, 1.2, 1.5]}
KINDS = {
    "prior": ("sampling", [CHEAP]),
    "past costs": ("sampling", [CHEAP, ("sampling", "prior", PAST)]),
    "confidence": ("sampling", [CHEAP, ("sampling", "confidence", 0.9)]),
    "prior-free": (
        "sampling",
        [
            ("sampling", "scheme", "prior-free"), ("sampling", "prior", None), ("sampling", "highest", 1.5),
            CHEAP,
        ],
    ),
    "uniform": ("sampling", [("sampling", "scheme", "uniform")]),
    "complete information": ("sampling", [("sampling", "scheme", "complete information")]),
    "expected budget": ("jsam", [("jsam", "eta", None), ("jsam", "expected_budget", 0.05)]),
    "hard cap": ("jsam", [("jsam", "eta", None), ("jsam", "budget", 1.0)]),
    "price lottery": ("price-lottery", []),
    "auction": ("auction", []),
    "posted price": ("posted-price", []),
}  # fmt: skip
AVERAGES = {"prior", "past costs", "confidence", "uniform", "complete information", "expected budget"}


@pytest.fixture(autouse=True, scope="module")
def price_lottery():
    with worlds.registered():
        yield


def overspent(kind):
    """The statement of a run in which everybody was in every round, and the budget that it states."""
    name, changes = KINDS[kind]
    about = {}
    if kind == "expected budget":  # clients that ask for next to nothing sell much more
        about["reports"] = dict.fromkeys(worlds.OWNERS, 1e-4)
    made = worlds.setting(name, *changes, **about)
    agreement, stated = made.agreement, protocol.stated_budget(made.config)
    if kind == "hard cap":  # nothing real exceeds it
        stated = agreement.terms.spend / 10
        agreement = replace(agreement, terms=replace(agreement.terms, budget=stated))
    state = made.mechanism.begin(agreement, made.start)
    rounds = 1000 if kind in ("price lottery", "auction", "posted price") else worlds.ROUNDS
    always = np.full(len(worlds.OWNERS), rounds, dtype=np.int64)
    due = rounds * float(np.sum(getattr(agreement.terms, "payment", 0.0)))
    state = replace(state, round_number=worlds.ROUNDS, delivered=always, participations=always, spend=due)
    return made.mechanism.settle(state, worlds.clients_of(made)), stated


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_that_is_exceeded_never_holds(kind):
    statement, budget = overspent(kind)
    assert statement.total > budget, "this kind of contract was not brought to spend too much"
    protocol.budget_is_told(statement, budget)
    (found,) = [found for found in statement.findings if found.kind is Kind.BUDGET]
    assert found.verdict == ("exceeded" if kind in {*AVERAGES, "prior-free"} else "FAILS"), str(found)
    assert ("not in every run" in found.text) == (found.verdict == "exceeded")
    assert found.verdict in str(statement.document())
    plain = statement.to_json()["findings"]
    assert [f["verdict"] for f in plain if f["kind"] == "budget"] == [found.verdict]
    lead = _kept(statement).parts
    assert [part.text for part in lead if isinstance(part, Badge)] == [found.verdict]
    assert "all kept" not in "".join(part for part in lead if isinstance(part, str))
    told = budget_of(statement.findings)
    assert told["over"] == statement.total - budget
    assert f"exceeded by {told['over']:,.2f}" in budget_in_words(told)


def test_every_budget_of_the_catalogue_is_tried():
    """A mechanism whose table has a budget, and whose kinds of contracts are not above, is missing here."""
    with_budgets = set()
    for name in catalogue.CATALOGUE:
        section = catalogue.entry(name).load().section
        if section is not None and any(
            "budget" in item.name or item.name == "cap" for item in fields(section)
        ):
            with_budgets.add(name)
    assert with_budgets == {name for name, _ in KINDS.values()}


def test_the_law_finds_a_budget_that_is_said_to_hold():
    statement, budget = overspent("prior")
    kind = {"kind": Kind.BUDGET, "unit": "money"}
    kept = Finding("budget", True, "60 of 60 on average", statement.total, allowed=budget, **kind)
    with pytest.raises(AssertionError):
        protocol.budget_is_told(replace(statement, findings=(kept,)), budget)
    with pytest.raises(ValueError, match="not enough values"):
        protocol.budget_is_told(replace(statement, findings=()), budget)


@pytest.mark.parametrize(
    ("promise", "spent", "verdict"),
    [
        (BudgetPromise(60.0), 6000, "holds"),
        (BudgetPromise(60.0), 6001, "FAILS"),
        (BudgetPromise(59.999), 6000, "FAILS"),
        (BudgetPromise(60.0, "the coins"), 6000, "holds"),
        (BudgetPromise(60.0, "the coins"), 6001, "exceeded"),
        (BudgetPromise(60.0, "the coins", 0.95), 6001, "exceeded"),
        (BudgetPromise(60.0, "the coins", expected=60.0), 6000, "holds"),
        (BudgetPromise(60.0, "the coins", expected=60.01), 100, "FAILS"),
        (BudgetPromise(60.0, "the coins", expected=60.01), 6001, "FAILS"),
    ],
)
def test_what_a_promise_makes_of_a_sum(promise, spent, verdict):
    found = promise.finding([spent - 100, 100])
    assert found.verdict == verdict
    assert (found.number, found.allowed, found.unit) == (spent / 100, promise.budget, "money")
    assert Finding.from_json(found.to_json()) == found
