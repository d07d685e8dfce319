"""`bonafed quote jsam`, with good and with bad input, as a user would type it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bonafed.economics import Discrete, Uniform
from bonafed.learning.privacy.planning import noise_share, rate_for, steps_for
from bonafed.mechanisms import jsam
from bonafed.mechanisms.jsam.schemes import draw_costs

COSTS = [0.12, 0.35, 0.5, 0.71, 0.93]
PRIOR = ["--prior", "uniform:0,1"]
FIVE = [*PRIOR, "--reports", "five.csv", "--noise-scale", "1"]
ONE = [*FIVE, "--eta", "1"]


@pytest.fixture
def quote(bonafed):
    """quote(...) -> (exit code, stdout, stderr) in a folder with the costs of five clients."""
    Path("five.csv").write_text("cost\n" + "".join(f"{c}\n" for c in COSTS))
    return lambda *words: bonafed("quote", "jsam", *words)


@pytest.fixture
def quoted(quote):
    """The description that --json prints."""

    def run(*words):
        code, out, err = quote(*words, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


def column(said, name):
    return [row[name] for row in said["terms"]]


def test_quote_shows_terms_money_and_baselines(quote):
    code, out, err = quote(*ONE)
    assert (code, err) == (0, "")
    for text in ("0.8047", "0.4070", "0.3104", "threshold h", "1.1799", "2.8340"):
        assert text in out
    for name in ("USBM", "FSBM-2", "FSBM-3", "JSAM-CI"):
        assert name in out
    assert "\nBBM" not in out


@pytest.mark.parametrize("more", [[], ["--max-epsilon", "1"], ["--sizes", "sizes.csv"]])
def test_weights_too_small_to_compare_plans_are_refused_by_name(quote, more):
    sizes_in_a_file([3, 1, 2, 2, 4])
    little = ["--prior", "uniform:0,1e-300", "--eta", "1e-308", "--noise-scale", "1e-308"]
    code, out, err = quote(*little, "--clients", "5", *more)
    assert (code, out) == (2, "")
    assert "eta must be larger for noise_scale 1e-308: the objective is too small a number" in err


@pytest.mark.parametrize("eta", ["1e14", "1e17", "1e300"])
@pytest.mark.parametrize("more", [["--max-epsilon", "3"], ["--sizes", "sizes.csv"], []])
def test_contracts_of_large_weights_verify(quoted, bonafed, eta, more):
    sizes_in_a_file([3, 1, 2, 2])
    words = [*PRIOR, "--clients", "4", "--noise-scale", "1", "--clip", "1", "--rounds", "3"]
    said = quoted(*words, "--delta", "1e-5", "--eta", eta, *more, "--save", "contract.json")
    if "--max-epsilon" in more:
        assert column(said, "payment") == pytest.approx([3.0] * 4, rel=1e-12)
    assert (said["warnings"] == []) == ("--max-epsilon" in more)  # without a cap, of what is hardly privacy
    code, out, err = bonafed("verify", "contract.json")
    assert (code, err) == (0, "")
    assert "Every check holds" in out


@pytest.mark.parametrize("more", [[], ["--max-epsilon", "3"], ["--noise-at", "sum", "--max-epsilon", "3"]])
def test_weights_too_large_to_compare_plans_are_refused_by_name(quote, more):
    code, out, err = quote(*PRIOR, "--clients", "5", "--eta", "1.7e308", "--noise-scale", "1", *more)
    assert (code, out) == (2, "")
    assert "eta must be smaller for noise_scale 1: the objective is not finite, got 1.7e+308" in err


def test_json_is_what_the_library_says(quoted):
    said = quoted(*ONE)
    done = jsam.settle(COSTS, Uniform(0, 1), 1, 1)
    assert column(said, "report") == COSTS
    assert column(said, "selection") == done.allocation.selection.tolist()
    assert column(said, "epsilon") == done.allocation.privacy.tolist()
    assert column(said, "payment") == done.payment.tolist()
    assert column(said, "utility") == done.utility(COSTS).tolist()
    assert said["threshold"] == 4
    assert said["expected_money"] == done.allocation.total
    assert said["payments"] == done.spend
    assert said["loss"] == done.allocation.loss
    assert said["objective"] == done.allocation.objective


def test_every_baseline_is_compared_at_the_same_weight(quoted):
    Path("losses.csv").write_text("client,loss\n0,5\n1,1\n2,1\n3,4\n4,2\n")
    said = quoted(*ONE, "--losses", "losses.csv", "--members", "2")
    rows = {row["name"]: row for row in said["comparison"]}
    rules = {
        "JSAM": None,
        "USBM": jsam.unbiased(5),
        "FSBM-2": jsam.Cheapest(2),
        "BBM-2": jsam.largest_losses([5, 1, 1, 4, 2], 2),
    }
    assert [*rows] == [*rules, "JSAM-CI"]
    for name, rule in rules.items():
        done = jsam.settle(COSTS, Uniform(0, 1), 1, 1, rule=rule)
        assert rows[name]["payments"] == done.spend
        assert rows[name]["objective"] == done.allocation.objective
        assert rows[name]["objective"] == pytest.approx(rows[name]["loss"] + rows[name]["expected_money"])
    assert rows["JSAM-CI"]["payments"] == jsam.complete_information(COSTS, 1, 1).spend
    assert min(rows[name]["objective"] for name in rules) == rows["JSAM"]["objective"]


def test_an_atom_at_zero_is_a_type_of_its_own_in_every_row(quoted):
    Path("three.csv").write_text("0\n1\n1\n")
    words = [
        "--prior",
        "discrete:0,0.5,1,0.5",
        "--reports",
        "three.csv",
        "--noise-scale",
        "1",
        "--eta",
        "1",
    ]
    said = quoted(*words)
    assert column(said, "virtual_cost") == [1e-6, 2.0, 2.0]
    done = jsam.settle([0, 1, 1], Discrete([0, 1], [0.5, 0.5]), 1, 1, rule=jsam.unbiased(3))
    row = next(row for row in said["comparison"] if row["name"] == "USBM")
    assert (row["objective"], row["payments"]) == (done.allocation.objective, done.spend)


def test_reports_above_the_highest_cost_are_not_admitted(quote, quoted):
    Path("more.csv").write_text("".join(f"{c}\n" for c in [1.4, *COSTS]))
    words = [*PRIOR, "--reports", "more.csv", "--noise-scale", "1", "--eta", "1"]
    assert "not admitted" in quote(*words)[1]
    said = quoted(*words)
    assert (said["clients"], said["admitted"]) == (6, 5)
    assert column(said, "admitted") == [False] + 5 * [True]
    assert column(said, "payment") == [0.0, *column(quoted(*ONE), "payment")]
    Path("losses.csv").write_text("".join(f"{k}\n" for k in [9, 5, 1, 1, 4, 2]))
    said = quoted(*words, "--losses", "losses.csv", "--members", "1")
    assert next(row["selected"] for row in said["comparison"] if row["name"] == "BBM-1") == 1


def test_costs_drawn_from_the_prior_are_those_of_a_training_run(quote, quoted):
    words = [*PRIOR, "--noise-scale", "1", "--eta", "5", "--clients", "60", "--seed", "3"]
    assert column(quoted(*words), "report") == draw_costs(Uniform(0, 1), 60, 3).tolist()
    out = quote(*words)[1]
    assert "drawn from the prior (seed 3)" in " ".join(out.split())
    assert "more clients are not shown; --json has all of them" in out
    assert "\u28c0" in out  # the plot in the terminal
    assert len(out.split("Over the whole run")[0].split("\u2502")) < 60 * 7


def test_a_hard_budget_holds_and_says_what_is_lost(quote, quoted):
    said = quoted(*FIVE, "--budget", "2")
    assert 1.99 < said["payments"] <= 2
    assert (said["eta_from"], said["budget"]) == ("budget", 2)
    assert "exact truthfulness is lost" in " ".join(quote(*FIVE, "--budget", "2")[1].split())


def test_an_expected_budget_does_not_depend_on_the_reports(quote, quoted, monkeypatch):
    monkeypatch.setattr("bonafed.mechanisms.jsam.schemes.DRAWS", 8)
    said = quoted(*FIVE, "--expected-budget", "2")
    found = jsam.eta_for_expected_budget(Uniform(0, 1), 5, 2, 1, samples=8)
    assert (said["eta"], said["draws"]) == (found, 8)
    Path("five.csv").write_text("".join(f"{c / 2}\n" for c in COSTS))
    assert quoted(*FIVE, "--expected-budget", "2")["eta"] == said["eta"]
    assert "on average" in quote(*FIVE, "--expected-budget", "2")[1]


def test_the_noise_scale_from_its_parts(quoted):
    words = [*PRIOR, "--reports", "five.csv", "--eta", "1"]
    parts = [
        "--delta",
        "1e-5",
        "--dimension",
        "10",
        "--rounds",
        "100",
        "--smoothness",
        "0.5",
        "--records",
        "20",
    ]
    assert quoted(*words, *parts)["noise_scale"] == jsam.noise_scale(1e-5, 10, 100, 0.5, 20)
    other = jsam.noise_scale(1e-5, 10, 100, 0.5, 20, 1.1)
    assert quoted(*words, *parts, "--c2", "1.1")["noise_scale"] == other


def test_a_cap_is_kept_and_its_bound_is_shown(quote, quoted):
    said = quoted(*ONE, "--max-epsilon", "0.3")
    assert max(row["epsilon"] for row in said["terms"]) == 0.3
    done = jsam.settle(COSTS, Uniform(0, 1), 1, 1, max_epsilon=0.3)
    assert [row["payment"] for row in said["terms"]] == done.payment.tolist()
    assert said["lower_bound"] <= said["objective"]
    assert "epsilon 0.3 at most" in " ".join(quote(*ONE, "--max-epsilon", "0.3")[1].split())
    Path("caps.csv").write_text("max_epsilon\n0.1\n0.2\n0.3\n0.2\n0.2\n")
    each = quoted(*ONE, "--max-epsilon", "caps.csv")
    assert all(row["epsilon"] <= cap for row, cap in zip(each["terms"], each["max_epsilon"], strict=True))


def test_caps_and_terms_are_by_name(quoted):
    Path("named.csv").write_text("client,cost\nada,0.12\nben,0.35\neve,0.5\n")
    Path("caps.csv").write_text("client,max_epsilon\neve,0.3\nada,0.1\nben,0.2\n")
    words = [*PRIOR, "--reports", "named.csv", "--noise-scale", "1", "--eta", "5"]
    said = quoted(*words, "--max-epsilon", "caps.csv")
    assert {row["client"]: row["epsilon"] for row in said["terms"]} == {"ada": 0.1, "ben": 0.2, "eve": 0.3}


def test_a_contract_is_saved_and_verifies(bonafed, quote):
    more = ["--clip", "1", "--rounds", "9", "--delta", "1e-5", "--save", "contract.json"]
    assert quote(*PRIOR, "--clients", "4", "--noise-scale", "1", "--expected-budget", "2", *more)[0] == 0
    assert bonafed("verify", "contract.json")[0] == 0
    Path("four.csv").write_text("client,cost\nada,0.1\nben,0.9\neve,0.5\nzoe,0.3\n")
    code, out, _ = bonafed("settle", "contract.json", "--reports", "four.csv")
    assert code == 0
    assert "ada" in out
    words = [*FIVE, "--budget", "2", *more[:-2]]
    assert "--budget must not be given with --clip" in quote(*words)[2]


def test_a_quote_that_sells_more_than_ten_says_so(quote, quoted):
    words = [*PRIOR, "--reports", "five.csv", "--eta", "1000", "--noise-scale", "100"]
    assert "hardly a promise of privacy" in quoted(*words)["warnings"][0]
    assert "hardly a promise" in " ".join(quote(*words)[1].split())
    assert quoted(*words, "--max-epsilon", "5")["warnings"] == []


def sizes_in_a_file(sizes):
    Path("sizes.csv").write_text("size\n" + "".join(f"{size}\n" for size in sizes))


def test_where_sizes_count_there_are_terms_and_a_contract(quote, quoted, bonafed):
    sizes = [10, 20, 40, 20, 10]
    sizes_in_a_file(sizes)
    said = quoted(*ONE, "--sizes", "sizes.csv")
    due = jsam.settle(COSTS, Uniform(0, 1), 1, 1, rule=jsam.Unequal(sizes))
    assert column(said, "selection") == pytest.approx(due.allocation.selection.tolist())
    assert column(said, "payment") == pytest.approx(due.payment.tolist())
    assert column(said, "share_of_records") == pytest.approx([0.1, 0.2, 0.4, 0.2, 0.1])
    assert [row["name"] for row in said["comparison"]] == ["JSAM", "USBM", "JSAM-CI"]
    assert said["comparison"][1]["objective"] > said["objective"] > said["comparison"][2]["objective"]
    out = quote(*ONE, "--sizes", "sizes.csv")[1]
    assert "of the records" in out
    assert "Sizes count" in out
    more = ["--clip", "1", "--rounds", "9", "--delta", "1e-5", "--save", "contract.json"]
    assert quote(*ONE, "--sizes", "sizes.csv", *more)[0] == 0
    code, out, err = bonafed("verify", "contract.json")
    assert (code, err) == (0, "")
    assert "Every check holds" in out


def test_sizes_by_name_may_be_in_any_order(quoted):
    names = ["ada", "ben", "cleo", "dora", "eve"]
    Path("named.csv").write_text(
        "client,cost\n" + "".join(f"{n},{c}\n" for n, c in zip(names, COSTS, strict=True))
    )
    sizes = dict(zip(names, [10, 20, 40, 20, 15], strict=True))
    Path("sizes.csv").write_text("client,size\n" + "".join(f"{n},{sizes[n]}\n" for n in reversed(names)))
    words = [*PRIOR, "--reports", "named.csv", "--eta", "1", "--sizes", "sizes.csv"]
    assert quoted(*words, "--noise-scale", "1")["sizes"] == [10, 20, 40, 20, 15]


def test_releases_of_few_records_count_with_the_noise_they_need(quoted):
    sizes_in_a_file([10, 20, 40, 20, 10])
    parts = ["--delta", "1e-5", "--dimension", "21", "--rounds", "9", "--smoothness", "0.5"]
    words = [*PRIOR, "--reports", "five.csv", "--eta", "1", "--sizes", "sizes.csv", *parts]
    said = quoted(*words, "--records", "20")
    base = jsam.noise_scale(1e-5, 21, 9, 0.5, records=2)
    plan = jsam.allocate_unequal(2 * np.array(COSTS), [10, 20, 40, 20, 10], 1, base, [10, 20, 20, 20, 10])
    assert said["noise_scale"] == pytest.approx(base)
    assert column(said, "epsilon") == pytest.approx(plan.privacy.tolist())


def test_sizes_count_among_those_admitted(quoted):
    sizes_in_a_file([10, 20, 40, 20, 10])
    said = quoted("--prior", "uniform:0,0.8", *FIVE[2:], "--eta", "1", "--sizes", "sizes.csv")
    due = jsam.settle(COSTS, Uniform(0, 0.8), 1, 1, rule=jsam.Unequal([10, 20, 40, 20, 10]))
    assert column(said, "payment") == pytest.approx(due.payment.tolist())
    assert said["comparison"][1]["objective"] >= said["objective"]


def test_plots(quote):
    assert quote(*ONE, "--plot", "a.png")[0] == 0
    assert quote(*ONE, "--plot", "b.svg")[0] == 0
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert Path("b.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    "prior",
    ["exponential:1,0,2", "mixture:0.1,2,0.5,0.6,0.1,0.5,1.5,0.15", "discrete:0.3,0.3,0.6,0.3,1,0.4"],
)
def test_other_kinds_of_prior(quoted, prior):
    said = quoted("--prior", prior, "--reports", "five.csv", "--noise-scale", "1", "--eta", "5")
    assert min(column(said, "utility")) >= 0
    assert min(column(said, "payment")) >= 0


WAYS = "--noise-scale, or --delta, --dimension, --rounds, --smoothness and --records"
PARTS = ["--delta", "1e-5", "--dimension", "10", "--rounds", "9", "--smoothness", "1", "--records", "20"]
NO_NOISE = [*PRIOR, "--reports", "five.csv", "--eta", "1"]
BAD = [
    ([*FIVE, "--eta", "0"], "eta must be positive, got 0.0"),
    ([*FIVE, "--eta", "-1"], "eta must be positive, got -1.0"),
    ([*FIVE, "--eta", "nan"], "eta must be finite, got nan"),
    ([*FIVE, "--eta", "much"], "Invalid value for '--eta': 'much' is not a valid float."),
    ([*FIVE, "--budget", "0"], "budget must be positive, got 0.0"),
    ([*FIVE, "--expected-budget", "-2"], "expected_budget must be positive, got -2.0"),
    (FIVE, "input must be one of --eta, --budget, --expected-budget, got none"),
    ([*ONE, "--budget", "2"], "input must be one of --eta, --budget, --expected-budget, got two"),
    (
        [*ONE, "--budget", "2", "--expected-budget", "2"],
        "input must be one of --eta, --budget, --expected-budget, got three",
    ),
    (ONE[2:], "--prior is required"),
    ([*ONE, "--clients", "5"], "input must be one of --reports, --clients, got two"),
    ([*PRIOR, *ONE[4:]], "input must be one of --reports, --clients, got none"),
    ([*PRIOR, *ONE[4:], "--clients", "0"], "clients must be a whole number of at least 1, got 0"),
    (
        [*PRIOR, *ONE[4:], "--clients", "5", "--seed", "-1"],
        "seed must be a whole number of at least 0, got -1",
    ),
    (NO_NOISE, f"input must be {WAYS}, got none"),
    ([*NO_NOISE, "--noise-scale", "0"], "noise_scale must be positive, got 0.0"),
    (
        [*NO_NOISE[:-1], "1.7e308", "--noise-scale", "1e300"],
        "eta must be smaller for noise_scale 1e+300: the objective is not finite, got 1.7e+308",
    ),
    ([*NO_NOISE, "--noise-scale", "inf"], "noise_scale must be finite, got inf"),
    ([*ONE, *PARTS], "--noise-scale must not be given with --delta, got 1.0"),
    ([*ONE, "--c2", "1"], "--noise-scale must not be given with --c2, got 1.0"),
    ([*NO_NOISE, *PARTS[2:]], "--delta is required with --dimension"),
    ([*NO_NOISE, *PARTS[:-2]], "--records is required with --delta"),
    ([*ONE, "--max-epsilon", "0"], "max_epsilon must be positive, got 0.0"),
    ([*ONE, "--max-epsilon", "1e-200"], "max_epsilon must be between 1e-50 and 1e+50, got 1e-200"),
    (
        [*FIVE, "--expected-budget", "9", "--max-epsilon", "1"],
        "expected_budget must be smaller: even with everybody at max_epsilon it cannot be spent, got 9.0",
    ),
    ([*NO_NOISE, "--c2", "1"], "--delta is required with --c2"),
    ([*NO_NOISE, "--delta", "0", *PARTS[2:]], "delta must be positive, got 0.0"),
    ([*NO_NOISE, "--delta", "1", *PARTS[2:]], "delta must be between 0 and 1, ends excluded, got 1.0"),
    ([*NO_NOISE, *PARTS, "--c2", "1e300"], "noise_scale must be finite, got inf"),
    ([*ONE, "--members", "6"], "members must be at most the number of clients admitted, 5, got 6"),
    ([*ONE, "--members", "0"], "members must be a whole number of at least 1, got 0"),
    ([*ONE, "--sizes", "half.csv"], "--sizes must be whole numbers of records, got 0.1 at position 0"),
    ([*ONE, "--sizes", "four.csv"], "--sizes must hold 5 sizes, one per client, got 4"),
    ([*ONE, "--sizes", "zero.csv"], "--sizes must be positive, got 0 at position 1"),
    (
        [*ONE, "--sizes", "five.csv", "--max-epsilon", "1"],
        "--max-epsilon must not be given with --sizes, got 1",
    ),
    ([*ONE, "--sizes", "five.csv", "--noise-at", "sum"], "--noise-at must be client with --sizes, got sum"),
    (
        [*ONE, "--sizes", "five.csv", "--members", "2"],
        "--members must not be given with --sizes: it is for clients alike, got 2",
    ),
    (
        [*ONE, "--sizes", "five.csv", "--losses", "five.csv"],
        "--losses must not be given with --sizes: it is for clients alike, got five.csv",
    ),
    ([*ONE, "--losses", "four.csv"], "--losses must hold 5 losses, one per client, got 4"),
    ([*ONE, "--losses", "none.csv"], "none.csv: No such file or directory"),
    ([*ONE, "--losses", "empty.csv"], "empty.csv: the file holds no losses"),
    ([*ONE, "--plot", "x.gif"], "--plot must end in .png, .svg or .pdf, got x.gif"),
    ([*ONE, "--plot", "no/x.png"], "output must be in an existing folder, got no/x.png"),
    (
        ["--prior", "uniform:0,0.1", *ONE[2:]],
        "reports must not all be above the highest cost, got 0.12 and more",
    ),
    (["--prior", "uniform:0", *ONE[2:]], "prior uniform must be uniform:LOW,HIGH, got 'uniform:0'"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_one_line_and_writes_nothing(quote, tmp_path, words, message):
    Path("half.csv").write_text("0.1\n" * 5)
    Path("zero.csv").write_text("0.5\n0\n0.1\n0.2\n0.2\n")
    Path("four.csv").write_text("0.25\n" * 4)
    Path("empty.csv").write_text("")
    before = sorted(tmp_path.iterdir())
    plot = [] if "--plot" in words else ["--plot", "picture.png"]
    code, out, err = quote(*words, *plot)
    assert (code, out, err) == (2, "", f"error: {message}\n")
    assert sorted(tmp_path.iterdir()) == before


BAD_FILES = [
    ("0.5\nabc\n", "five.csv, line 2: cost must be a number, got 'abc'"),
    ("cost\n0.5\n\nnan\n", "five.csv, line 4: cost must be finite, got nan"),
    ("cost\n0.5\n-1\n", "five.csv, line 3: cost must not be negative, got -1"),
    ("", "five.csv: the file holds no costs"),
    ("a,b\n1,2\n", "five.csv, line 1: must have one column, or a header with a column 'cost'"),
    (None, "five.csv: No such file or directory"),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_a_file_that_does_not_parse_says_the_line(quote, content, message):
    Path("five.csv").unlink() if content is None else Path("five.csv").write_text(content)
    code, out, err = quote(*ONE)
    assert (code, out, err) == (2, "", f"error: {message}\n")


def test_a_quote_does_not_import_heavy_packages():
    words = [*PRIOR, "--clients", "30", "--eta", "5", "--noise-scale", "1"]
    program = (
        f"import sys; sys.argv = ['bonafed', 'quote', 'jsam', *{words}]\n"
        "try:\n from bonafed.cli import main; main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'sklearn', 'matplotlib', 'scipy.stats'}\n"
        "print('loaded:', sorted(heavy & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


SIZES = [
    "--delta",
    "1e-5",
    "--dimension",
    "7850",
    "--rounds",
    "20",
    "--smoothness",
    "0.5",
    "--records",
    "3000",
]
SOLD = ["--prior", "uniform:0,1", "--clients", "20"]


def test_a_quote_says_how_to_train_and_counts_with_its_steps(bonafed):
    """(11.1) to (11.4), from the budget before reports and from the plan after them."""
    words = ["quote", "jsam", *SOLD, *SIZES, "--expected-budget", "40", "--clip", "0.5"]
    said = json.loads(bonafed(*words, "--json")[1])
    chosen, rows = said["training"], said["terms"]
    assert chosen["steps"] == steps_for(noise_share([0.05] * 20, 2.0, 3000, 1e-5, 7850), 20) == 5
    assert said["noise_scale"] == pytest.approx(jsam.noise_scale(1e-5, 7850, 100, 0.5, 3000))
    p, epsilon = ([row[name] for row in rows] for name in ("selection", "epsilon"))
    share = noise_share(p, epsilon, 3000, 1e-5, 7850)
    assert chosen["noise_share"] == pytest.approx(share)
    assert chosen["learning_rate"] == pytest.approx(rate_for(share, 0.5, 100))
    assert "batches of all records, 5 steps a round and learning rate" in bonafed(*words)[1]


def test_steps_of_a_quote_may_be_stated(bonafed):
    words = [*SOLD, *SIZES, "--expected-budget", "40", "--steps", "2", "--json"]
    said = json.loads(bonafed("quote", "jsam", *words)[1])
    assert (said["training"]["steps"], said["training"]["for_clip"]) == (2, 1.0)
    assert said["noise_scale"] == pytest.approx(jsam.noise_scale(1e-5, 7850, 40, 0.5, 3000))


def test_nothing_is_said_of_training_where_its_sizes_are_not_known(bonafed):
    said = json.loads(bonafed("quote", "jsam", *SOLD, "--eta", "5", "--noise-scale", "1", "--json")[1])
    assert said["training"] is None
    alone = json.loads(bonafed("quote", "jsam", *SOLD, *SIZES, "--eta", "5", "--json")[1])
    assert alone["training"]["steps"] == 1  # neither cap nor budget says how much will be bought
