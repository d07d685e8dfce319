"""Every kind of run there is, as small as it gets: what `bonafed train` is given, and what it leaves.

A new kind is one entry of `KINDS`. Runs are repeatable to the bit: secrets are fixed (`repeatable`), and
time stands still, so that whole folders can be compared, every file byte for byte.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tomli_w

from tests.campaign.cases import Ended, command, in_child
from tests.campaign.system import Decide, Operation, Recorder, Shim, recorded

ROOT = Path(__file__).parents[2]
RUN = "run"  # the folder of the run, inside that of the case
CLIENTS = 4
SETTLED = ("ada", "ben", "eve", "joe")
_LEARNING = {
    "data": {"name": "data.csv", "classes": 3},
    "partition": {"kind": "iid", "clients": CLIENTS},
    "model": {"name": "softmax"},
}
_TRAINING = {"rounds": 3, "learning_rate": 0.5, "batch_size": 4}
_RUN = {"seed": 3, "cores": 1}
_CONTRACT = {"prior": "uniform:0.5,1.5", "total_budget": 9}
_JSAM = {
    "prior": "uniform:0,1", "eta": 5, "max_epsilon": 3, "noise_scale": 1, "clip": 1, "clients_per_round": 3,
}  # fmt: skip
_PRIVACY = {"clip": 1, "epsilon": 3, "delta": 1e-5}
_ON_SUM = {"batch_size": 16, "steps": 1}  # noise on the sum is that of one step per round
_FAITHFUL = {"regulariser": 0.1, "epsilon": 1e-3}  # by exchanges
_STEPWISE = {
    "regulariser": 0.5,
    "epsilon": 0.5,
    "variant": "stepwise",
    "training_steps": 6,
    "payment_steps": 2,
}
_REWARDS = {"sharing": 0.3, "recovery": 0.2}


@dataclass(frozen=True)
class Kind:
    """A kind of run."""

    name: str
    tables: dict[str, Any]  # on top of the data, the partition and the model
    quote: tuple[str, ...] = ()  # the contract that is published first, if there is one
    commits: bool = False  # with the secret of its coins
    training: dict[str, Any] = field(default_factory=dict)  # changes
    run: dict[str, Any] = field(default_factory=dict)  # changes
    plain: bool = True  # has a table [training]

    def config(self) -> dict[str, Any]:
        """The tables of the config file."""
        training = {"training": {**_TRAINING, **self.training}} if self.plain else {}
        return {**_LEARNING, **training, **self.tables, "run": {**_RUN, **self.run}}

    def words(self) -> list[str]:
        """The command that trains it."""
        words = ["train", "config.toml", "--folder", RUN]
        if self.quote:
            words += ["--contract", "contract.json", "--reports", "reports.csv"]
        return [*words, "--secret", "coins.secret"] if self.commits else words


_QUOTE_SAMPLING = ("quote", "sampling", "--prior", "uniform:0.5,1.5", "--clients", "4", "--rounds", "3",
                   "--budget", "9")  # fmt: skip
_QUOTE_JSAM = ("quote", "jsam", "--prior", "uniform:0,1", "--eta", "5", "--noise-scale", "1", "--clip", "1",
               "--rounds", "3", "--delta", "1e-5", "--max-epsilon", "3", "--clients", "4",
               "--clients-per-round", "3")  # fmt: skip

_ALL = (
    Kind("fedavg", {}),
    Kind("fedavg-skip", {}, training={"on_bad_update": "skip", "participation": 0.5, "optimizer": "adam",
                                      "learning_rate": 0.01}, run={"checkpoint_every": 2}),
    Kind("server-momentum", {}, training={"server_optimizer": "momentum", "participation": 0.5}),
    Kind("server-adam", {}, training={"server_optimizer": "adam", "server_learning_rate": 0.1},
         run={"checkpoint_every": 2}),
    Kind("private", {"privacy": _PRIVACY}, run={"checkpoint_every": 2}),
    Kind("private-on-sum", {"privacy": {**_PRIVACY, "noise_at": "sum"}}, training=_ON_SUM),
    Kind("private-poisson", {"privacy": {**_PRIVACY, "batches": "poisson"}}),
    Kind("private-reproducible", {"privacy": {**_PRIVACY, "noise": "reproducible"}}),
    Kind("posted-price", {"posted_price": {"cap": 30, "prior": "uniform:0.5,1.5"}}),
    Kind("posted-price-coins", {"posted_price": {"cap": 30, "seats": 2, "coins": "verifiable"}}),
    Kind("sampling", {"sampling": _CONTRACT}, training={"aggregation": "memory"}),
    Kind("sampling-plain", {"sampling": _CONTRACT}, training={"aggregation": "plain"}),
    Kind("sampling-private", {"sampling": _CONTRACT, "privacy": _PRIVACY}),
    Kind("sampling-coins", {"sampling": {**_CONTRACT, "coins": "verifiable"}}),
    Kind("sampling-prior-free", {"sampling": {"scheme": "prior-free", "highest": 2, "total_budget": 9}}),
    Kind("sampling-published", {}, quote=_QUOTE_SAMPLING),
    Kind("sampling-published-coins", {}, quote=_QUOTE_SAMPLING, commits=True),
    Kind("jsam", {"jsam": _JSAM}, training={"batch_size": 6}),
    Kind("jsam-coins", {"jsam": {**_JSAM, "coins": "verifiable"}}, training={"batch_size": 6}),
    Kind("jsam-budget", {"jsam": {**{k: v for k, v in _JSAM.items() if k != "eta"}, "budget": 1,
                                  "noise": "reproducible"}}, training={"batch_size": 6}),
    Kind("jsam-published", {}, quote=_QUOTE_JSAM, training={"batch_size": 6}),
    Kind("jsam-on-sum", {"jsam": {**_JSAM, "noise_at": "sum"}}, training=_ON_SUM),
    Kind("faithful", {"faithful": _FAITHFUL}, plain=False, run={"checkpoint_every": 2}),
    Kind("faithful-left-out", {"faithful": {**_FAITHFUL, "on_bad_report": "leave out",
                                            "agents": ["1 drop-out 3"]}},
         plain=False, run={"checkpoint_every": 2}),
    Kind("faithful-stepwise", {"faithful": _STEPWISE}, plain=False, run={"checkpoint_every": 2}),
    Kind("faithful-exact", {"faithful": {**_STEPWISE, "payments": "exact"}}, plain=False,
         run={"checkpoint_every": 3}),
    Kind("faithful-clusters", {"faithful": {**_STEPWISE, "clusters": 2}}, plain=False,
         run={"checkpoint_every": 3}),
    Kind("faithful-private", {"faithful": {"regulariser": 0.1, "training_steps": 4, "payment_steps": 2},
                              "privacy": {"epsilon": 5, "delta": 1e-3}}, plain=False),
    Kind("rewards", {"rewards": {**_REWARDS, "baselines": ["fedavg-ft", "rank"]}},
         run={"checkpoint_every": 1, "evaluate_every": 2}),
    Kind("rewards-cheat", {"rewards": {**_REWARDS, "measure": "cosine", "agents": ["1 free-ride"]}},
         run={"checkpoint_every": 2}),
    Kind("price-lottery", {"price_lottery": {"price": 0.9, "budget": 9, "prior": "uniform:0.5,1.5"}}),
)  # fmt: skip
KINDS = {kind.name: kind for kind in _ALL}
WHOLLY = (
    "private",
    "sampling",
    "sampling-coins",
    "jsam",
    "faithful",
    "rewards",
)  # with every kill and fault
SHORT = ("private", "sampling-coins", "faithful")  # in `make test`


def data_csv(rows: int = 60) -> str:
    """A table with three classes that are easy to tell apart; a fifth of it for testing."""
    rng = np.random.default_rng(5)
    labels = np.arange(rows) % 3
    features = np.round(rng.standard_normal((rows, 3)), 2)
    features[np.arange(rows), labels] += 3
    lines = [
        ",".join(f"{x:.2f}" for x in features[row]) + f",{labels[row]},{int(row >= 0.8 * rows)}"
        for row in range(rows)
    ]
    return "a,b,c,label,test\n" + "\n".join(lines) + "\n"


@cache
def data_file() -> Path:
    """Where the table lies: in one place for all cases, since a run notes the whole path."""
    path = Path(tempfile.gettempdir()) / "data.csv"
    path.write_text(data_csv(), encoding="utf-8")
    return path


def lay_out(kind: Kind, place: Path) -> None:
    """Put everything into a folder that `kind.words()` needs."""
    tables = kind.config()
    tables["data"] = {**tables["data"], "name": str(data_file())}
    (place / "config.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
    if kind.quote:
        words = [*kind.quote, "--save", "contract.json"]
        words += ["--commit-coins", "coins.secret"] if kind.commits else []
        must(in_child(lambda: command(words), place, repeatable), words)
        rows = [f"{client},{cost}" for client, cost in zip(SETTLED, (0.61, 0.95, 0.72, 0.55), strict=True)]
        (place / "reports.csv").write_text("client,cost\n" + "\n".join(rows) + "\n", encoding="utf-8")


def must(ended: Ended, words: Sequence[str]) -> Ended:
    """What every campaign takes for granted: the command that was not disturbed is done."""
    if ended.code != 0:
        raise RuntimeError(f"bonafed {' '.join(words)} ended with {ended.code}: {ended.err}")
    return ended


def repeatable() -> None:
    """Let commands of this process draw one secret and one key, and no time pass in their runs."""
    import zipfile

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from bonafed.cli import coin_secret, coins
    from bonafed.runs import private, training

    def fixed(size: int) -> bytes:
        return bytes(range(size))

    for module in (private, coin_secret, coins):
        module.secrets = SimpleNamespace(token_bytes=fixed)  # type: ignore[attr-defined]
    Ed25519PrivateKey.generate = classmethod(  # type: ignore[method-assign]
        lambda cls: cls.from_private_bytes(fixed(32))
    )
    defaults = training.train.__kwdefaults__
    defaults["entropy"], defaults["clock"] = fixed, lambda: 0.0
    midnight = (1980, 1, 1, 0, 0, 0)  # archives hold the time at which they were written
    zipfile.time = SimpleNamespace(time=lambda: 0.0, localtime=lambda _now: midnight)  # type: ignore[attr-defined]


def add_price_lottery() -> None:
    """Add a mechanism from outside to the catalogue of this process."""
    from bonafed.mechanisms import catalogue

    module = "tests.oracles.price_lottery.slice"
    entry = catalogue.Entry("price-lottery", "price_lottery", module, "a price lottery", verbs="audit")
    catalogue.CATALOGUE = {**catalogue.CATALOGUE, entry.name: entry}


@dataclass(frozen=True)
class Reference:
    """A run that nobody disturbed."""

    kind: Kind
    inputs: Path  # what it was given, and nothing else
    after: dict[str, bytes]  # all files when it was done
    operations: list[Operation]  # on its files

    def begin(self, place: Path) -> None:
        """Lay out in a new folder what the run is given."""
        shutil.copytree(self.inputs, place, dirs_exist_ok=True)

    def train(self, place: Path, decide: Decide | None = None, kill_after: float | None = None) -> Ended:
        """Start the run, or continue it where it has become one, as somebody would who finds it stopped."""
        begun = (place / RUN / "config.toml").is_file()
        words = ["train", "--resume", RUN] if begun else self.kind.words()

        def before() -> None:
            repeatable()
            if decide is not None:
                Shim(place, decide).install()

        return in_child(lambda: command(words), place, before, kill_after)


@cache
def reference(name: str) -> Reference:
    """The undisturbed run of a kind; the same to the bit whoever asks."""
    kind, place = KINDS[name], Path(tempfile.mkdtemp(prefix=f"{name}-"))
    inputs, trained, trace = place / "inputs", place / "trained", place / "trace"
    inputs.mkdir()
    lay_out(kind, inputs)
    found = Reference(kind, inputs, {}, [])
    found.begin(trained)
    must(found.train(trained, Recorder(trace)), kind.words())
    return replace(found, after=contents(trained), operations=recorded(trace))


def contents(place: Path) -> dict[str, bytes]:
    """All files of a case by their path: what was given, the run, and what lies beside it in private."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def difference(now: dict[str, bytes], then: dict[str, bytes]) -> str:
    """The first file in which two folders differ; empty if none does."""
    for name in sorted({*now, *then}):
        if name not in now:
            return f"{name} is missing"
        if name not in then:
            return f"{name} was left over"
        if now[name] != then[name]:
            return f"{name} differs"
    return ""
