"""What secret noise costs: private rounds of this version beside those of another one.

    git worktree add --detach ../before v0.1        # any earlier commit
    python benchmarks/private_noise.py --before ../before/src

A process per version, on one core, both alive at the same time and asked for a round in turn; times are CPU
times of the process, which others on the machine disturb less than they disturb the clock. The data are
random: what they hold changes no time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

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


def worker(name: str) -> None:
    """Rounds on request: a line in, the CPU seconds of a round out."""
    import numpy as np
    import torch

    from bonafed.learning import models
    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import flat_parameters, program_for
    from bonafed.learning.federation import Roster
    from bonafed.learning.local import EngineFederation
    from bonafed.learning.participation import weighted_mean
    from bonafed.learning.rounds import training_tasks
    from bonafed.learning.server import Server, plain_change, stepped
    from bonafed.learning.work import LocalTraining

    model, shape, clients, each, batch = CASES[name]
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
        for number, _ in enumerate(sys.stdin):
            began = time.process_time()
            tasks = training_tasks(
                members.names, weights, everyone, spec, round_number=number, seed=0, noise_multipliers=noise
            )
            total = federation.total(tasks, everyone.weights)
            change = plain_change(everyone, total, fill_in=False)
            weights, state = stepped(weights, change, server, state, number)
            print(time.process_time() - began, flush=True)


def start(source: Path, name: str) -> subprocess.Popen[str]:
    """A worker of the version in this folder, by its own script, which knows what to import."""
    script = source.parent / "benchmarks" / HERE.name
    return subprocess.Popen(
        [sys.executable, str(script), "--worker", name],
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process: subprocess.Popen[str]) -> float:
    """CPU seconds of one more round."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("round\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(name: str, before: Path, rounds: int) -> dict[str, float | str]:
    """Medians of both versions, and of their ratio in neighbouring rounds."""
    processes = [start(before, name), start(HERE.parents[1] / "src", name)]
    try:
        for process in processes:
            ask(process)  # the first makes what later ones find
        pairs, began = list[list[float]](), time.monotonic()
        while len(pairs) < rounds or time.monotonic() < began + SECONDS:
            pairs.append([ask(process) for process in processes])
    finally:
        for process in processes:
            process.communicate()  # ends its input, and with it the process
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
    print("| private round | before, ms | now, ms | now/before (quartiles) | target |")
    print("|---|---|---|---|---|")
    rows = []
    for name in CASES:
        row = measure(name, asked.before.resolve(), asked.rounds)
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
