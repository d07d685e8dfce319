"""What a mechanism is to the rest of the product: one slice, the only interface that upper layers use.

    reports ─► agree ─► terms ─► begin ─► advance x rounds ─► settle ─► statement
       ▲ federation.report          ▲ federation.total / replies

A `Slice` is a mechanism as data: its table in a config, its contract files, its commands, and `make`, which
turns a config and a roster into a `Mechanism`. Runs, comparisons, audits, statements, listings, figures
and the command line know slices only through these two; `catalogue` lists them. Whoever adds a mechanism
writes a package with a slice and an entry point that names it.

A mechanism is a pure value. Its state is a frozen value that can be written as arrays, so that a run that
was killed goes on with the same bits; its randomness comes from seeds in the config, the coins of the
agreement and, on the clients' side of the seam, their secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.contracts.attendance import Lottery
from bonafed.contracts.published import Agreement, PublishedContract
from bonafed.contracts.terms import Reports
from bonafed.economics.findings import Finding
from bonafed.economics.statement import Statement
from bonafed.learning.federation import Federation, Need, Question, Roster
from bonafed.learning.privacy.ledger import Release
from bonafed.learning.sections import Data, Model, Partition, Privacy, Run, Training
from bonafed.presentation.documents import Document, JSONObject
from bonafed.sections import Section

if TYPE_CHECKING:
    from bonafed.mechanisms.left_open import Chosen

Arrays = Mapping[str, NDArray[Any]]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Config:
    """What a run was asked to do; made by `bonafed.runs.config`, or directly."""

    mechanism: str  # a name of the catalogue
    data: Data
    partition: Partition
    model: Model
    training: Training | None = None  # mechanisms that train in their own way have none
    privacy: Section | None = None
    own: Section | None = None  # the mechanism's own table
    run: Run = field(default_factory=Run)
    contract: PublishedContract | None = (
        None  # published before the run and binding for it; None: the mechanism plans one
    )
    # of [training], what a private run leaves open and its mechanism has chosen (`left_open.py`)
    chosen: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What [training] leaves open has fixed values without noise; in noise it stays open."""
        if self.training is not None and self.noise is None:
            object.__setattr__(self, "training", self.training.without_noise())

    @property
    def noise(self) -> str | None:
        """Where noise that hides records comes from, "secret" or "reproducible"; None: the run is not
        private."""
        values = (getattr(section, "noise", None) for section in (self.privacy, self.own))
        return next((str(noise) for noise in values if noise is not None), None)

    @property
    def noise_at(self) -> str | None:
        """Who adds it, "client" or "sum"; None: the run is not private, or the mechanism knows one way."""
        values = (getattr(section, "noise_at", None) for section in (self.privacy, self.own))
        return next((str(where) for where in values if where is not None), None)

    @property
    def delta(self) -> float | None:
        """Of the promise to every record; None: the run is not private."""
        values = (getattr(section, "delta", None) for section in (self.privacy, self.own))
        return next((float(delta) for delta in values if delta is not None), None)

    @property
    def stated(self) -> Training:
        """[training] of a mechanism that needs it, as it is stated."""
        assert self.training is not None  # a table such a slice does not make optional
        return self.training

    @cached_property
    def local(self) -> Training:
        """The same with what was chosen for it."""
        return replace(self.stated, **dict[str, Any](self.chosen)) if self.chosen else self.stated


class Promised(NamedTuple):
    """The largest privacy loss of a record of every client over the whole run."""

    epsilon: Floats  # (N,) 0: nothing is released
    delta: float


