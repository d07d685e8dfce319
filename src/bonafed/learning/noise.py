"""Noise that hides records: where it comes from, and how it is added (decision 0010).

A *source* gives every job a stream of its own.

    Secret         a cipher's key stream, keyed by a secret and by everything the job depends on
                   (`NoiseTask`), so that the same noise is never added to two different values
    Reproducible   a generator seeded by (seed, round, client, copy), for studies and tests: whoever knows
                   the seed can remove the noise, so that no epsilon protects against them

Numbers are added so that floating-point arithmetic gives nothing away (Mironov 2012). The ideal mechanism
releases S + sd Z with Z normal; here what is released is

    Lambda round((S + sd Z)/Lambda),    Lambda = 2^(floor(log2 sd) - 4), in (sd/32, sd/16],

which is post-processing: whatever the data, a release is a multiple of the same Lambda. Z comes from Box
and Muller's method with 192 random bits per pair, in double precision. What remains is the difference
between the probabilities of these multiples and the ideal ones, a relative error of at most eta. Its cost
in epsilon and delta is set aside before noise is calibrated (`privacy.arithmetic`).
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol, final

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.engine.jobs import Job, Samples
from bonafed.learning.engine.resources import array
from bonafed.learning.work import LocalTraining
from bonafed.randomness import JobStream, Normals, Purpose, job_bits, round_generator

KEY_BYTES = 32  # of a secret
PIECE = 32768  # pairs of normal numbers made at once; with fewer, the overhead of calls dominates
LANES = 8  # pairs are made in multiples of this, which is as many as any processor computes at once
_WORDS_A_PAIR = 3
_WORD = 8  # bytes
_SILENCE = memoryview(bytes(_WORD * _WORDS_A_PAIR * PIECE))  # encrypted, it is the key stream
_COUNTER = modes.CTR(bytes(16))  # from 0
_WHOLE, _REAL = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
# scale of the three words of a pair: both halves of x, for which it is exact, and the angle
_PARTS = torch.tensor([2.0**-63, 2.0**-126, math.pi * 2.0**-63], dtype=torch.float64).view(-1, 1, 1)
_HERE = object()  # owner of this module's arrays in the workspace
_NOISE, _BATCHES = b"noise", b"batches"  # what a stream is for
_STREAMS = {_NOISE: JobStream.NOISE, _BATCHES: JobStream.BATCHES}  # of reproducible noise


class NoiseTask(NamedTuple):
    """Everything that a job's result depends on; tasks that differ in anything get independent noise.

    What jobs share comes as a digest, made once for all of them.
    """

    round_number: int
    client: int
    copy: int
    noise_multiplier: float
    training: bytes  # SHA-256 of the work it is given
    model: bytes  # SHA-256 of the weights it starts from
    samples: bytes  # SHA-256 of all clients' samples
    own: bytes  # which of them are its own, number after number

    @classmethod
    def of(cls, job: Job, training: bytes, round_number: int, model: bytes, samples: bytes) -> NoiseTask:
        """The task of a job in a round; training, model and all clients' samples as digests."""
        own = job.samples.astype(np.int64, copy=False).tobytes()
        return cls(round_number, job.client, job.copy, job.noise_multiplier, training, model, samples, own)

    def canonical(self) -> bytes:
        """Bytes that are the same for the same task only: all fields but the last have a fixed length."""
        numbers = _NUMBERS.pack(self.round_number, self.client, self.copy, self.noise_multiplier)
        return b"".join((numbers, self.training, self.model, self.samples, self.own))


_NUMBERS = struct.Struct("<qqqd")  # every bit of them


class _Words(Protocol):
    """An endless sequence of random 64-bit words."""

    def fill(self, out: memoryview) -> None:
        """Fill the buffer with the next words as bytes, at most `_WORDS_A_PAIR * PIECE` words."""


@final
class Stream:
    """The randomness that hides the records of one job: noise, and secret batches."""

    def __init__(self, words: Callable[[bytes], _Words]) -> None:
        self._words = words  # for a purpose
        self._noise = words(_NOISE)
        self._batches: _Words | None = None  # made when they are needed

    def fill(self, out: memoryview) -> None:
        """The next words for noise, as bytes."""
        self._noise.fill(out)

    def add_to(self, gradient: Tensor, sd: float) -> None:
        """One release: noise of standard deviation sd on every number of a vector (P,), in place."""
        add_noise(gradient[None], [self], [sd])

    def uniforms(self, count: int) -> Floats:
        """(count,) independent uniform numbers of 53 bits in [0, 1), from another stream than the noise."""
        if self._batches is None:
            self._batches = self._words(_BATCHES)
        words = np.empty(count, dtype=np.int64)
        for first in range(0, count, PIECE):
            self._batches.fill(words[first : first + PIECE].data.cast("B"))
        return np.asarray((words.view(np.uint64) >> np.uint64(11)) * 2.0**-53)


