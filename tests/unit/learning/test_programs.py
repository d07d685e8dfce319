"""Programs: which module runs how, and that it computes what the module does."""

import numpy as np
import pytest
import torch
from tests.oracles.twins import assert_same, both, image_samples, make, split
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

from bonafed.errors import InvalidValue
from bonafed.learning import programs
from bonafed.learning.federation import make_jobs
from bonafed.learning.jobs import LocalTraining
from bonafed.learning.programs import (
    MOST_SAMPLES,
    LayerProgram,
    VmapProgram,
    flat_parameters,
    load_parameters,
    program_for,
)
from bonafed.learning.workspace import reused_memory


class _Residual(nn.Linear):
    def forward(self, x):
        return super().forward(x) + x


class _Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


def _hooked():
    layer = nn.Linear(81, 4)
    layer.register_forward_hook(lambda _module, _inputs, output: output.square())
    return layer


class _Odd(nn.Module):
    def forward(self, weight):
        return weight - weight.flip(1)


def _odd():
    return register_parametrization(nn.Linear(81, 4), "weight", _Odd())


def _twice(layer):
    return nn.Sequential(nn.Flatten(), layer, nn.Tanh(), layer, nn.Linear(81, 4))


def _pooled(**options):
    return nn.Sequential(nn.MaxPool2d(2, **options), nn.Flatten(), nn.LazyLinear(4))


LOOKALIKES = {
    "dilated pool": lambda: _pooled(dilation=2),
    "pool of partial windows": lambda: _pooled(ceil_mode=True),
    "subclass of a layer": lambda: nn.Sequential(nn.Flatten(), _Residual(81, 81), nn.Linear(81, 4)),
    "subclass of a sequence": lambda: _Doubled(nn.Flatten(), nn.Linear(81, 4)),
    "hook": lambda: nn.Sequential(nn.Flatten(), _hooked()),
    "parametrised": lambda: nn.Sequential(nn.Flatten(), _odd()),
    "layer used twice": lambda: _twice(nn.Linear(81, 81)),
    "partly flattened": lambda: nn.Sequential(nn.Flatten(2), nn.Flatten(), nn.Linear(81, 4)),
}


@pytest.mark.parametrize("make_module", LOOKALIKES.values(), ids=LOOKALIKES)
def test_what_only_looks_like_a_known_layer_computes_what_it_computes(make_module):
    torch.manual_seed(0)
    module, samples = make_module(), image_samples(7, side=9)
    module(samples.features)  # lazy layers take their shape
    assert isinstance(program_for(module), VmapProgram)
    jobs = make_jobs(split((4, 3)), np.arange(2))
    for clip in (None, 0.5):
        assert_same(*both(module, samples, jobs, LocalTraining(3, 0.1, clip=clip)), 1e-6)


def test_pools_may_be_given_by_pairs():
    pool = nn.MaxPool2d((2, 2), stride=(2, 2))
    assert isinstance(program_for(nn.Sequential(pool, nn.Flatten(), nn.Linear(16, 4))), LayerProgram)


def test_gradients_of_samples_in_several_parts_are_those_in_one(monkeypatch):
    module, samples = nn.Sequential(nn.Flatten(), nn.Sigmoid(), nn.Linear(144, 4)), image_samples(20)
    jobs, spec = make_jobs(split((11, 9)), np.arange(2)), LocalTraining(11, 0.1, clip=0.5)
    whole, _ = both(module, samples, jobs, spec)
    monkeypatch.setattr(programs, "GRADIENT_NUMBERS", 4 * flat_parameters(module).numel())
    parts, slow = both(module, samples, jobs, spec)
    assert_same(parts, whole, 1e-7)
    assert_same(parts, slow, 1e-6)


def test_models_that_cannot_be_trained_as_one_vector_are_refused():
    frozen = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    frozen[0].weight.requires_grad_(False)
    for module, problem in (
        (frozen, r"must train all its parameters, got 0\.weight with requires_grad=False"),
        (
            nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)),
            r"must draw no random numbers .* got Dropout \(1\)",
        ),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "must have no buffers .* got 1.running_mean"),
        (nn.Sequential(nn.Flatten()), "must have parameters, got Sequential"),
    ):
        with pytest.raises(InvalidValue, match=f"^model {problem}"):
            program_for(module)
    program_for(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval())  # off


