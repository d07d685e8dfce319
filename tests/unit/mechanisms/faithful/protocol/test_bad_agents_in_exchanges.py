"""One agent cannot stop the exchanges: what it sends is checked where it enters; it is named, left out."""

import numpy as np
import pytest
from tests.oracles.asking import asked_problem
from tests.oracles.coalition import Coalition

from bonafed.errors import AskFailed, BadReport, Diverged
from bonafed.mechanisms.faithful import SoftmaxRegression, faithful, vcg_payments
from bonafed.mechanisms.faithful.accounts import accounts_of
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.protocol.exchanges import Exchanges
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules

AGENTS, MU, EPSILON = 4, 0.1, 1e-5
GOING_ON = {"epsilon": EPSILON, "on_bad_report": "leave out"}


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

    known = {
        "size": held.size, "regulariser": MU, "smoothness": held.smoothness, "precision": 1e-9, "classes": 3
    }  # fmt: skip
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
    "sends NaN": lambda: lambda _w, g: g * np.nan,
    "sends nothing": lambda: lambda _w, g: None,
    "sends another shape": lambda: lambda _w, g: g[:, :-1],
    "times out": lambda: lambda _w, g: TimeoutError("no answer in 30 s"),
    "flips the sign": cheats.flip_sign,
    "drives away": lambda: cheats.amplify(50.0),
    "has a huge curvature": lambda: lambda w, g: g + 1e3 * w,
    "turns its gradient": lambda: lambda w, g: g + np.roll(w, 1, axis=1),
}


def within_certificate(problem, done, members):
    """Whether the members' payments are VCG's of the model they came to, to the stated error."""
    part = Coalition(problem, members)
    exact = vcg_payments(part, done.model).amount
    short = exact - done.payments.amount[members]
    assert (short >= -done.integration_error).all()
    assert (short <= done.payments.error[members] + done.integration_error).all()
    assert done.payments.error.max() + done.integration_error <= EPSILON


@pytest.mark.parametrize("how", ["held", "asked", "asked and bounded"])
@pytest.mark.parametrize("lie", LIES)
def test_whoever_sends_no_gradients_is_named_and_left_out_and_the_others_go_on(held, lie, how):
    agent = 2
    if how == "held":
        problem, agents = (held,), {agent: LIES[lie]()}
    else:
        bound = {"gradient_bound": 2**0.5} if "bounded" in how else {}
        problem, agents = asked(held, lying({agent: LIES[lie]()}), **bound), None
    done = faithful(*problem, rules=ProtocolRules(**GOING_ON), agents=agents)
    assert [out.agent for out in done.left_out] == [agent]
    assert done.left_out[0].where in ("exchange 1 (training)", "exchange 2 (training)")
    assert done.payments.amount[agent] == 0
    assert np.isfinite(done.left_out[0].due)
    within_certificate(held, done, [0, 1, 3])
    assert done.exchanges <= 25


@pytest.mark.parametrize("lie", LIES)
def test_the_policy_to_raise_names_agent_exchange_and_reason(held, lie):
    with pytest.raises(BadReport, match=r"agent 2 in exchange [12] \(training\) must be a gradient") as bad:
        faithful(held, rules=ProtocolRules(epsilon=EPSILON), agents={2: LIES[lie]()})
    assert bad.value.agent == 2
    assert bad.value.problem


def test_several_are_left_out_and_what_the_others_said_stands(held):
    agents = {0: cheats.alternate(3.0), 3: cheats.huge(1e200)}
    heard = []
    done = faithful(held, rules=ProtocolRules(**GOING_ON), agents=agents, on_left_out=heard.append)
    assert [out.agent for out in done.left_out] == [bad.agent for bad in heard] == [3, 0]
    assert [out.where for out in done.left_out] == ["exchange 1 (training)", "exchange 2 (training)"]
    within_certificate(held, done, [1, 2])


def test_two_must_remain(held):
    agents = {k: cheats.huge(1e200) for k in range(3)}
    with pytest.raises(BadReport, match=r"agent 0 .*\(leaving it out would leave one agent alone"):
        faithful(held, rules=ProtocolRules(**GOING_ON), agents=agents)


class After:
    """Honest for so many requests, then something else."""

    def __init__(self, requests, lie):
        self._left, self._lie = requests, lie

    def __call__(self, models, gradients):
        self._left -= 1
        return gradients if self._left >= 0 else self._lie(models, gradients)


@pytest.fixture(scope="module")
def honest(held):
    return faithful(held, rules=ProtocolRules(epsilon=EPSILON))


