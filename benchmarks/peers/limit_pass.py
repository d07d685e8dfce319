"""Worker: the limit, one forward and backward pass of a single model over all samples, 1000 at a time.

It trains nothing. What it saves is the gradient of the mean loss at the start, which is compared with the
engine's.
"""

import sys

import torch
from common import Gate, build, load_case, put
from torch import nn

BATCH = 1000


def main(path: str, out: str) -> None:
    """Passes over the same samples."""
    case = load_case(path)
    model = build(case.model)
    put(model, case.start)
    n = case.labels.numel()
    gate, gradient = Gate(out), torch.zeros_like(case.start)
    while gate.ready(gradient):
        model.zero_grad()
        for x, y in zip(case.features.split(BATCH), case.labels.split(BATCH), strict=True):
            (nn.functional.cross_entropy(model(x), y, reduction="sum") / n).backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
