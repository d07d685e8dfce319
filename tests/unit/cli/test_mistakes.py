"""A mistake is told before anything heavy is imported: a catalogue of them, tried in one process.

In that process importing a heavy library raises an error, so that nobody has to measure seconds.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

from bonafed import Uniform, sampling
from bonafed.mechanisms.catalogue import CATALOGUE
from bonafed.runs import log
from bonafed.runs.config import read, to_toml

PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY or name in HEAVY:
            raise AssertionError(f"imports {name}")

HEAVY, commands = json.load(sys.stdin)
sys.meta_path.insert(0, Forbidden())
from bonafed.cli import main

said = []
for words in commands:
    sys.argv, out, err, code = ["bonafed", *words], io.StringIO(), io.StringIO(), None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        except AssertionError as error:
            err.write(f"{error}")
    said.append([code, err.getvalue()])
print(json.dumps(said))
"""
# digits are read from the folder of scikit-learn, which is looked for and not imported
HEAVY = ["torch", "sklearn.base", "matplotlib", "pandas", "sympy", "scipy.stats", "flwr", "dp_accounting"]
RUN = "train", "fedavg.toml"
MONEY = "compare.budget=50", "compare.costs=uniform:0.5,1.5"
ON_SUM = "privacy.noise_at=sum", "training.epochs=1"
PRIVATE = "privacy.clip=1", "privacy.epsilon=4", "privacy.delta=1e-5"


def changed(*changes, verb=RUN):
    """A command with some keys of its config changed."""
    return [*verb, *(word for change in changes for word in ("--set", change))]


def of_every_mechanism():
    """What can be wrong with any config."""
    for name, entry in CATALOGUE.items():
        verb = "train", f"{name}.toml"
        other = "jsam" if entry.table != "jsam" else "rewards"
        yield changed("run.sed=1", verb=verb), "run.sed is unknown (did you mean seed?)"
        yield changed("run.seed=early", verb=verb), "run.seed must be a"
        yield changed("data.name=diggits", verb=verb), "data.name must be one of digits"
        yield changed("data.name=gone.csv", verb=verb), "gone.csv: "
        yield changed("partition.clients=100000", verb=verb), "partition"
        yield changed("partition.kind=even", verb=verb), "partition.kind must be"
        yield changed("model.name=softmx", verb=verb), "model.name must be one of"
        together = "data.name=diggits", "model.name=softmx", "run.seed=-1"
        yield changed(*together, verb=verb), "3 mistakes: (1) run.seed"
        yield changed(f"{other}.x=1", verb=verb), "must not be given with" if entry.table else f"{other}."
        if entry.table is not None:
            yield changed(f"{entry.table}.misspelt=1", verb=verb), f"{entry.table}.misspelt is unknown"


FEW = "--clients", "3", "--rounds", "3", "--budget", "3"

MISTAKES = [
    *of_every_mechanism(),
    (["train", "gone.toml"], "gone.toml: "),
    (["train", "no.toml"], "not TOML"),
    (["train", "flat.toml"], "data must be a section [data]"),
    (changed("training.rounds=0"), "training.rounds must be a whole number of at least 1"),
    (changed("training.steps=2", "training.epochs=2"), "training.steps must not be given with epochs"),
    (changed("model.name=text-lstm"), "model.name text-lstm must be used on text"),
    (changed("model.name=small-cnn", "data.name=synthetic"), "model.name must be softmax unless"),
    (changed("training.augmentation=crop-and-flip", "data.name=synthetic"), "training.augmentation must"),
    (changed("data.classes=3"), "data.classes must be 10 for these data"),
    (changed("privacy.epsilon=4"), "privacy.clip is required, such as clip = 1.0"),
    (changed(*PRIVATE, "privacy.delta=0.5"), "privacy.delta must"),
    (changed(*PRIVATE, "training.augmentation=crop-and-flip"), 'augmentation must be "none" if clip'),
    (changed(*PRIVATE, "privacy.clip=1e-30"), "privacy.clip must be at least"),
    (changed(*PRIVATE, "data.name=own.csv"), "data.classes is required in a private run"),
    (changed(*PRIVATE, *ON_SUM, "training.batch_size=8"), "set training.batch_size = "),
    (changed(*PRIVATE, *ON_SUM, "training.epochs=2"), "training.epochs must be 1"),
    (
        changed(*PRIVATE, *ON_SUM, verb=(*RUN, "--on", "flower", "--federation", "f")),
        'noise_at must be "client" without secure sums',
    ),
    (changed("sampling.prior=uniform:2,1", verb=("train", "sampling.toml")), "sampling.prior"),
    (changed("jsam.members=3", verb=("train", "jsam.toml")), "jsam.members"),
    (changed("training.participation=0.5", verb=("train", "jsam.toml")), "training.participation must"),
    (changed("faithful.agents=['9:zero']", verb=("train", "faithful.toml")), "faithful.agents"),
    (changed("faithful.clusters=99", verb=("train", "faithful.toml")), "faithful.clusters must be at most"),
    (changed('faithful.agents=["9:zero"]', verb=("train", "faithful.toml")), "faithful.agents must"),
    (changed("data.name=synthetic-ridge", verb=("train", "rewards.toml")), "data.name must name data with"),
    (changed("partition.clients=1", verb=("train", "rewards.toml")), "clients must be at least 2"),
    (changed("rewards.measure=luck", verb=("train", "rewards.toml")), "rewards.measure must be one of"),
    ([*RUN, "--contract", "gone.json"], "gone.json: "),
    ([*RUN, "--contract", "contract.json"], "training.rounds must be 3, as in the published contract"),
    ([*changed("sampling.total_budget=7"), "--contract", "contract.json"], "must be as in"),
    ([*changed("training.rounds=3"), "--contract", "edited.json"], "contract must verify"),
    (["train", "--resume", "gone"], "--resume must be a folder that holds a run"),
    (["train", "--resume", "begun", "--set", "training.rounds=7"], "training.rounds must be as it was"),
    (["train", "--resume", "begun", "--set", "training.rouns=7"], "training.rouns is unknown"),
    ([*RUN, "--folder", "begun"], "must hold no run yet"),
    (changed("compare.buget=5", verb=("compare", "fedavg.toml")), "compare.buget is unknown"),
    (changed('compare.mechanisms=["barter"]', verb=("compare", "fedavg.toml")), "must be one of fedavg"),
    (changed(*MONEY, "model.name=softmx", verb=("compare", "fedavg.toml")), "model.name must be one of"),
    (changed(*MONEY, "compare.delta=0.5", verb=("compare", "fedavg.toml")), "compare.delta must"),
    (changed(*MONEY, "training.rouns=5", verb=("compare", "fedavg.toml")), "training.rouns is unknown"),
    (["quote", "sampling", "--prior", "uniform:2,1", *FEW], "prior"),
    (["quote", "jsam", "--prior", "uniform:0,1", "--eta", "5"], "must be --noise-scale, or"),
    (["settle", "gone.json", "--reports", "reports.csv"], "gone.json: "),
    (["settle", "contract.json", "--reports", "none.csv"], "none.csv"),
    (["settle", "contract.json", "--reports", "text.csv"], "text.csv"),
    (["verify", "text.csv"], "text.csv"),
    (["audit", "faithful", "--delta", "3"], "delta must"),
    (["audit", "rewards", "--classes", "0"], "classes must"),
]  # fmt: skip


