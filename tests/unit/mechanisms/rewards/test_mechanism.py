"""Model rewards as a mechanism and as a run: phases, statements, cheats, failures, resumption, configs."""

import io
import itertools
import json
import multiprocessing
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from bonafed.economics.statement import Statement
from bonafed.errors import BadUpdate, InvalidValue
from bonafed.learning.data.datasets import from_arrays
from bonafed.learning.evaluate import evaluate_models
from bonafed.learning.federation import Failure
from bonafed.learning.sections import Partition
from bonafed.mechanisms.protocol import Attack
from bonafed.mechanisms.rewards import LocalRounds, ModelRewards, Standalone
from bonafed.mechanisms.rewards import run as run_method
from bonafed.mechanisms.rewards.cheat_search import search
from bonafed.mechanisms.rewards.cheats import CheatingFederation
from bonafed.mechanisms.rewards.mechanism import CLIENTS
from bonafed.mechanisms.rewards.slice import SLICE
from bonafed.runs import config, folder, listing
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train


def test_the_run_is_the_mechanism(ready, tmp_path):
    made = ready()
    result = train(made.setting, tmp_path / "run")
    said, judges, sizes = result.statement, made.judges, made.federation.members.sizes
    local = LocalRounds(made.setting.config.local.local_training(0.3), seed=3, decay=0.9)
    alone, _ = run_method(
        Standalone(sizes=sizes, seed=3, local=local), made.federation, made.start, rounds=6
    )
    judged = evaluate_models(judges.program, alone, judges.test)
    rules = ModelRewards(judged.accuracy, sizes=sizes, sharing=0.3, recovery=0.2, seed=3, local=local)
    models, state = run_method(rules, made.federation, made.start, rounds=6)
    found = evaluate_models(judges.program, models, judges.test)
    assert list(said.columns["standalone_accuracy"]) == judged.accuracy.tolist()
    assert list(said.columns["accuracy"]) == found.accuracy.tolist()
    assert list(said.columns["reward_rate"]) == state.average_rates.tolist()
    assert list(said.columns["no_worse_than_alone"]) == (found.accuracy >= judged.accuracy).tolist()
    assert said.facts["methods"]["rewards"]["ipr_accuracy"] == np.mean(said.columns["no_worse_than_alone"])
    with np.load(tmp_path / "run" / CLIENTS) as held:
        assert np.array_equal(held["rewards"], models)
    saved = torch.load(tmp_path / "run" / "model.pt")
    assert torch.equal(saved["1.bias"], torch.from_numpy(np.array(state.reference[-3:])))
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == result.summary
    assert result.summary["test_accuracy"] == pytest.approx(found.accuracy.mean())


def test_nobody_owes_money(ready):
    said = ready("training.rounds=1").settle()
    assert said.amounts == (0, 0, 0, 0)
    assert (said.unit, said.figure_column) == ("money", "accuracy")
    again = Statement.from_json(json.loads(json.dumps(said.to_json())))
    assert again.to_json() == said.to_json()
    assert "model rewards" in str(said)


def test_test_and_validation_share_no_sample(ready):
    judges = ready().judges
    assert (len(judges.test.labels), len(judges.validation.labels)) == (24, 6)
    both = torch.cat([judges.test.features, judges.validation.features])
    assert len(torch.unique(both, dim=0)) == 30


def test_the_run_is_judged_on_what_is_left_of_the_test_samples(ready):
    made = ready()
    assert made.setting.test is made.mechanism.test_samples() is made.judges.test


def test_every_baseline_stands_beside_it(ready, tmp_path):
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    made = ready("rewards.baselines=all", "model.name=own", module=module)
    said = train(made.setting, tmp_path / "run").statement
    assert list(said.facts["methods"]) == ["rewards", "fedavg-ft", "lg-fedavg", "cgsv", "rank"]
    assert list(said.totals) == [
        "alone", "model rewards", "FedAvg, fine-tuned", "LG-FedAvg", "CGSV", "Rank"
    ]  # fmt: skip
    lines = folder.read_rounds(tmp_path / "run")
    assert [line["round"] for line in lines] == list(range(1, 37))
    phases = ["standalone", "", "fedavg-ft", "lg-fedavg", "cgsv", "rank"]
    assert [line["phase"] for line in lines[::6]] == phases
    assert lines[5]["learning_rate"] == pytest.approx(0.3 * 0.9**5)
    looked = [line["round"] for line in lines if line["test_accuracy"] is not None]
    assert looked == list(range(3, 37, 3))


