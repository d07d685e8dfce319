"""The audit of a run, as a comparison of mechanisms makes it, and the table a comparison trains with."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from bonafed.mechanisms.faithful.adversaries import audit_of_run
from bonafed.mechanisms.faithful.adversaries.search import FACTORS
from bonafed.mechanisms.faithful.protocol.exchanges import Exchanges
from bonafed.mechanisms.faithful.slice import SLICE
from bonafed.mechanisms.protocol import Attack, Common
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train

TABLES = {
    "data": {"name": "small"},
    "partition": {"kind": "typicality", "delta": 0.9, "clients": 3},
    "model": {"name": "softmax"},
    "faithful": {"regulariser": 0.05, "variant": "stepwise", "training_steps": 20, "epsilon": 1e-4},
    "run": {"seed": 3, "cores": 1},
}
ENOUGH = ("faithful.training_steps=300",)  # for the promises to be kept
FEW = ("faithful.training_steps=5",)


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
    [
        (),
        ("faithful.clusters=2",),
        ("faithful.weights=samples",),
        ("faithful.payments=exact",),
    ],
)
def test_no_lie_pays_in_a_run_that_keeps_its_promises(attack, changes):
    finding = only(SLICE.audit(attack(*ENOUGH, *changes)))
    assert finding.claim == "faithfulness"
    assert finding.holds is True
    assert finding.witness is None
    assert finding.allowed >= 2e-4
    assert finding.number <= finding.allowed
    assert finding.tries == 4


def test_all_agents_are_searched_where_there_is_time(attack):
    finding = only(SLICE.audit(attack(*ENOUGH, quick=False)))
    assert finding.holds is True
    assert finding.tries == 3 * len(FACTORS)


EXCHANGES = ("faithful.variant=exchanges", "faithful.training_steps=")


def test_no_lie_pays_in_a_run_by_exchanges(attack):
    finding = only(SLICE.audit(attack(*EXCHANGES)))
    assert finding.holds is True
    assert finding.tries == 4
    assert finding.number <= finding.allowed <= 2.5e-4


def test_a_run_by_exchanges_is_attacked_at_its_searches_and_its_segment(attack):
    leaving_out = (*EXCHANGES, "faithful.on_bad_report=leave out")
    finding = only(SLICE.audit(attack(*leaving_out, quick=False)))
    assert finding.holds is True
    assert finding.tries > 3 * (len(FACTORS) + 20)
    assert "stopped the run" not in finding.text
    assert 0 <= finding.number <= finding.allowed <= 2.5e-4
    stopping = only(SLICE.audit(attack(*EXCHANGES, quick=False)))
    assert stopping.holds is True
    assert "of them stopped the run" in stopping.text


def test_a_run_by_exchanges_whose_payments_end_early_is_caught(attack, monkeypatch):
    """The control: no searches without an agent, so that everybody has the shared model for nothing."""
    monkeypatch.setattr(Exchanges, "_open", lambda _self, _at: np.arange(0))
    finding = only(SLICE.audit(attack(*EXCHANGES)))
    assert finding.holds is False
    assert finding.witness.report > 1


def test_a_lie_that_pays_is_one_that_a_run_with_it_confirms(attack, make, small):
    """Too few steps: the statement says that faithfulness fails, and the audit must not say otherwise."""
    few = (*FEW, "faithful.epsilon=1e-3")
    finding = only(SLICE.audit(attack(*few)))
    assert finding.holds is False
    assert finding.witness is not None
    assert finding.witness.client == 0
    assert finding.number == finding.witness.gain > finding.allowed
    assert "VIOLATED, agent 0 gains" in finding.text
    lie = f'faithful.agents=["0 amplify {finding.witness.report:g}"]'
    honest, lying = (train(prepare(make(*few, *more), dataset=small)).statement for more in ((), (lie,)))
    checked = {claim.claim: claim.holds for claim in honest.findings}
    assert checked["efficiency"] is checked["faithfulness"] is False
    gain = honest.columns["overall_loss"][0] - lying.columns["overall_loss"][0]
    assert gain == pytest.approx(finding.number, rel=1e-6)
    assert finding.allowed == 2 * 1e-3


@pytest.mark.parametrize("steps", [1, 2, 5, 10, 20, 50, 100, 200])
def test_an_audit_never_promises_more_than_the_statement(attack, make, small, steps):
    changes = (f"faithful.training_steps={steps}",)
    finding = only(SLICE.audit(attack(*changes)))
    statement = train(prepare(make(*changes), dataset=small)).statement
    (promise,) = [claim for claim in statement.findings if claim.claim == finding.claim]
    assert finding.holds is True if promise.holds else finding.holds is not True


def test_agents_that_cheat_already_are_not_those_that_try(attack):
    few = (*FEW, 'faithful.agents=["0 drop-out 3"]', "faithful.on_bad_report=leave out")
    finding = only(SLICE.audit(attack(*few)))
    assert finding.witness.client == 1
    assert finding == only(SLICE.audit(attack(*few)))  # who drops out does so in every run anew
    finding = only(SLICE.audit(attack(*ENOUGH, 'faithful.agents=["1 amplify 1.5"]')))
    assert finding.holds is None  # agent 1 lies, so that efficiency is lost
    assert finding.number <= finding.allowed  # but the truth is best for whoever does not
    everybody = 'faithful.agents=["0 stale", "1 stale", "2 stale"]'
    finding = only(SLICE.audit(attack(everybody)))
    assert finding.holds is None
    assert "no agent follows the protocol" in finding.text


@pytest.mark.parametrize("policy", ["raise", "leave out"])
def test_a_lie_that_is_recognised_gains_nothing(attack, monkeypatch, policy):
    monkeypatch.setattr(audit_of_run, "_QUICK", (-1.0, 100.0))
    finding = only(SLICE.audit(attack(*ENOUGH, f"faithful.on_bad_report={policy}")))
    assert finding.holds is True
    assert finding.tries == 2
    assert ("2 of them stopped the run" in finding.text) is (policy == "raise")
    assert finding.number == 0 if policy == "raise" else finding.number < 0  # left with the others' model


def test_what_is_not_searched_says_why(attack):
    finding = only(SLICE.audit(attack("privacy.epsilon=10", "privacy.delta=1e-5")))
    assert finding.holds is None
    assert "averages over the noise" in finding.text
    assert np.isnan(finding.number)
    finding = only(SLICE.audit(replace(attack(), start=None)))
    assert "no run to repeat" in finding.text


def test_payments_as_printed_are_attacked_too(attack):
    finding = only(SLICE.audit(attack(*ENOUGH, 'faithful.variant="printed"', "faithful.payment_steps=1")))
    assert finding.holds is False
    assert finding.witness.report > 1  # whoever overstates pays too little for it


def test_nothing_is_promised_for_a_module_of_the_users_own(attack):
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    few = ("faithful.learning_rate=0.1", "faithful.epsilon=10")
    finding = only(SLICE.audit(attack(*few, module=module)))
    assert finding.holds is None
    assert finding.text.startswith("the statement does not certify it; no false report pays in 4 tries")
    assert np.isfinite(finding.number)


def test_samples_must_be_at_hand(attack):
    case = attack()
    federation = SimpleNamespace(members=case.federation.members)
    assert "not at hand" in only(SLICE.audit(replace(case, federation=federation))).text


def test_a_comparison_leaves_the_number_of_exchanges_to_the_protocol():
    rounds = SimpleNamespace(rounds=7)
    for common in (Common(rounds, model="softmax", steps=30), Common(None, model="softmax")):
        assert SLICE.compare(common) == {"regulariser": 0.003}
    assert "not convex" in SLICE.compare(Common(None, model="small-cnn"))
