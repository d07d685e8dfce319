"""`bonafed audit jsam`: what it finds, what it must find in the controls, and bad input."""

import json
from pathlib import Path

import numpy as np
import pytest

from bonafed.economics import TruncatedExponential, Uniform
from bonafed.mechanisms.jsam import Cheapest, JsamMechanism, unbiased
from bonafed.mechanisms.jsam.allocation import algorithm_1
from bonafed.mechanisms.jsam.controls import ClippedMechanism, PayAsBid, PrintedMechanism

FEW = ["--clients", "5", "--profiles", "2", "--points", "21"]


@pytest.fixture
def audit(bonafed):
    """audit(...) -> (exit code, stdout, stderr) of `bonafed audit jsam ...` in an empty folder."""
    return lambda *words: bonafed("audit", "jsam", *words)


def findings(out):
    return {finding["claim"]: finding for finding in json.loads(out)["findings"]}


def test_no_lie_pays_under_the_exact_mechanism(audit):
    code, out, err = audit("--json")
    assert (code, err) == (0, "")
    found = findings(out)
    assert [*found] == ["truthful", "individually rational", "monotone", "feasible"]
    assert found["truthful"]["number"] < 1e-12
    assert found["truthful"]["tries"] > 40 * 61**2


@pytest.mark.parametrize(
    "words",
    [
        ["--prior", "exponential:1,0,2", "--noise-scale", "1"],
        ["--prior", "discrete:0.3,0.3,0.5,0.02,0.9,0.08,1,0.35,1.4,0.05,2,0.2", "--noise-scale", "1"],
        ["--eta", "5", "--noise-scale", "1"],
        ["--delta", "1e-5", "--dimension", "1", "--rounds", "1", "--smoothness", "0.1", "--records", "2"],
        ["--max-epsilon", "0.8"],
        ["--max-epsilon", "0.8", "--variant", "usbm"],
        ["--max-epsilon", "0.8", "--variant", "fsbm", "--members", "3"],
        ["--variant", "usbm"],
        ["--variant", "fsbm", "--members", "3"],
        ["--variant", "printed-integral"],
    ],
)
def test_what_is_truthful_passes(audit, words):
    code, out, _ = audit(*FEW, *words)
    assert code == 0, out
    assert "VIOLATED" not in out


def test_a_single_cost_is_audited(audit):
    assert audit(*FEW, "--prior", "discrete:0.5,1")[0] == 0


def test_outcomes_beyond_every_number_are_a_violation(audit):
    much = ["--prior", "uniform:0,1e300", "--eta", "1e300", "--noise-scale", "1e300"]
    code, out, _ = audit(*FEW, *much, "--json", "--plot", "lies.png")
    assert code == 1
    assert "NaN" not in out
    assert "Infinity" not in out
    for finding in findings(out).values():
        assert not finding["holds"]
        assert "not finite" in finding["witness"]["text"]


def test_costs_of_a_file_are_the_profile(audit):
    Path("costs.csv").write_text("0.12\n0.35\n0.5\n0.71\n1.4\n")  # the last is not admitted
    assert audit("--reports", "costs.csv", "--points", "21")[0] == 0
    code, out, _ = audit("--reports", "costs.csv", "--points", "21", "--variant", "pay-as-bid", "--json")
    assert code == 1
    assert findings(out)["truthful"]["witness"]["reports"] == [0.12, 0.35, 0.5, 0.71, 1.4]


def test_the_printed_algorithm_with_the_payment_formula_can_be_gamed(audit):
    code, out, _ = audit("--variant", "printed", "--json")
    assert code == 1
    found = findings(out)
    assert not found["truthful"]["holds"]
    assert found["monotone"]["holds"]  # it is the rent that is wrong, not the plan
    assert "right for an exact optimum only" in json.loads(out)["note"]
    witness = found["truthful"]["witness"]
    assert witness["gain"] > 0.01
    mechanism = PrintedMechanism(Uniform(0, 1), 1, 10)
    _recomputed(mechanism, witness)
    text = audit("--variant", "printed", "--profiles", "3")[1]
    assert "FAILS" in text
    assert "over the run" in " ".join(text.replace("\u2502", " ").split())


def test_pay_as_bid_can_be_gamed_by_overstating(audit):
    code, out, _ = audit(*FEW, "--variant", "pay-as-bid", "--json")
    assert code == 1
    witness = findings(out)["truthful"]["witness"]
    assert witness["report"] > witness["true_cost"]
    _recomputed(PayAsBid(Uniform(0, 1), 1, 10), witness)


def test_an_optimum_that_is_clipped_can_be_gamed_by_understating(audit):
    code, out, _ = audit(*FEW, "--variant", "clipped", "--max-epsilon", "0.8", "--json")
    assert code == 1
    witness = findings(out)["truthful"]["witness"]
    assert witness["report"] < witness["true_cost"]
    _recomputed(ClippedMechanism(Uniform(0, 1), 1, 10, 0.8), witness)


def _recomputed(mechanism, witness):
    """The gain of a witness, from the mechanism for everybody."""

    def utility(report):
        reports = np.array(witness["reports"])
        reports[witness["client"]] = report
        done = mechanism.allocate(reports)
        k = witness["client"]
        return done.transfer[k] - witness["true_cost"] * done.quantity[k]

    gain = utility(witness["report"]) - utility(witness["true_cost"])
    assert gain == pytest.approx(witness["gain"], rel=1e-9)


@pytest.mark.parametrize("variant", ["corrected", "printed"])
def test_a_plot_of_the_lies(audit, variant):
    audit(*FEW, "--variant", variant, "--plot", "lies.png")
    assert Path("lies.png").read_bytes().startswith(b"\x89PNG")


