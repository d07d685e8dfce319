"""What a truthful contract is compared with, as contracts: uniform sampling, and costs that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.attendance import Attendance
from bonafed.contracts.terms import Reports
from bonafed.economics.audit import audit, expected_transfer
from bonafed.economics.contracts import Menu
from bonafed.economics.findings import Finding, Kind
from bonafed.economics.money import DECIMALS
from bonafed.economics.money import decimals as check_decimals
from bonafed.economics.priors import Prior
from bonafed.economics.registry import field, prior_from_json
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling.menus import complete_information, uniform_menu
from bonafed.mechanisms.sampling.plan import MOST_CLIENTS, MOST_ROUNDS
from bonafed.mechanisms.sampling.settlement import SamplingKind, SettledTerms, missing
from bonafed.presentation.documents import Document, JSONObject

Benchmark = Literal["uniform", "complete information"]
_RTOL = 1e-9  # of sums of money


@dataclass(frozen=True, eq=False, repr=False)
class BenchmarkContract(SamplingKind):
    """What a truthful contract is compared with; checked for the same promises, as far as it makes them.

    Under "uniform" everybody has one probability and is paid the highest cost: truthful. Under "complete
    information" everybody is paid what it states, as if costs were known: the truth is not
    promised to pay.
    """

    format = "bonafed-sampling-benchmark"

    scheme: Benchmark
    prior: Prior  # of a client's cost; reports above its upper end are not admitted under "uniform"
    clients: int
    rounds: int
    total_budget: float  # money, whole run
    decimals: int = DECIMALS
    coin_commitment: str | None = None

    def fields(self) -> JSONObject:
        return {
            "scheme": self.scheme,
            "prior": self.prior.to_json(),
            "clients": self.clients,
            "rounds": self.rounds,
            "total_budget": self.total_budget,
            "decimals": self.decimals,
        }

    @classmethod
    def from_fields(cls, data: JSONObject) -> Self:
        scheme = checks.literal("contract.scheme", field(data, "scheme", "contract"), Benchmark)
        return cls(
            "uniform" if scheme == "uniform" else "complete information",
            prior_from_json(field(data, "prior", "contract")),
            checks.whole("contract.clients", field(data, "clients", "contract"), at_most=MOST_CLIENTS),
            checks.whole("contract.rounds", field(data, "rounds", "contract"), at_most=MOST_ROUNDS),
            checks.positive("contract.total_budget", field(data, "total_budget", "contract")),
            check_decimals("contract.decimals", field(data, "decimals", "contract")),
        )

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
    def is_posted(self) -> bool:
        return self.scheme == "uniform"

    def draw_costs(self, rng: np.random.Generator, clients: int) -> Floats:
        return self.prior.sample(rng, clients)

    def signed(self) -> Document:
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

    def terms_for(self, reports: Reports) -> SettledTerms:
        names, c = tuple(reports), np.array(list(reports.values()), dtype=np.float64)
        inside = np.ones(c.size, dtype=bool)
        if self.scheme == "uniform":
            inside = c <= self.prior.high
            q, r = np.zeros(c.size), np.zeros(c.size)
            q[inside], r[inside] = self.menu.price(c[inside])
        else:
            benchmark = complete_information(c, self.total_budget / self.rounds / c.size)
            q, r = benchmark.probability, benchmark.payment
        terms = SettledTerms(names, c, inside, q, r, self.rounds, self.total_budget, self.decimals)
        return terms.cautioned(*missing(terms, self.clients))

    def scheme_settings(self) -> Mapping[str, Any]:
        return {"scheme": self.scheme, "prior": self.prior.to_json()}
