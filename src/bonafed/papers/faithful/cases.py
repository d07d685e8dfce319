"""Agents of the faithful paper (section VII) under one scheme: what the studies of `faithful` compare.

Regularised multinomial logistic regression on images, K agents of equal weight, the typicality partition of
`learning.partition` with Delta. Rows are scaled to norm 1, so that a sample's gradient has norm at most
sqrt(2) and private training clips nothing. Schemes:

    faithful     the minimum of F = sum p_k F_k, with exact payments (10), per agent or per cluster
    stepwise     Algorithm 1 by T_1 and T_2 steps, their number alone deciding (sign and step corrected)
    private      Algorithm 2 as printed, by T_1 and T_2 noisy steps
    manipulated  FedAvg while one agent multiplies its reports by gamma: its fixed point is the minimum of
                 the losses with that agent's weight multiplied
    local        every agent minimises its own loss (11)

An agent is tested on its own distribution: with weight Delta on the test samples of its own class, and
1 - Delta on all of them (theory C0). Minima are found to a certified distance, and there is no constant
among the features: that is why these are no runs of a config.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue, NoSolution
from bonafed.learning.data.partition import owners, typicality
from bonafed.mechanisms.faithful import (
    SoftmaxRegression,
    cluster_payments,
    minimise,
    pay,
    private_faithful,
    random_clusters,
    train,
)
from bonafed.mechanisms.faithful.private.noise import PrivateTerms
from bonafed.mechanisms.faithful.protocol.stepwise import StepwiseTerms
from bonafed.mechanisms.faithful.theory.bounds import amplified_weights
from bonafed.randomness import FaithfulStudy, generator
from bonafed.sections import Section, key, natural, one_of, section_from, word

if TYPE_CHECKING:
    from bonafed.learning.data.datasets import Dataset, Features
    from bonafed.presentation.documents import JSONObject

Scheme = Literal["faithful", "stepwise", "private", "manipulated", "local"]
_ANY = 1e9  # a residual that every step passes: the number of steps alone ends the payments
_CLOSE = 1e-9  # a minimum is found when its loss is certified to be within this of the least


def _share(name: str, value: object) -> float:
    return checks.between(name, value, 0, 1)


def _two_or_more(name: str, value: object) -> int:
    return checks.whole(name, value, at_least=2)


@dataclass(frozen=True)
class Case(Section):
    """Agents and a scheme; everything that the outcome depends on."""

    scheme: str = key(one_of(Scheme))
    samples: int = key(checks.whole, 10_000)  # n, of all agents together
    delta: float = key(_share, 0.05)  # Delta: 0 is iid, 1 one class per agent
    seed: int = key(checks.seed, 0)  # of the samples taken, the partition, the clusters and the noise
    data: str = key(word, "mnist")
    agents: int = key(_two_or_more, 10)  # K
    regulariser: float = key(checks.positive, 0.001)  # mu
    clusters: int | None = key(_two_or_more, None)  # L; None: as many as agents
    alpha: float | None = key(checks.positive, None)  # privacy of every sample, of "private"
    training_steps: int = key(checks.whole, 80)  # T_1, of "stepwise" and "private"
    payment_steps: int = key(checks.whole, 20)  # T_2, of the same
    factor: float | None = key(checks.positive, None)  # gamma, of "manipulated"
    manipulator: int = key(natural, 3)  # which agent multiplies its reports

    def _agree(self) -> None:
        if self.samples < self.agents:
            raise InvalidValue("samples", f"must be at least the {self.agents} agents", self.samples)
        if self.clusters is not None and self.clusters > self.agents:
            raise InvalidValue("clusters", f"must be in 2..{self.agents}", self.clusters)
        for scheme, name in (("private", "alpha"), ("manipulated", "factor")):
            if (getattr(self, name) is None) == (self.scheme == scheme):
                rule = f'must be set for "{scheme}", and for no other scheme'
                raise InvalidValue(name, rule, getattr(self, name))
        if self.factor is not None and self.manipulator >= self.agents:
            raise InvalidValue("manipulator", f"must be in 0..{self.agents - 1}", self.manipulator)

    def __str__(self) -> str:
        words = [self.scheme, f"n {self.samples}", f"Delta {self.delta:g}", f"seed {self.seed}"]
        if self.alpha is not None:
            words.append(f"alpha {self.alpha:g}")
        if self.scheme in ("stepwise", "private"):
            words.append(f"T2 {self.payment_steps}")
        if self.factor is not None:
            words.append(f"gamma {self.factor:g}")
        if self.clusters is not None:
            words.append(f"{self.clusters} clusters")
        return ", ".join(words)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case, agent by agent: K numbers each, losses in units of cross-entropy."""

    loss: list[float]  # F_k on its samples, regulariser included
    payment: list[float]  # P_k; 0 where nobody pays
    test_loss: list[float]  # expected on fresh samples of its distribution, without regulariser
    accuracy: list[float]  # expected on the same
    smallest: int  # n_(1), samples of the agent that has fewest
    epsilon: float  # privacy given away at beta by the record, largest of all agents; 0 if not private

    @property
    def overall(self) -> Floats:
        """(K,) J_k = F_k + P_k."""
        return np.add(self.loss, self.payment)


