"""Which random numbers are for what: every stream that is drawn from a seed, by its purpose.

The rule: streams of different purposes never overlap. What is drawn for one purpose (who holds which data)
does not move what is drawn for another (who takes part), and adding a purpose changes no number of a run
that has been made. So a purpose has a number of its own, listed here and nowhere else, and keeps it.

Noise that protects somebody is never from here: whoever knows the seed could subtract it. It comes from a
secret (`learning/noise.py`). `JobStream` is for noise that protects nobody, in studies and tests.

Numbers go into a key of NumPy's `SeedSequence` in one of three ways, and a purpose has always been drawn
in one way only:

    generator(seed, purpose, ...)        seed; key (purpose, ...)
    round_generator(seed, purpose, t)    (seed, t); key (purpose)
    numbered_generator(seed, number)     (seed, number), without a key

One pair overlaps, and stays as long as earlier runs must be reproducible: where coins and
reproducible noise have the same seed, `Purpose.COINS` of a round are the words of `JobStream.NOISE` of
client 0 in it, as `SeedSequence` fills up short seeds with zeros. Neither is secret then.

>>> first, second = (generator(7, purpose).random() for purpose in (Purpose.COSTS, Purpose.PRIVACY_COSTS))
>>> first == second
False
>>> bool(generator(7, Purpose.COSTS).random() == first)
True
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import final

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import InvalidValue

_SKIPPED_AT_ONCE = 1 << 20  # numbers


class Purpose(IntEnum):
    """Streams of a run's seed."""

    COINS = 1  # who takes part in a round under a contract of sampling
    COSTS = 2  # of simulated clients who sell participation
    PARTITION = 11  # which client holds which samples
    FEATURE_NOISE = 12  # that a partition adds to features
    PARTICIPANTS = 13  # who takes part where there is no contract
    AGENTS = 14  # what simulated agents report
    CLUSTERS = 15  # of agents, for private payments
    PRIVATE_SUMS = 16  # reproducible noise on sums; of rounds 1, 2, ...: that of clients 0, 1, ... alone
    VALIDATION = 17  # samples that are held out
    SCHEDULE = 21  # who takes part in which round where privacy is sold
    PRIVACY_COSTS = 22  # of simulated clients who sell privacy
    REWARD_SETS = 31  # whose updates are in whose reward
    REFERENCE_SET = 32  # whose updates are in the reference
    RECOVERY = 33  # who gets the reference
    PRESENCE = 34  # who is there
    CHEAT = 41  # what a client that sends noise sends


class JobStream(IntEnum):
    """Streams of a client in a round, of noise where it is reproducible; the order of its samples has no
    key."""

    NOISE = 1
    BATCHES = 2
    AUGMENTATION = 3  # how its images are varied


class FaithfulStudy(IntEnum):
    """Streams of a cell of the studies of faithful learning."""

    SAMPLES = 0
    PARTITION = 1
    CLUSTERS = 2
    NOISE = 3


class RewardsStudy(IntEnum):
    """Streams of a cell of the studies of training-time rewards."""

    VALIDATION = 0
    PARTITION = 1
    FEATURE_NOISE = 2


class JsamStudy(IntEnum):
    """Streams of a study of privacy that is sold; the costs have no key."""

    LOSSES = 1


class FaithfulAudit(IntEnum):
    """Numbers of the generators of an audit of faithful learning."""

    SAMPLES = 0
    PARTITION = 1
    CLUSTERS = 2


KeyedPurpose = Purpose | FaithfulStudy | RewardsStudy | JsamStudy


def generator(seed: int, purpose: KeyedPurpose, *numbers: int) -> np.random.Generator:
    """Of one purpose, and of these numbers (a round, a client) where each has a stream of its own."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), *numbers)))


def round_generator(seed: int, purpose: Purpose, round_number: int = 0) -> np.random.Generator:
    """Of one purpose in one round; round 0 is before the first."""
    return np.random.default_rng(np.random.SeedSequence((seed, round_number), spawn_key=(int(purpose),)))


def numbered_generator(seed: int, number: int) -> np.random.Generator:
    """Of a seed that has nothing but numbered streams."""
    return np.random.default_rng([seed, int(number)])


def job_generator(seed: int, round_number: int, client: int, copy: int) -> np.random.Generator:
    """Of the order of a client's samples in a round."""
    numbers = (seed, round_number, client, copy)
    # what default_rng makes of them, in a third of the time
    entropy = np.array(numbers, dtype=np.uint32) if max(numbers) < 1 << 32 else numbers
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def job_bits(numbers: Sequence[int], stream: JobStream) -> np.random.PCG64:
    """Of a client in a round: `numbers` are the seed, the round, the client and the copy."""
    return np.random.PCG64(np.random.SeedSequence(numbers, spawn_key=(int(stream),)))


@final
class Normals:
    """The standard normal numbers of a generator by their position, read at several places in turn.

    What is asked for side by side gets the numbers it would have got one after the other: each place that
    reading may go on from has a generator there. The one at hand goes as far as anybody has read. With
    `again`, which begins the sequence anew, what has been passed can be read again.

    >>> in_turn, at_once = Normals(np.random.default_rng(7)), np.random.default_rng(7).standard_normal(40)
    >>> read = [in_turn.read(first, 5) for first in (0, 20, 5, 25, 10, 30, 15, 35)]
    >>> bool((np.concatenate(read[::2] + read[1::2]) == at_once).all())
    True
    """

    def __init__(
        self, rng: np.random.Generator, again: Callable[[], np.random.Generator] | None = None
    ) -> None:
        self._at, self._again = {0: rng}, again

    def read(self, first: int, count: int) -> NDArray[np.float64]:
        """(count,) from position `first` on."""
        reached = max((at for at in self._at if at <= first), default=None)
        if reached is None:
            if self._again is None:
                rule = f"must be at least {min(self._at)}, where reading can go on"
                raise InvalidValue("position", rule, first)
            reached, self._at[0] = 0, self._again()
        rng = self._at.pop(reached)
        if reached < first:
            self._at[reached] = copy.deepcopy(rng)
            for left in range(first - reached, 0, -_SKIPPED_AT_ONCE):
                rng.standard_normal(min(left, _SKIPPED_AT_ONCE))
        numbers = np.asarray(rng.standard_normal(count))
        self._at[first + count] = rng
        return numbers
