"""A small federation whose rewards train in a moment."""

from dataclasses import dataclass

import numpy as np
import pytest

from bonafed.learning.data.datasets import from_arrays
from bonafed.runs import config, folder, toml
from bonafed.runs.prepare import prepare

TABLES = {
    "data": {"name": "small"},
    "partition": {"kind": "quantity_dirichlet", "clients": 4, "beta": 0.5, "minimum": 5},
    "model": {"name": "softmax"},
    "training": {"rounds": 6, "learning_rate": 0.3, "batch_size": 8, "learning_rate_decay": 0.9},
    "rewards": {"sharing": 0.3, "recovery": 0.2},
    "run": {"cores": 1, "seed": 3, "checkpoint_every": 2, "evaluate_every": 3},
}


def configured(*changes):
    """The config of the small federation with changes such as "training.rounds=2"."""
    tables = TABLES
    for change in changes:
        tables = toml.override(tables, change)
    return config.from_tables(tables)


@dataclass(frozen=True)
class Prepared:
    """A run by hand: the mechanism, advanced round by round."""

    setting: object

    @property
    def mechanism(self):
        return self.setting.mechanism

    @property
    def judges(self):
        return self.mechanism.judges

    @property
    def federation(self):
        return self.setting.clients

    @property
    def start(self):
        return self.setting.start

    def begin(self):
        """The state before the first round."""
        return self.mechanism.begin(self.setting.agreement, self.start)

    def train(self, state=None, until=None):
        """All rounds, or those until some; the state and what was said of each."""
        state, said = self.begin() if state is None else state, []
        while state.round_number < (self.mechanism.rounds if until is None else until):
            state, one = self.mechanism.advance(state, self.federation)
            said.append(one)
        return state, said

    def settle(self):
        """The statement of a whole run."""
        return self.mechanism.settle(self.train()[0], self.federation)


@pytest.fixture
def make():
    return configured


@pytest.fixture
def ready(small):
    """ready("training.rounds=2", ...): prepared, perhaps with another module or data set."""

    def made(*changes, dataset=small, **options):
        return Prepared(prepare(configured(*changes), dataset=dataset, **options))

    return made


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


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def kill_in():
    """kill_in(7): to be called after every round; ends the process, so to say, after the seventh."""

    def killer(moment):
        def after(record):
            if record.round == moment:
                raise Killed

        return after

    killer.error = Killed
    return killer


@pytest.fixture
def ending():
    """ending(folder): what a run left there, but for the time it took."""

    def left(place):
        summary = {**folder.read_json(place, folder.SUMMARY), "seconds": 0}
        summary["statement"] = {**summary["statement"], "run": ""}
        lines = [{**line, "seconds": 0} for line in folder.read_rounds(place)]
        return summary, lines, (place / folder.MODEL).read_bytes()

    return left
