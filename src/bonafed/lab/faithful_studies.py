"""Faithful learning against manipulated FedAvg and learning alone: figures 2 to 5 of the paper.

    by_samples        figure 3   losses and accuracy against n, all samples together
    by_heterogeneity  figure 4   the same against Delta
    by_privacy        figure 5a  error of private payments against alpha, for several T_2
    by_clusters       figure 5b  error of payments against the number L of clusters, with and without noise
    tradeoff          figure 2   Proposition 11: steps and bound against alpha, printed and corrected (F-D9)

Loss is the federation's F = sum p_k F_k with everybody's own model, overall loss adds the payments. On the
training loss nobody ever gains against learning alone, J_k >= F_k(w*) >= min F_k (theory C1.5), so the
paper's comparison (figure 4a) can only be of expected losses: both are in the tables. The error of a
payment is its distance from the exact one, (10), of the same agents without noise or clusters.

Every point is a mean over seeds; a seed fixes samples, partition, clusters and noise. `python -m
bonafed.lab.faithful_studies --folder DIR` writes all tables (CSV) and figures (PNG); finished runs are kept
in DIR/faithful_cells.jsonl, so that a stopped command goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.files import require_writable, write_together
from bonafed.lab.faithful_cells import Cell, Manipulation, Outcome, Privacy, Store, model_size
from bonafed.lab.jsam_studies import Average, Row, Table, as_csv
from bonafed.lab.results import run_command
from bonafed.mechanisms.faithful.bounds import Tradeoff, privacy_tradeoff

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Place = Callable[[Cell, float], Cell]  # a curve's cell moved to a point of the axis
BASE = Cell("faithful")
DELTAS = (0.0, 0.05, 0.15, 0.3, 0.6, 0.9)
ALPHAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_STEPS = 80, 20  # T_1 and T_2 of the paper


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """s curves over m points of one axis; losses and payments in units of cross-entropy."""

    axis: str  # what varies
    at: Floats  # (m,) ascending
    names: tuple[str, ...]  # (s,)
    loss: Average  # (s, m) F, on the training samples, regulariser included
    overall: Average  # (s, m) the same plus the mean payment
    test_loss: Average  # (s, m) on fresh samples, without regulariser
    test_overall: Average  # (s, m) the same plus the mean payment
    accuracy: Average  # (s, m) on fresh samples, mean over agents
    collected: Average  # (s, m) sum of all payments; below 0 the server pays
    error: Average  # (s, m) |payment - exact payment|, over agents and seeds; NaN where nobody pays

    def to_rows(self) -> list[Row]:
        parts = [field.name for field in fields(self) if isinstance(getattr(self, field.name), Average)]
        rows: list[Row] = []
        for i, name in enumerate(self.names):
            for j, x in enumerate(self.at.tolist()):
                row: Row = {"curve": name, self.axis: x}
                for part in parts:
                    value: Average = getattr(self, part)
                    row |= {part: float(value.mean[i, j]), part + "_sd": float(value.sd[i, j])}
                rows.append(row)
        return rows

    def of(self, name: str, part: str) -> Average:
        """(m,) one quantity of one curve."""
        at = self.names.index(checks.one_of("name", name, self.names))
        value: Average = getattr(self, part)
        return Average(value.mean[at], value.sd[at])


def by_samples(
    store: Store, base: Cell = BASE, sizes: ArrayLike | None = None, *, seeds: int = 1,
    alphas: Sequence[float] = (0.1, 1.0), factors: Sequence[float] = (10.0, 100.0),
) -> Curves:  # fmt: skip
    """Figure 3: more samples for everybody."""
    default = base.samples * np.array([0.1, 0.2, 0.5, 1.0, 2.0])
    n = _increasing("sizes", default if sizes is None else sizes)
    schemes = _schemes(base, alphas, factors)
    return _curves(store, "samples", n, schemes, lambda cell, x: replace(cell, samples=round(x)), seeds)


def by_heterogeneity(
    store: Store, base: Cell = BASE, deltas: ArrayLike = DELTAS, *, seeds: int = 1,
    alphas: Sequence[float] = (0.1, 1.0), factors: Sequence[float] = (10.0, 100.0),
) -> Curves:  # fmt: skip
    """Figure 4: agents whose data differ more and more."""
    d = _increasing("deltas", deltas, sign="non-negative")
    schemes = _schemes(base, alphas, factors)
    return _curves(store, "delta", d, schemes, lambda cell, x: replace(cell, delta=x), seeds)


def by_privacy(
    store: Store, base: Cell = BASE, alphas: ArrayLike = ALPHAS, *, seeds: int = 1,
    payment_steps: Sequence[int] = (2, 5, 20),
) -> Curves:  # fmt: skip
    """Figure 5a: private payments, the more exact the less privacy is left; a curve for each T_2."""
    found = _increasing("alphas", alphas)
    schemes = {f"T2 = {steps}": _private(base, 1.0, steps) for steps in payment_steps}

    def place(cell: Cell, x: float) -> Cell:
        return replace(cell, privacy=cell.privacy and replace(cell.privacy, alpha=x))

    return _curves(store, "alpha", found, schemes, place, seeds)


def by_clusters(
    store: Store, base: Cell = BASE, clusters: ArrayLike | None = None, *, seeds: int = 1,
    alphas: Sequence[float] = (0.1, 1.0),
) -> Curves:  # fmt: skip
    """Figure 5b: fewer leave-one-out models, one for each of L clusters."""
    default = sorted({count for count in (2, 3, 4, 5, 7) if count < base.agents} | {base.agents})
    counts = _increasing("clusters", default if clusters is None else clusters)

    def place(cell: Cell, x: float) -> Cell:
        return replace(cell, clusters=None if round(x) == cell.agents else round(x))

    schemes = {"no noise": base} | {_private_name(alpha): _private(base, alpha) for alpha in alphas}
    return _curves(store, "clusters", counts, schemes, place, seeds)


def _schemes(base: Cell, alphas: Sequence[float], factors: Sequence[float]) -> dict[str, Cell]:
    """What figures 3 and 4 compare; the agent that manipulates is the paper's example."""
    found = {"FFL": base}
    found |= {_private_name(alpha): _private(base, alpha) for alpha in alphas}
    agent = min(Manipulation.agent, base.agents - 1)
    for gamma in factors:
        cheat = Manipulation(agent, gamma)
        found[f"manipulated, gamma {gamma:g}"] = replace(base, scheme="manipulated", manipulation=cheat)
    return found | {"local learning": replace(base, scheme="local")}


