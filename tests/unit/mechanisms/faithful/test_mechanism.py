"""Runs of faithful learning: configs, statements, resumption, cheats, privacy, other models."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from bonafed.errors import BadReport, Diverged, InvalidValue
from bonafed.learning.data.datasets import from_arrays
from bonafed.learning.function_federation import FunctionFederation
from bonafed.learning.privacy import Ledger, Release
from bonafed.mechanisms.faithful import (
    RidgeRegression,
    faithful,
    plan_private,
    vcg_payments,
)
from bonafed.mechanisms.faithful.private.noise import PrivateTerms
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules
from bonafed.mechanisms.faithful.section import NAMES
from bonafed.runs import config, folder, listing
from bonafed.runs.prepare import prepare
from bonafed.runs.private import SIMULATION, private_folder
from bonafed.runs.training import train

TABLES = {
    "data": {"name": "small"},
    "partition": {"kind": "iid", "clients": 4},
    "model": {"name": "softmax"},
    "faithful": {"regulariser": 0.05, "variant": "stepwise", "training_steps": 200, "epsilon": 1e-4},
    "run": {"seed": 3, "cores": 1},
}


def said_by(setting, place, **options):
    """What a run says at its end: the summary, and of the statement a row per agent and its facts."""
    summary = train(setting, place, **options).summary
    told = summary["statement"]
    rows = [
        {"agent": name, **{column: cells[k] for column, cells in told["columns"].items()}}
        for k, name in enumerate(told["clients"])
    ]
    return {**told["facts"], **told, "rounds": summary["rounds"], "agents": rows, "summary": summary}


def oracle(setting):
    """The problem of the simulated clients."""
    return setting.clients.oracle(setting.mechanism.objective, setting.mechanism.problem.weights)


@pytest.fixture
def run(make, small, tmp_path):
    """run("faithful.rule=left") -> what the run says."""

    def ran(*changes, dataset=None, **options):
        setting = prepare(make(*changes), dataset=dataset or small)
        return said_by(setting, tmp_path / f"run{len(list(tmp_path.iterdir()))}", **options)

    return ran


def test_the_statement_is_that_of_the_protocol(make, small, tmp_path):
    setting = prepare(make(), dataset=small)
    said = said_by(setting, str(tmp_path / "run"))  # or a Path
    outcome = faithful(
        oracle(setting), rules=ProtocolRules(variant="stepwise", training_steps=200, epsilon=1e-4)
    )
    assert [row["payment"] for row in said["agents"]] == outcome.payments.amount.tolist()
    assert [row["loss"] for row in said["agents"]] == outcome.losses.tolist()
    assert said["totals"]["payments in all"] == outcome.payments.total
    owed = np.array(said["amounts"]) / 1e6  # the server is owed, rounded in the agents' favour
    assert ((outcome.payments.amount + owed >= 0) & (outcome.payments.amount + owed < 1e-6)).all()
    *promised, alone = said["findings"]
    assert [check["holds"] for check in promised] == [True] * 4
    joins = [row["no_worse_than_alone"] for row in said["agents"]]
    assert alone["holds"] is (True if all(joins) else None)
    assert alone["text"].startswith(f"{sum(joins)} of {len(joins)} agents")
    assert said["summary"]["no_worse_than_alone"] == f"{sum(joins)} of {len(joins)}"
    for row in said["agents"]:
        assert row["overall_loss"] == row["loss"] + row["payment"]
        assert row["loss_alone"] <= row["loss"]
        assert row["no_worse_than_alone"] == (row["fresh_loss"] + row["payment"] <= row["fresh_loss_alone"])
    state = torch.load(tmp_path / "run" / "model.pt")
    z = torch.from_numpy(small.test_features) @ state["1.weight"].T + state["1.bias"]
    assert float((z.argmax(1).numpy() == small.test_labels).mean()) == said["summary"]["test_accuracy"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == said["summary"]


def test_fresh_losses_are_those_of_the_classes_an_agent_holds(make, small):
    apart = make("partition.kind=typicality", "partition.delta=1", "partition.clients=3")
    setting = prepare(apart, dataset=small)
    mechanism = setting.mechanism
    model = np.random.default_rng(0).normal(size=(2, mechanism.problem.size))
    found = mechanism.judges.fresh(setting.clients, mechanism.to_module)(model)
    weights = np.stack([mechanism.to_module(row) for row in model]).astype(np.float64)
    for m in range(2):
        matrix, bias = weights[m, :18].reshape(3, 6), weights[m, 18:]
        z = small.test_features @ matrix.T + bias
        each = np.log(np.exp(z).sum(1)) - z[np.arange(30), small.test_labels]
        for agent in range(3):
            assert found[m, agent] == pytest.approx(each[small.test_labels == agent].mean(), rel=1e-5)


@pytest.mark.parametrize("method", ["newton", "exact"])
def test_other_ways_to_compute_payments_agree(run, method):
    by_gradients = run("faithful.epsilon=1e-8", "faithful.training_steps=800")
    other = run(f"faithful.payments={method}", "faithful.training_steps=800")
    for one, two in zip(by_gradients["agents"], other["agents"], strict=True):
        assert two["payment"] == pytest.approx(one["payment"], rel=2e-3)
    assert all(check["holds"] for check in other["findings"] if check["claim"] in NAMES)


def test_clusters_are_cheaper_and_say_what_they_lose(run):
    said = run("faithful.clusters=2")
    exact = run("faithful.payments=exact")
    for one, two in zip(said["agents"], exact["agents"], strict=True):
        assert one["payment"] <= two["payment"] + 1e-12  # F-D11
    assert any("clusters may sum to less than zero" in note for note in said["notes"])


def test_ridge_regression_for_real_targets(make, tmp_path):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((90, 3)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(90)).astype(np.float32)
    data = from_arrays("line", x[:60], y[:60], test_features=x[60:], test_labels=y[60:])
    setting = prepare(make("faithful.training_steps=400"), dataset=data)
    assert isinstance(oracle(setting), RidgeRegression)
    said = said_by(setting, tmp_path / "run")
    exact = vcg_payments(oracle(setting), folder.read_checkpoint(tmp_path / "run").state["model"])
    # the trapezoid is exact for quadratics, so the certificate is the whole error
    amounts = np.array([row["payment"] for row in said["agents"]])
    assert np.all((exact.amount - amounts >= -1e-12) & (exact.amount - amounts <= 1e-4))


def test_a_cheat_is_named_and_does_worse(run):
    honest, cheated = run(), run('faithful.agents=["1 amplify 3"]')
    assert cheated["agents"][1]["overall_loss"] > honest["agents"][1]["overall_loss"]
    assert cheated["agents"][1]["loss"] < honest["agents"][1]["loss"]  # what it would gain without payments
    assert "not following the protocol: agents 1 amplify 3" in cheated["notes"]


def test_an_agent_that_falls_silent_stops_the_run_or_is_left_out(run, tmp_path):
    with pytest.raises(BadReport, match=r"agent 2 in training step 6 must be .* got nothing"):
        run('faithful.agents=["2 drop-out 5"]')
    said = run('faithful.agents=["2 drop-out 5"]', "faithful.on_bad_report=leave out")
    (out,) = said["left_out"]
    assert (out["agent"], out["where"], out["problem"]) == ("2", "training step 6", "nothing")
    assert out["due"] > 0
    assert said["agents"][2]["payment"] == 0
    assert said["rounds"] == 200  # begun again, not counted twice


@pytest.mark.parametrize(
    ("lie", "when", "why"),
    [
        ("alternate 5", "training step 2", "gradients that differ by"),
        ("random 0.1", "training step 2", "gradients that differ by"),
        ("huge 1e200", "training step 1", "a gradient of norm inf, too large"),
        ("huge 1e90", "training step 1", "a gradient of norm"),
        ("free-ride", "training step 2", "gradients that differ by 0 at models"),
    ],
)
def test_who_reports_no_gradients_is_named_left_out_and_written_down(run, tmp_path, lie, when, why):
    asked = f'faithful.agents=["2 {lie}"]'
    with pytest.raises(BadReport, match=f"report of agent 2 in {when} must be .* got {why}"):
        run(asked)
    place = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
    said = run(asked, "faithful.on_bad_report=leave out")
    (out,) = said["left_out"]
    assert (out["agent"], out["where"]) == ("2", when)
    assert out["problem"].startswith(why)
    lines = folder.read_rounds(place)
    assert len(lines) == 200
    assert (lines[0]["participants"], lines[0]["failed"]) == (["0", "1", "2", "3"], ["2"])
    assert all((line["participants"], line["failed"]) == (["0", "1", "3"], []) for line in lines[1:])
    assert {line["steps"] for line in lines} == {3}


def test_divergence_is_an_error_not_an_overflow(run):
    with pytest.raises(Diverged, match="training diverges at step"):
        run('faithful.agents=["0 amplify 4000"]', "faithful.check_reports=numbers")


def test_noise_that_keeps_payments_from_converging_is_an_error(run):
    with pytest.raises(Diverged, match=r"payments do not converge to epsilon = 0.0001: .* such as noise"):
        run('faithful.agents=["0 add-noise 0.5"]', "faithful.check_reports=numbers")


@pytest.mark.usefixtures("one_secret")
def test_a_private_run_states_what_was_given_away(run):
    said = run("privacy.epsilon=5", "privacy.delta=1e-3", "faithful.training_steps=20")
    assert said["mechanism"] == "private faithful"
    assert 0 < said["epsilon"] <= 5
    assert (said["totals"]["delta"], said["totals"]["adjacency"]) == (1e-3, "replace one")
    for agent, stated in enumerate(said["columns"]["epsilon"]):  # is what the record says
        own = [row for row in said["releases"] if row["agent"] == str(agent)]
        releases = [Release(agent, 1, row["noise_multiplier"], row["times"]) for row in own]
        assert stated == pytest.approx(Ledger(tuple(releases)).epsilon(agent, 1e-3), rel=1e-9)
        # F-D6: T1 + (L - 1) T2 sums of gradients, and the payments of the three others
        assert sum(row["times"] for row in own) == 20 + 3 * said["payment_steps"] + 3
    assert [check["holds"] for check in said["findings"]][:3] == [None] * 3
    assert said["summary"]["train_loss"] is None  # no noise hides anybody in it
    assert set(said["columns"]) == {"weight", "payment", "epsilon"}
    again = run("privacy.epsilon=5", "privacy.delta=1e-3", "faithful.training_steps=20")
    assert {**said, "run": "", "summary": 0} == {**again, "run": "", "summary": 0}


def test_a_private_run_says_whom_it_protects_against_and_what_that_costs(run):
    promise = "privacy.epsilon=5", "privacy.delta=1e-3", "faithful.training_steps=20"
    steps = "faithful.payment_steps=8", "privacy.split=0.8"
    once, own = (run(*promise, *steps, *more) for more in ((), ("privacy.noise_at=client",)))
    assert once["totals"]["protects_against"].endswith("not a server that sees single updates")
    assert own["totals"]["protects_against"].endswith("the server included")
    assert any(note.startswith("noise is added once to the sum") for note in once["notes"])
    # K (T_1 + K T_2)/(T_1 + K^2 T_2/(K - 1)) and K - 1
    cost = 4 * (20 + 4 * 8) / (20 + 16 * 8 / 3)
    assert any(
        f"its own noise: {cost:.3g} times the variance on every sum of gradients and 3 times" in note
        for note in own["notes"]
    )
    assert (own["noise"]["gradient"] / once["noise"]["gradient"]) ** 2 == pytest.approx(cost, rel=1e-3)
    assert (own["noise"]["payment"] / once["noise"]["payment"]) ** 2 == pytest.approx(3, rel=1e-3)
    assert (once["noise_at"], own["noise_at"]) == ("sum", "client")
    assert max(own["columns"]["epsilon"]) <= 5
    # what is claimed is computed with the larger noise
    bounds = [re.search(r"the bound, ([\d.e+]+),", said["findings"][1]["text"])[1] for said in (once, own)]
    assert float(bounds[1]) == pytest.approx(cost * float(bounds[0]), rel=0.1)
    errors = [
        float(re.search(r"off by about ([\d.e+]+) in units", said["notes"][0])[1]) for said in (once, own)
    ]
    assert errors[1] > 1.5 * errors[0]


def test_private_runs_need_no_test_samples(run, small):
    alone = from_arrays("small", small.features, small.labels, classes=3)
    changes = "privacy.epsilon=5", "privacy.delta=1e-3", "faithful.training_steps=20"
    said, usual = run(*changes, dataset=alone), run(*changes)
    assert said["rounds"] == usual["rounds"] == 20
    assert len(said["agents"]) == 4


def test_the_lines_of_a_private_run_count_its_releases(make, small, tmp_path):
    asked = make("privacy.epsilon=5", "privacy.delta=1e-3", "faithful.training_steps=20")
    said = said_by(prepare(asked, dataset=small), tmp_path / "run")
    lines = folder.read_rounds(tmp_path / "run")
    for agent in range(4):
        noise = {row["noise_multiplier"] for row in said["releases"] if row["agent"] == str(agent)}
        released = [line["releases"][agent] for line in lines]
        assert {tuple(one)[:3] for one in released} <= {(str(agent), multiplier, 1) for multiplier in noise}
    epsilons = [line["epsilon"] for line in lines]
    assert epsilons == sorted(epsilons)
    assert (
        0 < epsilons[-1] < said["epsilon"] == listing.overview(tmp_path / "run")["epsilon"]
    )  # and payments
    simulated = json.loads((private_folder(tmp_path / "run") / SIMULATION).read_text())
    assert "covered by no epsilon" in simulated["note"]
    assert all(row["loss"] > 0 for row in simulated["agents"])


def test_a_private_run_is_planned_before_it_begins_and_writes_down_the_plan(make, small, tmp_path):
    asked = make("privacy.epsilon=5", "privacy.delta=1e-3")
    asked = replace(asked, own=replace(asked.own, training_steps=None))
    setting = prepare(asked, dataset=small)
    plan = plan_private(setting.mechanism.course.facts, PrivateTerms(alpha=5.0, beta=1e-3))
    assert (setting.config.own.training_steps, setting.config.own.payment_steps) == (
        plan.training_steps,
        plan.payment_steps,
    )
    assert [text.split(":")[0] for text in setting.warnings] == ["payments will be more noise than signal"]
    said = said_by(setting, tmp_path / "run")
    assert said["rounds"] == plan.training_steps
    assert set(setting.warnings) < set(said["notes"])
    assert "says nothing: a model that knows nothing loses 1.1" in said["findings"][1]["text"]
    written = config.read(tmp_path / "run" / folder.CONFIG)
    assert (written.own.training_steps, written.privacy.split) == (plan.training_steps, plan.split)
    assert prepare(written, dataset=small).config == setting.config  # resumed as it was planned
    # the length of a step must not tell the longest sample
    for line in folder.read_rounds(tmp_path / "run"):
        assert line["learning_rate"] == pytest.approx(1 / (0.05 + 0.5), rel=1e-12)
    plenty = make("privacy.epsilon=1e6", "privacy.delta=1e-3")
    assert prepare(plenty, dataset=small).warnings == ()


def test_the_printed_private_protocol_promises_nothing(run):
    said = run("privacy.epsilon=5", "privacy.delta=1e-3", "faithful.variant=printed")
    assert [check["holds"] for check in said["findings"] if check["claim"] in NAMES] == [None] * 4
    assert "overstating may pay" in said["findings"][1]["text"]
    assert said["payment_steps"] == 20


def test_in_a_private_run_one_sample_changes_no_other(make, small):
    asked = make("privacy.epsilon=5", "privacy.delta=1e-3")
    features = small.features.copy()
    features[7] *= 1000
    one, other = (prepare(asked, dataset=replace(small, features=x)) for x in (small.features, features))
    objective = one.mechanism.course.objective
    problems = [setting.clients.oracle(objective) for setting in (one, other)]
    models = np.random.default_rng(0).standard_normal((1, problems[0].size))
    same = problems[0].losses(models)[0] == problems[1].losses(models)[0]
    assert same.sum() >= 3  # of the agents: all but its owner
    assert float(np.linalg.norm(one.test.features.numpy(), axis=1).max()) <= 1 + 1e-6


def test_a_model_that_is_not_convex_pays_without_promises(make, small, tmp_path):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    asked = make("model.name=own", "faithful.learning_rate=0.5", "faithful.training_steps=40")
    setting = prepare(asked, dataset=small, module=module)
    said = said_by(setting, tmp_path / "run")
    assert said["payment_steps"] == 20
    assert said["certified_error"] is None
    assert [check["holds"] for check in said["findings"]][:3] == [None] * 3
    assert "is not convex: efficiency, faithfulness, participation and budget balance" in said["notes"][0]
    assert all(row["payment"] > 0 for row in said["agents"])
    state = torch.load(tmp_path / "run" / "model.pt")
    assert set(state) == {"0.weight", "0.bias", "2.weight", "2.bias"}


@pytest.mark.parametrize(
    "changes",
    [[], ["faithful.payments=newton"], ['faithful.agents=["1 stale"]', "faithful.check_reports=numbers"],
     ['faithful.agents=["1 alternate 3", "2 random 1"]', "faithful.on_bad_report=leave out"],
     ["privacy.epsilon=5", "privacy.delta=1e-3"]],
)  # fmt: skip
@pytest.mark.parametrize("moment", [3, 77, 200])
@pytest.mark.usefixtures("one_secret")
def test_a_run_resumed_ends_with_the_same_bits(make, small, tmp_path, kill_in, ending, changes, moment):
    setting = prepare(make(*changes, "run.checkpoint_every=20"), dataset=small)
    said_by(setting, tmp_path / "whole")
    with pytest.raises(kill_in.error):
        said_by(setting, tmp_path / "killed", on_round=kill_in(moment))
    said_by(setting, tmp_path / "killed", resume=True)
    assert ending(tmp_path / "killed") == ending(tmp_path / "whole")


@pytest.mark.parametrize("changes", [[], ['faithful.agents=["1 amplify 2"]']], ids=["honest", "cheated"])
def test_an_own_module_with_other_weights_is_resumed_with_those_it_began_with(
    make, small, tmp_path, kill_in, ending, changes
):
    def prepared(seed, hidden=4):
        torch.manual_seed(seed)
        own = nn.Sequential(nn.Linear(6, hidden), nn.Tanh(), nn.Linear(hidden, 3))
        short = ["faithful.training_steps=30", "faithful.payment_steps=3", "faithful.learning_rate=0.2"]
        asked = make(*changes, *short, "model.name=own", "run.checkpoint_every=10")
        return prepare(asked, dataset=small, module=own)

    said_by(prepared(1), tmp_path / "whole")
    for moment in (4, 14):
        place = tmp_path / f"cut{moment}"
        with pytest.raises(kill_in.error):
            said_by(prepared(1), place, on_round=kill_in(moment))
        rule = r"^model must be as it was when the run began, with 43 weights"
        with pytest.raises(InvalidValue, match=rule):
            said_by(prepared(1, hidden=5), place, resume=True)
        said_by(prepared(2), place, resume=True)
        assert ending(place) == ending(tmp_path / "whole")


def test_faithful_runs_are_listed_beside_others(make, small, tmp_path):
    said_by(prepare(make(), dataset=small), tmp_path / "run")
    seen = listing.overview(tmp_path / "run")
    assert (seen["mechanism"], seen["rounds"], seen["planned_rounds"]) == ("faithful", 200, 200)
    assert seen["finished"]
    assert seen["test_accuracy"] is not None


def test_a_config_survives_its_own_text(make):
    asked = make('faithful.agents=["1 amplify 3"]', "faithful.on_bad_report=leave out")
    assert config.from_tables(config.to_tables(asked)) == asked


BAD = [
    ("faithful.regulariser=0", r"faithful\.regulariser must be positive, got 0"),
    ("faithful.regularizer=1", r"faithful\.regularizer is unknown \(did you"),
    ("training.rounds=3", r"training must not be given with faithful, got a section \[training\]"),
    ("sampling.scheme=x", r"faithful must not be given with sampling"),
    ("faithful.rule=simpson", r"faithful\.rule must be"),
    ("faithful.clusters=1", r"faithful\.clusters must be a whole number of at least 2"),
    ("faithful.agents=3", r"faithful\.agents must be a list such as"),
    ('faithful.agents=["3 bribe"]', r"faithful\.agents must look like '3 amplify 5'; known kinds: amplify"),
    ('faithful.agents=["3 amplify"]', r"faithful\.agents must have one argument after amplify"),
    ('faithful.agents=["3 amplify x"]', r"faithful\.agents must have a number after amplify"),
    ('faithful.agents=["3 stale 2"]', r"faithful\.agents must have no argument after stale"),
    ('faithful.agents=["3 stale", "3 amplify 2"]', r"faithful\.agents must name 3 once"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD, ids=[change for change, _ in BAD])
def test_bad_configs_are_refused(make, change, message):
    with pytest.raises(InvalidValue, match=message):
        make(change)


PRIVATE = ["privacy.epsilon=1", "privacy.delta=1e-3"]
REFUSED = [
    (["faithful.payments=exact", "faithful.rule=left"], "rule must not be given with payments"),
    (["faithful.clusters=2", "faithful.payments=exact"], "payments must not be given with clusters"),
    ([*PRIVATE, "faithful.rule=left"], r"faithful\.rule must not be given in a private run"),
    ([*PRIVATE, "model.name=small-cnn"], r"model\.name must be softmax in a private run"),
    (["faithful.clusters=5"], r"faithful\.clusters must be at most the number of agents, 4"),
    (["faithful.learning_rate=1"], r"faithful\.learning_rate must not be given for softmax"),
    (["partition.clients=1"], r"partition\.clients must be at least 2 for faithful learning"),
    (['faithful.agents=["4 stale"]'], r"faithful\.agents must be numbered 0\.\.3"),
    (['faithful.agents=["1 copy 9"]'], r"faithful\.agent must be in 0\.\.3"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[" ".join(changes) for changes, _ in REFUSED])
def test_what_cannot_be_run_is_refused_before_it_begins(make, small, changes, message):
    with pytest.raises(InvalidValue, match=message):
        prepare(make(*changes), dataset=small)


def test_models_that_are_not_convex_need_a_step_and_gradients(make, small):
    module = nn.Sequential(nn.Linear(6, 3))
    with pytest.raises(InvalidValue, match=r"faithful\.learning_rate must be set for softmax"):
        prepare(make(), dataset=small, module=module)
    with pytest.raises(InvalidValue, match=r"faithful\.payments must not be given for softmax"):
        prepare(make("faithful.learning_rate=1", "faithful.payments=exact"), dataset=small, module=module)


def test_clients_that_are_asked_come_to_the_statement_of_simulated_ones(make, small, tmp_path):
    here = prepare(make(), dataset=small)

    def ask(tasks):  # each client for itself; what a simulation knows besides is not at hand
        return {task.identifier: here.clients.replies([task])[task.identifier] for task in tasks}

    there = prepare(make(), dataset=small, federation=FunctionFederation(here.clients.members, ask))
    one, other = said_by(here, tmp_path / "here"), said_by(there, tmp_path / "there")
    for column in ("payment", "loss", "loss_with_the_others_model"):
        assert other["columns"][column] == pytest.approx(one["columns"][column], abs=1e-9)
    # alone, training ends within 1e-6 of the minimum
    assert other["columns"]["loss_alone"] == pytest.approx(one["columns"]["loss_alone"], abs=1e-6)
    assert [check["holds"] for check in other["findings"] if check["claim"] in NAMES] == [True] * 4
    exact = prepare(make("faithful.payments=exact"), dataset=small, federation=there.clients)
    with pytest.raises(InvalidValue, match=r"faithful\.payments must not be given unless the samples are"):
        said_by(exact, tmp_path / "exact")
