"""One run of faithful learning or of what it is compared with: the cells of `faithful_studies`.

The paper's setting (section VII): regularised multinomial logistic regression on images, K agents of equal
weight, the typicality partition of `learning.partition` with Delta. Rows are scaled to norm 1, so that a
sample's gradient has norm at most sqrt(2) and private training clips nothing. Schemes:

    faithful     the minimum of F = sum p_k F_k, with exact payments (10), per agent or per cluster
    private      Algorithm 2 (corrected), by T_1 and T_2 noisy steps
    manipulated  FedAvg while one agent multiplies its reports by gamma: its fixed point is the minimum of
                 the losses with that agent's weight multiplied
    local        every agent minimises its own loss (11)

An agent is tested on its own distribution: with weight Delta on the test samples of its own class, and
1 - Delta on all of them (theory C0). Minima are found to a certified distance, not by a number of steps.

Each finished cell is a line of a file; a study that is stopped goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue, NoSolution
from bonafed.lab.results import append_result, read_results
from bonafed.learning.partition import owners, typicality
from bonafed.mechanisms.faithful import (
    SoftmaxRegression,
    cluster_payments,
    minimise,
    private_faithful,
    random_clusters,
)
from bonafed.mechanisms.faithful.bounds import amplified_weights
from bonafed.mechanisms.faithful.private import PrivateCalibration
from bonafed.randomness import FaithfulStudy, generator

if TYPE_CHECKING:
    from bonafed.learning.datasets import Dataset, Features

CellScheme = Literal["faithful", "private", "manipulated", "local"]
OnCell = Callable[["Cell", "Outcome", int, int], None]  # with how many are done, and of how many
_CLOSE = 1e-9  # a minimum is found when its loss is certified to be within this of the least


@dataclass(frozen=True)
class Privacy:
    """What Algorithm 2 promises every sample, and its numbers of steps."""

    alpha: float = 0.1
    beta: float = 0.01
    training_steps: int = 80  # T_1
    payment_steps: int = 20  # T_2
    calibration: PrivateCalibration = "exact"

    def __post_init__(self) -> None:
        checks.positive("alpha", self.alpha)
        if not 0 < checks.number("beta", self.beta) < 1:
            raise InvalidValue("beta", "must be between 0 and 1, ends excluded", self.beta)
        checks.whole("training_steps", self.training_steps)
        checks.whole("payment_steps", self.payment_steps)
        checks.literal("calibration", self.calibration, PrivateCalibration)


@dataclass(frozen=True)
class Manipulation:
    """One agent that multiplies every gradient it reports."""

    agent: int = 3
    factor: float = 10.0  # gamma; with a step of 1/L_g training diverges above 1 + 1/p_k

    def __post_init__(self) -> None:
        checks.whole("agent", self.agent, at_least=0)
        checks.positive("factor", self.factor)


@dataclass(frozen=True)
class Cell:
    """One run; everything its result depends on."""

    scheme: CellScheme
    samples: int = 10_000  # n, of all agents together
    delta: float = 0.05  # Delta: 0 is iid, 1 one class per agent
    seed: int = 0  # of the samples taken, the partition, the clusters and the noise
    data: str = "mnist"
    agents: int = 10  # K
    regulariser: float = 0.001  # mu
    clusters: int | None = None  # L; None: as many as agents
    privacy: Privacy | None = None  # of "private"
    manipulation: Manipulation | None = None  # of "manipulated"

    def __post_init__(self) -> None:
        checks.literal("scheme", self.scheme, CellScheme)
        checks.whole("agents", self.agents, at_least=2)
        checks.whole("samples", self.samples, at_least=self.agents)
        checks.between("delta", self.delta, 0, 1)
        checks.seed("seed", self.seed)
        checks.positive("regulariser", self.regulariser)
        if (self.privacy is None) == (self.scheme == "private"):
            raise InvalidValue("privacy", 'must be given for "private", and only then', self.privacy)
        if (self.manipulation is None) == (self.scheme == "manipulated"):
            rule = 'must be given for "manipulated", and only then'
            raise InvalidValue("manipulation", rule, self.manipulation)
        if self.manipulation is not None and self.manipulation.agent >= self.agents:
            raise InvalidValue("agent", f"must be in 0..{self.agents - 1}", self.manipulation.agent)
        if self.clusters is not None and not 2 <= checks.whole("clusters", self.clusters) <= self.agents:
            raise InvalidValue("clusters", f"must be in 2..{self.agents}", self.clusters)


@dataclass(frozen=True)
class Outcome:
    """What a cell came to, agent by agent: tuples of K numbers, losses in units of cross-entropy."""

    loss: tuple[float, ...]  # F_k on its samples, regulariser included
    payment: tuple[float, ...]  # P_k; 0 where nobody pays
    test_loss: tuple[float, ...]  # expected on fresh samples of its distribution, without regulariser
    accuracy: tuple[float, ...]  # expected on the same
    smallest: int  # n_(1), samples of the agent that has fewest
    epsilon: float  # privacy given away at beta by the record, largest of all agents; 0 if not private
    seconds: float

    @property
    def overall(self) -> Floats:
        """(K,) J_k = F_k + P_k."""
        return np.add(self.loss, self.payment)


class Share(NamedTuple):
    """The data of a cell."""

    features: Floats  # (n, d) rows of norm 1
    labels: NDArray[np.int64]  # (n,)
    owner: NDArray[np.int64]  # (n,) 0..K-1
    test_features: Floats  # (tests, d) like features
    test_labels: NDArray[np.int64]  # (tests,)
    classes: int


def run_cell(cell: Cell) -> Outcome:
    """Draw the agents' data, learn, pay, measure."""
    began = time.perf_counter()
    share = draw(cell)
    problem = SoftmaxRegression(
        share.features, share.labels, share.owner, share.classes, cell.regulariser, agents=cell.agents
    )
    payment, epsilon, p = np.zeros(cell.agents), 0.0, problem.weights
    if cell.privacy is not None:
        done = private_faithful(
            problem, _clusters(cell), generator(cell.seed, FaithfulStudy.NOISE),
            variant="printed", loss_bound=1.0, **asdict(cell.privacy),
        )  # fmt: skip  # the paper's protocol: its figures are to be repeated
        models, payment = done.model[None], done.payments
        epsilon = max(done.epsilon(k) for k in range(cell.agents))
    elif cell.manipulation is not None:
        cheat = cell.manipulation
        models = optimum(problem, amplified_weights(p, cheat.agent, cheat.factor))[None]
    elif cell.scheme == "local":
        models = _local_models(cell, share)
    else:
        models = optimum(problem, p)[None]
        payment = _exact_payments(cell, problem, models[0])
    losses = problem.losses(models)
    own = losses[0] if len(models) == 1 else np.diag(losses)
    test_loss, accuracy = _fresh(cell, share, models)
    return Outcome(
        loss=tuple(own.tolist()),
        payment=tuple(payment.tolist()),
        test_loss=tuple(test_loss.tolist()),
        accuracy=tuple(accuracy.tolist()),
        smallest=int(problem.counts.min()),
        epsilon=epsilon,
        seconds=round(time.perf_counter() - began, 3),
    )