@pytest.mark.parametrize("lie", ["sends 1e200", "sends random numbers", "flips the sign", "sends nothing"])
@pytest.mark.parametrize("later", [0, 1])
def test_whoever_begins_to_lie_in_the_payments_is_named_there(held, honest, lie, later):
    begin = honest.training_steps + later
    done = faithful(held, rules=ProtocolRules(**GOING_ON), agents={1: After(begin, LIES[lie]())})
    (out,) = done.left_out
    assert (out.agent, out.where) == (1, f"exchange {begin + 1} (payments)")
    assert out.due == pytest.approx(honest.payments.amount[1], abs=2 * EPSILON)  # it has seen the model
    within_certificate(held, done, [0, 2, 3])


def test_whoever_reports_one_thing_in_training_and_another_in_payments_is_named(held, honest):
    """Not a lie of size, only of data: agent 1 answers for agent 0 once training is over."""
    other = cheats.copy_of(held, 0)
    done = faithful(held, rules=ProtocolRules(**GOING_ON), agents={1: After(honest.training_steps, other)})
    assert [(out.agent, "payments" in out.where) for out in done.left_out] == [(1, True)]
    within_certificate(held, done, [0, 2, 3])


class OnTheWay:
    """Honest gradients, and slopes of its own."""

    def __init__(self, lie):
        self._lie = lie

    def __call__(self, _models, gradients):
        return gradients

    def slopes(self, models, nodes, truth):
        return self._lie(nodes, truth)


WAYS = {
    "nothing": (lambda _t, _s: None, "nothing"),
    "not a number": (lambda _t, s: s * np.nan, "NaN or inf"),
    "falling": (lambda _t, s: s[:, ::-1], "a slope of .* at the first node, where it reported"),
    "falling inside": (
        lambda _t, s: np.concatenate([s[:, :1], s[:, -2:0:-1], s[:, -1:]], axis=1),
        "slopes that change by .* where at least",
    ),
    "shifted": (lambda _t, s: s + 1e-3, "a slope of .* at the first node"),
    "doubled": (lambda _t, s: 2 * s, "a slope of .* at the first node"),
    "a step": (
        lambda t, s: np.where((t > 0.3) & (t < 1), s[:, -1:], s),
        "slopes that (change by|bend)",
    ),
    "bent": (
        lambda t, s: s + 0.05 * (s[:, -1:] - s[:, :1]) * np.sin(3 * np.pi * t),
        "slopes that (change by|bend)",
    ),
}


@pytest.mark.parametrize("how", WAYS)
def test_whoever_is_inconsistent_on_the_way_is_named_and_the_others_go_on(held, honest, how):
    lie, reason = WAYS[how]
    with pytest.raises(BadReport, match=rf"agent 1 in exchange \d+ \(the way\) .* got {reason}"):
        faithful(held, rules=ProtocolRules(epsilon=EPSILON), agents={1: OnTheWay(lie)})
    done = faithful(held, rules=ProtocolRules(**GOING_ON), agents={1: OnTheWay(lie)})
    assert [(out.agent, "the way" in out.where) for out in done.left_out] == [(1, True)]
    assert done.left_out[0].due == pytest.approx(honest.payments.amount[1], abs=2 * EPSILON)
    within_certificate(held, done, [0, 2, 3])


def test_believing_every_number_is_still_to_be_had_and_names_nobody(held):
    noise = cheats.random_numbers(1.0, np.random.default_rng(0))
    with pytest.raises(Diverged, match=r"nobody is named, as reports are believed: check_reports"):
        faithful(held, rules=ProtocolRules(**GOING_ON, check_reports="numbers"), agents={2: noise})
    free = faithful(
        held, rules=ProtocolRules(epsilon=EPSILON, check_reports="numbers"), agents={2: cheats.free_ride()}
    )
    assert free.left_out == ()
    assert free.payments.amount[2] == pytest.approx(0, abs=2 * EPSILON)


def test_the_statement_tells_what_was_done(held):
    done = faithful(held, rules=ProtocolRules(**GOING_ON), agents={2: cheats.alternate(3.0)})
    said = accounts_of(held, done, epsilon=EPSILON, cheating=[2])
    assert said.payment[2] == 0
    assert [check.holds for check in said.checks] == [True] * 4
    assert said.overall[2] == pytest.approx(said.others[2])  # it has the others' model


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


