"""What the code is made of, room by room: files, code, imports, docstrings, and what stands twice.

    python benchmarks/shape.py [FOLDER] [--depth 2]

Code is every line with a token on it that is neither a comment nor part of a docstring. An import inside
a function counts as such; a module imported only for type checking does not. A repeated run is six or more
lines of code, alike but for white space, in two places; a pair of files counts once.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path

_REPEATED = 6  # lines of code
_COMMON = 8  # places: a run in more of them is an idiom, not a repetition
_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass
class Shape:
    """What a room holds."""

    files: int = 0
    lines: int = 0
    code: int = 0
    """Lines with a token that is neither comment nor docstring."""
    imports: int = 0
    """Lines of import statements."""
    docstrings: int = 0
    """Lines of docstrings."""
    short_docstrings: int = 0
    """Docstrings of three words or fewer."""
    inner_imports: int = 0
    """Import statements inside functions."""
    longest: int = 0
    """Lines of the longest file."""

    def add(self, other: Shape) -> None:
        """Take in what another file or room holds."""
        for field in fields(self):
            pick = max if field.name == "longest" else sum
            mine, its = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, pick((mine, its)))


def docstring_nodes(tree: ast.Module) -> Iterator[ast.Constant]:
    """The constants that are docstrings: first statements of modules, classes and functions."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
        ):
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.value


def span(node: ast.stmt | ast.expr) -> range:
    """The numbers of the lines that a node takes."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def inner_imports(tree: ast.Module) -> int:
    """Import statements inside functions."""
    inside: set[ast.stmt] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside |= {one for one in ast.walk(node) if isinstance(one, ast.Import | ast.ImportFrom)}
    return len(inside)


def read(path: Path) -> tuple[Shape, list[str]]:
    """The shape of a file, and its lines of code but for imports, without white space at their ends."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = text.splitlines()
    documented: set[int] = set()
    short = 0
    for constant in docstring_nodes(tree):
        documented |= set(span(constant))
        short += len(str(constant.value).split()) <= 3
    code = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _SILENT
        for number in range(token.start[0], token.end[0] + 1)
    } - documented
    imports = {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for number in span(node)
    }
    shape = Shape(
        files=1,
        lines=len(lines),
        code=len(code),
        imports=len(imports),
        docstrings=len(documented),
        short_docstrings=short,
        inner_imports=inner_imports(tree),
        longest=len(lines),
    )
    return shape, [lines[number - 1].strip() for number in sorted(code - imports)]


def repeated_pairs(code: dict[Path, list[str]]) -> int:
    """Pairs of files that share a run of code."""
    places: dict[tuple[str, ...], set[Path]] = defaultdict(set)
    for path, lines in code.items():
        telling = [line for line in lines if any(letter.isalnum() for letter in line)]
        for start in range(len(telling) - _REPEATED + 1):
            places[tuple(telling[start : start + _REPEATED])].add(path)
    pairs = {
        pair
        for paths in places.values()
        if 1 < len(paths) <= _COMMON
        for pair in combinations(sorted(paths), 2)
    }
    return len(pairs)


def measure(folder: Path, depth: int) -> tuple[dict[str, Shape], int]:
    """The rooms of a folder by name, plus `all` and how many pairs of files repeat each other."""
    rooms: dict[str, Shape] = defaultdict(Shape)
    code: dict[Path, list[str]] = {}
    whole = Shape()
    for path in sorted(folder.rglob("*.py")):
        shape, code[path] = read(path)
        inner = path.relative_to(folder).parts[:-1]
        rooms["/".join(inner[:depth]) or "."].add(shape)
        whole.add(shape)
    return {**dict(sorted(rooms.items())), "all": whole}, repeated_pairs(code)


def smallest() -> None:
    """Of this script by itself."""
    rooms, _ = measure(Path(__file__).parent, depth=1)
    assert rooms["all"].code > 0


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("src/bonafed"))
    parser.add_argument("--depth", type=int, default=1, help="folders deep that a room is")
    options = parser.parse_args()
    rooms, pairs = measure(options.folder, options.depth)
    titles = [field.name.replace("_", " ") for field in fields(Shape)]
    print("| room | " + " | ".join(titles) + " |")
    print("|---|" + "---:|" * len(titles))
    for name, shape in rooms.items():
        print(
            f"| {name} | " + " | ".join(f"{getattr(shape, field.name):,}" for field in fields(Shape)) + " |"
        )
    print(f"\nPairs of files that share {_REPEATED} lines of code or more: {pairs:,}")
    depths = Counter(len(path.relative_to(options.folder).parts) for path in options.folder.rglob("*.py"))
    print("Files by depth: " + ", ".join(f"{depth}: {count}" for depth, count in sorted(depths.items())))


if __name__ == "__main__":
    main()
