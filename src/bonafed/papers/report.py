"""The report of claims that were put to the test: one HTML file that needs no other, and its figures.

At the top stand the command, the commit and the versions; then the verdicts by paper, and a section for
every claim. The page holds all tables as data (`read_report`), so that anybody can judge them again.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bonafed.papers import register
from bonafed.papers.claim import PRESETS, Claim
from bonafed.papers.reproducing import Reproduction, check_table, circumstances, table_of, written
from bonafed.presentation import page_pictures
from bonafed.presentation.documents import Cell, Column, JSONObject, Table, counted
from bonafed.presentation.page import (
    Badge,
    Block,
    Details,
    Facts,
    Grid,
    Link,
    Page,
    Part,
    Words,
    embedded,
    paragraphs,
)

VERDICTS = ("holds", "holds with a correction", "contradicted", "undecided", "not computed")
_CLAIMS, _CIRCUMSTANCES = "claims", "circumstances"  # of the data in the page
_MOST_ROWS = 400  # of a table that are written out; the data in the page have all of them
_PAPERS_SIZE = "computed at the paper's own sizes (preset paper)"
_DOCS = Path(__file__).parents[3] / "docs"  # of a checkout


def report_files(reproductions: Sequence[Reproduction], folder: Path, command: str) -> dict[Path, bytes]:
    """The report, and every figure as .png and .svg, by path."""
    files: dict[Path, bytes] = {}
    sections: dict[str, list[Part]] = {}
    for claim, runs in _by_claim(reproductions).items():
        parts = []
        for run in runs:
            drawn = None if run.judgement is None else claim.draw(run.rows)
            if drawn is not None:
                files |= page_pictures.files(drawn, folder / "figures" / _anchor(run, runs))
            parts.append((run, drawn))
        sections.setdefault(claim.paper, []).append(_claim_part(claim, parts, folder))
    about = circumstances(command)
    plain = [run.to_json() for run in reproductions]
    page = Page(
        "The papers' claims, put to the test",
        (_FIRST, _made(about)),
        (
            _summary(reproductions),
            *(_paper_part(paper, parts) for paper, parts in sections.items()),
        ),
        {_CIRCUMSTANCES: about, _CLAIMS: plain},
        "Made by bonafed. All tables are in this file as data, with all digits.",
    )
    return {folder / "index.html": page.to_html(), **files}


def read_report(path: Path) -> list[JSONObject]:
    """Every claim of a report, as `Reproduction.to_json` has it: settings, tables, checks, verdict."""
    claims: list[JSONObject] = embedded(path.read_bytes(), _CLAIMS)
    return claims


def read_circumstances(path: Path) -> JSONObject:
    """The command, the commit and the versions that a report was made with."""
    about: JSONObject = embedded(path.read_bytes(), _CIRCUMSTANCES)
    return about


def verdict_counts(claims: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How many claims of each paper have which verdict; of a claim that was run at several sizes, the
    largest counts.

    >>> verdict_counts([
    ...     {"paper": "jsam", "identifier": "jsam-fig2", "preset": "quick", "verdict": "undecided"},
    ...     {"paper": "jsam", "identifier": "jsam-fig2", "preset": "paper", "verdict": "holds"},
    ... ])
    {'jsam': {'holds': 1}}
    """
    largest: dict[str, Mapping[str, Any]] = {}
    for each in sorted(claims, key=lambda item: PRESETS.index(item["preset"])):
        largest[each["identifier"]] = each
    counts: dict[str, dict[str, int]] = {}
    for each in claims:
        if largest[each["identifier"]] is each:
            own_counts = counts.setdefault(each["paper"], {})
            verdict = each["verdict"] or "not computed"
            own_counts[verdict] = own_counts.get(verdict, 0) + 1
    return {
        paper: {v: own_counts[v] for v in VERDICTS if v in own_counts}
        for paper, own_counts in counts.items()
    }


_FIRST = (
    "Every figure, table and finding of the papers that can be computed was computed, compared with what "
    "the paper says, and judged by a rule that stands beside the number. A verdict follows from the table "
    "of its claim alone: holds; holds with a correction, as an erratum has it; contradicted; or undecided, "
    "because chance explains the difference, with the number of seeds that would decide."
)


def _by_claim(reproductions: Sequence[Reproduction]) -> dict[Claim, list[Reproduction]]:
    """The runs of every claim, from the smallest to the paper's size."""
    runs: dict[str, list[Reproduction]] = {}
    for run in reproductions:
        runs.setdefault(run.claim.identifier, []).append(run)
    order = {preset: size for size, preset in enumerate(PRESETS)}
    return {each[0].claim: sorted(each, key=lambda run: order[run.preset]) for each in runs.values()}


