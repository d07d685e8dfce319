"""Every script in benchmarks/ runs its smallest case and imports what there is; failed workers say why."""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2] / "benchmarks"
FILES = sorted(path.relative_to(HOME).as_posix() for path in HOME.rglob("*.py"))
SCRIPTS = [name for name in FILES if "/" not in name and "__main__" in (HOME / name).read_text()]
ROOTS = ("bonafed", "benchmarks", "tests")  # packages that are here, whatever else is installed


@pytest.fixture(autouse=True)
def as_a_script(monkeypatch):
    """Imports as `python benchmarks/<script>.py` and `python -m benchmarks.<script>` find them."""
    before = set(sys.modules)
    for folder in (HOME.parent, HOME / "peers", HOME):
        monkeypatch.syspath_prepend(str(folder))
    yield
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(HOME)):
            del sys.modules[name]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_its_smallest_case(name, capfd):
    """Without peers that must be installed. A script that is not listed here does not exist."""
    text = (HOME / name).read_text()
    module = importlib.import_module(f"benchmarks.{name[:-3]}" if "from benchmarks." in text else name[:-3])
    module.smallest()


@pytest.mark.parametrize("name", FILES)
def test_a_script_imports_what_there_is(name):
    """Also inside functions, and of workers whose peers are not installed."""
    here = {path.stem for path in (HOME / name).parent.glob("*.py")}
    wanted = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse((HOME / name).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if node.module.partition(".")[0] in {*ROOTS, *here}
    ]
    for place, what in wanted:
        if place in here:  # may need a peer: it is read, not run
            assert what in defined((HOME / name).with_name(f"{place}.py")), f"{place} has no {what}"
            continue
        found = importlib.import_module(place)
        assert hasattr(found, what) or importlib.util.find_spec(f"{place}.{what}"), f"{place} has no {what}"


def defined(path):
    """The names that a file has at its top."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return names


def failing(folder, monkeypatch):
    """`training`, with an engine whose worker dies as `peers/engine_rounds.py` did."""
    training = importlib.import_module("training")
    script = folder / "broken_rounds.py"
    script.write_text("from bonafed.learning.rounds import averaged\n")
    broken = replace(training.ENGINE, script=str(script))
    monkeypatch.setattr(training, "ENGINE", broken)
    return training, training.Setting("softmax", 2, 64, "equal", False)


def test_a_worker_that_fails_says_why_and_where(tmp_path, monkeypatch):
    training, setting = failing(tmp_path, monkeypatch)
    with pytest.raises(sys.modules["harness"].WorkerFailed) as caught:
        training.measure(setting, (), 1, 1.0, tmp_path)
    told = str(caught.value)
    assert told.startswith("softmax/2/64/equal/plain: bonafed failed: ")
    assert f'"{tmp_path}/broken_rounds.py", line 1' in told
    assert "ImportError: cannot import name 'averaged' from 'bonafed.learning.rounds'" in told


def test_a_peer_that_fails_has_its_reason_in_its_row(tmp_path, monkeypatch):
    training, setting = failing(tmp_path, monkeypatch)
    broken = replace(training.ENGINE, name="loop")
    with pytest.raises(training.NotMeasured) as caught:
        training.Worker(broken, tmp_path / "case.npz", tmp_path)
    ours, missing = {"bonafed": [training.Turn(1.0, 1.0, 1.0)]}, {"loop": str(caught.value)}
    measured = training.Measured(ours, {}, {}, missing)
    (row,) = (row for row in training.rows(setting, measured) if row.peer == "loop")
    assert row.note.startswith("not measured: failed: ")
    assert "line 1" in row.note
    assert "cannot import name 'averaged'" in row.note


def test_a_version_that_fails_says_why(tmp_path):
    private_noise = importlib.import_module("private_noise")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "private_noise.py").write_text("raise ImportError('averaged is gone')\n")
    version = private_noise.Version(tmp_path / "src", "softmax")
    with pytest.raises(sys.modules["harness"].WorkerFailed, match=r"line 1.*ImportError: averaged is gone"):
        version.ask()
    version.stop()


@pytest.mark.parametrize("page", sorted(path.name for path in HOME.glob("*.md")))
def test_a_page_names_the_commit_that_was_measured(page):
    text = (HOME / page).read_text()
    if page == "training-rows.md":
        assert "[training.md](training.md)" in text  # where they are named
        return
    assert re.search(r"[Cc]ommit [0-9a-f]{7}\b", text)


def test_a_table_names_the_commit(monkeypatch):
    harness = importlib.import_module("harness")
    named = harness.commit().removesuffix(" with changes")
    head = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(head, cwd=HOME, capture_output=True, text=True)
    assert named == (done.stdout.strip() or "unknown")
    assert harness.machine()["commit"].startswith(named)
