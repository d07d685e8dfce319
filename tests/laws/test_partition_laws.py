"""Laws every partition obeys, and a broken one that must be caught."""

import copy

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from bonafed.errors import InvalidValue
from bonafed.learning.data.partition import (
    PARTITIONS,
    holders,
    label_count,
    label_dirichlet,
    natural,
    partition,
    similarity,
)

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def labels_with(draw, smallest=1, most_classes=6):
    """Labels in random order, with gaps between the classes that occur."""
    sizes = draw(st.lists(st.integers(smallest, 40), min_size=1, max_size=most_classes))
    names = np.cumsum(draw(st.lists(st.integers(1, 3), min_size=len(sizes), max_size=len(sizes))))
    return np.random.default_rng(draw(SEEDS)).permutation(np.repeat(names, sizes))


@st.composite
def requests(draw, names=tuple(PARTITIONS)):
    """A request that can be met: name, labels, clients, options."""
    name = draw(st.sampled_from(names))
    labels = draw(
        labels_with(smallest=6 if name in ("label_count", "label_dirichlet", "typicality") else 1)
    )
    classes = np.unique(labels).size
    betas = st.floats(-0.5, 2).map(lambda power: 10.0**power)
    low, high, options = 1, labels.size, {}
    if name == "label_dirichlet":
        high = max(1, labels.size // 12)
        options = {"beta": draw(betas), "minimum": draw(st.integers(1, 2))}
    elif name == "label_count":
        options = {"k": draw(st.integers(1, classes))}
        low, high = -(-classes // options["k"]), 6
    elif name == "feature_noise":
        options = {"sigma": draw(st.floats(0, 2))}
    elif name == "quantity_dirichlet":
        options = {"beta": draw(betas)}
    elif name == "similarity":
        options, low = {"s": draw(st.floats(0, 100))}, -(-classes // 2)
    elif name == "typicality":
        options, low, high = {"delta": draw(st.floats(0, 1))}, classes, classes + 2
    elif name == "natural":
        owners = draw(st.lists(st.integers(-3, 9), min_size=labels.size, max_size=labels.size))
        return name, labels, len(set(owners)), {"groups": np.array(owners)}
    clients = draw(st.integers(low, max(low, high)))
    if name == "quantity_dirichlet":
        options["minimum"] = draw(st.integers(1, labels.size // clients))
    return name, labels, clients, options


def drawn(request, seed):
    name, labels, clients, options = request
    try:
        return partition(name, labels, clients, np.random.default_rng(seed), **options)
    except InvalidValue as error:  # a minimum that can be met, but practically never is
        assume("draws" not in str(error))
        raise


def violations(parts, samples, clients, minimum=1):
    found = []
    if len(parts) != clients:
        found.append("one part per client")
    if any(part.dtype != np.int64 or (np.diff(part) <= 0).any() for part in parts):
        found.append("sorted whole numbers")
    if not np.array_equal(np.sort(np.concatenate(parts)), np.arange(samples)):
        found.append("every sample exactly once")
    if min(part.size for part in parts) < minimum:
        found.append("minimum size")
    return found


@given(requests(), SEEDS)
def test_every_sample_exactly_once_in_parts_of_the_minimum_size(request, seed):
    parts = drawn(request, seed)
    assert violations(parts, request[1].size, request[2], request[3].get("minimum", 1)) == []


@given(requests(), SEEDS)
def test_the_seed_reproduces(request, seed):
    for once, again in zip(drawn(request, seed), drawn(request, seed), strict=True):
        assert np.array_equal(once, again)


@given(requests(("iid",)), SEEDS)
def test_a_broken_partition_is_caught(request, seed):
    _, labels, clients, _ = request
    assume(labels.size > clients)
    parts = drawn(request, seed)
    fullest = max(range(clients), key=lambda i: parts[i].size)
    lost, doubled = list(parts), list(parts)
    lost[fullest] = parts[fullest][1:]
    doubled[0] = np.sort(np.append(parts[0], parts[-1][-1]))
    assert "every sample exactly once" in violations(lost, labels.size, clients)
    assert "every sample exactly once" in violations(doubled, labels.size, clients)
    assert "one part per client" in violations(parts[:-1] or [parts[0], parts[0]], labels.size, clients)
    assert "minimum size" in violations(parts, labels.size, clients, parts[fullest].size + 1)


@given(requests(("iid", "feature_noise")), SEEDS)
def test_iid_spreads_every_class_and_the_whole_evenly(request, seed):
    parts = drawn(request, seed)
    assert np.ptp([part.size for part in parts]) <= 1
    for label in np.unique(request[1]):
        assert np.ptp([(request[1][part] == label).sum() for part in parts]) <= 1


@given(requests(("label_dirichlet",)), SEEDS)
def test_a_client_with_its_fair_share_gets_no_more(request, seed):
    _, labels, clients, _ = request
    classes = np.unique(labels)
    for part in drawn(request, seed):
        before = np.array([(labels[part] < label).sum() for label in classes])
        counts = np.array([(labels[part] == label).sum() for label in classes])
        assert (counts[before >= labels.size / clients] == 0).all()


@given(requests(("label_count",)), SEEDS)
def test_label_count_gives_every_client_k_classes_and_splits_each_evenly(request, seed):
    _, labels, clients, options = request
    counts = np.array(
        [[(labels[part] == c).sum() for c in np.unique(labels)] for part in drawn(request, seed)]
    )
    assert ((counts > 0).sum(axis=1) == options["k"]).all()
    assert (
        counts[np.arange(clients), np.arange(clients) % counts.shape[1]] > 0
    ).all()  # as the benchmark does
    for column in counts.T:
        assert np.ptp(column[column > 0]) <= 1


@given(labels_with(), st.data(), SEEDS)
def test_similarity_of_zero_gives_two_classes_at_most_and_equal_sizes(labels, data, seed):
    classes = np.unique(labels).size
    clients = data.draw(st.integers(-(-classes // 2), labels.size))
    parts = similarity(labels, clients, np.random.default_rng(seed), 0)
    assert max(np.unique(labels[part]).size for part in parts) <= 2
    if clients >= classes:
        assert np.ptp([part.size for part in parts]) <= 1


@given(labels_with(), st.data(), st.floats(0, 100), SEEDS)
def test_similarity_keeps_sizes_equal_with_enough_clients(labels, data, s, seed):
    clients = data.draw(st.integers(np.unique(labels).size, labels.size), label="clients")
    parts = similarity(labels, clients, np.random.default_rng(seed), s)
    assert np.ptp([part.size for part in parts]) <= 1


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60))
def test_natural_parts_have_one_owner_each(groups):
    parts = natural(groups)
    assert violations(parts, len(groups), len(set(groups))) == []
    assert [set(np.array(groups)[part]) for part in parts] == [{owner} for owner in sorted(set(groups))]


LABELS = np.arange(600) % 6
POSSIBLE = {
    "iid": {},
    "label_dirichlet": {"beta": 0.5},
    "label_count": {"k": 2},
    "feature_noise": {"sigma": 0.1},
    "quantity_dirichlet": {"beta": 0.5},
    "similarity": {"s": 30},
    "typicality": {"delta": 0.5},
    "natural": {"groups": np.arange(600) % 12},
}


@pytest.mark.parametrize("name", [name for name in PARTITIONS if name != "natural"])
def test_another_seed_gives_another_partition(name):
    one, two = (
        partition(name, LABELS, 12, np.random.default_rng(seed), **POSSIBLE[name]) for seed in (0, 1)
    )
    assert any(not np.array_equal(a, b) for a, b in zip(one, two, strict=True))


IMPOSSIBLE = [
    *(
        (name, LABELS, clients, {})
        for name in PARTITIONS
        for clients in (0, -1, 601, 1.5, float("nan"), "ten")
    ),
    *((name, [], 1, {}) for name in PARTITIONS),
    *((name, LABELS.reshape(2, 300), 12, {}) for name in PARTITIONS),
    *((name, [0.0, float("nan")], 1, {}) for name in PARTITIONS if name != "natural"),
    *((name, ["a", "b"], 1, {}) for name in PARTITIONS if name != "natural"),
    *(
        (name, LABELS + 0.5, 12, {})
        for name in ("label_dirichlet", "label_count", "similarity", "typicality")
    ),
    *(
        (name, LABELS, 12, {"beta": beta})
        for name in ("label_dirichlet", "quantity_dirichlet")
        for beta in (0, -1.0, float("nan"), float("inf"), 1e-200, 1e200, True, "1")
    ),
    *(
        (name, LABELS, 12, {"minimum": minimum})
        for name in ("label_dirichlet", "quantity_dirichlet")
        for minimum in (0, -1, 51, 2.5, float("nan"))
    ),
    *(("label_count", LABELS, 12, {"k": k}) for k in (0, 7, 1.5, float("nan"))),
    ("label_count", LABELS, 2, {"k": 2}),  # four classes held of six
    ("label_count", LABELS, 350, {"k": 2}),  # 700 holdings of 600 samples
    ("label_count", [0, 1, 1, 1, 1], 4, {"k": 1}),  # the benchmark would give class 0 two holders
    *(
        ("feature_noise", LABELS, 12, {"sigma": sigma})
        for sigma in (-0.1, 1e78, float("nan"), float("inf"))
    ),
    *(("similarity", LABELS, 12, {"s": s}) for s in (-1, 100.5, float("nan"))),
    ("similarity", LABELS, 2, {"s": 99}),
    *(("typicality", LABELS, 12, {"delta": delta}) for delta in (-0.1, 1.1, float("nan"))),
    ("typicality", LABELS, 5, {}),
    *(("natural", LABELS, 12, {"groups": groups}) for groups in ([], LABELS[:-1], LABELS, LABELS + 0.5)),
]


@pytest.mark.parametrize(("name", "labels", "clients", "options"), IMPOSSIBLE)
def test_an_impossible_request_is_refused_before_anything_is_drawn(name, labels, clients, options):
    rng = np.random.default_rng(0)
    before = copy.deepcopy(rng.bit_generator.state)
    with pytest.raises(InvalidValue, match=r"^\w+ must .+, got .+$"):
        partition(name, labels, clients, rng, **{**POSSIBLE[name], **options})
    assert rng.bit_generator.state == before


def test_what_is_possible_in_principle_but_never_drawn_is_an_error_not_an_endless_loop():
    with pytest.raises(InvalidValue, match=r"minimum must be smaller, or beta larger: none of 1000 draws"):
        label_dirichlet(LABELS, 60, np.random.default_rng(0), beta=0.01, minimum=10)


@given(labels_with(most_classes=5), st.data(), SEEDS)
def test_classes_are_exchanged_until_everyone_has_k(labels, data, seed):
    """Without a draw that succeeds; what is refused is impossible, as a maximal flow tells."""
    _, sizes = np.unique(labels, return_counts=True)
    clients = data.draw(st.integers(1, min(labels.size, 14)), label="clients")
    k = data.draw(st.integers(-(-sizes.size // clients), sizes.size), label="k")
    first = np.bincount(np.arange(clients) % sizes.size, minlength=sizes.size)
    assume((first <= sizes).all())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bonafed.learning.data.partition.REDRAWS", 0)
        found = holders(sizes, clients, k, np.random.default_rng(seed))
    if found is None:
        assume(clients >= sizes.size)
        assert most_holdings(sizes - first, clients, k - 1) < clients * (k - 1)
    else:
        assert (found.sum(axis=1) == k).all()
        assert found[np.arange(clients), np.arange(clients) % sizes.size].all()
        assert ((found.sum(axis=0) >= 1) & (found.sum(axis=0) <= sizes)).all()


def most_holdings(room, clients, each):
    """Flow from client to class, beside the one class that each client holds already."""
    last = clients + room.size + 1
    most = np.zeros((last + 1, last + 1), dtype=np.int32)
    most[0, 1 : clients + 1] = each
    most[1 : clients + 1, clients + 1 : last] = 1
    most[1 + np.arange(clients), clients + 1 + np.arange(clients) % room.size] = 0
    most[clients + 1 : last, last] = room
    return maximum_flow(csr_matrix(most), 0, last).flow_value


def test_what_a_draw_never_finds_is_found_nevertheless():
    labels = np.repeat(np.arange(6), [30, 12, 12, 12, 12, 12])
    parts = label_count(labels, 30, np.random.default_rng(0), k=3)  # 90 holdings, one for each sample
    assert violations(parts, 90, 30) == []
    assert all(np.unique(labels[part]).size == 3 for part in parts)
