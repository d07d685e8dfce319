"""Side-by-side measurements of the learning engine: `python benchmarks/training.py [--quick]`.

Everyone gets the same initial weights, samples and batch order in a file and runs in a process of its own,
one thread each, peers in virtual environments of their own under build/peers/. After one round the
weights are compared; a run in which they differ stops with an error. Then the workers take turns, round
by round, so that what else the machine does hits all of them, and the medians over the warm rounds are
shown as ratios. Times are never asserted: a row shows its target and whether this run met it. See
README.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from itertools import product
from pathlib import Path

import numpy as np
import torch

from bonafed.learning.data.partition import quantity_dirichlet
from bonafed.learning.engine.jobs import Job, batches, job_rng
from bonafed.learning.engine.programs import flat_parameters, program_for
from bonafed.learning.models import build
from bonafed.learning.work import LocalTraining
from harness import Disagreement, WorkerFailed, last_lines, machine

SEED = 2026
PER_CLIENT = 100  # samples, on average
CLIP = 1.0
SHORT = 1.0  # seconds
RATES = {"softmax": 0.1, "small-cnn": 0.05}
TOLERANCE = {"softmax": 1e-5, "small-cnn": 1e-4}  # largest difference of a weight after one round
MEMORY = 2.5e9  # bytes, for 1000 clients of the CNN
HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / "build" / "peers"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class NotMeasured(Exception):
    """A peer cannot be measured; says why."""


@dataclass(frozen=True)
class Setting:
    """One case."""

    model: str
    clients: int
    batch: int
    sizes: str  # "equal" or "dirichlet"
    private: bool

    @property
    def name(self) -> str:
        """As given to --cases."""
        kind = "private" if self.private else "plain"
        return f"{self.model}/{self.clients}/{self.batch}/{self.sizes}/{kind}"


@dataclass(frozen=True)
class Peer:
    """Something that runs rounds."""

    name: str
    script: str
    environment: str | None = None  # None: the one this runs in
    argument: str | None = None
    plain: bool = True  # runs the cases without clipping
    private: bool = True  # and those with


ENGINE = Peer("bonafed", "engine_rounds.py", argument="1")
CORES = Peer("bonafed, 2 cores", "engine_rounds.py", argument="2")
FLOWER = Peer("Flower", "flower_rounds.py", "flower")
PEERS = (
    CORES,
    Peer("loop", "loop_rounds.py"),
    Peer("pfl", "pfl_rounds.py", "pfl", private=False),
    Peer("Opacus", "opacus_rounds.py", "opacus", plain=False),
    FLOWER,
    Peer("limit", "limit_pass.py"),
)


@dataclass(frozen=True)
class Turn:
    """One round of one worker."""

    wall: float
    cpu: float
    peak: float  # bytes


@dataclass(frozen=True)
class Row:
    """One line of the table; times are medians in seconds."""

    case: str
    peer: str
    bonafed: Turn
    measured: Turn | None = None
    ratio: float | None = None  # of wall times, in the direction the target names
    ratio_range: tuple[float, float] | None = None
    difference: float | None = None  # largest, of a weight (limit: of the gradient)
    target: str = ""
    met: bool | None = None
    note: str = ""


def settings() -> list[Setting]:
    """All cases, small ones first."""
    return [
        Setting(model, clients, batch, sizes, private)
        for clients, model, batch, sizes, private in product(
            (10, 100, 1000), RATES, (10, 64), ("equal", "dirichlet"), (False, True)
        )
    ]


def quick(setting: Setting) -> bool:
    """The four cases most targets are about."""
    return (setting.clients, setting.batch, setting.sizes) == (100, 10, "equal")


def write_case(setting: Setting, rounds: int, path: Path) -> None:
    """Draw start, samples and batch order, and save them for the workers."""
    rng = np.random.default_rng(np.random.SeedSequence((SEED, setting.clients)))
    n = setting.clients * PER_CLIENT
    labels = rng.integers(0, 10, n)
    sizes = [PER_CLIENT] * setting.clients
    if setting.sizes == "dirichlet":
        sizes = [part.size for part in quantity_dirichlet(labels, setting.clients, rng, 0.5)]
    features = 0.1 * rng.standard_normal((n, 1, 28, 28), dtype=np.float32)
    rate, clip = RATES[setting.model], CLIP if setting.private else None
    spec = LocalTraining(batch_size=setting.batch, learning_rate=rate, clip=clip)
    order, first = [], 0
    for client, size in enumerate(sizes):
        job = Job(client, np.arange(first, first + size))
        order += batches(job, spec, job_rng(SEED, 0, job))
        first += size
    head = {
        "model": setting.model, "sizes": sizes, "batch": setting.batch, "rate": rate, "clip": clip,
        "rounds": rounds, "seed": SEED,
    }  # fmt: skip
    start = flat_parameters(build(setting.model, (1, 28, 28), 10, SEED)).numpy()
    all_of = np.concatenate(order)
    np.savez(path, head=json.dumps(head), start=start, features=features, labels=labels, order=all_of)


def mean_gradient(setting: Setting, case: Path) -> np.ndarray:
    """Gradient of the mean loss at the start, from the engine's program: what the limit must give."""
    with np.load(case) as file:
        start, x, y = (torch.from_numpy(file[k]) for k in ("start", "features", "labels"))
    program = program_for(build(setting.model, (1, 28, 28), 10, SEED))
    total = torch.zeros_like(start)
    for a, b in zip(torch.split(x, 500), torch.split(y, 500), strict=True):
        share = torch.full((1, len(b)), 1 / len(y))
        total += program.gradients(start[None], a[None], b[None], share, None)[1][0]
    result: np.ndarray = total.numpy()
    return result


