"""Crews: the same digits whoever trains a group, and no process left behind."""

import errno
import fcntl
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.oracles.rounds import make_jobs
from tests.oracles.twins import NOISE
from torch import nn

from bonafed.errors import CrewNotStarted, InvalidValue, MemberLost
from bonafed.learning import models
from bonafed.learning.engine import crew as crews
from bonafed.learning.engine.crew import Crew
from bonafed.learning.engine.groups import TrainingPlan
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import flat_parameters, program_for
from bonafed.learning.engine.training import run_jobs
from bonafed.learning.work import LocalTraining

SIZES = (7, 12, 3, 20, 12, 1, 9)
ONE_BY_ONE = 1  # group_bytes: as many groups as jobs
HERE = os.getpid()
needs_forks = pytest.mark.skipif(sys.platform != "linux", reason="crews fork on Linux only")


class Residual(nn.Module):
    """A model that no layer program knows: it goes through vmap and autograd."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.GroupNorm(3, 3)
        self.out = nn.Linear(192, 2)

    def forward(self, x):
        return self.out((x + self.norm(self.convolution(x)).relu()).flatten(1))


class Recurrent(nn.Module):
    """A model that vmap cannot run: client by client, through autograd."""

    def __init__(self):
        super().__init__()
        self.rows, self.out = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x):
        return self.out(self.rows(x.flatten(1, 2))[0][:, -1])


OWN = {"residual": Residual, "recurrent": Recurrent}


class Elsewhere(nn.Module):
    """A linear model that takes its time in the process of the test, and does something in all others."""

    def __init__(self, action):
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.action = action

    def forward(self, x):
        if os.getpid() == HERE:
            time.sleep(0.02)
        else:
            self.action()
        return self.linear(x)


def federation(module, shape, precision=torch.float32):
    g = torch.Generator().manual_seed(0)
    features = torch.rand(sum(SIZES), *shape, generator=g, dtype=precision)
    samples = Samples(features, torch.randint(0, 2, (sum(SIZES),), generator=g))
    ends = np.cumsum(SIZES)
    parts = [np.arange(end - size, end) for end, size in zip(ends, SIZES, strict=True)]
    return program_for(module), samples, parts


def changes(crew, jobs, start, spec, round_number=1):
    done = run_jobs(
        crew.program, start, crew.samples, jobs, spec, seed=3, round_number=round_number, noise=NOISE,
        crew=crew, group_bytes=ONE_BY_ONE,
    )  # fmt: skip
    return [(u.client, u.change, u.loss, u.steps, u.releases) for u in done]


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a[1], b[1])
        assert (a[0], *a[2:]) == (b[0], *b[2:])


@pytest.fixture
def elsewhere():
    """A round whose groups do something in other processes, and the crew of two that runs it."""

    def make(action):
        module = Elsewhere(action)
        program, samples, parts = federation(module, (4,))
        crew = Crew(program, samples, 2)
        jobs, start = make_jobs(parts, np.arange(len(parts))), flat_parameters(module)
        return crew, lambda: changes(crew, jobs, start, LocalTraining(5, 0.1))

    return make


def children():
    return Path(f"/proc/{HERE}/task/{HERE}/children").read_text().split()


def open_files():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("forks", [pytest.param(True, marks=needs_forks), False])
@pytest.mark.parametrize(
    ("name", "shape", "precision", "spec", "noise"),
    [
        ("softmax", (1, 6, 6), torch.float32, LocalTraining(5, 0.1), 0.0),
        ("softmax", (1, 6, 6), torch.float32, LocalTraining(5, 0.1, later_rates=(0.05,) * 9), 0.0),
        ("softmax", (1, 6, 6), torch.float64, LocalTraining(5, 0.1, optimizer="momentum"), 0.0),
        ("small-cnn", (1, 16, 16), torch.float32, LocalTraining(5, 0.1, clip=0.5), 2.0),
        ("residual", (3, 8, 8), torch.float32, LocalTraining(5, 0.1, optimizer="adam"), 0.0),
        ("recurrent", (3, 8, 8), torch.float32, LocalTraining(5, 0.1), 0.0),
        ("recurrent", (3, 8, 8), torch.float32, LocalTraining(5, 0.1, clip=0.5), 2.0),
    ],
)
def test_digits_do_not_depend_on_who_trains(monkeypatch, name, shape, precision, spec, noise, forks):
    monkeypatch.setattr(crews, "_forking_is_safe", lambda _program: forks)
    module = (OWN[name]() if name in OWN else models.build(name, shape, 2, seed=3)).to(precision)
    program, samples, parts = federation(module, shape, precision)
    some, everyone = np.arange(2), np.arange(len(parts))
    start = flat_parameters(module)
    per_client = start + torch.arange(len(parts), dtype=precision)[:, None] / 100
    rounds = [(some, start), (everyone, start), (everyone, per_client)]  # the second needs more memory
    alone = Crew(program, samples)
    for cores in (2, 4):
        with Crew(program, samples, cores) as crew:
            for number, (who, models_before) in enumerate(rounds):
                jobs = make_jobs(parts, who, np.full(len(parts), noise))
                found = changes(crew, jobs, models_before, spec, number)
                assert_same(found, changes(alone, jobs, models_before, spec, number))


@needs_forks
def test_another_process_really_trains(elsewhere, tmp_path):
    crew, run = elsewhere((tmp_path / "was here").touch)
    with crew:
        run()
        assert (tmp_path / "was here").exists()
        used = crew.cpu_seconds_of_others
        assert used > 0
        run()
        assert crew.cpu_seconds_of_others > used


@needs_forks
def test_an_update_stays_what_it_was_when_the_next_round_runs(elsewhere):
    crew, run = elsewhere(lambda: None)
    with crew:
        first = run()
        kept = [update[1].clone() for update in first]
        memory = crew._others._memory
        memory[:] = b"\x01" * len(memory)
        assert all(torch.equal(a[1], b) for a, b in zip(first, kept, strict=True))


@needs_forks
def test_more_groups_than_tickets(elsewhere, monkeypatch):
    crew, run = elsewhere(lambda: None)
    expected = run()
    crew.close()
    monkeypatch.setattr(crews, "_MOST_TICKETS", 3)
    with crew:
        assert_same(run(), expected)


@needs_forks
def test_processes_end_with_the_crew(elsewhere):
    before = children()
    crew, run = elsewhere(lambda: None)
    with crew:
        run()
        assert len(children()) == len(before) + 1
    assert children() == before
    run()  # a closed crew starts again
    assert len(children()) == len(before) + 1
    del crew, run
    gc.collect()
    assert children() == before


@needs_forks
def test_no_more_processes_than_groups():
    before = children()
    module = models.build("softmax", (1, 6, 6), 2, seed=3)
    program, samples, parts = federation(module, (1, 6, 6))
    with Crew(program, samples, 4) as crew:
        for clients, others in ((2, 1), (3, 2), (7, 3), (2, 3)):  # those that are there stay
            jobs = make_jobs(parts, np.arange(clients))
            found = changes(crew, jobs, flat_parameters(module), LocalTraining(5, 0.1))
            assert len(children()) == len(before) + others
            expected = changes(Crew(program, samples), jobs, flat_parameters(module), LocalTraining(5, 0.1))
            assert_same(found, expected)


@needs_forks
def test_what_the_system_refuses_is_told_with_advice(elsewhere, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    before, open_before = children(), open_files()
    _, run = elsewhere(lambda: None)
    for name, owner in (("mmap", crews.mmap), ("_fork", crews)):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, refuse)
            with pytest.raises(CrewNotStarted, match="on 2 cores: Cannot allocate memory; try fewer cores"):
                run()
        gc.collect()
        assert children() == before
        assert open_files() == open_before
    assert len(run()) == len(SIZES)


def test_tickets_end_with_whoever_deals_them_out():
    tickets, office = os.pipe()
    os.write(office, (1).to_bytes(2, "little"))
    os.close(office)
    plan = TrainingPlan((), [[0], [1]], LocalTraining(5, 0.1), 0, 0, 1, 1, None)
    assert list(crews._share(tickets, plan)) == [1]
    os.close(tickets)


@needs_forks
def test_what_needs_autograd_is_not_forked_beside_an_accelerator(elsewhere, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    before = children()
    _, run = elsewhere(fail)  # in another process
    assert len(run()) == len(SIZES)
    assert children() == before
    assert crews._forking_is_safe(program_for(nn.Sequential(nn.Linear(4, 2))))  # gradients by hand


class Unsendable(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def fail():
    raise ZeroDivisionError("no such thing")


def fail_unsendably():
    raise Unsendable(1, 2)


@needs_forks
@pytest.mark.parametrize(
    ("action", "kind", "message"),
    [(fail, ZeroDivisionError, "no such thing"), (fail_unsendably, RuntimeError, "Unsendable: 1 and 2")],
)
def test_an_error_in_another_process_is_raised_here(elsewhere, action, kind, message):
    before = children()
    _, run = elsewhere(action)
    with pytest.raises(kind, match=message) as caught:
        run()
    assert children() == before
    assert kind is RuntimeError or "in forward" in caught.value.__notes__[0]


@needs_forks
def test_a_process_that_is_killed_is_an_error_and_the_next_round_runs(elsewhere, tmp_path):
    killed = tmp_path / "killed"

    def die_once():
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    crew, run = elsewhere(die_once)
    with pytest.raises(MemberLost, match="ended with code -9 before its work was done"):
        run()
    with crew:
        assert len(run()) == len(SIZES)
        (process, _), = crew._others._members  # fmt: skip
        process.kill()
        process.join()
        with pytest.raises(MemberLost, match="code -9"):  # while it waited
            run()


@needs_forks
def test_an_interruption_here_ends_the_others(elsewhere, monkeypatch):
    before = children()
    _, run = elsewhere(lambda: time.sleep(60))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Crew, "_train_groups", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run()
    assert time.monotonic() - began < 30
    assert children() == before


ORPHANS = """
import os, sys, time
sys.path.insert(0, {folder!r})
import numpy as np
import test_crew
from pathlib import Path

