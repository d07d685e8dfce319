"""The short form of the campaigns, and what they must catch; `make campaign` runs the long one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.kinds import SHORT

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


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """What the short form and the controls say, in one process; and where failed cases are kept."""
    failed = tmp_path_factory.mktemp("failed")
    return campaign("--short", "--controls", "--failed", str(failed)), failed


def test_nothing_fails_in_the_short_form(short):
    out, failed = short
    assert out.count(", 0 failures, ") >= 4
    assert not any(failed.iterdir())


def test_what_is_broken_on_purpose_is_caught(short):
    assert "controls: 10 of 10 caught" in short[0]


@pytest.mark.deep
def test_nothing_fails_in_a_longer_form(tmp_path):
    kinds = [word for name in SHORT for word in ("--kind", name)]
    out = campaign(*kinds, "--cases", "80", "--failed", str(tmp_path))
    assert out.count(", 0 failures, ") >= 4
    assert not any(tmp_path.iterdir())
