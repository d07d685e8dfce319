"""Side-by-side measurement of faithful payments: `python benchmarks/faithful.py [--timed N]`.

All K payments for one shared model, against what a user would write without the package: K separate
leave-one-out optimisations by SciPy's L-BFGS, each on the others' samples, started at the shared model.
Both sides are first compared with payments computed to rounding, and L-BFGS is given the loosest gradient
tolerance at which its worst payment is as accurate as our worst; then both are timed in turn.

MNIST from $BONAFED_DATA (10,000 training images), softmax regression of 784 x 10 numbers, every image
scaled to norm 1, partition `typicality` with Delta = 0.5. Without $BONAFED_DATA a synthetic set of the same
shape takes its place, and the rows say so. Set OMP_NUM_THREADS=1 for one thread on both sides.

With `--federations`: seconds and peak memory of `bonafed train`, with payments, on real federations.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from bonafed.checks import Floats
from bonafed.learning.data.datasets import load
from bonafed.learning.data.partition import typicality
from bonafed.mechanisms.faithful import SoftmaxRegression, minimise, vcg_payments
from bonafed.runs import config, prepare, training
from harness import Row, Timing, WorkerFailed, agree, last_lines, machine, run, say, seconds

Ints = NDArray[np.int64]
SEED = 2026
SAMPLES, FEATURES, CLASSES = 10_000, 784, 10
DELTA = 0.5  # heterogeneity of the agents
CASES = ((0.003, (10, 30, 100)), (0.0003, (30,)))  # regulariser mu, agents K
ERROR = 1e-7  # certified error of our payments, in units of loss
TIGHT = 1e-10  # gradient norm of the reference
SOME = 30  # agents whose optimisation is timed, drawn at random; the time of all K is scaled from theirs
TARGET, LEAST = 30, 5.0  # the number of agents the target is for, and how many times faster


Drawn = tuple[str, Floats, Ints]  # the name of a set, features of norm 1, labels


@cache
def samples() -> Drawn:
    """The name of the set, features of norm 1, labels."""
    rng = np.random.default_rng(SEED)
    if not os.environ.get("BONAFED_DATA"):
        say("BONAFED_DATA is not set: a synthetic set of the same shape takes the place of MNIST")
        return "synthetic", *synthetic(rng)
    data = load("mnist")
    chosen = rng.permutation(len(data.labels))[:SAMPLES]
    x = data.features[chosen].reshape(SAMPLES, -1).astype(np.float64)
    return "MNIST", x / np.linalg.norm(x, axis=1, keepdims=True), data.labels[chosen].astype(np.int64)


def synthetic(
    rng: np.random.Generator, count: int = SAMPLES, features: int = FEATURES
) -> tuple[Floats, Ints]:
    """Ten clouds around random centres, variances falling as those of images do."""
    spread = 1 / np.arange(1, features + 1)
    labels = rng.integers(0, CLASSES, count)
    centres = 2 * rng.standard_normal((CLASSES, features)) * spread
    x = 1 / np.sqrt(features) + centres[labels] + rng.standard_normal((count, features)) * spread
    return x / np.linalg.norm(x, axis=1, keepdims=True), labels


# --- the user's alternative ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Others:
    """f_-k over the samples of everybody but k, written down directly."""

    x: Floats  # (n', d)
    y: Ints  # (n',)
    share: Floats  # (n',) p_j/n_j of the sample's owner
    mu: float  # (1 - p_k) times the regulariser

    def __call__(self, flat: Floats) -> tuple[float, Floats]:
        """Value and gradient, one pass each way."""
        rows = np.arange(self.y.size)
        z = self.x @ flat.reshape(self.x.shape[1], CLASSES)
        z -= z.max(1, keepdims=True)
        right = z[rows, self.y]
        np.exp(z, out=z)
        sums = z.sum(1)
        value = float(self.share @ (np.log(sums) - right)) + self.mu / 2 * float(flat @ flat)
        z /= sums[:, None]
        z[rows, self.y] -= 1
        z *= self.share[:, None]
        return value, (self.x.T @ z).ravel() + self.mu * flat


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One federation."""

    x: Floats
    y: Ints
    owner: Ints
    agents: int
    mu: float
    model: Floats  # (P,) the shared model w*

    def without(self, agent: int) -> Others:
        """What is left without one agent; equal weights 1/K."""
        rest = self.owner != agent
        share = 1 / (self.agents * np.bincount(self.owner)[self.owner[rest]])
        return Others(self.x[rest], self.y[rest], share, self.mu * (1 - 1 / self.agents))

    def ours(self) -> Floats:
        """All payments; a new problem each time, so that nothing is left over from the last."""
        problem = SoftmaxRegression(self.x, self.y, self.owner, CLASSES, self.mu)
        return vcg_payments(problem, self.model, epsilon=ERROR).amount

    def theirs(self, agent: int, gradient: float) -> tuple[float, float]:
        """A payment by L-BFGS, to a largest partial derivative; and the seconds its optimisation took."""
        others = self.without(agent)
        found: list[OptimizeResult] = []
        options = {"ftol": 0.0, "gtol": gradient, "maxiter": 10_000, "maxfun": 10_000}
        call = partial(minimize, others, self.model, jac=True, method="L-BFGS-B", options=options)
        taken = seconds(lambda: found.append(call()))
        return float((others(self.model)[0] - found[0].fun) * self.agents), taken


