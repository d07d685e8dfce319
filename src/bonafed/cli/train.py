"""`bonafed train`: a training run, from a config file to a folder that can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bonafed import checks
from bonafed.cli.choose_federation import Reach, RemoteClients, Where, reached
from bonafed.cli.coin_secret import read_hex
from bonafed.cli.options import Json
from bonafed.errors import InvalidValue, MissingValue
from bonafed.extras import importing
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.contract_files import read_contract
from bonafed.presentation import terminal
from bonafed.presentation.documents import Document, Table
from bonafed.remote.server.evidence import was_remote
from bonafed.remote.server.feasibility import before_the_run
from bonafed.reports import ReportsFile, read_reports
from bonafed.runs import config as configs
from bonafed.runs import integrity
from bonafed.runs.config import needs_secret, of_run
from bonafed.runs.folder import (
    CONFIG,
    SUMMARY,
    holds_run,
    is_finished,
    read_json,
    read_rounds,
    reading_once,
    require_unchanged,
    rounds_done,
)
from bonafed.runs.integrity import changed_versions, require_same_config
from bonafed.runs.log import require_free
from bonafed.runs.prepare import from_outside, prepare, under
from bonafed.runs.private import SIMULATION, erase_secrets, private_folder
from bonafed.runs.summary import run_document
from bonafed.text import printable

if TYPE_CHECKING:
    from bonafed.contracts.published import PublishedContract
    from bonafed.contracts.terms import Reports
    from bonafed.mechanisms.protocol import Config
    from bonafed.runs.log import RoundRecord
    from bonafed.runs.prepare import Setting

_INTERRUPTED = 130  # exit code of a program stopped by Ctrl-C

Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="A.B=C", help="Set a key of the config, or remove it (A.B=); may be repeated."
    ),
]


def train(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", hidden=True)] = None,
    contract_file: Annotated[
        Path | None,
        typer.Option("--contract", metavar="CONTRACT.json", help="Train under this published contract."),
    ] = None,
    reports_file: Annotated[
        Path | None,
        typer.Option(
            "--reports",
            metavar="FILE.csv",
            help="What each client states, as in `bonafed settle`; by default, simulated clients draw it.",
        ),
    ] = None,
    secret: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The secret of the coins that the contract commits to (--commit-coins)."
        ),
    ] = None,
    changes: Changes = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue the run in this folder.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the run (default: runs/<name of the config>)."),
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="Where clients are: here, simulated; flower, on a federation; or simulation, simulated by "
            "Flower's engine (Ray). (default: here)",
            show_default=False,
        ),
    ] = "here",
    federation: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --on flower: the folder of `bonafed federation init`."),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="On a federation: for members to connect. (default: 60)",
            show_default=False,
        ),
    ] = 60.0,
    answer_within: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="On a federation: what a client has for an answer. (default: 120)",
            show_default=False,
        ),
    ] = 120.0,
    exclude_after: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="On a federation: faults in a row after which one is not asked again. (default: 3)",
            show_default=False,
        ),
    ] = 3,
    secure_sums: Annotated[
        bool,
        typer.Option("--secure-sums", help="On a federation: the server sees sums only, no single update."),
    ] = False,
    colluders: Annotated[
        int,
        typer.Option(
            metavar="C",
            help="With --secure-sums: participants that may tell the server what they know. (default: 0)",
            show_default=False,
        ),
    ] = 0,
    write_example: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write the example config of this mechanism, and stop."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train as a config file says: clients simulated on this machine, or those of a federation.

    A mechanism of the catalogue decides who takes part and what each client is owed; its table in the
    config selects it, and `--write-example` writes a config to start from. Without one nobody is paid.

    The run folder holds the resolved config, the metrics of every round, a checkpoint, the final model
    and a summary with a statement for each client (`bonafed statement`). A run that was stopped, even
    killed, continues with --resume and ends with the same weights as if it had never been interrupted.

    With --on flower the same config runs on the participants of a federation, each with its own data;
    how [partition] splits is not looked at, and [data] names the server's own test samples ("none": it has
    none). The records beside the run folder hold what everybody signed.

    Example: bonafed train fedavg.toml --set training.rounds=50
    """
    if write_example is not None:
        _write_example(write_example, as_json)
        return
    options = {
        "--folder": folder,
        "--contract": contract_file,
        "--reports": reports_file,
        "--secret": secret,
    }
    for name, value in options.items():
        if resume is not None and value is not None:
            raise InvalidValue(name, "must not be given with --resume", value)
    if colluders and not secure_sums:
        raise InvalidValue("--colluders", "must not be given without --secure-sums", colluders)
    reach = Reach(
        checks.literal("--on", on, Where),  # type: ignore[arg-type]  # one of them
        federation, answer_within, exclude_after, wait, colluders if secure_sums else None,
    )  # fmt: skip
    if resume is not None:
        _resume(config, changes or [], resume, reach, as_json)
        return
    contract = None if contract_file is None else _read_contract(contract_file, secret)
    settings = _config(config, changes or [], None, contract, reach)
    reports = None if reports_file is None else _read_reports(settings, contract, reports_file, reach)
    coins = None if secret is None else read_hex(secret)
    new = _new_folder(settings, config, folder)
    if reach.where == "flower" and reports is not None:
        rule = "must not be given with --on flower: participants report for themselves"
        raise InvalidValue("--reports", rule, reports_file)
    _train(_Order(settings, new, reach, as_json, contract, reports, coins))


