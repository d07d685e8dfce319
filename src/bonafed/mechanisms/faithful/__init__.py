"""Faithful federated learning (Zhang, Wei, Berry): VCG payments by gradients, corrected.

K organisations train one model although each would rather have it lean towards its own data; each pays what
its presence costs the others, so that reporting true gradients is its best choice.

    protocol      training and payments by reports alone: how they are asked for, checked and certified
    private       the same in noise, with a promise to every record
    theory        the paper's bounds and guarantees, and the advice that follows from them
    adversaries   agents that lie, and what they gain
"""

from bonafed.door import guard
from bonafed.learning.problems.agreed import FederatedProblem
from bonafed.learning.problems.convex import Problem, RidgeRegression
from bonafed.learning.problems.minima import minimise
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.mechanisms.faithful.private.algorithm import private_faithful
from bonafed.mechanisms.faithful.private.noise import PrivateTerms, PublicFacts, calibrate, privacy_loss
from bonafed.mechanisms.faithful.private.plan import PrivateFaithfulPlan, plan_private
from bonafed.mechanisms.faithful.private.schedule import PrivateOutcome
from bonafed.mechanisms.faithful.protocol.payments import (
    FaithfulOutcome,
    Payments,
    cluster_count,
    cluster_payments,
    newton_payments,
    random_clusters,
    vcg_payments,
)
from bonafed.mechanisms.faithful.protocol.requests import Aggregation
from bonafed.mechanisms.faithful.protocol.stepwise import StepwiseTerms, pay, train
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules, faithful

__all__ = [
    "Aggregation",
    "FaithfulOutcome",
    "FederatedProblem",
    "Payments",
    "PrivateFaithfulPlan",
    "PrivateOutcome",
    "PrivateTerms",
    "Problem",
    "ProtocolRules",
    "PublicFacts",
    "RidgeRegression",
    "SoftmaxRegression",
    "StepwiseTerms",
    "calibrate",
    "cluster_count",
    "cluster_payments",
    "faithful",
    "minimise",
    "newton_payments",
    "pay",
    "plan_private",
    "privacy_loss",
    "private_faithful",
    "random_clusters",
    "train",
    "vcg_payments",
]

guard(globals())
