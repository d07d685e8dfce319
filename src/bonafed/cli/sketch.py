"""A small plot made of braille dots, for a look at a contract without leaving the terminal."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from bonafed.checks import Floats

_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # dot of row, column
_COLOURS = ("cyan", "magenta")


def sketch(
    x: Floats,
    curves: list[tuple[str, Floats, tuple[float, float]]],
    columns: int = 56,
    rows: int = 10,
) -> Text:
    """Up to two curves over the same x; each (label, values, (bottom, top) of its own scale)."""
    canvases = [_dots(x, values, scale, columns, rows) for _, values, scale in curves]
    text = Text()
    tops = [f"{scale[1]:.3g}" for _, _, scale in curves]
    bottoms = [f"{scale[0]:.3g}" for _, _, scale in curves]
    margin = max(len(tops[0]), len(bottoms[0]))
    for row in range(rows):
        left = tops[0] if row == 0 else bottoms[0] if row == rows - 1 else ""
        text.append(f"{left:>{margin}} ┤", style=_COLOURS[0])
        for column in range(columns):
            cell = [int(canvas[row, column]) for canvas in canvases]
            owner = next((k for k, dots in enumerate(cell) if dots), None)
            character = chr(0x2800 + sum(cell[k] for k in range(len(cell)) if k == owner))
            text.append(character, style=_COLOURS[owner] if owner is not None else "")
        if len(curves) > 1:
            right = tops[1] if row == 0 else bottoms[1] if row == rows - 1 else ""
            text.append(f"├ {right}", style=_COLOURS[1])
        text.append("\n")
    text.append(f"{'':>{margin}} └{'─' * columns}\n")
    ends = f"{x[0]:.3g}", f"{x[-1]:.3g}"
    text.append(f"{'':>{margin}}  {ends[0]}{'cost':^{columns - len(ends[0]) - len(ends[1])}}{ends[1]}\n")
    for colour, (label, _, _) in zip(_COLOURS, curves, strict=False):
        text.append(f"{'':>{margin}}  ── {label}\n", style=colour)
    return text


def _dots(x: Floats, values: Floats, scale: tuple[float, float], columns: int, rows: int) -> np.ndarray:
    """(rows, columns) bit patterns of a curve."""
    wide, tall = 2 * columns, 4 * rows
    at = np.interp(np.linspace(x[0], x[-1], wide), x, values)
    span = scale[1] - scale[0] or 1.0
    height = np.clip(np.round((at - scale[0]) / span * (tall - 1)), 0, tall - 1).astype(int)
    canvas = np.zeros((rows, columns), dtype=int)
    for column in range(wide):
        low, high = sorted((height[max(column - 1, 0)], height[column]))
        for level in range(low + (low < high), high + 1):  # join steps by a vertical line
            down = tall - 1 - level
            canvas[down // 4, column // 2] |= _DOTS[down % 4, column % 2]
    return canvas
