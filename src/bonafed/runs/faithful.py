"""A run of faithful learning: from a config to a shared model, and what every agent owes for it.

Steps of phase I are the rounds of the run: a line in metrics.jsonl each, a checkpoint every so often.
Phase II follows from the model of phase I without randomness, so a run killed in it repeats it. Agents that
cheat have a memory, and noise comes from one stream: such runs begin anew when they are resumed, and end
with the same digits.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import numpy as np

from bonafed.checks import Floats, finite_or_none
from bonafed.errors import BadReport
from bonafed.learning.engine.programs import architecture, saved_model
from bonafed.learning.evaluate import evaluate
from bonafed.learning.noise import Secret, SecretReleases, Source
from bonafed.learning.privacy import Ledger, Release
from bonafed.mechanisms.faithful import (
    Outcome,
    Problem,
    SoftmaxRegression,
    cluster_payments,
    faithful,
    newton_payments,
    private_faithful,
    random_clusters,
    train,
    vcg_payments,
)
from bonafed.mechanisms.faithful.agents import agent_kind, agents_from
from bonafed.mechanisms.faithful.private import PrivateCalibration, PrivateOutcome, PrivateVariant
from bonafed.mechanisms.faithful.protocol import BadReportPolicy, PaymentRule, ProtocolVariant
from bonafed.mechanisms.faithful.reports import ReportCheck
from bonafed.mechanisms.faithful.statement import Statement, private_statement, statement
from bonafed.randomness import Purpose, round_generator
from bonafed.runs import folder as folders
from bonafed.runs import private
from bonafed.runs.faithful_setting import LONGEST, FaithfulSetting, fresh_losses
from bonafed.runs.folder import Clock, JSONObject, Log, OnRound, RoundRecord
from bonafed.runs.versions import begin_or_resume, ended

_SIMULATED = "exact losses of private data: known to the simulation only, covered by no epsilon"


def train_faithful(
    setting: FaithfulSetting,
    folder: Path | str,
    *,
    resume: bool = False,
    on_round: OnRound | None = None,
    on_phase: Callable[[str], None] | None = None,
    clock: Clock = time.perf_counter,
) -> JSONObject:
    """Train and compute what is owed, in a new folder or resuming the run in it; the summary."""
    config, folder = setting.config, Path(folder)
    if resume and ended(config, folder):
        return folders.read_json(folder, folders.SUMMARY)
    with Log(folder, new=not resume) as log:
        first, source = begin_or_resume(
            log, folder, config, setting.digest, resume, setting.start, architecture(setting.module)
        )
        setting = replace(setting, start=first)
        last = folders.read_checkpoint(folder) if resume and not config.begins_anew else None
        log.cut(last.metrics_length if last else 0)
        done, start = (last.round, last.weights) if last else (0, setting.start)
        writer = _Writer(setting, log, done, on_round, clock)
        tell = on_phase or (lambda _text: None)
        found: Outcome | PrivateOutcome
        if config.privacy is not None:
            found, accounts = _private(setting, source, writer, tell)
        else:
            found, accounts = _exact(setting, start, done, writer, tell)
        summary = _summarise(setting, found, accounts, folders.read_rounds(folder))
        if config.privacy is not None:
            known = {"note": _SIMULATED, "agents": _rows(accounts, setting.problem)}
            private.write_private(folder, private.SIMULATION, folders.to_json(known), replace=True)
        log.finish(saved_model(setting.module, setting.to_module(found.model[None])[0]), summary)
    return summary


class _Writer:
    """Writes down every step of phase I; a checkpoint every so often."""

    def __init__(
        self,
        setting: FaithfulSetting,
        log: Log,
        done: int,
        on_round: OnRound | None,
        clock: Callable[[], float],
    ) -> None:
        self._setting, self._log, self._done = setting, log, done
        self._on_round, self._clock, self._last = on_round, clock, clock()
        self._multipliers: Floats | None = None  # (K,) of the noise in every step, if private
        self._members = list(range(setting.problem.agents))

    def expect_noise(self, multipliers: Floats) -> None:
        """Every step is a release of all agents' samples, with this much noise."""
        self._multipliers = multipliers

    def go_on_without(self, agent: int) -> None:
        """Whose report was bad; steps begin again with step 1."""
        self._members.remove(agent)

    def _released(self, steps: int) -> tuple[float | None, list[tuple[int, float, int]]]:
        """Epsilon of whoever gave away most in so many steps, and the releases of one."""
        promise = self._setting.config.privacy
        if promise is None or self._multipliers is None:
            return None, []
        least = int(self._multipliers.argmin())
        so_far = Ledger((Release(least, 1, float(self._multipliers[least]), steps),))
        return so_far.epsilon(least, promise.delta), [
            (k, float(m), 1) for k, m in enumerate(self._multipliers)
        ]

    def step(self, number: int, model: Floats, _norm: float) -> None:
        """Step 1, 2, ... of this part of the run; 1 again when an agent was left out."""
        setting, at = self._setting, self._done + number
        if number == 1 and not self._done:
            self._log.cut(0)
        run, last = setting.config.run, at == setting.config.rounds
        train_loss = test_loss = accuracy = math.nan
        if at % run.evaluate_every == 0 or last:
            if setting.config.privacy is None:
                train_loss = setting.problem.value(model, setting.problem.weights)
            weights = setting.to_module(model[None])[0]
            test_loss, accuracy = evaluate(setting.program, weights, setting.test)
        epsilon, releases = self._released(at)
        now = self._clock()
        record = RoundRecord(
            round=at,
            train_loss=finite_or_none(train_loss),
            test_loss=finite_or_none(test_loss),
            test_accuracy=finite_or_none(accuracy),
            participants=list(self._members),
            skipped=[],
            steps=len(self._members),
            learning_rate=setting.step,
            spend=None,
            epsilon=epsilon,
            releases=releases,
            seconds=round(now - self._last, 6),
        )
        self._last = now
        self._log.append(record)
        if at % run.checkpoint_every == 0 or last:
            self._log.checkpoint(at, model)
        if self._on_round is not None:
            self._on_round(record)