def test_lg_fedavg_shares_the_last_three_layers_as_in_the_paper(ready):
    def shared(*widths):
        layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
        made = ready('rewards.baselines=["lg-fedavg"]', "model.name=own", module=nn.Sequential(*layers))
        own = made.mechanism.method("lg-fedavg", None).shared
        return own.stop - own.start, sum(p.numel() for layer in layers[-3:] for p in layer.parameters())

    found, three = shared(6, 9, 8, 7, 3)
    assert found == three == 9 * 8 + 8 + 8 * 7 + 7 + 7 * 3 + 3
    assert shared(6, 8, 7, 3)[0] == 8 * 7 + 7 + 7 * 3 + 3  # a client keeps one layer for itself
    assert shared(6, 7, 3)[0] == 7 * 3 + 3


def test_layers_that_do_not_train_do_not_count_for_lg_fedavg(ready):
    module = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    made = ready('rewards.baselines=["lg-fedavg"]', "model.name=own", module=module)
    shared = made.mechanism.method("lg-fedavg", None).shared
    assert (shared.start, shared.stop) == (5 * 4 + 4, 5 * 4 + 4 + 4 * 3 + 3)


@pytest.mark.parametrize(
    "measure",
    [
        "data size", "participation", "presence", "cosine", "leave one out", "shapley", "completed shapley",
    ],
)  # fmt: skip
def test_contributions_may_be_measured_while_training(ready, measure):
    said = ready(f"rewards.measure={measure}", "rewards.presence=0.5").settle()
    contributions = np.array(said.columns["contribution"])
    assert (contributions >= 0).all()
    assert contributions.max() > 0
    assert said.facts["measure"] == measure


def test_presence_is_the_rate_that_was_agreed_on(ready):
    """p_i = (1 + i/N)/2 of section 6.3, whoever happened to be there."""
    said = ready("rewards.measure=presence", "rewards.presence=0.5").settle()
    n = len(said.clients)
    assert said.columns["contribution"] == pytest.approx([0.5 * (1 + i / n) for i in range(1, n + 1)])
    always = ready("rewards.measure=presence").settle()
    assert set(always.columns["contribution"]) == {1.0}


def by_claim(said):
    return {finding.claim: finding for finding in said.findings}


def test_a_cheat_is_reported_beside_the_honest_federation(ready):
    said = ready('rewards.agents=["1 free-ride"]', "rewards.measure=cosine", "training.rounds=12").settle()
    (row,) = said.facts["cheats"]
    assert (row["client"], row["cheat"], row["seen"]) == ("1", "free-ride", True)
    assert row["reward_rate"] < row["honest_reward_rate"]
    assert by_claim(said)["cheats are seen"].holds
    assert by_claim(said)["no cheat pays"].number == row["gain"]
    honest = ready("rewards.measure=cosine", "training.rounds=12").settle()
    assert row["honest_accuracy"] == honest.columns["accuracy"][1]
    assert row["honest_reward_rate"] == honest.columns["reward_rate"][1]
    assert "no cheat pays" not in by_claim(honest)
    fixed = ready('rewards.agents=["1 copy 0", "2 noise 1", "3 amplify 2"]').settle()
    assert [cheat["seen"] for cheat in fixed.facts["cheats"]] == [False] * 3  # given before training
    assert [cheat["client"] for cheat in fixed.facts["cheats"]] == ["1", "2", "3"]
    assert by_claim(fixed)["cheats are seen"].holds is None


def test_findings_say_for_whom_joining_does_not_pay(ready):
    said = ready('rewards.agents=["1 noise 1", "2 copy 0"]', "rewards.measure=cosine",
                 "rewards.presence=0.3").settle()  # fmt: skip
    finding = by_claim(said)["no worse than alone"]
    assert finding.holds is False
    assert finding.number == finding.witness.gain == pytest.approx(1 / 12)
    assert "client 2: 91.67%, alone 100.00%" in finding.text
    assert said.columns["no_worse_than_alone"][2] is False


