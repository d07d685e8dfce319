"""The audit of a run, as a comparison of mechanisms makes it, and the table a comparison trains with."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from bonafed.learning.federation import Objective
from bonafed.mechanisms.faithful import attacking
from bonafed.mechanisms.faithful.bounds import amplified_weights
from bonafed.mechanisms.faithful.slice import SLICE
from bonafed.mechanisms.faithful.vcg import minimise, vcg_payments
from bonafed.mechanisms.protocol import Attack, Common
from bonafed.runs.setting import prepare

TABLES = {
    "data": {"name": "small"},
    "partition": {"kind": "typicality", "delta": 0.9, "clients": 3},
    "model": {"name": "softmax"},
    "faithful": {"regulariser": 0.05, "training_steps": 20, "epsilon": 1e-4},
    "run": {"seed": 3, "cores": 1},
}


@pytest.fixture
def attack(make, small):
    """attack("faithful.rule=left") -> the attack on that run."""

    def build(*changes, module=None, quick=True):
        setting = prepare(make(*changes), dataset=small, module=module)
        return Attack(
            setting.config, setting.agreement, setting.federation(None), setting.mechanism, setting.start,
            quick,
        )  # fmt: skip

    return build


def only(findings):
    (finding,) = findings
    return finding


@pytest.mark.parametrize(
    "changes",
    [(), ("faithful.clusters=2",), ("faithful.weights=samples",), ('faithful.agents=["1 amplify 3"]',)],
)
def test_no_lie_pays_with_payments(attack, changes):
    finding = only(SLICE.audit(attack(*changes)))
    assert finding.claim == "faithfulness"
    assert finding.holds is True
    assert finding.witness is None
    assert finding.allowed == 2e-4
    assert -1e-9 <= finding.number <= finding.allowed  # the truth is among the factors
    assert finding.tries > 3


def test_all_agents_are_searched_where_there_is_time(attack):
    quick, thorough = (only(SLICE.audit(attack(quick=quick))) for quick in (True, False))
    assert thorough.holds is True
    assert thorough.tries > 3 * quick.tries


def test_a_lie_that_pays_is_a_witness_anybody_can_recompute(attack, monkeypatch):
    """Without payments the search must find the lie that the same problem shows directly."""
    case = attack(quick=False)
    setting_problem = case.federation.oracle(
        Objective(0.05, scale=case.federation.members.feature_bound), np.full(3, 1 / 3)
    )

    class Unpaid:
        """The problem, in which nobody else loses anything, so that nobody pays."""

        def __init__(self, problem):
            self.problem, self.others = problem, problem.without_each()

        def __getattr__(self, name):
            return getattr(self.problem, name)

        def value(self, model, mix):
            own = np.count_nonzero(mix) == 1
            return self.problem.value(model, mix) if own else 0.0

    monkeypatch.setattr(attacking, "minimise", lambda problem, *rest, **named: minimise(
        problem.problem, *rest, **named))  # fmt: skip
    monkeypatch.setattr(attacking, "minima", lambda problem, _mixes, shared, _close: shared[None])
    federation = SimpleNamespace(members=case.federation.members, oracle=lambda *_: Unpaid(setting_problem))
    finding = only(SLICE.audit(replace(case, federation=federation)))
    assert finding.holds is False
    assert finding.witness is not None
    agent, factor = finding.witness.client, finding.witness.report
    assert factor > 1  # whoever is unlike the others pulls harder
    assert f"agent {case.federation.members.names[agent]} gains" in finding.text
    truth = minimise(setting_problem, setting_problem.weights)
    lie = minimise(setting_problem, amplified_weights(setting_problem.weights, agent, factor))
    losses = setting_problem.losses(np.stack([truth, lie]))[:, agent]
    assert losses[1] < losses[0]
    assert finding.number == finding.witness.gain > finding.allowed


def test_gains_are_those_of_exact_payments(attack):
    """What the search maximises is F_k + P_k at the fixed point of the lie."""
    case = attack()
    problem = case.federation.oracle(case.mechanism.objective, case.mechanism.problem.weights)
    truth = minimise(problem, problem.weights)
    honest = problem.losses(truth[None])[0, 0] + vcg_payments(problem, truth).amount[0]
    for factor in (0.5, 2.0):
        mix = problem.weights.copy()
        mix[0] *= factor
        model = minimise(problem, mix)
        lying = problem.losses(model[None])[0, 0] + vcg_payments(problem, model).amount[0]
        assert honest - lying < 0
    assert attacking._best_lie(problem, 0, quick=True).gain == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (("privacy.epsilon=10", "privacy.delta=1e-5"), "averages over the noise"),
        (('faithful.variant="printed"',), "not near the exact ones"),
    ],
)
def test_what_is_not_searched_says_why(attack, changes, reason):
    finding = only(SLICE.audit(attack(*changes)))
    assert finding.holds is None
    assert reason in finding.text
    assert np.isnan(finding.number)


def test_a_module_of_the_users_own_is_not_taken_for_the_linear_one(attack):
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    finding = only(SLICE.audit(attack("faithful.learning_rate=0.1", module=module)))
    assert finding.holds is None
    assert "not known to be convex" in finding.text


def test_samples_must_be_at_hand(attack):
    case = attack()
    federation = SimpleNamespace(members=case.federation.members)
    assert "not at hand" in only(SLICE.audit(replace(case, federation=federation))).text


def test_a_comparison_gives_every_mechanism_the_same_steps():
    rounds = SimpleNamespace(rounds=7)
    assert SLICE.compare(Common(rounds, model="softmax", steps=30))["training_steps"] == 30
    assert SLICE.compare(Common(rounds, model="softmax"))["training_steps"] == 7
    assert "training_steps" not in SLICE.compare(Common(None, model="softmax"))
    assert "not convex" in SLICE.compare(Common(None, model="small-cnn"))
