"""Worker: bonafed's engine; the argument is the number of cores."""

import sys

import numpy as np
from common import Gate, build, load_case

from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import program_for
from bonafed.learning.federation import Models, Roster
from bonafed.learning.local import EngineFederation
from bonafed.learning.rounds import require_all, training_tasks, weighted_mean
from bonafed.learning.server import Server, plain_change, stepped
from bonafed.learning.work import LocalTraining


def one_round(federation: EngineFederation, model: Models, spec: LocalTraining, seed: int) -> Models:
    """As a mechanism goes through it: tasks, their sum, the model after it."""
    members = federation.members
    everyone = weighted_mean(np.arange(len(members)), members.sizes)
    tasks = training_tasks(members.names, model, everyone, spec, round_number=0, seed=seed)
    total = federation.total(tasks, everyone.weights)
    require_all(tasks, total, 0)
    server = Server()
    change = plain_change(everyone, total, fill_in=True)
    return stepped(model, change, server, server.begin(len(members), model.size), 0)[0]


def main(path: str, out: str, cores: int) -> None:
    """Rounds in which the engine draws the batches itself, from the same seed."""
    case = load_case(path)
    ends, sizes = np.cumsum(case.sizes), np.array(case.sizes)
    parts = [np.arange(end - size, end) for end, size in zip(ends, case.sizes, strict=True)]
    spec = LocalTraining(batch_size=case.batch, learning_rate=case.rate, clip=case.clip)
    program, samples = program_for(build(case.model)), Samples(case.features, case.labels)
    members = Roster(tuple(map(str, range(len(parts)))), sizes)
    gate, model = Gate(out, processes=cores > 1), case.start.numpy()
    with EngineFederation(members, program, samples, parts, cores=cores) as federation:
        while gate.ready(model):
            model = one_round(federation, model, spec, case.seed)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
