"""The report of claims that were put to the test: one HTML file that needs no other."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from bonafed.studies.reproducing import Reproduction, circumstances


def report_files(done: Sequence[Reproduction], folder: Path, command: str) -> dict[Path, bytes]:
    """The report, and every figure as .png and .svg, by path."""
    facts = "".join(f"<p>{k}: {html.escape(str(v))}</p>" for k, v in circumstances(command).items())
    parts = "".join(
        f"<h2>{html.escape(item.claim.identifier)}</h2>{item._repr_html_()}<p>{item.verdict}</p>"
        for item in done
    )
    return {folder / "index.html": f"<!doctype html><title>Report</title>{facts}{parts}".encode()}
