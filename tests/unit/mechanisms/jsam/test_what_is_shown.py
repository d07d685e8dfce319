"""What is shown of bought privacy: payments within their error, and what a participant may expect."""

from dataclasses import replace

import numpy as np
import pytest

from bonafed.economics import Uniform
from bonafed.mechanisms.jsam import settle
from bonafed.mechanisms.jsam.payments import admit
from bonafed.mechanisms.jsam.prospects import prospect
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.mechanisms.jsam.quote_report import Quote, Weight, describe, quote_blocks
from bonafed.mechanisms.jsam.rules import Jsam
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


def test_numbers_of_a_contract_can_be_read():
    contract = JsamContract(
        clients=3,
        prior=PRIOR,
        eta=np.pi,
        noise=np.e / 3,
        rounds=10,
        clip=1.0,
        delta=1e-5,
        clients_per_round=2,
    )
    assert "3.14159\n" in str(contract)
    assert "0.906094\n" in str(contract)


def test_terms_caution():
    assert not any(
        "certified" in caution for caution in JsamTerms(NAMES, uncertain(None), PRIOR, 2, 10, 1e-5).cautions
    )
    terms = JsamTerms(NAMES, uncertain(1), PRIOR, 2, 10, 1e-5)
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


def test_a_prospect_draws_and_says_over_how_many_draws_lies_were_tried():
    contract = JsamContract(6, PRIOR, eta=5, noise=1.0, rounds=10, clip=1.0)
    mine = prospect(contract, 0.3)
    (table,) = mine.document().blocks
    assert f"over {mine.draws} draws of the others' costs" in table.caption
    assert table.caption.endswith(f"on average over {mine.lying} of them")
    (axes,) = mine.plot().axes
    curve = axes.get_lines()[0]
    assert axes.get_ylabel() == f"money left, mean of {mine.lying} draws"
    truth = float(np.interp(0.3, curve.get_xdata(), curve.get_ydata()))
    assert truth == max(curve.get_ydata())  # as the verdict says
    spread = mine.outlooks[0].profit_sd / np.sqrt(mine.lying)
    assert truth == pytest.approx(mine.outlooks[0].profit, abs=4 * spread)
    assert axes.get_ylim()[0] >= -2 * truth  # what nobody would state does not flatten the rest


@pytest.mark.parametrize(
    ("noise_at", "words"), [("client", "probability of each draw"), ("sum", "weight in every round")]
)
def test_the_figure_of_terms_says_what_a_selection_is(noise_at, words):
    settled = settle(REPORTS, PRIOR, 5.0, 1.0, rule=Jsam(noise_at=noise_at))
    terms = JsamTerms(NAMES, settled, PRIOR, 2, 10, 1e-5, noise_at=noise_at)
    assert terms.document().figure().axes[0].get_ylabel() == words
