"""Runs with noise once on the sum: noise that stays on, the same bits after a kill, no failure told."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.oracles.settings import local_training, noise_multipliers, participation

from bonafed.errors import InvalidValue
from bonafed.learning.noise import Reproducible, Secret, unit
from bonafed.learning.rounds import training_tasks
from bonafed.learning.sum_noise import round_noise
from bonafed.mechanisms.private_training import PrivateOptions, advise, course_of
from bonafed.runs import folder, prepare, training

SUM = ("privacy.clip=1", "privacy.epsilon=1", "privacy.delta=1e-5", "privacy.noise_at=sum",
       "training.steps=1", "training.batch_size=120")  # fmt: skip
JSAM = ("jsam.prior=uniform:0,1", "jsam.eta=20", "jsam.noise_scale=1", "jsam.clip=1", "jsam.noise_at=sum")


def the_round(made):
    """Tasks, weights and noise of the first round, as the mechanism makes them."""
    who, spec = participation(made, 1), local_training(made)
    names, sizes = made.agreement.members.names, made.agreement.members.sizes
    tasks = training_tasks(names, made.start, who, spec, round_number=1, seed=made.config.run.seed)
    return tasks, who.weights, round_noise(who, noise_multipliers(made), sizes, spec, made.start, 1)


@pytest.mark.parametrize("kind", ["secret", "reproducible"])
def test_noise_is_taken_off_again_only_if_it_is_reproducible(make, small, tmp_path, kind):
    """From the folder of the finished run, with every source that it tells of."""
    made = prepare.prepare(make(*SUM, f"privacy.noise={kind}", "training.rounds=1"), dataset=small)
    place = tmp_path / "run"
    training.train(made, place)
    change = folder.read_checkpoint(place).state["model"] - folder.read_start(place)
    tasks, weights, noise = the_round(made)
    exact = made.federation(None).total(tasks, weights).values[0]
    seed = json.loads((place / "versions.json").read_text())["seed"]
    keys = [bytes(32), hashlib.sha256(str(seed).encode()).digest(), seed.to_bytes(32, "big"),
            bytes.fromhex(json.loads((place / "versions.json").read_text())["data"])]  # fmt: skip
    errors = []
    for source in (Reproducible(seed), *map(Secret, keys)):
        guess = made.federation(source).total(tasks, weights, noise.sd).values[0] - exact
        errors.append(float(np.sqrt(np.mean((change - guess - exact) ** 2))))
    assert np.std(change - exact) > 0.3 * noise.sd  # it is there; of 21 numbers, so not much closer
    if kind == "reproducible":
        assert min(errors) < 1e-6
    else:
        assert min(errors) > 0.7 * noise.sd


@pytest.mark.parametrize(
    "changes",
    [
        SUM,
        (*SUM, "privacy.noise=reproducible"),
        JSAM,
        (*SUM, "training.participation=0.5", "training.weight_decay=0.01"),
    ],
)
def test_killed_and_resumed_it_ends_with_the_same_bits(make, small, tmp_path, kill_in, ending, changes):
    made = prepare.prepare(make(*changes), dataset=small)
    whole = training.train(made, tmp_path / "whole")
    assert whole.summary["epsilon"] > 0
    secret = None
    with pytest.raises(kill_in.error):
        training.train(made, tmp_path / "killed", on_round=kill_in(3))
    place = tmp_path / "killed.private" / "noise.secret"
    if place.exists():
        secret = place.read_bytes()
    training.train(made, tmp_path / "killed", resume=True)
    again = prepare.prepare(make(*changes), dataset=small)
    source = Reproducible(made.config.run.seed) if secret is None else Secret(secret)
    federation = again.federation(source)
    state = again.mechanism.begin(again.agreement, again.start)
    for _ in range(again.mechanism.rounds):
        state, _ = again.mechanism.advance(state, federation)
    assert np.array_equal(state.model, folder.read_checkpoint(tmp_path / "killed").state["model"])
    if secret is None:
        assert ending(tmp_path / "killed") == ending(tmp_path / "whole")
    else:
        assert ending(tmp_path / "killed")[2] != ending(tmp_path / "whole")[2]  # another secret


def test_other_content_under_the_same_round_gets_other_noise(make, small):
    """A share, a record, a weight of the model or the multiplier: no difference of two sums is bare."""
    made = prepare.prepare(make(*SUM), dataset=small)
    federation, (tasks, weights, noise) = made.federation(Secret(bytes(32))), the_round(made)
    assert np.array_equal(*(federation.total(tasks, weights, noise.sd).values for _ in range(2)))
    bare = federation.total(tasks, weights).values
    first = federation.total(tasks, weights, noise.sd).values - bare
    moved = [task._replace(models=task.models + np.float32(1e-3)) for task in tasks]
    for others in (
        (tasks, weights * np.array([1, 1, 1, 1.5]), noise.sd),
        (tasks[1:], weights[1:], noise.sd),
        (moved, weights, noise.sd),
        (tasks, weights, noise.sd * (1 + 1e-12)),
    ):
        then = federation.total(*others).values - federation.total(*others[:2]).values
        assert np.abs(then - first).max() > noise.sd
        assert abs(np.corrcoef(then.ravel(), first.ravel())[0, 1]) < 0.6


def test_what_is_published_is_on_a_grid_that_does_not_depend_on_the_data(make, small):
    made = prepare.prepare(make(*SUM), dataset=small)
    tasks, weights, noise = the_round(made)
    found = made.federation(Secret.fresh()).total(tasks, weights, noise.sd).values / unit(noise.sd)
    assert np.array_equal(found, np.rint(found))


def test_who_fails_is_not_told_and_does_not_lower_the_noise(make, small, tmp_path):
    """A client whose update is not finite: same noise, same account, no name."""
    made = prepare.prepare(make(*SUM, "training.on_bad_update=skip", "training.rounds=1"), dataset=small)
    federation, asked = made.federation(Secret.fresh()), []

    class Failing:
        """The federation, of which one client delivers nothing that can be used."""

        def total(self, tasks, shares, noise=0.0):
            asked.append(noise)
            bad = [task._replace(models=np.full_like(task.models, np.nan)) for task in tasks[:1]]
            return federation.total([*bad, *tasks[1:]], shares, noise)

        def __getattr__(self, name):
            return getattr(federation, name)

    found = []
    for each in (federation, Failing()):
        state = made.mechanism.begin(made.agreement, made.start)
        state, row = made.mechanism.advance(state, each)
        found.append((row.failed, row.participants, row.releases, row.epsilon, state.delivered.tolist()))
    assert found[0] == found[1]
    assert found[1][0] == []
    assert asked == [the_round(made)[2].sd]


def test_the_sum_has_the_noise_and_the_single_updates_have_none(make, small):
    made = prepare.prepare(make(*SUM), dataset=small)
    tasks, weights, noise = the_round(made)
    federation = made.federation(Secret.fresh())
    bare = federation.total(tasks, weights).values
    found = np.concatenate(
        [made.federation(Secret.fresh()).total(tasks, weights, noise.sd).values - bare for _ in range(160)]
    )
    assert np.std(found) == pytest.approx(noise.sd, rel=0.1)
    one, other = (federation.replies(tasks) for _ in range(2))
    assert all(np.array_equal(one[name].values, other[name].values) for name in one)
    size = made.agreement.members.sizes[0]
    limit = (
        made.config.training.learning_rate
    )  # times clip 1: as long as a mean of clipped gradients can be
    assert all(np.linalg.norm(reply.values) <= limit * (1 + 1e-5) for reply in one.values())
    assert size > 1


REFUSED = {
    "training.steps=2": r'^training\.steps must be 1 with noise_at = "sum", for every .* got 2',
    "training.optimizer=adam": r"^training\.optimizer must be .sgd. with noise_at = .sum.: .* got 'adam'",
    "training.optimizer=momentum": r'^training\.optimizer must be "sgd" with noise_at',
    "privacy.batches=poisson": r"^privacy\.batches must be .passes. with noise_at = .sum., .* 'poisson'",
    "training.aggregation=memory": r'^training\.aggregation must be plain with noise_at = "sum"',
    "privacy.noise_at=server": r"^privacy\.noise_at must be one of",
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_the_noise_of_a_sum_does_not_cover_is_refused_by_name(make, small, change):
    with pytest.raises(InvalidValue, match=REFUSED[change]):
        prepare.prepare(make(*SUM, change), dataset=small)


def test_a_pass_of_one_batch_is_one_step_and_of_two_is_refused(make, small):
    changes = [change for change in SUM if not change.startswith("training")]
    prepare.prepare(make(*changes, "training.batch_size=120"), dataset=small)
    with pytest.raises(
        InvalidValue, match=r"^training\.batch_size must hold all records .* got 8 for 30 of client 0"
    ):
        prepare.prepare(make(*changes, "training.batch_size=8", "training.epochs=1"), dataset=small)


def test_weight_decay_is_left_to_the_server_and_comes_to_the_same(make, small):
    """Without noise to speak of, as clients that decay their own weights would."""
    hardly = ("privacy.epsilon=1e6", "training.weight_decay=0.1", "privacy.noise=reproducible")
    models = []
    for at in ("sum", "client"):
        made = prepare.prepare(make(*SUM, *hardly, f"privacy.noise_at={at}"), dataset=small)
        federation = made.federation(Reproducible(0))
        state = made.mechanism.begin(made.agreement, made.start + np.float32(0.5))
        for _ in range(made.mechanism.rounds):
            state, _ = made.mechanism.advance(state, federation)
        models.append(state.model)
    assert torch.allclose(*map(torch.from_numpy, models), atol=1e-3)
    assert np.abs(models[0] - 0.5).max() > 0.01


def test_the_threat_model_stands_beside_the_number(make, small, tmp_path):
    for at, word in (("client", "the server included"), ("sum", "not a server that sees single updates")):
        made = prepare.prepare(make(*SUM, f"privacy.noise_at={at}"), dataset=small)
        summary = training.train(made, tmp_path / at).summary
        statement = summary["statement"]
        assert word in statement["totals"]["protects_against"]
        assert word in summary["protects_against"]
        assert statement["facts"]["noise_at"] == at
        assert any("noise is added once" in note for note in summary["notes"]) == (at == "sum")


def test_advice_knows_where_noise_is_added(make, small):
    """The noise that is foretold is that of the run: N times less variance on the sum of N alike."""
    found = {}
    for at in ("client", "sum"):
        made = prepare.prepare(make(*SUM, f"privacy.noise_at={at}"), dataset=small)
        members, rounds = made.agreement.members, made.mechanism.rounds
        each = [
            (participation(made, number), local_training(made, number)) for number in range(1, rounds + 1)
        ]
        found[at] = course_of(
            each, members.sizes, noise_multipliers(made), made.program.size, on_sum=at == "sum"
        )
    assert found["client"].noise / found["sum"].noise == pytest.approx(np.sqrt(len(members)), rel=0.01)
    drawn = PrivateOptions(records=30, clients=4, parameters=21, epsilon=1.0)
    assert drawn.plan().share == pytest.approx(found["client"].share, rel=0.01)
    assert replace(drawn, noise_at="sum").plan().share == pytest.approx(found["sum"].share, rel=0.01)
    assert "noise once on the sum" in str(advise(replace(drawn, epsilon=0.1)))
    assert "noise once on the sum" not in str(advise(replace(drawn, epsilon=0.1, noise_at="sum")))
