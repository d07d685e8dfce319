"""Section 6: the prior-based mechanism recruits more clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_least, estimate, number
from bonafed.papers.sampling.claims.fig2a import CLAIM as FIGURE
from bonafed.papers.sampling.losses import final

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(table: Sequence[Row]) -> list[Check]:
    """More clients in a round, for the same money."""
    more = estimate(final(table, "prior-based"), "participants_over_uniform")
    return [at_least("clients in a round, prior-based over uniform", more, 1.0)]


def draw(table: Sequence[Row]) -> Figure:
    """Clients in a round under each mechanism."""
    from bonafed.papers.sampling.figures import MECHANISMS, finish, panels

    figure, (axes,) = panels(1, 5.5)
    for place, (name, (colour, _)) in enumerate(MECHANISMS.items()):
        last = final(table, name)
        axes.bar(
            place, number(last, "participants"), yerr=2 * number(last, "participants_se"), color=colour,
            capsize=3,
        )  # fmt: skip
    axes.set_xticks(range(len(MECHANISMS)), [name.replace(" ", "\n") for name in MECHANISMS], fontsize=8)
    finish(axes, "", "clients in a round, mean of a run")
    return figure


CLAIM = Claim(
    identifier="sampling-recruits",
    paper="sampling",
    place="section 6, on figures 2 and 3",
    says="The prior-based mechanism exploits the limited budget efficiently and recruits more clients than "
    "uniform sampling.",
    presets=FIGURE.presets,
    cells=FIGURE.cells,
    rows=FIGURE.rows,
    judge=judge,
    draw=draw,
    control=FIGURE.control,
    about="The runs of figure 2(a), counted by who was in. That more clients are in is what theory says "
    "(E[q*] >= b/highest), and the opposite of the sentence on figure 4, see sampling-fig4.",
)
