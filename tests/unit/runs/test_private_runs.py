"""What a private run's folder gives away: noise that stays on, and nothing besides what was released."""

import hashlib
import json
import stat
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.oracles.rounds import run_round
from tests.oracles.settings import local_training, noise_multipliers, participation, parts, samples

from bonafed.errors import InvalidValue
from bonafed.learning.data import datasets
from bonafed.learning.engine import groups
from bonafed.learning.engine.jobs import Job, batches, job_rng
from bonafed.learning.noise import (
    NoiseTask,
    Reproducible,
    Secret,
    digest,
    digest_of_samples,
    digest_of_training,
    unit,
)
from bonafed.learning.privacy import Ledger, Release, reserve
from bonafed.learning.work import largest_sum, record_steps, sampling_rate
from bonafed.runs import config, folder, prepare, private, training

PRIVACY = ("privacy.clip=1", "privacy.epsilon=1", "privacy.delta=1e-5")
JSAM = ("jsam.prior=uniform:0,1", "jsam.budget=20", "jsam.noise_scale=1", "jsam.clip=1",
        "jsam.clients_per_round=3")  # fmt: skip
CAPPED = ("jsam.max_epsilon=3", "jsam.budget=", "jsam.eta=5")
FAITHFUL = {
    "data": {"name": "small"},
    "partition": {"kind": "natural"},
    "model": {"name": "softmax"},
    "faithful": {"regulariser": 0.05, "training_steps": 12, "payment_steps": 3},
    "privacy": {"epsilon": 5.0, "delta": 1e-3},
    "run": {"seed": 3, "evaluate_every": 4},
}


def candidates(place, made):
    """Noise of the one release of the run, by everything that its folder tells."""
    seed = json.loads((place / "versions.json").read_text())["seed"]
    assert config.read(place / "config.toml").run.seed == seed
    (line,) = folder.read_rounds(place)
    ((name, multiplier, *_),) = line["releases"]
    client = int(name)
    part, spec, start = parts(made)[client], local_training(made), torch.tensor(folder.read_start(place))
    job, sd = (
        Job(client, part, noise_multiplier=multiplier),
        multiplier * 2 * spec.clip / parts(made)[0].size,
    )
    task = NoiseTask.of(
        job, digest_of_training(spec, seed), 1, digest(start), digest_of_samples(samples(made))
    )
    published = json.loads((place / "versions.json").read_text())["data"]
    keys = [bytes(32), hashlib.sha256(str(seed).encode()).digest(), seed.to_bytes(32, "big"),
            seed.to_bytes(32, "little"), bytes.fromhex(published), bytes.fromhex(made.digest)]  # fmt: skip
    for source in (Reproducible(seed), *map(Secret, keys)):
        values = torch.zeros_like(start)
        source.stream(task).add_to(values, sd)
        yield values
    rng = job_rng(seed, 1, job)  # as it was once
    batches(job, spec, rng)
    yield torch.from_numpy(sd * rng.standard_normal(start.numel(), dtype=np.float32))


@pytest.mark.parametrize("kind", ["secret", "reproducible"])
def test_noise_is_taken_off_again_only_if_it_is_reproducible(make, small, tmp_path, kind):
    """At epsilon 1, from the folder of the finished run, the gradient that the noise was to hide."""
    asked = make(*PRIVACY, f"privacy.noise={kind}", "partition.clients=1", "training.rounds=1",
                 "training.batch_size=120", "training.learning_rate=1", "training.epochs=1")  # fmt: skip
    made, place = prepare.prepare(asked, dataset=small), tmp_path / "run"
    summary = training.train(made, place).summary
    start = torch.from_numpy(made.start)
    exact = run_round(
        made.program, start, samples(made), parts(made), participation(made, 1), local_training(made),
        seed=3, round_number=1,
    ).weights  # fmt: skip
    gradient = start - exact
    release = torch.tensor(folder.read_start(place) - folder.read_checkpoint(place).state["model"])
    sd = float(noise_multipliers(made)[0]) * 2 / 120
    errors = [
        float((release - noise - gradient).square().mean().sqrt()) for noise in candidates(place, made)
    ]
    if kind == "reproducible":
        assert min(errors) <= unit(sd)  # all that rounding leaves
        assert any("protects nobody" in note for note in summary["notes"])
    else:
        assert min(errors) > 0.7 * sd
        assert not any("protects nobody" in note for note in summary["notes"])


