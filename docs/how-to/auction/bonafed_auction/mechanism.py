"""An auction of seats: the lowest costs take part in every round, at the lowest cost that has no seat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.contracts.canonical import Coins
from bonafed.contracts.per_turn import ContractPerTurn, TermsPerTurn
from bonafed.contracts.terms import EARNINGS, Earning, Reports
from bonafed.economics import Allocation, Prior, money, registry
from bonafed.economics.budgets import BudgetPromise
from bonafed.economics.claims import Finding
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Roster
from bonafed.mechanisms.averaging import Averaging
from bonafed.mechanisms.building_blocks import Subject, audit_command, audit_of
from bonafed.mechanisms.paid_rounds import PaidRounds, paid_averaging
from bonafed.mechanisms.protocol import Command, Common, Config, Slice
from bonafed.presentation.documents import Document, JSONObject, pairs
from bonafed.sections import Section, key, named, one_of

FIELDS = ("clients", "rounds", "seats", "total_budget", "decimals")  # numbers that a contract states


def outcome(costs: checks.Floats, seats: int, reserve: float) -> tuple[checks.Floats, float]:
    """(N,) 1 for who has a seat, and the price: the lowest cost that has none, at most the reserve."""
    admitted = np.flatnonzero(costs <= reserve)
    order = admitted[np.argsort(costs[admitted], kind="stable")]
    price = float(costs[order[seats]]) if order.size > seats else reserve
    return np.isin(np.arange(costs.size), order[:seats]).astype(float), price


@dataclass(frozen=True)
class Rule(Section):
    """What decides an auction."""

    seats: int = key(checks.whole, help="Clients in a round.")
    total_budget: float = key(checks.positive, help="Money for the whole run, never exceeded.")
    prior: Prior = key(registry.prior, help="Of what taking part costs; no term depends on it.")
    decimals: int = key(money.decimals, money.DECIMALS, help="Decimals of the amounts paid.")

    def reserve(self, rounds: int) -> float:
        """Most that is paid for a delivery, in whole smallest units, so that no rounding passes it."""
        units = money.units(self.total_budget, self.decimals) // (self.seats * rounds)
        if units == 0:
            raise InvalidValue("total_budget", "must pay all seats in every round", self.total_budget)
        return units / 10**self.decimals

    def subject(self, _clients: int, rounds: int) -> Subject:
        """What an audit tries to game; money is per round."""
        reserve = self.reserve(rounds)

        def decide(costs: checks.Floats) -> Allocation:
            seated, price = outcome(costs, self.seats, reserve)
            return Allocation(seated, seated * price)

        return Subject(decide, self.prior, self.seats * reserve)


@dataclass(frozen=True)
class Auction(Rule):
    """The table [auction]."""

    coins: str = key(one_of(Coins), "seed", help="Decide nothing here: seats are for all rounds.")


@dataclass(frozen=True, eq=False, repr=False)
class AuctionContract(ContractPerTurn):
    """The rules, as they are published before anybody states a cost."""

    mechanism, format = "auction", "auction-contract"

    clients: int
    rounds: int
    seats: int
    total_budget: float
    prior: Prior
    decimals: int = money.DECIMALS
    coin_commitment: str | None = None

    def __post_init__(self) -> None:
        for name in ("clients", "rounds"):
            object.__setattr__(self, name, checks.whole(name, getattr(self, name)))
        for name in ("seats", "total_budget", "prior", "decimals"):
            object.__setattr__(self, name, getattr(self.rule, name))
        _ = self.reserve

    @property
    def rule(self) -> Rule:
        """What decides it; refused if its numbers are impossible."""
        return Rule(self.seats, self.total_budget, self.prior, self.decimals)

    @property
    def reserve(self) -> float:
        """Most that is paid for a delivery."""
        return self.rule.reserve(self.rounds)

    def budget_promise(self, terms: TermsPerTurn) -> BudgetPromise:
        return BudgetPromise(self.total_budget)

    @property
    def is_posted(self) -> bool:
        return False

    def draw_costs(self, rng: np.random.Generator, clients: int) -> checks.Floats:
        return self.prior.sample(rng, clients)

    def fields(self) -> JSONObject:
        """The reserve follows from the rest; a file that states another is refused when it is read."""
        numbers = {name: getattr(self, name) for name in (*FIELDS, "reserve")}
        return {"prior": self.prior.to_json(), **numbers}

    @classmethod
    def from_fields(cls, data: JSONObject) -> AuctionContract:
        numbers = {name: registry.field(data, name, "contract") for name in FIELDS}
        prior = registry.prior_from_json(registry.field(data, "prior", "contract"))
        with named("contract"):
            return cls(prior=prior, **numbers)

    def terms_for(self, reports: Reports) -> TermsPerTurn:
        """Where two costs are equal, the shorter name comes first, then the alphabet."""
        names = sorted(reports, key=lambda name: (len(name), name))
        seated, price = outcome(np.array([reports[name] for name in names]), self.seats, self.reserve)
        seats = dict(zip(names, seated, strict=True))
        chance, costs = (np.array([by[name] for name in reports]) for by in (seats, reports))
        return TermsPerTurn(
            tuple(reports), costs, chance > 0, chance, chance * price, self.rounds, self.total_budget,
            self.decimals,
        )  # fmt: skip

    def settings(self) -> Mapping[str, Any]:
        return {name: value for name, value in self.rule.table().items() if name != "decimals"}

    def verify(self) -> Sequence[Finding]:
        rng, clients = np.random.default_rng(0), min(self.clients, 30)
        profiles = [self.draw_costs(rng, clients) for _ in range(3)]
        return self.rule.subject(clients, self.rounds).search(profiles, 101).findings

    def prospect(self, report: float) -> Document:
        """Whoever is below the price that the others' costs leave has a seat, and is paid this price."""
        drawn = self.draw_costs(np.random.default_rng(0), 500 * (self.clients - 1))
        others = np.sort(drawn.reshape(500, -1))
        price = np.full(500, self.reserve)
        if others.shape[1] >= self.seats:
            price = np.minimum(price, others[:, self.seats - 1])
        tried = np.linspace(0, 1.2 * self.reserve, 61)
        wins = [float(np.mean((price - report) * (own < price))) for own in (report, *tried)]
        left, *lies = (self.rounds * gain for gain in wins)
        paid, best = self.rounds * float(np.mean(price * (report < price))), int(np.argmax(lies))
        rows = [("paid over the run, on average", f"{paid:.2f}"), ("left after the cost", f"{left:.2f}")]
        lie = f"The best of 61 other reports, {tried[best]:.4g}, wins {lies[best] - left:.2g} more."
        earning = Earning("", report <= self.reserve, paid, left, float(tried[best]), lies[best] - left)
        return Document((pairs(f"At a cost of {report:g}", rows), lie), {EARNINGS: [asdict(earning)]})

    def signed(self) -> Document:
        text = (
            f"The {self.seats} lowest costs take part in all {self.rounds} rounds. Each is paid, for every "
            f"delivery, the lowest cost that has no seat, and at most {self.reserve:.{self.decimals}f}. "
            f"At most {self.total_budget:,.{self.decimals}f} is spent, in every run."
        )
        rows = [(name, getattr(self, name)) for name in FIELDS]
        return Document((pairs("Auction of seats", rows), text), self.fields())


