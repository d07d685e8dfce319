"""The processes that train the groups of a round in parallel.

A group is some thousand short operations, between which threads compete for the interpreter's lock: two
threads gain little where two processes gain nearly all (`docs/decisions/0009-crews.md`). A crew is this
process and others forked from it, which therefore share program and samples without a copy:

    what to do      start models in shared memory; the plan through a pipe to each
    who does what   a ticket per group in a pipe that all read: whoever is free takes the next
    results         changes in the shared memory; losses and counts back through the pipe

A forked process lives until the crew is closed or no longer used, or until this process ends, however it
ends, which closes its pipe. Where forking is not safe (systems other than Linux, processes that may have no
children, automatic differentiation where there is an accelerator) the members are threads. Who trained a
group has no effect on its result.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bonafed import checks
from bonafed.errors import CrewNotStarted, MemberLost
from bonafed.learning.engine.groups import TrainingPlan, train_group
from bonafed.learning.engine.jobs import Job, Samples, Update
from bonafed.learning.engine.programs import Program
from bonafed.learning.engine.resources import reused_memory, start_reuse
from bonafed.learning.noise import digest_of_samples

_MOST_TICKETS = 4096  # two bytes each, so that a pipe holds them all
Updates = dict[int, Update]  # by place in the plan's jobs


class Crew:
    """Trains the groups of rounds of one program on one set of samples, on several cores.

    Processes are started in the first round that has work for them and wait between rounds. A `with` block
    ends them when it is left; otherwise they end when nothing refers to the crew any more. A crew runs one
    round at a time and must not be used by several threads at once.
    """

    def __init__(self, program: Program, samples: Samples, cores: int = 1) -> None:
        self.program, self.samples = program, samples
        self.cores = checks.whole("cores", cores)
        self.cpu_seconds_of_others = 0.0  # in all rounds; not in `time.process_time()` of this process
        self._others: _Others | None = None

    def train(self, start: Tensor, plan: TrainingPlan) -> Updates:
        """All updates of a round, from one start model (P,) or one per job (len(plan.jobs), P)."""
        numbers = range(len(plan.groups))
        if self.cores == 1 or len(plan.groups) == 1:
            with reused_memory():
                return dict(self._train_groups(start, plan, numbers))
        if not _forking_is_safe(self.program):
            with ThreadPoolExecutor(self.cores, initializer=start_reuse) as pool:
                parts = pool.map(lambda number: list(self._train_groups(start, plan, [number])), numbers)
                return dict(pair for part in parts for pair in part)
        try:
            return self._with_others(start, plan)
        except BaseException:
            self.close()  # what is left in the pipes is useless
            raise

    @cached_property
    def digest_of_samples(self) -> bytes:
        """Of all samples, on which noise depends; computed once, as forked processes have a fixed copy."""
        return digest_of_samples(self.samples)

    def close(self) -> None:
        """End the other processes; a later round starts new ones."""
        if self._others is not None:
            self._others.end()
            self._others = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _train_groups(
        self, start: Tensor, plan: TrainingPlan, numbers: Iterable[int]
    ) -> Iterator[tuple[int, Update]]:
        for number in numbers:
            yield from train_group(self.program, self.samples, start, plan, plan.groups[number])

    def _with_others(self, start: Tensor, plan: TrainingPlan) -> Updates:
        room = start.nbytes + len(plan.jobs) * self.program.size * start.itemsize
        count = min(self.cores, len(plan.groups)) - 1
        if self._others is None or not self._others.can_serve(room, count):
            self.close()
            try:
                self._others = _Others(self, count, 2 * room)
            except OSError as problem:
                raise CrewNotStarted(count + 1, problem) from problem
        others = self._others
        changes = others.begin(start, plan, count)
        with reused_memory():
            updates = dict(self._train_groups(start, plan, others.my_share(plan)))
        for answer in others.answers(count):
            self.cpu_seconds_of_others += answer.cpu_seconds
            for job_number, loss, steps, releases in answer.reports:
                change = changes[job_number].clone()
                updates[job_number] = Update(plan.jobs[job_number].client, change, loss, steps, releases)
        return updates


class _Report(NamedTuple):
    """An update whose change is in the shared memory."""

    job_number: int
    loss: float
    steps: int
    releases: int


class _Answer(NamedTuple):
    """What a forked process did in a round."""

    reports: list[_Report]
    cpu_seconds: float


class _Order(NamedTuple):
    """A round as sent to a process; jobs as a few arrays, since many small ones take long to send."""

    plan: TrainingPlan  # without jobs
    clients: list[tuple[int, int, float]]  # client, copy, noise multiplier
    sizes: list[int]
    samples: np.ndarray  # of all jobs
    shape: torch.Size  # of the start models
    precision: torch.dtype

    @classmethod
    def of(cls, start: Tensor, plan: TrainingPlan) -> _Order:
        return cls(
            replace(plan, jobs=()),
            [(job.client, job.copy, job.noise_multiplier) for job in plan.jobs],
            [job.samples.size for job in plan.jobs],
            np.concatenate([job.samples for job in plan.jobs]),
            start.shape,
            start.dtype,
        )

    def full_plan(self) -> TrainingPlan:
        parts = np.split(self.samples, np.cumsum(self.sizes)[:-1])
        jobs = [
            Job(client, part, copy, noise)
            for (client, copy, noise), part in zip(self.clients, parts, strict=True)
        ]
        return replace(self.plan, jobs=jobs)


class _Others:
    """The forked processes of a crew, and what they share with this one."""

    def __init__(self, crew: Crew, count: int, room: int) -> None:
        self._pid = os.getpid()
        self._memory = mmap.mmap(-1, room)  # anonymous: nothing to clean up, no limit from /dev/shm
        self._tickets, self._ticket_office = os.pipe()
        os.set_blocking(self._tickets, False)
        self._members: list[tuple[ForkProcess, Connection]] = []
        pipes = (self._tickets, self._ticket_office)
        self.end = weakref.finalize(self, _end, self._pid, self._members, pipes)
        for _ in range(count):
            self._members.append(_fork(crew.program, crew.samples, self._memory, self._tickets))

    def can_serve(self, room: int, count: int) -> bool:
        """Whether there are enough processes and room for the round; False in a process forked since."""
        return self._pid == os.getpid() and room <= len(self._memory) and count <= len(self._members)

    def begin(self, start: Tensor, plan: TrainingPlan, count: int) -> Tensor:
        """Start `count` processes on the round; returns the array (len(plan.jobs), P) for the changes."""
        order = _Order.of(start, plan)
        models, changes = _arrays(self._memory, order)
        models.copy_(start)
        os.write(self._ticket_office, b"".join(k.to_bytes(2, "little") for k in range(_ticket_count(plan))))
        message = pickle.dumps(order)
        for process, pipe in self._members[:count]:
            try:
                pipe.send_bytes(message)
            except OSError:
                raise _lost(process) from None
        return changes

    def my_share(self, plan: TrainingPlan) -> Iterator[int]:
        """Numbers of groups, one at a time, until all are taken."""
        return _share(self._tickets, plan)

    def answers(self, count: int) -> Iterator[_Answer]:
        """What the processes did, once they are done."""
        for process, pipe in self._members[:count]:
            try:
                answer = pipe.recv()
            except (EOFError, OSError):
                raise _lost(process) from None
            if isinstance(answer, Exception):
                raise answer
            yield answer


def _lost(process: ForkProcess) -> MemberLost:
    process.join(10)  # it is ending: its pipe is closed
    return MemberLost(process.exitcode)


def _ticket_count(plan: TrainingPlan) -> int:
    return min(len(plan.groups), _MOST_TICKETS)


def _share(tickets: int, plan: TrainingPlan) -> Iterator[int]:
    """Groups by the tickets this process draws: ticket k of m stands for groups k, k + m, ..."""
    while True:
        try:
            ticket = os.read(tickets, 2)
        except BlockingIOError:  # all drawn
            return
        if not ticket:  # nobody is left to issue them
            return
        yield from range(int.from_bytes(ticket, "little"), len(plan.groups), _ticket_count(plan))


def _arrays(memory: mmap.mmap, order: _Order) -> tuple[Tensor, Tensor]:
    """Start models and changes in the shared memory."""
    size, kind = order.shape[-1], order.precision
    models = torch.frombuffer(memory, dtype=kind, count=order.shape.numel()).view(order.shape)
    changes = torch.frombuffer(
        memory, dtype=kind, count=len(order.clients) * size, offset=models.nbytes
    )  # fmt: skip
    return models, changes.view(-1, size)


def _forking_is_safe(program: Program) -> bool:
    """Whether to fork: with an accelerator, PyTorch's autograd refuses to run in a forked process."""
    return (
        sys.platform == "linux"
        and not multiprocessing.current_process().daemon
        and not (program.uses_autograd and torch.accelerator.is_available())
    )


