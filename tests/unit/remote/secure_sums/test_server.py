"""The server's side: right sums whoever drops out, and names where something is wrong."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.secure_sums import (
    NAMES,
    Walk,
    on_grid,
    plan_for,
    secret_of,
    signer,
    vectors_for,
    verify,
)

from bonafed.remote.secure_sums import (
    Member,
    Once,
    SumFailed,
    advertise,
    collected,
    gathered,
    parcels_for,
    received,
    revealed,
    share,
    sharing,
    threshold_for,
    unmask,
)
from bonafed.remote.secure_sums import client as client_side
from bonafed.remote.secure_sums.client import parcel_length

STAYS, NO_INPUT, NO_ANSWER = range(3)


@pytest.mark.parametrize("n", [3, 4, 5, 6])
@pytest.mark.parametrize("more", [0, 1])
def test_every_pattern_of_drop_outs(n, more):
    """Each member stays, or is gone before its input, or before its answer: the exact sum, or too few."""
    threshold = threshold_for(n, 0) + more
    if threshold > n:
        pytest.skip("no such threshold")
    walk = Walk(plan_for(n, threshold=threshold, size=2))
    vectors = vectors_for(walk.plan)
    inputs = walk.inputs(0, vectors)
    reached = 0
    for pattern in itertools.product((STAYS, NO_INPUT, NO_ANSWER), repeat=n):
        what = dict(zip(walk.plan.members, pattern, strict=True))
        present = {name: inputs[name] for name in what if what[name] != NO_INPUT}
        answering = [name for name in what if what[name] == STAYS]
        if len(present) < threshold:
            with pytest.raises(SumFailed) as failed:
                collected(walk.book, 0, present)
            assert failed.value.missing == threshold - len(present)
            continue
        pending = collected(walk.book, 0, present)
        answers = {
            name: unmask(walk.ready[name], walk.once[name], 0, pending.round.survivors)[0]
            for name in answering
        }
        if len(answering) < threshold:
            with pytest.raises(SumFailed) as failed:
                revealed(pending, answers)
            assert failed.value.missing == threshold - len(answering)
            continue
        found = revealed(pending, answers)
        expected = on_grid(walk.plan, {name: vectors[name] for name in present})
        assert found.values.tolist() == expected.tolist()
        assert found.survivors == tuple(present)
        assert not found.failures
        reached += 1
    assert reached


@settings(max_examples=40)
@given(st.data())
def test_sums_are_plain_sums_up_to_rounding(data):
    n = data.draw(st.integers(3, 8), label="members")
    colluders = data.draw(st.integers(0, n - 2), label="colluders")
    sums = data.draw(st.integers(1, 3), label="sums")
    bound = data.draw(st.floats(1e-6, 1e6), label="bound")
    plan = plan_for(n, colluders=colluders, sums=sums, bound=bound, size=data.draw(st.integers(1, 5)))
    may_fail = st.lists(st.sampled_from(plan.members), max_size=plan.tolerated)
    absent = tuple(set(data.draw(may_fail, label="absent")))
    walk = Walk(plan, absent)
    here = [name for name in plan.members if name not in absent]
    for which in range(sums):
        gone = data.draw(st.permutations(here), label="order")
        gone = gone[: data.draw(st.integers(0, len(here) - plan.threshold), label="gone")]
        vectors = vectors_for(plan, which, [name for name in here if name not in gone])
        silent = data.draw(st.permutations(list(vectors)), label="order")
        silent = silent[: data.draw(st.integers(0, len(vectors) - plan.threshold), label="silent")]
        found = walk.total(which, vectors, silent, about=b"subject")
        exact = np.sum(list(vectors.values()), axis=0)
        rounding = len(vectors) * (2.0 ** -(plan.fraction_bits + 1) + 2.0**-52 * bound)
        assert np.abs(found.values - exact).max() <= rounding
        assert found.survivors == tuple(vectors)


def test_who_dropped_out_of_a_sum_is_back_in_the_next():
    walk = Walk(plan_for(5, sums=2))
    vectors = vectors_for(walk.plan)
    some = {name: vectors[name] for name in walk.plan.members[1:4]}
    assert walk.total(0, some).survivors == ("ben", "cleo", "dan")
    found = walk.total(1, vectors)
    assert found.values.tolist() == on_grid(walk.plan, vectors).tolist()


def test_who_is_not_sampled_joins_with_zeros():
    walk = Walk(plan_for(4))
    vectors = {name: np.zeros(3) for name in walk.plan.members} | {"ben": np.array([1.0, -2.0, 0.5])}
    assert walk.total(0, vectors).values.tolist() == [1.0, -2.0, 0.5]


def test_large_vectors_in_pieces():
    walk = Walk(plan_for(3, size=40_001))
    vectors = vectors_for(walk.plan)
    found = walk.total(0, {name: vectors[name] for name in ("ada", "cleo")})
    assert np.abs(found.values - vectors["ada"] - vectors["cleo"]).max() < 1e-14


# --- keys and parcels -------------------------------------------------------------------------------


def keys_for(plan):
    return {name: advertise(Member(plan, name, secret_of(name)), signer(name)) for name in plan.members}


def test_unusable_keys_are_named_and_left_out():
    plan = plan_for(6)  # t = 4
    messages = keys_for(plan)
    messages["ben"] = messages["ben"][:-1] + b"?"
    messages["cleo"] = messages["ada"]
    messages["mallory"] = messages["ada"]
    book, failures = gathered(plan, messages, verify)
    assert book.present == ("ada", "dan", "eve", "fay")
    assert set(failures) == {"ben", "cleo", "mallory"}
    assert "keys of ben must be signed" in failures["ben"].reason
    assert "must be a member of the plan" in failures["mallory"].reason
    messages["dan"] = b""
    with pytest.raises(SumFailed, match="keys of 3 members are there, the threshold is 4, 1 more needed"):
        gathered(plan, messages, verify)


def test_all_who_have_keys_must_share():
    walk = Walk(plan_for(4))
    for shared in ({**walk.shared, "ben": b"short"}, {k: v for k, v in walk.shared.items() if k != "ben"}):
        with pytest.raises(
            SumFailed, match=r"3 of 4 members with keys have shared .* 1 more needed"
        ) as failed:
            parcels_for(walk.book, shared)
        assert set(failed.value.failures) == {"ben"}


# --- inputs and answers -----------------------------------------------------------------------------


def test_inputs_of_the_wrong_size_or_of_strangers_are_named():
    walk = Walk(plan_for(5, sums=2))  # t = 3
    inputs = walk.inputs(0, vectors_for(walk.plan))
    inputs |= {"ben": inputs["ben"][:-8], "mallory": inputs["ada"]}
    pending = collected(walk.book, 0, inputs)
    assert pending.round.survivors == ("ada", "cleo", "dan", "eve")
    assert set(pending.failures) == {"ben", "mallory"}
    assert "must be 3 numbers of 8 bytes, got 16 bytes" in pending.failures["ben"].reason


def spoiled_answers(walk, which, spoil):
    pending = collected(walk.book, which, walk.inputs(which, vectors_for(walk.plan)))
    answers = walk.answers(which, pending.round.survivors)
    return pending, {name: spoil(name, answer) for name, answer in answers.items()}


def test_answers_about_another_sum_are_refused():
    """A replay: the same survivors, the same length, another sum, batch or run."""
    for other in (plan_for(4, sums=2), plan_for(4, sums=2, context=b"run 2")):
        walk, later = Walk(plan_for(4, sums=2)), Walk(other)
        later.inputs(0, vectors_for(other))
        old = later.answers(0, other.members)
        with pytest.raises(SumFailed, match="no secret of ada, ben, cleo, dan fits") as failed:
            revealed(*spoiled_answers(walk, 1, lambda name, answer, old=old: old[name]))
        assert not failed.value.failures
    walk = Walk(plan_for(4, sums=2))
    walk.inputs(0, vectors_for(walk.plan))
    old = walk.answers(0, walk.plan.members)
    pending, answers = spoiled_answers(walk, 1, lambda name, answer: old[name] if name == "ben" else answer)
    found = revealed(pending, answers)
    assert set(found.failures) == {"ben"}
    assert found.values.tolist() == on_grid(walk.plan, vectors_for(walk.plan)).tolist()


@pytest.mark.parametrize("at", [0, 40, -1, -60])
def test_an_altered_answer_is_not_used(at):
    """Shares, part or token: the sum is right without it; a single wrong token is a dispute of two."""
    walk = Walk(plan_for(5))  # t = 3

    def spoil(name, answer):
        place = at % len(answer)
        changed = answer[:place] + bytes([answer[place] ^ 1]) + answer[place + 1 :]
        return changed if name == "cleo" else answer

    pending, answers = spoiled_answers(walk, 0, spoil)
    found = revealed(pending, answers)
    assert found.values.tolist() == on_grid(walk.plan, vectors_for(walk.plan)).tolist()
    if at >= 0:
        assert set(found.failures) == {"cleo"}
        assert "must lock its answer with a key that opens it" in found.failures["cleo"].reason
    else:
        assert not found.failures
        assert all("cleo" in pair for pair in found.disputes)
        assert len(found.disputes) == 1


def test_answers_of_garbage_are_named():
    walk = Walk(plan_for(5))

    def spoil(name, answer):
        return bytes(len(answer)) if name == "cleo" else answer[:-1] if name == "dan" else answer

    pending, answers = spoiled_answers(walk, 0, spoil)
    found = revealed(pending, answers)
    assert set(found.failures) == {"cleo", "dan"}
    assert "fit less than half" in found.failures["cleo"].reason
    assert "must answer in" in found.failures["dan"].reason
    pending, answers = spoiled_answers(
        Walk(plan_for(4)), 0, lambda name, answer: bytes(len(answer)) if name in ("ada", "ben") else answer
    )
    with pytest.raises(SumFailed, match="0 usable answers about sum 0, the threshold is 3, 3 more needed"):
        revealed(pending, answers)


def lying_holder(walk, name, monkeypatch, dealers):
    """The answer of a member that gives wrong shares of these dealers' secrets, in a lock that opens."""
    place = [walk.book.present.index(dealer) for dealer in dealers]
    honest = client_side.locked

    def locked(asked, who, secret, channels, content):
        values = sharing.from_bytes(content)
        for at in place:
            values[at] = (values[at] + 1) % sharing.PRIME
        return honest(asked, who, secret, channels, b"".join(map(sharing.to_bytes, values)))

    monkeypatch.setattr(client_side, "locked", locked)
    answer = unmask(walk.ready[name], walk.once[name], 0, walk.plan.members)[0]
    monkeypatch.undo()
    return answer