def test_notes_say_what_to_know(ready):
    assert any("drifts" in note for note in ready("rewards.recovery=0", "training.rounds=1").settle().notes)
    assert ready("rewards.measure=data size", "training.rounds=1").settle().notes == ()


@pytest.mark.parametrize("moment", [1, 5, 6, 9, 12, 23, 24])
def test_a_run_resumed_ends_with_the_same_bits(ready, tmp_path, kill_in, ending, moment):
    setting = ready(
        'rewards.baselines=["cgsv"]', 'rewards.agents=["1 noise 1"]', "rewards.measure=cosine"
    ).setting
    train(setting, tmp_path / "whole")
    with pytest.raises(kill_in.error):
        train(setting, tmp_path / "killed", on_round=kill_in(moment))
    train(setting, tmp_path / "killed", resume=True)
    assert ending(tmp_path / "killed") == ending(tmp_path / "whole")
    with np.load(tmp_path / "killed" / CLIENTS) as one, np.load(tmp_path / "whole" / CLIENTS) as other:
        assert np.array_equal(one["rewards"], other["rewards"])


@pytest.mark.parametrize("moment", [0, 3, 6, 7, 12, 13, 24, 30])
def test_a_state_survives_as_arrays(ready, moment):
    made = ready(
        'rewards.baselines=["cgsv", "fedavg-ft"]', 'rewards.agents=["1 copy 0"]', "rewards.measure=shapley"
    )
    state, _ = made.train(until=moment)
    file = io.BytesIO()
    np.savez(file, **state.arrays())
    file.seek(0)
    with np.load(file) as arrays:
        again = made.mechanism.restore(made.setting.agreement, dict(arrays))
    assert again.round_number == state.round_number == moment
    assert list(again.results) == list(state.results)
    before, after = state.arrays(), again.arrays()
    assert list(before) == list(after)
    assert all(np.array_equal(before[name], after[name], equal_nan=True) for name in before)
    assert all(before[name].dtype == after[name].dtype for name in before)


def test_an_own_module_with_other_weights_is_resumed_with_those_it_began_with(
    ready, tmp_path, kill_in, ending
):
    def setting(seed):
        torch.manual_seed(seed)
        own = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
        return ready('rewards.baselines=["cgsv"]', module=own).setting

    train(setting(1), tmp_path / "whole")
    for moment in (1, 9):
        place = tmp_path / f"cut{moment}"
        with pytest.raises(kill_in.error):
            train(setting(1), place, on_round=kill_in(moment))
        train(setting(2), place, resume=True)
        assert ending(place) == ending(tmp_path / "whole")


def test_nothing_is_earned_in_a_round_in_which_nobody_helped(make, small):
    """Clients with the same data: leaving one out changes nothing."""
    features, labels = np.tile(small.features[:20], (2, 1)), np.tile(small.labels[:20], 2)
    twins = from_arrays(
        "twins", features, labels, test_features=small.test_features, test_labels=small.test_labels,
        groups=np.repeat([0, 1], 20),
    )  # fmt: skip
    asked = make("rewards.measure=leave one out", "training.batch_size=20")
    said = train(prepare(replace(asked, partition=Partition("natural", 2)), dataset=twins)).statement
    assert list(said.columns["contribution"]) == [0.0, 0.0]
    assert list(said.columns["reward_rate"]) == [0.0, 0.0]


def test_a_cheat_fine_tunes_at_home_like_everybody(ready):
    """One round, one cheat that uploads nothing: its own last training is the honest one all the same."""
    made = ready('rewards.baselines=["fedavg-ft"]', "training.rounds=1", 'rewards.agents=["1 free-ride"]')
    end, _ = made.train()
    state = end.inside  # fine-tuning comes with the settlement
    rules = made.mechanism.method("fedavg-ft", None)
    tuned = rules.finish(state, made.federation)
    scores = made.mechanism.settle(end, made.federation).facts["methods"]["fedavg-ft"]
    expected = evaluate_models(made.judges.program, tuned, made.judges.test)
    assert scores["average"] == pytest.approx(expected.accuracy.mean())
    untuned = evaluate_models(made.judges.program, state.models, made.judges.test)
    assert expected.loss[1] != pytest.approx(untuned.loss[1])
    local = made.mechanism.method("standalone", None)
    own = local.advance(
        replace(local.begin(made.start), models=state.models, round_number=1), made.federation
    )
    assert tuned == pytest.approx(own[0].models)


