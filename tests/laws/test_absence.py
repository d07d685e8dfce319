"""Every mechanism of the catalogue, and the price lottery, with clients that do not answer.

Clients are reached by a function that leaves out answers by a script: one client in one round, in all, from
some round on, everybody in a round. Absence never ends a run of a mechanism that can do without; it is
named, and what was not delivered is not paid. Faithful learning needs every agent of its sums: there it is
named in the error, or left out for good.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from bonafed.contracts.terms import PaidTerms, Turns
from bonafed.errors import AskFailed, BadReport
from bonafed.learning.federation import Losses
from bonafed.learning.function_federation import FunctionFederation
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train
from tests.laws import protocol, worlds

PRIVATE = [("privacy", key, value) for key, value in {
    "clip": 1.0, "epsilon": 2.0, "delta": 1e-5, "noise": "reproducible",
}.items()]  # fmt: skip
LOSSES = [("jsam", key, value) for key, value in {
    "scheme": "largest losses", "members": 4, "clear_losses": True,
}.items()]  # fmt: skip
HALF = [("training", "participation", 0.5), ("training", "aggregation", "memory")]
PRIOR_FREE = [
    ("sampling", "scheme", "prior-free"),
    ("sampling", "highest", 1.5),
    ("sampling", "prior", None),
]
# every mechanism as its example has it, and the ways in which they differ in what absence does
CASES = {
    **{name: (name, ()) for name in worlds.all_names() if name != "faithful"},
    "fedavg, private": ("fedavg", PRIVATE),
    "fedavg, half of them, memory": ("fedavg", HALF),
    "sampling, sums only": ("sampling", [("training", "aggregation", "plain")]),
    "sampling, prior-free": ("sampling", PRIOR_FREE),
    "sampling, private": ("sampling", PRIVATE),
    "jsam, largest losses": ("jsam", LOSSES),
    "price-lottery, private": ("price-lottery", PRIVATE),
    "posted-price, private": ("posted-price", PRIVATE),
}


@pytest.fixture(autouse=True, scope="module")
def price_lottery():
    with worlds.registered():
        yield


def module():
    """A model that does not begin at 0, where all clients have the same loss."""
    linear = torch.nn.Linear(4, 3)
    with torch.no_grad():
        for weights in linear.parameters():
            weights.copy_(torch.linspace(-0.5, 0.7, weights.numel()).reshape(weights.shape).sin())
    return torch.nn.Sequential(torch.nn.Flatten(), linear)


@dataclass
class Script:
    """Clients of a setting, reached by a function; whom it does not reach, and in which exchanges."""

    made: object
    misses: object  # (number of the exchange, task) -> whether no answer comes
    exchanges: int = 0
    missed: list = field(default_factory=list)  # tasks

    def federation(self):
        clients = worlds.clients_of(self.made)

        def ask(tasks):
            self.exchanges += 1
            there = []
            for task in tasks:
                (self.missed if self.misses(self.exchanges, task) else there).append(task)
            return dict(clients.replies(worlds._sharing(there))) if there else {}

        def state(question):
            return self.made.clients.report(question)

        return FunctionFederation(clients.members, ask, state)


def run(case, misses, *changes):
    """A finished run on such clients, and the tasks of its rounds that were missed."""
    name, more = CASES.get(case, (case, ()))
    made = worlds.setting(name, *more, *changes, module=module())
    script = Script(made, misses)
    there = prepare(made.config, dataset=worlds.small(), module=module(), federation=script.federation())
    return there, train(there), script.missed


@cache
def busiest(case):
    """A client that takes part more often than others."""
    _, result, _ = run(case, lambda *_: False)
    turns = Counter(name for record in result.metrics for name in record["participants"])
    return max(sorted(turns), key=turns.get)


@cache
def first(case):
    """The first round, of its phase, that it is in."""
    _, result, _ = run(case, lambda *_: False)
    own = [record for record in result.metrics if not record["phase"]]
    return next(number for number, record in enumerate(own, 1) if busiest(case) in record["participants"])


def in_round(task, *numbers):
    return getattr(task.work, "round_number", None) in numbers


# whether no answer comes to a task; of the client in question, and the first round that it is in
SCRIPTS = {
    "one, once": lambda who, first, task: task.client == who and in_round(task, first),
    "one, for ever": lambda who, _, task: task.client == who,
    "one, but for its first round": lambda who, first, task: (
        task.client == who and not in_round(task, first)
    ),
    "everybody, once": lambda _, first, task: in_round(task, first),
    "everybody, in all rounds": lambda _, __, task: hasattr(task.work, "round_number"),
    "all but one, for ever": lambda who, _, task: task.client != who,
}


def missing(case, script):
    who, when = busiest(case), first(case)
    return lambda _number, task: SCRIPTS[script](who, when, task)


IMPOSSIBLE = ("jsam, largest losses", "all but one, for ever")  # there is nobody to choose


@pytest.mark.parametrize(("case", "script"), sorted({*product(CASES, SCRIPTS)} - {IMPOSSIBLE}))
def test_absence_is_skipped_named_and_not_paid(case, script):
    """Also with on_bad_update = "raise", the default, and where privacy is promised."""
    made, result, missed = run(case, missing(case, script))
    own = [record for record in result.metrics if not record["phase"]]
    assert len(own) == worlds.ROUNDS
    told = Counter(name for record in result.metrics for name in record["failed"])
    rounds = range(1, worlds.ROUNDS + 1)  # what follows them is asked for at home, as fine-tuning is
    assert told == Counter(task.client for task in missed if in_round(task, *rounds))
    assert all(not Counter(record["failed"]) - Counter(record["participants"]) for record in own)
    assert missed
    protocol.statement_adds_up(made, result)
    if script == "everybody, in all rounds":
        end = np.concatenate([values.ravel().numpy() for values in result.model.state_dict().values()])
        assert np.array_equal(made.start, end)
        assert any("the model is unchanged" in note for note in result.statement.notes)
        assert not any(record["releases"] for record in own)


PAYING = ("sampling", "jsam", "price-lottery", "posted-price", "auction")
PAID = [case for case, (name, _) in CASES.items() if name in PAYING]


@pytest.mark.parametrize("case", [case for case in PAID if "losses" not in case])
def test_who_never_delivers_is_paid_nothing_and_the_others_as_ever(case):
    who = busiest(case)
    _, whole, _ = run(case, lambda *_: False)
    there, result, missed = run(case, missing(case, "one, for ever"))
    before, after = whole.statement, result.statement
    place = after.clients.index(who)
    assert before.amounts[place] > 0 == after.amounts[place]
    assert after.row(who)["participations"] == 0
    assert after.row(who)["sampled"] == before.row(who)["participations"] == len(missed) > 0
    assert "sampled" not in before.columns
    for client, amount, other in zip(after.clients, after.amounts, before.amounts, strict=True):
        assert client == who or abs(amount - other) <= 1  # a cent by rounding
    if isinstance(there.agreement.terms, PaidTerms):
        drawn = np.array(before.columns["participations"])
        kept = np.where(np.array(after.clients) == who, 0, drawn)
        assert there.agreement.terms.amounts(Turns.of(kept, drawn)) == after.amounts


@pytest.mark.parametrize("case", PAID)
def test_unusable_answers_are_paid_where_nobody_may_be_told_and_not_elsewhere(case):
    """NaN is an answer: it is no delivery where that is seen, so that it does not pay to send it."""
    name, more = CASES[case]
    made = worlds.setting(name, *more, ("training", "on_bad_update", "skip"), module=module())
    who, clients = busiest(case), worlds.clients_of(made)

    def ask(tasks):
        answers = dict(clients.replies(worlds._sharing(tasks)))
        spoilt = [t for t in tasks if t.client == who and in_round(t, 1, 2, 3, 4)]
        return answers | {t.identifier: np.full(t.models.shape, np.nan) for t in spoilt}

    broken = FunctionFederation(clients.members, ask, lambda question: made.clients.report(question))
    result = train(prepare(made.config, dataset=worlds.small(), module=module(), federation=broken))
    row, told = result.statement.row(who), {n for record in result.metrics for n in record["failed"]}
    if made.config.noise is None:
        assert (float(row["amount"]), row["participations"], told) == (0, 0, {who})
        assert row["sampled"] > 0
    else:
        assert float(row["amount"]) > 0
        assert row["participations"] > 0
        assert "sampled" not in row
        assert told == set()


@pytest.mark.parametrize("case", CASES)
def test_where_nobody_is_absent_it_does_not_matter_how_clients_are_reached(case):
    name, more = CASES[case]
    made = worlds.setting(name, *more, module=module())
    _, result, _ = run(case, lambda *_: False)
    protocol.same_result(train(made), result, bits=made.mechanism.needs == "total")


def test_a_client_that_does_not_tell_its_loss_is_not_chosen():
    case = "jsam, largest losses"
    who = busiest(case)
    _, result, _ = run(case, lambda _, task: task.client == who and isinstance(task.work, Losses))
    assert result.statement.row(who)["epsilon_sold"] == 0
    assert sum(sold > 0 for sold in result.statement.columns["epsilon_sold"]) == 4
    with pytest.raises(AskFailed, match="1 of 6 told their loss, and 4 are to be chosen"):
        run(case, lambda _, task: task.client != who)


POLICY = ("faithful", "on_bad_report")


WHO = "cyd"


def exchange(*numbers):
    return lambda number, task: task.client == WHO and number in numbers


@pytest.mark.parametrize("variant", ["exchanges", "stepwise"])
@pytest.mark.parametrize("when", [1, 2, 5])
def test_faithful_names_an_agent_that_does_not_answer(variant, when):
    steps = [("faithful", "training_steps", 20)] if variant == "stepwise" else []
    with pytest.raises(BadReport, match=f"report of agent {WHO} in .* got nothing"):
        run("faithful", exchange(when), ("faithful", "variant", variant), *steps)


def test_faithful_goes_on_without_an_agent_that_does_not_answer():
    for when in range(1, 60):
        _, result, missed = run("faithful", exchange(when), (*POLICY, "leave out"))
        if not missed:  # after the last exchange
            break
        statement = result.statement
        left = [out["agent"] for out in statement.facts["left_out"]]
        if "losses" in missed[0].identifier or "alone" in missed[0].identifier:
            assert left == []  # it owes what it owes; only its losses are unknown
            continue
        assert left == [WHO], when  # though it comes back
        assert statement.amounts[statement.clients.index(WHO)] == 0
        assert any(WHO in note and "nothing" in note for note in statement.notes)
        assert sum(record["failed"].count(WHO) for record in result.metrics) == 1
    else:
        raise AssertionError("it never came to an end")
    assert when > 8  # training, payments and the way were all missed once


@pytest.mark.parametrize("variant", ["exchanges", "stepwise"])
def test_faithful_blames_nobody_if_nobody_answers_and_can_be_resumed(variant, tmp_path):
    steps = [("faithful", "training_steps", 20)] if variant == "stepwise" else []
    changes = [("faithful", "variant", variant), *steps, ("run", "checkpoint_every", 1)]
    made = worlds.setting("faithful", *changes)
    for policy in ("raise", "leave out"):
        lost = worlds.setting("faithful", *changes, (*POLICY, policy))
        script = Script(lost, lambda number, _: number == 6)
        clients = script.federation()
        there = prepare(lost.config, dataset=worlds.small(), federation=clients)
        place = tmp_path / policy / "run"
        with pytest.raises(AskFailed, match="nobody answered"):
            train(there, place)
        resumed = train(there, place, resume=True)
        assert resumed.statement.amounts == train(made).statement.amounts


ON_SUM = {
    "jsam": [("jsam", "noise_at", "sum"), ("jsam", "clients_per_round", None)],
    "fedavg": [
        *PRIVATE, ("privacy", "noise_at", "sum"), ("training", "epochs", None), ("training", "steps", 1)
    ],
}  # fmt: skip


def settings_that_miss(name, misses, *changes):
    """A setting whose clients are here, but for the answers that do not come."""
    made = worlds.setting(name, *changes)
    clients = worlds.Failing(worlds.clients_of(made), misses, absent=True)
    return prepare(made.config, dataset=worlds.small(), federation=clients)


@pytest.mark.parametrize("name", ON_SUM)
def test_with_noise_on_the_sum_who_was_absent_has_released_nothing(name):
    whole = train(worlds.setting(name, *ON_SUM[name]))
    made = settings_that_miss(name, lambda t: t.client == WHO and in_round(t, 1, 3), *ON_SUM[name])
    result = train(made)
    protocol.statement_adds_up(made, result)
    for record, other in zip(result.metrics, whole.metrics, strict=True):
        gone = [WHO] if record["round"] in (1, 3) else []
        assert record["participants"] == other["participants"]
        assert record["failed"] == gone
        assert [row[0] for row in record["releases"]] == [
            row[0] for row in other["releases"] if row[0] not in gone
        ]
    before, after = whole.statement, result.statement
    assert after.row(WHO)["epsilon"] < before.row(WHO)["epsilon"]
    if name == "jsam":
        terms = made.agreement.terms
        kept = [2 if client == WHO else worlds.ROUNDS for client in after.clients]
        assert after.amounts == terms.amounts(Turns.of(kept, [worlds.ROUNDS] * len(kept)))
        assert 0 < float(after.row(WHO)["amount"]) < float(before.row(WHO)["amount"])
        assert 0.5 < after.row(WHO)["share_given"] < 1  # of the epsilon, not of the rounds


FAITHFUL = [*PRIVATE, ("faithful", "training_steps", 4), ("faithful", "payment_steps", 4)]


@pytest.mark.parametrize("everybody", [False, True])
@pytest.mark.parametrize("where", ["training step 2", "payment step 3", "payments"])
def test_private_faithful_learning_waits_for_everybody(where, everybody, tmp_path):
    """Nothing that was released can be taken back; asked again, everybody answers with the same noise."""
    changes = [change for change in FAITHFUL if change[1] != "clip"] + [("run", "checkpoint_every", 1)]
    once = []

    def misses(task):
        if (everybody or task.client == WHO) and f"private {where}," in task.identifier and len(once) < 99:
            once.append(task)
            return True
        return False

    made, place = settings_that_miss("faithful", misses, *changes), tmp_path / "run"
    error = AskFailed if everybody else BadReport
    says = "nobody answered in" if everybody else f"agent {WHO} did not answer in private {where}.* resume"
    with pytest.raises(error, match=says):
        train(made, place)
    once += [None] * 99
    resumed = train(made, place, resume=True)
    protocol.same_result(train(worlds.setting("faithful", *changes)), resumed, bits=True)