@pytest.mark.parametrize("liar", ["ada", "cleo", "fay"])
def test_a_member_that_gives_wrong_shares_is_named_and_the_sum_is_right(monkeypatch, liar):
    walk = Walk(plan_for(6))  # t = 4
    pending, answers = spoiled_answers(walk, 0, lambda name, answer: answer)
    answers[liar] = lying_holder(walk, liar, monkeypatch, walk.plan.members)
    found = revealed(pending, answers)
    assert set(found.failures) == {liar}
    assert found.values.tolist() == on_grid(walk.plan, vectors_for(walk.plan)).tolist()


def test_two_wrong_shares_of_a_secret_and_a_wrong_one_of_its_own(monkeypatch):
    walk = Walk(plan_for(10, threshold=6))  # of ten answers, two may be wrong about each secret
    pending, answers = spoiled_answers(walk, 0, lambda name, answer: answer)
    answers["ada"] = lying_holder(walk, "ada", monkeypatch, walk.plan.members)
    answers["gus"] = lying_holder(walk, "gus", monkeypatch, ["gus"])
    answers["hal"] = lying_holder(walk, "hal", monkeypatch, ["ben"])
    found = revealed(pending, answers)
    assert set(found.failures) == {"ada", "gus"}
    assert ("ben", "hal") in found.disputes
    assert len(found.disputes) == 12
    assert found.values.tolist() == on_grid(walk.plan, vectors_for(walk.plan)).tolist()


