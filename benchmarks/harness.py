"""What the benchmarks share: measuring two sides in turn, rows with targets, the table and the file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy

Work = Callable[[], object]
HERE = Path(__file__).resolve().parent


class Disagreement(Exception):
    """The two sides of a row do not give the same result."""


class WorkerFailed(Exception):
    """A process that was to be measured ended; says why, with the last lines of what it wrote."""


def last_lines(text: str, most: int = 4) -> str:
    """What a process said last, in one line: where it failed, and why.

    >>> last_lines("Traceback ...\\n  File 'a.py', line 1, in f\\n    1 / 0\\nZeroDivisionError: no\\n")
    "Traceback ... | File 'a.py', line 1, in f | 1 / 0 | ZeroDivisionError: no"
    """
    lines = [line.strip() for line in text.splitlines() if line.strip().strip("~^")]
    return " | ".join(lines[-most:]) if lines else "it wrote nothing"


@dataclass(frozen=True)
class Row:
    """One line of the table; times are medians in seconds."""

    name: str
    seconds: float  # of bonafed
    peer: str  # what it is compared with
    peer_seconds: float | None
    ratio: float | None  # median over the repeats of time/time, in the direction the target names
    ratio_range: tuple[float, float] | None  # smallest and largest of the repeats
    target: str
    met: bool | None  # None: no target, the time is only stated
    note: str = ""


@dataclass(frozen=True)
class Timing:
    """Repeated measurements of two sides, taken in turn; seconds per call."""

    ours: list[float]
    peer: list[float]

    def row(self, name: str, peer: str, target: str, limit: float, note: str = "") -> Row:
        """A row for `bonafed/peer <= limit`, or for `peer/bonafed >= limit` where the target says so."""
        inverse = target.startswith("peer/")
        pairs = zip(self.ours, self.peer, strict=True)
        ratios = [p / o if inverse else o / p for o, p in pairs]
        middle = statistics.median(ratios)
        return Row(
            name,
            statistics.median(self.ours),
            peer,
            statistics.median(self.peer),
            middle,
            (min(ratios), max(ratios)),
            f"{target} {limit:g}",
            middle >= limit if inverse else middle <= limit,
            note,
        )


def say(text: str) -> None:
    """Progress, on standard error."""
    print(f"... {text}", file=sys.stderr, flush=True)


def agree(condition: bool, what: str) -> None:
    """Stop unless the two sides of a row agree."""
    if not condition:
        raise Disagreement(what)


def seconds(work: Work, loops: int = 1) -> float:
    """Mean time of `loops` calls."""
    start = time.perf_counter()
    for _ in range(loops):
        work()
    return (time.perf_counter() - start) / loops


def in_turn(ours: Work, peer: Work, repeats: int, loops: tuple[int, int] = (1, 1)) -> Timing:
    """Measure two sides alternately, so that a busy machine slows both; one call each to warm up."""
    ours(), peer()
    pairs = [(seconds(ours, loops[0]), seconds(peer, loops[1])) for _ in range(repeats)]
    return Timing([o for o, _ in pairs], [p for _, p in pairs])


def commit() -> str:
    """The commit that is measured, short, and whether files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        name = git("rev-parse", "--short", "HEAD")
    except FileNotFoundError:
        name = ""
    if not name:
        return "unknown"
    return f"{name} with changes" if git("status", "--porcelain", "--", ".", "../src") else name


def machine(**libraries: str) -> dict[str, str | int]:
    """What the figures were measured on, without naming it; further libraries with their versions."""
    return {
        "commit": commit(),
        "cores": os.cpu_count() or 1,
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        **libraries,
    }


def duration(value: float | None) -> str:
    """A time in the unit that suits it."""
    if value is None:
        return ""
    return f"{1e3 * value:.2f} ms" if value < 1 else f"{value:.2f} s"


def cells(row: Row) -> list[str]:
    """A row as text."""
    ratio = "" if row.ratio is None else f"{row.ratio:.1f}"
    if row.ratio_range is not None:
        ratio += f" ({row.ratio_range[0]:.1f} to {row.ratio_range[1]:.1f})"
    met = {True: "yes", False: "NO", None: "-"}[row.met]
    own, other = duration(row.seconds), duration(row.peer_seconds)
    return [row.name, own, row.peer, other, ratio, row.target, met, row.note]


def table(rows: list[Row]) -> str:
    """The rows in aligned columns."""
    head = ["row", "bonafed", "peer", "peer time", "ratio (range)", "target", "met", "note"]
    lines = [head, *(cells(row) for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    padded = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)


Rows = Callable[[int], "Iterator[Row]"]  # the rows of one part, for a number of repeats


def arguments(description: str) -> argparse.Namespace:
    """The command line of a benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to FILE")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="times each row is measured")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    if options.json is not None and not options.json.parent.is_dir():
        parser.error(f"--json must name a file in an existing folder, got {options.json}")
    return options


def run(description: str, parts: Sequence[Rows], note: str = "", **libraries: str) -> None:
    """Measure the parts, print the table, write the file; stop where two sides disagree."""
    options = arguments(description)
    facts = machine(**libraries)
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    rows: list[Row] = []
    try:
        for part in parts:
            rows.extend(part(options.repeats))
    except Disagreement as error:
        sys.exit(f"error: the two sides disagree: {error}")
    print(table(rows))
    print(
        f"Medians of {options.repeats} repeats{note}, both sides in turn."
        " Other work on the machine moves every figure; trust the ratios, and only within their range."
    )
    if options.json is not None:
        content = {"machine": facts, "repeats": options.repeats, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
