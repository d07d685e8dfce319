"""A disk that is full, breaks or is not ours, and Ctrl-C, at every operation of every command that writes.

The operations of a command that is left alone are counted; then it is run again for each of them, with

    full      no space left, halfway through the write, and none for anything from then on
    broken    an input/output error, once
    rights    permission denied, once
    ctrl-c    an interrupt, just before

and afterwards either the command is done, with the result it would have had, or it ends with one line of
error that names the file, and every file is as it was before: nothing lost, nothing half-written, nothing
left over. A run that was stopped so goes on when resumed, and ends with the bits of one that was not.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import kinds
from tests.campaign.cases import Campaign, Case, Ended, Verdict, command, in_child
from tests.campaign.kinds import RUN, contents, difference, must, reference, repeatable
from tests.campaign.system import (
    Action,
    Decide,
    Fail,
    Interrupt,
    Operation,
    Recorder,
    Shim,
    ends_as,
    recorded,
)

NAME = "faults"
FULL, BROKEN, RIGHTS, CTRL_C = "full", "broken", "rights", "ctrl-c"
_NEEDS_SPACE = ("write", "open", "mkdir", "fsync")
_BREAKS = ("read", "open", "reopen", "write", "fsync", "ftruncate", "rename", "mkdir")  # all but removing
_NEEDS_RIGHTS = ("read", "open", "reopen", "mkdir", "rename")
_OF_ALL = {  # the faults of every kind of run; those of `kinds.WHOLLY` have all there are
    (FULL, "write"), (BROKEN, "write"), (BROKEN, "open"), (BROKEN, "reopen"), (BROKEN, "fsync"),
    (BROKEN, "ftruncate"), (BROKEN, "rename"), (BROKEN, "mkdir"),
}  # fmt: skip
_STOPPED = 130  # exit code after Ctrl-C
_SAMPLING = ("quote", "sampling", "--prior", "uniform:0.5,1.5", "--clients", "2", "--rounds", "2",
             "--budget", "4")  # fmt: skip
_EARLIER = b"what was here before\n"


@dataclass(frozen=True)
class Job:
    """A command that writes."""

    name: str
    words: tuple[str, ...]
    lay_out: Callable[[Path], None]
    outputs: tuple[str, ...]  # that it replaces; files of that name are there before


def _bonafed(place: Path, *words: str) -> None:
    must(in_child(lambda: command(words), place, repeatable), words)


def _contract(place: Path) -> None:
    _bonafed(place, "keygen", "key.pem")
    _bonafed(place, *_SAMPLING, "--save", "contract.json")


def _coins(place: Path) -> None:
    _bonafed(place, *_SAMPLING, "--save", "contract.json", "--commit-coins", "server.secret")
    lines = ["client,cost,commitment"]
    nonces = ["client,nonce"]
    for name in ("ada", "ben"):
        ended = in_child(
            lambda name=name: command(
                ["coins", "nonce", "contract.json", "--client", name, "--save", name]
            ),
            place,
            repeatable,
        )
        lines.append(f"{name},0.7,{must(ended, ['nonce']).out.split()[3]}")
        nonces.append(f"{name},{(place / name).read_text().strip()}")
    (place / "reports.csv").write_text("\n".join(lines) + "\n")
    (place / "nonces.csv").write_text("\n".join(nonces) + "\n")
    _bonafed(place, "coins", "roster", "contract.json", "--reports", "reports.csv", "--save", "roster.json")


def _finished_run(place: Path) -> None:
    for name, content in reference("sampling").after.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)


def _comparison(place: Path) -> None:
    text = (kinds.ROOT / "docs" / "demo" / "federation.toml").read_text(encoding="utf-8")
    text = text.replace('"digits"', f'"{kinds.data_file()}"').replace("rounds = 20", "rounds = 2")
    text = text.replace("batch_size = 48", "batch_size = 6")
    (place / "config.toml").write_text(text + "\n[run]\ncores = 1\n", encoding="utf-8")


_OPEN = ("--nonces", "nonces.csv", "--secret", "server.secret", "--save")
JOBS = {
    job.name: job
    for job in (
        Job("quote", (*_SAMPLING, "--save", "contract.json", "--sign", "key.pem", "--plot", "figure.png"),
            _contract, ("contract.json", "figure.png")),
        Job("quote-coins", (*_SAMPLING, "--save", "coin.json", "--commit-coins", "server.secret"),
            _contract, ("coin.json",)),
        Job("settle", ("settle", "contract.json", "--draw", "1", "--save", "terms.csv"), _contract,
            ("terms.csv",)),
        Job("keygen", ("keygen", "new.pem"), _contract, ()),
        Job("sign", ("sign", "contract.json", "--key", "key.pem"), _contract, ("contract.json.sig",)),
        Job("write-example", ("train", "--write-example", "jsam"), _contract, ()),
        Job("nonce", ("coins", "nonce", "contract.json", "--client", "eve", "--save", "eve"), _coins, ()),
        Job("roster", ("coins", "roster", "contract.json", "--reports", "reports.csv", "--save",
                       "new.json"), _coins, ("new.json",)),
        Job("toss", ("coins", "toss", "roster.json", *_OPEN, "who.csv"), _coins, ("who.csv",)),
        Job("open", ("coins", "open", "roster.json", *_OPEN, "coins.json"), _coins, ("coins.json",)),
        Job("statement", ("statement", RUN, "--csv", "ada.csv", "--plot", "figure.png"), _finished_run,
            ("ada.csv", "figure.png")),
        Job("runs", ("runs", RUN, "--plot", "figure.png"), _finished_run, ("figure.png",)),
        Job("compare", ("compare", "config.toml", "--plot", "figure.png", "--set",
                        'compare.mechanisms=["fedavg", "sampling"]'), _comparison, ("figure.png",)),
    )
}  # fmt: skip
SHORT = ("quote", "nonce", "statement")


@dataclass(frozen=True)
class Undisturbed:
    """A command that was left alone."""

    before: Path  # a folder as it was
    after: dict[str, bytes]
    operations: list[Operation]
    code: int | None


@cache
def undisturbed(name: str) -> Undisturbed:
    """What a job does if nothing fails."""
    job, place = JOBS[name], Path(tempfile.mkdtemp(prefix=f"{name}-"))
    before, after, trace = place / "before", place / "after", place / "trace"
    before.mkdir()
    job.lay_out(before)
    for output in job.outputs:
        (before / output).write_bytes(_EARLIER)
    shutil.copytree(before, after)
    ended = _run(job, after, Recorder(trace))
    if ended.problem or ended.code not in (0, 1):
        raise RuntimeError(f"{job.words} ended with {ended.code}: {ended.err}")
    return Undisturbed(before, contents(after), recorded(trace), ended.code)


def _run(job: Job, place: Path, decide: Decide) -> Ended:
    def before() -> None:
        repeatable()
        Shim(place, decide).install()

    return in_child(lambda: command(job.words), place, before)


def campaign(seed: int, names: Sequence[str], cases: int | None = None) -> Campaign:
    """Every fault at every operation of every command, and a full or broken disk at those of every run."""
    short = cases is not None and tuple(names) == kinds.SHORT
    found = list(_cases(SHORT if short else list(JOBS), names))
    if cases is not None and cases < len(found):
        found = Random(seed).sample(found, cases)
    return Campaign(NAME, found, judge, len(found))


def _cases(jobs: Sequence[str], names: Sequence[str]) -> Iterator[Case]:
    number = 0
    for key, name in (*(("job", job) for job in jobs), *(("kind", kind) for kind in names)):
        operations = undisturbed(name).operations if key == "job" else reference(name).operations
        for at, (operation, file) in enumerate(zip(operations, ends_as(operations), strict=True), 1):
            for fault in _possible(operation):
                wholly = key == "job" or name in kinds.WHOLLY
                if not wholly and (fault, operation.call) not in _OF_ALL:
                    continue
                number += 1
                yield Case(
                    NAME,
                    number,
                    {key: name, "fault": fault, "at": at, "call": operation.call, "file": file},
                )


def _possible(operation: Operation) -> Iterator[str]:
    for fault, calls in ((FULL, _NEEDS_SPACE), (BROKEN, _BREAKS), (RIGHTS, _NEEDS_RIGHTS)):
        if operation.call in calls:
            yield fault
    if operation.call not in ("read", "unlink"):  # a draft that is not removed any more does no harm
        yield CTRL_C


def injector(fault: str, at: int) -> Decide:
    """The fault at the n-th operation; a full disk stays full."""

    def decide(number: int, operation: Operation) -> Action:
        if number < at or (number > at and not (fault == FULL and operation.call in _NEEDS_SPACE)):
            return None
        if fault == CTRL_C:
            return Interrupt()
        code = {FULL: errno.ENOSPC, BROKEN: errno.EIO, RIGHTS: errno.EACCES}[fault]
        return Fail(code, halfway=fault == FULL and number == at)

    return decide


def judge(case: Case, place: Path) -> Verdict:
    """Let one operation fail, and look at what is left."""
    about = case.about
    failure, how = (_judge_job if "job" in about else _judge_run)(about, place)
    return Verdict(f"{about}: {failure}" if failure else "", (how, about["fault"]))


def _judge_job(about: dict[str, Any], place: Path) -> tuple[str, str]:
    job, clean = JOBS[about["job"]], undisturbed(about["job"])
    shutil.copytree(clean.before, place, dirs_exist_ok=True)
    ended = _run(job, place, injector(about["fault"], about["at"]))
    if ended.code == clean.code and not ended.problem:
        return difference(contents(place), clean.after), "done all the same"
    if problem := _badly_told(ended, about, clean.operations, job.outputs):
        return problem, ""
    now = contents(place)
    if about["fault"] == CTRL_C and not difference(now, clean.after):
        return "", "done before it was stopped"
    return difference(now, contents(clean.before)), "told in one line"


def _judge_run(about: dict[str, Any], place: Path) -> tuple[str, str]:
    whole = reference(about["kind"])
    whole.begin(place)
    ended = whole.train(place, injector(about["fault"], about["at"]))
    how = "done all the same"
    if ended.code != 0 or ended.problem:
        how = "told in one line"
        if problem := _badly_told(ended, about, whole.operations, ()):
            return problem, ""
        if (place / RUN).exists() and not (place / RUN / "config.toml").is_file():
            return f"half a run was left: {sorted(p.name for p in (place / RUN).iterdir())}", ""
    again = whole.train(place)
    if again.code != 0 or again.problem:
        return f"resumed, it ends with {again.code}: {again.err[-300:]}", ""
    return difference(contents(place), whole.after), how


def _badly_told(
    ended: Ended, about: dict[str, Any], operations: Sequence[Operation], outputs: Sequence[str]
) -> str:
    """What is wrong with the way in which a failure was told; empty if nothing."""
    if about["fault"] == CTRL_C:
        lines = ended.told
        told = ended.code == _STOPPED and len(lines) == 1 and lines[0].startswith("stopped by the user")
        return "" if told else f"ctrl-c was told as {ended.code}: {ended.problem or ended.err[-300:]!r}"
    if ended.problem or ended.code != 2:
        return ended.problem or f"exit code {ended.code}"
    name = Path(about["file"]).name
    names = outputs if name.endswith(".partial") else (name,)  # a draft that only keeps the earlier content
    if (
        about["fault"] == FULL
    ):  # from then on: a folder need not be forced to disk, what comes next may fail
        names = (*names, *(Path(file).name for file in ends_as(operations)[about["at"] :]))
    return (
        ""
        if any(part in ended.error for part in names)
        else f"the error does not name {name}: {ended.error}"
    )
