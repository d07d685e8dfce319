"""What [training] of a private run leaves open: batch, steps and rate by (11.1) to (11.4)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.theorems.strategies import fewer

from bonafed import InvalidValue
from bonafed.learning.federation import Roster
from bonafed.learning.privacy import noise_multiplier
from bonafed.learning.work import record_steps, step_count
from bonafed.mechanisms import catalogue
from bonafed.runs import config, folder, integrity, prepare, training

DIGITS = {
    "data": {"name": "digits", "classes": 10},
    "partition": {"kind": "iid"},
    "model": {"name": "softmax"},
}
PRIVATE = {
    "fedavg": {"privacy": {"clip": 1.0, "epsilon": 2.5, "delta": 1e-5}},
    "sampling": {
        "privacy": {"clip": 1.0, "epsilon": 2.5, "delta": 1e-5},
        "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 40},
    },
    "jsam": {
        "jsam": {
            "prior": "uniform:0,4",
            "clip": 1.0,
            "eta": 150,
            "smoothness": 0.5,
            "max_epsilon": 2.5,
        }
    },
}
OWN = {"fedavg": "privacy", "sampling": "privacy", "jsam": "jsam"}


def tables(mechanism, clients=5, noise_at="client", **trained):
    table = {
        **DIGITS,
        "partition": {"kind": "iid", "clients": clients},
        "training": {"rounds": 20, **trained},
    }
    own = {name: dict(values) for name, values in PRIVATE[mechanism].items()}
    own[OWN[mechanism]]["noise_at"] = noise_at
    return {**table, **own}


def roster(sizes):
    return Roster(tuple(f"c{k}" for k in range(len(sizes))), np.array(sizes), (64,), 10)


def made(table, sizes, parameters=650):
    read = config.from_tables(table)
    members = roster(sizes)
    mechanism = catalogue.entry(read.mechanism).load().make(read, members, parameters)
    costs = dict.fromkeys(members.names, 1.0) if mechanism.question is not None else {}
    return mechanism, mechanism.agree(members, costs)


SIZES = st.lists(st.integers(20, 400), min_size=2, max_size=6)
STATED = st.fixed_dictionaries(
    {},
    optional={
        "batch_size": st.integers(1, 500), "learning_rate": st.floats(0.01, 9),
        "steps": st.integers(1, 9), "learning_rate_decay": st.floats(0.8, 1),
    },
)  # fmt: skip


@pytest.mark.parametrize("mechanism", PRIVATE)
@fewer(0.25)
@given(sizes=SIZES, stated=STATED, rounds=st.integers(1, 200))
def test_what_is_stated_wins_and_the_rest_is_by_the_rule(mechanism, sizes, stated, rounds):
    agreed_by, agreement = made(tables(mechanism, len(sizes), **{**stated, "rounds": rounds}), sizes)
    spec, most = agreed_by.local_training(1, agreement), max(sizes)
    chosen = agreed_by.chosen(agreement)
    said = {} if chosen is None else chosen.to_json()
    assert not stated.keys() & said.keys()
    assert spec.batch_size == stated.get("batch_size", most)  # (11.2)
    if "steps" in stated:
        assert spec.steps == stated["steps"]
    else:  # (11.3), in passes where a batch is less than all
        assert 1 <= (spec.steps or spec.epochs) <= 5
        assert all(record_steps(size, spec) == (spec.steps or spec.epochs) for size in sizes)
    if "learning_rate" in stated:
        assert spec.learning_rate == stated["learning_rate"]
        return
    assert spec.learning_rate <= 4 * (1 + 1e-12)  # (11.4)
    promise = agreed_by.rules.promise(agreement)
    weights = expected(mechanism, agreed_by, agreement)
    squares = [
        0.0 if not p or not e else (p * 2 * noise_multiplier(e, 1e-5)) ** 2 / counted(n, spec)
        for p, e, n in zip(weights, promise.epsilon.tolist(), sizes, strict=True)
    ]
    a = math.sqrt(650 * sum(squares))
    assert chosen.share == pytest.approx(a, rel=1e-9)
    assert chosen.dwarfed == (a > 1 / 3)
    assert ("hides most of what can be learned" in str(chosen)) == chosen.dwarfed
    steps = max(step_count(size, spec) for size in sizes)
    run = steps * sum(stated.get("learning_rate_decay", 1.0) ** r for r in range(rounds))
    assert spec.learning_rate == pytest.approx(min(4, 10 / (a * run)) if a else 4, rel=1e-9)


def counted(n, spec):
    """n^2 of all records, n d of whole passes: squared way over the squared noise of the steps."""
    steps, d = step_count(n, spec), min(n, spec.batch_size)
    return steps**2 / (steps * record_steps(n, spec) / d**2)


def expected(mechanism, agreed_by, agreement):
    """p_k, by the mechanism's own book."""
    if mechanism == "jsam":
        return agreement.terms.selection.tolist()
    sizes = agreement.members.sizes
    if mechanism == "fedavg":
        return (sizes / sizes.sum()).tolist()
    q = np.array(agreement.terms.lottery.chances)
    return ((q > 0) / q.size).tolist()


@pytest.mark.parametrize("mechanism", ["fedavg", "jsam"])
def test_a_sum_has_one_step(mechanism):
    agreed_by, agreement = made(tables(mechanism, 5, "sum"), [3000] * 5)
    assert agreed_by.chosen(agreement).steps == 1
    assert agreed_by.local_training(1, agreement).batch_size == 3000
    own, terms = made(tables(mechanism, 5, "client"), [3000] * 5)
    assert own.chosen(terms).steps > 1


