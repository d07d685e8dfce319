"""The contracts of truthful sampling as the rest of the product knows them: three kinds, one protocol.

    SamplingContract    a posted menu made for a prior (`plan`): truthful, within the budget on average
    PriorFreeContract   rules that learn costs from the clients themselves (`PriorFreeSampling`)
    BenchmarkContract   what the two are compared with: uniform sampling, and costs that are known

Reports are by name and may come in any order. A menu is posted, so a client's terms depend on its own
report alone; which group a client is in is part of the contract, by name; prior-free rules approach clients
in the order of SHA-256(digest, name), of names that were listed before the rules were published. Payments
are per participation; what is owed after the run is rounded once, to `decimals` digits, so that it covers
the stated costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.attendance import Attendance
from bonafed.contracts.canonical import (
    canonical_bytes,
    coins_from_json,
    coins_to_json,
    coins_word,
    digest,
    require_same,
    require_version,
    tidy,
)
from bonafed.contracts.terms import Reports
from bonafed.economics.audit import audit, expected_transfer
from bonafed.economics.claims import Finding, Kind
from bonafed.economics.contracts import Menu
from bonafed.economics.money import DECIMALS
from bonafed.economics.money import decimals as check_decimals
from bonafed.economics.priors import Prior
from bonafed.economics.registry import field, prior_from_json
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Question
from bonafed.mechanisms.sampling.menus import complete_information, uniform_menu
from bonafed.mechanisms.sampling.plan import MOST_CLIENTS, MOST_ROUNDS, SamplingPlan, plan
from bonafed.mechanisms.sampling.prior_free import PriorFreeSampling
from bonafed.mechanisms.sampling.published import (
    Published,
    parse_contract,
    publish,
    require_terms_shown,
)
from bonafed.mechanisms.sampling.rules import (
    RULES_FORMAT,
    PublishedRules,
    rules_bytes,
    rules_from_json,
    verify_published_rules,
)
from bonafed.mechanisms.sampling.settlement import (
    SettledTerms,
    missing,
    settle_by_name,
    settle_rules_by_name,
    stated,
)
from bonafed.mechanisms.sampling.verification import verify_published
from bonafed.presentation.documents import Document, JSONObject, Shown

NAME = "sampling"
BENCHMARK_FORMAT = "bonafed-sampling-benchmark"
BENCHMARK_VERSION = 1
Benchmark = Literal["uniform", "complete information"]
UNIT = "money per participation"
_RTOL = 1e-9  # of sums of money
# keys of the table that a contract decides; one that it does not set must be left out
_ABSENT = dict.fromkeys(("prior", "confidence", "highest", "initial_share", "initial_probability"))


def _question(draw: Any, names: tuple[str, ...] = ()) -> Question:
    """A cost; simulated clients have one that is drawn from a seed, 0 unless told otherwise."""

    def simulate(clients: int, seed: int = 0) -> Floats:
        costs: Floats = draw(np.random.default_rng(checks.seed("seed", seed)), clients)
        return costs

    return Question("cost", UNIT, simulate, optional=True, names=names)


@dataclass(frozen=True, eq=False, repr=False)
class SamplingContract(Shown):
    """A posted menu."""

    published: Published

    @classmethod
    def of(cls, plan: SamplingPlan) -> SamplingContract:
        """The contract that publishes a plan."""
        return cls(publish(plan))

    @property
    def plan(self) -> SamplingPlan:
        """What it fixes."""
        return self.published.plan

    @property
    def mechanism(self) -> str:
        return NAME

    @cached_property
    def content(self) -> bytes:
        return self.published.content

    @cached_property
    def digest(self) -> str:
        return digest(self.content)

    @property
    def clients(self) -> int:
        return self.plan.clients

    @property
    def rounds(self) -> int:
        return self.plan.rounds

    @property
    def draws(self) -> None:
        return None

    @property
    def coin_commitment(self) -> str | None:
        return self.plan.coin_commitment

    @property
    def expected_spend(self) -> float:
        """Money over the run, on average over the prior and the coins."""
        return self.plan.expected_spend

    @property
    def confidence(self) -> float | None:
        """Probability that the budget is kept, where the contract was shrunk for it."""
        return self.plan.confidence

    @property
    def question(self) -> Question:
        def draw(rng: np.random.Generator, clients: int) -> Floats:
            costs, groups = np.empty(clients), self.plan.membership[:clients]
            for index, group in enumerate(self.plan.groups):
                mine = np.flatnonzero(groups == index)
                costs[mine] = group.prior.sample(rng, mine.size)
            return costs

        return _question(draw, self.plan.names or ())

    def with_coins(self, commitment: str) -> SamplingContract:
        return SamplingContract.of(replace(self.plan, coin_commitment=commitment))

    def chance(self, client: str, report: float) -> float:
        """By the contract alone."""
        terms = settle_by_name(self.plan, {client: checks.non_negative("cost", report)})
        return float(terms.probability[0])

    def document(self) -> Document:
        from bonafed.mechanisms.sampling.report import contract_document

        return contract_document(self)

    def verify(self) -> Sequence[Finding]:
        return verify_published(self.published)

    def prospect(self, report: float) -> Document:
        from bonafed.mechanisms.sampling.report import prospect_document

        return prospect_document(self.plan.menus, self.rounds, report)

    def settle(self, reports: Reports) -> SettledTerms:
        """Refused where the file shows other terms than it pays."""
        require_terms_shown(self.published)
        return settle_by_name(self.plan, reports)

    def table(self) -> Mapping[str, Any]:
        """A contract with groups cannot be written as a table: a run under it must be handed the file."""
        plan = self.plan
        common = {
            **_ABSENT,
            "total_budget": plan.total_budget,
            "decimals": plan.decimals,
            "coins": coins_word(plan.coin_commitment),
        }
        if len(plan.groups) > 1:
            return {**common, "scheme": "published"}
        prior = plan.groups[0].prior.to_json()
        return {**common, "scheme": "optimal", "prior": prior, "confidence": plan.confidence}


@dataclass(frozen=True, eq=False, repr=False)
class PriorFreeContract(Shown):
    """Rules of a sequence in which costs are learned."""

    published: PublishedRules

    @property
    def mechanism(self) -> str:
        return NAME

    @cached_property
    def content(self) -> bytes:
        return rules_bytes(*self.published)

    @cached_property
    def digest(self) -> str:
        return digest(self.content)

    @property
    def clients(self) -> int:
        return self.published.rules.clients

    @property
    def rounds(self) -> int:
        return self.published.rounds

    @property
    def draws(self) -> None:
        return None

    @property
    def coin_commitment(self) -> str | None:
        return self.published.coin_commitment

    @property
    def expected_spend(self) -> None:
        """Nothing is believed about costs: the budget holds whatever they turn out to be."""

    @property
    def confidence(self) -> None:
        """None: the budget is kept on average over the coins."""

    @property
    def question(self) -> Question:
        """Nothing is believed about costs but their upper end: simulated ones are spread evenly."""
        return _question(lambda rng, clients: rng.uniform(0.0, self.published.rules.highest, clients))

    def with_coins(self, commitment: str) -> PriorFreeContract:
        return PriorFreeContract(self.published._replace(coin_commitment=commitment))

    def chance(self, client: str, report: float) -> None:
        """None: it depends on those who report before."""

    def document(self) -> Document:
        from bonafed.mechanisms.sampling.report import rules_document

        return rules_document(self)

    def verify(self) -> Sequence[Finding]:
        return verify_published_rules(self.published)

    def prospect(self, report: float) -> Document:
        rule = "cannot be priced alone: under prior-free rules terms depend on those who report before"
        raise InvalidValue("cost", rule, report)

    def settle(self, reports: Reports) -> SettledTerms:
        return settle_rules_by_name(self.published, self.digest, reports)

    def table(self) -> Mapping[str, Any]:
        rules = self.published.rules
        return {
            **_ABSENT,
            "scheme": "prior-free",
            "total_budget": self.published.total_budget,
            "highest": rules.highest,
            "initial_share": rules.first_clients / rules.clients,
            "initial_probability": rules.first_probability,
            "decimals": self.published.decimals,
            "coins": coins_word(self.coin_commitment),
        }


@dataclass(frozen=True, eq=False, repr=False)
class BenchmarkContract(Shown):
    """What a truthful contract is compared with; checked for the same promises, as far as it makes them.

    Under "uniform" everybody has one probability and is paid the highest cost: truthful. Under "complete
    information" everybody is paid what it states, as if costs were known: the truth is not
    promised to pay.
    """

    scheme: Benchmark
    prior: Prior  # of a client's cost; reports above its upper end are not admitted under "uniform"
    clients: int
    rounds: int
    total_budget: float  # money, whole run
    decimals: int = DECIMALS
    coin_commitment: str | None = None

    @property
    def mechanism(self) -> str:
        return NAME

    @property
    def draws(self) -> None:
        return None

    def to_json(self) -> JSONObject:
        """Plain data to publish."""
        return {
            "format": BENCHMARK_FORMAT,
            "version": BENCHMARK_VERSION,
            "scheme": self.scheme,
            "prior": tidy(self.prior.to_json()),
            "clients": self.clients,
            "rounds": self.rounds,
            "total_budget": self.total_budget,
            "decimals": self.decimals,
            **coins_to_json(self.coin_commitment),
        }

    @classmethod
    def from_json(cls, data: JSONObject) -> BenchmarkContract:
        """From a file; every field is checked, and no other is allowed."""
        require_version(field(data, "version", "contract"), BENCHMARK_VERSION, "contract.version")
        scheme = checks.literal("contract.scheme", field(data, "scheme", "contract"), Benchmark)
        contract = cls(
            "uniform" if scheme == "uniform" else "complete information",
            prior_from_json(field(data, "prior", "contract")),
            checks.whole("contract.clients", field(data, "clients", "contract"), at_most=MOST_CLIENTS),
            checks.whole("contract.rounds", field(data, "rounds", "contract"), at_most=MOST_ROUNDS),
            checks.positive("contract.total_budget", field(data, "total_budget", "contract")),
            check_decimals("contract.decimals", field(data, "decimals", "contract")),
            coins_from_json(data.get("coins")),
        )
        require_same(data, contract.to_json(), "contract")
        return contract

    @cached_property
    def content(self) -> bytes:
        return canonical_bytes(self.to_json())

    @cached_property
    def digest(self) -> str:
        return digest(self.content)

    @property
    def share(self) -> float:
        """Money per client and round."""
        return self.total_budget / self.rounds / self.clients

    @property
    def menu(self) -> Menu:
        """Of uniform sampling."""
        return uniform_menu(self.prior, self.share)

    @property
    def attendance(self) -> Attendance | None:
        """How many will be in a round; None: their chances depend on each other's costs."""
        if self.scheme != "uniform":
            return None
        mean = min(self.menu.expected_probability, 1.0)
        return Attendance(np.full(self.clients, mean), self.rounds)

    @property
    def expected_spend(self) -> float:
        """Money over the run, on average over the prior and the coins; all of it if costs are known."""
        if self.scheme == "uniform":
            return self.menu.expected_spend * self.clients * self.rounds
        return min(self.total_budget, self.prior.mean * self.clients * self.rounds)

    @property
    def confidence(self) -> None:
        """None: the budget is kept on average."""

    @property
    def question(self) -> Question:
        return _question(lambda rng, clients: self.prior.sample(rng, clients))

    def with_coins(self, commitment: str) -> BenchmarkContract:
        return replace(self, coin_commitment=commitment)

    def chance(self, client: str, report: float) -> float | None:
        if self.scheme != "uniform":
            return None
        return float(self.settle({client: checks.non_negative("cost", report)}).probability[0])

    def document(self) -> Document:
        from bonafed.mechanisms.sampling.report import benchmark_document

        return benchmark_document(self)

    def verify(self) -> Sequence[Finding]:
        if self.scheme != "uniform":
            why = "everybody is paid what it states, so that overstating pays"
            rational = "everybody who takes part is paid what it states"
            return [
                Finding("truthful", None, why, kind=Kind.LIE),
                Finding("individually rational", True, rational, kind=Kind.PARTICIPATION),
                Finding(
                    "expected spend",
                    True,
                    f"{self.total_budget:,.6g} at most, whatever is stated",
                    kind=Kind.BUDGET,
                ),
            ]
        menu, prior = self.menu, self.prior
        spend = expected_transfer(menu, prior) * self.clients * self.rounds
        findings = audit(
            menu, prior.low, prior.high, claims=("truthful", "individually rational", "feasible")
        )
        text = f"{spend:,.6g} of {self.total_budget:,.6g} over the run"
        within = Finding("expected spend", spend <= self.total_budget * (1 + _RTOL), text, kind=Kind.BUDGET)
        return [*findings.findings, within]

    def prospect(self, report: float) -> Document:
        from bonafed.mechanisms.sampling.report import prospect_document

        if self.scheme != "uniform":
            rule = "cannot be priced alone: where costs are taken as known, terms depend on everybody's"
            raise InvalidValue("cost", rule, report)
        return prospect_document([self.menu], self.rounds, report)

    def settle(self, reports: Reports) -> SettledTerms:
        names, c = stated(reports, self.clients)
        inside = np.ones(c.size, dtype=bool)
        if self.scheme == "uniform":
            inside = c <= self.prior.high
            q, r = np.zeros(c.size), np.zeros(c.size)
            q[inside], r[inside] = self.menu.price(c[inside])
        else:
            benchmark = complete_information(c, self.total_budget / self.rounds / c.size)
            q, r = benchmark.probability, benchmark.payment
        terms = SettledTerms(names, c, inside, q, r, self.rounds, self.total_budget, self.decimals)
        return replace(terms, cautions=tuple(missing(terms, self.clients)))

    def table(self) -> Mapping[str, Any]:
        return {
            **_ABSENT,
            "scheme": self.scheme,
            "prior": self.prior.to_json(),
            "total_budget": self.total_budget,
            "decimals": self.decimals,
            "coins": coins_word(self.coin_commitment),
        }


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
    return PriorFreeContract(PublishedRules(rules, turns, None, check_decimals("decimals", decimals)))


AnyContract = SamplingContract | PriorFreeContract | BenchmarkContract


def read(data: JSONObject) -> AnyContract:
    """The contract of a file of any kind: well formed, not yet what it should be."""
    kind = field(data, "format", "contract")
    if kind == RULES_FORMAT:
        return PriorFreeContract(rules_from_json(data))
    if kind == BENCHMARK_FORMAT:
        return BenchmarkContract.from_json(data)
    return SamplingContract(parse_contract(data))
