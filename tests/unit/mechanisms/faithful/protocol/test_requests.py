"""Agents that are asked: the protocol comes to what it comes to where the server holds the samples."""

import numpy as np
import pytest
from tests.oracles.asking import asked_problem

from bonafed.errors import BadReport, InvalidValue
from bonafed.learning.federation import Gradients, Objective, Task
from bonafed.mechanisms.faithful import (
    Aggregation,
    FederatedProblem,
    SoftmaxRegression,
    faithful,
    vcg_payments,
)
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules

AGENTS, CLASSES, MU = 4, 3, 0.1
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
RULES = {"variant": "stepwise", "training_steps": 60, "payment_steps": 10, "epsilon": 1e-6}


@pytest.fixture(scope="module")
def held():
    """The problem of a server that holds everybody's samples."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 3))
    x /= np.linalg.norm(x, axis=1).max()
    return SoftmaxRegression(x, rng.integers(0, CLASSES, 40), np.arange(40) % AGENTS, CLASSES, MU, WEIGHTS)


def remote(held, ask=None, **changes):
    """The same agents, each computing its own gradient; `ask` stands in for how they answer."""

    def honest(sent):
        return {k: held.gradient(w, np.tile(held.one(k), (len(w), 1))) for k, w in sent.items()}

    known = {"size": held.size, "regulariser": MU, "smoothness": held.smoothness}
    return asked_problem(ask(honest) if ask else honest, WEIGHTS, **{**known, **changes})


def test_asking_gives_the_model_and_payments_of_holding(held):
    there, here = (
        faithful(*remote(held), rules=ProtocolRules(**RULES)),
        faithful(held, rules=ProtocolRules(**RULES)),
    )
    assert there.model == pytest.approx(here.model, abs=1e-12)
    assert there.payments.amount == pytest.approx(here.payments.amount, abs=1e-12)
    assert there.payments.steps == here.payments.steps
    assert there.training_error == pytest.approx(here.training_error, rel=1e-6)
    assert np.isnan(there.losses).all()  # they stay with the agents
    exact = vcg_payments(held, there.model).amount
    assert (exact - there.payments.amount >= -there.integration_error).all()
    assert (exact - there.payments.amount <= RULES["epsilon"] + there.integration_error).all()


def test_all_agents_are_asked_at_once_and_nobody_for_its_own_payment(held):
    calls = []

    def noting(honest):
        def ask(sent):
            calls.append({k: models.shape for k, models in sent.items()})
            return honest(sent)

        return ask

    done = faithful(*remote(held, noting), rules=ProtocolRules(**{**RULES, "epsilon": 1e9}))
    everybody = dict.fromkeys(range(AGENTS), (1, held.size))
    others = dict.fromkeys(range(AGENTS), (AGENTS - 1, held.size))
    assert calls == [everybody] * 60 + [others] * (1 + done.payments.steps) + [everybody]


def test_a_lie_in_an_answer_is_a_lie_of_an_agent(held):
    def doubling(honest):
        return lambda sent: {k: g * (2.0 if k == 1 else 1.0) for k, g in honest(sent).items()}

    there = faithful(*remote(held, doubling), rules=ProtocolRules(**RULES))
    here = faithful(held, rules=ProtocolRules(**RULES), agents={1: cheats.amplify(2.0)})
    assert there.payments.amount == pytest.approx(here.payments.amount, abs=1e-12)


BAD = {
    "nothing": lambda g: None,
    r"no real numbers \(str\)": lambda g: "gradient",
    r"no real numbers \(list\)": lambda g: [["1.5"] * g.shape[1]],
    r"no real numbers \(complex128\)": lambda g: g + 1j,
    r"no real numbers \(bool\)": lambda g: g > 0,
    r"no real numbers \(ndarray\)": lambda g: g.astype(object),
    r"no numbers \(list\)": lambda g: [[1.0], [2.0, 3.0]],
    r"no answer \(TimeoutError: 30 s\)": lambda g: TimeoutError("30 s"),
    r"no answer \(ConnectionResetError\)": lambda g: ConnectionResetError(),
    r"shape \(9,\) instead of \(1, 9\)": lambda g: g[0],
    "NaN or inf": lambda g: np.where(np.arange(g.size) == 4, np.inf, g),
}


@pytest.mark.parametrize("what", BAD)
def test_answers_that_cannot_be_used_are_named(held, what):
    def broken(honest):
        return lambda sent: {k: BAD[what](g) if k == 2 else g for k, g in honest(sent).items()}

    with pytest.raises(BadReport, match=f"report of agent 2 in training step 1 .* got {what}"):
        faithful(*remote(held, broken), rules=ProtocolRules(**RULES))


def test_whoever_does_not_answer_can_be_left_out(held):
    steps = iter(range(10_000))

    def silent_later(honest):
        def ask(sent):
            gone = next(steps) >= 70 and 1 in sent
            return {k: g for k, g in honest(sent).items() if not (gone and k == 1)}

        return ask

    done = faithful(*remote(held, silent_later), rules=ProtocolRules(**RULES, on_bad_report="leave out"))
    assert [(out.agent, out.problem) for out in done.left_out] == [(1, "nothing")]
    assert done.left_out[0].where == "payment step 10"  # after 60 of training, and step 0 of the payments
    assert done.payments.amount[1] == 0
    assert (done.payments.amount[[0, 2, 3]] > 0).all()


def test_what_needs_samples_is_refused(held):
    problem, federation = remote(held)
    model = np.zeros((1, held.size))
    with pytest.raises(InvalidValue, match="federation is required where the problem holds no samples"):
        Aggregation(problem)
    work = Gradients(Objective(MU), clip=1.0)
    tasks = [Task(f"{k}", f"{k}", model, work) for k in range(AGENTS)]
    with pytest.raises(InvalidValue, match="noise must be 0"):
        federation.total(tasks, WEIGHTS, noise=1.0)


def test_bad_agreements_are_refused_by_name(held):
    cases = [
        ("size", {"size": 0}),
        ("regulariser", {"regulariser": 0.0}),
        ("smoothness", {"smoothness": -1.0}),
        ("smoothness", {"smoothness": MU / 2}),
    ]
    for name, changes in cases:
        with pytest.raises(InvalidValue) as caught:
            remote(held, **changes)
        assert caught.value.name == name
    with pytest.raises(InvalidValue, match="weights must sum to 1"):
        FederatedProblem([0.5, 0.6], size=1, regulariser=1.0, smoothness=1.0)
