"""Every figure can be read, however its clients are called, how many they are and what they are paid.

Names are long, in Chinese, in full-width signs, written from right to left, or those of formulas. A letter
that no font has makes Matplotlib warn, and warnings are errors here.
"""

import numpy as np
import pytest

import bonafed
from bonafed.economics.findings import Finding
from bonafed.economics.statement import Statement
from bonafed.learning.data.datasets import from_arrays
from bonafed.mechanisms.lies_figure import lie_figure
from bonafed.presentation import figures
from bonafed.presentation.documents import Column
from bonafed.runs import listing, pages
from bonafed.runs.figures import RunCurve, comparison_figure, curve_of, runs_figure
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train
from tests.laws import worlds
from tests.laws.test_plain_data import CONTRACTS
from tests.legible import illegible

HARD = (
    "北京大学第一医院", "\uff2b\uff4cinik\uff08東\uff09",
    "a very long name of the hospital of the holy spirit, ward 17",
    "مستشفى", "$x_$ \\frac{", "_hidden 😀",
)  # fmt: skip
NAMES = worlds.all_names()
# kinds of contracts with figures of their own; of the others they differ in numbers only
KINDS = ("sampling", "prior-free", "uniform", "jsam", "sizes", "sum")
NONE = ("posted price", "seats")  # one number says it all
OTHERS = [pytest.param(kind, marks=pytest.mark.deep) for kind in CONTRACTS if kind not in (*KINDS, *NONE)]


@pytest.fixture(autouse=True, scope="module")
def price_lottery():
    with worlds.registered():
        yield


def named(count):
    """So many clients, the first of them with hard names."""
    return tuple(f"{HARD[k % len(HARD)]} {k}" if k >= len(HARD) else HARD[k] for k in range(count))


def hard():
    """The small data set, whose owners have hard names."""
    data, owner = worlds.small(), dict(zip(worlds.OWNERS, HARD, strict=True))
    return from_arrays(
        "small", data.features, data.labels, classes=3, test_features=data.test_features,
        test_labels=data.test_labels, groups=[owner[worlds.OWNERS[k // 3 % 6]] for k in range(150)],
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_clients_with_hard_names(name, tmp_path):
    folder = tmp_path / HARD[0]
    made = prepare(worlds.miniature(name), dataset=hard())
    result, terms = train(made, folder), made.agreement.terms
    figures = [result.plot(), result.statement.plot(), runs_figure([curve_of(listing.overview(folder))])]
    if getattr(terms, "document", None) and terms.document().figure:
        figures.append(terms.plot())
    for figure in figures:
        assert illegible(figure) == []


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_a_contract(kind):
    contract = CONTRACTS[kind]()
    pictures = [contract, contract.settle({"ada": 0.61, "ben": 0.95, "eve": 0.7})]
    if kind != "prior-free":
        pictures.append(contract.prospect(0.7))
    for shown in pictures:
        if shown.document().figure if hasattr(shown, "document") else shown.figure:
            assert illegible(shown.plot()) == []
    earned = [(c, {"kind": HARD[0], "admitted": True, "paid": 1e9, "left": c}) for c in (0.5, 1.0)]
    assert illegible(pages._figure(earned, "cost")) == []


@pytest.mark.parametrize(
    ("kind", "count"), [("sampling", 1), ("sampling", 17), ("sampling", 100), ("jsam", 6), ("jsam", 31)]
)
def test_terms_of_many(kind, count):
    prior, names = bonafed.Uniform(0.5, 1.5), named(count)
    if kind == "sampling":
        contract = bonafed.sampling.contract(prior, 30 * count, count, 20)
    else:
        contract = bonafed.jsam.contract(prior, count, 20, noise_scale=1.0, clip=1.0, eta=5)
    costs = dict(zip(names, np.linspace(0.5, 1.4, count), strict=True))
    assert illegible(contract.settle(costs).plot()) == []


@pytest.mark.parametrize(("count", "size"), [(1, 10**12), (6, 1), (30, 10**12), (31, 1), (400, 1)])
def test_a_statement(count, size):
    amounts = [(-1) ** k * size * (k + 1) for k in range(count)]
    statement = Statement("any", named(count), tuple(amounts), run=HARD[2], unit=HARD[0])
    assert illegible(statement.plot()) == []


@pytest.mark.parametrize("count", [1, 5, 8])
@pytest.mark.parametrize("alike", [True, False])
def test_mechanisms_side_by_side(count, alike):
    rows = [
        {
            "mechanism": named(count)[k], "accuracy": 0.9 - 0.01 * (k % 7), "money": 72434.82 + k,
            "epsilon": None, "lie gains": 1.2e-7 * k, "tested on": 60_000, "failed": k == 1,
        }
        for k in range(count)
    ]  # fmt: skip
    rows[0]["epsilon"] = 0.012345
    written = {"accuracy": ".2%", "money": ",.2f", "epsilon": ".4g", "lie gains": ".2g"}
    texts = {name: Column(name, form).text for name, form in written.items()}
    assert illegible(comparison_figure(rows, texts, judged_alike=alike)) == []


@pytest.mark.parametrize("count", [1, 6, 40])
def test_curves_of_many_runs(count):
    rounds = np.arange(1.0, 4.0)
    curves = [
        RunCurve(name, rounds, rounds / 10, 1 / rounds, 1e9 * rounds if k % 2 else rounds * 0.0 + 7)
        for k, name in enumerate(named(count))
    ]
    assert illegible(runs_figure(curves)) == []


@pytest.mark.parametrize("name", HARD)
def test_lies_of_a_client(name):
    finding = Finding("truthful", True, "none found", tries=9)
    costs = np.linspace(0.5, 1.5, 5)
    drawn = lie_figure(costs, 2 - costs, costs, "privacy compensation", finding, client=name)
    assert illegible(drawn) == []


def test_a_letter_of_another_font_is_drawn_in_it(monkeypatch):
    """Where a font with more letters is installed, names are shown in their own letters."""
    letter = "\u20dd\u1d81"[1]  # which STIX has, and Matplotlib's usual font has not
    assert figures.words(letter) == "\\u1d81"
    for function in (figures._families, figures._piece):
        function.cache_clear()
    monkeypatch.setattr(figures, "_MORE_FONTS", ("a font that nobody has", "STIXGeneral"))
    try:
        assert figures.words(letter) == letter
        assert illegible(Statement("any", (letter,), (1,)).plot()) == []
    finally:
        for function in (figures._families, figures._piece):
            function.cache_clear()


@pytest.mark.parametrize(
    ("text", "drawn"),
    [("\uff41da\uff08\uff11\uff09", "ada(1)"), ("北京", "\\u5317\\u4eac"), ("zoë Ω", "zoë Ω")],
)
def test_without_such_a_font_letters_are_spelled_out(monkeypatch, text, drawn):
    for function in (figures._families, figures._piece):
        function.cache_clear()
    monkeypatch.setattr(figures, "_MORE_FONTS", ())
    try:
        assert figures.words(text) == drawn
    finally:
        for function in (figures._families, figures._piece):
            function.cache_clear()
