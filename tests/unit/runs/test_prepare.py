"""What only the data can tell: refused before anything is written."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.oracles.settings import local_training, noise_multipliers, participation, parts, samples

from bonafed import InvalidValue, UnreadableFile
from bonafed.learning.data import datasets
from bonafed.learning.data.datasets import synthetic
from bonafed.learning.engine.programs import ModuleProgram
from bonafed.learning.sections import Data
from bonafed.mechanisms.sampling.convergence import proposition_1_rates
from bonafed.runs import config, prepare

PRIVACY = ["privacy.clip=1", "privacy.epsilon=2", "privacy.delta=1e-5"]
CONTRACT = ["sampling.prior=uniform:0.5,1.5", "sampling.total_budget=12"]
JSAM = ["jsam.prior=uniform:0,1", "jsam.budget=20", "jsam.noise_scale=1", "jsam.clip=1"]
UNEVEN = ["partition.kind=quantity_dirichlet", "partition.beta=1", "partition.minimum=5"]

BAD = [
    (["model.name=mlp"], "model.name must be one of softmax, small-cnn, mnist-cnn, "),
    (["model.name=small-cnn"], "model.name must be softmax unless features are square images, got (6,)"),
    (["model.name=text-lstm"], "model.name text-lstm must be used on text, got other features"),
    (["partition.clients=500"], "partition.clients must be at most the number of samples, 120, got 500"),
    (
        ["partition.kind=natural"],
        "partition.kind must not be natural: the data name no owners, got natural",
    ),
    (
        ["partition.kind=label_count", "partition.k=9"],
        "partition.k must be at most the number of classes, 3",
    ),
    (
        ["partition.kind=label_dirichlet", "partition.beta=x"],
        "partition.beta must be a number, got 'x'",
    ),
    (["training.optimizer=lion"], "training.optimizer must be one of sgd, momentum, adam, got 'lion'"),
    (
        ["training.optimizer=momentum", "training.momentum=1.5"],
        "training.momentum must be between 0 and 1, got 1.5",
    ),
    (
        ["training.on_bad_update=ignore"],
        "training.on_bad_update must be one of raise, skip, got 'ignore'",
    ),
    (
        ["training.learning_rate=proposition-1"],
        "training.smoothness must be set for proposition-1: no bound has been agreed on",
    ),
    (
        ["training.learning_rate_decay=1e-200", "training.rounds=9"],
        "training.learning_rate_decay must leave a learning rate above 0 after 9 rounds, got 1e-200",
    ),
    ([*PRIVACY, "privacy.clip=1e39"], "privacy.clip must not exceed 3.4e+38"),
    ([*JSAM, "jsam.clip=1e39"], "jsam.clip must not exceed 3.4e+38"),
    ([*PRIVACY, "privacy.delta=2"], "privacy.delta must be between 0 and 1, ends excluded, got 2.0"),
    ([*CONTRACT, "sampling.scheme=best"], "sampling.scheme must be one of optimal, uniform, complete"),
    (
        [*CONTRACT, "sampling.scheme=uniform", "sampling.confidence=0.9"],
        "sampling.confidence must not be given unless scheme is optimal (it is uniform), got 0.9",
    ),
    ([*CONTRACT, "sampling.confidence=2"], "sampling.confidence must be between 0 and 1, ends excluded"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[c[-1] for c, _ in BAD])
def test_what_does_not_fit_the_data_is_refused(make, small, changes, message):
    with pytest.raises(InvalidValue) as refused:
        prepare.prepare(make(*changes), dataset=small)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    "option",
    ["label_count k=2", "label_dirichlet beta=1", "similarity s=50", "typicality delta=0.5"],
)
def test_partitions_by_class_are_refused_where_there_are_none(make, option):
    kind, key = option.split()
    with pytest.raises(InvalidValue) as refused:
        prepare.prepare(make(f"partition.kind={kind}", f"partition.{key}"), dataset=synthetic("ridge"))
    rule = f"partition.kind must not be {kind}: it needs classes, and labels are real numbers, got {kind}"
    assert str(refused.value) == rule


def test_unknown_and_missing_data_are_named(make, tmp_path, monkeypatch):
    with pytest.raises(InvalidValue, match=r"^data\.name must be one of digits, mnist"):
        prepare.prepare(make("data.name=letters"))
    with pytest.raises(UnreadableFile, match="no such folder, looking for mnist"):
        prepare.prepare(make("data.name=mnist", f"data.folder={tmp_path / 'none'}"))
    with pytest.raises(UnreadableFile, match=r"mine\.npz"):
        prepare.prepare(make(f"data.name={tmp_path / 'mine.npz'}"))


def test_own_files_are_checked_and_found_from_any_folder(make, tmp_path, monkeypatch, small):
    monkeypatch.chdir(tmp_path)
    np.savez("mine.npz", features=small.features, labels=small.labels)
    made = prepare.prepare(make("data.name=mine.npz"))
    assert made.config.data.name == str(tmp_path / "mine.npz")
    assert made.test.features.shape[0] == 0
    spoilt = small.features.copy()
    spoilt[7, 2] = np.nan
    np.savez("mine.npz", features=spoilt, labels=small.labels)
    with pytest.raises(UnreadableFile, match="features must be finite, got nan in sample 7"):
        prepare.prepare(make("data.name=mine.npz"))
    np.savez("mine.npz", features=small.features, labels=small.labels - 1)
    with pytest.raises(UnreadableFile, match=r"labels must be in 0\.\..*, got -1 in sample 0"):
        prepare.prepare(make("data.name=mine.npz"))


def test_own_files_are_looked_for_in_the_folder_of_the_data(make, tmp_path, monkeypatch, small):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there" / "deep").mkdir(parents=True)
    np.savez("mine.npz", features=small.features, labels=small.labels)
    for place in ("there/mine.npz", "there/deep/mine.npz"):
        np.savez(place, features=small.features[:60], labels=small.labels[:60])
    for name, folder in (("mine.npz", "there"), ("deep/mine.npz", tmp_path / "there")):
        made = prepare.prepare(make(f"data.name={name}", f"data.folder={folder}"))
        assert len(samples(made).labels) == 60
        assert made.config.data == Data(str(tmp_path / "there" / name))
        assert prepare.prepare(made.config).digest == made.digest
    with pytest.raises(UnreadableFile, match=r"there/other\.npz: No such file"):
        prepare.prepare(make("data.name=other.npz", "data.folder=there"))
    path = tmp_path / "mine.npz"
    with pytest.raises(InvalidValue) as refused:
        prepare.prepare(make(f"data.name={path}", "data.folder=there"))
    rule = f"data.folder must not be given with an absolute name, {path}, got {tmp_path / 'there'}"
    assert str(refused.value) == rule
    with pytest.raises(InvalidValue, match=r"^folder must not be given with an absolute name"):
        datasets.load(str(path), folder=tmp_path)


def test_images_with_channels_last_are_told_that_channels_come_first(make):
    last = np.zeros((8, 16, 16, 3), dtype=np.uint8)
    asked, labels = make("model.name=small-cnn"), np.arange(8) % 2
    with pytest.raises(InvalidValue) as refused:
        prepare.prepare(asked, dataset=datasets.from_arrays("last", last, labels))
    rule = "model.name must be softmax unless features are square images, channels first as in (3, 16, 16)"
    assert str(refused.value) == f"{rule}, got (16, 16, 3)"
    prepare.prepare(asked, dataset=datasets.from_arrays("first", last.transpose(0, 3, 1, 2), labels))


def test_a_label_out_of_range_names_the_client(make, small):
    labels = small.labels.copy()
    labels[10] = 7
    by_size = make("partition.kind=quantity_dirichlet", "partition.beta=100")  # which asks for no label
    made = prepare.prepare(by_size, dataset=small)
    owner = next(k for k, part in enumerate(parts(made)) if 10 in part)
    with pytest.raises(
        InvalidValue, match=rf"^labels of client {owner} must be in 0\.\.2, got 7 in sample 10$"
    ):
        prepare.prepare(by_size, dataset=replace(small, labels=labels))


def test_bad_test_data_are_refused(make, small):
    labels, features = small.test_labels.copy(), small.test_features.copy()
    labels[4], features[7, 0] = 3, np.nan
    for changed, rule in (
        ({"test_labels": labels}, r"test_labels must be in 0\.\.2, got 3 in sample 4"),
        ({"test_features": features}, r"test_features must be finite, got NaN or inf in sample 7"),
    ):
        with pytest.raises(InvalidValue, match=f"^{rule}$"):
            prepare.prepare(make(), dataset=replace(small, **changed))


def test_constants_of_the_data_are_not_those_of_noisy_data(make):
    changes = ("data.name=synthetic", "training.learning_rate=proposition-1",
               "partition.kind=feature_noise", "partition.sigma=1.0")  # fmt: skip
    with pytest.raises(InvalidValue, match=r"^training\.smoothness must be set for proposition-1"):
        prepare.prepare(make(*changes))
    assert prepare.prepare(make(*changes, "training.smoothness=40")).config.training.smoothness == 40


@pytest.mark.parametrize("private", [PRIVACY, JSAM], ids=["privacy", "jsam"])
def test_the_longest_private_record_does_not_set_the_learning_rate(make, private):
    changes = ("data.name=synthetic", "training.learning_rate=proposition-1", *private)
    rule = "must be set for proposition-1 in private training: one computed from the data leaks"
    with pytest.raises(InvalidValue, match=rf"^training\.smoothness {rule}$"):
        prepare.prepare(make(*changes))
    assert prepare.prepare(make(*changes, "training.smoothness=40")).config.training.smoothness == 40


def test_layers_on_shapes_that_only_pytorch_takes(make, small):
    """A linear layer along the last axis of images: PyTorch runs it, the program written out does not."""
    rows = replace(small, features=small.features.reshape(-1, 1, 2, 3),
                   test_features=small.test_features.reshape(-1, 1, 2, 3))  # fmt: skip
    own = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 3)
    )
    made = prepare.prepare(make(), dataset=rows, module=own)
    assert isinstance(made.program, ModuleProgram)
    z = made.program.outputs(torch.from_numpy(made.start)[None], samples(made).features[None])[0]
    assert torch.allclose(z, own(samples(made).features), atol=1e-6)


def test_an_own_module_must_fit(make, small):
    good = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    assert prepare.prepare(make(), dataset=small, module=good).program.size == 53
    with pytest.raises(
        InvalidValue, match=r"^model must have 3 outputs, as the largest label is 2, got 2$"
    ):
        prepare.prepare(make(), dataset=small, module=torch.nn.Sequential(torch.nn.Linear(6, 2)))
    with pytest.raises(InvalidValue, match=r"^model must run on samples of shape \(6,\)"):
        prepare.prepare(make(), dataset=small, module=torch.nn.Sequential(torch.nn.Linear(4, 3)))
    with pytest.raises(InvalidValue, match=r"^model must be a torch\.nn\.Module, got function$"):
        prepare.prepare(make(), dataset=small, module=lambda x: x)
    normed = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.BatchNorm1d(3))
    with pytest.raises(InvalidValue, match=r"^model must not mix .* got BatchNorm1d \(1\)$"):
        prepare.prepare(make(), dataset=small, module=normed)

    class Pair(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    class Grid(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x)[:, :, None]

    for module, shown in ((Pair(6, 3), "tuple"), (Grid(6, 3), r"\(1, 3, 1\)")):
        rule = r"outputs of the model must be one tensor \(samples, outputs\)"
        with pytest.raises(InvalidValue, match=f"^{rule}, got {shown}$"):
            prepare.prepare(make(), dataset=small, module=module)


def test_everything_open_is_resolved(make, small):
    data = replace(small, groups=np.arange(120) % 6)
    tables = config.to_tables(make("partition.kind=natural", "run.cores=0"))
    del tables["partition"]["clients"]
    made = prepare.prepare(config.from_tables(tables), dataset=data).config
    assert made.partition.clients == 6
    assert made.run.cores == 0  # of the machine that resumes it
    assert made.run.cores_here >= 1
    assert made.training.weight_decay == 0.0


def test_feature_noise_is_added_to_the_training_data_only(make, small):
    made = prepare.prepare(make("partition.kind=feature_noise", "partition.sigma=1"), dataset=small)
    change = samples(made).features.numpy() - small.features
    spread = [change[part].std() for part in parts(made)]
    assert np.allclose(spread, np.sqrt([0.25, 0.5, 0.75, 1.0]), rtol=0.2)
    assert np.array_equal(made.test.features.numpy(), small.test_features)


def test_participation_is_a_share_of_the_clients_and_repeats_itself(make, small):
    made = prepare.prepare(make("training.participation=0.5"), dataset=small)
    rounds = [participation(made, number) for number in (1, 2, 3, 4, 5)]
    assert all(who.clients.size == 2 for who in rounds)
    assert all(np.isclose(who.weights.sum(), 1) for who in rounds)
    assert len({tuple(who.clients) for who in rounds}) > 1
    assert np.array_equal(participation(made, 2).clients, rounds[1].clients)
    least = prepare.prepare(make("training.participation=0.01"), dataset=small)
    assert participation(least, 1).clients.size == 1


def test_the_rates_of_proposition_1_come_from_the_data(make):
    data = synthetic(samples=100, clients=4, seed=1)
    made = prepare.prepare(
        make("training.learning_rate=proposition-1", "training.steps=6", "partition.kind=natural"),
        dataset=data,
    )
    assert made.config.training.weight_decay == data.strong_convexity == local_training(made).weight_decay
    for r in (1, 2, 3, 4, 5):
        expected = proposition_1_rates(data.smoothness, data.strong_convexity, 6, r).tolist()
        spec = local_training(made, r)
        assert [spec.rate(step) for step in range(6)] == expected
    assert made.config.training.steps == local_training(made).steps == 6


def test_the_rates_of_proposition_1_fall_from_step_to_step_and_go_on_in_the_next_round(make):
    constants = ("training.smoothness=2", "training.strong_convexity=0.5", "training.rounds=3")
    passes = ("training.epochs=2", "training.batch_size=10")
    made = prepare.prepare(
        make("training.learning_rate=proposition-1", *constants, *passes, *UNEVEN),
        dataset=synthetic(samples=100, clients=4, seed=1),
    )
    most = 2 * max(-(-part.size // 10) for part in parts(made))  # E: that of the client with most steps
    assert min(part.size for part in parts(made)) < max(part.size for part in parts(made))
    found = [local_training(made, r).rate(step) for r in (1, 2, 3) for step in range(most)]
    expected = [2 / (max(8 * 2, 0.5 * most) + 0.5 * t) for t in range(3 * most)]
    assert np.allclose(found, expected, rtol=1e-15)


def test_the_printed_rates_of_proposition_1_fall_from_round_to_round_only(make):
    rates = {}
    for name in ("proposition-1", "proposition-1-printed"):
        made = prepare.prepare(
            make(f"training.learning_rate={name}", "training.steps=6", "partition.kind=natural"),
            dataset=synthetic(samples=100, clients=4, seed=1),
        )
        rates[name] = [[local_training(made, r).rate(step) for step in range(6)] for r in (1, 2, 5)]
        lip, mu = made.config.training.smoothness, made.config.training.strong_convexity
    printed = [2 / (max(8 * lip, 6 * mu) + mu * r) for r in (0, 1, 4)]
    assert np.allclose(rates["proposition-1-printed"], np.array(printed)[:, None], rtol=1e-15)
    assert rates["proposition-1"][0][0] == rates["proposition-1-printed"][0][0]
    assert np.less(rates["proposition-1"][1:], rates["proposition-1-printed"][1:]).all()


def test_noise_is_for_the_releases_each_record_will_be_in(make, small):
    made = prepare.prepare(make(*PRIVACY, "training.participation=0.5"), dataset=small)
    turns = np.zeros(4)
    for number in range(1, 6):
        turns[participation(made, number).clients] += 1
    assert max(part.size for part in parts(made)) > 8  # several steps per pass: each record is in one
    positive = turns > 0
    multipliers = noise_multipliers(made)
    ratio = multipliers[positive] / np.sqrt(turns[positive])
    assert np.allclose(ratio, ratio[0], rtol=1e-12)
    assert np.array_equal(multipliers == 0, turns == 0)


def test_the_digest_tells_data_and_partitions_apart(make, small):
    digests = [prepare.prepare(make(), dataset=small).digest for _ in range(2)]
    labels = small.labels.copy()
    labels[0] = (labels[0] + 1) % 3
    digests.append(prepare.prepare(make(), dataset=replace(small, labels=labels)).digest)
    digests.append(prepare.prepare(make("run.seed=4"), dataset=small).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
