"""The contract of a posted price.

    (1)  the price is stated in the contract, before anybody reports;
    (2)  whoever states a cost up to the price takes part in every round; where the contract has fewer seats
         than takers, seats go in the order of SHA-256(digest of the contract, name);
    (3)  every delivery is paid the price, so that a run spends price x seats x rounds at most.

No lie pays, nobody loses, and the cap is kept in every run, whatever the costs (theory A8).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.canonical import Coins
from bonafed.contracts.offers import OfferContract
from bonafed.contracts.per_turn import approach_order
from bonafed.economics import Allocation, Prior, money, registry
from bonafed.errors import InvalidValue
from bonafed.mechanisms.building_blocks import Subject
from bonafed.sections import Section, key, one_of


@dataclass(frozen=True)
class Offer(Section):
    """The table [posted_price]."""

    cap: float = key(checks.positive, help="Money for the run, never exceeded.", example="50.0")
    price: float | None = key(
        checks.positive, None, help="Money for a delivery; by default all of the cap."
    )
    seats: int | None = key(checks.whole, None, help="Clients in a round at most; by default all of them.")
    prior: Prior | None = key(registry.prior, None, help="Of simulated costs; no promise depends on it.")
    decimals: int = key(money.decimals, money.DECIMALS, help="Decimals of the amounts paid.")
    coins: str = key(one_of(Coins), "seed", help="As in every contract; here no chance decides.")
    cost_seed: int = key(checks.seed, 0, help="Seed of the costs of simulated clients.")


@dataclass(frozen=True, eq=False, repr=False)
class PostedPriceContract(OfferContract):
    """One price for everybody, and a cap on the money of the run."""

    mechanism = "posted-price"
    format = "bonafed-posted-price"
    offer_kind = Offer

    @classmethod
    def of(cls, offer: Offer, clients: int, rounds: int) -> PostedPriceContract:
        """The contract of an offer; without a price, the highest that the cap pays, in whole units."""
        seats, unit = min(offer.seats or clients, clients), 10**offer.decimals
        price = offer.price or money.units(offer.cap, offer.decimals) // (seats * rounds) / unit
        prior = offer.prior or registry.prior("prior", f"uniform:0,{2 * price or 1}")
        return cls(replace(offer, price=price or 1 / unit, seats=seats, prior=prior), clients, rounds)

    def __post_init__(self) -> None:
        """The price is paid in whole units, and the cap pays it to every seat in every round."""
        offer, seats = self.offer, checks.whole("seats", self.offer.seats)
        paid = money.units(checks.positive("price", offer.price), offer.decimals)
        if paid / 10**offer.decimals != offer.price:
            raise InvalidValue("price", f"must have at most {offer.decimals} decimals", offer.price)
        if paid * seats * self.rounds > money.units(offer.cap, offer.decimals):
            rule = f"must pay {offer.price:g} to {seats:,} seats in {self.rounds:,} rounds"
            raise InvalidValue("cap", rule, offer.cap)

    @property
    def total_budget(self) -> float:  # type: ignore[override]  # the cap
        return float(self.offer.cap)

    @property
    def most_spent(self) -> float:
        """(3)"""
        return float(self.offer.price * self.offer.seats * self.rounds)

    @property
    def is_posted(self) -> bool:
        return bool(self.offer.seats >= self.clients)

    def chances_and_payments(self, names: Sequence[str], costs: Floats) -> tuple[Floats, Floats]:
        return self._in_order(approach_order(self.digest, names), costs)

    def _in_order(self, order: Iterable[int], costs: Floats) -> tuple[Floats, Floats]:
        """(2), (3)"""
        takers = [client for client in order if costs[client] <= self.offer.price]
        seated = np.isin(np.arange(costs.size), takers[: self.offer.seats]).astype(np.float64)
        return seated, self.offer.price * seated

    def subject(self) -> Subject:
        """Money is per round, and seats go in the order of the clients."""

        def decide(costs: Floats) -> Allocation:
            return Allocation(*self._in_order(range(costs.size), costs))

        return Subject(decide, self.offer.prior, self.total_budget / self.rounds)

    def promises(self) -> Sequence[str]:
        price, seats = f"{self.offer.price:,.{self.decimals}f}", f"{self.offer.seats:,}"
        seated = (
            "" if self.is_posted else f" Of more than {seats}, the first {seats} by name digest are in."
        )
        return (
            f"At most {self.most_spent:,.{self.decimals}f} is spent, in every run.",
            f"Whoever states a cost of at most {price} takes part in every round, and is paid {price} for "
            f"every delivery.{seated}",
        )
