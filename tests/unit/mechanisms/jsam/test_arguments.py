"""Every argument of the JSAM functions: name, rule and value."""

import re

import numpy as np
import pytest

from bonafed.economics import Uniform
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam import (
    Cheapest,
    Fixed,
    admit,
    allocate,
    allocate_unequal,
    complete_information,
    eta_for_budget,
    eta_for_expected_budget,
    largest_losses,
    noise_scale,
    objective,
    settle,
    unbiased,
)

PRIOR = Uniform(0, 1)
NAN, INF = float("nan"), float("inf")
V, C = [0.2, 0.5, 0.9], [0.1, 0.4, 0.6]
Q = {"delta": 1e-5, "dimension": 10, "rounds": 5, "smoothness": 1.0, "records": 20}
OBJECTIVE = {
    "selection": [0.5, 0.5],
    "privacy": [1.0, 1.0],
    "virtual_costs": [1.0, 2.0],
    "eta": 1.0,
    "noise_scale": 1.0,
}


def scale(**changes):
    return lambda: noise_scale(**{**Q, **changes})


def value(**changes):
    return lambda: objective(**{**OBJECTIVE, **changes})


def settled(**changes):
    return lambda: settle(**{"reports": C, "prior": PRIOR, "eta": 1.0, "noise_scale": 1.0, **changes})


def budgeted(**changes):
    return lambda: eta_for_budget(
        **{"reports": C, "prior": PRIOR, "budget": 1, "noise_scale": 1, **changes}
    )


def expected(**changes):
    given = {"prior": PRIOR, "clients": 3, "budget": 1.0, "noise_scale": 1.0, "samples": 3, **changes}
    return lambda: eta_for_expected_budget(**given)


ALLOCATIONS = {
    "allocate": lambda v=V, eta=1.0, q=1.0: allocate(v, eta, q),
    "allocate_unequal": lambda v=V, eta=1.0, q=1.0: allocate_unequal(v, [2, 3, 5], eta, q),
}


