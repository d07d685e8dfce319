"""The short form of the campaigns, and what they must catch; `make campaign` runs the long one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="campaigns need Linux")


def campaign(*words):
    """In a process of its own: cases are forked, which a process with threads should not be."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaign", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def test_nothing_fails_in_the_short_form(tmp_path):
    out = campaign("--short", "--failed", str(tmp_path))
    assert out.count(", 0 failures, ") >= 4
    assert not any(tmp_path.iterdir())


def test_what_is_broken_on_purpose_is_caught():
    assert "controls: 10 of 10 caught" in campaign("--controls")