def _private(base: Cell, alpha: float, payment_steps: int | None = None) -> Cell:
    training, payment = _STEPS
    privacy = Privacy(
        alpha, training_steps=training, payment_steps=payment if payment_steps is None else payment_steps
    )
    return replace(base, scheme="private", privacy=privacy)


def _private_name(alpha: float) -> str:
    return f"DP-FFL, alpha {alpha:g}"


def _increasing(
    name: str, values: ArrayLike, sign: Literal["non-negative", "positive"] = "positive"
) -> Floats:
    result = checks.vector(name, values, sign=sign)
    if np.any(np.diff(result) <= 0):
        at = int(np.argmax(np.diff(result) <= 0)) + 1
        raise InvalidValue(name, "must be increasing", f"{result[at]:g} at position {at}")
    return result


def _curves(
    store: Store, axis: str, at: Floats, schemes: Mapping[str, Cell], place: Place, seeds: int
) -> Curves:
    """Run what is missing, and average over seeds; each scheme is compared with exact payments."""
    numbers = range(checks.whole("seeds", seeds))
    cells = [
        [[replace(place(cell, x), seed=cell.seed + i) for i in numbers] for x in at.tolist()]
        for cell in schemes.values()
    ]
    flat = [cell for curve in cells for point in curve for cell in point]
    flat.sort(key=lambda cell: cell.seed)  # a study that is stopped has its first seeds complete
    done = store.outcomes([*flat, *(exact_twin(cell) for cell in flat if _pays(cell))])

    def collect(what: Callable[[Outcome], float]) -> Average:
        return _average(np.array([[[what(done[c]) for c in x] for x in row] for row in cells]))

    def error(cell: Cell) -> list[float]:
        if not _pays(cell):
            return [math.nan] * cell.agents
        gap = np.abs(np.subtract(done[cell].payment, done[exact_twin(cell)].payment))
        return [float(x) for x in gap]

    errors = np.array([[[e for c in point for e in error(c)] for point in row] for row in cells])
    return Curves(
        axis=axis,
        at=at,
        names=tuple(schemes),
        loss=collect(lambda o: float(np.mean(o.loss))),
        overall=collect(lambda o: float(np.mean(o.overall))),
        test_loss=collect(lambda o: float(np.mean(o.test_loss))),
        test_overall=collect(lambda o: float(np.mean(o.test_loss) + np.mean(o.payment))),
        accuracy=collect(lambda o: float(np.mean(o.accuracy))),
        collected=collect(lambda o: float(np.sum(o.payment))),
        error=_average(errors),
    )


