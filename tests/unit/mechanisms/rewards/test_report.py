"""What the commands of model rewards say: the audit by cheats, and advice on rules and parameters."""

import json

import numpy as np
import pytest

from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.advice import predict, recommend
from bonafed.mechanisms.rewards.game import game, with_ceiling
from bonafed.mechanisms.rewards.report import ParameterOptions, RewardsAuditOptions, RuleOptions
from bonafed.mechanisms.rewards.slice import SLICE

COSTS = (0.1, 0.2, 0.5)
RULE, PARAMETERS = SLICE.advice["reward-rule"], SLICE.advice["reward-parameters"]


def test_the_audit_shows_that_a_cheat_pays_where_data_differ():
    said = SLICE.attack.answer(RewardsAuditOptions(classes=3))
    assert not said.holds
    rows = {row["cheat"].split()[0]: row for row in said.data["cheats"] if row["cheat"] != "amplify 3"}
    assert set(rows) == {"free-ride", "noise", "amplify", "stale", "copy"}
    assert rows["free-ride"]["seen"]
    best = max(said.data["cheats"], key=lambda row: row["gain"])
    assert said.data["findings"][0]["witness"]["gain"] == best["gain"] > 0
    assert best["cheat"] in str(said)
    json.dumps(said.data)


def test_the_audit_finds_nothing_where_data_are_alike():
    said = SLICE.attack.answer(RewardsAuditOptions())
    pays, seen = said.data["findings"]
    assert pays["holds"]
    assert not seen["holds"]  # and a claim that fails is not passed over
    assert not said.holds
    figure = said.figure()
    left, right = figure.axes
    heights = [bar.get_height() for bar in left.containers[1]]
    assert heights == [row["accuracy"] for row in said.data["cheats"]]
    assert [bar.get_height() for bar in right.containers[0]] == [
        row["honest_reward_rate"] for row in said.data["cheats"]
    ]


def test_contributions_fixed_before_training_see_nothing():
    said = SLICE.attack.answer(RewardsAuditOptions(measure="data size", rounds=3, clients=4, cheaters=2))
    assert not any(row["seen"] for row in said.data["cheats"])
    assert said.data["findings"][1]["holds"] is None
    assert said.holds is (said.data["findings"][0]["holds"] is True)  # what is not claimed does not fail
    assert len({row["client"] for row in said.data["cheats"]}) == 2


def test_the_audit_is_the_same_again():
    options = RewardsAuditOptions(rounds=2, clients=4, seed=5)
    assert SLICE.attack.answer(options).data == SLICE.attack.answer(options).data


def test_a_rule_is_told_by_its_worst_equilibrium():
    said = RULE.answer(RuleOptions(costs=COSTS, ceiling=2.0, sharing=0.0))
    worst = predict(game(COSTS), with_ceiling(2.0, 0.0)).equilibria[0]
    assert said.data["equilibria"][0]["contributions"] == worst.contributions.tolist()
    sentence, clients, totals = said.blocks
    assert sentence == (
        "Under the rule 'ceiling 2' 3 of 3 clients contribute, 3.333 in all, 45% more than under federated "
        "averaging, and 3 of 3 are at least as well off as alone."
    )
    assert [row[2] for row in clients.rows] == worst.contributions.tolist()
    assert [row[-1] for row in clients.rows] == [True] * 3
    assert totals.rows[-1][1] == pytest.approx(said.data["optimum"]["total"])
    json.dumps(said.data)


def test_a_rule_with_several_equilibria_says_so():
    said = RULE.answer(RuleOptions(costs=(0.2,) * 4, sharing=0.0))
    assert len(said.data["equilibria"]) > 1
    assert "nobody chooses among them: this is the worst" in said.blocks[0]
    assert len(said.figure().axes) == 3


def test_parameters_are_those_of_the_search():
    said = PARAMETERS.answer(ParameterOptions(costs=COSTS, goal="received"))
    told = recommend(game(COSTS), "received")
    assert said.data["rule"] == {"ceiling": told.rule.ceiling, "sharing": told.rule.sharing}
    assert f"ceiling = {told.rule.ceiling:.4g} and sharing = {told.rule.sharing:.4g}" in said.blocks[0]
    assert said.blocks[1].rows[0][1] == told.reached.worst
    assert np.shape(said.data["worst"]) == told.worst.shape
    assert said.figure().axes
    json.dumps(said.data)


def test_where_sharing_everything_is_best_no_ceiling_is_named():
    said = PARAMETERS.answer(ParameterOptions(costs=COSTS, goal="welfare"))
    assert said.data["rule"]["sharing"] == 1
    assert said.blocks[0].startswith("Take sharing = 1, where everybody gets everything")


def test_no_rule_is_recommended_that_is_no_better_than_sharing_everything():
    said = PARAMETERS.answer(ParameterOptions(costs=(0.1, 0.3)))
    assert said.data["reached"]["worst"] == pytest.approx(said.data["standard"]["worst"])
    assert said.blocks[0].startswith("Take sharing = 1, where everybody gets everything")


def test_a_total_that_grows_with_the_ceiling_is_warned_of():
    said = PARAMETERS.answer(ParameterOptions(costs=(0.1, 0.2), goal="total"))
    assert said.data["at_edge"] == ("edge" in str(said))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RuleOptions(costs=(0.1,)), "costs must list at least two clients, got 1"),
        (lambda: RuleOptions(costs=(0.1, -1)), r"costs must be positive, got -1 at position 1"),
        (lambda: RuleOptions(costs=COSTS, worth="gold"), "worth must be one of exp, frac, log, got 'gold'"),
        (lambda: RuleOptions(costs=COSTS, sharing=2), "sharing must be between 0 and 1"),
        (lambda: ParameterOptions(costs=COSTS, goal="fame"), "goal must be one of"),
        (lambda: RewardsAuditOptions(clients=1), "clients must be a whole number of at least 2, got 1"),
        (lambda: RewardsAuditOptions(classes=11), "classes must not exceed 10, got 11"),
        (lambda: RewardsAuditOptions(measure="luck"), "measure must be one of"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(InvalidValue, match=message):
        make()


def test_every_method_has_its_facts(ready):
    said = ready('rewards.baselines=["rank"]', "training.rounds=2").settle()
    methods = said.facts["methods"]
    assert list(methods) == ["rewards", "rank"]
    assert methods["rewards"]["average"] == said.facts["test_accuracy"]


def test_advice_on_parameters_is_plain_data():
    """A bool of NumPy stood among it, which JSON does not know."""
    data = PARAMETERS.answer(ParameterOptions(costs=(0.1, 0.3), goal="welfare")).data
    assert json.loads(json.dumps(data))["at_edge"] in (True, False)
