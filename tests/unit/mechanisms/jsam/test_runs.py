"""A run under [jsam]: bought, drawn, noised and paid as agreed; stopped and resumed; refused in time."""

import math
import tomllib

import numpy as np
import pytest
import torch

from bonafed import InvalidValue
from bonafed.learning.privacy import Ledger, Release
from bonafed.mechanisms.jsam import noise_scale
from bonafed.runs import config, folder, listing, setting, training

JSAM = ["jsam.prior=uniform:0,1", "jsam.budget=20", "jsam.noise_scale=1", "jsam.clip=1"]
MORE = ["jsam.clients_per_round=3", "training.batch_size=30"]
CONTRACT = ["contract.prior=uniform:0.5,1.5", "contract.total_budget=12"]
PRIVACY = ["privacy.clip=1", "privacy.epsilon=2", "privacy.delta=1e-5"]

BAD = [
    (["jsam.eta=-1"], "jsam.eta must be positive, got -1.0"),
    (["jsam.eta=1"], "jsam.budget must not be given with eta, got 20.0"),
    (["jsam.noise_scale=0"], "jsam.noise_scale must be positive, got 0.0"),
    (["jsam.noise_scale="], "jsam.noise_scale must be given, or smoothness, got nothing"),
    (["jsam.smoothness=1"], "jsam.smoothness must not be given with noise_scale, got 1.0"),
    (["jsam.max_epsilon=0"], "jsam.max_epsilon must be positive, got 0.0"),
    (["jsam.max_epsilon=[1, 0]"], "jsam.max_epsilon must be positive, got 0 at position "),
    (
        ["jsam.scheme=cheapest", "jsam.members=2", "jsam.max_epsilon=[1, 2]"],
        "jsam.max_epsilon must be one for all clients with cheapest, got [1.0, 2.0]",
    ),
    (["jsam.clip=none"], "jsam.clip must be a number, got 'none'"),
    (["jsam.clients_per_round=0"], "jsam.clients_per_round must be a whole number of at least 1, got 0"),
    (["jsam.scheme=best"], "jsam.scheme must be one of jsam, unbiased, cheapest, complete information, "),
    (["jsam.scheme=cheapest"], "jsam.members must be given for cheapest, got nothing"),
    (["jsam.members=2"], "jsam.members must not be given unless scheme is cheapest or largest losses, got"),
    (["jsam.prior=uniform:2,1"], "jsam.prior: low must be below high = 1, got 2.0"),
    (["jsam.epsilon=1"], "jsam.epsilon must not be given, it is unknown"),
    (["training.participation=0.5"], "training.participation must be left to jsam, got 0.5"),
    (["training.optimizer=adam"], "training.optimizer must be sgd with jsam, got 'adam'"),
    (CONTRACT, "contract must not be given with jsam, got a section [contract]"),
    (PRIVACY, "privacy must not be given with jsam, got a section [privacy]"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[c[0] for c, _ in BAD])
def test_mistakes_are_named(make, changes, message):
    with pytest.raises(InvalidValue) as refused:
        make(*JSAM, *changes)
    assert str(refused.value).startswith(message)


def test_one_way_of_saying_how_much_must_be_given(make):
    with pytest.raises(
        InvalidValue, match=r"^jsam\.eta must be given, or budget, or expected_budget, got nothing$"
    ):
        make(JSAM[0], *JSAM[2:])


UNFIT = [
    (["jsam.delta=2"], "jsam.delta must be between 0 and 1, ends excluded, got 2.0"),
    (["jsam.scheme=cheapest", "jsam.members=9"], "jsam.members must be at most the number of clients, 4, "),
    (
        ["jsam.scheme=largest losses", "jsam.clear_losses=true", "jsam.members=2"],
        "jsam.scheme must be another: all clients have the same local loss, got 'largest losses'",
    ),
]


@pytest.mark.parametrize(("changes", "message"), UNFIT, ids=[c[0] for c, _ in UNFIT])
def test_what_only_the_data_can_tell_is_refused(make, small, changes, message):
    with pytest.raises(InvalidValue) as refused:
        setting.prepare(make(*JSAM, *changes), dataset=small)
    assert str(refused.value).startswith(message)


def test_one_step_is_taken_unless_told_otherwise(make):
    made = make(*JSAM)
    assert (made.training.steps, made.training.epochs) == (1, None)
    assert (made.jsam.clients_per_round, made.jsam.delta, made.jsam.scheme) == (10, 1e-5, "jsam")
    assert make(*JSAM, "training.epochs=2").training.steps is None
    again = config.from_tables(tomllib.loads(config.to_toml(made)))
    assert config.to_tables(again) == config.to_tables(made)


SCHEMES = [
    ["jsam.scheme=jsam"],
    ["jsam.scheme=unbiased", "training.epochs=1", "training.batch_size=8"],
    ["jsam.scheme=cheapest", "jsam.members=2"],
    ["jsam.scheme=complete information"],
    ["jsam.scheme=largest losses", "jsam.clear_losses=true", "jsam.members=2"],
]


# of what is sold, not given away: computed noise keeps something for its arithmetic
@pytest.mark.parametrize(("noise", "aside"), [("reproducible", 1e-6), ("secret", 1e-2)])
@pytest.mark.parametrize("changes", SCHEMES, ids=[c[0] for c in SCHEMES])
def test_nobody_gives_away_more_than_it_sold(make, small, tmp_path, changes, noise, aside):
    torch.manual_seed(0)
    own = torch.nn.Sequential(torch.nn.Linear(6, 3))  # does not start at zero: losses differ
    made = setting.prepare(make(*JSAM, *MORE, *changes, f"jsam.noise={noise}"), dataset=small, module=own)
    summary = training.train(made, tmp_path / "run")
    records = folder.read_rounds(tmp_path / "run")
    ledger = Ledger(
        tuple(
            Release(client, record["round"], *rest)
            for record in records
            for client, *rest in record["releases"]
        )
    )
    drawn = np.bincount(np.concatenate([r["participants"] for r in records]), minlength=4)
    assert summary["times_drawn"] == drawn.tolist()
    assert all(len(r["participants"]) == 3 for r in records)
    for client in range(4):
        said, sold = summary["epsilon_per_client"][client], summary["epsilon_sold"][client]
        assert said <= sold
        assert math.isclose(said, ledger.epsilon(client, 1e-5), rel_tol=1e-9, abs_tol=0)
        assert said == 0 if drawn[client] == 0 else said > sold * (1 - aside)
        releases = [r for r in ledger.releases if r.client == client]
        assert sum(r.times for r in releases) == drawn[client]  # a record is in one step of a pass
        steps = 4 if "training.epochs=1" in changes else 1
        assert sum(r.steps for r in releases) == steps * drawn[client]
        assert summary["payment"][client] >= summary["reports"][client] * sold * (1 - 1e-12)
    assert 1 - aside < summary["largest_epsilon_ratio"] <= 1
    assert [r["spend"] for r in records] == [math.fsum(summary["payment"]), 0, 0, 0, 0]
    assert summary["spend"] == records[0]["spend"] <= 20
    assert summary["clients_selected"] == sum(p > 0 for p in summary["selection"])
    asked = any("in clear" in note for note in summary["notes"])
    assert asked == ("jsam.scheme=largest losses" in changes)


def test_the_weight_may_be_given_or_follow_from_the_prior(make, small):
    def terms(change):
        changes = [change if word.startswith("jsam.budget") else word for word in (*JSAM, *MORE)]
        return setting.prepare(make(*changes), dataset=small).terms

    assert terms("jsam.eta=7").settlement.allocation.eta == 7
    average = terms("jsam.expected_budget=20").settlement
    assert average.allocation.eta != terms("jsam.budget=20").settlement.allocation.eta


def test_the_noise_scale_is_made_of_what_the_run_knows(make, small, tmp_path):
    ways = ["jsam.noise_scale=", "jsam.smoothness=0.5"]
    made = setting.prepare(make(*JSAM, *MORE, *ways), dataset=small)
    sizes = [part.size for part in made.parts]
    records = min(30, *sizes)
    assert made.terms.records == records
    assert made.terms.noise_scale == noise_scale(1e-5, made.program.size, 5, 0.5, records)
    summary = training.train(made, tmp_path / "run")
    assert (summary["noise_scale"], summary["records_per_release"]) == (made.terms.noise_scale, records)
    more = setting.prepare(make(*JSAM, *MORE, *ways, "training.steps=4"), dataset=small)  # T: 4 x 5
    assert more.terms.noise_scale == noise_scale(1e-5, made.program.size, 20, 0.5, records)


@pytest.mark.parametrize("cap", ["3", "[1, 2, 3, 4]"])
def test_nobody_sells_more_than_the_cap(make, small, tmp_path, cap):
    words = [*JSAM, *MORE, f"jsam.max_epsilon={cap}", "jsam.budget=", "jsam.eta=50"]
    made = make(*words)
    again = config.from_tables(tomllib.loads(config.to_toml(made)))
    assert config.to_tables(again) == config.to_tables(made)
    summary = training.train(setting.prepare(made, dataset=small), tmp_path / "run")
    caps = np.broadcast_to(tomllib.loads(f"cap = {cap}")["cap"], 4)
    assert np.all(np.array(summary["epsilon_sold"]) <= caps)
    assert np.any(np.array(summary["epsilon_sold"]) == caps)
    assert not any("hardly a promise" in note for note in summary["notes"])


def test_selling_more_than_ten_is_said(make, small, tmp_path):
    dear = training.train(
        setting.prepare(make(*JSAM, *MORE, "jsam.budget=300"), dataset=small), tmp_path / "run"
    )
    assert max(dear["epsilon_sold"]) > 10
    assert any("hardly a promise of privacy" in note for note in dear["notes"])


@pytest.mark.usefixtures("one_secret")
def test_a_run_cut_short_ends_with_the_same_bits(make, small, tmp_path):
    made = setting.prepare(make(*JSAM, *MORE, "run.checkpoint_every=2"), dataset=small)
    whole = training.train(made, tmp_path / "whole")

    class Stopped(Exception):
        pass

    def stop(record):
        if record.round == 3:
            raise Stopped

    with pytest.raises(Stopped):
        training.train(made, tmp_path / "cut", on_round=stop)
    again = config.read(tmp_path / "cut" / "config.toml")
    resumed = training.train(setting.prepare(again, dataset=small), tmp_path / "cut", resume=True)
    assert {**resumed, "seconds": 0} == {**whole, "seconds": 0}
    one, other = (folder.read_checkpoint(tmp_path / name).weights for name in ("whole", "cut"))
    assert np.array_equal(one, other)
    row = listing.overview(tmp_path / "cut")
    assert (row["scheme"], row["spend"]) == ("jsam", whole["spend"])
    assert row["curves"]["spend"] == [whole["spend"]] * 5


@pytest.mark.usefixtures("one_secret")
def test_a_growing_loss_is_told(make, small, tmp_path):
    words = ("jsam.budget=0.01", "training.rounds=40", "jsam.noise=reproducible")
    made = setting.prepare(make(*JSAM, *MORE, *words), dataset=small)
    _, first, note = training.train(made, tmp_path / "noisy")["notes"]
    assert first == "a hard budget depends on the reports, so that exact truthfulness is lost"
    assert note.startswith("the test loss grew from ")  # the other is nobody's to tell
    assert note.endswith("the learning rate may be too large for this noise")
    made = setting.prepare(make("training.learning_rate=300"), dataset=small)
    summary = training.train(made, tmp_path / "fast")
    if summary["notes"]:
        assert summary["notes"][0].endswith("the learning rate may be too large")
    calm = setting.prepare(make(), dataset=small)
    assert training.train(calm, tmp_path / "calm")["notes"] == []


def test_a_budget_that_buys_nobody_is_told(make, small, tmp_path):
    made = setting.prepare(make(*CONTRACT, "contract.total_budget=1e-9"), dataset=small)
    summary = training.train(made, tmp_path / "run")
    assert summary["mean_participants"] == 0
    assert summary["notes"] == [
        "nobody took part in any round, the model is as it began: the budget buys too little"
    ]


def test_clients_chosen_by_the_first_models_losses_are_not_chosen_again_by_others(
    make, small, tmp_path, kill_in
):
    def prepared(seed):
        torch.manual_seed(seed)
        own = torch.nn.Sequential(torch.nn.Linear(6, 3))
        changes = ("jsam.scheme=largest losses", "jsam.clear_losses=true", "jsam.members=2")
        return setting.prepare(make(*JSAM, *MORE, *changes), dataset=small, module=own)

    with pytest.raises(kill_in.error):
        training.train(prepared(0), tmp_path / "run", on_round=kill_in(5))
    with pytest.raises(InvalidValue, match=r"^model must have the weights the run began with: clients"):
        training.train(prepared(1), tmp_path / "run", resume=True)
    training.train(prepared(0), tmp_path / "run", resume=True)
