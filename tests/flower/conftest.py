"""Federations for the tests of this folder: started once, and shared.

To start one costs half a minute of processor time, and every Flower run six seconds more. So tests that
leave a federation as they found it share it, and the Flower run over which it is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from bonafed.cli import choose_federation
from bonafed.flower.link import FlowerTransport
from tests.flower.clinics import open_federation
from tests.flower.harness import NAMES, Trial
from tests.oracles.packages import installed

# Tests of one group run in one process, and share its federation. In this order: the longest begins first.
GROUPS = {
    "test_how_to": "page",
    "test_mechanisms": "clinics",
    "test_faults": "clinics",
    "test_auction": "clinics",
    "test_exchanges": "echo",
    "test_superlink": "echo",
    "test_hostile_app": "hostile",
    "test_simulation": "simulation",
    "test_simulations": "simulation",
}


class Groups(LoadScopeScheduling):
    """Hands out whole groups. pytest-xdist's own groups are lost with pytest 9.2 (its issue 1386)."""

    def _split_scope(self, nodeid: str) -> str:
        path = Path(nodeid.partition("::")[0])
        return GROUPS.get(path.stem, path.stem) if path.parts[:2] == ("tests", "flower") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups | None:
    """Tests of one group run in one process."""
    return Groups(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long groups first."""
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    order = list(GROUPS)
    here.sort(key=lambda item: order.index(item.path.stem) if item.path.stem in order else len(order))
    items[:] = here + [item for item in items if item not in here]


@pytest.fixture(scope="session")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """A SuperLink, and four registered participants that echo."""
    federation = Trial(tmp_path_factory.mktemp("federation") / "trial")
    try:
        federation.start_superlink()
        federation.register()
        for name in NAMES:
            federation.start(name)
        federation.await_connected(*NAMES)
        yield federation
    finally:
        federation.close()


@pytest.fixture(scope="session")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Four clinics that hold parts of the digits; beside bonafed they have a package with a mechanism."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(installed(tmp_path_factory.mktemp("package"))))
        federation = Trial(tmp_path_factory.mktemp("clinics") / "clinics")
        try:
            open_federation(federation)
            yield federation
        finally:
            federation.close()


@pytest.fixture(scope="session")
def line(clinics: Trial) -> Iterator[FlowerTransport]:
    """An open Flower run to the clinics."""
    with FlowerTransport(clinics.folder.path) as opened:
        yield opened


@pytest.fixture
def here(
    line: FlowerTransport,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Callable[..., str]:
    """Run the command in this process and an empty folder: all that it says, once it ended with `code`.

    Runs on the clinics go over the line that is open. How a command opens and closes one of its own is for
    those that are started as processes (`clinics.command`).
    """
    from bonafed.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(choose_federation, "_transport", lambda *_: nullcontext(line))

    def run(*words: Any, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["bonafed", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        heard = capsys.readouterr()
        assert (stop.value.code or 0) == code, heard.out[-3000:] + heard.err[-3000:]
        return heard.out + heard.err

    return run
