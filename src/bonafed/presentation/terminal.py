"""Everything a command prints and writes: a `Document` on a terminal, as JSON and as files.

Tables never lose or break a number: where one is too wide for the terminal, words are folded first, then
the frame goes, and then the table is split into parts that repeat its first columns, as many as tell the
rows apart. Where not even these and one more fit side by side, every cell gets a line of its own. Names and
values, which have no headings, become lines instead.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bonafed.errors import InvalidValue
from bonafed.files import require_different, require_picture, require_writable, write_together
from bonafed.presentation.documents import Column, Document, Sketch, Table, pieces, plain
from bonafed.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

__all__ = [
    "figure_file", "file_content", "require_outputs", "say_json", "show", "tell",
    "teller", "working", "write_together",
]  # fmt: skip

Tell = Callable[[str], None]  # says what is being done
_WIDTH = 120  # columns of a table where no terminal limits it
_NARROWEST = 16  # columns left to words that are folded
_READABLE = 40  # ... beside names, where a line each would read better
_FRAME, _GAP = 3, 2  # columns between two cells with a frame, and without
_NUMBER = re.compile(r"[(+\-±]*[0-9][0-9.,/:]*(e[+\-]?[0-9]+)?[%).,;:]*")
_VERDICTS = {"holds": "green", "FAILS": "bold red", "not claimed": "dim"}
_COLOURS = ("cyan", "magenta")  # of the curves of a sketch


def new_console(*, stderr: bool = False) -> Console:
    """Where documents go: the terminal, or a file with room for wide tables."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, _WIDTH)
    return console


def show(document: Document, *, as_json: bool, outputs: Iterable[Path] = ()) -> None:
    """Print the document and the files that were written; exit code 1 if something in it does not hold."""
    if as_json:
        say_json(document.data)
    else:
        console = new_console()
        for block in document.blocks:
            _print(console, block)
        for path in outputs:
            _print(console, f"wrote {path}")
    if not document.holds:
        raise typer.Exit(1)


def say(text: str) -> None:
    """Print a sentence on standard output."""
    _print(new_console(), text)


def tell(text: str, *, err: bool = False) -> None:
    """Print a line as it is, whatever the width of the terminal."""
    typer.echo(printable(text), err=err)


def say_json(value: object) -> None:
    """Print plain data as JSON, with null for NaN and infinity, which JSON lacks."""
    typer.echo(json.dumps(plain(value), indent=1, allow_nan=False))


def teller(console: Console) -> Callable[[str], None]:
    """Prints lines on a terminal that shows progress."""
    return lambda text: _print(console, text)


@contextmanager
def working(what: str) -> Iterator[Tell]:
    """A spinner on a terminal, whose text can be updated; nothing elsewhere."""
    console = new_console(stderr=True)
    if not console.is_terminal:
        yield lambda _what: None
        return
    from rich.text import Text  # a string would be read as markup

    with console.status(Text(printable(what))) as status:
        yield lambda news: status.update(Text(printable(news)))


def require_outputs(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] = {}) -> None:
    """Require that the outputs of a command can be written and that no two of its files are the same."""
    files = {name: path for name, path in inputs.items() if path is not None}
    targets = {name: path for name, path in outputs.items() if path is not None}
    for name, path in targets.items():
        for other, other_path in files.items():
            require_different(name, path, other, other_path)
        files[name] = path
    for name, path in targets.items():
        if name == "--plot":
            require_picture(path)
        require_writable(path)


def figure_file(document: Document, path: Path | None) -> dict[Path, bytes]:
    """The figure of a document as a file, if a path was given for it."""
    if path is None:
        return {}
    if document.figure is None:
        raise InvalidValue("--plot", "cannot be used: there is no figure of this", path)
    from bonafed.presentation.figures import render

    return {path: render(document.figure(), path)}


def file_content(document: Document, path: Path, what: str, option: str = "--save") -> bytes:
    """The content of one of a document's files."""
    if what not in document.files:
        reason = document.lacking.get(what, "see --help for what it needs")
        raise InvalidValue(option, f"cannot be used: there is no {what} to write ({reason})", path)
    return document.files[what]


def _print(console: Console, block: Table | Sketch | str) -> None:
    from rich.text import Text

    free = not console.is_terminal  # lines in a file may be long
    if isinstance(block, Table):
        if block.title:
            console.print(Text(block.title, style="bold"), soft_wrap=free)
        for part in _parts(block, console.width):
            console.print(part, soft_wrap=isinstance(part, Text))  # lines have their width
        if block.caption:
            console.print(Text(block.caption, style="italic"), soft_wrap=free)
    elif isinstance(block, Sketch):
        if console.encoding.lower().startswith("utf"):  # others lack these characters
            console.print(_coloured(block, console.width))
    else:
        console.print(Text(printable(block)), soft_wrap=free)


