"""Accuracy of private training beside Opacus: `python benchmarks/private_accuracy.py [--only PATTERN]`.

One client holds all of MNIST, so that it is Opacus's problem: the same images, model, initial weights,
clip, learning rate, batch size and number of steps. Each side calibrates its noise, draws its batches
and keeps its account by itself, at the same epsilon and delta, for adding or removing one record. Then the
federated case: 20 clients, batches in passes (for replacing one record) and by secret coins.

Every cell is printed as soon as it is measured; `--json FILE` appends them to a file, and cells that are in
it are not measured again. An accuracy is shown next to its target, never asserted. One thread throughout.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bonafed.learning.data.datasets import load
from bonafed.runs import config, prepare, training
from harness import commit, last_lines
from training import HERE, ONE_THREAD, NotMeasured, interpreter

DELTA = 1e-5
EPSILONS = (1.0, 2.0, 8.0)
BEHIND = 0.01  # accuracy, at most


@dataclass(frozen=True)
class Cell:
    """One run."""

    side: str  # "Opacus", "poisson" or "passes"
    model: str
    clients: int
    epsilon: float
    seed: int
    epochs: int
    batch: int
    rate: float
    clip: float
    data: str = "mnist"

    @property
    def name(self) -> str:
        """For `--only` and to find it in a file."""
        return f"{self.model}-{self.clients}-{self.side}-{self.epsilon:g}-{self.seed}"

    @property
    def row(self) -> tuple[str, int, float]:
        """Cells that differ in side and seed alone share a row."""
        return self.model, self.clients, self.epsilon


def cells(softmax_seeds: int, cnn_seeds: int) -> Iterator[Cell]:
    """The smallest first."""
    for epsilon, seed in product(EPSILONS, range(softmax_seeds)):
        for side in ("Opacus", "poisson"):
            yield Cell(side, "softmax", 1, epsilon, seed, epochs=5, batch=600, rate=1.0, clip=1.0)
    for epsilon, seed in product(EPSILONS, range(softmax_seeds)):
        for side in ("passes", "poisson"):
            yield Cell(side, "softmax", 20, epsilon, seed, epochs=5, batch=64, rate=0.5, clip=1.0)
    for epsilon, seed in product(EPSILONS, range(cnn_seeds)):
        for side in ("Opacus", "poisson"):
            yield Cell(side, "small-cnn", 1, epsilon, seed, epochs=3, batch=600, rate=0.5, clip=1.0)


def tables(cell: Cell) -> dict[str, dict[str, Any]]:
    """The run of a cell as a config."""
    batches = cell.side if cell.side != "Opacus" else "poisson"
    return {
        "data": {"name": cell.data},
        "partition": {"kind": "iid", "clients": cell.clients},
        "model": {"name": cell.model},
        "training": {"rounds": cell.epochs, "batch_size": cell.batch, "learning_rate": cell.rate},
        "privacy": {"clip": cell.clip, "epsilon": cell.epsilon, "delta": DELTA, "batches": batches},
        "run": {"seed": cell.seed, "cores": 1, "evaluate_every": cell.epochs},
    }


def ours(cell: Cell) -> dict[str, Any]:
    """A run of bonafed's."""
    made = prepare.prepare(config.from_tables(tables(cell)))
    summary = training.train(made).summary
    calibrated = made.mechanism.begin(made.agreement, made.start).noise_multipliers
    return {
        "accuracy": summary["test_accuracy"],
        "spent": summary["epsilon"],
        "noise_multiplier": float(calibrated.max()),
        "steps": summary["steps"],
    }


def opacus(cell: Cell) -> dict[str, Any]:
    """The same in Opacus's environment, from the same initial weights."""
    data, made = load(cell.data), prepare.prepare(config.from_tables(tables(cell)))
    with tempfile.TemporaryDirectory() as folder:
        case = Path(folder) / "case.npz"
        np.savez(
            case, head=json.dumps({**asdict(cell), "delta": DELTA}), start=made.start,
            features=data.features, labels=data.labels,
            test_features=data.test_features, test_labels=data.test_labels,
        )  # fmt: skip
        done = subprocess.run(
            [str(interpreter("opacus")), str(HERE / "peers" / "opacus_accuracy.py"), str(case)],
            capture_output=True, text=True, env=os.environ | ONE_THREAD,
        )  # fmt: skip
    if done.returncode:
        raise NotMeasured(f"failed: {last_lines(done.stderr)}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(cell: Cell) -> dict[str, Any]:
    """What a cell comes to, and how long it took."""
    began = time.perf_counter()
    found = opacus(cell) if cell.side == "Opacus" else ours(cell)
    return {**asdict(cell), **found, "seconds": round(time.perf_counter() - began, 1)}


def table(done: dict[str, dict[str, Any]], wanted: list[Cell]) -> str:
    """Means over the seeds, smallest and largest in brackets."""
    lines = [
        "| model | clients | epsilon | left: accuracy | right: accuracy | noise | right - left | target |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in dict.fromkeys(cell.row for cell in wanted):
        sides = list(dict.fromkeys(cell.side for cell in wanted if cell.row == row))
        found = {
            side: [done[c.name] for c in wanted if c.row == row and c.side == side and c.name in done]
            for side in sides
        }
        if not all(found.values()):
            continue
        means = [statistics.mean(r["accuracy"] for r in found[side]) for side in sides]
        texts = [f"{side} {_range([r['accuracy'] for r in found[side]])}" for side in sides]
        noise = " / ".join(f"{found[side][0]['noise_multiplier']:.3f}" for side in sides)
        ahead = means[1] - means[0]
        target = "" if sides[0] != "Opacus" else f"> -1, {'met' if ahead > -BEHIND else 'missed'}"
        model, clients, epsilon = row
        lines.append(
            f"| {model} | {clients} | {epsilon:g} | {texts[0]} | {texts[1]} | {noise} "
            f"| {100 * ahead:+.2f} | {target} |"
        )
    return "\n".join(lines)


def _range(values: list[float]) -> str:
    mean = f"{100 * statistics.mean(values):.2f} %"
    return mean if len(values) == 1 else f"{mean} ({100 * min(values):.2f} to {100 * max(values):.2f})"


def smallest() -> None:
    """A pass over the digits by either kind of batches; Opacus is not needed."""
    few = [
        Cell(side, "softmax", 2, 2.0, 0, epochs=1, batch=500, rate=0.5, clip=1.0, data="digits")
        for side in ("passes", "poisson")
    ]
    print(table({cell.name: measure(cell) for cell in few}, few))


def main() -> None:
    """Measure what is asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="cells by name, such as 'softmax-1-*'")
    parser.add_argument("--softmax-seeds", type=int, default=3)
    parser.add_argument("--cnn-seeds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="append results; what is there is not measured again")
    options = parser.parse_args()
    print(f"commit {commit()}", file=sys.stderr)
    wanted = list(cells(options.softmax_seeds, options.cnn_seeds))
    done: dict[str, dict[str, Any]] = {}
    if options.json is not None and options.json.exists():
        rows = [json.loads(line) for line in options.json.read_text().splitlines()]
        done = {row.pop("name"): row for row in rows}
    for cell in wanted:
        if cell.name in done or not fnmatch(cell.name, options.only):
            continue
        found = done[cell.name] = measure(cell)
        print(cell.name, f"{found['accuracy']:.4f}, {found['seconds']} s", file=sys.stderr, flush=True)
        if options.json is not None:
            with options.json.open("a") as file:
                file.write(json.dumps({"name": cell.name, **found}) + "\n")
    print(table(done, wanted))


if __name__ == "__main__":
    main()
