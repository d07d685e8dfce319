"""A run killed by SIGKILL at random moments, and resumed, ends with the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bonafed.runs import config, folder, prepare, training

CONFIG = """
data = {name = "synthetic"}
partition = {kind = "natural"}
model = {name = "softmax"}
training = {rounds = 200, learning_rate = "proposition-1", steps = 4, batch_size = 16}
sampling = {prior = "uniform:0.5,1.5", total_budget = 1000}
run = {checkpoint_every = 3, cores = 2}
"""
KILLS = 3 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 2
START = [sys.executable, "-c", "from bonafed.cli import main; main()", "train"]


def lines(place):
    found = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path):
    path, place = tmp_path / "c.toml", tmp_path / "killed"
    path.write_text(CONFIG)
    asked = config.read(path)
    whole = tmp_path / "whole"
    training.train(prepare.prepare(asked), whole)
    dice = random.Random()  # other moments every time; the claim holds for all of them
    words, reached, codes = [str(path), "--folder", str(place)], [], []
    for kill in range(KILLS):
        size = (place / "metrics.jsonl").stat().st_size if place.exists() else 0
        process = subprocess.Popen([*START, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            if kill < KILLS - 1:
                _wait_for_a_round(place / "metrics.jsonl", size, process)
                time.sleep(dice.uniform(0, 0.3))
            else:
                time.sleep(dice.uniform(0, 3))  # perhaps before it has looked at the folder
        finally:
            process.kill()
            process.communicate()
        reached.append((place / "metrics.jsonl").read_bytes().count(b"\n"))
        codes.append(process.returncode)
        words = ["--resume", str(place)]
    assert codes[0] == -signal.SIGKILL  # it was in the middle
    assert set(codes) <= {-signal.SIGKILL, 0}
    done = subprocess.run([*START, "--resume", str(place)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line["round"] for line in lines(place)] == list(range(1, 201)), reached
    assert lines(place) == lines(whole), reached
    ended, expected = folder.read_checkpoint(place), folder.read_checkpoint(whole)
    assert set(ended.state) == set(expected.state)
    for name, values in expected.state.items():
        assert np.array_equal(ended.state[name], values), (name, reached)
    assert (place / "model.pt").read_bytes() == (whole / "model.pt").read_bytes()
    one, other = (folder.read_json(p, "summary.json") for p in (place, whole))
    for summary in (one, other):
        summary["seconds"] = summary["statement"]["run"] = None  # the folder's name
    assert one == other


def _wait_for_a_round(path, size, process):
    """Until the file differs in size from what the last process left, or the process has ended."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.stat().st_size not in (0, size):
            return
        time.sleep(0.005)
    assert process.poll() == 0, process.stderr.read().decode()
