"""From a config of faithful learning to the agents' problem. Writes nothing; refuses what cannot be run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.datasets import Dataset
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import Loss, Program
from bonafed.learning.evaluate import sample_losses
from bonafed.mechanisms.faithful import (
    Problem,
    RidgeRegression,
    SoftmaxRegression,
    plan_private,
    privacy_loss,
    random_clusters,
)
from bonafed.mechanisms.faithful.agents import agents_from
from bonafed.mechanisms.faithful.clusters import Clusters
from bonafed.learning.problems.modules import ModuleProblem
from bonafed.mechanisms.faithful.private import PrivateCalibration
from bonafed.mechanisms.faithful.private_plan import PublicFacts, plan_warning
from bonafed.learning.problems.convex import scaled_features, shortened_features
from bonafed.randomness import Purpose, round_generator
from bonafed.runs.faithful_config import FaithfulConfig, FaithfulPrivacy
from bonafed.runs.holdings import Holdings, hold
from bonafed.runs.sections import REPRODUCIBLE, named

LONGEST = 1.0  # norm of a private sample's features with the constant, at most, as `_linear` makes them


@dataclass(frozen=True, slots=True, eq=False)
class FaithfulSetting:
    """A run that can begin; made by `prepare_faithful`."""

    config: FaithfulConfig
    problem: Problem
    start: Floats  # (P,) the model before the first step
    module: nn.Module
    program: Program
    to_module: Callable[[Floats], Tensor]  # models (m, P) of the problem as parameters of the module
    test: Samples  # perhaps none
    class_shares: Floats | None  # (K, classes) of every agent's samples; None for regression
    notes: tuple[str, ...]
    digest: str
    clusters: Clusters = ()  # of a private run
    warnings: tuple[str, ...] = ()  # to be heard before the run begins

    @property
    def step(self) -> float:
        """The length of a training step; of a private run it must not tell the largest norm of a sample."""
        promise, mu = self.config.privacy, self.problem.regulariser
        return 1 / (self.problem.smoothness if promise is None else mu + promise.clip**2 / 4)


def prepare_faithful(
    config: FaithfulConfig,
    *,
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> FaithfulSetting:
    """Load, split, build; a `module` of the user's own is taken to be not convex."""
    held = _shortened(hold(config, dataset, on_progress))
    config = held.config
    if len(held.parts) < 2:
        raise InvalidValue("partition.clients", "must be at least 2 for faithful learning", len(held.parts))
    if config.faithful.clusters is not None and config.faithful.clusters > len(held.parts):
        rule = f"must be at most the number of agents, {len(held.parts)}"
        raise InvalidValue("faithful.clusters", rule, config.faithful.clusters)
    linear = module is None and config.model.name == "softmax"
    if module is None:
        module = held.module()
    program = held.program(module)
    shares = _class_shares(held)
    notes = _notes(held, linear)
    if linear:
        problem, to_module = _linear(held)
        start = np.zeros(problem.size)
    else:
        problem = _general(held, module)
        start, to_module = problem.start, _as_they_are
    with named("faithful"):
        rng = round_generator(config.run.seed, Purpose.AGENTS)
        agents_from(config.faithful.agents, problem, rng)  # refuses bad ones
    found = FaithfulSetting(
        config, problem, start, module, program, to_module, held.test, shares, notes, held.digest
    )
    return found if config.privacy is None else _planned(found, config.privacy)


def _shortened(held: Holdings[FaithfulConfig]) -> Holdings[FaithfulConfig]:
    """Features of norm 1 at most in a private run, each by itself; those of the test alike."""
    if held.config.privacy is None or held.dataset.vocabulary:
        return held
    test = shortened_features(cast(NDArray[np.float32], held.dataset.test_features))
    return replace(
        held, features=shortened_features(held.features), dataset=replace(held.dataset, test_features=test)
    )


def _planned(setting: FaithfulSetting, promise: FaithfulPrivacy) -> FaithfulSetting:
    """A private run with steps and split, and what is to be said of them; it needs classes to predict.

    The plan knows numbers of samples and weights, and nothing of what is in the samples.
    """
    config, problem = setting.config, setting.problem
    if not isinstance(problem, SoftmaxRegression):
        raise InvalidValue("data.name", "must have classes in a private run", config.data.name)
    count = config.faithful.clusters or problem.agents
    groups = random_clusters(problem.agents, count, round_generator(config.run.seed, Purpose.CLUSTERS))
    if config.faithful.variant != "corrected":
        with named("privacy", alpha="epsilon", beta="delta"):
            privacy_loss(promise.epsilon, promise.delta)
        return replace(setting, clusters=groups)
    facts = PublicFacts.of(problem, groups, promise.clip)
    with named("privacy", alpha="epsilon", beta="delta"):
        plan = plan_private(
            facts, alpha=promise.epsilon, beta=promise.delta, split=promise.split,
            training_steps=config.faithful.training_steps, payment_steps=config.faithful.payment_steps,
            calibration=cast(PrivateCalibration, promise.calibration),
        )  # fmt: skip
    given = replace(config.faithful, training_steps=plan.training_steps, payment_steps=plan.payment_steps)
    chosen = replace(config, faithful=given, privacy=replace(promise, split=plan.split))
    said = plan_warning(facts, plan, alpha=promise.epsilon, beta=promise.delta)
    expected = (
        f"payments are expected to be off by about {plan.payment_error.max():.2g} in units of loss, the "
        f"shared model's loss by {plan.model_error:.2g}, after {plan.training_steps} and "
        f"{plan.payment_steps} steps"
    )
    warnings = () if said is None else (said,)
    notes = (*setting.notes, expected, *warnings)
    return replace(setting, config=chosen, clusters=groups, warnings=warnings, notes=notes)