def test_liars_whose_errors_cancel_have_nobody_else_blamed(monkeypatch):
    """Wrong by the same amount in places whose weights are opposite, the secret comes out right."""
    walk = Walk(plan_for(9, threshold=5))
    assert sum(sharing._lagrange((1, 2, 3, 4, 5), 0)[at] for at in (0, 3)) % sharing.PRIME == 0
    pending, answers = spoiled_answers(walk, 0, lambda name, answer: answer)
    for liar in ("ada", "dan"):
        answers[liar] = lying_holder(walk, liar, monkeypatch, walk.plan.members)
    found = revealed(pending, answers)
    assert set(found.failures) == {"ada", "dan"}
    answers["eve"] = lying_holder(walk, "eve", monkeypatch, walk.plan.members)  # one more than can be told
    with pytest.raises(SumFailed):
        revealed(pending, answers)
    del answers["eve"], answers["fay"], answers["gus"]  # six left, one more than needed
    found = revealed(pending, {**answers, "eve": walk.answers(0, walk.plan.members, ["eve"])["eve"]})
    assert not set(found.failures) - {"ada", "dan"}


def test_with_no_answer_to_spare_nobody_is_blamed(monkeypatch):
    walk = Walk(plan_for(4))  # t = 3
    pending, answers = spoiled_answers(walk, 0, lambda name, answer: answer)
    answers["ben"] = lying_holder(walk, "ben", monkeypatch, ["ada"])
    del answers["dan"]
    with pytest.raises(
        SumFailed, match=r"no secret of ada fits the shares of 3 answers .* 1 more needed"
    ) as failed:
        revealed(pending, answers)
    assert not failed.value.failures


