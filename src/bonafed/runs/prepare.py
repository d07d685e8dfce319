"""From a config to everything a run needs: clients, model, mechanism, agreement. Writes nothing.

Whatever is wrong with a run shows up here, before its folder is created: missing data, an impossible
partition, a model that does not fit the data, a contract that does not verify, reports of strangers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from bonafed import checks
from bonafed.contracts.coins import Coins
from bonafed.contracts.published import Agreement, PublishedContract
from bonafed.contracts.terms import Reports
from bonafed.economics.findings import all_hold
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue
from bonafed.extras import importing
from bonafed.learning.data.datasets import Dataset
from bonafed.learning.federation import Federation, Roster, require_offered
from bonafed.learning.privacy import checked_delta
from bonafed.learning.sum_noise import require_one_step
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.contract_files import read_contract
from bonafed.mechanisms.protocol import Config, Mechanism, Slice
from bonafed.reports import ReportsFile
from bonafed.runs import folder as folders
from bonafed.runs.config import from_tables, to_tables
from bonafed.runs.data import (
    Holdings,
    Outside,
    build_module,
    build_program,
    digest_of_test,
    hold,
    in_another_run,
    outside,
    require_model,
)
from bonafed.sections import plain_values

if TYPE_CHECKING:  # a mistake in a config or its data is reported before PyTorch is imported
    from torch import nn

    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import Program
    from bonafed.learning.noise import Source

_RTOL = 1e-12  # of a number that a contract states otherwise: a budget per round, say

_NAMED = 3  # clients that an error names


@runtime_checkable
class Negotiating(Protocol):
    """A federation whose clients want to know what they agree to, and what they are told in the end."""

    def publish(self, mechanism: Mechanism[Any]) -> None:
        """What clients will report under."""
        ...

    def conclude(self, agreement: Agreement) -> None:
        """What was agreed on: nobody works before it has accepted that."""
        ...

    def toss(self, agreement: Agreement, secret: bytes) -> Coins:
        """Verifiable coins, from the secret that the contract commits to and what clients revealed."""
        ...

    def account(self, statement: Statement, agreement: Agreement) -> Statement:
        """The statement with what clients say to it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """A run that is ready to begin, as returned by `prepare`."""

    config: Config  # fully resolved
    mechanism: Mechanism[Any]
    clients: Federation  # honest, before anybody deviates
    agreement: Agreement  # coins are tossed when the run begins
    module: nn.Module  # with its initial weights
    program: Program
    test: Samples  # at the server; perhaps none
    digest: str  # of data and partition
    test_digest: str  # of the test samples that judge the run; "": there are none
    simulated: bool = True  # the clients' reports were drawn by the simulation
    notes: Sequence[str] = ()  # what the user should know about the data, and about what was chosen

    @property
    def start(self) -> NDArray[Any]:
        """(P,) the initial weights."""
        from bonafed.learning.engine.programs import flat_parameters

        weights: NDArray[Any] = flat_parameters(self.module).numpy()
        return weights

    @property
    def unit(self) -> str:
        """What one of its rounds is."""
        return _slice(self.config).unit(self.config)

    @property
    def chosen(self) -> Mapping[str, Any]:
        """What [training] leaves open, by key: what the run trains with. Nothing if all is stated."""
        chosen = self.mechanism.chosen(self.agreement)
        return {} if chosen is None else chosen.to_json()

    @property
    def warnings(self) -> Sequence[str]:
        """What the user should know before the first round."""
        return self.mechanism.warnings(self.agreement)

    def federation(self, noise: Source | None) -> Federation:
        """The clients as the server sees them, protected by noise from this source."""
        from bonafed.learning.local import EngineFederation

        clients = self.clients
        if noise is not None and isinstance(clients, EngineFederation):
            clients = clients.with_noise(noise)
        deviate = _slice(self.config).deviate
        return clients if deviate is None else deviate(self.config, clients)


