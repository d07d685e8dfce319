"""Truthful client sampling under a budget (Liao, Luo, Feng, Zhang, Chen), corrected.

Whom to sample how often, and what to pay, so that every client's best choice is to state its true
cost: with a known prior (`contract`, made of a `plan`), or with none (`prior_free_contract`).
"""

from bonafed.door import guard
from bonafed.mechanisms.sampling.benchmark import BenchmarkContract
from bonafed.mechanisms.sampling.contracts import contract, prior_free_contract
from bonafed.mechanisms.sampling.convergence import ConvergenceModel
from bonafed.mechanisms.sampling.menus import (
    CompleteInformation,
    complete_information,
    complete_information_population,
    optimal_menu,
    uniform_menu,
)
from bonafed.mechanisms.sampling.plan import Benchmark, SamplingPlan, benchmarks, plan
from bonafed.mechanisms.sampling.prior_free import PriorFreeRun, PriorFreeSampling, PriorFreeState
from bonafed.mechanisms.sampling.published import (
    SamplingContract,
    contract_from_json,
    contract_to_json,
)
from bonafed.mechanisms.sampling.rules import PriorFreeContract
from bonafed.mechanisms.sampling.settlement import SettledTerms, settle_contract, settle_rules
from bonafed.mechanisms.sampling.spend import (
    SpendDistribution,
    exceedance_bound,
    known_lotteries,
    spend_distribution,
)
from bonafed.mechanisms.sampling.verification import verify

__all__ = [
    "Benchmark",
    "BenchmarkContract",
    "CompleteInformation",
    "ConvergenceModel",
    "PriorFreeContract",
    "PriorFreeRun",
    "PriorFreeSampling",
    "PriorFreeState",
    "SamplingContract",
    "SamplingPlan",
    "SettledTerms",
    "SpendDistribution",
    "benchmarks",
    "complete_information",
    "complete_information_population",
    "contract",
    "contract_from_json",
    "contract_to_json",
    "exceedance_bound",
    "known_lotteries",
    "optimal_menu",
    "plan",
    "prior_free_contract",
    "settle_contract",
    "settle_rules",
    "spend_distribution",
    "uniform_menu",
    "verify",
]

guard(globals())
