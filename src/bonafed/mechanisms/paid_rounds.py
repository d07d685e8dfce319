"""The rules of rounds in which every delivery is paid, under any contract that pays per turn.

    (1)  clients state their cost per participation, and the contract turns reports into a probability q_n
         and a payment r_n per participation;
    (2)  in every round each client is in with probability q_n, independently, its change weighted by
         1/(N q_n), so that the expected change is the mean over the N clients admitted (Proposition 1);
    (3)  whoever is in and delivers is paid r_n. Nobody gains by not delivering, nor by a false report that
         it does not mean to deliver on (theory A7);
    (4)  after the last round everybody is owed r_n times its deliveries, rounded so that this covers
         the cost it stated for them (`bonafed.economics.money`).

The coins of a round come from (seed, round) alone, or are verifiable ones (`bonafed.contracts.coins`),
which nobody can know before reporting. A run under a published contract follows exactly that contract.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.contracts.attendance import Lottery
from bonafed.contracts.canonical import VERIFIABLE, require_same_coins
from bonafed.contracts.per_turn import ContractPerTurn, TermsPerTurn
from bonafed.contracts.published import Agreement
from bonafed.contracts.terms import Reports, Turns
from bonafed.economics.findings import Finding, Kind
from bonafed.economics.statement import COVERED, Statement
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Question, Roster
from bonafed.learning.rounds import Participation, unbiased
from bonafed.mechanisms.averaging import Account, Averaging, Unpaid, missing_turns
from bonafed.mechanisms.promises import Promise
from bonafed.mechanisms.protocol import Config
from bonafed.randomness import Purpose, generator, round_generator
from bonafed.sections import named, section_from

_RTOL = 1e-9  # of sums of money


@dataclass(frozen=True, slots=True, eq=False)
class PaidRounds:
    """What a contract that pays per turn decides of federated averaging."""

    config: Config
    contract: ContractPerTurn
    plain: Unpaid  # what the contract says nothing about

    @property
    def question(self) -> Question:
        """(1); simulated clients have costs as the contract believes."""
        own = self.config.own
        assert own is not None  # a mechanism with a table

        def simulate(clients: int, seed: int = own.table().get("cost_seed", 0)) -> Floats:
            return self.contract.draw_costs(generator(seed, Purpose.COSTS), clients)

        return replace(self.contract.question, simulate=simulate)

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
        if self.config.own is None or self.config.own.table()["coins"] != VERIFIABLE:
            return None
        return _terms(agreement).lottery

    def participation(self, agreement: Agreement, round_number: int) -> Participation:
        """(2)"""
        return participation(_terms(agreement), agreement, self.config.run.seed, round_number)

    def spend(self, agreement: Agreement, round_number: int, who: Participation, turns: Turns) -> float:
        """(3)"""
        return _terms(agreement).due_in(round_number, who.clients.tolist(), turns)

    def promise(self, agreement: Agreement) -> Promise | None:
        return self.plain.promise(agreement)

    def settle(self, account: Account) -> Statement:
        """(4)"""
        terms, agreement = _terms(account.agreement), account.agreement
        times, amounts = account.turns.delivered.tolist(), terms.amounts(account.turns)
        return Statement(
            self.config.mechanism,
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
                self.contract.budget_promise(terms).finding(
                    amounts, terms.decimals, for_reports=terms.expected_spend
                ),
                _adds_up(terms, times, amounts, account.spend),
            ),
            notes=(*missing_turns(account.turns), *terms.cautions),
            facts={**self.facts(terms), "contract": agreement.contract and agreement.contract.digest},
        )

    def facts(self, terms: TermsPerTurn) -> dict[str, object]:
        """What the mechanism adds to the facts of a statement."""
        return {}


def _terms(agreement: Agreement) -> TermsPerTurn:
    assert isinstance(agreement.terms, TermsPerTurn)  # made by `agree`
    return agreement.terms


def participation(terms: TermsPerTurn, agreement: Agreement, seed: int, round_number: int) -> Participation:
    """(2): who is in a round; the same for the same coins and round."""
    q, able = terms.probability, int(terms.admitted.sum())
    if agreement.coins is not None:
        who: NDArray[np.int64] = agreement.coins.participants(round_number)
    else:
        who = unbiased(round_generator(seed, Purpose.COINS, round_number), q).clients
    return Participation(who, 1 / (able * q[who]), expected=terms.admitted / max(1, able))


def _covered(terms: TermsPerTurn, times: Sequence[int], amounts: Sequence[int]) -> Finding:
    """Whether everybody is owed at least what it stated that taking part costs."""
    unit = Decimal(10) ** -terms.decimals
    margins = [
        amount * unit - Decimal(repr(cost)) * count
        for amount, cost, count in zip(amounts, terms.reports.tolist(), times, strict=True)
    ]
    least = min(margins)
    text = f"the smallest surplus over a stated cost is {float(least):.4g}"
    return Finding(COVERED, least >= 0, text, float(-least), kind=Kind.PARTICIPATION, unit="money")


def _adds_up(terms: TermsPerTurn, times: Sequence[int], amounts: Sequence[int], spend: float) -> Finding:
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


def paid_averaging(
    config: Config,
    members: Roster,
    parameters: int,
    table: str,
    kinds: tuple[type[ContractPerTurn], ...],
    plan_own: Callable[[Any], ContractPerTurn],
    rules: type[PaidRounds],
) -> Averaging:
    """The mechanism of a config, under the contract that was published for it or under its own.

    `plan_own` makes the contract that the config's own table asks for; the numbers that the table left open
    are then those of the contract.
    """
    published, own = config.contract, config.own
    assert own is not None  # a mechanism with a table
    if published is None:
        with named(table):
            planned = plan_own(own)
        filled = {**own.table(), **planned.table(), "coins": own.table()["coins"]}
        config = replace(config, own=section_from(type(own), table, filled))
        return _averaging(config, members, parameters, planned, rules)
    if not isinstance(published, kinds):
        raise InvalidValue("contract", f"must be one of {config.mechanism}", published.mechanism)
    if published.rounds != config.local.rounds:
        rule = f"must be {published.rounds}, as in the contract"
        raise InvalidValue("training.rounds", rule, config.local.rounds)
    require_same_coins(f"{table}.coins", own.table()["coins"], published.coin_commitment)
    return _averaging(config, members, parameters, published, rules)


def _averaging(
    config: Config, members: Roster, parameters: int, contract: ContractPerTurn, rules: type[PaidRounds]
) -> Averaging:
    return Averaging.of(
        config, members, parameters, lambda resolved: rules(resolved, contract, Unpaid(resolved))
    )
