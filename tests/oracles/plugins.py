"""Packages with a mechanism, as pip would leave them in a folder: no network, no build."""

from __future__ import annotations

from pathlib import Path

ENTRY = """
from bonafed.mechanisms.catalogue import Entry

ENTRY = Entry(
    "toll", "toll", "toll_road.slice", "a toll for nobody", verbs="audit", formats=("toll-contract",)
)
"""
SLICE = """
from dataclasses import dataclass

from bonafed.checks import positive
from bonafed.mechanisms import fedavg
from bonafed.mechanisms.protocol import Command, Slice
from bonafed.presentation.documents import Document
from bonafed.sections import Section, key


@dataclass(frozen=True)
class Toll(Section):
    height: float = key(positive, 2.0, help="Of the gate.")


def look(options):
    return Document((f"The gate is {options.height} high.",), {})


AUDIT = Command("Look at the gate.", Toll, look)
SLICE = Slice("toll", fedavg._make, "toll", Toll, attack=AUDIT, read=lambda data: data)
"""
EXAMPLE = "[toll]\nheight = 3.0\n"
GOOD = {"__init__.py": ENTRY, "slice.py": SLICE, "example.toml": EXAMPLE}


def install(
    place: Path,
    package: str = "toll-road",
    files: dict[str, str] = GOOD,
    *,
    value: str = "ENTRY",
    name: str = "toll",
) -> Path:
    """Lay a package into a folder, with its entry point; returns the folder."""
    module = package.replace("-", "_")
    about = place / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[bonafed.mechanisms]\n{name} = {module}:{value}\n")
    (place / module).mkdir()
    for file, text in files.items():
        (place / module / file).write_text(text)
    return place


def entry_file(**changes: object) -> dict[str, str]:
    """The files of the good package with other fields of its entry."""
    fields = {
        "name": "toll", "table": "toll", "module": "toll_road.slice", "summary": "a toll for nobody",
        "verbs": "audit", "formats": ("toll-contract",), **changes,
    }  # fmt: skip
    return {
        **GOOD,
        "__init__.py": f"from bonafed.mechanisms.catalogue import Entry\nENTRY = Entry(**{fields!r})\n",
    }
