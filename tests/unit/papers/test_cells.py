"""Cells: computed once, side by side or alone, kept until something they depend on changes."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from bonafed.papers import code
from bonafed.papers.cells import Cell, compute_all, data_digest, own_module, run_cell

TABLES = {
    "data": {"name": "digits"},
    "partition": {"clients": 3},
    "model": {"name": "softmax"},
    "training": {"rounds": 3, "learning_rate": 0.1, "batch_size": 64},
    "run": {"seed": 1},
}
SQUARES = """
import os, signal
from pathlib import Path

def square(arguments, folder):
    "Its square."
    log = Path(arguments["log"])
    log.write_text(log.read_text() + "x" if log.exists() else "x")
    if arguments["x"] == 13:
        raise ValueError("unlucky")
    if arguments["x"] == 17:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": arguments["x"] ** 2, "process": os.getpid()}
"""


@pytest.fixture
def square(tmp_path):
    path = tmp_path / "squares.py"
    path.write_text(SQUARES)
    module = own_module(path)

    def cell(x, weight=1.0):
        log = str(tmp_path / f"log-{x}")
        return Cell(f"square of {x}", module.square, {"x": x, "log": log}, weight=weight)

    return cell


def calls(tmp_path, x):
    return len((tmp_path / f"log-{x}").read_text())


@pytest.mark.parametrize("cores", [1, 2])
def test_a_cell_is_computed_once(tmp_path, square, cores):
    cells = {"a": square(3), "b": square(4), "again": square(3)}
    told = []
    first = compute_all(cells, tmp_path / "kept", cores, told.append)
    assert {key: result["square"] for key, result in first.results.items()} == {"a": 9, "b": 16, "again": 9}
    assert (told[-1].done, told[-1].total, told[-1].left) == (2, 2, 0)
    assert compute_all(cells, tmp_path / "kept", cores, pytest.fail).results == first.results
    assert calls(tmp_path, 3) == calls(tmp_path, 4) == 1


@pytest.mark.parametrize("cores", [1, 2])
def test_a_cell_that_fails_costs_no_other(tmp_path, square, cores):
    done = compute_all({x: square(x) for x in (13, 2, 3)}, tmp_path / "kept", cores)
    assert sorted(done.results) == [2, 3]
    assert "ValueError: unlucky" in done.failures[13]


def test_a_process_that_is_killed_costs_no_other(tmp_path, square):
    done = compute_all({x: square(x) for x in (17, 2, 3)}, tmp_path / "kept", 2)
    assert sorted(done.results) == [2, 3]
    assert done.failures == {17: f"its process ended with {-signal.SIGKILL}"}
    assert done.results[2]["process"] != os.getpid()


def test_what_cannot_be_read_is_computed_again(tmp_path, square):
    cells = {3: square(3)}
    compute_all(cells, tmp_path / "kept", 1)
    (kept,) = (tmp_path / "kept").rglob("result.json")
    whole = kept.read_bytes()
    edited = whole.replace(b'"square": 9', b'"square": 8')
    assert edited != whole
    nothing = json.dumps({**json.loads(whole), "result": None}).encode()
    for damage in (b"", b"{", b"[]", edited, nothing):
        kept.write_bytes(damage)
        told = []
        assert compute_all(cells, tmp_path / "kept", 1, told.append).results[3]["square"] == 9
        notes = [progress.note for progress in told if progress.note]
        assert notes == [f"{kept} is damaged: its cell is computed again"]
    assert calls(tmp_path, 3) == 6


@pytest.mark.parametrize("cores", [1, 2])
def test_what_was_computed_while_its_code_changed_is_not_kept(tmp_path, square, cores):
    """A claim of one's own that is saved in the middle of a run."""
    path = tmp_path / "squares.py"
    path.write_text(
        SQUARES.replace(
            "    return {", "    Path(__file__).write_text(Path(__file__).read_text() + '#')\n    return {"
        )
    )
    sys.modules.pop(own_module(path).__name__)
    module = own_module(path)
    cell = Cell("square", module.square, {"x": 2, "log": str(tmp_path / "log")})
    other = Cell("square", module.square, {"x": 3, "log": str(tmp_path / "log")})
    done = compute_all({2: cell, 3: other}, tmp_path / "kept", cores)
    assert "its code was changed while it was computed" in done.failures.values()


