"""A search for a cheat that pays: some clients of a federation try every known cheat, one at a time.

The same clients, rules, rounds, test samples and first model as in the run: with everybody honest the
search comes to the accuracies that the run's statement shows. It finds what these clients gain on the
server's test samples if everybody else is honest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bonafed.checks import Floats
from bonafed.learning.federation import Federation
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
from bonafed.mechanisms.rewards.history import Models
from bonafed.mechanisms.rewards.mechanism import RewardsMechanism
from bonafed.mechanisms.rewards.section import REWARDS, STANDALONE
from bonafed.mechanisms.rewards.training import RewardsState, run


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
    for place in _spread(shares, cheaters):
        outcomes += examine(
            train, clients, known_cheats(shares, place, mechanism.config.run.seed), names[place],
            accuracy=lambda models: judges.judge(models).accuracy, standalone=accuracy, honest=honest,
        )  # fmt: skip
    return outcomes


def _spread(shares: Floats, count: int) -> Sequence[int]:
    """The median contributor, or so many from the least to the largest."""
    order = np.argsort(shares, kind="stable")
    if count == 1:
        return [int(order[(order.size - 1) // 2])]
    places = np.unique(np.linspace(0, order.size - 1, min(count, order.size)).round().astype(int))
    return [int(order[place]) for place in places]
