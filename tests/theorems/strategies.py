"""Random priors, budgets and reports for the property tests."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from bonafed.economics import Discrete


def fewer(share):
    """A share of the profile's examples, for tests whose every example is slow."""
    return settings(max_examples=max(1, round(share * settings.default.max_examples)))


def powers_of_ten(low, high):
    return st.floats(low, high).map(lambda x: 10.0**x)


@st.composite
def scattered_priors(draw, most=8):
    """Irregular spacing and weights over several decades; sometimes a cost of zero."""
    size = draw(st.integers(1, most))
    gaps = draw(st.lists(powers_of_ten(-3, 1), min_size=size, max_size=size))
    if size > 1 and draw(st.booleans()):
        gaps[0] = 0.0
    costs = np.cumsum(gaps)
    weights = np.array(draw(st.lists(powers_of_ten(-3, 0), min_size=size, max_size=size)))
    return Discrete(costs, weights / weights.sum())


@st.composite
def tied_priors(draw, most=8):
    """Small whole numbers: virtual costs are often exactly equal, to each other or after pooling."""
    costs = draw(st.lists(st.integers(0, 12), min_size=1, max_size=most, unique=True))
    costs = sorted(costs)
    if costs[-1] == 0:
        costs = [*costs, 1]
    weights = np.array(draw(st.lists(st.integers(1, 4), min_size=len(costs), max_size=len(costs))), float)
    return Discrete(costs, weights / weights.sum())


def discrete_priors(most=8):
    return st.one_of(scattered_priors(most), tied_priors(most))


# As a share of the highest cost: tiny, ordinary, a hair below it, at it, above it.
BUDGET_SHARES = st.one_of(
    powers_of_ten(-9, -2),
    st.floats(0.01, 0.999),
    powers_of_ten(-15, -3).map(lambda x: 1 - x),
    st.sampled_from([1.0, 1.5]),
)


def virtual_costs(most=5, least=1):
    """Spread over 7 decades, repeated, nearly zero, nearly equal."""
    sizes = {"min_size": least, "max_size": most}
    spread = st.lists(powers_of_ten(-5, 2), **sizes)
    tied = st.lists(st.sampled_from([0.3, 1.0, 1.0 + 1e-9, 2.5]), **sizes)
    tiny = st.lists(st.one_of(powers_of_ten(-14, -9), st.floats(0.1, 3.0)), **sizes)
    plain = st.lists(st.floats(0.01, 2.0), **sizes)
    return st.one_of(plain, spread, tied, tiny).map(np.array)


WEIGHTS = powers_of_ten(-2, 3)  # eta
NOISE_SCALES = powers_of_ten(-5, 4)  # Q
