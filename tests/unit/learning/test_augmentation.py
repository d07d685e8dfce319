"""Crops and flips: what they do to an image, and that grouping has no part in it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bonafed.errors import InvalidValue
from bonafed.learning import models
from bonafed.learning.engine.crew import Crew
from bonafed.learning.engine.jobs import FARTHEST, VARIATIONS, Job, Samples, in_steps, variations, vary
from bonafed.learning.engine.programs import flat_parameters, program_for
from bonafed.learning.engine.sequential import run_jobs_sequentially
from bonafed.learning.engine.training import run_jobs
from bonafed.learning.work import LocalTraining
from bonafed.runs.config import from_tables
from bonafed.runs.prepare import prepare

SPEC = LocalTraining(batch_size=4, learning_rate=0.1, epochs=2, augmentation="crop-and-flip")


def slowly(image, code):
    """Pad by reflection, cut out, mirror."""
    padded = torch.nn.functional.pad(image[None], (FARTHEST,) * 4, mode="reflect")[0]
    shift, side = code // 2, 2 * FARTHEST + 1
    top, left = shift // side, shift % side
    cut = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
    return cut.flip(2) if code % 2 else cut


def test_every_variation_is_a_crop_of_the_padded_image():
    image = torch.randn(3, 7, 9, generator=torch.Generator().manual_seed(1))
    varied = vary(image.expand(VARIATIONS, -1, -1, -1), torch.arange(VARIATIONS))
    for code in range(VARIATIONS):
        assert torch.equal(varied[code], slowly(image, code))


def federation():
    """In double precision, where products of other sizes differ by far less than a variation makes."""
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(40, 1, 8, 8, generator=generator).double()
    samples = Samples(features, torch.randint(3, (40,), generator=generator))
    parts = np.split(np.arange(40), [3, 14, 21])
    return samples, [Job(k, part) for k, part in enumerate(parts)]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_the_engine_does_what_its_twin_does(optimizer):
    samples, jobs = federation()
    module = models.build("small-cnn", (1, 8, 8), 3, 0).double()
    program, start = program_for(module, "cross-entropy", samples.features[:1]), flat_parameters(module)
    spec = replace(SPEC, optimizer=optimizer)
    fast = list(run_jobs(program, start, samples, jobs, spec, seed=5, round_number=2))
    slow = list(run_jobs_sequentially(module, start, samples, jobs, spec, seed=5, round_number=2))
    plain = list(
        run_jobs(program, start, samples, jobs, replace(spec, augmentation="none"), seed=5, round_number=2)
    )
    for one, other, without in zip(fast, slow, plain, strict=True):
        torch.testing.assert_close(one.change, other.change, rtol=0, atol=1e-12)
        assert not torch.allclose(one.change, without.change, rtol=2e-3, atol=2e-4)


def test_neither_groups_nor_cores_nor_the_order_of_clients_matter():
    samples, jobs = federation()
    module = models.build("small-cnn", (1, 8, 8), 3, 0).double()
    program, start = program_for(module, "cross-entropy", samples.features[:1]), flat_parameters(module)

    def changes(jobs, **how):
        each = run_jobs(program, start, samples, jobs, SPEC, seed=5, round_number=2, **how)
        return {update.client: update.change for update in each}

    together = changes(jobs)
    with Crew(program, samples, cores=2) as crew:
        others = [changes(jobs[::-1]), changes(jobs, crew=crew), changes(jobs, group_bytes=1)]
    for other in others:
        for client, change in together.items():
            torch.testing.assert_close(change, other[client], rtol=0, atol=1e-12)


def test_a_sample_is_varied_anew_in_every_pass_round_and_seed():
    job = Job(1, np.arange(50))
    first, second = variations(job, SPEC, 3, 1)
    assert not np.array_equal(first, second)
    assert first.min() >= 0
    assert first.max() < VARIATIONS
    for other in (
        variations(job, SPEC, 3, 2), variations(job, SPEC, 4, 1),
        variations(Job(2, np.arange(50)), SPEC, 3, 1),
    ):  # fmt: skip
        assert not np.array_equal(first, other[0])
    np.testing.assert_array_equal(variations(job, SPEC, 3, 1), [first, second])
    steps = in_steps(job, SPEC, variations(job, SPEC, 3, 1))
    np.testing.assert_array_equal(np.concatenate(steps), np.concatenate([first, second]))


def test_it_is_refused_where_gradients_are_clipped_and_where_there_are_no_images():
    with pytest.raises(InvalidValue, match=r'^augmentation must be "none" if clip is given'):
        replace(SPEC, clip=1.0)
    tables = {
        "data": {"name": "synthetic"}, "partition": {"kind": "iid", "clients": 3},
        "model": {"name": "softmax"},
        "training": {"rounds": 1, "learning_rate": 0.1, "augmentation": "crop-and-flip"},
    }  # fmt: skip
    with pytest.raises(InvalidValue, match=r"^training\.augmentation must be none unless samples are"):
        prepare(from_tables(tables))
    with pytest.raises(InvalidValue, match=r"^training\.augmentation must be one of none, crop-and-flip"):
        from_tables({**tables, "training": {**tables["training"], "augmentation": "blur"}})
