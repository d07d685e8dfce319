"""A member's side: it answers the same again, and refuses what would give it away."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from tests.oracles.secure_sums import (
    Walk,
    on_grid,
    plan_for,
    secret_of,
    signer,
    vectors_for,
    verify,
)

from bonafed.errors import InvalidValue
from bonafed.learning.noise import Secret
from bonafed.remote.secure_sums import (
    Book,
    Member,
    Once,
    advertise,
    client,
    collected,
    gathered,
    masked,
    parcels_for,
    received,
    revealed,
    share,
    sharing,
    unmask,
)
from bonafed.remote.secure_sums.client import parcel_length
from bonafed.remote.secure_sums.key_book import MemberKeys


@pytest.fixture
def walk():
    return Walk(plan_for(5, colluders=1, sums=3))  # t = 4


def flipped(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


# --- restarts --------------------------------------------------------------------------------------


def test_started_again_it_gives_the_same_answers(walk):
    """From nothing but its secret, the stored `Once` and what it is sent again."""
    vectors, name = vectors_for(walk.plan), "cleo"
    first = walk.inputs(1, vectors)[name]
    answer = walk.answers(1, walk.plan.members)[name]
    stored = Once.from_bytes(walk.once[name].to_bytes())
    member = Member(walk.plan, name, secret_of(name))
    assert advertise(member, signer(name)) == walk.book.keys[name].to_bytes()
    shared, once = share(member, walk.book_bytes, verify, stored)
    assert shared == walk.shared[name]
    ready = received(member, walk.book_bytes, verify, walk.parcels[name], once)
    again, once = masked(ready, once, 1, vectors[name])
    assert again == first
    assert unmask(ready, once, 1, walk.plan.members) == (answer, stored)


def test_signatures_that_differ_each_time_change_nothing():
    """ECDSA is random: what is derived depends on the keys, not on who signed them how."""
    plan = plan_for(3)
    identities = {name: ec.generate_private_key(ec.SECP384R1()) for name in plan.members}
    kind = ec.ECDSA(SHA256())

    def check(name, content, signed):
        try:
            identities[name].public_key().verify(signed, content, kind)
        except InvalidSignature:
            return False
        return True

    members = {name: Member(plan, name, secret_of(name)) for name in plan.members}

    def gather():
        messages = {
            name: advertise(member, lambda content, name=name: identities[name].sign(content, kind))
            for name, member in members.items()
        }
        return gathered(plan, messages, check)[0]

    book, again = gather(), gather()
    assert book.to_bytes() != again.to_bytes()
    assert book.digest == again.digest
    once = {name: share(member, book.to_bytes(), check, Once.of(plan)) for name, member in members.items()}
    parcels = parcels_for(book, {name: message for name, (message, _) in once.items()})
    vectors, inputs, answers, ready = vectors_for(plan), {}, {}, {}
    state = {name: after for name, (_, after) in once.items()}
    for name, member in members.items():
        ready[name] = received(member, again.to_bytes(), check, parcels[name], state[name])
        inputs[name], state[name] = masked(ready[name], state[name], 0, vectors[name])
    for name in members:
        answers[name], _ = unmask(ready[name], state[name], 0, plan.members)
    found = revealed(collected(book, 0, inputs), answers)
    assert found.values.tolist() == on_grid(plan, vectors).tolist()
    other = replace(plan, context=b"run 1, batch 2")
    with pytest.raises(InvalidValue, match="keys of ada must be signed by its registered identity"):
        Book.from_bytes(other, book.to_bytes(), check)


def test_nothing_secret_is_shown(walk):
    for value in (walk.members["ada"], walk.ready["ada"], walk.once["ada"], walk.book):
        shown = repr(value)
        assert repr(secret_of("ada")) not in shown
        assert secret_of("ada").hex() not in shown
        assert "held" not in shown
        assert "channels" not in shown


# --- the book ---------------------------------------------------------------------------------------


def test_an_altered_key_is_refused_by_name(walk):
    member, length = walk.members["ada"], 32 * (1 + 2 * walk.plan.sums)
    one = 4 + len(walk.book.keys["ada"].to_bytes())
    for at in (one + 4, one + 4 + 32, one + 4 + length - 1, one + 4 + length):
        with pytest.raises(InvalidValue, match="keys of ben must be signed by its registered identity"):
            share(member, flipped(walk.book_bytes, at), verify, Once.of(walk.plan))


def test_keys_of_another_member_batch_or_run_are_refused(walk):
    """Signed by somebody who is on the roster, but not this, or not for this."""
    ben, cleo = walk.book.keys["ben"], walk.book.keys["cleo"]
    later = Walk(plan_for(5, colluders=1, sums=3, context=b"run 1, batch 2")).book.keys["ben"]
    for wrong in (cleo, later):
        book = replace(walk.book, keys={**walk.book.keys, "ben": wrong})
        with pytest.raises(InvalidValue, match="keys of ben must be signed"):
            share(walk.members["ada"], book.to_bytes(), verify, Once.of(walk.plan))
    assert MemberKeys.from_bytes(walk.plan, "ben", ben.to_bytes(), verify) == ben


def test_the_signature_says_whose_keys_they_are(walk):
    """Even where one identity is registered under two names."""

    def alike(name, content, signed):
        return any(verify(other, content, signed) for other in walk.plan.members)

    book = replace(walk.book, keys={**walk.book.keys, "ben": walk.book.keys["cleo"]})
    with pytest.raises(InvalidValue, match="keys of ben must be signed"):
        share(walk.members["ada"], book.to_bytes(), alike, Once.of(walk.plan))


def test_the_digest_of_a_book_says_whose_keys_they_are(walk):
    ada, ben, cleo, dan, _ = walk.book.keys.values()
    one = Book(walk.plan, {"ada": ada, "ben": ben, "cleo": cleo, "dan": dan})
    other = Book(walk.plan, {"ada": ada, "ben": ben, "cleo": cleo, "eve": dan})
    assert one.digest != other.digest


def test_its_own_keys_must_be_there_as_it_sent_them(walk):
    impostor = Member(walk.plan, "ada", secret_of("somebody else"))
    with pytest.raises(InvalidValue, match="keys of ada must be in the book as it sent them"):
        share(impostor, walk.book_bytes, verify, Once.of(walk.plan))
    rest = {name: keys for name, keys in walk.book.keys.items() if name != "ada"}
    with pytest.raises(InvalidValue, match="keys of ada must be in the book"):
        share(walk.members["ada"], Book(walk.plan, rest).to_bytes(), verify, Once.of(walk.plan))


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b"", lambda b: b"\xff" * 40]
)
def test_a_book_that_is_cut_or_too_long_is_refused(walk, spoil):
    with pytest.raises(InvalidValue):
        share(walk.members["ada"], spoil(walk.book_bytes), verify, Once.of(walk.plan))


def test_a_book_of_too_few_is_refused(walk):
    some = {name: walk.book.keys[name] for name in ("ada", "ben", "cleo")}
    content = b"".join(
        len(part).to_bytes(4, "little") + part
        for part in (some[name].to_bytes() if name in some else b"" for name in walk.plan.members)
    )
    with pytest.raises(InvalidValue, match="keys must be of 4 members at least, got 3: ada, ben, cleo"):
        share(walk.members["ada"], content, verify, Once.of(walk.plan))


def test_it_shares_its_secrets_under_one_book_only(walk):
    """M5: with everybody else's keys unchanged, but one member less."""
    fewer = Book(walk.plan, {name: walk.book.keys[name] for name in ("ada", "ben", "cleo", "dan")})
    with pytest.raises(InvalidValue, match="keys must be what it was the first time"):
        share(walk.members["ada"], fewer.to_bytes(), verify, walk.once["ada"])
    with pytest.raises(
        InvalidValue, match="keys must be those that this member has shared its secrets under"
    ):
        received(walk.members["ada"], fewer.to_bytes(), verify, b"", walk.once["ada"])


