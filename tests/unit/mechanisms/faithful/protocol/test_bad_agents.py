"""One agent cannot stop everybody: what it sends is checked where it enters, it is named, and left out."""

import time

import numpy as np
import pytest
import torch
from tests.oracles.asking import asked_problem
from tests.oracles.coalition import Coalition
from torch import nn

from bonafed.errors import AskFailed, BadReport, Diverged
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.problems.modules import ModuleProblem
from bonafed.mechanisms.faithful import SoftmaxRegression, faithful
from bonafed.mechanisms.faithful.accounts import accounts_of
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules

AGENTS, MU = 4, 0.1
RULES = {"variant": "stepwise", "training_steps": 60, "payment_steps": 10, "epsilon": 1e-5}
GOING_ON = {**RULES, "on_bad_report": "leave out"}


@pytest.fixture(scope="module")
def held():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 3))
    x /= np.linalg.norm(x, axis=1).max()
    return SoftmaxRegression(x, rng.integers(0, 3, 40), np.arange(40) % AGENTS, 3, MU)


def asked(held, ask=None, **changes):
    """The same agents, asked; `ask` makes another function of the honest one."""

    def honest(sent):
        return {k: held.gradient(w, np.tile(held.one(k), (len(w), 1))) for k, w in sent.items()}

    known = {"size": held.size, "regulariser": MU, "smoothness": held.smoothness}
    return asked_problem(ask(honest) if ask else honest, held.weights, **{**known, **changes})


def lying(agents):
    """An `ask` under which these agents send what they like."""

    def ask(honest):
        def answer(sent):
            said = honest(sent)
            return {k: agents[k](sent[k], g) if k in agents else g for k, g in said.items()}

        return answer

    return ask


LIES = {
    "alternates its factor": lambda: cheats.alternate(3.0),
    "alternates with zero": lambda: cheats.alternate(0.0),
    "sends 1e200": lambda: cheats.huge(1e200),
    "sends a constant 1e90": lambda: cheats.huge(1e90),
    "sends random numbers": lambda: cheats.random_numbers(0.3, np.random.default_rng(0)),
    "adds noise": lambda: cheats.add_noise(0.5, np.random.default_rng(0)),
    "sends complex numbers": lambda: lambda _w, g: g * (1 + 1j),
    "sends objects": lambda: lambda _w, g: g.astype(object),
    "sends text that could be parsed": lambda: lambda _w, g: [[str(x) for x in row] for row in g],
    "sends yes and no": lambda: lambda _w, g: g > 0,
    "sends NaN": lambda: lambda _w, g: g * np.nan,
    "sends nothing": lambda: lambda _w, g: None,
    "sends another shape": lambda: lambda _w, g: g[:, :-1],
    "times out": lambda: lambda _w, g: TimeoutError("no answer in 30 s"),
    "flips the sign": cheats.flip_sign,
    "drives away": lambda: cheats.amplify(50.0),
}
BOUND = {"gradient_bound": 2**0.5}


