"""Putting claims to the test: all cells are computed together, then each claim is judged."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from bonafed import __version__
from bonafed.checks import finite_or_none
from bonafed.errors import BonafedError
from bonafed.papers.cells import Cell, Progress, compute_all, data_digest
from bonafed.papers.claim import Check, Claim, Judgement, Row, judged
from bonafed.presentation.documents import Column, Document, JSONObject, Shown, Table
from bonafed.text import csv_bytes

_LONG = 24  # rows that are printed; all of them are in the CSV and the report
_FORM = ".4g"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reproduction(Shown):
    """A claim, the table that was computed for it, and what the table says."""

    claim: Claim
    preset: str
    settings: Any
    rows: Sequence[Row]
    judgement: Judgement | None  # None: some cell failed
    seconds: float = 0.0  # of processor time that its cells took
    failures: Mapping[str, str] = field(default_factory=dict)  # by the name of a cell: why it failed
    control: bool = False  # run under the settings that must contradict the claim
    left_out: Mapping[str, str] = field(default_factory=dict)  # of several data sets, those not to be had

    @property
    def verdict(self) -> str:
        """As it is shown."""
        return "not computed" if self.judgement is None else self.judgement.text

    def document(self) -> Document:
        """The claim, the checks, the table, and what is not as in the paper."""
        claim = self.claim
        head = f"{claim.identifier}: {claim.place} of the {claim.paper} paper, preset {self.preset}"
        failed = [f"{name}: {why.strip().splitlines()[-1]}" for name, why in self.failures.items()]
        if self.judgement is None:
            text = f"not computed: {len(failed)} of its cells failed"
            return Document((head, claim.says, text, *failed), self.to_json(), holds=False)
        blocks: list[Table | str] = [head, claim.says, check_table(self.judgement.checks)]
        if self.rows:
            blocks.append(table_of("What was measured", self.rows))
        blocks += [self.note] if self.note else []
        blocks += [f"left out, for want of data: {why}" for why in self.left_out.values()]
        blocks += [claim.open_data] if claim.open_data else []
        refuted = self.judgement.verdict == "contradicted"
        if self.control:
            must = "as it must be" if refuted else "but it must be contradicted: the rule decides nothing"
            blocks.append(f"verdict of the control: {self.verdict}, {must}")
        else:
            blocks.append(f"verdict: {self.verdict}")
        return Document(
            tuple(blocks),
            self.to_json(),
            lambda: claim.draw(self.rows),
            {"csv": as_csv(self.rows)},
            holds=refuted or not self.control,
        )

    @property
    def note(self) -> str:
        """Which settings are not the paper's."""
        other = self.claim.departures(self.settings)
        each = ", ".join(
            f"{name.replace('_', ' ')} {written(ours)} (there {written(theirs)})"
            for name, (ours, theirs) in other.items()
        )
        return f"Not as in the paper: {each}." if each else ""

    def to_json(self) -> JSONObject:
        """Plain data, from which the verdict can be computed again."""
        judgement = self.judgement
        return {
            "identifier": self.claim.identifier, "paper": self.claim.paper, "place": self.claim.place,
            "says": self.claim.says, "preset": self.preset, "settings": self.settings.table(),
            "not_as_in_the_paper": [*self.claim.departures(self.settings)],
            "rows": [
                {name: finite_or_none(v) if isinstance(v, float) else v for name, v in row.items()}
                for row in self.rows
            ],
            "checks": [] if judgement is None else [check.to_json() for check in judgement.checks],
            "verdict": None if judgement is None else judgement.verdict, "control": self.control,
            "erratum": self.claim.erratum or None,
            "seeds_needed": None if judgement is None else judgement.seeds_needed,
            "seconds": self.seconds, "failures": dict(self.failures), "left_out": dict(self.left_out),
        }  # fmt: skip


