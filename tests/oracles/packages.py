"""The package with the mechanism of the page on adding one: a copy, with its folder and its line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "add-a-mechanism.md").read_text(encoding="utf-8")
ADDED = ROOT / "docs" / "how-to" / "price_lottery"


def blocks(kind: str) -> list[str]:
    """The page's blocks of a kind."""
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def added(place: Path) -> Path:
    """Where the copy lies; no file differs from the package but the catalogue, by a line."""
    source = ROOT / "src" / "bonafed"
    shutil.copytree(source, place / "bonafed")  # with what is compiled already
    shutil.copytree(
        ADDED,
        place / "bonafed" / "mechanisms" / ADDED.name,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (line,) = re.findall(r"^\+(.*)$", blocks("diff")[0], re.MULTILINE)
    catalogue = place / "bonafed" / "mechanisms" / "catalogue.py"
    text = catalogue.read_text(encoding="utf-8")
    end = "\n)\nCATALOGUE"
    assert text.count(end) == 1
    catalogue.write_text(text.replace(end, f"\n{line}{end}"), encoding="utf-8")
    for path in source.rglob("*.py"):
        copy = place / "bonafed" / path.relative_to(source)
        if copy != catalogue:
            assert copy.read_bytes() == path.read_bytes()
    assert len(catalogue.read_text(encoding="utf-8").splitlines()) == len(text.splitlines()) + 1
    return place
