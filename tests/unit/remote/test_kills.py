"""Killed and started again: the same bits, nobody's epsilon spent twice, nobody paid twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bonafed.learning.data import datasets
from bonafed.learning.engine.programs import flat_parameters
from bonafed.learning.federation import Failure
from bonafed.remote.messages import InProcess
from bonafed.remote.server.federation import RemoteFederation
from bonafed.runs.config import of_run
from bonafed.runs.prepare import from_outside, prepare
from bonafed.runs.training import RunResult, train

from .conftest import RUN, TABLES, World

SHARED = {name: TABLES[name] for name in ("data", "partition", "model")}
KINDS: dict[str, dict[str, Any]] = {
    "sampling": {**TABLES, "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 14.0}},
    "private": {**TABLES, "privacy": {"epsilon": 3.0, "delta": 1e-5, "clip": 1.0}},
    "jsam": {
        **TABLES,
        "jsam": {"prior": "uniform:0,4", "eta": 20.0, "smoothness": 0.5, "clip": 1.0, "max_epsilon": 5.0},
    },
    "faithful": {**SHARED, "faithful": {"regulariser": 0.1}},
    "rewards": {**TABLES, "rewards": {"measure": "data size"}},
}


class Killed(BaseException):
    """As if the process ended here."""


@dataclass
class Dying:
    """A way to members that ends the server in this exchange, before or after they have answered."""

    world: World
    at: int
    after: bool
    count: int = -1

    def connected(self) -> Mapping[str, str]:
        return dict.fromkeys(self.world.names, "")

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        self.count += 1
        if self.count == self.at and not self.after:
            raise Killed
        came = InProcess(self.world.handles).exchange(messages, ttl)
        if self.count == self.at:
            raise Killed
        return came


def begin(world: World, tables: dict[str, Any], folder: Path, transport: Any = None) -> RunResult:
    records = world.records(folder.with_name(folder.name + ".records.jsonl"))
    return train(world.prepare(tables, transport=transport, records=records), folder)


def resume(world: World, folder: Path) -> RunResult:
    records = world.records(folder.with_name(folder.name + ".records.jsonl"))
    federation = RemoteFederation.again(world.operator(), records)
    _, reports = from_outside(folder)
    setting = prepare(
        of_run(folder), federation=federation, reports=reports, dataset=datasets.load("digits")
    )
    return train(setting, folder, resume=True)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[World, RunResult]]:
    """unbroken(kind) -> a world, and the run in it that nobody killed; once for all tests."""

    @cache
    def trained(kind: str) -> tuple[World, RunResult]:
        place = tmp_path_factory.mktemp("unbroken")
        world = World(place)
        return world, begin(world, KINDS[kind], place / "run")

    return trained


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("exchange", [3, 4, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_server_goes_on(
    make_world: Any, unbroken: Any, tmp_path: Path, kind: str, exchange: int, after: bool
) -> None:
    tables, world = KINDS[kind], make_world()
    undisturbed, whole = unbroken(kind)
    with pytest.raises(Killed):
        begin(world, tables, tmp_path / "run", Dying(world, exchange, after=after))
    run = resume(world, tmp_path / "run")
    assert (flat_parameters(run.model) == flat_parameters(whole.model)).all()
    assert run.statement.amounts == whole.statement.amounts
    assert run.findings[-1].holds, run.findings[-1].text
    for name in world.names:  # nobody answered or released more than in the run that was whole
        place = world.names.index(name)
        one, other = world.journals[name], undisturbed.journals[name]
        assert one.releases(RUN, place) == other.releases(RUN, place)
        assert one.identifiers(RUN, accepted=True) == other.identifiers(RUN, accepted=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_participant_goes_on_with_its_ledger(
    make_world: Any, unbroken: Any, tmp_path: Path, kind: str
) -> None:
    tables, world = KINDS[kind], make_world()
    _, whole = unbroken(kind)
    honest, count = world.handles, {"n": 0}

    def dies(data: bytes) -> bytes:
        count["n"] += 1
        if count["n"] == 5:  # in the second round: it is started again from its folder
            world.start("eve")
        return world.participants["eve"].handle(data)

    run = begin(world, tables, tmp_path / "run", InProcess({**honest, "eve": dies}))
    assert (flat_parameters(run.model) == flat_parameters(whole.model)).all()
    assert run.findings[-1].holds, run.findings[-1].text


def test_a_lost_journal_joins_nothing(world: World, tmp_path: Path) -> None:
    """Without its journal a participant does not know what it sold, and gives nothing more."""
    with pytest.raises(Killed):
        begin(world, KINDS["private"], tmp_path / "run", Dying(world, 4, after=False))
    world.journals["eve"].close()
    (world.folder / "eve.ledger" / "journal.sqlite").unlink()
    world.start("eve")
    with pytest.raises(Exception, match=r"eve.*run must have been agreed on before I work"):
        resume(world, tmp_path / "run")
