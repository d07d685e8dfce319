"""Where sizes count: contracts that carry them, runs under them, audits of both; and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.federations import TABLES

from bonafed import InvalidValue, Uniform
from bonafed.economics import Discrete, TruncatedExponential
from bonafed.learning.federation import Roster
from bonafed.mechanisms.contract_files import contract_from_json as any_contract
from bonafed.mechanisms.jsam import Unequal, allocate_unequal, contract, noise_scale, settle
from bonafed.mechanisms.jsam.mechanism import BoughtPrivacy
from bonafed.mechanisms.jsam.noise import Ingredients
from bonafed.mechanisms.jsam.published import JsamContract, publish
from bonafed.mechanisms.jsam.schemes import settle_scheme
from bonafed.mechanisms.jsam.sizes import Averaged, unbiased_by_size
from bonafed.mechanisms.jsam.slice import SLICE
from bonafed.mechanisms.protocol import Attack
from bonafed.runs import config, folder, prepare, training
from bonafed.runs.coins import verify_run

NAMES = ("ada", "ben", "cleo", "dora", "eve", "fay")
SIZES = dict(zip(NAMES, (40, 25, 10, 60, 5, 30), strict=True))
MADE = Ingredients(dimension=10, smoothness=0.5, records=20)
STATED = dict(zip(NAMES, (0.31, 0.12, 0.84, 0.55, 0.97, 0.43), strict=True))
PRIORS = {
    "uniform": Uniform(0, 1),
    "exponential": TruncatedExponential(1, 0.05, 1),
    "discrete": Discrete([0.3, 0.6, 1.0], [0.3, 0.3, 0.4]),
}
JSAM = ("jsam.prior=uniform:0,1", "jsam.smoothness=0.5", "jsam.clip=1", "jsam.shares=sizes")
UNEVEN = ("partition.kind=quantity_dirichlet", "partition.beta=2", "training.batch_size=20",
          "training.steps=1")  # fmt: skip


def made(prior="uniform", noise=1.0, **changes):
    return JsamContract(6, PRIORS[prior], 2.0, noise, 100, 1.0, sizes=SIZES, **changes)


@pytest.mark.parametrize(
    ("prior", "noise", "changes"),
    [
        ("uniform", 1.0, {}),
        ("uniform", MADE, {}),
        ("uniform", MADE, {"scheme": "unbiased"}),
        ("uniform", 1.0, {"coin_commitment": "ab" * 32}),
        ("discrete", MADE, {}),
        pytest.param("exponential", MADE, {}, marks=pytest.mark.deep),
    ],
)
def test_a_file_is_read_as_it_was_written_and_verifies(prior, noise, changes):
    offer = made(prior, noise, **changes)
    again = any_contract(json.loads(offer.content))
    assert (again.content, again.digest) == (offer.content, offer.digest)
    assert [str(finding) for finding in again.verify() if not finding.holds] == []
    assert again.settle(STATED).to_json() == offer.settle(STATED).to_json()
    page = str(again.document())
    assert "by the shares of 170 records" in page
    assert "Sizes" in page


def test_a_budget_on_average_is_published_and_verifies():
    offer = publish(made(noise=MADE), 1.5)
    assert offer.expected_budget == 1.5
    assert [str(finding) for finding in offer.verify() if not finding.holds] == []
    same = contract("uniform:0,1", 6, 100, noise_scale=MADE, clip=1.0, expected_budget=1.5, sizes=SIZES)
    assert same.digest == offer.digest


def test_another_size_is_another_contract():
    other = replace(made(), sizes={**SIZES, "ada": 41})
    assert other.digest != made().digest
    forged = {**made().to_json(), "sizes": {**SIZES, "eve": 90}}
    with pytest.raises(InvalidValue, match=r"^contract\.example\."):
        any_contract(forged)


@pytest.mark.parametrize("scheme", ["jsam", "unbiased"])
def test_terms_are_those_of_the_theory_whatever_the_order(scheme):
    offer = made(noise=MADE, scheme=scheme)
    held = np.array(list(SIZES.values()))
    rule = Averaged(Unequal(held) if scheme == "jsam" else unbiased_by_size(held), np.minimum(held, 20))
    scale = noise_scale(1e-5, 10, 100, 0.5, records=2)
    due = settle(list(STATED.values()), Uniform(0, 1), 2.0, scale, rule=rule)
    terms = offer.settle(STATED)
    np.testing.assert_allclose(terms.epsilon, due.allocation.privacy, rtol=1e-12)
    np.testing.assert_allclose(terms.settlement.payment, due.payment, rtol=1e-12)
    np.testing.assert_allclose(terms.fair, held / 170)
    turned = offer.settle(dict(reversed(STATED.items())))
    assert turned.rows() == terms.rows()[::-1]
    assert "of the records" in str(terms.document())
    assert "share_of_records" in terms.to_csv().decode()


def test_a_participant_sees_what_the_fewest_and_the_most_records_earn():
    said = made().prospect(0.4)
    assert [each["records"] for each in said.data["outlooks"]] == [5, 60]
    assert said.holds
    few, many = said.data["outlooks"]
    assert few["payment"] < many["payment"]
    assert "60 records" in str(said)
    said.figure()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"scheme": "cheapest", "members": 2},
            "scheme must be one of jsam, unbiased, complete information ",
        ),
        ({"max_epsilon": 1.0}, "max_epsilon must not be given where sizes count, got 1.0"),
        ({"noise_at": "sum"}, "noise_at must be \"client\" where sizes count, got 'sum'"),
        ({"clients": 5}, "sizes must be 5, one per client, got 6"),
        ({"sizes": {**SIZES, "ada": 0}}, "sizes.ada must be a whole number of at least 1, got 0"),
        ({"sizes": [40, 25]}, "sizes must be a mapping, got [40, 25]"),
    ],
)
def test_contracts_that_cannot_be(changes, said):
    with pytest.raises(InvalidValue) as refused:
        replace(made(), **changes)
    assert str(refused.value).startswith(said)


def test_reports_come_from_those_whose_sizes_are_known():
    others = {**STATED, "gus": 0.5}
    del others["fay"]
    with pytest.raises(
        InvalidValue, match=r"^reports must come from clients that the contract lists, got 'gus'"
    ):
        made().settle(others)


def trained(make, small, tmp_path, *words):
    prepared = prepare.prepare(make(*JSAM, *UNEVEN, *words), dataset=small)
    return prepared, training.train(prepared, tmp_path / "run").statement


@pytest.mark.parametrize(
    "words",
    [
        ("jsam.eta=5",),
        ("jsam.expected_budget=3",),
        ("jsam.budget=3",),
        ("jsam.eta=5", "jsam.scheme=unbiased"),
        ("jsam.eta=5", "jsam.scheme=complete information"),
        ("jsam.budget=3", "jsam.scheme=complete information"),
        ("jsam.expected_budget=3", "jsam.scheme=complete information"),
    ],
)
def test_a_run_selects_by_size_and_pays(make, small, tmp_path, words):
    prepared, statement = trained(make, small, tmp_path, *words)
    held = prepared.agreement.members.sizes
    assert len(set(held.tolist())) > 1
    shares = np.array(statement.columns["share_of_records"])
    np.testing.assert_allclose(shares, held / held.sum())
    assert statement.facts["shares"] == "sizes"
    assert statement.facts["records_per_release"] == np.minimum(held, 20).tolist()
    selection = np.array(statement.facts["selection"])
    above = selection > shares * (1 + 1e-12)
    assert above.sum() <= 1  # the leader
    assert np.all(np.isclose(selection, shares) | (selection == 0) | above)
    assert statement.facts["largest_epsilon_ratio"] <= 1  # each adds the noise of its own records
    assert all(finding.holds is not False for finding in statement.findings)
    assert any("sizes count" in note for note in statement.notes)
    assert not any("made of the fewest" in note for note in statement.notes)
    if "jsam.budget=3" in words:
        assert sum(statement.facts["payment"]) <= 3
    if "jsam.scheme=unbiased" in words:
        np.testing.assert_allclose(selection, shares)


def test_the_plan_of_a_run_is_the_one_of_the_theory(make, small, tmp_path):
    prepared, statement = trained(make, small, tmp_path, "jsam.eta=1")
    held = prepared.agreement.members.sizes
    base = noise_scale(1e-5, prepared.start.size, 5, 0.5, records=2)
    virtual = 2 * np.array(statement.facts["reports"])
    plan = allocate_unequal(virtual, held, 1.0, base, np.minimum(held, 20))
    assert statement.facts["noise_scale"] == pytest.approx(base)
    np.testing.assert_allclose(statement.facts["selection"], plan.selection)
    np.testing.assert_allclose(statement.facts["epsilon_sold"], plan.privacy)


def test_a_run_can_be_checked_and_read_again(make, small, tmp_path):
    words = (*JSAM, *UNEVEN, "jsam.expected_budget=3", "jsam.coins=verifiable", "training.steps=")
    prepared = prepare.prepare(make(*words), dataset=small)
    training.train(prepared, tmp_path / "run")
    assert [str(finding) for finding in verify_run(tmp_path / "run") if not finding.holds] == []
    again = config.read(tmp_path / "run" / folder.CONFIG)
    assert prepare.prepare(again, dataset=small).config == prepared.config


def test_a_run_is_audited_and_no_lie_pays(make, small):
    prepared = prepare.prepare(make(*JSAM, *UNEVEN, "jsam.eta=5"), dataset=small)
    assert prepared.agreement.contract.sizes is not None
    subject = Attack(prepared.config, prepared.agreement, None, prepared.mechanism, prepared.start)
    assert [finding.holds for finding in SLICE.audit(subject)] == [True] * 4


def test_a_run_under_a_published_contract_holds_its_sizes(make, small):
    prepared = prepare.prepare(make(*JSAM, *UNEVEN, "jsam.eta=5"), dataset=small)
    offer, roster = prepared.agreement.contract, prepared.agreement.members
    tables = {**TABLES, "partition": {"kind": "quantity_dirichlet", "beta": 2.0, "clients": 4}}
    tables["training"] = {**TABLES["training"], "batch_size": 20}
    under = prepare.prepare(prepare.under(tables, offer), dataset=small, contract=offer)
    assert under.agreement.contract.digest == offer.digest
    np.testing.assert_allclose(under.agreement.terms.epsilon, prepared.agreement.terms.epsilon)
    more = Roster(roster.names, roster.sizes + np.array([0, 1, 0, 0]))
    with pytest.raises(
        InvalidValue, match=r"^records of client 1 must be \d+, as in the published contract"
    ):
        BoughtPrivacy.of(under.config, more, prepared.start.size)
    alike = replace(under.config, own=replace(under.config.own, shares="alike"))
    with pytest.raises(InvalidValue, match=r"^jsam\.shares must be sizes, as in the published contract"):
        BoughtPrivacy.of(alike, roster, prepared.start.size)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("jsam.shares=fair",), "jsam.shares must be one of alike, sizes, got 'fair'"),
        (
            ("jsam.scheme=cheapest", "jsam.members=2"),
            "jsam.scheme must be one of jsam, unbiased, complete ",
        ),
        (("jsam.max_epsilon=1",), "jsam.max_epsilon must not be given where sizes count, got 1.0"),
        (("jsam.noise_at=sum",), "jsam.noise_at must be \"client\" where sizes count, got 'sum'"),
    ],
)
def test_configs_that_cannot_be(make, words, said):
    with pytest.raises(InvalidValue) as refused:
        make(*JSAM, "jsam.eta=1", *words)
    assert str(refused.value).startswith(said)


def test_schemes_for_clients_that_are_alike_are_refused_by_name():
    for changes, name in (
        ({"scheme": "cheapest", "members": 2}, "scheme"),
        ({"scheme": "complete information", "max_epsilon": 1.0}, "max_epsilon"),
        ({"noise_at": "sum"}, "noise_at"),
    ):
        with pytest.raises(InvalidValue, match=f"^{name} must .* where sizes count"):
            settle_scheme(Uniform(0, 1), [0.2, 0.6, 0.4], 1.0, eta=1.0, sizes=[1, 2, 3], **changes)


class TestAudit:
    @pytest.fixture
    def audit(self, bonafed):
        def run(*words):
            Path("sizes.csv").write_text("size\n40\n25\n10\n60\n5\n")
            words = ("--clients", "5", "--profiles", "2", "--points", "21", *words)
            return bonafed("audit", "jsam", "--sizes", "sizes.csv", *words)

        return run

    @pytest.mark.parametrize(
        "more",
        [
            [],
            ["--variant", "usbm"],
            ["--prior", "discrete:0.3,0.3,0.6,0.3,1,0.4"],
            ["--delta=1e-5", "--dimension=10", "--rounds=9", "--smoothness=0.5", "--records=20"],
        ],
    )
    def test_no_lie_pays(self, audit, more):
        code, out, err = audit("--json", *more)
        assert (code, err) == (0, "")
        assert json.loads(out)["passed"]

    def test_the_rents_of_equal_sizes_are_gamed(self, audit):
        code, out, _ = audit("--variant", "equal-rents", "--json")
        assert code == 1
        found = {finding["claim"]: finding for finding in json.loads(out)["findings"]}
        assert not found["truthful"]["holds"]
        assert "equal sizes" in json.loads(out)["note"]

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--variant", "fsbm"], "--sizes must not be given with --variant fsbm"),
            (["--max-epsilon", "1"], "--max-epsilon must not be given with --sizes, got 1"),
            (["--noise-at", "sum"], "--noise-at must be client with --sizes, got sum"),
        ],
    )
    def test_what_is_refused(self, audit, words, said):
        code, _, err = audit(*words)
        assert code == 2
        assert said in err

    def test_the_control_needs_sizes(self, bonafed):
        code, _, err = bonafed("audit", "jsam", "--variant", "equal-rents")
        assert code == 2
        assert "--sizes is required with --variant equal-rents" in err
