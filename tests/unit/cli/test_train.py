"""`bonafed train` and `bonafed runs`, as a user would type them."""

import io
import json
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from bonafed.economics.findings import Finding
from bonafed.runs import folder, log
from bonafed.runs.summary import run_document

QUICK = ["--set", "training.rounds=2", "--set", "training.epochs=1"]


@pytest.fixture
def trained(bonafed):
    """The same, with fedavg.toml, sampling.toml and a run of each."""
    for name in ("fedavg", "sampling"):
        assert bonafed("train", "--write-example", name) == (0, f"wrote {name}.toml\n", "")
        code, out, err = bonafed("train", f"{name}.toml", *QUICK)
        assert (code, err) == (0, ""), err
        assert f"Run {name}: finished" in out
    return bonafed


def test_an_example_is_told_as_json(bonafed):
    for written in (True, False):
        code, out, err = bonafed("train", "--write-example", "rewards", "--json")
        assert (code, err) == (0, "")
        assert json.loads(out) == {"file": "rewards.toml", "written": written}


def test_train_shows_what_the_summary_says(trained):
    again = (0, "fedavg.toml already exists, unchanged\n", "")
    assert trained("train", "--write-example", "fedavg") == again
    with Path("fedavg.toml").open("a") as file:
        file.write("# mine\n")
    assert trained("train", "--write-example", "fedavg")[::2] == (
        2,
        "error: --write-example must not replace an existing file with other contents, got fedavg.toml\n",
    )
    code, out, _ = trained("train", "sampling.toml", *QUICK, "--folder", "other", "--json")
    said = json.loads(out)
    assert code == 0
    assert said.pop("folder") == "other"
    assert said == json.loads(Path("other/summary.json").read_text())
    assert said["spend"] > 0
    assert 'folder = "other"' in Path("other/config.toml").read_text()


def test_bought_privacy_is_shown_with_its_price(bonafed):
    bonafed("train", "--write-example", "jsam")
    quick = ("--set", "training.rounds=2")
    hard = ("--set", "jsam.eta=", "--set", "jsam.budget=0.01", "--set", "jsam.decimals=6")
    known = ("--set", "jsam.noise=reproducible")  # whether the loss grows is for the noise to decide
    code, out, err = bonafed("train", "jsam.toml", *quick, "--folder", "a", *hard, *known)
    assert code == 0
    assert err.startswith(
        "note: what [training] leaves out is chosen for the noise: batches of all records, "
    )
    assert "hides most of what can be learned" in err
    for text in ("clients selected", "money spent", "of the epsilon it sold", "promised in every run"):
        assert text in out
    assert "note: the test loss grew from" in out  # so little money buys little but noise
    assert bonafed("train", "jsam.toml", *quick, "--set", "jsam.budget=60")[::2] == (
        2,
        "error: jsam.budget must not be given with eta, got 60.0\n",
    )
    assert not Path("runs", "jsam").exists()  # refused before anything is written
    assert " jsam" in bonafed("runs", "a")[1]  # the terms
    assert json.loads(bonafed("runs", "a", "--json")[1])[0]["spend"] <= 0.01


def test_a_finished_run_is_left_alone(trained):
    before = {path: path.read_bytes() for path in Path("runs/fedavg").iterdir()}
    code, out, err = trained("train", "--resume", "runs/fedavg")
    assert (code, err) == (0, "")
    assert "already finished; nothing to do" in out
    assert {path: path.read_bytes() for path in Path("runs/fedavg").iterdir()} == before
    code, _, err = trained("train", "fedavg.toml")
    assert code == 2
    assert err == (
        "error: run.folder must hold no run yet (--resume, or resume=True in Python, continues it), "
        "got runs/fedavg\n"
    )