def _anchor(run: Reproduction, runs: Sequence[Reproduction]) -> str:
    """Of a run: that of its claim, unless there are several."""
    anchor = _claim_anchor(run.claim)
    return anchor if len(runs) == 1 else f"{anchor}-{run.preset}"


def _claim_anchor(claim: Claim) -> str:
    """Letters, digits and hyphens: it also names files."""
    return _slug(claim.identifier) or "claim"


def _slug(words: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")
    return plain if plain[:1].isalpha() or not plain else f"c-{plain}"


def _made(about: Mapping[str, Any]) -> Facts:
    """The command, the commit, and the versions in a line."""
    versions = [f"{name} {about[name]}" for name in about if name not in ("command", "commit")]
    commit = about["commit"] or "none: this bonafed is not in a checkout"
    changed = " (and changes that are not committed)" if commit.endswith("+") else ""
    return Facts(
        (
            ("made by", f"`{about['command']}`"),
            ("commit", f"{commit.removesuffix('+')}{changed}"),
            ("versions", ", ".join(versions)),
        )
    )


# The summary


def _summary(reproductions: Sequence[Reproduction]) -> Part:
    """Counts by paper, a line per claim, and what is open."""
    plain = [run.to_json() for run in reproductions]
    counts = verdict_counts(plain)
    used = [verdict for verdict in VERDICTS if any(verdict in own_counts for own_counts in counts.values())]
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (_title(paper), *(own_counts.get(verdict, 0) for verdict in used), sum(own_counts.values()))
        for paper, own_counts in counts.items()
    )
    columns = (Column("paper", left=True), *map(Column, used), Column("claims"))
    table = Table("Verdicts by paper", columns, rows)
    links = {(row, 0): f"#{_paper_anchor(paper)}" for row, paper in enumerate(counts)}
    blocks: list[Block] = [Grid(table, links)]
    sizes = Counter(run.preset for run in reproductions)
    if len(sizes) > 1:
        several = ", ".join(f"{counted(n, 'claim')} at preset {preset}" for preset, n in sizes.items())
        blocks.append(f"Computed: {several}. Of a claim at several sizes, the largest counts.")
    there = {run.claim.identifier for run in reproductions}
    missing = [
        name for name in register.modules() if name.partition("-")[0] in counts and name not in there
    ]
    rest = (
        (f"Claims of these papers that were not run for this report: {', '.join(missing)}.",)
        if missing
        else ()
    )
    return Part("Summary of verdicts", "summary", (*blocks, _lines(reproductions), *rest), ())


def _lines(reproductions: Sequence[Reproduction]) -> Grid:
    """A line for each claim."""
    names = ("claim", "verdict", "place", "preset", "what the paper says")
    runs = _by_claim(reproductions)
    ordered = [run for each in runs.values() for run in each]
    rows = tuple(
        (run.claim.identifier, run.verdict, run.claim.place, run.preset, run.claim.says) for run in ordered
    )
    links = {(row, 0): f"#{_anchor(run, runs[run.claim])}" for row, run in enumerate(ordered)}
    return Grid(Table("Every claim", tuple(Column(n, left=True) for n in names), rows), links)


def _title(paper: str) -> str:
    return register.PAPERS.get(paper, paper)


def _paper_anchor(paper: str) -> str:
    return _slug(paper) or "paper"


def _paper_part(paper: str, parts: Sequence[Part]) -> Part:
    unanswered = [item for item in register.paper_items() if item.paper == paper and item.open]
    blocks: tuple[Block, ...] = ()
    if unanswered:
        names = ("place", "what it shows or states", "why it is open")
        rows = tuple((item.place, item.says, item.open) for item in unanswered)
        columns = tuple(Column(name, left=True) for name in names)
        blocks = (
            Details(
                f"Open: {counted(len(unanswered), 'entry', 'entries')}", (Table("Open", columns, rows),)
            ),
        )
    return Part(_title(paper), _paper_anchor(paper), blocks, tuple(parts))


# A claim