test_crew.HERE = os.getpid()
import errno
import fcntl
lock = open({lock!r}, "w")
fcntl.flock(lock, fcntl.LOCK_EX)

def busy():
    Path({mark!r}).write_text(str(os.getpid()))
    time.sleep(0.3)

module = test_crew.Elsewhere(busy)
program, samples, parts = test_crew.federation(module, (4,))
crew = test_crew.Crew(program, samples, 2)
jobs, start = test_crew.make_jobs(parts, np.arange(len(parts))), test_crew.flat_parameters(module)
while True:
    test_crew.changes(crew, jobs, start, test_crew.LocalTraining(5, 0.1))
"""


@needs_forks
def test_no_process_and_no_lock_outlives_one_that_is_killed(tmp_path):
    lock, mark = tmp_path / "lock", tmp_path / "mark"
    words = ORPHANS.format(folder=str(Path(__file__).parent), lock=str(lock), mark=str(mark))
    first = subprocess.Popen([sys.executable, "-c", words])
    try:
        for _ in range(600):
            if mark.exists() and mark.read_text():
                break
            time.sleep(0.1)
        other = int(mark.read_text())
    finally:
        first.kill()
        first.wait()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if anybody still holds it
    for _ in range(100):
        if ended(other):
            return
        time.sleep(0.1)
    pytest.fail("a process of the crew is still there")


def ended(pid):
    """Gone, or a zombie whose new parent has not asked for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def test_a_crew_serves_its_own_federation_only():
    module = models.build("softmax", (1, 6, 6), 2, seed=3)
    program, samples, parts = federation(module, (1, 6, 6))
    crew = Crew(program, Samples(samples.features, samples.labels))
    jobs, start = make_jobs(parts, np.arange(2)), flat_parameters(module)
    with pytest.raises(InvalidValue, match="crew must belong to this program and these samples"):
        list(
            run_jobs(
                program, start, samples, jobs, LocalTraining(5, 0.1), seed=0, round_number=0, crew=crew
            )
        )
    with pytest.raises(InvalidValue, match="cores must be a whole number of at least 1, got 0"):
        Crew(program, samples, 0)
