"""Noise on a sum of which nobody knows all: every client adds a share of it (theory P8).

Where a sum is computed without showing single answers, nobody is there to add the noise, and each of n
clients adds normal noise of its own. Independent variances add up. Up to d clients may drop out before the
sum is made, and up to c of the others may tell an attacker what they added, which takes it off again. What
is left comes from n - d - c clients at least, so with

    variance of a share  =  s^2/(n - d - c)

the sum carries s^2 or more, whoever these are. If nobody drops out it carries n/(n - d - c) as much as it
needs, which is the price of the margin.
"""

from __future__ import annotations

import math

from bonafed import checks
from bonafed.errors import InvalidValue


def sd_of_share(sd: float, clients: int, *, dropouts: int = 0, colluders: int = 0) -> float:
    """Standard deviation of the noise that each of so many clients adds, for sd on the sum at least.

    >>> sd_of_share(6.0, 12, dropouts=2, colluders=1)
    2.0
    """
    return checks.positive("sd", sd) / math.sqrt(_certain(clients, dropouts, colluders))


def variance_inflation(clients: int, *, dropouts: int = 0, colluders: int = 0) -> float:
    """The variance on the sum if nobody drops out, over the one that is needed: n/(n - d - c).

    >>> variance_inflation(50, dropouts=5, colluders=5)
    1.25
    """
    return checks.whole("clients", clients) / _certain(clients, dropouts, colluders)


def _certain(clients: int, dropouts: int, colluders: int) -> int:
    """Clients whose noise is on the sum and known to nobody else, at least."""
    n = checks.whole("clients", clients)
    for name, number in (("dropouts", dropouts), ("colluders", colluders)):
        checks.whole(name, number, at_least=0)
    if dropouts + colluders >= n:
        rule = f"must leave one of {n} clients whose noise is certain and secret"
        raise InvalidValue("dropouts", rule, f"{dropouts}, and {colluders} colluders")
    return n - dropouts - colluders