def _claim_part(claim: Claim, runs: Sequence[tuple[Reproduction, Any]], folder: Path) -> Part:
    """What the paper says, what was found, and all that it rests on."""
    says = Words((claim.says,), "quote")
    where = Words((f"{_title(claim.paper)}, {claim.place}; claim {claim.identifier}",), "note")
    about = tuple(paragraphs(claim.about))
    title = f"{claim.place[:1].upper()}{claim.place[1:]}"
    data = (claim.open_data,) if claim.open_data else ()
    if len(runs) == 1:
        (only,) = runs
        blocks = (where, says, *_run_blocks(*only, folder), *about, *data)
        return Part(title, _claim_anchor(claim), blocks)
    parts = tuple(
        Part(
            f"Preset {run.preset}" + (", at the paper's own sizes" if run.preset == "paper" else ""),
            f"{_claim_anchor(claim)}-{run.preset}",
            _run_blocks(run, figure, folder),
        )
        for run, figure in runs
    )
    return Part(title, _claim_anchor(claim), (where, says, *about, *data), parts)


def _run_blocks(run: Reproduction, figure: Any, folder: Path) -> tuple[Block, ...]:
    claim = run.claim
    judgement = run.judgement
    verdict: list[str | Link | Badge] = ["Verdict: "]
    if judgement is not None and judgement.verdict == "holds with a correction":
        verdict += [Badge(judgement.verdict), ", that of erratum ", _erratum(claim.erratum, folder)]
    else:
        verdict.append(Badge(run.verdict))
    if judgement is not None and judgement.verdict == "contradicted" and claim.erratum:
        verdict += ["; see erratum ", _erratum(claim.erratum, folder)]
    if run.control:
        verdict.append("; a control run, under settings that must contradict the claim")
    blocks: list[Block] = [Words(tuple(verdict))]
    if run.preset == "paper":
        blocks.append(Words((f"These numbers were {_PAPERS_SIZE}.",)))
    if run.judgement is None:
        failed = [f"{name}: {why.strip().splitlines()[-1]}" for name, why in run.failures.items()]
        return (*blocks, f"{counted(len(failed), 'cell')} failed.", *failed, _settings(run))
    blocks.append(check_table(run.judgement.checks))
    alt = f"Figure of the claim that {claim.says[:1].lower()}{claim.says[1:]} Its numbers are in the table."
    blocks.append(page_pictures.picture(figure, alt, f"{claim.identifier}, preset {run.preset}."))
    blocks += [f"Left out, for want of data: {why}" for why in run.left_out.values()]
    if run.rows:
        blocks.append(_whole_table(run))
    return (*blocks, _settings(run))


def _whole_table(run: Reproduction) -> Details:
    table = table_of(f"{run.claim.identifier}: what was measured", run.rows[:_MOST_ROWS], None)
    rest = len(run.rows) - _MOST_ROWS
    more = (f"and {counted(rest, 'more row')}: the data in this file have all of them",) if rest > 0 else ()
    return Details(f"The table, {counted(len(run.rows), 'row')}", (table, *more))


def _settings(run: Reproduction) -> Details:
    """What was computed, and which of it is not the paper's."""
    ours = run.settings.table()
    departures = run.claim.departures(run.settings)
    rows = tuple(
        (
            name.replace("_", " "),
            written(value),
            written(departures[name][1]) if name in departures else "same",
        )
        for name, value in ours.items()
    )
    columns = tuple(Column(name, left=True) for name in ("setting", f"preset {run.preset}", "the paper's"))
    seeds = f"{counted(ours['seeds'], 'seed')}, " if "seeds" in ours else ""
    summary = f"Settings: {seeds}{_time(run.seconds)} of processor time"
    note = (run.note,) if run.note else ("All settings are the paper's.",)
    return Details(summary, (*note, Table(f"{run.claim.identifier}: settings", columns, rows)))


def _time(seconds: float) -> str:
    """As people say it.

    >>> _time(0.25), _time(75.0), _time(7300.0)
    ('0.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _erratum(key: str, folder: Path) -> str | Link:
    """To its entry in the documentation, where the report is in the same checkout."""
    page = _DOCS / "errata.md"
    if not page.is_file() or not folder.resolve().is_relative_to(_DOCS.parent):
        return key
    heading = re.search(rf"^#+ ({re.escape(key)}\b.*)$", page.read_text("utf-8"), re.MULTILINE)
    anchor = f"#{heading_anchor(heading[1])}" if heading else ""
    return Link(key, Path(os.path.relpath(page, folder.resolve())).as_posix() + anchor)


def heading_anchor(heading: str) -> str:
    """As GitHub makes it.

    >>> heading_anchor("S-E1. The threshold function")
    's-e1-the-threshold-function'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
