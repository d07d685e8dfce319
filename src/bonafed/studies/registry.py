"""Every study there is, one line each; importing this imports none of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bonafed.studies.grid import Study


@dataclass(frozen=True, slots=True)
class Entry:
    """A study by name."""

    name: str
    summary: str
    place: str  # module and name of the study, in this package

    def load(self) -> Study:
        """The study itself."""
        module, _, name = self.place.rpartition(".")
        study: Study = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        return study


_ENTRIES = (
    Entry(
        "faithful-manipulation",
        "how much an agent should overstate its gradient (figure 1)",
        "manipulation.STUDY",
    ),
    Entry(
        "faithful-tradeoff", "steps and error of private payments, by the bound (figure 2)",
        "tradeoff.STUDY",
    ),
    Entry(
        "faithful-samples", "losses with more and more samples (figure 3)", "faithful.BY_SAMPLES"
    ),
    Entry(
        "faithful-heterogeneity", "losses of agents more and more unlike (figure 4)",
        "faithful.BY_HETEROGENEITY",
    ),
    Entry(
        "faithful-privacy", "error of private payments (figure 5a)", "faithful.BY_PRIVACY"
    ),
    Entry(
        "faithful-clusters", "error of payments by cluster (figure 5b)", "faithful.BY_CLUSTERS"
    ),
    Entry("jsam-accuracy", "accuracy that money buys (figure 6)", "jsam_accuracy.STUDY"),
    Entry("jsam-money", "money by the weight of the loss (observation 5)", "jsam.BY_WEIGHT"),
    Entry("jsam-clients", "clients that money reaches (observation 6)", "jsam.BY_MONEY"),
    Entry("jsam-shares", "who gets the money", "jsam.SHARES"),
    Entry("jsam-mechanisms", "what the money buys under each rule", "jsam.RULES"),
    Entry("rewards", "model rewards beside their baselines (tables 1, 2, 4, 5, 6)", "rewards.STUDY"),
)  # fmt: skip
STUDIES: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}