def reproduce(
    claims: Sequence[Claim],
    preset: str,
    folder: Path,
    *,
    changes: Sequence[Mapping[str, Any]] | None = None,
    control: bool = False,
    cores: int = 0,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> list[Reproduction]:
    """Put claims to the test; the cells of all of them are computed together, equal ones once.

    `changes` are settings of each claim that are not as the preset has them. A claim over several data
    sets is judged by those that can be had, and says which were left out.
    """
    each_changes = changes or [{}] * len(claims)
    plans = [
        _computation_of(claim, claim.settings(preset, {**other, **(claim.control if control else {})}))
        for claim, other in zip(claims, each_changes, strict=True)
    ]
    everything: dict[Any, Cell] = {
        (number, key): cell
        for number, plan in enumerate(plans)
        for key, cell in plan.cells.items()
        if not plan.lacking
    }
    computed = compute_all(everything, folder, cores, on_progress)
    reproductions = []
    for number, (claim, plan) in enumerate(zip(claims, plans, strict=True)):
        failed = plan.lacking or {
            cell.name: computed.failures[number, key]
            for key, cell in plan.cells.items()
            if (number, key) in computed.failures
        }
        if failed:
            reproductions.append(Reproduction(claim, preset, plan.settings, [], None, 0.0, failed, control))
            continue
        rows = claim.rows(plan.settings, {key: computed.results[number, key] for key in plan.cells})
        seconds = sum(computed.took[number, key] for key in plan.cells)
        verdict = judged(claim, rows)
        reproductions.append(
            Reproduction(claim, preset, plan.settings, rows, verdict, seconds, {}, control, plan.left_out)
        )
    return reproductions


class _Computation(NamedTuple):
    """What there is to compute for a claim."""

    settings: Any
    cells: Mapping[Any, Cell]
    lacking: Mapping[str, str]  # data sets without which it cannot be judged, with the reason
    left_out: Mapping[str, str]  # data sets without which it can


def _computation_of(claim: Claim, settings: Any) -> _Computation:
    cells = claim.cells(settings)
    lacking = _without_data(cells.values())
    several = getattr(settings, "data", None)
    at_hand = tuple(name for name in several if name not in lacking) if isinstance(several, tuple) else ()
    if not lacking or not at_hand:
        return _Computation(settings, cells, lacking, {})
    fewer = replace(settings, data=at_hand)
    return _Computation(fewer, claim.cells(fewer), {}, lacking)


def _without_data(cells: Iterable[Cell]) -> dict[str, str]:
    """The data sets that cells read and that cannot be had, with the reason; other claims go on."""
    missing: dict[str, str] = {}
    for name in dict.fromkeys(name for cell in cells for name in cell.data):
        try:
            data_digest(name)
        except BonafedError as error:
            missing[name] = str(error)
    return missing


def circumstances(command: str) -> JSONObject:
    """What results depend on besides settings: the command, versions, and the commit of a checkout."""
    libraries = {name: metadata.version(name) for name in ("numpy", "scipy")}
    try:
        libraries["torch"] = metadata.version("torch")
    except metadata.PackageNotFoundError:  # claims that need no training do without it
        libraries["torch"] = "not installed"
    return {
        "command": command, "bonafed": __version__, "commit": _commit(),
        "python": platform.python_version(), **libraries,
    }  # fmt: skip


def _commit() -> str | None:
    """Of the checkout that this code is in, with + if it was changed since; None: it is in none."""
    here = Path(__file__).parent

    def git(*words: str) -> str | None:
        try:
            ended = subprocess.run(
                ["git", "-C", str(here), *words], capture_output=True, text=True, check=False
            )
        except OSError:  # no git here
            return None
        return ended.stdout.strip() if ended.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    if commit is None or git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    return commit + (
        "+" if git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent)) else ""
    )


# What is shown


def check_table(comparisons: Sequence[Check]) -> Table:
    """The checks beside the paper's numbers."""
    columns = (
        Column("what is compared", left=True), Column("ours", _FORM), Column("± se", ".2g"),
        Column("seeds"), Column("paper", _FORM), Column("rule", left=True), Column("", left=True),
    )  # fmt: skip
    rows = tuple(
        (
            check.what + (" (as corrected)" if check.corrected else ""), check.ours.value,
            check.ours.error or None, check.ours.seeds or None, check.printed, check.rule, check.outcome,
        )
        for check in comparisons
    )  # fmt: skip
    return Table("The claim, check by check", columns, rows)


def table_of(title: str, rows: Sequence[Row], most: int | None = _LONG) -> Table:
    """Rows as a table; of a long one, the beginning."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = tuple(
        Column(
            name.replace("_", " "),
            _form([row.get(name) for row in rows]),
            left=any(isinstance(row.get(name), str) for row in rows),
        )
        for name in names
    )
    printed_rows = rows if most is None else rows[:most]
    cells = tuple(tuple(_cell(row.get(name)) for name in names) for row in printed_rows)
    rest = len(rows) - len(printed_rows)
    return Table(title, columns, cells, f"and {rest} more rows: --csv has all of them" if rest else "")


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _form(values: Sequence[Any]) -> str:
    if any(isinstance(value, float) for value in values):
        return ".5g"
    return "," if any(isinstance(value, int) and not isinstance(value, bool) for value in values) else ""


def as_csv(rows: Sequence[Row]) -> bytes:
    """All rows with all digits."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return csv_bytes([names, *([row.get(name) for name in names] for row in rows)])


def written(value: Any) -> str:
    """A setting as it is shown."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(written, value)) or "none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
