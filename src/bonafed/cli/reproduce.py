"""`bonafed reproduce [NAME ...]`: the claims of the papers, put to the test."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bonafed import checks
from bonafed.cli.options import Json, Plot, whole_number
from bonafed.cli.report import is_page
from bonafed.errors import InvalidValue
from bonafed.papers import register, reproducing
from bonafed.papers.report import report_files
from bonafed.presentation import terminal
from bonafed.presentation.documents import Column, Document, Table, counted
from bonafed.runs import toml
from bonafed.sections import unknown

if TYPE_CHECKING:
    from bonafed.papers.cells import Progress
    from bonafed.papers.claim import Claim
    from bonafed.papers.reproducing import Reproduction

_INTERRUPTED = 130  # what shells report for a program stopped by the user
_SILENCE = 30.0  # seconds between two lines about progress where there is no terminal


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[CLAIM]...", help="By name, or a .py file.", hidden=True)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All claims of the papers.")] = False,
    paper: Annotated[str | None, typer.Option(metavar="PAPER", help="All claims of one paper.")] = None,
    preset: Annotated[
        str,
        typer.Option(metavar="[smoke|quick|paper]", help="How large. (default: quick)", show_default=False),
    ] = "quick",
    report: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a report with all figures into this folder.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the preset; may be repeated."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds to average over, where there are any.", parser=whole_number)
    ] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Run the settings that must contradict the claim instead.")
    ] = False,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Finished cells are kept here. (default: studies)", show_default=False
        ),
    ] = Path("studies"),
    cores: Annotated[
        int,
        typer.Option(
            help="Cells computed side by side; 0: one per core.", parser=whole_number, show_default=False
        ),
    ] = 0,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of one claim: also write its table.")
    ] = None,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """Put the papers' claims to the test; without a name, list them.

    Each claim is a figure, a table or a finding of a paper. It is computed, compared with what the paper
    says, and judged: holds, holds with a correction (and which erratum), contradicted, or undecided (and
    how many seeds would decide). Presets: smoke takes seconds, quick minutes, paper has the paper's sizes.

    Finished cells are kept, so the same command continues where it was stopped, and costs nothing when it
    is repeated. A claim of your own is a file: docs/how-to/add-a-claim.md.

    Example: bonafed reproduce --all --preset smoke --report report
    """
    if not names and not everything and paper is None:
        terminal.show(_listing(), as_json=as_json)
        return
    chosen = _chosen(names or (), everything, paper)
    if preset not in (presets := ("smoke", "quick", "paper")):
        raise InvalidValue("--preset", "must be one of " + ", ".join(presets), repr(preset))
    if len(chosen) > 1 and (csv is not None or plot is not None):
        option, path = ("--csv", csv) if csv is not None else ("--plot", plot)
        raise InvalidValue(option, "must be of one claim; --report has all of them", path)
    terminal.require_outputs({"--plot": plot, "--csv": csv})
    if report is not None and report.exists() and not report.is_dir():
        raise InvalidValue("--report", "must be a folder, or the name of a new one", report)
    if report is not None and (report / "index.html").is_file() and not is_page(report / "index.html"):
        raise InvalidValue("--report", "must not hold an index.html that bonafed did not make", report)
    for option, value, least in (("--seeds", seeds, 1), ("--cores", cores, 0)):
        if value is not None:
            checks.whole(option, value, at_least=least)
    reproductions = _run(
        chosen, preset, out, cores, control, [_changes(c, preset, setting or (), seeds) for c in chosen]
    )
    outputs: dict[Path, bytes] = {}
    if report is not None:
        outputs |= report_files(reproductions, report, "bonafed " + shlex.join(sys.argv[1:]))
    if len(reproductions) == 1:
        document = reproductions[0].document()
        if reproductions[0].judgement is not None:
            outputs |= terminal.figure_file(document, plot)
            if csv is not None:
                outputs[csv] = terminal.file_content(document, csv, "csv", "--csv")
    else:
        document = _summary(reproductions)
    for folder in {path.parent for path in outputs}:
        folder.mkdir(parents=True, exist_ok=True)
    terminal.write_together(outputs)
    paths = [report / "index.html"] if report is not None else list(outputs)
    terminal.show(document, as_json=as_json, outputs=paths)


def _chosen(names: Sequence[str], everything: bool, paper: str | None) -> list[Claim]:
    if names and (everything or paper is not None):
        raise InvalidValue("--all" if everything else "--paper", "must not be given with names", names[0])
    if paper is not None and paper not in register.PAPERS:
        raise InvalidValue("--paper", "must be one of " + ", ".join(register.PAPERS), repr(paper))
    if names:
        claims = [register.find(name) for name in dict.fromkeys(names)]
        twice = [
            claim.identifier
            for claim in claims
            if sum(c.identifier == claim.identifier for c in claims) > 1
        ]
        if twice:
            raise InvalidValue("claims", "must have different identifiers", repr(twice[0]))
        return claims
    return list(register.claims(paper).values())


def _changes(claim: Claim, preset: str, settings: Sequence[str], seeds: int | None) -> dict[str, Any]:
    """What is not as the preset says; a key that the claim does not know is refused."""
    settings_known = [item.name for item in fields(claim.settings(preset))]
    changes: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidValue("--set", "must be KEY=VALUE", repr(text))
        if name not in settings_known:
            raise unknown(f"{claim.identifier}.", name, value, settings_known)
        try:
            parsed = toml.loads(f"value = {value}")["value"]
        except ValueError:  # words need no quotes here
            parsed = value
        changes[name] = tuple(parsed) if isinstance(parsed, list) else parsed
    if seeds is not None and "seeds" in settings_known:
        changes["seeds"] = seeds
    return changes


def _run(
    claims: Sequence[Claim], preset: str, out: Path, cores: int, control: bool,
    changes: Sequence[dict[str, Any]],
) -> list[Reproduction]:  # fmt: skip
    try:
        with _ending_like_ctrl_c(), _progress() as tell:
            return reproducing.reproduce(
                claims, preset, out, changes=changes, control=control, cores=cores, on_progress=tell
            )
    except KeyboardInterrupt:
        terminal.tell("stopped by the user; the same command continues where it stopped", err=True)
        raise typer.Exit(_INTERRUPTED) from None


@contextmanager
def _ending_like_ctrl_c() -> Iterator[None]:
    """Inside, being told to end (SIGTERM) ends the processes of cells too."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """One bar for all cells with the time that is left; lines now and then where there is no terminal."""
    console = terminal.new_console(stderr=True)
    if not console.is_terminal:
        last = time.monotonic()

        def tell(progress: Progress) -> None:
            nonlocal last
            if progress.note:
                terminal.tell(progress.note, err=True)
            elif time.monotonic() - last >= _SILENCE:
                last = time.monotonic()
                terminal.tell(f"{progress.done} of {progress.total} cells, {_left(progress)}", err=True)

        yield tell
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    with Bar(
        BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"),
        TextColumn("{task.description}", markup=False), console=console, transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=None, left="")

        def show(progress: Progress) -> None:
            if progress.note:
                console.print(progress.note, markup=False, highlight=False)
            bar.update(
                task, total=progress.total, completed=progress.done, left=_left(progress),
                description=progress.doing,
            )  # fmt: skip

        yield show


def _left(progress: Progress) -> str:
    if progress.left is None:
        return "time left unknown"
    minutes, seconds = divmod(round(progress.left), 60)
    return f"{minutes}:{seconds:02d} left"


def _listing() -> Document:
    """What can be put to the test, and what is open."""
    claims = register.claims()
    columns = tuple(Column(name, left=True) for name in ("claim", "place", "what the paper says"))
    blocks: list[Table | str] = []
    for paper, title in register.PAPERS.items():
        rows = tuple((c.identifier, c.place, c.says) for c in claims.values() if c.paper == paper)
        if rows:
            blocks.append(Table(f"{paper}: {title}", columns, rows))
    unanswered = [item for item in register.paper_items() if item.open]
    if unanswered:
        rows = tuple((item.paper, item.place, item.open) for item in unanswered)
        heads = tuple(Column(name, left=True) for name in ("paper", "place", "why it is open"))
        blocks.append(Table("Open", heads, rows))
    data = {
        "claims": [
            {"identifier": c.identifier, "paper": c.paper, "place": c.place, "says": c.says}
            for c in claims.values()
        ],
        "open": [{"paper": i.paper, "place": i.place, "says": i.says, "why": i.open} for i in unanswered],
    }
    return Document((*blocks, "bonafed reproduce NAME runs one of them."), data)


def _summary(reproductions: Sequence[Reproduction]) -> Document:
    """A line for each claim, and how many have which verdict."""
    columns = tuple(Column(name, left=True) for name in ("claim", "place", "verdict"))
    rows = tuple((item.claim.identifier, item.claim.place, item.verdict) for item in reproductions)
    counts: dict[str, int] = {}
    for item in reproductions:
        kind = "not computed" if item.judgement is None else item.judgement.verdict
        counts[kind] = counts.get(kind, 0) + 1
    text = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    failed = [
        f"{item.claim.identifier}, {name}: {why.strip().splitlines()[-1]}"
        for item in reproductions
        for name, why in item.failures.items()
    ]
    table = Table(f"{counted(len(reproductions), 'claim')}: {text}", columns, rows)
    data = {"claims": [item.to_json() for item in reproductions], "verdicts": counts}
    return Document((table, *failed), data, holds=not failed)
