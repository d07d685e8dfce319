"""Which tests are tried as other processors compute them, and what is said of a setting."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests import processors
from tests.processors import FEW, ROOT, SETTINGS

CHOSEN = set(processors.selected())
LIBRARIES = {"numpy", "scipy", "torch"}


def imported(path: Path) -> set[str]:
    """The packages that a file imports, anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_no_test_that_computes_is_left_out():
    """By what files import, as the rule goes by what they say."""
    tests = set((ROOT / "tests").rglob("test_*.py"))
    for folder in processors.ELSEWHERE:
        tests -= set((ROOT / "tests" / folder).iterdir())
    computing = {path for path in tests if imported(path) & LIBRARIES}
    assert len(computing) > 100
    assert computing <= CHOSEN


def test_pages_and_modules_that_print_digits_are_tried():
    assert ROOT / "README.md" in CHOSEN
    assert ROOT / "docs" / "theory" / "sampling.md" in CHOSEN
    assert ROOT / "src" / "bonafed" / "economics" / "priors.py" in CHOSEN


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("import numpy as np\n", True),
        ("from pytest import approx\n", True),
        ("from tests.helper import close\n", True),
        ("from tests import helper\n", True),
        ("from tests.other import words\n", False),
    ],
)
def test_a_new_test_file_is_chosen_by_what_it_uses(tmp_path, text, chosen):
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "README.md").write_text(">>> 2 + 1\n3\n")
    (tmp_path / "docs" / "page.md").write_text("    >>> x = 1\n    >>> x / 3\n    0.333\n")
    (tmp_path / "tests" / "helper.py").write_text("import torch\n")
    (tmp_path / "tests" / "other.py").write_text("words = 3\n")
    new = tmp_path / "tests" / "unit" / "test_new.py"
    new.write_text(text)
    assert processors.selected(tmp_path) == [*([new] if chosen else []), tmp_path / "docs" / "page.md"]


def test_every_test_keeps_few_sets_of_parameters_the_first_and_the_last_among_them():
    items = [SimpleNamespace(nodeid=f"test_a[{k}]") for k in range(50)]
    items.append(SimpleNamespace(nodeid="test_b"))
    kept, left_out = processors.thinned(items)
    assert len(kept) == FEW + 1
    assert {"test_a[0]", "test_a[49]", "test_b"} <= {item.nodeid for item in kept}
    assert len(kept) + len(left_out) == len(items)


def test_a_setting_that_the_processor_lacks_or_that_takes_no_effect_is_skipped_by_name(monkeypatch):
    native, default, avx2, *_ = SETTINGS
    monkeypatch.setattr(processors, "effects", lambda _: {"ATen": "AVX512"})
    assert processors.skipped(native, frozenset()) == ""
    assert processors.skipped(avx2, frozenset({"sse4_1"})) == "this processor has no avx2"
    assert processors.skipped(default, frozenset()) == "took no effect: ATen uses AVX512, not DEFAULT"


def test_a_setting_has_its_own_variables_and_nobody_elses(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    native, default, avx2, onednn, openblas = map(processors.environment, SETTINGS)
    assert not {"ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY"} & set(native)
    assert default["ATEN_CPU_CAPABILITY"] == "default"
    assert (avx2["ATEN_CPU_CAPABILITY"], avx2["MKL_ENABLE_INSTRUCTIONS"]) == ("avx2", "AVX2")
    assert (avx2["ONEDNN_MAX_CPU_ISA"], onednn["ONEDNN_MAX_CPU_ISA"]) == ("AVX2", "SSE41")
    assert openblas["OPENBLAS_CORETYPE"] == "Haswell"


def test_settings_of_different_libraries_are_tried_together_and_none_is_lost():
    groups = processors.together(SETTINGS[1:])
    assert len(groups) == 2
    for group in groups:
        alone = [one for one in SETTINGS[1:] if one.name in group.name]
        assert sum(len(one.variables) for one in alone) == len(group.variables)  # none stands over another
        assert all(one.variables.items() <= group.variables.items() for one in alone)
        assert all(one.shows.items() <= group.shows.items() for one in alone)
    assert all(any(one.name in group.name for group in groups) for one in SETTINGS[1:])
    assert processors.together([]) == []
