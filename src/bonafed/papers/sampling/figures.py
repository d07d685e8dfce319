"""What the figures of the sampling paper's claims have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from bonafed.papers.claim import Row, estimate, number, where
from bonafed.presentation.figures import BLUE, COLOURS, GREEN, GREY, RED, STYLES, sheet

MECHANISMS = {  # colour and line, the same in every figure
    "uniform": (GREY, "--"),
    "prior-based": (BLUE, "-"),
    "prior-independent": (GREEN, "-."),
    "complete information": (RED, ":"),
}


def panels(count: int, width: float = 4.4, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """A figure of panels side by side."""
    figure = sheet(width * count, height)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def with_errors(
    axes: Axes, rows: Sequence[Row], x: str, y: str, label: str, position: int = 0, *, error: bool = True
) -> None:
    """A column over another, with bars of two standard errors where the column has them."""
    values = [number(row, y) for row in rows]
    bars = [2 * number(row, f"{y}_se") for row in rows] if error and f"{y}_se" in rows[0] else None
    axes.errorbar(
        [number(row, x) for row in rows], values, yerr=bars, label=label, capsize=2, marker="o", ms=3,
        color=COLOURS[position % len(COLOURS)], ls=STYLES[position % len(STYLES)],
    )  # fmt: skip


def plain_log(axes: Axes, which: str = "y") -> None:
    """A logarithmic axis with plain numbers."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def groups(rows: Sequence[Row], column: str) -> Mapping[str, list[Row]]:
    """The rows by the text in a column, in their order."""
    return {str(value): where(rows, **{column: value}) for value in dict.fromkeys(r[column] for r in rows)}


def finish(axes: Axes, x: str, y: str, title: str = "", legend: Callable[[Axes], bool] = bool) -> None:
    """Labels, title and legend of a panel."""
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=10)
    if axes.get_legend_handles_labels()[0] and legend(axes):
        axes.legend(frameon=False, fontsize=8)


def promises_figure(table: Sequence[Row], noticeable: float) -> Figure:
    """What is broken, by kind of mechanism; red is what can be noticed."""
    figure, (axes,) = panels(1, 6.5, 2.8)
    for position, row in enumerate(table):
        least, most = (max(number(row, name), 1e-17) for name in ("least_broken", "most_broken"))
        axes.plot(
            [least, most], [position, position], color=BLUE if most < noticeable else RED, marker="o", lw=3
        )
    axes.set_yticks(range(len(table)), [str(row["mechanisms"]) for row in table])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(5e-18, 1)
    finish(axes, "best lie or worst loss (money per round), least and most", "")
    return figure


def closed_form_figure(table: Sequence[Row], exactness: float) -> Figure:
    """The closed form over the search, for every prior and budget."""
    figure, (axes,) = panels(1, 5.5)
    x = [number(row, "closed_form") for row in table]
    axes.plot(x, [number(row, "over_search") - 1 for row in table], "o", ms=4, color=BLUE)
    axes.axhline(exactness, color="black", lw=0.8, ls=":")
    finish(axes, "E[1/q] of the closed form", "above the least of a search, relative")
    return figure


def thresholds_figure(table: Sequence[Row]) -> Figure:
    """How many thresholds there are, over the budgets of case 2."""
    by_prior = groups(table, "prior")
    figure, axes = panels(len(by_prior), 3.6)
    for panel, (name, own) in zip(axes, by_prior.items(), strict=True):
        for position, kind in enumerate(("corrected", "printed")):
            with_errors(panel, own, "share", f"{kind}_roots", kind, position)
        panel.set_ylim(-0.1, 2.5)
        panel.set_yticks([0, 1, 2])
        finish(panel, "budget, as a share of case 2", "thresholds that solve H(x) = budget", name)
    return figure


