"""Figure 4: the recovery rate q with a median reference model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Results, Row, at_least, at_most, estimate, within
from bonafed.papers.rewards.recovery import RECOVERY, Recovery, recovery_cells, recovery_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COMPARABLE = 0.2  # of rho; the paper has no number for it


def rows(options: Recovery, results: Results) -> list[Row]:
    """What every rate leads to, with both reference models."""
    return recovery_rows(options, results, "median", "max")


def judge(found: Sequence[Row]) -> list[Check]:
    """As with the best reference, with worse models and a similar rho."""
    median = [row for row in found if row["reference"] == "median"]
    most = median[-1]
    ends = f"from q {median[0]['q']} to {most['q']}"
    return [
        at_least(f"change of mean accuracy {ends}", estimate(most, "accuracy_change"), 0.0),
        at_most(
            f"mean accuracy at q {most['q']}, less that with the best reference",
            estimate(most, "accuracy_to_max"), 0.0,
        ),
        within(
            f"rho at q {most['q']}, less that with the best reference", estimate(most, "rho_to_max"), 0.0,
            _COMPARABLE,
        ),
    ]  # fmt: skip


def draw(found: Sequence[Row]) -> Figure:
    """Accuracy and rho against q, with both reference models."""
    from bonafed.papers.rewards.figures import references_figure

    return references_figure(found)


CLAIM = Claim(
    identifier="rewards-fig4",
    paper="rewards",
    place="figure 4, appendix E.5",
    says="With a reference model of median instead of best reward rate, recovery still raises accuracy, "
    "less than the best one does, and rho is comparable.",
    presets=RECOVERY,
    cells=recovery_cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"backwards": True},
    open_data="Preset quick is on CIFAR-10, with the small CNN: the paper's CIFAR-100 was not at hand.",
    about="""\
The runs of figure 2, and the same with `reference = "median"`. Comparable is not said in numbers: here,
rho within 0.2.""",
)