def test_what_cells_need_does_not_leak(tmp_path, square):
    """Processes that the user starts later find their modules as before."""
    before = dict(os.environ)
    assert not compute_all({1: square(1), 2: square(2)}, tmp_path / "kept", 2).failures
    assert dict(os.environ) == before


def test_files_beside_the_user_are_not_imported(tmp_path):
    """A process that computes must not run what happens to lie in the folder it was started in."""
    (tmp_path / "squares.py").write_text(SQUARES)
    (tmp_path / "grp.py").write_text("from pathlib import Path\nPath('ran').write_text('')\n")
    program = (
        "import sys; sys.path = [place for place in sys.path if place]\n"
        "from pathlib import Path; from bonafed.papers.cells import Cell, compute_all, own_module\n"
        "square = own_module(Path('squares.py')).square\n"
        "cells = {x: Cell('square', square, {'x': x, 'log': f'log-{x}'}) for x in (2, 3)}\n"
        "print(compute_all(cells, Path('kept'), 2).failures)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "{}\n"
    assert not (tmp_path / "ran").exists()


def test_a_run_is_a_cell(tmp_path):
    cells = {seed: run_cell(f"seed {seed}", {**TABLES, "run": {"seed": seed}}, metrics=["test_loss"])
             for seed in (1, 2)}  # fmt: skip
    alone = compute_all(cells, tmp_path / "a", 1)
    beside = compute_all(cells, tmp_path / "b", 2)
    assert not alone.failures
    for seed in cells:
        one, two = (dict(done.results[seed], seconds=0) for done in (alone, beside))
        assert one == two
        assert len(one["metrics"]["test_loss"]) == one["rounds"] == 3
    assert not list(tmp_path.rglob("metrics.jsonl"))  # a finished run leaves its result only


def test_cells_that_differ_in_anything_are_kept_apart(square):
    other = {**TABLES, "training": {**TABLES["training"], "rounds": 4}}
    names = [
        run_cell("a", TABLES).folder, run_cell("a", other).folder, square(3).folder, square(4).folder,
        run_cell("a", TABLES, metrics=["spend"]).folder,
    ]  # fmt: skip
    assert len(set(names)) == 5
    cores = {**TABLES, "run": {"seed": 1, "cores": 2}}
    assert run_cell("a", cores).folder == names[0]
    assert run_cell("s 100, money 1", TABLES).folder.startswith("s-100-money-1-")


def test_another_mechanism_is_other_code():
    ours, theirs = (run_cell("a", tables).code for tables in (TABLES, {**TABLES, "faithful": {}}))
    assert code.code_digest(ours) != code.code_digest(theirs)


def test_data_count_by_their_samples(tmp_path):
    x, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
    digests = set()
    for number, features in enumerate((x, x + 1, x)):
        path = tmp_path / f"{number}.npz"
        np.savez(path, features=features, labels=y, test_features=features, test_labels=y)
        digests.add(data_digest(str(path)))
    assert len(digests) == 2
    owned = tmp_path / "owned.npz"
    np.savez(
        owned, features=x, labels=y, test_features=x, test_labels=y, groups=np.array([0, 0, 0, 1, 1, 1])
    )
    assert data_digest(str(owned)) not in digests


# The digest of code


def digest_of(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text))
    code._digest.cache_clear()
    for function in (code._tree, code._code_of, code._imports):
        function.cache_clear()
    return code.code_digest([str(path)])


def test_comments_and_docstrings_do_not_count(tmp_path):
    file = tmp_path / "own.py"
    plain = digest_of(file, "def f(x):\n    return x + 1\n")
    assert plain == digest_of(file, '"""About."""\n\ndef f(x):  # why\n    """What."""\n    return x + 1\n')
    assert plain != digest_of(file, "def f(x):\n    return x + 2\n")
    assert plain != digest_of(file, "def f(x):\n    return 'x' + 1\n")


def test_what_is_imported_counts_however_deep(tmp_path):
    file = tmp_path / "own.py"
    without = digest_of(file, "import json\n")
    deep = digest_of(file, "def f():\n    from bonafed.economics import priors\n")
    assert without != deep
    assert "bonafed.checks" in code._closure([str(file)])
    hints = digest_of(
        file,
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bonafed.economics import priors\n",
    )
    assert hints != deep
    assert code._closure([str(file)]) == {str(file)}


