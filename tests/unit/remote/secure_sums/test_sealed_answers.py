"""A server that tells members different things about who survived (M6)."""

import itertools

import numpy as np
import pytest
from tests.oracles.secure_sums import Walk, on_grid, plan_for, vectors_for

from bonafed.errors import InvalidValue
from bonafed.remote.secure_sums import SumFailed, collected, revealed, sharing, unmask
from bonafed.remote.secure_sums.key_book import own_mask, pair_mask
from bonafed.remote.secure_sums.sealed_answers import Unmasking, opened
from bonafed.remote.secure_sums.server import Masked, _fits
from bonafed.remote.secure_sums.streams import TAG, add_streams, derived, from_ring, unsealed

N, COLLUDERS = 10, 3  # t = 7
TARGETS = ("ada", "ben")  # whose sum alone the server wants


@pytest.fixture
def walk():
    return Walk(plan_for(N, colluders=COLLUDERS))


def split_views(plan, honest):
    """Each is told that others dropped out, so that everybody but the targets is named by four."""
    t, dropped = plan.threshold, {name: set() for name in honest}
    for victim in [name for name in honest if name not in TARGETS]:
        room = sorted((name for name in honest if name != victim), key=lambda name: len(dropped[name]))
        for name in room[: t - plan.colluders]:
            dropped[name].add(victim)
    assert max(map(len, dropped.values())) <= plan.tolerated
    return {
        name: [member for member in plan.members if member not in gone] for name, gone in dropped.items()
    }


def split_answers(walk):
    honest = walk.plan.members[: N - COLLUDERS]
    vectors = vectors_for(walk.plan)
    inputs = walk.inputs(0, vectors)
    views = split_views(walk.plan, honest)
    answers = {name: walk.answers(0, views[name], [name])[name] for name in honest}
    return honest, vectors, inputs, views, answers


def inside(walk, name, view, answer):
    """What is in a lock, opened with the member's own key, as if there were no lock."""
    asked = Unmasking(walk.book, 0, tuple(view))
    key = derived(walk.members[name].own("answers"), "lock", name.encode(), *asked.name())
    return sharing.from_bytes(unsealed(key, answer[: sharing.WIDTH * N + TAG]))


def test_without_locks_split_views_would_give_away_a_sum_of_two(walk):
    """The known-bad control: shares of both kinds from different members, and three colluders'."""
    plan, book = walk.plan, walk.book
    honest, vectors, inputs, views, answers = split_answers(walk)
    shares = {name: {"seed": {}, "mask key": {}} for name in plan.members}
    for name in honest:
        kinds = ["seed" if dealer in views[name] else "mask key" for dealer in plan.members]
        for dealer, kind, value in zip(
            plan.members, kinds, inside(walk, name, views[name], answers[name]), strict=True
        ):
            shares[dealer][kind][plan.number_of(name)] = value
    for colluder in plan.members[N - COLLUDERS :]:  # they hold both kinds
        for dealer in honest:
            held = sharing.from_bytes(walk.ready[colluder].held[dealer])
            (
                shares[dealer]["mask key"][plan.number_of(colluder)],
                shares[dealer]["seed"][plan.number_of(colluder)],
            ) = held

    def secret(dealer, kind):
        got = shares[dealer][kind]
        assert len(got) >= plan.threshold
        return sharing.to_secret(sharing.interpolated(got, tuple(got)[: plan.threshold]))

    survivors = (*TARGETS, *plan.members[N - COLLUDERS :])
    words = np.zeros(plan.size, dtype=np.uint64)
    for name in TARGETS:
        words += np.frombuffer(inputs[name], dtype=np.uint64)
        add_streams(words, [(-1, own_mask(book, 0, b"", secret(name, "seed")))])
        for other in honest:
            if other not in TARGETS:
                private = secret(other, "mask key")
                assert _fits(Unmasking(book, 0, survivors), other, private)
                add_streams(words, [pair_mask(book, 0, b"", other, private, name)])
        for colluder in plan.members[N - COLLUDERS :]:
            private = walk.members[colluder].own("mask key", b"\0\0\0\0")
            add_streams(words, [pair_mask(book, 0, b"", colluder, private, name)])
    alone = on_grid(plan, {name: vectors[name] for name in TARGETS})
    assert from_ring(words, plan.fraction_bits) == pytest.approx(alone, abs=1e-12)


def test_locked_answers_about_different_survivors_do_not_open(walk):
    """The same answers, and any that the three colluders add: no view has seven members behind it."""
    plan = walk.plan
    honest, _, inputs, views, answers = split_answers(walk)
    for view in {tuple(view) for view in views.values()}:
        asked = Unmasking(walk.book, 0, view)
        helped = {name: answer for name, answer in answers.items() if tuple(views[name]) == view}
        for colluder in plan.members[N - COLLUDERS :]:
            helped[colluder] = unmask(walk.ready[colluder], walk.once[colluder], 0, view)[0]
        found = opened(asked, helped, sharing.WIDTH * N)
        assert not set(found.contents) & set(honest)
        pending = Masked(asked, b"", np.zeros(plan.size, dtype=np.uint64))
        with pytest.raises(SumFailed, match="usable answers about sum 0, the threshold is 7"):
            revealed(pending, helped)
    pending = collected(walk.book, 0, inputs)
    same_size = {name: answer for name, answer in answers.items() if len(answer) == len(answers["ada"])}
    with pytest.raises(SumFailed):
        revealed(pending, same_size)


