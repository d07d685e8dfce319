"""Worker: one client after the other in plain PyTorch, bonafed's readable twin of its engine."""

import sys
from functools import partial

import numpy as np
from common import Gate, build, load_case

from bonafed.learning.federation import make_jobs
from bonafed.learning.jobs import LocalTraining, Samples
from bonafed.learning.sequential import run_jobs_sequentially


def main(path: str, out: str) -> None:
    """Rounds of the sequential loop with the same weighted mean."""
    case = load_case(path)
    ends = np.cumsum(case.sizes)
    parts = [np.arange(end - size, end) for end, size in zip(ends, case.sizes, strict=True)]
    jobs = make_jobs(parts, np.arange(ends.size))
    spec = LocalTraining(batch_size=case.batch, learning_rate=case.rate, clip=case.clip)
    one, samples = partial(run_jobs_sequentially, build(case.model)), Samples(case.features, case.labels)
    gate, weights = Gate(out), case.start
    while gate.ready(weights):
        total = weights.double()
        updates = one(start=weights, samples=samples, jobs=jobs, spec=spec, seed=case.seed, round_number=0)
        for size, update in zip(case.sizes, updates, strict=True):
            total += size / int(ends[-1]) * update.change.double()
        weights = total.float()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
