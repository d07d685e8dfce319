"""The numbers of rewards.json that need no training: bounds, (47), games, metrics, the cosine measure."""

import json
from pathlib import Path

import numpy as np
import pytest

from bonafed.economics.contribution import cosine_step
from bonafed.mechanisms.rewards import game as g
from bonafed.mechanisms.rewards.measures import History, ObservedRound, contributions, cosine_gradient
from bonafed.mechanisms.rewards.settlement import (
    correlation,
    participation_incentive,
    participation_incentive_by_loss,
)
from bonafed.papers.rewards import bounds as b

DATA = json.loads((Path(__file__).parent / "rewards.json").read_text())
BOUNDS, GIVEN = DATA["bounds"], DATA["bounds"]["input"]


def near(expected):
    """10 significant digits are printed."""
    return pytest.approx(np.asarray(expected, dtype=float), rel=1e-9, abs=1e-10)


def problem():
    return b.TrainingProblem(*(GIVEN[key] for key in ("L", "mu", "tau", "Gam", "G", "Sig2", "alpha", "D1")))


def rates():
    return np.array([GIVEN["gp_rows"][t % 2] for t in range(GIVEN["T"])])


def test_theorem_1():
    given = problem()
    assert given.least_shift == near(BOUNDS["alpha_min"])
    found = b.performance_bound(given, rates())
    for i, expected in enumerate(BOUNDS["thm1"]):
        assert given.constant == near(expected["Q"])
        assert given.constant_with_start == near(expected["B"])
        eta = 1 / (given.strong_convexity * given.local_steps * (GIVEN["T"] + given.shift))
        assert given.drift(eta) == near(expected["H_T"])
        assert found.propagation[i] == near(expected["C_T"])
        assert found.bound[i] == near(expected["bound"])


def test_theorem_2():
    given = problem()
    assert given.least_rate == near(BOUNDS["beta_thm2"])
    exact = b.recovery_bound(given, rates(), GIVEN["gref"], GIVEN["q"])
    assert exact.common[-1] == near(BOUNDS["D_T"])
    assert exact.own[-1] == near(BOUNDS["E_T"])
    assert exact.bound == near(BOUNDS["thm2_exact_Tminus1"])
    longer = b.recovery_bound(given, rates(), GIVEN["gref"], GIVEN["q"], variant="T steps")
    assert longer.bound == near(BOUNDS["thm2_printed_Tsteps"])
    printed = b.printed_common_term(given, rates(), GIVEN["gref"], GIVEN["q"])
    assert printed == near(BOUNDS["D_T_printed_power1"])


@pytest.mark.parametrize("case", DATA["eq47"], ids=lambda case: f"q{case['q']}")
def test_equation_47(case):
    alpha, q = case["alpha"], case["q"]
    assert b.fading_sum(alpha, q) == near(case["closed"])
    assert b.tight_fading_sum(alpha, q) == near(case["tight"])
    el = np.arange(5000)
    assert ((el + 1 + alpha) ** 2 * (1 - q) ** (el + 1)).sum() == near(case["partial_5000"])


@pytest.mark.parametrize(
    "case", DATA["games"], ids=lambda case: f"{case['input']['g']}{case['input']['c']}"
)
def test_games(case):
    a = case["input"]
    played = g.game(a["c"], a["g"])
    n = played.clients
    assert played.standalone == near(case["standalone"])
    rules = {
        "standard": g.standard(),
        "relative": g.relative(),
        "ceiling": g.with_ceiling(a["p_ceil"], a["kappa"]),
    }
    begin = {"low": np.full(n, a["lo"]), "high": np.full(n, a["hi"]), "from_bad": played.standalone / n}
    compared = 0
    for name, rule in rules.items():
        for found in g.equilibria(played, rule, begin):
            expected = case.get(f"{name}_{found.start}")
            if expected is not None:
                compared += 1
                assert found.converged
                assert found.gain <= 1e-14
                assert found.contributions == near(expected["p"])
                assert found.total == near(expected["total"])
                assert found.utility == near(expected.get("utilities", found.utility))
    assert compared == (9 if "relative_from_bad" in case else 6)
    if "social_optimum_total" in case:
        assert g.social_optimum(played).total == near(case["social_optimum_total"])
        assert g.symmetric_interval(played) == near(case["relative_symmetric_interval"])
        same = g.equilibria(played, rules["ceiling"], {"low": begin["low"]})[0]
        assert same.contributions == near(np.full(n, case["ceiling_symmetric"]))


@pytest.mark.parametrize("case", DATA["metrics"], ids=["defined", "undefined"])
def test_metrics(case):
    a = case["input"]
    assert participation_incentive(a["acc"], a["sacc"]) == case["ipr_accu"]
    assert participation_incentive_by_loss(a["loss"], a["sloss"]) == case["ipr_loss"]
    rho = correlation(a["acc"], a["sacc"])
    assert rho is None if case["rho"] is None else rho == near(case["rho"])


def cosine_updates():
    """(3, 3, 10) the rule written in the file, for rounds 0, 1, 2."""
    rounds = []
    for t in range(3):
        layers = [
            [np.array(one) * (1 + 0.1 * t * (i + 1)) + t * np.arange(len(one)) for one in client]
            for i, client in enumerate(DATA["cgsv"]["base"])
        ]
        rounds.append(np.array([np.concatenate(client) for client in layers]))
    return np.array(rounds)


def test_cosine_steps_and_measure():
    sizes, importance, seen = np.array([100.0, 200.0, 300.0]), None, []
    for updates, expected in zip(cosine_updates(), DATA["cgsv"]["rounds"], strict=True):
        step = cosine_step(updates, importance, sizes, scale=0.5)
        assert step.cosine == near(expected["phi"])
        assert step.importance == near(expected["r"])
        assert step.aggregate == near(np.concatenate(expected["agg"]))
        importance = step.importance
        nothing = np.zeros_like(updates)
        seen.append(ObservedRound(updates, np.ones(3, dtype=bool), nothing, nothing[0]))
        assert contributions(History(sizes, seen), cosine_gradient(scale=0.5)) == near(expected["r"])