def _exact(
    setting: FaithfulSetting, start: Floats, done: int, writer: _Writer, tell: Callable[[str], None]
) -> tuple[Outcome, Statement]:
    config, problem, given = setting.config, setting.problem, setting.config.faithful
    left = config.rounds - done
    if not left:
        tell("computing payments")

    def heard(step: int, model: Floats, norm: float) -> None:
        writer.step(step, model, norm)
        if step == left:
            tell("computing payments")

    def left_out(bad: BadReport) -> None:
        writer.go_on_without(bad.agent)
        tell(f"training again without agent {bad.agent}")

    if given.payments == "gradients" and given.clusters is None:
        outcome = faithful(
            problem,
            agents=agents_from(given.agents, problem, round_generator(config.run.seed, Purpose.AGENTS)),
            training_steps=left,
            payment_steps=config.payment_steps,
            epsilon=given.epsilon,
            step_share=given.step_share,
            rule=cast(PaymentRule, given.rule),
            variant=cast(ProtocolVariant, given.variant),
            start=start,
            on_bad_report=cast(BadReportPolicy, given.on_bad_report),
            check_reports=cast(ReportCheck, given.check_reports),
            on_step=heard,
            on_left_out=left_out,
        )
    else:
        w, _ = train(problem, None, left, start, heard)
        if given.clusters is not None:
            rng = round_generator(config.run.seed, Purpose.CLUSTERS)
            owed = cluster_payments(problem, w, random_clusters(problem.agents, given.clusters, rng))
        else:
            owed = newton_payments(problem, w) if given.payments == "newton" else vcg_payments(problem, w)
        g = problem.gradient(w[None], problem.weights[None])[0]
        gap = float(g @ g) / (2 * problem.regulariser)
        outcome = Outcome(w, owed, problem.losses(w[None])[0], config.rounds, 0.0, gap)
    outcome = replace(outcome, training_steps=config.rounds)
    tell("comparing with every agent alone")
    return outcome, statement(
        problem,
        outcome,
        epsilon=given.epsilon,
        clustered=given.clusters is not None,
        cheating=[agent_kind("agents", text)[0] for text in given.agents],
        fresh=fresh_losses(setting),
        start=setting.start,
    )


