"""The contract of a posted menu as a file: truthful, and within the budget on average.

What the file states, and nothing else, fixes every client's terms:

    format, version       which rules to read it by
    total_budget, rounds  money and length of the run
    groups                clients that see the same terms: how many, the prior of their cost, their data
                          weight (where groups differ), and the table of their terms
    scale                 tau of q_n(c) = min(1, tau sqrt(s_n/phibar_n(c))); absent: all are in every round
    names, membership     where there are several groups, everybody by name, and the group of each
    decimals              digits after the point of what is paid over the run, rounded so that it covers the
                          costs of whoever is paid (`bonafed.economics.money`)
    confidence            the probability with which realised spend is promised to stay within the budget,
                          with intended_spend, the expected spend the contract was shrunk to for that
    coins                 the commitment to the secret that decides who is sampled, if the server made one

Terms are computed from prior and scale at any cost; the table `levels` shows them at the costs of a finite
prior, or at 65 even costs. A file whose table does not show the terms that will be paid is refused when it
is read; that they are worth signing is what `verify` checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.terms import Drawn, Reports
from bonafed.economics.contracts import CurveMenu, Menu
from bonafed.economics.findings import Finding
from bonafed.economics.money import decimals as check_decimals
from bonafed.economics.priors import JSONObject
from bonafed.economics.registry import field, prior_from_json
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling.plan import (
    MOST_CLIENTS,
    MOST_ROUNDS,
    Group,
    SamplingPlan,
    menus_at_scale,
)
from bonafed.mechanisms.sampling.settlement import (
    SamplingKind,
    SettledTerms,
    designed_from_reports,
    missing,
    overspending,
    share_of_budget,
    terms_at,
)
from bonafed.presentation.documents import Document

_RTOL = 1e-10  # a table against the terms it shows: both by the same formulas, perhaps on two machines
_ATOL = 1e-15  # ... and what rounding makes of a probability that is 0 or next to it


class Levels(NamedTuple):
    """The table of a menu as published."""

    cost: Floats  # (K,) increasing
    probability: Floats  # (K,)
    payment: Floats  # (K,) money per participation


@dataclass(frozen=True, eq=False, repr=False)
class SamplingContract(SamplingKind):
    """A posted menu, with the tables of its terms as they are written in the file."""

    format = "bonafed-sampling-contract"

    plan: SamplingPlan
    levels: tuple[Levels, ...]  # one table per group; not trusted before `require_terms_shown`
    coin_commitment: str | None = None

    @classmethod
    def of(cls, plan: SamplingPlan) -> Self:
        """The contract that publishes a plan."""
        return cls(plan, tuple(Levels(menu.levels(), *menu.price(menu.levels())) for menu in plan.menus))

    @property
    def clients(self) -> int:  # type: ignore[override]  # of the plan
        return self.plan.clients

    @property
    def rounds(self) -> int:  # type: ignore[override]
        return self.plan.rounds

    @property
    def decimals(self) -> int:  # type: ignore[override]
        return self.plan.decimals

    @property
    def total_budget(self) -> float:  # type: ignore[override]
        return self.plan.total_budget

    @property
    def expected_spend(self) -> float:
        return self.plan.expected_spend

    @property
    def confidence(self) -> float | None:
        return self.plan.confidence

    @property
    def listed(self) -> tuple[str, ...]:
        return self.plan.names or ()

    def draw_costs(self, rng: np.random.Generator, clients: int) -> Floats:
        costs, groups = np.empty(clients), self.plan.membership[:clients]
        for index, group in enumerate(self.plan.groups):
            members = np.flatnonzero(groups == index)
            costs[members] = group.prior.sample(rng, members.size)
        return costs

    def fields(self) -> JSONObject:
        plan, several = self.plan, len(self.plan.groups) > 1
        groups = []
        for group, table in zip(plan.groups, self.levels, strict=True):
            entry: JSONObject = {
                "clients": group.clients,
                "prior": group.prior.to_json(),
                "levels": {name: column.tolist() for name, column in table._asdict().items()},
            }
            groups.append({**entry, "weight": group.weight} if several else entry)
        data: JSONObject = {
            "total_budget": plan.total_budget,
            "rounds": plan.rounds,
            "decimals": plan.decimals,
            "groups": groups,
        }
        if plan.scale is not None:
            # Weights matter by their ratios: those of a single group are in its scale.
            data["scale"] = plan.scale if several else plan.scale * math.sqrt(plan.groups[0].weight)
        if plan.confidence is not None:
            data |= {"confidence": plan.confidence, "intended_spend": plan.intended_spend}
        if several:
            names = plan.names or tuple(map(str, range(plan.clients)))
            data |= {"names": list(names), "membership": plan.membership.tolist()}
        return data

    @classmethod
    def from_fields(cls, data: JSONObject) -> Self:
        money = checks.positive("contract.total_budget", field(data, "total_budget", "contract"))
        rounds = checks.whole("contract.rounds", field(data, "rounds", "contract"), at_most=MOST_ROUNDS)
        confidence, intended = _promise(data, money)
        groups = _groups(field(data, "groups", "contract"))
        membership = _membership(data, groups)
        names = _names(data, membership.size) if len(groups) > 1 else None
        decimals = check_decimals("contract.decimals", field(data, "decimals", "contract"))
        scale = checks.positive("contract.scale", data["scale"]) if "scale" in data else None
        menus = menus_at_scale(groups, scale, intended / rounds / membership.size)
        plan = SamplingPlan(
            money, rounds, groups, menus, membership, intended, scale, confidence, names, decimals
        )
        tables = [
            _levels(field(entry, "levels", "group"), menu)
            for entry, menu in zip(data["groups"], menus, strict=True)
        ]
        return cls(plan, tuple(tables))

    def require_terms_shown(self) -> None:
        """Refuse a contract whose tables show other terms than it pays."""
        for number, (menu, table) in enumerate(zip(self.plan.menus, self.levels, strict=True)):
            for name, gap in table_gaps(menu, table).items():
                if np.any(gap > 0):
                    at = int(np.argmax(gap))
                    rule = f"must show the terms that prior and scale give at cost {table.cost[at]:g}"
                    value = float(getattr(table, name)[at])
                    raise InvalidValue(f"contract.groups[{number}].levels.{name}", rule, value)

    def terms_for(self, reports: Reports) -> SettledTerms:
        """Refused where the file shows other terms than it pays.

        Where clients are in groups, the contract says by name who is in which; else all names are alike.
        """
        self.require_terms_shown()
        plan, names = self.plan, tuple(reports)
        costs, places = np.array(list(reports.values()), dtype=np.float64), np.arange(len(names))
        if plan.names is not None:
            numbers = {name: place for place, name in enumerate(plan.names)}
            places = np.array([numbers[name] for name in names])
        terms = terms_at(plan, names, costs, places)
        return terms.cautioned(
            *missing(terms, plan.clients, share_of_budget(plan, places)),
            *(() if isinstance(reports, Drawn) else designed_from_reports(plan, terms, places)),
            *overspending(terms),
        )

    def verify(self) -> Sequence[Finding]:
        from bonafed.mechanisms.sampling.verification import verify_menus

        return verify_menus(self)

    def prospect(self, report: float) -> Document:
        from bonafed.mechanisms.sampling.report import prospect_document

        return prospect_document(self.plan.menus, self.rounds, report)

    def signed(self) -> Document:
        from bonafed.mechanisms.sampling.report import contract_document

        return contract_document(self)

    def scheme_settings(self) -> Mapping[str, Any]:
        """A contract with groups cannot be written as a table: a run under it must be handed the file."""
        plan = self.plan
        if len(plan.groups) > 1:
            return {"scheme": "published"}
        prior = plan.groups[0].prior.to_json()
        return {"scheme": "optimal", "prior": prior, "confidence": plan.confidence}


def contract_to_json(contract: SamplingPlan) -> JSONObject:
    """Plain data to publish; `contract_from_json` rebuilds the plan."""
    return SamplingContract.of(contract).to_json()


def contract_from_json(data: object) -> SamplingPlan:
    """The plan of a published contract; every field is checked, and the tables show the plan's terms."""
    contract = SamplingContract.from_json(data)
    contract.require_terms_shown()
    return contract.plan


