"""A round on a real federation, beside Flower alone: `python -m benchmarks.flower [--quick]`.

    python -m benchmarks.flower [--nodes N ...] [--models NAME ...] [--rounds N] [--quick] [--json FILE]

One SuperLink with TLS and node authentication on loopback, with the same flags, certificates and registered
keys for three ways to average the same model over the same nodes:

    bonafed    `bonafed train --on flower`, members that run `bonafed participate`
    secure     the same with --secure-sums, which takes three members at least
    Flower     `peers/flower_app`: the strategy FedAvg of Flower and a ClientApp that imports PyTorch, on
               nodes that run `flower-supernode`

Nodes reach the SuperLink through a proxy that counts bytes. After each round the time is taken down, with
the bytes, the CPU seconds of all processes of the federation (those that have ended too), and the messages
that a node has logged. A figure is the median over the rounds after the first; `whole run` is from the
command to its end, with the start of the app, its transfer to the nodes, contract and receipts. Nodes look
for messages all the time, which counts on either side. A way that does not reach the weights (softmax) and
the accuracy of the first stops the run. Nothing is asserted about times. See flower.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.harness import Disagreement, agree, machine, say
from benchmarks.wire import Reading, Wire, cpu_seconds
from tests.flower.clinics import begin, said, weights
from tests.flower.harness import PARTICIPATE, Trial

from bonafed.flower.commands import Connection, environment, flwr
from bonafed.flower.participating import LOG, free_port
from bonafed.flower.simulation import trial_settings
from bonafed.learning.engine.jobs import Job, batches, job_rng
from bonafed.learning.work import LocalTraining
from bonafed.runs import toml
from bonafed.runs.config import from_tables
from bonafed.runs.data import hold
from bonafed.runs.prepare import prepare

HERE = Path(__file__).resolve().parent
MODELS = {"softmax": "softmax", "small CNN": "small-cnn"}  # as shown, and in a config
RATE, EPOCHS, BATCH, SEED = 0.1, 5, 8, 1
TOLERANCE = 1e-3  # largest difference of a weight of softmax between two ways, in the end
NOISE = (
    0.03  # largest difference of the accuracy: in the CNN, single precision alone moves weights by a tenth
)
IDLE = 10.0  # seconds in which idle nodes are watched
PATIENCE = 300.0  # seconds that a round may take
LEAST = 3  # members of a secure sum


@dataclass(frozen=True)
class Measured:
    """One way, one model; what is per round is the median over the rounds after the first."""

    way: str
    model: str
    nodes: int
    parameters: int
    rounds: int
    accuracy: float  # on the test samples, in the end
    apart: float  # largest difference of a weight to the first way
    exchanges: float  # per round
    seconds: list[float]  # of every round after the first
    cpu: list[float]  # seconds, likewise
    down: float  # bytes to a node, per round
    up: float  # bytes from it
    run_exchanges: int  # of the whole run
    run_seconds: float
    run_cpu: float
    run_bytes: float  # to and from a node
    load: tuple[float, float]  # average of a minute, before and after


# --- the federation --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model on nodes."""

    model: str
    nodes: int
    rounds: int

    @property
    def names(self) -> list[str]:
        """Of the members."""
        return [f"node{number}" for number in range(self.nodes)]

    @property
    def tables(self) -> dict[str, Any]:
        """The config of the run."""
        training = {"rounds": self.rounds, "epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE}
        return {
            "data": {"name": "digits"}, "partition": {"kind": "iid", "clients": self.nodes},
            "model": {"name": MODELS[self.model]}, "training": training, "run": {"seed": SEED},
        }  # fmt: skip


class Place:
    """A running SuperLink, the wire to it, and a folder for runs."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.names = folder, case.names
        self.trial = Trial(folder / "federation", case.names)
        self.wire = Wire(self.trial.membership.address)
        self._furnish(case)

    def _furnish(self, case: Case) -> None:
        """Every node's samples: by its settings, and for Flower alone in a file, with their order."""
        config = from_tables(case.tables)
        held = hold(config)
        spec = LocalTraining(batch_size=BATCH, learning_rate=RATE, epochs=EPOCHS)
        for number, (name, part) in enumerate(zip(self.names, held.parts, strict=True)):
            path = self.trial.folder.settings(name)
            settings = trial_settings(path, config, number, {})
            settings["federation"]["address"] = self.wire.address
            path.write_text(toml.dumps(settings), encoding="utf-8")
            job = Job(number, np.arange(part.size))
            order = [
                np.concatenate(batches(job, spec, job_rng(SEED, 1 + place, job)))
                for place in range(case.rounds)
            ]
            np.savez(
                self.samples(name), features=held.features[part], labels=held.dataset.labels[part],
                order=np.reshape(order, (case.rounds, EPOCHS, part.size)),
            )  # fmt: skip

    def samples(self, name: str) -> Path:
        """What a node of Flower alone reads."""
        return self.trial.folder.member(name) / "samples.npz"

    def open(self) -> None:
        """Start the SuperLink, and register everybody."""
        self.trial.start_superlink()
        self.trial.register()

    def close(self) -> None:
        """End everything."""
        try:
            self.trial.close()
        finally:
            self.wire.shutdown()
            self.wire.server_close()

    def reading(self, log: Path) -> Reading:
        """All counters now; messages are those in the log of a node."""
        messages = log.read_bytes().count(b"Receiving: ")
        return Reading(time.perf_counter(), cpu_seconds(), self.wire.up, self.wire.down, messages)

    def watch(self, log: Path, place: Path, rounds: int, check: Callable[[], None]) -> list[Reading]:
        """A reading after every round, when its line is in the file of metrics."""
        readings: list[Reading] = []
        metrics, end = place / "metrics.jsonl", time.monotonic() + PATIENCE
        while len(readings) < rounds:
            check()
            if time.monotonic() > end:
                raise TimeoutError(f"round {len(readings) + 1} took more than {PATIENCE:g} seconds")
            if metrics.is_file() and metrics.read_bytes().count(b"\n") > len(readings):
                readings.append(self.reading(log))
                end = time.monotonic() + PATIENCE
            time.sleep(0.01)
        return readings


@contextmanager
def participants(place: Place) -> Iterator[Path]:
    """Members that run `bonafed participate`; the log of the first one's node."""
    for name in place.names:
        place.trial.start(name, PARTICIPATE)
    try:
        place.trial.await_connected(*place.names)
        yield place.trial.folder.member(place.names[0]) / "state" / LOG
    finally:
        for name in place.names:
            place.trial.stop(name)


@contextmanager
def supernodes(place: Place) -> Iterator[Path]:
    """The same members as nodes of Flower alone; the log of the first one."""
    nodes: list[subprocess.Popen[bytes]] = []
    logs = [place.trial.folder.path / f"{name}.flower.log" for name in place.names]
    try:
        for name, log in zip(place.names, logs, strict=True):
            own = place.trial.folder.member(name)
            command = [
                "flower-supernode", "--root-certificates", str(own / "ca.crt"),
                "--superlink", place.wire.address, "--auth-supernode-private-key", str(own / "key"),
                "--port", str(free_port()), "--node-config", f'samples="{place.samples(name)}"',
            ]  # fmt: skip
            with log.open("wb") as file:
                nodes.append(
                    subprocess.Popen(
                        command, env=environment(own / "flower"), stdout=file, stderr=file,
                        start_new_session=True,
                    )
                )  # fmt: skip
        end = time.monotonic() + PATIENCE
        while not all(b"SuperNode ID" in log.read_bytes() for log in logs):
            if time.monotonic() > end:
                raise TimeoutError(f"no connection: {logs[0].read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        yield logs[0]
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(60)


# --- the ways --------------------------------------------------------------------------------------


def by_bonafed(place: Place, log: Path, case: Case, way: str) -> tuple[Reading, list[Reading]]:
    """A run of `bonafed train`: the reading before it, and after each round."""
    name = _name(case, way)
    before = place.reading(log)
    more = ("--secure-sums",) if way == "secure" else ()
    process = begin(place.trial, place.folder, name, case.tables, *more)

    def require_alive() -> None:
        if process.poll() not in (None, 0):
            said(process)  # says why

    try:
        readings = place.watch(log, place.folder / "runs" / name, case.rounds, require_alive)
        said(process)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
    return before, readings


def by_flower(place: Place, log: Path, case: Case, way: str) -> tuple[Reading, list[Reading]]:
    """The same by Flower alone."""
    runs = place.folder / "runs" / _name(case, way)
    runs.mkdir(parents=True)
    setting = prepare(from_tables(case.tables))
    test = setting.test
    np.savez(runs / "server.npz", start=setting.start, features=test.features, labels=test.labels)
    options = {
        "folder": f'"{runs}"', "nodes": case.nodes, "rounds": case.rounds, "batch": BATCH, "rate": RATE,
    }  # fmt: skip
    words = " ".join(f"{key}={value}" for key, value in options.items())
    app = place.folder / "app"
    if not app.exists():  # without what Python left beside it: all of a folder is sent
        shutil.copytree(HERE / "peers" / "flower_app", app, ignore=shutil.ignore_patterns("__pycache__"))
    name = place.trial.membership.name
    before = place.reading(log)
    connection = Connection(name, place.trial.folder.home.absolute())
    flwr(connection, ["run", str(app), name, "--run-config", words])
    readings = place.watch(log, runs, case.rounds, lambda: None)
    while not (runs / "model.pt").is_file():
        time.sleep(0.05)
    return before, readings


def _name(case: Case, way: str) -> str:
    return f"{MODELS[case.model]}-{way.lower()}"


def measured(place: Place, log: Path, case: Case, way: str, expected: Measured | None) -> Measured:
    """One run, reduced to figures."""
    say(f"{case.nodes} nodes, {case.model}, {way}")
    load = os.getloadavg()[0]
    before, readings = (by_flower if way == "Flower" else by_bonafed)(place, log, case, way)
    after = place.reading(log)
    name, nodes = _name(case, way), case.nodes
    lines = (place.folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
    model = weights(place.folder, name)
    accuracy, apart = float(json.loads(lines[-1])["test_accuracy"]), 0.0
    if expected is not None:
        apart = float(np.abs(model - weights(place.folder, _name(case, expected.way))).max())
        agree(apart <= TOLERANCE or case.model != "softmax", f"{name}: a weight differs by {apart:.1e}")
        off = abs(accuracy - expected.accuracy)
        agree(off <= NOISE, f"{name}: the accuracy differs by {off:.3f}")
    steps = list(pairwise(readings))

    def middle(field: str) -> float:
        return statistics.median(getattr(now, field) - getattr(then, field) for then, now in steps)

    return Measured(
        way, case.model, nodes, model.size, case.rounds, accuracy, apart,
        middle("messages"), [now.clock - then.clock for then, now in steps],
        [now.cpu - then.cpu for then, now in steps], middle("down") / nodes, middle("up") / nodes,
        after.messages - before.messages, after.clock - before.clock, after.cpu - before.cpu,
        (after.up + after.down - before.up - before.down) / nodes, (load, os.getloadavg()[0]),
    )  # fmt: skip


@dataclass(frozen=True)
class Idle:
    """What nodes use that have nothing to do."""

    way: str
    nodes: int
    cpu: float  # seconds of all processes, per second
    bytes: float  # to and from a node, per second


def idle(place: Place, log: Path, way: str) -> Idle:
    """Watch for a while."""
    before = place.reading(log)
    time.sleep(IDLE)
    after = place.reading(log)
    taken, nodes = after.clock - before.clock, len(place.names)
    passed = after.up + after.down - before.up - before.down
    return Idle(way, nodes, (after.cpu - before.cpu) / taken, passed / taken / nodes)


def federation(nodes: int, models: Sequence[str], rounds: int) -> Iterator[Measured | Idle]:
    """All ways and models with so many nodes: one SuperLink, the same keys."""
    cases = [Case(model, nodes, rounds) for model in models]
    with tempfile.TemporaryDirectory(prefix="bonafed-") as folder:
        place = Place(Path(folder), cases[0])
        try:
            place.open()
            first: dict[str, Measured] = {}
            with participants(place) as log:
                for case in cases:
                    first[case.model] = measured(place, log, case, "bonafed", None)
                    yield first[case.model]
                    if nodes >= LEAST:
                        yield measured(place, log, case, "secure", first[case.model])
                yield idle(place, log, "bonafed")
            with supernodes(place) as log:
                for case in cases:
                    yield measured(place, log, case, "Flower", first[case.model])
                yield idle(place, log, "Flower")
        finally:
            place.close()


# --- the tables ------------------------------------------------------------------------------------


def line(row: Measured) -> str:
    """One row of the first table."""
    seconds, model = statistics.median(row.seconds), 4 * row.parameters
    spread = f"{seconds:.2f} ({min(row.seconds):.2f} to {max(row.seconds):.2f})"
    per_round = f"{row.down / 1e3:.2f} + {row.up / 1e3:.2f}"
    return (
        f"| {row.nodes} | {row.model} | {row.way} | {row.exchanges:g} | {spread} | "
        f"{statistics.median(row.cpu):.2f} | {per_round} | {row.down / model:.2f} + {row.up / model:.2f} | "
        f"{row.run_seconds:.0f} | {row.run_bytes / 1e3:.0f} | {100 * row.accuracy:.1f} | "
        f"{row.load[0]:.1f}, {row.load[1]:.1f} |"
    )


def verdict(ours: Measured, flower: Measured) -> str:
    """Both targets for one case."""
    slower = statistics.median(ours.seconds) / statistics.median(flower.seconds)
    cpu = statistics.median(ours.cpu) / statistics.median(flower.cpu)
    passed = (ours.down + ours.up) / (flower.down + flower.up)
    whole = ours.run_bytes / flower.run_bytes
    return (
        f"| {ours.nodes} | {ours.model} | {slower:.2f} | {_met(slower <= 1)} | {cpu:.2f} | {passed:.2f} | "
        f"{_met(passed <= 1.1)} | {whole:.2f} |"
    )


def _met(target: bool) -> str:
    return "met" if target else "MISSED"


def _head(*names: str) -> str:
    return "| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|"


def show(rows: Sequence[Measured | Idle]) -> None:
    """Print all tables."""
    runs = [row for row in rows if isinstance(row, Measured)]
    print(
        _head(
            "nodes", "model", "way", "exchanges", "seconds (range)", "CPU s", "kB to + from a node",
            "in models", "whole run, s", "whole run, kB", "accuracy, %", "load",
        )
    )  # fmt: skip
    print("\n".join(map(line, runs)))
    print("\n" + _head("nodes", "model", "seconds", "<= 1", "CPU", "bytes", "<= 1.1", "bytes, whole run"))
    by_way = {(row.nodes, row.model, row.way): row for row in runs}
    for (nodes, model, way), row in by_way.items():
        if way == "bonafed" and (nodes, model, "Flower") in by_way:
            print(verdict(row, by_way[nodes, model, "Flower"]))
    print("\n" + _head("nodes", "way", "idle: CPU s per s", "idle: bytes per s and node"))
    for row in rows:
        if isinstance(row, Idle):
            print(f"| {row.nodes} | {row.way} | {row.cpu:.3f} | {row.bytes:.0f} |")


def _write(path: Path | None, facts: dict[str, Any], rows: Sequence[Measured | Idle]) -> None:
    """All rows so far: a run that is stopped keeps what it has."""
    if path is not None:
        content = [{"kind": type(row).__name__, **asdict(row)} for row in rows]
        path.write_text(json.dumps({"machine": facts, "rows": content}, indent=1) + "\n")


def smallest() -> None:
    """Everything but the SuperLink, which needs Flower: what nodes are given, the wire, the tables."""
    case = Case("softmax", 2, 2)
    with tempfile.TemporaryDirectory(prefix="bonafed-") as folder:
        place = Place(Path(folder), case)
        log = Path(folder) / "node.log"
        log.write_text("Receiving: a message\n")
        try:
            for name in case.names:
                with np.load(place.samples(name)) as file:
                    count = len(file["labels"])
                    agree(file["order"].shape == (case.rounds, EPOCHS, count), "samples without an order")
            reading = place.reading(log)
        finally:
            place.wire.shutdown()
            place.wire.server_close()
    made = [
        Measured(way, case.model, 2, 650, 2, 0.9, 0.0, reading.messages, [1.0], [1.0], 1.0, 1.0, 2, 2.0,
                 2.0, 2.0, os.getloadavg()[:2])
        for way in ("bonafed", "Flower")
    ]  # fmt: skip
    show([*made, Idle("bonafed", 2, reading.cpu, 0.0)])


def main() -> None:
    """Measure, print the tables, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8], metavar="N")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME")
    parser.add_argument(
        "--rounds", type=int, default=7, metavar="N", help="at least 2: the first does not count"
    )
    parser.add_argument("--quick", action="store_true", help="two nodes, softmax, three rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    if options.quick:
        options.nodes, options.models, options.rounds = [2], ["softmax"], 3
    if options.rounds < 2 or min(options.nodes) < 2:
        parser.error("--rounds and --nodes must be at least 2")
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    facts = machine(torch=version("torch"), flwr=version("flwr"))
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    rows: list[Measured | Idle] = []
    try:
        for nodes in options.nodes:
            for row in federation(nodes, options.models, options.rounds):
                rows.append(row)
                _write(options.json, facts, rows)
    except Disagreement as error:
        sys.exit(f"error: the two sides disagree: {error}")
    show(rows)
    print(f"Medians over {options.rounds - 1} rounds after the first; cores may have been shared (load).")


if __name__ == "__main__":
    main()
