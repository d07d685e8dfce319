"""A published contract can be checked by someone who does not trust its writer."""

import copy
import hashlib
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from bonafed.contracts.canonical import read_object
from bonafed.economics import Discrete, NormalMixture, Uniform
from bonafed.economics.contracts import step_payments
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import write_together
from bonafed.mechanisms.sampling import (
    PriorFreeSampling,
    contract_from_json,
    plan,
    verify,
)
from bonafed.mechanisms.sampling.published import SamplingContract
from bonafed.mechanisms.sampling.rules import PriorFreeContract


def published(contract):
    return json.loads(SamplingContract.of(contract).content)


@pytest.fixture(scope="module")
def curve():
    return published(plan(Uniform(0.5, 1.5), 10_000, 100, 200))


@pytest.fixture(scope="module")
def steps():
    prior = Discrete([0.3, 0.5, 0.9, 1.0, 1.4, 2.0], [0.3, 0.02, 0.08, 0.35, 0.05, 0.2])
    return published(plan(prior, 10_000, 100, 200))


def failed(data):
    return {check.claim for check in verify(data) if not check.holds}


def test_an_honest_contract_passes(curve, steps):
    for data in (curve, steps):
        assert failed(data) == set()
    different = plan(
        None,
        4000,
        40,
        200,
        weights=np.repeat([1.0, 2.0], 20),
        priors=[Uniform(0.5, 1.5), NormalMixture([0.5, 0.5], [0.6, 1.5], [0.1, 0.15], 0.2, 2.0)] * 20,
    )
    data = published(different)
    assert failed(data) == set()
    again = contract_from_json(data)
    assert np.array_equal(again.membership, different.membership)
    assert again.expected_spend == different.expected_spend
    assert failed(published(plan(Uniform(0.5, 1.5), 1000, 20, 50, confidence=0.95))) == set()


def test_many_levels_are_compared_in_little_memory():
    costs = np.linspace(0.5, 1.5, 3000)
    data = published(plan(Discrete(costs, np.full(3000, 1 / 3000)), 10_000, 100, 200))
    bad = tampered(data, lambda d, m, at: at["payment"].__setitem__(2000, at["payment"][2000] * 1.2))
    tracemalloc.start()
    try:
        good, found = ({c.claim: c for c in verify(each)}["published levels"] for each in (data, bad))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert good.holds
    assert "9,000,000 pairs" in good.text
    assert not found.holds
    assert f"by claiming {costs[2000]:.6g}" in found.text
    assert peak < 4e7  # all pairs at once are 7.2e7 bytes, and that several times


def levels(data):
    return data["groups"][0]["levels"]


def tampered(data, change):
    bad = copy.deepcopy(data)
    change(bad, bad["groups"][0], levels(bad))
    return bad


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda d, g, at: at["payment"].__setitem__(3, at["payment"][3] * 0.999), "payments"),
        (lambda d, g, at: at["payment"].__setitem__(3, at["payment"][3] * (1 - 1e-9)), "table"),
        (lambda d, g, at: at["probability"].__setitem__(3, at["probability"][3] * 0.99), "probabilities"),
        (lambda d, g, at: at["probability"].__setitem__(3, at["probability"][3] * (1 - 1e-9)), "table"),
        (lambda d, g, at: at["payment"].__setitem__(9, at["payment"][9] * 1.2), "published levels"),
        (lambda d, g, at: d.__setitem__("scale", d["scale"] * 1.01), "table"),
        (lambda d, g, at: d.__setitem__("scale", d["scale"] * 1.01), "probabilities"),
        (lambda d, g, at: d.__setitem__("scale", d["scale"] * 1.01), "expected spend"),
        (lambda d, g, at: d.__setitem__("scale", d["scale"] * (1 - 1e-9)), "scale"),
        (lambda d, g, at: d.__setitem__("total_budget", 9_000), "expected spend"),
        (lambda d, g, at: d.__setitem__("total_budget", 11_000), "scale"),
        (lambda d, g, at: g.__setitem__("clients", 120), "expected spend"),
        (lambda d, g, at: d.update(confidence=0.9, intended_spend=10_000), "overspending"),
        (lambda d, g, at: d.update(confidence=0.1, intended_spend=9_000), "scale"),
    ],
)
def test_a_changed_curve_contract_fails_the_right_check(curve, change, check):
    assert check in failed(tampered(curve, change))


