"""Values with noise, ready to be published, whoever adds the noise."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bonafed.checks import Floats


class Releases(Protocol):
    """Adds noise to successive values (`bonafed.learning.noise.SecretReleases`)."""

    def released(self, values: Floats, sd: float) -> Floats:
        """Values with noise of standard deviation sd on each."""


def released(noise: np.random.Generator | Releases, values: Floats, sd: float) -> Floats:
    """Values as they may be published; a generator, which can be seeded again, is for studies and tests."""
    if isinstance(noise, np.random.Generator):
        return np.asarray(values + sd * noise.standard_normal(np.shape(values)))
    return noise.released(values, sd)
