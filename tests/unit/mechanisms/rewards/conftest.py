"""A small federation whose rewards train in a moment, and a loop that trains it."""

import tomllib
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from bonafed.learning import models, partition
from bonafed.learning.datasets import from_arrays
from bonafed.learning.engine.federation import EngineFederation
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import flat_parameters, program_for
from bonafed.learning.federation import Roster
from bonafed.learning.sections import Data, Model, Partition, Training
from bonafed.mechanisms.protocol import Config
from bonafed.mechanisms.rewards.section import Rewards, RewardsRun
from bonafed.mechanisms.rewards.slice import SLICE
from bonafed.randomness import Purpose, round_generator
from bonafed.sections import section_from

TABLES = {
    "data": {"name": "small"},
    "partition": {"kind": "quantity_dirichlet", "clients": 4, "beta": 0.5, "minimum": 5},
    "model": {"name": "softmax"},
    "training": {"rounds": 6, "learning_rate": 0.3, "batch_size": 8, "learning_rate_decay": 0.9},
    "rewards": {"sharing": 0.3, "recovery": 0.2},
    "run": {"cores": 1, "seed": 3, "checkpoint_every": 2, "evaluate_every": 3},
}
KINDS = {
    "data": Data,
    "partition": Partition,
    "model": Model,
    "training": Training,
    "rewards": Rewards,
    "run": RewardsRun,
}


def value_of(text):
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def configured(*changes, **tables):
    """The config of the small federation with changes such as "training.rounds=2"."""
    tables = {name: dict(table) for name, table in {**TABLES, **tables}.items()}
    for change in changes:
        key, text = change.split("=", 1)
        table, name = key.split(".")
        tables[table][name] = value_of(text)
    made = {name: section_from(KINDS[name], name, table) for name, table in tables.items()}
    own = made.pop("rewards")
    return SLICE.check(Config("rewards", own=own, **made))


@dataclass
class Prepared:
    """Everything of a run."""

    mechanism: object
    federation: EngineFederation
    start: np.ndarray

    @property
    def judges(self):
        return self.mechanism.judges

    def train(self, state=None, until=None, on_round=None):
        """All rounds, or those until some; the state and what was said of each."""
        agreement = self.mechanism.agree(self.federation.members, {})
        state = self.mechanism.begin(agreement, self.start) if state is None else state
        said = []
        while state.round_number < (self.mechanism.rounds if until is None else until):
            state, one = self.mechanism.advance(state, self.federation)
            said.append(one)
            if on_round is not None:
                on_round(state)
        return state, said

    def settle(self):
        """The statement of a whole run."""
        return self.mechanism.settle(self.train()[0], self.federation)


def prepared(config, dataset, module=None):
    """The small federation under a config, ready to train."""
    kind, options = config.partition.kind, dict(config.partition.options)
    if kind == "natural":
        options["groups"] = dataset.groups
    rng = round_generator(config.run.seed, Purpose.PARTITION)
    parts = partition.partition(kind, dataset.labels, config.partition.clients, rng, **options)
    samples = Samples(torch.tensor(dataset.features), torch.tensor(dataset.labels))
    test = Samples(torch.tensor(dataset.test_features), torch.tensor(dataset.test_labels))
    if module is None:
        shape = dataset.features.shape[1:]
        module = models.build(config.model.name, shape, dataset.classes or 1, config.run.seed, 0)
    program = program_for(module, "cross-entropy" if dataset.classes else "squared", samples.features[:1])
    sizes = np.array([part.size for part in parts])
    roster = Roster(tuple(str(i) for i in range(len(parts))), sizes, classes=dataset.classes)
    federation = EngineFederation(roster, program, samples, parts, cores=config.run.cores)
    start = flat_parameters(module).numpy()
    mechanism = SLICE.make(config, roster, start.size).with_judges(program, module, test)
    return Prepared(mechanism, federation, start)


@pytest.fixture
def make():
    return configured


@pytest.fixture
def prepare(small):
    """prepare("training.rounds=2", ...)."""
    return lambda *changes, **options: prepared(configured(*changes), small, **options)


@pytest.fixture(scope="session")
def small():
    """120 samples of three classes, 30 for testing."""
    rng = np.random.default_rng(5)
    labels = np.arange(150) % 3
    features = rng.standard_normal((150, 6)).astype(np.float32)
    features[np.arange(150), labels] += 3
    return from_arrays(
        "small", features[:120], labels[:120], classes=3,
        test_features=features[120:], test_labels=labels[120:],
    )  # fmt: skip
