"""Nothing is defined in `src` that no command, page, benchmark or other room uses: tests do not count.

A name is used where it is read in another place than its own definition, a list of exports or an import; in
code or text of the documentation; in a benchmark; or where it is one of the public names. What a library
calls by its name is in `CALLED_BY_LIBRARIES`.
"""

import ast
import re
from collections import Counter
from pathlib import Path

from tests.unit import test_public_names

ROOT = Path(__file__).parents[2]
CALLED_BY_LIBRARIES = {
    "format_commands": "click asks a group for its list of commands",
    "_repr_png_": "a notebook asks a value for its picture",
    "reset": "pooch calls it on a progress bar",
}
FOR_THE_TESTS = {
    "read_circumstances": "the committed report is judged again from its own tables",
    "read_report": "the committed report is judged again from its own tables",
}


def _used(tree: ast.Module) -> Counter[str]:
    """How often each name is read, exports and imports aside."""
    exports = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets)
        for part in ast.walk(node.value)
    }
    used: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            used[node.id] += 1
        elif isinstance(node, ast.Attribute):
            used[node.attr] += 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in exports:
            looked_up = "" if " " in node.value else node.value
            used.update(re.findall(r"\w+", looked_up))
    return used


def _defined(tree: ast.Module) -> set[str]:
    """Functions, classes and methods, but for special methods and what a decorator registers."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        if not node.name.startswith("__")
        if not any(".command" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def unused(sources: list[str], pages: str) -> set[str]:
    """What is defined in these modules, and used neither in one of them nor on the pages."""
    trees = [ast.parse(source) for source in sources]
    used = sum((_used(tree) for tree in trees), Counter(re.findall(r"\w+", pages)))
    return {name for tree in trees for name in _defined(tree) if not used[name]}


def test_everything_is_used_by_something():
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]
    places = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.py")]
    pages = "\n".join(
        path.read_text(encoding="utf-8") for path in [*places, *(ROOT / "benchmarks").rglob("*.py")]
    )
    public = [
        getattr(test_public_names, name) for name in ("TOP", "ECONOMICS", "SAMPLING", "JSAM", "FAITHFUL")
    ]
    left = unused(sources, "\n".join([pages, *public]))
    assert sorted(left) == sorted(CALLED_BY_LIBRARIES | FOR_THE_TESTS)


def test_what_is_only_defined_exported_or_imported_is_found():
    one = (
        '__all__ = ["idle"]\n\ndef idle(): ...\n\ndef busy(): ...\n\nclass Quiet:\n    def hum(self): ...\n'
    )
    other = "from one import idle\n\nbusy()\nprint(Quiet)\n"
    assert unused([one, other], "") == {"idle", "hum"}
    assert unused([one, other], "call `hum` once") == {"idle"}
