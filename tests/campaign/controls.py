"""Broken on purpose: writers, readers and commands that each campaign must catch.

A campaign that cannot fail shows nothing. Every control replaces a function in the forked processes of some
cases, and the campaign has to find at least one failure among them.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign import cases, corruption, faults, kills, mutation

_SETTLE = "settle reports sampling-published"
_SEED = 0


@dataclass(frozen=True)
class Control:
    """Something that is broken, and where it must show."""

    name: str
    campaign: str
    break_it: Callable[[], None]
    found: Callable[[], Sequence[cases.Case]]  # cases to find it in, likely ones first
    says: str  # what the failure says


def _hang() -> None:
    def forever(**_options: object) -> None:
        while True:
            time.process_time()

    sys.modules["bonafed.cli.settle"].exactly_one = forever  # type: ignore[attr-defined]


def _traceback() -> None:
    from bonafed.mechanisms import contract_files as files

    def broken(_path: Path) -> dict[str, Any]:
        return {}["format"]

    files.read_object = broken


def _warning() -> None:
    def warn(**_options: object) -> None:
        warnings.warn("broken", RuntimeWarning, stacklevel=1)

    sys.modules["bonafed.cli.settle"].exactly_one = warn  # type: ignore[attr-defined]


def _below_cost() -> None:
    from bonafed.presentation import terminal

    say = terminal.say_json

    def less(value: Any) -> None:
        say({**value, "clients": [{**row, "payment": row["cost"] * 0.99} for row in value["clients"]]})

    terminal.say_json = less


def _writes_and_refuses() -> None:
    from bonafed.errors import InvalidValue
    from bonafed.presentation import terminal

    write = terminal.write_together

    def both(outputs: Mapping[Path, bytes]) -> None:
        write(outputs)
        raise InvalidValue("output", "must be broken", 1)

    terminal.write_together = both  # type: ignore[assignment]


def _in_place() -> None:
    """A writer that opens the file itself."""
    from bonafed.presentation import terminal
    from bonafed.runs import log

    def plain(outputs: Mapping[Path, bytes], **_options: object) -> None:
        for path, content in outputs.items():
            path.write_bytes(content)

    terminal.write_together = log.write_together = plain


def _forgets_to_cut() -> None:
    """A run that keeps the lines after its checkpoint, and appends to them."""
    import os

    os.ftruncate = lambda *_arguments: None  # type: ignore[assignment]


def _trusts() -> None:
    """A reader that believes what is in a file."""
    from bonafed.runs import folder

    folder.content = lambda place, name: folder.read_bytes(place / name)
    folder.require_listed = lambda *_arguments: None


def _names_nothing() -> None:
    """Errors of the system as they come."""
    from contextlib import nullcontext

    from bonafed import files
    from bonafed.runs import log

    files.named = log.named = lambda _path: nullcontext()  # type: ignore[assignment]
    files.OSError = _Nameless  # type: ignore[attr-defined]


class _Nameless(OSError):
    """Forgets which file it is about."""

    def __init__(self, number: int, text: str, *_path: str) -> None:
        super().__init__(number, text)


def _mutants() -> Sequence[cases.Case]:
    """A case that changes nothing comes first: it is accepted."""
    from tests.campaign.inputs import all_inputs

    words = list(all_inputs()[_SETTLE].words)
    return [cases.Case(mutation.NAME, 1, {"input": _SETTLE, "words": words, "files": {}})]


def _kills() -> Sequence[cases.Case]:
    found = list(kills.campaign(_SEED, ["private"]).cases)
    return [case for case in found if len(case.about["kills"]) == 1 and "at" in case.about["kills"][0]][
        ::-1
    ]


def _damages() -> Sequence[cases.Case]:
    return [
        case
        for case in corruption.campaign(_SEED, ["fedavg"]).cases
        if "summary.json" in case.about["file"]
    ]


def _faults(job: str) -> Callable[[], Sequence[cases.Case]]:
    def found() -> Sequence[cases.Case]:
        return [case for case in faults.campaign(_SEED, []).cases if case.about["job"] == job]

    return found


CONTROLS = (
    Control("a command that does not end", "mutation", _hang, _mutants, "hang"),
    Control("an error that nobody expected", "mutation", _traceback, _mutants, "traceback"),
    Control("a warning of a library", "mutation", _warning, _mutants, "warning"),
    Control("payments below the cost", "mutation", _below_cost, _mutants, "is paid"),
    Control("a refusal that writes", "mutation", _writes_and_refuses, _mutants, "it wrote"),
    Control("files written in place", "kills", _in_place, _kills, "resumed"),
    Control("lines that are not cut", "kills", _forgets_to_cut, _kills, ""),
    Control("a reader that trusts", "corruption", _trusts, _damages, ""),
    Control("files written in place", "faults", _in_place, _faults("settle"), "terms.csv differs"),
    Control("errors without a name", "faults", _names_nothing, _faults("nonce"), "does not name"),
)
_JUDGES = {module.NAME: module.judge for module in (mutation, kills, corruption, faults)}


def main(tell: Callable[[str], None]) -> int:
    """Exit code 1 if something broken is not caught."""
    missed = 0
    cases.CPU_SECONDS = 1  # the command that does not end is to end soon
    for control in CONTROLS:
        found = control.found()
        cases.sabotage = control.break_it
        failure = next(
            filter(None, (cases.judged(_JUDGES[control.campaign], case).failure for case in found)), ""
        )
        cases.sabotage = None
        caught = bool(failure) and control.says in failure and "campaign itself" not in failure
        missed += not caught
        verdict = "caught" if caught else "NOT CAUGHT"
        tell(f"{control.campaign}, {control.name}: {verdict} ({failure[-160:]!r})")
    tell(f"controls: {len(CONTROLS) - missed} of {len(CONTROLS)} caught")
    return int(missed > 0)
