"""The public names are those of `docs/public.md`: few, and changed only on purpose."""

import ast
import importlib
import re

import pytest
from tests.oracles.packages import MODULES, ROOT

from bonafed.mechanisms.catalogue import CATALOGUE

PAGE = (ROOT / "docs" / "public.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def rows(section):
    """The names that a section lists by module."""
    found = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", SECTIONS[section], re.MULTILINE)
    return {module: re.findall(r"`(\w+)`", names) for module, names in found}


NAMES, BUILDING = rows("Names of Python"), rows("For a mechanism of your own")


@pytest.mark.parametrize("module", NAMES)
def test_public_names_are_as_listed(module):
    there = importlib.import_module(module)
    assert sorted(there.__all__) == NAMES[module]
    assert all(hasattr(there, name) for name in there.__all__)


def test_the_modules_are_those_that_users_import():
    mechanisms = {f"bonafed.mechanisms.{entry.table}" for entry in CATALOGUE.values() if entry.table}
    front = {"bonafed", "bonafed.economics"}
    assert front <= {*NAMES} <= front | mechanisms
    assert len(NAMES) == 6


@pytest.mark.parametrize("module", BUILDING)
def test_what_a_mechanism_is_built_of_is_there(module):
    there = importlib.import_module(module)
    assert all(hasattr(there, name) for name in BUILDING[module])


def test_the_mechanism_of_the_how_to_page_uses_nothing_else():
    for path in MODULES.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("bonafed"):
                continue
            for name in (item.name for item in node.names):
                listed = (NAMES | BUILDING).get(node.module, [])
                assert name in listed or f"{node.module}.{name}" in BUILDING, f"{node.module}.{name}"


def test_tables_and_formats_are_listed():
    for entry in CATALOGUE.values():
        assert entry.table is None or f"`{entry.table}`" in SECTIONS["Configs"]
        for kind in entry.formats:
            assert f"| contract of `{entry.name}` | `{kind}` | 1 |" in SECTIONS["Files"]
