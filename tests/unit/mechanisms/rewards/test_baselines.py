"""The baselines by hand on small cases, their resumption, absence and bad input."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.rewards import federated, gradient_step

from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards import (
    BaselineState,
    CosineRewards,
    FederatedAveraging,
    LocalGlobal,
    ModelRewards,
    RankRewards,
    Standalone,
    rank_sets,
    run,
)
from bonafed.mechanisms.rewards.baselines import masked_rewards, model_quality

TARGETS = np.array([[-1.0, 0.3, 1.0], [0.0, 2.0, -1.0], [0.5, -1.0, 0.2]])
SIZES = np.array([1.0, 2.0, 5.0])
LOCAL = gradient_step(TARGETS, 0.5)


def clients():
    return federated(LOCAL, 3)


def accuracy(models):
    return models[:, 0]


METHODS = {
    "averaging": FederatedAveraging(sizes=SIZES),
    "local-global": LocalGlobal(sizes=SIZES, shared=slice(1, 3)),
    "cosine": CosineRewards(sizes=SIZES, layers=[slice(0, 2), slice(2, 3)]),
    "rank": RankRewards(sizes=SIZES, score=accuracy),
    "standalone": Standalone(sizes=SIZES),
}


def test_averaging_weights_by_records_and_fine_tunes():
    method = METHODS["averaging"]
    models, state = run(method, clients(), np.zeros(3), rounds=1)
    mean = 0.5 * (TARGETS[0] + 2 * TARGETS[1] + 5 * TARGETS[2]) / 8
    assert state.models == pytest.approx(np.tile(mean, (3, 1)))
    assert models == pytest.approx(mean + 0.5 * (TARGETS - mean))


def test_fine_tuning_is_a_round_after_the_last():
    asked = []

    def local(models, round_number, present):
        asked.append((round_number, present.all()))
        return LOCAL(models, round_number, present)

    half = np.array([[True, False, False]] * 3)
    run(FederatedAveraging(sizes=SIZES, participation=half), federated(local, 3), np.zeros(3), rounds=3)
    assert asked == [(1, False), (2, False), (3, False), (4, True)]


def test_local_global_shares_some_layers():
    models, _ = run(METHODS["local-global"], clients(), np.zeros(3), rounds=4)
    averaged, _ = run(FederatedAveraging(sizes=SIZES, fine_tuning=False), clients(), np.zeros(3), rounds=4)
    alone, _ = run(METHODS["standalone"], clients(), np.zeros(3), rounds=4)
    assert models[:, 1:] == pytest.approx(averaged[:, 1:])
    assert models[:, :1] == pytest.approx(alone[:, :1])


def test_standalone_goes_on_from_its_own_result():
    models, _ = run(METHODS["standalone"], clients(), np.zeros(3), rounds=3)
    assert models == pytest.approx(TARGETS * (1 - 0.5**3))


def test_rank_gives_the_updates_of_those_below():
    """Scores are those of the trained models theta_i + g_i: -0.5, 0, 0.25, so each sees those before it."""
    models, _ = run(METHODS["rank"], clients(), np.zeros(3), rounds=1)
    g = 0.5 * TARGETS
    assert models == pytest.approx(np.array([g[0], g[:2].mean(0), g.mean(0)]))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_rank_sets_by_hand(scores):
    found = rank_sets(np.array(scores, dtype=float))
    for i, mine in enumerate(scores):
        assert set(np.flatnonzero(found[i])) == {i} | {j for j, other in enumerate(scores) if other < mine}


@given(
    st.lists(st.floats(-9, 9), min_size=2, max_size=9),
    st.lists(st.floats(0.01, 1), min_size=1, max_size=4),
    st.booleans(),
)
def test_masks_keep_the_largest(values, quality, quirk):
    aggregate, q = np.array(values), np.array(quality)
    found = masked_rewards(aggregate, q, [slice(0, len(values))], repo_quirk=quirk)
    for share, row in zip(q, found, strict=True):
        count = int(np.ceil(len(values) * share - 1e-9))
        count = min(count, len(values) - 1) if quirk else count
        largest = sorted(np.abs(aggregate))[::-1][:count]
        assert sorted(np.abs(row[row != 0]))[::-1] == [v for v in largest if v]
        assert ((row == 0) | (row == aggregate)).all()


def test_the_programs_quirk_drops_an_entry_even_from_the_best():
    aggregate, q = np.array([3.0, -1.0, 2.0]), np.ones(1)
    layers = [slice(0, 3)]
    assert masked_rewards(aggregate, q, layers).tolist() == [[3, -1, 2]]
    assert masked_rewards(aggregate, q, layers, repo_quirk=True).tolist() == [[3, 0, 2]]


def test_quality_of_the_best_is_one_and_sharpness_levels():
    r = np.array([0.1, 0.3, 0.6])
    assert model_quality(r, 1.0) == pytest.approx(np.tanh(r) / np.tanh(0.6))
    assert model_quality(r, 1e7) == pytest.approx(np.ones(3))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("stop", [0, 3])
def test_a_stopped_run_goes_on_bit_for_bit(name, stop):
    method = METHODS[name]
    whole, end = run(method, clients(), np.full(3, 0.1), rounds=5)
    state = run(method, clients(), np.full(3, 0.1), rounds=stop)[1]
    file = io.BytesIO()
    np.savez(file, **state.arrays())
    file.seek(0)
    with np.load(file) as arrays:
        again = BaselineState.from_arrays(dict(arrays))
    parts, after = run(method, clients(), np.full(3, 0.1), rounds=5, state=again)
    assert (whole == parts).all()
    assert after.round_number == end.round_number == 5


@pytest.mark.parametrize("kind", [LocalGlobal, CosineRewards, RankRewards, Standalone])
def test_absent_clients_keep_their_models(kind):
    extra = {
        LocalGlobal: {"shared": slice(1, 3)},
        CosineRewards: {"layers": [slice(0, 3)]},
        RankRewards: {"score": accuracy},
    }.get(kind, {})
    schedule = np.array([[True, True, False], [False, False, False]])
    method = kind(sizes=SIZES, participation=schedule, **extra)
    models, state = run(method, clients(), np.zeros(3), rounds=2)
    own = models[2, :1] if kind is LocalGlobal else models[2]  # shared layers are the server's
    assert (own == 0).all()
    assert np.abs(models[:2]).max(1).min() > 0
    assert state.round_number == 2


def test_the_same_clients_are_there_whatever_the_method():
    asked = {}

    def watch(name):
        def local(models, round_number, present):
            asked.setdefault(name, []).append((round_number, present.tolist()))
            return LOCAL(models, round_number, present)

        return federated(local, 3)

    rates = [0.5, 0.5, 0.5]
    run(Standalone(sizes=SIZES, participation=rates, seed=4), watch("a"), np.zeros(3), rounds=9)
    run(ModelRewards(SIZES, participation=rates, seed=4), watch("b"), np.zeros(3), rounds=9)
    assert asked["a"] == asked["b"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Standalone(sizes=[1, 0]), "sizes must be positive, got 0 at position 1"),
        (lambda: Standalone(sizes=[1], seed=-1), "seed must be a whole number of at least 0, got -1"),
        (lambda: CosineRewards(sizes=[1], layers=[], scale=0), r"scale must be positive, got 0\.0"),
        (lambda: CosineRewards(sizes=[1], layers=[], sharpness=0), "sharpness must be positive"),
        (lambda: CosineRewards(sizes=[1], layers=[], memory=2), "memory must be between 0 and 1"),
        (lambda: Standalone(sizes=[1, 1], participation=[2, 1]), "participation must not exceed 1"),
    ],
)
def test_bad_rules(make, message):
    with pytest.raises(InvalidValue, match=message):
        make()


@pytest.mark.parametrize("shared", [slice(0, 3), slice(3, 3), slice(5, 9)])
def test_local_global_needs_both_kinds_of_layers(shared):
    with pytest.raises(InvalidValue, match="shared must leave some of 3 parameters shared, some local"):
        LocalGlobal(sizes=SIZES, shared=shared).begin(np.zeros(3))


@pytest.mark.parametrize(
    ("layers", "quirk", "message"),
    [
        ([slice(0, 2)], False, "layers must hold each of 3 parameters once, got 0 for 2"),
        ([slice(0, 2), slice(1, 3)], False, "layers must hold each of 3 parameters once, got 2 for 1"),
        ([slice(0, 3), slice(3, 3)], False, "layers must have at least 1 parameters each, got 0"),
        ([slice(0, 2), slice(2, 3)], True, "layers must have at least 2 parameters each, got 1"),
    ],
)
def test_bad_layers(layers, quirk, message):
    with pytest.raises(InvalidValue, match=message):
        CosineRewards(sizes=SIZES, layers=layers, repo_quirk=quirk).begin(np.zeros(3))


def test_bad_scores_name_the_round():
    with pytest.raises(InvalidValue, match="score in round 1 must have 3 values, got 2"):
        run(RankRewards(sizes=SIZES, score=lambda m: m[:2, 0]), clients(), np.zeros(3), rounds=1)
