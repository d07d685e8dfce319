"""Programs: which module runs how, and that it computes what the module does."""

import numpy as np
import pytest
import torch
from tests.oracles.rounds import make_jobs
from tests.oracles.twins import assert_same, both, image_samples, make, split
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

from bonafed.errors import InvalidValue
from bonafed.learning import models
from bonafed.learning.engine import programs
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import (
    MOST_SAMPLES,
    ModuleProgram,
    flat_parameters,
    load_parameters,
    program_for,
)
from bonafed.learning.engine.resources import reused_memory
from bonafed.learning.engine.stacks import LayerProgram
from bonafed.learning.work import LocalTraining


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


class _Counter(nn.Linear):
    """Counts what it sees."""

    def __init__(self):
        super().__init__(2, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += len(x)
        return super().forward(x)


class _Scaled(nn.Module):
    """Constants beside parameters."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.full((144,), 0.3))
        self.head = nn.Linear(144, 4)

    def forward(self, x):
        return self.head(x.flatten(1) - self.mean)


class _Recurrent(nn.Module):
    """Layers that vmap cannot run."""

    def __init__(self, kind):
        super().__init__()
        self.rows, self.head = kind(12, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, x):
        return self.head(self.rows(x[:, 0])[0][:, -1])


class _Branch(nn.Module):
    """An `if` on values."""

    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(144, 4), nn.Linear(144, 4)

    def forward(self, x):
        flat = x.flatten(1)
        return torch.stack([(self.large if one.sum() > 36 else self.small)(one) for one in flat])


def _frozen():
    module = nn.Sequential(nn.Flatten(), nn.Linear(144, 8), nn.ReLU(), nn.Linear(8, 4))
    module[1].requires_grad_(False)
    return module


ANY = {
    "LSTM": lambda: _Recurrent(nn.LSTM),
    "GRU": lambda: _Recurrent(nn.GRU),
    "if on values": _Branch,
    "constant buffers": _Scaled,
    "frozen layer": _frozen,
    "batch norm, not training": lambda: nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(144), nn.Linear(144, 4)
    ).eval(),
}


@pytest.mark.parametrize(
    "option",
    [{}, {"clip": 0.5}, {"optimizer": "momentum", "weight_decay": 0.1}, {"clip": 0.5, "epochs": 2}],
)
@pytest.mark.parametrize("kind", ANY)
def test_any_module_trains_as_its_twin(kind, option):
    torch.manual_seed(0)
    module, samples = ANY[kind](), image_samples(15)
    jobs = make_jobs(split((7, 3, 5)), np.arange(3), [0.0, 0.0, 0.7 if "clip" in option else 0.0])
    before = {name: value.clone() for name, value in module.state_dict().items()}
    fast, slow = both(module, samples, jobs, LocalTraining(3, 0.1, **option), sample=samples.features[:1])
    assert_same(fast, slow, 1e-6)
    assert fast[0].change.numel() == sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", ["residual", "text"])
def test_one_by_one_is_the_same_as_together(name, clip, monkeypatch):
    module, x, y = BY_NAME[name]()
    weights = flat_parameters(module) + 0.01 * torch.randn(3, 1, generator=torch.Generator().manual_seed(1))
    weights, share = weights.double(), torch.full(y.shape, 1 / y.shape[1], dtype=torch.float64)
    found = []
    for most in (0, 1 << 60):
        monkeypatch.setattr(programs, "STACKED_BATCH", most)
        monkeypatch.setattr(programs, "STACKED_SAMPLE", most)
        found.append(ModuleProgram(module.double(), "cross-entropy").gradients(weights, x, y, share, clip))
    for alone, stacked in zip(*found, strict=True):
        assert torch.allclose(alone, stacked, rtol=1e-9, atol=1e-12)


def _residual():
    torch.manual_seed(0)
    module = nn.Sequential(
        models._Block(3, 8, 2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    return module, torch.randn(3, 5, 3, 8, 8).double(), torch.randint(0, 4, (3, 5))


def _text():
    torch.manual_seed(0)
    return models.TextLSTM(30, 4, 6, 5), torch.randint(0, 30, (3, 5, 7)), torch.randint(0, 4, (3, 5))


BY_NAME = {"residual": _residual, "text": _text}

HUGE = {
    "softmax": lambda: make("softmax"),
    "small-cnn": lambda: make("small-cnn"),
    "stacked": lambda: nn.Sequential(nn.Flatten(), nn.Sigmoid(), nn.Linear(144, 4)),
    "one by one": lambda: _Recurrent(nn.LSTM),
}


@pytest.mark.parametrize("huge", [3e38, 1e25])
@pytest.mark.parametrize("kind", HUGE)
def test_no_sample_moves_a_private_step_by_more_than_the_clip(kind, huge):
    """The sensitivity holds for every record there can be, also one whose gradient overflows."""
    torch.manual_seed(0)
    module, clean = HUGE[kind](), image_samples(6)
    other = Samples(clean.features.clone(), clean.labels)
    other.features[2] = huge
    spec, jobs, clip = LocalTraining(6, 1.0, clip=0.5), make_jobs([np.arange(6)], np.arange(1)), 0.5
    (without, _), (beside, twin) = (
        both(module, samples, jobs, spec, sample=clean.features[:1]) for samples in (clean, other)
    )
    assert bool(beside[0].change.isfinite().all())
    moved = (beside[0].change.double() - without[0].change.double()).norm()
    assert 0 < float(moved) <= 2 * clip / 6
    assert_same(beside, twin, 1e-6)


@pytest.mark.parametrize("kind", [*HUGE, "vmap of images"])
def test_clipped_gradients_are_not_longer_than_the_clip_when_rounded(kind):
    torch.manual_seed(0)
    module, samples = HUGE.get(kind, lambda: make("small-cnn"))(), image_samples(200)
    program = (
        (ModuleProgram(module, "cross-entropy") if kind == "vmap of images" else program_for(module))
        if kind != "one by one"
        else ModuleProgram(module, "cross-entropy", one_by_one=True)
    )
    weights = flat_parameters(module).expand(200, -1).contiguous()
    share = torch.ones(200, 1)
    _, grads = program.gradients(weights, samples.features[:, None], samples.labels[:, None], share, 1e-3)
    norms = grads.double().norm(dim=1)
    assert float(norms.max()) <= 1e-3
    assert float(norms.min()) >= 0.9996e-3  # `CLIP_MARGIN`


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
    assert isinstance(program_for(module), ModuleProgram)
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
    frozen = nn.Linear(2, 2).requires_grad_(False)
    for module, problem in (
        (frozen, "must have parameters that train, got Linear"),
        (
            nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)),
            r"must draw no random numbers .* got Dropout \(1\)",
        ),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), r"must not mix .* got BatchNorm1d \(1\)"),
        (nn.Sequential(nn.Flatten()), "must have parameters that train, got Sequential"),
        (_Counter(), "must not change its buffers while it trains, got seen"),
    ):
        with pytest.raises(InvalidValue, match=f"^model {problem}"):
            program_for(module, sample=torch.ones(1, 2))
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


@pytest.mark.parametrize("clip", [1e-8, 1e-5, 1.0])
def test_no_gradient_is_longer_than_the_clip_even_if_its_square_is_no_number(clip):
    """The square of a short signal is 0 in single precision, whatever feature it is multiplied by."""
    module = nn.Sequential(nn.Linear(3, 1))
    program = program_for(module, "squared")
    x = torch.tensor([[[1.8e19, 0.0, 0.0]]])
    for target in (2.6e-23, 1e-21, 1e-19, 1e-15):
        grad = program.gradients(torch.zeros(1, 4), x, torch.tensor([[target]]), torch.ones(1, 1), clip)[1]
        assert float(grad.double().norm()) <= clip
