"""Side-by-side measurements of the economics core: `python benchmarks/economics.py`.

Every row first checks that both sides give the same result and stops with an error if they do not;
then it measures them in turn, several times, and reports the median of the ratios with their range.
Times are never asserted: a row shows its target and whether this run met it. See README.md.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import cvxpy
import numpy as np
from scipy import stats

from bonafed.checks import Floats
from bonafed.economics import (
    Discrete,
    Empirical,
    Menu,
    NormalMixture,
    Prior,
    ScaledBeta,
    TruncatedExponential,
    TruncatedNormal,
    Uniform,
    from_scipy,
)
from bonafed.mechanisms.sampling import PriorFreeSampling, optimal_menu, plan
from harness import Row, Timing, Work, agree, in_turn, run, say, seconds, table
from oracle import Continuous, Finite, Law, Mixture

SEED = 2026
POINTS = 2_000  # costs of the discrete priors
REPORTS = 1_000_000
CHECKED = 50  # reports compared with the oracle
QUOTE = "quote sampling --prior uniform:0.5,1.5 --clients 100 --rounds 200 --budget 10000"
_TOUCHES_TORCH = """
import contextlib, io, sys
sys.argv = ["bonafed"] + {arguments!r}
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    {action}
print("torch" in sys.modules)
"""


# --- (a) the menu of a discrete prior, against a convex solver ------------------------------------


def irregular(seed: int, points: int = POINTS) -> tuple[Floats, Floats]:
    """Costs and masses whose virtual cost falls in many places."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(0.5, 1.5, points)), rng.dirichlet(np.ones(points))


def virtual(costs: Floats, masses: Floats) -> Floats:
    """phi_k = c_k + (c_k - c_{k-1}) F_{k-1}/f_k."""
    below = np.cumsum(masses) - masses
    return np.asarray(costs + np.diff(costs, prepend=costs[0]) * below / masses)


def by_theorem(costs: Floats, masses: Floats, budget: float) -> Menu:
    """Our menu, from a new prior: curves are cached by the identity of a discrete one."""
    return optimal_menu(Discrete(costs, masses), budget)


def by_solver(costs: Floats, masses: Floats, budget: float) -> float:
    """The least E[1/q] over falling q <= 1 within the budget, by cvxpy with its default solver."""
    q = cvxpy.Variable(costs.size)
    spend = q @ (masses * virtual(costs, masses))
    problem = cvxpy.Problem(
        cvxpy.Minimize(masses @ cvxpy.inv_pos(q)), [q[1:] <= q[:-1], q <= 1, spend <= budget]
    )
    return float(problem.solve())


def compare_objectives(costs: Floats, masses: Floats, budget: float) -> None:
    """Ours is feasible, not worse than the solver's by 1e-6, and the two are equal to 1e-5."""
    menu = by_theorem(costs, masses, budget)
    q, _ = menu.price(costs)
    spend = float((masses * virtual(costs, masses)) @ q)
    agree(bool(np.all(np.diff(q) <= 0) and q[0] <= 1), "the menu's probabilities rise or exceed 1")
    agree(spend <= budget * (1 + 1e-12), f"the menu spends {spend}, the budget is {budget}")
    ours, solver = float(masses @ (1 / q)), by_solver(costs, masses, budget)
    agree(ours <= solver * (1 + 1e-6), f"E[1/q]: {ours} is worse than cvxpy's {solver}")
    agree(abs(ours - solver) <= 1e-5 * solver, f"E[1/q]: {ours}, cvxpy has {solver}")


def design_rows(repeats: int, points: int = POINTS) -> Iterator[Row]:
    """(a): another random prior at each repeat."""
    budget, ours, peer = 1.0, [], []
    for repeat in range(repeats):
        say(f"(a) menu of {points:,} costs, prior {repeat + 1} of {repeats}")
        costs, masses = irregular(SEED + repeat, points)
        compare_objectives(costs, masses, budget)
        ours.append(seconds(partial(by_theorem, costs, masses, budget), loops=20))
        peer.append(seconds(partial(by_solver, costs, masses, budget)))
    name = f"(a) menu, {points:,} discrete costs"
    yield Timing(ours, peer).row(name, "cvxpy", "peer/bonafed >=", 200)


# --- (b) pricing a million reports, against one square root ---------------------------------------


