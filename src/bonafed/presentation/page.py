"""A page as data, and as one HTML file: no network, no other file, all that comes from outside escaped.

    Page ─ Part ─ Part ─ blocks: sentences, tables, facts, pictures, details, a slider
                          │
                        to_html: style, script and data are in the file; a policy in it allows only these

Names come from outside. They are spelled out (`printable`) and escaped as text; data for programs are JSON
in which no `<` is left, so that no name ends the element it is in. The content security policy names the
style and the script by their digests: whatever else got in would not run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from bonafed.errors import InvalidValue
from bonafed.presentation.documents import Block as ShownBlock
from bonafed.presentation.documents import Column, Sketch, Table, plain
from bonafed.text import printable

# Words that are verdicts, and how good they are; colour repeats what the word says
_VERDICTS = {
    "holds": "good", "holds with a correction": "fair", "contradicted": "bad", "FAILS": "bad",
    "undecided": "open", "not computed": "bad", "not claimed": "open", "exceeded": "bad",
}  # fmt: skip
GENERATOR = '<meta name="generator" content="bonafed">'  # by which a page is known
_OUTERMOST = 2  # level of headings below the title
_LONG_WORD = 24  # letters, beyond which a word is broken where its cell ends
_GAP = 1.6  # letters between two columns
_NARROW, _PAPER = 90, 135  # letters beside each other on A4, in the usual size and in the smallest
_WIDE = 620  # pixels of a figure that would be illegible at the width of a phone
_ADDRESS = re.compile(r"#|https://|(?![a-z][a-z0-9+.-]*:)[\w.]", re.IGNORECASE)
_ANCHOR = re.compile(r"[A-Za-z][\w.-]*")
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Link:
    """Words that lead somewhere: to an anchor of the page, a file beside it, or a secure address."""

    text: str
    address: str

    def __post_init__(self) -> None:
        if _ADDRESS.match(self.address) is None:
            raise InvalidValue("address", "must be an anchor, a relative path or https", repr(self.address))


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict, in colour."""

    text: str


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph of words, links and badges; `kind` "note" is small print, "quote" what others say."""

    parts: tuple[str | Link | Badge, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are."""

    rows: tuple[tuple[str, str | Words], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table some of whose cells lead somewhere, by row and column."""

    table: Table
    links: Mapping[tuple[int, int], str]


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that is part of the page."""

    source: str  # a data URI
    size: tuple[int, int]  # pixels
    alt: str  # what is to be seen, for those who do not see it
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Details:
    """What is unfolded on request."""

    summary: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """What a slider shows at one of its places."""

    at: str  # the value there, as it is read
    facts: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slider:
    """A value to move, and what follows from it; there only with scripts, so a table must say it too."""

    anchor: str
    label: str  # what is moved
    name: str  # of its value among the facts
    points: tuple[Point, ...]
    start: int = 0


Block = str | Words | Table | Sketch | Grid | Facts | Picture | Details | Slider


@dataclass(frozen=True, slots=True)
class Part:
    """A section with an anchor, and the sections in it."""

    title: str
    anchor: str
    blocks: tuple[Block, ...] = ()
    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        if _ANCHOR.fullmatch(self.anchor) is None:
            raise InvalidValue("anchor", "must be a letter, then letters, digits, . _ -", repr(self.anchor))


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page, as one HTML file."""

    title: str
    lead: tuple[Block, ...]
    parts: tuple[Part, ...]
    data: Mapping[str, Any] = field(default_factory=dict)  # for programs, by anchor
    foot: str = ""

    def to_html(self) -> bytes:
        """The content of the file."""
        sliders = list(_sliders(self.parts))
        data = {**self.data, **{f"{each.anchor}-points": _points(each) for each in sliders}}
        style, script = _resource("page.css"), _resource("slider.js") if sliders else ""
        navigation = "".join(
            f"<li>{_link(Link(part.title, f'#{part.anchor}'))}</li>" for part in self.parts
        )
        lines = [
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{GENERATOR}',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="color-scheme" content="light dark">\n<title>{text(self.title)}</title>',
            f'<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n<body>',
            '<a class="skip" href="#content">Skip to the content</a>',
            f"<header>\n<h1>{text(self.title)}</h1>\n{_blocks(self.lead)}",
            f'<nav aria-label="Sections"><ul>{navigation}</ul></nav>\n</header>',
            f'<main id="content">\n{"".join(_part(part, _OUTERMOST) for part in self.parts)}</main>',
            f"<footer>{text(self.foot)}</footer>",
            *(_data(anchor, value) for anchor, value in data.items()),
            f"<script>{script}</script>" if script else "",
            "</body>\n</html>\n",
        ]
        return "\n".join(filter(None, lines)).encode("utf-8", "xmlcharrefreplace")


def text(words: str) -> str:
    """Words from anywhere as HTML.

    >>> text('eve </script><b onclick="x">')
    'eve &lt;/script&gt;&lt;b onclick=&quot;x&quot;&gt;'
    """
    return html.escape(printable(words))


def embedded(content: bytes, anchor: str) -> Any:
    """The data for programs that a page holds under an anchor."""
    _, _, rest = content.decode("utf-8").partition(f'<script type="application/json" id="{anchor}">')
    if not rest:
        raise InvalidValue("page", f"must hold data called {anchor}", "none")
    return json.loads(rest.partition("</script>")[0])


def paragraphs(several: str) -> tuple[str, ...]:
    """Text whose paragraphs are separated by empty lines.

    >>> paragraphs("One\\nand the same.\\n\\nAnother.")
    ('One and the same.', 'Another.')
    """
    return tuple(" ".join(part.split()) for part in re.split(r"\n\s*\n", several) if part.strip())


def shown(blocks: Iterable[ShownBlock]) -> tuple[Block, ...]:
    """The blocks of a document; a sketch is for terminals, here stands the figure."""
    return tuple(block for block in blocks if not isinstance(block, Sketch))


@cache
def _resource(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8").strip()


def _policy(style: str, script: str) -> str:
    """Nothing is loaded; only this style and this script apply."""

    def allowed(content: str) -> str:
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        return f"'sha256-{digest}'" if content else "'none'"

    return (
        f"default-src 'none'; img-src data:; style-src {allowed(style)}; script-src {allowed(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _data(anchor: str, value: Any) -> str:
    content = json.dumps(plain(value), separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        content = content.replace(letter, f"\\u{ord(letter):04x}")
    return f'<script type="application/json" id="{html.escape(anchor)}">{content}</script>'


def _sliders(parts: Iterable[Part]) -> Iterable[Slider]:
    for part in parts:
        yield from (block for block in part.blocks if isinstance(block, Slider))
        yield from _sliders(part.parts)


def _points(slider: Slider) -> Mapping[str, Any]:
    def point_data(point: Point) -> Mapping[str, Any]:
        facts = [[printable(name), printable(value)] for name, value in point.facts]
        return {"at": printable(point.at), "facts": facts, "words": [printable(w) for w in point.words]}

    return {"points": [point_data(point) for point in slider.points]}


# Every kind of block as HTML


def _part(part: Part, level: int) -> str:
    inside = "".join(_part(each, level + 1) for each in part.parts)
    head = f'<h{level} id="{part.anchor}-title">{text(part.title)}</h{level}>'
    # only the outermost are landmarks: dozens of them would lead nobody
    named = f' aria-labelledby="{part.anchor}-title"' if level == _OUTERMOST else ""
    return f'<section id="{part.anchor}"{named}>\n{head}\n{_blocks(part.blocks)}{inside}</section>\n'


def _blocks(blocks: Iterable[Block]) -> str:
    return "".join(f"{_block(block)}\n" for block in blocks)


def _block(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{_spelled(block)}</p>"
    for kind, write in _WRITERS.items():
        if isinstance(block, kind):
            return write(block)
    raise TypeError(f"no block of a page: {type(block).__name__}")


def _spelled(words: str) -> str:
    """Text in which names of code stand between backticks."""
    return _CODE.sub(r"<code>\1</code>", text(words))


def _link(link: Link) -> str:
    return f'<a href="{html.escape(link.address)}">{text(link.text)}</a>'


def _badge(badge: Badge) -> str:
    return f'<span class="badge {_kind(badge.text)}">{text(badge.text)}</span>'


def _kind(verdict: str) -> str:
    """How good a verdict is, whatever else is said with it."""
    kinds = [
        word for word in _VERDICTS if verdict == word or verdict.startswith((f"{word} (", f"{word}, "))
    ]
    return _VERDICTS[max(kinds, key=len)] if kinds else ""


def _run(words: Words) -> str:
    def written(part: str | Link | Badge) -> str:
        if isinstance(part, Link):
            return _link(part)
        return _badge(part) if isinstance(part, Badge) else _spelled(part)

    return "".join(map(written, words.parts))


def _words(words: Words) -> str:
    if words.kind == "quote":
        return f"<blockquote><p>{_run(words)}</p></blockquote>"
    return f'<p class="{words.kind}">{_run(words)}</p>' if words.kind else f"<p>{_run(words)}</p>"


def _facts(facts: Facts) -> str:
    rows = "".join(
        f"<dt>{text(name)}</dt><dd>{_run(value) if isinstance(value, Words) else _spelled(value)}</dd>"
        for name, value in facts.rows
    )
    return f"<dl>{rows}</dl>"


def _table(table: Table, links: Mapping[tuple[int, int], str] = {}) -> str:
    """In a box of its own that scrolls, also by keyboard; names and values need none."""
    named = any(column.name for column in table.columns)
    below = f'<p class="note">{text(table.caption)}</p>' if table.caption else ""
    title = f"<caption>{text(table.title)}</caption>" if table.title else ""
    head, kind = "", ' class="pairs"'
    size = _size(table)
    if named:
        cells = "".join(map(_heading, table.columns))
        head, kind = f"<thead><tr>{cells}</tr></thead>", _classes(*size)
    rows = "".join(_row(table, number, cells, links) for number, cells in enumerate(table.cells))
    whole = f"<table{kind}>{title}{head}<tbody>{rows}</tbody></table>"
    if not named and len(table.columns) == 2:
        return whole + below
    label = html.escape(printable(table.title or "table"))
    return f'<div class="scroll" role="group" aria-label="{label}" tabindex="0">{whole}</div>{below}'


def _heading(column: Column) -> str:
    kind = _classes("l" if column.left else "", _long(column.name))
    return f"<th scope=col{kind}>{text(column.name)}</th>" if column.name else "<td></td>"


def _size(table: Table) -> tuple[str, ...]:
    """How a table is set so that it fits on a screen and on paper, by how many letters stand side by side
    at least: numbers are not broken, words between spaces are."""
    lines = [[column.name for column in table.columns], *table.cells]
    letters = 0.0
    for k, column in enumerate(table.columns):
        pieces = [lines[0][k].split()]
        pieces += [line[k].split() if column.left else [line[k]] for line in lines[1:]]
        words = (min(len(word), _LONG_WORD) for words in pieces for word in words)
        letters += max(words, default=0) + _GAP
    return () if letters <= _NARROW else ("wide",) if letters <= _PAPER else ("wide", "widest")


def _long(words: str) -> str:
    """The class of a cell whose words are too long to be kept whole."""
    return "long" if any(len(word) > _LONG_WORD for word in words.split()) else ""


def _classes(*names: str) -> str:
    kept = " ".join(filter(None, names))
    return f' class="{kept}"' if kept else ""


def _row(table: Table, number: int, cells: Sequence[str], links: Mapping[tuple[int, int], str]) -> str:
    written = []
    for k, (column, cell) in enumerate(zip(table.columns, cells, strict=True)):
        kind = _classes("l" if column.left else "", _kind(cell) if column.left else "", _long(cell))
        address = links.get((number, k))
        inside = _link(Link(cell, address)) if address else text(cell)
        if k == 0 and (column.left or not column.name):
            written.append(f"<th scope=row{kind}>{inside}</th>")
        else:
            written.append(f"<td{kind}>{inside}</td>")
    return f"<tr>{''.join(written)}</tr>\n"


def _grid(grid: Grid) -> str:
    return _table(grid.table, grid.links)


def _picture(picture: Picture) -> str:
    width, height = picture.size
    wide = ' class="wide"' if width > _WIDE else ""
    image = (
        f'<img src="{html.escape(picture.source)}" alt="{text(picture.alt)}" width="{width}" '
        f'height="{height}"{wide}>'
    )
    below = f"<figcaption>{text(picture.caption)}</figcaption>" if picture.caption else ""
    if wide:
        image = f'<div class="scroll" role="group" aria-label="Figure" tabindex="0">{image}</div>'
    return f"<figure>{image}{below}</figure>"


def _details(details: Details) -> str:
    return f"<details><summary>{text(details.summary)}</summary>\n{_blocks(details.blocks)}</details>"


def _slider(slider: Slider) -> str:
    anchor, last = html.escape(slider.anchor), len(slider.points) - 1
    return (
        f'<div class="slider" id="{anchor}" data-points="{anchor}-points" '
        f'data-name="{text(slider.name)}" hidden>'
        f'<label for="{anchor}-input">{text(slider.label)}</label>'
        f'<input type="range" id="{anchor}-input" min="0" max="{last}" step="1" value="{slider.start}">'
        f'<output for="{anchor}-input"></output></div>'
    )


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    Words: _words, Table: _table, Grid: _grid, Facts: _facts, Picture: _picture, Details: _details,
    Slider: _slider,
}  # fmt: skip