def path(case: Case, agent: int, exact: float) -> tuple[Floats, Floats]:
    """At every iterate of L-BFGS: the largest partial derivative, and the payment's relative error."""
    others = case.without(agent)
    before = others(case.model)[0]
    largest, error = [], []

    def after(flat: Floats) -> None:
        value, gradient = others(flat)
        largest.append(float(np.abs(gradient).max()))
        error.append(abs((before - value) * case.agents / exact - 1))

    options = {"ftol": 0.0, "gtol": 1e-9, "maxiter": 300}
    minimize(others, case.model, jac=True, method="L-BFGS-B", options=options, callback=after)
    return np.array(largest), np.array(error)


def loosest(case: Case, agents: Ints, exact: Floats, worst: float) -> float:
    """The largest gradient tolerance at which no payment of these agents is off by more than `worst`."""
    paths = [path(case, k, exact[k]) for k in agents]
    for tolerance in np.geomspace(1e-3, 1e-9, 121):
        stops = [int(np.argmax(g <= tolerance)) if (g <= tolerance).any() else g.size - 1 for g, _ in paths]
        if max(error[at] for (_, error), at in zip(paths, stops, strict=True)) <= worst:
            return float(tolerance)
    raise RuntimeError(f"L-BFGS does not reach a relative error of {worst:.1e}")


# --- measuring -------------------------------------------------------------------------------------


def federation(mu: float, agents: int, drawn: Drawn) -> Case:
    """The samples among K agents, and the model they share."""
    _, x, y = drawn
    owner = np.empty(len(y), dtype=np.int64)
    for k, mine in enumerate(typicality(y, agents, np.random.default_rng(SEED), DELTA)):
        owner[mine] = k
    problem = SoftmaxRegression(x, y, owner, CLASSES, mu)
    return Case(x, y, owner, agents, mu, minimise(problem, problem.weights, tolerance=TIGHT))


def reference(case: Case, some: Ints) -> Floats:
    """(K,) payments to rounding; two of them confirmed by L-BFGS, which shares no line with ours."""
    problem = SoftmaxRegression(case.x, case.y, case.owner, CLASSES, case.mu)
    exact = vcg_payments(problem, case.model, tolerance=TIGHT)
    agree(bool(np.all(exact.error <= 1e-10 * exact.amount)), "the reference is not certified")
    for k in some[:2]:
        apart = case.theirs(int(k), 1e-8)[0] / exact.amount[k] - 1
        agree(abs(apart) <= 1e-7, f"payment of agent {k} differs by {apart:.1e} from L-BFGS")
    return exact.amount


