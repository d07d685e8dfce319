"""Small plots made of braille dots, for a look at a contract without leaving the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats

if TYPE_CHECKING:
    from bonafed.presentation.documents import Sketch

_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # dot of row, column
_MOST, _LEAST, _ROWS = 56, 16, 10  # characters side by side, and above each other
Piece = tuple[str, int | None]  # a text, and the curve that it belongs to


def pieces(sketch: Sketch, width: int = 80) -> list[Piece]:
    """The text of a sketch, row by row, as wide as fits; whoever prints it may colour the curves.

    Nothing is left where so little fits that no curve could be read.
    """
    x = np.asarray(sketch.x, dtype=np.float64)
    curves = sketch.curves
    tops, bottoms = [f"{c.top:.3g}" for c in curves], [f"{c.bottom:.3g}" for c in curves]
    margin = max(len(tops[0]), len(bottoms[0]))
    right_margin = max(len(tops[1]), len(bottoms[1])) + 2 if len(curves) > 1 else 0
    columns = min(_MOST, width - margin - 2 - right_margin)
    if columns < _LEAST:
        return []
    canvases = [
        _dots(x, np.asarray(c.values, dtype=np.float64), (c.bottom, c.top), columns) for c in curves
    ]
    text: list[Piece] = []
    for row in range(_ROWS):
        left = tops[0] if row == 0 else bottoms[0] if row == _ROWS - 1 else ""
        text.append((f"{left:>{margin}} ┤", 0))
        text += [_character([canvas[row, column] for canvas in canvases]) for column in range(columns)]
        if len(curves) > 1:
            right = tops[1] if row == 0 else bottoms[1] if row == _ROWS - 1 else ""
            text.append((f"├ {right}".rstrip(), 1))
        text.append(("\n", None))
    text.append((f"{'':>{margin}} └{'─' * columns}\n", None))
    first, last = f"{x[0]:.3g}", f"{x[-1]:.3g}"
    text.append((f"{'':>{margin}}  {first}{sketch.label:^{columns - len(first) - len(last)}}{last}", None))
    text += [(f"\n{'':>{margin}}  ── {curve.label}", place) for place, curve in enumerate(curves)]
    return text


def _character(cell: Sequence[np.int64]) -> Piece:
    """Where curves cross, the first one is on top."""
    owner = next((place for place, dots in enumerate(cell) if dots), None)
    return chr(0x2800 + (0 if owner is None else int(cell[owner]))), owner


def _dots(x: Floats, values: Floats, scale: tuple[float, float], columns: int) -> NDArray[np.int64]:
    """(rows, columns) bit patterns of a curve."""
    wide, tall = 2 * columns, 4 * _ROWS
    at = np.interp(np.linspace(x[0], x[-1], wide), x, values)
    span = scale[1] - scale[0] or 1.0
    height = np.clip(np.round((at - scale[0]) / span * (tall - 1)), 0, tall - 1).astype(int)
    canvas = np.zeros((_ROWS, columns), dtype=np.int64)
    for column in range(wide):
        low, high = sorted((height[max(column - 1, 0)], height[column]))
        for level in range(low + (low < high), high + 1):  # join steps by a vertical line
            down = tall - 1 - level
            canvas[down // 4, column // 2] |= _DOTS[down % 4, column % 2]
    return canvas
