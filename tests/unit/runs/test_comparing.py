"""One federation under every mechanism that applies."""

import pytest

from bonafed import InvalidValue, compare
from bonafed.mechanisms.catalogue import CATALOGUE
from bonafed.runs.comparing import Compare
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
    comparison = compare({**FEDERATION, "faithful": few, "compare": MONEY})
    entrant = comparison["faithful"]
    (promise,) = [f for f in entrant.result.statement.findings if f.claim == entrant.lie.claim]
    assert promise.holds is entrant.lie.holds is False
    assert entrant.gain == entrant.lie.number > entrant.lie.allowed
    assert "faithful: VIOLATED, agent 0 gains" in str(comparison)


def test_only_who_pays_has_spent_and_only_who_promises_has_an_epsilon(comparison):
    spent = {entrant.mechanism for entrant in comparison.entrants if entrant.row()["money"] is not None}
    private = {e.mechanism for e in comparison.entrants if e.row()["epsilon"] is not None}
    assert spent == {"sampling", "jsam"}
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
    shown = compare({**FEDERATION, "contract": own, "compare": {**MONEY, "mechanisms": ["sampling"]}})
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