@pytest.mark.parametrize("call", [0, 1, 5, -2, -1])
def test_an_ask_that_fails_keeps_what_was_reached_and_can_be_gone_on_with(held, call):
    whole = faithful(*asked(held), rules=ProtocolRules(epsilon=EPSILON))
    call %= whole.exchanges
    problem = asked(held, failing(TimeoutError("30 s"), call))
    match = rf"in exchange {call + 1} \(.*\), after {call} exchanges: TimeoutError: 30 s"
    with pytest.raises(AskFailed, match=match) as failed:
        faithful(*problem, rules=ProtocolRules(epsilon=EPSILON))
    again = faithful(*problem, rules=ProtocolRules(epsilon=EPSILON), resume=failed.value.progress)
    assert again.exchanges == whole.exchanges
    assert np.array_equal(again.model, whole.model)
    assert np.array_equal(again.payments.amount, whole.payments.amount)


def test_an_ask_that_fails_says_who_was_left_out_before(held):
    silent = {1: lambda _w, _g: None}
    problem = asked(held, lambda honest: failing(TimeoutError(), 5)(lying(silent)(honest)))
    with pytest.raises(AskFailed, match="TimeoutError") as failed:
        faithful(*problem, rules=ProtocolRules(**GOING_ON))
    assert (failed.value.left_out, failed.value.steps) == ((1,), 5)
    done = faithful(*problem, rules=ProtocolRules(**GOING_ON), resume=failed.value.progress)
    assert [out.agent for out in done.left_out] == [1]
    within_certificate(held, done, [0, 2, 3])


def turning(seed, mu, size=40):
    """Three agents; the last reports a field that turns: any two of its reports are consistent."""
    rng = np.random.default_rng(seed)
    basis, planes = np.linalg.qr(rng.standard_normal((size, size)))[0], np.zeros((size, size))
    for i, angle in enumerate(rng.uniform(0, np.pi, size // 2)):
        cos, sin = np.cos(angle), np.sin(angle)
        planes[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, -sin], [sin, cos]]
    field = (1 + mu) / 2 * np.eye(size) + 0.99 * (1 - mu) / 2 * basis @ planes @ basis.T
    linear, bends = rng.standard_normal((3, size)), mu + 0.5 * rng.uniform(0, 1, (3, size))

    def ask(sent):
        return {k: (w @ field.T if k == 2 else w * bends[k]) - linear[k] for k, w in sent.items()}

    agreed = {"size": size, "regulariser": mu, "smoothness": 1.0, "precision": 1e-9, "gradient_bound": 20.0}
    return asked_problem(ask, [0.05, 0.05, 0.9], **agreed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mu", [0.01, 0.001])
def test_a_search_that_does_not_progress_names_whose_reports_are_gradients_of_no_loss(seed, mu):
    problem, federation = turning(seed, mu)
    with pytest.raises(BadReport, match=r"agent 2 in .* got gradients of no one loss"):
        faithful(problem, federation, rules=ProtocolRules(epsilon=1e-4))
    done = faithful(problem, federation, rules=ProtocolRules(epsilon=1e-4, on_bad_report="leave out"))
    assert [out.agent for out in done.left_out] == [2]
    assert done.payments.error.max() <= 1e-4


def test_where_nobody_can_be_named_plain_steps_lead_to_the_end(monkeypatch):
    """The same field, not looked at in cycles: plain steps beside the others, until it is small."""
    monkeypatch.setattr("bonafed.mechanisms.faithful.protocol.exchanges.contradiction", lambda *_: 0.0)
    problem, federation = turning(0, 0.01)
    done = faithful(problem, federation, rules=ProtocolRules(epsilon=1e-4))
    assert done.left_out == ()
    assert done.payments.error.max() <= 0.5e-4
    assert done.training_error <= 1e-4 * 0.05


def test_the_reports_of_a_long_training_are_kept_up_to_a_number(monkeypatch):
    """The field again, not looked at in cycles, and flat: many exchanges."""
    monkeypatch.setattr("bonafed.mechanisms.faithful.protocol.exchanges.contradiction", lambda *_: 0.0)
    monkeypatch.setattr("bonafed.mechanisms.faithful.protocol.searches._LONG", 40)
    course = Exchanges(*turning(1, 0.002), 1e-5)
    at, sizes = course.begin(), []
    while not at.done:
        at = course.advance(at)
        sizes.append(len(at.log.models))
        if not at.payments:  # what is kept is what the search is at, and where its pairs began
            assert (at.log.models == at.search.model).all(1).any()
            assert (at.log.models == at.search.best_model).all(1).any()
            assert (at.log.origins < len(at.log.models)).all()
    assert max(sizes) <= 43
    assert at.training > 60  # it was long enough to be cut
    assert at.ending.payments.error.max() <= 0.5e-5