def test_neither_drawing_nor_reading_counts():
    counted = code._closure(["bonafed.runs.training", "bonafed.runs.prepare"])
    assert "bonafed.learning.engine.jobs" in counted
    assert not {name for name in counted if name.endswith((".style", ".figures", ".shown", ".datasets"))}


def test_what_is_kept_is_plain(tmp_path, square):
    compute_all({3: square(3)}, tmp_path / "kept", 1)
    (kept,) = (tmp_path / "kept").rglob("result.json")
    assert set(json.loads(kept.read_bytes())) == {"name", "arguments", "result", "sha256", "seconds"}


# Words that only people read


def code_digest_of(path, text):
    path.write_text(text)
    code._tree.cache_clear()
    code._code_of.cache_clear()
    return code._code_of(str(path))


SPEAKING = '''
from bonafed.errors import InvalidValue
from bonafed.sections import key


def rate(name, value):
    """Between 0 and 1."""
    if not 0 <= value <= 1:
        rule = f"must be between 0 and 1 in round {value + 1}"
        raise InvalidValue(name, rule, value)
    if value == 0.5:
        raise InvalidValue("rate", "must not be a half", value)
    kind = "plain"
    return value if kind == "plain" else 2 * value


share = key(rate, 0.1, help="Share of the clients.", metavar="X")
other = {"check": rate, "help": "Likewise."}
tables = {"the clients that take part": 1}
several = "the clients that take part" in tables and tables["all who take part too"]
label = "a label with many words".encode()
said = f"{share} of the clients that are there"
'''


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("Between 0 and 1.", "From 0 to 1.", False),
        ("must be between 0 and 1 in round", "is not a share in round", False),
        ("must not be a half", "is a half: take another", False),
        ("Share of the clients.", "How many of the clients.", False),
        ('metavar="X"', 'metavar="SHARE"', False),
        ("Likewise.", "The same.", False),
        ("0 <= value", "1 <= value", True),
        ("0 <= value", "0 < value", True),
        ("value + 1", "value + 2", True),
        ("rate, 0.1", "rate, 0.2", True),
        ('kind = "plain"', 'kind = "twice"', True),
        ('== "plain"', '== "twice"', True),
        ('InvalidValue("rate"', 'InvalidValue("share"', True),
        ("2 * value", "3 * value", True),
        ('{"the clients that', '{"those clients that', True),
        ('"the clients that take part" in', '"the clients who take part" in', True),
        ("all who take part too", "all of whom take part", True),
        ("a label with many words", "a label with other words", True),
        ("of the clients that are there", "of all clients that are there", False),
    ],
)
def test_words_do_not_count_and_code_does(tmp_path, before, after, counts):
    file = tmp_path / "own.py"
    assert SPEAKING.count(before) == 1
    one, other = code_digest_of(file, SPEAKING), code_digest_of(file, SPEAKING.replace(before, after))
    assert (one != other) == counts


def test_a_line_of_the_catalogue_does_not_count():
    """A cell names the mechanism that it runs; that there are others changes nothing."""
    assert code._closure(["bonafed.runs.prepare", "bonafed.mechanisms.catalogue"]) == code._closure(
        ["bonafed.runs.prepare"]
    )
    (slice_module,) = (
        name for name in run_cell("a", {**TABLES, "faithful": {}}).code if "faithful" in name
    )
    assert slice_module in code._closure([slice_module])


def texts_emptied(tree):
    """A copy in which every text is empty and parts of texts that are put together are gone."""
    for node in code.ast.walk(tree):
        if isinstance(node, code.ast.JoinedStr):
            node.values = [part for part in node.values if not isinstance(part, code.ast.Constant)]
        if isinstance(node, code.ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return code.ast.dump(tree)


def test_of_all_modules_that_runs_depend_on_only_texts_are_left_out():
    """No number, operator or name of what is computed is ever left out of a digest."""
    silenced = 0
    for name in code._closure(["bonafed.runs.training"]):
        source = code._source(name).read_bytes()
        whole, counted = code.ast.parse(source), code._without_prose(code.ast.parse(source))
        silenced += code.ast.dump(counted) != code.ast.dump(whole)
        assert texts_emptied(counted) == texts_emptied(whole)
    assert silenced > 20
