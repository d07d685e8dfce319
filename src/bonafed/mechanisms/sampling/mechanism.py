"""Federated averaging under a sampling contract: who is in a round, at what weight, for what money.

    (1)  clients state their cost per participation; simulated ones draw it from the prior, or from `costs`
         where the server is to be wrong or to know nothing, and are honest;
    (2)  the contract turns reports into a probability q_n and a payment r_n per participation,
             optimal               the truthful contract of `plan`
             prior-free            rules that learn costs from the clients, `PriorFreeSampling`
             uniform               one q for all; the only truthful such contract pays the highest cost
             complete information  the server knows every cost and pays exactly that
         all four made for the same total budget;
    (3)  in every round each client is in with probability q_n, independently, its change weighted by
         1/(N q_n), so that the expected change is the mean over the N clients admitted (Proposition 1);
    (4)  whoever is in and delivers is paid r_n. Nobody gains by not delivering, nor by a false report that
         it does not mean to deliver on (theory A7);
    (5)  after the last round everybody is owed r_n times its deliveries, rounded so that this covers
         the cost it stated for them (`bonafed.economics.money`).

The coins of a round come from (seed, round) alone, or are verifiable ones (`bonafed.mechanisms.coins`),
which nobody can know before reporting. A run under a published contract follows exactly that contract.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.budgets import BudgetPromise
from bonafed.economics.claims import COVERED, Finding, Kind, Statement
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Question, Roster
from bonafed.learning.rounds import Participation, unbiased
from bonafed.mechanisms.averaging import Account, Averaging, Unpaid, missing_turns
from bonafed.mechanisms.contracts.canonical import require_same_coins
from bonafed.mechanisms.promises import Promise
from bonafed.mechanisms.protocol import Agreement, Config, Lottery, Reports, Turns
from bonafed.mechanisms.sampling.contracts import (
    NAME,
    UNIT,
    AnyContract,
    Benchmark,
    BenchmarkContract,
    PriorFreeContract,
    SamplingContract,
)
from bonafed.mechanisms.sampling.plan import plan
from bonafed.mechanisms.sampling.prior_free import PriorFreeSampling
from bonafed.mechanisms.sampling.rules import PublishedRules
from bonafed.mechanisms.sampling.section import VERIFIABLE, SamplingSection, section_of
from bonafed.mechanisms.sampling.settlement import SettledTerms
from bonafed.randomness import Purpose, generator, round_generator
from bonafed.sections import named, section_from

_RTOL = 1e-9  # of sums of money


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
        return PriorFreeContract(PublishedRules(rules, turns, None, digits))
    assert prior is not None
    if section.scheme == "optimal":
        contract = plan(prior, money, clients, rounds, confidence=section.confidence, decimals=digits)
        return SamplingContract.of(contract)
    scheme: Benchmark = "uniform" if section.scheme == "uniform" else "complete information"
    return BenchmarkContract(scheme, prior, clients, rounds, money, digits)


@dataclass(frozen=True, slots=True, eq=False)
class SamplingRules:
    """What the contract decides of federated averaging."""

    config: Config
    contract: AnyContract
    plain: Unpaid  # what the contract says nothing about

    @property
    def question(self) -> Question:
        """(1)."""
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

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        """Whoever reports is in; nobody else can be paid."""
        for name in reports:
            if name not in members.index:
                raise InvalidValue("reports", "must come from clients in the federation", repr(name))
        present = members.only(reports)
        costs = {name: float(reports[name]) for name in present.names}
        silent = tuple(name for name in members.names if name not in reports)
        return Agreement(present, costs, self.contract, self.contract.settle(costs), silent=silent)

    def lottery(self, agreement: Agreement) -> Lottery | None:
        if section_of(self.config).coins != VERIFIABLE:
            return None
        return _terms(agreement).lottery

    def participation(self, agreement: Agreement, round_number: int) -> Participation:
        """(3)."""
        return participation(_terms(agreement), agreement, self.config.run.seed, round_number)

    def spend(self, agreement: Agreement, round_number: int, who: Participation, turns: Turns) -> float:
        """(4)."""
        return _terms(agreement).due_in(round_number, who.clients.tolist(), turns)

    def promise(self, agreement: Agreement) -> Promise | None:
        return self.plain.promise(agreement)

    def settle(self, account: Account) -> Statement:
        """(5)."""
        terms, agreement = _terms(account.agreement), account.agreement
        contract = agreement.contract
        assert isinstance(contract, AnyContract)
        times, amounts = account.turns.delivered.tolist(), terms.amounts(account.turns)
        return Statement(
            NAME,
            terms.clients,
            amounts,
            decimals=terms.decimals,
            columns={**terms.columns, **account.turns.columns},
            forms={"cost": ".4f", "probability": ".4f", "payment": ".4f"},
            totals={
                "spend": account.spend,
                "expected_spend": terms.expected_spend,
                "budget": terms.total_budget,
            },
            findings=(
                _covered(terms, times, amounts),
                _within_budget(contract, terms, amounts),
                _adds_up(terms, times, amounts, account.spend),
            ),
            notes=(*missing_turns(account.turns), *terms.cautions),
            facts={"sampling_term": terms.sampling_term, "contract": contract.digest},
        )


def _terms(agreement: Agreement) -> SettledTerms:
    assert isinstance(agreement.terms, SettledTerms)  # made by `agree`
    return agreement.terms


def participation(terms: SettledTerms, agreement: Agreement, seed: int, round_number: int) -> Participation:
    """(3): who is in a round; the same for the same coins and round."""
    q, able = terms.probability, int(terms.admitted.sum())
    if agreement.coins is not None:
        who: NDArray[np.int64] = agreement.coins.participants(round_number)
    else:
        who = unbiased(round_generator(seed, Purpose.COINS, round_number), q).clients
    return Participation(who, 1 / (able * q[who]), expected=terms.admitted / max(1, able))


def _covered(terms: SettledTerms, times: Sequence[int], amounts: Sequence[int]) -> Finding:
    """Whether everybody is owed at least what it stated that taking part costs."""
    unit = Decimal(10) ** -terms.decimals
    margins = [
        amount * unit - Decimal(repr(cost)) * count
        for amount, cost, count in zip(amounts, terms.reports.tolist(), times, strict=True)
    ]
    least = min(margins)
    text = f"the smallest surplus over a stated cost is {float(least):.4g}"
    return Finding(COVERED, least >= 0, text, float(-least), kind=Kind.PARTICIPATION, unit="money")


def _within_budget(contract: AnyContract, terms: SettledTerms, amounts: Sequence[int]) -> Finding:
    """What was promised about the budget, and what was spent."""
    believed, money = contract.expected_spend, terms.total_budget
    if believed is None:  # the promise is for every realisation of the costs
        promise = BudgetPromise(money, "the coins, whatever the costs", expected=terms.expected_spend)
    else:
        promise = BudgetPromise(
            money, "the costs believed in and the coins", contract.confidence, expected=believed
        )
    return promise.finding(amounts, terms.decimals, for_reports=terms.expected_spend)


def _adds_up(terms: SettledTerms, times: Sequence[int], amounts: Sequence[int], spend: float) -> Finding:
    """Whether the amounts add up to the cost of the rounds, to within the rounding of each."""
    due = math.fsum(terms.payment * np.asarray(times, dtype=np.float64))
    total = sum(amounts) / 10**terms.decimals
    fine = math.isclose(due, spend, rel_tol=_RTOL, abs_tol=_RTOL)
    fine = fine and abs(total - due) <= len(amounts) / 10**terms.decimals
    text = (
        f"{spend:,.6g} in all rounds, {total:,.{terms.decimals}f} owed after rounding, by which nobody "
        "gains or loses a whole unit"
    )
    return Finding("rounds add up", fine, text, total - due)


def _resolved(config: Config, contract: AnyContract) -> Config:
    """The config with the numbers of the contract that was planned for it, where it left them open."""
    own = section_of(config)
    table = {**own.table(), **contract.table(), "coins": own.coins}
    return replace(config, own=section_from(SamplingSection, "sampling", table))


def make(config: Config, members: Roster, parameters: int) -> Averaging:
    """The mechanism of a config, under the contract that was published for it or under its own."""
    contract = config.contract
    if contract is not None:
        if not isinstance(contract, AnyContract):
            raise InvalidValue("contract", f"must be one of {NAME}", contract.mechanism)
        if contract.rounds != config.local.rounds:
            rule = f"must be {contract.rounds}, as in the contract"
            raise InvalidValue("training.rounds", rule, config.local.rounds)
        require_same_coins("sampling.coins", section_of(config).coins, contract.coin_commitment)
        published: AnyContract = contract
    else:
        with named("sampling"):
            published = plan_contract(section_of(config), len(members), config.local.rounds)
        config = _resolved(config, published)
    return Averaging.of(
        config, members, parameters, lambda resolved: SamplingRules(resolved, published, Unpaid(resolved))
    )
