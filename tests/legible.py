"""Whether the words of a figure can be read: none leaves the figure, none lies on another."""

from itertools import combinations
from unittest import mock

import numpy as np
from matplotlib.text import Text
from matplotlib.transforms import Bbox

_SLACK = 1.5  # pixels, at 100 an inch: the box of a text is rounded up to whole ones


def illegible(figure):
    """What is wrong with the words of a figure, drawn with all warnings on; empty if nothing is."""
    texts = _written(figure)
    renderer = figure.canvas.get_renderer()
    boxes = {text: text.get_window_extent(renderer) for text in texts}
    sheet = figure.bbox.padded(_SLACK)
    left = [
        f"{text.get_text()!r} leaves the figure" for text, box in boxes.items() if not _holds(sheet, box)
    ]
    return left + [
        f"{one.get_text()!r} lies on {other.get_text()!r}"
        for one, other in combinations(texts, 2)
        if _on_each_other(one, other, boxes, renderer)
    ]


def _written(figure):
    """The texts that are drawn: not those of ticks beyond an axis."""
    written, draw = [], Text.draw

    def recorded(text, renderer):
        if text.get_text().strip() and text.get_visible():
            written.append(text)
        draw(text, renderer)

    with mock.patch.object(Text, "draw", recorded):
        figure.canvas.draw()
    return list(dict.fromkeys(written))


def _holds(sheet, box):
    return sheet.x0 <= box.x0 and sheet.y0 <= box.y0 and box.x1 <= sheet.x1 and box.y1 <= sheet.y1


def _on_each_other(one, other, boxes, renderer):
    a, b = boxes[one], boxes[other]
    if not Bbox.intersection(a.padded(-_SLACK), b.padded(-_SLACK)):
        return False
    angle = one.get_rotation()
    if angle % 90 == 0 or other.get_rotation() != angle:
        return True
    # of parallel slanted lines boxes meet long before the lines do: what counts is how far these are apart
    apart = np.array([b.x1 - a.x1, b.y1 - a.y1])
    across = abs(np.cos(np.radians(angle)) * apart[1] - np.sin(np.radians(angle)) * apart[0])
    return across < _height(one, renderer) - _SLACK


def _height(text, renderer):
    angle = text.get_rotation()
    text.set_rotation(0)
    height = text.get_window_extent(renderer).height
    text.set_rotation(angle)
    return height