@pytest.mark.parametrize("column", ["probability", "payment"])
def test_nobody_settles_by_a_table_that_shows_other_terms(curve, steps, column):
    for data in (curve, steps):
        for size in (1e-9, 1e-3):

            def change(data, group, at, size=size):
                at[column][3] *= 1 + size

            with pytest.raises(InvalidValue, match=rf"levels.{column} must show the terms that prior and"):
                contract_from_json(tampered(data, change))


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        (
            lambda d, g, at: at["payment"].__setitem__(0, 0.2),
            {"table", "payments", "individually rational", "published levels"},
        ),
        (
            lambda d, g, at: at["probability"].__setitem__(3, 0.9),
            {"table", "probabilities", "monotone", "payments"},
        ),
        (lambda d, g, at: at["payment"].__setitem__(5, 3.0), {"table", "payments", "published levels"}),
        (lambda d, g, at: d.__setitem__("scale", d["scale"] * 1.1), {"scale", "table", "expected spend"}),
    ],
)
def test_a_changed_step_contract_fails_the_right_checks(steps, change, checks):
    assert checks <= failed(tampered(steps, change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, g, at: d.pop("rounds"), "contract.rounds is required"),
        (lambda d, g, at: d.__setitem__("rounds", 1.5), "contract.rounds must be a whole number"),
        (lambda d, g, at: d.__setitem__("rounds", 200.0), "contract.rounds must be 200, got 200.0"),
        (lambda d, g, at: d.__setitem__("rounds", True), "contract.rounds must be a number"),
        (lambda d, g, at: d.__setitem__("version", 4), "contract.version must be 1, got 4"),
        (lambda d, g, at: d.__setitem__("version", 0), "contract.version must be 1, got 0"),
        (lambda d, g, at: d.__setitem__("version", True), "contract.version must be 1, got True"),
        (lambda d, g, at: d.__setitem__("groups", []), "contract.groups must be a non-empty list"),
        (
            lambda d, g, at: d.__setitem__("total_budget", float("nan")),
            "contract.total_budget must be finite",
        ),
        (lambda d, g, at: d.__setitem__("scale", -1), "contract.scale must be positive"),
        (lambda d, g, at: d.pop("scale"), "levels.cost must have 1 values"),
        (lambda d, g, at: g.pop("prior"), "group.prior is required"),
        (lambda d, g, at: g["prior"].__setitem__("kind", "psychic"), "prior.kind must be one of"),
        (lambda d, g, at: g["prior"].pop("low"), "prior.low is required"),
        (lambda d, g, at: g["prior"].__setitem__("low", -0.0), "levels.cost must be the costs"),
        (lambda d, g, at: g["prior"].__setitem__("high", 1.2), "levels.cost must be the costs"),
        (lambda d, g, at: g["prior"].__setitem__("high", 1.6), "levels.cost must be the costs"),
        (lambda d, g, at: g.__setitem__("levels", 3), "levels must be an object"),
        (lambda d, g, at: at["cost"].reverse(), "levels.cost must be the costs"),
        (lambda d, g, at: at["payment"].pop(), "levels.payment must have 65 values"),
        (lambda d, g, at: at["payment"].__setitem__(0, "x"), "levels.payment must be a list of numbers"),
        (
            lambda d, g, at: at["payment"].__setitem__(0, "1.2"),
            r"levels.payment must be a list of numbers, got \['1.2'",
        ),
        (lambda d, g, at: at["payment"].__setitem__(0, True), r"levels.payment\[0\] must be 1.0, got True"),
        (lambda d, g, at: g.__setitem__("clients", -1), "group.clients must be a whole number"),
        (lambda d, g, at: d.__setitem__("membership", [7]), "contract.membership must be absent"),
        (
            lambda d, g, at: g.__setitem__("clients", 1e15),
            "group.clients must not exceed 100000000 in all, got 1000000000000000",
        ),
        (lambda d, g, at: d.__setitem__("rounds", 1e300), "contract.rounds must not exceed 1000000000"),
        (
            lambda d, g, at: d.update(confidence=0, intended_spend=1),
            "contract.confidence must be between 0 and",
        ),
        (
            lambda d, g, at: d.update(confidence=1, intended_spend=1),
            "contract.confidence must be between 0 and",
        ),
        (lambda d, g, at: d.update(confidence=0.9), "contract.intended_spend is required"),
        (lambda d, g, at: d.update(intended_spend=9.0), "contract.confidence is required"),
        (
            lambda d, g, at: d.update(confidence=0.9, intended_spend=10_001),
            "contract.intended_spend must not exceed the budget 10000, got 10001",
        ),
        (lambda d, g, at: d.__setitem__("total_budget", 10**400), "contract.total_budget must be below"),
        (lambda d, g, at: d.__setitem__("coins", None), "contract.coins must be absent"),
        (lambda d, g, at: d.__setitem__("coins", {}), "contract.coins must be an object with one key"),
        (
            lambda d, g, at: d.__setitem__("coins", {"commitment": "A" * 64}),
            "must be 64 hexadecimal digits in lower case",
        ),
        (
            lambda d, g, at: d.__setitem__("coins", {"commitment": "a" * 63}),
            "must be 64 hexadecimal digits in lower case",
        ),
    ],
)
def test_a_malformed_contract_is_refused_by_name(curve, change, message):
    with pytest.raises(InvalidValue, match=message):
        verify(tampered(curve, change))


