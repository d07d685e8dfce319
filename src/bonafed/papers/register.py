"""The register: every claim that can be put to the test, and the list of all there is in the papers.

The claims of a paper stand in families: a module of the paper's folder lists its own as `CLAIMS`, and
`_FAMILIES` says which module that is, so that one claim is found without loading the others. A file
elsewhere is given by its path and has one `CLAIM`. `papers.toml` lists every figure, table and finding of
the papers with the claims that answer for it, or says that it is open, and why.
"""

from __future__ import annotations

import difflib
import importlib
import re
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

_FAMILIES: Mapping[str, Mapping[str, str]] = {  # by paper and module: claims, without the paper's name
    "sampling": {
        "losses": "fig2a fig2b fig3a fig3b recruits comparable",
        "probabilities": "fig1 fig4 proposition1",
        "contracts": "theorem1 theorem2 lemma1",
        "algorithm": "algorithm1 proposition2 qhat rho",
    },
    "faithful": {
        "amplifying": "fig1a fig1b fig1c minimisers",
        "bounds": "fig2 guidelines remark1 many-agents",
        "samples": "fig3a fig3b samples private-local private-manipulated private-samples",
        "heterogeneity": "fig4a fig4b heterogeneity profitable remark2",
        "payments": "fig5a fig5b small-steps private-clusters",
    },
    "jsam": {
        "observations": "fig6 fig6-cifar10 observation1 observation2 observation3 observation4",
        "large_sums": "table2 table3 money",
        "populations": "fig7 fig8 unbiased least-sensitive",
        "optimum": "fig5 theorem4 algorithm1 truthful",
        "noise": "fig2 lemma1 theorem1",
    },
    "rewards": {
        "baselines": "table1 table2 table4 table5 table6 sst fine_tuning",
        "sweeps": "fig1 free_riders",
        "recovery": "fig2 fig4 fig5",
        "contributions": "fig3 table3 table7 proposition1",
        "bounds": "theorem1",
    },
}
_KINDS = ("fig", "table", "observation")


@dataclass(frozen=True, slots=True)
class PaperItem:
    """A figure, a table or a finding of a paper."""

    paper: str
    place: str  # "figure 4"
    says: str  # what it shows or states
    claims: tuple[str, ...] = ()  # identifiers of those that answer for it
    open: str = ""  # why none does


@cache
def modules() -> Mapping[str, str]:
    """The module of every claim by its identifier, paper by paper; figures come first, then tables."""
    return {
        f"{paper}-{name}": f"{__package__}.{paper}.{family}"
        for paper, families in _FAMILIES.items()
        for name, family in sorted(
            ((name, family) for family, names in families.items() for name in names.split()),
            key=lambda pair: _order(pair[0]),
        )
    }


def _order(name: str) -> tuple[int, int, str]:
    """Figures before tables before observations before the rest, by number.

    >>> sorted(["theorem1", "fig10", "fig6-cifar10", "table2"], key=_order)
    ['fig6-cifar10', 'fig10', 'table2', 'theorem1']
    """
    kind, digits = re.findall(r"^([a-z]+)(\d*)", name)[0]
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS), int(digits or 0), name


def claims(paper: str | None = None) -> Mapping[str, Claim]:
    """All claims of the package by identifier, or those of one paper."""
    return {name: find(name) for name in modules() if paper in (None, name.partition("-")[0])}


def find(name: str) -> Claim:
    """A claim by its identifier, or by the path of a file that has a CLAIM in it.

    Of the package no other module of claims is loaded.
    """
    if name.endswith(".py"):
        return own_claim(Path(name))
    known = modules()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else "`bonafed reproduce` lists them"
        raise InvalidValue("claim", f"must be the name of a claim, or a .py file ({hint})", repr(name))
    claims_there: Sequence[Claim] = importlib.import_module(known[name]).CLAIMS
    return next(claim for claim in claims_there if claim.identifier == name)


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


def paper_items() -> Sequence[PaperItem]:
    """Everything in the four papers that states something, in their order."""
    text = (resources.files(__package__) / "papers.toml").read_text("utf-8")
    return [
        PaperItem(
            paper, entry["place"], entry["says"], tuple(entry.get("claims", ())), entry.get("open", "")
        )
        for paper, entries in tomllib.loads(text).items()
        for entry in entries
    ]
