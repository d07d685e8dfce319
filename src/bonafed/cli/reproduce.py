"""`bonafed reproduce`: the papers' tables and figures, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bonafed.cli import render
from bonafed.cli.options import Json
from bonafed.errors import InvalidValue
from bonafed.shown import Column, Document, Table


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", hidden=True)] = None,
    preset: Annotated[
        str, typer.Option(metavar="NAME", help="How large: quick, or as the study names it.")
    ] = "quick",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write tables and figures into this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a table or a figure of the papers again; without NAME, list them.

    Exit code 1 if a claim of the study does not hold.

    Example: bonafed reproduce --json
    """
    from bonafed.studies.registry import STUDIES

    if name is None:
        rows = tuple((study.name, study.summary) for study in STUDIES.values())
        table = Table("Studies", (Column("name", left=True), Column("what it shows", left=True)), rows)
        render.show(Document((table,), {"studies": dict(rows)}), as_json=as_json)
        return
    if name not in STUDIES:
        raise InvalidValue("study", "must be one of " + ", ".join(STUDIES), repr(name))
    if out is not None and out.exists() and not out.is_dir():
        raise InvalidValue("--out", "must be a folder", out)
    run = STUDIES[name].load()
    with render.working(f"reproducing {name}"):
        document = run(preset)
    outputs = {}
    if out is not None:
        outputs = {out / file: content for file, content in document.files.items()}
        out.mkdir(parents=True, exist_ok=True)
        render.write_together(outputs)
    render.show(document, as_json=as_json, written=outputs)