def row(mu: float, agents: int, timed: int, repeats: int, drawn: Drawn) -> Row:
    """One federation: agreement, then both sides in turn."""
    case = federation(mu, agents, drawn)
    some = np.sort(np.random.default_rng(SEED).permutation(agents)[:timed])
    exact = reference(case, some)
    worst = float(np.abs(case.ours() / exact - 1).max())
    agree(worst <= ERROR / exact.min(), f"a payment is off by {worst:.1e}, beyond its certificate")
    tolerance = loosest(case, some, exact, worst)
    ours, peer = [], []
    for turn in range(repeats):
        say(f"mu {mu:g}, K = {agents}: repeat {turn + 1} of {repeats}")
        ours.append(seconds(case.ours))
        found = [case.theirs(int(k), tolerance) for k in some]
        off = max(abs(amount / exact[k] - 1) for k, (amount, _) in zip(some, found, strict=True))
        agree(off <= worst, f"L-BFGS is off by {off:.1e} where its tolerance was chosen for {worst:.1e}")
        peer.append(sum(taken for _, taken in found) * agents / some.size)
    scaled = "" if some.size == agents else f", peer's time from {some.size} agents at random"
    measured = Timing(ours, peer).row(
        f"payments, K = {agents}, mu = {mu:g}", f"K x L-BFGS, gtol {tolerance:.1e}",
        "peer/bonafed >=", LEAST, f"{drawn[0]}, off by at most {worst:.0e}{scaled}",
    )  # fmt: skip
    return measured if agents == TARGET else replace(measured, target="stated only", met=None)


def rows(timed: int, repeats: int) -> Iterator[Row]:
    """Every case."""
    for mu, counts in CASES:
        for agents in counts:
            say(f"mu {mu:g}, K = {agents}: shared model, reference, tolerance of L-BFGS")
            yield row(mu, agents, timed, repeats, samples())


# --- whole runs ------------------------------------------------------------------------------------

OWNERS: Mapping[str, object] = {"partition.kind": "natural", "partition.clients": None,
                                "partition.delta": None, "faithful.regulariser": None}  # fmt: skip
# ends as `bonafed` does, and writes down what the process used: getrusage would count its parent's memory
COMMAND = """
import sys, time
from pathlib import Path
from bonafed.cli import main
used, sys.argv[:] = sys.argv[1], ["bonafed", *sys.argv[2:]]
try:
    main()
finally:
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    Path(used).write_text(f"{time.process_time()} {peak}")
"""


@dataclass(frozen=True)
class Federation:
    """What is changed in the example config that `bonafed train --write-example faithful` writes."""

    name: str
    changes: Mapping[str, object]  # by dotted key; None takes it out

    @property
    def options(self) -> list[str]:
        """As given to `bonafed train`."""
        pairs = (f"{key}={'' if value is None else value}" for key, value in self.changes.items())
        return [word for pair in pairs for word in ("--set", pair)]


def _owned(name: str, **choices: object) -> Mapping[str, object]:
    """Of a data set with real clients."""
    return {"data.name": name, **{f"data.{key}": value for key, value in choices.items()}, **OWNERS}


FEDERATIONS = (
    Federation("MNIST, 10 agents", {"data.name": "mnist"}),
    Federation("heart, 4 hospitals", _owned("heart")),
    Federation("ist, 24 countries", _owned("ist", clients="countries", minimum_rows=86)),
    Federation("ist, 36 countries", _owned("ist", clients="countries")),
    Federation("ist, 49 hospitals", _owned("ist", minimum_rows=96)),
    Federation("ist, 464 hospitals", _owned("ist")),
    Federation("schools, 160 schools", _owned("schools")),
    Federation("schools, 2,410 schools", _owned("schools", study="chem97")),
)


