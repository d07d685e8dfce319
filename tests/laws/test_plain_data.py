"""Whatever a value shows of itself is plain data: text, numbers, truth values, None, lists, dictionaries.

Over every mechanism of the catalogue: what a run keeps and says, its page, what its audit finds; over every
kind of contract: its document, checks, terms, prospects and page; and every example of a command of a
mechanism. NumPy's truth values are no truth values to JSON, and NaN is no number.
"""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import bonafed
from bonafed.economics.findings import Finding, Witness
from bonafed.economics.statement import Statement
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.jsam.noise import Ingredients
from bonafed.mechanisms.posted_price.contract import Offer, PostedPriceContract
from bonafed.presentation.documents import Column, Document, Table, plain
from bonafed.runs import integrity, listing, pages
from bonafed.runs.compare import compare
from bonafed.runs.pages import run_page
from bonafed.runs.training import train
from tests.laws import worlds

NAMES = worlds.all_names()
KINDS = (str, int, float, bool, type(None))
COSTS = {"ada": 0.61, "ben": 0.95, "eve": 0.7}
BELIEF = bonafed.Uniform(0.5, 1.5)


@pytest.fixture(autouse=True, scope="module")
def price_lottery():
    with worlds.registered():
        yield


def require_plain(value, place="it"):
    """Of exactly these kinds, and what JSON can write."""
    if type(value) is dict:
        for name, part in value.items():
            assert type(name) is str, f"{place} has a key {name!r}"
            require_plain(part, f"{place}.{name}")
    elif type(value) is list:
        for number, part in enumerate(value):
            require_plain(part, f"{place}[{number}]")
    else:
        assert type(value) in KINDS, f"{place} is {value!r}, a {type(value)}"
    json.dumps(value, allow_nan=False)


def require_shown(document):
    require_plain(document.data)
    assert type(document.holds) is bool
    for block in document.blocks:
        for row in block.rows if isinstance(block, Table) else ():
            assert {type(cell) for cell in row} <= set(KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_shows_plain_data(name, tmp_path):
    made = worlds.setting(name)
    result = train(made, tmp_path / "run")
    statement = result.statement
    for document in (result.document(), statement.document(), statement.only(worlds.OWNERS[0]).document()):
        require_shown(document)
    for value in (result.summary, list(result.metrics), statement.to_json(), made.agreement.to_json()):
        require_plain(value)
    for finding in result.findings:
        require_plain(finding.to_json())
    assert Statement.from_json(statement.to_json()).to_json() == statement.to_json()
    terms = made.agreement.terms
    if hasattr(terms, "document"):
        require_shown(terms.document())
        require_plain(terms.to_json())
    require_plain(listing.overview(tmp_path / "run"))
    require_shown(integrity.check_document({"run": integrity.check(tmp_path / "run")}))
    assert run_page(tmp_path / "run").to_html()


def test_a_comparison_shows_plain_data(tmp_path):
    tables = worlds.example("fedavg")
    tables["data"], tables["partition"] = {"name": "small", "classes": 3}, {"kind": "natural"}
    tables["training"] = {"rounds": 2, "batch_size": 8, "learning_rate": 0.1}
    asked = {"budget": 100.0, "costs": BELIEF, "sensitivities": BELIEF, "clip": 1.0, "max_epsilon": 1.0}
    asked["mechanisms"] = [name for name in NAMES if name != "faithful"]
    found = compare({**tables, "compare": asked}, dataset=worlds.small())
    require_shown(found.document())
    require_plain(found.to_json())


def jsam(**options):
    return bonafed.jsam.contract(BELIEF, 3, 20, noise_scale=options.pop("noise", 1.0), clip=1.0, **options)


CONTRACTS = {
    "sampling": lambda: bonafed.sampling.contract(BELIEF, 30, 3, 20),
    "groups": lambda: bonafed.sampling.contract(BELIEF, 30, 3, 20, weights=[1, 2, 3], names=list(COSTS)),
    "prior-free": lambda: bonafed.sampling.prior_free_contract(1.5, 30, 3, 20),
    "uniform": lambda: bonafed.sampling.BenchmarkContract("uniform", BELIEF, 3, 20, 30.0),
    "posted price": lambda: PostedPriceContract.of(Offer(30), 3, 20),
    "seats": lambda: PostedPriceContract.of(Offer(30, seats=2, prior=BELIEF), 3, 20),
    "jsam": lambda: jsam(eta=5),
    "made of": lambda: jsam(eta=5, noise=Ingredients(10, 0.5, 25)),
    "caps": lambda: jsam(eta=5, max_epsilon=dict.fromkeys(COSTS, 2.0)),
    "sum": lambda: jsam(eta=5, max_epsilon=2.0, noise_at="sum"),
    "sizes": lambda: jsam(eta=5, sizes={"ada": 10, "ben": 20, "eve": 30}),
    "cheapest": lambda: jsam(eta=5, scheme="cheapest", members=2),
    "unbiased": lambda: jsam(expected_budget=3, scheme="unbiased"),
    "expected budget": lambda: jsam(expected_budget=3),
    "expected budget, cap": lambda: jsam(expected_budget=3, max_epsilon=2.0),
}


@pytest.mark.parametrize("kind", CONTRACTS)
def test_a_contract_shows_plain_data(kind):
    contract = CONTRACTS[kind]()
    require_shown(contract.document())
    terms = contract.settle(COSTS)
    require_shown(terms.document())
    require_plain(terms.to_json())
    if kind != "prior-free":  # what a cost earns depends on who reports before
        require_shown(contract.prospect(0.7))
    findings = contract.verify()
    assert findings
    for finding in findings:
        require_plain(finding.to_json())
        assert finding.holds in (True, False, None)
        assert type(finding.holds) in (bool, type(None))


def test_a_page_and_a_verification_of_a_contract_for_an_expected_budget(tmp_path, bonafed_cli, monkeypatch):
    monkeypatch.setattr(pages, "_PLACES", 2)
    page = pages.contract_page(CONTRACTS["expected budget"](), "contract.json")
    assert b"every check" in page.to_html()
    path = tmp_path / "contract.json"
    CONTRACTS["expected budget"]().write(path)
    said = json.loads(bonafed_cli("verify", str(path), "--json"))
    assert said["holds"] is True
    assert {type(finding["holds"]) for finding in said["findings"]} == {bool}


LONG = {("audit", "faithful"), ("convergence", "sampling")}


def commands():
    """(words of the example, whether it takes long) of every command of every mechanism."""
    for entry in catalogue.CATALOGUE.values():
        part = entry.load()
        known = {"quote": part.quote, "audit": part.attack, **part.advice}
        for verb, command in known.items():
            if command is not None:
                yield shlex.split(command.example)[1:], (verb, entry.name) in LONG


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=" ".join(words[:2]), marks=[pytest.mark.deep] * slow)
        for words, slow in commands()
    ],
)
def test_every_example_of_a_command_prints_plain_json(words, bonafed, tmp_path):
    (tmp_path / "sensitivities.csv").write_text(
        "client,cost\nada,0.2\nben,0.5\neve,0.7\n", encoding="utf-8"
    )
    code, out, err = bonafed(*words, "--json")
    assert code in (0, 1), err  # 1: a lie that pays was found
    require_plain(json.loads(out, parse_constant=refuse_constant))


