"""Extreme numbers in every question of `bonafed advise`: an answer, or one line that names the number."""

import json

import pytest

from bonafed.cli.nouns import _advice
from bonafed.mechanisms.protocol import Command

AGENTS = "--counts 200,200,800 --delta 0.3"
QUESTIONS = {
    "join": AGENTS,
    "federate-or-cluster": AGENTS,
    "manipulation": AGENTS,
    "clusters": "--agents 10",
    "privacy-tradeoff": "",
    "faithfulness": "--epsilon 1",
    "private-training": "--records 144 --clients 10 --parameters 650 --epsilon 1",
    "convergence": "--clients 4 --rounds 10 --budget 50 --prior uniform:0.5,1.5",
    "reward-rule": "--cost 0.1 --cost 0.2 --ceiling 2 --sharing 0",
    "reward-parameters": "--cost 0.1 --cost 0.2",
}
WORDS = {
    "shares", "groups", "data", "partition", "prior", "noise_at", "measure", "goal", "money", "costs",
}  # fmt: skip
EXTREMES = ("0", "-1", "nan", "inf", "1e308", "1e150", "1e17", "1e-30", "1e-150", "1e-300", "5e-324")


def no_number(name):
    raise AssertionError(f"{name} in JSON")


def test_every_question_is_asked():
    assert {*QUESTIONS, "mechanism"} == set(_advice())  # that one takes no numbers


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_number_is_answered_or_refused_in_a_line(bonafed, question):
    for name in sorted(_advice()[question].options.__dataclass_fields__.keys() - WORDS):
        flag = f"--{name.replace('_', '-')}"
        others = QUESTIONS[question].split()
        if flag in others and name != "cost":
            place = others.index(flag)
            del others[place : place + 2]
        for value in EXTREMES:
            given = f"{value},200" if name == "counts" else value
            code, out, err = bonafed("advise", question, *others, flag, given, "--json")
            about = f"{flag} {given}: {err or out}"
            if code == 0:
                assert err == "", about
                json.loads(out, parse_constant=no_number)
            else:
                assert (code, out, err.count("\n")) == (2, "", 1), about
                assert err.startswith("error: "), about


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("faithfulness --epsilon 1e-300", "epsilon must be between 1e-30 and 1e+30, got 1e-300"),
        ("faithfulness --epsilon 1e300", "epsilon must be between 1e-30 and 1e+30, got 1e+300"),
        (
            "reward-rule --cost 0.1 --cost 0.2 --sharing 0 --ceiling 5e-324 --plot figure.svg",
            "ceiling must be neither too large nor too small to compute with, got 5e-324",
        ),
        (
            "private-training --records 9 --clients 9 --parameters 9 --epsilon 1 --clip 1e308",
            "clip must be neither too large nor too small to compute with, got 1e+308",
        ),
    ],
)
def test_the_number_is_named(bonafed, words, said):
    assert bonafed("advise", *words.split()) == (2, "", f"error: {said}\n")


def test_arithmetic_that_fails_on_ordinary_numbers_is_not_blamed_on_them(bonafed, monkeypatch):
    def answer(options):
        return 1 / 0

    broken = Command("Broken.", _advice()["clusters"].options, answer)
    monkeypatch.setattr("bonafed.cli.nouns._advice", lambda: {"clusters": broken})
    with pytest.raises(ZeroDivisionError):
        bonafed("advise", "clusters", "--agents", "10")
