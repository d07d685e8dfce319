"""Cells: what a claim computes, each once, on all cores, and kept until something it depends on changes.

A cell is a function of a module with plain arguments; what it returns is plain data. It is kept in a file
named after a digest of the function's name, its arguments, the data it reads and the code that computes it
(`code`), so whoever stops may continue, and whoever repeats waits for nothing. Every cell that is computed
beside others has a process of its own: one that fails, or is killed, costs no other.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bonafed.errors import BonafedError, InvalidValue
from bonafed.extras import explained
from bonafed.files import write_together
from bonafed.papers.code import code_digest, stamp
from bonafed.presentation.documents import JSONObject

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

    from torch import nn

    from bonafed.runs.training import RunResult

Compute = Callable[[JSONObject, Path], JSONObject]  # of arguments, and of a folder for unfinished work
_KEPT = "result.json"
_OWN = "bonafed_own_claim_"  # before the name of a file outside the package, as a module


@dataclass(frozen=True, slots=True)
class Cell:
    """A computation of a claim."""

    name: str  # for people
    compute: Compute  # a function at the top of a module
    arguments: JSONObject  # plain data: all that it depends on but data and code
    data: tuple[str, ...] = ()  # data sets that it reads, by name
    code: tuple[str, ...] = ()  # modules that it runs without importing them by name
    weight: float = 1.0  # how long it takes beside others, roughly: only for the time that is left

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules whose code computes it, with all that they import; a .py file for one's own."""
        return (_module_or_file(self.compute), *self.code)

    @property
    def folder(self) -> str:
        """Its own: cells that differ in anything have different folders."""
        parts = [
            self.compute.__module__, self.compute.__qualname__, self.arguments,
            [data_digest(name) for name in self.data],
            code_digest(self.modules),
        ]  # fmt: skip
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        return f"{re.sub(r'[^A-Za-z0-9.]+', '-', self.name)[:60]}-{digest}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a computation has come."""

    done: int  # cells
    total: int
    left: float | None  # seconds, roughly; None: too early to say
    doing: str  # the cell that began last
    note: str = ""  # what somebody should know: that a kept result is damaged


@dataclass(frozen=True, slots=True)
class Computed:
    """Cells by key: their results, or why there are none."""

    results: Mapping[Any, JSONObject]
    failures: Mapping[Any, str] = field(default_factory=dict)
    took: Mapping[Any, float] = field(default_factory=dict)  # seconds of processor time, now or before