def test_negative_zero_is_not_a_second_way_to_write_zero():
    data = published(plan(Uniform(-0.0, 1.5), 100, 10, 20))
    assert str(data["groups"][0]["prior"]["low"]) == "0.0"
    data["groups"][0]["prior"]["low"] = -0.0
    with pytest.raises(InvalidValue, match=r"prior.low must be "):
        verify(data)


def test_money_is_not_lost_where_the_prior_is_concentrated(steps):
    """Almost all clients cost about 1, and everybody is promised a million."""

    def change(data, group, at):
        data.pop("scale")
        group["prior"] = {"kind": "exponential", "rate": 1, "low": 0, "high": 1e6}
        group["levels"] = {"cost": [1e6], "probability": [1.0], "payment": [1e6]}

    assert failed(tampered(steps, change)) == {"scale", "expected spend"}


def test_a_contract_for_a_single_cost_is_verified():
    assert failed(published(plan(Discrete([1.0], [1.0]), 50, 10, 10))) == set()


def test_a_probability_above_one_is_found_however_dear_the_clients_are():
    contract = published(plan(Discrete([1e12], [1.0]), 5e13, 10, 10))
    above = tampered(contract, lambda d, m, at: at["probability"].__setitem__(0, 1 + 1e-15))
    assert "at most 1" in failed(above)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[" * 100_000, "nested too deeply"), ('{"rounds": ' + "1" * 5000 + "}", "too many digits")],
)
def test_a_hostile_file_is_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "contract.json"
    path.write_text(text)
    with pytest.raises(UnreadableFile, match=f"not a contract: .*{said}"):
        read_object(path)


