"""The package of the page on adding a mechanism, installed into a folder as pip installs it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "add-a-mechanism.md").read_text(encoding="utf-8")
ADDED = ROOT / "docs" / "how-to" / "auction"
MODULES = ADDED / "bonafed_auction"


def blocks(kind: str) -> list[str]:
    """The page's blocks of a kind."""
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def installed(place: Path) -> Path:
    """The folder that the package was installed into: beside bonafed, of which no file is edited."""
    source, target = place / "source", place / "site"
    shutil.copytree(ADDED, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target
