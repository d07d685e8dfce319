"""A small federation whose rewards train in a moment."""

from dataclasses import dataclass
from functools import partial

import pytest
from tests.federations import configured

from bonafed.runs.prepare import prepare

TABLES = {
    "data": {"name": "small"},
    "partition": {"kind": "quantity_dirichlet", "clients": 4, "beta": 0.5, "minimum": 5},
    "model": {"name": "softmax"},
    "training": {"rounds": 6, "learning_rate": 0.3, "batch_size": 8, "learning_rate_decay": 0.9},
    "rewards": {"sharing": 0.3, "recovery": 0.2},
    "run": {"cores": 1, "seed": 3, "checkpoint_every": 2, "evaluate_every": 3},
}


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
    return partial(configured, TABLES)


@pytest.fixture
def ready(small):
    """ready("training.rounds=2", ...): prepared, perhaps with another module or data set."""

    def made(*changes, dataset=small, **options):
        return Prepared(prepare(configured(TABLES, *changes), dataset=dataset, **options))

    return made
