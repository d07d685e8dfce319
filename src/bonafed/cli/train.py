"""`bonafed train`: a training run, from a config file to a folder that can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bonafed.cli import tables
from bonafed.cli.quote import Json
from bonafed.errors import InvalidValue
from bonafed.files import write_together

if TYPE_CHECKING:
    from bonafed.runs.config import AnyConfig
    from bonafed.runs.folder import RoundRecord

_INTERRUPTED = 130  # exit code of a program stopped by Ctrl-C


def train(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", hidden=True)] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="A.B=C",
            help="Set a key of the config, or leave it out (A.B=); may be repeated.",
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue the run in this folder.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the run; if not given, runs/<name of the config>."),
    ] = None,
    write_example: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Write an example config here and stop: faithful, fedavg, jsam, rewards, sampling.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a federation of simulated clients as a config file says.

    A file with a table [contract] or [jsam] pays for it, one with a table [faithful] computes what every
    client owes for the shared model, one with a table [rewards] gives every client a model as good as
    its contribution; both print a statement for each client.

    The run folder holds the resolved config, the metrics of every round, a checkpoint, the final model
    and a summary. A run that was stopped, even killed, continues with --resume and ends with the same
    weights as if it had not been.

    Example: bonafed train fedavg.toml --set training.rounds=50
    """
    if write_example is not None:
        _write_example(write_example)
        return
    asked = _asked(config, changes or [], resume)
    place = resume if resume is not None else _new_folder(asked, config, folder)
    if resume is not None:
        if folder is not None:
            raise InvalidValue("--folder", "must not be given with --resume", folder)
        from bonafed.runs.folder import is_finished

        if config is None and is_finished(resume):
            _show_finished(asked, resume, as_json)
            return
    _train(asked, place, resume is not None, as_json)


def _write_example(name: str) -> None:
    known = sorted(item.name for item in resources.files("bonafed.runs").joinpath("examples").iterdir())
    names = [Path(item).stem for item in known if item.endswith(".toml")]
    if name not in names:
        raise InvalidValue("--write-example", "must be one of " + ", ".join(names), repr(name))
    path = Path(f"{name}.toml")
    content = resources.files("bonafed.runs").joinpath("examples", path.name).read_bytes()
    if path.is_file() and path.read_bytes() == content:
        typer.echo(f"{path} is there already")
        return
    if path.exists():
        raise InvalidValue("--write-example", "must not replace a file that is another", path)
    write_together({path: content})
    typer.echo(f"wrote {path}")


def _asked(path: Path | None, changes: list[str], resume: Path | None) -> AnyConfig:
    """The config of the file, or of the run that is resumed."""
    from bonafed.runs import config as configs
    from bonafed.runs.folder import CONFIG, holds_run
    from bonafed.runs.versions import require_same_config

    if resume is not None and not holds_run(resume):
        raise InvalidValue("--resume", f"must be a folder that holds a run ({CONFIG})", resume)
    if path is not None:
        return configs.read(path, changes)
    if resume is None:
        raise InvalidValue("CONFIG.toml", "or --resume must be given", "nothing")
    asked = configs.read(resume / CONFIG, changes)
    require_same_config(asked, configs.read(resume / CONFIG))
    return asked


def _new_folder(asked: AnyConfig, path: Path | None, folder: Path | None) -> Path:
    from bonafed.runs.folder import require_free

    stem = path.stem if path is not None else "run"
    place = folder if folder is not None else Path(asked.run.folder or Path("runs") / stem)
    require_free(place)
    return place


def _show_finished(asked: AnyConfig, place: Path, as_json: bool) -> None:
    from bonafed.runs.folder import SUMMARY, read_json
    from bonafed.runs.private import NOISE, erase_secret

    erase_secret(place, NOISE)  # where the end was cut short before that
    _show(asked, place, read_json(place, SUMMARY), as_json, "finished before; nothing to do")