def interpreter(environment: str | None) -> Path:
    """The Python of a peer's virtual environment, made on demand."""
    if environment is None:
        return Path(sys.executable)
    wanted = (HERE / "peers" / f"requirements-{environment}.txt").read_text()
    home = ENVIRONMENTS / environment
    mark, python = home / "installed.txt", home / "bin" / "python"
    if mark.exists() and mark.read_text() == wanted:
        return python
    say(f"{environment}: making its virtual environment")
    shutil.rmtree(home, ignore_errors=True)
    _must([sys.executable, "-m", "venv", str(home)])
    pip = [str(python), "-m", "pip"]
    # all pins, nothing else: what PyTorch would pull in for a graphics card is never downloaded
    pins = str(HERE / "peers" / f"requirements-{environment}.txt")
    _must([*pip, "install", "--quiet", "--no-deps", "-r", pins])
    if "nvidia" in _must([*pip, "list"]).lower():
        raise NotMeasured(f"{environment}: pip installed packages for a graphics card")
    mark.write_text(wanted)
    return python


def _must(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NotMeasured(f"install failed: {last_lines(done.stderr)}")
    return done.stdout


class Worker:
    """A peer's process, between rounds."""

    def __init__(self, peer: Peer, case: Path, folder: Path) -> None:
        self.peer = peer
        stem = peer.name.replace(" ", "-").replace(",", "")
        self._out, self._log = folder / f"{stem}.npz", folder / f"{stem}.log"
        script = HERE / "peers" / peer.script
        command = [str(interpreter(peer.environment)), str(script), str(case), str(self._out)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command + ([peer.argument] if peer.argument else []),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=os.environ | ONE_THREAD, cwd=folder,
            )  # fmt: skip
        try:
            self._answer()
        except NotMeasured:
            self.stop()
            raise

    def round(self) -> Turn:
        """Let it run one round."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer below says what happened
        return Turn(**self._answer())

    def result(self) -> np.ndarray:
        """The weights after its first round."""
        with np.load(self._out) as file:
            weights: np.ndarray = file["weights"]
        return weights

    def stop(self) -> None:
        """End it, politely first: end of input tells it to leave."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise NotMeasured(f"failed: {last_lines(self._log.read_text(errors='replace'))}")
        answer: dict[str, float] = json.loads(line)
        return answer


@dataclass(frozen=True)
class Measured:
    """What came of one case."""

    turns: dict[str, list[Turn]]  # warm rounds by peer
    once: dict[str, Turn]  # the only round of those that were too slow for more
    differences: dict[str, float]
    missing: dict[str, str]  # peer: why not


def measure(
    setting: Setting,
    peers: Sequence[Peer],
    repeats: int,
    patience: float,
    folder: Path,
    short: float = SHORT,
) -> Measured:
    """Start the workers, compare their weights, then let them take turns.

    A turn is several rounds where one takes less than `short` seconds.
    """
    case = folder / "case.npz"
    write_case(setting, 2 * repeats + 1, case)
    workers: list[Worker] = []
    missing: dict[str, str] = {}
    try:
        for peer in (ENGINE, *peers):
            try:
                workers.append(Worker(peer, case, folder))
            except NotMeasured as problem:
                missing[peer.name] = str(problem)
        once: dict[str, Turn] = {}
        workers = [w for w in workers if _warm(w, patience, once, missing)]
        _require_ours(setting, missing)
        differences = compare(setting, case, workers)
        patient = [w for w in workers if w.peer.name not in once]
        turns: dict[str, list[Turn]] = {worker.peer.name: [] for worker in patient}
        for number in range(repeats):
            say(f"{setting.name}: round {number + 1} of {repeats}")
            for worker in patient:
                if worker.peer.name not in missing:
                    _one(worker, turns, missing, short)
        _require_ours(setting, missing)
        turns = {k: v for k, v in turns.items() if k not in missing}
        return Measured(turns, once, differences, missing)
    finally:
        for worker in workers:
            worker.stop()


def _require_ours(setting: Setting, missing: dict[str, str]) -> None:
    """Peers may be missing, bonafed may not: every ratio is to it."""
    if ENGINE.name in missing:
        raise WorkerFailed(f"{setting.name}: bonafed {missing[ENGINE.name]}")


def _one(worker: Worker, turns: dict[str, list[Turn]], missing: dict[str, str], short: float) -> None:
    """One turn: a round, or the median of about a second of rounds where one is shorter than that.

    Short rounds are measured after a dropped one, as the turns of the others emptied the caches and
    the system took back memory meanwhile. Flower, whose number of rounds is fixed, runs one more.
    """
    try:
        turn = worker.round()
        if turn.wall < short:
            more = 1 if worker.peer is FLOWER else math.ceil(short / turn.wall)
            several = [worker.round() for _ in range(more)]
            # of several processes, CPU seconds are counted in steps of 0.01: only their mean means anything
            turn = replace(_median(several), cpu=statistics.fmean(t.cpu for t in several))
        turns[worker.peer.name].append(turn)
    except NotMeasured as problem:
        missing[worker.peer.name] = str(problem)


def _warm(worker: Worker, patience: float, once: dict[str, Turn], missing: dict[str, str]) -> bool:
    """The warm-up round; False, with the reason noted, for a worker that fails.

    A round longer than `patience` is the only one its worker runs, and is what it is measured by.
    """
    name = worker.peer.name
    try:
        turn = worker.round()
    except NotMeasured as problem:
        missing[name] = str(problem)
        worker.stop()
        return False
    say(f"  {name}: warm-up {turn.wall:.2f} s")
    if turn.wall > patience and worker.peer is not ENGINE:
        once[name] = turn
        worker.stop()
    return True


def compare(setting: Setting, case: Path, workers: Sequence[Worker]) -> dict[str, float]:
    """Largest differences from bonafed after one round; an error where one is too large."""
    ours, found = workers[0].result(), {}
    for worker in workers[1:]:
        is_limit = worker.peer.script == "limit_pass.py"
        beside = mean_gradient(setting, case) if is_limit else ours
        difference = float(np.abs(worker.result() - beside).max())
        if not difference <= TOLERANCE[setting.model]:  # NaN is no agreement
            raise Disagreement(f"{setting.name}: {worker.peer.name} differs by {difference:.1e}")
        found[worker.peer.name] = difference
    return found


def target(setting: Setting, peer: str) -> tuple[str, Callable[[float], bool] | None]:
    """What the ratio should be: its text and a test; no target, no test."""
    least, most = _bounds(setting, peer)
    if least is not None:
        return f">= {least:g}", lambda ratio: ratio >= least
    if most is not None:
        return f"<= {most:g}", lambda ratio: ratio <= most
    return "", None


def _bounds(setting: Setting, peer: str) -> tuple[float | None, float | None]:
    """Smallest ratio wanted, or largest."""
    cnn, ragged = setting.model == "small-cnn", (setting.batch, setting.sizes) == (64, "dirichlet")
    if peer == "Flower":
        return 10.0, None
    if peer == CORES.name:
        return 1.6, None
    if ragged:
        return (1.0 if peer == "loop" else None), (1.5 if peer == "limit" and cnn else None)
    if not quick(setting):
        return None, None
    if peer == "limit":
        return None, (1.6 if setting.private else 1.5) if cnn else None
    if setting.private:
        return {"Opacus": 7.0 if cnn else 25.0}.get(peer), None
    return {"loop": 3.0 if cnn else 15.0, "pfl": 2.8 if cnn else 10.0}.get(peer), None


def rows(setting: Setting, measured: Measured) -> Iterator[Row]:
    """The lines of one case."""
    for peer in PEERS:
        wanted, test = target(setting, peer.name)
        # Flower runs a client on every core, so what stands beside it may use them too
        with_all_cores = peer is FLOWER and CORES.name in measured.turns
        ours = measured.turns[CORES.name if with_all_cores else ENGINE.name]
        middle = _median(ours)
        row = Row(setting.name, peer.name, middle, target=wanted)
        if peer.name in measured.missing:
            yield replace(row, note=f"not measured: {measured.missing[peer.name]}")
        elif peer.name in measured.turns or peer.name in measured.once:
            # beside the single round of a slow peer stand all of ours
            single = measured.once.get(peer.name)
            theirs = measured.turns[peer.name] if single is None else [single] * len(ours)
            ratios = [_ratio(peer.name, a.wall, b.wall) for a, b in zip(ours, theirs, strict=True)]
            ratio = statistics.median(ratios)
            yield replace(
                row, measured=_median(theirs), ratio=ratio, ratio_range=(min(ratios), max(ratios)),
                difference=measured.differences[peer.name],
                met=test(ratio) if test and single is None else None,  # targets are about warm rounds
                note="" if single is None else "one round, cold",
            )  # fmt: skip
    if setting.model == "small-cnn" and setting.clients == 1000:
        alone = _median(measured.turns[ENGINE.name])
        yield Row(setting.name, "memory", alone, target="< 2.5 GB", met=alone.peak < MEMORY)


def _ratio(peer: str, ours: float, theirs: float) -> float:
    """How many times bonafed's a peer's figure is; for the limit and two cores the other way round."""
    return ours / theirs if peer in ("limit", CORES.name) else theirs / ours


def _median(turns: Sequence[Turn]) -> Turn:
    return Turn(
        statistics.median(t.wall for t in turns),
        statistics.median(t.cpu for t in turns),
        max(t.peak for t in turns),
    )


HEAD = (
    "| case | beside | bonafed s (CPU s, MB) | peer s (CPU s, MB) | ratio (range) | CPU | memory | differ "
    "| target | |\n|---|---|---|---|---|---|---|---|---|---|"
)


def line(row: Row) -> str:
    """A row as a line of the table."""
    ours, peer = row.bonafed, row.measured
    cells = [row.case, row.peer, _cell(ours)]
    if peer is None:
        cells += ["", "", "", "", ""]
    else:
        assert row.ratio is not None
        assert row.ratio_range is not None
        low, high = row.ratio_range
        cells += [
            _cell(peer), f"{row.ratio:.2f} ({low:.2f}-{high:.2f})",
            f"{_ratio(row.peer, ours.cpu, peer.cpu):.2f}", f"{_ratio(row.peer, ours.peak, peer.peak):.2f}",
            f"{row.difference:.0e}",
        ]  # fmt: skip
    verdict = ", ".join(filter(None, [{None: "", True: "met", False: "missed"}[row.met], row.note]))
    return "| " + " | ".join([*cells, row.target, verdict]) + " |"


def _cell(turn: Turn) -> str:
    return f"{turn.wall:.3g} ({turn.cpu:.3g}, {turn.peak / 1e6:.0f})"


def overview(found: Sequence[Row]) -> str:
    """One line per case: ratios of wall times, bold where a target is met, italic where one is missed."""
    names = [peer.name for peer in PEERS]
    lines = [
        "| case | bonafed, s | MB | " + " | ".join(names) + " |",
        "|---" * (3 + len(names)) + "|",
    ]
    for case in dict.fromkeys(row.case for row in found):
        beside = {row.peer: row for row in found if row.case == case}
        alone = next(row.bonafed for row in beside.values() if row.peer != FLOWER.name)
        cells = [_short(beside.get(name)) for name in names]
        memory = _marked(f"{alone.peak / 1e6:.0f}", beside["memory"].met if "memory" in beside else None)
        lines.append(f"| {case} | {alone.wall:.3g} | {memory} | " + " | ".join(cells) + " |")
    aims = [row.met for row in found if row.met is not None]
    return "\n".join([*lines, "", f"{sum(aims)} of {len(aims)} targets met"])


def _short(row: Row | None) -> str:
    if row is None or row.ratio is None:
        return "" if row is None else "-"
    return _marked(("~" if row.note else "") + f"{row.ratio:.3g}", row.met)


def _marked(text: str, met: bool | None) -> str:
    return {None: text, True: f"**{text}**", False: f"*{text}*"}[met]


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def run(
    chosen: Sequence[Setting],
    peers: Sequence[Peer],
    repeats: int,
    patience: float,
    kept: Path | None,
    found: list[Row],
) -> None:
    """Measure the cases not found yet, one after the other; a line is printed and kept once it is known."""
    place = {setting.name: k for k, setting in enumerate(settings())}
    print("\n".join([HEAD, *map(line, found)]), flush=True)
    for number, setting in enumerate(chosen):
        if any(row.case == setting.name for row in found):
            continue
        say(f"[{number + 1}/{len(chosen)}] {setting.name} (load {os.getloadavg()[0]:.1f})")
        applies = [p for p in peers if (p.private if setting.private else p.plain)]
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(setting, applies, repeats, patience, Path(folder))
        for row in rows(setting, measured):
            found.append(row)
            print(line(row), flush=True)
        found.sort(key=lambda row: place[row.case])
        if kept is not None:
            kept.write_text(_saved(found))
    print("\n" + overview(found))


def _saved(found: Sequence[Row]) -> str:
    return (
        json.dumps(
            {"about": machine(torch=torch.__version__), "rows": [asdict(row) for row in found]}, indent=1
        )
        + "\n"
    )


def _read(path: Path) -> list[Row]:
    """The rows `_saved` wrote."""

    def turn(value: dict[str, float] | None) -> Turn | None:
        return None if value is None else Turn(**value)

    return [
        Row(**{**row, "bonafed": turn(row["bonafed"]), "measured": turn(row["measured"])})
        for row in json.loads(path.read_text())["rows"]
    ]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="100 equal clients, batch 10, both models")
    parser.add_argument("--cases", nargs="+", metavar="PATTERN", help="e.g. 'small-cnn/100/64/*/private'")
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="only these, e.g. loop limit")
    parser.add_argument("--repeats", type=int, default=5, help="warm rounds (default 5)")
    parser.add_argument("--patience", type=float, default=120.0, metavar="SECONDS",
                        help="a peer whose first round takes longer runs no other (120)")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also save all rows, after every case")
    parser.add_argument("--resume", action="store_true",
                        help="keep the cases in the --json file, measure the others")  # fmt: skip
    parser.add_argument("--show", type=Path, metavar="FILE", help="only print the tables of saved rows")
    parser.add_argument("--list", action="store_true", help="name the cases and leave")
    return parser.parse_args(given)