class Share(NamedTuple):
    """The data of a case."""

    features: Floats  # (n, d) rows of norm 1
    labels: NDArray[np.int64]  # (n,)
    owner: NDArray[np.int64]  # (n,) 0..K-1
    test_features: Floats  # (tests, d) like features
    test_labels: NDArray[np.int64]  # (tests,)
    classes: int


def compute(arguments: JSONObject, _: Path) -> JSONObject:
    """A case as a cell: its table in, the fields of its outcome out."""
    return asdict(outcome(section_from(Case, "case", arguments)))


def outcome(case: Case) -> Outcome:
    """Draw the agents' data, learn, pay, measure."""
    share = draw(case)
    problem = SoftmaxRegression(
        share.features, share.labels, share.owner, share.classes, case.regulariser, agents=case.agents
    )
    payment, epsilon, p = np.zeros(case.agents), 0.0, problem.weights
    if case.alpha is not None:
        # the paper's protocol, as its figures are to be repeated
        private = private_faithful(
            problem,
            _clusters(case),
            generator(case.seed, FaithfulStudy.NOISE),
            PrivateTerms(
                variant="printed",
                loss_bound=1.0,
                alpha=case.alpha,
                beta=0.01,
                training_steps=case.training_steps,
                payment_steps=case.payment_steps,
            ),
        )
        models, payment = private.model[None], private.payments
        epsilon = max(private.epsilon(k) for k in range(case.agents))
    elif case.factor is not None:
        models = optimum(problem, amplified_weights(p, case.manipulator, case.factor))[None]
    elif case.scheme == "local":
        models = _local_models(case, share)
    elif case.scheme == "stepwise":
        reached, reports = train(problem, None, case.training_steps)
        paid, _ = pay(
            problem, reached, reports, StepwiseTerms(payment_steps=case.payment_steps, epsilon=_ANY)
        )
        models, payment = reached[None], paid.amount
    else:
        models = optimum(problem, p)[None]
        payment = _exact_payments(case, problem, models[0])
    losses = problem.losses(models)
    own = losses[0] if len(models) == 1 else np.diag(losses)
    test_loss, accuracy = _fresh(case, share, models)
    return Outcome(
        own.tolist(), payment.tolist(), test_loss.tolist(), accuracy.tolist(), int(problem.counts.min()),
        epsilon,
    )  # fmt: skip


