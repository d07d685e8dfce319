"""Which mechanism fits: the catalogue says whom each is for."""

import pytest

from bonafed import InvalidValue
from bonafed.mechanisms.advice import ADVICE, Situation, advise, first_command
from bonafed.mechanisms.catalogue import CATALOGUE


@pytest.mark.parametrize(
    ("situation", "fitting"),
    [
        (Situation("yes", "participation"), ["sampling", "posted-price"]),
        (Situation("yes", "privacy", prior="yes"), ["jsam"]),
        (Situation("yes", "none"), ["fedavg", "faithful"]),
        (Situation("no", "none"), ["fedavg"]),
        (Situation("no", "participation", one_model="no"), ["rewards"]),
        (Situation("no", "privacy"), []),
    ],
)
def test_what_fits(situation, fitting):
    document = advise(situation)
    assert document.data["fitting"] == fitting
    assert set(document.data["mechanisms"]) == set(CATALOGUE)
    assert ("None fits" in str(document)) is (not fitting)
    for name in fitting:
        assert f"Begin with: {first_command(CATALOGUE[name].fit, situation)}\n" in f"{document}\n"


@pytest.mark.parametrize(
    ("situation", "command"),
    [
        (Situation("yes", "participation", prior="no"), "quote sampling --prior-free --highest C"),
        (Situation("yes", "participation", prior="yes"), "quote sampling"),
        (Situation("yes", "none"), "train --write-example faithful"),
        (Situation("no", "none", one_model="no"), "train --write-example rewards"),
    ],
)
def test_what_to_begin_with_needs_nothing_that_is_not_known(situation, command):
    assert f"Begin with: bonafed {command}\n" in f"{advise(situation)}\n"


def test_a_mechanism_that_pays_for_nothing_is_said_to():
    reasons = advise(Situation("yes", "none", prior="yes")).data["mechanisms"]
    for name in ("sampling", "jsam"):
        assert reasons[name]["objections"] == ["pays for costs that clients here do not have"]


def test_answers_are_asked_for():
    assert ADVICE["mechanism"].options is Situation
    with pytest.raises(InvalidValue, match="money must be one of yes, no"):
        Situation("perhaps", "none")