def probability_figure(table: Sequence[Row]) -> Figure:
    """q* against the cost in the three cases."""
    figure, (axes,) = panels(1, 5.5)
    for position, (case, own) in enumerate(groups(table, "case").items()):
        label = f"case {case}: budget {number(own[0], 'budget'):g}"
        with_errors(axes, own, "cost", "probability", label, position, error=False)
    for line in axes.lines:
        line.set_marker("")
    threshold = number(where(table, case=2)[0], "threshold")
    axes.axvline(threshold, color="black", lw=0.8, ls=":")
    axes.annotate("threshold of case 2", (threshold, 0.03), (4, 0), textcoords="offset points", fontsize=8)
    axes.set_ylim(0, 1.08)
    finish(axes, "cost per participation (money)", "q*, probability per round")
    return figure


def average_figure(table: Sequence[Row]) -> Figure:
    """E[q] against the mean cost, both distributions."""
    figure, axes = panels(2)
    for panel, (name, own) in zip(axes, groups(table, "costs").items(), strict=True):
        for mechanism in ("complete information", "prior-based", "uniform"):
            colour, style = MECHANISMS[mechanism]
            column = mechanism.replace(" ", "_").replace("-", "_")
            x, y = [number(r, "mean") for r in own], [number(r, column) for r in own]
            panel.plot(x, y, color=colour, ls=style, marker="o", ms=3, label=mechanism)
        panel.set_ylim(bottom=0)
        finish(panel, "mean cost (money)", "E[q], mean probability per round", f"Costs {name}")
    return figure


def recursion_figure(table: Sequence[Row]) -> Figure:
    """The largest value over the bound, against E."""
    figure, (axes,) = panels(1, 5.5)
    steps = sorted({number(row, "local_steps") for row in table})
    for position, (name, own) in enumerate(reversed([*groups(table, "rate").items()])):
        with_errors(axes, own, "local_steps", "largest", f"{name} rate", position)
    axes.axhline(1.0, color="black", lw=0.8, ls=":")
    plain_log(axes)
    axes.set_xscale("log")
    axes.set_xticks(steps, [f"{each:g}" for each in steps])
    axes.xaxis.minorticks_off()
    finish(axes, "E, local steps of a round", "largest recursion over the bound")
    return figure


def loss_figure(table: Sequence[Row]) -> Figure:
    """The loss over the rounds, under each mechanism, and at the end over uniform's."""
    figure, (left, right) = panels(2)
    for position, (name, (colour, style)) in enumerate(MECHANISMS.items()):
        own = where(table, mechanism=name)
        x, y = [number(row, "round") for row in own], [number(row, "loss") for row in own]
        left.plot(x, y, color=colour, ls=style, label=name)
        bars = [2 * number(row, "loss_se") for row in own]
        low, high = ([a + s * b for a, b in zip(y, bars, strict=True)] for s in (-1, 1))
        left.fill_between(x, low, high, color=colour, alpha=0.12, lw=0)
        last = estimate(_final(table, name), "over_uniform")
        right.errorbar([last.value], [position], xerr=[2 * last.error], color=colour, marker="o", capsize=3)
    plain_log(left)
    curves = [number(row, "loss") for row in table]
    left.set_ylim(0.7 * min(curves), 1.5 * max(curves))  # a band may reach below 0
    finish(left, "round", "training loss (nats)", "Band: two standard errors")
    right.set_yticks(range(len(MECHANISMS)), list(MECHANISMS))
    right.invert_yaxis()
    right.axvline(1.0, color="black", lw=0.8, ls=":")
    finish(right, "loss, second half, over uniform sampling's", "", "Ratios per seed, two standard errors")
    return figure


def _final(table: Sequence[Row], mechanism: str) -> Row:
    """The row with what a mechanism comes to in the end."""
    return max(where(table, mechanism=mechanism), key=lambda row: number(row, "round"))


