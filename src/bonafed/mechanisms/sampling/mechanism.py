"""Federated averaging under a sampling contract: who is in a round, at what weight, for what money.

    (1)  clients state their cost per participation; simulated ones draw it from the prior, or from `costs`
         where the server is to be wrong or to know nothing, and are honest;
    (2)  the contract turns reports into a probability q_n and a payment r_n per participation,
             optimal               the truthful contract of `plan`
             prior-free            rules that learn costs from the clients, `PriorFreeSampling`
             uniform               one q for all; the only truthful such contract pays the highest cost
             complete information  the server knows every cost and pays exactly that
         all four made for the same total budget.

Rounds and money are then those of every contract that pays per turn (`paid_rounds`).
"""

from __future__ import annotations

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.per_turn import UNIT, TermsPerTurn
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Question, Roster
from bonafed.mechanisms.averaging import Averaging
from bonafed.mechanisms.paid_rounds import PaidRounds, paid_averaging
from bonafed.mechanisms.protocol import Config
from bonafed.mechanisms.sampling.benchmark import Benchmark, BenchmarkContract
from bonafed.mechanisms.sampling.contracts import KINDS, AnyContract
from bonafed.mechanisms.sampling.plan import plan
from bonafed.mechanisms.sampling.prior_free import PriorFreeSampling
from bonafed.mechanisms.sampling.published import SamplingContract
from bonafed.mechanisms.sampling.rules import PriorFreeContract
from bonafed.mechanisms.sampling.section import SamplingSection, section_of
from bonafed.mechanisms.sampling.settlement import SettledTerms
from bonafed.randomness import Purpose, generator


def draw_costs(prior: Prior, clients: int, seed: int) -> Floats:
    """(1): (clients,) money per participation."""
    rng = generator(checks.seed("seed", seed), Purpose.COSTS)
    return prior.sample(rng, checks.whole("clients", clients))


def plan_contract(section: SamplingSection, clients: int, rounds: int) -> AnyContract:
    """(2): the contract that a config asks for."""
    money, digits, prior = section.total_budget, section.decimals, section.prior
    if section.scheme == "published":
        rule = 'must not be "published" unless a contract is handed over with the config'
        raise InvalidValue("scheme", rule, repr(section.scheme))
    if section.scheme == "prior-free":
        assert section.highest is not None  # by the section's own rules
        share, turns = section.initial_share, checks.whole("rounds", rounds)
        first = None if share is None else round(share * clients)
        rules = PriorFreeSampling(
            clients, money / turns, section.highest, first, section.initial_probability
        )
        return PriorFreeContract(rules, turns, digits)
    assert prior is not None
    if section.scheme == "optimal":
        contract = plan(prior, money, clients, rounds, confidence=section.confidence, decimals=digits)
        return SamplingContract.of(contract)
    scheme: Benchmark = "uniform" if section.scheme == "uniform" else "complete information"
    return BenchmarkContract(scheme, prior, clients, rounds, money, digits)


class SamplingRules(PaidRounds):
    """What the contract decides of federated averaging."""

    @property
    def question(self) -> Question:
        """(1)"""
        section = section_of(self.config)

        def simulate(clients: int, seed: int = section.cost_seed) -> Floats:
            drawn_from = section.costs or section.prior
            if drawn_from is not None:
                return draw_costs(drawn_from, clients, seed)
            if section.highest is not None:
                return generator(seed, Purpose.COSTS).uniform(0.0, section.highest, clients)
            draw = self.contract.question.simulate
            assert draw is not None  # our contracts hold a belief about costs
            return draw(clients, seed)

        return Question("cost", UNIT, simulate, optional=True, names=self.contract.question.names)

    def facts(self, terms: TermsPerTurn) -> dict[str, object]:
        assert isinstance(terms, SettledTerms)  # of a sampling contract
        return {"sampling_term": terms.sampling_term}


def make(config: Config, members: Roster, parameters: int) -> Averaging:
    """The mechanism of a config, under the contract that was published for it or under its own."""

    def plan_own(section: SamplingSection) -> AnyContract:
        return plan_contract(section, len(members), config.local.rounds)

    return paid_averaging(config, members, parameters, "sampling", KINDS, plan_own, SamplingRules)
