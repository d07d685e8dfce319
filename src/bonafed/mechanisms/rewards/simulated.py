"""A small federation to try cheats on: handwritten digits, a linear model, one machine. Needs PyTorch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from bonafed.learning import models
from bonafed.learning.data import datasets, partition
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import flat_parameters, program_for
from bonafed.learning.federation import Roster
from bonafed.learning.local import EngineFederation
from bonafed.learning.sections import Data, Model, Partition, Training
from bonafed.mechanisms.protocol import Config
from bonafed.mechanisms.rewards.history import Models
from bonafed.mechanisms.rewards.mechanism import RewardsMechanism, mechanism
from bonafed.mechanisms.rewards.section import Rewards, RewardsRun
from bonafed.randomness import Purpose, round_generator

_DATA, _MODEL = "digits", "softmax"


class Simulation(NamedTuple):
    """A federation, and the rules under which it is rewarded."""

    mechanism: RewardsMechanism  # with judges
    federation: EngineFederation
    start: Models  # (P,)


def simulate(section: Rewards, *, clients: int, classes: int | None, rounds: int, seed: int) -> Simulation:
    """Clients with samples of so many classes each (None: of all), rewarded as the section says."""
    dataset = datasets.load(_DATA)
    options = {} if classes is None else {"k": classes}
    shares = Partition("iid" if classes is None else "label_count", clients, options)
    rng = round_generator(seed, Purpose.PARTITION)
    parts = partition.partition(shares.kind, dataset.labels, clients, rng, **options)
    samples, test = (
        Samples(torch.tensor(x), torch.tensor(y))
        for x, y in ((dataset.features, dataset.labels), (dataset.test_features, dataset.test_labels))
    )
    module = models.build(_MODEL, dataset.features.shape[1:], dataset.classes, seed, dataset.vocabulary)
    program = program_for(module, "cross-entropy", samples.features[:1])
    sizes = np.array([part.size for part in parts], dtype=np.int64)
    roster = Roster(tuple(str(i) for i in range(clients)), sizes, classes=dataset.classes)
    training = Training(rounds=rounds, learning_rate=0.5, batch_size=16, learning_rate_decay=0.977)
    run = RewardsRun(seed=seed, cores=1)
    config = Config("rewards", Data(_DATA), shares, Model(_MODEL), training, own=section, run=run)
    rules = mechanism(config, roster, program.size).with_judges(program, module, test)
    start: Models = flat_parameters(module).numpy()
    return Simulation(rules, EngineFederation(roster, program, samples, parts), start)
