"""`bonafed reproduce NAME`: reproduce the tables and figures of the papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from bonafed.cli import render
from bonafed.cli.nouns import Verb, group_of
from bonafed.mechanisms.protocol import Command
from bonafed.shown import Document

_INTERRUPTED = 130  # what shells report for a program stopped by the user


def _studies() -> Mapping[str, str]:
    from bonafed.studies.registry import STUDIES

    return {name: entry.summary for name, entry in STUDIES.items()}


def _command(name: str) -> Command:
    """A study as a command; prints a line for every cell that is trained."""
    from bonafed.studies.registry import STUDIES

    study = STUDIES[name].load()

    def answer(options: Any) -> Document:
        from bonafed.studies.grid import run

        try:
            return run(study, options, lambda text: render.tell(text, err=True))
        except KeyboardInterrupt:
            text = "stopped by the user; the same command continues where it stopped"
            render.tell(text if hasattr(options, "out") else "stopped by the user", err=True)
            raise typer.Exit(_INTERRUPTED) from None

    return Command(study.summary, study.options, answer, study.details, study.example)


reproduce_app = group_of(
    Verb(
        "Reproduce a table or figure of the papers; without a name, list them.",
        "study",
        _studies,
        _command,
        tabulates=True,
    )
)