class Source(ABC):
    """Where the noise of a run comes from."""

    @abstractmethod
    def stream(self, task: NoiseTask) -> Stream:
        """The stream of a job, always the same one for the same task."""

    @abstractmethod
    def noisy(self, values: Floats, sd: float, request: bytes, released: int) -> Floats:
        """A sum with noise of standard deviation sd on each number, as it may be published.

        `request` describes completely what was requested, `released` counts the numbers published so far.
        """

    def own(self, client: int) -> Source:
        """The noise on sums that the client of this number adds by itself, independent of the others'."""
        return self  # a secret of its own is nobody else's


@final
@dataclass(frozen=True, slots=True)
class Secret(Source):
    """Noise that only the holder of the key can remove: AES-256 in counter mode, with a key per task."""

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes) or len(self.key) != KEY_BYTES:
            raise InvalidValue("key", f"must be {KEY_BYTES} bytes", "something else")  # not the key itself

    @classmethod
    def fresh(cls) -> Secret:
        """A new key from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES))

    def stream(self, task: NoiseTask) -> Stream:
        whole = task.canonical()
        return Stream(lambda purpose: _Cipher(self.derived(purpose, whole)))

    def noisy(self, values: Floats, sd: float, request: bytes, released: int) -> Floats:
        """Keyed by the request and the values themselves: the same for the same release, and only then."""
        what = repr((released, float(sd))).encode() + hashlib.sha256(request).digest()
        return _with_noise(self, values, sd, what)

    def releases(self, text: bytes) -> SecretReleases:
        """Noise for successive releases of a run that this text describes completely."""
        return SecretReleases(self, text)

    def derived(self, purpose: bytes, text: bytes) -> bytes:
        """A key for one purpose: HMAC-SHA256 of the purpose and the text."""
        return hmac.digest(self.key, b"bonafed " + purpose + b"\0" + text, "sha256")


@final
@dataclass(frozen=True, slots=True)
class Reproducible(Source):
    """Noise that anybody who knows the seed can compute and remove: for studies and tests only."""

    seed: int
    client: int | None = None  # who adds it to a sum; None: all together
    _sums: Normals = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.seed("seed", self.seed)
        object.__setattr__(self, "_sums", Normals(self._beginning(), self._beginning))

    def _beginning(self) -> np.random.Generator:
        who = 0 if self.client is None else self.client + 1
        return round_generator(self.seed, Purpose.PRIVATE_SUMS, who)

    def own(self, client: int) -> Source:
        return Reproducible(self.seed, client)

    def stream(self, task: NoiseTask) -> Stream:
        numbers = (self.seed, task.round_number, task.client, task.copy)
        return Stream(lambda purpose: _Generator(numbers, _STREAMS[purpose]))

    def noisy(self, values: Floats, sd: float, request: bytes, released: int) -> Floats:
        """From one stream for the whole run, after the numbers released so far."""
        normal = self._sums.read(released, np.size(values))
        return np.asarray(values + sd * normal.reshape(np.shape(values)))


@final
class SecretReleases:
    """Successive releases, each with noise keyed by its number and by the values themselves.

    The values are safe as input of a keyed function that nobody can tell from a random one: equal values
    get equal noise when a run is repeated, and different values get different noise.
    """

    def __init__(self, secret: Secret, text: bytes) -> None:
        self._secret, self._text, self._number = secret, text, 0

    def released(self, values: Floats, sd: float) -> Floats:
        """Values with noise of standard deviation sd on each, as they may be published."""
        self._number += 1
        return _with_noise(self._secret, values, sd, repr((self._number, float(sd))).encode(), self._text)


def _with_noise(secret: Secret, values: Floats, sd: float, what: bytes, text: bytes = b"") -> Floats:
    """Values with noise that is keyed by them and by everything else about the release."""
    noisy = torch.tensor(values, dtype=torch.float64).reshape(1, -1)
    key = secret.derived(b"release", what + digest(noisy) + text)
    add_noise(noisy, [Stream(lambda _purpose: _Cipher(key))], [sd])
    return np.asarray(noisy.numpy().reshape(np.shape(values)))


@final
class _Cipher:
    """Words of a key stream. A key is used for one stream only, so the counter may start at 0."""

    def __init__(self, key: bytes) -> None:
        self._context = Cipher(algorithms.AES256(key), _COUNTER).encryptor()

    def fill(self, out: memoryview) -> None:
        self._context.update_into(_SILENCE[: len(out)], out)


@final
class _Generator:
    """Words of PCG64, seeded by public numbers."""

    def __init__(self, numbers: Sequence[int], stream: JobStream) -> None:
        self._bits = job_bits(numbers, stream)

    def fill(self, out: memoryview) -> None:
        out[:] = self._bits.random_raw(len(out) // _WORD).data.cast("B")


def digest(values: Tensor) -> bytes:
    """SHA-256 of every bit of an array, its shape and its precision."""
    hasher = hashlib.sha256(f"{values.dtype}{tuple(values.shape)}".encode())
    hasher.update(np.ascontiguousarray(values.detach().numpy()).data)
    return hasher.digest()


def digest_of_training(training: LocalTraining, seed: int) -> bytes:
    """SHA-256 of the work of every client and the seed of the order of samples.

    Floats are written with all their digits.
    """
    return hashlib.sha256(f"{training!r} {seed}".encode()).digest()


def digest_of_samples(samples: Samples) -> bytes:
    """SHA-256 of all clients' samples and labels."""
    return hashlib.sha256(digest(samples.features) + digest(samples.labels)).digest()


