"""Continuous priors of every kind, each beside its slow twin."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from bonafed.economics import (
    NormalMixture,
    Prior,
    ScaledBeta,
    TruncatedExponential,
    TruncatedNormal,
    Uniform,
    from_scipy,
)
from tests.oracles import continuous as slow


@dataclass(frozen=True)
class Kind:
    name: str
    prior: Prior
    family: str  # of the twins in tests/oracles/continuous.py
    parameters: tuple
    regular: bool = True

    @cached_property
    def twin(self):
        return getattr(slow, self.family)(*self.parameters)

    @cached_property
    def floats(self):
        """The twin in plain floats, for quadrature."""
        return slow.float_functions(self.family, *self.parameters)


def _uniform(name, low, high):
    return Kind(name, Uniform(low, high), "uniform", (low, high))


def _exponential(name, *parameters):
    return Kind(name, TruncatedExponential(*parameters), "exponential", parameters)


def _normal(name, mean, sd, low, high):
    prior = TruncatedNormal(mean, sd, low, high)
    return Kind(name, prior, "normals", ([1.0], [mean], [sd], low, high))


def _normals(name, *parameters, regular=False):
    return Kind(name, NormalMixture(*parameters), "normals", parameters, regular)


def _beta(name, *parameters, regular=True):
    return Kind(name, ScaledBeta(*parameters), "beta", parameters, regular)


KINDS = [
    _uniform("uniform", 0.5, 1.5),
    _uniform("uniform-from-zero", 0.0, 2.0),
    _uniform("uniform-narrow", 1.0, 1.0001),
    _exponential("exponential", 1.0, 0.2, 3.0),
    _exponential("exponential-steep", 20.0, 0.0, 2.0),
    _exponential("exponential-flat", 1e-6, 0.5, 1.5),
    _normal("normal", 1.0, 0.4, 0.2, 2.0),
    _normal("normal-narrow", 1.0, 0.02, 0.2, 2.0),
    _normal("normal-lower-tail", 10.0, 1.0, 0.5, 2.0),
    _normal("normal-upper-tail", -5.0, 1.0, 0.0, 1.0),
    _normal("normal-wide", 1.0, 50.0, 0.5, 1.5),
    _beta("beta", 2.0, 3.0, 0.5, 1.5),
    _beta("beta-large", 60.0, 90.0, 0.5, 1.5),
    _beta("beta-heavy-ends", 0.5, 0.5, 0.5, 1.5, regular=False),
    _beta("beta-heavy-low-end", 0.3, 1.0, 0.5, 1.5),
    _beta("beta-heavy-high-end", 2.0, 0.6, 0.1, 1.1, regular=False),
    _beta("beta-thin-high-end", 1.5, 8.0, 0.0, 1.0),
    _normals("two-modes", [0.5, 0.5], [0.6, 1.5], [0.1, 0.15], 0.2, 2.0),
    _normals("three-modes", [0.4, 0.3, 0.3], [0.5, 1.0, 1.6], [0.05, 0.06, 0.08], 0.2, 2.0),
    _normals("narrow-mode", [0.7, 0.3], [0.8, 1.4], [0.2, 1e-3], 0.2, 2.0),
    _normals("needle", [0.9, 0.1], [1.0, 1.3], [0.4, 1e-6], 0.2, 2.0),
    _normals("mode-below-the-support", [0.5, 0.5], [0.0, 0.8], [1e-3, 0.3], 0.2, 2.0, regular=True),
    _normals("overlapping-modes", [0.5, 0.5], [0.9, 1.1], [0.3, 0.3], 0.2, 2.0, regular=True),
    Kind("gamma", from_scipy(stats.gamma(3.0), 0.5, 6.0), "gamma", (3.0, 0.5, 6.0)),
    Kind("gamma-from-zero", from_scipy(stats.gamma(0.7), 0.0, 4.0), "gamma", (0.7, 0.0, 4.0)),
    Kind("lognormal", from_scipy(stats.lognorm(0.8), 0.1, 8.0), "lognormal", (0.8, 0.1, 8.0)),
    Kind("lognormal-from-zero", from_scipy(stats.lognorm(0.5), 0.0, 5.0), "lognormal", (0.5, 0.0, 5.0)),
]
NAMES = [k.name for k in KINDS]


def inner_costs(prior, count=9):
    """Costs inside the support, by position and by quantile, so that narrow modes are seen."""
    even = np.linspace(prior.low, prior.high, count + 2)[1:-1]
    likely = prior.quantile(np.linspace(0.02, 0.98, count))
    return np.unique(np.concatenate([even, likely]))