@dataclass(frozen=True, slots=True)
class _Order:
    """A run that is asked for."""

    config: Config
    folder: Path  # of the run
    reach: Reach
    as_json: bool
    contract: PublishedContract | None = None  # that was published; None: the run makes its own, if any
    reports: Reports | ReportsFile | None = None  # None: clients here or elsewhere are asked
    secret: bytes | None = None  # of the coins that the contract commits to
    resume: bool = False


def _resume(config: Path | None, changes: list[str], folder: Path, reach: Reach, as_json: bool) -> None:
    """Go on with a run, or show one that is finished."""
    with reading_once():
        settings = _config(config, changes, folder, None, reach)
        if config is None and is_finished(folder):
            _show_finished(folder, as_json)
            return
        _require_reached(reach, folder)
        _continue(settings, folder, reach, as_json)


def _write_example(name: str, as_json: bool) -> None:
    if name not in catalogue.CATALOGUE and name not in catalogue.mechanisms():
        rule = "must be one of " + ", ".join(sorted(catalogue.mechanisms()))
        raise InvalidValue("--write-example", rule, repr(name))
    path = Path(f"{name}.toml")
    content = catalogue.entry(name).example.read_bytes()
    there = path.is_file() and path.read_bytes() == content
    if path.exists() and not there:
        rule = "must not replace an existing file with other contents"
        raise InvalidValue("--write-example", rule, path)
    if not there:
        terminal.write_together({path: content})
    if as_json:
        terminal.say_json({"file": str(path), "written": not there})
    else:
        terminal.tell(f"{path} already exists, unchanged" if there else f"wrote {path}")


def _read_contract(path: Path, secret: Path | None) -> PublishedContract:
    """A published contract; one that commits to coins needs their secret, and no other does."""
    contract = read_contract(path)
    if contract.coin_commitment is not None and secret is None:
        rule = "is required: the contract commits to a secret that decides who is in a round"
        raise MissingValue("--secret", rule)
    if contract.coin_commitment is None and secret is not None:
        raise InvalidValue("--secret", "cannot be used: the contract commits to no secret", secret)
    return contract


