"""One federation under every mechanism that applies: same data, clients, costs, test set and steps.

A file for a comparison is a config with a table [compare] in place of a mechanism's: what the server may
spend, what it believes about the clients' costs. Every mechanism of the catalogue makes its own table of
that, or says why it does not apply; a table of its own in the file goes before. Each is trained as any run
is, and then attacked by search: the comparison shows what the best lie that was found would gain.

A mechanism that fails does not take the others' results with it: its row says what it was doing, why it
failed and what to do, and the comparison does not hold.

What a comparison shows is made from its plain data, also long after the runs, from a file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bonafed import checks
from bonafed.economics.findings import Finding, Kind, checked, kept
from bonafed.economics.registry import prior
from bonafed.errors import BonafedError, InvalidValue, UnreadableFile
from bonafed.learning.data.datasets import Dataset
from bonafed.learning.privacy import checked_delta, delta_rule
from bonafed.learning.sections import DELTA
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.protocol import Attack, Common, Config
from bonafed.presentation.documents import Cell, Column, Document, JSONObject, Shown, Table, counted
from bonafed.runs import folder as folders
from bonafed.runs.config import COMPARE, from_tables
from bonafed.runs.data import Holdings, hold, require_model
from bonafed.runs.log import RoundRecord
from bonafed.runs.prepare import Setting, prepare
from bonafed.sections import Section, key, section_from, texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from bonafed.runs.training import RunResult

Tell = Callable[[str], None]
_ROUNDING = 1e-9  # gains up to this are none


def _names(name: str, value: object) -> tuple[str, ...]:
    if value == "all":
        return tuple(entry.name for entry in catalogue.usable(catalogue.mechanisms().values()))
    try:
        return tuple(catalogue.entry(entry).name for entry in texts(name, value, '["fedavg"]'))
    except InvalidValue as error:
        raise error.renamed(name) from error


@dataclass(frozen=True)
class Compare(Section):
    """What all mechanisms are given alike."""

    mechanisms: Sequence[str] = key(_names, "all", help='Names, or "all" that apply.')
    budget: float | None = key(checks.positive, None, help="Money for the whole run.")
    costs: Any = key(prior, None, help="What you believe about a client's cost of a round.")
    sensitivities: Any = key(prior, None, help="Likewise about its cost per unit of epsilon.")
    max_epsilon: float | None = key(checks.positive, None, help="The most privacy that a client sells.")
    clip: float | None = key(checks.positive, None, help="Largest norm of one record's gradient.")
    delta: float = key(delta_rule, 1e-5, help=DELTA)
    seed: int = key(checks.seed, 0, help="Of what simulated clients draw: their costs.")


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is no result of a mechanism that applies, or no search for lies."""

    doing: str  # "training", "looking for a profitable lie"
    reason: str
    advice: str  # what to do

    @classmethod
    def of(cls, doing: str, error: Exception, mechanism: str) -> Failed:
        """Of the error that ended it."""
        if isinstance(error, BonafedError):
            return cls(doing, str(error), "change that in the config and compare again")
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return cls(doing, reason, f'compare with mechanisms = ["{mechanism}"] to see the whole error')

    def __str__(self) -> str:
        return f"FAILED while {self.doing}: {self.reason}; {self.advice}"


