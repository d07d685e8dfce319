"""The loop of a run, and its resumption; the same for every mechanism.

(1) the mechanism advances by a round      pure functions of the config, the agreement and (seed, round,
(2) the models are evaluated               client): a round that is repeated after a kill is repeated
(3) a line in metrics.jsonl; every so      exactly
    often a checkpoint

In the end the mechanism settles, and the statement goes into the summary.
"""

from __future__ import annotations

import io
import json
import math
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import nn

from bonafed.checks import finite_or_none
from bonafed.contracts.roster import simulate, with_tossed
from bonafed.economics.findings import Finding
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.engine.programs import load_parameters, saved_model
from bonafed.learning.evaluate import evaluate, evaluate_models
from bonafed.mechanisms.protocol import Round, State
from bonafed.presentation.documents import Document, Shown
from bonafed.runs import coins, private
from bonafed.runs import folder as folders
from bonafed.runs.folder import JSONObject
from bonafed.runs.integrity import begin_or_resume, ended
from bonafed.runs.log import Clock, OnRound, RoundRecord, RunLog
from bonafed.runs.prepare import Negotiating, Setting
from bonafed.runs.summary import notes, run_document, summarise

OnPhase = Callable[[str], None]
Entropy = Callable[[int], bytes]
_NEVER = 10**15  # rounds
_SIMULATED = "what clients know about themselves: drawn by the simulation, told to nobody"


class _Seen(NamedTuple):
    """How good models are: the mean over them, and each where clients have models of their own."""

    loss: float
    accuracy: float
    each: Sequence[float] | None = None


_UNSEEN = _Seen(math.nan, math.nan)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunResult(Shown):
    """The outcome of a run."""

    model: nn.Module  # with the final weights
    metrics: Sequence[JSONObject]  # one per round, as in metrics.jsonl
    statement: Statement
    summary: JSONObject
    folder: Path | None  # None: nothing was kept

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Whether the promises were kept."""
        return self.statement.findings

    def document(self) -> Document:
        """The outcome and the statement."""
        return run_document(self.summary, self.metrics, self.folder)


def train(
    setting: Setting,
    folder: Path | str | None = None,
    *,
    resume: bool = False,
    on_round: OnRound | None = None,
    on_phase: OnPhase | None = None,
    clock: Clock = time.perf_counter,
    entropy: Entropy = secrets.token_bytes,
    secret: bytes | None = None,
) -> RunResult:
    """Train from the beginning in a new folder, or resume the run in it; without one nothing is kept.

    `secret` is that of the coins which a published contract commits to, where it does.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="bonafed-") as temporary:
            never = replace(setting.config.run, checkpoint_every=_NEVER)  # but for the last round
            short = replace(setting, config=replace(setting.config, run=never))
            result = train(
                short,
                Path(temporary) / "run",
                on_round=on_round,
                on_phase=on_phase,
                clock=clock,
                entropy=entropy,
                secret=secret,
            )
            return replace(result, folder=None)
    folder = Path(folder)
    if resume and ended(setting.config, folder):
        return finished(setting, folder)
    with RunLog(folder, new=not resume) as log:
        run = _Run(
            setting, folder, log, resume, on_round, on_phase or (lambda _text: None), clock, entropy, secret
        )
        return run.to_the_end()


def finished(setting: Setting, folder: Path) -> RunResult:
    """The result of a run that is finished."""
    module = load_parameters(setting.module, torch.from_numpy(setting.start))
    model = io.BytesIO(folders.content(folder, folders.MODEL))
    module.load_state_dict(torch.load(model, weights_only=True))
    summary = folders.read_json(folder, folders.SUMMARY)
    return RunResult(
        module, folders.read_rounds(folder), Statement.from_json(summary["statement"]), summary, folder
    )