@pytest.mark.parametrize("colluders", [0, 1, 3])
def test_two_sets_of_survivors_never_both_open(colluders):
    """However honest members are split between two views, colluders helping both: at most one has t."""
    walk = Walk(plan_for(6, colluders=colluders))
    plan, vectors = walk.plan, vectors_for(walk.plan)
    walk.inputs(0, vectors)
    honest, bad = plan.members[: 6 - colluders], plan.members[6 - colluders :]
    views = [plan.members, tuple(name for name in plan.members if name != honest[0])]
    if plan.tolerated == 0:
        with pytest.raises(InvalidValue, match="survivors must be 6 at least"):
            unmask(walk.ready["ben"], walk.once["ben"], 0, views[1])
        return
    opens = []
    for split in itertools.product((0, 1), repeat=len(honest) - 1):
        chosen = dict(zip(honest[1:], split, strict=True)) | {honest[0]: 0}
        count = 0
        for number, view in enumerate(views):
            asking = [name for name in honest if chosen[name] == number] + [n for n in bad if n in view]
            answers = {name: unmask(walk.ready[name], walk.once[name], 0, view)[0] for name in asking}
            found = opened(Unmasking(walk.book, 0, view), answers, sharing.WIDTH * 6)
            assert bool(set(found.contents) & set(honest)) == (len(asking) >= plan.threshold)
            count += bool(found.contents)
        opens.append(count)
    assert max(opens) == 1


def entries(answer):
    """What an answer says about each other survivor: the part of its key, sealed, and a token."""
    start, part = sharing.WIDTH * N + TAG, sharing.WIDTH + TAG
    both = (answer[at : at + part + 32] for at in range(start, len(answer), part + 32))
    return [(entry[:part], entry[part:]) for entry in both]


def test_fewer_than_the_threshold_open_nothing(walk):
    walk.inputs(0, vectors_for(walk.plan))
    answers = walk.answers(0, walk.plan.members)
    asked = Unmasking(walk.book, 0, walk.plan.members)
    for count in (1, 2, walk.plan.threshold - 1):
        some = dict(list(answers.items())[:count])
        assert not opened(asked, some, sharing.WIDTH * N).contents
    enough = dict(list(answers.items())[: walk.plan.threshold])
    assert set(opened(asked, enough, sharing.WIDTH * N).contents) == set(enough)


def test_the_key_of_a_lock_takes_all_of_the_parts_that_are_needed(walk):
    """By hand, from the tokens that others give for ada's: t - 1 open it, t - 2 do not."""
    walk.inputs(0, vectors_for(walk.plan))
    answers, members, t = walk.answers(0, walk.plan.members), walk.plan.members, walk.plan.threshold
    parts = {}
    for at, (helper, (part, _)) in enumerate(zip(members[1:], entries(answers["ada"]), strict=True)):
        token = entries(answers[helper])[0][1]  # ada comes first among the others of each
        parts[at + 2] = int.from_bytes(unsealed(token, part))

    def opens(count):
        key = sharing.to_secret(sharing.interpolated(parts, tuple(parts)[:count]))
        return key is not None and unsealed(key, answers["ada"][: sharing.WIDTH * N + TAG]) is not None

    assert [opens(count) for count in (t - 3, t - 2, t - 1, t)] == [False, False, True, True]


def test_every_lock_has_a_polynomial_of_its_own():
    """With the same one, a key that was found once would give away the next from a single part."""
    walk = Walk(plan_for(N, colluders=COLLUDERS, sums=2))
    slopes = set()
    for which in (0, 1):
        walk.inputs(which, vectors_for(walk.plan))
        answers = walk.answers(which, walk.plan.members)
        parts = [
            int.from_bytes(unsealed(entries(answers[helper])[0][1], entries(answers["ada"])[at][0]))
            for at, helper in enumerate(("ben", "cleo"))
        ]
        slopes.add((parts[1] - parts[0]) % sharing.PRIME)
    assert len(slopes) == 2


def test_a_member_does_not_give_away_the_tokens_of_its_own_lock(walk):
    """A token opens the other's part for this member, and not this member's part for the other."""
    walk.inputs(0, vectors_for(walk.plan))
    answers = walk.answers(0, walk.plan.members)
    for answer in answers.values():
        assert all(unsealed(token, part) is None for part, token in entries(answer))


def test_tokens_of_one_sum_open_no_lock_of_another():
    """Everybody answered about sum 0; in sum 1, with the same survivors, only ada has been asked."""
    walk = Walk(plan_for(N, colluders=COLLUDERS, sums=2))
    members, answers = walk.plan.members, {}
    for which in (0, 1):
        walk.inputs(which, vectors_for(walk.plan))
    answers = walk.answers(0, members)
    asked = Unmasking(walk.book, 1, members)
    assert "ada" in opened(asked._replace(which=0), answers, sharing.WIDTH * N).contents
    answers |= walk.answers(1, members, ["ada"])
    assert "ada" not in opened(asked, answers, sharing.WIDTH * N).contents
