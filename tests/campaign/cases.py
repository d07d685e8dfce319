"""One case of a campaign: commands in a forked process, under limits; and many cases on all cores.

A case is plain data (`Case`), judged by a function of its campaign into a `Verdict`, so that a failing one
can be written to a file and run again by itself: `python -m tests.campaign --replay FILE`.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

CPU_SECONDS = 20  # of one case: far above what any needs, so that more is a hang
WALL_SECONDS = 300  # for those that wait for something without working
MORE_MEMORY = 2 << 30  # bytes of address space beyond those of the warmed process
TRACEBACK = 70  # exit code of a case that ended with an exception (EX_SOFTWARE)
DOCUMENTED = (0, 1, 2, 130)  # exit codes of the command; 130 after Ctrl-C
sabotage: Callable[[], None] | None = None  # called in every forked process (`controls`)
_NEXT = "\x1e"  # between the outputs of two commands
_WARNING = re.compile(r"\b[A-Z]\w*Warning: ")


class Ended(NamedTuple):
    """How a process ended, and what it printed."""

    code: int | None  # exit code; None: a signal ended it
    signal: int | None
    out: str
    err: str
    cpu: float  # seconds

    @property
    def problem(self) -> str:
        """What no input may lead to; empty if nothing of that kind happened."""
        if self.signal == signal.SIGXCPU:
            return "hang: out of CPU time"
        if self.signal is not None:
            return f"hang: ended by {signal.Signals(self.signal).name}"
        if self.code == TRACEBACK or "Traceback (most recent call last)" in self.err:
            return "traceback: " + self.err.strip().rpartition("\n")[2][:300]
        if found := _WARNING.search(self.err):
            return "warning: " + self.err[found.start() :].partition("\n")[0][:300]
        if self.code not in DOCUMENTED:
            return f"exit code {self.code}"
        if self.code == 2 and not self._refused_in_one_line:
            return f"refused without one line of error: {self.err[-300:]!r}"
        return ""

    @property
    def _refused_in_one_line(self) -> bool:
        return len(self.told) == 1 and re.fullmatch(r"error: .*\S.*", self.told[0]) is not None

    @property
    def told(self) -> list[str]:
        """The lines on standard error that are no warnings or notes."""
        return [line for line in self.err.splitlines() if not line.startswith(("warning: ", "note: "))]

    @property
    def error(self) -> str:
        """The line of error; empty if there is none."""
        return next((line for line in self.err.splitlines() if line.startswith("error: ")), "")


class Case(NamedTuple):
    """What is tried, as plain data."""

    campaign: str
    number: int  # in its campaign
    about: dict[str, Any]  # JSON

    def to_json(self) -> str:
        return json.dumps(self._asdict(), indent=1)


class Verdict(NamedTuple):
    """What came of a case."""

    failure: str = ""  # what went wrong; empty: nothing
    counts: tuple[str, ...] = ()  # what it adds one to
    shrunk: dict[str, Any] | None = None  # `about` of a smaller case that fails in the same way


@dataclass
class Tally:
    """The figures of a campaign."""

    campaign: str
    cases: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def line(self) -> str:
        rest = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items()))
        return (
            f"{self.campaign}: {self.cases:,} cases, {len(self.failures)} failures, "
            f"{self.seconds:.0f} s ({rest})"
        )


def run(words: Sequence[str], place: Path, before: Callable[[], None] | None = None) -> Ended:
    """`bonafed WORDS` in a folder, in a process of its own; `before` is called in it first."""
    return in_child(lambda: command(words), place, before)


def command(words: Sequence[str]) -> int:
    """`bonafed WORDS` in this process; its exit code."""
    from bonafed.cli import main

    sys.argv = ["bonafed", *words]
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def several(commands: Sequence[Sequence[str]], place: Path, before: Callable[[], None]) -> list[Ended]:
    """Commands one after the other in one process, for those that change nothing."""

    def work() -> int:
        for words in commands:
            try:
                code = command(words)
            except Exception:
                sys.stderr.write(traceback.format_exc())
                code = TRACEBACK
            sys.stdout.write(f"{_NEXT}{code}{_NEXT}")
            sys.stderr.write(_NEXT)
        return 0

    ended = in_child(work, place, before)
    outs, errs = ended.out.split(_NEXT), ended.err.split(_NEXT)
    found = [Ended(int(outs[n + 1]), None, outs[n], errs[n // 2], 0.0) for n in range(0, len(outs) - 1, 2)]
    if len(found) < len(commands):  # the process did not survive the last one
        found.append(ended._replace(out=outs[-1], err=errs[-1]))
    return found


def in_child(
    work: Callable[[], int],
    place: Path,
    before: Callable[[], None] | None = None,
    kill_after: float | None = None,
) -> Ended:
    """Run `work` in a forked process in a folder; SIGKILL comes after `kill_after` seconds, if given."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _be_child(work, place, before, out.fileno(), err.fileno())
        handle = os.pidfd_open(child)
        try:
            ended, _, _ = select.select(
                [handle], [], [], WALL_SECONDS if kill_after is None else kill_after
            )
            if not ended:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
        _, status, usage = os.wait4(child, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    stopped = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if stopped is None else None
    return Ended(code, stopped, texts[0], texts[1], usage.ru_utime + usage.ru_stime)


def _be_child(
    work: Callable[[], int], place: Path, before: Callable[[], None] | None, out: int, err: int
) -> None:
    """Never returns."""
    code = TRACEBACK
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", write_through=True)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", write_through=True)
        os.chdir(place)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        memory = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (memory + MORE_MEMORY,) * 2)
        for kind in (RuntimeWarning, UserWarning):  # as shown to users, whatever was shown before the fork
            warnings.simplefilter("always", kind)
        for prepare in (sabotage, before):
            if prepare is not None:
                prepare()
        code = work()
    except BaseException:  # reported by the parent as what it is
        sys.stderr.write(traceback.format_exc())
    finally:
        os._exit(code)


