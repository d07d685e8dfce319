"""The register: every claim that can be put to the test, and the list of all there is in the papers.

A claim is a file in the folder `claims` of its paper, with a `CLAIM` in it; a file elsewhere is given by
its path. `papers.toml` lists every figure, table and finding of the papers with the claims that answer for
it, or says that it is open, and why.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import tomllib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from bonafed.errors import BonafedError, InvalidValue, UnreadableFile
from bonafed.papers.cells import own_module
from bonafed.papers.claim import Claim

PAPERS: Mapping[str, str] = {
    "sampling": "Truthful client sampling under a budget",
    "faithful": "Faithful federated learning",
    "jsam": "Joint client selection and privacy compensation",
    "rewards": "Training-time model rewards",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A figure, a table or a finding of a paper."""

    paper: str
    place: str  # "figure 4"
    says: str  # what it shows or states
    claims: tuple[str, ...] = ()  # identifiers of those that answer for it
    open: str = ""  # why none does


@cache
def claims() -> Mapping[str, Claim]:
    """All claims of the package by identifier, paper by paper."""
    found: dict[str, Claim] = {}
    for paper in PAPERS:
        package = f"{__package__}.{paper}.claims"
        places = [resources.files(package)]
        for module in sorted(pkgutil.iter_modules(map(str, places)), key=lambda item: _order(item.name)):
            claim: Claim = importlib.import_module(f"{package}.{module.name}").CLAIM
            found[claim.identifier] = claim
    return found


def _order(name: str) -> tuple[object, ...]:
    """Figures before tables before the rest, by number."""
    kind = "".join(letter for letter in name if letter.isalpha())
    digits = "".join(letter for letter in name.partition("_")[0] if letter.isdigit())
    ranks = ["fig", "table", "observation"]
    rank = next((place for place, word in enumerate(ranks) if kind.startswith(word)), len(ranks))
    return rank, int(digits or 0), name


def find(name: str) -> Claim:
    """A claim by its identifier, or by the path of a file that has a CLAIM in it."""
    if name.endswith(".py"):
        return own_claim(Path(name))
    known = claims()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else "`bonafed reproduce` lists them"
        raise InvalidValue("claim", f"must be the name of a claim, or a .py file ({hint})", repr(name))
    return known[name]


def own_claim(path: Path) -> Claim:
    """The claim of a file of one's own."""
    if not path.is_file():
        raise UnreadableFile(path, "is not there")
    try:
        module = own_module(path)
    except BonafedError:
        raise
    except Exception as error:  # whatever the user's file does: told with its line
        raise UnreadableFile(path, f"cannot be read, {_told(error, path)}") from error
    claim = getattr(module, "CLAIM", None)
    if not isinstance(claim, Claim):
        raise UnreadableFile(path, "must have a CLAIM, a bonafed.papers.claim.Claim")
    return claim


def _told(error: Exception, path: Path) -> str:
    """An error of a file of one's own, with the line of that file it comes from."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    full = str(path.resolve())
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == full]
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{type(error).__name__}: {error}"


def listed() -> Sequence[Listed]:
    """Everything in the four papers that states something, in their order."""
    text = (resources.files(__package__) / "papers.toml").read_text("utf-8")
    return [
        Listed(paper, entry["place"], entry["says"], tuple(entry.get("claims", ())), entry.get("open", ""))
        for paper, entries in tomllib.loads(text).items()
        for entry in entries
    ]