@dataclass(frozen=True, slots=True)
class Round:
    """What happened in a round, for the log."""

    participants: Sequence[str]  # names, repeated if drawn more than once
    # of these, who did not deliver; where privacy is promised, only who gave no answer at all
    failed: Sequence[str] = ()
    steps: int = 0  # gradient steps, all together
    learning_rate: float | None = None  # of the first local step
    train_loss: float | None = None  # None: nobody took part, or it would tell too much
    spend: float | None = None  # money that became due; None: nobody is paid
    epsilon: float | None = None  # largest of any client so far; None: not private, or not computed
    releases: Sequence[Release] = ()
    phase: str = ""  # "": the mechanism itself; else what is trained beside it, such as a baseline
    ends_phase: bool = False  # it was the last of its phase
    doing: str = ""  # how far the mechanism has come, in words, where the number of rounds does not say


class State(Protocol):
    """What passes from round to round."""

    @property
    def round_number(self) -> int:
        """Completed rounds, of all phases."""
        ...

    def arrays(self) -> Arrays:
        """Everything, so that `restore` makes the same state."""
        ...


S = TypeVar("S", bound=State)


class Mechanism(Protocol[S]):
    """What is agreed, what a round does, and what is owed in the end; `Answers` has the last ten."""

    @property
    def needs(self) -> Need:
        """Whether the server must see single answers ("replies"), or their sum is enough ("total")."""
        ...

    @property
    def config(self) -> Config:
        """The config it was made from, resolved: nothing is left open."""
        ...

    @property
    def rounds(self) -> int | None:
        """The number of rounds, over all phases; None: it ends by itself, `finished` says when."""
        ...

    @property
    def question(self) -> Question | None:
        """What clients are asked to state; None: nothing."""
        ...

    @property
    def contract(self) -> PublishedContract | None:
        """What is published before they do; None: nothing can be."""
        ...

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        """The terms of every client."""
        ...

    def lottery(self, agreement: Agreement) -> Lottery | None:
        """What verifiable coins are to decide; None: nothing, or coins follow from run.seed."""
        ...

    def begin(self, agreement: Agreement, start: NDArray[Any]) -> S:
        """Before the first round, with this model (P,)."""
        ...

    def restore(self, agreement: Agreement, arrays: Arrays) -> S:
        """The state that was written as these arrays."""
        ...

    def advance(self, state: S, federation: Federation) -> tuple[S, Round]:
        """One more round."""
        ...

    def models(self, state: S) -> NDArray[Any]:
        """(m, P) the models a test set judges now: one shared by all, or one per client."""
        ...

    def settle(self, state: S, federation: Federation) -> Statement:
        """What each client is owed or owes, and whether what was promised was kept."""
        ...

    def final(self, state: S) -> NDArray[Any]:
        """(P,) the model that a finished run keeps."""
        ...

    def finished(self, state: S) -> bool: ...

    @property
    def exchanges(self) -> int | None: ...

    def warnings(self, agreement: Agreement) -> Sequence[str]: ...

    def prepared(self, features: NDArray[Any]) -> NDArray[Any]: ...

    def with_judges(self, program: Any, module: Any, test: Any) -> Any: ...

    def test_samples(self, test: Any) -> Any: ...

    def promised(self, agreement: Agreement) -> Promised | None: ...

    def chosen(self, agreement: Agreement) -> Chosen | None: ...

    def simulation(self, state: S, federation: Federation) -> JSONObject | None: ...

    def extra_files(self, state: S) -> Mapping[str, bytes]: ...