@pytest.mark.parametrize("name", ALLOCATIONS)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"v": []}, "virtual_costs must not be empty, got 0 values"),
        ({"v": [[1.0]]}, r"virtual_costs must be one-dimensional, got shape \(1, 1\)"),
        ({"v": ["a"]}, r"virtual_costs must be a list of numbers, got \['a'\]"),
        ({"v": [1.0, 0.0, 1.0]}, "virtual_costs must be positive, got 0 at position 1"),
        ({"v": [1.0, 1.0, -2.0]}, "virtual_costs must be positive, got -2 at position 2"),
        ({"v": [1.0, NAN, 1.0]}, "virtual_costs must be finite, got nan at position 1"),
        ({"v": [INF, 1.0, 1.0]}, "virtual_costs must be finite, got inf at position 0"),
        ({"eta": 0}, "eta must be positive, got 0.0"),
        ({"eta": NAN}, "eta must be finite, got nan"),
        ({"eta": "5"}, "eta must be a number, got '5'"),
        ({"q": -1}, "noise_scale must be positive, got -1.0"),
        ({"q": INF}, "noise_scale must be finite, got inf"),
    ],
)
def test_what_every_allocation_refuses(name, arguments, said):
    with pytest.raises(InvalidValue, match=f"^{said}$"):
        ALLOCATIONS[name](**arguments)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: allocate(V, 1, 1, "best"), "variant must be one of exact, printed, got 'best'"),
        (lambda: allocate(V, 1, 1, "printed", grid=0), "grid must be positive, got 0.0"),
        (lambda: allocate(V, 1, 1, "printed", grid=2), "grid must be between 0 and 1, got 2.0"),
        (
            lambda: allocate([2.0, 1.0], 1, 1, "printed"),
            "virtual_costs must be increasing for the printed algorithm, got 1 at position 1",
        ),
        (lambda: allocate_unequal(V, [5, 5], 1, 1), "sizes must have 3 values, got 2"),
        (
            lambda: allocate_unequal(V, [5, 2.5, 5], 1, 1),
            "sizes must be whole numbers of records, got 2.5 at position 1",
        ),
        (lambda: allocate_unequal(V, [5, 5, 0], 1, 1), "sizes must be positive, got 0 at position 2"),
        (
            lambda: allocate_unequal(V, [1, 10**8, 10**8], 1, 1),
            "sizes must be at most 33,554,432, clients times records over their greatest common divisor, "
            "got 3 times 200,000,001",
        ),
        (lambda: allocate_unequal(V, [5, 5, 5], 1, 1, [1, 2]), "records must have 3 values, got 2"),
        (scale(delta=0), "delta must be positive, got 0.0"),
        (scale(delta=1), "delta must be between 0 and 1, got 1.0"),
        (scale(dimension=0), "dimension must be a whole number of at least 1, got 0"),
        (scale(rounds=1.5), "rounds must be a whole number of at least 1, got 1.5"),
        (scale(smoothness=0), "smoothness must be positive, got 0.0"),
        (scale(c2=-1), "c2 must be positive, got -1.0"),
        (value(selection=[1.5, -0.5]), "selection must not be negative, got -0.5 at position 1"),
        (value(privacy=[1.0]), "privacy must have 2 values, got 1"),
        (value(privacy=[1.0, -1.0]), "privacy must not be negative, got -1 at position 1"),
        (value(virtual_costs=[1.0, 2.0, 3.0]), "virtual_costs must have 2 values, got 3"),
        (value(eta=0), "eta must be positive, got 0.0"),
        (value(noise_scale=0), "noise_scale must be positive, got 0.0"),
        (value(shares=[0.5, 0.6]), "shares must sum to 1, got sum 1.1"),
        (settled(reports=[0.1, -0.1]), "reports must not be negative, got -0.1 at position 1"),
        (settled(reports=[]), "reports must not be empty, got 0 values"),
        (settled(reports=[1.5, 2]), "reports must not all be above the highest cost, got 1.5 and more"),
        (settled(prior=[PRIOR] * 2), "prior must be one, or 3, one per client, got "),
        (
            settled(prior="uniform"),
            "prior must be a prior, such as bonafed.Uniform(0.5, 1.5) or a list, got 'uniform'",
        ),
        (settled(prior=3), "prior must be a prior, such as bonafed.Uniform(0.5, 1.5) or a list, got 3"),
        (settled(eta=0), "eta must be positive, got 0.0"),
        (settled(noise_scale=NAN), "noise_scale must be finite, got nan"),
        (settled(variant="interim"), "variant must be one of ex-post, bayesian, got 'interim'"),
        (settled(cells=0), "cells must be a whole number of at least 1, got 0"),
        (
            settled(variant="bayesian", samples=1),
            "samples must be a whole number of at least 2, got 1",
        ),
        (settled(rule=unbiased(2)), "selection must have 3 values, one per client, got 2"),
        (settled(rule=unbiased(5)), "selection must have 3 values, one per client, got 5"),
        (
            settled(reports=[0.1, 5.0, 0.2], rule=Fixed(np.array([0.0, 1.0, 0.0]))),
            "selection must include an admitted client, got none",
        ),
        (lambda: settled()().utility([0.1]), "true_costs must have 3 values, got 1"),
        (lambda: settled()().utility([0.1, NAN, 0.2]), "true_costs must be finite, got nan at position 1"),
        (lambda: admit([-1.0], PRIOR), "reports must not be negative, got -1 at position 0"),
        (lambda: admit(C, [PRIOR]), "prior must be one, or 3, one per client, got "),
        (lambda: complete_information([0.0], 1, 1), "costs must be positive, got 0 at position 0"),
        (lambda: complete_information(C, -1, 1), "eta must be positive, got -1.0"),
        (lambda: complete_information(C, 1, 0), "noise_scale must be positive, got 0.0"),
        (lambda: Fixed(np.array([0.5, 0.6])), "selection must sum to 1, got sum 1.1"),
        (lambda: Fixed(np.array([1.5, -0.5])), "selection must not be negative, got -0.5 at position 1"),
        (lambda: unbiased(0), "clients must be a whole number of at least 1, got 0"),
        (lambda: Cheapest(0), "members must be a whole number of at least 1, got 0"),
        (lambda: largest_losses([1.0, NAN], 1), "losses must be finite, got nan at position 1"),
        (lambda: largest_losses([1.0, 2.0], 0), "members must be a whole number of at least 1, got 0"),
        (lambda: largest_losses([1.0, 2.0], 3), "members must be at most the number of clients, 2, got 3"),
        (budgeted(budget=0), "budget must be positive, got 0.0"),
        (budgeted(reports=[NAN]), "reports must be finite, got nan at position 0"),
        (budgeted(noise_scale=0), "noise_scale must be positive, got 0.0"),
        (expected(budget=-1), "budget must be positive, got -1.0"),
        (expected(clients=0), "clients must be a whole number of at least 1, got 0"),
        (expected(noise_scale=0), "noise_scale must be positive, got 0.0"),
        (expected(samples=0), "samples must be a whole number of at least 1, got 0"),
        (expected(seed=-1), "seed must be a whole number of at least 0, got -1"),
        (
            expected(prior="uniform"),
            "prior must be a prior, such as bonafed.Uniform(0.5, 1.5), got 'uniform'",
        ),
    ],
)
def test_bad_arguments_are_refused_by_name(call, said):
    with pytest.raises(InvalidValue, match="^" + re.escape(said)):
        call()


def test_more_members_than_clients_are_all_of_them():
    """Reports above the highest cost may leave fewer than M; FSBM then takes all who are left."""
    few, all_ = settle(C, PRIOR, 1, 1, rule=Cheapest(9)), settle(C, PRIOR, 1, 1, rule=unbiased(3))
    assert few.payment == pytest.approx(all_.payment, rel=1e-13)
    assert few.allocation.selection.tolist() == all_.allocation.selection.tolist()


def test_results_do_not_share_memory_with_the_input():
    reports = np.array(C)
    done = settle(reports, PRIOR, 1, 1)
    reports[:] = 0.9
    assert done.reports.tolist() == C
