"""Which mechanism fits: the catalogue says whom each is for."""

import pytest

from bonafed import InvalidValue
from bonafed.mechanisms.advice import ADVICE, Situation, advise
from bonafed.mechanisms.catalogue import CATALOGUE


@pytest.mark.parametrize(
    ("situation", "fitting"),
    [
        (Situation("yes", "participation"), ["sampling"]),
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
        assert CATALOGUE[name].fit.begin in str(document)


def test_answers_are_asked_for():
    assert ADVICE["mechanism"].options is Situation
    with pytest.raises(InvalidValue, match="money must be one of yes, no"):
        Situation("perhaps", "none")