def _weights(held: Holdings[FaithfulConfig]) -> Floats:
    sizes = np.array([part.size for part in held.parts], dtype=np.float64)
    if held.config.faithful.weights == "equal":
        sizes = np.ones(sizes.size)
    return np.asarray(sizes / sizes.sum())


def _linear(held: Holdings[FaithfulConfig]) -> tuple[Problem, Callable[[Floats], Tensor]]:
    """Softmax or ridge regression on features and a constant, all scaled to norm 1 at most."""
    given = held.config.faithful
    if given.learning_rate is not None:
        rule = "must not be given for softmax, whose step is 1/L_g"
        raise InvalidValue("faithful.learning_rate", rule, given.learning_rate)
    # of private samples nothing is looked at: their norm is 1 at most, that of the constant 1
    x, scale = scaled_features(held.features, None if held.config.privacy is None else math.sqrt(2))
    classes, mu, weights = held.dataset.classes, given.regulariser, _weights(held)
    problem: Problem
    if classes:
        problem = SoftmaxRegression(x, held.dataset.labels, held.owner, classes, mu, weights)
    else:
        targets = np.asarray(held.dataset.labels, dtype=np.float64).ravel()
        problem = RidgeRegression(x, targets, held.owner, mu, weights)

    def to_module(models: Floats) -> Tensor:
        """The scale goes into the weights, so that the module takes features as they are."""
        matrix = models.reshape(len(models), x.shape[1], -1).transpose(0, 2, 1) / scale
        parts = [matrix[:, :, :-1].reshape(len(models), -1), matrix[:, :, -1]]
        return torch.from_numpy(np.hstack(parts)).float()

    return problem, to_module


def _general(held: Holdings[FaithfulConfig], module: nn.Module) -> ModuleProblem:
    given = held.config.faithful
    if given.learning_rate is None:
        rule = f"must be given for {held.config.model.name}, whose smoothness is not known"
        raise InvalidValue("faithful.learning_rate", rule, "nothing")
    if given.payments != "gradients" or given.clusters is not None:
        name = "payments" if given.payments != "gradients" else "clusters"
        rule = f"must not be given for {held.config.model.name}: it needs minima, the loss is not convex"
        raise InvalidValue(f"faithful.{name}", rule, repr(getattr(given, name)))
    loss: Loss = "cross-entropy" if held.dataset.classes else "squared"
    return ModuleProblem(
        module, held.samples, held.owner, given.regulariser, 1 / given.learning_rate, _weights(held),
        loss=loss,
    )  # fmt: skip


def _as_they_are(models: Floats) -> Tensor:
    return torch.from_numpy(models).float()


def _class_shares(held: Holdings[FaithfulConfig]) -> Floats | None:
    classes = held.dataset.classes
    if not classes:
        return None
    counts = [np.bincount(held.dataset.labels[part], minlength=classes) for part in held.parts]
    return np.asarray(np.array(counts) / np.array([part.size for part in held.parts])[:, None])


def _notes(held: Holdings[FaithfulConfig], linear: bool) -> tuple[str, ...]:
    found = []
    if not linear:
        found.append(
            f"the loss of {held.config.model.name} is not convex: efficiency, faithfulness, participation "
            "and budget balance are not promised; payments are computed from gradients all the same"
        )
    if held.config.faithful.agents:
        found.append("not following the protocol: agents " + ", ".join(held.config.faithful.agents))
    if held.config.noise == "reproducible":
        found.append(REPRODUCIBLE)
    if held.config.privacy is not None:
        found.append("features were shortened to norm 1, each sample's by itself: the model wants them so")
    if held.config.faithful.clusters is not None:
        found.append("payments by clusters may sum to less than zero; one cluster per agent is safe")
    return tuple(found)


def fresh_losses(setting: FaithfulSetting) -> Callable[[Floats], Floats] | None:
    """Losses on test samples, weighted by each agent's share of every class; None without test data."""
    n = len(setting.test.labels)
    if n == 0:
        return None
    shares = np.ones((setting.problem.agents, 1)) if setting.class_shares is None else setting.class_shares
    kinds = shares.shape[1]
    group = np.zeros(n, dtype=np.int64) if kinds == 1 else setting.test.labels.numpy()
    counts = np.bincount(group, minlength=kinds)
    known = shares * (counts > 0)
    if (known.sum(1) == 0).any():
        return None  # an agent holds only classes of which there is no test sample
    known = known / known.sum(1, keepdims=True)

    def losses(models: Floats) -> Floats:
        each = sample_losses(setting.program, setting.to_module(models), setting.test)
        by_class = np.stack([np.bincount(group, row, kinds) for row in each]) / np.maximum(counts, 1)
        return np.asarray(by_class @ known.T)

    return losses