def compute_all(
    cells: Mapping[Any, Cell],
    folder: Path,
    cores: int = 0,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Computed:
    """Compute what is missing; 0 cores: all of them. With one core, in this process."""
    folders = {key: folder / cell.folder for key, cell in cells.items()}
    missing = {
        folders[key]: cell for key, cell in cells.items() if _read(folders[key], cell) is None
    }  # equal cells once
    count = min(cores or len(os.sched_getaffinity(0)), max(1, len(missing)))
    order = sorted(missing.items(), key=lambda item: -item[1].weight)  # long ones first: no long tail
    failed: dict[Path, str] = {}
    clock = _Clock(sum(cell.weight for cell in missing.values()), len(missing), on_progress)
    for cell_folder in missing:
        if (cell_folder / _KEPT).exists():
            clock.notes(f"{cell_folder / _KEPT} is damaged: its cell is computed again")
    for cell_folder, why in (_alone if count == 1 else _side_by_side)(order, count, clock):
        if why:
            failed[cell_folder] = why
    results, failures, took = {}, {}, {}
    for key, cell in cells.items():
        kept = _read(folders[key], cell)
        if kept is None:
            failures[key] = failed.get(folders[key], "nothing was kept")
        else:
            results[key], took[key] = kept["result"], kept["seconds"]
    return Computed(results, failures, took)


class _Clock:
    """Says how far things are."""

    def __init__(self, weight: float, total: int, tell: Callable[[Progress], None]) -> None:
        self._weight, self._total, self._tell = weight, total, tell
        self._begun, self._done, self._finished = time.monotonic(), 0, 0.0

    def starts(self, cell: Cell) -> None:
        self._say(cell.name)

    def ends(self, cell: Cell) -> None:
        self._done += 1
        self._finished += cell.weight
        self._say(cell.name)

    def notes(self, note: str) -> None:
        self._say("", note)

    def _say(self, doing: str, note: str = "") -> None:
        spent = time.monotonic() - self._begun
        left = (self._weight - self._finished) * spent / self._finished if self._finished else None
        self._tell(Progress(self._done, self._total, left, doing, note))


Ended = Iterator[tuple[Path, str]]  # cells as they end, and why they failed, if they did


def _alone(cells: Sequence[tuple[Path, Cell]], _cores: int, clock: _Clock) -> Ended:
    for folder, cell in cells:
        clock.starts(cell)
        yield folder, _work(cell, folder, stamp(cell.modules))
        clock.ends(cell)


def _side_by_side(cells: Sequence[tuple[Path, Cell]], cores: int, clock: _Clock) -> Ended:
    """A process for each, `cores` at a time; a server that has imported the libraries forks them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "bonafed.papers.preload"])
    _start_server()
    waiting = list(reversed(cells))
    running: dict[Any, tuple[Path, Cell, ForkServerProcess, Connection]] = {}
    started: list[ForkServerProcess] = []
    try:
        while waiting or running:
            while waiting and len(running) < cores:
                folder, cell = waiting.pop()
                clock.starts(cell)
                receiving, sending = context.Pipe(duplex=False)
                process = context.Process(target=_in_process, args=(_reference(cell), folder, sending))
                started.append(process)  # before it starts: whoever stops this just then ends it too
                process.start()
                sending.close()
                running[process.sentinel] = (folder, cell, process, receiving)
            for sentinel in wait(list(running)):
                folder, cell, process, pipe = running.pop(sentinel)
                process.join()
                yield folder, _last_words(process, pipe)
                clock.ends(cell)
    finally:  # also where somebody stops this
        for process in started:
            if process.pid is not None and process.is_alive():
                process.terminate()
                process.join()


def _start_server() -> None:
    """Without the folder it is started in on its path: files there are nobody's modules."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONSAFEPATH"]
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


def _last_words(process: ForkServerProcess, pipe: Connection) -> str:
    try:
        return str(pipe.recv()) if pipe.poll() else f"its process ended with {process.exitcode}"
    except EOFError:
        return f"its process ended with {process.exitcode}"
    finally:
        pipe.close()


def _reference(cell: Cell) -> JSONObject:
    """A cell as plain data: a process elsewhere looks its function up."""
    return {
        "name": cell.name, "module": _module_or_file(cell.compute), "function": cell.compute.__qualname__,
        "arguments": cell.arguments, "data": cell.data, "code": cell.code, "stamp": stamp(cell.modules),
    }  # fmt: skip


def _in_process(reference: JSONObject, folder: Path, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everybody; who waits ends them
    name = reference["module"]
    module = own_module(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    compute: Compute = getattr(module, reference["function"])
    cell = Cell(reference["name"], compute, reference["arguments"], reference["data"], reference["code"])
    pipe.send(_work(cell, folder, reference["stamp"]))
    pipe.close()


def _work(cell: Cell, folder: Path, before: str) -> str:
    """Compute a cell and keep its result; why that failed, if it did. A claim without one cell is reported,
    and the others go on: whatever a cell raises is caught here, and told.

    Its folder names the code by its digest; what was computed while that code changed is not kept there.
    """
    begun = time.process_time()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with explained():
            result = cell.compute(cell.arguments, folder)
        if stamp(cell.modules) != before:
            return "its code was changed while it was computed"
        kept = {
            "name": cell.name, "arguments": cell.arguments, "result": result, "sha256": _sum(result),
            "seconds": time.process_time() - begun,
        }  # fmt: skip
        write_together({folder / _KEPT: json.dumps(kept, indent=1, allow_nan=False).encode()})
    except BonafedError as error:
        return str(error)
    except Exception:
        return traceback.format_exc()
    return ""


def _read(folder: Path, cell: Cell) -> JSONObject | None:
    """What is kept of a cell; None if there is nothing, or nothing that can be read."""
    try:
        kept = json.loads((folder / _KEPT).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(kept, dict) or not isinstance(kept.get("seconds"), float):
        return None
    same = kept.get("arguments") == json.loads(json.dumps(cell.arguments))
    return kept if same and kept.get("sha256") == _sum(kept.get("result")) else None


def _sum(result: Any) -> str:
    """SHA-256, in hex, of a result: one that was damaged or edited is computed again."""
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=32)
def data_digest(name: str) -> str:
    """SHA-256, in hex, of all there is in a data set: samples, who owns them, names."""
    import numpy as np

    from bonafed.learning.data import datasets

    with explained():
        data = datasets.load(name)
    total = hashlib.sha256()
    for item in fields(data):
        part = "" if item.name == "name" else getattr(data, item.name)
        if isinstance(part, np.ndarray):
            array = np.ascontiguousarray(part)
            total.update(f"{item.name} {array.dtype} {array.shape}\n".encode())
            total.update(array.data)
        else:
            total.update(f"{item.name} {part!r}\n".encode())
    return total.hexdigest()


# Functions of files outside the package


def own_module(path: Path) -> Any:
    """A file of the user's as a module; the same one every time."""
    full = path.resolve()
    name = _OWN + hashlib.sha256(str(full).encode()).hexdigest()[:8]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise InvalidValue("claim", "must be a Python file", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_or_file(compute: Compute) -> str:
    """Where the code of a function is: its module, or the user's file."""
    module = compute.__module__
    return str(sys.modules[module].__file__) if module.startswith(_OWN) else module


# Runs as cells


def run_cell(
    name: str, tables: Mapping[str, Any], *, metrics: Sequence[str] = (), weight: float = 1.0
) -> Cell:
    """A training run as a cell: its summary, and columns of its log as `metrics`, a list per name."""
    run = {**tables.get("run", {}), "cores": 1}  # cells have the cores
    arguments = {"tables": {**tables, "run": run}, "metrics": metrics}
    return training_cell(name, train_cell, arguments, tables, weight)


def training_cell(
    name: str,
    compute: Compute,
    arguments: Mapping[str, Any],
    tables: Mapping[str, Any],
    weight: float = 1.0,
) -> Cell:
    """A cell that trains under the mechanism of a config, with the data that the config names."""
    from bonafed.mechanisms import catalogue

    slice_module = catalogue.of_table(tables).module
    code = ("bonafed.runs.training", "bonafed.runs.prepare", slice_module)
    plain: JSONObject = json.loads(json.dumps(arguments))
    return Cell(name, compute, plain, (tables["data"]["name"],), code, weight)


def train_cell(arguments: JSONObject, folder: Path) -> JSONObject:
    """Train a run, or resume it."""
    return train_module(arguments, folder)


def train_module(arguments: JSONObject, folder: Path, module: nn.Module | None = None) -> JSONObject:
    """Like `train_cell`, of a model of one's own in the place of the one that the config names."""
    done = trained(arguments["tables"], folder, module=module)
    columns = {name: [record[name] for record in done.metrics] for name in arguments["metrics"]}
    summary = json.loads(json.dumps(done.summary))
    return {**summary, "metrics": columns}


def trained(tables: JSONObject, folder: Path, **own: Any) -> RunResult:
    """A run by its config, or the rest of one; its folder stays only while it is unfinished.

    `own` is what takes the place of something that the config names, as `prepare` has it.
    """
    from bonafed.runs import config, prepare, training
    from bonafed.runs import folder as folders

    run_folder = folder / "run"
    prepared = prepare.prepare(config.from_tables(tables), **own)
    done = training.train(prepared, run_folder, resume=folders.holds_run(run_folder))
    shutil.rmtree(run_folder)
    return done
