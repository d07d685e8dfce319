"""Bought privacy with noise on the sum, as a user meets it: quote, contract, train, statement, audit."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bonafed import InvalidValue
from bonafed.economics import Uniform
from bonafed.mechanisms.jsam import Jsam, settle
from bonafed.runs import folder, prepare, training

QUOTE = ["--prior", "uniform:0,1", "--clients", "6", "--noise-scale", "1", "--noise-at", "sum"]
RUN = [
    "jsam.prior=uniform:0,1",
    "jsam.noise_scale=1",
    "jsam.clip=1",
    "jsam.noise_at=sum",
    "training.batch_size=30",
]
FEW = ["--clients", "5", "--profiles", "2", "--points", "21"]


def test_a_quote_with_more_steps_than_can_be_trained_is_refused(bonafed):
    parts = [
        "--delta",
        "1e-5",
        "--dimension",
        "650",
        "--smoothness",
        "1",
        "--records",
        "99",
        "--rounds",
        "5",
    ]
    who = ["--prior", "uniform:0,1", "--clients", "3", "--noise-at", "sum", "--eta", "2"]
    code, _, err = bonafed("quote", "jsam", *who, *parts, "--steps", "3")
    assert code == 2
    assert (
        err
        == "error: --steps must be 1 with --noise-at sum: later steps would look at records again, got 3\n"
    )
    assert bonafed("quote", "jsam", *who, *parts, "--steps", "1")[0] == 0


def test_a_quote_shows_the_terms_of_the_theory_and_the_threat_model(bonafed):
    code, out, err = bonafed("quote", "jsam", *QUOTE, "--eta", "2", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    due = settle([row["report"] for row in said["terms"]], Uniform(0, 1), 2, 1, rule=Jsam(noise_at="sum"))
    assert [row["payment"] for row in said["terms"]] == pytest.approx(due.payment)
    assert said["noise_at"] == "sum"
    assert (
        said["objective"]
        < json.loads(bonafed("quote", "jsam", *QUOTE[:-1], "client", "--eta", "2", "--json")[1])[
            "objective"
        ]
    )
    assert all(row["objective"] >= said["objective"] * (1 - 1e-12) for row in said["comparison"][:-1])
    shown = bonafed("quote", "jsam", *QUOTE, "--eta", "2")[1]
    assert "not a server that sees single updates" in " ".join(shown.split())
    assert "weight" in shown


@pytest.mark.parametrize("cap", [[], ["--max-epsilon", "0.8"]])
@pytest.mark.parametrize("money", [["--budget", "2"], ["--expected-budget", "2"]])
def test_a_quote_for_a_sum_of_money(bonafed, money, cap):
    said = json.loads(bonafed("quote", "jsam", *QUOTE, *money, *cap, "--json")[1])
    assert 1 < said["payments"] < 3
    if cap:
        assert max(row["epsilon"] for row in said["terms"]) <= 0.8
        assert said["lower_bound"] <= said["objective"] * (1 + 1e-12)


def test_caps_of_each_client_are_refused_by_name(bonafed):
    Path("caps.csv").write_text("max_epsilon\n" + "1\n" * 6)
    code, _, err = bonafed("quote", "jsam", *QUOTE, "--eta", "1", "--max-epsilon", "caps.csv")
    assert code == 2
    assert "--max-epsilon must be one number with --noise-at sum" in err


def test_a_contract_is_saved_verified_settled_and_trained_under(bonafed):
    words = [
        "--rounds",
        "4",
        "--delta",
        "1e-5",
        "--clip",
        "1",
        "--expected-budget",
        "3",
        "--save",
        "c.json",
    ]
    assert bonafed("quote", "jsam", *QUOTE, *words)[0] == 0
    assert json.loads(Path("c.json").read_text())["noise_at"] == "sum"
    code, out, _ = bonafed("verify", "c.json")
    assert code == 0, out
    Path("costs.csv").write_text("client,cost\n" + "".join(f"{k},{0.1 * k + 0.1:.1f}\n" for k in range(6)))
    code, out, err = bonafed("settle", "c.json", "--reports", "costs.csv")
    assert code == 0, err
    assert "weight" in out


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--clients-per-round", "3"], "--clients-per-round"),
    ],
)  # fmt: skip
def test_quotes_that_are_not_offered_are_refused_by_name(bonafed, words, name):
    code, _, err = bonafed("quote", "jsam", *QUOTE, "--eta", "1", *words)
    assert code == 2
    assert f"{name} must not be given with --noise-at sum" in err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--variant", "usbm"],
        ["--variant", "fsbm"],
        ["--eta", "5"],
        ["--max-epsilon", "0.2"],
        ["--variant", "usbm", "--max-epsilon", "0.3"],
        ["--prior", "exponential:1,0,2", "--noise-scale", "1"],
    ],
)
def test_no_lie_pays(bonafed, words):
    code, out, _ = bonafed("audit", "jsam", *FEW, "--noise-at", "sum", *words)
    assert code == 0, out


def test_the_control_is_caught(bonafed):
    code, out, _ = bonafed("audit", "jsam", *FEW, "--noise-at", "sum", "--variant", "pay-as-bid", "--json")
    assert code == 1
    truthful = next(f for f in json.loads(out)["findings"] if f["claim"] == "truthful")
    assert truthful["holds"] is False


@pytest.mark.parametrize("variant", ["printed", "printed-integral", "clipped"])
def test_variants_without_a_theory_are_refused(bonafed, variant):
    words = ["--max-epsilon", "1"] if variant == "clipped" else []
    code, _, err = bonafed("audit", "jsam", *FEW, "--noise-at", "sum", "--variant", variant, *words)
    assert code == 2
    assert "--variant must not be given with --noise-at sum" in err


@pytest.mark.parametrize(
    "scheme",
    [
        (), ("jsam.max_epsilon=5",),
        ("jsam.scheme=unbiased", "jsam.max_epsilon=5"), ("jsam.scheme=cheapest", "jsam.members=2"),
        ("jsam.scheme=complete information",),
        ("jsam.scheme=largest losses", "jsam.members=2", "jsam.clear_losses=true"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("money", ["jsam.eta=20", "jsam.budget=10", "jsam.expected_budget=10"])
def test_everybody_selected_is_in_every_round_and_nobody_gives_away_more_than_it_sold(
    make, small, tmp_path, scheme, money
):
    torch.manual_seed(0)
    own = torch.nn.Sequential(torch.nn.Linear(6, 3))  # does not start at zero: losses differ
    made = prepare.prepare(make(*RUN, *scheme, money), dataset=small, module=own)
    summary = training.train(made, tmp_path / "run").summary
    facts = summary["statement"]["facts"]
    weights = np.array(facts["selection"])
    assert summary["statement"]["columns"]["weight"] == facts["selection"]  # as the table of terms has it
    assert "selection" not in summary["statement"]["columns"]
    selected = np.flatnonzero(weights)
    lines = folder.read_rounds(tmp_path / "run")
    assert weights.sum() == pytest.approx(1)
    assert all(len(line["participants"]) == selected.size for line in lines)
    assert facts["times_drawn"] == np.where(weights > 0, len(lines), 0).tolist()
    assert 0.5 < facts["largest_epsilon_ratio"] <= 1
    assert facts["noise_at"] == "sum"
    sold = np.array(facts["epsilon_sold"])[selected]
    if scheme[:1] != ("jsam.scheme=largest losses",):
        assert sold / weights[selected] == pytest.approx(
            np.full(selected.size, sold[0] / weights[selected[0]])
        )


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            ["jsam.max_epsilon=[1, 2, 3, 4]"],
            r"^jsam\.max_epsilon must be one for all clients with noise_at = ",
        ),
        (["jsam.coins=verifiable"], r'^jsam\.coins must be "seed" with noise_at = "sum", where nobody'),
        (["training.steps=2"], r'^training\.steps must be 1 with noise_at = "sum"'),
        (["jsam.noise_at=both"], r"^jsam\.noise_at must be one of client, sum"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(make, small, changes, error):
    with pytest.raises(InvalidValue, match=error):
        prepare.prepare(make(*RUN, "jsam.eta=20", *changes), dataset=small)
