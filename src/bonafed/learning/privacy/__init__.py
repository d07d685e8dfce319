"""Privacy loss: the noise for a promise, and the ledger that reads the promise back (theory P).

calibration  noise for a promise: exact for releases that certainly include a record (replacing one), by
             dp-accounting for those that include it by a secret coin (adding or removing one)
added_noise  what computed noise costs compared with ideal noise; noise on a sum of which all add a part
ledger       every release, the epsilon they add up to, and which delta may be promised to so many records
planning     batch, steps and rate of private training
"""

from bonafed.learning.privacy.added_noise import (
    Releases,
    covering,
    released,
    reserve,
    sd_of_share,
    variance_inflation,
)
from bonafed.learning.privacy.calibration import (
    Calibration,
    SampledReleases,
    noise_multiplier,
    sampled_epsilon,
    sampled_multiplier,
    spent_epsilon,
)
from bonafed.learning.privacy.ledger import (
    ADD_OR_REMOVE,
    REPLACE,
    Adjacency,
    Batches,
    Ledger,
    Release,
    checked_delta,
    delta_note,
    delta_rule,
    require_small_delta,
)

__all__ = [
    "ADD_OR_REMOVE",
    "REPLACE",
    "Adjacency",
    "Batches",
    "Calibration",
    "Ledger",
    "Release",
    "Releases",
    "SampledReleases",
    "checked_delta",
    "covering",
    "delta_note",
    "delta_rule",
    "noise_multiplier",
    "released",
    "require_small_delta",
    "reserve",
    "sampled_epsilon",
    "sampled_multiplier",
    "sd_of_share",
    "spent_epsilon",
    "variance_inflation",
]