@pytest.fixture
def said(tmp_path_factory):
    """What each mistake leads to: exit code and message."""
    place = tmp_path_factory.mktemp("mistakes")
    for name, entry in CATALOGUE.items():
        (place / f"{name}.toml").write_bytes(entry.example.read_bytes())
    (place / "no.toml").write_text("[data\n")
    (place / "flat.toml").write_text("data = 3\n")
    (place / "own.csv").write_text("a,label\n" + "".join(f"{n},{n % 3}\n" for n in range(60)))
    (place / "text.csv").write_text("client,cost\nada,much\n")
    (place / "none.csv").write_text("client\nada\n")
    (place / "reports.csv").write_text("client,cost\nada,0.7\n")
    contract = sampling.contract(Uniform(0.5, 1.5), 6.0, clients=5, rounds=3)
    (place / "contract.json").write_bytes(contract.content)
    edited = json.loads(contract.content)
    edited["scale"] *= 1.01
    (place / "edited.json").write_text(json.dumps(edited))
    with log.RunLog(place / "begun", new=True) as run_log:
        run_log.begin(to_toml(read(place / "fedavg.toml")), {}, np.zeros(1), {})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps([HEAVY, [words for words, _ in MISTAKES]]),
        capture_output=True, text=True, cwd=place, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_mistakes_are_told_before_anything_heavy_is_imported(said):
    wrong = [
        f"{' '.join(words)}: {code} {message}"
        for (words, due), (code, message) in zip(MISTAKES, said, strict=True)
        if code != 2 or not message.startswith("error: ") or due not in message
    ]
    assert not wrong, "\n".join(wrong)


def test_training_imports_nothing_heavy_but_pytorch(tmp_path):
    """The walk of the README: what scikit-learn and parts of SciPy took was half of its processor time."""
    contract = sampling.contract(Uniform(0.5, 1.5), 50.0, clients=5, rounds=2)
    (tmp_path / "contract.json").write_bytes(contract.content)
    names = ("ada", "ben", "eve", "joe", "zoe")
    (tmp_path / "reports.csv").write_text("client,cost\n" + "".join(f"{name},0.9\n" for name in names))
    (tmp_path / "federation.toml").write_text(
        '[data]\nname = "digits"\n[partition]\nkind = "iid"\nclients = 5\n[model]\nname = "softmax"\n'
        "[training]\nrounds = 2\nbatch_size = 48\nlearning_rate = 0.1\n"
    )
    words = ["train", "federation.toml", "--contract", "contract.json", "--reports", "reports.csv"]
    parts = [f"scipy.{part}" for part in ("integrate", "optimize", "special", "linalg")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, check=True,
        input=json.dumps([[*parts, *HEAVY[1:]], [words]]),
    )  # fmt: skip
    ((code, message),) = json.loads(done.stdout)
    assert code == 0, message