def warm() -> None:
    """Import everything that commands import when they need it, and use one thread."""
    import importlib.util
    import pkgutil

    import torch

    import bonafed

    torch.set_num_threads(1)
    without = () if importlib.util.find_spec("flwr") else ("bonafed.flower.",)
    for module in pkgutil.walk_packages(bonafed.__path__, "bonafed."):
        if not module.name.endswith("__main__") and not module.name.startswith(without):
            importlib.import_module(module.name)
    for name in ("matplotlib.backends.backend_agg", "rich.progress", "sklearn.datasets", "tomli_w",
                 "cryptography.hazmat.primitives.asymmetric.ed25519", "dp_accounting.pld"):  # fmt: skip
        importlib.import_module(name)


@dataclass(frozen=True)
class Campaign:
    """Cases in a row, and how one is judged."""

    name: str
    cases: Iterable[Case]
    judge: Callable[[Case, Path], Verdict]  # of a case, in a new empty folder
    total: int  # how many cases there are
    check: Callable[[Tally], str] = lambda _tally: ""  # what is wrong with the figures, if anything


def carry_out(campaign: Campaign, failed: Path, workers: int, tell: Callable[[str], None]) -> Tally:
    """Judge all cases on several cores; failures are told as they come, their cases kept in `failed`."""
    tally, begun = Tally(campaign.name), time.monotonic()
    told = begun
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        for case, verdict in _judged(pool, campaign, workers):
            tally.cases += 1
            tally.counts.update(verdict.counts)
            if verdict.failure:
                path = keep(case, verdict, failed)
                tally.failures.append(f"{_one_line(verdict.failure)}  ({path})")
                tell(f"FAILURE in {campaign.name} {case.number}: {_one_line(verdict.failure)}")
                tell(f"  replay: python -m tests.campaign --replay {path}")
            if time.monotonic() - told > 10:
                told = time.monotonic()
                tell(
                    f"{campaign.name}: {tally.cases:,} of {campaign.total:,} cases, "
                    f"{len(tally.failures)} failures, {told - begun:.0f} s"
                )
    if problem := campaign.check(tally):
        tally.failures.append(problem)
    tally.seconds = time.monotonic() - begun
    return tally


def _one_line(text: str) -> str:
    """The end of a text, safe to print."""
    return repr(text[-600:])[1:-1]


def _judged(pool: ProcessPoolExecutor, campaign: Campaign, workers: int) -> Iterator[tuple[Case, Verdict]]:
    """Cases as they are done; only a few are in the pool at a time."""
    cases = iter(campaign.cases)
    running = {pool.submit(judged, campaign.judge, case): case for case in islice(cases, 4 * workers)}
    while running:
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield running.pop(future), future.result()
            for case in islice(cases, 1):
                running[pool.submit(judged, campaign.judge, case)] = case


def judged(judge: Callable[[Case, Path], Verdict], case: Case) -> Verdict:
    """Judge a case in a folder of its own; an error of the campaign itself is a failure too."""
    place = Path(tempfile.mkdtemp(prefix="campaign-"))
    try:
        return judge(case, place)
    except Exception:
        return Verdict("the campaign itself failed: " + traceback.format_exc())
    finally:
        shutil.rmtree(place, ignore_errors=True)


def keep(case: Case, verdict: Verdict, failed: Path) -> Path:
    """Write a failing case, shrunk if that was possible, to a file for --replay."""
    failed.mkdir(parents=True, exist_ok=True)
    path = failed / f"{case.campaign}-{case.number}.json"
    smaller = case if verdict.shrunk is None else case._replace(about=verdict.shrunk)
    path.write_text(smaller.to_json(), encoding="utf-8")
    path.with_suffix(".txt").write_text(verdict.failure + "\n", encoding="utf-8")
    return path


def read_case(path: Path) -> Case:
    """A case that `keep` wrote."""
    return Case(**json.loads(path.read_text(encoding="utf-8")))
