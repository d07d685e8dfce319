"""An auction of seats: the lowest costs take part in every round, at the lowest cost that has no seat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.contracts.canonical import Coins
from bonafed.contracts.offers import OfferContract
from bonafed.contracts.terms import EARNINGS, Earning
from bonafed.economics import Allocation, Prior, money, registry
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Roster
from bonafed.mechanisms.averaging import Averaging
from bonafed.mechanisms.building_blocks import Subject, audit_command, audit_of, quote_command
from bonafed.mechanisms.paid_rounds import PaidRounds, paid_averaging
from bonafed.mechanisms.protocol import Common, Config, Slice
from bonafed.mechanisms.server_rules import same_in_every_round
from bonafed.presentation.documents import Document
from bonafed.sections import Section, key, one_of


@dataclass(frozen=True)
class Offer(Section):
    """The table [auction]."""

    seats: int = key(checks.whole, help="Clients in a round.")
    total_budget: float = key(checks.positive, help="Money for the whole run, never exceeded.")
    prior: Prior = key(registry.prior, help="Of what taking part costs; no term depends on it.")
    reserve: float | None = key(checks.positive, None, help="Most for a delivery; by default all there is.")
    decimals: int = key(money.decimals, money.DECIMALS, help="Decimals of the amounts paid.")
    coins: str = key(one_of(Coins), "seed", help="As in every contract; here no chance decides.")
    cost_seed: int = key(checks.seed, 0, help="Seed of the costs of simulated clients.")


@dataclass(frozen=True, eq=False, repr=False)
class AuctionContract(OfferContract):
    """The rules, as they are published before anybody states a cost."""

    mechanism, format, offer_kind = "auction", "auction-contract", Offer

    @classmethod
    def of(cls, offer: Offer, clients: int, rounds: int) -> AuctionContract:
        """The contract of an offer; the reserve is then what the budget pays, in whole smallest units."""
        unit, due = 10**offer.decimals, offer.seats * rounds
        reserve = offer.reserve or money.units(offer.total_budget, offer.decimals) // due / unit
        return cls(replace(offer, reserve=reserve or 1 / unit), clients, rounds)

    def __post_init__(self) -> None:
        """No rounding passes the reserve, and the budget pays it for every seat in every round."""
        offer, units = self.offer, money.units(self.offer.reserve, self.offer.decimals)
        if units / 10**offer.decimals != offer.reserve:
            raise InvalidValue("reserve", f"must have at most {offer.decimals} decimals", offer.reserve)
        if units * offer.seats * self.rounds > money.units(offer.total_budget, offer.decimals):
            rule = f"must pay {offer.reserve:g} to {offer.seats} seats in {self.rounds} rounds"
            raise InvalidValue("total_budget", rule, offer.total_budget)

    @property
    def total_budget(self) -> float:
        return self.offer.total_budget

    @property
    def most_spent(self) -> float:
        return self.offer.reserve * self.offer.seats * self.rounds

    @property
    def is_posted(self) -> bool:
        return False

    def outcome(self, order: Sequence[int], costs: checks.Floats) -> tuple[checks.Floats, checks.Floats]:
        """(N,) each: 1 for who has a seat, and the price for it; of equal costs, the first in the order."""
        admitted = [client for client in order if costs[client] <= self.offer.reserve]
        queue = sorted(admitted, key=costs.__getitem__)  # keeps the order of equal costs
        price = costs[queue[self.offer.seats]] if len(queue) > self.offer.seats else self.offer.reserve
        seated = np.isin(np.arange(costs.size), queue[: self.offer.seats]).astype(float)
        return seated, price * seated

    def chances_and_payments(
        self, names: Sequence[str], costs: checks.Floats
    ) -> tuple[checks.Floats, checks.Floats]:
        """Shorter names first, then by the alphabet, whatever the order of the reports."""
        order = sorted(range(len(names)), key=lambda client: (len(names[client]), names[client]))
        return self.outcome(order, costs)

    def subject(self) -> Subject:
        """What an audit tries to game; money is per round."""

        def decide(costs: checks.Floats) -> Allocation:
            return Allocation(*self.outcome(range(costs.size), costs))

        return Subject(decide, self.offer.prior, self.total_budget / self.rounds)

    def prospect(self, report: float) -> Document:
        """Whoever is below the price that the others' costs leave has a seat, and is paid this price."""
        cost = checks.non_negative("cost", report)
        drawn = self.draw_costs(np.random.default_rng(0), 500 * (self.clients - 1))
        others, price = np.sort(drawn.reshape(500, -1)), np.full(500, self.offer.reserve)
        if others.shape[1] >= self.offer.seats:
            price = np.minimum(price, others[:, self.offer.seats - 1])
        tried = np.linspace(0, 1.2 * self.offer.reserve, 61)
        wins = [self.rounds * float(np.mean((price - cost) * (own < price))) for own in (cost, *tried)]
        paid, best = self.rounds * float(np.mean(price * (cost < price))), int(np.argmax(wins[1:]))
        gain, lie = wins[1 + best] - wins[0], float(tried[best])
        text = (
            f"A client of cost {cost:g} is paid {paid:,.2f} over the run on average, and left with "
            f"{wins[0]:,.2f}. The best of 61 other reports, {lie:.4g}, gains {gain:.2g}."
        )
        earning = Earning("", cost <= self.offer.reserve, paid, wins[0], lie, gain)
        return Document((text,), {EARNINGS: [asdict(earning)]})

    def promises(self) -> Sequence[str]:
        return (
            f"At most {self.most_spent:,.{self.decimals}f} is spent, in every run.",
            f"The {self.offer.seats} lowest costs take part in every round. Each is paid, for every "
            f"delivery, the lowest cost that has no seat, at most {self.offer.reserve:,.{self.decimals}f}.",
        )


def make(config: Config, members: Roster, parameters: int) -> Averaging:
    """The mechanism of a config, under the contract that was published for it or under its own."""

    def plan(offer: Offer) -> AuctionContract:
        return AuctionContract.of(offer, len(members), config.local.rounds)

    return paid_averaging(config, members, parameters, "auction", (AuctionContract,), plan, PaidRounds)


def compare(common: Common) -> dict[str, Any] | str:
    """As many seats as the budget of the comparison pays at the highest cost."""
    if common.budget is None or common.costs is None or common.training is None:
        return "it needs compare.budget, compare.costs and rounds of training"
    seats = int(common.budget // (common.costs.high * common.training.rounds))
    return {"seats": max(1, seats), "total_budget": common.budget, "prior": common.costs}


def subject(offer: Offer, clients: int, rounds: int) -> Subject:
    """What an audit of a run or of options tries to game."""
    return AuctionContract.of(offer, clients, rounds).subject()


SLICE = Slice(
    "auction", make, "auction", Offer, check=same_in_every_round, read=AuctionContract.from_json,
    claims=("truthful", "individually rational", "within budget"), compare=compare,
    quote=quote_command("auction", Offer, AuctionContract.of),
    audit=audit_of(subject), attack=audit_command("auction", Offer, subject),
)  # fmt: skip
