"""Faithful learning by exchanges, by plain steps, and by K + 1 runs of SciPy's L-BFGS, side by side.

    python benchmarks/faithful_exchanges.py [--json FILE] [--repeats N]

Three ways to a shared model and all payments, certified to the same epsilon:

    exchanges   `faithful(problem)`, the default
    stepwise    the variant "stepwise" as it was shipped: 1,500 training steps
    L-BFGS      SciPy's L-BFGS-B for the shared model, then, from there, for every leave-one-out problem; a
                function evaluation is an exchange with everybody it concerns. Side by side it takes as many
                as its slowest problem, one by one the sum. It needs losses, which the other two do not
                reveal, and has the payments from them

The digits, 64 pixels and a constant, of norm 1 at most, softmax with mu = 0.003, 650 parameters. Half of
the samples of a label go to one agent, the rest at random; every repeat has a partition of its own. Bytes
are those of models, nodes and answers in double precision, per agent. What is counted is counted at the
seam to the agents, in a run of its own in which nobody is vouched for; what is timed is the run of a user.
Errors are against payments to rounding for the model that was reached.

The last part runs the example config as `bonafed train` would, without the start of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from bonafed.checks import Floats
from bonafed.learning.data.datasets import load
from bonafed.learning.federation import Federation, Reply, Slopes, Task, answer_shape
from bonafed.learning.problems.convex import scaled_features
from bonafed.learning.problems.federation import ProblemFederation
from bonafed.mechanisms.faithful import FaithfulOutcome, SoftmaxRegression, faithful, vcg_payments
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules
from bonafed.runs.config import read
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train
from faithful import Others
from harness import agree, machine, say

Ints = NDArray[np.int64]
AGENTS, EPSILONS = (4, 6, 10), (1e-3, 1e-5)
MU, CLASSES, DOUBLE = 0.003, 10, 8
MOST = {1e-3: 30, 1e-5: 40}  # exchanges, the target
TENTH = 0.1  # of the time of the example config


# --- what is counted -------------------------------------------------------------------------------


@dataclass(eq=False)
class Counted:
    """A federation whose messages are counted; nobody is vouched for, so each gets only what it needs."""

    inner: Federation
    exchanges: int = 0
    sent: dict[str, int] = field(default_factory=dict)  # bytes, by agent
    received: dict[str, int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def vouched(self) -> Collection[str]:
        return ()

    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply]:
        """Counts, and passes on."""
        self.exchanges += 1
        for task in tasks:
            nodes = len(task.work.nodes) if isinstance(task.work, Slopes) else 0
            answers = int(np.prod(answer_shape(task)))
            self.sent[task.client] = self.sent.get(task.client, 0) + DOUBLE * (task.models.size + nodes)
            self.received[task.client] = self.received.get(task.client, 0) + DOUBLE * answers
        return self.inner.replies(tasks)  # type: ignore[return-value]

    def kilobytes(self) -> tuple[float, float]:
        """Sent to and received from an agent, on average."""
        count = len(self.inner.members)
        return sum(self.sent.values()) / count / 1e3, sum(self.received.values()) / count / 1e3


@dataclass(frozen=True)
class Measured:
    """One way, one federation."""

    way: str
    agents: int
    epsilon: float
    exchanges: int
    one_by_one: int  # exchanges if problems are solved one after the other; else as above
    kb_sent: float  # per agent
    kb_received: float
    seconds: float
    cpu_seconds: float
    error: float  # largest |P - VCG|
    certified: float  # what that was certified to be at most
    training: float  # certified error of training over what was asked for; above 1: not reached


class Samples(NamedTuple):
    """Who holds what."""

    x: Floats
    y: Ints
    owner: Ints

    def problem(self) -> SoftmaxRegression:
        """The federation's."""
        return SoftmaxRegression(self.x, self.y, self.owner, CLASSES, MU)


def federation(agents: int, seed: int, most: int | None = None) -> Samples:
    """The digits, or so many, among K agents: half of a label's to one agent, the rest at random."""
    data, rng = load("digits"), np.random.default_rng(seed)
    x = scaled_features(data.features.reshape(len(data.labels), -1).astype(np.float64))[0][:most]
    y = data.labels.astype(np.int64)[:most]
    owner = np.where(rng.random(y.size) < 0.5, y % agents, rng.integers(0, agents, y.size))
    return Samples(x, y, owner)


# --- the three ways --------------------------------------------------------------------------------