def smallest() -> None:
    """A clipped round of three clients, beside the limit (`cores.py` runs the loop)."""
    setting = Setting("softmax", 3, 64, "dirichlet", True)
    beside = [peer for peer in PEERS if peer.name == "limit"]
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(setting, beside, 1, math.inf, Path(folder), short=0.0)
    if measured.missing:
        raise WorkerFailed(str(measured.missing))
    found = list(rows(setting, measured))
    print("\n".join([HEAD, *map(line, found), "", overview(found)]))


def main() -> None:
    """Measure what was asked for."""
    asked = arguments()
    chosen = [s for s in settings() if not asked.quick or quick(s)]
    if asked.cases:
        chosen = [s for s in chosen if any(fnmatch(s.name, pattern) for pattern in asked.cases)]
    if asked.list:
        print("\n".join(s.name for s in chosen))
        return
    if asked.resume and asked.json is None:
        raise SystemExit("--resume needs --json FILE")
    if asked.show and not asked.show.exists():
        raise SystemExit(f"{asked.show} must be a file of saved rows, got no such file")
    if asked.show:
        found = _read(asked.show)
        print("\n".join([HEAD, *map(line, found), "", overview(found)]))
        return
    peers = [p for p in PEERS if asked.peers is None or p.name in asked.peers]
    began = time.perf_counter()
    found = _read(asked.json) if asked.resume and asked.json.exists() else []
    say(", ".join(f"{name} {value}" for name, value in machine(torch=torch.__version__).items()))
    try:
        run(chosen, peers, asked.repeats, asked.patience, asked.json, found)
    except (Disagreement, WorkerFailed) as problem:
        raise SystemExit(f"error: {problem}") from None
    say(f"{len(chosen)} cases in {(time.perf_counter() - began) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
