"""Runs of model rewards: configs, what is said of clients and methods, cheats, resumption."""

import itertools
import json
import multiprocessing
from dataclasses import replace

import numpy as np
import pytest
import torch
from bonafed.runs.rewards import CLIENTS, train_rewards
from bonafed.runs.rewards_setting import prepare_rewards
from bonafed.runs.sections import Partition
from torch import nn

from bonafed.errors import InvalidValue
from bonafed.learning.datasets import from_arrays
from bonafed.learning.evaluate import evaluate_models
from bonafed.mechanisms.rewards import ModelRewards, Standalone
from bonafed.mechanisms.rewards import run as run_method
from bonafed.runs import config, folder, listing

TABLES = {
    "data": {"name": "small"},
    "partition": {"kind": "quantity_dirichlet", "clients": 4, "beta": 0.5, "minimum": 5},
    "model": {"name": "softmax"},
    "training": {"rounds": 6, "learning_rate": 0.3, "batch_size": 8, "learning_rate_decay": 0.9},
    "rewards": {"sharing": 0.3, "recovery": 0.2},
    "run": {"cores": 1, "seed": 3, "checkpoint_every": 2, "evaluate_every": 3},
}


@pytest.fixture
def run(make, small, tmp_path):
    def ran(*changes, **options):
        setting = prepare_rewards(make(*changes), dataset=small)
        return train_rewards(setting, tmp_path / f"run{len(list(tmp_path.iterdir()))}", **options)

    return ran


def test_the_run_is_the_mechanism(make, small, tmp_path):
    setting = prepare_rewards(make(), dataset=small)
    said = train_rewards(setting, str(tmp_path / "run"))  # or a Path
    alone, _ = run_method(Standalone(sizes=setting.sizes, seed=3), setting.local, setting.start, rounds=6)
    judged = evaluate_models(setting.program, alone, setting.test)
    rules = ModelRewards(judged.accuracy, sizes=setting.sizes, sharing=0.3, recovery=0.2, seed=3)
    models, state = run_method(rules, setting.local, setting.start, rounds=6)
    found = evaluate_models(setting.program, models, setting.test)
    rows = said["per_client"]
    assert [row["standalone_accuracy"] for row in rows] == judged.accuracy.tolist()
    assert [row["accuracy"] for row in rows] == found.accuracy.tolist()
    assert [row["reward_rate"] for row in rows] == state.average_rates.tolist()
    assert [row["joining_pays"] for row in rows] == (found.accuracy >= judged.accuracy).tolist()
    assert said["methods"]["rewards"]["ipr_accuracy"] == np.mean([row["joining_pays"] for row in rows])
    with np.load(tmp_path / "run" / CLIENTS) as held:
        assert np.array_equal(held["rewards"], models)
    saved = torch.load(tmp_path / "run" / "model.pt")
    assert torch.equal(saved["1.bias"], torch.from_numpy(np.array(state.reference[-3:])))
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == said


def test_test_and_validation_share_no_sample(make, small):
    setting = prepare_rewards(make(), dataset=small)
    assert (len(setting.test.labels), len(setting.validation.labels)) == (24, 6)
    both = torch.cat([setting.test.features, setting.validation.features])
    assert len(torch.unique(both, dim=0)) == 30


def test_every_baseline_stands_beside_it(make, small, tmp_path):
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    asked = make("rewards.baselines=all", "model.name=own")
    said = train_rewards(prepare_rewards(asked, dataset=small, module=module), tmp_path / "run")
    assert list(said["methods"]) == ["rewards", "fedavg-ft", "lg-fedavg", "cgsv", "rank"]
    lines = folder.read_rounds(tmp_path / "run")
    assert [line["round"] for line in lines] == list(range(1, 37))
    assert [line["method"] for line in lines[::6]] == ["standalone", *said["methods"]]
    assert lines[5]["learning_rate"] == pytest.approx(0.3 * 0.9**5)


def test_lg_fedavg_shares_the_last_three_layers_as_in_the_paper(make, small):
    asked = make('rewards.baselines=["lg-fedavg"]', "model.name=own")

    def shared(*widths):
        layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
        own = (
            prepare_rewards(asked, dataset=small, module=nn.Sequential(*layers))
            .method("lg-fedavg", None)
            .shared
        )
        return own.stop - own.start, sum(p.numel() for layer in layers[-3:] for p in layer.parameters())

    found, three = shared(6, 9, 8, 7, 3)
    assert found == three == 9 * 8 + 8 + 8 * 7 + 7 + 7 * 3 + 3
    assert shared(6, 8, 7, 3)[0] == 8 * 7 + 7 + 7 * 3 + 3  # a client keeps one layer for itself
    assert shared(6, 7, 3)[0] == 7 * 3 + 3


