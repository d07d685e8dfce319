"""A digest of the code that computes something: it changes when the code does, not when its words do.

Counted are the module that computes, every module of this package that it imports, however deep, at the top
or inside a function, and the versions of the libraries that do the arithmetic. Left out are modules that
only show something: a new colour does not make a finished cell stale. So are those that read data sets,
since what they read counts itself, sample by sample; and the catalogue, since a cell names the mechanism
that it runs, and that one counts.

Of the modules that count, what only people read does not: comments, docstrings, help texts, and texts of
four words or more. A text that is compared, looked up or made into bytes counts however long it is. So do
numbers, operators, names and shorter texts; in doubt a cell is computed again.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path

_PACKAGE = __name__.partition(".")[0]
_LIBRARIES = ("numpy", "scipy", "torch")
_SHOWING = ("sketch", "documents", "figures", "statement_figure")  # names of modules that only show
_READING = (  # names of modules that only read data
    "datasets", "sources", "formats", "archives", "official_formats",
)  # fmt: skip
_LEFT_OUT = (*_SHOWING, *_READING, "catalogue")
_HELP = ("help", "metavar", "example")  # arguments and keys whose texts are for people
_PROSE = 4  # words: no text that a program tells from others has so many


def code_digest(modules: Iterable[str]) -> str:
    """SHA-256, in hex, of the code of modules and all they import; one's own is given by its .py file."""
    return _digest(tuple(sorted(set(modules))))


def stamp(modules: Iterable[str]) -> str:
    """What the file system says of the files behind `code_digest`: another one if one was changed."""
    files = (_source(module).stat() for module in sorted(_closure(sorted(set(modules)))))
    return hashlib.sha256(repr([(file.st_mtime_ns, file.st_size) for file in files]).encode()).hexdigest()


@lru_cache(maxsize=64)
def _digest(modules: tuple[str, ...]) -> str:
    total = hashlib.sha256()
    for name in sorted(_closure(modules)):
        total.update(f"{Path(name).name}:{_code_of(name)}\n".encode())
    for library in _LIBRARIES:
        total.update(f"{library} {_version(library)}\n".encode())
    return total.hexdigest()


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:  # what needs it cannot be computed here
        return "none"


def _closure(modules: Iterable[str]) -> set[str]:
    """The modules and those that they import, however deep."""
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in seen or module.rpartition(".")[2] in _LEFT_OUT:
            continue
        seen.add(module)
        waiting += _imports(module)
    return seen


@lru_cache(maxsize=1024)
def _tree(module: str) -> ast.Module:
    """The code of a module, without what only people read."""
    tree = ast.parse(_source(module).read_bytes())
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return _without_prose(tree)


def _without_prose(tree: ast.Module) -> ast.Module:
    """The code with every text made empty that only people read; nothing but texts is changed."""
    help_texts: set[ast.AST] = set()
    needed: set[ast.AST] = set()  # by the program, to tell things apart
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            help_texts.update(*(ast.walk(word.value) for word in node.keywords if word.arg in _HELP))
        elif isinstance(node, ast.Dict):
            needed.update(key for key in node.keys if key is not None)
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in _HELP:
                    help_texts.update(ast.walk(value))
        elif isinstance(node, (ast.Compare, ast.MatchValue)):
            needed.update(ast.walk(node))
        elif isinstance(node, ast.Subscript):
            needed.update(ast.walk(node.slice))
        elif isinstance(node, ast.Attribute) and node.attr == "encode":
            needed.update(ast.walk(node.value))
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        words = sum(len(str(text.value).split()) for text in texts)
        if node in help_texts or (words >= _PROSE and node not in needed):
            for text in texts:
                text.value = ""
            if isinstance(node, ast.JoinedStr):
                node.values = [part for part in node.values if part not in texts]
    return tree


@lru_cache(maxsize=1024)
def _code_of(module: str) -> str:
    return hashlib.sha256(ast.dump(_tree(module)).encode()).hexdigest()


def _source(module: str) -> Path:
    if module.endswith(".py"):
        return Path(module)
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module named {module!r}", name=module)
    return Path(spec.origin)


@lru_cache(maxsize=1024)
def _imports(module: str) -> tuple[str, ...]:
    """Modules of this package that a module imports."""
    return tuple(sorted(set(_imported(_tree(module)))))


def _imported(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for other in child.orelse:
                yield from _imported(other)
            continue
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield from _with_parents(alias.name)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield from _with_parents(child.module)
            for alias in child.names:
                if child.module.partition(".")[0] == _PACKAGE and _is_module(
                    f"{child.module}.{alias.name}"
                ):
                    yield f"{child.module}.{alias.name}"
        yield from _imported(child)


def _with_parents(name: str) -> Iterator[str]:
    """The module and the packages around it, whose code runs too; none of another package's."""
    parts = name.split(".")
    if parts[0] == _PACKAGE:
        for count in range(1, len(parts) + 1):
            yield ".".join(parts[:count])


@lru_cache(maxsize=4096)
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a name inside a module
        return False
