"""The table [sampling] of a config: who is sampled how often, for what money."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from bonafed import checks
from bonafed.contracts.canonical import Coins
from bonafed.economics import registry
from bonafed.economics.money import DECIMALS, decimals
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.sections import BY_THEOREM
from bonafed.mechanisms.protocol import Config
from bonafed.mechanisms.server_rules import against_memory, require_memory_possible, with_aggregation
from bonafed.sections import Section, key, one_of

Scheme = Literal["optimal", "uniform", "complete information", "prior-free", "published"]
_BY_SCHEME = {  # keys that only some schemes know
    "prior": ("optimal", "uniform", "complete information"),
    "confidence": ("optimal",),
    "highest": ("prior-free",),
    "initial_share": ("prior-free",),
    "initial_probability": ("prior-free",),
}


def _share(name: str, value: object) -> float:
    return checks.between(name, value, 0.0, 1.0)


@dataclass(frozen=True)
class SamplingSection(Section):
    """Who is sampled how often, for what money."""

    total_budget: float = key(checks.positive, help="Money for the whole run.", example="1000.0")
    prior: Prior | None = key(
        registry.prior, None, help="What the server believes about a client's cost per participation."
    )
    scheme: str = key(
        one_of(Scheme),
        "optimal",
        help='The truthful contract of the prior; "prior-free": nothing is believed but the highest cost; '
        '"uniform" and "complete information" to compare with; "published": only with a contract file.',
    )
    highest: float | None = key(checks.positive, None, help="Highest cost admitted, for prior-free.")
    initial_share: float | None = key(
        _share, None, help="Number of clients approached first, on equal terms, for prior-free."
    )
    initial_probability: float | None = key(
        _share, None, help="Probability with which these are sampled; by default what the budget affords."
    )
    costs: Prior | None = key(
        registry.prior,
        None,
        help="What simulated clients draw their costs from; the prior if left out, for prior-free the "
        "uniform distribution up to the highest.",
    )
    cost_seed: int = key(checks.seed, 0, help="Seed of the costs of simulated clients.")
    confidence: float | None = key(
        checks.number, None, help="Keep realised spend within the budget with this probability."
    )
    coins: str = key(
        one_of(Coins), "seed", help='Who is sampled follows from run.seed; "verifiable": anybody can check.'
    )
    decimals: int = key(decimals, DECIMALS, help="Decimals of the amounts paid.")

    def _agree(self) -> Iterator[InvalidValue]:
        for name, schemes in _BY_SCHEME.items():
            value: Any = getattr(self, name)
            if value is not None and self.scheme not in schemes:
                rule = f"must not be given unless scheme is {' or '.join(schemes)} (it is {self.scheme})"
                yield InvalidValue(name, rule, value)
        if self.prior is None and self.scheme in _BY_SCHEME["prior"]:
            yield MissingValue("prior", f'is required for {self.scheme}, such as prior = "uniform:0,1"')
        if self.highest is None and self.scheme == "prior-free":
            yield MissingValue("highest", "is required for prior-free, such as highest = 1.0")


def check(config: Config) -> Config:
    """The contract decides who takes part; updates are remembered where that is for the better (A5)."""
    training = config.local
    if training.participation != 1:
        rule = "must be left to the contract"
        raise InvalidValue("training.participation", rule, training.participation)
    if training.aggregation is None and _memory_is_better(config):
        return with_aggregation(config, "memory")
    return require_memory_possible(config)


def _memory_is_better(config: Config) -> bool:
    """Whether updates are remembered if nobody says; runs that follow a theorem train as it does."""
    if config.local.learning_rate in BY_THEOREM or against_memory(config) is not None:
        return False
    return pays_one_a_round(config)


def pays_one_a_round(config: Config) -> bool:
    """Whether the money of a round pays a client of the highest cost: one or more are in on average.

    Where fewer are, what is remembered is so old that it does harm (theory A5).
    """
    own = section_of(config)
    highest = own.highest if own.prior is None else own.prior.high
    return highest is not None and own.total_budget >= config.local.rounds * highest


def section_of(config: Config) -> SamplingSection:
    """[sampling] of a config under this mechanism."""
    assert isinstance(config.own, SamplingSection)  # otherwise the config belongs to another mechanism
    return config.own