def model_size(cell: Cell) -> int:
    """P: the numbers of its model."""
    data = _dataset(cell.data)
    return int(np.prod(data.features.shape[1:])) * data.classes


def optimum(problem: SoftmaxRegression, mix: Floats, close: float = _CLOSE) -> Floats:
    """(P,) the model that minimises sum_j mix_j F_j, its loss certified to be within `close` of the least.

    By strong convexity, f(w) - min f <= |grad f(w)|^2/(2 mu sum mix).
    """
    enough = _norm(problem, float(mix.sum()), close)
    found = minimise(problem, mix, tolerance=enough)
    if float(np.linalg.norm(problem.gradient(found[None], mix[None]))) > enough:  # rounding came first
        raise NoSolution(f"a minimum was not found to {close:g}")
    return found


def _norm(problem: SoftmaxRegression, weight: float, close: float = _CLOSE) -> float:
    """Of a gradient that is small enough for that."""
    return math.sqrt(2 * problem.regulariser * weight * close)


def _exact_payments(cell: Cell, problem: SoftmaxRegression, model: Floats) -> Floats:
    """(K,) what the others lose by each agent's presence, or by its cluster's (Definition 5)."""
    groups = _clusters(cell)
    least = 1 - max(float(problem.weights[members].sum()) for members in groups)
    return cluster_payments(problem, model, groups, _norm(problem, least)).amount