def break_even(table: Curves, joining: str = "FFL", alone: str = "local learning") -> float | None:
    """Where the expected loss with payment first passes that of learning alone; None if it never does."""
    gap = table.of(joining, "test_overall").mean - table.of(alone, "test_overall").mean
    crossed = np.flatnonzero((gap[:-1] <= 0) & (gap[1:] > 0))
    if not crossed.size:
        return None
    at = int(crossed[0])
    share = gap[at] / (gap[at] - gap[at + 1])
    return float(table.at[at] + share * (table.at[at + 1] - table.at[at]))


def exact_twin(cell: Cell) -> Cell:
    """The same agents with exact payments: no noise, no clusters."""
    return replace(cell, scheme="faithful", clusters=None, privacy=None)


def _pays(cell: Cell) -> bool:
    return cell.scheme in ("faithful", "private")


def _average(values: Floats) -> Average:
    """Over the last axis; the spread of a single value is 0."""
    single = values.shape[-1] == 1
    spread = np.zeros(values.shape[:-1]) if single else values.std(-1, ddof=1)
    return Average(values.mean(-1), spread)


# Proposition 11


@dataclass(frozen=True, slots=True, eq=False)
class Tradeoffs:
    """Proposition 11 for m privacy parameters and e steps; (e, m) arrays, printed constants and corrected.

    With no steps at all the bound is B, what the start is away; (58) holds from the first step on. It
    leaves out its epsilon (0 for L = K) and rounding T up, which adds at most A.
    """

    alpha: Floats  # (m,) ascending
    step: Floats  # (e,) eta_2
    printed_steps: NDArray[np.int64]  # T_1 = T_2, (57)
    printed_loss: Floats  # (58), on |E P_k - VCG_k|
    steps: NDArray[np.int64]
    loss: Floats

    def to_rows(self) -> list[Row]:
        names = ("printed_steps", "printed_loss", "steps", "loss")
        return [
            {"eta2": eta, "alpha": alpha, **{name: getattr(self, name)[i, j].item() for name in names}}
            for i, eta in enumerate(self.step.tolist())
            for j, alpha in enumerate(self.alpha.tolist())
        ]


def tradeoff(
    dimension: int,
    smallest: int,
    agents: int = BASE.agents,
    regulariser: float = BASE.regulariser,
    *,
    alphas: ArrayLike | None = None,
    step_shares: ArrayLike = (1.0, 0.3, 0.1),
    beta: float = 0.01,
) -> Tradeoffs:
    """Figure 2, for softmax regression on rows of norm 1: L_g = mu + 1/2, and gradients of norm sqrt(2).

    `dimension` counts the model's numbers, `smallest` is n_(1), `step_shares` are parts of the largest step
    allowed, 1/((K-1) L_g). T_1 = T_2 increase and the loss falls as alpha grows, that is with less privacy;
    the text after the paper's figure 2 has both the other way round (erratum F-D9).
    """
    alpha = _increasing("alphas", np.geomspace(0.01, 1000.0, 61) if alphas is None else alphas)
    shares = checks.vector("step_shares", step_shares, sign="positive")
    k, mu = checks.whole("agents", agents, 2), checks.positive("regulariser", regulariser)
    smooth = mu + 0.5
    step = shares / ((k - 1) * smooth)

    def at(eta: float, a: float, corrected: bool) -> Tradeoff:
        return privacy_tradeoff(
            eta, dimension, math.sqrt(2.0), k, a, beta, mu, smallest, smooth, corrected
        )  # fmt: skip

    def steps(found: list[list[Tradeoff]]) -> NDArray[np.int64]:
        return np.array([[t.steps for t in row] for row in found], dtype=np.int64)

    def loss(found: list[list[Tradeoff]]) -> Floats:
        return np.array([[t.loss if t.steps else t.start for t in row] for row in found])

    printed, right = (
        [[at(float(eta), float(a), corrected) for a in alpha] for eta in step]
        for corrected in (False, True)
    )
    return Tradeoffs(alpha, step, steps(printed), loss(printed), steps(right), loss(right))


