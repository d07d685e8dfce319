"""Runs of faithful learning in few exchanges: rounds, statement, keys, resumed anywhere, any threads."""

import os
import subprocess
import sys

import numpy as np
import pytest
from tests.oracles.asking import asked_problem

from bonafed import InvalidValue, train
from bonafed.mechanisms.faithful import SoftmaxRegression, vcg_payments
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.protocol.exchanges import Exchanges
from bonafed.mechanisms.faithful.protocol.variants import outcome_of
from bonafed.mechanisms.faithful.section import NAMES
from bonafed.mechanisms.faithful.state import FaithfulState, exchanges_from
from bonafed.runs import config, folder, listing
from bonafed.runs.prepare import prepare

TABLES = {
    "data": {"name": "digits"},
    "partition": {"kind": "label_dirichlet", "clients": 4, "beta": 1.0},
    "model": {"name": "softmax"},
    "faithful": {"regulariser": 0.003},
    "run": {"seed": 3, "cores": 1},
}


@pytest.fixture(scope="module", params=[4, 6, 10])
def place(request, tmp_path_factory):
    """A run of so many clients, kept."""
    place = tmp_path_factory.mktemp("exchanges") / "run"
    train(changed("partition", clients=request.param), folder=place)
    return place


def test_rounds_are_exchanges_and_the_run_ends_by_itself(place):
    lines = folder.read_rounds(place)
    assert 10 <= len(lines) <= 30
    assert [line["round"] for line in lines] == list(range(1, len(lines) + 1))
    doing = [line["doing"] for line in lines]
    assert doing[0].startswith("training: error ")
    assert doing[0].endswith(", ends at 0.001")
    assert any(text.startswith("payments: error ") and text.endswith(", ends at 0.0005") for text in doing)
    assert doing[-1] == "payments"
    looked_at = [line["round"] for line in lines if line["test_accuracy"] is not None]
    assert looked_at == sorted({*range(5, len(lines) + 1, 5), len(lines)})
    seen = listing.overview(place)
    assert (seen["rounds"], seen["planned_rounds"], seen["finished"]) == (len(lines), None, True)
    assert folder.read_checkpoint(place).round == len(lines)


def test_the_statement_tells_exchanges_and_the_parts_of_the_certificate(place):
    told = folder.read_json(place, folder.SUMMARY)["statement"]
    facts, totals = told["facts"], told["totals"]
    assert facts["exchanges"] == totals["exchanges"] == len(folder.read_rounds(place))
    assert facts["training_exchanges"] < facts["exchanges"] - 1
    residual, integration = facts["residual_error"], facts["integration_error"]
    assert 0 < residual <= 0.5e-3
    assert 0 < integration <= 0.5e-3
    assert totals["part from searches not finished"] == residual
    assert totals["part from integration"] == integration
    assert residual <= totals["payments below VCG by at most"] <= residual + integration
    assert 0 < totals["distance to Gauss-Legendre"] < integration
    assert [found["holds"] for found in told["findings"] if found["claim"] in NAMES] == [True] * 4


def test_its_payments_are_exact_ones_within_the_certificate(place):
    setting = prepare(config.read(place / folder.CONFIG))
    mechanism = setting.mechanism
    problem = setting.clients.oracle(mechanism.objective, mechanism.problem.weights)
    kept = folder.read_checkpoint(place).state
    short = vcg_payments(problem, kept["model"]).amount - kept["amount"]
    assert (short >= -kept["errors"][0]).all()
    assert (short <= kept["error"] + kept["errors"][0]).all()


def test_the_resolved_config_says_the_variant_and_can_be_read_again(place):
    resolved = config.read(place / folder.CONFIG)
    assert resolved.own.variant == "exchanges"
    assert (resolved.own.training_steps, resolved.own.rule) == (None, None)
    assert (resolved.run.checkpoint_every, resolved.run.evaluate_every) == (10, 5)
    assert config.from_tables(config.to_tables(resolved)) == resolved
    steps = prepare(config.from_tables(changed("faithful", variant="stepwise"))).config
    assert (steps.own.training_steps, steps.own.payment_steps, steps.own.rule) == (1500, 20, "trapezoid")
    assert (steps.run.checkpoint_every, steps.run.evaluate_every) == (100, 50)


def changed(table, **keys):
    return {**TABLES, table: {**TABLES.get(table, {}), **keys}}


