"""A claim of a paper as data: what it says, the runs that put it to the test, and the rule that judges it.

    presets ─► cells ─► results ─► rows ─► checks ─► verdict
                (`cells` computes and keeps them)      (computed here, never written by hand)

`rows` are the table of a claim, plain numbers with means and standard errors over seeds. Everything after
them is a pure function of them: the checks, the verdict and the figure. So a report can be judged again
from the tables it holds.

A check compares an estimate with a bound, allowing for `_ERRORS` standard errors:

    at least b    holds if value - z se >= b, is contradicted if value + z se < b, else undecided
    at most b     likewise
    within t of b holds if |value - b| + z se <= t, contradicted if |value - b| - z se > t, else undecided

Where the paper prints the number itself, the claim is decided one way or the other: the allowance counts in
its favour, up to the tolerance itself, so it is contradicted only by what chance does not explain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.presentation.documents import Cell as Entry
from bonafed.presentation.documents import JSONObject
from bonafed.sections import Section, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.papers.cells import Cell

Row = dict[str, Entry]
Results = Mapping[Any, JSONObject]  # of cells, by key
Outcome = Literal["holds", "contradicted", "undecided"]
Verdict = Literal["holds", "holds with a correction", "contradicted", "undecided"]
Relation = Literal["at least", "at most", "within"]
PRESETS = ("smoke", "quick", "paper")
_ERRORS = 2.0  # z: standard errors that chance is allowed
_MOST_SEEDS = 10_000  # more would not be run: a difference that small is none


class Estimate(NamedTuple):
    """A mean over seeds."""

    value: float
    error: float = 0.0  # its standard error; 0: computed, or of one seed
    seeds: int = 0  # 0: computed, not drawn

    @classmethod
    def over(cls, values: Sequence[float]) -> Estimate:
        """Of one value per seed.

        >>> Estimate.over([1.0, 2.0, 3.0]).value
        2.0
        """
        if not values:
            raise InvalidValue("values", "must be at least one", "none")
        if not all(map(math.isfinite, values)):
            return cls(math.nan, 0.0, len(values))
        spread = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        return cls(fmean(values), spread, len(values))


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison that a claim stands or falls with.

    >>> at_most("loss over uniform's", Estimate(0.94, 0.01, 3), 1.0).outcome
    'holds'
    """

    what: str  # the quantity, in words
    ours: Estimate
    relation: Relation
    bound: float
    tolerance: float = 0.0  # of "within"
    printed: float | None = None  # the paper's number, where it prints one
    corrected: bool = False  # of the statement as the erratum of the claim has it, not as printed

    @property
    def _margin(self) -> float:
        """How far on the right side of the rule the value is; below 0: on the wrong side."""
        value = self.ours.value
        if self.relation == "within":
            return self.tolerance - abs(value - self.bound)
        return value - self.bound if self.relation == "at least" else self.bound - value

    @property
    def outcome(self) -> Outcome:
        """Whether the rule holds, for all that chance may have done."""
        slack = _ERRORS * self.ours.error
        if not (math.isfinite(self.ours.value) and math.isfinite(self.ours.error)):
            return "contradicted"
        if self.printed is not None:  # printed numbers are decided: chance counts in their favour, but
            # no more than the tolerance itself: an estimate too vague to compare confirms nothing
            return "holds" if self._margin >= -min(slack, self.tolerance) else "contradicted"
        if self._margin >= slack:
            return "holds"
        return "contradicted" if self._margin < -slack else "undecided"

    @property
    def seeds_needed(self) -> int | None:
        """How many seeds would decide, if the mean stays where it is; None: decided, or none would."""
        if self.outcome != "undecided" or self._margin == 0:
            return None
        needed = math.ceil(self.ours.seeds * (_ERRORS * self.ours.error / abs(self._margin)) ** 2)
        return needed if needed <= _MOST_SEEDS else None

    @property
    def rule(self) -> str:
        """As it is shown.

        >>> within("rho", Estimate(0.8), 0.81, 0.05).rule
        'within 0.05 of 0.81'
        """
        if self.relation == "within":
            return f"within {self.tolerance:.4g} of {self.bound:.4g}"
        return f"{self.relation} {self.bound:.4g}"

    def to_json(self) -> JSONObject:
        """The comparison as plain data, with its outcome."""
        return {
            "what": self.what, "ours": self.ours.value, "error": self.ours.error, "seeds": self.ours.seeds,
            "rule": self.rule, "paper": self.printed, "corrected": self.corrected, "outcome": self.outcome,
        }  # fmt: skip


def at_least(what: str, ours: Estimate, bound: float, *, corrected: bool = False) -> Check:
    """The value must not be below the bound."""
    return Check(what, ours, "at least", bound, corrected=corrected)


def at_most(what: str, ours: Estimate, bound: float, *, corrected: bool = False) -> Check:
    """The value must not be above the bound."""
    return Check(what, ours, "at most", bound, corrected=corrected)


def within(what: str, ours: Estimate, target: float, tolerance: float, *, corrected: bool = False) -> Check:
    """The value must be near a target that follows from theory."""
    return Check(what, ours, "within", target, checks.positive("tolerance", tolerance), corrected=corrected)


def printed(
    what: str, ours: Estimate, number: float, tolerance: float, *, corrected: bool = False
) -> Check:
    """The value must be near the paper's; the tolerance has its reading error in it."""
    near = within(what, ours, number, tolerance, corrected=corrected)
    return replace(near, printed=number)


@dataclass(frozen=True)
class Settings(Section):
    """Options of a claim whose runs are drawn: those of a preset, some of which a user may set."""

    seeds: int = key(checks.whole, 3, help="How many seeds to average over.")
    seed: int = key(checks.seed, 0, help="The first of them.")

    @property
    def all_seeds(self) -> range:
        """The seeds to average over."""
        return range(self.seed, self.seed + self.seeds)