def test_steps_do_not_depend_on_reports_and_the_rate_does():
    read = config.from_tables(tables("jsam"))
    members, make = roster([288] * 5), catalogue.entry("jsam").load().make
    seen = []
    for costs in ([0.1, 0.2, 0.3, 0.4, 0.5], [3.5, 3.6, 3.7, 3.8, 3.9]):
        mechanism = make(read, members, 650)
        agreement = mechanism.agree(members, dict(zip(members.names, costs, strict=True)))
        seen.append(mechanism.chosen(agreement))
    assert {(each.batch_size, each.steps) for each in seen} == {(288, 1)}
    assert seen[0].share < seen[1].share
    assert seen[0].learning_rate >= seen[1].learning_rate


def test_every_step_is_a_release():
    """T_k = draws times E: the noise of five steps a round is calibrated for all of them."""
    agreed_by, agreement = made(tables("jsam", 20), [3000] * 20, 7850)
    assert agreed_by.chosen(agreement).steps == 5
    state = agreed_by.begin(agreement, np.zeros(7850))
    drawn = np.zeros(20, dtype=int)
    for number in range(1, 21):
        np.add.at(drawn, agreed_by.rules.participation(agreement, number).clients, 1)
    sold = agreement.terms.epsilon
    for k in np.flatnonzero(drawn).tolist():
        due = noise_multiplier(float(sold[k]), 1e-5, 5 * int(drawn[k]))
        assert state.noise_multipliers[k] == pytest.approx(due, rel=1e-2)  # something for arithmetic
        assert state.noise_multipliers[k] >= due


def test_a_weight_that_says_nothing_of_money_has_one_step():
    table = tables("jsam", 20)
    del table["jsam"]["max_epsilon"]
    agreed_by, agreement = made(table, [3000] * 20, 7850)
    assert agreed_by.chosen(agreement).steps == 1


def test_a_contract_says_how_many_steps_it_counts_with():
    own = {
        **PRIVATE["jsam"]["jsam"],
        "noise_scale": {"dimension": 7850, "smoothness": 0.5, "records": 3000, "steps": 3, "passes": 3},
    }
    del own["smoothness"]
    agreed_by, agreement = made({**tables("jsam", 20), "jsam": own}, [3000] * 20, 7850)
    assert agreed_by.chosen(agreement).steps == 3
    assert agreed_by.rules.differs is None


def test_without_noise_values_are_fixed_and_written_out():
    read = config.from_tables(
        {**DIGITS, "partition": {"kind": "iid", "clients": 3}, "training": {"rounds": 2}}
    )
    assert (read.local.batch_size, read.local.epochs, read.local.learning_rate) == (32, 1, 0.1)
    assert config.to_tables(read)["training"]["batch_size"] == 32
    mechanism = catalogue.entry("fedavg").load().make(read, roster([9, 9, 9]), 650)
    assert mechanism.chosen(mechanism.agree(roster([9, 9, 9]), {})) is None


@pytest.mark.parametrize("key", ["optimizer", "server_optimizer"])
def test_the_rate_of_another_optimizer_is_to_be_stated(key):
    with pytest.raises(
        InvalidValue, match="learning_rate is required unless optimizer and server_optimizer"
    ):
        config.from_tables(tables("fedavg", **{key: "momentum"}))


def test_a_run_says_keeps_and_repeats_what_it_chose(tmp_path):
    table = tables("jsam")
    table["training"]["rounds"], table["run"] = 3, {"cores": 1, "evaluate_every": 3}
    prepared = prepare.prepare(config.from_tables(table))
    (note,) = [text for text in prepared.notes if "leaves out" in text]
    assert note.startswith("what [training] leaves out is chosen for the noise: batches of all records, ")

    class Stopped(Exception):
        pass

    def stop(record):
        if record.round == 2:
            raise Stopped

    place = tmp_path / "run"
    with pytest.raises(Stopped):
        training.train(prepared, place, on_round=stop)
    kept = folder.read_json(place, folder.VERSIONS)["chosen"]
    assert kept == prepared.chosen
    assert {*kept} == {"batch_size", "steps", "learning_rate", "noise_share"}
    assert config.of_run(place).training.batch_size is None  # as it was stated
    again = prepare.prepare(config.of_run(place))
    assert again.chosen == kept
    result = training.train(again, place, resume=True)
    assert note in result.statement.notes
    assert {record["learning_rate"] for record in result.metrics} == {kept["learning_rate"]}


def test_a_run_that_would_choose_something_else_is_not_resumed(tmp_path):
    table = tables("fedavg")
    table["training"]["rounds"], table["run"] = 2, {"cores": 1}
    prepared = prepare.prepare(config.from_tables(table))
    place = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        training.train(prepared, place, on_round=interrupt)
    integrity.require_same_choice(prepared.chosen, place)
    other = {**prepared.chosen, "learning_rate": 0.3}
    with pytest.raises(InvalidValue, match=r"training\.learning_rate must be as it was when the run began"):
        integrity.require_same_choice(other, place)
    with pytest.raises(InvalidValue, match=r"training\.batch_size must be as it was when the run began"):
        integrity.require_same_choice({}, place)


def interrupt(_record):
    raise KeyboardInterrupt
