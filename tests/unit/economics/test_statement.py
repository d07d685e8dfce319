"""Statements: how money is shown, and notes on payments that are no larger than what they may be off by."""

import math

import pytest

from bonafed.economics.statement import Statement, within_error

NAMES = tuple("abcdefgh")


@pytest.mark.parametrize(
    ("payment", "error", "is_noted"),
    [
        (0.5, 0.1, False), (0.1, 0.5, True), (-0.1, 0.5, True), (-0.5, 0.1, False), (0.1, 0.1, True),
        (0.0, 0.1, False),  # nothing is owed: that is no error
        (0.1, math.nan, False),  # nothing is certified, as the statement says elsewhere
        (0.1, 0.0, False),
    ],
)  # fmt: skip
def test_a_payment_within_its_error_is_noted(payment, error, is_noted):
    notes = within_error(("ada", "ben"), (1.0, payment), (1e-9, error))
    assert bool(notes) is is_noted
    if is_noted:
        assert notes == [
            f"the payment of ben is not larger than the error it is certified to, {error:.2g}: it may as "
            "well be 0"
        ]


def test_many_are_named_in_one_note():
    (note,) = within_error(NAMES, [0.01] * 8, [0.02] * 7 + [0.03], "expected to have")
    assert note == (
        "the payments of a, b, c, d, e and 3 more are not larger than the errors they are expected to "
        "have, up to 0.03: they may as well be 0"
    )


def test_a_statement_shows_money_in_groups_of_three_digits_and_writes_it_without():
    made = Statement("any", ("ada", "ben"), (123456789, -250000))
    shown = str(made.document())
    assert "1,234,567.89" in shown
    assert "-2,500.00" in shown
    assert "1,232,067.89 money" in shown
    assert b"1234567.89" in made.to_csv()
    assert made.row("ada")["amount"] == "1234567.89"
