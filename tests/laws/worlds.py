"""Small federations for the laws of mechanisms: on this process, in another one, with clients that fail.

Every mechanism of the catalogue is tried in a miniature of its own example config: six clients with names,
few rounds, a data set that trains in a moment. Two mechanisms from outside are among them.
"""

import multiprocessing
import sys
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np

from bonafed.learning.data.datasets import from_arrays
from bonafed.learning.federation import Failure, Total
from bonafed.learning.function_federation import FunctionFederation, answer_shape
from bonafed.learning.noise import Reproducible
from bonafed.mechanisms import catalogue
from bonafed.runs import config as configs
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train

ROOT = Path(__file__).parents[2]
OWNERS = ("ada", "ben", "cyd", "dan", "eve", "zoë")
ROUNDS = 4
PRICE_LOTTERY = catalogue.Entry(
    "price-lottery", "price_lottery", "tests.oracles.price_lottery.slice", "a price for taking part",
    verbs="audit",
)  # fmt: skip
sys.path.append(str(ROOT / "docs" / "how-to" / "auction"))  # where the package of the how-to page lies
AUCTION = import_module("bonafed_auction").ENTRY
OUTSIDE = {entry.name: entry for entry in (PRICE_LOTTERY, AUCTION)}


# what a miniature needs beside fewer rounds: nothing, for most
QUICKER = {"faithful": [("faithful", "regulariser", 0.3), ("faithful", "epsilon", 1e-6)]}
# what makes a contract state numbers that follow from each other, where its example does not
REDUNDANT = {"jsam": [("jsam", "eta", None), ("jsam", "expected_budget", 5.0)]}


@contextmanager
def registered():
    """Mechanisms from outside are in the catalogue, too: one without contract files, and one with them."""
    known = dict(catalogue.CATALOGUE)
    catalogue.CATALOGUE.update(OUTSIDE)
    try:
        yield
    finally:
        catalogue.CATALOGUE.clear()
        catalogue.CATALOGUE.update(known)


def all_names():
    """The mechanisms that the laws are for: registering one is enough."""
    return [*catalogue.CATALOGUE, *OUTSIDE]


@cache
def small():
    """150 samples of three classes, each owned by one of six; 30 for testing."""
    rng = np.random.default_rng(5)
    labels = np.arange(180) % 3
    features = 0.1 * rng.standard_normal((180, 4)).astype(np.float32)
    features[np.arange(180), labels] += 0.5
    return from_arrays(
        "small", features[:150], labels[:150], classes=3, test_features=features[150:],
        test_labels=labels[150:], groups=[OWNERS[k // 3 % 6] for k in range(150)],
    )  # fmt: skip


def example(name):
    """The tables of a mechanism's example config."""
    return tomllib.loads(catalogue.entry(name).example.read_text(encoding="utf-8"))


def miniature(name, *changes):
    """A small config of a mechanism, made of its example; `changes` are ("table", "key", value or None)."""
    tables = example(name)
    people = tables["partition"]["clients"] * tables.get("training", {}).get("rounds", ROUNDS)
    tables["data"] = {"name": "small", "classes": 3}
    tables["partition"] = {"kind": "natural"}
    tables["run"] = {"seed": 3, "cores": 1, "checkpoint_every": 2}
    for table in tables.values():
        if "rounds" in table:
            table["rounds"] = ROUNDS
        if "batch_size" in table:
            table["batch_size"] = 8
        for key in table:
            if "budget" in key or key == "cap":  # as much for each client and round as in the example
                table[key] *= len(OWNERS) * ROUNDS / people
    part = catalogue.entry(name).load()
    if part.section is not None and "noise" in {item.name for item in fields(part.section)}:
        tables[part.table]["noise"] = "reproducible"
    for table, key, value in (*QUICKER.get(name, ()), *changes):
        tables.setdefault(table, {})[key] = value
        if value is None:
            del tables[table][key]
    return configs.from_tables(tables)


def setting(name, *changes, **about):
    """A miniature that can begin."""
    return prepare(miniature(name, *changes), dataset=small(), **about)


def noise_of(config):
    """Where the noise of a run comes from, which must be reproducible here."""
    return None if config.noise is None else Reproducible(config.run.seed)


def clients_of(made):
    """The clients of a setting, who remember nothing that another run has asked them."""
    clients = made.federation(noise_of(made.config))
    return replace(clients, _digests={}) if isinstance(clients, FunctionFederation) else clients


class ElsewhereDied(RuntimeError):
    pass


@contextmanager
def elsewhere(made):
    """The clients of a setting in a process of their own, asked over a pipe: a federation."""
    here, there = multiprocessing.Pipe()
    federation = made.federation(noise_of(made.config))
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(there, here, federation))
    process.start()
    there.close()

    def ask(kind, *words):
        here.send((kind, *words))
        try:
            fine, answer = here.recv()
        except EOFError as error:
            raise ElsewhereDied from error
        if not fine:
            raise ElsewhereDied(answer)
        return answer

    def state(question):
        # what simulated clients know of themselves is drawn here: a question holds a function
        return made.clients.report(question)

    try:
        yield FunctionFederation(federation.members, lambda tasks: ask("replies", tasks), state)
    finally:
        here.close()
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()


def _serve(pipe, other_end, federation):
    """The life of the process that holds the clients."""
    other_end.close()
    while True:
        try:
            _, tasks = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, dict(federation.replies(_sharing(tasks)))))
        except Exception as error:  # told to the process that asked, which fails the test
            pipe.send((False, f"{type(error).__name__}: {error}"))


