"""How much faster two cores can be at best: `python benchmarks/cores.py [--cases PATTERN ...]`.

Two processes that share nothing run the same round of the engine, one thread each: first one of them alone,
then both at the same time. Had each core its own way to memory, both would take as long as one does alone,
and two cores would give twice the rounds. What is missing from two is lost in the machine, whatever a
program is split into; what `bonafed, 2 cores` of `training.py` misses beyond that is lost in dealing out
work. Medians over several turns.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from harness import commit
from training import ENGINE, PEERS, SHORT, Peer, Setting, Worker, say, settings, write_case

BOTH = ENGINE, replace(ENGINE, name="the other")
CASES = ("*/100/10/equal/*", "*/100/64/dirichlet/*")


def several(worker: Worker, rounds: int) -> float:
    """Median wall time of some rounds, after one that is dropped."""
    worker.round()
    return statistics.median(worker.round().wall for _ in range(rounds))


def ceiling(
    setting: Setting, repeats: int, peers: tuple[Peer, Peer] = BOTH, short: float = SHORT
) -> tuple[float, float, float]:
    """Seconds of a round alone, and beside the other process; rounds per second of both over one's."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        write_case(setting, 1, folder / "case.npz")
        workers = [Worker(peer, folder / "case.npz", folder) for peer in peers]
        try:
            warm_up = max(worker.round().wall for worker in workers)
            rounds = max(1, math.ceil(short / warm_up))
            alone, beside = [], []
            for _ in range(repeats):
                alone += [several(worker, rounds) for worker in workers]
                beside += pool.map(several, workers, [rounds] * 2)
        finally:
            for worker in workers:
                worker.stop()
    one, both = statistics.median(alone), statistics.median(beside)
    return one, both, 2 * one / both


def smallest() -> None:
    """Of the loop and the limit, since `training.py` runs the engine: two workers, side by side."""
    loop, limit = (peer for peer in PEERS if peer.name in ("loop", "limit"))
    print(ceiling(Setting("softmax", 2, 10, "equal", False), 1, (loop, limit), short=0.0))


def main(given: Sequence[str] | None = None) -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", metavar="PATTERN", default=CASES, help="as for training.py")
    parser.add_argument("--repeats", type=int, default=5, help="turns (default 5)")
    asked = parser.parse_args(given)
    say(f"commit {commit()}")
    print("| case | alone, s | beside the other, s | two cores at best |\n|---|---|---|---|")
    for setting in settings():
        if any(fnmatch(setting.name, pattern) for pattern in asked.cases):
            say(setting.name)
            one, both, most = ceiling(setting, asked.repeats)
            print(f"| {setting.name} | {one:.3g} | {both:.3g} | {most:.2f} |", flush=True)


if __name__ == "__main__":
    main()
