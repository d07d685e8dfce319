"""The contracts of truthful sampling as the rest of the product knows them: three kinds, one protocol.

    SamplingContract    a posted menu made for a prior (`published`): truthful, within the budget on average
    PriorFreeContract   rules that learn costs from the clients themselves (`rules`)
    BenchmarkContract   what the two are compared with: uniform sampling, and costs that are known

Reports are by name and may come in any order. A menu is posted, so a client's terms depend on its own
report alone; which group a client is in is part of the contract, by name; prior-free rules approach clients
in the order of SHA-256(digest, name), of names that were listed before the rules were published. Payments
are per participation; what is owed after the run is rounded once, to `decimals` digits, so that it covers
the stated costs.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.economics.money import DECIMALS
from bonafed.economics.money import decimals as check_decimals
from bonafed.economics.priors import Prior
from bonafed.economics.registry import field
from bonafed.mechanisms.sampling.benchmark import BenchmarkContract
from bonafed.mechanisms.sampling.plan import MOST_ROUNDS, plan
from bonafed.mechanisms.sampling.prior_free import PriorFreeSampling
from bonafed.mechanisms.sampling.published import SamplingContract
from bonafed.mechanisms.sampling.rules import PriorFreeContract
from bonafed.presentation.documents import JSONObject


def contract(
    prior: Prior | str | None,
    total_budget: float,
    clients: int,
    rounds: int,
    *,
    weights: ArrayLike | None = None,
    priors: Sequence[Prior | str] | None = None,
    confidence: float | None = None,
    names: Sequence[str] | None = None,
    decimals: int = DECIMALS,
) -> SamplingContract:
    """The optimal truthful contract, ready to be published; the arguments are those of `plan`.

    >>> from bonafed.economics import Uniform
    >>> offer = contract(Uniform(0.5, 1.5), total_budget=50, clients=2, rounds=50)
    >>> terms = offer.settle({"ada": 0.61, "ben": 0.95})
    >>> [f"{q:.3f} of the rounds, {r:.3f} each" for q, r in zip(terms.probability, terms.payment)]
    ['0.491 of the rounds, 1.232 each', '0.352 of the rounds, 1.421 each']
    """
    return SamplingContract.of(
        plan(
            prior, total_budget, clients, rounds, weights=weights, priors=priors, confidence=confidence,
            names=names, decimals=decimals,
        )
    )  # fmt: skip


def prior_free_contract(
    highest: float,
    total_budget: float,
    clients: int,
    rounds: int,
    *,
    initial: int | None = None,
    initial_probability: float | None = None,
    decimals: int = DECIMALS,
) -> PriorFreeContract:
    """Rules without a belief about costs, ready to be published: nothing is known but the highest cost.

    `initial` clients, the first that are approached, are sampled with `initial_probability`.

    >>> rules = prior_free_contract(1.5, total_budget=50, clients=2, rounds=50)
    >>> rules.settle({"ada": 0.61, "ben": 0.95}).expected_spend <= 50
    True
    """
    turns = checks.whole("rounds", rounds, at_most=MOST_ROUNDS)
    per_round = checks.positive("total_budget", total_budget) / turns
    rules = PriorFreeSampling(clients, per_round, highest, initial, initial_probability)
    return PriorFreeContract(rules, turns, check_decimals("decimals", decimals))


AnyContract = SamplingContract | PriorFreeContract | BenchmarkContract
KINDS: tuple[type[AnyContract], ...] = (SamplingContract, PriorFreeContract, BenchmarkContract)


def read(data: JSONObject) -> AnyContract:
    """The contract of a file of any kind: well formed, not yet what it should be."""
    stated = field(data, "format", "contract")
    kind = next((kind for kind in KINDS if kind.format == stated), SamplingContract)
    return kind.from_json(data)
