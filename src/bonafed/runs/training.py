"""The loop of a training run, and its resumption.

(1) who takes part                     pure functions of the config and (seed, round, client): a round
(2) their local training, the sum      that is repeated after a kill repeats itself exactly
(3) a look at the model
(4) a line in metrics.jsonl; every so often a checkpoint
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bonafed.checks import finite_or_none
from bonafed.errors import InvalidValue
from bonafed.learning.engine.crew import Crew
from bonafed.learning.engine.programs import architecture, saved_model
from bonafed.learning.evaluate import evaluate
from bonafed.learning.federation import BadUpdatePolicy, run_round
from bonafed.learning.noise import Secret, Source
from bonafed.learning.privacy import Ledger, Release
from bonafed.mechanisms.jsam.payments import HARDLY_A_PROMISE, privacy_warning
from bonafed.mechanisms.jsam.training import LARGEST_LOSSES, PrivacyTerms
from bonafed.mechanisms.sampling.training import SampledTerms
from bonafed.runs import coins, private
from bonafed.runs import folder as folders
from bonafed.runs.folder import Clock, JSONObject, Log, OnRound, RoundRecord
from bonafed.runs.sections import REPRODUCIBLE
from bonafed.runs.setting import Setting
from bonafed.runs.versions import begin_or_resume, ended

_SIMULATED = "what clients know about themselves: drawn by the simulation, told to nobody"


def train(
    setting: Setting,
    folder: Path | str,
    *,
    resume: bool = False,
    on_round: OnRound | None = None,
    clock: Clock = time.perf_counter,
) -> JSONObject:
    """Train from the beginning in a new folder, or resume the run in it; the summary."""
    folder = Path(folder)
    if resume and ended(setting.config, folder):
        return folders.read_json(folder, folders.SUMMARY)
    with Log(folder, new=not resume) as log:
        given, published = setting.start.numpy(), None
        if setting.coins is not None and not resume:
            published = coins.keep(folder, setting.coins)
        start, noise = begin_or_resume(
            log,
            folder,
            setting.config,
            setting.digest,
            resume,
            given,
            architecture(setting.module),
            published,
        )
        if setting.coins is not None and resume:
            setting = setting.with_coins(coins.kept(folder))
        _require_same_choice(setting, start)
        last = folders.read_checkpoint(folder) if resume else None
        done, length = (last.round, last.metrics_length) if last else (0, 0)
        begin = torch.tensor(last.weights if last else start)
        log.cut(length)
        records = folders.read_rounds(folder)
        if len(records) != done:
            rule = f"must have a line for each of {done} rounds"
            raise InvalidValue(str(folder / folders.METRICS), rule, len(records))
        accounts = Accounts(setting)
        accounts.add(_releases(records))
        weights = begin
        for record, weights in play(setting, begin, done, accounts, noise, clock):
            log.append(record)
            records.append(_as_read(record))
            if record.round % setting.config.run.checkpoint_every == 0 or record.round == _rounds(setting):
                log.checkpoint(record.round, weights.numpy())
            if on_round is not None:
                on_round(record)
        summary = summarise(setting, records, accounts)
        if setting.terms is not None:
            known = {"note": _SIMULATED, "costs": setting.terms.costs.tolist()}
            private.write_private(folder, private.SIMULATION, folders.to_json(known), replace=True)
        if setting.coins is not None:
            coins.open_coins(folder, setting.coins)
        log.finish(saved_model(setting.module, weights), summary)
    return summary


def play(
    setting: Setting,
    weights: Tensor,
    done: int,
    accounts: Accounts,
    noise: Source | None = None,
    clock: Clock = time.perf_counter,
) -> Iterator[tuple[RoundRecord, Tensor]]:
    """The rounds after `done`: what to write down about each, and the model after it.

    Noise that has no source is of a secret that nobody keeps.
    """
    noise = noise or Secret.fresh()
    with Crew(setting.program, setting.samples, setting.config.run.cores_here) as crew:
        for number in range(done + 1, _rounds(setting) + 1):
            record, weights = _round(setting, weights, number, accounts, noise, crew, clock)
            yield record, weights


def _round(
    setting: Setting,
    weights: Tensor,
    number: int,
    accounts: Accounts,
    noise: Source,
    crew: Crew,
    clock: Clock,
) -> tuple[RoundRecord, Tensor]:
    """One round: what to write down about it, and the model after it."""
    began = clock()
    # (1) who takes part
    who = setting.participation(number)
    spec = setting.local_training(number)
    # (2) their local training, the sum
    result = run_round(
        setting.program,
        weights,
        setting.samples,
        setting.parts,
        who,
        spec,
        seed=setting.config.run.seed,
        round_number=number,
        noise_multipliers=setting.noise_multipliers,
        noise=noise,
        crew=crew,
        on_bad_update=_policy(setting),
    )
    weights = result.weights
    accounts.add(result.releases)
    # (3) a look at the model
    test_loss = accuracy = math.nan
    looked = number % setting.config.run.evaluate_every == 0 or number == _rounds(setting)
    if looked:
        test_loss, accuracy = evaluate(setting.program, weights, setting.test)
    # (4) what to write down
    record = RoundRecord(
        round=number,
        train_loss=finite_or_none(result.loss) if setting.config.clip is None else None,
        test_loss=finite_or_none(test_loss),
        test_accuracy=finite_or_none(accuracy),
        participants=sorted(who.clients.tolist()),
        skipped=list(result.skipped),
        steps=result.steps,
        learning_rate=spec.learning_rate,
        spend=setting.spend(number, who),
        epsilon=accounts.largest_epsilon if looked or not accounts.is_slow else None,
        releases=[_row(release) for release in result.releases],
        seconds=round(clock() - began, 6),
    )
    return record, weights


def _policy(setting: Setting) -> BadUpdatePolicy:
    """In a private run nobody is told whose update was bad: it counts as one that changes nothing."""
    given = cast(BadUpdatePolicy, setting.config.training.on_bad_update)
    return "zero" if given == "skip" and setting.config.clip is not None else given


_Kind = tuple[float, float | None]  # noise multiplier, sampling rate


class Accounts:
    """The releases of every client of a private run; releases at equal noise are counted together."""

    def __init__(self, setting: Setting) -> None:
        self._delta = setting.config.delta
        self.is_slow = setting.config.batches == "poisson"  # some tenths of a second for each that differs
        # client -> (noise multiplier, sampling rate) -> releases
        self._times: dict[int, dict[_Kind, int]] = {}
        self._known: dict[tuple[tuple[_Kind, int], ...], float] = {}  # many clients are alike

    def add(self, releases: Iterable[Release]) -> None:
        """Write releases down."""
        for release in releases:
            mine = self._times.setdefault(release.client, {})
            kind = release.multiplier, release.rate
            mine[kind] = mine.get(kind, 0) + release.times

    def epsilon(self, client: int) -> float:
        """What the ledger says of a client; 0 if it released nothing."""
        if self._delta is None:
            return 0.0
        mine = tuple(self._times.get(client, {}).items())
        if mine not in self._known:
            ledger = Ledger(
                tuple(Release(client, 0, noise, times, rate=rate) for (noise, rate), times in mine)
            )
            self._known[mine] = ledger.epsilon(client, self._delta)
        return self._known[mine]

    @property
    def largest_epsilon(self) -> float | None:
        """Of the client that gave away most; None if the run is not private."""
        if self._delta is None:
            return None
        if self.is_slow:  # and no single number tells who gave away most
            return max(map(self.epsilon, self._times), default=0.0)
        worst = max(self._times, key=self._given_away, default=None)
        return 0.0 if worst is None else self.epsilon(worst)

    def _given_away(self, client: int) -> float:
        return sum(times / noise**2 for (noise, _), times in self._times[client].items())


def _releases(records: Sequence[JSONObject]) -> Iterator[Release]:
    for record in records:
        for client, *rest in record["releases"]:
            yield Release(client, record["round"], *rest)


def _row(release: Release) -> tuple[float | None, ...]:
    """A release as `_releases` reads it."""
    row = (release.client, release.multiplier, release.times, release.steps)
    return row if release.rate is None else (*row, release.rate)


def _as_read(record: RoundRecord) -> JSONObject:
    """As `read_rounds` would read it, but for the releases, which the accounts hold."""
    return {name: getattr(record, name) for name in RoundRecord.__slots__ if name != "releases"}


def _rounds(setting: Setting) -> int:
    return setting.config.training.rounds


def _require_same_choice(setting: Setting, start: NDArray[Any]) -> None:
    """Clients chosen by the losses of the first model are chosen again from the module at hand."""
    jsam = setting.config.jsam
    by_losses = jsam is not None and jsam.scheme == LARGEST_LOSSES
    if by_losses and not np.array_equal(start, setting.start.numpy()):
        rule = "must have the weights the run began with: clients were chosen by their losses"
        raise InvalidValue("model", rule, "others")


def summarise(setting: Setting, records: Sequence[JSONObject], accounts: Accounts) -> JSONObject:
    """What a run came to, as plain data."""
    config, last = setting.config, records[-1]
    skipped = [client for record in records for client in record["skipped"]]
    accuracies = [found for record in records if (found := record["test_accuracy"]) is not None]
    summary: JSONObject = {
        "data": config.data.name,
        "model": config.model.name,
        "parameters": setting.program.size,
        "clients": len(setting.parts),
        "rounds": len(records),
        "train_loss": last["train_loss"],
        "test_loss": last["test_loss"],
        "test_accuracy": last["test_accuracy"],
        "best_test_accuracy": max(accuracies, default=None),
        "mean_participants": sum(len(r["participants"]) for r in records) / len(records),
        "steps": sum(r["steps"] for r in records),
        "skipped_updates": len(skipped),
        "skipped_clients": sorted(set(skipped)),
        "seconds": round(sum(r["seconds"] for r in records), 3),
        "spend": None,
        "epsilon": None,
        "notes": notes(setting, records, accounts.largest_epsilon),
    }
    if config.delta is not None:
        summary |= {
            "epsilon": accounts.largest_epsilon,
            "delta": config.delta,
            "adjacency": config.adjacency,
            "epsilon_per_client": [accounts.epsilon(client) for client in range(len(setting.parts))],
        }
    if setting.terms is not None:
        summary |= {"spend": math.fsum(r["spend"] for r in records), **_agreed(setting, records, accounts)}
    return summary


def _agreed(setting: Setting, records: Sequence[JSONObject], accounts: Accounts) -> JSONObject:
    """The terms and what came of them: participations and money, or what each client sold and gave away."""
    config, terms = setting.config, setting.terms
    if isinstance(terms, SampledTerms) and config.contract is not None:
        who = [client for record in records for client in record["participants"]]
        times = np.bincount(np.array(who, dtype=np.int64), minlength=terms.costs.size)
        return {
            "scheme": config.contract.scheme,
            "expected_spend": terms.expected_spend,
            "total_budget": terms.total_budget,
            "reports": terms.costs.tolist(),  # stated to the server
            "probability": terms.probability.tolist(),
            "payment": terms.payment.tolist(),
            "participations": times.tolist(),
            "paid": (times * terms.payment).tolist(),
        }
    assert isinstance(terms, PrivacyTerms)
    assert config.jsam is not None
    plan = terms.settlement.allocation
    bought = np.flatnonzero(plan.privacy > 0).tolist()
    return {
        "scheme": config.jsam.scheme,
        "eta": plan.eta,
        "noise_scale": terms.noise_scale,
        "records_per_release": terms.records,  # of which noise_scale was made; None: it was given
        "max_epsilon": config.jsam.table()["max_epsilon"],
        "expected_spend": plan.total,  # whose mean over costs is the mean of what is paid
        "budget": config.jsam.budget,
        "expected_budget": config.jsam.expected_budget,
        "clients_selected": plan.threshold,
        "reports": terms.costs.tolist(),  # stated to the server
        "selection": plan.selection.tolist(),
        "times_drawn": terms.times_drawn.tolist(),
        "epsilon_sold": plan.privacy.tolist(),
        "payment": terms.settlement.payment.tolist(),
        "largest_epsilon_ratio": max(accounts.epsilon(k) / float(plan.privacy[k]) for k in bought),
    }


def _printed(asked: float, spent: float | None) -> str:
    """What became of a promise under the formula of the JSAM paper."""
    assert spent is not None  # the run is private
    outcome = "was broken" if spent > asked else "was kept here, with more noise than it needs"
    return (
        f"the printed calibration need not keep its promise (erratum J-13): "
        f"epsilon {asked:.4g} was asked for, {spent:.4g} was spent, so it {outcome}"
    )


def _privacy_notes(setting: Setting, terms: PrivacyTerms) -> list[str]:
    """What the user should know about the privacy that was bought."""
    warning = privacy_warning(terms.epsilon)
    found = [] if warning is None else [warning]
    averaged = {min(setting.config.training.batch_size, part.size) for part in setting.parts}
    if terms.records is not None and len(averaged) > 1:
        found.append(
            f"clients average {min(averaged)} to {max(averaged)} records per release; noise_scale is made "
            "of the fewest, so it is too large for the others"
        )
    return found


def notes(setting: Setting, records: Sequence[JSONObject], spent: float | None) -> list[str]:
    """What the user should know about the run, one sentence each; `spent` is the largest epsilon."""
    found = []
    if setting.config.noise == "reproducible":
        found.append(REPRODUCIBLE)
    if setting.config.jsam is not None and setting.config.jsam.scheme == LARGEST_LOSSES:
        found.append("local losses were asked in clear: no ledger counts them")
    if setting.config.jsam is not None and setting.config.jsam.budget is not None:
        found.append("a hard budget depends on the reports, so that exact truthfulness is lost")
    promised = setting.config.privacy
    if promised is not None and promised.calibration == "printed":
        found.append(_printed(promised.epsilon, spent))
    if promised is not None and promised.epsilon > HARDLY_A_PROMISE:
        found.append(f"an epsilon of {promised.epsilon:.4g} is hardly a promise of privacy")
    if isinstance(setting.terms, PrivacyTerms):
        found += _privacy_notes(setting, setting.terms)
    quiet = setting.config.clip is not None  # about training losses
    losses = [record["test_loss" if quiet else "train_loss"] for record in records]
    known = [loss for loss in losses if loss is not None]
    grows = bool(known) and known[-1] > known[0]
    if grows:
        grew = f"the {'test' if quiet else 'training'} loss grew from {known[0]:.4g} to {known[-1]:.4g}"
        found.append(f"{grew}: the learning rate may be too large{' for this noise' if quiet else ''}")
    last = next((r["test_loss"] for r in reversed(records) if r["test_loss"] is not None), None)
    if setting.program.loss == "cross-entropy" and last is not None and not grows:
        guess = math.log(setting.classes)
        if last > 2 * guess:
            found.append(
                f"the test loss, {last:.4g}, is above that of guessing, {guess:.4g}: "
                "the learning rate may be too large"
            )
    if any(record["participants"] for record in records) and all(
        len(record["skipped"]) == len(record["participants"]) for record in records
    ):
        found.append("all updates were left out, the model is as it began")
    if not any(record["participants"] for record in records):
        found.append("nobody took part in any round, the model is as it began: the budget buys too little")
    return found