def test_layers_that_do_not_train_do_not_count_for_lg_fedavg(make, small):
    asked = make('rewards.baselines=["lg-fedavg"]', "model.name=own")
    module = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    shared = prepare_rewards(asked, dataset=small, module=module).method("lg-fedavg", None).shared
    assert (shared.start, shared.stop) == (5 * 4 + 4, 5 * 4 + 4 + 4 * 3 + 3)


@pytest.mark.parametrize("measure", ["data size", "participation", "cosine", "leave one out", "shapley"])
def test_contributions_may_be_measured_while_training(run, measure):
    said = run(f"rewards.measure={measure}", "rewards.presence=0.5")
    contributions = np.array([row["contribution"] for row in said["per_client"]])
    assert (contributions >= 0).all()
    assert contributions.max() > 0
    assert said["measure"] == measure


def test_a_cheat_is_reported_beside_the_honest_federation(run):
    said = run('rewards.agents=["1 free-ride"]', "rewards.measure=cosine", "training.rounds=12")
    (row,) = said["cheats"]
    assert (row["client"], row["cheat"], row["seen"]) == (1, "free-ride", True)
    assert row["reward_rate"] < row["honest_reward_rate"]
    honest = run("rewards.measure=cosine", "training.rounds=12")
    assert row["honest_accuracy"] == honest["per_client"][1]["accuracy"]
    assert row["honest_reward_rate"] == honest["per_client"][1]["reward_rate"]
    fixed = run('rewards.agents=["1 copy 0", "2 noise 1", "3 amplify 2"]')
    assert [cheat["seen"] for cheat in fixed["cheats"]] == [False] * 3  # given before training
    assert [cheat["client"] for cheat in fixed["cheats"]] == [1, 2, 3]


def test_notes_say_what_to_know(run):
    assert any("drifts" in note for note in run("rewards.recovery=0", "training.rounds=1")["notes"])
    said = run("rewards.measure=data size", "training.rounds=1")["notes"]
    assert said == []


@pytest.mark.parametrize("moment", [1, 5, 6, 9, 12, 23, 24])
def test_a_run_resumed_ends_with_the_same_bits(make, small, tmp_path, kill_in, ending, moment):
    changes = ['rewards.baselines=["cgsv"]', 'rewards.agents=["1 noise 1"]', "rewards.measure=cosine"]
    setting = prepare_rewards(make(*changes), dataset=small)
    train_rewards(setting, tmp_path / "whole")
    with pytest.raises(kill_in.error):
        train_rewards(setting, tmp_path / "killed", on_round=kill_in(moment))
    train_rewards(setting, tmp_path / "killed", resume=True)
    assert ending(tmp_path / "killed") == ending(tmp_path / "whole")
    with np.load(tmp_path / "killed" / CLIENTS) as one, np.load(tmp_path / "whole" / CLIENTS) as other:
        assert np.array_equal(one["rewards"], other["rewards"])


def test_an_own_module_with_other_weights_is_resumed_with_those_it_began_with(
    make, small, tmp_path, kill_in, ending
):
    def prepared(seed):
        torch.manual_seed(seed)
        own = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
        return prepare_rewards(make('rewards.baselines=["cgsv"]'), dataset=small, module=own)

    train_rewards(prepared(1), tmp_path / "whole")
    for moment in (1, 9):
        place = tmp_path / f"cut{moment}"
        with pytest.raises(kill_in.error):
            train_rewards(prepared(1), place, on_round=kill_in(moment))
        train_rewards(prepared(2), place, resume=True)
        assert ending(place) == ending(tmp_path / "whole")


def test_nothing_is_earned_in_a_round_in_which_nobody_helped(make, small, tmp_path):
    """Clients with the same data: leaving one out changes nothing."""
    features, labels = np.tile(small.features[:20], (2, 1)), np.tile(small.labels[:20], 2)
    twins = from_arrays(
        "twins", features, labels, test_features=small.test_features, test_labels=small.test_labels,
        groups=np.repeat([0, 1], 20),
    )  # fmt: skip
    asked = make("rewards.measure=leave one out", "training.batch_size=20")
    asked = replace(asked, partition=Partition("natural", 2))
    said = train_rewards(prepare_rewards(asked, dataset=twins), tmp_path / "run")
    assert [row["contribution"] for row in said["per_client"]] == [0.0, 0.0]
    assert [row["reward_rate"] for row in said["per_client"]] == [0.0, 0.0]


