"""The readable twin of the engine: one client after another, in ordinary PyTorch.

Slow and obvious. Same seeds, same batches, same weights as the engine (to rounding); the tests compare
the two for every model and option, and the benchmarks measure against it where nothing is clipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from bonafed.learning.engine.jobs import (
    Job,
    Samples,
    Update,
    batches,
    in_steps,
    job_rng,
    poisson_batches,
    variations,
    vary,
)
from bonafed.learning.engine.programs import Loss, clip_scale, flat_parameters, load_parameters, trainable
from bonafed.learning.noise import (
    NoiseTask,
    Secret,
    Source,
    Stream,
    digest,
    digest_of_samples,
    digest_of_training,
)
from bonafed.learning.work import LocalTraining, batch_share, record_steps, sensitivity


def run_jobs_sequentially(
    module: nn.Module,
    start: Tensor,
    samples: Samples,
    jobs: Sequence[Job],
    spec: LocalTraining,
    *,
    seed: int,
    round_number: int,
    noise: Source | None = None,
    loss: Loss = "cross-entropy",
) -> Iterator[Update]:
    """What `running.run_jobs` computes, in plain PyTorch."""
    source, data = noise or Secret.fresh(), digest_of_samples(samples)
    training = digest_of_training(spec, seed)
    for job_number, job in enumerate(jobs):
        before = start if start.dim() == 1 else start[job_number]
        stream = source.stream(NoiseTask.of(job, training, round_number, digest(before), data))
        if spec.batches == "poisson":
            order = list(poisson_batches(job, spec, stream.uniforms))
        else:
            order = batches(job, spec, job_rng(seed, round_number, job))
        varied = None
        if spec.augmentation != "none":
            varied = in_steps(job, spec, variations(job, spec, seed, round_number))
        model = load_parameters(module, before)
        optimizer = _optimizer(model, spec)
        total = 0.0
        for step, index in enumerate(order):
            optimizer.param_groups[0]["lr"] = spec.rate(step)
            x, y = samples.features[index], samples.labels[index]
            if varied is not None:
                x = vary(x, torch.from_numpy(varied[step]))
            for parameter in trainable(model).values():
                parameter.grad = torch.zeros_like(parameter)  # also for unused ones
            if spec.clip is None:
                value = _losses(model, x, y, loss).mean()
                value.backward()  # type: ignore[no-untyped-call]  # untyped in PyTorch
                total += float(value.detach())
            else:
                share = batch_share(job.samples.size, spec, len(index))
                total += _clipped_gradient(model, x, y, loss, spec.clip, share)
                if job.noise_multiplier:
                    _add_noise(model, job.noise_multiplier * sensitivity(job.samples.size, spec), stream)
            optimizer.step()
        change = flat_parameters(model) - before
        releases = record_steps(job.samples.size, spec) if job.noise_multiplier else 0
        yield Update(job.client, change, total / len(order), len(order), releases)


def _losses(model: nn.Module, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
    z = model(x)
    if loss == "squared":
        squared: Tensor = (z - y.view(z.shape)).square().reshape(len(z), -1).sum(1) / 2
        return squared
    return nn.functional.cross_entropy(z, y, reduction="none")


def _optimizer(model: nn.Module, spec: LocalTraining) -> torch.optim.Optimizer:
    rate, decay, parameters = spec.learning_rate, spec.weight_decay, list(trainable(model).values())
    if spec.optimizer == "adam":
        return torch.optim.Adam(parameters, rate, weight_decay=decay)
    momentum = spec.momentum if spec.optimizer == "momentum" else 0.0
    return torch.optim.SGD(parameters, rate, momentum=momentum, weight_decay=decay)


def _clipped_gradient(
    model: nn.Module, x: Tensor, y: Tensor, loss: Loss, clip: float, share: float
) -> float:
    """Sum over samples of each gradient scaled to norm `clip` at most, times the share, left in .grad."""
    parameters = list(trainable(model).values())
    total = [torch.zeros_like(p) for p in parameters]
    value = 0.0
    for k in range(x.shape[0]):
        sample_loss = _losses(model, x[k : k + 1], y[k : k + 1], loss)[0]
        parts = torch.autograd.grad(sample_loss, parameters, materialize_grads=True)
        norm = torch.cat([g.flatten() for g in parts]).norm()
        if not norm.isfinite():
            continue  # it has no direction to clip along
        scale = share * float(clip_scale(norm, clip))
        for sum_of, g in zip(total, parts, strict=True):
            sum_of += scale * g
        value += share * float(sample_loss.detach())
    for parameter, g in zip(parameters, total, strict=True):
        parameter.grad = g
    return value


def _add_noise(model: nn.Module, sd: float, stream: Stream) -> None:
    parameters = list(trainable(model).values())
    noisy = torch.cat([_gradient(parameter).flatten() for parameter in parameters])
    stream.add_to(noisy, sd)
    parts = torch.split(noisy, [p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter).clone()


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
