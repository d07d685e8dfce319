"""Every number of sampling.json, reproduced by the library at 1e-9."""

import json
from pathlib import Path

import numpy as np
import pytest

from bonafed.economics import (
    Discrete,
    Empirical,
    NormalMixture,
    ScaledBeta,
    TruncatedExponential,
    TruncatedNormal,
    Uniform,
)
from bonafed.economics.contracts import CurveMenu
from bonafed.mechanisms.sampling import (
    PriorFreeSampling,
    complete_information,
    complete_information_population,
    optimal_menu,
    uniform_menu,
)

DATA = json.loads((Path(__file__).parent / "sampling.json").read_text())
CONTINUOUS = [v for v in DATA["vectors"] if v["prior"]["kind"] != "discrete"]
FINITE = [v for v in DATA["vectors"] if v["prior"]["kind"] == "discrete"]
ESTIMATED = {v["prior"]["name"]: v["prior"] for v in FINITE if "samples" in v["prior"]}


def near(expected):
    return pytest.approx(np.array(expected, dtype=float), rel=1e-9, abs=1e-12)


def name(v):
    return f"{v['prior']['name']}-{v['budget_case']}".replace(" ", "_")


def make(p):
    low, high = p.get("c_min"), p.get("c_max")
    match p["kind"]:
        case "uniform":
            return Uniform(low, high)
        case "truncexp":
            return TruncatedExponential(p["rate"], low, high)
        case "truncnorm":
            return TruncatedNormal(p["mean"], p["sd"], low, high)
        case "beta":
            return ScaledBeta(p["alpha"], p["beta"], low, high)
        case "mix":
            weights, means, sds = zip(*p["components"], strict=True)
            return NormalMixture(weights, means, sds, low, high)
        case "discrete":
            if "samples" in p:
                return Empirical(p["samples"], p["c"][-1], p["mode"])
            return Discrete(p["c"], p["f"])
    raise AssertionError(p["kind"])


def test_the_file_is_complete():
    assert (len(CONTINUOUS), len(FINITE)) == (20, 28)
    assert len(DATA["complete_information"]) == 5
    assert len(DATA["prior_independent_safe"]) == 3
    assert sorted(p["mode"] for p in ESTIMATED.values()) == ["mle", "plus"]


@pytest.mark.parametrize("p", ESTIMATED.values(), ids=ESTIMATED)
def test_estimated_priors(p):
    prior = Empirical(p["samples"], p["c"][-1], p["mode"])
    assert prior.costs == near(p["c"])
    assert prior.masses == near(p["f"])


@pytest.mark.parametrize("v", CONTINUOUS, ids=name)
def test_continuous_virtual_costs(v):
    prior = make(v["prior"])
    assert prior.virtual_cost(v["c"]) == near(v["phi"])
    assert prior.ironed_virtual_cost(v["c"]) == near(v["phibar"])
    assert prior.is_regular == (not v["ironed"])
    assert len(prior.ironed_intervals) == len(v["ironed"])
    for pool, expected in zip(prior.ironed_intervals, v["ironed"], strict=True):
        assert np.array(pool) == near(expected)


@pytest.mark.parametrize("v", FINITE, ids=name)
def test_finite_virtual_costs(v):
    prior = make(v["prior"])
    assert prior.virtual_cost(v["prior"]["c"]) == near(v["phi"])
    assert prior.ironed_virtual_cost(v["prior"]["c"]) == near(v["phibar"])
    assert prior.is_regular == bool(np.all(np.diff(v["phi"]) >= -1e-12))


@pytest.mark.parametrize("v", DATA["vectors"], ids=name)
def test_terms(v):
    menu = optimal_menu(make(v["prior"]), v["Bbar"])
    costs = v.get("c", v["prior"].get("c"))
    assert menu.probability(costs) == near(v["q"])
    assert menu.payment(costs) == near(v["r"])
    assert menu.expected_payment(costs) == near(v["expected_payment_qr"])
    assert menu.budget == v["Bbar"]


@pytest.mark.parametrize("v", DATA["vectors"], ids=name)
def test_expectations(v):
    menu = optimal_menu(make(v["prior"]), v["Bbar"])
    assert menu.expected_spend == near(v["spend"])
    assert menu.expected_inverse_probability == near(v["E_inv_q"])
    assert menu.expected_probability == near(v["E_q"])