def test_lines_tell_who_was_there_in_baselines_too(ready):
    _, said = ready('rewards.baselines=["fedavg-ft"]', "rewards.presence=0.3").train()
    there = {name: [r.participants for r in said if r.phase == name] for name in ("", "fedavg-ft")}
    assert there[""] == there["fedavg-ft"]
    assert any(len(who) < 4 for who in there[""])
    assert all((one.steps > 0) == bool(one.participants) for one in said)
    assert [k for k, one in enumerate(said, 1) if one.ends_phase] == [6, 12, 18]


class Silent(CheatingFederation):
    """A federation in which client 2 does not answer in round 3 of any phase."""

    def replies(self, tasks):
        answers = dict(self.inner.replies(tasks))
        late = [t for t in tasks if t.client == "2" and t.work.round_number == 3]
        return {**answers, **{task.identifier: Failure("must be an update, got silence") for task in late}}


def test_who_fails_ends_the_run_or_is_absent_by_policy(ready):
    for policy in ("raise", "skip"):
        made = ready(f"training.on_bad_update={policy}")
        made = replace(made, setting=replace(made.setting, clients=Silent(made.federation, {})))
        if policy == "raise":
            with pytest.raises(BadUpdate, match="update of client 2 in round 3 must be an update, got sil"):
                made.train()
            continue
        state, said = made.train()
        assert [one.failed for one in said if one.failed] == [["2"], ["2"]]  # alone, and together
        assert said[2].participants == ["0", "1", "2", "3"]
        assert state.inside.present[2].tolist() == [True, True, False, True]
        assert made.mechanism.settle(state, made.federation).clients == ("0", "1", "2", "3")


def test_rates_of_presence_do_not_exceed_one(make, small):
    asked = replace(make("rewards.presence=0.1"), partition=Partition("iid", 13))
    assert prepare(asked, dataset=small).mechanism.presence[-1] == 1.0


def test_cores_change_no_digit(ready):
    def ran(cores):
        made = ready(f"run.cores={cores}", "model.name=softmax", 'rewards.baselines=["rank"]')
        return train(made.setting).statement.to_json()

    assert ran(1) == ran(2)
    assert not multiprocessing.active_children()  # the crew went home


def test_the_state_is_settled_at_its_end_only(ready):
    made = ready()
    state, _ = made.train(until=7)
    with pytest.raises(InvalidValue, match="state must have all 12 rounds, got 7"):
        made.mechanism.settle(state, made.federation)
    state, _ = made.train(state)
    with pytest.raises(InvalidValue, match="state must have fewer than 12 rounds, got 12"):
        made.mechanism.advance(state, made.federation)


def test_an_audit_of_a_run_tries_every_known_cheat(ready):
    made = ready("rewards.measure=cosine")
    setting = made.setting
    attack = Attack(setting.config, setting.agreement, made.federation, made.mechanism, setting.start)
    finding, seen = SLICE.audit(attack)
    assert (seen.claim, seen.tries) == ("cheats are seen", finding.tries)
    assert (finding.claim, finding.tries) == ("no cheat pays", 6)
    assert finding.holds is (finding.number <= 0)
    slow, _ = SLICE.audit(replace(attack, quick=False))
    assert slow.tries == 18
    assert slow.number >= finding.number
    (nobody,) = SLICE.audit(replace(attack, mechanism=None))
    assert nobody.holds is None