def prepare(
    config: Config,
    *,
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    contract: PublishedContract | None = None,
    reports: Reports | ReportsFile | None = None,
    federation: Federation | None = None,
    on_progress: Callable[[str], None] | None = None,
    shared: Holdings | None = None,
) -> Setting:
    """Load, split, build and agree.

    `dataset` and `module` may be the user's own. With a `contract` the run is under exactly this; without
    reports, simulated clients draw their own. A `federation` answers in place of simulated clients: then
    nothing is loaded, what is known of the clients is its roster, and of `dataset` only the test samples
    are looked at. `shared` data that another run of the same data and split holds are not prepared again.
    """
    if reports is not None and not isinstance(reports, Mapping | ReportsFile):
        raise InvalidValue("reports", "must be a mapping of numbers by client", repr(reports)[:60])
    if contract is not None:
        config = under(config, contract)
    if federation is None:
        again = None if shared is None else in_another_run(shared, config)
        holdings = again or hold(config, dataset, on_progress)
        known: Holdings | Outside = holdings
        stated = reports.names if isinstance(reports, ReportsFile) else reports or ()
        members = holdings.roster(_whom(contract, stated))
    else:
        known = outside(config, federation.members, dataset)
        members = federation.members
    config = known.config
    part = _slice(config)
    _require_room(config.contract, members)
    if config.noise_at == "sum" and config.training is not None:
        require_one_step(config.training, members.names, members.sizes)
    cautions = checked_promise(config, members)
    mechanism = None
    if module is None:  # a mistake in the mechanism's own table is reported before PyTorch is imported
        mechanism = part.make(config, members, require_model(config, members))
    with importing():
        import torch

        from bonafed.learning.engine.jobs import Samples
        from bonafed.learning.local import EngineFederation

    if module is None:
        module = build_module(config, members)
    test = known.test
    program = build_program(module, members, test)
    if mechanism is None:
        mechanism = part.make(config, members, program.size)
    if federation is not None:
        require_offered(federation, mechanism.needs, _remedy(mechanism.config))
    test = Samples(torch.from_numpy(mechanism.prepared(test.features.numpy())), test.labels)
    mechanism = mechanism.with_judges(program, module, test)
    test = mechanism.test_samples(test)
    clients = federation or EngineFederation(
        members, program, holdings.samples, holdings.parts, cores=config.run.cores_here
    )
    if isinstance(federation, Negotiating):
        federation.publish(mechanism)
    if isinstance(reports, ReportsFile):
        reports = reports.answers(None if mechanism.question is None else mechanism.question.name)
    agreement = mechanism.agree(members, _reports(mechanism, members, clients, reports))
    promised = mechanism.promised(agreement)
    if promised is not None and config.delta is None:  # of a mechanism whose tables have no such key
        cautions = checked_delta("delta", promised.delta, members.sizes.tolist())
    if isinstance(federation, Negotiating):
        federation.conclude(agreement)
    chosen = mechanism.chosen(agreement)
    told = [] if chosen is None else [str(chosen)]
    return Setting(
        mechanism.config, mechanism, clients, agreement, module, program, test, known.digest,
        digest_of_test(known.test, test),
        simulated=reports is None and federation is None, notes=(*known.notes, *cautions, *told),
    )  # fmt: skip


def checked_promise(config: Config, members: Roster) -> list[str]:
    """Refuse a config whose delta promises nothing to these clients; what else to say of it."""
    if config.delta is None:
        return []
    table = "privacy" if hasattr(config.privacy, "delta") else _slice(config).table
    return checked_delta(f"{table}.delta", config.delta, members.sizes.tolist())


def _remedy(config: Config) -> str:
    """What to change where a federation only adds up."""
    remembers = config.training is not None and config.training.aggregation == "memory"
    return '; training.aggregation = "plain" needs only total' if remembers else ""


def from_outside(folder: Path) -> tuple[PublishedContract | None, Reports | None]:
    """The contract and the reports that were passed to a run when it began; None: it made its own."""
    if not (folder / folders.AGREEMENT).is_file():
        return None, None
    agreement = folders.read_json(folder, folders.AGREEMENT)
    contract = None
    if agreement["published"]:
        folders.content(folder, folders.CONTRACT)  # refuses one that was changed
        contract = read_contract(folder / folders.CONTRACT)
    return contract, None if agreement["simulated"] else agreement["reports"]


