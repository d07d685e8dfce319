"""Nothing is defined in `src` that no command, page, benchmark or other room uses: tests do not count.

A name is used where it is read in another place than its own definition, a list of exports, a docstring or
an import; in the code of a page of the documentation, of which one lists the public names; or in a
benchmark. What a library calls by its name is in `CALLED_BY_LIBRARIES`.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
CALLED_BY_LIBRARIES = {
    "format_commands": "click asks a group for its list of commands",
    "_repr_png_": "a notebook asks a value for its picture",
    "invoke": "click runs a group by it",
    "_options": "typer calls it before a command",
    "_repr_html_": "a notebook shows values by it",
}
FOR_THE_TESTS = {
    "read_circumstances": "the committed report is judged again from its own tables",
    "read_report": "the committed report is judged again from its own tables",
}


def _silent(tree: ast.Module) -> set[int]:
    """What reads no name: lists of exports, and docstrings."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
            found |= {id(part) for part in ast.walk(node.value)}
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            found.add(id(body[0].value))
    return found


def _used(tree: ast.Module) -> Counter[str]:
    """How often each name is read outside its own definition; exports, imports and docstrings aside."""
    silent, used = _silent(tree), Counter[str]()

    def visit(node: ast.AST, inside: frozenset[str]) -> None:
        if isinstance(node, KINDS):
            inside |= {node.name}
        names = []
        if isinstance(node, ast.Name):
            names = [node.id]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            names = [] if " " in node.value else re.findall(r"\w+", node.value)  # looked up by name
        used.update(name for name in names if name not in inside)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(tree, frozenset())
    return used


def _code_in(page: str) -> str:
    """The code of a page: a word of its sentences uses nothing."""
    blocks = re.findall(r"```[\s\S]*?```|^ {4}.*$|^(?:>>>|\.\.\.) .*$", page, re.MULTILINE)
    return "\n".join([*blocks, *re.findall(r"`[^`\n]+`", page)])


def _defined(tree: ast.Module) -> set[str]:
    """Functions, classes and methods, but for special methods and what a decorator registers."""
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, KINDS)
        if not node.name.startswith("__")
        if not any(".command" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def unused(sources: list[str], pages: str, users: Iterable[str] = ()) -> set[str]:
    """What is defined in these modules, and used neither in one of them nor by `users` nor on the pages.

    What begins with an underscore is for its own module: there it is used, or it is what a base calls.
    """
    trees = [ast.parse(source) for source in sources]
    each = [_used(tree) for tree in trees]
    called = sum(map(_used, map(ast.parse, users)), Counter(re.findall(r"\w+", pages)))
    used = sum(each, called)
    left = set()
    for tree, mine in zip(trees, each, strict=True):
        defined = _defined(tree)
        left |= {name for name in defined if not used[name]}
        top = {node.name for node in tree.body if isinstance(node, KINDS)}
        methods = {
            part.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and not node.bases
            for part in node.body
            if isinstance(part, ast.FunctionDef)
        }
        own = {name for name in (top | methods) & defined if name.startswith("_")}
        left |= {name for name in own if not mine[name]}
    return left


def test_everything_is_used_by_something():
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]
    places = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pages = "\n".join(_code_in(path.read_text(encoding="utf-8")) for path in places)
    scripts = [*(ROOT / "docs").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    users = [path.read_text(encoding="utf-8") for path in scripts]
    left = unused(sources, pages, users)
    assert sorted(left) == sorted(CALLED_BY_LIBRARIES | FOR_THE_TESTS)


def test_what_is_only_defined_exported_imported_or_talked_about_is_found():
    one = (
        '__all__ = ["idle"]\n\ndef idle(): ...\n\ndef busy(): ...\n\nclass Quiet:\n    def hum(self): ...\n'
        'def again():\n    """again"""\n    return again()\n\ndef _mine(): ...\n'
    )
    other = "from one import idle\n\nbusy()\nprint(Quiet)\ndef _mine(): ...\n_mine()\n"
    assert unused([one, other], "") == {"idle", "hum", "again", "_mine"}
    assert unused([one, other], _code_in("call `hum` once, idle again")) == {"idle", "again", "_mine"}
    assert unused([one, other], "", ["idle(again)"]) == {"hum", "_mine"}
