"""A round of averaging on samples at hand, as a mechanism goes through it, and the jobs of the engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from bonafed.learning.engine.jobs import Job
from bonafed.learning.federation import Roster
from bonafed.learning.local import EngineFederation
from bonafed.learning.noise import Secret
from bonafed.learning.rounds import failures, require_all, training_tasks
from bonafed.learning.server import Server, plain_change, stepped


def make_jobs(parts, clients, noise=None):
    """One per participation; clients that are drawn again get numbered copies."""
    seen, jobs = Counter(), []
    for client in np.asarray(clients).tolist():
        jobs.append(
            Job(client, parts[client], seen[client], 0.0 if noise is None else float(noise[client]))
        )
        seen[client] += 1
    return jobs


def simulated(program, samples, parts, noise=None, cores=1):
    """A federation of clients called 0, 1, ..."""
    names, sizes = tuple(map(str, range(len(parts)))), np.array([part.size for part in parts])
    return EngineFederation(
        Roster(names, sizes), program, samples, parts, noise or Secret.fresh(), cores=cores
    )


@dataclass
class RoundResult:
    """What a round did."""

    weights: torch.Tensor  # (P,) the model after it
    loss: float
    steps: int
    skipped: tuple[int, ...]
    releases: tuple
    failures: dict


def run_round(
    program, weights, samples, parts, who, spec, *, seed, round_number, noise_multipliers=None, noise=None,
    on_bad_update="raise",
):  # fmt: skip
    """One round from one shared model; clients that fail are an error, left out, or ("zero") no change."""
    with simulated(program, samples, parts, noise) as federation:
        before = weights.numpy()
        tasks = training_tasks(
            federation.members.names, before, who, spec, round_number=round_number, seed=seed,
            noise_multipliers=noise_multipliers,
        )  # fmt: skip
        total = federation.total(tasks, who.weights)
        if on_bad_update == "raise":
            require_all(tasks, total, round_number)
        change, server = plain_change(who, total, fill_in=on_bad_update != "zero"), Server()
        after, _ = stepped(before, change, server, server.begin(len(parts), before.size), round_number)
    return RoundResult(
        torch.from_numpy(after), total.loss, total.steps, tuple(failures(who, total.delivered)),
        total.releases, dict(total.failures),
    )  # fmt: skip
