"""The page on adding a mechanism does what it says, with its package installed in a folder of its own."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.oracles.packages import ADDED, MODULES, PAGE, blocks, installed

from bonafed.runs import folder

COMMANDS = """
import json, os, sys
from bonafed.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = words
    sys.stdout.write("$ " + " ".join(words) + chr(10))
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Where the package of the page lies."""
    return installed(tmp_path_factory.mktemp("package"))


def started(package, *words, **about):
    paths = filter(None, (str(package), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", *words]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **about
    )


def test_the_page_shows_the_whole_mechanism():
    code = (MODULES / "mechanism.py").read_text(encoding="utf-8")
    assert blocks("python") == [(MODULES / "__init__.py").read_text(encoding="utf-8"), code]
    about = (ADDED / "pyproject.toml").read_text(encoding="utf-8")
    assert blocks("toml") == [about, (MODULES / "example.toml").read_text(encoding="utf-8")]
    lines = len([line for line in code.splitlines() if line.strip()])
    assert lines <= 135
    assert f"in {lines} lines" in PAGE
    files = {
        path.relative_to(ADDED).as_posix() for path in ADDED.rglob("*.*") if "__" not in path.parent.name
    }
    assert files - {"bonafed_auction/__pycache__"} == {
        "pyproject.toml", "bonafed_auction/__init__.py", "bonafed_auction/mechanism.py",
        "bonafed_auction/example.toml",
    }  # fmt: skip


def test_it_is_listed_before_anything_of_it_is_imported_that_trains(package):
    program = (
        "import sys; from bonafed.mechanisms import catalogue; listed = catalogue.entry('auction');"
        "print(listed.package, sorted({'torch', 'bonafed_auction', listed.module} & {*sys.modules}))"
    )
    out, err = started(package, program).communicate(timeout=300)
    assert (out, err) == ("bonafed-auction 1.0 ['bonafed_auction']\n", "")


def test_every_command_of_the_page_runs(package, tmp_path):
    lines = [line for block in blocks("shell") for line in block.replace("\\\n", "").splitlines()]
    commands = [shlex.split(line[2:]) for line in lines if line.startswith("$ ")]
    verbs = {words[1] for words in commands}
    assert verbs == {
        "quote", "verify", "settle", "report", "train", "statement", "audit", "compare", "runs",
    }  # fmt: skip
    costs = [0.7, 1.4, 0.6, 1.7, 0.9, 1.25, 0.8, 1.1, 1.3, 0.95]
    rows = "".join(f"{client},{cost}\n" for client, cost in enumerate(costs))
    (tmp_path / "reports.csv").write_text("client,cost\n" + rows)
    process = started(package, COMMANDS, json.dumps(commands), cwd=tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    said = dict(
        zip([" ".join(words) for words in commands], re.split(r"^\$ .*$", out, flags=re.M)[1:], strict=True)
    )
    assert "At most 90.00 is spent, in every run." in said[" ".join(commands[0])]
    assert "Every check holds." in said["bonafed verify contract.json --cost 0.9"]
    for name in ("train auction.toml", "statement runs/published --csv statement.csv --plot statement.png"):
        assert "promised in every run" in said[f"bonafed {name}"]
    assert "the lowest costs take part" in said["bonafed quote --help"]
    assert "Money for the whole run, never exceeded" in said["bonafed audit auction --help"]
    assert "FAILS" not in out
    for name in ("statement.png", "compare.png", "runs.png", "statement.csv", "contract.html", "terms.csv"):
        assert (tmp_path / name).stat().st_size > 0
    statement = folder.read_json(tmp_path / "runs" / "published", folder.SUMMARY)["statement"]
    # 0.6, 0.7 and 0.8 have the seats, at 0.9: 20 deliveries of each
    assert statement["amounts"] == [1800 if cost <= 0.8 else 0 for cost in costs]
    assert statement["columns"]["payment"] == [0.9 if cost <= 0.8 else 0.0 for cost in costs]


def test_a_notebook_needs_no_package(tmp_path):
    config = MODULES / "example.toml"
    program = f"""
import bonafed
from bonafed_auction.mechanism import SLICE, AuctionContract, Offer
bonafed.register(SLICE, formats=["auction-contract"])
offer = AuctionContract.of(Offer(3, 90.0, bonafed.Uniform(0.5, 1.5)), clients=10, rounds=20)
offer.write("contract.json")
print(bonafed.read_contract("contract.json").digest == offer.digest)
print(bonafed.train({str(config)!r}).statement.mechanism)
"""
    out, err = started(ADDED, program, cwd=tmp_path).communicate(timeout=300)
    assert (out, err) == ("True\nauction\n", "")


def test_a_contract_that_was_edited_is_no_longer_the_one_that_was_published(package, tmp_path):
    program = "from bonafed.cli import main; main()"
    terms = shlex.split("--clients 10 --rounds 20 --seats 3 --total-budget 90 --prior uniform:0,2")
    _, err = started(
        package, program, "quote", "auction", *terms, "--save", "c.json", cwd=tmp_path
    ).communicate(timeout=300)
    assert err == ""
    text = (tmp_path / "c.json").read_text()
    for before, after, name in (
        ('"seats": 3', '"seats": 0', "contract.seats"),
        ('"total_budget": 90.0', '"total_budget": 0.3', "contract.total_budget"),
        ('"reserve": 1.5', '"reserve": 1.6', "contract.total_budget"),
        ('"reserve": 1.5', '"reserve": 1.495', "contract.reserve"),
        ('"rounds": 20', '"rounds": 20.0', "contract.rounds"),
        ('"seats": 3', '"seats": 3, "coins": {"commitment": "x"}', "contract.coins.commitment"),
        ('"seats": 3', '"seats": 3, "more": 1', "contract.more"),
    ):
        (tmp_path / "edited.json").write_text(text.replace(before, after))
        process = started(package, program, "verify", "edited.json", cwd=tmp_path)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 2
        assert err.startswith(f"error: {name} ")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_killed_and_resumed_it_ends_with_the_same_bits(package, tmp_path):
    config = tmp_path / "c.toml"
    shutil.copy(MODULES / "example.toml", config)
    start = "from bonafed.cli import main; main()"
    longer = ["--set", "training.rounds=100", "--set", "auction.total_budget=450"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = started(package, start, "train", str(config), *longer, "--folder", str(whole))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    process = started(package, start, "train", str(config), *longer, "--folder", str(killed))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        metrics = killed / folder.METRICS
        if metrics.exists() and metrics.read_bytes().count(b"\n") > 10:
            break
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not folder.is_finished(killed)
    process = started(package, start, "train", "--resume", str(killed))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert ending(killed) == ending(whole)
    states = [folder.read_checkpoint(place).state for place in (killed, whole)]
    assert set(states[0]) == set(states[1])
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])


def ending(place):
    summary = {**folder.read_json(place, folder.SUMMARY), "seconds": 0}
    summary["statement"]["run"] = ""
    lines = [{**line, "seconds": 0} for line in folder.read_rounds(place)]
    return summary, lines, (place / folder.MODEL).read_bytes()