class _Run:
    """A run that has its folder open."""

    def __init__(
        self,
        setting: Setting,
        folder: Path,
        log: RunLog,
        resume: bool,
        on_round: OnRound | None,
        tell: OnPhase,
        clock: Clock,
        entropy: Entropy,
        secret: bytes | None,
    ) -> None:
        setting, files = _with_coins(setting, folder, resume, entropy, secret)
        self._start, noise = begin_or_resume(log, folder, setting, files, resume=resume)
        self._setting, self._folder, self._log = setting, folder, log
        self._federation = setting.federation(noise)
        self._on_round, self._tell, self._clock = on_round, tell, clock
        self._resume = resume

    def to_the_end(self) -> RunResult:
        """Run all remaining rounds, then settle."""
        mechanism = self._setting.mechanism
        with ExitStack() as stack:
            if isinstance(self._federation, AbstractContextManager):
                stack.enter_context(self._federation)
            state, records = self._begin()
            while not mechanism.finished(state):
                state = self._round(state, records)
            self._tell("settling")
            statement = mechanism.settle(state, self._federation)
            if isinstance(self._setting.clients, Negotiating):
                statement = self._setting.clients.account(statement, self._setting.agreement)
            self._keep_simulation(state)
        return self._finish(state, statement, records)

    def _begin(self) -> tuple[State, list[JSONObject]]:
        """The state to continue from, and the records before it."""
        setting, last = self._setting, folders.read_checkpoint(self._folder) if self._resume else None
        self._log.cut(last)
        records = folders.read_rounds(self._folder)
        rounds = last.round if last else 0
        if len(records) != rounds:
            rule = f"must have a line for each of {rounds} rounds"
            raise InvalidValue(str(self._folder / folders.METRICS), rule, len(records))
        if last is None:
            first: State = setting.mechanism.begin(setting.agreement, self._start)
            return first, records
        restored: State = setting.mechanism.restore(setting.agreement, last.state)
        return restored, records

    def _round(self, state: State, records: list[JSONObject]) -> State:
        start, mechanism = self._clock(), self._setting.mechanism
        following: State
        following, what = mechanism.advance(state, self._federation)  # (1)
        number = following.round_number
        if number <= state.round_number:  # somebody was left out, and the run started over
            self._log.start_over()
            records.clear()
        if not number:
            return following
        inside = _rounds_of_phase(records, what.phase) + 1
        run = self._setting.config.run
        last = mechanism.finished(following) or what.ends_phase
        seen = _UNSEEN
        if inside % run.evaluate_every == 0 or last:
            seen = self._look(mechanism.models(following))  # (2)
        record = self._record(number, what, seen, round(self._clock() - start, 6))
        self._log.append(record)  # (3)
        records.append(_as_read(record))
        if (inside % run.checkpoint_every == 0 or last) and (arrays := following.arrays()):
            self._log.checkpoint(number, arrays)
        if self._on_round is not None:
            self._on_round(record)
        return following

    def _look(self, models: NDArray[Any]) -> _Seen:
        """How good the models are on the test samples."""
        program, test = self._setting.program, self._setting.test
        if len(models) == 1:
            return _Seen(*evaluate(program, torch.from_numpy(models[0]), test))
        if not len(test.labels):
            return _UNSEEN
        scores = evaluate_models(program, models, test, cores=self._setting.config.run.cores_here)
        each = scores.accuracy.tolist() if program.loss == "cross-entropy" else None
        return _Seen(float(scores.loss.mean()), float(scores.accuracy.mean()), each)

    def _record(self, number: int, what: Round, seen: _Seen, seconds: float) -> RoundRecord:
        names = self._setting.agreement.members.names
        return RoundRecord(
            round=number,
            train_loss=what.train_loss,
            test_loss=finite_or_none(seen.loss),
            test_accuracy=finite_or_none(seen.accuracy),
            participants=list(what.participants),
            failed=list(what.failed),
            steps=what.steps,
            learning_rate=what.learning_rate,
            spend=what.spend,
            epsilon=what.epsilon,
            releases=[_release_row(names[release.client], release) for release in what.releases],
            seconds=seconds,
            phase=what.phase,
            doing=what.doing,
            accuracies=seen.each,
        )

    def _keep_simulation(self, state: State) -> None:
        """Keep what only a simulation knows apart from what may be shared."""
        setting, simulation = self._setting, dict[str, Any]()
        if setting.simulated and setting.agreement.reports:
            simulation = {"note": _SIMULATED, "costs": dict(setting.agreement.reports)}
        simulation |= setting.mechanism.simulation(state, self._federation) or {}
        if simulation:
            content = folders.to_json(simulation)
            private.write_private(self._folder, private.SIMULATION, content, replace=True)

    def _finish(self, state: State, statement: Statement, records: list[JSONObject]) -> RunResult:
        setting = self._setting
        statement = replace(
            statement, run=self._folder.name, notes=(*statement.notes, *notes(setting, records))
        )
        summary = summarise(setting, records, statement)
        weights = setting.mechanism.final(state)
        files = dict(setting.mechanism.extra_files(state))
        if setting.agreement.coins is not None:
            files[folders.COINS] = coins.opened(setting.agreement.coins)
        flat = torch.from_numpy(weights)
        self._log.finish({**files, folders.MODEL: saved_model(setting.module, flat)}, summary)
        read_back = Statement.from_json(summary["statement"])
        return RunResult(
            load_parameters(setting.module, flat), folders.read_rounds(self._folder), read_back, summary,
            self._folder,
        )  # fmt: skip


def _with_coins(
    setting: Setting, folder: Path, resume: bool, entropy: Entropy, secret: bytes | None
) -> tuple[Setting, dict[str, bytes]]:
    """The setting with its coins, tossed now or before, and the files that a new run is set up with."""
    agreement, files = setting.agreement, dict[str, bytes]()
    if setting.mechanism.lottery(agreement) is not None:
        if resume:
            agreement = with_tossed(agreement, coins.restore(folder))
        else:
            if isinstance(setting.clients, Negotiating):
                if secret is None:
                    raise MissingValue("secret of the coins", "is required: the contract commits to it")
                agreement = with_tossed(agreement, setting.clients.toss(agreement, secret))
            else:
                agreement = simulate(agreement, entropy, secret)
            assert agreement.coins is not None  # tossed now
            files[folders.COINS] = coins.keep(folder, agreement.coins)
    elif secret is not None:
        rule = "must be left out: who takes part follows from run.seed"
        raise InvalidValue("secret of the coins", rule, f"{len(secret)} bytes")
    if agreement.contract is not None:
        files[folders.CONTRACT] = agreement.contract.content
    if agreement.reports or agreement.terms is not None:
        origin = {"simulated": setting.simulated, "published": setting.config.contract is not None}
        files[folders.AGREEMENT] = folders.to_json({**agreement.to_json(), **origin})
    return replace(setting, agreement=agreement), files


def _rounds_of_phase(records: Sequence[JSONObject], phase: str) -> int:
    """How many rounds of this phase there are at the end of the records."""
    count = 0
    for record in reversed(records):
        if record["phase"] != phase:
            break
        count += 1
    return count


def _release_row(client: str, release: Any) -> tuple[str | float | None, ...]:
    row = (client, release.multiplier, release.times, release.steps)
    return row if release.rate is None else (*row, release.rate)


def _as_read(record: RoundRecord) -> JSONObject:
    """The record as `read_rounds` would read it."""
    plain: JSONObject = json.loads(json.dumps({n: getattr(record, n) for n in RoundRecord.__slots__}))
    return plain