def drawn_by(paper: str, figure: str, *arguments: Any) -> Callable[[Sequence[Row]], Figure]:
    """A function of the figures of a paper, which are loaded only to draw: Matplotlib takes its time."""

    def draw(rows: Sequence[Row]) -> Figure:
        function: Callable[..., Figure] = getattr(import_module(f"{__package__}.{paper}.figures"), figure)
        return function(rows, *arguments)

    return draw


def _no_cells(settings: Any) -> Mapping[Any, Cell]:
    return {}


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A figure, a table or a sentence of a paper that can be put to the test.

    `control` are settings under which the claim is false, a mechanism turned round, say: its verdict must
    then be "contradicted", or it would approve of anything.
    """

    identifier: str  # "faithful-fig4"
    paper: str  # "sampling", "faithful", "jsam", "rewards"; or whatever one's own is called
    place: str  # "figure 4", "observation 5", "after proposition 2"
    says: str  # the claim in one sentence
    presets: Mapping[str, Any]  # smoke, quick, paper: settings, of one kind of `Section`
    rows: Callable[[Any, Results], list[Row]]  # the table, of settings and results
    judge: Callable[[Sequence[Row]], Sequence[Check]]  # of the table alone
    draw: Callable[[Sequence[Row]], Figure]  # of the table alone
    control: Mapping[str, Any]  # settings to replace
    cells: Callable[[Any], Mapping[Any, Cell]] = _no_cells  # of settings: what is computed and kept
    erratum: str = ""  # of docs/errata.md, where the corrected statement is judged too, "F-D9"
    about: str = ""  # paragraphs: the setting, what the paper leaves open, how to read the result
    open_data: str = ""  # what could not be had, and what is used in its place

    def __post_init__(self) -> None:
        missing = [name for name in PRESETS if name not in self.presets]
        if missing:
            raise InvalidValue("presets", f"must have {', '.join(PRESETS)}", f"none called {missing[0]}")

    def settings(self, preset: str, changes: Mapping[str, Any] | None = None) -> Any:
        """Those of a preset, with changes."""
        if preset not in self.presets:
            raise InvalidValue("preset", "must be one of " + ", ".join(self.presets), repr(preset))
        return replace(self.presets[preset], **(changes or {}))

    def departures(self, settings: Any) -> dict[str, tuple[Any, Any]]:
        """Settings that are not the paper's: by name, ours and the paper's."""
        ours, theirs = settings.table(), self.presets["paper"].table()
        return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the checks come to together."""

    checks: tuple[Check, ...]
    erratum: str = ""
    verdict: Verdict = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdict", _verdict(self.checks))

    @property
    def seeds_needed(self) -> int | None:
        """How many would decide; None: decided, or none would."""
        needed = [check.seeds_needed for check in self.checks if check.outcome == "undecided"]
        return None if not needed or None in needed else max(n for n in needed if n is not None)

    @property
    def text(self) -> str:
        """The verdict with what belongs to it."""
        if self.verdict == "undecided":
            needed = self.seeds_needed
            return "undecided, " + (
                f"{needed} seeds would decide" if needed else "and no number of seeds would"
            )
        erratum = f" (erratum {self.erratum})" if self.verdict == "holds with a correction" else ""
        alone = any(check.ours.seeds == 1 for check in self.checks)
        return self.verdict + erratum + (", by one seed: chance was not weighed" if alone else "")


def judged(claim: Claim, rows: Sequence[Row]) -> Judgement:
    """The verdict of a table."""
    return Judgement(tuple(claim.judge(rows)), claim.erratum)


def _verdict(comparisons: Sequence[Check]) -> Verdict:
    """As printed if that holds; else as corrected if that does."""
    if not comparisons:
        raise InvalidValue("checks", "must be at least one", "none")
    outcome = _outcome_of([check for check in comparisons if not check.corrected])
    corrected = [check for check in comparisons if check.corrected]
    if outcome == "contradicted" and corrected and _outcome_of(corrected) == "holds":
        return "holds with a correction"
    return outcome


def _outcome_of(comparisons: Sequence[Check]) -> Outcome:
    outcomes = {check.outcome for check in comparisons}
    if "contradicted" in outcomes or not outcomes:
        return "contradicted"
    return "undecided" if "undecided" in outcomes else "holds"


# What tables of claims have in common


def over_seeds(name: str, values: Sequence[float]) -> Row:
    """A mean, its standard error and the number of seeds, as columns of a row.

    >>> over_seeds("loss", [1.0, 3.0])
    {'loss': 2.0, 'loss_se': 1.0, 'seeds': 2}
    """
    mean = Estimate.over([float(value) for value in values])
    return {name: mean.value, f"{name}_se": mean.error, "seeds": mean.seeds}


def estimate(row: Mapping[str, Entry], name: str) -> Estimate:
    """A column that `over_seeds` made."""
    return Estimate(number(row, name), number(row, f"{name}_se"), int(number(row, "seeds")))


def number(row: Mapping[str, Entry], name: str) -> float:
    """A number of a table; NaN where there is none."""
    value = row[name]
    if value is None:
        return math.nan
    if isinstance(value, (str, bool)):
        raise InvalidValue(name, "must be a number", repr(value))
    return float(value)


def where(rows: Sequence[Row], **values: Entry) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def only(rows: Sequence[Row], **values: Entry) -> Row:
    """The one row with these values."""
    matching = where(rows, **values)
    if len(matching) != 1:
        raise InvalidValue("rows", f"must have one row with {values}", len(matching))
    return matching[0]