def by_reports(problem: SoftmaxRegression, epsilon: float, way: str) -> Measured:
    """By one of our protocols."""
    clock, cpu = time.perf_counter(), time.process_time()
    outcome = faithful(problem, rules=ProtocolRules(epsilon=epsilon, variant=way))  # type: ignore[arg-type]
    taken, used = time.perf_counter() - clock, time.process_time() - cpu
    counted = Counted(ProblemFederation.of(problem))
    again = faithful(problem, counted, rules=ProtocolRules(epsilon=epsilon, variant=way))  # type: ignore[arg-type]
    apart = float(np.abs(again.payments.amount - outcome.payments.amount).max())
    agree(apart <= 1e-9, f"{way}: the run that is counted differs by {apart:.1e}")
    if outcome.exchanges is not None:
        agree(outcome.exchanges == counted.exchanges, f"{way}: {counted.exchanges} messages were counted")
    exact = vcg_payments(problem, outcome.model)
    off, certified = _errors(outcome, exact.amount)
    training = outcome.training_error / (epsilon * float(problem.weights.min()))
    return Measured(
        way, problem.agents, epsilon, counted.exchanges, counted.exchanges, *counted.kilobytes(), taken,
        used, off, certified, training,
    )  # fmt: skip


def _errors(outcome: FaithfulOutcome, exact: Floats) -> tuple[float, float]:
    """The largest error of a payment, and what it may be; stops where a certificate does not hold."""
    amount, rest, integration = outcome.payments.amount, outcome.payments.error, outcome.integration_error
    inside = (amount - exact <= integration + 1e-12) & (exact - amount <= rest + integration + 1e-12)
    agree(bool(inside.all()), "a payment is outside its certificate")
    return float(np.abs(amount - exact).max()), float(rest.max()) + integration


class _Reached(Exception):
    """The gradient is as small as was asked for."""

    def __init__(self, point: Floats, value: float) -> None:
        super().__init__()
        self.point, self.value = point, value


class Counting:
    """A function with its gradient that counts its evaluations and ends at a gradient norm."""

    def __init__(self, function: Others, norm: float) -> None:
        self.function, self.norm, self.evaluations = function, norm, 0

    def __call__(self, point: Floats) -> tuple[float, Floats]:
        """Value and gradient."""
        self.evaluations += 1
        value, gradient = self.function(point)
        if float(np.linalg.norm(gradient)) <= self.norm:
            raise _Reached(point.copy(), value)
        return value, gradient

    def solve(self, start: Floats) -> tuple[Floats, float]:
        """The point that was reached, and its value."""
        options = {"ftol": 0.0, "gtol": 0.0, "maxiter": 10_000, "maxfun": 10_000}
        try:
            minimize(self, start, jac=True, method="L-BFGS-B", options=options)
        except _Reached as reached:
            return reached.point, reached.value
        raise RuntimeError(f"L-BFGS does not reach a gradient of norm {self.norm:.1e}")


def by_values(samples: Samples, epsilon: float) -> Measured:
    """By SciPy's L-BFGS-B, once for everybody and once without each agent."""
    x, y, owner = samples
    problem = samples.problem()
    k = problem.agents
    share = 1 / (k * np.bincount(owner)[owner])
    p = 1 / k
    clock, cpu = time.perf_counter(), time.process_time()
    shared = Counting(Others(x, y, share, MU), float(np.sqrt(2 * MU * epsilon * p)))
    model, _ = shared.solve(np.zeros(problem.size))
    runs, amounts = [], np.zeros(k)
    for agent in range(k):
        rest = owner != agent
        others = Others(x[rest], y[rest], share[rest], (1 - p) * MU)
        before = others(model)[0]
        run = Counting(others, float(np.sqrt(2 * (1 - p) * MU * p * epsilon)))
        amounts[agent] = (before - run.solve(model)[1]) / p
        runs.append(run.evaluations)
    taken, used = time.perf_counter() - clock, time.process_time() - cpu
    exact = vcg_payments(problem, model).amount
    agree(bool((exact - amounts <= epsilon).all() and (amounts <= exact + 1e-9).all()), "L-BFGS is off")
    asked = shared.evaluations + sum(runs) * (k - 1) / k  # points an agent is sent, on average
    return Measured(
        "L-BFGS", k, epsilon, shared.evaluations + max(runs), shared.evaluations + sum(runs),
        asked * problem.size * DOUBLE / 1e3, asked * (problem.size + 1) * DOUBLE / 1e3, taken, used,
        float(np.abs(amounts - exact).max()), epsilon, 1.0,
    )  # fmt: skip


def measure(repeats: int) -> Iterator[Measured]:
    """All cells, the three ways in turn in every repeat."""
    for agents in AGENTS:
        for epsilon in EPSILONS:
            for seed in range(repeats):
                say(f"K = {agents}, epsilon {epsilon:g}: repeat {seed + 1} of {repeats}")
                samples = federation(agents, seed)
                yield by_reports(samples.problem(), epsilon, "exchanges")
                yield by_reports(samples.problem(), epsilon, "stepwise")
                yield by_values(samples, epsilon)


