"""Faithful learning in few exchanges: training, then all payments at once, then one look along the way.

An exchange is one message to every agent and its answer.

    training    w by L-BFGS on the sums of the reports (`searches`), until
                |grad F(w)|^2/(2 mu) <= epsilon min p_k
    payments    all W_k = argmin f_-k at once, one message to agent j with the models of all k != j, warm:
                every agent's reports of the training are kept, so that of every f_-k the gradient at w and
                the curvature pairs are known before the first of these exchanges; until
                |grad f_-k(W_k)|^2/(2 (1 - p_k) mu p_k) <= epsilon/2, and one step at least
    the way     one exchange: slopes on the way from every W_k to w (`path_integral`), whose integral is
                P_k p_k = f_-k(w) - f_-k(W_k), certified to epsilon p_k/2 by as many nodes as that needs

So P_k is within [VCG - epsilon, VCG + epsilon/2], but for the rounding of the reports. Those of honest
agents are within tau S of the gradients (`reports`), sums of them within rho = sum_j p_j tau S: what is
certified at the end has |g| + rho in place of |g|, and rho |d|/p_k more for the way d. What k's reports of
the training can change besides w, where the others' searches begin and which pairs they know, is inside
of that.

Reports are held against all that is kept of the same agent's (`reports.Hearing`). Whoever contradicts
what was agreed on stops the protocol or is left out: the others' reports of the training stand, and the
search goes on from the best of their models, with their weights. If all pass, nobody can keep a search
from its end (`searches`, theory C3.6), which where L/mu is large may be far away: after MOST_EXCHANGES
the protocol stops, and says what helps. What an agent left out owes if it keeps the last model it was
sent, w', is f_-k(w') - f_-k(w) over its weight, as the model of those who are left, w, is W_k for it: one
more way of the last exchange. It is rounded up by its certified error.

Single reports are seen, also of agents that are vouched for, as no sum tells the gradients of all f_-k; in
payments and on the way only sums of theirs are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import AskFailed, BadReport, Diverged
from bonafed.learning.federation import Federation, Objective
from bonafed.learning.problems.agreed import DOUBLE, Agreed, Members, others_count, require_others
from bonafed.learning.problems.convex import Ints, Problem
from bonafed.mechanisms.faithful.protocol.path_integral import Nodes, Way, nodes_for, require_slopes
from bonafed.mechanisms.faithful.protocol.payments import (
    BadReportPolicy,
    Ending,
    LeftOut,
    Payments,
    for_all,
)
from bonafed.mechanisms.faithful.protocol.reports import EarlierReports, Hearing, ReportCheck, contradiction
from bonafed.mechanisms.faithful.protocol.requests import Aggregation
from bonafed.mechanisms.faithful.protocol.searches import (
    PATIENCE,
    Curvature,
    QuasiNewtonSearch,
    TrainingLog,
    mixed,
    without_each,
)

MOST_EXCHANGES = 5_000  # what halves |g| may take longer than anybody waits: ln 2 L/mu requests


@dataclass(frozen=True, slots=True, eq=False)
class ExchangesProgress:
    """How far the protocol has come."""

    model: Floats  # (P,) the best so far
    exchanges: int = 0
    training: int = 0  # of these
    log: TrainingLog | None = None
    search: QuasiNewtonSearch | None = None  # of the training
    payments: tuple[QuasiNewtonSearch, ...] = ()  # of each member, once training has ended
    searched: int = 0  # exchanges of these searches
    # (payments, L, P) what the L agents not vouched for reported at the best models of the payments
    said: Floats | None = None
    bad_reports: tuple[BadReport, ...] = ()
    ending: Ending | None = None
    done: bool = False  # there is nothing left to ask

    @property
    def steps(self) -> int:
        """Exchanges, as a run counts them."""
        return self.exchanges


class _Ways(NamedTuple):
    """The ways of the last exchange: of m payments, and of what agents left out owe."""

    starts: Floats  # (m, P) the models they begin at
    lines: Floats  # (m, P) from there to the shared model
    bend: Floats  # (m,) bounds the third derivative along them
    mixes: Floats  # (m, members) of the losses that are integrated
    owing: Floats  # (m,) weights of the agents that owe them


@dataclass(frozen=True, slots=True, eq=False)
class Exchanges:
    """The protocol, exchange by exchange: what was agreed on, and who is asked."""

    problem: Agreed
    federation: Federation
    epsilon: float
    objective: Objective | None = None
    on_bad_report: BadReportPolicy = "raise"
    check_reports: ReportCheck = "gradients"
    pays: bool = True  # False: training only, payments are computed otherwise

    def begin(self, start: Floats | None = None) -> ExchangesProgress:
        """Before the first exchange."""
        require_others(self.problem)
        return ExchangesProgress(
            np.zeros(self.problem.size) if start is None else np.array(start, dtype=np.float64)
        )

    def members(self, at: ExchangesProgress) -> list[int]:
        """The numbers of the agents that were not left out."""
        absent = {bad.agent for bad in at.bad_reports}
        return [k for k in range(self.problem.agents) if k not in absent]

    def advance(self, at: ExchangesProgress) -> ExchangesProgress:
        """One exchange; if somebody is left out, the others' reports of the training stand."""
        if at.exchanges >= MOST_EXCHANGES:
            raise Diverged(self._why_stopped(at))
        at = self._judged(self._exchange(at))
        return replace(at, done=at.ending is not None or (not self.pays and self._trained(at)))

    def _exchange(self, at: ExchangesProgress) -> ExchangesProgress:
        try:
            if at.search is None or not self._trained(at):
                return self._train(at)
            return self._pay(at if at.payments else self._open_payments(at))
        except AskFailed as failed:
            without = tuple(bad.agent for bad in at.bad_reports)
            raise AskFailed(
                failed.reason, failed.where, failed.model, failed.steps, without, at, "exchanges"
            ) from failed.__cause__

    def _pay(self, at: ExchangesProgress) -> ExchangesProgress:
        try:
            return self._search_payments(at) if self._open(at).size else self._look_along(at)
        except BadReport as bad:
            return self._without(replace(at, exchanges=at.exchanges + 1), [bad])

    def describe(self, at: ExchangesProgress) -> str:
        """What is being done, and how far it has come against where it ends."""
        part = self._part(self.members(at))
        if at.ending is not None:
            return "payments"
        if at.search is None or not self._trained(at) or not self.pays:
            gap = 0.0 if at.search is None else at.search.norm**2 / (2 * part.regulariser)
            share = gap / float(part.weights.min())
            return f"training: error {share:.2g}, ends at {self.epsilon:.2g}"
        squares = self._squares(at) if at.payments else (self._left_without_each(at) ** 2).sum(1)
        worst = float(self._residuals(squares, part).max())
        return f"payments: error {worst:.2g}, ends at {self.epsilon / 2:.2g}"

    def _part(self, members: Sequence[int]) -> Agreed:
        return self.problem if len(members) == self.problem.agents else Members(self.problem, members)

    def _weights(self, at: ExchangesProgress) -> Floats:
        """(K,) of all agents, 0 for those left out, sum 1."""
        members = self.members(at)
        weights = np.zeros(self.problem.agents)
        weights[members] = self._part(members).weights
        return weights

    def _reports(
        self, at: ExchangesProgress, part: Agreed, known: dict[int, EarlierReports]
    ) -> tuple[Aggregation, Hearing]:
        hearing = Hearing(self.problem, self.check_reports, known)
        reports = Aggregation(part, None, hearing, federation=self.federation, objective=self.objective)
        reports.send(at.model, at.exchanges)
        return reports, hearing

    # training ---------------------------------------------------------------------------------------------

    def _goal(self, at: ExchangesProgress) -> float:
        """|grad F| at which training ends."""
        part = self._part(self.members(at))
        return float(np.sqrt(2 * part.regulariser * self.epsilon * part.weights.min()))

    def _trained(self, at: ExchangesProgress) -> bool:
        return at.search is not None and at.search.norm <= self._goal(at)

    def _train(self, at: ExchangesProgress) -> ExchangesProgress:
        members, where = self.members(at), f"exchange {at.exchanges + 1} (training)"
        part = self._part(members)
        curvature = Curvature(part.regulariser, part.smoothness)
        trials = at.model[None] if at.search is None else at.search.trials(curvature)
        reports, _ = self._reports(at, part, self._known(at, members))
        reports.send(trials[0], at.exchanges)
        answers = np.zeros((len(trials), self.problem.agents, self.problem.size))
        answers[:, members], bad_reports = reports.each(trials, where)
        following = self._trained_on(at, trials, answers)
        return self._without(following, bad_reports) if bad_reports else following

    def _trained_on(self, at: ExchangesProgress, trials: Floats, answers: Floats) -> ExchangesProgress:
        """After an answer (t, K, P) to the trials."""
        gradients = mixed(self._weights(at), answers)
        if at.search is None or at.log is None:
            log, search = (
                TrainingLog(trials, answers, np.array([-1])),
                QuasiNewtonSearch.at(trials[0], gradients[0]),
            )
        else:
            search, pairs = at.search.after(trials, gradients, self._goal(at))
            origins = np.full(len(trials), -1)
            origins[list(pairs)] = at.log.row_of(at.search.model)
            log = TrainingLog(
                np.concatenate([at.log.models, trials]), np.concatenate([at.log.reports, answers]),
                np.concatenate([at.log.origins, origins]),
            )  # fmt: skip
            log = log.trimmed([log.row_of(search.model), log.row_of(search.best_model)])
        return replace(
            at, exchanges=at.exchanges + 1, training=at.training + 1, log=log, search=search,
            model=search.best_model,
        )  # fmt: skip

    def _known(self, at: ExchangesProgress, members: Sequence[int]) -> dict[int, EarlierReports]:
        """What those not vouched for have said in training, and at the best models of payments."""
        if at.log is None:
            return {}
        columns = self._listened()
        known = {k: EarlierReports(at.log.models, at.log.reports[:, k]) for k in members if k in columns}
        if at.said is not None:
            best = np.stack([search.best_model for search in at.payments])
            for row, k in enumerate(members):
                if k in columns:
                    others = np.arange(len(members)) != row
                    known[k] = EarlierReports(
                        np.concatenate([known[k].models, best[others]]),
                        np.concatenate([known[k].reports, at.said[others, columns[k]]]),
                    )
        return known

    def _listened(self) -> dict[int, int]:
        """The agents not vouched for, whose single reports are checked, with their places in `said`."""
        vouched = set(self.federation.vouched)
        names = self.federation.members.names
        return {
            k: column for column, k in enumerate(k for k, name in enumerate(names) if name not in vouched)
        }

    # payments ---------------------------------------------------------------------------------------------

    def _open_payments(self, at: ExchangesProgress) -> ExchangesProgress:
        """The searches without each member, warm from the training."""
        assert at.log is not None  # training has ended
        row, checked = at.log.row_of(at.model), list(self._listened())
        searches = at.log.searches_without_each(self._weights(at), row)
        said = np.repeat(at.log.reports[[row]][:, checked], len(searches), axis=0) if checked else None
        return replace(at, payments=searches, searched=0, said=said)

    def _left_without_each(self, at: ExchangesProgress) -> Floats:
        """(k, P) the gradients of all f_-k at the shared model, as reported in training."""
        assert at.log is not None  # training has ended
        return without_each(self._weights(at), at.log.reports[[at.log.row_of(at.model)]])[:, 0]

    def _squares(self, at: ExchangesProgress) -> Floats:
        """(k,) |grad f_-k|^2 of each payment."""
        return np.array([search.norm**2 for search in at.payments])

    def _residuals(self, squares: Floats, part: Agreed) -> Floats:
        """(k,) what is left of each payment at most, in units of loss, rounding aside."""
        p = part.weights
        return np.asarray(squares / (2 * (1 - p) * part.regulariser * p))

    def _open(self, at: ExchangesProgress) -> Ints:
        """The payments whose model is not found yet, by their places; one step is always taken.

        Without it, everybody whose payment is below epsilon would owe nothing.
        """
        residuals = self._residuals(self._squares(at), self._part(self.members(at)))
        return np.flatnonzero(residuals > (self.epsilon / 2 if at.searched else 0.0))

    def _search_payments(self, at: ExchangesProgress) -> ExchangesProgress:
        members, where = self.members(at), f"exchange {at.exchanges + 1} (payments)"
        part, open_ones = self._part(members), self._open(at)
        p = part.weights
        trials, rows = list[Floats](), list[int]()
        for i in open_ones.tolist():
            curvature = Curvature((1 - p[i]) * part.regulariser, (1 - p[i]) * part.smoothness)
            trials.append(at.payments[i].trials(curvature))
            rows += [i] * len(trials[-1])
        models, runs = np.concatenate(trials), np.array(rows)
        reports, hearing = self._reports(at, part, self._known(at, members))
        sums = reports.sum(models, part.without(runs), where, runs)
        goals = np.sqrt(self.epsilon * (1 - p) * part.regulariser * p)
        searches, places = list(at.payments), self._listened()
        reported = None if at.said is None else at.said.copy()
        for i in open_ones.tolist():
            own = np.flatnonzero(runs == i)
            searches[i], _ = at.payments[i].after(models[own], sums[own], float(goals[i]))
            if reported is not None and searches[i].best_model is not at.payments[i].best_model:
                best = own[int(np.argmin((sums[own] ** 2).sum(1)))]
                _remember(reported[i], places, hearing, int(best))
        return replace(
            at,
            exchanges=at.exchanges + 1,
            payments=tuple(searches),
            searched=at.searched + 1,
            said=reported,
        )

    # the way ----------------------------------------------------------------------------------------------

    def _look_along(self, at: ExchangesProgress) -> ExchangesProgress:
        members, where = self.members(at), f"exchange {at.exchanges + 1} (the way)"
        part, count = self._part(members), len(members)
        bills, shares = self._bills(at, members)
        starts = np.stack([
            *(search.best_model for search in at.payments), *(bad.model for bad in at.bad_reports)
        ])  # fmt: skip
        mixes, owing = np.concatenate([part.without_each(), bills]), np.concatenate([part.weights, shares])
        lines = at.model - starts
        bend = part.third_derivative(lines)
        ways = _Ways(starts, lines, bend, mixes, owing)
        # what phi rises by: known on the ways of payments, bounded on those of agents left out
        steepest = part.smoothness * mixes[count:].sum(1) * (lines[count:] ** 2).sum(1)
        rises = np.concatenate([self._rises(at, lines[:count]), steepest])
        nodes = nodes_for(rises, bend, self.epsilon * owing / 2)
        reports, hearing = self._reports(at, part, {})

        def check(k: int, rows: Ints, values: Floats) -> None:
            if hearing.names_liars:
                way = self._way(at, hearing, members, k, ways, rows)
                require_slopes(part, members[k], way, nodes.all, values)

        slopes = reports.slopes(starts, at.model, nodes.all, mixes, where, check)
        norms = np.maximum(np.linalg.norm(starts, axis=1), np.linalg.norm(at.model))  # farthest on the way
        rounding = self._rounding(at, hearing, members, mixes, norms) * np.linalg.norm(lines, axis=1)
        error = nodes.error(slopes, bend, rounding) / owing
        ending = self._end(at, part, hearing, nodes, slopes, error, ways)
        return replace(at, exchanges=at.exchanges + 1, ending=ending)

    def _rounding(
        self, at: ExchangesProgress, hearing: Hearing, members: list[int], mixes: Floats, norms: Floats
    ) -> Floats:
        """(m,) rho, how far honest sums with these mixes (m, members) are from the truth at most.

        The models are of these norms. Of a problem whose samples are here gradients are computed here too,
        in doubles; what is agreed on, by which reports are judged, allows for more.
        """
        assert at.log is not None  # training has ended
        tau = self.problem.precision
        if isinstance(self.problem, Problem):
            tau = min(tau, DOUBLE)
        first, answers = at.log.models[0], at.log.reports[0]
        scales = np.stack([hearing.scale(first, answers[k], norms) for k in members], axis=1)
        return np.asarray(tau * (mixes * scales).sum(1))

    def _rises(self, at: ExchangesProgress, ways: Floats) -> Floats:
        """(k,) by how much phi rises on the ways of the payments: known from gradients at both ends."""
        begins = np.stack([search.best_gradient for search in at.payments])
        return np.asarray(((self._left_without_each(at) - begins) * ways).sum(1))

    def _way(
        self, at: ExchangesProgress, hearing: Hearing, members: list[int], k: int, ways: _Ways, rows: Ints
    ) -> Way:
        """What is known of a member's slopes on the ways of these rows."""
        assert at.log is not None  # as `_look_along` knows
        assert at.said is not None
        agent, count, lines = members[k], len(members), ways.lines[rows]
        norms = np.maximum(np.linalg.norm(ways.starts[rows], axis=1), np.linalg.norm(at.model))
        scale = hearing.scale(at.log.models[0], at.log.reports[0, agent], norms)
        begins = np.full(len(rows), np.nan)
        known = rows < count
        begins[known] = (at.said[rows[known], self._listened()[agent]] * lines[known]).sum(1)
        ends = (at.log.reports[at.log.row_of(at.model), agent] * lines).sum(1)
        return Way((lines**2).sum(1), ways.bend[rows], scale, begins, ends)

    def _bills(self, at: ExchangesProgress, members: list[int]) -> tuple[Floats, Floats]:
        """(b, members) mixes and (b,) weights of those left out, each beside the members alone."""
        mixes, shares = np.zeros((len(at.bad_reports), len(members))), np.zeros(len(at.bad_reports))
        for row, bad in enumerate(at.bad_reports):
            with_it = sorted([*members, bad.agent])
            weights = self._part(with_it).weights
            mixes[row] = [weights[with_it.index(k)] for k in members]
            shares[row] = weights[with_it.index(bad.agent)]
        return mixes, shares

    def _end(
        self, at: ExchangesProgress, part: Agreed, hearing: Hearing, nodes: Nodes, slopes: Floats,
        error: Floats, ways: _Ways,
    ) -> Ending:  # fmt: skip
        """The payments, certified by the slopes along their ways."""
        assert at.search is not None
        count, members, owing = part.agents, self.members(at), ways.owing
        values, gauss = nodes.trapezoid(slopes) / owing, nodes.gauss(slopes) / owing
        models = np.stack([search.best_model for search in at.payments])
        rounding = self._rounding(
            at, hearing, members, np.concatenate([ways.mixes[:count], part.weights[None]]),
            np.linalg.norm([*models, at.model], axis=1),
        )  # fmt: skip
        amount = np.maximum(values[:count], 0.0)  # as no exact payment is negative
        coarse = rounding[:count] / np.sqrt(2 * (1 - part.weights) * part.regulariser * part.weights)
        residuals = (np.sqrt(self._residuals(self._squares(at), part)) + coarse) ** 2  # of |g| + rho
        payments = Payments(amount, residuals, models, at.searched)
        if at.bad_reports:
            payments = for_all(payments, members, self.problem.agents, nothing=0.0)
        training_error = (at.search.norm + float(rounding[count])) ** 2 / (2 * part.regulariser)
        # not less than the exact payment for the model that was sent: to keep it must not pay
        due = error[count:] - values[count:] + (1 / owing[count:] - 1) * training_error
        left_out = tuple(
            LeftOut(bad.agent, bad.where, bad.problem, owed)
            for bad, owed in zip(at.bad_reports, due.tolist(), strict=True)
        )
        return Ending(
            payments, float(error[:count].max()), training_error, left_out,
            float(np.abs(values - gauss)[:count].max()),
        )  # fmt: skip

    # those who are left out -------------------------------------------------------------------------------

    def _without(self, at: ExchangesProgress, bad_reports: Sequence[BadReport]) -> ExchangesProgress:
        """Without those whose reports are no gradients; what the others said in training stands."""
        if self.on_bad_report == "raise":
            raise bad_reports[0]
        at = replace(at, payments=(), said=None, bad_reports=(*at.bad_reports, *bad_reports))
        if len(self.members(at)) < 2 or not others_count(self._part(self.members(at))):
            raise bad_reports[0].advised("leaving it out would leave one agent alone")
        assert at.log is not None  # there was an exchange
        search = at.log.search(self._weights(at))
        return replace(at, search=search, model=search.best_model)

    def _judged(self, at: ExchangesProgress) -> ExchangesProgress:
        """Where a search does not progress, look for who contradicts itself in more than two reports."""
        part = self._part(self.members(at))
        mu, smooth, p = part.regulariser, part.smoothness, part.weights
        searches = [(at.search, 1.0)] if not at.payments else list(zip(at.payments, 1 - p, strict=True))
        slow = [(search, share) for search, share in searches if search is not None and search.careful]
        if not slow or at.ending is not None:
            return at
        what = "payments" if at.payments else "training"
        due = any(search.since % PATIENCE == 0 for search, _ in slow)
        if due and self.check_reports == "gradients" and (bad := self._contradictions(at, part, what)):
            return self._without(at, bad)
        if any(search.stuck(Curvature(share * mu, share * smooth)) for search, share in slow):
            raise Diverged(self._why_stuck(what, at))
        return at

    def _contradictions(self, at: ExchangesProgress, part: Agreed, what: str) -> list[BadReport]:
        """The members whose reports are gradients of no loss as agreed on, though any two could be."""
        members, names = self.members(at), self.federation.members.names
        checks, bad_reports = Hearing(self.problem, self.check_reports), list[BadReport]()
        known = self._known(at, members)
        for k in members:
            if names[k] in self.federation.vouched:
                continue
            models, reports = known[k]
            scale = checks.scale(models[0], reports[0], np.linalg.norm(models, axis=1))
            excess = contradiction(
                models, reports, part.regulariser, part.smoothness, part.precision * scale
            )
            if excess > 0:
                text = f"gradients of no one loss: going around some of its models gains {excess:.3g}"
                where = f"exchange {at.exchanges} ({what})"
                bad_reports.append(BadReport(k, where, text, at.model, name=names[k]))
        return bad_reports

    def _why_stopped(self, at: ExchangesProgress) -> str:
        what = "payments do" if at.payments else "training does"
        condition = self.problem.smoothness / self.problem.regulariser
        return (
            f"{what} not converge to epsilon = {self.epsilon:g} in {at.exchanges:,} exchanges, the most "
            f"there are: a larger epsilon or regulariser helps, or scaled features "
            f"(L_g/mu is {condition:.2g})"
        )

    def _why_stuck(self, what: str, at: ExchangesProgress) -> str:
        why = "nobody can be named: within the agreed precision all reports are gradients of some loss"
        if self.check_reports != "gradients":
            why = 'nobody is named, as reports are believed: check_reports = "gradients" does'
        return (
            f"{what} does not converge to epsilon = {self.epsilon:g} in {at.exchanges} exchanges: true "
            f"gradients, and all that pass the checks, halve their norm sooner; {why}"
        )


def _remember(said: Floats, places: Mapping[int, int], heard: Hearing, row: int) -> None:
    """Keep what agents that are not vouched for reported for a row of the request."""
    for agent, (rows, values) in heard.heard.items():
        at = np.flatnonzero(rows == row)
        if at.size:
            said[places[agent]] = values[at[0]]