@dataclass(frozen=True)
class Pricing:
    """A prior to price under, and how the oracle is told about it."""

    name: str
    prior: Prior
    oracle: Callable[[float], Continuous | Finite]  # of a budget
    limit: float = 200.0


def pricings() -> list[Pricing]:
    """One prior of each kind."""
    costs, masses = irregular(SEED)
    past = np.sort(np.random.default_rng(SEED).uniform(0.5, 1.5, 10_000))
    parts = ([0.5, 0.5], [0.7, 1.2], [0.08, 0.1])
    laws: list[tuple[str, Prior, Law, float]] = [
        ("Uniform", Uniform(0.5, 1.5), stats.uniform(0.5, 1.0), 20.0),
        ("TruncatedExponential", TruncatedExponential(2.0, 0.5, 1.5), stats.expon(0.5, 0.5), 200.0),
        ("TruncatedNormal", TruncatedNormal(1.0, 0.2, 0.5, 1.5), stats.norm(1.0, 0.2), 200.0),
        ("ScaledBeta", ScaledBeta(2.0, 3.0, 0.5, 1.5), stats.beta(2, 3, 0.5, 1.0), 200.0),
        ("NormalMixture, irregular", NormalMixture(*parts, 0.5, 1.5), Mixture(*parts), 200.0),
        ("from_scipy gamma", from_scipy(stats.gamma(3), 0.5, 6.0), stats.gamma(3), 200.0),
    ]
    smooth = [
        Pricing(name, p, partial(Continuous, law, p.low, p.high), limit) for name, p, law, limit in laws
    ]
    equal = [1 / (past.size + 1)] * (past.size + 1)
    return [
        *smooth,
        Pricing(
            f"Discrete, {POINTS:,} costs",
            Discrete(costs, masses),
            partial(Finite, costs.tolist(), masses.tolist()),
        ),
        Pricing(
            f"Empirical, {past.size:,} samples",
            Empirical(past, 1.5),
            partial(Finite, [*past.tolist(), 1.5], equal),
        ),
    ]


def pricing_row(case: Pricing, repeats: int, count: int = REPORTS) -> Row:
    """Price the same reports, a million, and take their square roots."""
    prior, budget = case.prior, 0.6 * case.prior.high
    if case.name.startswith("NormalMixture"):
        agree(not prior.is_regular, "the mixture is meant to be irregular")
    start = time.perf_counter()
    menu = optimal_menu(prior, budget)
    menu.price(prior.low)
    built = time.perf_counter() - start
    reports = np.random.default_rng(SEED).uniform(prior.low, prior.high, count)
    some = reports[:CHECKED]
    expected = np.array(case.oracle(budget).price(some.tolist())).T
    for what, ours, oracle in zip("qr", menu.price(reports), expected, strict=True):
        worst = float(np.max(np.abs(ours[:CHECKED] / oracle - 1)))
        agree(worst <= 1e-9, f"{case.name}: {what} is off by {worst:.2g} (relative)")
    timing = in_turn(lambda: menu.price(reports), lambda: np.sqrt(reports), repeats, (1, 20))
    note = f"menu made once in {1e3 * built:.1f} ms"
    return timing.row(f"(b) 10^6 reports, {case.name}", "np.sqrt", "bonafed/peer <=", case.limit, note)


def pricing_rows(repeats: int) -> Iterator[Row]:
    """(b): one row per kind of prior."""
    for case in pricings():
        say(f"(b) pricing {REPORTS:,} reports under {case.name}")
        yield pricing_row(case, repeats)


# --- (c) no prior: clients one after the other ----------------------------------------------------


def sequence(clients: int, refresh: float) -> tuple[PriorFreeSampling, Floats]:
    """Rules and costs; 60 cents per client where the highest cost is 1.5."""
    rules = PriorFreeSampling(clients=clients, budget=0.6 * clients, highest=1.5, refresh=refresh)
    return rules, np.random.default_rng(SEED).uniform(0.5, 1.5, clients)


def spent_per_client(rules: PriorFreeSampling, costs: Floats) -> float:
    """Expected payments of a run over its clients; must be within the budget."""
    spent = rules.run(costs).spent
    agree(spent <= rules.budget, f"{rules.clients:,} clients: spent {spent} of {rules.budget}")
    return spent / rules.clients