def test_a_cheat_fine_tunes_at_home_like_everybody(make, small, tmp_path):
    """One round, one cheat that uploads nothing: its own last training is the honest one all the same."""
    changes = ('rewards.baselines=["fedavg-ft"]', "training.rounds=1", 'rewards.agents=["1 free-ride"]')
    setting = prepare_rewards(make(*changes), dataset=small)
    train_rewards(setting, tmp_path / "run")
    rules = setting.method("fedavg-ft", None)
    state = rules.advance(rules.begin(setting.start), setting.uploads("fedavg-ft"))
    tuned = state.models + setting.local(state.models, 2, np.ones(4, dtype=bool))
    found = folder.read_checkpoint(tmp_path / "run").more["fedavg-ft/loss"]
    assert found == pytest.approx(evaluate_models(setting.program, tuned, setting.test).loss)
    assert found[1] != pytest.approx(evaluate_models(setting.program, state.models, setting.test).loss[1])


def test_lines_tell_who_was_there_in_baselines_too(make, small, tmp_path):
    asked = make('rewards.baselines=["fedavg-ft"]', "rewards.presence=0.3")
    train_rewards(prepare_rewards(asked, dataset=small), tmp_path / "run")
    lines = folder.read_rounds(tmp_path / "run")
    there = {
        name: [r["participants"] for r in lines if r["method"] == name] for name in ("rewards", "fedavg-ft")
    }
    assert there["rewards"] == there["fedavg-ft"]
    assert any(len(who) < 4 for who in there["rewards"])
    assert all((line["steps"] > 0) == bool(line["participants"]) for line in lines)


def test_rates_of_presence_do_not_exceed_one(make, small):
    asked = replace(make("rewards.presence=0.1"), partition=Partition("iid", 13))
    assert prepare_rewards(asked, dataset=small).presence[-1] == 1.0


def test_cores_change_no_digit(run):
    one, two = (run(f"run.cores={cores}", "rewards.baselines=all", "model.name=softmax",
                    'rewards.baselines=["rank"]') for cores in (1, 2))  # fmt: skip
    assert {**one, "seconds": 0} == {**two, "seconds": 0}
    assert not multiprocessing.active_children()  # the crew went home


def test_reward_runs_are_listed_beside_others(make, small, tmp_path):
    train_rewards(prepare_rewards(make(), dataset=small), tmp_path / "run")
    seen = listing.overview(tmp_path / "run")
    assert (seen["scheme"], seen["rounds"], seen["planned_rounds"]) == ("model rewards", 6, 6)
    assert seen["finished"]


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
    ('rewards.agents=["3 bribe"]', r"rewards\.agents must be like '3 free-ride'; known are"),
    ('rewards.agents=["² free-ride"]', r"rewards\.agents must be like '3 free-ride'; known are"),
    ('rewards.agents=["3 noise"]', r"rewards\.agents must have one argument after noise"),
    ('rewards.agents=["3 noise x"]', r"rewards\.agents must have a number after noise"),
    ('rewards.agents=["3 free-ride", "3 copy 1"]', r"rewards\.agents must name 3 once"),
    ("training.participation=0.5", r"training\.participation must not be given with rewards: rew"),
    ("training.on_bad_update=skip", r"training\.on_bad_update must not be given with rewards"),
    ("jsam.eta=1", r"jsam must not be given with rewards"),
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
    (["rewards.validation=0.001"], r"rewards\.validation must leave test and validation samples of 30"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[" ".join(changes) for changes, _ in REFUSED])
def test_what_cannot_be_run_is_refused_before_it_begins(make, small, changes, message):
    with pytest.raises(InvalidValue, match=message):
        prepare_rewards(make(*changes), dataset=small)


def test_rates_of_a_theorem_are_refused():
    training = {"rounds": 2, "learning_rate": "proposition-1"}
    with pytest.raises(InvalidValue, match=r"training\.learning_rate must be a number with rewards"):
        config.from_tables({**TABLES, "training": training})


def test_regression_is_refused(make):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((60, 3)).astype(np.float32), rng.standard_normal(60).astype(np.float32)
    data = from_arrays("line", x[:40], y[:40], test_features=x[40:], test_labels=y[40:])
    with pytest.raises(InvalidValue, match=r"data\.name must have classes"):
        prepare_rewards(make(), dataset=data)
