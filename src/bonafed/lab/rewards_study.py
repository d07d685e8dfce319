"""The command for the tables of the rewards paper: progress, resumption, tables, figures, and its speed.

    python -m bonafed.lab.rewards_study --data mnist fashion-mnist --results build/rewards.jsonl --cores 2

What is trained, and how, is in `rewards_cells`; what the tables hold in `rewards_tables`. With
`--against-loop` one round of the first setting is timed three ways first: by the engine on all cores, by
the engine on one, and by a loop over clients in plain PyTorch (`learning.engine.sequential`) with whatever
number of threads up to the cores given is best for it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.files import require_writable, write_together
from bonafed.lab.results import run_command
from bonafed.lab.rewards_cells import (
    TABLES,
    Cell,
    Federation,
    Outcome,
    cells,
    federation,
    read_cells,
    study,
)
from bonafed.lab.rewards_tables import METHODS, PARTITIONS, Finding, as_csv, as_markdown, figure, rows
from bonafed.mechanisms.rewards.history import Models
from bonafed.mechanisms.rewards.local import LocalRounds, ask
from bonafed.mechanisms.rewards.metrics import Evaluation

if TYPE_CHECKING:
    from bonafed.learning.engine.crew import Crew
    from bonafed.learning.engine.federation import EngineFederation


def findings(outcomes: dict[Cell, Outcome]) -> list[Finding]:
    """Every cell beside the standalone models of its setting."""
    found = []
    for cell, one in outcomes.items():
        alone = outcomes[cell.alone]
        parts = (one.accuracy, one.loss, alone.accuracy, alone.loss, alone.validation_accuracy)
        run = Evaluation(*(np.asarray(part) for part in parts))
        found.append(Finding(cell.data, cell.partition, cell.method, cell.learning_rate, run))
    return found


@dataclass(frozen=True, slots=True)
class Cost:
    """Time of one round of all clients."""

    seconds: float  # that passed
    cpu_seconds: float  # of processors, which other work on the machine hardly changes
    cores: int

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s on {self.cores} (processors {self.cpu_seconds:.2f} s)"


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """The same round computed in different ways, the fastest repetition of each."""

    engine: Cost  # on all cores
    engine_alone: Cost  # on one core
    loop: Cost  # client after client, with the best number of threads for it
    difference: float  # of the updates of engine and loop, relative (Euclidean norms), median over clients

    def __str__(self) -> str:
        times = self.loop.seconds / self.engine.seconds
        return (
            f"one round of all clients, by cores: engine {self.engine}, {self.engine_alone}; loop over "
            f"clients {self.loop}, {times:.1f} times the engine's; updates equal to {self.difference:.1e}"
        )


def time_round(cell: Cell, cores: int, repeats: int = 3) -> RoundTimes:
    """Round 1 of a setting by the engine and by the loop, in turn."""
    from bonafed.learning import datasets

    ready = federation(cell, datasets.load(cell.data), cores)
    models = np.tile(ready.start, (cell.clients, 1))
    ways: dict[tuple[str, int], Callable[[], Models]] = {}
    crews = []
    for n in dict.fromkeys((cores, 1)):
        clients = replace(ready.clients, cores=n)
        crews.append(clients.crew)
        ways["engine", n] = partial(_engine, clients, ready.local, models)
        ways["loop", n] = partial(_loop, ready, n)
    fastest: dict[tuple[str, int], Cost] = {}
    updates = {}
    for _ in range(checks.whole("repeats", repeats)):
        for way, run in ways.items():
            began, cpu = time.perf_counter(), _cpu_seconds(crews)
            updates[way] = run()
            cost = Cost(time.perf_counter() - began, _cpu_seconds(crews) - cpu, way[1])
            fastest[way] = min(cost, fastest.get(way, cost), key=lambda one: one.seconds)
    loop = min(fastest["loop", cores], fastest["loop", 1], key=lambda one: one.seconds)
    one, other = updates["engine", cores], updates["loop", 1]
    # Not the largest: with Adam, roundings in single precision grow for some clients within one round.
    difference = float(np.median(np.linalg.norm(one - other, axis=1) / np.linalg.norm(other, axis=1)))
    return RoundTimes(fastest["engine", cores], fastest["engine", 1], loop, difference)


def _cpu_seconds(crews: Sequence[Crew]) -> float:
    return time.process_time() + sum(crew.cpu_seconds_of_others for crew in crews)


def _engine(clients: EngineFederation, local: LocalRounds, models: Models) -> Models:
    """(N, P) the updates of round 1, all clients as one program."""
    return ask(clients, local, models, 1, np.ones(len(models), dtype=bool)).updates


def _loop(ready: Federation, threads: int) -> Models:
    """(N, P) the updates of round 1, one client after the other."""
    import torch

    from bonafed.learning.engine.jobs import Job
    from bonafed.learning.engine.sequential import run_jobs_sequentially

    local, clients, before = ready.local, ready.clients, torch.get_num_threads()
    jobs = [Job(i, part) for i, part in enumerate(clients.parts)]
    torch.set_num_threads(threads)
    try:
        done = run_jobs_sequentially(
            ready.module, torch.from_numpy(ready.start), clients.samples, jobs, local.training,
            seed=local.seed, round_number=1,
        )  # fmt: skip
        return np.stack([update.change.numpy() for update in done])
    finally:
        torch.set_num_threads(before)


class _Progress:
    """Lines on the error stream: the round, its seconds, and how long the whole study will take."""

    def __init__(self, wanted: Sequence[Cell], known: dict[Cell, Outcome]) -> None:
        self._left = sum(cell.rounds for cell in wanted if cell not in known)
        self._cells = sum(cell not in known for cell in wanted)
        self._in_cell: tuple[Cell, int] | None = None
        self._began: float | None = None  # of the first round, after data are loaded
        self._rounds = 0

    def round(self, cell: Cell, number: int, seconds: float) -> None:
        first = self._in_cell is None or self._in_cell[0] != cell
        self._left -= number if first else 1  # the first may follow rounds of a cell that was stopped
        self._in_cell = (cell, number)
        self._rounds += 1
        now = time.monotonic()
        self._began = now - seconds if self._began is None else self._began
        left = (now - self._began) / self._rounds * self._left
        line = (
            f"{cell.data}, {PARTITIONS[cell.partition].label}, {METHODS[cell.method]}: round {number} of "
            f"{cell.rounds}, {seconds:.1f} s; {self._cells} cells, {_duration(left)} left"
        )
        if sys.stderr.isatty():
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def cell(self, cell: Cell, outcome: Outcome) -> None:
        self._cells -= 1
        accuracy = np.asarray(outcome.accuracy)
        clear = "\r\x1b[K" if sys.stderr.isatty() else ""
        print(
            f"{clear}{cell.data}, {PARTITIONS[cell.partition].label}, "
            f"{METHODS[cell.method]}: mean accuracy {accuracy.mean():.2%}, best {accuracy.max():.2%}; "
            f"{outcome.seconds:.0f} s, {outcome.round_seconds:.2f} s a round",
            file=sys.stderr,
            flush=True,
        )


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def main(words: Sequence[str] | None = None) -> int:
    """The command line; 0 if all went well."""
    given = _parser().parse_args(words)
    return run_command(lambda: _main(given), given.results)


def _main(given: argparse.Namespace) -> None:
    settings = {name: getattr(given, name) for name in (*_WHOLE, *_REAL, *_WORDS)}
    base = Cell("standalone", "iid", given.data[0], **settings)
    wanted = cells(
        base, data=given.data, partitions=given.partitions, methods=given.methods, seeds=given.seed
    )
    for path in filter(None, (given.results, given.csv)):
        require_writable(path)
    if given.against_loop:
        print(time_round(wanted[0], given.cores), flush=True)
    progress = _Progress(wanted, read_cells(given.results))
    outcomes = study(
        wanted, given.results, cores=given.cores, every=given.keep_every,
        on_round=progress.round, on_cell=progress.cell,
    )  # fmt: skip
    found = findings(outcomes)
    table = rows(found)
    print(as_markdown(table))
    print(_cost(outcomes))
    files = {} if given.csv is None else {given.csv: as_csv(table).encode()}
    if given.figure is not None:
        from bonafed.style import render

        given.figure.mkdir(parents=True, exist_ok=True)
        for data in given.data:
            path = given.figure / f"rewards_{data}.png"
            files[path] = render(figure([one for one in found if one.data == data]), path)
    write_together(files)


def _cost(outcomes: dict[Cell, Outcome]) -> str:
    """Run time and seconds per round."""
    every = outcomes.values()
    total = sum(one.seconds for one in every)
    middle = float(np.median([one.round_seconds for one in every]))
    cpu = float(np.median([one.round_cpu_seconds for one in every]))
    clients = max(cell.clients for cell in outcomes)
    return (
        f"{len(outcomes)} cells in {_duration(total)}; a round of {clients} clients took {middle:.2f} s, "
        f"{cpu:.2f} s of processor time (medians over cells)"
    )


_WHOLE = ("clients", "rounds", "batch_size", "validation", "ranking")
_REAL = ("learning_rate", "decay")
_WORDS = ("model", "optimizer")


def _parser() -> argparse.ArgumentParser:
    form = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser("python -m bonafed.lab.rewards_study", formatter_class=form)
    add = parser.add_argument
    add("--data", nargs="+", default=["mnist", "fashion-mnist"])
    add("--partitions", nargs="+", choices=list(PARTITIONS), default=list(PARTITIONS))
    add("--methods", nargs="+", choices=list(METHODS), default=list(TABLES))
    add("--seed", type=int, nargs="+", default=[0], help="one or more")
    for names, kind in ((_WHOLE, int), (_REAL, float), (_WORDS, str)):
        for name in names:
            add(f"--{name.replace('_', '-')}", type=kind, default=getattr(Cell, name))
    add("--results", type=Path, default=Path("rewards.jsonl"), help="finished cells")
    add("--keep-every", type=int, default=5, help="rounds between checkpoints of the cell under way")
    add("--cores", type=int, default=2)
    add("--csv", type=Path, help="file to write the table to")
    add("--figure", type=Path, help="folder to draw a figure per data set in")
    add("--against-loop", action="store_true", help="time a round against a loop over clients first")
    return parser


if __name__ == "__main__":
    sys.exit(main())
