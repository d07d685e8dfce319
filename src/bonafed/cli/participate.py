"""`bonafed participate`: take part in a federation, with data, secrets and rules of one's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from bonafed.flower.commands import require_flower
from bonafed.flower.participating import participate as take_part
from bonafed.presentation import terminal
from bonafed.remote.participant.settings import read_settings


def participate(
    settings_file: Annotated[Path, typer.Argument(metavar="ME.toml", hidden=True)],
) -> None:
    """Take part in a federation until stopped (Ctrl-C): one process with your data, and a Flower node.

    ME.toml states who you are, whom you deal with, your data, what you know of yourself and what you
    accept; `bonafed federation init` writes one for each member. Data, costs and keys stay in this
    process. What the server sends is data to it: no code of the server's is run.

    You are asked for a report, given a contract, and trained with; each is checked against your own rules
    first. What you agreed to and gave is kept in your folder, so that you can stop and start again at any
    time: bonafed statement --mine.

    Example: bonafed participate me.toml
    """
    settings = read_settings(settings_file)
    require_flower()
    from bonafed.remote.participant.open_from_disk import open_participant

    participant = open_participant(settings, terminal.tell)
    if not take_part(settings, participant.handle, terminal.tell):
        sys.stdout.flush()
        os._exit(0)  # a thread still computes: Python could not end it in order, and what counts is on disk
