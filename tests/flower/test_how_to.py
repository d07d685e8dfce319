"""The page on real federations is true: its commands run as they stand, and leave no process behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from bonafed.flower.participating import free_port
from tests.flower.harness import Trial

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-a-federation.md"
ADDRESS = "127.0.0.1:9092"  # on the page; here a port that is free
PATIENCE = 1800  # seconds: a page that waits for what never comes is a failure, not a hang
AGREED = "4 of 4 participants' own ledgers say the same"


def script() -> str:
    """All commands of the page, in order; the first that fails ends them."""
    text = PAGE.read_text(encoding="utf-8")
    commands = re.findall(r"^```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert ADDRESS in commands[0]
    return "set -e\n" + "".join(commands).replace(ADDRESS, f"127.0.0.1:{free_port()}")


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    (tmp_path / "page.sh").write_text(script(), encoding="utf-8")
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (tmp_path / "page.log").open("wb") as log:
        page = subprocess.Popen(
            ["bash", "page.sh"], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
            env={**os.environ, "PATH": here, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        )  # fmt: skip
    try:
        code = page.wait(PATIENCE)
    finally:
        with suppress(ProcessLookupError):  # everything has ended
            os.killpg(page.pid, signal.SIGTERM)
        said = (tmp_path / "page.log").read_text(encoding="utf-8", errors="replace")
    assert code == 0, said[-4000:]
    assert Trial(tmp_path / "clinics").processes() == []
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir() if (path / "summary.json").is_file())
    assert runs == [
        "absent", "coins", "digits", "faithful", "here", "jsam", "killed", "plain", "private", "rewards",
        "sampling", "sums",
    ]  # fmt: skip
    assert said.count(AGREED) >= len(runs) - 1  # all but the one on this machine
    assert "DISPUTED" not in said
    for clinic in ("north", "south", "east", "west"):
        assert (tmp_path / f"{clinic}.log").read_text().splitlines()[-1] == "stopped"


def test_the_settings_shown_are_those_that_are_made(tmp_path: Path) -> None:
    """But for the comment at the top, and what the page says is filled in."""
    from bonafed.flower.folder import NewFederation, make_federation

    (shown,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    make_federation(tmp_path / "clinics", NewFederation(("north",), ADDRESS))
    made = (tmp_path / "clinics" / "members" / "north" / "me.toml").read_text(encoding="utf-8")
    _, _, made = made.partition("\n\n")
    assert shown == made.replace("# classes = 2", "classes = 2").replace("# cost = 1.0", "cost = 0.61")
