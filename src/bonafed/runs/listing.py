"""Runs side by side: what their folders say, finished or not, as plain data."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.protocol import Config
from bonafed.presentation.documents import Cell, Column, Table
from bonafed.runs import folder as folders
from bonafed.runs.config import from_tables
from bonafed.runs.folder import JSONObject
from bonafed.runs.summary import budget_in_words


def find(paths: Sequence[Path]) -> list[Path]:
    """The folders that hold a run, and the runs directly inside the other folders; each run once.

    A run whose config is gone is one of them, so that it is not passed over in silence.
    """
    runs: list[Path] = []
    for folder in paths:
        if not folder.is_dir():
            raise InvalidValue("folder", "must exist and hold runs of `bonafed train`", folder)
        if _is_run(folder):
            runs.append(folder)
            continue
        inside = sorted(path for path in folder.iterdir() if path.is_dir() and _is_run(path))
        if not inside:
            raise InvalidValue("folder", "must hold a run, or folders that do", folder)
        runs += inside
    once: dict[Path, Path] = {}
    for path in runs:
        once.setdefault(path.resolve(), path)
    return list(once.values())


def _is_run(folder: Path) -> bool:
    return folders.holds_run(folder) or folders.lost_config(folder)


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """A name for each folder: its last part, or as many parts as distinguish it from the others.

    >>> distinct_names([Path("/mine/first/run"), Path("/mine/second/run"), Path("/mine/third")])
    ['first/run', 'second/run', 'third']
    """
    parts = [path.resolve().parts for path in paths]
    lengths = [1] * len(parts)
    while True:
        names = [Path(*path[-length:]).as_posix() for path, length in zip(parts, lengths, strict=True)]
        counts = Counter(names)
        longer = [
            min(length + (counts[name] > 1), len(path))
            for path, length, name in zip(parts, lengths, names, strict=True)
        ]
        if longer == lengths:
            return names
        lengths = longer


def mark_test_sets(rows: Sequence[JSONObject]) -> None:
    """Where runs were judged by different test samples, a letter for each set as `test_set`; else None.

    Accuracies and losses compare only between runs of the same letter. "?" is a run that did not record
    its test samples.
    """
    tested = [row for row in rows if row["test_accuracy"] is not None or row["test_loss"] is not None]
    letters = letters_of([row["test_digest"] for row in tested])
    for row in rows:
        row["test_set"] = letters[row["test_digest"]] if row in tested and len(letters) > 1 else None


def letters_of(digests: Sequence[str]) -> dict[str, str]:
    """A letter for each set of test samples by its digest; "?" for none."""
    letters: dict[str, str] = {}
    for digest in digests:
        letters.setdefault(digest, "?" if not digest else _letter(len(letters)))
    return letters


def _letter(number: int) -> str:
    """A, B, ..., Z, A1, B1, ..."""
    return chr(ord("A") + number % 26) + (str(number // 26) if number >= 26 else "")


def overview(folder: Path) -> JSONObject:
    """How far a run has come, and its curves, one value per round (None where nothing was measured)."""
    if folders.lost_config(folder):
        raise UnreadableFile(folder / folders.CONFIG, "is missing")
    try:
        config = from_tables(folders.read_config(folder))
    except InvalidValue as error:
        raise UnreadableFile(folder / folders.CONFIG, str(error)) from error
    rounds = folders.read_rounds(folder)
    try:
        return _overview(folder, config, rounds)
    except (KeyError, TypeError) as error:
        raise UnreadableFile(folder / folders.METRICS, f"must have the keys of a run ({error})") from error


def _overview(folder: Path, config: Config, records: list[JSONObject]) -> JSONObject:
    # what is trained besides the mechanism, such as baselines, is not listed
    own = [record for record in records if not record["phase"]]
    rounds = [{**record, "round": number} for number, record in enumerate(own, 1)]

    def last(key: str) -> Any:
        return next((r[key] for r in reversed(rounds) if r[key] is not None), None)

    about = folders.read_json(folder, folders.VERSIONS)
    agreed = (folder / folders.AGREEMENT).is_file()  # who did not report is not in a run
    agreement = folders.read_json(folder, folders.AGREEMENT) if agreed else None
    finished, spends = folders.is_finished(folder), None
    summary = folders.read_json(folder, folders.SUMMARY) if finished else {}
    if any(record["spend"] is not None for record in rounds):
        spends = list(itertools.accumulate(record["spend"] or 0.0 for record in rounds))
    return {
        "name": folder.resolve().name,
        "folder": str(folder),
        "data": config.data.name,
        "partition": config.partition.kind,
        "model": config.model.name,
        "clients": config.partition.clients if agreement is None else len(agreement["clients"]),
        "mechanism": config.mechanism,
        "scheme": getattr(config.own, "scheme", None),
        "rounds": len(own),
        "planned_rounds": about.get("rounds") if config.training is None else config.training.rounds,
        "unit": catalogue.entry(config.mechanism).load().unit(config),  # what is counted as rounds
        "finished": finished,
        "test_digest": about.get("test", ""),
        "test_accuracy": last("test_accuracy"),
        "test_loss": last("test_loss"),
        "train_loss": last("train_loss"),
        "spend": None if spends is None else (spends[-1] if spends else 0.0),
        # what the lines of a run do not say, its summary does: the settlement with noise, the budget
        "epsilon": summary.get("epsilon") if finished else last("epsilon"),
        "budget": summary.get("budget"),
        "empty_rounds": sum(not record["participants"] for record in own),
        "seconds": round(sum(record["seconds"] for record in records), 3),
        "curves": {
            "round": [record["round"] for record in rounds],
            "test_accuracy": [record["test_accuracy"] for record in rounds],
            "test_loss": [record["test_loss"] for record in rounds],
            "train_loss": [record["train_loss"] for record in rounds],
            "spend": spends,
        },
    }


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """A column for everything that is known about at least one run; what does not compare is marked."""
    units = {row["unit"] for row in rows}
    length = f"{units.copy().pop()}s" if len(units) == 1 else "length"
    cells: dict[Column, Callable[[dict[str, Any]], Cell]] = {
        Column("name", left=True): lambda row: row["name"],
        Column("data", left=True): lambda row: Path(row["data"]).name,
        Column("model", left=True): lambda row: row["model"],
        Column("mechanism", left=True): _mechanism,
        Column("clients", ","): lambda row: row["clients"],
        Column(length): lambda row: _rounds(row) + (f" {row['unit']}s" if len(units) > 1 else ""),
        Column("test set"): lambda row: row["test_set"],
        Column("accuracy", ".2%"): lambda row: row["test_accuracy"],
        Column("loss"): lambda row: _loss(row["test_loss"]),
        Column("train loss"): lambda row: _loss(row["train_loss"]) if row["test_loss"] is None else None,
        Column("empty"): lambda row: row["empty_rounds"] or None,
        Column("spend", ",.2f"): lambda row: row["spend"],
        Column("budget", left=True): _budget,
        Column("epsilon", ".4g"): lambda row: row["epsilon"],
        Column("seconds", ",.2f"): lambda row: row["seconds"],
    }
    columns = {column: [cell(row) for row in rows] for column, cell in cells.items()}
    nonempty = {
        column: values for column, values in columns.items() if any(v not in (None, "") for v in values)
    }
    captions = {
        "test set": "test set: accuracies and losses compare between runs of the same letter only",
        "empty": "empty: rounds without anybody",
    }
    shown = {column.name for column in nonempty}
    caption = "; ".join(text for name, text in captions.items() if name in shown)
    return Table("Runs", tuple(nonempty), tuple(zip(*nonempty.values(), strict=True)), caption)


def _mechanism(row: dict[str, Any]) -> str:
    """The mechanism with its scheme, where it has several."""
    return " ".join(dict.fromkeys(filter(None, (row["mechanism"], row["scheme"]))))


def _budget(row: dict[str, Any]) -> str | None:
    """What came of the budget of a finished run."""
    return None if row["budget"] is None else budget_in_words(row["budget"])


def _rounds(row: dict[str, Any]) -> str:
    planned = "" if row["planned_rounds"] is None else f"/{row['planned_rounds']}"  # some end by themselves
    return f"{row['rounds']}{planned}" + ("" if row["finished"] else " (open)")


def _loss(value: float | None) -> str | None:
    """Four decimals, unless the loss is huge."""
    if value is None:
        return None
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"
