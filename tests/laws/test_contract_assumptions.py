"""What a contract assumes is held against what is trained under it, before anybody trains.

What breaks a promise is refused: other rounds, more clients than the money is for, a delta that promises
nothing. What only makes a figure inexact is said, with both numbers.
"""

import pytest

from bonafed.economics import Uniform
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam.noise import Ingredients
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.runs import config as configs
from bonafed.runs.prepare import prepare, under
from bonafed.runs.training import train
from tests.laws import worlds

NAMES = worlds.all_names()


@pytest.fixture(scope="module")
def published():
    """published(name): the contract of a miniature, and the rest of the tables of its config."""
    known = {}

    def of(name):
        if name not in known:
            made = worlds.setting(name, *worlds.REDUNDANT.get(name, ()))
            known[name] = made.agreement.contract, configs.to_tables(worlds.miniature(name))
        contract, tables = known[name]
        if contract is None:
            pytest.skip("it publishes no contract")
        table = worlds.catalogue.entry(name).table
        return contract, {key: value for key, value in tables.items() if key != table}

    with worlds.registered():
        yield of


@pytest.mark.parametrize("name", NAMES)
def test_other_rounds_are_refused_before_anything_is_loaded(name, published):
    contract, tables = published(name)
    tables["training"] = {**tables["training"], "rounds": worlds.ROUNDS + 1}
    with pytest.raises(InvalidValue, match=r"training\.rounds must be 4, as in the published contract"):
        under(tables, contract)


@pytest.mark.parametrize("name", NAMES)
def test_more_clients_than_the_money_is_for_are_refused(name, published):
    contract, tables = published(name)
    tables["partition"] = {"kind": "iid", "clients": len(worlds.OWNERS) + 1}
    with pytest.raises(InvalidValue, match=r"partition\.clients must be (at most )?6, as in the published"):
        prepare(under(tables, contract), dataset=worlds.small(), contract=contract)


class TestWhatTheNoiseScaleIsMadeOf:
    def run(self, **parts):
        """Six clients of 24 to 27 records, batches of 8; 15 parameters."""
        noise = Ingredients(**{"dimension": 15, "smoothness": 0.5, "records": 8, **parts})
        offer = JsamContract(6, Uniform(0, 1), 5.0, noise, worlds.ROUNDS, 1.0, max_epsilon=5.0)
        tables = configs.to_tables(worlds.miniature("jsam"))
        tables["training"] = {**tables["training"], "batch_size": 8, "steps": 1, "epochs": None}
        tables["jsam"] = {"noise": "reproducible"}
        return prepare(under(tables, offer), dataset=worlds.small(), contract=offer)

    def test_what_fits_is_not_remarked_upon(self):
        made = self.run()
        assert made.mechanism.rules.differs is None
        assert not any("the noise scale assumes" in text for text in made.warnings)

    @pytest.mark.parametrize(
        ("name", "stated", "here"), [("records", 40, 8), ("dimension", 650, 15), ("steps", 5, 1)]
    )
    def test_what_does_not_is_said_with_both_numbers(self, name, stated, here):
        made = self.run(**{name: stated})
        (said,) = [text for text in made.warnings if "the noise scale assumes" in text]
        assert f"{name} {stated} where this run has {here}" in said
        assert "Q is " in said

    def test_it_is_in_the_statement_too(self):
        result = train(self.run(records=40))
        assert any("records 40 where this run has 8" in note for note in result.statement.notes)
