"""A published contract can be checked by someone who does not trust its writer."""

import copy
import json
import tracemalloc

import numpy as np
import pytest

from bonafed.economics import Discrete, NormalMixture, Uniform
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.mechanisms.sampling import (
    PriorFreeSampling,
    contract_from_json,
    contract_to_json,
    plan,
    read_contract,
    save_contract,
    verify,
)
from bonafed.mechanisms.sampling.rules import rules_from_json, rules_to_json, verify_rules


def published(contract):
    return json.loads(json.dumps(contract_to_json(contract)))


@pytest.fixture(scope="module")
def curve():
    return published(plan(Uniform(0.5, 1.5), 10_000, 100, 200))


@pytest.fixture(scope="module")
def steps():
    prior = Discrete([0.3, 0.5, 0.9, 1.0, 1.4, 2.0], [0.3, 0.02, 0.08, 0.35, 0.05, 0.2])
    return published(plan(prior, 10_000, 100, 200))


def failed(data):
    return {check.name for check in verify(data) if not check.holds}


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
        good, found = ({c.name: c for c in verify(each)}["published levels"] for each in (data, bad))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert good.holds
    assert "9,000,000 pairs" in good.detail
    assert not found.holds
    assert f"by claiming {costs[2000]:.6g}" in found.detail
    assert peak < 4e7  # all pairs at once are 7.2e7 bytes, and that several times


def levels(data):
    return data["groups"][0]["menu"]["levels"]


def tampered(data, change):
    bad = copy.deepcopy(data)
    change(bad, bad["groups"][0]["menu"], levels(bad))
    return bad


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda d, m, at: at["payment"].__setitem__(3, at["payment"][3] * 0.999), "payments"),
        (lambda d, m, at: at["probability"].__setitem__(3, at["probability"][3] * 0.99), "probabilities"),
        (lambda d, m, at: at["payment"].__setitem__(9, at["payment"][9] * 1.2), "published levels"),
        (lambda d, m, at: m.__setitem__("scale", m["scale"] * 1.01), "probabilities"),
        (lambda d, m, at: m.__setitem__("scale", m["scale"] * 1.01), "expected spend"),
        (lambda d, m, at: m["prior"].__setitem__("high", 1.6), "payments"),
        (lambda d, m, at: d.__setitem__("total_budget", 9_000), "expected spend"),
        (lambda d, m, at: d["groups"][0].__setitem__("clients", 120), "expected spend"),
        (lambda d, m, at: d.__setitem__("confidence", 0.9), "overspending"),
    ],
)
def test_a_changed_curve_contract_fails_the_right_check(curve, change, check):
    assert check in failed(tampered(curve, change))


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        (
            lambda d, m, at: at["payment"].__setitem__(0, 0.2),
            {"payments", "individually rational", "truthful", "published levels"},
        ),
        (lambda d, m, at: at["probability"].__setitem__(3, 0.9), {"monotone", "payments"}),
        (lambda d, m, at: at["payment"].__setitem__(5, 3.0), {"payments", "truthful", "expected spend"}),
    ],
)
def test_a_changed_step_contract_fails_the_right_checks(steps, change, checks):
    assert checks <= failed(tampered(steps, change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, m, at: d.pop("rounds"), "contract.rounds must be present"),
        (lambda d, m, at: d.__setitem__("rounds", 1.5), "contract.rounds must be a whole number"),
        (lambda d, m, at: d.__setitem__("version", 2), "contract.version must be 1"),
        (lambda d, m, at: d.__setitem__("groups", []), "contract.groups must be a non-empty list"),
        (
            lambda d, m, at: d.__setitem__("total_budget", float("nan")),
            "contract.total_budget must be finite",
        ),
        (lambda d, m, at: m.__setitem__("kind", "magic"), "menu.kind must be one of"),
        (lambda d, m, at: m.pop("prior"), "menu.prior must be present"),
        (lambda d, m, at: m["prior"].__setitem__("kind", "psychic"), "prior.kind must be one of"),
        (lambda d, m, at: m["prior"].pop("low"), "prior.low must be present"),
        (lambda d, m, at: m.__setitem__("threshold", 9.0), "menu.threshold must be between"),
        (lambda d, m, at: m.__setitem__("levels", 3), "menu.levels must be an object"),
        (lambda d, m, at: at["cost"].reverse(), "menu.levels.cost must be strictly increasing"),
        (lambda d, m, at: at["payment"].pop(), "menu.levels.payment must have 65 values"),
        (
            lambda d, m, at: at["payment"].__setitem__(0, "x"),
            "menu.levels.payment must be a list of numbers",
        ),
        (
            lambda d, m, at: d["groups"][0].__setitem__("clients", -1),
            "group.clients must be a whole number",
        ),
        (lambda d, m, at: d.__setitem__("membership", [7]), "contract.membership must be a list of group"),
        (
            lambda d, m, at: d["groups"][0].__setitem__("clients", 1e15),
            "group.clients must not exceed 100000000 in all, got 1000000000000000",
        ),
        (lambda d, m, at: d.__setitem__("rounds", 1e300), "contract.rounds must not exceed 1000000000"),
        (
            lambda d, m, at: d.__setitem__("confidence", 0),
            "contract.confidence must be between 0 and",
        ),
        (
            lambda d, m, at: d.__setitem__("confidence", 1),
            "contract.confidence must be between 0 and",
        ),
        (
            lambda d, m, at: d.__setitem__("total_budget", 10**400),
            "contract.total_budget must be below",
        ),
    ],
)
def test_a_malformed_contract_is_refused_by_name(curve, change, message):
    with pytest.raises(InvalidValue, match=message):
        verify(tampered(curve, change))