def add_noise(gradients: Tensor, streams: Sequence[Stream], sds: Sequence[float]) -> None:
    """One release of each row of (K, P): noise of its standard deviation from its stream, in place.

    Short rows are processed together. The noise of a row does not depend on the others.
    """
    size = gradients.shape[1]
    pairs = math.ceil(size / (2 * LANES)) * LANES
    at_once = max(1, PIECE // pairs)
    for first in range(0, len(streams), at_once):
        rows = slice(first, first + at_once)
        variance, grid = _scales(tuple(sds[rows]))
        for start in range(0, pairs, PIECE):
            width = min(PIECE, pairs - start)
            piece = gradients[rows, 2 * start : 2 * (start + width)]
            _add_piece(piece, streams[rows], width, variance, grid)


@lru_cache(maxsize=64)
def _scales(sds: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """-sd^2 and 1.5 2^52 Lambda, (K, 1) each. Added to a number and taken off again, the latter rounds it
    to a multiple of Lambda: the numbers from 2^52 Lambda to 2^53 Lambda of double precision are those."""
    variance = torch.tensor([[-sd * sd] for sd in sds], dtype=torch.float64)
    grid = torch.tensor([[1.5 * 2.0**52 * unit(sd)] for sd in sds], dtype=torch.float64)
    return variance, grid


def unit(sd: float) -> float:
    """Lambda, the unit of everything that is released: the largest power of two that is at most sd/16.

    >>> unit(0.5), unit(0.9), unit(1.0)
    (0.03125, 0.03125, 0.0625)
    """
    return math.ldexp(1.0, math.frexp(sd)[1] - 5)


def _add_piece(
    numbers: Tensor, streams: Sequence[Stream], width: int, variance: Tensor, grid: Tensor
) -> None:
    """Add noise to (K, at most 2 width) numbers. With many, every pass costs time; with few, every call."""
    count = len(streams)
    words = array(_HERE, "words", (count, _WORDS_A_PAIR, width), _WHOLE)
    raw, length = words.numpy().data.cast("B"), _WORD * _WORDS_A_PAIR * width
    for k, stream in enumerate(streams):
        stream.fill(raw[k * length : (k + 1) * length])
    real = array(_HERE, "real", (_WORDS_A_PAIR, count, width), _REAL)
    radius, low, angle = real.copy_(words.transpose(0, 1)).mul_(_PARTS).unbind()
    # x in [-1, 1] of 127 bits, exact to a rounding also near 0, which makes the tail: sd sqrt(-ln x^2) is
    # the radius, and an angle makes two normal numbers of it
    radius.add_(low)
    radius.mul_(radius).log_().mul_(variance).sqrt_()
    normal = array(_HERE, "normal", (count, 2, width), _REAL)
    for side, out in zip((torch.cos, torch.sin), normal.unbind(1), strict=True):
        side(angle, out=out)
    noisy = normal.mul_(radius[:, None]).view(count, 2 * width)[:, : numbers.shape[1]]
    torch.sub(noisy.add_(numbers).add_(grid), grid, out=numbers)
