"""A sampling contract as a file.

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
is read; that they are worth signing is what `verify` checks. Files of older versions are refused: those of
version 1 could promise one thing in the table and pay another, those of version 2 did not say which client
is in which group, nor how payments are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.canonical import (
    canonical_bytes,
    coins_from_json,
    coins_to_json,
    digest,
    require_same,
    require_version,
    tidy,
)
from bonafed.economics.contracts import CurveMenu, Menu
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

FORMAT = "bonafed-sampling-contract"
VERSION = 3
_RTOL = 1e-10  # a table against the terms it shows: both by the same formulas, perhaps on two machines
_ATOL = 1e-15  # ... and what rounding makes of a probability that is 0 or next to it


class Levels(NamedTuple):
    """The table of a menu as published."""

    cost: Floats  # (K,) increasing
    probability: Floats  # (K,)
    payment: Floats  # (K,) money per participation


class Published(NamedTuple):
    """A contract as read: the plan it fixes, and the tables it shows beside that."""

    plan: SamplingPlan
    levels: tuple[Levels, ...]  # one per group
    data: JSONObject  # the canonical object

    @property
    def content(self) -> bytes:
        """The canonical form."""
        return canonical_bytes(self.data)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical form, in hex."""
        return digest(self.content)


def contract_to_json(contract: SamplingPlan) -> JSONObject:
    """Plain data to publish; `contract_from_json` rebuilds the plan."""
    return publish(contract).data


def publish(contract: SamplingPlan) -> Published:
    """A plan as it is published, with the tables of its terms."""
    tables = tuple(Levels(menu.levels(), *menu.price(menu.levels())) for menu in contract.menus)
    return Published(contract, tables, _to_json(contract, tables))


def _to_json(contract: SamplingPlan, tables: Sequence[Levels]) -> JSONObject:
    several = len(contract.groups) > 1
    groups = []
    for group, table in zip(contract.groups, tables, strict=True):
        entry: JSONObject = {
            "clients": group.clients,
            "prior": tidy(group.prior.to_json()),
            "levels": {name: column.tolist() for name, column in table._asdict().items()},
        }
        groups.append({**entry, "weight": group.weight} if several else entry)
    data: JSONObject = {
        "format": FORMAT,
        "version": VERSION,
        "total_budget": contract.total_budget,
        "rounds": contract.rounds,
        "decimals": contract.decimals,
        "groups": groups,
        **coins_to_json(contract.coin_commitment),
    }
    if contract.scale is not None:
        # Weights matter by their ratios: those of a single group are in its scale.
        data["scale"] = contract.scale if several else contract.scale * math.sqrt(contract.groups[0].weight)
    if contract.confidence is not None:
        data |= {"confidence": contract.confidence, "intended_spend": contract.intended_spend}
    if several:
        names = contract.names or tuple(map(str, range(contract.clients)))
        data |= {"names": list(names), "membership": contract.membership.tolist()}
    return data


def contract_from_json(data: object) -> SamplingPlan:
    """The plan of a published contract; every field is checked, and the tables show the plan's terms."""
    published = parse_contract(data)
    require_terms_shown(published)
    return published.plan


def require_terms_shown(published: Published) -> None:
    """Refuse a contract whose tables show other terms than it pays."""
    for number, (menu, table) in enumerate(zip(published.plan.menus, published.levels, strict=True)):
        for name, gap in table_gaps(menu, table).items():
            if np.any(gap > 0):
                at = int(np.argmax(gap))
                rule = f"must show the terms that prior and scale give at cost {table.cost[at]:g}"
                value = float(getattr(table, name)[at])
                raise InvalidValue(f"contract.groups[{number}].levels.{name}", rule, value)


def table_gaps(menu: Menu, table: Levels) -> dict[str, Floats]:
    """(K,) by how much a table misses the terms that will be paid, beyond rounding (<= 0: it does not)."""
    q, r = menu.price(table.cost)
    noise = _ATOL if isinstance(menu, CurveMenu) else 0.0
    return {
        "probability": np.abs(table.probability - q) - (_RTOL * q + noise),
        "payment": np.abs(table.payment - r) - _RTOL * r,
    }


def parse_contract(data: object) -> Published:
    """A published contract as it stands: what it says is well formed, not yet what it should be."""
    kind = field(data, "format", "contract")
    if kind != FORMAT:
        raise InvalidValue("contract.format", f"must be {FORMAT!r}", repr(kind)[:60])
    assert isinstance(data, dict)  # otherwise `field` would have refused it
    require_version(field(data, "version", "contract"), VERSION, "contract.version")
    money = checks.positive("contract.total_budget", field(data, "total_budget", "contract"))
    rounds = checks.whole("contract.rounds", field(data, "rounds", "contract"), at_most=MOST_ROUNDS)
    confidence, intended = _promise(data, money)
    groups = _groups(field(data, "groups", "contract"))
    membership = _membership(data, groups)
    names = _names(data, membership.size) if len(groups) > 1 else None
    decimals = check_decimals("contract.decimals", field(data, "decimals", "contract"))
    scale = checks.positive("contract.scale", data["scale"]) if "scale" in data else None
    menus = menus_at_scale(groups, scale, intended / rounds / membership.size)
    coins = coins_from_json(data.get("coins"))
    plan = SamplingPlan(
        money, rounds, groups, menus, membership, intended, scale, confidence, coins, names, decimals
    )
    tables = [
        _levels(field(entry, "levels", "group"), menu)
        for entry, menu in zip(data["groups"], menus, strict=True)
    ]
    canonical = _to_json(plan, tables)
    require_same(data, canonical, "contract")
    return Published(plan, tuple(tables), canonical)


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