def test_every_secret_is_shared_by_a_polynomial_of_its_own(walk):
    """With the same one for two secrets, any two shares would give away their difference."""
    fewer = Book(walk.plan, {name: walk.book.keys[name] for name in ("ada", "ben", "cleo", "dan")})
    dealt = [
        client._dealt(walk.members[name], book, which, kind, [1, 2])
        for name in ("ada", "ben")
        for book in (walk.book, fewer)
        for which in range(3)
        for kind in client.KINDS
    ]
    slopes = {(second - first) % sharing.PRIME for first, second in dealt}
    assert len(slopes) == len(dealt) == 2 * 2 * 3 * 2


# --- parcels ----------------------------------------------------------------------------------------


def test_parcels_of_others_another_order_or_altered_are_refused_by_name(walk):
    size = parcel_length(walk.plan)
    own = walk.parcels["ada"]  # from ben, cleo, dan, eve
    parts = [own[at : at + size] for at in range(0, len(own), size)]
    swapped = b"".join([parts[1], parts[0], *parts[2:]])
    with pytest.raises(InvalidValue, match="parcel of ben must be sealed for this member and these keys"):
        walk.receive("ada", swapped)
    with pytest.raises(InvalidValue, match="parcel of ada must be"):
        walk.receive("ben", own)
    with pytest.raises(InvalidValue, match="parcel of dan must be"):
        walk.receive("ada", flipped(own, 2 * size + 5))
    back = walk.shared["ada"][:size]  # its own parcel for ben, sent back as ben's
    with pytest.raises(InvalidValue, match="parcel of ben must be"):
        walk.receive("ada", back + own[size:])
    for wrong in (own[:-1], own + b"\0", b"", None):
        with pytest.raises(InvalidValue, match="parcels must be 4 of"):
            walk.receive("ada", wrong)


