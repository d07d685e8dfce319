"""What an honest report can be: nobody honest is named, and if all pass nothing diverges (C3.4 to C3.7)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bonafed.errors import AskFailed, BadReport, InvalidValue, UnusableReport
from bonafed.learning.federation import Reply
from bonafed.learning.function_federation import usable_answer
from bonafed.mechanisms.faithful import Aggregation, RidgeRegression, SoftmaxRegression, faithful, pay
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.protocol.reports import Request, Watch
from bonafed.mechanisms.faithful.protocol.stepwise import StepwiseTerms
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules
from bonafed.mechanisms.faithful.theory import bounds
from tests.oracles.asking import asked_problem

AGENTS = 3
seeds = st.integers(0, 10_000)
sizes = st.floats(-3, 3).map(lambda x: 10.0**x)


def softmax(seed, scale=1.0, mu=0.1):
    rng = np.random.default_rng(seed)
    x = scale * rng.standard_normal((30, 3))
    return SoftmaxRegression(x, rng.integers(0, 3, 30), np.arange(30) % AGENTS, 3, mu)


def ridge(seed, scale=1.0, mu=0.1):
    rng = np.random.default_rng(seed)
    x = scale * rng.standard_normal((30, 4))
    y = x @ [1.0, -2.0, 0.5, 3.0] + rng.standard_normal(30)
    return RidgeRegression(x, y, np.arange(30) % AGENTS, mu)


def own(problem, k, models):
    return problem.gradient(models, np.tile(problem.one(k), (len(models), 1)))


def remote(problem, ask=None, **changes):
    """The same agents, asked; they compute in doubles and send what `ask` makes of it."""

    def honest(sent):
        return {k: own(problem, k, models) for k, models in sent.items()}

    known = {"size": problem.size, "regulariser": problem.regulariser, "smoothness": problem.smoothness}
    return asked_problem(ask(honest) if ask else honest, problem.weights, **{**known, **changes})


def sending(change, who=(1,)):
    """An `ask` under which some agents send something else."""
    return lambda honest: lambda sent: {k: change(g) if k in who else g for k, g in honest(sent).items()}


def single(honest):
    """Gradients in single precision."""
    return lambda sent: {k: g.astype(np.float32) for k, g in honest(sent).items()}


PROBLEMS = {"softmax": softmax, "ridge": ridge}
ASKED = {
    "held": lambda problem: (problem,),
    "asked": remote,
    "asked, bounded, in doubles": lambda problem: remote(
        problem, gradient_bound=problem.gradient_bound, precision=1e-12
    ),
    "asked, in single precision": lambda problem: remote(
        problem, single, gradient_bound=problem.gradient_bound
    ),
}
kinds = pytest.mark.parametrize("kind", PROBLEMS)


@kinds
@pytest.mark.parametrize("how", ASKED)
@settings(max_examples=30)
@given(seed=seeds, scale=sizes, mu=sizes, length=sizes, near=st.integers(0, 16))
def test_nobody_honest_is_ever_named(kind, how, seed, scale, mu, length, near):
    """At models near and far, the same one twice, and so close that all differences are rounding."""
    problem = PROBLEMS[kind](seed, scale, mu)
    asked = ASKED[how](problem)
    watch, rng = Watch(asked[0]), np.random.default_rng(seed)
    models = length * rng.standard_normal((4, problem.size))
    steps = [np.zeros((1, problem.size)), models, models, models + 10.0**-near, 1e3 * models, -models[1:3]]
    for step in steps:
        sent, rows = Request.at(step), np.arange(len(step))
        for k in range(AGENTS):
            said = own(problem, k, step)
            answer = said.astype(np.float32) if "single" in how else said
            assert np.array_equal(watch.accept(k, Reply(answer), sent, rows), np.float64(answer))


@kinds
@pytest.mark.parametrize("how", ASKED)
@settings(max_examples=5)
@given(seed=seeds)
def test_an_honest_federation_is_not_disturbed(kind, how, seed):
    problem = PROBLEMS[kind](seed)
    terms = {"variant": "stepwise", "training_steps": 60, "payment_steps": 5}
    done, held = (
        faithful(*ASKED[how](problem), rules=ProtocolRules(**terms)),
        faithful(problem, rules=ProtocolRules(**terms)),
    )
    close = 1e-3 if "single" in how else 1e-9
    assert done.left_out == ()
    np.testing.assert_allclose(done.model, held.model, atol=close)
    np.testing.assert_allclose(done.payments.amount, held.payments.amount, atol=close)


def ending(*problem, agents=None, on_step=None, **rules):
    """The outcome, or the report that was named; or that nobody reported anything."""
    try:
        return faithful(*problem, rules=ProtocolRules(**rules), agents=agents, on_step=on_step)
    except (BadReport, AskFailed) as bad:
        return bad


class AsFarAsAllowed:
    """Reports on the edge of what passes: from its last report as far as (C3.4) lets it go, any way."""

    def __init__(self, problem, seed):
        self._watch, self._rng = Watch(problem), np.random.default_rng(seed)
        self._mu, self._smooth = problem.regulariser, problem.smoothness
        self._before = None

    def __call__(self, models, gradients):
        runs = np.arange(len(models))
        if self._before is None or len(self._before[0]) != len(models):
            steps = [gradients]  # a new run of models begins with the truth
        else:
            moved = models - self._before[0]
            middle = self._before[1] + (self._smooth + self._mu) / 2 * moved
            radius = (self._smooth - self._mu) / 2 * np.linalg.norm(moved, axis=1, keepdims=True)
            ways = [self._rng.standard_normal(models.shape) for _ in range(4)] + [-models, models]
            ways = [way / np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-300) for way in ways]
            steps = [middle + part * radius * way for part in (1.0, 0.9, 0.5, 0.1) for way in ways]
            steps.append(middle)
        for report in steps:
            if self._passes(report, Request.at(models, runs), runs):
                self._before = models, report
                return report
        return None  # it has talked itself into a corner

    def _passes(self, report, sent, runs):
        try:
            self._watch.accept(0, usable_answer(report, report.shape), sent, runs)
        except UnusableReport:
            return False
        return True


@kinds
@settings(max_examples=15)
@given(seed=seeds, liars=st.integers(1, AGENTS))
def test_if_all_pass_the_sum_of_reports_shrinks_as_if_they_were_true(kind, seed, liars):
    """(C3.6), with agents that change their reports as much as passes, in whatever direction."""
    problem = PROBLEMS[kind](seed)
    agents = {k: AsFarAsAllowed(problem, seed + k) for k in range(liars)}
    models, norms = [np.zeros(problem.size)], []

    def on_step(_step, model, norm):
        models.append(model)
        norms.append(norm)

    rate, smooth = 1 - problem.regulariser / problem.smoothness, problem.smoothness
    terms = {
        "variant": "stepwise",
        "training_steps": 40,
        "payment_steps": 20,
        "epsilon": 1e-3,
        "on_step": on_step,
    }
    done = ending(problem, agents=agents, **terms)
    if isinstance(done, BadReport):  # in its corner: named, it alone, and only then
        assert done.agent < liars
        assert done.problem == "nothing"
    elif isinstance(done, AskFailed):  # all in their corners at once
        assert (done.reason, liars) == ("nobody answered", AGENTS)
    else:
        assert (done.payments.error <= 1e-3).all()
        assert np.isfinite(done.payments.amount).all()
    for t in range(1, len(norms)):
        scale = 2 * problem.gradient_bound + smooth * sum(np.linalg.norm(models[s]) for s in (t - 1, t))
        assert norms[t] <= rate * norms[t - 1] + 2 * problem.precision * scale


def test_the_edge_is_reached_and_not_crossed():
    """The lies of the test above are no small ones; a little more and they are named."""
    problem = softmax(3)
    watch, step = Watch(problem), np.zeros((2, problem.size))
    step[1, 0] = 1.0
    sent, rows = Request.at(step[:1]), np.arange(1)
    first = own(problem, 0, step[:1])
    mu, smooth = problem.regulariser, problem.smoothness
    across = np.zeros((1, problem.size))
    across[0, 1] = (smooth - mu) / 2
    edge = first + (smooth + mu) / 2 * step[1:] + across
    assert np.linalg.norm(edge - first) > 2 * np.linalg.norm(own(problem, 0, step[1:]) - first)
    watch.accept(0, Reply(first), sent, rows)
    watch.accept(0, Reply(edge), Request.at(step[1:]), rows)
    with pytest.raises(UnusableReport, match=r"as no 0\.1-strongly convex, .*-smooth loss has"):
        watch.accept(0, Reply(edge + 1e-6 * across), Request.at(step[1:]), rows)


@settings(max_examples=25)
@given(seed=seeds, gamma=st.floats(0.0, 4.0))
def test_a_multiple_is_named_only_if_no_loss_as_agreed_on_has_it(seed, gamma):
    """gamma F_k is a lie that payments answer, as long as it is as smooth and as convex as agreed."""
    problem = ridge(seed)
    done = ending(
        problem, agents={1: cheats.amplify(gamma)}, variant="stepwise", training_steps=30, epsilon=1e-3
    )
    bend = gamma * np.linalg.eigvalsh(problem.second[1])
    first = gamma * np.linalg.norm(own(problem, 1, np.zeros((1, problem.size))))
    possible = bend.min() >= problem.regulariser and bend.max() <= problem.smoothness
    if isinstance(done, BadReport):
        assert done.agent == 1
        assert not possible or first > problem.gradient_bound


@pytest.mark.parametrize(("gamma", "named"), [(0.4, True), (0.6, False), (1.9, False), (2.1, True)])
def test_in_one_dimension_the_multiples_that_pass_are_those_between_the_curvatures(gamma, named):
    """Agent 1 has curvature 2 where 1 to 4 is agreed on: it passes for as a half to two of itself."""
    goals = np.array([1.0, -1.0, 0.5])

    def ask(sent):
        return {k: (gamma if k == 1 else 1.0) * 2 * (w - goals[k]) for k, w in sent.items()}

    agreed = {"size": 1, "regulariser": 1.0, "smoothness": 4.0, "gradient_bound": 100.0}
    done = ending(*asked_problem(ask, np.full(3, 1 / 3), **agreed), variant="stepwise", training_steps=20)
    assert isinstance(done, BadReport) == named
    assert not named or done.agent == 1


def test_payment_steps_stay_within_what_true_gradients_need():
    problem = softmax(1)
    model = np.ones(problem.size)
    reports = Aggregation(problem, {1: cheats.amplify(1.5)})
    found, _ = pay(problem, model, reports, StepwiseTerms(epsilon=1e-4, payment_steps=0))
    mixes = problem.without_each()
    mixes[:, 1] *= 1.5
    gaps = np.linalg.norm(problem.gradient(np.tile(model, (AGENTS, 1)), mixes), axis=1)
    most = [
        bounds.steps_needed(1 / AGENTS, problem.smoothness, problem.regulariser, gap, 1e-4) for gap in gaps
    ]
    assert found.steps <= max(most)


def test_what_agents_agree_on_is_checked():
    for name, change in (("gradient_bound", 0.0), ("precision", 1e-16), ("precision", 0.5)):
        with pytest.raises(InvalidValue) as caught:
            remote(softmax(0), **{name: change})
        assert caught.value.name == name


@kinds
@pytest.mark.parametrize("how", ASKED)
@settings(max_examples=10)
@given(seed=seeds, mu=st.floats(-2, 0).map(lambda x: 10.0**x))
def test_an_honest_federation_is_not_disturbed_in_exchanges(kind, how, seed, mu):
    problem = PROBLEMS[kind](seed, 0.5, mu)
    done, held = (
        faithful(*ASKED[how](problem), rules=ProtocolRules(epsilon=1e-2)),
        faithful(problem, rules=ProtocolRules(epsilon=1e-2)),
    )
    assert done.left_out == ()
    both = done.payments.error + held.payments.error + done.integration_error + held.integration_error
    near = 1e-3 if "single" in how else 1e-6
    assert done.exchanges <= held.exchanges + 2
    np.testing.assert_allclose(done.model, held.model, atol=near)
    assert (np.abs(done.payments.amount - held.payments.amount) <= both + near).all()


@kinds
@settings(max_examples=15)
@given(seed=seeds)
def test_whatever_passes_exchanges_end_and_nobody_honest_is_named(kind, seed):
    """Reports on the edge of what two of them allow: they end the protocol, or name whoever sends them."""
    problem = PROBLEMS[kind](seed)
    liar = AsFarAsAllowed(problem, seed)
    found = ending(problem, agents={1: liar}, epsilon=1e-3)
    if isinstance(found, BadReport):
        assert found.agent == 1
    else:
        assert found.payments.error.max() <= 0.5e-3