def compare_one_by_one(refresh: float) -> None:
    """A run in batches is the same as settling one client after the other."""
    rules, costs = sequence(400, refresh)
    state, terms = rules.start(), []
    for cost in costs:
        settled, state = state.settle(cost)
        terms.append((settled.probability, settled.payment))
    run = rules.run(costs)
    same = np.allclose(np.array(terms).T, [run.probability, run.payment], rtol=1e-9, atol=0)
    agree(bool(same), f"refresh={refresh}: run() and settle() differ")


def prior_free_rows(repeats: int) -> Iterator[Row]:
    """(c): growth from a tenth of the clients, and a menu for every client."""
    for refresh in (0.0, 0.01):
        compare_one_by_one(refresh)
    (many, many_costs), (few, few_costs) = sequence(1_000_000, 0.01), sequence(100_000, 0.01)
    say("(c) prior-free: checking that the budget holds")
    large, small = spent_per_client(many, many_costs), spent_per_client(few, few_costs)
    agree(abs(large - small) <= 0.02 * small, f"spent per client: {large} and {small}")
    say("(c) prior-free: 1,000,000 and 100,000 clients in turn")
    timing = in_turn(lambda: many.run(many_costs), lambda: few.run(few_costs), repeats)
    name = "(c) prior-free, 10^6 clients, refresh 0.01"
    yield timing.row(name, "10^5 clients", "bonafed/peer <=", 15)
    say("(c) prior-free: 10,000 clients, a new menu for each")
    every, costs = sequence(10_000, 0.0)
    spent_per_client(every, costs)
    times = [seconds(lambda: every.run(costs)) for _ in range(repeats)]
    name = "(c) prior-free, 10^4 clients, a menu for each"
    yield Row(name, statistics.median(times), "", None, None, None, "stated only", None)


# --- (d) the command line -------------------------------------------------------------------------


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def bonafed(*arguments: str) -> str:
    """What the installed `bonafed` command prints."""
    command = Path(sys.executable).with_name("bonafed")
    return subprocess.run([command, *arguments], check=True, capture_output=True, text=True).stdout


def compare_quote() -> None:
    """The command quotes what the library computes."""
    quoted = json.loads(bonafed(*QUOTE.split(), "--json"))
    contract = plan(Uniform(0.5, 1.5), 10_000, clients=100, rounds=200)
    levels = [term["cost"] for term in quoted["terms"]]
    shown = [[term["probability"], term["payment"]] for term in quoted["terms"]]
    terms = np.array(contract.menu.price(levels)).T
    agree(bool(np.allclose(shown, terms, rtol=1e-12, atol=0)), "quote and library differ")


def without_torch(action: str) -> str:
    """Run something in a fresh interpreter; stop if it imported torch."""
    code = _TOUCHES_TORCH.format(arguments=QUOTE.split(), action=action)
    agree(python(code) == "False", f"{action} imports torch")
    return "torch not imported"


def start_up_row(name: str, work: Work, limit: float, repeats: int, note: str) -> Row:
    """Wall time of a fresh process, beside one that only imports NumPy."""
    timing = in_turn(work, lambda: python("import numpy"), repeats)
    row = timing.row(name, "import numpy", "bonafed/peer <=", np.inf, note)
    return Row(**{**asdict(row), "target": f"bonafed < {limit:g} s", "met": row.seconds < limit})


def start_up_rows(repeats: int) -> Iterator[Row]:
    """(d): the time until an operator sees a quote."""
    times = max(7, repeats)
    say("(d) bonafed quote, in a fresh process")
    compare_quote()
    note = without_torch("from bonafed.cli import main; main()")
    yield start_up_row("(d) bonafed quote", lambda: bonafed(*QUOTE.split()), 1.0, times, note)
    say("(d) import bonafed.economics, in a fresh process")
    action = "import bonafed.economics"
    note = without_torch(action)
    yield start_up_row(f"(d) {action}", lambda: python(action), 0.5, times, note)


def smallest() -> None:
    """A menu of 20 costs, 100 reports under two priors, 50 clients without one, and a quote."""
    found = [*design_rows(1, 20)]
    found += [pricing_row(case, 1, 100) for case in pricings() if case.name.startswith(("Uniform", "Dis"))]
    spent_per_client(*sequence(50, 0.01))
    compare_quote()
    print(table(found))


if __name__ == "__main__":
    run(
        "Measure bonafed's economics core beside its peers.",
        (design_rows, pricing_rows, prior_free_rows, start_up_rows),
        note=" (start-up: at least 7)",
        cvxpy=cvxpy.__version__,
    )
