"""What records give away: noise for a promise, and the ledger that reads the promise back (theory P).

gaussian   releases that a record is in for sure: exact, for replacing one record
sampled    releases that a record is in by a secret coin: by dp-accounting, for adding or removing one
ledger     every release, and the epsilon they come to
"""

from bonafed.learning.privacy.gaussian import Calibration, noise_multiplier, spent_epsilon
from bonafed.learning.privacy.ledger import ADD_OR_REMOVE, REPLACE, Adjacency, Batches, Ledger, Release
from bonafed.learning.privacy.releases import Releases, released
from bonafed.learning.privacy.sampled import SampledReleases, sampled_epsilon, sampled_multiplier

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
    "noise_multiplier",
    "released",
    "sampled_epsilon",
    "sampled_multiplier",
    "spent_epsilon",
]
