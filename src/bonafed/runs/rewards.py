"""A run of model rewards: standalone models, the federation, and every baseline asked for.

Methods are trained one after the other; their rounds are numbered through. What passes from round to round
is one frozen state, and what a finished method came to is a few vectors, so a checkpoint holds both, and a
run that was stopped in any method ends with the same digits as one that was not.

Standalone comes first: with `measure = "standalone"` its accuracies are the contributions. As in the paper
they are measured on the test set, on which the models are judged as well; rho is therefore shown a second
time with accuracies on the validation set (theory D7).
"""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bonafed.checks import Floats, finite_or_none
from bonafed.learning.engine.programs import architecture, saved_model
from bonafed.learning.evaluate import evaluate_models
from bonafed.mechanisms.rewards import BaselineState, RewardsState
from bonafed.mechanisms.rewards.cheats import Standing, contribution_shares, parse_cheat, report
from bonafed.mechanisms.rewards.history import Models
from bonafed.mechanisms.rewards.metrics import Evaluation, scores
from bonafed.mechanisms.rewards.server import Bools
from bonafed.runs import folder as folders
from bonafed.runs.folder import Clock, JSONObject, Log, OnRound, RoundRecord
from bonafed.runs.rewards_setting import RewardsSetting
from bonafed.runs.versions import begin_or_resume

Vectors = dict[str, NDArray[Any]]  # of one method, by name
Found = dict[str, Vectors]  # by method
CLIENTS = "clients.npz"  # every client's final model


@dataclass(frozen=True, slots=True)
class RewardsRecord(RoundRecord):
    """A line of metrics.jsonl; accuracy and loss are means over the clients' models."""

    method: str = ""


def train_rewards(
    setting: RewardsSetting,
    folder: Path | str,
    *,
    resume: bool = False,
    on_round: OnRound | None = None,
    clock: Clock = time.perf_counter,
) -> JSONObject:
    """Train everything in a new folder, or go on with the run in it; the summary."""
    config, folder = setting.config, Path(folder)
    with Log(folder, new=not resume) as log, setting.local.crew:
        start, _ = begin_or_resume(
            log, folder, config, setting.digest, resume, setting.start, architecture(setting.module)
        )
        last = folders.read_checkpoint(folder) if resume else None
        log.cut(last.metrics_length if last else 0)
        found, inside = _from_checkpoint(last.more) if last else ({}, {})
        done = last.round if last else 0
        writer = _Writer(setting, log, done, found, on_round, clock)
        for method in config.methods:
            if method not in found:
                found[method] = _train(setting, method, start, found, inside, writer)
                writer.checkpoint({})
                inside = {}
        lines = folders.read_rounds(folder)
        summary = _summarise(setting, found, lines)
        models = {name: vectors["models"] for name, vectors in found.items() if "models" in vectors}
        folders.write(folder / CLIENTS, _npz(models))
        reference = torch.from_numpy(np.array(found["rewards"]["reference"]))
        log.finish(saved_model(setting.module, reference), summary)
    return summary


def _train(
    setting: RewardsSetting, method: str, start: Models, found: Found, inside: Vectors, writer: _Writer
) -> Vectors:
    """One method to its end, from a model for everybody; what is kept of it."""
    alone = found["standalone"]["accuracy"] if found else None
    rules, local = setting.method(method, alone), setting.uploads(method)
    state: RewardsState | BaselineState
    kind = RewardsState if method in ("rewards", "honest") else BaselineState
    state = kind.from_arrays(inside) if inside else rules.begin(start)
    for _ in range(state.round_number, setting.config.training.rounds):
        state = rules.advance(state, local)
        present = (
            state.present[-1] if isinstance(state, RewardsState) else rules.present(state.round_number)
        )
        writer.round(method, state, present)
    models = rules.finish(state, setting.local)  # fine-tuning is at home, where nobody is cheated
    judged = evaluate_models(setting.program, models, setting.test, cores=setting.config.run.cores_here)
    kept: Vectors = {"accuracy": judged.accuracy, "loss": judged.loss}
    if method == "standalone":
        kept["validation"] = setting.score(models)
    if isinstance(state, RewardsState):
        kept["contribution"] = _last(state.contributions)
        kept["share"] = contribution_shares(state)
        kept["rate"] = state.average_rates
        kept["reference"] = state.reference
    if method == "rewards":
        kept["models"] = models
    return kept


def _last(contributions: Floats) -> Floats:
    """(N,) as measured in the last round that somebody attended; measures look back at all before."""
    return np.asarray(contributions[np.isfinite(contributions).all(1)][-1])


def _from_checkpoint(more: Mapping[str, NDArray[Any]]) -> tuple[Found, Vectors]:
    """Finished methods, and the state of the one that was being trained."""
    found: Found = {}
    inside: Vectors = {}
    for name, values in more.items():
        place, _, entry = name.partition("/")
        if place == "state":
            inside[entry] = values
        else:
            found.setdefault(place, {})[entry] = values
    return found, inside


