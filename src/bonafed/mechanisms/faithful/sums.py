"""Weighted sums of the agents' reports, added one by one: the same digits on any machine."""

from __future__ import annotations

import numpy as np

from bonafed.checks import Floats


def mixed(mix: Floats, reports: Floats) -> Floats:
    """(m, P) sum_j mix_j reports_ij of reports (m, K, P)."""
    total = np.zeros((reports.shape[0], reports.shape[2]))
    for k in np.flatnonzero(mix):
        total += mix[k] * reports[:, k]
    return total


def without_each(weights: Floats, reports: Floats) -> Floats:
    """(k, m, P) the same sums without each of the agents that have a weight, digit for digit.

    What comes before an agent is added up once for all agents behind it, so that K sums of K - 1 reports
    are K steps.
    """
    who = np.flatnonzero(weights)
    sums, before = np.empty((who.size, reports.shape[0], reports.shape[2])), np.zeros_like(reports[:, 0])
    for row, k in enumerate(who.tolist()):
        part = weights[k] * reports[:, k]
        sums[row] = before
        sums[:row] += part
        before += part
    return sums
