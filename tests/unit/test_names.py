# ruff: noqa: RUF001  (letters at full width and of other scripts are meant)
"""One rule for the names of clients, wherever they enter."""

import json

import numpy as np
import pytest

import bonafed
from bonafed.contracts.coins import CoinRoster, commit, commit_nonce
from bonafed.economics import Uniform
from bonafed.errors import InvalidValue
from bonafed.learning.data.datasets import from_arrays
from bonafed.learning.federation import Roster
from bonafed.mechanisms.contract_files import contract_from_json
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.mechanisms.jsam.section import JsamSection
from bonafed.mechanisms.sampling.plan import plan
from bonafed.runs.config import from_tables
from bonafed.sections import section_from

JSAM = JsamContract(2, Uniform(0, 1), eta=5, noise=1.0, rounds=100, clip=1.0)
GROUPED = plan(None, 100, 2, 10, priors=[Uniform(0, 1), Uniform(0, 2)], names=["x", "y"])


def python_roster(one, other):
    Roster((one, other), np.array([1, 1]))


def coin_roster(one, other):
    CoinRoster(
        "0" * 64, commit(bytes(32)), 3, None, (one, other), ("0" * 64, "1" * 64), np.array([0.5, 0.5])
    )


def owners_in_arrays(one, other):
    from_arrays("own", [[1.0], [2.0]], [0, 1], groups=[one, other])


def owners_in_a_text_array(one, other):
    from_arrays("own", [[1.0], [2.0]], [0, 1], groups=np.array([one, other]))


def names_of_a_plan(one, other):
    plan(None, 100, 2, 10, priors=[Uniform(0, 1), Uniform(0, 2)], names=[one, other])


def sampling_contract(one, other):
    from bonafed.mechanisms.sampling.published import SamplingContract

    contract_from_json({**json.loads(SamplingContract.of(GROUPED).content), "names": [one, other]})


def sampling_reports(one, other):
    from bonafed.mechanisms.sampling.contracts import contract

    contract(Uniform(0, 1), 100, 2, 10).settle({one: 0.5, other: 0.5})


def jsam_contract(one, other):
    JsamContract(
        2, Uniform(0, 1), eta=5, noise=1.0, rounds=100, clip=1.0, max_epsilon={one: 1.0, other: 2.0}
    )


def jsam_reports(one, other):
    JSAM.settle({one: 0.5, other: 0.5})


def jsam_config(one, other):
    table = {"prior": "uniform:0,1", "clip": 1.0, "noise_scale": 1.0, "eta": 1.0}
    section_from(JsamSection, "jsam", {**table, "max_epsilon": {one: 1.0, other: 1.0}})


def reports_of_a_run(one, other):
    data = from_arrays("own", [[0.0], [1.0]] * 10, [0, 1] * 10)
    tables = {
        "data": {"name": "own"},
        "partition": {"kind": "iid", "clients": 2},
        "model": {"name": "softmax"},
        "training": {"rounds": 1, "learning_rate": 0.1},
        "sampling": {"prior": "uniform:0,1", "total_budget": 1.0},
        "run": {"cores": 1},
    }
    bonafed.train(from_tables(tables), data=data, reports={one: 0.5, other: 0.5})


WAYS_IN = [
    python_roster, coin_roster, owners_in_arrays, owners_in_a_text_array, names_of_a_plan,
    sampling_contract, sampling_reports, jsam_contract, jsam_reports, jsam_config, reports_of_a_run,
]  # fmt: skip


@pytest.mark.parametrize("enter", WAYS_IN)
def test_proper_names_enter(enter):
    enter("=cmd|x", "Zoë [red]")


@pytest.mark.parametrize("enter", WAYS_IN)
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("\x1b[2Jada", "must be 1 to 200 printable characters"),
        ("a\x00da", "must be 1 to 200 printable characters"),
        ("a\nda", "must be 1 to 200 printable characters"),
        ("a\u202eda", "must be 1 to 200 printable characters"),
        ("", "must "),
        ("\u3164", "must be 1 to 200 printable characters"),
        (" ada", "must not begin or end with a space"),
        ("Jose\u0301", "must be in Unicode form NFC"),
        ("x" * 201, "must be 1 to 200 printable characters"),
    ],
)
def test_improper_names_do_not(enter, name, rule):
    with pytest.raises(InvalidValue) as caught:
        enter("ben", name)
    assert rule in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("enter", WAYS_IN)
@pytest.mark.parametrize(("one", "other"), [("a", "A"), ("ada", "ａｄａ"), ("a b", "a  b"), ("ﬁ", "fi")])
def test_twins_do_not(enter, one, other):
    with pytest.raises(InvalidValue) as caught:
        enter(one, other)
    assert "must be all different, by more than case, width or spaces, got" in str(caught.value)
    assert repr(one) in str(caught.value)
    assert repr(other) in str(caught.value)


def test_a_name_that_ends_in_nul_is_not_cut():
    """NumPy would make one owner of these two."""
    with pytest.raises(InvalidValue, match="must be 1 to 200 printable characters"):
        owners_in_arrays("ada", "ada\x00")


def test_a_commitment_is_made_for_a_proper_name():
    with pytest.raises(InvalidValue, match="name of a client must be in Unicode form NFC"):
        commit_nonce("0" * 64, "Jose\u0301", bytes(32))