def _fork(
    program: Program, samples: Samples, memory: mmap.mmap, tickets: int
) -> tuple[ForkProcess, Connection]:
    """A process that serves until it is killed or its pipe closes; it inherits all that it needs."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(program, samples, memory, tickets, ours, theirs, os.getpid()), daemon=True
    )
    with warnings.catch_warnings():
        # Python 3.12 warns about forking with threads; the child uses none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    return process, ours


def _serve(
    program: Program,
    samples: Samples,
    memory: mmap.mmap,
    tickets: int,
    ours: Connection,
    theirs: Connection,
    first: int,
) -> None:
    """The life of a forked process: rounds, until its pipe ends."""
    ours.close()  # otherwise the pipe would not close with the first process
    _close_files_but(tickets, theirs.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides what an interruption means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    start_reuse()
    while True:
        try:
            order: _Order = theirs.recv()
        except (EOFError, ConnectionResetError):
            return
        answer: _Answer | Exception
        began = time.process_time()
        try:
            reports = list(_reports(program, samples, memory, tickets, order, first))
            answer = _Answer(reports, time.process_time() - began)
        except Exception as error:
            answer = _sendable(error)
        try:
            theirs.send(answer)
        except BrokenPipeError:
            return


def _close_files_but(*exceptions: int) -> None:
    """Close all inherited files: a lock on one would outlive the process that took it."""
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor not in exceptions:
            os.closerange(descriptor, descriptor + 1)  # also if it belonged to the listing itself


def _reports(
    program: Program, samples: Samples, memory: mmap.mmap, tickets: int, order: _Order, first: int
) -> Iterator[_Report]:
    """Train this process' share of a round, while the process numbered `first` waits for it."""
    plan = order.full_plan()
    models, changes = _arrays(memory, order)
    for number in _share(tickets, plan):
        if os.getppid() != first:
            return  # nobody waits for the rest
        for job_number, update in train_group(program, samples, models, plan, plan.groups[number]):
            changes[job_number] = update.change
            yield _Report(job_number, update.loss, update.steps, update.releases)


def _sendable(error: Exception) -> Exception:
    """The error with its traceback as a note, or just its message if it cannot be pickled."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # errors of users' modules may raise anything when unpickled
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _end(pid: int, members: list[tuple[ForkProcess, Connection]], pipes: tuple[int, int]) -> None:
    """Kill the processes: they hold nothing that could be lost."""
    if os.getpid() != pid:
        return  # in a process forked from the one they serve
    for process, pipe in members:
        process.kill()
        process.join()
        pipe.close()
    for end in pipes:
        os.close(end)