def refuse_constant(name):
    """NaN and infinities are no JSON."""
    raise AssertionError(f"{name} is printed, which is no JSON")


@pytest.fixture
def bonafed_cli():
    from typer.testing import CliRunner

    from bonafed.cli import app

    def run(*words):
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


class TestWhatMakesItSo:
    """Values of NumPy become Python's where a finding, a statement, a table or a document is made."""

    def test_a_finding(self):
        case = Witness("a case", np.float64(1), np.float64(2), np.float64(3), np.int64(4), (np.float64(5),))
        made = Finding("claim", np.bool_(True), "text", np.float64(1.5), case, np.int64(3), np.float64(0.1))
        assert made.holds is True
        require_plain(made.to_json())
        assert Finding.from_json(made.to_json()) == made
        assert Finding("claim", None, "text").to_json()["number"] is None

    def test_a_statement(self):
        made = Statement(
            "any", ("ada",), (np.int64(5),),
            columns={"epsilon": (np.float64(1.0),), "in": (np.bool_(True),)},
            totals={"spend": np.float64(2.5), "worst": float("nan")},
            facts={"costs": np.array([1.0, np.inf]), "of": {"pair": (1, np.int64(2))}},
        )  # fmt: skip
        require_plain(made.to_json())
        assert made.to_json()["facts"] == {"costs": [1.0, None], "of": {"pair": [1, 2]}}
        require_shown(made.document())

    def test_a_document_and_a_table(self):
        table = Table("", (Column("a"), Column("b")), ((np.float64(1.5), np.bool_(False)),))
        assert "no" in str(table)
        made = Document(
            (table,), {"holds": np.bool_(True), "each": (np.float32(0.5), np.nan)}, holds=np.True_
        )
        require_shown(made)
        assert made.data == {"holds": True, "each": [0.5, None]}

    @pytest.mark.parametrize("value", [{1, 2}, object(), Path("x"), b"bytes", {1: "a key"}])
    def test_what_is_no_plain_data_is_a_mistake(self, value):
        with pytest.raises(TypeError, match="what is shown must be"):
            plain(value)