def optimum(problem: SoftmaxRegression, mix: Floats, close: float = _CLOSE) -> Floats:
    """(P,) the model that minimises sum_j mix_j F_j, its loss certified to be within `close` of the least.

    By strong convexity, f(w) - min f <= |grad f(w)|^2/(2 mu sum mix).
    """
    enough = _norm(problem, float(mix.sum()), close)
    model = minimise(problem, mix, tolerance=enough)
    if float(np.linalg.norm(problem.gradient(model[None], mix[None]))) > enough:  # rounding came first
        raise NoSolution(f"a minimum was not found to {close:g}")
    return model


def _norm(problem: SoftmaxRegression, weight: float, close: float = _CLOSE) -> float:
    """The gradient norm that certifies it."""
    return math.sqrt(2 * problem.regulariser * weight * close)


def _exact_payments(case: Case, problem: SoftmaxRegression, model: Floats) -> Floats:
    """(K,) what the others lose by each agent's presence, or by its cluster's (Definition 5)."""
    groups = _clusters(case)
    least = 1 - max(float(problem.weights[members].sum()) for members in groups)
    return cluster_payments(problem, model, groups, _norm(problem, least)).amount


def _clusters(case: Case) -> list[NDArray[np.int64]]:
    return random_clusters(
        case.agents, case.clusters or case.agents, generator(case.seed, FaithfulStudy.CLUSTERS)
    )


def _local_models(case: Case, share: Share) -> Floats:
    """(K, P) each agent's own minimum, from its own samples alone."""
    models = []
    for k in range(case.agents):
        own = share.owner == k
        nobody_else = np.zeros(int(own.sum()), dtype=np.int64)
        alone = SoftmaxRegression(
            share.features[own], share.labels[own], nobody_else, share.classes, case.regulariser
        )
        models.append(optimum(alone, alone.weights))
    return np.stack(models)


def _fresh(case: Case, share: Share, models: Floats) -> tuple[Floats, Floats]:
    """(K,) expected loss and accuracy on each agent's own distribution of test samples.

    One model is everybody's; K models are one for each.
    """
    x, y = share.test_features, share.test_labels
    losses, hits = np.empty(case.agents), np.empty(case.agents)
    for k in range(case.agents):
        if k < len(models):
            z = x @ models[k].reshape(x.shape[1], -1)
            each = logsumexp(z, axis=1) - z[np.arange(y.size), y]
            right = z.argmax(1) == y
        home = y == k % share.classes
        losses[k] = case.delta * each[home].mean() + (1 - case.delta) * each.mean()
        hits[k] = case.delta * right[home].mean() + (1 - case.delta) * right.mean()
    return losses, hits


def draw(case: Case) -> Share:
    """Which samples are used and who holds them."""
    data = _dataset(case.data)
    if not data.classes or data.vocabulary:
        raise InvalidValue("data", "must be images or numbers with classes", case.data)
    if case.samples > data.labels.size:
        raise InvalidValue("samples", f"must be at most the {data.labels.size} there are", case.samples)
    order = generator(case.seed, FaithfulStudy.SAMPLES).permutation(data.labels.size)
    rows = order[: case.samples]  # a smaller n is a part
    labels = data.labels[rows].astype(np.int64)
    parts = typicality(labels, case.agents, generator(case.seed, FaithfulStudy.PARTITION), case.delta)
    test = data.test_labels.astype(np.int64)
    if np.bincount(test, minlength=data.classes).min() == 0:
        raise InvalidValue("data", "must have test samples of every class", case.data)
    features, fresh = _unit(data.features[rows]), _unit(data.test_features)
    return Share(features, labels, owners(parts), fresh, test, data.classes)


@lru_cache(maxsize=1)
def _dataset(name: str) -> Dataset:
    from bonafed.learning.data import datasets

    return datasets.load(name)


def _unit(features: Features) -> Floats:
    """(n, d) rows scaled to norm 1; a row of zeros stays."""
    x = features.reshape(len(features), -1).astype(np.float64)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(norm > 0, norm, 1.0))
