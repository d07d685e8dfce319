"""Configs as TOML, in both directions; one reader for all mechanisms.

    [data]       name, folder, classes, standardise
    [partition]  kind, clients, and the options of that kind
    [model]      name
    [training]   rounds, batch_size, epochs or steps, learning_rate, ...
    [privacy]    optional
    [<table>]    of a mechanism of the catalogue; without one nobody is paid
    [run]        seed, folder, checkpoint_every, evaluate_every, cores
    [compare]    for `bonafed compare` (`bonafed.runs.compare`); a run does not look at it

The mechanism decides which tables there are, and which keys each has (`Slice`). Unknown keys, missing keys
and impossible values are refused by their dotted name, `training.rounds must be a whole number of at least
1, got 0`; whatever is wrong with a file is told at once. What depends on the data (whether the partition
exists, whether the model fits) is checked by `bonafed.runs.prepare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bonafed import checks
from bonafed.errors import InvalidValue, UnreadableFile, refuse
from bonafed.learning.architectures import MODELS
from bonafed.learning.data.datasets import is_own_file, require_known
from bonafed.learning.data.real_federations.choices import FEDERATIONS
from bonafed.learning.sections import Data, Model, Partition
from bonafed.learning.sum_noise import never_one_step
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.protocol import Config, Slice
from bonafed.runs import folder as folders
from bonafed.runs import toml
from bonafed.sections import Section, named, section_from, told_at_once, unknown

COMPARE = "compare"
# data files may move: their digest identifies them (`bonafed.runs.integrity.require_same_data`)
_HARMLESS = ("run.folder", "run.cores", "run.checkpoint_every", "data.folder")


def read(
    path: Path, changes: Sequence[str] = (), *, own_data: bool = True, own_model: bool = True
) -> Config:
    """The config of a file, with changes `section.key=value`."""
    return from_tables(read_tables(path, changes), own_data=own_data, own_model=own_model)


def read_tables(path: Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """The tables of a file as they stand, with changes `section.key=value`."""
    try:
        tables = toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise UnreadableFile(path, f"not TOML: {error}") from error
    for change in changes:
        tables = toml.override(tables, change)
    return tables


def of_run(folder: Path, changes: Sequence[str] = ()) -> Config:
    """The config of the run in a folder, with changes `section.key=value`."""
    tables = folders.read_config(folder)
    for change in changes:
        tables = toml.override(tables, change)
    return from_tables(tables)


def from_tables(tables: Mapping[str, Any], *, own_data: bool = True, own_model: bool = True) -> Config:
    """The config of plain data.

    Whoever brings data or a model may name them as it likes; other names must be known to bonafed.
    """
    if not isinstance(tables, Mapping):
        raise InvalidValue("config", "must be tables by name, such as {'data': {...}}", repr(tables)[:60])
    for name, value in tables.items():
        if not checks.shallow(value):
            raise InvalidValue(str(name), "must not be nested too deeply", "lists in lists")
    entry = catalogue.of_table(tables)
    part = entry.load()
    kinds = _tables_of(part)
    problems: list[InvalidValue] = []  # of all sections: whoever writes a file is told all of them
    unusable: set[str] = set()
    for name, value in tables.items():
        if name == COMPARE:
            continue  # one file for both: what is compared is no part of a run
        if name not in kinds:
            problems.append(_not_here(entry, kinds, name, value))
        elif not isinstance(value, Mapping):
            problems.append(InvalidValue(name, f"must be a section [{name}]", repr(value)))
            unusable.add(name)
    sections: dict[str, Section] = {}
    sound = {name: table for name, table in tables.items() if name not in unusable}
    for name, (kind, optional) in kinds.items():
        if name not in unusable and (name in tables or not optional):
            with told_at_once(problems):
                table = part.defaults(name, sound) if part.defaults else sound.get(name, {})
                if name == "partition" and _has_real_clients(tables):
                    table = {"kind": "natural", **table}
                sections["own" if name == part.table else name] = section_from(kind, name, table)
    if not own_data and isinstance(data := sections.get("data"), Data):
        with told_at_once(problems), named("data", dataset="name"):
            require_known(data.name)
    if not own_model and isinstance(model := sections.get("model"), Model):
        with told_at_once(problems):
            checks.one_of("model.name", model.name, MODELS)
    refuse(problems)
    config = checked = Config(mechanism=entry.name, **sections)  # type: ignore[arg-type]  # by name
    with told_at_once(problems):
        checked = part.check(config)
    with told_at_once(problems):
        _require_work(config, part)
    refuse(problems)
    return checked


def _require_work(config: Config, part: Slice) -> None:
    """Refuse what no client can do in a round, whatever it holds: nobody is to find out while training."""
    training = config.training
    if training is None:
        return
    problems: list[InvalidValue] = []
    tables = {"privacy": config.privacy, part.table or "": config.own}
    clips = {f"{table}.clip": section for table, section in tables.items() if hasattr(section, "clip")}
    key, section = next(iter(clips.items()), ("", None))
    rate = training.learning_rate if isinstance(training.learning_rate, float) else 1.0
    with told_at_once(problems):
        training.without_noise().local_training(  # what is left open is right whatever it is
            rate, getattr(section, "clip", None), key, getattr(section, "batches", "passes")
        )
    if config.noise_at == "sum":
        problems += never_one_step(training)
    refuse(problems)


def _has_real_clients(tables: Mapping[str, Any]) -> bool:
    """Whether the data come with clients, who are then those of the run unless the config deals anew."""
    data = tables.get("data")
    return isinstance(data, Mapping) and data.get("name") in [*FEDERATIONS]


def _tables_of(part: Slice) -> dict[str, tuple[type[Section], bool]]:
    """The tables of a config under this mechanism, in the order of a file, and whether each is optional."""
    kinds: dict[str, tuple[type[Section] | None, bool]] = {
        "data": (Data, False),
        "partition": (Partition, False),
        "model": (Model, False),
        "training": (part.training, False),
        "privacy": (part.privacy, True),
        part.table or "": (part.section, False),
        "run": (part.run, True),
    }
    return {name: (kind, optional) for name, (kind, optional) in kinds.items() if kind is not None}


def _not_here(
    entry: catalogue.Entry, kinds: Mapping[str, object], name: str, value: object
) -> InvalidValue:
    """Why a table cannot be in a config under this mechanism."""
    others = [other.table for other in catalogue.mechanisms().values() if other.table]
    if name in ("training", "privacy", *others):
        return InvalidValue(name, f"must not be given with {entry.table}", f"a section [{name}]")
    return unknown("", name, value, [*kinds, *(others if entry.table is None else ())])


def to_tables(config: Config) -> toml.Tables:
    """Plain data from which `from_tables` makes the same config."""
    part = catalogue.entry(config.mechanism).load()
    sections = {name: getattr(config, "own" if name == part.table else name) for name in _tables_of(part)}
    return {name: section.table() for name, section in sections.items() if section is not None}


def to_toml(config: Config) -> str:
    """The whole config, defaults written out, as the text of a file."""
    return toml.dumps(to_tables(config))


def differences(one: Config, other: Config) -> list[tuple[str, Any, Any]]:
    """Dotted keys in which two configs differ, with both values; keys that change no result are left out.

    So are the location of the data and the name of the user's own file: their digest tells whether the
    data are the same.
    """
    changes = []
    a, b = to_tables(one), to_tables(other)
    for section in dict.fromkeys([*a, *b]):
        first, second = a.get(section, {}), b.get(section, {})
        for entry in dict.fromkeys([*first, *second]):
            dotted, value, then = f"{section}.{entry}", first.get(entry), second.get(entry)
            if value != then and not _is_harmless(dotted, value, then):
                changes.append((dotted, value, then))
    return changes


def _is_harmless(dotted: str, value: object, then: object) -> bool:
    """Whether this change has no effect on the result, given that the data are the same."""
    moved = dotted == "data.name" and all(is_own_file(str(name)) for name in (value, then))
    if dotted == "data.standardise" and isinstance(value, Mapping) and isinstance(then, Mapping):
        moved = "mean" not in value and value.keys() == then.keys()  # a file may have moved as well
    return moved or dotted in _HARMLESS


def needs_secret(config: Config) -> bool:
    """Whether a run keeps the secret of its noise until its end."""
    return config.noise == "secret"