def table_gaps(menu: Menu, table: Levels) -> dict[str, Floats]:
    """(K,) by how much a table misses the terms that will be paid, beyond rounding (<= 0: it does not)."""
    q, r = menu.price(table.cost)
    noise = _ATOL if isinstance(menu, CurveMenu) else 0.0
    return {
        "probability": np.abs(table.probability - q) - (_RTOL * q + noise),
        "payment": np.abs(table.payment - r) - _RTOL * r,
    }


def _promise(data: JSONObject, money: float) -> tuple[float | None, float]:
    """The confidence, if one is promised, and the expected spend the contract was made for."""
    if "confidence" not in data and "intended_spend" not in data:
        return None, money
    level = checks.number("contract.confidence", field(data, "confidence", "contract"))
    if not 0 < level < 1:
        raise InvalidValue("contract.confidence", "must be between 0 and 1, ends excluded", level)
    intended = checks.positive("contract.intended_spend", field(data, "intended_spend", "contract"))
    if intended > money:
        raise InvalidValue("contract.intended_spend", f"must not exceed the budget {money:g}", intended)
    return level, intended


def _groups(entries: object) -> tuple[Group, ...]:
    if not isinstance(entries, list) or not entries:
        raise InvalidValue("contract.groups", "must be a non-empty list", repr(entries)[:60])

    def group(entry: object) -> Group:
        weight = 1.0
        if len(entries) > 1:
            weight = checks.positive("group.weight", field(entry, "weight", "group"))
        clients = checks.whole("group.clients", field(entry, "clients", "group"))
        return Group(prior_from_json(field(entry, "prior", "group")), weight, clients)

    return tuple(map(group, entries))