def _clusters(cell: Cell) -> list[NDArray[np.int64]]:
    count = cell.agents if cell.clusters is None else cell.clusters
    return random_clusters(cell.agents, count, generator(cell.seed, FaithfulStudy.CLUSTERS))


def _local_models(cell: Cell, share: Share) -> Floats:
    """(K, P) each agent's own minimum, from its own samples alone."""
    found = []
    for k in range(cell.agents):
        own = share.owner == k
        nobody_else = np.zeros(int(own.sum()), dtype=np.int64)
        alone = SoftmaxRegression(
            share.features[own], share.labels[own], nobody_else, share.classes, cell.regulariser
        )
        found.append(optimum(alone, alone.weights))
    return np.stack(found)


def _fresh(cell: Cell, share: Share, models: Floats) -> tuple[Floats, Floats]:
    """(K,) expected loss and accuracy on each agent's own distribution of test samples.

    One model is everybody's; K models are one for each.
    """
    x, y = share.test_features, share.test_labels
    losses, hits = np.empty(cell.agents), np.empty(cell.agents)
    for k in range(cell.agents):
        if k < len(models):
            z = x @ models[k].reshape(x.shape[1], -1)
            each = logsumexp(z, axis=1) - z[np.arange(y.size), y]
            right = z.argmax(1) == y
        home = y == k % share.classes
        losses[k] = cell.delta * each[home].mean() + (1 - cell.delta) * each.mean()
        hits[k] = cell.delta * right[home].mean() + (1 - cell.delta) * right.mean()
    return losses, hits


def draw(cell: Cell) -> Share:
    """Which samples are taken and who holds them."""
    data = _dataset(cell.data)
    if not data.classes or data.vocabulary:
        raise InvalidValue("data", "must be images or numbers with classes", cell.data)
    if cell.samples > data.labels.size:
        raise InvalidValue("samples", f"must be at most the {data.labels.size} there are", cell.samples)
    order = generator(cell.seed, FaithfulStudy.SAMPLES).permutation(data.labels.size)
    taken = order[: cell.samples]  # a smaller n is a part
    labels = data.labels[taken].astype(np.int64)
    parts = typicality(labels, cell.agents, generator(cell.seed, FaithfulStudy.PARTITION), cell.delta)
    test = data.test_labels.astype(np.int64)
    if np.bincount(test, minlength=data.classes).min() == 0:
        raise InvalidValue("data", "must have test samples of every class", cell.data)
    features, fresh = _unit(data.features[taken]), _unit(data.test_features)
    return Share(features, labels, owners(parts), fresh, test, data.classes)


@lru_cache(maxsize=1)
def _dataset(name: str) -> Dataset:
    from bonafed.learning import datasets

    return datasets.load(name)


def _unit(features: Features) -> Floats:
    """(n, d) rows scaled to norm 1; a row of zeros stays."""
    x = features.reshape(len(features), -1).astype(np.float64)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(norm > 0, norm, 1.0))


# Cells on disk


class Store:
    """Outcomes of cells: those of the file are read, the others run and added to it."""

    def __init__(self, path: Path | None = None, on_cell: OnCell | None = None) -> None:
        self._path, self._on_cell = path, on_cell
        self._known = {} if path is None else read_cells(path)

    def outcomes(self, wanted: Sequence[Cell]) -> dict[Cell, Outcome]:
        """The outcome of every cell, in the order wanted."""
        cells = list(dict.fromkeys(wanted))
        for cell in cells:
            if cell not in self._known:
                self._known[cell] = run_cell(cell)
                if self._path is not None:
                    append_result(self._path, asdict(cell), asdict(self._known[cell]))
                if self._on_cell is not None:
                    done = sum(one in self._known for one in cells)
                    self._on_cell(cell, self._known[cell], done, len(cells))
        return {cell: self._known[cell] for cell in cells}


def read_cells(path: Path) -> dict[Cell, Outcome]:
    """The finished cells of a file."""
    return read_results(path, _understand)


def _understand(cell: dict[str, Any], outcome: dict[str, Any]) -> tuple[Cell, Outcome]:
    for name, kind in (("privacy", Privacy), ("manipulation", Manipulation)):
        cell[name] = cell[name] and kind(**cell[name])
    per_agent = ("loss", "payment", "test_loss", "accuracy")
    outcome |= {name: tuple(outcome[name]) for name in per_agent}
    return Cell(**cell), Outcome(**outcome)