@pytest.mark.parametrize("measure", ["standalone", "validation", "cosine", "leave one out"])
def test_an_audit_begins_with_the_run_itself(ready, measure):
    """What it says about honesty is in the statement: same rounds, measure and test samples."""
    made = ready(f"rewards.measure={measure}", "training.rounds=12")
    statement = train(made.setting).statement
    outcomes = search(made.mechanism, made.federation, made.setting.start, cheaters=4)
    assert {one.client for one in outcomes} == set(statement.clients)
    for one in outcomes:
        row = statement.row(one.client)
        assert (one.honest_accuracy, one.standalone_accuracy) == (
            row["accuracy"],
            row["standalone_accuracy"],
        )


def test_reward_runs_are_listed_beside_others(ready, tmp_path):
    train(ready().setting, tmp_path / "run")
    seen = listing.overview(tmp_path / "run")
    assert seen["finished"]
    assert (seen["mechanism"], seen["rounds"], seen["planned_rounds"]) == ("rewards", 6, 6)
    assert seen["curves"]["round"] == [1, 2, 3, 4, 5, 6]


def test_a_config_survives_its_own_text(make):
    asked = make('rewards.agents=["1 copy 0"]', "rewards.baselines=all", "rewards.ceiling=0.9")
    assert config.from_tables(config.to_tables(asked)) == asked


BAD = [
    ("rewards.shapley_orders=5", r"rewards\.shapley_orders must be even, got 5"),
    ("rewards.sharing=1.5", r"rewards\.sharing must be between 0 and 1, got 1.5"),
    ("rewards.recovery=-0.1", r"rewards\.recovery must be between 0 and 1"),
    ("rewards.ceiling=0", r"rewards\.ceiling must be positive, got 0"),
    ("rewards.measure=luck", r"rewards\.measure must be"),
    ("rewards.presence=0", r"rewards\.presence must be positive"),
    ("rewards.baselines=rank", r"rewards\.baselines must be a list such as"),
    ('rewards.baselines=["best"]', r"rewards\.baselines must be"),
    ("rewards.agents=3", r"rewards\.agents must be a list such as"),
    ('rewards.agents=["3 bribe"]', r"rewards\.agents must look like '3 free-ride'; known kinds:"),
    ('rewards.agents=["² free-ride"]', r"rewards\.agents must look like '3 free-ride'; known kinds:"),
    ('rewards.agents=["3 noise"]', r"rewards\.agents must have one argument after noise"),
    ('rewards.agents=["3 noise x"]', r"rewards\.agents must have a number after noise"),
    ('rewards.agents=["3 free-ride", "3 copy 1"]', r"rewards\.agents must name 3 once"),
    ("training.participation=0.5", r"training\.participation must not be given with rewards: rew"),
    ("jsam.eta=1", r"rewards must not be given with jsam"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD, ids=[change for change, _ in BAD])
def test_bad_configs_are_refused(make, change, message):
    with pytest.raises(InvalidValue, match=message):
        make(change)


REFUSED = [
    (['rewards.agents=["4 free-ride"]'], r"rewards\.agents must be clients 0\.\.3"),
    (['rewards.agents=["1 copy 7"]'], r"rewards\.agents must be clients 0\.\.3"),
    (["rewards.baselines=all"], r"rewards\.baselines must not have lg-fedavg, which needs"),
    (["partition.clients=1"], r"partition\.clients must be at least 2 for rewards"),
    (
        ["rewards.validation=0.001"],
        r"rewards\.validation must leave both test and validation samples of the 30",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[" ".join(changes) for changes, _ in REFUSED])
def test_what_cannot_be_run_is_refused_before_it_begins(make, small, changes, message):
    with pytest.raises(InvalidValue, match=message):
        prepare(make(*changes), dataset=small)


def test_rates_of_a_theorem_are_refused(make):
    with pytest.raises(InvalidValue, match=r"training\.learning_rate must be a number with rewards"):
        make("training.learning_rate=proposition-1", "training.learning_rate_decay=1.0")


def test_regression_is_refused(make):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((60, 3)).astype(np.float32), rng.standard_normal(60).astype(np.float32)
    data = from_arrays("line", x[:40], y[:40], test_features=x[40:], test_labels=y[40:])
    with pytest.raises(InvalidValue, match=r"data\.name must name data with classes"):
        prepare(make(), dataset=data)