def test_money_is_not_lost_where_the_prior_is_concentrated(steps):
    """Almost all clients cost about 1, and everybody is promised a million."""

    def change(data, menu, at):
        menu["prior"] = {"kind": "exponential", "rate": 1, "low": 0, "high": 1e6}
        menu["levels"] = {"cost": [1e6], "probability": [1.0], "payment": [1e6]}

    assert failed(tampered(steps, change)) == {"expected spend"}


def test_a_contract_for_a_single_cost_is_verified():
    assert failed(published(plan(Discrete([1.0], [1.0]), 50, 10, 10))) == set()


def test_a_probability_above_one_is_found_however_dear_the_clients_are():
    contract = published(plan(Discrete([1e12], [1.0]), 5e13, 10, 10))
    above = tampered(contract, lambda d, m, at: at["probability"].__setitem__(0, 1 + 1e-15))
    assert "at most 1" in failed(above)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[" * 100_000, "too many brackets"), ('{"rounds": ' + "1" * 5000 + "}", "too many digits")],
)
def test_a_hostile_file_is_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "contract.json"
    path.write_text(text)
    with pytest.raises(UnreadableFile, match=f"not a contract: .*{said}"):
        read_contract(path)


def test_files_are_written_whole_and_read_back(curve, tmp_path):
    path = tmp_path / "contract.json"
    contract = contract_from_json(curve)
    save_contract(contract, path)
    assert read_contract(path) == curve
    assert [p.name for p in tmp_path.iterdir()] == ["contract.json"]
    with pytest.raises(InvalidValue, match="existing folder"):
        save_contract(contract, tmp_path / "nowhere" / "contract.json")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UnreadableFile):
        read_contract(path)


class TestRules:
    RULES = PriorFreeSampling(50, 25.0, 1.5, refresh=0.1)

    def test_honest_rules_pass_and_survive_json(self):
        data = json.loads(json.dumps(rules_to_json(self.RULES, 10)))
        assert rules_from_json(data) == self.RULES
        assert all(check.holds for check in verify_rules(data))
        large = PriorFreeSampling(100_000, 50_000.0, 1.5, refresh=0.01)
        assert all(check.holds for check in verify_rules(rules_to_json(large, 10)))

    def test_a_menu_that_is_never_refreshed(self):
        assert all(
            check.holds for check in verify_rules({**rules_to_json(self.RULES, 10), "refresh": 1e308})
        )

    def test_impossible_or_printed_rules_are_refused(self):
        data = rules_to_json(self.RULES, 10)
        with pytest.raises(InvalidValue, match="floor must not exceed"):
            verify_rules({**data, "floor": 0.9})
        with pytest.raises(InvalidValue, match="must leave the floor for the rest"):
            verify_rules({**data, "initial": 50, "initial_probability": 0.9})
        with pytest.raises(InvalidValue, match="version must be 1"):
            verify_rules({**data, "version": 9})
        printed = PriorFreeSampling(50, 25.0, 1.5, variant="printed")
        with pytest.raises(InvalidValue, match="must be 'safe' to be published"):
            rules_to_json(printed, 10)