def neighbours():
    """Two data sets that differ in one record, the only one of the last class, and a long one."""
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((60, 6)).astype(np.float32), np.arange(60) % 2
    one = features.copy(), labels.copy()
    one[0][7] *= 50
    one[1][7] = 2
    test = {"test_features": features[:9], "test_labels": labels[:9], "groups": np.arange(60) // 15}
    return [datasets.from_arrays("small", *each, **test) for each in (one, (features, labels))]


@pytest.fixture
def same_releases(monkeypatch):
    """What is released with noise does not depend on the data; all the rest is as it is."""

    def fixed(count, sd):
        return sd * np.cos(np.arange(count))

    def add(gradients, streams, sds):
        assert len(streams) == len(sds) == len(gradients)
        for row, sd in zip(gradients, sds, strict=True):
            row.copy_(torch.from_numpy(fixed(row.numel(), sd)))

    def noisy(self, values, sd, asked, released):
        return fixed(np.size(values), sd).reshape(np.shape(values))

    monkeypatch.setattr(groups, "add_noise", add)
    monkeypatch.setattr(Secret, "noisy", noisy)


HELD = {"config.toml", "versions.json", "start.npy", "metrics.jsonl", "checkpoint.npz", "model.pt",
        "SHA256SUMS", "summary.json"}  # fmt: skip
AGREED = {"agreement.json", "contract.json"}  # where something was


def assert_no_trace(one, other):
    """Two folders that differ in nothing but the keyed digest of the data, and digests of that."""
    names = {path.name for path in one.iterdir()}
    assert names == {path.name for path in other.iterdir()}
    assert HELD <= names <= HELD | AGREED
    for name in names - {"versions.json", "checkpoint.npz", "SHA256SUMS"}:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    with np.load(one / "checkpoint.npz") as mine, np.load(other / "checkpoint.npz") as yours:
        assert mine.files == yours.files
        changed = [name for name in mine if mine[name].tobytes() != yours[name].tobytes()]
    assert changed == ["began"]  # a digest of that of versions.json
    lines = [(place / "SHA256SUMS").read_text().splitlines() for place in (one, other)]
    assert all(first != second for first, second in zip(*(pair[:2] for pair in lines), strict=True))
    differing = {line.split("  ")[1] for line in {*lines[0][2:]} ^ {*lines[1][2:]}}
    assert differing == {"versions.json", "checkpoint.npz"}
    first, second = (json.loads((place / "versions.json").read_text()) for place in (one, other))
    assert first.pop("data") != second.pop("data")
    assert first == second


@pytest.mark.usefixtures("same_releases")
@pytest.mark.parametrize(
    "changes",
    [
        PRIVACY,
        (*PRIVACY, "training.on_bad_update=skip", "training.participation=0.5"),
        (*PRIVACY, "training.optimizer=adam", "training.epochs=2", "training.learning_rate=1e-3"),
        (*PRIVACY, "sampling.prior=uniform:0.5,1.5", "sampling.total_budget=12"),
        JSAM,
        (*PRIVACY, "privacy.noise_at=sum", "training.steps=1", "training.on_bad_update=skip"),
        (*PRIVACY, "privacy.noise_at=sum", "training.steps=1", "sampling.prior=uniform:0.5,1.5",
         "sampling.total_budget=12"),
        (*JSAM, "jsam.noise_at=sum"),
    ],
)  # fmt: skip
def test_folders_of_neighbours_differ_in_nothing_that_has_no_noise(make, tmp_path, changes):
    asked = make(*changes, "partition.kind=natural", "partition.clients=4", "data.classes=3")
    for name, data in zip(("one", "other"), neighbours(), strict=True):
        training.train(prepare.prepare(asked, dataset=data), tmp_path / name / "run", clock=lambda: 0.0)
    assert_no_trace(tmp_path / "one" / "run", tmp_path / "other" / "run")


@pytest.mark.usefixtures("same_releases")
def test_folders_of_neighbours_of_faithful_learning_differ_in_nothing_that_has_no_noise(tmp_path):
    tables = {**FAITHFUL, "data": {"name": "small", "classes": 3}}
    for name, data in zip(("one", "other"), neighbours(), strict=True):
        made = prepare.prepare(config.from_tables(tables), dataset=data)
        training.train(made, tmp_path / name / "run", clock=lambda: 0.0)
    assert_no_trace(tmp_path / "one" / "run", tmp_path / "other" / "run")


def test_what_is_published_of_the_data_is_keyed(make, small, tmp_path):
    """A plain digest would tell which of two guesses at a record is right."""
    found = []
    for place in (tmp_path / "one", tmp_path / "other"):
        made = prepare.prepare(make(*PRIVACY), dataset=small)
        training.train(made, place)
        found.append(json.loads((place / "versions.json").read_text())["data"])
        assert found[-1] != made.digest
    assert found[0] != found[1]


@pytest.mark.parametrize("tables", [None, FAITHFUL])
def test_private_runs_want_their_classes_stated(make, tables):
    data = neighbours()[0]
    rule = r"^data\.classes is required in a private run: that of the data follows from the largest"
    asked = make(*PRIVACY, "partition.kind=natural") if tables is None else config.from_tables(tables)
    with pytest.raises(InvalidValue, match=rule):
        prepare.prepare(asked, dataset=data)
    assert prepare.prepare(make("partition.kind=natural"), dataset=data).agreement.members.classes == 3
    more = prepare.prepare(make(*PRIVACY, "partition.kind=natural", "data.classes=5"), dataset=data)
    assert more.module[-1].out_features == 5
    with pytest.raises(InvalidValue, match=r"must be in 0\.\.1, got 2 in sample 7"):
        prepare.prepare(make(*PRIVACY, "partition.kind=natural", "data.classes=2"), dataset=data)
    known = replace(data, classes_stated=True)
    with pytest.raises(InvalidValue, match=r"^data\.classes must be 3 for these data, got 4"):
        prepare.prepare(make("partition.kind=natural", "data.classes=4"), dataset=known)


def test_nobody_is_told_whose_update_was_bad(make, small, tmp_path):
    changes = (
        "privacy.clip=100",
        "training.learning_rate=1e38",
        "training.on_bad_update=skip",
        "training.rounds=1",
    )
    made = prepare.prepare(make(*PRIVACY, *changes, "training.steps=3"), dataset=small)
    summary = training.train(made, tmp_path / "run").summary
    assert (summary["failures"], summary["failed_clients"]) == (0, [])
    state = folder.read_checkpoint(tmp_path / "run").state
    assert np.array_equal(state["model"], made.start)
    assert np.array_equal(state["delivered"], state["participations"])


def test_losses_are_not_asked_in_clear_unless_that_was_accepted(make):
    bbm = (*JSAM, "jsam.scheme=largest losses", "jsam.members=2")
    with pytest.raises(InvalidValue, match=r"^jsam\.clear_losses must be true for largest losses: every"):
        make(*bbm)
    make(*bbm, "jsam.clear_losses=true")
    with pytest.raises(InvalidValue, match=r"^jsam\.clear_losses must not be true unless scheme is"):
        make(*JSAM, "jsam.clear_losses=true")


def test_the_secret_lies_apart_is_needed_to_resume_and_is_gone_at_the_end(make, small, tmp_path, kill_in):
    made, place = prepare.prepare(make(*PRIVACY), dataset=small), tmp_path / "run"
    with pytest.raises(kill_in.error):
        training.train(made, place, on_round=kill_in(2))
    apart = private.private_folder(place)
    secret = apart / "noise.secret"
    assert stat.S_IMODE(apart.stat().st_mode) == 0o700
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    kept = secret.read_bytes()
    assert len(kept) == 32
    assert not any(kept in path.read_bytes() or kept.hex().encode() in path.read_bytes()
                   for path in place.iterdir())  # fmt: skip
    secret.unlink()
    with pytest.raises(InvalidValue, match=r"noise\.secret must exist to resume: the noise of a"):
        training.train(made, place, resume=True)
    secret.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(kept)
    with pytest.raises(InvalidValue, match="must exist to resume"):
        training.train(made, place, resume=True)
    secret.unlink()
    secret.write_bytes(kept)
    training.train(made, place, resume=True)
    assert not apart.exists()
    assert training.train(made, place, resume=True).summary == folder.read_json(place, folder.SUMMARY)


def test_what_only_a_simulation_knows_lies_apart(make, small, tmp_path):
    made = prepare.prepare(make(*JSAM), dataset=small)
    training.train(made, tmp_path / "run")
    apart = private.private_folder(tmp_path / "run")
    assert [path.name for path in apart.iterdir()] == [private.SIMULATION]
    assert stat.S_IMODE((apart / private.SIMULATION).stat().st_mode) == 0o600
    kept = json.loads((apart / private.SIMULATION).read_text())
    assert kept["costs"] == dict(made.agreement.reports)


def test_a_private_file_is_not_put_where_something_else_is(tmp_path):
    private.write_private(tmp_path / "run", "a", b"1")
    with pytest.raises(InvalidValue, match="private file must not exist yet"):
        private.write_private(tmp_path / "run", "a", b"2")
    private.write_private(tmp_path / "run", "a", b"2", replace=True)
    assert (tmp_path / "run.private" / "a").read_bytes() == b"2"
    (tmp_path / "other.private").symlink_to(tmp_path / "run.private")
    with pytest.raises(InvalidValue, match="private folder must be a folder"):
        private.create_secret(tmp_path / "other", "noise")
    (tmp_path / "run.private").chmod(0o755)
    private.create_secret(tmp_path / "run", "noise")
    assert stat.S_IMODE((tmp_path / "run.private").stat().st_mode) == 0o700


@pytest.mark.parametrize("batches", ["passes", "poisson"])
def test_what_arithmetic_takes_is_set_aside(make, small, batches):
    """Computed noise keeps the promise that ideal noise would keep with a little less of it."""
    words = (*PRIVACY, f"privacy.batches={batches}")
    secret = prepare.prepare(make(*words), dataset=small)
    ideal = prepare.prepare(make(*words, "privacy.noise=reproducible"), dataset=small)
    with_margin, without, spec = noise_multipliers(secret), noise_multipliers(ideal), local_training(secret)
    assert np.all(with_margin > without)
    assert np.all(with_margin < 1.01 * without)
    for size, noise in zip((part.size for part in parts(secret)), with_margin, strict=True):
        times = secret.mechanism.rounds * record_steps(size, spec)
        rate = sampling_rate(size, spec)
        ledger = Ledger((Release(0, 1, float(noise), times, times, rate),))
        reach = largest_sum(size, spec) / noise
        left = reserve(1.0, 1e-5, secret.program.size * times, reach)
        assert ledger.epsilon(0, left.delta) <= left.epsilon


def test_what_arithmetic_takes_is_set_aside_of_what_is_sold(make, small):
    secret = prepare.prepare(make(*JSAM, *CAPPED), dataset=small)
    ideal = prepare.prepare(make(*JSAM, *CAPPED, "jsam.noise=reproducible"), dataset=small)
    with_margin, without = noise_multipliers(secret), noise_multipliers(ideal)
    drawn = without > 0
    assert drawn.any()
    assert np.all(with_margin[drawn] > without[drawn])


def test_a_promise_that_is_hardly_one_is_said(make, small, tmp_path):
    words = ("privacy.clip=1", "privacy.epsilon=12", "privacy.delta=1e-5")
    result = training.train(prepare.prepare(make(*words), dataset=small), tmp_path / "run")
    summary = result.summary
    assert "an epsilon of 12 is hardly a promise of privacy" in summary["notes"]


@pytest.mark.parametrize(
    ("batches", "adjacency"), [("passes", "replace one"), ("poisson", "add or remove one")]
)
def test_what_an_epsilon_is_for_is_shown(make, small, batches, adjacency):
    words = ("privacy.clip=1", "privacy.epsilon=2", "privacy.delta=1e-5", f"privacy.batches={batches}")
    if batches == "poisson":
        words += ("training.batch_size=5",)
    result = training.train(prepare.prepare(make(*words), dataset=small))
    shown = [line.split(maxsplit=1) for line in str(result).splitlines()]
    assert ["delta", "1e-05"] in shown
    assert ["adjacency", adjacency] in shown


def test_another_module_of_the_same_shapes_does_not_get_the_same_noise(make, small, tmp_path, kill_in):
    def own(between):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(6, 5), between, torch.nn.Linear(5, 3))

    words = (*PRIVACY, "run.checkpoint_every=1")
    made = prepare.prepare(make(*words), dataset=small, module=own(torch.nn.Tanh()))
    with pytest.raises(kill_in.error):
        training.train(made, tmp_path / "run", on_round=kill_in(1))
    other = prepare.prepare(make(*words), dataset=small, module=own(torch.nn.Identity()))
    with pytest.raises(
        InvalidValue, match=r"^model must be the module the run began with, got another one$"
    ):
        training.train(other, tmp_path / "run", resume=True)
    training.train(made, tmp_path / "run", resume=True)


def test_a_new_run_does_not_take_the_secret_of_one_that_was_moved(make, small, tmp_path):
    private.create_secret(tmp_path / "run", private.NOISE)
    made = prepare.prepare(make(), dataset=small)
    with pytest.raises(InvalidValue, match=r"^private folder must hold no secret of another run"):
        training.train(made, tmp_path / "run")
    assert (tmp_path / "run.private" / "noise.secret").is_file()
    assert not (tmp_path / "run").exists()


def test_rights_that_a_copy_gave_away_are_taken_back(tmp_path):
    secret = private.create_secret(tmp_path / "run", private.NOISE)
    place = tmp_path / "run.private"
    place.chmod(0o755)
    (place / "noise.secret").chmod(0o644)
    assert private.read_secret(tmp_path / "run", private.NOISE, "x") == secret
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "noise.secret").stat().st_mode) == 0o600
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidValue, match=r"^private folder must be a folder"):
        private.read_secret(tmp_path / "run", private.NOISE, "x")
