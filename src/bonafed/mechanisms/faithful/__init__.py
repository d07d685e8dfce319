"""Faithful federated learning (Zhang, Wei, Berry): VCG payments by gradients, corrected.

K organisations train one model although each would rather have it lean towards its own data; each pays what
its presence costs the others, so that reporting true gradients is its best choice.
"""

from bonafed.door import guard
from bonafed.learning.problems.agreed import FederatedProblem
from bonafed.learning.problems.convex import Problem, RidgeRegression
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.mechanisms.faithful.clusters import cluster_count, cluster_payments, random_clusters
from bonafed.mechanisms.faithful.outcome import Outcome
from bonafed.mechanisms.faithful.private import calibrate, privacy_loss, private_faithful
from bonafed.mechanisms.faithful.private_account import PublicFacts
from bonafed.mechanisms.faithful.private_plan import PrivatePlan, plan_private
from bonafed.mechanisms.faithful.private_schedule import PrivateOutcome
from bonafed.mechanisms.faithful.protocol import faithful
from bonafed.mechanisms.faithful.requests import Aggregation
from bonafed.mechanisms.faithful.stepwise import pay, train
from bonafed.mechanisms.faithful.vcg import Payments, minimise, newton_payments, vcg_payments

__all__ = [
    "Aggregation",
    "FederatedProblem",
    "Outcome",
    "Payments",
    "PrivateOutcome",
    "PrivatePlan",
    "Problem",
    "PublicFacts",
    "RidgeRegression",
    "SoftmaxRegression",
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
