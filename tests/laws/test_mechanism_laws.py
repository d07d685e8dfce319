"""Laws of mechanisms: registering one with its claims is enough to have it tested for them.

Each entry of SUBJECTS makes a subject, the support of its costs, and what it is audited against. CONTROLS
are known to be bad; an audit that lets one pass is broken.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from bonafed.economics import (
    Allocation,
    Discrete,
    Empirical,
    NormalMixture,
    ScaledBeta,
    TruncatedExponential,
    TruncatedNormal,
    Uniform,
    audit,
    from_scipy,
)
from bonafed.economics.audit import CLAIMS
from bonafed.mechanisms.jsam import Cheapest, Jsam, JsamMechanism, largest_losses, unbiased
from bonafed.mechanisms.jsam import allocate as jsam_plan
from bonafed.mechanisms.jsam.controls import ClippedMechanism
from bonafed.mechanisms.jsam.controls import PayAsBid as PayPrivacyAsBid
from bonafed.mechanisms.sampling import PriorFreeSampling, optimal_menu, plan, uniform_menu
from bonafed.mechanisms.sampling.controls import PayAsBid


def gamma():
    from scipy import stats

    return from_scipy(stats.gamma(3), 0.5, 6.0)


PRIORS = {
    "uniform": lambda: Uniform(0.5, 1.5),
    "uniform from zero": lambda: Uniform(0.0, 2.0),
    "exponential": lambda: TruncatedExponential(1.0, 0.2, 3.0),
    "normal": lambda: TruncatedNormal(1.0, 0.4, 0.2, 2.0),
    "beta": lambda: ScaledBeta(2.0, 3.0, 0.5, 1.5),
    "u-shaped beta": lambda: ScaledBeta(0.5, 0.5, 0.5, 1.5),
    "mixture": lambda: NormalMixture([0.5, 0.5], [0.6, 1.5], [0.1, 0.15], 0.2, 2.0),
    "discrete": lambda: Discrete([0.3, 0.5, 0.9, 1.0, 1.4, 2.0], [0.3, 0.02, 0.08, 0.35, 0.05, 0.2]),
    "discrete from zero": lambda: Discrete([0.0, 0.5, 0.9, 2.0], [0.4, 0.1, 0.3, 0.2]),
    "empirical": lambda: Empirical(np.random.default_rng(0).uniform(0.5, 1.4, 40), 1.5),
    "empirical mle": lambda: Empirical(np.random.default_rng(1).uniform(0.5, 1.4, 40), 1.5, "mle"),
    "scipy": gamma,
}


@dataclass
class Subject:
    """Something to audit, with what it is audited against."""

    made: Any
    low: float
    high: float
    options: dict[str, Any] = field(default_factory=dict)
    claims: tuple[str, ...] = CLAIMS


def menu_subject(make, name, share):
    prior = PRIORS[name]()
    budget = share * prior.high
    return Subject(make(prior, budget), prior.low, prior.high, {"prior": prior, "budget": budget})


def profiles(clients, low, high, count=2):
    return list(np.random.default_rng(7).uniform(low, high, (count, clients)))


def plan_subject():
    prior = Uniform(0.5, 1.5)
    contract = plan(prior, 30.0, clients=4, rounds=10, weights=[1.0, 2.0, 0.5, 1.0])
    return Subject(
        contract, 0.5, 1.5, {"profiles": profiles(4, 0.5, 1.5)}, CLAIMS[:4]
    )  # its budget is an expectation, not a bound for every profile


def prior_free_subject(estimator, refresh=0.0):
    rules = PriorFreeSampling(6, 4.0, 1.5, initial=2, estimator=estimator, refresh=refresh)
    return Subject(
        rules,
        0.0,
        1.5,
        {"profiles": profiles(6, 0.0, 1.5), "budget": 4.0, "clients": [0, 3, 5], "points": 41},
    )


def jsam_subject(*names, rule=None, eta=0.8, clients=(0, 3), cap=None):
    """Four clients, of one prior or of one each; payments are for the run, in expectation B."""
    priors = [PRIORS[name]() for name in names]
    rng = np.random.default_rng(7)
    low, high = min(p.low for p in priors), max(p.high for p in priors)
    drawn = [np.concatenate([p.sample(rng, 4 // len(priors)) for p in priors])]
    mechanism = JsamMechanism(priors if len(priors) > 1 else priors[0], eta, 0.5, rule, cap)
    limit = 1e9 if cap is None else float(np.max(cap))
    options = {"profiles": drawn, "clients": clients, "points": 41, "quantity_limit": limit}
    return Subject(mechanism, low, high, options, CLAIMS[:4])


JSAM_PRIORS = (
    "uniform", "uniform from zero", "exponential", "beta", "mixture", "discrete", "discrete from zero"
)  # fmt: skip
JSAM_RULES = {
    "JSAM": None,
    "USBM": unbiased(4),
    "FSBM-2": Cheapest(2),
    "BBM": largest_losses([0.3, 2.0, 1.0, 0.4], members=3),
}
SUBJECTS = {
    **{
        f"optimal menu, {name}, budget {share:g} of the highest cost": (
            lambda name=name, share=share: menu_subject(optimal_menu, name, share)
        )
        for name in PRIORS
        for share in (0.1, 0.6, 0.97, 1.2)
    },
    "uniform menu": lambda: menu_subject(uniform_menu, "mixture", 0.5),
    "plan with data weights": plan_subject,
    "prior-free, plus": lambda: prior_free_subject("plus"),
    "prior-free, mle": lambda: prior_free_subject("mle"),
    "prior-free, refreshed rarely": lambda: prior_free_subject("plus", refresh=0.5),
    **{
        f"{name}, {prior}": lambda prior=prior, rule=rule: jsam_subject(prior, rule=rule)
        for name, rule in JSAM_RULES.items()
        for prior in (JSAM_PRIORS if rule is None else ("uniform", "exponential"))
    },
    **{
        f"{name} under a cap, {prior}": lambda prior=prior, rule=rule: jsam_subject(
            prior, rule=rule, cap=0.3
        )
        for name, rule in JSAM_RULES.items()
        for prior in ("uniform from zero", "discrete")
    },
    **{
        f"{name} under a cap per client": lambda rule=rule: jsam_subject(
            "uniform from zero", rule=rule, cap=[0.2, 0.6, 0.3, 0.3]
        )
        for name, rule in JSAM_RULES.items()
        if not isinstance(rule, Cheapest)
    },
    "JSAM, exponential, large eta": lambda: jsam_subject("exponential", eta=8.0),
    **{
        f"{name} with noise on the sum, {prior}": lambda prior=prior, rule=rule: jsam_subject(
            prior, rule=(rule or Jsam()).on_sum()
        )
        for name, rule in JSAM_RULES.items()
        for prior in (JSAM_PRIORS if rule is None else ("uniform", "exponential"))
    },
    **{
        f"{name}, a prior for each client": lambda rule=rule: jsam_subject(
            "uniform", "exponential", "discrete", "mixture", rule=rule, clients=(0, 1, 3)
        )
        for name, rule in JSAM_RULES.items()
    },
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_claim_is_found_violated(name):
    subject = SUBJECTS[name]()
    report = audit(subject.made, subject.low, subject.high, claims=subject.claims, **subject.options)
    assert {f.claim for f in report.findings} == set(subject.claims)
    assert report.passed, str(report)
    assert all(f.tries > 0 for f in report.findings)


class FirstPrice:
    """Everybody is sampled in proportion to 1/report and paid the report."""

    def allocate(self, reports):
        c = np.asarray(reports)
        q = 0.5 * c.min() / c
        return Allocation(q, q * c)


class Generous:
    """Truthful, but forgets the budget."""

    def allocate(self, reports):
        c = np.asarray(reports)
        return Allocation(np.ones(c.size), np.full(c.size, 1.5))


class Stingy:
    """Pays everybody the mean cost, whatever they say."""

    def probability(self, c):
        return np.full_like(np.asarray(c, dtype=float), 0.5)

    def expected_payment(self, c):
        return 0.5 * np.full_like(np.asarray(c, dtype=float), 1.0)


IRREGULAR = PRIORS["discrete"]
PRIVACY = {"profiles": profiles(4, 0.5, 1.5), "quantity_limit": 1e9, "points": 101}


class Unironed:
    """JSAM for an irregular prior with its virtual cost as it is: epsilon rises where that falls."""

    def __init__(self, prior):
        self.prior = prior

    def allocate(self, reports):
        found = jsam_plan(self.prior.virtual_cost(reports), 0.8, 0.5)
        return Allocation(found.privacy, np.asarray(reports) * found.privacy)


CONTROLS = {
    "pay as bid": ("truthful", lambda: Subject(PayAsBid(Uniform(0.5, 1.5), 0.5), 0.5, 1.5)),
    "an irregular prior without ironing": (
        "truthful",
        lambda: Subject(optimal_menu(IRREGULAR(), 1.0, "printed"), 0.3, 2.0),
    ),
    "the same, seen by its probabilities": (
        "monotone",
        lambda: Subject(optimal_menu(IRREGULAR(), 1.0, "printed"), 0.3, 2.0),
    ),
    "first price": (
        "truthful",
        lambda: Subject(FirstPrice(), 0.5, 1.5, {"profiles": profiles(3, 0.5, 1.5)}),
    ),
    "a mechanism that forgets the budget": (
        "within budget",
        lambda: Subject(Generous(), 0.5, 1.5, {"profiles": profiles(3, 0.5, 1.5), "budget": 4.0}),
    ),
    "privacy paid as bid": (
        "truthful",
        lambda: Subject(PayPrivacyAsBid(Uniform(0.5, 1.5), 0.8, 0.5), 0.5, 1.5, PRIVACY),
    ),
    "the optimum without a cap, cut off at one": (
        "truthful",
        lambda: Subject(ClippedMechanism(Uniform(0.5, 1.5), 0.8, 0.5, 0.3), 0.5, 1.5, PRIVACY),
    ),
    "privacy bought without ironing": (
        "monotone",
        lambda: Subject(
            Unironed(PRIORS["mixture"]()), 0.2, 2.0, {**PRIVACY, "profiles": profiles(4, 0.2, 2.0)}
        ),
    ),
    "a payment below the cost": ("individually rational", lambda: Subject(Stingy(), 0.5, 1.5)),
    "the printed Algorithm 1": (
        "within budget",
        lambda: Subject(
            PriorFreeSampling(30, 15.0, 1.5, initial=3, variant="printed"),
            0.5,
            1.5,
            {"profiles": profiles(30, 0.5, 1.5, 30), "budget": 15.0},
            ("within budget",),
        ),
    ),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_a_bad_mechanism_is_caught_with_a_witness_anyone_can_check(name):
    claim, make = CONTROLS[name]
    subject = make()
    finding = audit(subject.made, subject.low, subject.high, claims=(claim,), **subject.options)[claim]
    witness = finding.witness
    assert witness is not None
    assert not finding.holds
    assert "VIOLATED" in str(finding)
    assert recomputed_gain(claim, subject, witness) == pytest.approx(witness.gain, rel=1e-9)


def recomputed_gain(claim, subject, witness):
    """The violation of the witness, from the subject alone."""

    def outcome(report):
        if hasattr(subject.made, "allocate"):
            reports = np.array(witness.others)
            reports[witness.client] = report
            given = subject.made.allocate(reports)
            return given.quantity[witness.client], given.transfer[witness.client]
        return subject.made.probability(report), subject.made.expected_payment(report)

    if claim == "within budget":
        return (
            float(np.sum(subject.made.allocate(np.array(witness.others)).transfer))
            - subject.options["budget"]
        )
    (q_lie, t_lie), (q, t) = outcome(witness.report), outcome(witness.true_cost)
    if claim == "truthful":
        return float((t_lie - witness.true_cost * q_lie) - (t - witness.true_cost * q))
    if claim == "monotone":
        return float(q_lie - q)
    return float(witness.true_cost * q - t)