def _sharing(tasks):
    """Tasks sent with equal models share them again, so that they are answered jointly."""
    first = tasks[0].models
    same = all(np.array_equal(task.models, first) for task in tasks)
    return [task._replace(models=first) for task in tasks] if same else tasks


@dataclass(frozen=True)
class Failing:
    """A federation in which some tasks fail."""

    inner: object
    fails: object  # of a task: whether it does
    absent: bool = False  # whether no answer comes at all, rather than none that can be used

    @property
    def members(self):
        return self.inner.members

    @property
    def vouched(self):
        return ()

    def report(self, question):
        return self.inner.report(question)

    def total(self, tasks, shares, noise=0.0):
        kept = [place for place, task in enumerate(tasks) if not self.fails(task)]
        failures = {task.identifier: Failure("lost", self.absent) for task in tasks if self.fails(task)}
        if tasks and not kept:
            return Total(np.zeros(answer_shape(tasks[0])), (False,) * len(tasks), failures)
        found = self.inner.total([tasks[place] for place in kept], np.asarray(shares)[kept], noise)
        delivered = [False] * len(tasks)
        for place, fine in zip(kept, found.delivered, strict=True):
            delivered[place] = fine
        return replace(found, delivered=tuple(delivered), failures={**failures, **found.failures})

    def replies(self, tasks):
        fine = self.inner.replies([task for task in tasks if not self.fails(task)])
        lost = [task.identifier for task in tasks if self.fails(task)]
        return {**fine, **dict.fromkeys(lost, Failure("lost", self.absent))}


def policy_of(name):
    """The key that says what happens to a client that fails, and what it may say beside "raise"."""
    part = catalogue.entry(name).load()
    for table, section in (("training", part.training), (part.table, part.section)):
        for item in fields(section) if section is not None else ():
            if item.name.startswith("on_bad_"):
                return table, item.name, "skip" if item.name == "on_bad_update" else "leave out"
    raise AssertionError(f"{name} says nothing about clients that fail")


def failing(made, task):
    """The same setting with clients that fail in one task."""
    clients = Failing(clients_of(made), lambda asked: asked.identifier == task)
    return prepare(made.config, dataset=small(), federation=clients)


def some_task(made):
    """The last task of the second round of the mechanism itself, and which round that is, of all phases."""
    asked = []

    def spy(task):
        asked.append(task)
        return False

    clients = Failing(clients_of(made), spy)
    rounds = []
    spied = prepare(made.config, dataset=small(), federation=clients)

    def on_round(record):
        rounds.append((record, list(asked)))
        asked.clear()

    train(spied, on_round=on_round)
    own = [(record, tasks) for record, tasks in rounds if not record.phase and tasks]
    record, tasks = own[1]
    return tasks[-1], record.round