@dataclass(frozen=True)
class Trained:
    """What a run from the config to the statement comes to."""

    seconds: float  # from the command to its end
    cpu: float  # seconds
    peak: float  # bytes
    agents: int
    parameters: int
    exchanges: int
    training: float  # seconds of training and payments alone
    largest: float  # payment
    error: float  # of a payment, certified, at most


def trained(federation: Federation) -> Trained:
    """`bonafed train`, in a process and a folder of its own."""
    with (
        as_file(files("bonafed.mechanisms.faithful") / "example.toml") as example,
        tempfile.TemporaryDirectory() as place,
    ):
        used, folder = Path(place) / "used", Path(place) / "run"
        words = ["train", str(example), *federation.options, "--folder", str(folder)]
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, str(used), *words], capture_output=True, text=True
        )
        taken = time.perf_counter() - began
        if done.returncode:
            raise WorkerFailed(f"{federation.name}: {last_lines(done.stderr)}")
        cpu, peak = map(float, used.read_text().split())
        return of_run(folder, taken, cpu, 1024 * peak)


def of_run(folder: Path, taken: float, cpu: float, peak: float) -> Trained:
    """A run that took so much, with what its folder says."""
    summary = json.loads((folder / "summary.json").read_text())
    columns = summary["statement"]["columns"]
    return Trained(
        taken, cpu, peak, summary["clients"], summary["parameters"], summary["rounds"],
        summary["seconds"], max(columns["payment"]), max(columns["payment_error"]),
    )  # fmt: skip


def shown(federation: Federation, found: Trained) -> str:
    """A line of the page."""
    return (
        f"| {federation.name} | {found.agents:,} | {found.parameters:,} | "
        f"{found.exchanges} | {found.training:.1f} | {found.seconds:.1f} ({found.cpu:.1f}) | "
        f"{found.peak / 1e6:,.0f} | {found.largest:.2g} | {found.error:.1g} |"
    )


def whole_runs() -> None:
    """All federations, one after the other; one whose files are missing is named and left out."""
    print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    print(
        "| federation | agents | parameters | exchanges | training and payments, s "
        "| whole run, s (CPU) | peak MB | largest payment | its error at most |"
        "\n|---|---|---|---|---|---|---|---|---|"
    )
    for federation in FEDERATIONS:
        try:
            print(shown(federation, trained(federation)), flush=True)
        except WorkerFailed as problem:
            print(f"| {federation.name} | not measured: {problem} |" + " |" * 7, flush=True)


def timed_agents() -> int | None:
    """The option --timed, taken from the command line before the harness reads it; None: whole runs."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--timed", type=int, default=SOME)
    parser.add_argument("--federations", action="store_true")
    options, sys.argv[1:] = parser.parse_known_args()
    if options.federations:
        return None
    if options.timed < 1:
        parser.error(f"--timed must be at least 1, got {options.timed}")
    return int(options.timed)


def smallest() -> None:
    """Ten agents with 100 invented samples; configs of all federations; a whole run, in this process."""
    rng = np.random.default_rng(SEED)
    print(row(0.003, 10, 1, 1, ("synthetic", *synthetic(rng, 100, 5))))
    with (
        as_file(files("bonafed.mechanisms.faithful") / "example.toml") as example,
        tempfile.TemporaryDirectory() as place,
    ):
        for federation in FEDERATIONS:
            config.read(example, federation.options[1::2])
        folder = Path(place) / "run"
        training.train(prepare.prepare(config.read(example)), folder)
        print(shown(Federation("digits, 10 agents", {}), of_run(folder, 0.0, 0.0, 0.0)))


if __name__ == "__main__":
    count = timed_agents()
    if count is None:
        whole_runs()
        sys.exit()
    run(
        "Measure bonafed's faithful payments beside separate optimisations. --timed N: the peer's time is"
        f" that of N agents drawn at random, scaled to all (default {SOME}; with 100 all are timed)."
        " --federations: instead, seconds and memory of whole runs of MNIST, hospitals, schools.",
        (partial(rows, count),),
        threads=os.environ.get("OMP_NUM_THREADS", "not set"),
    )