class Answers:
    """What a mechanism answers where it has nothing to say; one that has defines its own."""

    __slots__ = ()

    def finished(self, state: Any) -> bool:
        """Whether there is no further round: by their number, where it is known beforehand."""
        done: bool = state.round_number >= self.rounds  # type: ignore[attr-defined]  # of the mechanism
        return done

    @property
    def exchanges(self) -> int | None:
        """How often every client is asked in all; None: it is not known beforehand."""
        rounds: int | None = self.rounds  # type: ignore[attr-defined]  # of the mechanism
        return rounds

    def warnings(self, agreement: Agreement) -> Sequence[str]:
        """To be heard before the first round, one sentence each."""
        return ()

    def prepared(self, features: NDArray[Any]) -> NDArray[Any]:
        """(n, ...) test features as the model needs them."""
        return features

    def with_judges(self, program: Any, module: Any, test: Any) -> Any:
        """The mechanism with the model as a program and as a module, and the server's test samples."""
        return self

    def test_samples(self, test: Any) -> Any:
        """What is left of the test samples to judge a run by: what it looks at while it trains is not."""
        return test

    def promised(self, agreement: Agreement) -> Promised | None:
        """What every client was promised about its records; None: nothing, and nothing hides them."""
        return None

    def chosen(self, agreement: Agreement) -> Chosen | None:
        """What was chosen where [training] of a private run leaves it open; None: nothing was."""
        return None

    def simulation(self, state: Any, federation: Federation) -> JSONObject | None:
        """What only a simulation knows, such as exact losses of private records; kept apart."""
        return None

    def extra_files(self, state: Any) -> Mapping[str, bytes]:
        """Further files of a finished run by name, such as a model per client."""
        return {}


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a mechanism as data: its options, and what it says."""

    summary: str  # one line of help
    options: type[Section]
    answer: Callable[[Any], Document]  # of the options
    details: str = ""  # the rest of the help text
    example: str = ""


@dataclass(frozen=True, slots=True)
class Attack:
    """What an audit of a run looks at."""

    config: Config
    agreement: Agreement
    federation: Federation
    mechanism: Any = None  # as it ran, with judges where it needs them
    start: NDArray[Any] | None = None  # (P,) the first model
    quick: bool = True  # as part of a comparison; otherwise take as long as needed


@dataclass(frozen=True, slots=True)
class Common:
    """What a comparison keeps equal between mechanisms; a slice derives its own table from it."""

    training: Training | None
    clients: int = 0
    budget: float | None = None  # money, whole run
    costs: Any = None  # prior of the cost of taking part in a round
    sensitivities: Any = None  # prior of the cost of a unit of epsilon
    max_epsilon: float | None = None
    clip: float | None = None
    delta: float = 1e-5
    data: str = ""  # name of the data set
    model: str = ""  # its name
    steps: int | None = None  # gradient steps of a client over the whole run, at most
    seed: int = 0  # of what simulated clients draw


@dataclass(frozen=True, slots=True)
class Slice:
    """A mechanism as the rest of the product sees it."""

    name: str  # in the catalogue
    # config, members, parameters of the model and, where one was published before, contract= -> Mechanism
    make: Callable[..., Any]
    table: str | None = None  # of a config; None: a config without another mechanism's table
    section: type[Section] | None = None  # of that table
    privacy: type[Section] | None = Privacy  # of the table [privacy]; None: there is none
    training: type[Training] | None = Training  # None: the mechanism trains in its own way
    run: type[Run] = Run
    check: Callable[[Config], Config] = lambda config: config  # rules between tables
    # a table of the file with defaults that depend on the others: its name, all tables -> the table
    defaults: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] | None = None
    # what one of its rounds is, in a run of this config: not every mechanism counts rounds of training
    unit: Callable[[Config], str] = lambda config: "round"
    # what it promises: a run's statement, its audit or its contract has a finding of each of these names,
    # which the laws (`tests/laws`) look for
    claims: tuple[str, ...] = ()
    read: Callable[[JSONObject], PublishedContract] | None = (
        None  # a contract of a format that the catalogue lists
    )
    audit: Callable[[Attack], Sequence[Finding]] | None = None  # looks for a profitable lie in a run
    compare: Callable[[Common], Mapping[str, Any] | str] | None = (
        None  # own table, or why it does not apply
    )
    # what a simulated client may do instead of following the protocol: the federation as others see it
    deviate: Callable[[Config, Federation], Federation] | None = None
    quote: Command | None = None
    attack: Command | None = None  # `bonafed audit NAME`
    advice: Mapping[str, Command] = field(default_factory=dict)  # `bonafed advise QUESTION`
