"""What private mechanisms release, many times over, on a data set with a canary and on its neighbour.

One function per mechanism, all of the same form: given the canary's label, they run the mechanism so many
times with fresh noise and give one row per run, of what it released about the canary. Neighbours differ in
that label, which is the worst case: with two classes a record's gradient is (p - y)(-1, 1) x, and clipped
to much less than its length it is +- the same vector of norm `CLIP` wherever the model is. The other
records are chosen so that nothing of theirs varies along it but the noise.

`noise` multiplies the noise of the mechanism: 1 is what is claimed, less is a control.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, replace
from functools import lru_cache
from unittest import mock

import numpy as np
import torch
from scipy.optimize import brentq

from bonafed.learning.data.datasets import from_arrays
from bonafed.learning.engine.jobs import Job, Samples, batches, job_rng
from bonafed.learning.engine.programs import program_for
from bonafed.learning.engine.training import run_jobs
from bonafed.learning.federation import Reply
from bonafed.learning.noise import Reproducible, Secret
from bonafed.learning.privacy import Ledger
from bonafed.learning.problems.federation import ProblemFederation
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.learning.rounds import Participation
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.faithful.private import noise as private
from bonafed.mechanisms.faithful.private.algorithm import private_faithful, private_protocol
from bonafed.mechanisms.faithful.private.noise import PrivateTerms
from bonafed.remote.sums import add_up, parts_of
from bonafed.runs import config
from bonafed.runs.prepare import prepare
from tests.oracles.settings import local_training, noise_multipliers, participation, parts, samples

CANARY = 0  # its place among all records; client 0 holds it
CLIP = 1e-3
_FEATURE = 10.0  # of the canary, so that its gradient is far longer than the clip
_HARDLY = 1e-6  # a learning rate that hides a step, over one that shows it


def federation(sizes, canary):
    """A data set for clients of these many records, the first of which holds a canary of this label."""
    labels = np.arange(sum(sizes)) % 2
    labels[CANARY] = canary
    # with the constant of the model, (x, 1): at right angles to the canary, whichever share its batch
    features = np.full((labels.size, 1), -1 / _FEATURE, dtype=np.float32)
    features[CANARY] = _FEATURE
    return from_arrays("canary", features, labels, groups=np.repeat(np.arange(len(sizes)), sizes))


def setting_for(sizes, canary, *, training, **mechanism):
    """A run on it, with `privacy` or `jsam` tables."""
    tables = {
        "data": {"name": "canary", "classes": 2},
        "partition": {"kind": "natural"},
        "model": {"name": "softmax"},
        "training": {"learning_rate": 1.0, **training},
        "run": {"cores": 1},
        **{name: {"clip": CLIP, **table} for name, table in mechanism.items()},
    }
    return prepare(config.from_tables(tables), dataset=federation(sizes, canary))


def updates(setting, repetitions, *, seed, noise=1.0):
    """(repetitions, updates) what the client with the canary sends, along the canary's gradient.

    [privacy] and [jsam] as the server sees them, update by update, in so many federations at once: noise
    and batches are those of jobs of different clients. An update is the sum of its local steps times their
    rates. An attacker who knows in which of them the canary is, and would see every step, is given as much
    by rates that hide all other steps: public rates, for which the promise holds like for any. The order of
    records is no secret either, so only those are taken that have the canary in the most steps.
    """
    direction = _signal(setting)
    models = torch.from_numpy(setting.start).expand(repetitions, -1)
    columns = []
    for number in range(1, setting.config.training.rounds + 1):
        drawn = int((participation(setting, number).clients == 0).sum())
        changes = []
        for copy in range(drawn):
            changes.append(_changes(setting, models, number, copy, seed, noise))
            columns.append((changes[-1] @ direction).numpy())
        models = models + sum(changes) / max(1, drawn)
    return np.stack(columns, 1)


def _changes(setting, models, number, copy, seed, noise):
    """(repetitions, P) changes of the models in the steps that the canary is in, in a round."""
    spec, found = local_training(setting, number), torch.empty_like(models)
    worst = _worst_orders(setting, spec, number, copy, seed, len(models), noise)
    for pattern in {where for _, where in worst}:
        alike = [k for k, (_, where) in enumerate(worst) if where == pattern]
        rates = [1.0 if seen else _HARDLY for seen in pattern]
        shown = replace(spec, learning_rate=rates[0], later_rates=tuple(rates[1:]) or None)
        done = run_jobs(
            setting.program, models[alike], samples(setting), [worst[k][0] for k in alike], shown,
            seed=seed, round_number=number,
        )  # fmt: skip
        found[alike] = torch.stack([update.change for update in done])
    return found


def _worst_orders(setting, spec, number, copy, seed, repetitions, noise):
    """So many jobs with the canary in the most steps, and in which steps it is."""
    multiplier, clients = noise * float(noise_multipliers(setting)[0]), itertools.count()
    found, most = [], 0
    while len(found) < repetitions:
        job = Job(next(clients), parts(setting)[0], copy, multiplier)
        order = batches(job, spec, job_rng(seed, number, job))
        where = tuple(bool(CANARY in batch) for batch in order)
        if sum(where) > most:
            found, most = [], sum(where)
        if sum(where) == most:
            found.append((job, where))
    return found


def _signal(setting):
    """(P,) the gradient of the canary of label 1, of norm 1."""
    spec, alone = LocalTraining(1, 1.0, clip=CLIP), [Job(0, np.array([CANARY]))]
    (update,) = run_jobs(
        setting.program,
        torch.from_numpy(setting.start),
        samples(setting),
        alone,
        spec,
        seed=0,
        round_number=1,
    )
    flipped = 1 if samples(setting).labels[CANARY] else -1
    return flipped * update.change / update.change.norm()


def whole_runs(setting, repetitions, *, seed, noise=1.0):
    """(repetitions, rounds) models of whole runs, round by round, along the canary's gradient.

    [privacy] as anybody sees it who is shown the model of every round: one seed after the other.
    """
    direction, rows = _signal(setting).numpy(), []
    for number in range(seed, seed + repetitions):
        given = replace(setting.config, run=replace(setting.config.run, seed=number))
        mechanism = replace(setting.mechanism, config=given)
        # another secret in every run, the same whenever the test is run: whether a control is caught must
        # not depend on luck
        federation = setting.federation(Secret(hashlib.sha256(f"{number} {noise}".encode()).digest()))
        state = mechanism.begin(setting.agreement, setting.start)
        state = replace(state, noise_multipliers=noise * state.noise_multipliers)
        models = [state.model]
        for _ in range(mechanism.rounds):
            state, _ = mechanism.advance(state, federation)
            models.append(state.model)
        rows.append(np.diff(np.stack(models), axis=0) @ direction)
    return np.stack(rows)


@dataclass(frozen=True)
class Drawing:
    """Rules under which clients are in a round as often as is written down; each draw has equal weight."""

    rules: object
    drawn: tuple  # of rounds: how often each client is in it

    def participation(self, agreement, number):
        clients = np.repeat(np.arange(len(self.drawn[number - 1])), self.drawn[number - 1])
        return Participation(clients, np.full(clients.size, 1 / clients.size), is_mean=True)

    def __getattr__(self, name):
        return getattr(self.rules, name)


def drawing(setting, drawn):
    """The same run, under these rules."""
    rules = Drawing(setting.mechanism.rules, tuple(drawn))
    return replace(setting, mechanism=replace(setting.mechanism, rules=rules))


def spent_on_sums(setting):
    """The epsilon of the client with the canary in the ledger of a whole run."""
    federation, mechanism = setting.federation(Secret.fresh()), setting.mechanism
    state, ledger = mechanism.begin(setting.agreement, setting.start), Ledger()
    for _ in range(mechanism.rounds):
        state, row = mechanism.advance(state, federation)
        ledger = ledger.add(row.releases)
    return ledger.epsilon(0, mechanism.rules.promise(setting.agreement).delta)


def single_update(setting):
    """(P,) what the client with the canary sends in the first round, if somebody saw it."""
    seen = []

    class Watched:
        """A server that looks at single updates before it adds them up."""

        def __init__(self, honest):
            self.honest = honest

        def total(self, tasks, shares, noise=0.0):
            seen.append(self.honest.replies(tasks)[tasks[0].identifier].values[0])
            return self.honest.total(tasks, shares, noise)

        def __getattr__(self, name):
            return getattr(self.honest, name)

    state = setting.mechanism.begin(setting.agreement, setting.start)
    setting.mechanism.advance(state, Watched(setting.federation(Secret.fresh())))
    return seen[0]


def drawn_by_coins(pull, repetitions, *, multiplier, steps, seed):
    """(repetitions, steps) what every step published of the canary, whose batches are drawn by coins.

    Two of four records are in a step on average. The canary pulls at the first weight, the others at the
    second; with a pull of 0 it is as if it were not there, which is its neighbour.
    """
    features = torch.tensor([[1.0, 0.0], *[[0.0, 1.0]] * 3])
    data = Samples(features, torch.tensor([pull, 0.0, 0.0, 0.0]))
    program = program_for(torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False)), "squared")
    jobs = [Job(0, np.arange(4), copy, multiplier) for copy in range(repetitions)]
    after = [np.zeros(repetitions)]
    for count in range(1, steps + 1):  # reproducible noise: the first steps are the same each time
        spec = LocalTraining(2, 1.0, epochs=None, steps=count, clip=CLIP, batches="poisson")
        done = run_jobs(
            program, torch.zeros(2), data, jobs, spec, seed=1, round_number=1, noise=Reproducible(seed)
        )
        after.append(np.array([float(update.change[0]) for update in done]))
    return np.diff(np.stack(after, 1), axis=1)


AGENTS, RECORDS = 3, 2  # of the private faithful protocol, and of each agent


def _canary_problem(canary):
    """The agents' data, each agent a cluster, and the direction that the canary pulls in."""
    features, labels = np.zeros((AGENTS * RECORDS, 1)), np.zeros(AGENTS * RECORDS, dtype=np.int64)
    features[CANARY], labels[CANARY] = _FEATURE, canary
    problem = SoftmaxRegression(features, labels, np.repeat(np.arange(AGENTS), RECORDS), 2, 1e-9)
    return problem, [np.array([k]) for k in range(AGENTS)], np.array([-1.0, 1.0]) / np.sqrt(2)


