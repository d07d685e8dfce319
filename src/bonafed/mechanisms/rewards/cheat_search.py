"""A search for a cheat that pays: some clients of a federation try every known cheat, one at a time.

The same clients, rules, rounds, test samples and first model as in the run: with everybody honest the
search comes to the accuracies that the run's statement shows. It finds what these clients gain on the
server's test samples if everybody else is honest.

`simulate` makes a small federation to try cheats on: handwritten digits, a linear model, one machine.
Needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from bonafed.checks import Floats
from bonafed.learning import models
from bonafed.learning.data import datasets, partition
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import flat_parameters, program_for
from bonafed.learning.federation import Federation, Roster
from bonafed.learning.local import EngineFederation
from bonafed.learning.sections import Data, Model, Partition, Training
from bonafed.mechanisms.protocol import Config
from bonafed.mechanisms.rewards.cheats import (
    Cheat,
    CheatingFederation,
    CheatOutcome,
    amplify,
    contribution_shares,
    copy_update,
    examine,
    free_ride,
    send_noise,
    stale,
)
from bonafed.mechanisms.rewards.measures import Models
from bonafed.mechanisms.rewards.mechanism import RewardsMechanism, mechanism
from bonafed.mechanisms.rewards.section import REWARDS, STANDALONE, Rewards, RewardsRun
from bonafed.mechanisms.rewards.training import RewardsState, run
from bonafed.randomness import Purpose, round_generator


def known_cheats(shares: Floats, client: int, seed: int) -> Mapping[str, Callable[[], Cheat]]:
    """Makers by name; a copy is of the other client that contributes most."""
    others = np.where(np.arange(shares.size) == client, -np.inf, shares)
    most = int(others.argmax())
    return {
        "free-ride": free_ride,
        "noise 1": lambda: send_noise(seed),
        "amplify 3": lambda: amplify(3.0),
        "amplify -1": lambda: amplify(-1.0),
        "stale": stale,
        f"copy {most}": lambda: copy_update(most),
    }


def search(
    mechanism: RewardsMechanism, federation: Federation, start: Models, *, cheaters: int = 1
) -> list[CheatOutcome]:
    """The outcome of every cheat, for `cheaters` clients spread from least to largest contribution."""
    rounds, judges = mechanism.config.local.rounds, mechanism.judges
    clients = CheatingFederation(federation, {}, "audit")  # honest, under identifiers of their own
    assert judges is not None  # checked by the callers
    alone, _ = run(mechanism.method(STANDALONE, None), clients, start, rounds=rounds)
    accuracy = judges.judge(alone).accuracy
    method = mechanism.method(REWARDS, {"accuracy": accuracy, "validation": judges.score(alone)})

    def train(world: Federation) -> RewardsState:
        state: RewardsState = run(method, world, start, rounds=rounds)[1]
        return state

    honest = train(clients)
    shares = contribution_shares(honest)
    names, outcomes = federation.members.names, []
    for client in _spread(shares, cheaters):
        outcomes += examine(
            train, clients, known_cheats(shares, client, mechanism.config.run.seed), names[client],
            accuracy=lambda models: judges.judge(models).accuracy, standalone=accuracy, honest=honest,
        )  # fmt: skip
    return outcomes


def _spread(shares: Floats, count: int) -> Sequence[int]:
    """The median contributor, or so many from the least to the largest."""
    order = np.argsort(shares, kind="stable")
    if count == 1:
        return [int(order[(order.size - 1) // 2])]
    positions = np.unique(np.linspace(0, order.size - 1, min(count, order.size)).round().astype(int))
    return [int(order[position]) for position in positions]


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
