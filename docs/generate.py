"""Write what the code says about itself into the documentation: `make docs`.

`command-line.md` is the help text of every command; the pictures are drawn by the code they show.
A test compares the page with the code, so that it cannot fall behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from bonafed.cli import app
from bonafed.economics import NormalMixture
from bonafed.mechanisms.rewards.figures import behaviour_figure
from bonafed.mechanisms.rewards.game import game, with_ceiling
from bonafed.mechanisms.sampling import plan
from bonafed.mechanisms.sampling.figures import contract_figure
from bonafed.papers import register
from bonafed.presentation.figures import render

HERE = Path(__file__).parent


def command_line_page() -> str:
    """The help of all commands as one Markdown page."""
    parts = ["# The command line\n\nWritten by `make docs` from the help texts; do not edit.\n"]
    for names, command, context in _commands(typer.main.get_command(app), ["bonafed"]):
        parts.append(f"## {' '.join(names)}\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    return "\n".join(parts)


def _commands(command: Any, names: list[str]) -> list[tuple[list[str], Any, Any]]:
    """A command and those below it; groups whose commands come from a catalogue are asked for them."""
    context = command.context_class(
        command, info_name=" ".join(names), terminal_width=100, max_content_width=100
    )
    listed = [(names, command, context)]
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        listed += _commands(command.get_command(context, name), [*names, name])
    return listed


def main() -> None:
    """Rewrite the generated files."""
    (HERE / "command-line.md").write_text(command_line_page(), encoding="utf-8")
    prior = NormalMixture([0.5, 0.5], [0.6, 1.5], [0.1, 0.15], 0.2, 2.0)
    picture = HERE / "pictures" / "contract.png"
    contract = plan(prior, total_budget=20_000, clients=100, rounds=200)
    picture.write_bytes(render(contract_figure(contract), picture))
    picture = HERE / "pictures" / "jsam_money.png"
    claim = register.find("jsam-fig7")
    picture.write_bytes(render(claim.draw(claim.rows(claim.settings("quick"), {})), picture))
    picture = HERE / "pictures" / "rewards_game.png"
    clients = game([0.1, 0.2, 0.3, 0.5])
    picture.write_bytes(render(behaviour_figure(clients, with_ceiling(2.0, 0.0)), picture))


if __name__ == "__main__":
    main()
