"""The rules of prior-free sampling as a file, and their verification.

What is published before the first client is approached: the numbers below. They bind the server, and
anyone can check that they promise what they say, by search over many sequences of reports.
"""

from __future__ import annotations

import json

import numpy as np

from bonafed import checks
from bonafed.economics.audit import audit
from bonafed.economics.discrete import Estimator
from bonafed.economics.priors import JSONObject
from bonafed.economics.published import field
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling.prior_free import PriorFreeSampling
from bonafed.mechanisms.sampling.published import Check

RULES_FORMAT = "bonafed-prior-free-rules"
RULES_VERSION = 1
_SEQUENCES = 40  # random sequences of reports tried by `verify_rules`
_LONGEST = 400  # clients of a tried sequence; longer rules are tried at this length


def rules_to_json(rules: PriorFreeSampling, rounds: int) -> JSONObject:
    """Plain data to publish."""
    if rules.variant != "safe":
        raise InvalidValue("variant", "must be 'safe' to be published", repr(rules.variant))
    return {
        "format": RULES_FORMAT,
        "version": RULES_VERSION,
        "clients": rules.clients,
        "rounds": rounds,
        "budget_per_round": rules.budget,
        "highest": rules.highest,
        "initial": rules.first_clients,
        "initial_probability": rules.first_probability,
        "floor": rules.lowest_probability,
        "estimator": rules.estimator,
        "refresh": rules.refresh,
    }


def rules_bytes(rules: PriorFreeSampling, rounds: int) -> bytes:
    """The rules as the content of a file."""
    return (json.dumps(rules_to_json(rules, rounds), indent=1) + "\n").encode()


def rules_from_json(data: object) -> PriorFreeSampling:
    """The rules of a file; every field is checked."""
    values = {
        name: field(data, name, "rules")
        for name in ("clients", "highest", "initial", "initial_probability", "floor", "refresh")
    }
    if field(data, "version", "rules") != RULES_VERSION:
        raise InvalidValue("rules.version", f"must be {RULES_VERSION}", field(data, "version", "rules"))
    checks.whole("rules.rounds", field(data, "rounds", "rules"))
    estimator = field(data, "estimator", "rules")
    checks.literal("rules.estimator", estimator, Estimator)
    return PriorFreeSampling(budget=field(data, "budget_per_round", "rules"), estimator=estimator, **values)


def verify_rules(data: object, seed: int = 0) -> list[Check]:
    """Play many sequences of reports, gentle and hostile, and look for a broken promise."""
    rules = rules_from_json(data)
    rng = np.random.default_rng(seed)
    n, top = rules.clients, rules.highest
    if n > _LONGEST:
        share = _LONGEST / n
        rules = PriorFreeSampling(
            _LONGEST,
            rules.budget * share,
            top,
            round(rules.first_clients * share),
            rules.first_probability,
            rules.lowest_probability,
            rules.estimator,
            refresh=rules.refresh,
        )
        n = _LONGEST
    hostile = [np.zeros(n), np.full(n, top), np.linspace(0, top, n), np.linspace(top, 0, n)]
    cheap_last = np.full(n, top)
    cheap_last[n // 2 :] = 0.0
    tried = [*hostile, cheap_last, *rng.uniform(0, top, (_SEQUENCES, n))]
    runs = [rules.run(reports) for reports in tried]
    spent = max(run.spent for run in runs)
    lowest = min(float(run.probability.min()) for run in runs)
    margin = min(float(np.min(run.payment - c)) for run, c in zip(runs, tried, strict=True))
    lies = audit(
        rules,
        0.0,
        top,
        profiles=tried[-1:],
        clients=sorted({0, n // 2, n - 1}),
        claims=("truthful",),
        points=41,
    )["truthful"]
    count = f"in {len(runs)} sequences"
    return [
        Check("budget", spent <= rules.budget, f"at most {spent:.6g} of {rules.budget:.6g} {count}"),
        Check(
            "floor",
            lowest >= rules.lowest_probability,
            f"lowest probability {lowest:.4g}, promised {rules.lowest_probability:.4g} {count}",
        ),
        Check("rational", margin >= 0, f"smallest margin of payment over cost {margin:.3g} {count}"),
        Check("truthful", lies.holds, str(lies)),
    ]
