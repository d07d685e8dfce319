"""Runs killed by SIGKILL: at every operation on their files, in the middle of every write, once more while
they are resumed, and at random moments. Resumed, they end with the same bits, and nothing is left over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign.cases import Campaign, Case, Verdict
from tests.campaign.kinds import WHOLLY, Reference, contents, difference, reference
from tests.campaign.system import Decide, Kill, Operation

NAME = "kills"
_MOST_KILLS = 5  # of one run at random moments


def campaign(seed: int, kinds: Sequence[str], cases: int | None = None) -> Campaign:
    """Operations of every kind, halfway through writes, again while resuming, and at random moments.

    Kinds take turns: one is killed at its odd operations, the next at its even ones; some at all of them.
    """
    found = list(_cases(seed, kinds))
    if cases is not None and cases < len(found):
        found = Random(seed).sample(found, cases)
    return Campaign(NAME, found, judge, len(found))


def _cases(seed: int, kinds: Sequence[str]) -> Iterator[Case]:
    rng, number = Random(seed), 0
    for turn, kind in enumerate(kinds):
        operations = reference(kind).operations
        writing = [n for n, operation in enumerate(operations, 1) if operation.call != "read"]
        if kind not in WHOLLY:
            writing = writing[turn % 2 :: 2]
        plans: list[list[dict[str, Any]]] = [[{"at": at}] for at in writing]
        plans += [[{"at": at, "halfway": True}] for at in writing if operations[at - 1].size > 1]
        plans += [
            [{"at": rng.choice(writing)}, {"at": rng.randint(1, 40), "halfway": rng.random() < 0.5}]
            for _ in range(len(writing) // 4)
        ]
        plans += [
            [{"seconds": rng.uniform(0, 0.15)} for _ in range(rng.randint(1, _MOST_KILLS))]
            for _ in range(len(writing) // 8)
        ]
        for plan in plans:
            number += 1
            yield Case(NAME, number, {"kind": kind, "kills": plan})


def judge(case: Case, place: Path) -> Verdict:
    """Kill as the case says, resume, and compare."""
    whole, counts = reference(case.about["kind"]), []
    whole.begin(place)
    for kill in case.about["kills"]:
        problem, phase = _killed(whole, place, kill)
        if problem:
            return Verdict(f"{case.about}: {problem}")
        counts += [phase] if phase else []
    ended = whole.train(place)
    if ended.problem or ended.code != 0:
        return Verdict(f"{case.about}: resumed, it ends with {ended.code}: {ended.err[-300:]}")
    if different := difference(contents(place), whole.after):
        return Verdict(f"{case.about}: {different}")
    return Verdict(counts=(*counts, *(["kills"] * len(counts))))


def _killed(whole: Reference, place: Path, kill: dict[str, Any]) -> tuple[str, str]:
    """What went wrong before the kill, and in which phase it came; no phase if the run was done before."""
    if "seconds" in kill:
        ended = whole.train(place, kill_after=kill["seconds"])
        phase = "at random moments"
    else:
        ended = whole.train(place, killer(kill["at"], kill.get("halfway", False)))
        phase = "at an operation" if not kill.get("halfway") else "halfway through a write"
    if ended.signal == 9:
        return "", phase
    return (ended.problem or f"exit code {ended.code}" if ended.code else ""), ""


def killer(at: int, halfway: bool) -> Decide:
    """SIGKILL at the n-th operation."""

    def decide(number: int, _operation: Operation) -> Kill | None:
        return Kill(halfway) if number == at else None

    return decide
