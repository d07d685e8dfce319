"""From a config of model rewards to all its rounds need. Writes nothing; refuses what cannot be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.datasets import Dataset
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import Program, flat_parameters
from bonafed.learning.evaluate import evaluate_models
from bonafed.mechanisms.rewards import (
    CosineRewards,
    FederatedAveraging,
    LocalGlobal,
    Measure,
    ModelRewards,
    RankRewards,
    RunningMeasure,
    Standalone,
    measures,
    running_cosine,
)
from bonafed.mechanisms.rewards.baselines import SHARED_LAYERS
from bonafed.mechanisms.rewards.cheats import cheating, cheats_from
from bonafed.mechanisms.rewards.history import Models
from bonafed.mechanisms.rewards.local import EngineLocal, last_layers, layer_slices
from bonafed.mechanisms.rewards.rates import Reference
from bonafed.mechanisms.rewards.server import Own
from bonafed.mechanisms.rewards.training import Local
from bonafed.randomness import Purpose, round_generator
from bonafed.runs.holdings import hold
from bonafed.runs.rewards_config import RewardsConfig
from bonafed.runs.sections import named
from bonafed.runs.setting import local_training


@dataclass(frozen=True, slots=True, eq=False)
class RewardsSetting:
    """A run that can begin; made by `prepare_rewards`."""

    config: RewardsConfig
    module: nn.Module  # with its initial weights
    program: Program
    sizes: Floats  # (N,) samples of each client
    local: EngineLocal  # honest local training
    test: Samples  # on which models are judged
    validation: Samples  # on which the server may score models while it trains
    digest: str

    @property
    def clients(self) -> int:
        """N."""
        return int(self.sizes.size)

    @property
    def start(self) -> Models:
        """(P,) everybody's first model."""
        return np.asarray(flat_parameters(self.module).numpy())

    @property
    def presence(self) -> Floats | None:
        """(N,) rates at which clients take part: p_i = a + (1 - a) i/N; None: always."""
        least = self.config.rewards.presence
        if least == 1:
            return None
        rates = least + (1 - least) * np.arange(1, self.clients + 1) / self.clients
        return np.asarray(np.minimum(rates, 1.0))  # rounding may end above

    def uploads(self, method: str) -> Local:
        """Local training as the server sees it; cheats are at work wherever there is something to gain."""
        if method in ("standalone", "honest"):
            return self.local
        given = self.config.rewards.agents
        return cheating(self.local, cheats_from(given, self.clients, self.config.run.seed))

    def score(self, models: Models) -> Floats:
        """(m,) validation accuracy."""
        return evaluate_models(
            self.program, models, self.validation, cores=self.config.run.cores_here
        ).accuracy

    def method(self, name: str, standalone: Floats | None) -> Any:
        """What is trained under this name; `standalone` (N,) are the accuracies of models trained alone."""
        seed = self.config.run.seed
        if name in ("rewards", "honest"):
            return self._rewards(standalone)
        common: dict[str, Any] = {"sizes": self.sizes, "participation": self.presence, "seed": seed}
        if name == "standalone":
            return Standalone(sizes=self.sizes, seed=seed)  # by itself a client misses no round
        if name == "fedavg-ft":
            return FederatedAveraging(**common)
        if name == "lg-fedavg":
            return LocalGlobal(**common, shared=_shared(self.module))
        if name == "cgsv":
            return CosineRewards(**common, layers=layer_slices(self.module))
        return RankRewards(**common, score=self.score)

    def _rewards(self, standalone: Floats | None) -> ModelRewards:
        given = self.config.rewards
        with named("rewards"):
            return ModelRewards(
                _measure(self.config, standalone),
                sizes=self.sizes,
                sharing=given.sharing,
                recovery=given.recovery,
                ceiling=given.ceiling,
                reference=cast(Reference, given.reference),
                own=cast(Own, given.own),
                participation=self.presence,
                seed=self.config.run.seed,
                score=self.score,
            )


def _measure(config: RewardsConfig, standalone: Floats | None) -> Floats | Measure | RunningMeasure:
    given = config.rewards
    if given.measure == "standalone":
        assert standalone is not None  # trained first
        return standalone
    if given.measure == "data size":
        return measures.data_size
    if given.measure == "participation":
        return measures.participation_rate
    if given.measure == "cosine":
        return running_cosine()  # nothing to keep of earlier rounds
    if given.measure == "leave one out":
        return measures.at_least_zero(measures.leave_one_out)
    orders = given.shapley_orders
    return measures.at_least_zero(measures.federated_shapley(orders=orders, seed=config.run.seed))


def _shared(module: nn.Module) -> slice:
    """The layers that LG-FedAvg averages: the last three as in the paper, fewer if nothing else is left."""
    count = sum(any(p.requires_grad for p in part.parameters(recurse=False)) for part in module.modules())
    if count < 2:
        rule = "must not have lg-fedavg, which needs a model of two layers or more that train"
        raise InvalidValue("rewards.baselines", rule, "one layer")
    return last_layers(module, min(SHARED_LAYERS, count - 1))


def prepare_rewards(
    config: RewardsConfig,
    *,
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> RewardsSetting:
    """Load, split, build; `dataset` and `module` may be the user's own."""
    held = hold(config, dataset, on_progress)
    config = held.config
    if not held.dataset.classes:
        raise InvalidValue(
            "data.name", "must have classes: rewards are judged by accuracy", config.data.name
        )
    if len(held.parts) < 2:
        raise InvalidValue("partition.clients", "must be at least 2 for rewards", len(held.parts))
    if module is None:
        module = held.module()
    program = held.program(module)
    with named("rewards"):
        cheats_from(config.rewards.agents, len(held.parts), config.run.seed)  # refuses bad ones
    if "lg-fedavg" in config.rewards.baselines:
        _shared(module)
    rate = config.training.learning_rate
    assert isinstance(rate, float)  # checked by the config
    local = EngineLocal(
        program,
        held.samples,
        held.parts,
        local_training(config.training, rate),
        config.run.seed,
        config.training.learning_rate_decay,
        config.run.cores_here,
    )
    test, validation = _judges(config, held.test)
    sizes = np.array([part.size for part in held.parts], dtype=np.float64)
    return RewardsSetting(config, module, program, sizes, local, test, validation, held.digest)


def _judges(config: RewardsConfig, samples: Samples) -> tuple[Samples, Samples]:
    """Test and validation samples: together those the data keep for testing."""
    n = len(samples.labels)
    if not n:
        rule = "must have test samples, by which models are judged (a column `test` of a CSV)"
        raise InvalidValue("data.name", rule, config.data.name)
    kept = round(config.rewards.validation * n)
    if not 0 < kept < n:
        rule = f"must leave test and validation samples of {n} kept for testing"
        raise InvalidValue("rewards.validation", rule, config.rewards.validation)
    order = torch.from_numpy(round_generator(config.run.seed, Purpose.VALIDATION).permutation(n))
    parts = [order[kept:].sort().values, order[:kept].sort().values]
    test, validation = (Samples(samples.features[rows], samples.labels[rows]) for rows in parts)
    return test, validation