def _alpha_for(alpha, beta, noise):
    """The promise that so much of the noise would keep, which is not claimed."""
    if noise == 1:
        return alpha
    rho = private.privacy_loss(alpha, beta) / noise**2
    return brentq(lambda a: private.privacy_loss(a, beta) - rho, alpha / 100, alpha * 100)


def faithful_releases(canary, repetitions, *, alpha, beta, seed, noise=1.0):
    """(repetitions, 5) models and payments of private faithful learning, as far as they tell of the canary.

    The shared model, those without each of the other two agents, and their payments in units of their
    noise, with the sign that the canary of label 1 gives them, which the models tell.
    """
    problem, clusters, direction = _canary_problem(canary)
    alpha = _alpha_for(alpha, beta, noise)
    rng, rows, calibrated = np.random.default_rng(seed), [], lru_cache(private.noise_multiplier)
    for _ in range(repetitions):
        with mock.patch.object(private, "noise_multiplier", calibrated):  # it takes longer than the rest
            out = private_faithful(
                problem,
                clusters,
                rng,
                PrivateTerms(
                    alpha=alpha, beta=beta, clip=CLIP, training_steps=1, payment_steps=1, smoothness=1.0
                ),
            )
        moved = out.models[1:] - out.model
        sign = np.sign(moved @ direction)
        limit = CLIP * np.linalg.norm(moved, axis=1)
        models = np.vstack([out.model, out.models[1:]])
        rows.append([*(models @ direction), *(sign * out.payments[1:] / limit)])
    return np.array(rows)


