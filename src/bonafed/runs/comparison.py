"""What a comparison of mechanisms shows, from its plain data: also long after the runs, from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bonafed.errors import UnreadableFile
from bonafed.presentation.documents import Cell, Column, Document, JSONObject, Table, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAILED = "FAILED"  # in place of the accuracy
COMPARISON = "comparison.json"  # in the folder that holds the runs

_COLUMNS = (
    Column("mechanism", left=True),
    Column("accuracy", ".2%"),
    Column("loss", ".4f"),
    Column("money", ",.2f"),
    Column("epsilon", ".4g"),
    Column("taken"),
    Column("steps", ","),
    Column("promises"),
    Column("lie gains", ".2g"),
    Column("unit", left=True),
    Column("seconds", ",.1f"),
)
_TESTED_ON = Column("tested on", ",")  # shown where it differs


def read_comparison(folder: Path) -> JSONObject | None:
    """What a folder of runs says about their comparison; None: they were not made by one."""
    path = folder / COMPARISON
    if not path.is_file():
        return None
    try:
        data: JSONObject = json.loads(path.read_bytes())
        comparison_document(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableFile(path, f"must be what bonafed compare wrote ({error})") from error
    return data


def comparison_document(data: Mapping[str, Any]) -> Document:
    """One table, and why some mechanisms are not in it."""
    ran = [entrant for entrant in data["mechanisms"] if entrant["applies"]]
    failed = [entrant for entrant in ran if entrant.get("failed")]
    alike = data["judged_alike"]
    columns = _COLUMNS if alike else (*_COLUMNS[:3], _TESTED_ON, *_COLUMNS[3:])
    rows = tuple(_row(entrant, columns) for entrant in ran)
    tests = "tested on: test samples that judge it, without those it looks at while it trains"
    if alike:
        tests = "one test set"
    caption = (
        f"{counted(data['clients'], 'client')}, {tests}; epsilon: the largest given away; taken: "
        "clients that took part; promises: how many of those checked were kept; lie gains: what the "
        "best lie that a search found brings a client, in this unit (0: none pays more than its "
        "certificate allows, empty: nobody looked)"
    )
    broken = [f"{e['mechanism']}: {text}" for e in ran for text in e["broken"]]
    lies = [
        f"{e['mechanism']}: {e['lie']['text']}"
        for e in ran
        if e["lie"] is not None and not e["lie"]["holds"] and e["lie gains"]
    ]
    left_out = [
        f"{e['mechanism']} does not apply: {e['reason']}" for e in data["mechanisms"] if not e["applies"]
    ]
    chosen = [f"{e['mechanism']}: {e['chosen']}" for e in ran if e.get("chosen")]
    table = Table("The same federation under each mechanism", columns, rows, caption)
    problems = (_problems(failed),) if failed else ()
    return Document(
        (table, *problems, *chosen, *broken, *lies, *left_out),
        data,
        lambda: _draw(ran, alike),
        holds=not failed,
    )


def _row(entrant: Mapping[str, Any], columns: Sequence[Column]) -> tuple[Cell, ...]:
    """Its numbers; of one that has none, that it failed."""
    if _without_result(entrant):
        return (entrant["mechanism"], FAILED, *(None for _ in columns[2:]))
    return tuple(entrant[column.name] for column in columns)


def _without_result(entrant: Mapping[str, Any]) -> bool:
    return bool(entrant.get("failed")) and entrant.get("seconds") is None


def _problems(failed: Sequence[Mapping[str, Any]]) -> Table:
    """Why there is no result, or no search for lies."""
    columns = tuple(
        Column(name, left=True) for name in ("mechanism", "failed while", "reason", "what to do")
    )
    rows = tuple(
        (e["mechanism"], *(e["failed"][key] for key in ("doing", "reason", "advice"))) for e in failed
    )
    return Table("What failed", columns, rows, "the results of the others are not touched by it")


def _draw(ran: list[JSONObject], alike: bool) -> Figure:
    from bonafed.runs.figures import comparison_figure

    texts = {column.name: column.text for column in _COLUMNS}
    rows = [{**dict.fromkeys(texts), **e, "failed": _without_result(e)} for e in ran]
    return comparison_figure(rows, texts, judged_alike=alike)
