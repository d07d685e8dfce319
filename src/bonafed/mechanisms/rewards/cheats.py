"""Free riders and cheats: clients that upload something else than what they learned.

A cheat is a function of (client, models (N, P), honest updates (N, P), round) that gives the upload (P,)
of that client. Most see their own row only; a copy sees another's. `cheating` puts cheats between a local
training and whatever method asks for uploads, so they act on model rewards and on every baseline alike.
The strategic agents of the faithful mechanism fit through `as_cheat`.

    free_ride        zeros: no work at all
    send_noise       random numbers as long as an honest update: no work, but it looks like some
    amplify(f)       f times the honest update
    copy_update(j)   what client j uploads in the same round
    stale            the first honest update, for ever

`examine` runs a federation honestly and once with each cheat, and says what the cheat receives and whether
the contribution measure sees it. Its accuracy is that of the model it is handed; what it trains at home is
its own affair. Contributions fixed before training see nothing, whatever is uploaded: the reward then only
falls by what the missing update would have taught the federation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.mechanisms.faithful import agents
from bonafed.mechanisms.faithful.agents import Agent
from bonafed.mechanisms.rewards.history import Models
from bonafed.mechanisms.rewards.server import Bools
from bonafed.mechanisms.rewards.training import Local, RewardsState

Cheat = Callable[[int, Models, Models, int], Models]
# (client, models (N, P), honest updates (N, P), round number) -> (P,) what the client uploads
_NOISE = 41  # keeps this generator apart from others


def as_cheat(agent: Agent) -> Cheat:
    """An agent of the faithful mechanism, which maps (models, gradients) row by row, as a cheat.

    An agent that keeps a memory (`stale`) begins anew when a stopped run goes on.
    """

    def upload(client: int, models: Models, updates: Models, round_number: int) -> Models:
        row = slice(client, client + 1)
        report = agent(np.array(models[row], dtype=np.float64), np.array(updates[row], dtype=np.float64))
        if report is None:
            name = f"upload of client {client} in round {round_number}"
            raise InvalidValue(name, "must be given: absences are said by participation", None)
        sent: Models = np.asarray(report)[0]
        return sent

    return upload


def free_ride() -> Cheat:
    """Zeros."""
    return as_cheat(agents.free_ride())


def amplify(factor: float) -> Cheat:
    """The honest update times a factor; negative: the opposite."""
    return as_cheat(agents.amplify(factor))


def stale() -> Cheat:
    """The first honest update, every round."""
    return as_cheat(agents.stale())


def send_noise(seed: int, scale: float = 1.0) -> Cheat:
    """Gaussian numbers `scale` times as long as the honest update, nothing of which is in them.

    `as_cheat(agents.add_noise(...))` adds noise to the honest update instead.
    """
    size = checks.non_negative("scale", scale)
    number = checks.whole("seed", seed, at_least=0)

    def upload(client: int, _models: Models, updates: Models, round_number: int) -> Models:
        key = np.random.SeedSequence(number, spawn_key=(_NOISE, round_number, client))
        noise = np.random.default_rng(key).standard_normal(updates.shape[1])
        return np.asarray(size * np.linalg.norm(updates[client]) / np.linalg.norm(noise) * noise)

    return upload


def copy_update(other: int) -> Cheat:
    """Client `other`'s update of the same round, zeros if that one has none."""
    return lambda _client, _models, updates, _round_number: updates[other]


def cheating(local: Local, cheats: Mapping[int, Cheat]) -> Local:
    """The local training, with what some clients (by number) upload replaced by what they send instead."""

    def uploaded(models: Models, round_number: int, present: Bools) -> Models:
        for client in cheats:
            if not 0 <= client < models.shape[0]:
                raise InvalidValue("cheats", f"must be clients 0..{models.shape[0] - 1}", client)
        honest = np.asarray(local(models, round_number, present))
        sent = honest.copy()
        for client, cheat in cheats.items():
            if present[client]:
                sent[client] = cheat(client, models, honest, round_number)
        return sent

    return uploaded


@dataclass(frozen=True, slots=True)
class CheatReport:
    """What a cheat did to one client, beside the same federation with everybody honest."""

    name: str
    client: int
    accuracy: float  # of the model it ends up with
    honest_accuracy: float  # of the one it would have had
    standalone_accuracy: float  # of the one it has without a federation
    rate: float  # its reward rate, mean over the rounds it was in
    honest_rate: float
    share: float  # its share of all contributions, mean over rounds
    honest_share: float
    others_accuracy: float  # mean over the other clients
    others_honest_accuracy: float
    seen: bool  # its share fell by more than the tolerance

    @property
    def gain(self) -> float:
        """Accuracy won by cheating: above 0, honesty was not its best choice here."""
        return self.accuracy - self.honest_accuracy

    @property
    def still_joins(self) -> bool:
        """Whether the cheat does at least as well as on its own."""
        return self.accuracy >= self.standalone_accuracy


def examine(
    train: Callable[[Local], RewardsState],
    local: Local,
    cheats: Mapping[str, Callable[[], Cheat]],
    client: int,
    *,
    accuracy: Callable[[Models], Floats],
    standalone: ArrayLike,
    tolerance: float = 0.1,
) -> list[CheatReport]:
    """One report per cheat, all by the same client; the honest run is made once.

    `train` runs the federation on a local training (`train_with_rewards` with all else fixed), `cheats` are
    makers by name (a cheat may have a memory, so each run gets a new one), `accuracy` scores models (m, P),
    `standalone` (N,) are the accuracies without a federation. `seen` asks whether the client's share of all
    contributions fell by more than the `tolerance`, relative to its share when honest.
    """
    limit = checks.between("tolerance", tolerance, 0.0, 1.0)
    honest = train(local)
    alone = checks.vector("standalone", standalone, length=honest.models.shape[0])
    if not 0 <= client < alone.size:
        raise InvalidValue("client", f"must be in 0..{alone.size - 1}", client)
    others = np.arange(alone.size) != client
    before, share = np.asarray(accuracy(honest.models)), contribution_shares(honest)[client]
    reports = []
    for name, make in cheats.items():
        state = train(cheating(local, {client: make()}))
        after, now = np.asarray(accuracy(state.models)), contribution_shares(state)[client]
        reports.append(
            CheatReport(
                name=name,
                client=client,
                accuracy=float(after[client]),
                honest_accuracy=float(before[client]),
                standalone_accuracy=float(alone[client]),
                rate=float(state.average_rates[client]),
                honest_rate=float(honest.average_rates[client]),
                share=float(now),
                honest_share=float(share),
                others_accuracy=float(after[others].mean()),
                others_honest_accuracy=float(before[others].mean()),
                seen=bool(now < (1 - limit) * share),
            )
        )
    return reports


def contribution_shares(state: RewardsState) -> Floats:
    """(N,) each client's share of all contributions, mean over the rounds that had any."""
    measured = state.contributions[np.isfinite(state.contributions).all(1)]
    if not measured.size:
        raise InvalidValue("state", "must have a round that somebody attended", "none")
    return np.asarray((measured / measured.sum(1, keepdims=True)).mean(0))