@pytest.mark.parametrize(
    ("name", "value"),
    [("training_steps", 300), ("payment_steps", 9), ("step_share", 0.5), ("rule", "left")],
)
@pytest.mark.parametrize("variant", [{}, {"variant": "exchanges"}])
def test_keys_of_steps_are_refused_by_name(name, value, variant):
    rule = rf'^faithful\.{name} must not be given with variant = "exchanges", which ends by itself, got '
    with pytest.raises(InvalidValue, match=rule):
        prepare(config.from_tables(changed("faithful", **{name: value}, **variant)))


def test_exchanges_are_refused_where_they_cannot_be():
    private = {**changed("faithful", variant="exchanges"), "privacy": {"epsilon": 5, "delta": 1e-5}}
    with pytest.raises(
        InvalidValue, match=r"^faithful\.variant must be stepwise or printed in a private run"
    ):
        config.from_tables(private)
    network = {
        **changed("faithful", variant="exchanges", learning_rate=0.1), "model": {"name": "small-cnn"}
    }  # fmt: skip
    rule = r"^faithful\.variant must be stepwise or printed where the loss is not strongly convex"
    with pytest.raises(InvalidValue, match=rule):
        prepare(config.from_tables(network))


@pytest.mark.parametrize("keys", [{"payments": "exact"}, {"payments": "newton"}, {"clusters": 2}])
def test_payments_without_reports_need_the_exchanges_of_training_only(keys):
    run = train(changed("faithful", **keys))
    assert len(run.metrics) <= 15
    assert all("training" in line["doing"] for line in run.metrics)
    assert all(finding.holds for finding in run.findings if finding.claim in NAMES[:3])


@pytest.fixture(scope="module")
def held():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 3))
    x /= np.linalg.norm(x, axis=1).max()
    return SoftmaxRegression(x, rng.integers(0, 3, 40), np.arange(40) % 4, 3, 0.1)


@pytest.mark.parametrize("lies", [{}, {1: cheats.flip_sign()}, {2: lambda _w, _g: None}])
def test_a_state_restored_after_any_exchange_goes_on_with_the_same_bits(held, lies):
    """Also with somebody who is left out, and with agents that are asked one by one."""

    def ask(sent):
        said = {k: held.gradient(w, np.tile(held.one(k), (len(w), 1))) for k, w in sent.items()}
        return {k: lies[k](sent[k], g) if k in lies else g for k, g in said.items()}

    agreed = {
        "size": held.size, "regulariser": 0.1, "smoothness": held.smoothness, "precision": 1e-9,
        "gradient_bound": 2**0.5, "bounded": True, "classes": 3,
    }  # fmt: skip
    problem, federation = asked_problem(ask, held.weights, **agreed)
    course = Exchanges(problem, federation, 1e-6, on_bad_report="leave out")

    def to_the_end(at, cut=None):
        while not at.done:
            if at.exchanges == cut:
                state = FaithfulState(None, at.model, at, resumable=True)
                at = exchanges_from({name: np.array(values) for name, values in state.arrays().items()})
            at = course.advance(at)
        return at

    whole = to_the_end(course.begin())
    outcome = outcome_of(whole, np.zeros(4))
    for cut in range(whole.exchanges):
        again = outcome_of(to_the_end(course.begin(), cut), np.zeros(4))
        assert again.exchanges == outcome.exchanges
        assert again.model.tobytes() == outcome.model.tobytes()
        assert again.payments.amount.tobytes() == outcome.payments.amount.tobytes()
        assert again.payments.error.tobytes() == outcome.payments.error.tobytes()
        assert again.left_out == outcome.left_out


THREADS = """
import hashlib
from bonafed.mechanisms.faithful import ProtocolRules, faithful
from tests.oracles.faithful import digits_problem
done = faithful(digits_problem(0.5), rules=ProtocolRules(epsilon=1e-4))
print(hashlib.sha256(done.model.tobytes() + done.payments.amount.tobytes()).hexdigest(), done.exchanges)
"""


def test_the_number_of_threads_changes_no_bit():
    said = set()
    for threads in ("1", "2", "4"):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        ran = subprocess.run(
            [sys.executable, "-c", THREADS], env={**os.environ, **dict.fromkeys(names, threads)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        said.add(ran.stdout)
    assert len(said) == 1
