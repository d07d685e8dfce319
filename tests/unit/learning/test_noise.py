"""Noise: from a secret and the whole task, on a grid that does not depend on the data."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bonafed.errors import InvalidValue
from bonafed.learning import noise
from bonafed.learning.engine.jobs import Job, Samples
from bonafed.learning.noise import (
    NoiseTask,
    Reproducible,
    Secret,
    add_noise,
    digest,
    digest_of_samples,
    digest_of_training,
    unit,
)
from bonafed.learning.privacy.added_noise import relative_error, reserve
from bonafed.learning.work import LocalTraining

KEY = Secret(bytes(range(32)))
ASKED = digest_of_training(LocalTraining(8, 0.1, clip=1.0), 0)
TASK = NoiseTask(2, 3, 0, 1.5, ASKED, b"m" * 32, b"d" * 32, np.arange(3).tobytes())
SOURCES = [KEY, Reproducible(5)]


def drawn(source, task=TASK, size=1000, sd=1.0):
    values = torch.zeros(size, dtype=torch.float64)
    source.stream(task).add_to(values, sd)
    return values


@pytest.mark.parametrize("source", SOURCES)
def test_the_same_task_gets_the_same_noise(source):
    assert torch.equal(drawn(source), drawn(source))


@pytest.mark.parametrize(
    "change",
    [
        {"round_number": 3}, {"client": 4}, {"copy": 1}, {"noise_multiplier": 1.5000000000000002},
        {"training": digest_of_training(LocalTraining(8, 0.1, clip=1.0, weight_decay=1e-9), 0)},
        {"training": digest_of_training(LocalTraining(8, 0.1, clip=1.0000001), 0)},
        {"training": digest_of_training(LocalTraining(8, 0.1, clip=1.0), 1)},
        {"training": digest_of_training(LocalTraining(8, 0.1, clip=1.0, later_rates=(0.1,)), 0)},
        {"training": digest_of_training(LocalTraining(8, 0.1, clip=1.0, later_rates=(0.1 + 1e-16,)), 0)},
        {"model": b"n" + b"m" * 31}, {"samples": b"d" * 31 + b"e"},
        {"own": np.arange(1, 4).tobytes()}, {"own": np.arange(4).tobytes()}, {"own": b""},
    ],
)  # fmt: skip
def test_another_task_gets_other_noise(change):
    one, other = drawn(KEY), drawn(KEY, TASK._replace(**change))
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.2


def test_a_record_a_label_or_the_holder_of_one_makes_it_another_task():
    samples = Samples(torch.rand(6, 4), torch.arange(6))
    other = Samples(samples.features.clone(), samples.labels)
    other.features[3, 2] += 1e-7
    labels = Samples(samples.features, samples.labels.flip(0))
    found = {digest_of_samples(each) for each in (samples, other, labels)}
    assert len(found) == 3
    mine = NoiseTask.of(
        Job(0, np.arange(3)), ASKED, 1, digest(samples.features[0]), digest_of_samples(samples)
    )
    other_holder = NoiseTask.of(Job(0, np.arange(1, 4)), ASKED, 1, mine.model, mine.samples)
    assert mine.canonical() != other_holder.canonical()
    every_second = NoiseTask.of(Job(0, np.arange(6)[::2]), ASKED, 1, mine.model, mine.samples)
    assert every_second.own == np.array([0, 2, 4]).tobytes()


def test_another_secret_and_the_batches_have_streams_of_their_own():
    words = [np.empty(64, dtype=np.int64) for _ in range(2)]
    for source, out in zip((KEY, Secret(bytes(32))), words, strict=True):
        source.stream(TASK).fill(out.data.cast("B"))
    assert not set(words[0].tolist()) & set(words[1].tolist())
    stream = KEY.stream(TASK)
    before = stream.uniforms(5)
    assert torch.equal(drawn(KEY), drawn(KEY))
    values = torch.zeros(1000, dtype=torch.float64)
    stream.add_to(values, 1.0)
    assert torch.equal(values, drawn(KEY))  # uniforms take nothing from the noise
    assert np.array_equal(KEY.stream(TASK).uniforms(5), before)
    assert not np.array_equal(stream.uniforms(5), before)


def test_uniforms_are_uniform():
    found = KEY.stream(TASK).uniforms(100_000)
    assert 0 <= found.min() <= found.max() < 1
    assert stats.kstest(found, "uniform").pvalue > 1e-9


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("sd", [0.03, 1.0, 0.999, 700.0])
def test_releases_are_normal_to_the_cell(source, sd):
    """Cells of width Lambda have the probabilities of the normal distribution, also with S between two."""
    values = torch.full((400_000,), 0.3 * sd, dtype=torch.float64)
    source.stream(TASK).add_to(values, sd)
    cell = unit(sd)
    number = np.rint(values.numpy() / cell)
    edges = np.arange(-60, 61) - 0.5
    counts, _ = np.histogram(number, np.concatenate([[-np.inf], edges, [np.inf]]))
    chances = np.diff(stats.norm.cdf(np.concatenate([[-np.inf], edges * cell, [np.inf]]), 0.3 * sd, sd))
    keep = chances * number.size > 10
    observed, expected = counts[keep], chances[keep] * number.size
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert stats.chi2.sf(statistic, keep.sum() - 1) > 1e-9


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_release_is_a_multiple_of_a_unit_that_does_not_depend_on_the_data(precision):
    for scale in (0.0, 1e-8, 0.7, 300.0):
        values = scale * torch.rand(5000, dtype=precision)
        KEY.stream(TASK).add_to(values, 0.4)
        assert 0.4 / 32 < unit(0.4) <= 0.4 / 16
        assert torch.equal(values / unit(0.4), (values / unit(0.4)).round())


@pytest.mark.parametrize("size", [1, 15, 16, 17, 650, 7850, 2 * noise.PIECE + 33])
def test_what_a_row_gets_does_not_depend_on_the_others(size):
    tasks = [TASK._replace(client=k) for k in range(12)]
    rows, sds = torch.rand(12, size), [0.1 * (k + 1) for k in range(12)]
    together = rows.clone()
    add_noise(together, [KEY.stream(task) for task in tasks], sds)
    for k, task in enumerate(tasks):
        alone = rows[k].clone()
        KEY.stream(task).add_to(alone, sds[k])
        assert torch.equal(alone, together[k])


class Given:
    """A stream whose words are written down."""

    def __init__(self, high, low, angle):
        self._rows = (high, low, angle)

    def fill(self, out):
        for row, word in zip(np.frombuffer(out, np.int64).reshape(3, -1), self._rows, strict=True):
            row[:] = word


@pytest.mark.parametrize(
    ("high", "low"),
    [(2**62, 5), (1, 2**62), (0, 1), (3, -7), (-(2**63), 0), (2**63 - 1, -1), (12345, -9876)],
)
def test_tails_have_their_digits_and_the_ends_are_finite(high, low):
    """The radius of tiny and of full words, against exact arithmetic."""
    from fractions import Fraction

    values = torch.zeros(1, 1, dtype=torch.float64)
    add_noise(values, [Given(high, low, 0)], [2.0**60])  # a unit of 2^56: far below a radius of 1 sd
    x = abs(Fraction(high, 2**63) + Fraction(low, 2**126))
    logarithm = math.log(x.numerator) - math.log(x.denominator) if x < 0.5 else math.log(x)
    radius = math.sqrt(max(0.0, -2 * logarithm))
    assert math.isfinite(float(values))
    assert float(values) / 2.0**60 == pytest.approx(radius, abs=1 / 32 + 1e-9)


def test_what_arithmetic_takes_is_small_grows_with_the_root_of_the_numbers_and_is_refused_if_not():
    one, hundred = (reserve(1.0, 1e-5, n, 100.0) for n in (1e6, 1e8))
    assert 9 < hundred.arithmetic / one.arithmetic < 11
    assert one.epsilon + one.arithmetic == pytest.approx(1.0, abs=1e-15)
    assert one.arithmetic < 1e-6
    assert 0.98e-5 < one.delta < 1e-5
    with pytest.raises(InvalidValue, match=r"^epsilon must leave room for the arithmetic of 1e\+09 noisy"):
        reserve(1e-6, 1e-5, 1e9, 100.0)
    assert relative_error(0.0) < relative_error(1e6) < 1e-6


def test_a_key_is_32_bytes_and_is_never_shown():
    with pytest.raises(InvalidValue, match=r"^key must be 32 bytes, got something else$"):
        Secret(b"short")
    assert KEY.key.hex() not in repr(KEY)
    assert repr(KEY.key) not in repr(KEY)
    assert Secret.fresh() != Secret.fresh()


def test_releases_one_after_the_other_never_share_noise():
    def noise_of(values, times=2):
        releases = KEY.releases(b"run")
        return [releases.released(values, 1.0) - values for _ in range(times)]

    values = np.zeros(500)
    first, second = noise_of(values)
    assert np.array_equal(first, noise_of(values)[0])  # a run that is repeated repeats itself
    moved = values.copy()
    moved[7] = 1e-9
    for other in (second, noise_of(moved)[0], KEY.releases(b"other").released(values, 1.0)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.25


def test_noise_that_clients_add_to_sums_by_themselves_is_independent():
    values = np.zeros((1, 400))
    shared = Reproducible(3)
    noises = [source.noisy(values, 1.0, b"", 0)[0] for source in (shared, shared.own(0), shared.own(1))]
    assert abs(np.corrcoef(noises) - np.eye(3)).max() < 0.25
    assert np.array_equal(Reproducible(3).own(1).noisy(values, 1.0, b"", 0)[0], noises[2])
    assert KEY.own(1) is KEY  # nobody else has it