def _private(
    setting: FaithfulSetting, source: Source | None, writer: _Writer, tell: Callable[[str], None]
) -> tuple[PrivateOutcome, Statement]:
    config, problem, promise = setting.config, setting.problem, setting.config.privacy
    assert promise is not None
    assert isinstance(problem, SoftmaxRegression)  # checked by `prepare_faithful`
    outcome = private_faithful(
        problem,
        setting.clusters,
        _noise(setting, source),
        alpha=promise.epsilon,
        beta=promise.delta,
        clip=promise.clip,
        training_steps=config.rounds,
        payment_steps=config.payment_steps,
        loss_bound=promise.loss_bound,
        split=promise.split,
        calibration=cast(PrivateCalibration, promise.calibration),
        variant=cast(PrivateVariant, config.faithful.variant),
        on_noise=writer.expect_noise,
        on_step=writer.step,
    )
    tell("comparing with every agent alone")
    return outcome, private_statement(
        problem, outcome, clusters=len(setting.clusters), longest=LONGEST, fresh=fresh_losses(setting)
    )


def _noise(setting: FaithfulSetting, source: Source | None) -> np.random.Generator | SecretReleases:
    """Of all releases of the run, one after the other."""
    if not isinstance(source, Secret):
        return round_generator(setting.config.run.seed, Purpose.PRIVATE_SUMS)
    return source.releases(setting.digest.encode())


def _summarise(
    setting: FaithfulSetting, found: Outcome | PrivateOutcome, accounts: Statement, lines: list[JSONObject]
) -> JSONObject:
    config, problem = setting.config, setting.problem
    last = lines[-1]
    summary: JSONObject = {
        "mechanism": config.scheme,
        "data": config.data.name,
        "model": config.model.name,
        "parameters": problem.size,
        "clients": problem.agents,
        "rounds": len(lines),
        "train_loss": last["train_loss"],
        "test_loss": last["test_loss"],
        "test_accuracy": last["test_accuracy"],
        "seconds": round(sum(line["seconds"] for line in lines), 3),
        "agents": _rows(accounts, problem, private=isinstance(found, PrivateOutcome)),
        "total_payment": float(accounts.payment.sum()),
        "checks": [{"name": c.claim, "holds": c.holds, "text": c.text} for c in accounts.checks],
        "notes": list(setting.notes),
    }
    if isinstance(found, Outcome):
        summary |= {
            "payment_steps": found.payments.steps,
            "certified_error": finite_or_none(float(accounts.error.max())),
            "integration_error": found.integration_error,
            "left_out": [asdict(out) for out in found.left_out],
        }
    else:
        given = [found.epsilon(k) for k in range(problem.agents)]
        summary |= {
            "payment_steps": found.payment_steps,
            "epsilon": max(given),
            "delta": found.beta,
            "epsilon_per_agent": given,
            "noise": {"gradient": found.noise.gradient, "payment": found.noise.payment},
            "releases": _releases(found.ledger),
        }
    return summary


def _releases(ledger: Ledger) -> list[JSONObject]:
    """Every release of every agent's samples, those at equal noise counted together."""
    times: Counter[tuple[int, float]] = Counter()
    for release in ledger.releases:
        times[release.client, release.multiplier] += release.times
    return [
        {"agent": agent, "noise_multiplier": noise, "times": count}
        for (agent, noise), count in sorted(times.items())
    ]


def _rows(accounts: Statement, problem: Problem, *, private: bool = False) -> list[JSONObject]:
    """The statement of every agent; if private, without what is known of nobody's samples but one's own."""
    pays = accounts.joining_pays
    losses = {
        "loss": accounts.loss,
        "overall_loss": accounts.overall,
        "loss_with_the_others_model": accounts.others,
        "loss_alone": accounts.alone,
        "fresh_loss": accounts.fresh,
        "fresh_loss_alone": accounts.fresh_alone,
    }
    return [
        {
            "agent": k,
            "weight": float(problem.weights[k]),
            "payment": float(accounts.payment[k]),
            "payment_error": finite_or_none(float(accounts.error[k])),
            **{name: None if private else _entry(values, k) for name, values in losses.items()},
            "joining_pays": None if private or pays is None else pays[k],
        }
        for k in range(problem.agents)
    ]


def _entry(values: Floats | None, k: int) -> float | None:
    return None if values is None else finite_or_none(float(values[k]))
