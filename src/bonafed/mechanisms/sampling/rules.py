"""The rules of prior-free sampling as a file, and their verification.

What is published before the first client is approached: the numbers below. They bind the server, and
anyone can check that they promise what they say, by search over many sequences of reports.

Clients are approached in the order of SHA-256(digest of the rules, name): fixed by what was published and
the same whatever anybody states. Once the rules are out nobody can choose a place, provided that the names
were listed before: whoever may still choose its name tries names until it likes its place, and terms differ
from place to place. So the names are those that the operator had listed before the rules were published.
The operator, who knows the names, could try rules until it likes the order; that is its draw of the order,
and no report has a say in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.per_turn import approach_order
from bonafed.contracts.terms import Reports
from bonafed.economics.audit import AuditReport, Claim, audit, merge
from bonafed.economics.discrete import Estimator
from bonafed.economics.findings import Finding, Kind
from bonafed.economics.money import DECIMALS
from bonafed.economics.money import decimals as check_decimals
from bonafed.economics.priors import JSONObject
from bonafed.economics.registry import field
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling.plan import MOST_ROUNDS
from bonafed.mechanisms.sampling.prior_free import PriorFreeSampling
from bonafed.mechanisms.sampling.settlement import SamplingKind, SettledTerms, missing
from bonafed.presentation.documents import Document

_SEQUENCES = 15  # random sequences of reports tried by `verify_published_rules`
_LONGEST = 100  # clients of a tried sequence; longer rules are tried at this length
_PLACES = 6  # places along a sequence at which the published menu is audited


@dataclass(frozen=True, eq=False, repr=False)
class PriorFreeContract(SamplingKind):
    """Rules of a sequence in which costs are learned."""

    format = "bonafed-prior-free-rules"
    noun = "rules"

    rules: PriorFreeSampling
    rounds: int
    decimals: int = DECIMALS
    coin_commitment: str | None = None

    @property
    def clients(self) -> int:  # type: ignore[override]  # of the rules
        return self.rules.clients

    @property
    def total_budget(self) -> float:  # type: ignore[override]
        return self.rounds * self.rules.budget

    @property
    def expected_spend(self) -> None:
        """Nothing is believed about costs: the budget holds whatever they turn out to be."""

    @property
    def is_posted(self) -> bool:
        """A client's terms depend on those who report before it."""
        return False

    def draw_costs(self, rng: np.random.Generator, clients: int) -> Floats:
        """Nothing is believed about costs but their upper end: simulated ones are spread evenly."""
        return rng.uniform(0.0, self.rules.highest, clients)

    def fields(self) -> JSONObject:
        rules = self.rules
        if rules.variant != "safe":
            raise InvalidValue("variant", "must be 'safe' to be published", repr(rules.variant))
        return {
            "clients": rules.clients,
            "rounds": self.rounds,
            "budget_per_round": rules.budget,
            "highest": rules.highest,
            "initial": rules.first_clients,
            "initial_probability": rules.first_probability,
            "floor": rules.lowest_probability,
            "estimator": rules.estimator,
            "refresh": rules.refresh,
            "decimals": self.decimals,
        }

    @classmethod
    def from_fields(cls, data: JSONObject) -> Self:
        values = {
            name: field(data, name, "rules")
            for name in ("clients", "highest", "initial", "initial_probability", "floor", "refresh")
        }
        rounds = checks.whole("rules.rounds", field(data, "rounds", "rules"), at_most=MOST_ROUNDS)
        estimator = field(data, "estimator", "rules")
        checks.literal("rules.estimator", estimator, Estimator)
        rules = PriorFreeSampling(
            budget=field(data, "budget_per_round", "rules"), estimator=estimator, **values
        )
        return cls(rules, rounds, check_decimals("rules.decimals", field(data, "decimals", "rules")))

    def terms_for(self, reports: Reports) -> SettledTerms:
        """Clients are approached in the order of `approach_order`; one without a report is passed over."""
        rules, names = self.rules, tuple(reports)
        c = np.array(list(reports.values()), dtype=np.float64)
        order = approach_order(self.digest, names)
        played = rules.run(np.concatenate([c[order], np.full(rules.clients - c.size, np.inf)]))
        q, r = np.empty(c.size), np.empty(c.size)
        q[order], r[order] = played.probability[: c.size], played.payment[: c.size]
        terms = SettledTerms(
            names, c, c <= rules.highest, q, r, self.rounds, self.total_budget, self.decimals
        )
        return terms.cautioned(*missing(terms, rules.clients))

    def verify(self) -> Sequence[Finding]:
        return verify_rules(self.rules)

    def prospect(self, report: float) -> Document:
        rule = "cannot be priced alone: under prior-free rules terms depend on those who report before"
        raise InvalidValue("cost", rule, report)

    def signed(self) -> Document:
        from bonafed.mechanisms.sampling.report import rules_document

        return rules_document(self)

    def scheme_settings(self) -> Mapping[str, Any]:
        rules = self.rules
        return {
            "scheme": "prior-free",
            "highest": rules.highest,
            "initial_share": rules.first_clients / rules.clients,
            "initial_probability": rules.first_probability,
        }