def test_resuming_takes_the_config_of_the_run(trained, monkeypatch):
    refused = (2, "", "error: run.seed must be as it was when the run began, 1, got 3\n")
    assert trained("train", "--resume", "runs/fedavg", "--set", "run.seed=3") == refused  # though finished
    longer = (2, "error: training.rounds must be as it was when the run began, 2, got 20\n")
    assert trained("train", "fedavg.toml", "--resume", "runs/fedavg")[::2] == longer
    code, out, _ = trained("train", "fedavg.toml", *QUICK, "--resume", "runs/fedavg")
    assert (code, "already finished; nothing to do" in out) == (0, True)
    Path("runs/fedavg/summary.json").unlink()  # as if stopped just before the end
    assert trained("train", "--resume", "runs/fedavg", "--set", "run.seed=3") == refused
    assert trained("train", "fedavg.toml", "--resume", "runs/fedavg")[::2] == longer
    code, out, _ = trained("train", "--resume", "runs/fedavg", "--set", "run.cores=1")  # changes no result
    assert code == 0
    assert "resumed and finished" in out
    Path("runs/fedavg/summary.json").unlink()
    code, out, err = trained("train", "fedavg.toml", *QUICK, "--resume", "runs/fedavg")
    assert (code, err) == (0, "")
    assert "resumed and finished" in out
    Path("runs/fedavg/summary.json").unlink()
    began = metadata.version("torch")
    installed = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "9.9" if name == "torch" else installed(name))
    code, _, err = trained("train", "--resume", "runs/fedavg")
    assert code == 0
    assert err == f"note: the run began with torch {began}, this is 9.9\n"


def test_a_run_is_resumed_from_data_that_have_moved(bonafed):
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((60, 3)), np.arange(60) % 2
    np.savez("mine.npz", features=features, labels=labels)
    np.savez("other.npz", features=features, labels=1 - labels)
    bonafed("train", "--write-example", "fedavg")
    assert bonafed("train", "fedavg.toml", *QUICK, "--set", "data.name=mine.npz", "--folder", "run")[0] == 0
    model = Path("run/model.pt").read_bytes()
    Path("moved").mkdir()
    Path("mine.npz").rename("moved/renamed.npz")
    other = "error: data must be the data and the partition the run began with ("
    words = ("train", "fedavg.toml", *QUICK, "--resume", "run", "--set")
    assert bonafed(*words, "data.name=other.npz")[2].startswith(other)  # though finished
    for name in ("summary.json", "checkpoint.npz"):
        Path("run", name).unlink()
    code, _, err = bonafed("train", "--resume", "run")
    assert (code, "mine.npz: No such file" in err) == (2, True)
    assert bonafed("train", "--resume", "run", "--set", "data.name=other.npz")[2].startswith(other)
    named = bonafed("train", "--resume", "run", "--set", "data.name=digits")[2]
    assert named.startswith("error: data.name must be as it was when the run began, '/")
    code, out, err = bonafed("train", "--resume", "run", "--set", "data.name=moved/renamed.npz")
    assert (code, err) == (0, "")
    assert "resumed and finished" in out
    assert Path("run/model.pt").read_bytes() == model


