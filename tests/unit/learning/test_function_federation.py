"""A federation of functions, and the tasks without training: the same questions, the same answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from bonafed.errors import AskFailed, InvalidValue
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import program_for
from bonafed.learning.federation import (
    Alone,
    Failure,
    Gradients,
    Losses,
    Objective,
    Question,
    Reply,
    Roster,
    Slopes,
    Task,
    Train,
    answer_shape,
    slopes_from,
    some_rows,
)
from bonafed.learning.function_federation import FunctionFederation
from bonafed.learning.local import EngineFederation
from bonafed.learning.noise import Reproducible, Secret
from bonafed.learning.privacy import Release
from bonafed.learning.problems.convex import largest_norm
from bonafed.learning.problems.federation import ProblemFederation
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.learning.work import LocalTraining

NAMES = ("ada", "ben", "eve")
TRAIN = Train(LocalTraining(5, 0.1), 1, 0)


@pytest.fixture(scope="module")
def engine():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((30, 4)).astype(np.float32)
    y = torch.from_numpy(rng.integers(0, 3, 30))
    parts = [np.arange(0, 5), np.arange(5, 15), np.arange(15, 30)]
    roster = Roster(NAMES, np.array([5, 10, 15]), (4,), 3, largest_norm(x))
    program = program_for(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)))
    return EngineFederation(roster, program, Samples(torch.from_numpy(x), y), parts, Reproducible(3))


@pytest.fixture(scope="module")
def objective(engine):
    return Objective(0.1, scale=engine.members.feature_bound)


def tasks(work, models):
    return [Task(f"{name}", name, models, work) for name in NAMES]


def relayed(engine):
    """The same clients, each asked for itself."""
    return FunctionFederation(engine.members, lambda asked: {
        task.identifier: engine.replies([task])[task.identifier] for task in asked
    })  # fmt: skip


@pytest.mark.parametrize("shares", [[0.2, 0.3, 0.5], [[0.0, 0.3], [0.5, 0.2], [0.5, 0.5]]])
def test_sums_are_those_of_replies_whoever_adds_them(engine, objective, shares):
    models, parts = np.random.default_rng(0).standard_normal((2, 15)), np.array(shares)
    ways = np.vstack([models, models[:1] - 1])  # two ways to the last of three models
    slopes = Slopes(objective, (0.0, 0.25, 1.0))
    for work, sent in ((Gradients(objective), models), (Losses(objective), models), (slopes, ways)):
        asked = tasks(work, sent)
        one, other = engine.total(asked, parts), relayed(engine).total(asked, parts)
        assert one.values == pytest.approx(other.values, abs=1e-12)
        assert one.delivered == other.delivered == (True,) * 3


@pytest.mark.parametrize(("kind", "clip"), [("linear", None), ("linear", 0.5), ("module", None)])
def test_replies_are_the_parts_of_the_total_over_shared_models(engine, objective, kind, clip):
    models = np.random.default_rng(1).standard_normal((2, 15))
    request = tasks(Gradients(replace(objective, kind=kind), clip), models)
    together = engine.total(request, np.ones(3)).values
    near = 1e-12 if kind == "linear" else 1e-5
    each = [reply.values for reply in engine.replies(request).values()]
    assert sum(each) == pytest.approx(together, abs=near)
    moved = [task._replace(models=models + place) for place, task in enumerate(request)]
    each = [reply.values for reply in engine.replies(moved).values()]
    assert engine.total(moved, np.ones(3)).values == pytest.approx(sum(each), abs=1e-12)


@pytest.mark.parametrize("kind", ["linear", "module"])
def test_slopes_are_those_of_gradients_whoever_computes_them(engine, objective, kind):
    models, work = np.random.default_rng(2).standard_normal((3, 15)), replace(objective, kind=kind)
    asked = tasks(Slopes(work, (0.0, 0.4, 1.0)), models)

    def by_gradients(task):
        def gradient(at):
            return engine.replies([task._replace(models=at, work=Gradients(work))])[task.identifier].values

        return slopes_from(gradient, task)

    own = FunctionFederation(engine.members, lambda some: {t.identifier: by_gradients(t) for t in some})
    found, other = engine.replies(asked), own.replies(asked)
    for task in asked:
        assert found[task.identifier].values.shape == (2, 3)
        near = 1e-12 if kind == "linear" else 1e-5
        assert found[task.identifier].values == pytest.approx(other[task.identifier].values, abs=near)
    short = FunctionFederation(engine.members, lambda some: {t.identifier: np.zeros((3, 3)) for t in some})
    assert short.replies(asked)[asked[0].identifier].reason == "shape (3, 3) instead of (2, 3)"


@pytest.mark.parametrize("clip", [None, 0.5])
def test_gradients_of_a_client_are_computed_on_its_own_samples(engine, objective, clip, monkeypatch):
    sizes, predict = [], SoftmaxRegression._chances

    def counting(problem, stacked, rows):
        chances, losses = predict(problem, stacked, rows)
        sizes.append(len(losses))
        return chances, losses

    monkeypatch.setattr(SoftmaxRegression, "_chances", counting)
    request = tasks(Gradients(objective, clip), np.ones((2, 15)))
    engine.replies(request)
    assert sizes == [5, 10, 15]
    sizes.clear()
    engine.total(request, np.ones(3))
    assert sizes == [30]


def test_gradients_of_a_module_do_not_depend_on_the_samples_of_others(engine, objective):
    features = engine.samples.features.clone()
    features[:15] = float("inf")  # of all but the last client
    others = replace(engine, samples=Samples(features, engine.samples.labels))
    request = tasks(Gradients(replace(objective, kind="module")), np.ones((2, 15)))
    expected = engine.replies(request)["eve"].values
    assert np.array_equal(others.replies(request)["eve"].values, expected)


def test_an_agent_alone_is_at_the_minimum_of_its_own_loss(engine, objective):
    found = engine.replies(tasks(Alone(objective, 1e-12), np.zeros((1, 15))))
    for name in NAMES:
        task = Task("g", name, found[name].values, Gradients(objective))
        assert np.linalg.norm(engine.replies([task])["g"].values) < 1e-5


def test_clipped_sums_have_noise_once_and_the_same_when_asked_again(engine, objective):
    model, shares = np.ones((1, 15)), np.full(3, 1 / 3)
    for source in (Reproducible(3), Secret(bytes(32))):
        clients = engine.with_noise(source)
        exact = clients.total(tasks(Gradients(objective, 1.0), model), shares).values
        first = clients.total(tasks(Gradients(objective, 1.0, 15), model), shares, noise=0.5).values
        clients.total(tasks(Gradients(objective, 1.0, 30), model), shares, noise=0.5)
        again = clients.total(tasks(Gradients(objective, 1.0, 15), model), shares, noise=0.5).values
        other = clients.total(tasks(Gradients(objective, 1.0, 60), model), shares, noise=0.5).values
        assert np.array_equal(first, again)
        assert not np.allclose(first, other)
        assert 0.1 < np.std(first - exact) < 1.0


EACH = np.array([[0.0, 0.3, 0.2], [0.5, 0.0, 0.2], [0.5, 0.7, 0.0]])  # of three sums, each without one


@pytest.mark.parametrize("kind", ["gradients", "losses"])
def test_sums_over_different_clients_in_one_exchange_are_those_asked_for_one_by_one(
    engine, objective, kind
):
    """Every bit, with the noise of each at its own place and of its own size."""
    models, sds = np.random.default_rng(0).standard_normal((4, 15)), np.array([0.5, 1.0, 2.0])

    def work(rows):
        places = tuple(np.array([30, 90, 60])[rows].tolist())
        if kind == "gradients":
            return Gradients(objective, 1.0, places), models[rows]
        limits = tuple(np.array([0.1, 0.4, 0.2])[rows].tolist())
        return Losses(objective, limits, places), models[[0, *(row + 1 for row in rows)]]

    together = engine.total(tasks(*work([0, 1, 2])), EACH, sds)
    quiet = engine.total(tasks(*work([0, 1, 2])), EACH)
    for row in range(3):
        who, each = np.flatnonzero(EACH[:, row]), tasks(*work([row]))
        asked = [each[k] for k in who]
        assert np.array_equal(engine.total(asked, EACH[who, row]).values, quiet.values[[row]])
        alone = engine.total(asked, EACH[who, row], sds[row])
        assert np.array_equal(alone.values, together.values[[row]])
    relay = relayed(engine).total(tasks(*work([0, 1, 2])), EACH)
    assert relay.values == pytest.approx(quiet.values, abs=1e-12)


def test_secret_noise_of_sums_in_one_exchange_is_independent(engine, objective):
    clients = engine.with_noise(Secret(bytes(32)))
    work, models = Gradients(objective, 1.0, (0, 15, 30)), np.ones((3, 15))  # thrice the same model
    asked, shares = tasks(work, models), np.full((3, 3), 1 / 3)
    given, exact = clients.total(asked, shares, np.full(3, 0.5)).values, clients.total(asked, shares).values
    noise = given - exact
    assert not np.allclose(noise[0], noise[1])
    assert not np.allclose(noise[1], noise[2])
    assert np.array_equal(clients.total(asked, shares, np.full(3, 0.5)).values, given)
    single = clients.total(asked, shares, np.array([0.0, 0.5, 0.0])).values
    assert np.array_equal(single[[0, 2]], exact[[0, 2]])  # none where none is asked for
    assert np.array_equal(single[1], given[1])


@pytest.mark.parametrize(
    "noise", [[1.0, 2.0], [[1.0, 1.0, 1.0]], [1.0, -1.0, 1.0], [1.0, np.nan, 1.0], -1.0]
)
def test_noise_is_one_for_all_rows_or_one_for_each(engine, objective, noise):
    with pytest.raises(InvalidValue, match=r"^noise must"):
        engine.total(tasks(Gradients(objective, 1.0), np.ones((3, 15))), EACH, np.array(noise))


@pytest.mark.parametrize(
    ("work", "count", "sent", "left"),
    [
        (Gradients(Objective(1.0), 1.0, 40), 3, [0, 2], {"released": (40, 50)}),
        (Gradients(Objective(1.0), 1.0, (7, 9, 8)), 3, [0, 2], {"released": (7, 8)}),
        (Losses(Objective(1.0)), 3, [0, 2], {"released": (0, 2)}),
        (Losses(Objective(1.0), 0.5), 4, [0, 1, 3], {"limit": (0.5, 0.5), "released": (0, 2)}),
        (
            Losses(Objective(1.0), (0.1, 0.2, 0.3), 5),
            4,
            [0, 1, 3],
            {"limit": (0.1, 0.3), "released": (5, 7)},
        ),
        (Slopes(Objective(1.0), (0.0, 1.0)), 4, [0, 2, 3], {}),
    ],
)
def test_a_client_that_is_in_some_sums_is_sent_what_these_need(work, count, sent, left):
    models = np.arange(5.0 * count).reshape(count, 5)
    task = Task("a", "ada", models, work)
    less = some_rows(task, np.array([0, 2]))
    assert np.array_equal(less.models, models[sent])
    assert less.work == replace(work, **left)
    assert answer_shape(less)[0] == 2
    assert some_rows(task, np.arange(3)) is task


class Unreadable:
    """An answer that raises whatever it likes when it is read."""

    def __array__(self, *_args, **_options):
        raise KeyError("gotcha")

    def __str__(self):
        raise ZeroDivisionError


class Mute(Exception):
    def __str__(self):
        raise ZeroDivisionError


ANSWERS = {
    "nothing": None,
    "no answer (TimeoutError: late)": TimeoutError("late"),
    "no real numbers (complex128)": np.ones((1, 2)) * 1j,
    "shape (2,) instead of (1, 2)": np.ones(2),
    "NaN or inf": Reply(np.array([[1.0, np.nan]])),
    "no answer (ValueError: no records)": ValueError("no records"),
    "left": Failure("left", absent=True),
    "late": Failure("late"),
    "odd": Failure("odd", absent="yes"),
}
ABSENT = ("nothing", "no answer (TimeoutError: late)", "left")  # the others may depend on records


@pytest.mark.parametrize("reason", ANSWERS)
def test_what_cannot_be_used_is_a_failure_and_not_in_the_sum(reason):
    roster = Roster(("ada", "ben"), np.ones(2, dtype=np.int64))
    answers = {"a": ANSWERS[reason], "b": np.ones((1, 2))}
    federation = FunctionFederation(
        roster, lambda asked: {t.identifier: answers[t.identifier] for t in asked}
    )
    work = Gradients(Objective(1.0))
    asked = [Task("a", "ada", np.zeros((1, 2)), work), Task("b", "ben", np.zeros((1, 2)), work)]
    total = federation.total(asked, np.array([0.5, 0.5]))
    assert total.failures == {"a": Failure(reason, absent=reason in ABSENT)}
    assert total.delivered == (False, True)
    assert total.values.tolist() == [[0.5, 0.5]]


def test_a_task_without_an_entry_was_not_answered():
    roster = Roster(("ada",), np.ones(1, dtype=np.int64))
    task = Task("a", "ada", np.zeros((1, 2)), Gradients(Objective(1.0)))
    assert FunctionFederation(roster, lambda _: {}).replies([task]) == {
        "a": Failure("nothing", absent=True)
    }


FINE = np.ones((1, 2), dtype=np.float32)
RELEASE = Release(0, 1, 2.0, 3, 4, 0.5)
REPLIES = [
    (Unreadable(), "no numbers (Unreadable)"),
    (Reply(Unreadable()), "no numbers (Unreadable)"),
    (Mute(), "no answer that can be read (ZeroDivisionError)"),
    (np.full((1, 2), 1e39), "NaN or inf in float32"),
    (Reply(FINE, loss="low"), "loss must be a number, got 'low'"),
    (Reply(FINE, loss=None), "loss must be a number, got None"),
    (Reply(FINE, loss=True), "loss must be a number, got True"),
    (Reply(FINE, loss=1j), "loss must be a number, got 1j"),
    (Reply(FINE, loss=np.complex128(1j)), "loss must be a number, got"),
    (Reply(FINE, loss=10**400), "loss must be below 1.8e308 in size"),
    (Reply(FINE, loss=Unreadable()), "loss must be a number, got"),
    (Reply(FINE, steps=True), "steps must be a number, got True"),
    (Reply(FINE, steps=float("nan")), "steps must be finite, got nan"),
    (Reply(FINE, steps="9"), "steps must be a number, got '9'"),
    (Reply(FINE, steps=-1), "steps must be a whole number of at least 0, got -1"),
    (Reply(FINE, steps=1.5), "steps must be a whole number of at least 0, got 1.5"),
    (Reply(FINE, steps=10**30), "steps must not exceed 1000000000"),
    (Reply(FINE, releases=None), "releases must be a sequence of releases, got NoneType"),
    (Reply(FINE, releases=RELEASE), "releases must be a sequence of releases, got Release"),
    (Reply(FINE, releases=((0, 1, 2.0, 3),)), "releases must be a sequence of releases, got tuple"),
    (
        Reply(FINE, releases=(RELEASE._replace(client=1),)),
        "client of a release must be the one who answers",
    ),
    (
        Reply(FINE, releases=(RELEASE._replace(client=99),)),
        "client of a release must be the one who answers",
    ),
    (Reply(FINE, releases=(RELEASE._replace(client="0"),)), "client of a release must be a number"),
    (Reply(FINE, releases=(RELEASE._replace(round_number=None),)), "round of a release must be a number"),
    (Reply(FINE, releases=(RELEASE._replace(multiplier=0.0),)), "multiplier of a release must be positive"),
    (
        Reply(FINE, releases=(RELEASE._replace(multiplier=np.inf),)),
        "multiplier of a release must be finite",
    ),
    (Reply(FINE, releases=(RELEASE._replace(times=0.5),)), "times of a release must be a whole number"),
    (Reply(FINE, releases=(RELEASE._replace(times=10**30),)), "times of a release must not exceed"),
    (Reply(FINE, releases=(RELEASE._replace(steps="1"),)), "steps of a release must be a number"),
    (Reply(FINE, releases=(RELEASE._replace(rate=2.0),)), "rate of a release must be between 0 and 1"),
]


@pytest.mark.parametrize(("answer", "reason"), REPLIES)
def test_nothing_in_a_reply_stops_a_run(answer, reason):
    """Every part of an answer is checked; the others are added up as if it had not come."""
    roster = Roster(("ada", "ben"), np.ones(2, dtype=np.int64))
    good = Reply(FINE, np.float32(0.5), np.int64(3), [RELEASE._replace(client=1)])
    federation = FunctionFederation(roster, lambda _: {"a": answer, "b": good})
    model, work = np.zeros((1, 2), dtype=np.float32), Gradients(Objective(1.0))
    asked = [Task("a", "ada", model, work), Task("b", "ben", model, work)]
    total = federation.total(asked, np.array([0.5, 0.5]))
    assert total.failures["a"].reason.startswith(reason)
    assert total.delivered == (False, True)
    assert total.values.tolist() == [[0.5, 0.5]]
    assert (total.loss, total.steps) == (0.5, 3)
    assert total.releases == (RELEASE._replace(client=1),)


@pytest.mark.parametrize("loss", [np.nan, np.inf, 2, np.float64(0.25)])
def test_a_loss_may_be_unknown_or_any_number(loss):
    roster = Roster(("ada",), np.ones(1, dtype=np.int64))
    federation = FunctionFederation(roster, lambda _: {"a": Reply(FINE, loss, 0, (RELEASE,))})
    total = federation.total([Task("a", "ada", FINE, Gradients(Objective(1.0)))], np.ones(1))
    assert total.loss == pytest.approx(float(loss), nan_ok=True)
    assert total.releases == (RELEASE,)


def test_one_identifier_for_two_tasks_is_refused():
    roster = Roster(("ada",), np.ones(1, dtype=np.int64))
    federation = FunctionFederation(roster, lambda asked: {t.identifier: t.models for t in asked})
    task = Task("step 1", "ada", np.zeros((1, 2)), Gradients(Objective(1.0)))
    with pytest.raises(InvalidValue, match="identifier must be of one task only, got 'step 1'"):
        federation.replies([task, task])


@pytest.mark.parametrize(
    "shares", [np.ones(2), np.ones(4), np.float64(1.0), np.ones((2, 2)), np.ones((3, 5))]
)
def test_shares_that_do_not_fit_the_tasks_are_refused_by_name(engine, objective, shares):
    asked = tasks(Gradients(objective), np.zeros((2, 15)))
    problem = ProblemFederation(engine.oracle(objective), engine.members)
    for federation in (engine, problem, relayed(engine)):
        with pytest.raises(InvalidValue, match="shares must be"):
            federation.total(asked, shares)
    training = [Task(name, name, np.zeros((1, 15), dtype=np.float32), TRAIN) for name in NAMES]
    with pytest.raises(InvalidValue, match="shares must be"):
        engine.total(training, shares)


@pytest.mark.parametrize("value", [True, "0.5", None, np.complex128(1j), float("nan")])
def test_a_report_that_is_no_number_is_refused_with_the_client(value):
    roster = Roster(("ada", "ben"), np.ones(2, dtype=np.int64))
    federation = FunctionFederation(roster, lambda _: {}, lambda _: {"ada": 0.5, "ben": value})
    with pytest.raises(InvalidValue, match="cost of client 'ben' must be"):
        federation.report(Question("cost", "money"))
    nothing = FunctionFederation(roster, lambda _: {}, lambda _: None)
    with pytest.raises(InvalidValue, match="state must return each client's cost by name, got NoneType"):
        nothing.report(Question("cost", "money"))


def test_other_work_under_a_known_identifier_is_refused():
    roster = Roster(("ada",), np.ones(1, dtype=np.int64))
    federation = FunctionFederation(roster, lambda asked: {t.identifier: t.models for t in asked})
    work = Gradients(Objective(1.0))
    task = Task("step 1", "ada", np.zeros((1, 2)), work)
    federation.replies([task])
    federation.replies([task])
    with pytest.raises(
        InvalidValue, match="identifier must not be reused for different work, got 'step 1'"
    ):
        federation.replies([Task("step 1", "ada", np.ones((1, 2)), work)])
    with pytest.raises(InvalidValue, match="client must be in the roster, got 'bob'"):
        federation.replies([Task("step 2", "bob", np.zeros((1, 2)), work)])


def test_an_ask_that_fails_blames_nobody():
    def ask(_tasks):
        raise ConnectionResetError("gone")

    federation = FunctionFederation(Roster(("ada",), np.ones(1, dtype=np.int64)), ask)
    with pytest.raises(AskFailed, match="ConnectionResetError: gone"):
        federation.replies([Task("step 1", "ada", np.zeros((1, 2)), Gradients(Objective(1.0)))])
