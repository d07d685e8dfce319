"""Worker: one client after the other in plain PyTorch.

Without clipping, bonafed's readable twin of its engine. With clipping the twin goes sample by sample, which
takes five times as long as it must: here the gradients of a batch come from one call, by `torch.func`.
"""

import sys
from collections.abc import Iterator

import numpy as np
import torch
from common import Case, Gate, build, get, load_case, put
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from bonafed.learning.engine.jobs import Job, Samples
from bonafed.learning.engine.sequential import run_jobs_sequentially
from bonafed.learning.work import LocalTraining


def changes(case: Case, weights: Tensor) -> Iterator[Tensor]:
    """What every client changes."""
    ends = np.cumsum(case.sizes)
    parts = [np.arange(end - size, end) for end, size in zip(ends, case.sizes, strict=True)]
    jobs = [Job(client, part) for client, part in enumerate(parts)]
    samples = Samples(case.features, case.labels)
    spec = LocalTraining(batch_size=case.batch, learning_rate=case.rate)
    updates = run_jobs_sequentially(
        build(case.model), weights, samples, jobs, spec, seed=case.seed, round_number=0
    )
    return (update.change for update in updates)


def clipped_changes(case: Case, weights: Tensor) -> Iterator[Tensor]:
    """The same where steps are sums of clipped gradients over the size of a full batch."""
    model = build(case.model)
    for client in range(len(case.sizes)):
        put(model, weights)
        _train_clipped(model, case, client)
        yield get(model) - weights


def _train_clipped(model: nn.Module, case: Case, client: int) -> None:
    assert case.clip is not None
    current = {name: value.detach() for name, value in model.named_parameters()}

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, values, (x[None],)), y[None])

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))
    for index in case.batches(client):
        gradients = per_sample(current, case.features[index], case.labels[index])
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        share = (case.clip / norms).clamp(max=1.0) / min(case.batch, case.sizes[client])
        for name, value in current.items():
            value -= case.rate * torch.tensordot(share, gradients[name], 1)


def main(path: str, out: str) -> None:
    """Rounds of the sequential loop with the same weighted mean."""
    case = load_case(path)
    one, total_size = changes if case.clip is None else clipped_changes, sum(case.sizes)
    gate, weights = Gate(out), case.start
    while gate.ready(weights):
        total = weights.double()
        for size, change in zip(case.sizes, one(case, weights), strict=True):
            total += size / total_size * change.double()
        weights = total.float()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