def _config(
    path: Path | None,
    changes: list[str],
    resume: Path | None,
    contract: PublishedContract | None,
    reach: Reach,
) -> Config:
    """The config of the file, under a contract if there is one, or of the run that is resumed."""
    elsewhere = reach.where == "flower"  # participants have data of their own, under whatever name
    if resume is not None and not holds_run(resume):
        raise InvalidValue("--resume", f"must be a folder that holds a run ({CONFIG})", resume)
    if path is not None and contract is not None:
        tables = configs.read_tables(path, changes)
        return under(tables, contract, own_data=elsewhere, own_model=False)
    if path is not None:
        return configs.read(path, changes, own_data=elsewhere, own_model=False)
    if resume is None:
        raise MissingValue("CONFIG.toml", "or --resume is required")
    settings = configs.of_run(resume, changes)
    require_same_config(settings, configs.of_run(resume))
    return settings


def _new_folder(settings: Config, path: Path | None, folder: Path | None) -> Path:
    stem = path.stem if path is not None else "run"
    new = folder if folder is not None else Path(settings.run.folder or Path("runs") / stem)
    require_free(new)
    return new


def _read_reports(
    settings: Config, contract: PublishedContract | None, path: Path, reach: Reach
) -> Reports | ReportsFile:
    """The reports in the column that the contract, or the mechanism of the config, asks for."""
    if contract is not None:
        return read_reports(path, contract.question.name)
    if reach.where == "here":
        return ReportsFile(path)  # the mechanism says which column once it is made
    question = prepare(settings).mechanism.question
    if question is None:
        raise InvalidValue("--reports", "cannot be used: this mechanism asks clients for nothing", path)
    return read_reports(path, question.name)


def _require_reached(reach: Reach, folder: Path) -> None:
    if was_remote(folder) and reach.where == "here":
        rule = "is required: this run is on a federation (--on flower --federation DIR)"
        raise MissingValue("--on", rule)


def _continue(settings: Config, folder: Path, reach: Reach, as_json: bool) -> None:
    """Continue a run under the contract and the reports that it began with."""
    contract, reports = from_outside(folder)
    _train(_Order(settings, folder, reach, as_json, contract, reports, resume=True))


def _train(order: _Order) -> None:
    """Reach the clients, train, and show what came of it."""
    console = terminal.new_console(stderr=True)
    run = replace(order.config.run, folder=str(order.folder))
    order = replace(order, config=replace(order.config, run=run))
    told = partial(terminal.tell, err=True)
    known = order.reports if isinstance(order.reports, Mapping) else None  # a file is for clients here
    with reached(order.reach, order.config, order.folder, known, resume=order.resume, tell=told) as clients:
        _train_with(clients, order, console)


