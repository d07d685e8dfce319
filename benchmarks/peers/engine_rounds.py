"""Worker: bonafed's engine; the argument is the number of cores."""

import sys
from functools import partial

import numpy as np
from common import Gate, build, load_case

from bonafed.learning.engine.crew import Crew
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import program_for
from bonafed.learning.federation import run_round, weighted_mean
from bonafed.learning.work import LocalTraining


def main(path: str, out: str, cores: int) -> None:
    """Rounds through `run_round`, which draws the batches itself, from the same seed."""
    case = load_case(path)
    ends = np.cumsum(case.sizes)
    parts = [np.arange(end - size, end) for end, size in zip(ends, case.sizes, strict=True)]
    spec = LocalTraining(batch_size=case.batch, learning_rate=case.rate, clip=case.clip)
    program, samples = program_for(build(case.model)), Samples(case.features, case.labels)
    everyone = weighted_mean(np.arange(len(parts)), case.sizes)
    gate, weights = Gate(out, processes=cores > 1), case.start
    one = partial(run_round, program, samples=samples, parts=parts, participation=everyone, spec=spec)
    with Crew(program, samples, cores) as crew:
        while gate.ready(weights):
            weights = one(weights=weights, seed=case.seed, round_number=0, crew=crew).weights


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