def _slice(config: Config) -> Slice:
    return catalogue.entry(config.mechanism).load()


def under(
    config: Config | Mapping[str, Any],
    contract: PublishedContract,
    *,
    own_data: bool = True,
    own_model: bool = True,
) -> Config:
    """The config, or its tables, of a run under a published contract: what both state must agree.

    The mechanism's own table may be left out of the tables, or hold only what no contract says. What the
    contract decides not to have, the table must not have.
    """
    if isinstance(config, Config) and config.contract is contract:
        return config
    failures = [finding for finding in contract.verify() if finding.holds is False]
    if not all_hold(failures):
        raise InvalidValue("contract", "must verify before anybody trains under it", str(failures[0]))
    table = catalogue.entry(contract.mechanism).table
    assert table is not None  # whoever publishes contracts has one
    tables = to_tables(config) if isinstance(config, Config) else config
    own: Mapping[str, Any] = tables.get(table, {})
    if not isinstance(own, Mapping):
        raise InvalidValue(table, f"must be a section [{table}]", repr(own))
    terms = contract.table()
    kind = catalogue.entry(contract.mechanism).load().section
    assert kind is not None  # whoever has a table knows its keys
    due = plain_values(kind, table, terms)
    for key, value in plain_values(kind, table, own).items():
        if value is None or key not in due or _same(value, due[key]):
            continue
        rule = "must be left out, as in the published contract"
        if due[key] is not None:
            rule = f"must be as in the published contract, {terms[key]!r}"
        raise InvalidValue(f"{table}.{key}", rule, repr(own[key]))
    merged = from_tables({**tables, table: {**own, **terms}}, own_data=own_data, own_model=own_model)
    if merged.training is not None and merged.training.rounds != contract.rounds:
        rule = f"must be {contract.rounds}, as in the published contract"
        raise InvalidValue("training.rounds", rule, merged.training.rounds)
    return replace(merged, contract=contract)


def _require_room(contract: PublishedContract | None, members: Roster) -> None:
    """A contract promises its sum of money to as many clients as it states, and to no more."""
    if contract is not None and contract.clients is not None and len(members) > contract.clients:
        rule = f"must be at most {contract.clients:,}, as in the published contract"
        raise InvalidValue("partition.clients", rule, len(members))


def _same(one: Any, other: Any) -> bool:
    """Whether two values of plain data are the same, numbers to rounding."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_RTOL)
    return bool(one == other)


def _whom(contract: PublishedContract | None, stated: Collection[str]) -> Collection[str]:
    """All names that are known: those that the contract lists, or those who reported."""
    listed = () if contract is None else contract.question.names
    return listed if stated and set(stated) <= set(listed) else stated


def _reports(
    mechanism: Mechanism[Any], members: Roster, clients: Federation, reports: Reports | None
) -> Reports:
    """What every member states: as passed in, or else as the federation answers."""
    question = mechanism.question
    if question is None:
        if reports:
            rule = "must be left out: this mechanism asks clients for nothing"
            raise InvalidValue("reports", rule, len(reports))
        return {}
    values = clients.report(question) if reports is None else reports
    strangers = [name for name in values if name not in members.index]
    missing = [name for name in members.names if name not in values]
    if strangers and len(strangers) == len(values) != len(members):
        raise InvalidValue("reports", f"must be of the run's {len(members)} clients", len(values))
    if not strangers:
        question.require_enough(values, len(members))
    if strangers:
        wrong = [_which(strangers, "not among them"), _which(missing, "without a report")]
        rule = f"must be of the run's {len(members)} clients: " + ", ".join(filter(None, wrong))
        raise InvalidValue("reports", rule, len(values))
    return {
        name: checks.number(f"report of {name}", values[name]) for name in members.names if name in values
    }


def _which(names: Sequence[str], what: str) -> str:
    """That these clients are `what`, the first few by name; nothing if there are none."""
    if not names:
        return ""
    listed = ", ".join(map(repr, names[:_NAMED])) + (
        f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    )
    return f"{listed} {'is' if len(names) == 1 else 'are'} {what}"