@pytest.mark.parametrize("context", [b"run 1, batch 2", b"run 2, batch 1"])
def test_parcels_of_another_batch_or_run_are_refused(walk, context):
    later = Walk(plan_for(5, colluders=1, sums=3, context=context))
    with pytest.raises(InvalidValue, match="parcel of ben must be"):
        walk.receive("ada", later.parcels["ada"])


def test_members_with_different_books_do_not_open_each_others_parcels():
    """M5: cleo is shown a book without eve, all others one with her."""
    plan = plan_for(5)  # t = 3
    members = {name: Member(plan, name, secret_of(name)) for name in plan.members}
    whole = gathered(plan, {name: advertise(members[name], signer(name)) for name in members}, verify)[0]
    fewer = Book(plan, {name: whole.keys[name] for name in plan.members[:4]})
    sent = {
        name: share(members[name], (fewer if name == "cleo" else whole).to_bytes(), verify, Once.of(plan))
        for name in plan.members
    }
    size = parcel_length(plan)
    from_cleo = sent["cleo"][0]  # ada, ben, dan
    parcels = b"".join(
        [sent["ben"][0][:size], from_cleo[:size], sent["dan"][0][:size], sent["eve"][0][:size]]
    )
    with pytest.raises(InvalidValue, match="parcel of cleo must be"):
        received(members["ada"], whole.to_bytes(), verify, parcels, sent["ada"][1])


# --- inputs -----------------------------------------------------------------------------------------


def test_another_vector_for_the_same_sum_is_refused(walk):
    vectors = vectors_for(walk.plan)
    walk.inputs(0, vectors)
    with pytest.raises(InvalidValue, match="input 0 must be what it was the first time"):
        masked(walk.ready["ada"], walk.once["ada"], 0, vectors["ben"])
    with pytest.raises(InvalidValue, match="input 0 must be what it was the first time"):
        masked(walk.ready["ada"], walk.once["ada"], 0, vectors["ada"], b"something else")
    masked(walk.ready["ada"], walk.once["ada"], 1, vectors["ben"])