def recruits_figure(table: Sequence[Row]) -> Figure:
    """Clients in a round under each mechanism."""
    figure, (axes,) = panels(1, 5.5)
    for position, (name, (colour, _)) in enumerate(MECHANISMS.items()):
        last = _final(table, name)
        axes.bar(
            position, number(last, "participants"), yerr=2 * number(last, "participants_se"), color=colour,
            capsize=3,
        )  # fmt: skip
    axes.set_xticks(range(len(MECHANISMS)), [name.replace(" ", "\n") for name in MECHANISMS], fontsize=8)
    finish(axes, "", "clients in a round, mean of a run")
    return figure


def comparable_figure(table: Sequence[Row]) -> Figure:
    """Losses over that under complete information."""
    figure, (axes,) = panels(1, 7.0)
    groups = list(dict.fromkeys((row["data"], row["costs"]) for row in table))
    for row in table:
        name = str(row["mechanism"])
        colour, order = MECHANISMS[name][0], list(MECHANISMS).index(name)
        x = groups.index((row["data"], row["costs"])) + 0.2 * order
        value, error = (number(row, f"over_complete_information{end}") for end in ("", "_se"))
        label = name if row is table[order] else None
        axes.errorbar(
            [x], [value], yerr=[2 * error], color=colour, marker="o", capsize=3, ls="", label=label
        )
    axes.axhline(1.0, color="black", lw=0.8, ls=":")
    axes.set_xticks([position + 0.3 for position in range(len(groups))], [f"{d}, {c}" for d, c in groups])
    finish(axes, "data in the paper, distribution of costs", "loss over complete information's")
    return figure


def distance_figure(table: Sequence[Row]) -> Figure:
    """Distance from the optimum against the number of reports."""
    figure, (axes,) = panels(1, 5.5)
    names = {"printed": "as printed", "safe": "corrected, with ironing"}
    for position, (variant, own) in enumerate(reversed([*groups(table, "algorithm").items()])):
        with_errors(axes, own, "reports", "distance", names[variant], position)
    axes.set_xscale("log")
    plain_log(axes)
    finish(axes, "reports so far", "mean |q - q*| over mean q*")
    return figure


def accounts_figure(table: Sequence[Row]) -> Figure:
    """Shares over the budget, and best lies."""
    figure, axes = panels(2)
    for panel, (column, factor, label) in zip(
        axes,
        (("over", 100, "sequences over the budget, %"), ("best_lie", 1, "best lie, in highest costs")),
        strict=True,
    ):
        for shift, (variant, own) in enumerate(groups(table, "algorithm").items()):
            positions = [position + 0.4 * shift for position in range(len(own))]
            values = [factor * number(row, column) for row in own]
            colour = RED if variant == "printed" else BLUE
            name = "as printed" if variant == "printed" else "corrected"
            panel.bar(positions, values, 0.38, color=colour, label=name)
        priors = [str(row["prior"]) for row in own]
        panel.set_xticks([position + 0.2 for position in range(len(priors))], priors, fontsize=8)
        finish(panel, "costs", label)
    return figure


def beginnings_figure(table: Sequence[Row]) -> Figure:
    """1/q of both groups against qhat."""
    figure, (axes,) = panels(1, 5.5)
    for position, (name, label) in enumerate(
        (("first", "first clients"), ("later", "the others"), ("all", "all clients"))
    ):
        with_errors(axes, table, "qhat", name, label, position)
    plain_log(axes)
    finish(axes, "qhat, probability of the first clients", "mean 1/q")
    return figure


def shares_figure(table: Sequence[Row]) -> Figure:
    """The error, and what is lost, against rho."""
    figure, (left, right) = panels(2)
    shares = [number(row, "rho") for row in table]
    with_errors(left, table, "rho", "error", "")
    finish(left, "rho, share of clients approached first", "largest error of the first estimate of F")
    with_errors(right, table, "rho", "lost_first", "on the first clients", 1)
    with_errors(right, table, "rho", "lost_later", "on the others", 2)
    for panel in (left, right):
        panel.set_xscale("log")
        panel.set_xticks(shares, [f"{share:g}" for share in shares])
        panel.minorticks_off()
    finish(right, "rho, share of clients approached first", "mean 1/q above the optimum's")
    return figure
