"""How text from outside is spelled: numbers as they are read, names as they are written and told apart.

    numeral(text)     the number that a text spells in the digits 0 to 9, and in nothing else
    printable(text)   the text with control characters spelled out: no name moves a cursor, reverses what
                      follows or begins a new line
    csv_bytes(rows)   a CSV file in which no name is a formula; `from_cell` reads a cell of it back
    alike(name)       the same for names that people cannot tell apart

A spreadsheet takes a cell that begins with = + - @ (also in their full-width forms), with a tab or with a
line break for a formula. Unless a cell is a number, such a character gets an apostrophe before it, and also
where it follows a character that separates cells in other countries, quotes in between or not. One is added
whether or not there are any already: reading takes off exactly what writing put on.

>>> names = ("ada", "=1+1", "'=1+1", "'t Hooft", "-0.5", "eve;@SUM(1)")
>>> [in_cell(name) for name in names]
['ada', "'=1+1", "''=1+1", "'t Hooft", '-0.5', "eve;'@SUM(1)"]
>>> tuple(from_cell(in_cell(name)) for name in names) == names
True
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence

_NUMERAL = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE
)
_WHOLE = re.compile("[+-]?[0-9]+")
_BEGINS = "(?=[=+\\-@\t\r\n\uff0b\uff0d\uff1d\uff20])"  # a formula
# cells are also separated by these where commas are decimal points; tabs and line breaks begin formulas too
_FORMULA = re.compile(f"((?:^|[;|\t\r\n])[\"']*){_BEGINS}")
_ESCAPED = re.compile(f"((?:^|[;|\t\r\n])[\"']*)'{_BEGINS}")
# drawn as nothing, though they count as letters and marks: fillers, joiners, variants of a character
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def numeral(text: str) -> float:
    """The number that a text spells, spaces around it aside; a `ValueError` for anything else.

    Python reads more than people do: `0_1`, digits of other scripts, line breaks around a number. Infinity
    and NaN are numbers here, so that whoever asks can say that they must be finite.

    >>> numeral(" -2.5e3")
    -2500.0
    >>> numeral("0_1")
    Traceback (most recent call last):
        ...
    ValueError: not a number: '0_1'
    """
    if _NUMERAL.fullmatch(text.strip(" ")) is None:
        raise ValueError(f"not a number: {text[:60]!r}")
    return float(text)


def whole_numeral(text: str) -> int:
    """The whole number that a text spells in the digits 0 to 9; a `ValueError` for anything else."""
    if _WHOLE.fullmatch(text.strip(" ")) is None:
        raise ValueError(f"not a whole number: {text[:60]!r}")
    return int(text)


def printable(text: str) -> str:
    r"""The text with every character that is not drawn spelled out, line breaks too.

    >>> print(printable("ada\x1b[31m\u202e"))
    ada\x1b[31m\u202e
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def in_cell(text: str) -> str:
    """A text as a cell of a CSV file that no spreadsheet computes."""
    return text if _NUMERAL.fullmatch(text) else _FORMULA.sub(r"\1'", text)


def from_cell(cell: str) -> str:
    """The text that `in_cell` made a cell of; of a file that others wrote, the cell as it stands."""
    return _ESCAPED.sub(r"\1", cell)


def csv_bytes(rows: Iterable[Sequence[object]]) -> bytes:
    """A CSV file in UTF-8: texts as `in_cell`, real numbers with all their digits, truth values as 0 and 1.

    >>> csv_bytes([("client", "amount"), ("=1+1", 0.1), ("eve;@SUM(1)", None)])
    b"client,amount\\n'=1+1,0.1\\neve;'@SUM(1),\\n"
    """
    text = io.StringIO()
    plain = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        cells = [_cell(value) for value in row]
        (quoted if any("\r" in cell for cell in cells) else plain).writerow(cells)  # which plain would not
    return text.getvalue().encode()


def _cell(value: object) -> str:
    plain = value.item() if hasattr(value, "item") else value  # NumPy's numbers as Python's
    if plain is None:
        return ""
    if isinstance(plain, bool):
        return str(int(plain))
    return in_cell(plain) if isinstance(plain, str) else repr(plain)


def alike(name: str) -> str:
    """The same text for names that differ in case, width, form or spaces only; nothing for invisible ones.

    >>> alike("Ada  L.") == alike("ada l．")
    True
    """
    if name.isascii():
        return " ".join(name.casefold().split())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(_INVISIBLE.sub("", folded).split())


def natural_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """The sort key of names, the same wherever clients are listed: numbers inside names by their value.

    One order everywhere, so that the same seed draws the same clients from a table and from a federation.

    >>> sorted(["ward 10", "ward 9", "10", "9", "09"], key=natural_order)
    ['09', '9', '10', 'ward 9', 'ward 10']
    """
    pieces = re.split(r"([0-9]+)", name)  # every second piece is a number
    return [(int(piece), "") if at % 2 else (-1, piece) for at, piece in enumerate(pieces)], name
