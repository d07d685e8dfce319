"""What studies of many runs share: finished runs in a file, and a command that can be stopped.

A finished run ("cell") is one line of JSON, {"cell": ..., "outcome": ...}, forced to disk before the next
begins. A study that is started again reads the file and runs what is missing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bonafed.errors import BonafedError, UnreadableFile

Key = TypeVar("Key")
Found = TypeVar("Found")
Record = dict[str, Any]


def read_results(path: Path, understand: Callable[[Record, Record], tuple[Key, Found]]) -> dict[Key, Found]:
    """The finished cells of a file; a last line cut short is not one.

    `understand` makes cell and outcome from the two objects of a line; what it cannot is an error that
    names the line.
    """
    if not path.exists():
        return {}
    found = {}
    whole = path.read_bytes()
    for number, line in enumerate(whole[: whole.rfind(b"\n") + 1].splitlines(), 1):
        try:
            record: Record = json.loads(line)
            cell, outcome = understand(record["cell"], record["outcome"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableFile(path, f"must be the result of a cell: {error}", number) from error
        found[cell] = outcome
    return found


def append_result(path: Path, cell: Record, outcome: Record) -> None:
    """Add a line, forced to disk; a piece of a line left by a kill goes first."""
    with path.open("ab") as file:
        file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.write((json.dumps({"cell": cell, "outcome": outcome}, allow_nan=False) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def run_command(study: Callable[[], None], results: Path) -> int:
    """The exit code of a study's command: 0, 2 for bad input, 130 if the user stopped it."""
    try:
        study()
    except BonafedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nstopped; the same command goes on from {results}", file=sys.stderr)
        return 130
    return 0
