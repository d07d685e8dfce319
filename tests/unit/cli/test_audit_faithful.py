"""`bonafed audit faithful`: what it finds, what it must find in the controls, and bad input."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# Two classes, 20 features: a second where digits take ten.
FEW = ["--data", "synthetic", "--samples", 150, "--agents", 4, "--delta", 0.9, "--regulariser", 0.03]
SMALL = [*FEW[:-1], "0.01", "--epsilon", "1e-4"]
CLAIMS = ["faithfulness", "efficiency", "no worse than without paying", "budget balance"]


@pytest.fixture
def audit(bonafed):
    """audit(...) -> (exit code, stdout, stderr) of `bonafed audit faithful ...` in an empty folder."""
    return lambda *words: bonafed("audit", "faithful", *words)


def findings(out):
    return {finding["claim"]: finding for finding in json.loads(out)["findings"]}


def test_no_deviation_pays_by_plain_steps_and_under_averaging_many_do(audit):
    code, out, err = audit(*SMALL, "--variant", "stepwise", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert said["passed"]
    assert [*findings(out)] == [*CLAIMS, "certificates"]
    assert said["agents"] == 4
    tried = {deviation["name"]: deviation for deviation in said["deviations"]}
    wanted = {
        "0.25 x its gradient", "3 x its gradient", "minus its gradient", "zeros", "its first gradient",
        "gradient plus noise", "flipped labels", "agent 0's gradient", "silent half-way on",
    }  # fmt: skip
    assert wanted < set(tried)
    assert {deviation["agent"] for deviation in said["deviations"]} == {3}
    truth = said["truth"][3]
    for deviation in said["deviations"]:
        gain = truth["loss"] + truth["payment"] - deviation["loss"] - deviation["payment"]
        assert deviation["gain"] == pytest.approx(gain, abs=1e-12)
        assert deviation["gain_under_fedavg"] == pytest.approx(truth["loss"] - deviation["loss"], abs=1e-12)
        assert not deviation["pays"]
    assert tried["3 x its gradient"]["pays_under_fedavg"]
    assert not tried["zeros"]["pays_under_fedavg"]
    assert tried["silent half-way on"]["payment"] == 0
    (pair,) = said["pairs"]
    assert pair["gain"] > 0  # shown, and no violation


def test_no_deviation_pays_by_exchanges_and_who_is_recognised_is_told(audit):
    code, out, err = audit(*SMALL, "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert said["passed"]
    assert [*findings(out)] == [*CLAIMS, "certificates"]
    assert said["training_steps"] < said["exchanges"] <= 30
    truth = said["truth"][3]
    for deviation in said["deviations"]:
        assert not deviation["pays"]
        assert deviation["allowed"] <= 2.5e-4
        if deviation["loss"] is not None:
            gain = truth["loss"] + truth["payment"] - deviation["loss"] - deviation["payment"]
            assert deviation["gain"] == pytest.approx(gain, abs=1e-12)
    tried = {deviation["name"]: deviation for deviation in said["deviations"]}
    assert tried["zeros"]["recognised_in"] == "exchange 2 (training)"
    assert tried["slopes times 3"]["recognised_in"] == f"exchange {said['exchanges']} (the way)"
    assert tried["slopes times 3, believed"]["believed"]
    assert tried["1.5 x its gradient"]["recognised_in"] is None
    assert tried["3 x its gradient"]["pays_under_fedavg"]
    assert tried["zeros"]["gain_under_fedavg"] < 0


def test_the_tables_of_exchanges_say_who_is_recognised(audit):
    code, out, err = audit(*SMALL, "--plot", "gains.png")
    assert (code, err) == (0, "")
    assert Path("gains.png").read_bytes().startswith(b"\x89PNG")
    text = " ".join(out.replace("\u2502", " ").split())
    for part in (
        "Audit of faithful learning (exchanges)",
        "A gain counts above the certified errors of both runs, 2.5 epsilon = 0.00025 at most",
        "payments are within their certificates of exact ones",
        "Lies that are recognised; the protocol goes on without the agent",
        "zeros exchange 2 (training) the others' model",
        "Had they been believed, the best of them would have gained",
    ):
        assert part in text
    assert "VIOLATED" not in out
    assert ", believed" not in out


def test_the_tables_say_what_pays_and_what_does_not(audit):
    code, out, err = audit(*SMALL, "--variant", "stepwise")
    assert (code, err) == (0, "")
    text = " ".join(out.replace("\u2502", " ").split())
    for part in (
        "Audit of faithful learning (stepwise)",
        "4 agents, 150 samples of synthetic",
        "A gain counts above 2 epsilon = 0.0002 and the integration error",
        "What agent 3 reports",
        "That breaks no claim",
        "no report at training step",
        "secured before training",
        "Nobody beats learning alone on its own samples",
    ):
        assert part in text
    assert "VIOLATED" not in out
    (line,) = (line for line in out.splitlines() if "\u2502 3 x its gradient" in line)
    cells = [cell.strip() for cell in line.split("\u2502")]
    assert (cells[5], cells[7]) == ("no", "YES")


@pytest.mark.parametrize(
    ("words", "failing"),
    [
        (["--variant", "fedavg"], "faithfulness"),
        (["--variant", "printed"], "faithfulness"),
        (["--variant", "clusters"], "budget balance"),
    ],
)
def test_what_can_be_gamed_fails_with_a_witness(audit, words, failing):
    code, out, _ = audit(*SMALL, *words, "--json")
    assert code == 1
    found = findings(out)
    assert [claim for claim in CLAIMS if not found[claim]["holds"]] == [failing]
    assert found[failing]["number"] > found[failing]["allowed"]
    said = json.loads(out)
    if failing == "faithfulness":
        best = max(said["deviations"], key=lambda d: d["gain"] or -1)
        assert best["pays"]
        assert best["factor"] > 1
        assert found[failing]["text"].endswith(best["name"])


def test_a_violation_is_marked_in_the_table(audit):
    code, out, _ = audit(*FEW, "--variant", "fedavg")
    assert code == 1
    assert "FAILS" in out
    assert "VIOLATED, agent 3 gains" in out


def test_the_left_rule_is_within_what_it_allows(audit):
    code, out, _ = audit(*SMALL, "--variant", "left", "--json")
    assert code == 0
    assert "left rule" in json.loads(out)["notes"][0]


def test_all_agents_one_at_a_time(audit):
    words = [*FEW, "--agents", 3, "--agent", "all"]
    code, out, _ = audit(*words, "--json")
    assert code == 0
    said = json.loads(out)
    assert [pair["agents"][0] for pair in said["pairs"]] == [0, 1, 2]
    assert {deviation["agent"] for deviation in said["deviations"]} == {0, 1, 2}
    code, out, _ = audit(*words, "--variant", "stepwise")
    assert code == 0
    assert "Best deviation of every agent" in out


@pytest.mark.parametrize("variant", ["stepwise", pytest.param("exchanges", marks=pytest.mark.deep)])
def test_the_same_seed_says_the_same_and_another_does_not(audit, variant):
    words = [*FEW, "--variant", variant, "--json", "--seed"]
    first, again, other = (audit(*words, seed)[1] for seed in (1, 1, 2))
    assert first == again != other


def test_named_owners_and_ridge_regression(audit):
    few = ["--samples", "100", "--epsilon", "0.01"]
    code, out, _ = audit("--data", "synthetic-ridge", *few, "--agent", "5", "--json")
    assert code == 0, out
    said = json.loads(out)
    assert said["agents"] == 20
    diverged = [deviation for deviation in said["deviations"] if deviation["loss"] is None]
    assert all("the run stops" in deviation["end"] and deviation["gain"] is None for deviation in diverged)


def test_own_data_from_a_file(audit):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 90)
    np.savez("own.npz", features=rng.standard_normal((90, 2)) + labels[:, None], labels=labels)
    code, out, _ = audit("--data", "own.npz", "--agents", "3", "--regulariser", "0.1", "--json")
    assert code == 0, out
    assert json.loads(out)["agents"] == 3


def test_images_are_pooled_and_digits_need_ten_agents(audit):
    small = ["--samples", "300", "--side", "2", "--epsilon", "0.01", "--regulariser", "0.02"]
    code, out, _ = audit(*small)
    assert code == 0, out
    assert "10 agents, 300 samples of digits, 50 parameters" in out.replace("\n", " ")


@pytest.mark.parametrize("variant", ["stepwise", "fedavg"])
def test_a_plot_of_the_gains(audit, variant):
    audit(*FEW, "--variant", variant, "--plot", "gains.png")
    assert Path("gains.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_a_run_that_diverged():
    from bonafed.mechanisms.faithful.adversaries.search import Attempt, GainCurve
    from bonafed.mechanisms.faithful.figures import cheating_figure

    curve = GainCurve(np.array([0.5, 1.0, 4.0]), np.array([-0.1, 0.0, -0.2]), np.array([-0.2, 0.0, 0.3]))
    kept = Attempt(0, "2 x its gradient", 2.0, 1.0, 0.1, 0.05, 0.2, 0.01)
    lost = Attempt(0, "minus its gradient", -1.0, np.nan, np.nan, -np.inf, -np.inf, 0.01, "diverges")
    left, right = cheating_figure(curve, [kept, lost], "A title").axes
    assert left.get_title() == "Multiples of its gradient: 2 is best"
    assert [text.get_text() for text in right.texts] == ["diverges", "diverges"]
    assert [label.get_text() for label in right.get_yticklabels()] == ["minus its gradient"]


PRIVATE = [*FEW[:-1], "0.003", "--alpha", "1e6", "--trials", 4]


def test_private_payments_are_attacked_over_the_noise(audit):
    code, out, err = audit(*PRIVATE, "--variant", "private", "--json")
    said, found = json.loads(out), findings(out)
    assert (code, err) == (0, "")
    assert said["plan"]["usable"]
    assert set(found) == {"faithfulness", "common interest"}
    for tried in said["deviations"]:
        assert tried["gain"] == pytest.approx(tried["federation_gain_over_weight"], abs=1e-9)
        assert tried["gain"] <= tried["allowed"] < 0.1
    assert {tried["factor"] for tried in said["deviations"]} == {0.5, 0.8, 1.2, 1.4, 2.0, 3.0, None}


def test_a_plot_of_private_gains(audit):
    audit(*FEW, "--variant", "private", "--alpha", "10", "--trials", 2, "--plot", "gains.png")
    assert Path("gains.png").read_bytes().startswith(b"\x89PNG")


def test_noise_at_the_agents_allows_more(audit):
    allowed = {}
    for at in ("sum", "client"):
        code, out, err = audit(
            *FEW, "--variant", "private", "--alpha", "1000", "--trials", 2, "--noise-at", at, "--json"
        )
        assert (code, err) == (0, "")
        data = json.loads(out)
        assert data["noise_at"] == at
        allowed[at] = data["deviations"][0]["allowed"]
    assert allowed["client"] > 1.5 * allowed["sum"]


def test_private_payments_from_the_shared_model_on_are_caught(audit):
    code, out, _ = audit(*PRIVATE, "--variant", "private-printed")
    assert code == 1
    assert "FAILS" in out
    assert "VIOLATED, agent 3" in out
    assert "YES" in out


def test_too_little_privacy_loss_is_warned_of_before_the_attack(audit):
    code, out, err = audit(*FEW, "--variant", "private", "--alpha", "0.5", "--trials", 2, "--json")
    assert json.loads(out)["warning"].startswith("payments will be more noise than signal")
    assert err == ""
    assert code == 0
    assert "so large a bound says nothing" in findings(out)["faithfulness"]["text"]


BAD = [
    (["--alpha", "3"], "--alpha must not be given without a private variant, got 3"),
    (["--trials", "3"], "--trials must not be given without a private variant, got 3"),
    (["--noise-at", "sum"], "--noise-at must not be given without a private variant, got 'sum'"),
    (["--agent", "10"], "agent must be in 0..9, or all, got 10"),
    (["--agent", "-1"], "agent must be in 0..9, or all, got -1"),
    (["--agent", "third"], "agent must be in 0..9, or all, got third"),
    (["--delta", "1.5"], "delta must be between 0 and 1, got 1.5"),
    (["--delta", "nan"], "delta must be finite, got nan"),
    (["--agents", "1"], "agents must be a whole number of at least 2, got 1"),
    (["--agents", "5"], "agents must be at least the number of classes, 10, got 5"),
    (["--regulariser", "0"], "regulariser must be positive, got 0.0"),
    (["--epsilon", "0"], "epsilon must be positive, got 0.0"),
    (["--samples", "1"], "samples must be a whole number of at least 2, got 1"),
    (["--side", "3"], "side must divide 8 and 8, got 3"),
    (["--side", "0"], "side must be a whole number of at least 1, got 0"),
    (["--seed", "-1"], "seed must be a whole number of at least 0, got -1"),
    (["--data", "none"], "dataset must be one of digits"),
    (["--data", "none.npz"], "none.npz: No such file or directory"),
    (["--data", "synthetic-ridge", "--agents", "4"], "data must have classes, or owners"),
    (["--clusters", "3"], "--clusters must not be given without --variant clusters, got 3"),
    (
        ["--variant", "clusters", "--clusters", "11"],
        "clusters must be at most the number of agents, 10",
    ),
    (
        ["--variant", "clusters", "--clusters", "1"],
        "clusters must be at least 2: without everybody",
    ),
    (
        ["--variant", "vcg"],
        "variant must be one of exchanges, stepwise, left, printed, fedavg, clusters, private",
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


def test_other_commands_do_not_load_the_mechanism():
    code = "import sys, bonafed.cli; print([m for m in sys.modules if 'faithful.' in m or m == 'sklearn'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
