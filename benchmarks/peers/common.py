"""What every worker of `training.py` shares: the case it is given and how it reports its rounds.

A worker is started as `python <worker>.py CASE.npz OUT.npz [argument]`. It waits for a line on standard
input before each round and answers on standard output with the round's wall and CPU time, so that
`training.py` can let the workers take turns. Anything else a worker's libraries print goes to standard
error. After the first round it saves the weights to OUT.npz, where they are compared before a time counts.
This file is imported in every virtual environment: NumPy and PyTorch only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

torch.set_num_threads(1)


@dataclass(frozen=True)
class Case:
    """One case: the same start, samples and batches for everyone."""

    model: str
    start: Tensor  # (P,) flat weights
    features: Tensor
    labels: Tensor
    sizes: list[int]  # samples per client
    order: Tensor  # sample numbers, client after client, in the order of training
    batch: int
    rate: float
    clip: float | None
    rounds: int  # to be run, the warm-up included
    seed: int

    def batches(self, client: int) -> Iterator[Tensor]:
        """Sample numbers of each step of a client."""
        yield from self.own(client).split(self.batch)

    def own(self, client: int) -> Tensor:
        """All sample numbers of a client, in the order of training."""
        return self.order[self._ends[client] - self.sizes[client] : self._ends[client]]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(self.sizes))


def load_case(path: str | Path) -> Case:
    """Read what `training.py` wrote."""
    with np.load(path) as file:
        head = json.loads(str(file["head"]))
        tensors = {k: torch.from_numpy(file[k]) for k in ("start", "features", "labels", "order")}
    return Case(**head, **tensors)


@cache
def shared_case(path: str) -> Case:
    """The same, read once per process."""
    return load_case(path)


def build(name: str) -> nn.Sequential:
    """The model, without initial weights: 28 x 28 images, 10 classes."""
    if name == "softmax":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def put(module: nn.Module, flat: Tensor) -> None:
    """Load flat weights into a module, in the order of its parameters."""
    start = 0
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(flat[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()


def get(module: nn.Module) -> Tensor:
    """Flat weights of a module."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def train(model: nn.Module, case: Case, client: int) -> None:
    """The local training of one client, as anyone would write it."""
    optimizer = torch.optim.SGD(model.parameters(), case.rate)
    for index in case.batches(client):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(case.features[index]), case.labels[index]).backward()
        optimizer.step()


class Gate:
    """Between two rounds: report the last one, wait until the next may start.

    Ends when the input does, or after so many rounds.
    """

    def __init__(self, out: str, rounds: int | None = None, processes: bool = False) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print must not mix with the answers
        self._out, self._left, self._processes = out, rounds, processes
        self._started: tuple[float, float] | None = None
        self._saved = False

    def ready(self, weights: Tensor | np.ndarray) -> bool:
        """The state before a round, which is that after the last one; False when all are done."""
        wall, used = time.perf_counter(), self._cpu()
        if self._started is not None:
            if not self._saved:
                np.savez(self._out, weights=np.asarray(weights))
                self._saved = True
            peak = self._peak()
            self._say({"wall": wall - self._started[0], "cpu": used - self._started[1], "peak": peak})
        else:
            self._say({"ready": True})
        if self._left == 0 or not sys.stdin.readline():
            return False
        if self._left is not None:
            self._left -= 1
        used = self._cpu()  # takes milliseconds for several processes: not part of the round
        self._started = (time.perf_counter(), used)
        return True

    def _say(self, what: dict[str, object]) -> None:
        self._answers.write(json.dumps(what) + "\n")
        self._answers.flush()

    def _cpu(self) -> float:
        """CPU seconds of this process, or of it and all processes below it."""
        if not self._processes:
            return time.process_time()
        ticks = os.sysconf("SC_CLK_TCK")
        return sum(sum(map(int, stat(pid)[11:15])) for pid in family()) / ticks

    def _peak(self) -> float:
        """Peak resident memory in bytes; for several processes, the sum of their peaks.

        Not getrusage's: on Linux that starts from the peak of the process that started this one.
        """
        return sum(_high_water(pid) for pid in (family() if self._processes else [os.getpid()]))


def stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on; zeros for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ["0"] * 50


def family() -> list[int]:
    """This process and everything it started."""
    parents = {int(p.name): int(stat(int(p.name))[1]) for p in Path("/proc").iterdir() if p.name.isdigit()}
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _high_water(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(float(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
