"""Model rewards (Wu, Amiri, Raskar, Low): who contributes more is given a better model while training.

No money changes hands. In every round each client receives a model made from a share of all updates that
matches its own contribution. `judges` and `cheat_search` need PyTorch; nothing imported here does.
"""

from bonafed.door import guard
from bonafed.mechanisms.rewards.baselines import (
    BaselineState,
    CosineRewards,
    FederatedAveraging,
    LocalGlobal,
    RankRewards,
    Standalone,
    rank_sets,
)
from bonafed.mechanisms.rewards.local import LocalRounds, Uploads
from bonafed.mechanisms.rewards.measures import (
    History,
    Measure,
    ObservedRound,
    RunningMeasure,
    running_cosine,
)
from bonafed.mechanisms.rewards.server import (
    ServerStep,
    expected_weights,
    induced_rates,
    reference_size,
    reward_rates,
    server_step,
    set_sizes,
)
from bonafed.mechanisms.rewards.training import (
    ModelRewards,
    RewardsMethod,
    RewardsState,
    run,
    train_with_rewards,
)

__all__ = [
    "BaselineState",
    "CosineRewards",
    "FederatedAveraging",
    "History",
    "LocalGlobal",
    "LocalRounds",
    "Measure",
    "ModelRewards",
    "ObservedRound",
    "RankRewards",
    "RewardsMethod",
    "RewardsState",
    "RunningMeasure",
    "ServerStep",
    "Standalone",
    "Uploads",
    "expected_weights",
    "induced_rates",
    "rank_sets",
    "reference_size",
    "reward_rates",
    "run",
    "running_cosine",
    "server_step",
    "set_sizes",
    "train_with_rewards",
]

guard(globals())