def faithful_reports(canary, repetitions, *, alpha, beta, seed, noise=1.0):
    """(repetitions, 5) what the server sees of the agent with the canary where agents add their own noise.

    Its gradients in training and in the runs without each of the others, and its loss differences in their
    payments in units of the limit, with the sign that the canary of label 1 gives them.
    """
    problem, clusters, direction = _canary_problem(canary)
    facts = private.PublicFacts.of(problem, clusters, CLIP, "client")
    course = private_protocol(
        facts,
        PrivateTerms(
            alpha=_alpha_for(alpha, beta, noise),
            beta=beta,
            clip=CLIP,
            noise_at="client",
            training_steps=1,
            payment_steps=1,
            smoothness=1.0,
            split=0.5,
        ),
        computed=False,
    )
    rng, honest, rows = np.random.default_rng(seed), ProblemFederation.of(problem), []

    class Watched:
        """A server that looks at single answers, as one without secure sums does."""

        members, seen = honest.members, []

        def total(self, tasks, shares, noise):
            asked = parts_of(tasks, shares, noise)
            replies = {}
            for part in asked:
                ((name, reply),) = honest.replies([part.asked.task]).items()
                sd = np.reshape(part.asked.noise, (-1, 1))
                replies[name] = Reply(reply.values + sd * rng.standard_normal(reply.values.shape))
                if part.asked.task.client == "0":
                    self.seen.append((part.asked.task, replies[name].values))
            return add_up(tasks, asked, replies, self.members)

    for _ in range(repetitions):
        watched = Watched()
        watched.seen.clear()
        course.finish(course.step(course.begin(), watched), watched)
        (_, first), (_, others), (bill, changes) = watched.seen
        sign = np.sign((bill.models[1:] - bill.models[0]) @ direction)
        gradients = np.vstack([first, others]) @ direction
        rows.append([*gradients, *(sign * changes[:, 0] / np.array(bill.work.limit))])
    return np.array(rows)
