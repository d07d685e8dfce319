"""The page on adding a mechanism does what it says: a copy of the package with the folder and the line."""

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
from tests.oracles.packages import ADDED, added, blocks

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
    """Where a copy of the package lies, with the folder of the page and its line in the catalogue."""
    return added(tmp_path_factory.mktemp("package"))


def started(package, *words, **about):
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", *words]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **about
    )


def test_the_page_shows_the_whole_mechanism():
    code = (ADDED / "slice.py").read_text(encoding="utf-8")
    assert blocks("python") == [code]
    assert blocks("toml") == [(ADDED / "example.toml").read_text(encoding="utf-8")]
    assert len([line for line in code.splitlines() if line.strip()]) <= 80
    assert {path.name for path in ADDED.iterdir()} - {"__pycache__"} == {
        "__init__.py", "slice.py", "example.toml",
    }  # fmt: skip


def test_every_command_of_the_page_runs(package, tmp_path):
    commands = [
        shlex.split(line[2:])
        for block in blocks("shell")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    verbs = {words[1] for words in commands}
    assert verbs == {"train", "statement", "audit", "compare", "runs"}
    process = started(package, COMMANDS, json.dumps(commands), cwd=tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    said = dict(
        zip([" ".join(words) for words in commands], re.split(r"^\$ .*$", out, flags=re.M)[1:], strict=True)
    )
    for words, text in said.items():
        assert "price-lottery" in text or "wrote" in text, words
    assert "54.00 spent of 60.00" in said["bonafed train price-lottery.toml"]
    assert "a price for taking part" in said["bonafed audit --help"]
    assert "Money for taking part in a round" in said["bonafed audit price-lottery --help"]
    assert "FAILS" not in out
    for name in ("statement.png", "compare.png", "runs.png", "statement.csv"):
        assert (tmp_path / name).stat().st_size > 0


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_killed_and_resumed_it_ends_with_the_same_bits(package, tmp_path):
    config = tmp_path / "c.toml"
    shutil.copy(ADDED / "example.toml", config)
    start = "from bonafed.cli import main; main()"
    longer = ["--set", "training.rounds=100", "--set", "price_lottery.budget=270"]
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
