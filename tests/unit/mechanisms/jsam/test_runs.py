"""A run under [jsam]: bought, drawn, noised and paid as agreed; stopped and resumed; refused in time."""

import math
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.federations import TABLES

from bonafed import InvalidValue, Uniform
from bonafed.contracts.coins import commit
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.evaluate import evaluate
from bonafed.learning.privacy import Ledger, Release
from bonafed.mechanisms.jsam import noise_scale
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.runs import config, folder, listing, prepare, training
from bonafed.runs.coins import verify_run

JSAM = ["jsam.prior=uniform:0,1", "jsam.budget=20", "jsam.noise_scale=1", "jsam.clip=1"]
MORE = ["jsam.clients_per_round=3", "training.batch_size=30", "training.steps=1"]
CONTRACT = ["sampling.prior=uniform:0.5,1.5", "sampling.total_budget=12"]
PRIVACY = ["privacy.clip=1", "privacy.epsilon=2", "privacy.delta=1e-5"]

BAD = [
    (["jsam.eta=-1"], "jsam.eta must be positive, got -1.0"),
    (["jsam.eta=1"], "jsam.budget must not be given with eta, got 20.0"),
    (["jsam.noise_scale=0"], "jsam.noise_scale must be positive, got 0.0"),
    (["jsam.noise_scale="], "jsam.noise_scale or smoothness is required"),
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
    (["jsam.scheme=cheapest"], "jsam.members is required for cheapest"),
    (["jsam.members=2"], "jsam.members must not be given unless scheme is cheapest or largest losses, got"),
    (["jsam.prior=uniform:2,1"], "jsam.prior: low must be below high = 1, got 2.0"),
    (["jsam.epsilon=1"], "jsam.epsilon is unknown"),
    (["training.participation=0.5"], "training.participation must be left to jsam, got 0.5"),
    (["training.optimizer=adam"], "training.optimizer must be sgd with jsam, got 'adam'"),
    (
        ["training.server_optimizer=momentum"],
        "training.server_optimizer must be sgd with jsam, got 'momentum'",
    ),
    (
        ["training.aggregation=memory"],
        "training.aggregation must be plain with jsam, whose plan counts the noise of every release once, ",
    ),
    (CONTRACT, "jsam must not be given with sampling, got a section [jsam]"),
    (PRIVACY, "privacy must not be given with jsam, got a section [privacy]"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[c[0] for c, _ in BAD])
def test_mistakes_are_named(make, changes, message):
    with pytest.raises(InvalidValue) as refused:
        make(*JSAM, *changes)
    assert str(refused.value).startswith(message)


def test_one_way_of_saying_how_much_must_be_given(make):
    with pytest.raises(InvalidValue, match=r"^jsam\.eta or budget or expected_budget is required, such"):
        make(JSAM[0], *JSAM[2:])


UNFIT = [
    (["jsam.delta=2"], "jsam.delta must be between 0 and 1, ends excluded, got 2.0"),
    (["jsam.scheme=cheapest", "jsam.members=9"], "jsam.members must be at most the number of clients, 4, "),
]


@pytest.mark.parametrize(("changes", "message"), UNFIT, ids=[c[0] for c, _ in UNFIT])
def test_what_only_the_data_can_tell_is_refused(make, small, changes, message):
    with pytest.raises(InvalidValue) as refused:
        prepare.prepare(make(*JSAM, *changes), dataset=small)
    assert str(refused.value).startswith(message)


def test_losses_that_are_all_alike_choose_nobody(make, small):
    changes = ("jsam.scheme=largest losses", "jsam.clear_losses=true", "jsam.members=2")
    with pytest.raises(InvalidValue) as refused:
        training.train(prepare.prepare(make(*JSAM, *changes), dataset=small))
    message = "jsam.scheme must not be this one: all clients have the same local loss, got 'largest losses'"
    assert str(refused.value) == message


def test_what_training_leaves_open_stays_open_in_the_file(make):
    made = make(*JSAM)
    assert (made.training.steps, made.training.epochs) == (None, None)
    assert (made.own.clients_per_round, made.own.delta, made.own.scheme) == (10, 1e-5, "jsam")
    assert make(*JSAM, "training.epochs=2").training.steps is None
    again = config.from_tables(tomllib.loads(config.to_toml(made)))
    assert config.to_tables(again) == config.to_tables(made)


SCHEMES = [
    ["jsam.scheme=jsam"],
    ["jsam.scheme=unbiased", "training.steps=", "training.epochs=1", "training.batch_size=8"],
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
    made = prepare.prepare(make(*JSAM, *MORE, *changes, f"jsam.noise={noise}"), dataset=small, module=own)
    result = training.train(made, tmp_path / "run")
    records, facts = folder.read_rounds(tmp_path / "run"), result.statement.facts
    ledger = Ledger(
        tuple(
            Release(int(client), record["round"], *rest)
            for record in records
            for client, *rest in record["releases"]
        )
    )
    participants = [int(name) for record in records for name in record["participants"]]
    drawn = np.bincount(participants, minlength=4)
    assert facts["times_drawn"] == drawn.tolist()
    assert all(len(r["participants"]) == 3 for r in records)
    for client in range(4):
        row = result.statement.row(str(client))
        said, sold = row["epsilon"], row["epsilon_sold"]
        assert sold == facts["epsilon_sold"][client]
        assert row["participations"] == drawn[client]
        assert said <= sold
        assert math.isclose(said, ledger.epsilon(client, 1e-5), rel_tol=1e-9, abs_tol=0)
        assert said == 0 if drawn[client] == 0 else said > sold * (1 - aside)
        releases = [r for r in ledger.releases if r.client == client]
        assert sum(r.times for r in releases) == drawn[client]  # a record is in one step of a pass
        steps = 4 if "training.epochs=1" in changes else 1
        assert sum(r.steps for r in releases) == steps * drawn[client]
        assert facts["payment"][client] >= row["cost"] * sold * (1 - 1e-12)
        assert float(row["amount"]) >= row["cost"] * sold * (1 - 1e-12)
    assert 1 - aside < facts["largest_epsilon_ratio"] <= 1
    assert [r["spend"] for r in records] == [0, 0, 0, 0, result.statement.total]
    assert result.summary["spend"] == records[-1]["spend"] <= 20
    assert abs(result.statement.total - math.fsum(facts["payment"])) <= 0.04
    assert facts["clients_selected"] == sum(p > 0 for p in facts["selection"])
    assert all(finding.holds for finding in result.findings)
    assert [finding.claim for finding in result.findings] == [
        "privacy", "stated costs are covered", "budget",
    ]  # fmt: skip
    asked = any("in clear" in note for note in result.statement.notes)
    assert asked == ("jsam.scheme=largest losses" in changes)


def test_the_weight_may_be_given_or_follow_from_the_prior(make, small):
    def plan(change):
        changes = [change if word.startswith("jsam.budget") else word for word in (*JSAM, *MORE)]
        return prepare.prepare(make(*changes), dataset=small).agreement.terms.settlement.allocation

    assert plan("jsam.eta=7").eta == 7
    assert plan("jsam.expected_budget=20").eta != plan("jsam.budget=20").eta


def test_a_hard_budget_keeps_something_for_rounding(make, small):
    words = (*JSAM, *MORE, "jsam.budget=0.03")
    with pytest.raises(InvalidValue) as refused:
        prepare.prepare(make(*words), dataset=small)
    rule = "must exceed 0.04, the most that rounding to 2 decimals adds"
    assert str(refused.value) == f"jsam.budget {rule}, got 0.03"
    made = prepare.prepare(make(*words, "jsam.decimals=5"), dataset=small)
    assert 0.029 < made.agreement.terms.spend <= 0.03


def test_the_noise_scale_is_made_of_what_the_run_knows(make, small, tmp_path):
    ways = ["jsam.noise_scale=", "jsam.smoothness=0.5"]
    made = prepare.prepare(make(*JSAM, *MORE, *ways), dataset=small)
    rules, members = made.mechanism.rules, made.agreement.members
    records = min(30, *members.sizes.tolist())
    assert rules.noise.records == records
    assert rules.noise_scale == noise_scale(1e-5, made.program.size, 5, 0.5, records)
    facts = training.train(made, tmp_path / "run").statement.facts
    assert (facts["noise_scale"], facts["records_per_release"]) == (rules.noise_scale, records)
    more = prepare.prepare(make(*JSAM, *MORE, *ways, "training.steps=4"), dataset=small)  # T: 4 x 5
    assert more.mechanism.rules.noise_scale == noise_scale(1e-5, made.program.size, 20, 0.5, records)


@pytest.mark.parametrize("cap", ["3", "[1, 2, 3, 4]"])
def test_nobody_sells_more_than_the_cap(make, small, tmp_path, cap):
    words = [*JSAM, *MORE, f"jsam.max_epsilon={cap}", "jsam.budget=", "jsam.eta=50"]
    made = make(*words)
    again = config.from_tables(tomllib.loads(config.to_toml(made)))
    assert config.to_tables(again) == config.to_tables(made)
    statement = training.train(prepare.prepare(made, dataset=small), tmp_path / "run").statement
    caps = np.broadcast_to(tomllib.loads(f"cap = {cap}")["cap"], 4)
    assert np.all(np.array(statement.columns["epsilon_sold"]) <= caps)
    assert np.any(np.array(statement.columns["epsilon_sold"]) == caps)
    assert not any("hardly a promise" in note for note in statement.notes)


def test_selling_more_than_ten_is_said(make, small, tmp_path):
    dear = training.train(
        prepare.prepare(make(*JSAM, *MORE, "jsam.budget=300"), dataset=small), tmp_path / "run"
    ).statement
    assert max(dear.columns["epsilon_sold"]) > 10
    assert any("hardly a promise of privacy" in note for note in dear.notes)


@pytest.mark.usefixtures("one_secret")
def test_a_run_cut_short_ends_with_the_same_bits(make, small, tmp_path):
    made = prepare.prepare(make(*JSAM, *MORE, "run.checkpoint_every=2"), dataset=small)
    whole = training.train(made, tmp_path / "whole")

    class Stopped(Exception):
        pass

    def stop(record):
        if record.round == 3:
            raise Stopped

    with pytest.raises(Stopped):
        training.train(made, tmp_path / "cut", on_round=stop)
    again = config.read(tmp_path / "cut" / "config.toml")
    resumed = training.train(prepare.prepare(again, dataset=small), tmp_path / "cut", resume=True)
    renamed = {**whole.statement.to_json(), "run": "cut"}
    assert {**resumed.summary, "seconds": 0} == {**whole.summary, "seconds": 0, "statement": renamed}
    one, other = (folder.read_checkpoint(tmp_path / name).state for name in ("whole", "cut"))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    row = listing.overview(tmp_path / "cut")
    assert (row["scheme"], row["spend"]) == ("jsam", whole.summary["spend"])
    assert row["curves"]["spend"] == [0, 0, 0, 0, whole.summary["spend"]]


@pytest.mark.usefixtures("one_secret")
def test_a_growing_loss_is_told(make, small):
    words = ("jsam.budget=0.01", "jsam.decimals=6", "training.rounds=40", "jsam.noise=reproducible")
    made = prepare.prepare(make(*JSAM, *MORE, *words), dataset=small)
    _, first, note = training.train(made).statement.notes
    assert first == "a hard budget depends on the reports, so that exact truthfulness is lost"
    assert note.startswith("the test loss grew from ")  # the other is nobody's to tell
    assert note.endswith("the learning rate may be too large for this noise")


def by_losses(make, small, seed):
    torch.manual_seed(seed)
    own = torch.nn.Sequential(torch.nn.Linear(6, 3))
    changes = ("jsam.scheme=largest losses", "jsam.clear_losses=true", "jsam.members=2")
    words = (*JSAM, *MORE, *changes, "run.checkpoint_every=2")
    return prepare.prepare(make(*words), dataset=small, module=own)


def test_clients_with_the_largest_losses_of_the_first_model_are_chosen(make, small, tmp_path):
    made = by_losses(make, small, 0)
    weights = torch.from_numpy(made.start)
    losses = [
        evaluate(made.program, weights, Samples(*(column[part] for column in samples)))[0]
        for samples in [(made.clients.samples.features, made.clients.samples.labels)]
        for part in made.clients.parts
    ]
    statement = training.train(made, tmp_path / "run").statement
    selected = np.flatnonzero(statement.columns["selection"])
    assert sorted(selected) == sorted(np.argsort(losses)[-2:])


@pytest.mark.usefixtures("one_secret")
def test_losses_that_were_told_are_not_asked_again(make, small, tmp_path):
    whole = training.train(by_losses(make, small, 0), tmp_path / "whole")

    class Stopped(Exception):
        pass

    def stop(record):
        if record.round == 3:
            raise Stopped

    with pytest.raises(Stopped):
        training.train(by_losses(make, small, 0), tmp_path / "cut", on_round=stop)
    resumed = training.train(by_losses(make, small, 0), tmp_path / "cut", resume=True)
    assert resumed.statement.facts == whole.statement.facts
    assert resumed.summary["test_loss"] == whole.summary["test_loss"]


CONTRACTED = ("jsam.budget=", "jsam.eta=40")


def test_a_run_is_under_the_contract_that_it_would_publish(make, small):
    made = prepare.prepare(make(*JSAM, *MORE, *CONTRACTED), dataset=small)
    contract = made.agreement.contract
    assert contract.digest == made.mechanism.contract.digest
    assert made.agreement.terms.digest == contract.digest
    again = prepare.prepare(make(*JSAM, *MORE, *CONTRACTED), dataset=small, contract=contract)
    assert again.agreement.contract.digest == contract.digest
    assert again.agreement.terms.to_json() == made.agreement.terms.to_json()


@pytest.mark.parametrize(
    "way",
    [
        "jsam.noise_scale=1",
        "jsam.smoothness=0.5",
        pytest.param("jsam.max_epsilon=[1, 2, 3, 4]", marks=pytest.mark.deep),
    ],
)
def test_the_table_of_a_contract_makes_the_same_contract(make, small, way):
    scale = ["jsam.noise_scale="] if "smoothness" in way else []
    words = [*JSAM, *MORE, *scale, way, "jsam.budget=", "jsam.expected_budget=2"]
    contract = prepare.prepare(make(*words), dataset=small).agreement.contract
    tables = {**TABLES, "jsam": contract.table(), "training": {**TABLES["training"], "batch_size": 30}}
    again = config.from_tables(tomllib.loads(config.to_toml(config.from_tables(tables))))
    assert prepare.prepare(again, dataset=small).agreement.contract.digest == contract.digest


@pytest.mark.parametrize(("eta", "broken"), [("", False), ("200", True)])
def test_a_weight_that_buys_for_more_than_the_budget_breaks_its_promise(make, small, tmp_path, eta, broken):
    words = [*JSAM, *MORE, "jsam.budget=", "jsam.expected_budget=2", f"jsam.eta={eta}"]
    statement = training.train(prepare.prepare(make(*words), dataset=small), tmp_path / "run").statement
    (finding,) = [each for each in statement.findings if each.claim == "budget"]
    assert ("the contract itself expects to spend" in finding.text) == broken
    assert (finding.holds is False) == broken


def test_a_published_contract_with_reports_by_name(make, small, tmp_path):
    contract = JsamContract(
        4, Uniform(0, 1), 40.0, 1.0, 5, 1.0, clients_per_round=3, max_epsilon={
            "ada": 1.0, "ben": 2.0, "cleo": 3.0, "dora": 4.0,
        },
    )  # fmt: skip
    reports = {"dora": 0.7, "ada": 0.2, "cleo": 0.4, "ben": 0.1}
    plain = [word for word in (*JSAM, *MORE) if "prior" in word or "clip" in word or "batch" in word]
    words = (*plain, "jsam.noise_scale=1", "jsam.eta=40", "jsam.clients_per_round=3")
    made = prepare.prepare(make(*words), dataset=small, contract=contract, reports=reports)
    result = training.train(made, tmp_path / "run")
    assert set(result.statement.clients) == set(reports)
    terms = contract.settle(reports)
    for name, epsilon in zip(terms.clients, terms.epsilon, strict=True):
        assert result.statement.row(name)["epsilon_sold"] == epsilon
    late = make(*words, "training.rounds=6")
    with pytest.raises(
        InvalidValue, match=r"^training\.rounds must be 5, as in the published contract, got 6"
    ):
        prepare.prepare(late, dataset=small, contract=contract, reports=reports)


def test_verifiable_coins_of_a_run(make, small, tmp_path):
    words = (*JSAM, *MORE, *CONTRACTED, "jsam.coins=verifiable")
    result = training.train(prepare.prepare(make(*words), dataset=small), tmp_path / "run")
    findings = verify_run(tmp_path / "run")
    assert [finding for finding in findings if not finding.holds] == []
    assert result.summary["spend"] == result.statement.total
    with pytest.raises(InvalidValue, match=r"^jsam\.coins must be \"seed\" with a hard budget"):
        make(*JSAM, "jsam.coins=verifiable")


@pytest.mark.parametrize(
    "words",
    [
        ("jsam.noise_scale=", "jsam.smoothness=0.5"),
        ("jsam.budget=", "jsam.expected_budget=2"),
        ("jsam.noise_scale=", "jsam.smoothness=0.5", "jsam.max_epsilon=[1, 2, 3, 4]"),
        ("jsam.scheme=cheapest", "jsam.members=2"),
    ],
    ids=["smoothness", "expected budget", "caps", "cheapest"],
)
def test_the_config_of_a_run_states_what_its_contract_does(make, small, tmp_path, words):
    weight = () if "jsam.expected_budget=2" in words else CONTRACTED
    chosen = make(*JSAM, *MORE, *weight, *words, "jsam.coins=verifiable")
    training.train(prepare.prepare(chosen, dataset=small), tmp_path / "run")
    assert [str(finding) for finding in verify_run(tmp_path / "run") if not finding.holds] == []
    again = config.read(tmp_path / "run" / folder.CONFIG)
    assert prepare.prepare(again, dataset=small).config == prepare.prepare(chosen, dataset=small).config


def test_a_resumed_run_notes_that_clients_average_different_numbers_of_records(make, small):
    words = (*JSAM, *MORE, *CONTRACTED, "jsam.noise_scale=", "jsam.smoothness=0.5")
    uneven = ("partition.kind=quantity_dirichlet", "partition.beta=5", "training.batch_size=200")
    made = prepare.prepare(make(*words, *uneven), dataset=small)
    assert made.mechanism.rules.unequal is not None
    again = prepare.prepare(made.config, dataset=small)
    assert again.mechanism.rules.unequal == made.mechanism.rules.unequal
    assert again.agreement.contract.digest == made.agreement.contract.digest


SECRET = bytes(range(32))


def published(**changes):
    return JsamContract(4, Uniform(0, 1), 40.0, 1.0, 5, 1.0, clients_per_round=3, **changes)


def test_a_contract_that_commits_to_coins_is_trained_with_them(make, small, tmp_path):
    contract = published(coin_commitment=commit(SECRET))
    chosen = prepare.under({**TABLES, "jsam": {"noise": "reproducible"}}, contract)
    made = prepare.prepare(chosen, dataset=small, contract=contract)
    with pytest.raises(InvalidValue, match=r"^secret of the coins is required: the contract commits"):
        training.train(made, tmp_path / "none")
    training.train(made, tmp_path / "run", secret=SECRET)
    assert (tmp_path / "run" / folder.CONTRACT).read_bytes() == contract.content
    assert (tmp_path / "run" / folder.COINS).is_file()
    assert [str(finding) for finding in verify_run(tmp_path / "run") if not finding.holds] == []


def test_coins_other_than_those_of_the_published_contract_are_refused(make, small, tmp_path):
    plain, committed = published(), published(coin_commitment=commit(SECRET))
    for contract, coins, due in ((plain, "verifiable", "seed"), (committed, "seed", "verifiable")):
        message = rf"^jsam\.coins must be as in the published contract, '{due}', got '{coins}'"
        with pytest.raises(InvalidValue, match=message):
            prepare.under({**TABLES, "jsam": {"coins": coins}}, contract)
        chosen = config.from_tables({**TABLES, "jsam": {**contract.table(), "coins": coins}})
        with pytest.raises(InvalidValue, match=message):  # also where the two were put together by hand
            prepare.prepare(replace(chosen, contract=contract), dataset=small)
    made = prepare.prepare(prepare.under(TABLES, plain), dataset=small)
    with pytest.raises(InvalidValue, match=r"^secret of the coins must be left out: .* got 32 bytes"):
        training.train(made, tmp_path / "run", secret=SECRET)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_epsilon", 2.0),
        ("expected_budget", 5.0),
        ("budget", 5.0),
        ("smoothness", 0.5),
        ("members", 2),
    ],
)
def test_what_the_published_contract_does_not_have_the_config_must_not_have(key, value):
    with pytest.raises(InvalidValue) as refused:
        prepare.under({**TABLES, "jsam": {key: value}}, published())
    assert str(refused.value) == f"jsam.{key} must be left out, as in the published contract, got {value!r}"


def test_a_config_may_repeat_the_published_contract_in_other_words():
    own = {"prior": "uniform:0,1", "eta": 40, "noise_scale": 1, "clip": 1, "max_epsilon": {"0": 1}}
    each = dict.fromkeys("0123", 2)
    made = prepare.under({**TABLES, "jsam": {**own, "max_epsilon": each}}, published(max_epsilon=each))
    assert made.own.eta == 40.0
    with pytest.raises(InvalidValue, match=r"^jsam\.max_epsilon must be as in the published contract"):
        prepare.under({**TABLES, "jsam": own}, published(max_epsilon=each))
