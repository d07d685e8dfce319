"""The numbers of faithful.json: bounds, payments, clusters, faithfulness, private runs."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bonafed.mechanisms.faithful import (
    Aggregation,
    calibrate,
    cluster_count,
    cluster_payments,
    faithful,
    minimise,
    newton_payments,
    pay,
    privacy_loss,
    private_faithful,
    random_clusters,
    vcg_payments,
)
from bonafed.mechanisms.faithful import bounds as b
from bonafed.mechanisms.faithful.agents import amplify
from tests.oracles.faithful import digits_problem, rows

DATA = json.loads((Path(__file__).parent / "faithful.json").read_text())
GIVEN, OUT = DATA["bounds"]["input"], DATA["bounds"]["output"]
GAMMAS = DATA["faithfulness"]["gamma"]
CALIBRATIONS = {"paper": "printed", "zcdp": "zcdp", "gdp": "exact"}
AGENT = 3  # the strategic one


def near(expected, rel=1e-8):
    return pytest.approx(np.asarray(expected, dtype=float), rel=rel, abs=1e-12)


def population():
    keys = ("p", "n", "P", "L_ell", "d", "mu", "delta")
    return b.Population(*(np.array(GIVEN[k]) if k in "pnP" else GIVEN[k] for k in keys))


def test_risk_bounds():
    given = population()
    assert b.collective_risk(given) == near(OUT["eq8"])
    assert b.local_risk(given) == near(OUT["eq13"])
    assert b.federated_risk(given) == near(OUT["eq14"])
    for gamma, expected in OUT["eq16"].items():
        assert b.manipulated_risk(given, float(gamma)) == near(expected)
    assert b.best_manipulation(given) == near(OUT["eq16_gamma_star"])
    assert b.social_local_risk(given) == near(OUT["eq17"])
    assert b.social_federated_risk(given) == near(OUT["eq18"])
    assert b.federation_advantage(given) == near(OUT["eq19"])
    assert b.social_clustered_risk(given, GIVEN["clusters"]) == near(OUT["eq21_corrected"])
    assert b.social_clustered_risk(given, GIVEN["clusters"], printed=True) == near(OUT["eq21_printed"])
    assert b.social_clustered_risk(given, [[k] for k in range(4)]) == near(OUT["eq21_singletons"])
    assert b.social_clustered_risk(given, [range(4)]) == near(OUT["eq21_grand"])
    assert b.efficiency_bound(given, GIVEN["Lg"], GIVEN["T1"], GIVEN["gap0"]) == near(OUT["eq30"])


def theorem_1(a):
    found = b.complexity(a["K"], a["Lg"], a["mu"], a["Lf"], a["G"], a["Dl"], a["eps"])
    names = ("T1", "T2", "interval", "nonempty", "T2_in_interval", "KT2", "bound36", "bound36_corrected")
    named = dict(zip(names, found, strict=True))
    named["lo"], named["hi"] = named.pop("interval")
    return named


def noise(a):
    found = calibrate(
        np.array(a["n"]), np.array(a["p"]), clip=a["Ls"], alpha=a["alpha"], beta=a["beta"],
        training_steps=a["T1"], payment_steps=a["T2"], clusters=a["L"], loss_bound=a["B"],
        split=a.get("split", 0.5), calibration="exact" if a.get("exact") == "gdp" else "zcdp",
    )  # fmt: skip
    return [found.gradient**2, found.payment**2, found.rho]


def printed_noise(a):
    k = a["K"]
    found = calibrate(
        np.full(k, a["n1"]), np.full(k, 1 / k), clip=a["Lf"], alpha=a["alpha"], beta=a["beta"],
        training_steps=a["T1"], payment_steps=a["T2"], clusters=k, calibration="printed",
    )  # fmt: skip
    return [found.gradient**2, found.payment**2]


def tradeoff(a):
    found = b.privacy_tradeoff(
        a["eta2"], a["d"], a["Lf"], a["K"], a["alpha"], a["beta"], a["mu"], a["n1"], a["Lg"],
        corrected=a.get("corrected", False),
    )  # fmt: skip
    return dict(zip(("A", "B", "C", "T", "loss58", "floor_eval"), found, strict=True))


def steps(a):
    return b.steps_needed(a["pk"], a["Lg"], a["mu"], a["gnorm"], a["eps"], a["theta"])


FORMULAS = {
    "thm1": theorem_1,
    "prop5": lambda a: b.integration_error_bound(a["pk"], a["Lg"], a["Lf"], a["T2"], a["eta2"]),
    "vcg_upper": lambda a: b.payment_upper_bound(a["pk"], a["Lf"], a["mu"]),
    "T2_corrected": steps,
    "thm2_L": lambda a: cluster_count(a["K"], a["Lg"], a["Lf"], a["mu"], a["eps"]),
    "prop11": tradeoff,
    "dp_paper": printed_noise,
    "dp_corrected": noise,
    "zcdp_rho": lambda a: privacy_loss(a["alpha"], a["beta"], "zcdp"),
    "gdp_rho": lambda a: privacy_loss(a["alpha"], a["beta"], "exact"),
    "zcdp_alpha": lambda a: b.zcdp_epsilon(a["rho"], a["beta"]),
    "gdp_delta": lambda a: b.gaussian_delta(a["m"], a["eps"]),
}


@pytest.mark.parametrize("case", DATA["formulas"], ids=lambda case: case["fn"])
def test_formulas(case):
    found = FORMULAS[case["fn"]](case["args"])
    if isinstance(case["out"], dict):
        for key, value in case["out"].items():
            assert found[key] == pytest.approx(value, rel=1e-8), key
    else:
        assert np.asarray(found, dtype=float) == near(case["out"])


@pytest.mark.parametrize("row", DATA["dp_conversion"], ids=lambda row: str(row["alpha"]))
def test_conversions_of_privacy(row):
    alpha, beta = row["alpha"], row["beta"]
    assert privacy_loss(alpha, beta, "printed") == near(row["rho_paper"])
    assert privacy_loss(alpha, beta, "zcdp") == near(row["rho_exact"])
    assert privacy_loss(alpha, beta, "exact") == near(row["rho_gdp"])
    assert b.zcdp_epsilon(row["rho_paper"], beta) == near(row["alpha_true_of_paper"])
    delta = b.gaussian_delta(np.sqrt(2 * row["rho_paper"]), alpha)
    assert delta == pytest.approx(row["delta_gdp_at_paper_rho"], rel=1e-5)  # 6 digits are given


def test_the_counterexample_to_equation_36():
    case = DATA["eq36_counterexample"]
    found = theorem_1(case["args"])
    for key, value in case.items():
        if key != "args":
            assert found[key] == pytest.approx(value, rel=1e-8), key


@cache
def solved(delta, agents=10, factor=1.0):
    """The problem, and the model an agent that amplifies makes the federation converge to."""
    problem = digits_problem(delta, agents)
    mix = problem.weights.copy()
    mix[AGENT] *= factor
    return problem, minimise(problem, mix)


@pytest.mark.parametrize("agents", [10, 30])
def test_leave_one_out_payments(agents):
    expected = DATA["loo"][f"K={agents}"]
    problem, model = solved(0.5, agents)
    exact = vcg_payments(problem, model)
    assert exact.amount == near(expected["VCG"])
    assert exact.total == near(expected["sum"])
    for rule in ("left", "trapezoid"):
        options = {"payment_steps": 0, "epsilon": 1e-3 * exact.amount.min(), "rule": rule}
        found, _ = pay(problem, model, Aggregation(problem), **options)
        key = f"gd_{rule[:4]}"
        worst = np.abs(found.amount / exact.amount - 1).max()
        assert worst == pytest.approx(expected[f"{key}_maxrel"], rel=1e-5)
        assert found.steps == expected[f"{key}_iters"]
    two = newton_payments(problem, model).amount
    assert np.abs(two / exact.amount - 1).max() <= {10: 2.4e-4, 30: 2e-7}[agents]
    short, _ = pay(problem, model, Aggregation(problem), rule="left", variant="printed")
    assert short.amount[:3] == near(expected["paper_step_T2=20"]["P"])
    share = expected["paper_step_T2=20"]["share_of_VCG_collected"]
    assert np.mean(short.amount / exact.amount) == near(share)


@pytest.mark.parametrize("delta", [0.05, 0.5])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 10])
def test_cluster_payments(delta, count):
    expected = DATA["clusters"][f"Delta={delta}"][f"L={count}"]
    problem, model = solved(delta)
    found = cluster_payments(problem, model, random_clusters(10, count, np.random.default_rng(7)))
    assert found.amount == near(expected["P"])
    assert found.total == near(expected["total"])
    assert int((found.amount < 0).sum()) == expected["n_negative"]


RUNS = {
    "FFL_paper_eta=1/(K Lg)_T2=20": {"rule": "left", "variant": "printed"},
    "FFL_left_eta=1/((1-pk)Lg)_T2=20": {"rule": "left", "epsilon": 1e9},
    "FFL_left_eta=1/((1-pk)Lg)_eps1e-3": {"rule": "left"},
    "FFL_trap_eta=1/((1-pk)Lg)_eps1e-3": {},
}


@pytest.mark.parametrize("delta", [0.05, 0.5, 0.9])
def test_faithfulness(delta):
    expected = DATA["faithfulness"][f"Delta={delta}"]
    overall = {name: [] for name in RUNS}
    local = []
    for place, gamma in enumerate(GAMMAS):
        problem, model = solved(delta, factor=gamma)
        loss = problem.losses(model[None])[0, AGENT]
        local.append(loss)
        assert loss == near(expected["F_k(gamma)"][place])
        reports = Aggregation(problem, {AGENT: amplify(gamma)})
        mix = problem.without_each()[AGENT]
        alone = minimise(problem, mix, model)
        vcg = (problem.value(model, mix) - problem.value(alone, mix)) / problem.weights[AGENT]
        assert vcg == near(expected["VCG_payment(gamma)"][place], rel=1e-6)
        for name, options in RUNS.items():
            paid, _ = pay(problem, model, reports, payers=[AGENT], **options)
            assert paid.amount[AGENT] == near(expected[name]["P"][place], rel=1e-6)
            overall[name].append(loss + paid.amount[AGENT])
    assert np.all(np.diff(local) < 0)  # FedAvg: the more an agent amplifies, the better for it
    for name, losses in overall.items():
        assert GAMMAS[int(np.argmin(losses))] == expected[name]["argmin"]
    assert GAMMAS[int(np.argmin(overall["FFL_trap_eta=1/((1-pk)Lg)_eps1e-3"]))] == 1
    assert GAMMAS[int(np.argmin(overall["FFL_paper_eta=1/(K Lg)_T2=20"]))] != 1  # not faithful


def test_end_to_end_by_gradients():
    expected = DATA["end_to_end_GD"]
    problem = digits_problem(0.5)
    done = faithful(problem, training_steps=expected["T1"], epsilon=expected["eps"])
    assert done.payments.amount == near(expected["all_payments_truthful"], rel=1e-6)
    assert done.payments.total == near(expected["sum_payments"], rel=1e-6)
    assert np.abs(done.payments.amount - expected["VCG"]).max() <= expected["eps"]
    for place in (2, 4):  # two of the factors; the table is long
        gamma = expected["gamma"][place]
        run = faithful(problem, agents={AGENT: amplify(gamma)}, training_steps=expected["T1"])
        assert run.losses[AGENT] == near(expected["F_k"][place], rel=1e-6)
        assert run.overall[AGENT] == near(expected["J_k"][place], rel=1e-6)


@pytest.mark.parametrize(
    "row", DATA["dpffl_digits_n1200"]["rows"], ids=lambda row: f"{row['mode']}-{row['alpha']}"
)
def test_private_runs(row):
    problem, model = solved(0.05)
    exact = vcg_payments(problem, model).amount
    _, _, x, y = rows()
    errors, losses, hits = [], [], []
    for seed in range(100, 105):
        done = private_faithful(
            problem, random_clusters(10, row["L"], np.random.default_rng(7)), np.random.default_rng(seed),
            alpha=row["alpha"], beta=0.01, calibration=CALIBRATIONS[row["mode"]],
        )  # fmt: skip
        errors.append(np.abs(done.payments - exact).mean())
        losses.append(problem.value(done.model, problem.weights))
        hits.append(((x @ done.model.reshape(17, 10)).argmax(1) == y).mean())
        if row["mode"] != "paper":  # the record: nobody has given away more than was promised
            spent = [done.epsilon(k) for k in range(10)]
            assert max(spent) <= row["alpha"]
    assert (done.noise.gradient, done.noise.payment) == (near(row["sigma"]), near(row["sigma_P"]))
    assert np.mean(errors) == near(row["mean_abs_payment_err"])
    assert np.mean(losses) == near(row["F"])
    assert np.mean(hits) == near(row["acc"])


@pytest.mark.parametrize("row", DATA["participation"], ids=lambda row: str(row["Delta"]))
def test_participation(row):
    problem = digits_problem(row["Delta"])
    model = minimise(problem, problem.weights)
    paid = vcg_payments(problem, model)
    shared = problem.losses(model[None])[0]
    alone = np.array([
        problem.value(minimise(problem, problem.one(k)), problem.one(k)) for k in range(10)
    ])  # fmt: skip
    without = np.diag(problem.losses(paid.models))
    assert paid.amount.mean() == near(row["mean_P"])
    assert (shared + paid.amount).mean() == near(row["J_train"])
    assert alone.mean() == near(row["F_local_train"])
    assert without.mean() == near(row["F_leave_one_out"])
    assert bool((shared + paid.amount <= without + 1e-9).all()) == row["J_le_Fk_wminusk"]
    assert bool((shared + paid.amount >= alone).all()) == row["J_ge_local"]