class _Writer:
    """Writes down every round; a checkpoint every so often."""

    def __init__(
        self,
        setting: RewardsSetting,
        log: Log,
        done: int,
        found: Found,
        on_round: OnRound | None,
        clock: Clock,
    ) -> None:
        self._setting, self._log, self._done, self._found = setting, log, done, found
        self._on_round, self._clock, self._last = on_round, clock, clock()

    def round(self, method: str, state: RewardsState | BaselineState, present: Bools) -> None:
        """After a round of a method."""
        setting, inside = self._setting, state.round_number
        self._done += 1
        run, rounds = setting.config.run, setting.config.training.rounds
        loss = accuracy = None
        if inside % run.evaluate_every == 0 or inside == rounds:
            judged = evaluate_models(setting.program, state.models, setting.test, cores=run.cores_here)
            loss, accuracy = (finite_or_none(float(values.mean())) for values in judged)
        now = self._clock()
        steps = [setting.config.training.local_steps(int(size)) for size in setting.sizes[present]]
        rate = setting.local.spec.learning_rate * setting.local.decay ** (inside - 1)
        record = RewardsRecord(
            round=self._done,
            train_loss=None,
            test_loss=loss,
            test_accuracy=accuracy,
            participants=np.flatnonzero(present).tolist(),
            skipped=[],
            steps=sum(steps),
            learning_rate=rate,
            spend=None,
            epsilon=None,
            releases=[],
            seconds=round(now - self._last, 6),
            method=method,
        )
        self._last = now
        self._log.append(record)
        if inside % run.checkpoint_every == 0 and inside < rounds:
            self.checkpoint(state.arrays())
        if self._on_round is not None:
            self._on_round(record)

    def checkpoint(self, state: Mapping[str, NDArray[Any]]) -> None:
        """What is finished, and the state of what is not."""
        more = {f"{name}/{k}": v for name, kept in self._found.items() for k, v in kept.items()}
        more |= {f"state/{k}": v for k, v in state.items()}
        self._log.checkpoint(self._done, np.empty(0, dtype=np.float32), more)


def _summarise(setting: RewardsSetting, found: Found, lines: list[JSONObject]) -> JSONObject:
    config, own = setting.config, found["rewards"]
    alone = found["standalone"]
    evaluations = {
        name: Evaluation(
            vectors["accuracy"], vectors["loss"], alone["accuracy"], alone["loss"], alone["validation"]
        )
        for name, vectors in found.items()
        if name != "standalone"
    }
    return {
        "mechanism": config.scheme,
        "data": config.data.name,
        "model": config.model.name,
        "parameters": setting.program.size,
        "clients": setting.clients,
        "rounds": config.training.rounds,
        "measure": config.rewards.measure,
        "test_samples": len(setting.test.labels),
        "validation_samples": len(setting.validation.labels),
        "test_accuracy": float(own["accuracy"].mean()),
        "standalone_accuracy": float(alone["accuracy"].mean()),
        "methods": {name: asdict(scores(run)) for name, run in evaluations.items()},
        "per_client": [
            {
                "client": k,
                "samples": int(setting.sizes[k]),
                "contribution": float(own["contribution"][k]),
                "reward_rate": finite_or_none(own["rate"][k]),
                "standalone_accuracy": float(alone["accuracy"][k]),
                "accuracy": float(own["accuracy"][k]),
                "joining_pays": bool(own["accuracy"][k] >= alone["accuracy"][k]),
            }
            for k in range(setting.clients)
        ],
        "cheats": _cheats(setting, found),
        "seconds": round(sum(line["seconds"] for line in lines), 3),
        "notes": _notes(setting),
    }


def _cheats(setting: RewardsSetting, found: Found) -> list[JSONObject]:
    """What every cheat did to the client that tried it, beside the same federation with all honest."""

    def standing(method: str) -> Standing:
        return Standing(*(found[method][name] for name in ("accuracy", "rate", "share")))

    rows = []
    for text in setting.config.rewards.agents:
        client, what = parse_cheat("agents", text).number, text.split(" ", 1)[1]
        alone = found["standalone"]["accuracy"]
        row = asdict(report(client, what, standing("rewards"), standing("honest"), alone))
        rates = {key: finite_or_none(row[key]) for key in ("reward_rate", "honest_reward_rate")}
        rows.append(row | rates)
    return rows


def _notes(setting: RewardsSetting) -> list[str]:
    given = setting.config.rewards
    found = []
    if given.recovery == 0:
        found.append(
            "without recovery every model drifts towards the optimum of its client's own data in a long "
            "run; recovery = 0.01 brings them back"
        )
    if given.measure == "standalone":
        found.append(
            "contributions are standalone accuracies on the test set, as in the paper; the models are "
            "judged on the same samples, which raises rho (test). rho (validation) has it without that"
        )
    if given.agents:
        found.append("not following the protocol: clients " + ", ".join(given.agents))
    return found


def _npz(arrays: Mapping[str, Models | Floats]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: np.asarray(values) for name, values in arrays.items()})
    return buffer.getvalue()