@pytest.mark.parametrize(
    "v", [v for v in DATA["vectors"] if not v["budget_case"].endswith("_boundary")], ids=name
)
def test_case_and_threshold(v):
    prior = make(v["prior"])
    menu = optimal_menu(prior, v["Bbar"])
    assert menu.case == v["case"]
    if "c_hat" in v:
        assert menu.threshold == near(v["c_hat"])
    else:
        certain = v["k_hat"]
        assert menu.threshold == (v["prior"]["c"][certain - 1] if certain else prior.low)


@pytest.mark.parametrize("v", [v for v in CONTINUOUS if v["case"] < 3], ids=name)
def test_scale(v):
    menu = optimal_menu(make(v["prior"]), v["Bbar"])
    assert isinstance(menu, CurveMenu)
    assert menu.scale == near(v["tau"])


@pytest.mark.parametrize("v", CONTINUOUS, ids=name)
def test_complete_information_of_a_population(v):
    expected = v["complete_info"]
    rule = complete_information_population(make(v["prior"]), v["Bbar"])
    assert rule.case == expected["case"]
    assert rule.threshold == near(expected["c_hat"])
    assert rule.expected_inverse_probability == near(expected["E_inv_q"])
    assert rule.expected_probability == near(expected["E_q"])


@pytest.mark.parametrize("v", DATA["vectors"], ids=name)
def test_uniform_sampling(v):
    prior, expected = make(v["prior"]), v["uniform"]
    menu = uniform_menu(prior, v["Bbar"])
    costs = np.array([prior.low, (prior.low + prior.high) / 2, prior.high])
    assert menu.probability(costs) == near([expected["q"]] * 3)
    assert menu.payment(costs) == near([expected["r"]] * 3)
    if "E_inv_q" in expected:
        assert menu.expected_inverse_probability == near(expected["E_inv_q"])


@pytest.mark.parametrize("v", DATA["complete_information"], ids=lambda v: str(v["total_budget_per_round"]))
def test_complete_information(v):
    """The file's budget is of all clients together; the library's is per client."""
    found = complete_information(v["c"], v["total_budget_per_round"] / len(v["c"]), v["s"])
    assert found.probability == near(v["q"])
    assert found.payment == near(v["r"])
    assert found.sampling_term == near(v["sum_s_over_q"])
    assert found.expected_spend == near(v["spend"])


def rules_of(v):
    return PriorFreeSampling(
        clients=len(v["costs_in_order"]),
        budget=v["per_round_budget"],
        highest=v["c_max"],
        initial=v["n0"],
        initial_probability=v["q_hat"],
        floor=v["q_lo"],
    )


TRACES = pytest.mark.parametrize("v", DATA["prior_independent_safe"], ids=lambda v: f"N{len(v['q'])}")


@TRACES
def test_prior_free_run(v):
    run = rules_of(v).run(v["costs_in_order"])
    assert run.probability == near(v["q"])
    assert run.payment == near(v["r"])
    assert run.expected_payment == near(v["expected_payment_qr"])
    assert run.remaining[v["n0"] :] == near(v["remaining_before"])
    assert run.shrink[v["n0"] :] == near(v["kappa"])
    assert v["per_round_budget"] - run.spent == pytest.approx(v["leftover"], rel=1e-5)


@TRACES
def test_prior_free_client_by_client(v):
    state, n0 = rules_of(v).start(), v["n0"]
    for j, cost in enumerate(v["costs_in_order"]):
        if j >= n0:
            assert state.remaining == near(v["remaining_before"][j - n0])
            assert state.shrink == near(v["kappa"][j - n0])
        menu = state.menu
        terms, state = state.settle(cost)
        for offered in (terms, menu.settle(cost)):
            assert offered.probability == near(v["q"][j])
            assert offered.payment == near(v["r"][j])
            assert offered.expected_payment == near(v["expected_payment_qr"][j])
    assert state.remaining == pytest.approx(v["leftover"], rel=1e-5)
    assert state.clients_left == 0


@TRACES
def test_prior_free_default_probabilities_are_those_of_the_file(v):
    rules = PriorFreeSampling(len(v["costs_in_order"]), v["per_round_budget"], v["c_max"], initial=v["n0"])
    assert rules.first_probability == near(v["q_hat"])
    assert rules.lowest_probability == near(v["q_lo"])
