"""One federation under every mechanism that applies."""

import json

import pytest
from tests.laws import worlds

from bonafed import InvalidValue, compare
from bonafed.economics.findings import Finding, Kind
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.catalogue import CATALOGUE
from bonafed.runs import compare as compare_module
from bonafed.runs import training
from bonafed.runs.compare import Compare, Entrant, comparison_document
from bonafed.runs.pages import comparison_page
from bonafed.runs.summary import run_document
from bonafed.sections import section_from

FEDERATION = {
    "data": {"name": "digits"},
    "partition": {"kind": "label_dirichlet", "clients": 5, "beta": 0.5},
    "model": {"name": "softmax"},
    "training": {"rounds": 4, "learning_rate": 0.5, "steps": 3},
    "run": {"cores": 1},
}
MONEY = {
    "budget": 20.0, "costs": "uniform:0.5,1.5", "sensitivities": "uniform:0,1", "max_epsilon": 5.0,
    "clip": 1.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def comparison():
    return compare({**FEDERATION, "compare": MONEY})


def test_every_mechanism_is_in_it(comparison):
    assert {entrant.mechanism for entrant in comparison.entrants} == set(CATALOGUE)
    assert not [entrant.reason for entrant in comparison.entrants if entrant.reason]


def test_only_money_is_a_payment_and_draws_are_not_participants(comparison):
    shown = {e.mechanism: str(run_document(e.result.summary, (), None)) for e in comparison.entrants}
    assert "with their payments" in shown["faithful"]
    assert "no worse than alone" in shown["rewards"]
    assert "with their payments" not in shown["rewards"]
    assert "draws per round" in shown["jsam"]
    assert "draws per round" not in shown["sampling"]
    for entrant in comparison.entrants:
        assert entrant.result.summary["mean_participants"] <= 5


def test_all_are_judged_on_the_same_clients_and_within_the_same_steps(comparison):
    most = 4 * 3 * 5
    for entrant in comparison.entrants:
        assert entrant.result.statement.clients == tuple("01234")
        assert 0 < entrant.row()["steps"] <= most
        assert 0 <= entrant.row()["accuracy"] <= 1


def test_lies_are_looked_for_under_all_of_them(comparison):
    gains = {entrant.mechanism: entrant.row()["lie gains"] for entrant in comparison.entrants}
    assert gains["fedavg"] > 0  # whoever overstates its update pulls the model towards its data
    assert gains["sampling"] == gains["jsam"] == 0
    assert "fedavg: VIOLATED, client" in str(comparison)


def test_the_lie_that_is_shown_agrees_with_the_statement_of_the_run(comparison):
    """Twelve plain steps are too few for faithful learning: a lie pays, and nobody may say otherwise."""
    entrant = comparison["faithful"]
    (promise,) = [f for f in entrant.result.statement.findings if f.claim == entrant.lie.claim]
    assert promise.holds is entrant.lie.holds is True
    assert entrant.gain <= entrant.lie.allowed
    few = {"regulariser": 0.003, "variant": "stepwise", "training_steps": 12}
    comparison = compare({**FEDERATION, "faithful": few, "compare": {**MONEY, "mechanisms": ["faithful"]}})
    entrant = comparison["faithful"]
    (promise,) = [f for f in entrant.result.statement.findings if f.claim == entrant.lie.claim]
    assert promise.holds is entrant.lie.holds is False
    assert entrant.gain == entrant.lie.number > entrant.lie.allowed
    assert "faithful: VIOLATED, agent 0 gains" in str(comparison)


def test_only_who_pays_has_spent_and_only_who_promises_has_an_epsilon(comparison):
    spent = {entrant.mechanism for entrant in comparison.entrants if entrant.row()["money"] is not None}
    private = {e.mechanism for e in comparison.entrants if e.row()["epsilon"] is not None}
    assert spent == {"sampling", "posted-price", "jsam"}
    assert private == {"jsam"}
    assert comparison["jsam"].row()["epsilon"] <= 5


def test_an_unknown_mechanism_is_refused_by_the_name_of_its_key():
    with pytest.raises(InvalidValue, match=r"^compare\.mechanisms must be one of .*, got 'unheard'$"):
        compare({**FEDERATION, "compare": {"mechanisms": ["unheard"]}})


def test_who_does_not_apply_says_why():
    shown = compare({**FEDERATION, "compare": {"mechanisms": ["fedavg", "sampling", "jsam"]}})
    assert shown["sampling"].reason == "needs a budget and a prior of the cost of taking part"
    assert "jsam does not apply: needs a budget" in str(shown)
    assert shown.to_json()["mechanisms"][1]["applies"] is False


def test_the_servers_optimizer_is_given_to_all_who_can_have_it():
    training = {**FEDERATION["training"], "server_optimizer": "momentum", "server_momentum": 0.5}
    asked = {**MONEY, "mechanisms": ["fedavg", "sampling", "jsam"]}
    found = compare({**FEDERATION, "training": training, "compare": asked})
    assert found["jsam"].reason == "needs plain steps: training.server_optimizer must be sgd"
    for name in ("fedavg", "sampling"):
        assert found[name].result is not None
    remembers = [note for note in found["sampling"].result.summary["notes"] if "remembers" in note]
    assert remembers == [
        "the server remembers the last update of 5 of 5 clients, 650 numbers each, 0.013 MB"
    ]


def test_nobody_applying_is_refused():
    with pytest.raises(InvalidValue, match="compare must have a mechanism that applies"):
        compare({**FEDERATION, "compare": {"mechanisms": ["sampling"]}})


def test_a_table_of_the_file_goes_before_what_is_common():
    own = {"prior": "uniform:0.5,1.5", "total_budget": 12.0, "scheme": "uniform"}
    shown = compare({**FEDERATION, "sampling": own, "compare": {**MONEY, "mechanisms": ["sampling"]}})
    assert shown["sampling"].result.statement.totals["budget"] == 12.0


def test_it_is_drawn_and_kept(tmp_path):
    folder = tmp_path / "kept"
    tables = {**FEDERATION, "compare": {"mechanisms": ["fedavg"]}}
    first = compare(tables, folder=folder)
    assert (folder / "fedavg" / "summary.json").is_file()
    again = compare(tables, folder=folder)
    assert again["fedavg"].result.summary == first["fedavg"].result.summary
    first.plot(tmp_path / "compare.png")
    assert (tmp_path / "compare.png").stat().st_size > 1000


def test_unknown_mechanisms_and_keys_are_refused():
    with pytest.raises(InvalidValue, match="must be one of fedavg"):
        compare({**FEDERATION, "compare": {"mechanisms": ["barter"]}})
    with pytest.raises(InvalidValue, match=r"compare.buget is unknown .did you mean budget"):
        compare({**FEDERATION, "compare": {"buget": 3}})


def test_mechanisms_are_names():
    with pytest.raises(InvalidValue, match=r"mechanisms must be a list of texts such as .*, got \{\}"):
        section_from(Compare, "compare", {"mechanisms": ["fedavg", {}]})


def failing(monkeypatch, name, where="train"):
    """One mechanism fails in the middle, with an error that nobody foresaw."""
    place = training if where == "train" else compare_module
    whole = getattr(place, where)

    def some(*arguments, **options):
        about = arguments[1] if where == "_audited" else arguments[0]
        if about.config.mechanism == name:
            raise ValueError("cannot reshape array of size 0")
        return whole(*arguments, **options)

    monkeypatch.setattr(place, where, some)


def test_a_mechanism_that_fails_leaves_the_others_their_results(monkeypatch):
    failing(monkeypatch, "sampling")
    found = compare({**FEDERATION, "compare": {**MONEY, "mechanisms": ["fedavg", "sampling", "jsam"]}})
    assert found["fedavg"].result is not None
    assert found["jsam"].result is not None
    assert found["sampling"].result is None
    assert not found.complete
    document = found.document()
    assert not document.holds
    reason = "ValueError: cannot reshape array of size 0"
    what = 'compare with mechanisms = ["sampling"] to see the whole error'
    table, problems = document.blocks[:2]
    assert [row[:2] for row in table.rows][1] == ("sampling", "FAILED")
    assert problems.rows == (("sampling", "training", reason, what),)
    (plain,) = [row for row in document.data["mechanisms"] if row["mechanism"] == "sampling"]
    assert plain["failed"] == {"doing": "training", "reason": reason, "advice": what}
    assert plain["applies"] is True
    drawn = [text.get_text() for text in document.figure().axes[0].texts]
    assert drawn[1] == "FAILED"
    page = comparison_page(found).to_html().decode()
    assert '<span class="badge bad">FAILS</span>: sampling failed' in page
    assert reason in page
    again = comparison_document(json.loads(json.dumps(document.data)))
    assert str(again) == str(document)
    assert not again.holds


def test_a_search_that_fails_leaves_the_run_its_result(monkeypatch):
    failing(monkeypatch, "fedavg", "_audited")
    found = compare({**FEDERATION, "compare": {**MONEY, "mechanisms": ["fedavg", "sampling"]}})
    assert found["fedavg"].result is not None
    assert found["fedavg"].row()["accuracy"] is not None
    assert found["fedavg"].gain is None
    assert found["fedavg"].failed.doing == "looking for a profitable lie"
    assert not found.document().holds
    assert found["sampling"].failed is None


def test_alone_a_mechanism_fails_with_its_own_error(monkeypatch):
    failing(monkeypatch, "fedavg")
    with pytest.raises(ValueError, match="cannot reshape"):
        compare({**FEDERATION, "compare": {"mechanisms": ["fedavg", "sampling"]}})  # that does not apply


def test_what_is_refused_says_what_to_change():
    own = {"total_budget": 12.0, "scheme": "published"}
    tables = {**FEDERATION, "sampling": own, "compare": {"mechanisms": ["fedavg", "sampling"]}}
    found = compare(tables)
    assert found["sampling"].failed.advice == "change that in the config and compare again"
    assert found["fedavg"].result is not None


def test_only_lies_are_lies_and_the_best_one_is_shown():
    kinds = [
        Finding("budget", False, "ten times the budget", 5.0, kind=Kind.BUDGET, unit="money"),
        Finding("truthful", True, "certified", 3.0, allowed=4.0, kind=Kind.LIE, unit="loss"),
        Finding("coalitions", False, "VIOLATED", 0.1, kind=Kind.LIE, unit="loss"),
        Finding("joining", False, "VIOLATED", 9.0, kind=Kind.PARTICIPATION, unit="loss"),
    ]
    for turn in range(len(kinds)):
        entrant = Entrant("one", audited=(*kinds[turn:], *kinds[:turn]))
        assert (entrant.lie.claim, entrant.gain) == ("coalitions", 0.1)
    assert Entrant("none", audited=(kinds[0], kinds[3])).lie is None
    assert Entrant("none", audited=(kinds[0], kinds[3])).gain is None


def test_a_price_lottery_that_spends_ten_times_its_budget_has_no_lie(monkeypatch):
    """What is spent too much is said for what it is, in the statement and in the audit."""
    with worlds.registered():
        offer = catalogue.entry("price-lottery").load().section
        monkeypatch.setattr(offer, "places", lambda self, rounds: 3)
        own = {"price": 0.9, "budget": 1.2, "prior": "uniform:0.5,1.5"}
        tables = {
            **FEDERATION,
            "price_lottery": own,
            "compare": {"mechanisms": ["fedavg", "price-lottery"]},
        }
        found = compare(tables)
    entrant = found["price-lottery"]
    assert (entrant.lie.claim, entrant.gain, entrant.lie.unit) == ("truthful", 0.0, "money per round")
    spent, searched = entrant.broken
    assert spent.startswith("budget FAILS, ")
    assert "spent of 1.20" in spent
    assert "too much; promised in every run" in spent
    assert searched.startswith("audit: within budget FAILS, VIOLATED, ")
    assert "is spent per round, the budget is 0.3" in searched
    assert entrant.promises == "1 of 2"
