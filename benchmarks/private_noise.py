"""What secret noise costs: private rounds of this version beside those of another one.

    git worktree add --detach ../before v0.1        # any earlier commit
    python benchmarks/private_noise.py --before ../before/src

A process per version, on one core, both alive at the same time and asked for a round in turn; times are CPU
times of the process, which others on the machine disturb less than they disturb the clock. The data are
random: what they hold changes no time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from harness import WorkerFailed, commit, last_lines

HERE = Path(__file__).resolve()
LIMIT = 1.3
SECONDS = 10.0  # for which a case is measured at least: short rounds, which scatter most, are many
# name: (model, shape of a sample, clients, samples of each, batch)
CASES = {
    "softmax, digits, 20 clients, batch 72": ("softmax", (1, 8, 8), 20, 72, 72),
    "softmax, 20 clients, batch 64": ("softmax", (1, 28, 28), 20, 256, 64),
    "softmax, 100 clients, batch 10": ("softmax", (1, 28, 28), 100, 100, 10),
    "softmax, 10 clients, batch 600": ("softmax", (1, 28, 28), 10, 600, 600),
    "small CNN, 20 clients, batch 64": ("small-cnn", (1, 28, 28), 20, 128, 64),
    "small CNN, 20 clients, batch 10": ("small-cnn", (1, 28, 28), 20, 50, 10),
}


def rounds(model: str, shape: tuple[int, ...], clients: int, each: int, batch: int) -> Iterator[float]:
    """CPU seconds of one private round after the other."""
    import numpy as np
    import torch

    from bonafed.learning import models
    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import flat_parameters, program_for
    from bonafed.learning.federation import Roster
    from bonafed.learning.local import EngineFederation
    from bonafed.learning.rounds import training_tasks, weighted_mean
    from bonafed.learning.server import Server, plain_change, stepped
    from bonafed.learning.work import LocalTraining

    torch.manual_seed(0)
    samples = Samples(torch.rand(clients * each, *shape), torch.randint(0, 10, (clients * each,)))
    parts = list(np.arange(clients * each).reshape(clients, each))
    everyone = weighted_mean(np.arange(clients), [each] * clients)
    module = models.build(model, shape, 10, seed=1)
    program, spec = program_for(module), LocalTraining(batch, 0.1, clip=1.0)
    weights, noise = flat_parameters(module).numpy(), np.full(clients, 0.5)
    members = Roster(tuple(map(str, range(clients))), np.full(clients, each))
    server = Server()
    state = server.begin(clients, weights.size)
    with EngineFederation(members, program, samples, parts) as federation:
        for number in count():
            began = time.process_time()
            tasks = training_tasks(
                members.names, weights, everyone, spec, round_number=number, seed=0, noise_multipliers=noise
            )
            total = federation.total(tasks, everyone.weights)
            change = plain_change(everyone, total, fill_in=False)
            weights, state = stepped(weights, change, server, state, number)
            yield time.process_time() - began


def worker(name: str) -> None:
    """Rounds on request: a line in, the CPU seconds of a round out."""
    for _, taken in zip(sys.stdin, rounds(*CASES[name]), strict=False):
        print(taken, flush=True)


class Version:
    """A worker of the version in this folder, by its own script, which knows what to import."""

    def __init__(self, source: Path, name: str) -> None:
        self._source, self._log = source, tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `stop`)
        self._process = subprocess.Popen(
            [sys.executable, str(source.parent / "benchmarks" / HERE.name), "--worker", name],
            env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip

    def ask(self) -> float:
        """CPU seconds of one more round."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # what is read below says what happened
            self._process.stdin.write("round\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self._log.seek(0)
            raise WorkerFailed(f"{self._source}: {last_lines(self._log.read())}")
        return float(answer)

    def stop(self) -> None:
        """End its input, and with it the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        self._log.close()


def measure(name: str, before: Path, least: int) -> dict[str, float | str]:
    """Medians of both versions, and of their ratio in neighbouring rounds."""
    versions = [Version(before, name), Version(HERE.parents[1] / "src", name)]
    try:
        for version in versions:
            version.ask()  # the first makes what later ones find
        pairs, began = list[list[float]](), time.monotonic()
        while len(pairs) < least or time.monotonic() < began + SECONDS:
            pairs.append([version.ask() for version in versions])
    finally:
        for version in versions:
            version.stop()
    old, new = zip(*pairs, strict=True)
    ratios = sorted(b / a for a, b in pairs)
    return {
        "case": name,
        "rounds": len(pairs),
        "before_ms": 1e3 * statistics.median(old),
        "now_ms": 1e3 * statistics.median(new),
        "ratio": statistics.median(ratios),
        "low": ratios[len(ratios) // 4],
        "high": ratios[3 * len(ratios) // 4],
    }


def smallest() -> None:
    """Two rounds of two clients, of this version alone."""
    for taken in islice(rounds("softmax", (1, 8, 8), 2, 4, 2), 2):
        print(taken)


def main() -> None:
    """Every case, as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", type=Path, help="the folder src of another version")
    parser.add_argument("--rounds", type=int, default=25, help="at least so many of each version")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", choices=CASES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        worker(asked.worker)
        return
    if asked.before is None or not (asked.before.resolve().parent / "benchmarks" / HERE.name).is_file():
        parser.error("--before must be the folder src of another version that has this benchmark")
    print(f"commit {commit()}, beside {asked.before}", file=sys.stderr)
    print("| private round | before, ms | now, ms | now/before (quartiles) | target |")
    print("|---|---|---|---|---|")
    rows = []
    for name in CASES:
        try:
            row = measure(name, asked.before.resolve(), asked.rounds)
        except WorkerFailed as problem:
            raise SystemExit(f"error: {problem}") from None
        rows.append(row)
        met = "met" if float(row["ratio"]) <= LIMIT else "missed"
        print(
            f"| {name} | {row['before_ms']:.1f} | {row['now_ms']:.1f} "
            f"| {row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f}) | <= {LIMIT}, {met} |",
            flush=True,
        )
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