def make(config: Config, members: Roster, parameters: int) -> Averaging:
    """The mechanism of a config, under the contract that was published for it or under its own."""

    def plan(own: Auction) -> AuctionContract:
        rounds = config.local.rounds
        return AuctionContract(len(members), rounds, own.seats, own.total_budget, own.prior, own.decimals)

    return paid_averaging(config, members, parameters, "auction", (AuctionContract,), plan, PaidRounds)


def compare(common: Common) -> dict[str, Any] | str:
    """As many seats as the budget of the comparison pays at the highest cost."""
    if common.budget is None or common.costs is None or common.training is None:
        return "it needs compare.budget, compare.costs and rounds of training"
    seats = int(common.budget // (common.costs.high * common.training.rounds))
    return {"seats": max(1, seats), "total_budget": common.budget, "prior": common.costs}


@dataclass(frozen=True, kw_only=True)
class Quote(Rule):
    """Options of `bonafed quote auction`."""

    clients: int = key(checks.whole, help="Most clients that may state a cost.")
    rounds: int = key(checks.whole, help="Of training.")


def quote(options: Quote) -> Document:
    """The contract to publish, and the most that it costs."""
    numbers = {name: getattr(options, name) for name in FIELDS}
    return AuctionContract(prior=options.prior, **numbers).document()


SLICE = Slice(
    "auction", make, "auction", Auction, claims=("truthful", "individually rational", "within budget"),
    read=AuctionContract.from_json, compare=compare,
    quote=Command("An auction of seats, and the most that it costs.", Quote, quote),
    audit=audit_of(Rule.subject), attack=audit_command("auction", Rule, Rule.subject),
)  # fmt: skip
