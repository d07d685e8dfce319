"""Members that are written from the page on the wire format take part in sums with those of the product."""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracles.secure_sums import plan_for, secret_of, signer, vectors_for, verify
from tests.oracles.summand import Summand

from bonafed.remote.secure_sums import (
    Member,
    Once,
    advertise,
    collected,
    gathered,
    masked,
    parcels_for,
    received,
    revealed,
    share,
    unmask,
)


@pytest.mark.parametrize("missing", ["", "cleo", "dan"], ids=["all", "ours drops out", "theirs drops out"])
def test_a_sum_with_members_of_both_kinds(missing: str) -> None:
    plan = plan_for(5, sums=3, size=6)
    described = {name: Summand(name, plan.to_bytes(), signer(name)) for name in ("ada", "dan")}
    members = {name: Member(plan, name, secret_of(name)) for name in plan.members if name not in described}
    keys = {name: one.keys() for name, one in described.items()}
    keys |= {name: advertise(one, signer(name)) for name, one in members.items()}
    book, failures = gathered(plan, keys, verify)
    assert not failures
    once, sent = {name: Once.of(plan) for name in members}, {}
    for name in plan.members:
        if name in described:
            sent[name] = described[name].shares(book.to_bytes())
        else:
            sent[name], once[name] = share(members[name], book.to_bytes(), verify, once[name])
    parcels = parcels_for(book, sent)
    vectors, which, about = vectors_for(plan), 2, b"what all were told"
    inputs, ready = {}, {}
    for name in plan.members:
        if name in described:
            inputs[name] = described[name].input(which, vectors[name], about, parcels[name])
        else:
            ready[name] = received(members[name], book.to_bytes(), verify, parcels[name], once[name])
            inputs[name], once[name] = masked(ready[name], once[name], which, vectors[name], about)
    inputs.pop(missing, None)
    pending = collected(book, which, inputs, about)
    assert missing not in pending.round.survivors
    answers = {}
    for name in pending.round.survivors:
        if name in described:
            answers[name] = described[name].unmask(which, pending.round.survivors)
        else:
            answers[name], once[name] = unmask(ready[name], once[name], which, pending.round.survivors)
    found = revealed(pending, answers)
    assert not found.failures
    assert not found.disputes
    assert np.abs(found.values - sum(vectors[name] for name in inputs)).max() < 1e-14