def test_files_are_written_whole_and_read_back(curve, tmp_path):
    path = tmp_path / "contract.json"
    contract = contract_from_json(curve)
    write_together({path: SamplingContract.of(contract).content})
    assert read_object(path) == curve
    assert [p.name for p in tmp_path.iterdir()] == ["contract.json"]
    with pytest.raises(InvalidValue, match="existing folder"):
        write_together({tmp_path / "nowhere" / "contract.json": SamplingContract.of(contract).content})
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UnreadableFile):
        read_object(path)


COMMITMENT = "0123456789abcdef" * 4


def test_a_commitment_to_the_coins_is_part_of_the_contract(curve):
    with_coins = SamplingContract.of(contract_from_json(curve)).with_coins(COMMITMENT)
    data = json.loads(with_coins.content)
    assert data["coins"] == {"commitment": COMMITMENT}
    assert SamplingContract.from_json(data).coin_commitment == COMMITMENT
    assert SamplingContract.from_json(curve).coin_commitment is None
    assert failed(data) == set()
    assert SamplingContract.from_json(data).digest != SamplingContract.from_json(curve).digest
    with pytest.raises(InvalidValue, match=r"coins.commitment must be 64 hexadecimal digits"):
        with_coins.with_coins("secret")


def test_the_digest_is_that_of_the_file_as_written(curve, tmp_path):
    path = str(tmp_path / "contract.json")  # a path may be text
    write_together({Path(path): SamplingContract.of(contract_from_json(curve)).content})
    content = Path(path).read_bytes()
    written = SamplingContract.from_json(read_object(path))
    assert written.digest == hashlib.sha256(content).hexdigest()
    Path(path).write_text(json.dumps(dict(reversed(curve.items()))))  # laid out in another way
    assert SamplingContract.from_json(read_object(path)).digest == written.digest
    assert content.isascii()
    assert json.dumps(json.loads(content), indent=1, sort_keys=True) + "\n" == content.decode()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"rounds": 200', b'"rounds": 200, "rounds": 5', "duplicate key 'rounds'"),
        (b'"high": 1.5', b'"high": 1.5, "high": 1.2', "duplicate key 'high'"),
        (b'"total_budget": 10000.0', b'"total_budget": NaN', "numbers must be finite, got NaN"),
    ],
)
def test_a_file_that_says_two_things_is_refused(curve, tmp_path, old, new, said):
    path = tmp_path / "contract.json"
    content = SamplingContract.of(contract_from_json(curve)).content
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(UnreadableFile, match=said):
        read_object(path)


def _swap(values, i, j):
    values[i], values[j] = values[j], values[i]


@pytest.fixture(scope="module")
def hollow():
    """Two levels almost without mass: 1 % more there is hardly spent."""
    prior = Discrete([0.3, 0.5, 0.6, 0.9, 1.0], [0.4, 1e-13, 1e-13, 0.3, 0.3 - 2e-13])
    return published(plan(prior, 1000, 100, 20))