BAD = [
    (["--eta", "0"], "eta must be positive, got 0.0"),
    (["--noise-scale", "-1"], "noise_scale must be positive, got -1.0"),
    (["--noise-scale", "1", "--delta", "0.1"], "--noise-scale must not be given with --delta, got 1.0"),
    (["--delta", "0.1"], "--dimension is required with --delta"),
    (["--variant", "clipped"], "--max-epsilon is required with --variant clipped"),
    (
        ["--variant", "printed", "--max-epsilon", "1"],
        "--max-epsilon must not be given with --variant printed",
    ),
    (["--prior", "gamma:1"], "prior kind must be one of"),
    (["--clients", "0"], "clients must be a whole number of at least 1, got 0"),
    (["--profiles", "0"], "profiles must be a whole number of at least 1, got 0"),
    (["--points", "2"], "points must be a whole number of at least 3, got 2"),
    (["--seed", "-1"], "seed must be a whole number of at least 0, got -1"),
    (["--reports", "none.csv"], "none.csv: No such file or directory"),
    (["--reports", "none.csv", "--clients", "3"], "--clients must not be given with --reports, got 3"),
    (["--members", "3"], "--members must not be given without --variant fsbm, got 3"),
    (["--variant", "fsbm", "--members", "9"], "members must be at most the number of clients, 8, got 9"),
    (["--grid", "0.1"], "--grid must not be given without --variant printed, got 0.1"),
    (["--variant", "printed", "--grid", "0"], "grid must be positive, got 0.0"),
    (
        ["--variant", "printed", "--prior", "exponential:1,0,2"],
        "prior must be uniform for Algorithm 1 with the rent by objective, got TruncatedExponential",
    ),
    (
        ["--variant", "printed-integral", "--prior", "discrete:1,0.5,2,0.5"],
        "prior must be continuous for Algorithm 1 with the rent by integral, got Discrete",
    ),
    (["--plot", "no/x.png"], "output must be in an existing folder, got no/x.png"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_one_line_and_writes_nothing(audit, tmp_path, words, message):
    plot = [] if "--plot" in words else ["--plot", "picture.png"]
    code, out, err = audit(*words, *plot)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_picture_of_an_unknown_kind_is_refused(audit, tmp_path):
    code, out, err = audit("--clients", "2", "--profiles", "1", "--points", "5", "--plot", "x.gif")
    assert (code, out, err) == (2, "", "error: --plot must end in .png, .svg or .pdf, got x.gif\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "mechanism",
    [
        JsamMechanism(Uniform(0, 1), 1, 3),
        JsamMechanism(TruncatedExponential(1, 0, 1), 1, 3),
        JsamMechanism(Uniform(0, 1), 1, 3, Cheapest(2)),
        JsamMechanism(Uniform(0, 1), 1, 3, unbiased(5)),
        JsamMechanism([Uniform(0, 1)] * 4 + [Uniform(0.1, 2)], 1, 3),
    ],
    ids=["uniform", "exponential", "cheapest", "unbiased", "own priors"],
)
def test_answers_to_one_client_are_those_of_the_whole_settlement(mechanism):
    reports = np.array([0.4, 0.2, 0.7, 1.5, 0.2])  # a tie, and one that may not be admitted
    own = np.array([0.0, 0.1, 0.2, 0.4, 0.9, 1.0, 1.2])
    for client in range(5):
        epsilon, payment = mechanism.respond(reports, client, own)
        for k, report in enumerate(own):
            profile = reports.copy()
            profile[client] = report
            done = mechanism.allocate(profile)
            assert epsilon[k] == pytest.approx(done.quantity[client], rel=1e-12)
            assert payment[k] == pytest.approx(done.transfer[client], rel=1e-10, abs=1e-12)


def test_the_control_runs_algorithm_1():
    rng = np.random.default_rng(0)
    for _ in range(30):
        costs = rng.random(int(rng.integers(2, 8)))
        eta, noise_scale, grid = 10 ** rng.uniform([-1, -1, -2], [1, 3, -1])
        order = np.argsort(costs)
        plan = algorithm_1(2 * costs[order], eta, noise_scale, grid)
        found = PrintedMechanism(Uniform(0, 1), eta, noise_scale, grid).allocate(costs)
        np.testing.assert_allclose(found.quantity[order], plan.privacy, rtol=1e-10, atol=1e-14)


def test_the_printed_epsilon_falls_in_the_own_report_on_any_grid():
    rng = np.random.default_rng(1)
    own = np.linspace(0, 1, 801)
    for _ in range(40):
        costs = rng.random(int(rng.integers(2, 7)))
        eta, noise_scale, grid = 10 ** rng.uniform([-1, -2, -2], [1, 3, -0.5])
        mechanism = PrintedMechanism(Uniform(0, 1), eta, noise_scale, grid)
        epsilon = mechanism.respond(costs, 0, own)[0]
        assert np.diff(epsilon).max() <= 1e-12 * epsilon.max()


def test_without_its_errata_the_two_rents_of_the_control_agree():
    """Where everybody is selected Algorithm 1 is exact, and so is the payment formula."""
    costs = np.array([0.3, 0.5, 0.6, 0.9])
    by_objective = PrintedMechanism(Uniform(0, 1), 50, 1).allocate(costs)
    by_integral = PrintedMechanism(Uniform(0, 1), 50, 1, rent="integral").allocate(costs)
    exact = JsamMechanism(Uniform(0, 1), 50, 1).allocate(costs)
    np.testing.assert_allclose(by_objective.transfer, exact.transfer, rtol=1e-12)
    np.testing.assert_allclose(by_integral.transfer, exact.transfer, rtol=1e-9)