# The command


def studies(
    store: Store,
    base: Cell = BASE,
    *,
    seeds: int = 1,
    sizes: ArrayLike | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> dict[str, bytes]:
    """All tables and figures, by file name."""
    from bonafed.lab import faithful_figures as draw
    from bonafed.style import render

    files: dict[str, bytes] = {}

    def add(name: str, table: Table, figure: Figure) -> None:
        files[f"faithful_{name}.csv"] = as_csv(table)
        files[f"faithful_{name}.png"] = render(figure, Path(f"faithful_{name}.png"))
        progress(name)

    sized = by_samples(store, base, sizes, seeds=seeds)
    add("by_samples", sized, draw.learning_figure(sized))
    spread = by_heterogeneity(store, base, seeds=seeds)
    add("by_heterogeneity", spread, draw.learning_figure(spread))
    hidden = by_privacy(store, base, seeds=seeds)
    add("by_privacy", hidden, draw.payment_figure(hidden))
    grouped = by_clusters(store, base, seeds=seeds)
    add("by_clusters", grouped, draw.payment_figure(grouped))
    smallest = store.outcomes([base])[base].smallest
    bounds = tradeoff(model_size(base), smallest, base.agents, base.regulariser)
    add("tradeoff", bounds, draw.tradeoff_figure(bounds))
    return files


def main(words: Sequence[str] | None = None) -> int:
    """Write the studies; 0 if all is well, 2 if the input is not."""
    given = _parser().parse_args(words)
    results: Path = given.results or given.folder / "faithful_cells.jsonl"
    return run_command(lambda: _main(given, results), results)


def _main(given: argparse.Namespace, results: Path) -> None:
    base = replace(
        BASE, data=given.data, samples=given.samples, agents=given.agents, delta=given.delta,
        regulariser=given.regulariser, seed=given.seed,
    )  # fmt: skip
    require_writable(given.folder / "faithful_tradeoff.csv")  # before the work, not after it
    require_writable(results)
    files = studies(
        Store(results, _say), base, seeds=given.seeds, sizes=given.sizes,
        progress=lambda name: print(f"{name}: done", file=sys.stderr, flush=True),
    )  # fmt: skip
    write_together({given.folder / name: data for name, data in files.items()})


def _say(cell: Cell, outcome: Outcome, done: int, of: int) -> None:
    """One line for every finished cell."""
    words = [cell.scheme, f"n {cell.samples}", f"Delta {cell.delta:g}", f"seed {cell.seed}"]
    if cell.privacy is not None:
        words += [f"alpha {cell.privacy.alpha:g}", f"T2 {cell.privacy.payment_steps}"]
    if cell.manipulation is not None:
        words.append(f"gamma {cell.manipulation.factor:g}")
    if cell.clusters is not None:
        words.append(f"{cell.clusters} clusters")
    found = f"loss {np.mean(outcome.loss):.4f}, accuracy {np.mean(outcome.accuracy):.2%}"
    line = f"{done}/{of}  {', '.join(words)}: {found} ({outcome.seconds:.0f} s)"
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    form = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser("python -m bonafed.lab.faithful_studies", formatter_class=form)
    parser.add_argument("--folder", type=Path, default=Path(), help="where the files go; must exist")
    parser.add_argument("--data", default=BASE.data, help="a data set of images with classes")
    parser.add_argument("--samples", type=int, default=BASE.samples, help="n, of all agents together")
    parser.add_argument(
        "--sizes", type=float, nargs="+", help="n of figure 3; if not given 0.1 to 2 times n"
    )
    parser.add_argument("--agents", type=int, default=BASE.agents, help="K")
    parser.add_argument("--delta", type=float, default=BASE.delta, help="of all figures but figure 4")
    parser.add_argument("--regulariser", type=float, default=BASE.regulariser, help="mu")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--results", type=Path, help="finished cells; if not given, a file in the folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
