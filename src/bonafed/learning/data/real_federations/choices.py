"""Which data sets come with real clients, what can be chosen of each, and what everybody should know.

    heart     4 hospitals, 740 patients with complete records, or all 920
    ist       464 hospitals or 36 countries of the International Stroke Trial
    schools   160 schools and their mathematics, or 2,410 schools and their chemistry

The first value of a choice is what a config gets that leaves it open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bonafed import checks
from bonafed.errors import InvalidValue

MINIMUM_ROWS = "minimum_rows"
KEYS = ("clients", "patients", "study", MINIMUM_ROWS)  # of the table [data]


@dataclass(frozen=True, slots=True)
class NaturalFederation:
    """What is fixed about a data set with real clients."""

    choices: Mapping[str, tuple[str, ...]]  # by key of [data]: the words it may be, the default first
    regulariser: float  # of a convex run that leaves it open
    source: str  # who collected the data, and where they are
    licence: str


FEDERATIONS: Mapping[str, NaturalFederation] = MappingProxyType(
    {
        "heart": NaturalFederation(
            {"clients": ("hospitals",), "patients": ("complete", "all")},
            0.001,
            "Heart Disease, UCI Machine Learning Repository: Janosi, Steinbrunn, Pfisterer and Detrano "
            "1989, doi 10.24432/C52P4X",
            "CC BY 4.0",
        ),
        "ist": NaturalFederation(
            {"clients": ("hospitals", "countries")},
            0.001,
            "International Stroke Trial database: Sandercock, Niewada and Czlonkowska, Trials 2011, "
            "12:101, doi 10.7488/ds/104",
            "ODC-By",
        ),
        "schools": NaturalFederation(
            {"study": ("mathachieve", "chem97"), "clients": ("schools", "authorities")},
            0.001,
            "MathAchieve: High School and Beyond 1982, Raudenbush and Bryk 2002, in the R package nlme; "
            "Chem97: Fielding, Yang and Goldstein 2003, in the R package mlmRev",
            "GPL (the packages)",
        ),
    }
)


def chosen(name: str, given: Mapping[str, object]) -> dict[str, str | int]:
    """Every choice of the data set: as given, or by default; the keys of other data sets are refused.

    >>> chosen("ist", {"minimum_rows": 100})
    {'clients': 'hospitals', 'minimum_rows': 100}
    """
    federation = FEDERATIONS.get(name)
    known = federation.choices if federation is not None else {}
    for key, value in given.items():
        if federation is not None and key == MINIMUM_ROWS:
            continue
        if key not in known:
            owners = [other for other, one in FEDERATIONS.items() if key in one.choices] or [*FEDERATIONS]
            raise InvalidValue(
                key, f"must be left out of {name!r}: it is for {_either(owners)}", repr(value)
            )
    if federation is None:
        return {}
    result: dict[str, str | int] = {
        key: checks.one_of(key, given.get(key, words[0]), words) for key, words in known.items()
    }
    result[MINIMUM_ROWS] = checks.whole(MINIMUM_ROWS, given.get(MINIMUM_ROWS, 1))
    if result.get("study") == "mathachieve" and result["clients"] == "authorities":
        rule = 'must be schools with study = "mathachieve", which names no authorities'
        raise InvalidValue("clients", rule, repr(result["clients"]))
    return result


def _either(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
