"""How `bonafed train` reaches clients: simulated here, or those of a federation over Flower."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bonafed import checks
from bonafed.errors import InvalidValue, MissingValue
from bonafed.flower.folder import Folder
from bonafed.flower.link import FlowerTransport
from bonafed.flower.simulation import SimulatedTransport, make_trial
from bonafed.remote.server.feasibility import require_honest, require_ways

if TYPE_CHECKING:
    from bonafed.contracts.terms import Reports
    from bonafed.flower.link import RelayedTransport
    from bonafed.learning.data.datasets import Dataset
    from bonafed.mechanisms.protocol import Config
    from bonafed.remote.server.federation import RemoteFederation
    from bonafed.remote.server.operating import Timed

Where = Literal["here", "flower", "simulation"]
Tell = Callable[[str], None]
_MEMBERS = "-members"  # of the folder of simulated members


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the clients are, as the options say."""

    where: Where = "here"
    folder: Path | None = None  # of the federation
    answer_within: float = 120.0  # seconds
    exclude_after: int = 3  # faults in a row
    wait: float = 60.0  # seconds for members to connect
    colluders: int | None = None  # that secure sums allow for; None: the server sees single answers

    def __post_init__(self) -> None:
        if self.where == "flower" and self.folder is None:
            raise MissingValue("--federation", "is required with --on flower")
        if self.where != "flower" and self.folder is not None:
            raise InvalidValue("--federation", "must not be given without --on flower", self.folder)
        checks.positive("--answer-within", self.answer_within)
        checks.whole("--exclude-after", self.exclude_after)
        checks.non_negative("--wait", self.wait)
        if self.colluders is not None:
            checks.whole("--colluders", self.colluders, at_least=0)
            if self.where == "here":
                rule = "must not be given without --on: simulated clients have nobody to hide from"
                raise InvalidValue("--secure-sums", rule, "given")


@dataclass(frozen=True, slots=True)
class RemoteClients:
    """Clients that answer messages, and what the server has of its own."""

    federation: RemoteFederation
    timed: Timed
    test: Dataset | None
    colluders: int | None = None  # that secure sums allow for; None: the server sees single answers
    options: str = ""  # of the command line that reach them


@contextmanager
def reached(
    reach: Reach, config: Config, run_folder: Path, reports: Reports | None, *, resume: bool, tell: Tell
) -> Iterator[RemoteClients | None]:
    """The clients of a run, and the end of all that was started to reach them; None: simulated here."""
    if reach.where == "here":
        yield None
        return

    require_ways(config, reach.colluders)
    from bonafed.remote.server import operating
    from bonafed.remote.server.operating import operator_of

    test = operating.public_test_set(config, tell)
    with ExitStack() as stack:
        folder = reach.folder or _trial(config, run_folder, reports, resume)
        transport = stack.enter_context(_transport(reach, folder, tell))
        membership, timed = transport.membership, operating.Timed(transport)
        if reach.colluders is not None:
            require_honest(config, len(membership.members), reach.colluders)
        operator = operator_of(
            membership, Folder(folder).operator_key, timed, answer_within=reach.answer_within,
            exclude_after=reach.exclude_after, colluders=reach.colluders, tell=tell,
        )  # fmt: skip
        operating.wait_for(transport, membership, reach.wait, tell)
        if resume:
            federation = operating.go_on(operator, run_folder, membership.key_digests)
        else:
            federation = operating.begin(operator, config, run_folder, membership.key_digests)
        where = "" if reach.folder is None else f" --federation {reach.folder}"
        options = f" --on {reach.where}{where}"
        yield RemoteClients(federation, timed, test, reach.colluders, options)


def _transport(reach: Reach, folder: Path, tell: Tell) -> RelayedTransport:
    if reach.where == "simulation":
        return SimulatedTransport(folder, tell=tell)

    return FlowerTransport(folder, tell=tell)


def _trial(config: Config, run_folder: Path, reports: Reports | None, resume: bool) -> Path:
    """The members of a simulation, beside the folder of the run: their ledgers outlive a kill."""
    folder = run_folder.with_name(run_folder.name + _MEMBERS)
    if not resume:
        folder.parent.mkdir(parents=True, exist_ok=True)
        make_trial(folder, config, reports)
    return folder
