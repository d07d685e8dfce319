"""Local training of all clients of a round as one program.

Jobs (`jobs.py`) are independent, so the engine is free to group them in any way; what a job computes does
not depend on the grouping:

    (1) each job has its own randomness, for the order of its samples and for its noise;
    (2) a group (`groups.py`) holds jobs of similar size, as many as are worth computing at once; which ones
        depends on the jobs alone, not on cores or order;
    (3) updates are added up in the order of the jobs, one by one, in double precision.

Groups are trained by a crew (`crew.py`), whose members are single-threaded. The memory for intermediate
results grows with the crew, not with clients; that for the updates, which wait for their turn in the sum,
grows with clients, and is needed twice where processes share them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.engine.crew import Crew
from bonafed.learning.engine.groups import RoundNoise, TrainingPlan
from bonafed.learning.engine.jobs import Job, Samples, Update
from bonafed.learning.engine.programs import CLIPPED_PIECE, Program
from bonafed.learning.engine.resources import single_threaded
from bonafed.learning.noise import Secret, Source, digest, digest_of_training
from bonafed.learning.work import LocalTraining, step_count

GROUP_BYTES = 256 << 20  # of parameters, gradients and optimizer state per member of a crew
WORTH_TWO = 1 << 20  # numbers of intermediate results in a call, half of which keep a core busy


def run_jobs(
    program: Program,
    start: Tensor,
    samples: Samples,
    jobs: Sequence[Job],
    spec: LocalTraining,
    *,
    seed: int,
    round_number: int,
    noise: Source | None = None,
    crew: Crew | None = None,
    group_bytes: int = GROUP_BYTES,
) -> Iterator[Update]:
    """Run the jobs; yields their updates in the order of the jobs.

    `start` is one model (P,) for all, or one model per job (len(jobs), P). Without a crew (of this program
    and these samples) groups are trained one after another. Each member of a crew holds at most
    `group_bytes` of parameters, gradients and optimizer state at a time (one job, if a job needs more).

    `seed` determines the order of samples. Noise, where jobs add any, and poisson batches come from the
    source `noise`; by default, from a secret made for this call and forgotten afterwards.
    """
    if not jobs:
        return
    crew = crew or Crew(program, samples)
    if crew.program is not program or crew.samples is not samples:
        raise InvalidValue("crew", "must belong to this program and these samples", "another one")
    _require_possible(program, start, jobs, spec)
    with single_threaded():
        for problem in problems(program, start, samples, jobs, round_number).values():
            raise problem
        updates = _train(crew, start, jobs, spec, seed, round_number, noise, group_bytes)
    yield from updates


def try_jobs(
    crew: Crew,
    start: Tensor,
    jobs: Sequence[Job],
    spec: LocalTraining,
    *,
    seed: int,
    round_number: int,
    noise: Source | None = None,
) -> list[Update | InvalidValue]:
    """Like `run_jobs` for the jobs that can be trained; for each job its update, or why there is none."""
    _require_possible(crew.program, start, jobs, spec)
    with single_threaded():
        bad = problems(crew.program, start, crew.samples, jobs, round_number)
        if not bad:
            return list(_train(crew, start, jobs, spec, seed, round_number, noise))
        indices = [index for index in range(len(jobs)) if index not in bad]
        begin = start if start.dim() == 1 else start[indices]
        updates = _train(crew, begin, [jobs[index] for index in indices], spec, seed, round_number, noise)
        return [bad[index] if index in bad else next(updates) for index in range(len(jobs))]


def _require_possible(program: Program, start: Tensor, jobs: Sequence[Job], spec: LocalTraining) -> None:
    """Refuse what is wrong with the whole request rather than with one job."""
    if start.shape not in ((program.size,), (len(jobs), program.size)):
        rule = f"must be ({program.size},) or, a model per job, ({len(jobs)}, {program.size})"
        raise InvalidValue("shape of the start models", rule, tuple(start.shape))
    if spec.later_rates is not None:
        most = max((step_count(job.samples.size, spec) for job in jobs), default=0)
        if len(spec.later_rates) < most - 1:
            rule = f"must cover at least {most - 1} local steps after the first"
            raise InvalidValue("later_rates", rule, len(spec.later_rates))
    if spec.clip is None and any(job.noise_multiplier for job in jobs):
        raise MissingValue("clip", "is required where noise is added")


def _train(
    crew: Crew,
    start: Tensor,
    jobs: Sequence[Job],
    spec: LocalTraining,
    seed: int,
    round_number: int,
    noise: Source | None,
    group_bytes: int = GROUP_BYTES,
) -> Iterator[Update]:
    """Updates of jobs that can be trained, in their order; each is dropped once it is yielded."""
    if not jobs:
        return iter(())
    plan = _plan(crew.program, crew.samples, jobs, spec, seed, round_number, group_bytes)
    if spec.batches == "poisson" or any(job.noise_multiplier for job in jobs):
        models = [digest(model) for model in start.view(-1, crew.program.size)]
        source, training = noise or Secret.fresh(), digest_of_training(spec, seed)
        plan = replace(plan, noise=RoundNoise(source, training, models, crew.digest_of_samples))
    updates = crew.train(start, plan)
    return (updates.pop(index) for index in range(len(jobs)))


def _plan(
    program: Program,
    samples: Samples,
    jobs: Sequence[Job],
    spec: LocalTraining,
    seed: int,
    round_number: int,
    group_bytes: int,
) -> TrainingPlan:
    """Jobs of similar size together, as many as are worth computing at once."""
    indices = sorted(range(len(jobs)), key=lambda index: _rank(jobs[index], spec))
    copies = {"sgd": 3, "momentum": 4, "adam": 5}[spec.optimizer]
    sample, clip = samples.features[0], spec.clip is not None
    most = program.samples_per_call(sample, clip)
    longest = _longest(spec, max(job.samples.size for job in jobs))
    computed = min(longest, CLIPPED_PIECE) if clip else longest  # at a time, of each job
    size = max(1, min(most // computed, group_bytes // (copies * 4 * program.size)))
    if 1 < len(jobs) <= size and len(jobs) * computed * program.numbers_kept(sample, clip) >= WORTH_TWO:
        size = math.ceil(len(jobs) / 2)
    at_once = most if longest <= most else program.samples_in_memory(sample, clip)
    return TrainingPlan(jobs, _in_groups(indices, size), spec, seed, round_number, most, at_once, None)


def _longest(spec: LocalTraining, most: int) -> int:
    """Samples of the longest batch; of poisson batches, of nearly all of them."""
    spread = 3 * math.isqrt(spec.batch_size) if spec.batches == "poisson" else 0
    return min(spec.batch_size + spread, most)


def _rank(job: Job, spec: LocalTraining) -> tuple[int, int, int, int]:
    """Most steps first; the order of the jobs does not matter."""
    return -step_count(job.samples.size, spec), -job.samples.size, job.client, job.copy


def _in_groups(indices: list[int], most: int) -> list[list[int]]:
    """Groups of at most `most`, about equal, and an even number of them: two cores finish together."""
    count = math.ceil(len(indices) / most)
    count += count > 1 and count % 2
    count = min(count, len(indices))
    return [indices[len(indices) * k // count : len(indices) * (k + 1) // count] for k in range(count)]


def problems(
    program: Program, start: Tensor, samples: Samples, jobs: Sequence[Job], round_number: int
) -> dict[int, InvalidValue]:
    """Jobs that cannot be trained, by place: clients without samples, or with a class the model lacks."""
    errors = {
        index: InvalidValue(f"client {job.client} in round {round_number}", "must have samples", 0)
        for index, job in enumerate(jobs)
        if job.samples.size == 0
    }
    if program.loss != "cross-entropy" or not samples.labels.numel():
        return errors
    with torch.no_grad():
        classes = program.outputs(start.view(-1, program.size)[:1], samples.features[None, :1]).shape[2]
    labels = samples.labels
    if int(labels.min()) >= 0 and int(labels.max()) < classes:
        return errors
    for index, job in enumerate(jobs):
        own_labels = labels[torch.from_numpy(job.samples)]
        bad = own_labels[(own_labels < 0) | (own_labels >= classes)]
        if bad.numel():
            name = f"client {job.client} in round {round_number}"
            errors[index] = InvalidValue(name, f"must have labels in 0..{classes - 1}", int(bad[0]))
    return dict(sorted(errors.items()))