@dataclass(frozen=True, slots=True, eq=False)
class Entrant:
    """One mechanism in a comparison."""

    mechanism: str
    reason: str = ""  # why it does not apply; empty: it was run
    result: RunResult | None = None
    audited: tuple[Finding, ...] = ()  # what the search for a violation of its claims found
    test_digest: str = ""  # of the test samples that judged it
    test_samples: int = 0  # how many they are
    chosen: str = ""  # batch, steps and rate of private training where the config leaves them open
    failed: Failed | None = None  # why it has no result, or was not attacked; None: all went well

    @property
    def lie(self) -> Finding | None:
        """The best lie that a search found, one that pays before any other; None: none was looked for."""
        searched = [f for f in self.audited if f.kind is Kind.LIE and math.isfinite(f.number)]
        return max(searched, key=lambda lie: (lie.holds is False, lie.number), default=None)

    @property
    def participants(self) -> tuple[str, ...]:
        """Clients that took part at all, in the order of the roster."""
        if self.result is None:
            return ()
        own = [record for record in self.result.metrics if not record["phase"]]
        names = {name for record in own for name in record["participants"]}
        return tuple(name for name in self.result.statement.clients if name in names)

    @property
    def promises(self) -> str | None:
        """How many of those the run was checked for were kept; None: nothing was promised."""
        promises = checked(self.result.findings if self.result else ())
        return f"{kept(promises)} of {len(promises)}" if promises else None

    @property
    def broken(self) -> list[str]:
        """The promises that were not kept and the claims that a search found violated, lies apart."""
        promises = checked(self.result.findings if self.result else ())
        said = [
            f"{finding.claim} {finding.verdict}, {finding.text}"
            for finding in promises
            if not finding.holds
        ]
        searched = [f for f in self.audited if f.kind is not Kind.LIE and f.holds is False]
        return [
            *said,
            *(f"audit: {finding.claim} {finding.verdict}, {finding.text}" for finding in searched),
        ]

    @property
    def gain(self) -> float | None:
        """What the best lie brings a client; 0: none more than is allowed. None: nobody looked."""
        if self.lie is None:
            return None
        return self.lie.number if self.lie.number > max(_ROUNDING, self.lie.allowed) else 0.0

    def row(self) -> dict[str, Cell]:
        """As it stands in the table."""
        if self.result is None:
            return {"mechanism": self.mechanism}
        summary = self.result.summary
        return {
            "mechanism": self.mechanism,
            "accuracy": summary["test_accuracy"],
            "loss": summary["test_loss"],
            "money": summary["spend"],
            "epsilon": summary["epsilon"],
            "participants": len(self.participants),
            "steps": summary["steps"],
            "promises": self.promises,
            "lie gains": self.gain,
            "unit": None if self.lie is None else self.lie.unit,
            "tested on": self.test_samples,
            "seconds": summary["seconds"],
        }


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Shown):
    """What each mechanism came to on one federation."""

    clients: int
    entrants: tuple[Entrant, ...]

    def __getitem__(self, mechanism: str) -> Entrant:
        for entrant in self.entrants:
            if entrant.mechanism == mechanism:
                return entrant
        raise KeyError(mechanism)

    @property
    def judged_alike(self) -> bool:
        """Whether the same test samples judge all of them."""
        return len({entrant.test_digest for entrant in self.entrants if entrant.result is not None}) == 1

    @property
    def complete(self) -> bool:
        """Whether no mechanism failed."""
        return all(entrant.failed is None for entrant in self.entrants)

    def document(self) -> Document:
        """One table, why some mechanisms are not in it, and why others failed."""
        return comparison_document(self.to_json())

    def to_json(self) -> JSONObject:
        """Plain data."""
        return {
            "clients": self.clients,
            "judged_alike": self.judged_alike,
            "mechanisms": [
                {
                    **entrant.row(),
                    "clients": list(entrant.participants),
                    "applies": not entrant.reason,
                    "reason": entrant.reason or None,
                    "failed": None if entrant.failed is None else asdict(entrant.failed),
                    "lie": None if entrant.lie is None else entrant.lie.to_json(),
                    "audited": [finding.to_json() for finding in entrant.audited],
                    "broken": entrant.broken,
                    "chosen": entrant.chosen or None,
                }
                for entrant in self.entrants
            ],
        }


def compare(
    tables: Mapping[str, Any],
    *,
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    folder: Path | None = None,
    tell: Tell | None = None,
) -> Comparison:
    """Run the federation of a config under every mechanism that applies; kept below `folder` if given."""
    say = tell or (lambda _text: None)
    asked = section_from(Compare, COMPARE, tables.get(COMPARE, {}))
    own = {entry.table for entry in catalogue.mechanisms().values() if entry.table}
    shared = {name: table for name, table in tables.items() if name not in (COMPARE, *own)}
    say("loading data")
    base = from_tables(
        {name: table for name, table in shared.items() if name != "privacy"},
        own_data=dataset is not None, own_model=module is not None,
    )  # fmt: skip
    holdings = hold(base, dataset)
    if module is None:
        require_model(base, holdings.roster())
    checked_delta("compare.delta", asked.delta, [part.size for part in holdings.parts])
    common = _common(asked, base, holdings)
    # every config is read before anybody trains: what is wrong with one is said at once
    configs = {name: _config_of(catalogue.entry(name), tables, shared, common) for name in asked.mechanisms}
    alone = sum(not isinstance(config, str) for config in configs.values()) == 1
    entrants = []
    for name, config in configs.items():
        if isinstance(config, str):
            entrants.append(Entrant(name, reason=config))
            continue
        work = _Work(catalogue.entry(name), config, None if folder is None else folder / name, say)
        entrants.append(work.entrant(holdings, module, written=work.entry.table in tables, alone=alone))
    if not any(entrant.result or entrant.failed for entrant in entrants):
        raise InvalidValue(COMPARE, "must have a mechanism that applies", entrants[0].reason)
    return Comparison(len(holdings.parts), tuple(entrants))


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """What is done for one mechanism."""

    entry: catalogue.Entry
    config: Config
    folder: Path | None  # where its run is kept
    say: Tell

    def entrant(
        self, holdings: Holdings, module: nn.Module | None, *, written: bool, alone: bool
    ) -> Entrant:
        """Its result, or why there is none. Nothing is lost where it is `alone`, and the error goes up."""
        from bonafed.runs.training import train

        name, doing = self.entry.name, "preparing"
        here = Entrant(name)
        try:
            self.say(f"training under {name}")
            try:
                setting = prepare(self.config, dataset=holdings.dataset, module=module, shared=holdings)
            except InvalidValue as error:
                if written:  # the user wrote its table
                    raise
                return replace(here, reason=str(error))
            chosen = setting.mechanism.chosen(setting.agreement)
            here = replace(here, chosen="" if chosen is None else str(chosen))
            doing = "training"
            resume = self.folder is not None and folders.holds_run(self.folder)
            told = _rounds_told(self.say, name, setting)
            result = train(setting, self.folder, resume=resume, on_round=told)
            here = replace(
                here, result=result, test_digest=setting.test_digest, test_samples=len(setting.test.labels)
            )
            doing = "looking for a profitable lie"
            return replace(here, audited=_audited(self.entry, setting, self.say))
        except Exception as error:  # whatever it is, the others' results are kept, and it is said
            if alone:
                raise
            return replace(here, failed=Failed.of(doing, error, name))