BAD = [
    ([], "CONFIG.toml or --resume is required"),
    (["none.toml"], "none.toml: No such file or directory"),
    (["--resume", "none"], "--resume must be a folder that holds a run (config.toml), got none"),
    (
        ["--write-example", "x"],
        "--write-example must be one of faithful, fedavg, jsam, posted-price, rewards, sampling, got 'x'",
    ),
    (
        ["c.toml", "--set", "training.rounds=0"],
        "training.rounds must be a whole number of at least 1, got 0",
    ),
    (["c.toml", "--set", "rounds=1"], "--set must be SECTION.KEY=VALUE, got 'rounds=1'"),
    (["c.toml", "--set", "data.name=x"], "data.name must be one of digits, mnist, fashion-mnist, cifar10,"),
    (["c.toml", "--set", "data.name=x.csv"], "x.csv: "),
    (["c.toml", "--set", "model.name=x"], "model.name must be one of softmax,"),
    (
        ["c.toml", "--set", "partition.clients=9999"],
        "partition.clients must be at most the number of samples",
    ),
    (["c.toml", "--folder", "c.toml"], "run.folder must be a folder, got c.toml"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_line_and_writes_nothing(bonafed, tmp_path, words, message):
    bonafed("train", "--write-example", "fedavg")
    Path("fedavg.toml").rename("c.toml")
    code, out, err = bonafed("train", *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["c.toml"]


def test_ctrl_c_says_how_to_continue(bonafed, monkeypatch):
    from bonafed.mechanisms.averaging import Averaging

    bonafed("train", "--write-example", "fedavg")
    advance = Averaging.advance

    def interrupted(self, state, federation):
        if state.round_number == 1:
            raise KeyboardInterrupt
        return advance(self, state, federation)

    with monkeypatch.context() as patch:
        patch.setattr(Averaging, "advance", interrupted)
        code, out, err = bonafed("train", "fedavg.toml", *QUICK)
    assert (code, out) == (130, "")
    assert err == "stopped by the user; continue with: bonafed train --resume runs/fedavg\n"
    _, out, _ = bonafed("runs", "--json")
    assert [(row["rounds"], row["finished"]) for row in json.loads(out)] == [(1, False)]
    assert "1/2 (open)" in bonafed("runs")[1]
    assert bonafed("train", "--resume", "runs/fedavg")[0] == 0


def test_a_run_that_fails_before_a_round_leaves_nothing_in_the_way(bonafed):
    bonafed("train", "--write-example", "fedavg")
    far = ["--set", "model.name=small-cnn", "--set", "training.learning_rate=1e30"]
    Path("mine").mkdir()
    for place in ("runs/new", "mine"):
        code, _, err = bonafed("train", "fedavg.toml", *QUICK, *far, "--folder", place)
        assert code == 2
        assert "in round 1 must be finite, got NaN or inf; a smaller learning rate may help" in err
        assert place == "mine" or not Path(place).exists()
        assert place != "mine" or list(Path("mine").iterdir()) == []
        assert bonafed("train", "fedavg.toml", *QUICK, "--folder", place)[0] == 0


def test_runs_that_cannot_be_read_are_named_and_the_others_listed(trained):
    Path("runs/broken").mkdir()
    Path("runs/broken/config.toml").write_text("[[broken")
    code, out, err = trained("runs", "--json")
    assert code == 2
    assert len(json.loads(out)) >= 1
    assert err == "error: runs/broken/SHA256SUMS: is missing: nothing vouches for what the run began with\n"
    code, out, err = trained("runs", "runs/broken")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_finding_that_fails_is_printed_by_train_and_ends_only_statement_with_1(trained):
    summary = json.loads(Path("runs/fedavg/summary.json").read_text())
    summary["statement"]["findings"] = [Finding("budget", False, "spent too much").to_json()]
    place = Path("runs/fedavg")
    log.end(place, {}, summary, folder.read_manifest(place))
    code, out, _ = trained("statement", "runs/fedavg")
    assert code == 1
    assert "spent too much" in out
    shown = run_document(summary, [], place)  # what train prints
    assert shown.holds
    assert "spent too much" in str(shown)


def test_the_files_of_runs_are_checked(trained):
    code, out, err = trained("runs", "--check")
    assert (code, err) == (0, "")
    assert out.count("vouches for itself and") == 2
    assert out.splitlines()[-1] == "No file is damaged."
    for name in (path.name for path in Path("runs/fedavg").iterdir()):
        assert f" {name} " in out
    for name in ("fedavg/start.npy", "sampling/contract.json"):
        path = Path("runs") / name
        path.write_bytes(path.read_bytes()[:-1])
    code, out, err = trained("runs", "--check", "runs/fedavg", "runs/sampling")
    assert (code, err) == (1, "")
    assert out.splitlines()[-1] == "damaged: runs/fedavg/start.npy, runs/sampling/contract.json"
    code, out, _ = trained("runs", "--check", "--json")
    said = json.loads(out)
    assert (code, said["holds"]) == (1, False)
    assert said["damaged"] == ["runs/fedavg/start.npy", "runs/sampling/contract.json"]
    verdicts = {state["file"]: state["verdict"] for state in said["runs"]["runs/fedavg"]}
    assert verdicts.pop("start.npy") == "DAMAGED"
    assert set(verdicts.values()) == {"verified"}
    assert trained("runs", "--check", "--plot", "x.png")[0] == 2


@pytest.mark.parametrize(
    "gone", [(), ("summary.json",), ("versions.json",), ("SHA256SUMS", "summary.json")]
)
def test_a_run_without_its_config_is_not_passed_over(trained, gone):
    for name in ("config.toml", *gone):
        Path("runs/fedavg", name).unlink()
    for words in (("runs",), ("runs", "runs/fedavg")):
        code, out, err = trained(*words)
        assert (code, err) == (2, "error: runs/fedavg/config.toml: is missing\n")
        assert ("sampling" in out) == (len(words) == 1)  # the others are listed
        code, out, err = trained(*words, "--check")
        assert (code, err) == (1, "")
        assert "runs/fedavg/config.toml" in out.splitlines()[-1]


def test_a_set_up_that_was_cut_short_is_no_run_that_lost_its_config(trained):
    Path("runs/begun").mkdir()
    for name in ("versions.json", "start.npy"):
        Path("runs/begun", name).write_bytes(Path("runs/fedavg", name).read_bytes())
    Path("runs/begun/metrics.jsonl").write_bytes(b"")
    code, out, _ = trained("runs", "--check")
    assert code == 0
    assert "begun" not in out


@pytest.mark.parametrize(
    "name", ["config.toml", "start.npy", "metrics.jsonl", "versions.json", "SHA256SUMS"]
)
def test_a_damaged_file_is_refused_in_one_line(trained, name):
    for stopped in (False, True):
        if stopped:
            Path("runs/fedavg/summary.json").unlink()
        path = Path("runs/fedavg") / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
        code, _, err = trained("train", "--resume", "runs/fedavg")
        assert (code, err.count("\n")) == (2, 1)
        assert err.startswith(f"error: runs/fedavg/{name}: ")
        path.write_bytes(whole)


def test_a_key_can_be_left_out(bonafed):
    bonafed("train", "--write-example", "fedavg")
    words = ["train", "fedavg.toml", *QUICK, "--set", "training.steps=1"]
    assert bonafed(*words)[0] == 2  # the file has epochs
    assert bonafed(*words, "--set", "training.epochs=", "--json")[0] == 0


@pytest.mark.parametrize("name", ["fedavg", "faithful", "jsam", "rewards", "sampling"])
def test_the_largest_seed_trains(bonafed, name):
    bonafed("train", "--write-example", name)
    seeds = [f"run.seed={2**64 - 1}"]
    if name in ("jsam", "sampling"):
        seeds.append(f"{name}.cost_seed={2**64 - 1}")
    short = "faithful.epsilon=0.1" if name == "faithful" else "training.rounds=2"
    synthetic = [] if name == "faithful" else ["data.name=synthetic"]
    changes = [word for change in [short, *synthetic, *seeds] for word in ("--set", change)]
    code, _, err = bonafed("train", f"{name}.toml", *changes)
    assert code == 0
    assert err == "" or (name == "jsam" and err.startswith("note: what [training] leaves out"))
    assert err.count("\n") == (name == "jsam")


def test_what_went_wrong_is_noted(bonafed):
    bonafed("train", "--write-example", "fedavg")
    far = ["--set", "training.learning_rate=1e30"]
    said = json.loads(bonafed("train", "fedavg.toml", *QUICK, *far, "--json", "--folder", "a")[1])
    assert any("the learning rate may be too large" in note for note in said["notes"])
    skip = ["--set", "model.name=small-cnn", "--set", "training.on_bad_update=skip"]
    said = json.loads(bonafed("train", "fedavg.toml", *QUICK, *far, *skip, "--json", "--folder", "b")[1])
    assert said["notes"] == ["all updates were left out, the model is unchanged"]


def test_the_progress_bar_tells_rounds_loss_accuracy():
    from types import SimpleNamespace

    from rich.console import Console

    from bonafed.cli.train import _progress

    stream = io.StringIO()
    terminal = Console(file=stream, force_terminal=True, width=100)
    with _progress(4, 2, terminal) as on_round:
        on_round(
            SimpleNamespace(
                round=3, phase="baseline", doing="", train_loss=0.51, test_loss=0.62, test_accuracy=0.9
            )
        )
    shown = stream.getvalue()
    for text in ("3/4", "baseline", "loss 0.5100", "accuracy 90.00%", "left"):
        assert text in shown
    assert "test loss" not in shown
    private = io.StringIO()
    with _progress(4, 2, Console(file=private, force_terminal=True, width=100)) as on_round:
        on_round(
            SimpleNamespace(round=3, phase="", doing="", train_loss=None, test_loss=0.62, test_accuracy=0.9)
        )
    assert "test loss 0.6200  accuracy 90.00%" in private.getvalue()
    unknown = io.StringIO()
    with _progress(None, 2, Console(file=unknown, force_terminal=True, width=100)) as on_round:
        doing = "training: error 0.02, ends at 0.001"
        on_round(
            SimpleNamespace(
                round=3, phase="", doing=doing, train_loss=0.5, test_loss=0.6, test_accuracy=0.9
            )
        )
    for text in ("round", "3", doing, "loss 0.5000"):
        assert text in unknown.getvalue()
    assert "None" not in unknown.getvalue()
    assert "left" not in unknown.getvalue()
    with _progress(4, 2, Console(file=stream, force_terminal=False)) as on_round:
        assert on_round is None
    assert stream.getvalue() == shown


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_runs_are_listed_compared_and_drawn(trained, suffix):
    code, out, err = trained("runs", "--plot", f"curves.{suffix}")
    assert (code, err) == (0, "")
    for text in ("fedavg", "sampling", "2/2", "accuracy", "spend", f"wrote curves.{suffix}"):
        assert text in out
    assert "epsilon" not in out  # nobody was promised privacy
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert Path(f"curves.{suffix}").read_bytes().startswith(start)


def test_runs_without_test_data_show_their_training_loss(bonafed, monkeypatch):
    from bonafed.runs import figures

    drawn = []
    real = figures.runs_figure
    monkeypatch.setattr(figures, "runs_figure", lambda curves: drawn.append(real(curves)) or drawn[-1])
    features = np.random.default_rng(0).standard_normal((60, 3))
    np.savez("mine.npz", features=features, labels=np.arange(60) % 2)
    bonafed("train", "--write-example", "fedavg")
    for place in ("a/run", "b/run"):
        code, _, err = bonafed(
            "train", "fedavg.toml", *QUICK, "--set", "data.name=mine.npz", "--folder", place
        )
        assert (code, err) == (0, "")
    code, out, err = bonafed("runs", "a/run", "b/run", Path("a/run").absolute(), "--plot", "curves.png")
    assert (code, err) == (0, "")
    loss = json.loads(Path("a/run/summary.json").read_text())["train_loss"]
    for text in ("train loss", f"{loss:.4f}", "a/run", "b/run"):
        assert text in out
    assert out.count("a/run") == 1  # the same run by another path
    (panel,) = drawn[0].axes  # none for accuracy, of which nothing is known
    assert panel.get_ylabel() == "training loss"
    assert panel.get_lines()[0].get_ydata()[-1] == loss
    entries = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert entries == ["a/run (training loss)", "b/run (training loss)"]
    said = json.loads(bonafed("runs", "a/run", "--json")[1])[0]
    assert (said["name"], said["train_loss"], said["curves"]["train_loss"][-1]) == ("run", loss, loss)


def test_runs_as_json(trained):
    code, out, _ = trained("runs", "runs/sampling", "runs/fedavg", "--json")
    said = json.loads(out)
    assert code == 0
    assert [row["name"] for row in said] == ["sampling", "fedavg"]
    summary = json.loads(Path("runs/sampling/summary.json").read_text())
    assert said[0]["spend"] == pytest.approx(summary["spend"], rel=1e-12)
    assert said[0]["test_accuracy"] == summary["test_accuracy"]
    assert said[0]["curves"]["round"] == [1, 2]
    assert said[1]["spend"] is None


def test_runs_refuses_what_is_not_a_run(bonafed):
    assert bonafed("runs")[::2] == (
        2,
        "error: folder must exist and hold runs of `bonafed train`, got runs\n",
    )
    Path("runs/a").mkdir(parents=True)
    assert bonafed("runs")[::2] == (2, "error: folder must hold a run, or folders that do, got runs\n")
    Path("runs/a/config.toml").write_text("[data]\n")
    assert bonafed("runs")[::2] == (
        2,
        "error: runs/a/SHA256SUMS: is missing: nothing vouches for what the run began with\n",
    )
    assert bonafed("runs", "--plot", "x.gif")[0] == 2


def test_a_private_statement_tells_payments_and_no_loss(bonafed):
    bonafed("train", "--write-example", "faithful")
    quick = ("--set", "faithful.training_steps=5", "--set", "faithful.payment_steps=2")
    promise = ("--set", "privacy.epsilon=10", "--set", "privacy.delta=1e-5")
    code, out, err = bonafed("train", "faithful.toml", *quick, *promise)
    assert code == 0
    assert err.startswith("warning: payments will be more noise than signal: one is expected to be off by ")
    assert "would be enough" in err
    assert "largest epsilon" in out
    assert "after 5 and 2 steps" in out
    assert "note: runs/faithful.private/simulation.json holds what only a simulation knows" in out
    assert "overall loss" not in out
    assert Path("runs/faithful.private/simulation.json").exists()


def test_who_was_left_out_is_said_with_where_and_why(bonafed):
    bonafed("train", "--write-example", "faithful")
    cheats = ("--set", 'faithful.agents=["3 alternate 3", "5 huge 1e90"]')
    asked = ("--set", "faithful.variant=stepwise", "--set", "faithful.training_steps=5", *cheats)
    code, _, err = bonafed("train", "faithful.toml", *asked)
    assert code == 2
    assert err.startswith(
        "error: report of agent 5 in training step 1 must be a gradient of its loss, got "
    )
    policy = ("--set", "faithful.on_bad_report=leave out")
    code, out, _ = bonafed("train", "faithful.toml", *asked, *policy, "--folder", "runs/without")
    assert code == 0
    assert "note: agent 5 was left out: in training step 1 it reported a gradient of norm " in out
    assert "note: agent 3 was left out: in training step 1 it reported gradients that differ by " in out
    code, out, _ = bonafed("train", "faithful.toml", *cheats, *policy, "--folder", "runs/exchanges")
    assert code == 0
    assert "note: agent 5 was left out: in exchange 1 (training) it reported a gradient of norm " in out
    assert "note: agent 3 was left out: in exchange 2 (training) it reported gradients that differ" in out


PUBLISHED = ["--prior", "uniform:0.5,1.5", "--clients", "10", "--rounds", "2", "--budget", "10"]


@pytest.fixture
def published(bonafed):
    """A contract for ten clients and two rounds, what they state, and a config that says nothing of it."""
    assert bonafed("quote", "sampling", *PUBLISHED, "--save", "c.json")[0] == 0
    rows = [f"c{number},{0.6 + number / 20}" for number in range(10)]
    Path("r.csv").write_text("client,cost\n" + "\n".join(rows) + "\n")
    bonafed("train", "--write-example", "fedavg")
    return bonafed


def test_a_run_is_under_a_published_contract_and_reports(published):
    words = ["train", "fedavg.toml", *QUICK, "--contract", "c.json", "--reports", "r.csv"]
    code, out, err = published(*words)
    assert (code, err) == (0, "")
    assert "c9" in out
    run = Path("runs/fedavg")
    assert (run / "contract.json").read_bytes() == Path("c.json").read_bytes()
    agreement = json.loads((run / "agreement.json").read_text())
    assert agreement["reports"]["c3"] == 0.75
    said = json.loads(published("statement", "runs/fedavg", "--json")[1])
    assert said["clients"] == [f"c{number}" for number in range(10)]
    model = (run / "model.pt").read_bytes()
    for name in ("summary.json", "checkpoint.npz"):
        (run / name).unlink()
    code, out, err = published("train", "--resume", "runs/fedavg")
    assert (code, err) == (0, "")
    assert "resumed and finished" in out
    assert (run / "model.pt").read_bytes() == model
    assert json.loads(published("statement", "runs/fedavg", "--json")[1]) == said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["fedavg.toml", "--reports", "r.csv"],
            "--reports cannot be used: this mechanism asks clients for nothing",
        ),
        (["--resume", "runs/x", "--contract", "c.json"], "--contract must not be given with --resume, got"),
        (["--resume", "runs/x", "--reports", "r.csv"], "--reports must not be given with --resume, got"),
        (["fedavg.toml", "--contract", "r.csv"], "r.csv, line 1: not JSON"),
        (["fedavg.toml", *QUICK, "--contract", "c.json", "--reports", "c.json"], "c.json"),
    ],
)
def test_contracts_and_reports_that_cannot_be(published, words, message):
    code, out, err = published("train", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert not Path("runs").exists()


def test_reports_without_a_contract_are_to_that_of_the_config(published):
    published("train", "--write-example", "sampling")
    ten = ["--set", "partition.clients=10"]
    code, out, err = published("train", "sampling.toml", *QUICK, *ten, "--reports", "r.csv")
    assert (code, err) == (0, "")
    assert "c9" in out
    reports = json.loads(Path("runs/sampling/agreement.json").read_text())["reports"]
    assert reports["c3"] == 0.75


def test_mechanisms_are_compared_on_one_federation(bonafed):
    bonafed("train", "--write-example", "fedavg")
    some = ["--set", 'compare.mechanisms=["fedavg", "sampling"]', "--set", "compare.budget=20"]
    costs = ["--set", "compare.costs=uniform:0.5,1.5"]
    words = ["compare", "fedavg.toml", *QUICK, *some, *costs, "--plot", "c.png"]
    code, out, err = bonafed(*words)
    assert (code, err) == (0, "")
    for text in ("fedavg", "sampling", "lie gains", "wrote c.png"):
        assert text in out
    said = json.loads(bonafed(*words[:-2], "--json")[1])
    assert [row["mechanism"] for row in said["mechanisms"]] == ["fedavg", "sampling"]
    assert not Path("runs").exists()  # nothing is kept unless a folder is named


def test_ctrl_c_before_there_is_a_run_promises_none(bonafed, monkeypatch):
    from bonafed.runs.log import RunLog

    def interrupted(self, *args):
        raise KeyboardInterrupt

    bonafed("train", "--write-example", "fedavg")
    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "begin", interrupted)
        assert bonafed("train", "fedavg.toml", *QUICK) == (130, "", "stopped by the user\n")
    assert not Path("runs/fedavg").exists()


def test_a_damaged_secret_of_the_noise_is_named(bonafed, monkeypatch):
    from bonafed.mechanisms.averaging import Averaging

    bonafed("train", "--write-example", "fedavg")
    private = ["privacy.clip=1", "privacy.epsilon=2", "privacy.delta=1e-5"]
    words = [word for change in private for word in ("--set", change)]
    advance = Averaging.advance

    def interrupted(self, state, federation):
        if state.round_number == 1:
            raise KeyboardInterrupt
        return advance(self, state, federation)

    with monkeypatch.context() as patch:
        patch.setattr(Averaging, "advance", interrupted)
        assert bonafed("train", "fedavg.toml", *QUICK, *words)[0] == 130
    Path("runs/fedavg.private/noise.secret").write_bytes(bytes(32))
    code, _, err = bonafed("train", "--resume", "runs/fedavg")
    assert code == 2
    assert "and noise.secret the run's own, got" in err


def test_where_no_run_can_be_read_no_figure_is_drawn(trained):
    for name in ("fedavg", "sampling"):
        Path(f"runs/{name}/summary.json").write_text("{}")
    code, _, err = trained("runs", "--plot", "figure.png")
    assert (code, err.count("error: ")) == (2, 2)
    assert not Path("figure.png").exists()
