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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.mechanisms.deviations import Deviation, parse_deviation
from bonafed.mechanisms.faithful import agents
from bonafed.mechanisms.faithful.agents import Agent
from bonafed.mechanisms.rewards.history import Models
from bonafed.mechanisms.rewards.server import Bools
from bonafed.mechanisms.rewards.training import Local, RewardsState
from bonafed.randomness import Purpose, generator

Cheat = Callable[[int, Models, Models, int], Models]
# (client, models (N, P), honest updates (N, P), round number) -> (P,) what the client uploads
SEEN = 0.1  # a cheat is seen if its share of all contributions falls by more than this part


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
    number = checks.seed("seed", seed)

    def upload(client: int, _models: Models, updates: Models, round_number: int) -> Models:
        rng = generator(number, Purpose.CHEAT, round_number, client)
        noise = rng.standard_normal(updates.shape[1])
        return np.asarray(size * np.linalg.norm(updates[client]) / np.linalg.norm(noise) * noise)

    return upload


def copy_update(other: int) -> Cheat:
    """Client `other`'s update of the same round, zeros if that one has none."""
    return lambda _client, _models, updates, _round_number: updates[other]


_KINDS: Mapping[str, tuple[str, Callable[[float, int], Cheat]]] = {
    "free-ride": ("", lambda _x, _seed: free_ride()),
    "noise": ("SCALE", lambda x, seed: send_noise(seed, x)),
    "amplify": ("FACTOR", lambda x, _seed: amplify(x)),
    "copy": ("CLIENT", lambda x, _seed: copy_update(checks.whole("client", x, at_least=0))),
}  # what follows the kind, and its maker


def parse_cheat(name: str, text: object) -> Deviation:
    """Client, kind and argument of a text such as "3 free-ride"; refused under `name`."""
    return parse_deviation(
        name, text, {kind: follows for kind, (follows, _) in _KINDS.items()}, "3 free-ride"
    )


def cheats_from(texts: Sequence[str], clients: int, seed: int) -> dict[int, Cheat]:
    """By client, from texts such as "3 free-ride"."""
    found = {}
    for text in texts:
        client, kind, argument = parse_cheat("agents", text)
        if client >= clients or (kind == "copy" and not 0 <= argument < clients):
            raise InvalidValue("agents", f"must be clients 0..{clients - 1}", repr(text))
        if kind == "copy" and argument == client:
            raise InvalidValue("agents", "must copy another client", repr(text))
        found[client] = _KINDS[kind][1](argument, seed)
    return found


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

    client: int
    cheat: str
    accuracy: float  # of the model it ends up with
    honest_accuracy: float  # of the one it would have had
    standalone_accuracy: float  # of the one it has without a federation
    reward_rate: float  # mean over the rounds it was in
    honest_reward_rate: float
    share: float  # its share of all contributions, mean over rounds
    honest_share: float
    seen: bool  # its share fell by more than the tolerance
    others_accuracy: float  # mean over the other clients
    others_honest_accuracy: float

    @property
    def gain(self) -> float:
        """Accuracy won by cheating: above 0, honesty was not its best choice here."""
        return self.accuracy - self.honest_accuracy

    @property
    def still_joins(self) -> bool:
        """Whether the cheat does at least as well as on its own."""
        return self.accuracy >= self.standalone_accuracy


class Standing(NamedTuple):
    """How the clients of a federation stand at its end."""

    accuracy: Floats  # (N,)
    reward_rate: Floats  # (N,)
    share: Floats  # (N,) of all contributions


def report(
    client: int, cheat: str, now: Standing, honest: Standing, standalone: Floats, tolerance: float = SEEN
) -> CheatReport:
    """The client beside itself in the honest federation; `standalone` (N,) are accuracies without one."""
    others = np.arange(standalone.size) != client
    return CheatReport(
        client=client,
        cheat=cheat,
        accuracy=float(now.accuracy[client]),
        honest_accuracy=float(honest.accuracy[client]),
        standalone_accuracy=float(standalone[client]),
        reward_rate=float(now.reward_rate[client]),
        honest_reward_rate=float(honest.reward_rate[client]),
        share=float(now.share[client]),
        honest_share=float(honest.share[client]),
        seen=bool(now.share[client] < (1 - tolerance) * honest.share[client]),
        others_accuracy=float(now.accuracy[others].mean()),
        others_honest_accuracy=float(honest.accuracy[others].mean()),
    )


def examine(
    train: Callable[[Local], RewardsState],
    local: Local,
    cheats: Mapping[str, Callable[[], Cheat]],
    client: int,
    *,
    accuracy: Callable[[Models], Floats],
    standalone: ArrayLike,
    tolerance: float = SEEN,
) -> list[CheatReport]:
    """One report per cheat, all by the same client; the honest run is made once.

    `train` runs the federation on a local training (`train_with_rewards` with all else fixed), `cheats` are
    makers by name (a cheat may have a memory, so each run gets a new one), `accuracy` scores models (m, P),
    `standalone` (N,) are the accuracies without a federation. `seen` asks whether the client's share of all
    contributions fell by more than the `tolerance`, relative to its share when honest.
    """
    limit = checks.between("tolerance", tolerance, 0.0, 1.0)

    def standing(state: RewardsState) -> Standing:
        judged = np.asarray(accuracy(state.models))
        return Standing(judged, state.average_rates, contribution_shares(state))

    honest = standing(train(local))
    alone = checks.vector("standalone", standalone, length=honest.accuracy.size)
    if not 0 <= client < alone.size:
        raise InvalidValue("client", f"must be in 0..{alone.size - 1}", client)
    return [
        report(client, name, standing(train(cheating(local, {client: make()}))), honest, alone, limit)
        for name, make in cheats.items()
    ]


def contribution_shares(state: RewardsState) -> Floats:
    """(N,) each client's share of all contributions, mean over the rounds that had any, if one had."""
    measured = state.contributions[np.isfinite(state.contributions).all(1)]
    if not measured.size:
        raise InvalidValue("state", "must have a round that somebody attended", "none")
    some = measured[measured.any(1)]
    if not some.size:
        return np.zeros(measured.shape[1])
    return np.asarray((some / some.sum(1, keepdims=True)).mean(0))
