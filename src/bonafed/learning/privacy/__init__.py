"""Privacy loss: the noise for a promise, and the ledger that reads the promise back (theory P).

gaussian   releases that certainly include a record: exact, for replacing one record
sampled    releases that include a record by a secret coin: by dp-accounting, for adding or removing one
arithmetic what computed noise costs compared with ideal noise
shares     noise on a sum of which every client adds a part
delta      which delta may be promised to so many records
ledger     every release, and the epsilon they add up to
"""

from bonafed.learning.privacy.arithmetic import covering, reserve
from bonafed.learning.privacy.delta import checked_delta, delta_note, delta_rule, require_small_delta
from bonafed.learning.privacy.gaussian import Calibration, noise_multiplier, spent_epsilon
from bonafed.learning.privacy.ledger import ADD_OR_REMOVE, REPLACE, Adjacency, Batches, Ledger, Release
from bonafed.learning.privacy.releases import Releases, released
from bonafed.learning.privacy.sampled import SampledReleases, sampled_epsilon, sampled_multiplier
from bonafed.learning.privacy.shares import sd_of_share, variance_inflation

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