@pytest.mark.parametrize("which", [-1, 3, 0.5, "0"])
def test_a_sum_outside_the_batch_is_refused(walk, which):
    with pytest.raises(InvalidValue, match="which must"):
        masked(walk.ready["ada"], walk.once["ada"], which, np.zeros(3))
    with pytest.raises(InvalidValue, match="which must"):
        unmask(walk.ready["ada"], walk.once["ada"], which, walk.plan.members)


def test_vectors_of_another_shape_are_refused(walk):
    for wrong in (np.zeros(2), np.zeros((3, 1)), np.float64(1.0)):
        with pytest.raises(InvalidValue, match=r"vector must have shape \(3,\)"):
            masked(walk.ready["ada"], walk.once["ada"], 0, wrong)


def test_what_is_too_long_is_scaled_down_and_what_is_not_finite_is_left_out(walk):
    vectors = {name: np.zeros(3) for name in walk.plan.members}
    vectors["ada"] = np.array([30.0, 0.0, 40.0])  # bound 8
    vectors["ben"] = np.array([np.nan, 1.0, 1.0])
    found = walk.total(0, vectors)
    assert found.values == pytest.approx([4.8, 0, 6.4])
    vectors["cleo"] = vectors["ada"].astype(np.float32) / 100
    assert walk.total(1, vectors).values == pytest.approx([5.1, 0, 6.8])


def test_every_member_adds_its_share_of_the_noise_after_the_bound():
    plan = plan_for(5, colluders=1, noise=3.0)
    walk, seen = Walk(plan), {}

    def hide(name):
        def noisy(values, sd):
            seen[name] = (values.tolist(), sd)
            return values + sd * np.array([1.0, -1.0, 40.0])

        return noisy

    vectors = dict.fromkeys(plan.members, np.array([80.0, 0.0, 0.0]))  # bound 8
    inputs = walk.inputs(0, vectors, noisy={name: hide(name) for name in plan.members})
    pending = collected(walk.book, 0, inputs)
    found = revealed(pending, walk.answers(0, plan.members))
    share_sd = 3.0 / (4 - 1) ** 0.5
    assert set(seen) == set(plan.members)
    assert all(values == [8, 0, 0] and sd == pytest.approx(share_sd) for values, sd in seen.values())
    step = 2.0**-plan.fraction_bits
    expected = [5 * (8 + share_sd), -5 * share_sd, 5 * plan.limit]  # the last is cut off where room ends
    assert np.abs(found.values - expected).max() <= 5 * step / 2
    assert (found.values / step == np.rint(found.values / step)).all()


@pytest.mark.parametrize("dropped", [0, 1])
def test_secret_noise_is_on_the_grid_and_as_wide_as_promised(dropped):
    """M9: 0.7 at least on the sum with all drop-outs that are borne, and off one colluder's share."""
    plan = plan_for(4, colluders=1, size=20_000, noise=0.7)  # t = 3
    walk, names = Walk(plan), plan.members[: 4 - dropped]
    seen = {}

    def hide(name):
        def noisy(values, sd):
            seen[name] = Secret(secret_of(name, "'s noise")).noisy(values, sd, name.encode(), 0)
            return seen[name]

        return noisy

    vectors = {name: np.zeros(plan.size) for name in names}
    inputs = walk.inputs(0, vectors, noisy={name: hide(name) for name in names})
    found = revealed(collected(walk.book, 0, inputs), walk.answers(0, names))
    steps = np.array(list(seen.values())) * 2.0**plan.fraction_bits
    assert (steps == np.rint(steps)).all()
    assert found.values.tolist() == np.sum(list(seen.values()), axis=0).tolist()
    secret = found.values - seen["ben"]
    relative = float(np.std(secret)) / 0.7
    expected = ((3 - dropped) / (plan.threshold - plan.colluders)) ** 0.5
    assert abs(relative / expected - 1) < 5 / (2 * plan.size) ** 0.5  # five standard errors