def _train_with(clients: RemoteClients | None, order: _Order, console: Any) -> None:
    on_progress = terminal.teller(console) if console.is_terminal else None
    setting = _prepared(clients, order, on_progress)
    rounds_before = 0
    if order.resume:
        _require_same_run(setting, order.folder)
        if is_finished(order.folder):
            _show_finished(order.folder, order.as_json)
            return
        rounds_before = _resuming(order.folder)
    colluders = None if clients is None else clients.colluders
    for note in (*setting.notes, *before_the_run(setting.agreement, setting.mechanism.rounds, colluders)):
        terminal.tell(f"note: {note}", err=True)
    for warning in setting.warnings:
        terminal.tell(f"warning: {warning}", err=True)
    with importing():  # after `prepare` found nothing wrong: it takes long
        from bonafed.runs.training import train as run_training
    try:
        with _progress(setting.mechanism.rounds, rounds_before, console) as on_round:
            result = run_training(
                setting, order.folder, resume=order.resume, on_round=on_round, on_phase=on_progress,
                secret=order.secret,
            )  # fmt: skip
    except KeyboardInterrupt:
        if not holds_run(order.folder):
            raise  # it had not begun
        again = f"bonafed train --resume {order.folder}{'' if clients is None else clients.options}"
        terminal.tell(f"stopped by the user; continue with: {again}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    how = "resumed and finished" if order.resume else "finished"
    _show(order.folder, result.document(), how, order.as_json)


def _prepared(
    clients: RemoteClients | None, order: _Order, on_progress: Callable[[str], None] | None
) -> Setting:
    """The run, ready to begin; of a new one on a federation, how long it will take."""
    if clients is None:
        return prepare(
            order.config, contract=order.contract, reports=order.reports, on_progress=on_progress
        )
    reports = order.reports if order.resume else None  # a new run asks the participants
    setting = prepare(
        order.config, contract=order.contract, reports=reports, dataset=clients.test,
        federation=clients.federation,
    )  # fmt: skip
    if order.resume:
        return setting
    from bonafed.remote.server.operating import expectation

    members, secure = len(setting.agreement.members), clients.colluders is not None
    terminal.tell(expectation(setting.mechanism, clients.timed, members, secure=secure), err=True)
    if _is_guessed(setting):
        terminal.tell(
            "warning: run.seed is 0, which everybody guesses, and decides who takes part: set another one "
            "(--set run.seed=...), or publish a contract with --commit-coins",
            err=True,
        )
    return setting


def _is_guessed(setting: Setting) -> bool:
    """Whether clients know who will take part before they report."""
    contract, asked = setting.agreement.contract, setting.mechanism.question is not None
    return asked and not setting.config.run.seed and (contract is None or contract.coin_commitment is None)


def _require_same_run(setting: Setting, folder: Path) -> None:
    """Require the config and data that the run began with, also of a finished run."""
    integrity.require_same_config(setting.config, of_run(folder))
    if not (is_finished(folder) and needs_secret(setting.config)):  # which is erased by then
        noise = integrity.source_of_noise(setting.config, folder, resume=True)
        keyed = needs_secret(setting.config)
        integrity.require_same_data(integrity.published_digest(setting.digest, noise), folder, keyed=keyed)


def _resuming(folder: Path) -> int:
    """The number of completed rounds; also prints which libraries have changed since."""
    for name, (then, now) in changed_versions(folder).items():
        terminal.tell(f"note: the run began with {name} {then}, this is {now}", err=True)
    return rounds_done(folder)


def _show_finished(folder: Path, as_json: bool) -> None:
    erase_secrets(folder)  # in case the end was cut short before that
    require_unchanged(folder)
    document = run_document(read_json(folder, SUMMARY), read_rounds(folder), folder)
    _show(folder, document, "already finished; nothing to do", as_json)


def _show(folder: Path, document: Document, how: str, as_json: bool) -> None:
    first, *rest = document.blocks
    if isinstance(first, Table):
        first = replace(first, title=f"{first.title}: {how}")
    simulation = private_folder(folder) / SIMULATION
    if simulation.is_file():
        rest.append(f"note: {simulation} holds what only a simulation knows: do not share it")
    data = {"folder": str(folder), **document.data}
    terminal.show(replace(document, blocks=(first, *rest), data=data), as_json=as_json)


@contextmanager
def _progress(
    rounds: int | None, rounds_before: int, console: Any
) -> Iterator[Callable[[RoundRecord], None] | None]:
    """A bar with rounds, phase, loss, accuracy and time left on a terminal; nothing elsewhere.

    Where their number is not known, it says what is being done instead.
    """
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    known = (MofNCompleteColumn(), BarColumn()) if rounds is not None else (TextColumn("{task.completed}"),)
    left = (TimeRemainingColumn(), TextColumn("left")) if rounds is not None else ()
    columns = (TextColumn("round"), *known, TextColumn("{task.fields[state]}", markup=False), *left)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=rounds, completed=rounds_before, state="")
        parts = {"phase": "", "doing": "", "loss": "", "accuracy": ""}

        def on_round(record: RoundRecord) -> None:
            parts["phase"], parts["doing"] = printable(record.phase), printable(record.doing)
            if record.train_loss is not None:
                parts["loss"] = f"loss {record.train_loss:.4f}"
            elif record.test_loss is not None:  # a private run reports no training loss
                parts["loss"] = f"test loss {record.test_loss:.4f}"
            if record.test_accuracy is not None:
                parts["accuracy"] = f"accuracy {record.test_accuracy:.2%}"
            state = "  ".join(part for part in parts.values() if part)
            bar.update(task, completed=record.round, state=state)

        yield on_round