def _membership(data: JSONObject, groups: tuple[Group, ...]) -> NDArray[np.int64]:
    counts = [g.clients for g in groups]
    if sum(counts) > MOST_CLIENTS:
        raise InvalidValue("group.clients", f"must not exceed {MOST_CLIENTS} in all", sum(counts))
    if len(groups) == 1:
        return np.zeros(counts[0], dtype=np.int64)
    places = field(data, "membership", "contract")
    if not isinstance(places, list) or not all(type(k) is int and 0 <= k < len(groups) for k in places):
        raise InvalidValue("contract.membership", "must be a list of group indices", "another")
    membership = np.array(places, dtype=np.int64)
    if not np.array_equal(np.bincount(membership, minlength=len(groups)), counts):
        raise InvalidValue("contract.membership", "must match the groups' clients", "other counts")
    first = np.unique(membership, return_index=True)[1]
    if np.any(np.diff(first) < 0):
        raise InvalidValue("contract.groups", "must be in the order of their first clients", "another")
    return membership


def _names(data: JSONObject, clients: int) -> tuple[str, ...]:
    """The names behind the membership: everybody once."""
    names = field(data, "names", "contract")
    if not isinstance(names, list):
        raise InvalidValue("contract.names", "must be a list of names", repr(names)[:60])
    if len(names) != clients:
        raise InvalidValue("contract.names", f"must be {clients} different names", len(names))
    return checks.names("contract.names", names)


def _levels(data: object, menu: Menu) -> Levels:
    """The table as written: exactly the costs at which a menu is shown."""
    due = menu.levels()

    def column(name: str) -> Floats:
        values = field(data, name, "levels")
        return checks.vector(f"levels.{name}", values, length=due.size)

    cost = column("cost")
    if not np.array_equal(cost, due):
        at = int(np.flatnonzero(cost != due)[0])
        rule = f"must be the costs that the prior is shown at, {due[at]!r} at position {at}"
        raise InvalidValue("levels.cost", rule, float(cost[at]))
    return Levels(cost, column("probability"), column("payment"))
