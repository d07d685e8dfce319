"""An attack on the releases themselves: what tells neighbouring data sets apart is within what is charged.

The attacker sees every step's noisy gradient, all other records, and, in passes, who is in which batch; one
record is the worst there can be, its gradient always clipped. How often it tells the two data sets apart
bounds what is really given away from below, with a false-alarm rate of 1e-9.
"""

import math
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
import torch
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.stats import beta
from torch import nn

from bonafed.learning.engine import run_jobs
from bonafed.learning.jobs import Job, LocalTraining, Samples, batches, job_rng
from bonafed.learning.noise import Reproducible
from bonafed.learning.privacy import Ledger, Release, spent_epsilon
from bonafed.learning.programs import program_for

FALSE_ALARM = 1e-9
TRIES = 3000
SIZE, BATCH, CLIP = 4, 2, 0.25
NORMAL = NormalDist()


def samples(target):
    """Record 0 pulls the first weight with all its might, the others the second one."""
    features = torch.tensor([[1.0, 0.0], *[[0.0, 1.0]] * (SIZE - 1)])
    return Samples(features, torch.tensor([target, *[0.0] * (SIZE - 1)]))


def releases(data, jobs, steps, **options):
    """(jobs, steps) what every step published about the first weight."""
    program = program_for(nn.Sequential(nn.Linear(2, 1, bias=False)), "squared")
    before = np.zeros(len(jobs))
    found = []
    for count in range(1, steps + 1):  # reproducible noise: the first steps are the same each time
        spec = LocalTraining(BATCH, 1.0, epochs=None, steps=count, clip=CLIP, **options)
        done = run_jobs(
            program, torch.zeros(2), data, jobs, spec, seed=1, round_number=1, noise=Reproducible(7)
        )
        after = np.array([float(update.change[0]) for update in done])
        found.append(after - before)
        before = after
    return np.stack(found, 1)


def bounds(hits, tries):
    """Of a probability, each wrong with half the false-alarm rate at most (Clopper and Pearson)."""
    low = beta.ppf(FALSE_ALARM / 2, hits, tries - hits + 1) if hits else 0.0
    high = beta.isf(FALSE_ALARM / 2, hits + 1, tries - hits) if hits < tries else 1.0
    return low, high


def separation(up, down, threshold):
    """Lower bounds on (true positives, true negatives) of calling everything above the threshold `up`."""
    return bounds((up > threshold).sum(), up.size)[0], bounds((down <= threshold).sum(), down.size)[0]


def least_mu(up, down):
    """Of the Gaussian whose trade-off the attack reaches: with less, it would be impossible (theory P2)."""
    right, wrong = separation(up, down, 0.0)
    return NORMAL.inv_cdf(right) - NORMAL.inv_cdf(1 - wrong)


@cache
def attack_in_passes(multiplier, steps):
    """A lower bound on mu, from the sums of the releases that record 0 is in, for either value of it."""
    jobs = [Job(0, np.arange(SIZE), copy, multiplier) for copy in range(TRIES)]
    spec = LocalTraining(BATCH, 1.0, epochs=None, steps=steps, clip=CLIP)
    inside = np.array([[0 in b for b in batches(job, spec, job_rng(1, 1, job))] for job in jobs])
    full = inside.sum(1) == inside.sum(1).max()  # where most is known of the record
    up, down = ((releases(samples(y), jobs, steps) * inside).sum(1)[full] for y in (1e6, -1e6))
    return least_mu(up, down)


@pytest.mark.parametrize(("steps", "charged", "known"), [(2, 1, 0.65), (4, 2, 0.65), (3, 2, 0.5)])
def test_what_a_pass_gives_away_is_one_release(steps, charged, known):
    """Of any record: the ledger's mu is not below what the attack takes, nor idle."""
    found = attack_in_passes(math.sqrt(charged), steps)
    assert known < found <= 1  # mu: the root of the releases over the noise


def test_the_promise_holds_against_the_attack_and_not_with_half_the_noise():
    """In the words of a run: two passes over the data, four steps, what the ledger says."""
    delta, sigma = 1e-5, math.sqrt(2)
    ledger = Ledger((Release(0, 1, sigma, 2, 4),))
    claim = ledger.epsilon(0, delta)
    assert claim == pytest.approx(spent_epsilon(sigma, 2, delta))
    assert spent_epsilon(1 / attack_in_passes(sigma, 4), 1, delta) <= claim
    assert spent_epsilon(1 / attack_in_passes(sigma / 2, 4), 1, delta) > claim  # the control


def attack_by_coins(multiplier, steps):
    """The sum of all releases, with the record and without it."""
    jobs = [Job(0, np.arange(SIZE), copy, multiplier) for copy in range(TRIES)]
    with_record = releases(samples(1e6), jobs, steps, batches="poisson").sum(1)
    # of target 0 it pulls at nothing, as if it were not there
    without = releases(samples(0.0), jobs, steps, batches="poisson").sum(1)
    return with_record, without


def advantage(up, down):
    """A lower bound on the total variation, by the best of a few thresholds."""
    shared = TRIES // 2  # thresholds are chosen on one half and tried on the other
    grid = np.quantile(np.concatenate([up[:shared], down[:shared]]), np.linspace(0.1, 0.9, 17))
    seen = [(up[:shared] > t).mean() + (down[:shared] <= t).mean() for t in grid]
    right, wrong = separation(up[shared:], down[shared:], grid[int(np.argmax(seen))])
    return right + wrong - 1


def test_batches_by_coins_give_away_no_more_than_the_account_says():
    """At epsilon 0 the account's delta is the total variation; half the noise has more."""
    sigma, steps = 0.8, 3
    one = from_gaussian_mechanism(sigma, sampling_prob=BATCH / SIZE, value_discretization_interval=1e-3)
    claimed = one.self_compose(steps).get_delta_for_epsilon(0.0)
    found = advantage(*attack_by_coins(sigma, steps))
    assert 0 < found <= claimed
    assert advantage(*attack_by_coins(sigma / 2, steps)) > claimed  # the control
