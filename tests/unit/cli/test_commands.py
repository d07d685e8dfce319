"""Every command, with good and with bad input, as a user would type it."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CONTRACT = ["--clients", "100", "--rounds", "200", "--budget", "10000"]
UNIFORM = ["--prior", "uniform:0.5,1.5", *CONTRACT]
SMALL = ["--clients", "3", "--rounds", "100", "--budget", "120"]


def test_quote_shows_terms_money_and_benchmarks(bonafed):
    code, out, err = bonafed("quote", "sampling", *UNIFORM)
    assert code == 0
    assert err == ""
    for text in ("Terms to publish", "0.5894", "1.4365", "expected spend", "complete", "171.62"):
        assert text in out
    assert "\u2812" in out  # the plot in the terminal


def test_quote_as_json_is_what_the_library_says(bonafed):
    from bonafed import Uniform
    from bonafed.mechanisms.sampling import plan

    code, out, _ = bonafed("quote", "sampling", *UNIFORM, "--json", "--at", "0.5,1.25")
    said = json.loads(out)
    contract = plan(Uniform(0.5, 1.5), 10_000, 100, 200)
    assert code == 0
    assert [row["cost"] for row in said["terms"]] == [0.5, 1.25]
    assert said["terms"][1]["payment"] == float(contract.menu.payment(1.25))
    assert said["spend"]["expected"] == contract.expected_spend
    assert said["spend"]["standard_deviation"] == contract.spend.sd


@pytest.mark.parametrize(
    "prior",
    [
        "uniform:0.5,1.5",
        "exponential:1,0.2,3",
        "normal:1,0.4,0.2,2",
        "beta:2,3,0.5,1.5",
        "mixture:0.2,2,0.5,0.6,0.1,0.5,1.5,0.15",
        "discrete:0.3,0.3,0.5,0.02,0.9,0.08,1,0.35,1.4,0.05,2,0.2",
    ],
)
def test_every_kind_of_prior_is_quoted_saved_and_verified(bonafed, tmp_path, prior):
    assert bonafed("quote", "sampling", "--prior", prior, *CONTRACT, "--save", "c.json")[0] == 0
    code, out, _ = bonafed("verify", "c.json", "--json")
    assert code == 0, out
    assert json.loads(out)["holds"]
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_quote_from_past_costs(bonafed, tmp_path):
    costs = np.random.default_rng(0).uniform(0.5, 1.5, 40).round(4)
    Path("past.csv").write_text("client,cost\n" + "".join(f"{k},{c}\n" for k, c in enumerate(costs)))
    code, out, _ = bonafed(
        "quote", "sampling", "--past-costs", "past.csv", "--highest", "1.5", *CONTRACT, "--json"
    )
    said = json.loads(out)
    assert code == 0
    assert said["past_costs"] == 40
    assert sorted(costs) == said["prior"]["samples"]
    assert (
        bonafed("quote", "sampling", "--past-costs", "past.csv", *CONTRACT)[0] == 0
    )  # highest: of the file


def test_quote_without_prior(bonafed):
    code, out, _ = bonafed(
        "quote", "sampling", "--prior-free", "--highest", "1.5", *CONTRACT, "--save", "rules.json"
    )
    assert code == 0
    assert "whatever the costs turn out to be" in out
    said = json.loads(
        bonafed(
            "quote", "sampling", "--prior-free", "--highest", "1.5", *CONTRACT, "--json", "--seed", "3"
        )[1]
    )
    assert said["example"]["expected_spend"] <= 10_000
    code, out, _ = bonafed("verify", "rules.json")
    assert code == 0
    assert "Every check holds" in out


def test_prior_free_quote_plays_the_costs_of_a_file(bonafed):
    Path("costs.csv").write_text("".join(f"{0.5 + k / 10}\n" for k in range(10)))
    numbers = ["--clients", "10", "--rounds", "5", "--budget", "50"]
    code, out, _ = bonafed(
        "quote", "sampling", "--prior-free", "--highest", "1.6", "--reports", "costs.csv", *numbers
    )
    assert code == 0
    assert "the costs of the file" in out
    code, _, err = bonafed(
        "quote", "sampling", "--prior-free", "--highest", "1.6", "--reports", "costs.csv", *CONTRACT
    )
    assert (code, err) == (2, "error: reports must hold 100 costs, one per client, got 10\n")


def test_prior_free_quote_when_nobody_is_admitted(bonafed):
    Path("costs.csv").write_text("2\n3\n")
    numbers = ["--clients", "2", "--rounds", "5", "--budget", "5"]
    words = ["--prior-free", "--highest", "1", "--reports", "costs.csv", *numbers]
    code, out, _ = bonafed("quote", "sampling", *words)
    assert code == 0
    assert "nobody is admitted" in " ".join(out.split())
    said = json.loads(bonafed("quote", "sampling", *words, "--json")[1])
    assert said["example"]["mean_inverse_probability"] is None


def test_a_contract_for_a_single_cost(bonafed):
    words = ["--prior", "discrete:1,1", "--clients", "10", "--rounds", "10", "--budget", "50"]
    assert bonafed("quote", "sampling", *words, "--save", "c.json")[0] == 0
    assert bonafed("verify", "c.json")[0] == 0
    assert bonafed("audit", "sampling", *words, "--plot", "lies.png")[0] == 0


def test_a_path_is_printed_as_it_is(bonafed):
    assert "wrote [red]c.json" in bonafed("quote", "sampling", *UNIFORM, "--save", "[red]c.json")[1]
    assert "Verification of [red]c.json" in bonafed("verify", "[red]c.json")[1]


def test_json_has_no_infinity():
    from bonafed.presentation.documents import plain

    assert plain({"a": [math.inf, (math.nan, 1.0)], "b": 2}) == {"a": [None, [None, 1.0]], "b": 2}


def test_confidence_keeps_realised_spend_within_budget(bonafed):
    said = json.loads(bonafed("quote", "sampling", *UNIFORM, "--confidence", "0.99", "--json")[1])
    assert said["spend"]["probability_of_exceeding_budget"] <= 0.01
    assert 0.9 * 10_000 < said["spend"]["expected"] < 10_000


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plots_are_written_in_every_format(bonafed, suffix):
    assert bonafed("quote", "sampling", *UNIFORM, "--plot", f"a.{suffix}")[0] == 0
    assert bonafed("audit", "sampling", *UNIFORM, "--plot", f"b.{suffix}")[0] == 0
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    for name in ("a", "b"):
        assert Path(f"{name}.{suffix}").read_bytes().startswith(start)


def test_audit_finds_nothing_in_the_contract_and_the_lie_in_pay_as_bid(bonafed):
    code, out, _ = bonafed("audit", "sampling", *UNIFORM)
    assert code == 0
    assert "VIOLATED" not in out
    code, out, _ = bonafed("audit", "sampling", *UNIFORM, "--variant", "pay-as-bid", "--json")
    said = json.loads(out)
    assert code == 1
    assert not said["passed"]
    witness = said["findings"][0]["witness"]
    assert witness["report"] > witness["true_cost"]
    assert math.isclose(witness["gain"], 0.412771, rel_tol=1e-5)


def test_audit_of_the_prior_free_sequence(bonafed):
    numbers = ["--clients", "12", "--rounds", "10", "--budget", "60"]
    rules = ["--prior-free", "--highest", "1.5", *numbers, "--profiles", "1", "--points", "15"]
    assert bonafed("audit", "sampling", *rules)[0] == 0
    code, out, _ = bonafed(
        "audit", "sampling", "--prior-free", "--highest", "1.5", "--variant", "printed",
        "--clients", "12", "--rounds", "10", "--budget", "60", "--profiles", "6",
    )  # fmt: skip
    assert code == 1
    assert "FAILS" in out


BAD = [
    ([*UNIFORM[:-1], "-3"], "budget must be positive, got -3.0"),
    ([*UNIFORM[:-1], "0"], "budget must be positive, got 0.0"),
    ([*UNIFORM[:-1], "nan"], "budget must be finite, got nan"),
    ([*UNIFORM[:-1], "lots"], "Invalid value for '--budget': 'lots' is not a valid float."),
    (UNIFORM[:-2], "--budget is required"),
    (["--prior", "uniform:1.5,0.5", *CONTRACT], "prior: low must be below high = 0.5, got 1.5"),
    (["--prior", "uniform:0.5", *CONTRACT], "prior uniform must be uniform:LOW,HIGH, got 'uniform:0.5'"),
    (["--prior", "uniform:a,b", *CONTRACT], "prior uniform must be numbers LOW,HIGH, got 'a'"),
    (
        ["--prior", "gamma:1,2", *CONTRACT],
        "prior kind must be one of uniform, exponential, normal, beta, mixture, discrete, got 'gamma'",
    ),
    (
        ["--prior", "exponential:1", *CONTRACT],
        "prior exponential must be bounded: truncate it, exponential:RATE,LOW,HIGH, got 'exponential:1'",
    ),
    (
        ["--prior", "normal:1,0.4,0.2,inf", *CONTRACT],
        "prior: high must be finite: truncate an unbounded prior, got inf",
    ),
    (["--prior", "discrete:1,0.5,2,0.6", *CONTRACT], "prior: weights must sum to 1, got sum 1.1"),
    (
        ["--prior", "discrete:2,0.5,1,0.5", *CONTRACT],
        "prior: costs must be strictly increasing, got 2 before 1",
    ),
    ([*UNIFORM, "--at", "1.7"], "report must be at most the highest cost 1.5, got 1.7"),
    ([*UNIFORM, "--at", "cheap"], "at must be numbers NUMBER,NUMBER,..., got 'cheap'"),
    ([*UNIFORM, "--confidence", "1"], "confidence must be between 0 and 1, ends excluded, got 1.0"),
    ([*UNIFORM, "--plot", "x.gif"], "--plot must end in .png, .svg or .pdf, got x.gif"),
    (
        [*UNIFORM, "--plot", "./contract.json"],
        "--save must not be the same file as --plot, got contract.json",
    ),
    (
        ["--prior-free", "--highest", "1", *CONTRACT, "--seed", "-1"],
        "seed must be a whole number of at least 0, got -1",
    ),
    ([*UNIFORM, "--plot", "no/x.png"], "output must be in an existing folder, got no/x.png"),
    (
        ["--prior", "uniform:0.5,1.5", "--clients", "0", "--rounds", "1", "--budget", "1"],
        "clients must be a whole number of at least 1, got 0",
    ),
    (CONTRACT, "input must be one of --prior, --past-costs, --prior-free, got none"),
    ([*UNIFORM, "--highest", "2"], "--highest must not be given with --prior, got 2.0"),
    (["--prior-free", *CONTRACT], "--highest is required with --prior-free"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_one_line_and_writes_nothing(bonafed, tmp_path, words, message):
    code, out, err = bonafed("quote", "sampling", *words, "--save", "contract.json")
    assert (code, out, err) == (2, "", f"error: {message}\n")
    assert list(tmp_path.iterdir()) == []


BAD_FILES = [
    ("0.5\nabc\n", "costs.csv, line 2: cost must be a number, got 'abc'"),
    ("cost\n0.5\n\nnan\n", "costs.csv, line 4: cost must be finite, got nan"),
    ("cost\n0.5\n-1\n", "costs.csv, line 3: cost must not be negative, got -1"),
    ("", "costs.csv: the file holds no costs"),
    ("cost\n", "costs.csv: the file holds no costs"),
    ("a,b\n1,2\n", "costs.csv, line 1: must have one column, or a header with a column 'cost'"),
    (
        "cost;x\n1,5;1\n",
        "costs.csv, line 1: cells must be separated by commas, got ';': save the table with commas",
    ),
    ("cost\n1,5\n", "costs.csv, line 2: a row must have 1 cells separated by commas, got 2"),
    (None, "costs.csv: No such file or directory"),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_a_file_that_does_not_parse_says_the_line(bonafed, content, message):
    if content is not None:
        Path("costs.csv").write_text(content)
    code, out, err = bonafed("quote", "sampling", "--past-costs", "costs.csv", *CONTRACT)
    assert (code, out, err) == (2, "", f"error: {message}\n")


def test_verify_refuses_what_is_not_a_contract(bonafed):
    Path("a.json").write_text('{"format": \n')
    assert bonafed("verify", "a.json")[::2] == (2, "error: a.json, line 2: not JSON: Expecting value\n")
    Path("b.json").write_text('{"format": "another"}')
    code, _, err = bonafed("verify", "b.json")
    assert code == 2
    assert "contract.format must be one of bonafed-sampling-contract, " in err
    Path("c.json").write_text("[]")
    assert bonafed("verify", "c.json")[0] == 2
    assert bonafed("verify", "none.json")[::2] == (2, "error: none.json: No such file or directory\n")


def test_verify_finds_a_changed_payment(bonafed):
    bonafed("quote", "sampling", *UNIFORM, "--save", "contract.json")
    data = json.loads(Path("contract.json").read_text())
    data["groups"][0]["levels"]["payment"][10] *= 0.99
    Path("contract.json").write_text(json.dumps(data))
    code, out, _ = bonafed("verify", "contract.json")
    assert code == 1
    assert "The contract fails a check" in out


def test_one_client_is_not_many(bonafed):
    words = ["--clients", "1", "--rounds", "1", "--budget", "1"]
    out = " ".join(bonafed("quote", "sampling", "--prior", "uniform:0.5,1.5", *words)[1].split())
    assert "Truthful sampling contract: 1 client, 1 round, budget 1;" in out
    out = " ".join(bonafed("quote", "sampling", "--prior-free", "--highest", "1.5", *words)[1].split())
    assert "Prior-free truthful sampling: 1 client, 1 round, at most" in out
    assert "The first client: probability" in out


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (["--eta", "5"], "it needs --clip, --rounds and --delta"),
        (
            ["--budget", "3"],
            "it needs --clip, --rounds, --delta and --expected-budget in place of --budget",
        ),
    ],
)
def test_what_a_contract_needs_is_named(bonafed, words, needs):
    quote = ["quote", "jsam", "--prior", "uniform:0,1", "--clients", "4", "--noise-scale", "1", *words]
    reason = f"--save cannot be used: there is no contract to write ({needs}), got c.json"
    assert bonafed(*quote, "--save", "c.json") == (2, "", f"error: {reason}\n")


def test_what_does_not_fit_into_memory_is_told_in_one_line(bonafed):
    code, out, err = bonafed(
        "quote",
        "jsam",
        "--prior",
        "uniform:0,1",
        "--clients",
        str(10**17),
        "--eta",
        "5",
        "--noise-scale",
        "1",
    )
    assert (code, out) == (2, "")
    assert err == "error: this does not fit into memory; ask for fewer clients, rounds or points\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["quote", "sampling", "--prior", "uniform:0.5,1e160", *CONTRACT],
            "payment must be smaller: the variance",
        ),
        (
            ["quote", "sampling", "--prior-free", "--highest", "1e200", *SMALL],
            "payment must be smaller: the variance",
        ),
        (
            ["quote", "sampling", "--past-costs", "huge.csv", *CONTRACT],
            "payment must be smaller: the variance",
        ),
        (
            ["quote", "sampling", *UNIFORM, "--clients", "1" + 20 * "0"],
            "clients must not exceed 100000000000000000",
        ),
        (
            ["quote", "sampling", *UNIFORM, "--clients", "100000001"],
            "clients must not exceed 100000000, got 100000001",
        ),
        (
            ["quote", "sampling", *UNIFORM, "--rounds", "1000000001"],
            "rounds must not exceed 1000000000, got",
        ),
    ],
)
def test_numbers_too_large_to_compute_with_are_refused(bonafed, words, message):
    Path("huge.csv").write_text("cost\n1e308\n1e308\n0.1\n")
    code, out, err = bonafed(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_output_that_nobody_reads_is_no_verdict(bonafed, more):
    assert bonafed("quote", "sampling", *UNIFORM, "--save", "c.json")[0] == 0
    command = [sys.executable, "-m", "bonafed", "verify", "c.json", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_help_version_and_unknown_commands(bonafed):
    from bonafed import __version__

    assert bonafed("--version") == (0, f"bonafed {__version__}\n", "")
    assert bonafed("--help")[0] == 0
    assert bonafed("nonsense")[::2] == (2, "error: No such command 'nonsense'.\n")
    code, _, err = bonafed()
    assert code == 2
    assert err.startswith("Usage: bonafed")
    module = [sys.executable, "-m", "bonafed", "--version"]
    assert (
        subprocess.run(module, capture_output=True, check=True).stdout
        == f"bonafed {__version__}\n".encode()
    )


@pytest.mark.parametrize(
    "program",
    [
        "import bonafed.economics",
        "import sys; sys.argv = ['bonafed', 'quote', 'sampling', *'--prior uniform:0.5,1.5 --clients 9 "
        "--rounds 9 --budget 9'.split()]\n"
        "try:\n from bonafed.cli import main; main()\nexcept SystemExit: pass",
    ],
    ids=["import", "quote"],
)
def test_pricing_a_contract_does_not_import_heavy_packages(program):
    heavy = {"torch", "sklearn", "matplotlib", "scipy.stats", "cryptography"}
    check = f"import sys; print('loaded:', sorted({heavy} & {{*sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{check}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_settle_says_what_each_client_was_promised(bonafed):
    from bonafed.mechanisms.sampling import contract_from_json

    assert bonafed("quote", "sampling", "--prior", "uniform:0.5,1.5", *SMALL, "--save", "c.json")[0] == 0
    Path("stated.csv").write_text("client,cost\nann,0.7\nben,1.6\ncem,1.1\n")
    code, out, err = bonafed("settle", "c.json", "--reports", "stated.csv", "--save", "terms.csv")
    assert (code, err) == (0, "")
    for text in ("3 clients, 100 rounds", "not admitted", "expected spend", "wrote terms.csv"):
        assert text in out
    menu = contract_from_json(json.loads(Path("c.json").read_text())).menu
    said = json.loads(bonafed("settle", "c.json", "--reports", "stated.csv", "--json")[1])
    assert [row["admitted"] for row in said["clients"]] == [True, False, True]
    assert [row["client"] for row in said["clients"]] == ["ann", "ben", "cem"]
    assert "ben" in out
    for row in said["clients"]:
        q, r = menu.price(row["cost"]) if row["admitted"] else (0.0, 0.0)
        assert (row["probability"], row["payment"]) == (float(q), float(r))
        assert not row["admitted"] or r >= row["cost"]
    spend = sum(row["probability"] * row["payment"] for row in said["clients"]) * 100
    assert said["spend"]["expected"] == pytest.approx(spend, rel=1e-12)
    lines = Path("terms.csv").read_text().splitlines()
    assert lines[0] == "client,cost,admitted,probability,payment"
    assert [float(line.split(",")[4]) for line in lines[1:]] == [row["payment"] for row in said["clients"]]
    assert json.loads(bonafed("settle", "c.json", "--reports", "terms.csv", "--json")[1]) == said


def test_settle_draws_costs_and_plays_rules(bonafed):
    assert (
        bonafed("quote", "sampling", "--prior-free", "--highest", "1.5", *SMALL, "--save", "r.json")[0] == 0
    )
    code, out, _ = bonafed("settle", "r.json", "--draw", "4", "--json", "--save", "terms.csv")
    assert code == 0
    said = json.loads(out)
    assert said["spend"]["expected"] <= said["budget"] == 120
    assert json.loads(bonafed("settle", "r.json", "--reports", "terms.csv", "--json")[1]) == said
    assert bonafed("quote", "sampling", *UNIFORM, "--save", "c.json")[0] == 0
    one, again, other = (bonafed("settle", "c.json", "--draw", seed)[1] for seed in ("0", "0", "1"))
    assert one == again != other
    assert "and 80 more clients" in one


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "input must be one of --reports, --draw, got none"),
        (["--reports", "s.csv", "--draw", "1"], "input must be one of --reports, --draw, got two"),
        (
            ["--reports", "twice.csv"],
            "twice.csv, line 4: duplicate client 'ann', first in line 2",
        ),
        (["--reports", "unnamed.csv"], "unnamed.csv, line 3: client has no name"),
        (["--reports", "double.csv"], "double.csv, line 1: must have one column 'cost', got 2"),
        (["--reports", "none.csv"], "none.csv: No such file or directory"),
        (["--reports", "four.csv"], "reports must come from at most the contract's 3 clients, got 4"),
        (["--draw", "-1"], "draw must be a whole number of at least 0, got -1"),
        (
            ["--draw", "1", "--save", "c.json"],
            "--save must not be the same file as the contract, got c.json",
        ),
        (
            ["--reports", "s.csv", "--save", "s.csv"],
            "--save must not be the same file as --reports, got s.csv",
        ),
    ],
)
def test_settle_refuses_by_name(bonafed, words, reason):
    assert bonafed("quote", "sampling", "--prior", "uniform:0.5,1.5", *SMALL, "--save", "c.json")[0] == 0
    Path("s.csv").write_text("cost\n0.7\n1.1\n")
    Path("four.csv").write_text("cost\n0.7\n1.1\n0.8\n0.9\n")
    Path("twice.csv").write_text("client,cost\nann,0.7\nben,1.1\nann,1.2\n")
    Path("unnamed.csv").write_text("client,cost\nann,0.7\n ,1.1\nben,1.2\n")
    Path("double.csv").write_text("cost,cost\n1,0.7\n1,1.1\n1,1.2\n")
    before = sorted(path.name for path in Path().iterdir())
    assert bonafed("settle", "c.json", *words) == (2, "", f"error: {reason}\n")
    assert sorted(path.name for path in Path().iterdir()) == before


def test_settle_with_rules_passes_over_costs_that_are_too_high(bonafed):
    assert (
        bonafed("quote", "sampling", "--prior-free", "--highest", "1.5", *SMALL, "--save", "r.json")[0] == 0
    )
    Path("s.csv").write_text("0.7\n1.6\n1.1\n")
    said = json.loads(bonafed("settle", "r.json", "--reports", "s.csv", "--json")[1])["clients"]
    assert [row["admitted"] for row in said] == [True, False, True]
    assert (said[1]["probability"], said[1]["payment"]) == (0, 0)


def test_settle_where_nobody_is_admitted_spends_nothing(bonafed):
    assert bonafed("quote", "sampling", "--prior", "uniform:0.5,1.5", *SMALL, "--save", "c.json")[0] == 0
    Path("s.csv").write_text("2\n3\n4\n")
    code, out, _ = bonafed("settle", "c.json", "--reports", "s.csv", "--json")
    said = json.loads(out)
    assert (code, said["spend"]["expected"], said["expected_participants"]) == (0, 0, 0)
    assert not any(row["admitted"] for row in said["clients"])


def test_settle_does_not_take_probabilities_above_one(bonafed):
    prior = "discrete:0.5,0.5,1,0.5"
    assert bonafed("quote", "sampling", "--prior", prior, *SMALL, "--save", "c.json")[0] == 0
    data = json.loads(Path("c.json").read_text())
    data["groups"][0]["levels"]["probability"] = [1.2, 1.2]
    Path("c.json").write_text(json.dumps(data))
    code, _, err = bonafed("settle", "c.json", "--draw", "0")
    assert code == 2
    assert "levels.probability must show the terms that prior and scale give at cost 1, got 1.2" in err


def test_settled_spend_never_exceeds_what_can_be_paid(bonafed):
    """All clients in every round but for rounding: the budget is the most that can be spent."""
    funded = ["--clients", "3", "--rounds", "100", "--budget", "450"]
    assert (
        bonafed("quote", "sampling", "--prior-free", "--highest", "1.5", *funded, "--save", "r.json")[0]
        == 0
    )
    said = json.loads(bonafed("settle", "r.json", "--draw", "0", "--json")[1])["spend"]
    assert said["probability_of_exceeding_budget"] == 0
    assert said["quantiles"]["0.99"] <= 450


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["settle"], "CONTRACT.json"), (["keygen"], "KEY.pem"), (["sign"], "CONTRACT.json"),
        (["statement"], "RUN or --mine"), (["compare"], "CONFIG.toml"), (["coins", "toss"], "ROSTER.json"),
    ],
)  # fmt: skip
def test_an_argument_that_is_missing_is_required(bonafed, words, name):
    assert bonafed(*words) == (2, "", f"error: {name} is required\n")


def test_large_amounts_are_written_out(bonafed):
    words = ["--prior-free", "--highest", "20000", "--clients", "20", "--rounds", "20", "--budget", "1e6"]
    code, out, _ = bonafed("quote", "sampling", *words)
    assert code == 0
    assert "payment 20,000." in out
    assert "e+0" not in out


def test_ctrl_c_is_told_in_any_command(bonafed, monkeypatch):
    """Typer ends with 130 and without a word."""

    def stop(outputs):
        raise KeyboardInterrupt

    monkeypatch.setattr("bonafed.presentation.terminal.write_together", stop)
    code, out, err = bonafed("quote", "sampling", "--prior", "uniform:0.5,1.5", *SMALL, "--save", "c.json")
    assert (code, out, err) == (130, "", "stopped by the user\n")
    assert not Path("c.json").exists()


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (
            ("advise", "clusters", "--agents", "10", "--epsilon", "2.2e-308"),
            "epsilon must be between 1e-30",
        ),
        (
            ("advise", "clusters", "--agents", "10", "--regulariser", "1e-300"),
            "regulariser must be between 1e-30",
        ),
        (("audit", "faithful", "--regulariser", "1.7e308"), "regulariser must be between 1e-100"),
    ],
)
def test_numbers_whose_squares_are_none_are_refused_by_name(bonafed, words, rule):
    code, _, err = bonafed(*words)
    assert code == 2
    assert err.startswith(f"error: {rule} and ")
    assert err.count("\n") == 1


def test_an_absurd_scale_is_refused_without_warnings(bonafed):
    assert bonafed("quote", "sampling", "--prior", "uniform:0.5,1.5", *SMALL, "--save", "c.json")[0] == 0
    data = json.loads(Path("c.json").read_text())
    Path("c.json").write_text(json.dumps({**data, "scale": 1.7e308}))
    code, _, err = bonafed("verify", "c.json")
    assert (code, err.count("\n")) == (2, 1)
