"""Private faithful learning on participants that add their own noise and keep their own ledger."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bonafed.errors import BadReport, MissingReport
from bonafed.learning.engine.programs import flat_parameters
from bonafed.learning.federation import Failure, Gradients, Losses, Objective, Task
from bonafed.learning.privacy.ledger import Ledger
from bonafed.learning.sections import Partition
from bonafed.remote.messages import InProcess
from bonafed.remote.participant.local_data import Bench
from bonafed.remote.participant.policy import Policy
from bonafed.remote.server import federation as server
from bonafed.remote.sums import parts_of
from bonafed.remote.tasks import Asked
from bonafed.runs.config import from_tables
from bonafed.runs.prepare import prepare
from bonafed.runs.training import RunResult, train

from .conftest import NAMES, RUN, TABLES, World
from .test_faults import header
from .test_kills import begin, resume

STEPS = {"training_steps": 5, "payment_steps": 3}
PRIVATE: dict[str, Any] = {
    **{name: TABLES[name] for name in ("data", "partition", "model")},
    "faithful": {"regulariser": 0.05, **STEPS},
    "privacy": {"epsilon": 4.0, "delta": 1e-4, "noise_at": "client"},
}


def tables(**privacy: Any) -> dict[str, Any]:
    return {**PRIVATE, "privacy": {**PRIVATE["privacy"], **privacy}}


def spent(world: World, name: str) -> float:
    place = NAMES.index(name)
    return Ledger(tuple(world.journals[name].releases(RUN, place))).epsilon(place, 1e-4)


@dataclass
class Listening:
    """A way to members that notes what each is sent."""

    world: World
    asked: list[Mapping[str, list[Any]]] = field(default_factory=list)

    def connected(self) -> Mapping[str, str]:
        return dict.fromkeys(self.world.names, "")

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        headers = {name: header(data) for name, data in messages.items()}
        self.asked.append({
            name: fields["content"]["tasks"] for name, fields in headers.items() if fields["kind"] == "work"
        })  # fmt: skip
        return InProcess(self.world.handles).exchange(messages, ttl)


@pytest.mark.parametrize(
    "own", [{}, {"clusters": 2}, {"weights": "samples"}], ids=["alone", "clusters", "sizes"]
)
def test_every_ledger_is_within_the_promise_and_says_what_the_mechanism_says(
    make_world: Callable[..., World], own: dict[str, Any]
) -> None:
    world = make_world(partition=Partition("quantity_dirichlet", 4, {"beta": 3.0}))
    run = world.train({**PRIVATE, "faithful": {**PRIVATE["faithful"], **own}})
    given = [spent(world, name) for name in NAMES]
    assert max(given) <= 4.0
    assert max(given) > (3.0 if own.get("weights") else 3.9)  # and no more noise than the split takes
    assert given == pytest.approx(run.statement.columns["epsilon"], rel=1e-6)
    receipts = run.findings[-1]
    assert (receipts.claim, receipts.holds) == ("receipts", True)
    assert "4 of 4" in receipts.text


def test_phase_two_is_as_many_exchanges_as_steps_and_one_for_all_payments(world: World) -> None:
    heard = Listening(world)
    setting = world.prepare(PRIVATE, transport=heard)
    before = len(heard.asked)
    assert setting.mechanism.exchanges == 5 + 3 + 1
    train(setting)
    work = [asked for asked in heard.asked if asked]
    assert len(work) == 5 + 3 + 1
    assert len(heard.asked) - before == 5 + 3 + 1 + 1  # and the statement
    for asked in work:
        assert sorted(asked) == sorted(NAMES)
        assert all(len(tasks) == 1 for tasks in asked.values())
    # nobody is sent the model without it, nor asked about its own payment
    shapes = [{tuple(tasks[0]["shape"]) for tasks in asked.values()} for asked in work]
    assert shapes == [{(1, 650)}] * 5 + [{(3, 650)}] * 3 + [{(4, 650)}]
    limits = {name: tasks[0]["work"]["limit"] for name, tasks in work[-1].items()}
    assert Counter(value for each in limits.values() for value in each) == Counter(
        dict.fromkeys({value for each in limits.values() for value in each}, 3)
    )


def exactly(world: World) -> Any:
    """The same clients on this machine, with no noise."""
    return prepare(from_tables({**PRIVATE, "partition": world.partition.table()})).clients


def bare(clients: Any, tasks: list[Task], shares: Any) -> Any:
    names = clients.members.names
    return clients.total([t._replace(client=names[k]) for k, t in enumerate(tasks)], shares).values


def test_sums_have_the_noise_that_was_asked_for(world: World) -> None:
    """Four sums at once, each without one of the participants, each in noise of its own size."""
    setting, clients = world.prepare(PRIVATE), exactly(world)
    course, rng, found = setting.mechanism.course, np.random.default_rng(0), []
    shares = np.where(np.eye(4) > 0, 0.0, course.facts.weights)
    sd = np.array([1.0, 2.0, 3.0, 4.0]) * course.noise.gradient
    for step in range(3):
        models = rng.normal(0, 0.1, (4, 650))
        work = Gradients(course.objective, course.facts.clip, tuple(range(0, 2600, 650)))
        tasks = [Task(f"try {step}, {name}", name, models, work) for name in NAMES]
        given = setting.clients.total(tasks, shares, sd)
        assert all(given.delivered)
        found.append((given.values - bare(clients, tasks, shares)) / sd[:, None])
    rows = np.array(found).std(axis=(0, 2))
    assert rows == pytest.approx(np.ones(4), abs=5 / np.sqrt(2 * 3 * 650))


def test_reproducible_noise_of_participants_is_independent(make_world: Callable[..., World]) -> None:
    world = make_world(policies=dict.fromkeys(NAMES, Policy(reproducible_noise=True)))
    setting = world.prepare(tables(noise="reproducible"))
    course, sd = setting.mechanism.course, 4 * setting.mechanism.course.noise.gradient
    work = Gradients(course.objective, course.facts.clip)
    tasks = [Task(f"try, {name}", name, np.zeros((1, 650)), work) for name in NAMES]
    noise = setting.clients.total(tasks, np.ones(4), sd).values - bare(exactly(world), tasks, np.ones(4))
    assert noise.std() == pytest.approx(sd, rel=5 / np.sqrt(2 * 650))


class Stingy:
    """A server that asks for a fraction of the noise and writes down the whole."""

    def __init__(self, share: float) -> None:
        self.share = share

    def __call__(self, tasks: Any, shares: Any, noise: Any) -> Any:
        return parts_of(tasks, shares, np.asarray(noise) * self.share)


def test_a_server_that_asks_with_half_the_noise_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "parts_of", Stingy(0.5))
    with pytest.raises(BadReport, match=r"refused: epsilon must stay within 4, the epsilon that I sold"):
        world.train(PRIVATE)
    assert all(2.0 < spent(world, name) <= 4.0 for name in NAMES)


@pytest.mark.parametrize("privacy", [{"noise_at": "sum"}, {}], ids=["sum", "default"])
def test_noise_on_the_sum_is_refused_before_anybody_reports(world: World, privacy: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r'^noise_at must be "client" without secure sums'):
        world.prepare({**PRIVATE, "privacy": {"epsilon": 4.0, "delta": 1e-4, **privacy}})
    assert all(world.journals[name].answered(RUN, "report") is None for name in NAMES)


def test_noise_is_divided_among_those_who_are_in_a_sum() -> None:
    models, work = np.zeros((2, 5)), Gradients(Objective(0.1), 1.0, (0, 5))
    tasks = [Task(str(k), str(k), models, work) for k in range(4)]
    shares = np.array([[0.5, 0.0], [0.5, 0.2], [0.5, 0.0], [0.0, 0.0]])
    parts = parts_of(tasks, shares, np.array([3.0, 7.0]))
    assert [part.task for part in parts] == [0, 1, 2]  # who is in no sum is not asked
    assert [part.rows.tolist() for part in parts] == [[0], [0, 1], [0]]
    assert [part.asked.task.models.shape for part in parts] == [(1, 5), (2, 5), (1, 5)]
    assert parts[0].asked.noise == pytest.approx(3 / (3**0.5 * 0.5))
    assert parts[1].asked.noise == pytest.approx((3 / (3**0.5 * 0.5), 7 / 0.2))
    assert parts[0].asked.task.work.released == (0,)  # type: ignore[union-attr]
    variance = sum((part.shares[0] * np.ravel(part.asked.noise)[0]) ** 2 for part in parts)
    assert variance == pytest.approx(9.0)


@pytest.mark.parametrize("regulariser", [0.05, 5.0])
def test_a_release_is_charged_by_what_a_record_moves_it(world: World, regulariser: float) -> None:
    """Every record replaced by the worst: the answer moves by no more than was charged for, whatever mu."""
    world.prepare(PRIVATE)
    participant = world.participants["ada"]
    known = participant._knows(RUN)
    holding = participant._holding
    rng, rows = np.random.default_rng(3), 3
    models = rng.normal(0, 1.0, (rows + 1, 650))
    objective = Objective(regulariser, scale=2**0.5, shorten=True)
    works = {
        "gradients": (Gradients(objective, 0.5, (0, 1, 2)), models[:rows]),
        "losses": (Losses(objective, (0.1, 0.2, 0.4), (0, 1, 2)), models),
    }
    for name, (work, sent) in works.items():
        task = Task(name, "ada", sent, work)
        asked = Asked(task, (1.0, 2.0, 3.0))
        charged = np.array([r.multiplier for r in known.bench.release_of(asked)])
        largest = np.zeros(rows)
        for record in range(0, len(holding), 90):
            features, labels = holding.features.copy(), holding.labels.copy()
            features[record], labels[record] = -50.0 * features[record], (labels[record] + 5) % 10
            other = replace(holding, features=features, labels=labels)
            neighbour = Bench(other, known.config, known.members, "ada", known.bench._noise)
            one, two = (bench._engine.replies([task])[name].values for bench in (known.bench, neighbour))
            largest = np.maximum(largest, np.linalg.norm(one - two, axis=1))
        assert (largest > 0).all()
        assert (np.array([1.0, 2.0, 3.0]) / largest >= charged).all()
        if name == "gradients":  # twice the clip over the number of records is reached, nearly
            assert (np.array([1.0, 2.0, 3.0]) / largest < 4 * charged).all()


def test_models_so_far_away_that_rounding_shows_through_the_noise_are_refused(world: World) -> None:
    setting = world.prepare(PRIVATE)
    course = setting.mechanism.course
    work = Gradients(course.objective, course.facts.clip)
    for size, far in ((1e3, False), (1e14, True), (float("nan"), True)):
        task = Task(f"far {size}", "ada", np.full((1, 650), size), work)
        total = setting.clients.total([task], np.array([0.25]), course.noise.gradient)
        refused = [failure.reason for failure in total.failures.values()]
        assert bool(refused) == far
        assert all("models must be so near 0" in reason for reason in refused)


@dataclass
class Away:
    """A way to members one of whom is not there in some exchanges, counted from 0."""

    world: World
    who: str
    when: range
    count: int = -1

    def connected(self) -> Mapping[str, str]:
        return dict.fromkeys(self.world.names, "")

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        self.count += 1
        handles = self.world.handles
        if self.count in self.when:
            handles = {name: handle for name, handle in handles.items() if name != self.who}
        return InProcess(handles).exchange(messages, ttl)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, RunResult]:
    """A run in which everybody answers."""
    folder = tmp_path_factory.mktemp("unbroken")
    (folder / "world").mkdir()
    world = World(folder / "world")
    return world, begin(world, PRIVATE, folder / "run")


@pytest.mark.parametrize(
    ("exchange", "where"),
    [(3, "private training step 1"), (6, "private training step 4"), (9, "private payment step 2"),
     (11, "private payments")],
)  # fmt: skip
def test_an_absent_agent_stops_the_run_with_one_line_and_it_goes_on_when_it_is_back(
    world: World, unbroken: tuple[World, RunResult], tmp_path: Path, exchange: int, where: str
) -> None:
    whole_world, whole = unbroken
    with pytest.raises(MissingReport) as stopped:
        begin(world, PRIVATE, tmp_path / "run", Away(world, "eve", range(exchange, 99)))
    said = str(stopped.value)
    assert said.startswith(f"agent eve did not answer in {where}: not connected (")
    assert "resume the run when it is back" in said
    assert "\n" not in said
    run = resume(world, tmp_path / "run")
    assert (flat_parameters(run.model) == flat_parameters(whole.model)).all()
    assert run.statement.amounts == whole.statement.amounts
    assert run.findings[-1].holds, run.findings[-1].text
    for place, name in enumerate(NAMES):  # asked again, everybody gave the same answers
        assert world.journals[name].releases(RUN, place) == whole_world.journals[name].releases(RUN, place)


def test_it_stops_again_while_the_agent_is_away(world: World, tmp_path: Path) -> None:
    with pytest.raises(MissingReport):
        begin(world, PRIVATE, tmp_path / "run", Away(world, "joe", range(5, 99)))
    before = {name: spent(world, name) for name in NAMES}
    world.participants.pop("joe")
    for _ in range(2):
        with pytest.raises(MissingReport, match="agent joe did not answer in private training step 3"):
            resume(world, tmp_path / "run")
    assert {name: spent(world, name) for name in NAMES} == before
    world.start("joe")
    assert resume(world, tmp_path / "run").findings[-1].holds


def test_the_statement_says_whom_it_protects_against_and_at_what_price(world: World) -> None:
    run = world.train(PRIVATE)
    assert run.statement.totals["protects_against"] == (
        "whoever sees models or single updates, the server included"
    )
    cost = next(note for note in run.statement.notes if "its own noise" in note)
    found = re.match(
        r"each agent adds its own noise: ([\d.]+) times the variance on every sum of gradients and "
        r"([\d.]+) times on every payment, which also protects against the server$",
        cost,
    )
    assert found is not None
    # K (T_1 + K T_2)/(T_1 + K^2 T_2/(K - 1)), and K - 1
    assert float(found[1]) == pytest.approx(4 * (5 + 4 * 3) / (5 + 16 * 3 / 3), rel=1e-2)
    assert float(found[2]) == 3
