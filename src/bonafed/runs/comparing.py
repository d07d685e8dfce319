"""One federation under every mechanism that applies: same data, clients, costs, test set and steps.

A file for a comparison is a config with a table [compare] in place of a mechanism's: what the server may
spend, what it believes about the clients' costs. Every mechanism of the catalogue makes its own table of
that, or says why it does not apply; a table of its own in the file goes before. Each is trained as any run
is, and then attacked by search: the comparison shows what the best lie that was found would gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bonafed import checks
from bonafed.economics.claims import Finding
from bonafed.economics.registry import prior
from bonafed.errors import InvalidValue
from bonafed.learning.datasets import Dataset
from bonafed.learning.privacy import checked_delta, delta_rule
from bonafed.learning.sections import DELTA
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.protocol import Attack, Common, Config
from bonafed.runs import folder as folders
from bonafed.runs.comparison import comparison_document
from bonafed.runs.config import COMPARE, from_tables
from bonafed.runs.holdings import Holdings, hold
from bonafed.runs.setting import Setting, prepare
from bonafed.runs.training import RunResult, train
from bonafed.sections import Section, key, section_from, texts
from bonafed.shown import Cell, Document, JSONObject, Shown

Tell = Callable[[str], None]
_ROUNDING = 1e-9  # gains up to this are none


def _names(name: str, value: object) -> tuple[str, ...]:
    if value == "all":
        return tuple(catalogue.CATALOGUE)
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


@dataclass(frozen=True, slots=True, eq=False)
class Entrant:
    """One mechanism in a comparison."""

    mechanism: str
    reason: str = ""  # why it does not apply; empty: it was run
    result: RunResult | None = None
    lie: Finding | None = None  # the best lie that a search found; None: none was looked for
    test_digest: str = ""  # of the test samples that judged it
    test_samples: int = 0  # how many they are

    @property
    def taken(self) -> tuple[str, ...]:
        """Clients that took part at all, in the order of the roster."""
        if self.result is None:
            return ()
        own = [record for record in self.result.metrics if not record["phase"]]
        names = {name for record in own for name in record["participants"]}
        return tuple(name for name in self.result.statement.clients if name in names)

    @property
    def promises(self) -> str | None:
        """How many of those the run was checked for were kept; None: nothing was promised."""
        checked = [f for f in (self.result.findings if self.result else ()) if f.holds is not None]
        kept = sum(finding.holds is True for finding in checked)
        return f"{kept} of {len(checked)}" if checked else None

    @property
    def broken(self) -> list[str]:
        """The promises that were not kept, and why."""
        found = self.result.findings if self.result else ()
        return [f"{finding.claim} FAILS, {finding.text}" for finding in found if finding.holds is False]

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
            "taken": len(self.taken),
            "steps": summary["steps"],
            "promises": self.promises,
            "lie gains": self.gain,
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

    def document(self) -> Document:
        """One table, and why some mechanisms are not in it."""
        return comparison_document(self.to_json())

    def to_json(self) -> JSONObject:
        """Plain data."""
        return {
            "clients": self.clients,
            "judged_alike": self.judged_alike,
            "mechanisms": [
                {
                    **entrant.row(),
                    "clients": list(entrant.taken),
                    "applies": not entrant.reason,
                    "reason": entrant.reason or None,
                    "lie": None if entrant.lie is None else entrant.lie.to_json(),
                    "broken": entrant.broken,
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
    own = {entry.table for entry in catalogue.CATALOGUE.values() if entry.table}
    shared = {name: table for name, table in tables.items() if name not in (COMPARE, *own)}
    say("loading data")
    base = from_tables({name: table for name, table in shared.items() if name != "privacy"})
    holdings = hold(base, dataset)
    checked_delta("compare.delta", asked.delta, [part.size for part in holdings.parts])
    common = _common(asked, base, holdings)
    entrants = []
    for name in asked.mechanisms:
        entry = catalogue.entry(name)
        config = _config_of(entry, tables, shared, common)
        if isinstance(config, str):
            entrants.append(Entrant(name, reason=config))
            continue
        say(f"training under {name}")
        try:
            setting = prepare(config, dataset=holdings.dataset, module=module)
        except InvalidValue as error:
            if entry.table in tables:  # the user wrote it
                raise
            entrants.append(Entrant(name, reason=str(error)))
            continue
        place = None if folder is None else folder / name
        resume = place is not None and folders.holds_run(place)
        result = train(setting, place, resume=resume, on_round=_rounds_told(say, name, setting))
        lie, tests = _best_lie(entry, setting, say), len(setting.test.labels)
        entrants.append(Entrant(name, "", result, lie, setting.test_digest, tests))
    if not any(entrant.result for entrant in entrants):
        raise InvalidValue(COMPARE, "must have a mechanism that applies", entrants[0].reason)
    return Comparison(len(holdings.parts), tuple(entrants))


def _rounds_told(say: Tell, name: str, setting: Setting) -> Callable[[folders.RoundRecord], None]:
    """Tells of every round that ends."""

    def on_round(record: folders.RoundRecord) -> None:
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
        max_epsilon=asked.max_epsilon, clip=asked.clip, delta=asked.delta, model=base.model.name,
        steps=training.rounds * most, seed=asked.seed,
    )  # fmt: skip


def _best_lie(entry: catalogue.Entry, setting: Setting, say: Tell) -> Finding | None:
    """The most profitable lie that the mechanism's own search finds in this federation."""
    audit = entry.load().audit
    if audit is None:
        return None
    say(f"looking for a profitable lie under {entry.name}")
    federation = setting.federation(None)
    attack = Attack(setting.config, setting.agreement, federation, setting.mechanism, setting.start)
    with ExitStack() as stack:
        if isinstance(federation, AbstractContextManager):
            stack.enter_context(federation)
        searched = [finding for finding in audit(attack) if math.isfinite(finding.number)]
        return max(searched, key=lambda finding: finding.number, default=None)


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