class TestForgeries:
    """Changes that were once accepted; each is refused, whatever else is left as it was."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda d, g, at: d.__setitem__("fee", 3),
            lambda d, g, at: g.__setitem__("fee", 3),
            lambda d, g, at: g["prior"].__setitem__("fee", 3),
            lambda d, g, at: at.__setitem__("fee", [3] * 65),
            lambda d, g, at: g.__setitem__("budget", 1e9),
            lambda d, g, at: g.__setitem__("threshold", 0.50005),
            lambda d, g, at: g.__setitem__("weight", 7),
            lambda d, g, at: g.__setitem__("weight", 1.0),
            lambda d, g, at: g["prior"].__setitem__("high", 1.2),
            lambda d, g, at: [
                at.__setitem__(name, values[:: len(values) - 1]) for name, values in at.items()
            ],
        ],
    )
    def test_what_means_nothing_or_something_else_is_refused(self, curve, steps, change):
        for data in (curve, steps):
            with pytest.raises(InvalidValue):
                verify(tampered(data, change))

    def test_levels_without_mass_are_checked_like_any(self, hollow):
        assert failed(hollow) == set()

        def more(data, group, at):
            at["probability"][1] *= 1.01
            at["payment"][:] = step_payments(*(np.array(at[n]) for n in ("cost", "probability"))).tolist()

        def swapped(data, group, at):
            for name in ("probability", "payment"):
                _swap(at[name], 1, 2)

        assert "table" in failed(tampered(hollow, more))
        steps = copy.deepcopy(hollow)
        steps["groups"][0]["levels"]["probability"][2] *= 0.5  # so that there is something to swap
        assert "table" in failed(tampered(steps, swapped))

    def test_a_weight_is_bound_where_groups_differ(self):
        different = published(plan(Uniform(0.5, 1.5), 4000, 40, 200, weights=np.repeat([1.0, 2.0], 20)))
        assert failed(different) == set()
        bad = tampered(different, lambda d, g, at: g.__setitem__("weight", 7))
        assert {"scale", "group 0: table"} <= failed(bad)
        with pytest.raises(InvalidValue, match="order of their first clients"):
            verify({**different, "membership": different["membership"][::-1]})


def verify_rules(data):
    return PriorFreeContract.from_json(data).verify()


class TestRules:
    RULES = PriorFreeSampling(50, 25.0, 1.5, refresh=0.1)

    def test_honest_rules_pass_and_survive_json(self):
        data = json.loads(json.dumps(PriorFreeContract(self.RULES, 10).to_json()))
        again = PriorFreeContract.from_json(data)
        assert (again.rules, again.rounds, again.coin_commitment, again.decimals) == (
            self.RULES,
            10,
            None,
            2,
        )
        assert all(check.holds for check in verify_rules(data))
        large = PriorFreeSampling(100_000, 50_000.0, 1.5, refresh=0.01)
        assert all(check.holds for check in PriorFreeContract(large, 10).verify())

    def test_a_commitment_to_the_coins_is_part_of_the_rules(self):
        committed = PriorFreeContract(self.RULES, 10).with_coins(COMMITMENT)
        data = json.loads(committed.content)
        again = PriorFreeContract.from_json(data)
        assert (again.rules, again.rounds, again.decimals) == (self.RULES, 10, 2)
        assert again.coin_commitment == COMMITMENT
        assert again.digest == hashlib.sha256(committed.content).hexdigest()
        assert again.total_budget == 250.0
        with pytest.raises(InvalidValue, match="64 hexadecimal digits"):
            PriorFreeContract.from_json({**data, "coins": {"commitment": "x"}})

    def test_a_menu_that_is_never_refreshed(self):
        assert all(
            check.holds
            for check in verify_rules({**PriorFreeContract(self.RULES, 10).to_json(), "refresh": 1e308})
        )

    def test_impossible_or_printed_rules_are_refused(self):
        data = PriorFreeContract(self.RULES, 10).to_json()
        with pytest.raises(InvalidValue, match="floor must not exceed"):
            verify_rules({**data, "floor": 0.9})
        with pytest.raises(InvalidValue, match="must leave the floor for the rest"):
            verify_rules({**data, "initial": 50, "initial_probability": 0.9})
        with pytest.raises(InvalidValue, match=r"rules.version must be 1, got 9"):
            verify_rules({**data, "version": 9})
        with pytest.raises(InvalidValue, match=r"rules.version must be 1, got 0"):
            verify_rules({**data, "version": 0})
        with pytest.raises(InvalidValue, match=r"rules.fee must be absent, got 3"):
            verify_rules({**data, "fee": 3})
        with pytest.raises(InvalidValue, match=r"rules.clients must be 50, got 50.0"):
            verify_rules({**data, "clients": 50.0})
        printed = PriorFreeSampling(50, 25.0, 1.5, variant="printed")
        with pytest.raises(InvalidValue, match="must be 'safe' to be published"):
            PriorFreeContract(printed, 10).to_json()
