"""Figures in a page: as small as they can be, legible on white and on black."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.etree import ElementTree

from bonafed.presentation.page import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCREEN = 96  # pixels of a page in an inch
_DOTS = 96  # of a picture, per inch
_SHADES = 64  # colours of a picture
_SAFE = " !$()*+,-./:;=@_~'\"&"  # characters that a data URI in an attribute may have
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_FONT = "text{font-family:DejaVu Sans,Verdana,Arial,sans-serif}"
_PLACES = {"d", "x", "y"}  # attributes that are numbers only
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # characters that XML may not hold
_DIGITS = re.compile(r"-?\d+\.\d{3,}")


def picture(figure: Figure, alt: str, caption: str = "") -> Picture:
    """Of a figure: drawn by lines and letters, or by dots where that is shorter."""
    width, height = (round(side * _SCREEN) for side in figure.get_size_inches())
    drawn = compact_svg(figure)
    if "'" not in drawn:
        drawn = drawn.replace('"', "'")  # which need no escape in the page
    vector = "data:image/svg+xml," + quote(drawn, safe=_SAFE)
    raster = "data:image/png;base64," + base64.b64encode(compact_png(figure)).decode()
    return Picture(min(vector, raster, key=len), (width, height), alt, caption)


def files(figure: Figure, path: Path) -> dict[Path, bytes]:
    """The same figure as files beside a page: path.png and path.svg."""
    return {
        path.with_name(f"{path.name}.png"): compact_png(figure, transparent=False),
        path.with_name(f"{path.name}.svg"): compact_svg(figure, transparent=False).encode(),
    }


def compact_png(figure: Figure, *, transparent: bool = True) -> bytes:
    """By dots, of few colours."""
    from PIL import Image

    from bonafed.presentation.figures import saved

    whole = Image.open(io.BytesIO(saved(figure, "png", dpi=_DOTS, transparent=transparent)))
    few = whole.quantize(_SHADES, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    few.save(buffer, "png", optimize=True, dpi=(_DOTS, _DOTS))
    return buffer.getvalue()


def compact_svg(figure: Figure, *, transparent: bool = True) -> str:
    """By lines and letters; without what no reader needs, and a hundredth of a point exact."""
    from bonafed.presentation.figures import saved

    whole = saved(figure, "svg", letters=True, transparent=transparent).decode()
    root = ElementTree.fromstring(_FORBIDDEN.sub("\ufffd", whole))
    _drop_metadata(root)
    _unwrap(root)
    used = {value[1:] for node in root.iter() for value in node.attrib.values() if value.startswith("#")}
    used |= {name for node in root.iter() for name in re.findall(r"url\(#(.*?)\)", str(node.attrib))}
    own = {
        node.attrib["id"]: _entries(node.attrib.get("style", ""))
        for node in root.iter()
        if "id" in node.attrib
    }
    for node in root.iter():
        _shorten(node, used)
        if node.tag == f"{{{_SVG}}}use" and "style" in node.attrib:
            _drop_overruled(node, own.get(node.attrib.get(f"{{{_XLINK}}}href", "#")[1:], {}))
    style = root.find(f".//{{{_SVG}}}style")
    if style is not None:
        style.text = f"{style.text}{_FONT}"
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _drop_metadata(root: ElementTree.Element) -> None:
    for node in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(node)


def _unwrap(node: ElementTree.Element) -> None:
    """Groups that say nothing about what is in them are left out."""
    children: list[ElementTree.Element] = []
    for child in list(node):
        _unwrap(child)
        plain = child.tag == f"{{{_SVG}}}g" and set(child.attrib) <= {"id"}
        children += list(child) if plain else [child]
        node.remove(child)
    node.extend(children)


def _shorten(node: ElementTree.Element, used: set[str]) -> None:
    letters = node.tag in (f"{{{_SVG}}}text", f"{{{_SVG}}}tspan", f"{{{_SVG}}}style")
    if not letters:
        node.text = None
    if node.tag != f"{{{_SVG}}}tspan":
        node.tail = None
    if node.attrib.get("id", "") not in used:
        node.attrib.pop("id", None)
    if node.attrib.get("transform", "").startswith("rotate(-0 "):
        del node.attrib["transform"]
    for name, value in node.attrib.items():
        if name in _PLACES:
            node.attrib[name] = " ".join(_DIGITS.sub(_rounded, value).split())
        elif name == "style":
            node.attrib[name] = _plain_font(value)


def _drop_overruled(node: ElementTree.Element, own: dict[str, str]) -> None:
    """What is used keeps its own style: only what that leaves open, such as a fill, is inherited."""
    kept = {name: value for name, value in _entries(node.attrib.pop("style")).items() if name not in own}
    if kept:
        node.attrib["style"] = ";".join(f"{name}:{value}" for name, value in kept.items())


def _entries(style: str) -> dict[str, str]:
    pairs = (entry.split(":", 1) for entry in style.split(";") if ":" in entry)
    return {name.strip(): value.strip() for name, value in pairs}


def _plain_font(style: str) -> str:
    """Without the list of fonts: one for the whole figure is enough.

    >>> _plain_font("font-size: 10px; font-family: 'DejaVu Sans', sans-serif; text-anchor: middle")
    'font-size:10px;text-anchor:middle'
    """
    kept = {name: value for name, value in _entries(style).items() if name != "font-family"}
    return ";".join(f"{name}:{value}" for name, value in kept.items())


def _rounded(digits: re.Match[str]) -> str:
    return f"{float(digits[0]):.2f}".rstrip("0").rstrip(".")
