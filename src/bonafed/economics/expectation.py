"""One way to take an expectation, the same on every machine."""

from __future__ import annotations

import numpy as np

from bonafed.checks import Floats


def expectation(masses: Floats, values: Floats) -> float:
    """sum of masses * values.

    Not a dot product: for long vectors that may run on several threads, and then the last digits, and with
    them a published contract, would depend on the number of cores.
    """
    return float(np.sum(masses * values))
