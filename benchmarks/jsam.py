"""Side-by-side measurements of JSAM: `python benchmarks/jsam.py`.

As in `economics.py`: every row first checks that both sides give the same result (against the paper's grid:
that ours is not worse) and stops with an error if not; then it measures them in turn, several times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bonafed.checks import Floats
from bonafed.economics import Uniform
from bonafed.mechanisms.jsam import allocate, settle
from harness import Row, agree, in_turn, run, say, table

SEED = 2026
MANY = 1_000_000
PAID, FEWER = 10_000, 1_000
GRID_CLIENTS, GRID = 1_000, 1e-4
CHECKED = 20  # payments computed a second time, one by one


def virtual_costs(clients: int) -> Floats:
    """Those of costs that are uniform on [0, 1]."""
    return 2 * np.random.default_rng(SEED).uniform(1e-6, 1.0, clients)


def every_threshold(costs: Floats, eta: float, noise_scale: float) -> Floats:
    """(N,) the objective of each threshold, from the definitions: Newton's method on B^3 root = eta z^2."""
    v, n = np.sort(costs), costs.size
    h, w = np.arange(1, n + 1), v ** (2 / 3)
    spread = (w[0] * (n - h + 1) ** (2 / 3) + np.cumsum(w) - w[0]) / n ** (2 / 3)
    distance, z = 2 * (n - h) / n, np.sqrt(noise_scale) * spread**1.5
    total = np.sqrt(eta * z)
    for _ in range(30):  # in log B, where the slope is between 2 and 3
        root = np.hypot(distance, z / total)
        slope = 3 - (z / total / root) ** 2
        total = total * np.exp(-np.log(total**3 * root / (eta * z**2)) / slope)
    return np.asarray(eta * (distance + np.hypot(distance, z / total)) + total)


# --- (a) the optimal plan for a million clients, against sorting them ------------------------------


def plan_rows(repeats: int, clients: int = MANY) -> Iterator[Row]:
    """(a): few, many and all clients selected."""
    v = virtual_costs(clients)
    for eta in (10.0, 500.0, 100_000.0):
        say(f"(a) plan for {clients:,} clients, eta {eta:g}")
        plan, scan = allocate(v, eta, 1.0), every_threshold(v, eta, 1.0)
        best = float(scan.min())
        agree(
            abs(plan.objective / best - 1) <= 1e-12, f"objective {plan.objective}, all thresholds: {best}"
        )
        agree(
            abs(scan[plan.threshold - 1] / best - 1) <= 1e-12, f"threshold {plan.threshold} is not the best"
        )
        timing = in_turn(lambda eta=eta: allocate(v, eta, 1.0), lambda: np.sort(v), repeats)
        name = f"(a) plan, {clients:,} clients, {plan.threshold:,} selected"
        yield timing.row(name, "np.sort", "bonafed/peer <=", 15)


# --- (b) all payments -----------------------------------------------------------------------------


def compare_payments(reports: Floats, eta: float) -> None:
    """Some payments, each from two fresh plans: at the own report and at the highest."""
    done = settle(reports, Uniform(0, 1), eta, 1.0)
    agree(bool(np.all(done.utility(reports) >= 0)), "an honest client loses")
    agree(bool(np.any(done.payment > 0)), "nobody is paid")
    here = allocate(2 * reports, eta, 1.0)
    for k in np.linspace(0, reports.size - 1, CHECKED).astype(int):
        virtual = 2 * reports
        virtual[k] = 2.0
        rent = (allocate(virtual, eta, 1.0).objective - here.objective) / 2
        expected = reports[k] * here.privacy[k] + rent
        off = abs(done.payment[k] - expected)
        agree(
            off <= 1e-12 * here.objective,
            f"payment of client {k}: {done.payment[k]}, one by one {expected}",
        )


def payment_rows(repeats: int, many: int = PAID, few: int = FEWER) -> Iterator[Row]:
    """(b): the growth from a tenth of the clients."""
    rng = np.random.default_rng(SEED)
    reports = {n: rng.uniform(1e-6, 1.0, n) for n in (many, few)}
    for share, etas in (("some", (5.0, 5.0)), ("most", (60.0, 20.0))):
        weights = dict(zip((many, few), etas, strict=True))
        say(f"(b) payments of {many:,} and {few:,} clients in turn, {share} selected")
        for n, eta in weights.items():
            compare_payments(reports[n], eta)
        chosen = {n: allocate(2 * reports[n], eta, 1.0).threshold for n, eta in weights.items()}

        def paid(n: int, weights: dict[int, float] = weights) -> object:
            return settle(reports[n], Uniform(0, 1), weights[n], 1.0)

        timing = in_turn(lambda paid=paid: paid(many), lambda paid=paid: paid(few), repeats)
        name = f"(b) payments, {many:,} clients, {chosen[many]:,} selected"
        row = timing.row(name, f"{few:,} clients, {chosen[few]:,} selected", "bonafed/peer <=", np.inf)
        yield replace(row, target="stated only", met=None)


# --- (c) the paper's grid -------------------------------------------------------------------------


def grid_rows(repeats: int, clients: int = GRID_CLIENTS, step: float = GRID) -> Iterator[Row]:
    """(c): Algorithm 1 as printed, with Q restored."""
    v = np.sort(virtual_costs(clients))
    for eta in (1.0, 10.0):
        say(f"(c) the paper's grid, {clients:,} clients, step {step:g}, eta {eta:g}")
        ours, grid = allocate(v, eta, 1.0), allocate(v, eta, 1.0, "printed", grid=step)
        agree(
            ours.objective <= grid.objective * (1 + 1e-12),
            f"{ours.objective} is worse than {grid.objective}",
        )
        timing = in_turn(
            lambda eta=eta: allocate(v, eta, 1.0),
            lambda eta=eta: allocate(v, eta, 1.0, "printed", grid=step),
            repeats,
            (50, 1),
        )
        name = f"(c) plan, {clients:,} clients, {ours.threshold:,} selected"
        note = f"objective / grid's: 1 - {max(0.0, 1 - ours.objective / grid.objective):.1e}"
        yield timing.row(name, f"grid {step:g}", "peer/bonafed >=", 100, note)


def smallest() -> None:
    """All parts with few clients and a coarse grid."""
    print(table([*plan_rows(1, 300), *payment_rows(1, 60, 30), *grid_rows(1, 30, 0.01)]))


if __name__ == "__main__":
    run("Measure bonafed's JSAM beside its peers.", (plan_rows, payment_rows, grid_rows))
