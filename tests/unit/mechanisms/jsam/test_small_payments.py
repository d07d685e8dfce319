"""Payments that are no larger than their certified error do not stand without a word."""

from dataclasses import replace

import numpy as np

from bonafed.economics import Uniform
from bonafed.mechanisms.jsam import settle
from bonafed.mechanisms.jsam.payments import admit
from bonafed.mechanisms.jsam.report import Quote, Weight, describe, quote_blocks
from bonafed.mechanisms.jsam.terms import JsamTerms

PRIOR, NAMES = Uniform(0, 1), ("ada", "ben", "cem")
REPORTS = np.array([0.2, 0.4, 0.6])


def uncertain(which):
    """A settlement in which the payment of one client is certified to twice its size."""
    settled = settle(REPORTS, PRIOR, 5.0, 1.0)
    error = settled.payment_error.copy()
    if which is not None:
        error[which] = 2 * settled.payment[which]
    return replace(settled, payment_error=error)


def test_terms_caution():
    assert not any(
        "certified" in caution for caution in JsamTerms(NAMES, uncertain(None), PRIOR, 2).cautions
    )
    terms = JsamTerms(NAMES, uncertain(1), PRIOR, 2)
    assert terms.cautions[0].startswith(
        "the payment of ben is not larger than the error it is certified to"
    )
    assert "Caution: the payment of ben" in str(terms)


def test_quotes_note_it():
    request = Quote(PRIOR, NAMES, REPORTS, admit(REPORTS, PRIOR), 1.0, None)

    def notes(which):
        told = describe(request, Weight(5.0, "given", None), uncertain(which), [1], None)
        return [block for block in quote_blocks(told) if str(block).startswith("note: the payment of")]

    assert notes(None) == []
    assert len(notes(2)) == 1
    assert "of cem is" in notes(2)[0]