def stack(*parts: nn.Module) -> nn.Sequential:
    """A module with weights from a fixed seed."""
    torch.manual_seed(3)
    module = nn.Sequential(*parts)
    for layer in module:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    return module


ODD_SHAPES = {
    "odd sides, padding 1": ((2, 9, 11), lambda: stack(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3 * 4 * 5, 4))),
    "odd output, no padding": ((1, 10, 8), lambda: stack(
        nn.Conv2d(1, 2, 4), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2 * 3 * 2, 4))),
    "tanh before the pool, twice": ((1, 15, 15), lambda: stack(
        nn.Conv2d(1, 4, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3, padding=1), nn.Tanh(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5 * 3 * 3, 4))),
    "convolutions without and with a pool": ((2, 8, 8), lambda: stack(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 4))),
    "pool first": ((1, 9, 9), lambda: stack(
        nn.MaxPool2d(2), nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4))),
    "one block, wide filters": ((3, 6, 6), lambda: stack(
        nn.Conv2d(3, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 4))),
}  # fmt: skip


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("kind", ODD_SHAPES)
def test_stacked_layers_of_any_shape_agree_with_autograd(kind: str, clip: float | None):
    shape, make_module = ODD_SHAPES[kind]
    module = make_module().double()
    program = program_for(module)
    assert isinstance(program, LayerProgram)
    rng = torch.Generator().manual_seed(5)
    clients, batch = 3, 7
    weights = flat_parameters(module) + 0.1 * torch.randn(clients, program.size, generator=rng).double()
    x = torch.randn(clients, batch, *shape, generator=rng).double()
    x[:, :3] = 1.0  # constant images: equal values in every pool
    y = torch.randint(0, 4, (clients, batch), generator=rng)
    share = torch.full((clients, batch), 1 / batch, dtype=torch.float64)
    share[1, :5], share[1, 5:] = 1 / 5, 0
    loss, found = program.gradients(weights, x, y, share, clip)
    for k in range(clients):
        expected, total = torch.zeros(program.size).double(), 0.0
        mine = load_parameters(module, weights[k])
        chosen = [b for b in range(batch) if share[k, b]]
        for b in chosen:
            mine.zero_grad()
            value = nn.functional.cross_entropy(mine(x[k, b : b + 1]), y[k, b : b + 1])
            value.backward()
            total += float(value.detach())
            one = torch.cat([p.grad.flatten() for p in mine.parameters()])
            expected += one if clip is None else one * min(1.0, clip / float(one.norm()))
        assert torch.allclose(found[k], expected / len(chosen), rtol=1e-9, atol=1e-12)
        assert float(loss[k]) == pytest.approx(total / len(chosen))


def test_calls_are_sized_by_what_a_sample_keeps():
    small, large = program_for(make("small-cnn")), program_for(make("mnist-cnn"))
    sample = image_samples(1).features[0]
    assert small.samples_per_call(sample, clip=False) > large.samples_per_call(sample, clip=False)
    assert small.samples_per_call(sample, clip=True) <= small.samples_per_call(sample, clip=False)
    assert program_for(make("softmax")).samples_per_call(sample, clip=False) == MOST_SAMPLES


def test_memory_that_is_used_again_does_not_change_results():
    shape, make_module = ODD_SHAPES["convolutions without and with a pool"]
    program = program_for(make_module())
    rng = torch.Generator().manual_seed(6)
    weights = torch.randn(4, program.size, generator=rng) * 0.3
    calls = []
    for clients, batch in ((4, 6), (2, 9), (4, 6)):  # larger and smaller than before
        x = torch.randn(clients, batch, *shape, generator=rng)
        y = torch.randint(0, 4, (clients, batch), generator=rng)
        calls.append((weights[:clients], x, y, torch.full((clients, batch), 1 / batch)))
    for clip in (None, 0.5):
        fresh = [program.gradients(*call, clip) for call in calls]
        with reused_memory():
            again = [[part.clone() for part in program.gradients(*call, clip)] for call in calls]
        for one, other in zip(fresh, again, strict=True):
            assert torch.equal(one[0], other[0])
            assert torch.equal(one[1], other[1])