def audit_sequence(
    rules: PriorFreeSampling, sequences: Sequence[ArrayLike], points: int = 201
) -> AuditReport:
    """Audit the menus published along the given sequences of reports, and the budget of each.

    A client sees its menu before it reports, so a lie can only pay within that menu.
    """
    reports = []
    places = np.unique(np.linspace(0, rules.clients - 1, _PLACES).round().astype(int))
    for sequence in sequences:
        state = rules.start()
        for place, value in enumerate(checks.vector("sequence", sequence, length=rules.clients)):
            if place in places:
                claims: tuple[Claim, ...] = ("truthful", "individually rational", "monotone", "feasible")
                reports.append(audit(state.menu, 0.0, rules.highest, claims=claims, points=points))
            _, state = state.settle(float(value))
    reports.append(
        audit(rules, 0.0, rules.highest, budget=rules.budget, profiles=sequences, claims=("within budget",))
    )
    return merge(reports)


def verify_rules(rules: PriorFreeSampling, seed: int = 0) -> list[Finding]:
    """Play many sequences of reports, gentle and hostile, and look for a broken promise."""
    rules = _shortened(rules)
    rng = np.random.default_rng(seed)
    n, top = rules.clients, rules.highest
    dear_then_free = np.where(np.arange(n) < n // 2, top, 0.0)
    hostile = [np.zeros(n), np.full(n, top), np.linspace(0, top, n), np.linspace(top, 0, n)]
    sequences = [*hostile, dear_then_free, *rng.uniform(0, top, (_SEQUENCES, n))]
    runs = [rules.run(reports) for reports in sequences]
    lowest = min(float(run.probability.min()) for run in runs)
    audit = audit_sequence(rules, sequences[-2:])
    spend = max(run.spent for run in runs)
    count = f"in {len(runs)} sequences of {n} reports"
    return [
        Finding(
            "budget", spend <= rules.budget, f"at most {spend:.6g} of {rules.budget:.6g} {count}",
            kind=Kind.BUDGET,
        ),
        Finding(
            "floor",
            lowest >= rules.lowest_probability,
            f"lowest probability {lowest:.4g}, promised {rules.lowest_probability:.4g} {count}",
            kind=Kind.ALLOCATION,
        ),
        *(finding for finding in audit.findings if finding.claim != "within budget"),
    ]  # fmt: skip


def _shortened(rules: PriorFreeSampling) -> PriorFreeSampling:
    """The same rules for fewer clients, where playing them all would take long."""
    if rules.clients <= _LONGEST:
        return rules
    share = _LONGEST / rules.clients
    return PriorFreeSampling(
        _LONGEST,
        rules.budget * share,
        rules.highest,
        int(rules.first_clients * share),
        rules.first_probability,
        rules.lowest_probability,
        rules.estimator,
        refresh=rules.refresh,
    )
