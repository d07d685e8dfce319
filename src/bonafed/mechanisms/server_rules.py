"""What the tables of a config must have in common for the server's step (`learning.server`)."""

from __future__ import annotations

from dataclasses import replace

from bonafed.errors import InvalidValue
from bonafed.learning.server import Aggregation
from bonafed.mechanisms.protocol import Config
from bonafed.sections import named


def one_step(optimizer: str) -> str | None:
    """What an optimizer that is made anew in every round comes to with one local step."""
    comes_to = {
        "momentum": "plain SGD",
        "adam": "a step of the learning rate in the sign of every number of the gradient",
    }
    if optimizer not in comes_to:
        return None
    return (
        f'training.optimizer = "{optimizer}" begins anew in every round: with one local step it is '
        f"{comes_to[optimizer]}; training.server_optimizer keeps its state"
    )


def too_old(clients: float) -> str | None:
    """What to say of memory where so many clients are in a round on average."""
    if clients >= 1:
        return None
    return (
        f"{clients:.2g} clients are in a round on average: what is remembered of them is old by the time "
        'it counts, and does more harm than good; training.aggregation = "plain" does without'
    )


def require_memory_possible(config: Config) -> Config:
    """Refuse to remember updates where that would tell who failed; what is left open becomes "plain"."""
    training = config.local
    if training.aggregation is None:
        return with_aggregation(config, "plain")
    if training.aggregation == "memory" and (reason := against_memory(config)):
        raise InvalidValue("training.aggregation", f"must be plain {reason}", repr(training.aggregation))
    return config


def against_memory(config: Config) -> str | None:
    """Why updates cannot be remembered in such a run; None: they can."""
    if config.noise_at == "sum":
        return 'with noise_at = "sum": no single update is seen'
    if config.noise is not None and config.local.on_bad_update == "skip":
        return "in a private run that skips who fails: what is remembered would tell who did"
    return None


def with_aggregation(config: Config, aggregation: Aggregation) -> Config:
    """The config with this aggregation."""
    with named("training"):
        return replace(config, training=replace(config.stated, aggregation=aggregation))


def same_in_every_round(config: Config) -> Config:
    """The contract decides who takes part, the same clients in every round: nothing is left to remember."""
    training = config.local
    if training.participation != 1:
        raise InvalidValue("training.participation", "must be left to the contract", training.participation)
    if training.aggregation == "memory":
        rule = "must be plain where the same clients are in every round: nothing is left to remember"
        raise InvalidValue("training.aggregation", rule, repr("memory"))
    return require_memory_possible(config)
