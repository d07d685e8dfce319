"""A digest of the code that computes something: it changes when the code does, not when its words do.

Counted are the module that computes, every module of this package that it imports, however deep, at the top
or inside a function, and the versions of the libraries that do the arithmetic. Modules that only draw or
print are left out: a new colour does not make a finished cell stale. So are those that read data sets: what
they read counts itself, sample by sample.

Of the modules that count, what only people read does not: comments, docstrings, help texts, the rules that
errors and warnings state, and the lines of the catalogue (a cell names the mechanism that it runs, and that
one counts). Numbers, operators, names and every other text do; in doubt a cell is computed again.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from bonafed import errors

_PACKAGE = __name__.partition(".")[0]
_LIBRARIES = ("numpy", "scipy", "torch")
_DRAWING = ("sketch", "documents", "figures", "statement_figure")  # names of modules that only show
_READING = (  # names of modules that only read data
    "datasets", "formats", "archives", "official_formats",
)  # fmt: skip
_CATALOGUE, _LINES = "catalogue", "_ENTRIES"  # the module that lists the mechanisms, and its list
_HELP = ("help", "metavar", "example")  # arguments and keys whose texts are for people
_ERRORS = tuple(
    name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)
)
_SAYING = ("Command", "warn")  # what they are given in words is for people


def code_digest(places: Iterable[str]) -> str:
    """SHA-256, in hex, of the code of modules and all they import; a place is a module or a .py file."""
    return _digest(tuple(sorted(set(places))))


def stamp(places: Iterable[str]) -> str:
    """What the file system says of the files behind `code_digest`: another one if one was changed."""
    files = (_source(place).stat() for place in sorted(_closure(sorted(set(places)))))
    return hashlib.sha256(repr([(file.st_mtime_ns, file.st_size) for file in files]).encode()).hexdigest()


@lru_cache(maxsize=64)
def _digest(places: tuple[str, ...]) -> str:
    total = hashlib.sha256()
    for name in sorted(_closure(places)):
        total.update(f"{Path(name).name}:{_code_of(name)}\n".encode())
    for library in _LIBRARIES:
        total.update(f"{library} {_version(library)}\n".encode())
    return total.hexdigest()


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:  # what needs it cannot be computed here
        return "none"


def _closure(places: Iterable[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        if place in found or place.rpartition(".")[2] in _DRAWING + _READING:
            continue
        found.add(place)
        waiting += _imports(place)
    return found


@lru_cache(maxsize=1024)
def _tree(place: str) -> ast.Module:
    """The code of a module, without what only people read."""
    tree = ast.parse(_source(place).read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and body:
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = body[1:]
    return _without_words(tree, place.rpartition(".")[2] == _CATALOGUE)


def _without_words(tree: ast.Module, is_catalogue: bool) -> ast.Module:
    """The code with every text that only people read made empty; nothing but texts is changed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _silence(node)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in _HELP:
                    _empty(value)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            _silence_rules(node)
        elif is_catalogue and isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_its_lines(node):
            node.value = ast.Constant(None)
    return tree


def _is_its_lines(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == _LINES for target in targets)


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _silence(call: ast.Call) -> None:
    """Empty help texts, and what an error, a warning or a command says."""
    for keyword in call.keywords:
        if keyword.arg in _HELP:
            _empty(keyword.value)
    name = _called(call)
    if name in _ERRORS:  # their first argument is a name, by which code tells errors apart
        for argument in call.args[1:]:
            _empty(argument)
    elif name in _SAYING:
        for argument in call.args:
            _empty(argument)


def _silence_rules(function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Empty the texts of variables that are used in errors only: `rule = "must be positive"`."""
    said: set[ast.AST] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _called(node) in _ERRORS:
            said.update(inner for argument in node.args[1:] for inner in ast.walk(argument))
    elsewhere = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in said
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id not in elsewhere:
                _empty(node.value)


def _empty(value: ast.expr) -> None:
    """Make the texts of an expression empty, but none that a call, a lookup or a comparison depends on."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        value.value = ""
    elif isinstance(value, ast.JoinedStr):
        for part in value.values:
            _empty(part)
        value.values = [part for part in value.values if not isinstance(part, ast.Constant)]
    elif isinstance(value, ast.BinOp):
        _empty(value.left)
        _empty(value.right)
    elif isinstance(value, ast.IfExp):
        _empty(value.body)
        _empty(value.orelse)


@lru_cache(maxsize=1024)
def _code_of(place: str) -> str:
    return hashlib.sha256(ast.dump(_tree(place)).encode()).hexdigest()


def _source(place: str) -> Path:
    if place.endswith(".py"):
        return Path(place)
    spec = importlib.util.find_spec(place)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module named {place!r}", name=place)
    return Path(spec.origin)


@lru_cache(maxsize=1024)
def _imports(place: str) -> tuple[str, ...]:
    """Modules of this package that a module imports."""
    return tuple(sorted(set(_imported(_tree(place)))))


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