def test_noise_that_is_no_noise_is_refused():
    walk = Walk(plan_for(3, noise=1.0))
    for wrong in (np.zeros(2), np.array([0.0, np.nan, 0.0])):
        with pytest.raises(InvalidValue, match="noisy must give 3 finite numbers"):
            masked(
                walk.ready["ada"], walk.once["ada"], 0, np.zeros(3), noisy=lambda _, sd, wrong=wrong: wrong
            )


def test_noise_is_not_forgotten(walk):
    noisy = Walk(plan_for(3, noise=1.0))
    with pytest.raises(InvalidValue, match="noisy must be given with this plan"):
        masked(noisy.ready["ada"], noisy.once["ada"], 0, np.zeros(3))
    with pytest.raises(InvalidValue, match="noisy must not be given with this plan"):
        masked(walk.ready["ada"], walk.once["ada"], 0, np.zeros(3), noisy=lambda values, sd: values)


# --- answers ----------------------------------------------------------------------------------------


def test_a_second_set_of_survivors_is_refused(walk):
    """M6: a server that asks for both kinds of share of eve."""
    walk.inputs(0, vectors_for(walk.plan))
    walk.answers(0, walk.plan.members)
    with pytest.raises(InvalidValue, match="survivors 0 must be what it was the first time"):
        unmask(walk.ready["ada"], walk.once["ada"], 0, ("ada", "ben", "cleo", "dan"))


@pytest.mark.parametrize(
    ("survivors", "said"),
    [
        (("ada", "ben", "cleo"), "survivors must be 4 at least, the threshold, got 3"),
        (("ada", "ben", "cleo", "ada"), "survivors must be 4 at least"),
        (("ben", "cleo", "dan", "eve"), "survivors must include ada"),
        (("ada", "ben", "cleo", "mallory"), "survivors must be among those whose keys .* got mallory"),
    ],
)
def test_survivors_must_be_enough_known_and_include_itself(walk, survivors, said):
    walk.inputs(0, vectors_for(walk.plan))
    with pytest.raises(InvalidValue, match=said):
        unmask(walk.ready["ada"], walk.once["ada"], 0, survivors)


def test_who_has_given_no_input_does_not_answer(walk):
    walk.inputs(0, vectors_for(walk.plan))
    with pytest.raises(InvalidValue, match="survivors must include ada, who has given its input of sum 1"):
        unmask(walk.ready["ada"], walk.once["ada"], 1, walk.plan.members)


def test_the_order_of_survivors_does_not_matter(walk):
    walk.inputs(0, vectors_for(walk.plan))
    answer = walk.answers(0, walk.plan.members)["ada"]
    assert unmask(walk.ready["ada"], walk.once["ada"], 0, walk.plan.members[::-1])[0] == answer


def test_what_another_batch_has_done_is_refused(walk):
    other = Once.of(plan_for(5, colluders=1, sums=3, context=b"another"))
    for call in (
        lambda: share(walk.members["ada"], walk.book_bytes, verify, other),
        lambda: received(walk.members["ada"], walk.book_bytes, verify, walk.parcels["ada"], other),
        lambda: masked(walk.ready["ada"], other, 0, np.zeros(3)),
        lambda: unmask(walk.ready["ada"], other, 0, walk.plan.members),
    ):
        with pytest.raises(InvalidValue, match="once must be of the same batch"):
            call()


def test_a_member_must_be_in_the_plan_and_have_a_secret():
    with pytest.raises(InvalidValue, match="member must be in the plan, got 'mallory'"):
        Member(plan_for(3), "mallory", bytes(32))
    with pytest.raises(InvalidValue, match="secret must be 32 bytes, got something else"):
        Member(plan_for(3), "ada", b"short")