def _coloured(sketch: Sketch, width: int) -> Any:
    from rich.text import Text

    return Text.assemble(
        *(
            (text, "" if owner is None else _COLOURS[owner % len(_COLOURS)])
            for text, owner in pieces(sketch, width)
        )
    )


def _parts(table: Table, width: int) -> Iterator[RichTable | Text]:
    """The table made to fit the width: as it is, folded, without a frame, in several parts, or as lines."""
    from rich.cells import cell_len
    from rich.text import Text

    cells = [[column.name for column in table.columns], *table.cells]
    natural = [  # letters of some scripts take two places
        max(max(map(cell_len, cell.split("\n"))) for cell in column) if column else 0
        for column in zip(*cells, strict=True)
    ]
    named = any(column.name for column in table.columns)
    if len(natural) == 2 and not named:
        least = [natural[0], _least_beside_names(table, natural[1])]
    else:
        least = [
            _least(*column) for column in zip(natural, table.columns, zip(*cells, strict=True), strict=True)
        ]
    if _needed(least, _FRAME) <= width:
        yield _rich(table, dict(enumerate(_fitted(natural, least, width, _FRAME))), framed=True)
        return
    groups = _groups(least, width, _keys(table))
    if not named or any(_needed([least[k] for k in group], _GAP) > width for group in groups):
        for line in _lines(table, width):
            yield Text(line)
        return
    for number, group in enumerate(groups):
        if number:
            yield Text("")  # parts are told apart
        widths = _fitted([natural[k] for k in group], [least[k] for k in group], width, _GAP)
        yield _rich(table, dict(zip(group, widths, strict=True)), framed=False)


def _least(natural: int, column: Column, cells: Sequence[str]) -> int:
    """Columns that cells need at least: numbers are not folded, and among words neither."""
    if not column.left:
        return natural
    numbers = [len(word) for cell in cells for word in cell.split() if _NUMBER.fullmatch(word)]
    return min(natural, max(_NARROWEST, *numbers, 0))


def _fitted(natural: Sequence[int], least: Sequence[int], width: int, between: int) -> list[int]:
    """The width of every column: the widest ones are folded, to one level, but not below the least."""
    widths = list(natural)
    for level in range(max(natural), 0, -1):
        widths = [max(low, min(most, level)) for low, most in zip(least, natural, strict=True)]
        if _needed(widths, between) <= width:
            break
    return widths


def _least_beside_names(table: Table, natural: int) -> int:
    """Columns that the values of a table of names and values need to be read."""
    if not table.columns[1].left:
        return natural
    longest = max((len(word) for _, value in table.cells for word in value.split()), default=0)
    return max(longest, min(natural, _READABLE))


def _lines(table: Table, width: int) -> Iterator[str]:
    """`name: value` for each cell, wrapped by words; only a word longer than a line is broken.

    Names and values have a line for each row; the first column of other tables heads the lines of a row.
    """
    names = [column.name for column in table.columns]
    for number, row in enumerate(table.cells):
        if not any(names):
            pairs = [": ".join(filter(None, row))]
        else:
            texts = [": ".join(filter(None, pair)) for pair in zip(names, row, strict=True)]
            pairs = [
                texts[0],
                *(f"  {text}" for text, cell in zip(texts[1:], row[1:], strict=True) if cell),
            ]
            if number:
                yield ""
        for text in pairs:
            indent = " " * (len(text) - len(text.lstrip()) + 2)
            yield from textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)


def _needed(widths: Sequence[int], between: int) -> int:
    return sum(widths) + between * len(widths) + 1


def _keys(table: Table) -> int:
    """How many of the first columns tell the rows apart; 1 if none do."""
    for count in range(1, len(table.columns)):
        if len({tuple(row[:count]) for row in table.cells}) == len(table.rows):
            return count
    return 1


def _groups(least: Sequence[int], width: int, keys: int) -> list[list[int]]:
    """Columns that fit beside each other; the first ones are in every group."""
    first = list(range(keys))
    groups, here = [], first
    for column in range(keys, len(least)):
        if _needed([least[k] for k in (*here, column)], _GAP) > width and len(here) > keys:
            groups.append(here)
            here = first
        here = [*here, column]
    return [*groups, here]


def _rich(table: Table, widths: Mapping[int, int], *, framed: bool) -> RichTable:
    """Some columns of a table by their index, with their widths; words are folded, numbers have room."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rich_table = RichTable(
        show_header=any(column.name for column in table.columns),
        box=box.HEAVY_HEAD if framed else None,
        pad_edge=framed,
        padding=(0, 1) if framed else (0, 2, 0, 0),
    )
    for k, width in widths.items():
        column = table.columns[k]
        side: Any = "left" if column.left else "right"
        rich_table.add_column(Text(column.name), justify=side, overflow="fold", width=width)
    for row in table.cells:
        rich_table.add_row(*(Text(row[k], style=_VERDICTS.get(row[k], "")) for k in widths))
    return rich_table
