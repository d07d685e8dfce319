"""What mutations start from: good input for every command and every mechanism, as small as it gets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.campaign import kinds
from tests.campaign.faults import JOBS
from tests.campaign.kinds import KINDS, RUN, contents, data_csv, lay_out, reference

_COSTS = "client,cost\nada,0.61\nben,0.95\neve,1.32\njoe,0.55\n"
_S = ("--clients", "4", "--rounds", "3", "--budget", "9")
_PRIORS = (
    "uniform:0.5,1.5", "exponential:1.5,0.2,2", "normal:1,0.3,0.5,1.5", "beta:2,3,0.5,1.5",
    "mixture:0.2,2,0.5,0.6,0.2,0.5,1.4,0.3", "discrete:0.5,0.3,1,0.4,1.5,0.3", "uniform:0,1",
)  # fmt: skip
_J = ("--noise-scale", "1", "--prior", "uniform:0,1")
_PUBLISHED = ("--clip", "1", "--rounds", "3", "--delta", "1e-5", "--clients-per-round", "3")
_DEMO = """[data]
name = "data.csv"
[partition]
kind = "iid"
clients = 3
[model]
name = "softmax"
[training]
rounds = 2
batch_size = 6
learning_rate = 0.1
[compare]
mechanisms = ["fedavg", "sampling", "jsam"]
budget = 50
costs = "uniform:0.5,1.5"
sensitivities = "uniform:0,4"
max_epsilon = 5
clip = 1
[run]
cores = 1
"""


@dataclass(frozen=True)
class Input:
    """A command that works, and the files it needs."""

    name: str
    words: tuple[str, ...]
    files: dict[str, bytes]
    mutable: tuple[str, ...] = ()  # files that are mutated; besides the words
    weight: int = 1  # how often it is taken, relative to the others


@cache
def all_inputs() -> dict[str, Input]:
    """By name."""
    return {item.name: item for item in _inputs()}


def _inputs() -> Iterator[Input]:
    yield from _economics()
    yield from _contracts()
    yield from _training()
    yield from _about_runs()
    yield from _advice()


def _economics() -> Iterator[Input]:
    costs = {"costs.csv": _COSTS.encode()}
    for place, prior in enumerate(_PRIORS):
        words = ("quote", "sampling", "--prior", prior, *_S, "--save", "c.json")
        yield Input(f"quote sampling {place}", words, {}, weight=3)
        yield Input(
            f"audit sampling {place}", ("audit", "sampling", "--prior", prior, *_S, "--points", "9"), {}
        )
    for name, words, files in (
        ("past", ("--past-costs", "costs.csv", "--highest", "2"), costs),
        ("prior-free", ("--prior-free", "--highest", "2", "--reports", "costs.csv"), costs),
        ("confidence", ("--prior", "uniform:0.5,1.5", "--confidence", "0.9", "--at", "0.5,1,1.5"), {}),
    ):
        yield Input(f"quote sampling {name}", ("quote", "sampling", *words, *_S, "--save", "c.json"), files,
                    tuple(files), 4)  # fmt: skip
    yield Input("audit sampling prior-free", ("audit", "sampling", "--prior-free", "--highest", "2", *_S,
                                              "--profiles", "2", "--points", "9"), {})  # fmt: skip
    for name, words in (
        ("eta", ("--reports", "costs.csv", "--eta", "5")),
        ("budget", ("--reports", "costs.csv", "--budget", "2")),
        ("expected", ("--clients", "4", "--expected-budget", "2")),
        ("cap", ("--reports", "costs.csv", "--eta", "5", "--max-epsilon", "3")),
    ):
        prior = ("--noise-scale", "1", "--prior", "uniform:0,2")
        yield Input(f"quote jsam {name}", ("quote", "jsam", *prior, *words), costs, ("costs.csv",), 3)
    few = ("quote", "jsam", "--clients", "4", "--eta", "5")
    more = ("--max-epsilon", "3", "--save", "c.json")
    yield Input("quote jsam published", (*few, *_J, *_PUBLISHED, *more), {}, weight=6)
    parts = [
        "--delta",
        "1e-5",
        "--dimension",
        "12",
        "--rounds",
        "3",
        "--smoothness",
        "0.5",
        "--records",
        "6",
    ]
    yield Input("quote jsam parts", (*few, "--prior", "uniform:0,1", *parts), {}, weight=2)
    yield Input("audit jsam", ("audit", "jsam", *_J, "--clients", "3", "--profiles", "1", "--points", "7",
                               "--eta", "5"), {}, weight=3)  # fmt: skip
    yield Input("audit faithful", ("audit", "faithful", "--data", "data.csv", "--samples", "40", "--agents",
                                   "3", "--agent", "1", "--regulariser", "0.5", "--epsilon", "0.1"),
                {"data.csv": data_csv().encode()})  # fmt: skip
    yield Input("audit rewards", ("audit", "rewards", "--clients", "2", "--rounds", "1"), {})


def _contracts() -> Iterator[Input]:
    for kind, cost in (("sampling-published", "0.9"), ("jsam-published", "0.5")):
        given = contents(reference(kind).inputs)
        files = {"contract.json": given["contract.json"], "reports.csv": given["reports.csv"]}
        words = ("verify", "contract.json", "--cost", cost)
        yield Input(f"verify {kind}", words, files, ("contract.json",), 10)
        words = ("settle", "contract.json", "--reports", "reports.csv", "--save", "terms.csv")
        yield Input(f"settle {kind}", words, files, ("contract.json",), 4)
        yield Input(f"settle reports {kind}", words, files, ("reports.csv",), 10)
        yield Input(
            f"draw {kind}", ("settle", "contract.json", "--draw", "1"), files, ("contract.json",), 2
        )
    for name in ("sign", "nonce", "roster", "toss", "open", "keygen"):
        place = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        JOBS[name].lay_out(place)
        files = contents(place)
        mutable = tuple(file for file in files if file.endswith((".json", ".csv")))
        yield Input(f"coins {name}", JOBS[name].words, files, mutable, 4)
        if name == "open":
            words = "coins reveal contract.json --roster roster.json --client ada --nonce ada --cost 0.7"
            yield Input("coins reveal", tuple(words.split()), files, mutable, 4)


def _training() -> Iterator[Input]:
    for kind in KINDS.values():
        place = Path(tempfile.mkdtemp(prefix=f"{kind.name}-"))
        lay_out(kind, place)
        files = {
            name: content.replace(str(kinds.data_file()).encode(), b"data.csv")
            for name, content in contents(place).items()
        }
        files["data.csv"] = data_csv(30).encode()
        mutable = tuple(name for name in files if name.endswith((".toml", ".csv", ".json")))
        yield Input(
            f"train {kind.name}", tuple(kind.words()), files, ("config.toml", "config.toml", *mutable), 5
        )
    files = {"config.toml": _DEMO.encode(), "data.csv": data_csv(30).encode()}
    yield Input("compare", ("compare", "config.toml"), files, ("config.toml",), 2)


def _about_runs() -> Iterator[Input]:
    for kind in ("sampling", "faithful", "rewards"):
        files = dict(reference(kind).after)
        yield Input(f"statement {kind}", ("statement", RUN, "--client", "0", "--csv", "s.csv"), files)
        yield Input(f"runs {kind}", ("runs", RUN, "--json"), files)
    files = dict(reference("sampling-coins").after)
    yield Input(
        "verify coins", ("verify", "--coins", RUN), files, (f"{RUN}/coins.json", f"{RUN}/agreement.json"), 3
    )


def _advice() -> Iterator[Input]:
    for words in (
        "advise mechanism --money yes --costs participation",
        "advise join --counts 100,400,400 --delta 0.2 --agent 0",
        "advise federate-or-cluster --counts 200,200,200,200 --groups 0,1/2,3",
        "advise manipulation --counts 100,400,400 --delta 0.2",
        "advise clusters --agents 10 --epsilon 0.5",
        "advise privacy-tradeoff --agents 10 --samples 10000 --epsilon 10",
        "advise reward-rule --cost 0.1 --cost 0.2 --cost 0.5 --ceiling 2 --sharing 0",
        "advise reward-parameters --cost 0.1 --cost 0.3 --goal welfare",
        "reproduce faithful-fig2 --preset smoke --set dimension=100 --set agents=3",
        "reproduce jsam-fig7 --preset smoke --set clients=3 --set draws=2",
        "reproduce jsam-least-sensitive --preset smoke --set clients=3 --set draws=2 --json",
        "reproduce jsam-fig8 --help",
        "train --write-example rewards",
    ):
        yield Input(words, tuple(words.split()), {}, weight=1 if "reproduce" in words else 2)