@pytest.mark.parametrize("how", ["held", "asked", "asked and bounded"])
@pytest.mark.parametrize("lie", LIES)
def test_whoever_sends_no_gradients_is_named_and_left_out_and_the_others_go_on(held, lie, how):
    agent = 2
    if how == "held":
        problem, agents = (held,), {agent: LIES[lie]()}
    else:
        bound = BOUND if "bounded" in how else {}
        problem, agents = asked(held, lying({agent: LIES[lie]()}), **bound), None
    before = time.perf_counter()
    done = faithful(*problem, rules=ProtocolRules(**GOING_ON), agents=agents)
    assert time.perf_counter() - before < 20  # no lie makes the bill for it endless
    assert [out.agent for out in done.left_out] == [agent]
    assert done.left_out[0].where in ("training step 1", "training step 2")
    alone = faithful(Coalition(held, [0, 1, 3]), rules=ProtocolRules(**RULES))
    np.testing.assert_allclose(done.model, alone.model, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(done.payments.amount[[0, 1, 3]], alone.payments.amount, rtol=1e-9)
    assert done.payments.amount[agent] == 0
    assert np.isfinite(done.left_out[0].due)


@pytest.mark.parametrize("lie", LIES)
def test_the_policy_to_raise_names_agent_step_and_reason(held, lie):
    with pytest.raises(
        BadReport, match=r"report of agent 2 in training step [12] must be a gradient"
    ) as bad:
        faithful(held, rules=ProtocolRules(**RULES), agents={2: LIES[lie]()})
    assert bad.value.agent == 2
    assert bad.value.problem


def test_an_agent_that_raises_a_timeout_itself_has_not_answered(held):
    def times_out(_models, _gradients):
        raise TimeoutError("late")

    done = faithful(held, rules=ProtocolRules(**GOING_ON), agents={1: times_out})
    assert done.left_out[0].problem == "no answer (TimeoutError: late)"


def test_several_are_left_out_one_after_the_other(held):
    agents = {0: cheats.alternate(3.0), 3: cheats.huge(1e200)}
    heard = []
    done = faithful(held, rules=ProtocolRules(**GOING_ON), agents=agents, on_left_out=heard.append)
    assert [out.agent for out in done.left_out] == [bad.agent for bad in heard] == [3, 0]
    alone = faithful(Coalition(held, [1, 2]), rules=ProtocolRules(**RULES))
    np.testing.assert_allclose(done.model, alone.model, rtol=1e-12)


def test_two_must_remain(held):
    agents = {k: cheats.huge(1e200) for k in range(3)}
    with pytest.raises(BadReport, match=r"agent 2 .*\(leaving it out would leave one agent alone"):
        faithful(held, rules=ProtocolRules(**GOING_ON), agents=agents)


class After:
    """Honest for so many requests, then something else."""

    def __init__(self, requests, lie):
        self._left, self._lie = requests, lie

    def __call__(self, models, gradients):
        self._left -= 1
        return gradients if self._left >= 0 else self._lie(models, gradients)


@pytest.mark.parametrize("lie", ["sends 1e200", "sends random numbers", "flips the sign"])
def test_whoever_begins_to_lie_in_the_payments_is_named_there(held, lie):
    steps = RULES["training_steps"]
    done = faithful(held, rules=ProtocolRules(**GOING_ON), agents={1: After(steps + 4, LIES[lie]())})
    (out,) = done.left_out
    assert (out.agent, out.where) == (1, "payment step 4")
    truth = faithful(held, rules=ProtocolRules(**RULES))
    assert out.due == pytest.approx(truth.payments.amount[1], abs=1e-4)  # it has seen the whole model


def test_whoever_reports_one_thing_in_training_and_another_in_payments_is_named(held):
    """Not a lie of size, only of data: agent 1 answers for agent 0 once training is over."""
    other = cheats.copy_of(held, 0)
    done = faithful(
        held, rules=ProtocolRules(**GOING_ON), agents={1: After(RULES["training_steps"], other)}
    )
    assert [(out.agent, out.where) for out in done.left_out] == [(1, "payment step 0")]


def test_whoever_is_somebody_else_after_a_restart_is_named(held):
    """Agent 0 falls silent at step 30; agent 1 has been honest, and goes on with the data of agent 2."""
    agents = {0: cheats.drop_out(29), 1: After(29, cheats.copy_of(held, 2))}
    done = faithful(held, rules=ProtocolRules(**GOING_ON), agents=agents)
    assert [(out.agent, out.where) for out in done.left_out] == [
        (0, "training step 30"),
        (1, "training step 1"),
    ]


def test_believing_every_number_is_still_to_be_had_and_names_nobody(held):
    agents = {2: cheats.random_numbers(1e90, np.random.default_rng(0))}
    with pytest.raises(Diverged, match=r"nobody is named, as reports are believed: check_reports"):
        faithful(
            held, rules=ProtocolRules(**GOING_ON, check_reports="numbers"), agents={2: cheats.amplify(1e4)}
        )
    free = faithful(
        held, rules=ProtocolRules(**RULES, check_reports="numbers"), agents={2: cheats.free_ride()}
    )
    assert free.left_out == ()
    assert free.payments.amount[2] == pytest.approx(0, abs=1e-4)
    named = faithful(held, rules=ProtocolRules(**GOING_ON), agents=agents)
    assert [out.agent for out in named.left_out] == [2]


def test_the_statement_tells_what_was_done(held):
    done = faithful(held, rules=ProtocolRules(**GOING_ON), agents={2: cheats.alternate(3.0)})
    said = accounts_of(held, done, epsilon=1e-3, cheating=[2])
    assert said.payment[2] == 0
    assert [check.holds for check in said.checks] == [True] * 4
    assert said.overall[2] == pytest.approx(said.others[2])  # it has the others' model


BROKEN = {
    "None": (lambda honest: lambda sent: None, "must return a mapping of answers by task, got NoneType"),
    "a list": (
        lambda honest: lambda sent: list(honest(sent).values()),
        "must return a mapping of answers by task, got list",
    ),
    "unknown agents": (
        lambda honest: lambda sent: {**honest(sent), 9: 0.0},
        "must answer tasks it was handed, got 9",
    ),
    "names as text": (
        lambda honest: lambda sent: {str(k): g for k, g in honest(sent).items()},
        "must answer tasks it was handed, got '0', '1', '2', '3'",
    ),
}


@pytest.mark.parametrize("policy", ["raise", "leave out"])
@pytest.mark.parametrize("what", BROKEN)
def test_an_ask_that_answers_nonsense_ends_clearly_and_blames_nobody(held, what, policy):
    ask, reason = BROKEN[what]
    with pytest.raises(AskFailed, match=f"asking the agents failed in training step 1, .* ask {reason}"):
        faithful(*asked(held, ask), rules=ProtocolRules(**RULES, on_bad_report=policy))


def failing(error, call):
    """An `ask` that raises at this call, and only then."""
    calls = iter(range(10**6))

    def ask(honest):
        def answer(sent):
            if next(calls) == call:
                raise error
            return honest(sent)

        return answer

    return ask


@pytest.mark.parametrize("policy", ["raise", "leave out"])
@pytest.mark.parametrize(
    "error", [TimeoutError("30 s"), ConnectionResetError(), OSError(101, "unreachable")]
)
@pytest.mark.parametrize(
    ("call", "where", "steps"),
    [(0, "training step 1", 0), (17, "training step 18", 17), (63, "payment step 3", 60)],
)
def test_an_ask_that_fails_keeps_what_was_reached_and_can_be_gone_on_with(
    held, error, policy, call, where, steps
):
    problem = asked(held, failing(error, call))
    with pytest.raises(AskFailed, match=f"in {where}, after {steps} steps of training: ") as failed:
        faithful(*problem, rules=ProtocolRules(**RULES, on_bad_report=policy))
    assert failed.value.__cause__ is error
    assert (failed.value.where, failed.value.steps, failed.value.left_out) == (where, steps, ())
    left = {**RULES, "training_steps": RULES["training_steps"] - steps}
    again, whole = (
        faithful(*problem, rules=ProtocolRules(**left), start=failed.value.model),
        faithful(*asked(held), rules=ProtocolRules(**RULES)),
    )
    assert np.array_equal(again.model, whole.model)
    assert np.array_equal(again.payments.amount, whole.payments.amount)


def test_an_ask_that_fails_says_who_was_left_out_before(held):
    silent = {1: lambda _w, _g: None}
    problem = asked(held, lambda honest: failing(TimeoutError(), 5)(lying(silent)(honest)))
    with pytest.raises(AskFailed, match="TimeoutError") as failed:
        faithful(*problem, rules=ProtocolRules(**GOING_ON))
    assert (failed.value.left_out, failed.value.steps) == ((1,), 4)


def test_an_error_of_the_callers_own_is_not_hidden(held):
    def broken(_honest):
        return lambda sent: {}["missing"]

    with pytest.raises(KeyError):
        faithful(*asked(held, broken), rules=ProtocolRules(**RULES))


def test_what_an_agent_sent_cannot_be_changed_afterwards(held):
    """Buffers that are used again, as by a network: what was checked is what is remembered."""
    buffers = {}

    def reusing(honest):
        def ask(sent):
            said = honest(sent)
            for k, g in said.items():
                if buffers.setdefault(k, g).shape == g.shape:
                    buffers[k][...] = g
                else:
                    buffers[k] = g
            return {k: buffers[k] for k in sent}

        return ask

    done, whole = (
        faithful(*asked(held, reusing), rules=ProtocolRules(**RULES)),
        faithful(*asked(held), rules=ProtocolRules(**RULES)),
    )
    assert np.array_equal(done.model, whole.model)
    assert np.array_equal(done.payments.amount, whole.payments.amount)


@pytest.fixture
def network():
    """A problem that is not convex."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    samples = Samples(torch.randn(24, 3), torch.randint(0, 2, (24,)))
    return ModuleProblem(module, samples, np.arange(24) % 3, 0.01, 2.0)


@pytest.mark.parametrize("size", [1e200, 1e90])
def test_without_convexity_what_cannot_be_computed_is_still_named(network, size):
    rules = ProtocolRules(variant="stepwise", training_steps=10, payment_steps=2, on_bad_report="leave out")
    done = faithful(network, rules=rules, agents={1: cheats.huge(size)}, start=network.start)
    assert [(out.agent, out.where) for out in done.left_out] == [(1, "training step 1")]


def test_without_convexity_any_gradient_may_be_honest_and_the_error_says_so(network):
    rules = ProtocolRules(variant="stepwise", training_steps=50, payment_steps=2, on_bad_report="leave out")
    done = faithful(network, rules=rules, agents={1: cheats.alternate(3.0)}, start=network.start)
    assert done.left_out == ()
    driver = {1: lambda w, _g: -1e3 * w}
    with pytest.raises(Diverged, match="cannot be told: where the loss is not convex any gradient can be"):
        faithful(network, rules=rules, agents=driver, start=network.start)


def test_nobody_honest_is_named_for_what_a_model_far_away_makes_of_it():
    """Agent 2's loss is as agreed on and of a size nobody excluded; agents in single precision overflow."""

    def ask(sent):
        with np.errstate(all="ignore"):
            said = {k: (w - k).astype(np.float32) for k, w in sent.items() if k != 2}
        return {**said, **({2: sent[2] - 1e90} if 2 in sent else {})}

    agreed = {"size": 2, "regulariser": 1.0, "smoothness": 2.0}
    for policy in ("raise", "leave out"):
        with pytest.raises(Diverged, match="cannot be told without a bound on gradients that all agree on"):
            faithful(
                *asked_problem(ask, np.full(3, 1 / 3), **agreed),
                rules=ProtocolRules(**RULES, on_bad_report=policy),
            )
    bounded = asked_problem(ask, np.full(3, 1 / 3), **agreed, gradient_bound=3.0)
    assert [out.agent for out in faithful(*bounded, rules=ProtocolRules(**GOING_ON)).left_out] == [2]


def test_kinds_of_agents_are_made_from_texts(held):
    made = cheats.agents_from(
        ["0 alternate 3", "1 huge 1e90", "2 random 0.5"], held, np.random.default_rng(0)
    )
    model, gradient = np.zeros((1, held.size)), np.ones((1, held.size))
    assert [made[0](model, gradient)[0, 0] for _ in range(3)] == [1.0, 3.0, 1.0]
    assert (made[1](model, gradient) == 1e90).all()
    first, second = made[2](model, gradient), made[2](model, gradient)
    assert not np.array_equal(first, second)
