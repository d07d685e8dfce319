"""Every model beside the plain loop: `python benchmarks/models.py [--json FILE]`.

`training.py` measures softmax and the small CNN with all peers. Here every model that `bonafed train`
knows, and a recurrent one of the kind users bring, makes the same local steps twice: through the engine and
one client after the other in plain PyTorch (`bonafed.learning.engine.sequential`, which clips sample by
sample). One thread; the changes of all clients are compared before a time counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from bonafed.learning.engine.jobs import Job, Samples, Update
from bonafed.learning.engine.programs import flat_parameters, program_for
from bonafed.learning.engine.resources import single_threaded
from bonafed.learning.engine.sequential import run_jobs_sequentially
from bonafed.learning.engine.training import run_jobs
from bonafed.learning.models import build
from bonafed.learning.work import LocalTraining
from harness import Row, agree, in_turn, run, say

WORDS, LENGTH, CLASSES = 5000, 30, 5
SAMPLES = 20  # of each client


class Rows(nn.Module):
    """PyTorch's own LSTM over the rows of an image, which vmap cannot run."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(28, 64, batch_first=True), nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.lstm(x[:, 0])[0][:, -1])
        return result


def images(side: int, channels: int, n: int) -> Tensor:
    """Random ones."""
    return torch.randn(n, channels, side, side)


def sentences(n: int) -> Tensor:
    """Random words."""
    return torch.randint(1, WORDS, (n, LENGTH))


# name: (module, features of n samples, clients)
Case = tuple[Callable[[], nn.Module], Callable[[int], Tensor], int]
CASES: dict[str, Case] = {
    "softmax": (partial(build, "softmax", (1, 28, 28), CLASSES, 0), partial(images, 28, 1), 20),
    "small-cnn": (partial(build, "small-cnn", (1, 28, 28), CLASSES, 0), partial(images, 28, 1), 20),
    "mnist-cnn": (partial(build, "mnist-cnn", (1, 28, 28), CLASSES, 0), partial(images, 28, 1), 8),
    "cifar-cnn": (partial(build, "cifar-cnn", (3, 32, 32), CLASSES, 0), partial(images, 32, 3), 4),
    "resnet18": (partial(build, "resnet18", (3, 32, 32), CLASSES, 0), partial(images, 32, 3), 2),
    "text-lstm": (partial(build, "text-lstm", (LENGTH,), CLASSES, 0, WORDS), sentences, 8),
    "nn.LSTM, own": (Rows, partial(images, 28, 1), 20),
}


def row(name: str, clip: float | None, repeats: int) -> Row:
    """One model, with or without clipping."""
    make, features, clients = CASES[name]
    torch.manual_seed(0)
    module, x = make(), features(clients * SAMPLES)
    samples = Samples(x, torch.randint(0, CLASSES, (len(x),)))
    parts = list(np.arange(len(x)).reshape(clients, SAMPLES))
    jobs = [Job(client, part) for client, part in enumerate(parts)]
    spec = LocalTraining(10, 0.01, clip=clip)
    start, program = flat_parameters(module), program_for(module, sample=x[:1])

    def engine() -> list[Update]:
        return list(run_jobs(program, start, samples, jobs, spec, seed=0, round_number=0))

    def loop() -> list[Update]:
        return list(run_jobs_sequentially(module, start, samples, jobs, spec, seed=0, round_number=0))

    with single_threaded():
        for ours, theirs in zip(engine(), loop(), strict=True):
            apart = float((ours.change - theirs.change).abs().max())
            agree(apart <= 1e-5, f"{name}: {apart:.1e} apart")
        timing = in_turn(engine, loop, repeats)
    kind = "plain" if clip is None else "clipped"
    return timing.row(f"{name}, {clients} clients, {kind}", "loop", "peer/bonafed >=", 1.0)


def rows(repeats: int) -> Iterator[Row]:
    """All of them."""
    for name in CASES:
        for clip in (None, 1.0):
            say(f"{name}, clip {clip}")
            yield row(name, clip, repeats)


def smallest() -> None:
    """The smallest model, clipped."""
    print(row("softmax", 1.0, 1))


if __name__ == "__main__":
    run("Measure every model beside the plain loop.", (rows,), torch=torch.__version__)
