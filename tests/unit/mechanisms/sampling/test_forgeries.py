"""Random edits of single numbers: each is refused, or settles to the same terms.

Contracts of every kind of prior, with and without weights and confidence. `make deep` tries 1,000 edits.
"""

import copy
import json
import math
import os
from functools import cache

import numpy as np
import pytest
from tests.theorems.kinds import KINDS

from bonafed.economics import Discrete, Empirical, Uniform
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling import contract_from_json, plan, verify
from bonafed.mechanisms.sampling.published import SamplingContract

PAST = [0.31, 0.5, 0.52, 0.77, 0.9, 1.2, 1.21]
PRIORS = {
    **{kind.name: kind.prior for kind in KINDS},
    "discrete": Discrete([0.3, 0.5, 0.9, 1.0, 1.4, 2.0], [0.3, 0.02, 0.08, 0.35, 0.05, 0.2]),
    "discrete-hollow": Discrete([0.3, 0.5, 0.6, 0.9, 1.0], [0.4, 1e-13, 1e-13, 0.3, 0.3 - 2e-13]),
    "empirical": Empirical(PAST, 1.5),
    "empirical-mle": Empirical(PAST, 1.5, "mle"),
}
WAYS = ("plain", "confidence", "weights", "weights and confidence")
MAY_CHANGE = {("total_budget",), ("rounds",), ("groups", 0, "clients"), ("groups", 1, "clients")}
# One of each family, where all would take minutes: tables of irregular priors are slow to make.
FEW = (
    "uniform",
    "exponential",
    "beta",
    "overlapping-modes",
    "gamma",
    "discrete",
    "empirical",
    "empirical-mle",
)
DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
NAMES, TRIES = (tuple(PRIORS), 1000) if DEEP else (FEW, 20)


@cache
def published(name, way):
    """A contract of 8 clients that buys some of everybody's rounds, as the content of a file."""
    prior = PRIORS[name]
    confidence = 0.9 if "confidence" in way else None
    if "weights" in way:
        weights, priors = [1.0, 2.5, 2.5, 1.0] * 2, [prior, Uniform(0.5, 1.5)] * 4
        dearest = 4 * prior.high + 6
        contract = plan(
            None, 0.5 * dearest * 20, 8, 20, weights=weights, priors=priors, confidence=confidence
        )
    else:
        contract = plan(prior, 0.6 * prior.high * 160, 8, 20, confidence=confidence)
    return SamplingContract.of(contract).content


def numbers(data, path=()):
    """Where the numbers of a file are."""
    if isinstance(data, dict):
        return [found for key, part in data.items() for found in numbers(part, (*path, key))]
    if isinstance(data, list):
        return [found for key, part in enumerate(data) for found in numbers(part, (*path, key))]
    return [path] if isinstance(data, (int, float)) else []


def at(data, path):
    for key in path:
        data = data[key]
    return data


def edited(data, rng):
    """One number changed by a relative 1e-6 to 1; rarely one of a table, of which there are many."""
    places = numbers(data)
    table = [path for path in places if "levels" in path or "membership" in path]
    rest = [path for path in places if path not in set(table)]
    chosen = table if rng.random() < 0.3 else rest
    path = chosen[int(rng.integers(len(chosen)))]
    size = float(rng.choice([-1, 1]) * 10 ** rng.uniform(-6, 0))
    old = at(data, path)
    if isinstance(old, int):
        new = old + int(math.copysign(max(1, round(abs(old * size))), size))
    else:
        new = old * (1 + size) if old else size
    changed = copy.deepcopy(data)
    at(changed, path[:-1])[path[-1]] = new
    return path, old, new, changed


def reports(contract):
    """Costs that may be stated: at, between, below and above what is published, and likely ones."""
    rng = np.random.default_rng(1)
    found = []
    for group, menu in zip(contract.groups, contract.menus, strict=True):
        levels = menu.levels()
        likely = group.prior.quantile(rng.random(60))
        anywhere = rng.uniform(0.9 * group.prior.low, 1.1 * group.prior.high, 60)
        found.append(np.concatenate([levels, (levels[1:] + levels[:-1]) / 2, likely, anywhere]))
    return found


def terms(contract, stated):
    """(q, r) of every group's clients; nothing for whoever is not admitted."""
    found = []
    for menu, costs in zip(contract.menus, stated, strict=True):
        inside = costs <= menu.levels()[-1]
        q, r = np.zeros(costs.size), np.zeros(costs.size)
        q[inside], r[inside] = menu.price(costs[inside])
        found.append(np.stack([inside, q, r]))
    return found


def same_terms(original, other):
    if not np.array_equal(original.membership, other.membership):
        return False
    stated = reports(original)
    return all(
        np.allclose(a, b, rtol=1e-9, atol=1e-12)
        for a, b in zip(terms(original, stated), terms(other, stated), strict=True)
    )


def forge(number):
    """The outcome of one edit: 'refused', 'the same', 'another contract', or what went wrong."""
    rng = np.random.default_rng([16, number])
    name = NAMES[number % len(NAMES)]
    way = WAYS[number // len(NAMES) % len(WAYS)]
    data = json.loads(published(name, way))
    path, old, new, forged = edited(data, rng)
    try:
        contract = contract_from_json(forged)
        if not all(check.holds for check in verify(forged)):
            return "refused"
    except InvalidValue:
        return "refused"
    if path in MAY_CHANGE:
        return "another contract"
    if same_terms(contract_from_json(data), contract):
        return "the same"
    return f"{name}, {way}: {path} from {old!r} to {new!r} settles to other terms"


@pytest.mark.parametrize("name", ["uniform", "beta", "discrete", "empirical"])
@pytest.mark.parametrize("way", WAYS)
def test_honest_contracts_of_every_way_pass(name, way):
    assert [check for check in verify(json.loads(published(name, way))) if not check.holds] == []


def test_every_edit_is_refused_or_settles_to_the_same_terms():
    outcomes = [forge(number) for number in range(TRIES)]
    assert set(outcomes) <= {"refused", "the same", "another contract"}
    assert outcomes.count("refused") >= 0.7 * TRIES