def _rounds_told(say: Tell, name: str, setting: Setting) -> Callable[[RoundRecord], None]:
    """Tells of every round that ends."""

    def on_round(record: RoundRecord) -> None:
        besides = f" ({record.phase})" if record.phase else ""
        score = "" if record.test_accuracy is None else f", accuracy {record.test_accuracy:.1%}"
        say(f"training under {name}{besides}: {setting.unit} {record.round}{score}")

    return on_round


def _common(asked: Compare, base: Config, holdings: Holdings) -> Common:
    """What all mechanisms are given alike."""
    training = base.local
    most = max(training.local_steps(part.size) for part in holdings.parts)
    return Common(
        training=training, clients=len(holdings.parts), budget=asked.budget, costs=asked.costs,
        sensitivities=asked.sensitivities,
        max_epsilon=asked.max_epsilon, clip=asked.clip, delta=asked.delta,
        data=base.data.name, model=base.model.name,
        steps=training.rounds * most, seed=asked.seed,
    )  # fmt: skip


def _audited(entry: catalogue.Entry, setting: Setting, say: Tell) -> tuple[Finding, ...]:
    """What the mechanism's own search for a violated claim finds in this federation."""
    audit = entry.load().audit
    if audit is None:
        return ()
    say(f"looking for a profitable lie under {entry.name}")
    federation = setting.federation(None)
    attack = Attack(setting.config, setting.agreement, federation, setting.mechanism, setting.start)
    with ExitStack() as stack:
        if isinstance(federation, AbstractContextManager):
            stack.enter_context(federation)
        return tuple(audit(attack))


def _config_of(
    entry: catalogue.Entry, tables: Mapping[str, Any], shared: Mapping[str, Any], common: Common
) -> Config | str:
    """The config of a mechanism in this comparison, or why it does not apply."""
    part = entry.load()
    rest = {name: table for name, table in shared.items() if name != "training" or part.training}
    if part.privacy is None or entry.table is not None:
        rest.pop("privacy", None)  # a promise of privacy is for plain averaging, or a mechanism's own
    if entry.table is not None and entry.table in tables:
        return from_tables({**rest, entry.table: tables[entry.table]})
    if part.compare is None:
        return "it says nothing about comparisons"
    table = part.compare(common)
    if isinstance(table, str):
        return table
    return from_tables({**rest, **({entry.table: table} if entry.table else {})})


FAILED = "FAILED"  # in place of the accuracy
COMPARISON = "comparison.json"  # in the folder that holds the runs

_COLUMNS = (
    Column("mechanism", left=True),
    Column("accuracy", ".2%"),
    Column("loss", ".4f"),
    Column("money", ",.2f"),
    Column("epsilon", ".4g"),
    Column("participants"),
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
        f"{counted(data['clients'], 'client')}, {tests}; epsilon: the largest given away; "
        "participants: clients that took part; promises: how many of those checked were kept; lie gains: "
        "what the best lie that a search found brings a client, in this unit (0: none pays more than its "
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
