"""The private protocol in exchanges: what is asked for, of whom, in which noise (theory C6).

    T_1 exchanges    the steps with everybody, one each
    T_2 exchanges    the steps of all runs without a cluster, side by side: a sum for each run, over the
                     agents outside its cluster. Nobody is asked about the run without it
    1 exchange       all payments: for each agent k a sum over the others

Each is one call of `Federation.total`. Reproducible noise has its place in the order of the clusters, one
run and its payments after the other, however they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import BadReport, MissingReport
from bonafed.learning.federation import Federation, Gradients, Losses, Objective, Task
from bonafed.learning.privacy import Ledger
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.mechanisms.faithful.private.noise import Books, NoiseScales, PrivateVariant, PublicFacts
from bonafed.mechanisms.faithful.protocol.payments import cluster_of
from bonafed.mechanisms.faithful.protocol.requests import require_somebody

NEEDS_EVERYBODY = "a private sum needs everybody"


@dataclass(frozen=True, slots=True, eq=False)
class PrivateOutcome:
    """The result of the private protocol."""

    model: Floats  # (P,) w*
    payments: Floats  # (K,) noisy
    models: Floats  # (K, P) noisy, trained without the agent's cluster
    noise: NoiseScales
    ledger: Ledger  # every release of every agent
    beta: float
    variant: PrivateVariant
    training_steps: int  # T_1
    payment_steps: int  # T_2
    smoothness: float  # L_g that the steps were made for
    clip: float  # C
    loss_bound: float  # B, perhaps infinite

    def epsilon(self, agent: int) -> float:
        """The privacy an agent has given away, at beta, from the record."""
        return self.ledger.epsilon(agent, self.beta)

    @property
    def differences_clipped(self) -> bool:
        """Whether a loss difference in a payment may have been clipped: not up to C |w* - W|."""
        far = np.nanmax(np.linalg.norm(self.models - self.model, axis=1))
        return bool(self.clip * far > self.loss_bound)

    def expected_payment(self, problem: SoftmaxRegression, agent: int) -> float:
        """P_k without the noise that is added to it: what it is on average, given the models.

        Nobody but a simulation may know it.
        """
        p, shared, without = float(problem.weights[agent]), self.model, self.models[agent]
        mix = problem.weights.copy()
        mix[agent] = 0.0
        limit = _limit(shared, without, self.clip, self.loss_bound)
        change = float(mix @ problem.clipped_differences(shared, without, limit))
        return change / p + _data_free(p, problem.regulariser, shared, without)


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """A run of noisy steps: how far it has come."""

    model: Floats  # (P,) x, or (m, P) of several runs side by side
    ahead: Floats  # likewise z of accelerated steps
    steps: int = 0
    norm: float = math.nan  # of the last noisy mean, of the first run


@dataclass(frozen=True, slots=True, eq=False)
class PrivateProtocol:
    """The private protocol, step by step, from what is public."""

    facts: PublicFacts
    noise: NoiseScales
    training_steps: int  # T_1
    payment_steps: int  # T_2
    variant: PrivateVariant
    smoothness: float  # L_g that the steps are made for
    loss_bound: float  # B, perhaps infinite
    beta: float
    objective: Objective

    @property
    def exchanges(self) -> int:
        """How often agents are asked, each time for all that can be asked at once."""
        return self.training_steps + self.payment_steps + 1

    def begin(self) -> Walk:
        """At 0, which nobody has influenced."""
        return Walk(np.zeros(self.facts.size), np.zeros(self.facts.size))

    def multipliers(self) -> Floats:
        """(K,) noise of a sum with everybody over what one sample of each agent moves it by."""
        return Books(self.facts, self.noise).multipliers(1.0, self.facts.weights.size)

    def step(self, walk: Walk, federation: Federation) -> Walk:
        """One more step with everybody."""
        where, offset = f"private training step {walk.steps + 1}", walk.steps * self.facts.size
        after = self._step(Walk(walk.model[None], walk.ahead[None]), federation, self.facts.weights[None],
                           where, [offset])  # fmt: skip
        return Walk(after.model[0], after.ahead[0], walk.steps + 1, after.norm)

    def _step(
        self, walk: Walk, federation: Federation, mixes: Floats, where: str, offsets: Sequence[int]
    ) -> Walk:
        """One more step of several runs (m, P) at once, each with the agents in its mix."""
        rate, mu, x, z = 1 / self.smoothness, self.facts.regulariser, walk.model, walk.ahead
        if self.variant != "corrected":  # gradient steps, as printed
            g = self._means(federation, x, mixes, where, offsets)
            return Walk(x - rate * g, z, walk.steps + 1, float(np.linalg.norm(g[0])))
        # Nesterov's steps for mu-strongly convex functions, which (C6.3) is about
        theta = math.sqrt(mu * rate)
        y = np.asarray((x + theta * z) / (1 + theta))
        g = self._means(federation, y, mixes, where, offsets)
        x, z = y - rate * g, (1 - theta) * z + theta * y - theta / mu * g
        return Walk(np.asarray(x), np.asarray(z), walk.steps + 1, float(np.linalg.norm(g[0])))

    def _means(
        self, federation: Federation, models: Floats, mixes: Floats, where: str, offsets: Sequence[int]
    ) -> Floats:
        """(m, P) the mean gradient of the agents in each mix, by their weights, with noise."""
        totals = np.array([mix.sum() for mix in mixes])[:, None]
        work = Gradients(self.objective, self.facts.clip, _one_or_each(offsets))
        sds = np.array([self._weight(mix) * self.noise.gradient for mix in mixes])
        return np.asarray(_noisy_sums(federation, models, mixes, work, where, sds) / totals)

    def _weight(self, mix: Floats) -> float:
        """Of the noise of a sum, in units of sigma."""
        return float(mix.sum()) if self.variant == "corrected" else 1.0

    def finish(
        self, walk: Walk, federation: Federation, payers: Collection[int] | None = None
    ) -> PrivateOutcome:
        """Phase II, after the training steps; with `payers` of their clusters only."""
        facts, p, steps = self.facts, self.facts.weights, self.payment_steps
        books, offset, shared = Books(facts, self.noise), walk.steps * facts.size, walk.model
        books.gradient(p, self._weight(p), walk.steps)
        runs = self._runs(range(p.size) if payers is None else payers, offset)
        begin = np.zeros_like(walk.model) if self.variant == "corrected" else walk.model
        ends = self._descend(
            federation, np.repeat(begin[None], len(runs), axis=0), np.array([run.mix for run in runs]),
            [run.place for run in runs],
        )  # fmt: skip
        payments, models = np.full(p.size, np.nan), np.full((p.size, facts.size), np.nan)
        bills = list[_Bill]()
        for run, end in zip(runs, ends, strict=True):
            books.gradient(run.mix, self._weight(run.mix), steps)
            limit = _limit(shared, end, facts.clip, self.loss_bound)
            for number, k in enumerate(run.members):
                models[k] = end
                bills.append(_Bill(k, end, limit, run.place + steps * facts.size + number))
        open_bills = [bill for bill in bills if bill.limit]  # between equal models nothing changes
        changes = self._changes(federation, shared, open_bills)
        for bill in open_bills:
            books.payment(bill.agent)
        for k, without, _, _ in bills:
            free = _data_free(float(p[k]), facts.regulariser, shared, without)
            payments[k] = changes.get(k, 0.0) / float(p[k]) + free
        return PrivateOutcome(
            shared, payments, models, self.noise, books.ledger(), self.beta, self.variant, walk.steps,
            steps, self.smoothness, facts.clip, self.loss_bound,
        )  # fmt: skip

    def _runs(self, payers: Collection[int], offset: int) -> list[_Run]:
        """The runs without each cluster that somebody is billed for; noise from this place on."""
        facts, runs = self.facts, list[_Run]()
        of = cluster_of(facts.clusters, facts.weights.size)
        for number, each in enumerate(facts.clusters):
            members = each.tolist()
            if set(members) & set(payers):
                runs.append(_Run(members, np.where(of == number, 0.0, facts.weights), offset))
                offset += self.payment_steps * facts.size + len(members)
        return runs

    def _descend(
        self, federation: Federation, starts: Floats, mixes: Floats, offsets: Sequence[int]
    ) -> Floats:
        """(m, P) where runs end that begin at `starts`, step by step at the same time."""
        at, size = Walk(starts, starts), self.facts.size
        while at.steps < self.payment_steps:
            where = f"private payment step {at.steps + 1}"
            at = self._step(at, federation, mixes, where, [offset + at.steps * size for offset in offsets])
        return at.model

    def _changes(self, federation: Federation, shared: Floats, bills: Sequence[_Bill]) -> dict[int, float]:
        """By agent k the sum of p_j dbar_j over j != k, with its noise: of all bills in one exchange."""
        if not bills:
            return {}
        p, who = self.facts.weights, [bill.agent for bill in bills]
        mixes = np.where(np.arange(p.size) == np.array(who)[:, None], 0.0, p)
        limits, places = [bill.limit for bill in bills], [bill.place for bill in bills]
        work = Losses(self.objective, _one_or_each(limits), _one_or_each(places))
        sds = np.array([self.noise.payment * bill.limit * p[bill.agent] for bill in bills])
        models = np.stack([shared, *(bill.without for bill in bills)])
        sums = _noisy_sums(federation, models, mixes, work, "private payments", sds)
        return dict(zip(who, sums[:, 0].tolist(), strict=True))


class _Run(NamedTuple):
    """A run without a cluster."""

    members: list[int]  # of the cluster
    mix: Floats  # (K,) p outside the cluster, 0 inside
    place: int  # numbers released before it, if runs and their payments went one after the other


class _Bill(NamedTuple):
    """What a payment is computed from."""

    agent: int
    without: Floats  # (P,) W_l
    limit: float  # B_l
    place: int  # numbers released before it, likewise


_Number = TypeVar("_Number", int, float)


def _one_or_each(values: Sequence[_Number]) -> _Number | tuple[_Number, ...]:
    """What a single sum is asked with, or one for each of several."""
    return values[0] if len(values) == 1 else tuple(values)


def _noisy_sums(
    federation: Federation, models: Floats, mixes: Floats, work: Gradients | Losses, where: str,
    sds: Floats,
) -> Floats:  # fmt: skip
    """(m, ...) the noisy sums over the agents in each mix, in one exchange; who is missing ends the run.

    Noise and steps are planned for everybody, and what was released cannot be taken back, so nobody is left
    out. Every task is the same when it is asked again, and so is its answer: a run that ended here is
    resumed when the agent is back, and nobody gives away anything twice.
    """
    names = federation.members.names
    who = np.flatnonzero(mixes.any(0)).tolist()
    tasks = [Task(f"{where}, {names[k]}", names[k], models, work) for k in who]
    shares = mixes.T[who]
    total = (
        federation.total(tasks, shares[:, 0], noise=float(sds[0]))
        if len(mixes) == 1
        else federation.total(tasks, shares, noise=sds)
    )
    require_somebody([total.failures.get(task.identifier) for task in tasks], where)
    for task, k in zip(tasks, who, strict=True):
        failure = total.failures.get(task.identifier)
        if failure is not None and failure.absent:
            raise MissingReport(k, where, failure.reason, models[0], names[k])
        if failure is not None:
            raise BadReport(k, where, failure.reason, models[0], NEEDS_EVERYBODY, names[k])
    return total.values


def _limit(shared: Floats, without: Floats, clip: float, bound: float) -> float:
    """B_l, the largest loss difference that counts in a payment."""
    return min(bound, clip * float(np.linalg.norm(shared - without)))


def _data_free(p: float, mu: float, shared: Floats, without: Floats) -> float:
    """What the regulariser adds to a payment."""
    return (1 - p) / p * (mu / 2 * float(shared @ shared - without @ without))