# --- the example config ----------------------------------------------------------------------------


def example(variant: str) -> tuple[float, float, float, float]:
    """Of the example config with a variant: seconds, and seconds of CPU, from the file to the statement;
    of CPU for the run in a folder, once the data are read; of CPU for its rounds alone."""
    with (
        as_file(files("bonafed.mechanisms.faithful") / "example.toml") as path,
        tempfile.TemporaryDirectory() as place,
    ):
        clock, cpu = time.perf_counter(), time.process_time()
        setting = prepare(read(Path(path), (f'faithful.variant="{variant}"',)))
        begun = time.process_time()
        train(setting, Path(place) / "run")
        taken, used = time.perf_counter() - clock, time.process_time() - cpu
        run = time.process_time() - begun
    mechanism, federation = setting.mechanism, setting.federation(None)
    cpu = time.process_time()
    state = mechanism.begin(setting.agreement, setting.start)
    while not mechanism.finished(state):
        state, _ = mechanism.advance(state, federation)
    return taken, used, run, time.process_time() - cpu


# --- the table -------------------------------------------------------------------------------------


EXAMPLE = (
    "seconds", "seconds of CPU", "seconds of CPU once the data are read",
    "seconds of CPU, training and payments alone",
)  # fmt: skip


def line(rows: Sequence[Measured]) -> str:
    """One row of the page: medians over the repeats."""

    def middle(name: str) -> float:
        return statistics.median(getattr(row, name) for row in rows)

    first = rows[0]
    exchanges = [row.exchanges for row in rows]
    spread = f"{middle('exchanges'):.0f} ({min(exchanges)} to {max(exchanges)})"
    if first.way == "L-BFGS":
        spread += f"; {middle('one_by_one'):.0f} one by one"
    certified = f"{max(row.error for row in rows):.1e} of {max(row.certified for row in rows):.1e}"
    return (
        f"| {first.agents} | {first.epsilon:g} | {first.way} | {spread} | {middle('kb_sent'):,.0f} | "
        f"{middle('kb_received'):,.0f} | {middle('seconds'):.2f} ({middle('cpu_seconds'):.2f}) | "
        f"{certified} | {max(row.training for row in rows):.2g} |"
    )


HEAD = (
    "| K | epsilon | way | exchanges | kB to an agent | kB from it | seconds (CPU) "
    "| largest error, certified | training |\n" + "|---" * 9 + "|"
)


def smallest() -> None:
    """Three agents with 60 digits, and the example config."""
    samples = federation(3, 0, 60)
    ways = [by_reports(samples.problem(), 0.01, way) for way in ("exchanges", "stepwise")]
    print("\n".join([HEAD, *(line([row]) for row in (*ways, by_values(samples, 0.01)))]))
    print(example("exchanges"))


def main() -> None:
    """Measure, print the tables, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    options = parser.parse_args()
    facts = machine(threads=os.environ.get("OMP_NUM_THREADS", "not set"))
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    rows = list(measure(options.repeats))
    print(HEAD)
    for start in range(0, len(rows), 3 * options.repeats):
        cell = rows[start : start + 3 * options.repeats]
        for way in range(3):
            print(line(cell[way::3]))
    worst = {
        epsilon: max(r.exchanges for r in rows if r.way == "exchanges" and r.epsilon == epsilon)
        for epsilon in EPSILONS
    }
    for epsilon, most in MOST.items():
        met = "met" if worst[epsilon] <= most else "NOT met"
        print(f"at most {most} exchanges at epsilon {epsilon:g}: {worst[epsilon]}, {met}")
    example("exchanges"), example("stepwise")  # to warm up
    pairs = [(example("exchanges"), example("stepwise")) for _ in range(options.repeats)]
    for at, what in enumerate(EXAMPLE):
        ratios = [after[at] / before[at] for after, before in pairs]
        after, before = (statistics.median(pair[side][at] for pair in pairs) for side in (0, 1))
        middle = statistics.median(ratios)
        print(
            f"example config, {what}: {after:.2f} by exchanges, {before:.2f} by steps, {middle:.3f} of it "
            f"({min(ratios):.3f} to {max(ratios):.3f}), target at most {TENTH}: "
            f"{'met' if middle <= TENTH else 'NOT met'}"
        )
    print(f"Medians of {options.repeats}, in turn. Other work on the machine moves every time.")
    if options.json is not None:
        content = {"machine": facts, "rows": [asdict(row) for row in rows], "example": pairs}
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