def _train(asked: AnyConfig, place: Path, resume: bool, as_json: bool) -> None:
    from dataclasses import replace

    from rich.console import Console

    _require_known_data(asked)
    from bonafed.runs.config import Config, read
    from bonafed.runs.faithful_config import FaithfulConfig
    from bonafed.runs.folder import CONFIG, is_finished, rounds_done
    from bonafed.runs.rewards_config import RewardsConfig
    from bonafed.runs.versions import (
        changed_versions,
        needs_secret,
        published_digest,
        require_same_config,
        require_same_data,
        source_of_noise,
    )

    terminal = Console(stderr=True)
    on_progress = terminal.print if terminal.is_terminal else None
    setting: Any
    run: Callable[..., dict[str, Any]]
    more: dict[str, Any] = {}
    if isinstance(asked, FaithfulConfig):
        from bonafed.runs.faithful import train_faithful
        from bonafed.runs.faithful_setting import prepare_faithful

        asked = replace(asked, run=replace(asked.run, folder=str(place)))
        setting, run = prepare_faithful(asked, on_progress=on_progress), train_faithful
        more["on_phase"] = on_progress
    elif isinstance(asked, RewardsConfig):
        from bonafed.runs.rewards import train_rewards
        from bonafed.runs.rewards_setting import prepare_rewards

        asked = replace(asked, run=replace(asked.run, folder=str(place)))
        setting, run = prepare_rewards(asked, on_progress=on_progress), train_rewards
    else:
        assert isinstance(asked, Config)
        from bonafed.runs import training
        from bonafed.runs.setting import prepare

        asked = replace(asked, run=replace(asked.run, folder=str(place)))
        setting, run = prepare(asked, on_progress=on_progress), training.train
    if resume:
        require_same_config(setting.config, read(place / CONFIG))
        finished = is_finished(place)
        if not (finished and needs_secret(setting.config)):  # which is gone when such a run has ended
            noise = source_of_noise(setting.config, place, resume=True)
            require_same_data(published_digest(setting.digest, noise), place)
        if finished:
            _show_finished(setting.config, place, as_json)
            return
        for name, (then, now) in changed_versions(place).items():
            typer.echo(f"note: the run began with {name} {then}, this is {now}", err=True)
    for warning in setting.warnings if isinstance(asked, FaithfulConfig) else ():
        typer.echo(f"warning: {warning}", err=True)
    try:
        anew = not resume or (isinstance(asked, FaithfulConfig) and asked.begins_anew)
        with _progress(setting.config.rounds, 0 if anew else rounds_done(place), terminal) as on_round:
            summary = run(setting, place, resume=resume, on_round=on_round, **more)
    except KeyboardInterrupt:
        typer.echo(f"stopped by the user; continue with: bonafed train --resume {place}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    _show(asked, place, summary, as_json, "resumed and finished" if resume else "finished")


def _require_known_data(asked: AnyConfig) -> None:
    """A misspelt name is refused before PyTorch is imported, which takes seconds."""
    from bonafed.learning import datasets
    from bonafed.runs.sections import named

    name = asked.data.name
    if name not in datasets.NAMES and not datasets.is_own_file(name):
        with named("data", dataset="name"):
            datasets.load(name)  # refuses it


@contextmanager
def _progress(rounds: int, done: int, terminal: Any) -> Iterator[Callable[[RoundRecord], None] | None]:
    """A bar with rounds, loss, accuracy and time left on a terminal; nothing elsewhere."""
    if not terminal.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=terminal) as bar:
        task = bar.add_task("", total=rounds, completed=done, state="")
        parts = {"method": "", "loss": "", "accuracy": ""}

        def on_round(record: RoundRecord) -> None:
            parts["method"] = getattr(record, "method", "")
            if record.train_loss is not None:
                parts["loss"] = f"loss {record.train_loss:.4f}"
            elif record.test_loss is not None:  # a private run tells no training loss
                parts["loss"] = f"test loss {record.test_loss:.4f}"
            if record.test_accuracy is not None:
                parts["accuracy"] = f"accuracy {record.test_accuracy:.2%}"
            state = "  ".join(part for part in parts.values() if part)
            bar.update(task, completed=record.round, state=state)

        yield on_round


def _show(asked: AnyConfig, place: Path, summary: dict[str, Any], as_json: bool, how: str) -> None:
    from bonafed.cli.train_faithful import show_faithful
    from bonafed.cli.train_rewards import show_rewards
    from bonafed.runs.faithful_config import FaithfulConfig
    from bonafed.runs.rewards_config import RewardsConfig

    if as_json:
        tables.say_json({"folder": str(place), **summary})
    elif isinstance(asked, FaithfulConfig):
        show_faithful(place, summary, how)
    elif isinstance(asked, RewardsConfig):
        show_rewards(place, summary, how)
    else:
        _show_training(place, summary, how)


def _show_training(place: Path, summary: dict[str, Any], how: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    title = f"Run {escape(place.name)}: {how}"
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in _rows(summary):
        table.add_row(name, escape(value))
    console.print(table)
    for note in summary.get("notes", ()):
        console.print(f"note: {note}", soft_wrap=True, markup=False)
    console.print(f"in {place}", soft_wrap=True, markup=False)


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("data", Path(summary["data"]).name),
        ("model", f"{summary['model']}, {summary['parameters']:,} parameters"),
        ("clients", f"{summary['clients']:,}, {summary['mean_participants']:,.4g} per round"),
        ("rounds", f"{summary['rounds']:,}, {summary['steps']:,} local steps"),
    ]
    if summary["test_accuracy"] is not None:
        best = summary["best_test_accuracy"]
        rows.append(("test accuracy", f"{summary['test_accuracy']:.2%} (best {best:.2%})"))
    for key in ("test_loss", "train_loss"):
        if summary[key] is not None:
            rows.append((key.replace("_", " "), tables.loss(summary[key])))
    if "epsilon_sold" in summary:
        rows += _privacy_rows(summary)
    elif summary["spend"] is not None:
        rows.append(("contract", summary["scheme"]))
        rows.append(("spend", f"{summary['spend']:,.2f} of {summary['total_budget']:,.10g}"))
        rows.append(("expected for these costs", f"{summary['expected_spend']:,.2f}"))
    if summary["epsilon"] is not None:
        promise = f"{summary['epsilon']:.4g} at delta {summary['delta']:g}"
        kind = f", to {summary['adjacency']} record" if "adjacency" in summary else ""
        rows.append(("largest epsilon of a client", promise + kind))
    if summary["skipped_updates"]:
        clients = ", ".join(map(str, summary["skipped_clients"][:8]))
        more = ", ..." if len(summary["skipped_clients"]) > 8 else ""
        rows.append(("updates left out", f"{summary['skipped_updates']:,}, of clients {clients}{more}"))
    rows.append(("seconds", f"{summary['seconds']:,.2f}"))
    return rows


def _privacy_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """What was bought, from how many, for what, and whether more was taken than bought."""
    spend = f"{summary['spend']:,.4g}"
    if summary["budget"] is not None:
        spend += f" of {summary['budget']:,.10g}"
    rows = [
        ("scheme", summary["scheme"]),
        ("clients selected", f"{summary['clients_selected']:,} of {summary['clients']:,}"),
        ("money paid, before round 1", spend),
        ("expected money", f"{summary['expected_spend']:,.4g}"),
    ]
    if summary["expected_budget"] is not None:
        rows.append(("budget on average", f"{summary['expected_budget']:,.10g}"))
    ratio = summary["largest_epsilon_ratio"]
    rows.append(("epsilon given away / sold", f"at most {ratio:.6f}"))
    return rows
