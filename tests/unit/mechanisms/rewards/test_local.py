"""Local training and evaluation of one model per client on the engine, against the readable twins."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from bonafed.errors import InvalidValue
from bonafed.learning import models as architectures
from bonafed.learning.engine.jobs import Job, Samples
from bonafed.learning.engine.programs import flat_parameters, load_parameters, program_for
from bonafed.learning.engine.sequential import run_jobs_sequentially
from bonafed.learning.evaluate import evaluate, evaluate_models
from bonafed.learning.federation import Roster
from bonafed.learning.local import EngineFederation
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.rewards import LocalGlobal, LocalRounds, ModelRewards, run
from bonafed.mechanisms.rewards.judges import last_layers, layer_slices
from bonafed.mechanisms.rewards.local import ask

SIZES = (9, 14, 5, 20)
SPEC = LocalTraining(batch_size=6, learning_rate=0.01, epochs=1, optimizer="adam")
ROUNDS = LocalRounds(SPEC, seed=7)
# Adam's step is rate g/(|g| + 1e-8): where a gradient is near zero, it magnifies the rounding of g by
# rate/1e-8 = 1e6 at most. In single precision that turns rounding into signs. In double precision a
# gradient of these models, below 1 and a sum of fewer than 1,000 terms, is rounded by about 1e-15.
ROUNDING = 1e-9


def federation(seed=0, dtype=torch.float32, **options):
    """Four clients with 12 x 12 images and the small CNN."""
    g = torch.Generator().manual_seed(seed)
    n = sum(SIZES)
    features = torch.rand(n, 1, 12, 12, generator=g).to(dtype)
    samples = Samples(features, torch.randint(0, 4, (n,), generator=g))
    parts = [np.arange(a, b) for a, b in itertools.pairwise(np.cumsum([0, *SIZES]))]
    module = architectures.build("small-cnn", (1, 12, 12), 4, seed=3).to(dtype)
    roster = Roster(("ada", "ben", "cy", "di"), np.array(SIZES))
    return module, EngineFederation(roster, program_for(module), samples, parts, **options)


def different_models(module, seed=1):
    start = flat_parameters(module).numpy()
    noise = np.random.default_rng(seed).standard_normal((len(SIZES), start.size))
    return (start + 0.01 * noise).astype(start.dtype)


@pytest.mark.parametrize("round_number", [1, 3])
def test_every_client_trains_from_its_own_model(round_number):
    module, clients = federation(dtype=torch.float64)
    models, present = different_models(module), np.array([True, False, True, True])
    sent = ask(clients, ROUNDS, models, round_number, present)
    found = sent.updates
    rate = 0.01 * 0.977 ** (round_number - 1)  # falls from round to round; Adam is made anew
    who = np.flatnonzero(present)
    slow = [*run_jobs_sequentially(
        module, torch.from_numpy(models[who]), clients.samples, [Job(i, clients.parts[i]) for i in who],
        LocalTraining(6, rate, optimizer="adam"), seed=7, round_number=round_number,
    )]  # fmt: skip
    for i, update in zip(who, slow, strict=True):
        assert np.abs(found[i] - update.change.numpy()).max() < ROUNDING
    assert (found[1] == 0).all()
    assert (sent.present == present).all()
    assert not sent.failed.any()
    assert sent.steps == 2 + 1 + 4  # batches of 6 in 9, 5 and 20 samples
    assert sent.loss == pytest.approx(np.mean([update.loss for update in slow]), abs=1e-4)
    assert np.abs(found[0] - found[2]).max() > 1e-3


def test_training_does_not_depend_on_cores_and_can_be_stopped():
    module, one = federation()
    _, two = federation(cores=2)
    start = flat_parameters(module).numpy()
    method = ModelRewards([0.2, 0.5, 0.7, 1.0], recovery=0.3, participation=[0.6, 0.8, 1.0, 1.0], seed=2,
                          local=ROUNDS)  # fmt: skip
    whole, end = run(method, one, start, rounds=4)
    threaded, _ = run(method, two, start, rounds=4)
    assert (whole == threaded).all()
    middle = run(method, one, start, rounds=2)[1]
    assert (run(method, two, start, rounds=4, state=middle)[0] == whole).all()
    assert whole.dtype == np.float32
    assert end.models.shape == (4, flat_parameters(module).numel())


def test_double_precision_features_train_in_double():
    module = architectures.softmax_regression((4,), 3).double()
    g = torch.Generator().manual_seed(0)
    samples = Samples(torch.rand(12, 4, generator=g, dtype=torch.float64), torch.arange(12) % 3)
    parts = [np.arange(0, 5), np.arange(5, 12)]
    clients = EngineFederation(Roster(("0", "1"), np.array([5, 7])), program_for(module), samples, parts)
    local = LocalRounds(LocalTraining(20, 0.5))
    found = ask(clients, local, np.zeros((2, 15)), 1, np.ones(2, dtype=bool)).updates
    for part, update in zip(parts, found, strict=True):
        x, y = samples.features[part].numpy(), samples.labels[part].numpy()
        error = np.full((len(part), 3), 1 / 3) - np.eye(3)[y]
        expected = -0.5 * np.concatenate([(error.T @ x / len(part)).ravel(), error.mean(0)])
        assert update == pytest.approx(expected, abs=1e-14)


def test_models_are_scored_like_one_by_one():
    module, local = federation()
    models = different_models(module, seed=2)
    found = evaluate_models(local.program, models, local.samples)
    assert (evaluate_models(local.program, models, local.samples, cores=2).loss == found.loss).all()
    for k, row in enumerate(models):
        loss, accuracy = evaluate(local.program, torch.from_numpy(row), local.samples)
        assert found.loss[k] == pytest.approx(loss, abs=1e-6)
        assert found.accuracy[k] == accuracy
        with torch.no_grad():
            z = load_parameters(module, torch.from_numpy(row))(local.samples.features)
        assert found.accuracy[k] == float((z.argmax(1) == local.samples.labels).double().mean())


def test_large_sample_sets_are_scored_in_pieces():
    module = architectures.softmax_regression((2,), 2)
    g = torch.Generator().manual_seed(0)
    features = torch.randn(2500, 2, generator=g)
    samples = Samples(features, (features[:, 0] > 0).long())
    right = np.array([-1, 0, 1, 0, 0, 0], dtype=np.float32)
    found = evaluate_models(program_for(module), np.stack([right, -right]), samples)
    assert found.accuracy.tolist() == [1.0, 0.0]
    expected = np.log1p(np.exp(-2 * np.abs(features[:, 0].double().numpy()))).mean()
    assert found.loss[0] == pytest.approx(expected, abs=1e-6)


def test_regression_has_a_loss_and_no_accuracy():
    module = nn.Sequential(nn.Linear(2, 1))
    samples = Samples(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([1.0, 1.0]))
    found = evaluate_models(program_for(module, "squared"), np.zeros((3, 3), dtype=np.float32), samples)
    assert found.loss.tolist() == [0.5, 0.5, 0.5]
    assert np.isnan(found.accuracy).all()


def test_slices_of_layers():
    module = architectures.build("small-cnn", (1, 28, 28), 10, seed=0)
    arrays = [p.numel() for p in module.parameters()]
    slices = layer_slices(module)
    assert [s.stop - s.start for s in slices] == arrays
    assert slices[-1].stop == sum(arrays)
    dense = last_layers(module, 3)  # the paper shares the three dense layers
    assert dense.stop - dense.start == sum(arrays[-6:])
    assert dense.start == sum(arrays[:4])
    LocalGlobal(sizes=[1, 1], shared=dense).begin(flat_parameters(module).numpy())


def test_bad_input():
    module, local = federation()
    with pytest.raises(InvalidValue, match="models must be 4, one per client, got 3"):
        ask(local, ROUNDS, np.zeros((3, 5), dtype=np.float32), 1, np.ones(3, dtype=bool))
    with pytest.raises(InvalidValue, match=r"decay must be between 0 and 1, got 1\.5"):
        LocalRounds(decay=1.5)
    with pytest.raises(InvalidValue, match="cores must be a whole number of at least 1, got 0"):
        federation(cores=0)
    nothing = Samples(torch.zeros(0, 1, 12, 12), torch.zeros(0, dtype=torch.long))
    with pytest.raises(InvalidValue, match="samples must not be empty"):
        evaluate_models(local.program, different_models(module), nothing)
    with pytest.raises(InvalidValue, match="count must be below the number of layers, 1, got 1"):
        last_layers(architectures.softmax_regression((4,), 3), 1)
