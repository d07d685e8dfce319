"""`bonafed report`: a page of a contract, of a run, or of several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bonafed.errors import InvalidValue, MissingValue
from bonafed.mechanisms.contract_files import read_contract
from bonafed.presentation import terminal
from bonafed.presentation.page import GENERATOR
from bonafed.runs import listing
from bonafed.runs.compare import read_comparison
from bonafed.runs.folder import reading_once
from bonafed.runs.pages import contract_page, run_page, runs_page

if TYPE_CHECKING:
    from bonafed.presentation.page import Page

_PAGE = ".html"


def report(
    sources: Annotated[
        list[Path] | None, typer.Argument(metavar="CONTRACT.json | RUN...", hidden=True)
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page (default: the name of what it is of, here)."),
    ] = None,
) -> None:
    """Make a page to look at and to pass on, of a contract, a run, or several runs.

    One HTML file that needs no other and no network, for a phone, a screen and paper. Of a contract: what
    is signed, its curve, what you would earn at your cost by moving a slider, the best lie, and every
    check. Of a run: curves, money, epsilon of each client, the statement, and whether promises were kept.
    Of several runs, or of a folder that holds runs (as `bonafed compare --folder` leaves it): all of them
    side by side, and each.

    Without --save, only an older page is replaced, no other file.

    Example: bonafed report contract.json
    """
    if not sources:
        raise MissingValue("CONTRACT.json or RUN", "is required")
    path = save or Path(f"{_name(sources)}{_PAGE}")
    require_page("--save", path)
    if save is None and path.is_file() and not is_page(path):
        raise InvalidValue("--save", "must be given: a file of another kind has the default name", path)
    inputs = {f"input {number}": source for number, source in enumerate(sources, 1) if source.is_file()}
    terminal.require_outputs({"--save": path}, inputs)

    with terminal.working("reading") as tell, reading_once():
        page = _page(sources, tell)
    terminal.write_together({path: page.to_html()})
    terminal.say(f"wrote {path}")


def require_page(option: str, path: Path) -> None:
    """A page is an HTML file."""
    if path.suffix.lower() != _PAGE:
        raise InvalidValue(option, f"must end in {_PAGE}", path)


def is_page(path: Path) -> bool:
    """Whether bonafed made it."""
    with path.open("rb") as file:
        return GENERATOR.encode() in file.read(1024)


def _name(sources: Sequence[Path]) -> str:
    if len(sources) > 1:
        return "runs"
    source = sources[0]
    return source.stem if source.is_file() else source.resolve().name or "runs"


def _page(sources: Sequence[Path], tell: terminal.Tell) -> Page:
    for source in sources:
        if not source.exists():
            raise InvalidValue("CONTRACT.json or RUN", "must exist", source)
    files = [source for source in sources if source.is_file()]
    if files and len(sources) > 1:
        raise InvalidValue("CONTRACT.json", "must be alone: a page is of one contract or of runs", files[0])
    if files:
        return contract_page(read_contract(files[0]), files[0].name, tell)

    runs = listing.find(sources)
    comparison = read_comparison(sources[0]) if len(sources) == 1 else None
    if len(runs) == 1 and comparison is None:
        return run_page(runs[0])
    return runs_page(runs, comparison)
