"""Payments that are no larger than their certified error do not stand without a word."""

import re
from dataclasses import replace

import numpy as np
import pytest

from bonafed.mechanisms.faithful import mechanism
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train

TABLES = {
    "data": {"name": "small"},
    "partition": {"kind": "iid", "clients": 4},
    "model": {"name": "softmax"},
    "faithful": {"regulariser": 0.05, "epsilon": 1e-5},
    "run": {"seed": 3, "cores": 1},
}


@pytest.mark.parametrize("share", [None, 0.5, 1.0, 2.0])
def test_a_run_says_whose_payment_may_as_well_be_nothing(make, small, tmp_path, monkeypatch, share):
    """`share`: the certified error of every payment but the first, as a part of it; None: as it is."""
    made = mechanism.accounts_of

    def uncertain(*arguments, **options):
        accounts = made(*arguments, **options)
        return replace(accounts, error=share * np.abs(accounts.payment) * [0, 1, 1, 1])

    if share is not None:
        monkeypatch.setattr(mechanism, "accounts_of", uncertain)
    result = train(prepare(make(), dataset=small), tmp_path / "run")
    notes = [note for note in result.statement.notes if "certified to" in note]
    if share is None or share < 1:
        assert notes == []
    else:
        (note,) = notes
        assert note.startswith(
            "the payments of 1, 2, 3 are not larger than the errors they are certified to"
        )
        assert note in str(result)


def test_a_private_run_says_whose_payment_is_within_the_noise(make, small, tmp_path):
    private = ["privacy.epsilon=1", "privacy.delta=1e-5", "privacy.noise=reproducible"]
    setting = prepare(make(*private), dataset=small)
    statement = train(setting, tmp_path / "run").statement
    errors = setting.mechanism.payment_error
    payments = statement.columns["payment"]
    within = [
        k for k, error in zip(statement.clients, errors, strict=True) if abs(payments[int(k)]) <= error
    ]
    (note,) = [note for note in statement.notes if "expected to have" in note]
    named = re.match(r"the payments? of (.*?) (is|are) not larger", note).group(1)
    assert named.split(", ") == within


def test_the_audit_says_it_too(bonafed):
    few = ["--data", "synthetic", "--samples", 150, "--agents", 4, "--delta", 0.9, "--regulariser", 0.03]
    _, out, _ = bonafed("audit", "faithful", *few, "--epsilon", 1)
    assert "For the truth, the payment of 3 is not larger than the error it is certified to" in out
    _, out, _ = bonafed("audit", "faithful", *few)
    assert "certified to" not in out