@pytest.mark.parametrize("survives", [True, False])
def test_a_member_that_dealt_shares_of_no_secret_is_named(monkeypatch, survives):
    """It cannot be taken out of the sum: the sum fails, and says through whom."""
    plan = plan_for(5)  # t = 3
    members = {name: Member(plan, name, secret_of(name)) for name in plan.members}
    book = gathered(plan, keys_for(plan), verify)[0]
    sent = {}
    honest = client_side._dealt

    def dealt(member, *rest):
        shares = honest(member, *rest)
        return (
            [value * (at + 2) % sharing.PRIME for at, value in enumerate(shares)]
            if member.name == "dan"
            else shares
        )

    monkeypatch.setattr(client_side, "_dealt", dealt)
    for name, member in members.items():
        sent[name] = share(member, book.to_bytes(), verify, Once.of(plan))
    parcels = parcels_for(book, {name: message for name, (message, _) in sent.items()})
    walk = Walk(plan)
    walk.ready = {
        name: received(members[name], book.to_bytes(), verify, parcels[name], sent[name][1])
        for name in members
    }
    vectors = vectors_for(plan, 0, None if survives else [name for name in plan.members if name != "dan"])
    with pytest.raises(SumFailed, match=r"no secret of dan fits .* \(dan must deal shares of its secrets"):
        walk.total(0, vectors)


def test_parcels_go_to_whom_they_are_for():
    walk, size = Walk(plan_for(4)), parcel_length(plan_for(4))
    assert walk.parcels["ben"][:size] == walk.shared["ada"][:size]
    assert walk.parcels["ben"][size : 2 * size] == walk.shared["cleo"][size : 2 * size]
    assert walk.parcels["dan"][-size:] == walk.shared["cleo"][-size:]
    assert set(walk.parcels) == set(NAMES[:4])
