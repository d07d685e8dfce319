"""A price lottery: whoever's cost is at most the price draws lots for the places of every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.contracts.published import Agreement
from bonafed.contracts.terms import Reports, Turns
from bonafed.economics import Allocation, Prior, money, registry
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Question, Roster
from bonafed.learning.rounds import Participation, weighted_mean
from bonafed.mechanisms.averaging import Account, Averaging, Unpaid
from bonafed.mechanisms.building_blocks import PlainTerms, Subject, audit_command, audit_of, promises_kept
from bonafed.mechanisms.protocol import Common, Config, Slice
from bonafed.randomness import Purpose, generator, round_generator
from bonafed.sections import Section, key


@dataclass(frozen=True)
class Offer(Section):
    """The table [price_lottery]."""

    price: float = key(money.price, help="Money for taking part in a round.")
    budget: float = key(checks.positive, help="Money for the whole run, never exceeded.")
    prior: Prior = key(registry.prior, help="Of what it costs simulated clients to take part in a round.")
    cost_seed: int = key(checks.seed, 0, help="Seed of the costs of simulated clients.")

    def places(self, rounds: int) -> int:
        """How many clients the budget pays in every round."""
        if places := money.units(self.budget) // (money.units(self.price) * rounds):
            return places
        raise InvalidValue("price_lottery.budget", "must pay a client in every round", self.budget)

    def chances(self, costs: checks.Floats, rounds: int) -> checks.Floats:
        """(N,) of being in a round."""
        takes = np.where(costs <= self.price, 1.0, 0.0)
        return takes * min(1.0, self.places(rounds) / max(1.0, float(takes.sum())))

    def simulate(self, clients: int) -> checks.Floats:
        """(N,) costs of simulated clients."""
        return self.prior.sample(generator(self.cost_seed, Purpose.COSTS), clients)

    def subject(self, _clients: int, rounds: int) -> Subject:
        """What an audit tries to game; money is per round."""

        def decide(costs: checks.Floats) -> Allocation:
            chances = self.chances(costs, rounds)
            return Allocation(chances, chances * self.price)

        return Subject(decide, self.prior, self.budget / rounds)


class PriceLottery(Unpaid):
    """The rules of a round: averaging among those who are drawn."""

    @property
    def offer(self) -> Any:
        """The table [price_lottery]."""
        return self.config.own

    @property
    def question(self) -> Question:
        return Question("cost", "money per participation", self.offer.simulate)

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        costs = checks.vector("cost", [reports[name] for name in members.names])
        chances = self.offer.chances(costs, self.config.local.rounds)
        terms = PlainTerms(members.names, {"cost": costs.tolist(), "chance": chances.tolist()})
        return Agreement(members, reports, terms=terms)

    def participation(self, agreement: Agreement, round_number: int) -> Participation:
        takers = np.flatnonzero(agreement.terms.columns["chance"])
        places = min(takers.size, self.offer.places(self.config.local.rounds))
        rng = round_generator(self.config.run.seed, Purpose.PARTICIPANTS, round_number)
        return weighted_mean(np.sort(rng.choice(takers, places, replace=False)), agreement.members.sizes)

    def spend(self, agreement: Agreement, round_number: int, who: Participation, turns: Turns) -> float:
        return float(who.clients.size * self.offer.price)

    def settle(self, account: Account) -> Statement:
        turns, terms = account.turns.delivered.tolist(), account.agreement.terms
        amounts = [count * money.units(self.offer.price) for count in turns]
        kept = promises_kept(amounts, terms.columns["cost"], turns, self.offer.budget)
        columns = account.turns.columns
        return Statement("price-lottery", terms.clients, tuple(amounts), columns=columns, findings=kept)


def _make(config: Config, members: Roster, parameters: int) -> Averaging:
    return Averaging.of(config, members, parameters, PriceLottery)


def _compare(common: Common) -> dict[str, Any] | str:
    if common.budget is None or common.costs is None:
        return "it needs compare.budget and compare.costs"
    median = round(float(common.costs.quantile(0.5)), 2)  # half of the clients take it
    return {"price": median, "budget": common.budget, "prior": common.costs}


SLICE = Slice(
    "price-lottery", _make, "price_lottery", Offer,
    claims=("truthful", "individually rational", "within budget"), compare=_compare,
    audit=audit_of(Offer.subject), attack=audit_command("price-lottery", Offer, Offer.subject),
)  # fmt: skip
