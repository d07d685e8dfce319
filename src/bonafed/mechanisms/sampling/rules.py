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

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.contracts.canonical import (
    canonical_bytes,
    coins_from_json,
    coins_to_json,
    digest,
    require_same,
    require_version,
)
from bonafed.economics.audit import AuditReport, Claim, audit, merge
from bonafed.economics.claims import Finding, Kind
from bonafed.economics.discrete import Estimator
from bonafed.economics.money import DECIMALS
from bonafed.economics.money import decimals as check_decimals
from bonafed.economics.priors import JSONObject
from bonafed.economics.registry import field
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling.plan import MOST_ROUNDS
from bonafed.mechanisms.sampling.prior_free import PriorFreeSampling

RULES_FORMAT = "bonafed-prior-free-rules"
RULES_VERSION = 3
_SEQUENCES = 15  # random sequences of reports tried by `verify_published_rules`
_LONGEST = 100  # clients of a tried sequence; longer rules are tried at this length
_PLACES = 6  # places along a sequence at which the published menu is audited


class PublishedRules(NamedTuple):
    """Prior-free rules as published."""

    rules: PriorFreeSampling
    rounds: int
    coin_commitment: str | None = None  # SHA-256, in hex, of the secret that decides who is sampled
    decimals: int = DECIMALS  # decimals of an amount that is paid

    @property
    def total_budget(self) -> float:
        """Money, whole run."""
        return self.rounds * self.rules.budget

    @property
    def content(self) -> bytes:
        """The canonical form."""
        return rules_bytes(*self)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical form, in hex."""
        return digest(self.content)


def approach_order(digest: str, names: Sequence[str]) -> list[int]:
    """Places in `names` in the order in which clients are approached under rules of this digest.

    The names must have been listed before the rules were published: who chooses its name chooses its place.

    >>> approach_order("00" * 32, ["ada", "ben", "eve"]) == approach_order("00" * 32, ["ada", "ben", "eve"])
    True
    """
    seed = bytes.fromhex(digest)
    keys = [hashlib.sha256(seed + name.encode()).digest() for name in names]
    return sorted(range(len(names)), key=keys.__getitem__)


def rules_to_json(
    rules: PriorFreeSampling,
    rounds: int,
    coin_commitment: str | None = None,
    decimals: int = DECIMALS,
) -> JSONObject:
    """Plain data to publish."""
    if rules.variant != "safe":
        raise InvalidValue("variant", "must be 'safe' to be published", repr(rules.variant))
    return {
        "format": RULES_FORMAT,
        "version": RULES_VERSION,
        "clients": rules.clients,
        "rounds": rounds,
        "budget_per_round": rules.budget,
        "highest": rules.highest,
        "initial": rules.first_clients,
        "initial_probability": rules.first_probability,
        "floor": rules.lowest_probability,
        "estimator": rules.estimator,
        "refresh": rules.refresh,
        "decimals": decimals,
        **coins_to_json(coin_commitment),
    }


def rules_bytes(
    rules: PriorFreeSampling,
    rounds: int,
    coin_commitment: str | None = None,
    decimals: int = DECIMALS,
) -> bytes:
    """The rules as the content of a file: their canonical form."""
    return canonical_bytes(rules_to_json(rules, rounds, coin_commitment, decimals))


def rules_from_json(data: object) -> PublishedRules:
    """The rules in a file; every field is checked, and no other is allowed."""
    kind = field(data, "format", "rules")
    if kind != RULES_FORMAT:
        raise InvalidValue("rules.format", f"must be {RULES_FORMAT!r}", repr(kind)[:60])
    assert isinstance(data, dict)  # otherwise `field` would have refused it
    require_version(field(data, "version", "rules"), RULES_VERSION, "rules.version")
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
    decimals = check_decimals("rules.decimals", field(data, "decimals", "rules"))
    published = PublishedRules(rules, rounds, coins_from_json(data.get("coins")), decimals)
    require_same(data, rules_to_json(*published), "rules")
    return published


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


def verify_published_rules(published: PublishedRules, seed: int = 0) -> list[Finding]:
    """Play many sequences of reports, gentle and hostile, and look for a broken promise."""
    rules = _shortened(published.rules)
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
