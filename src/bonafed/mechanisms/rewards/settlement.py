"""The account at the end of a run: how good a model everybody was given, and whether promises held.

Nobody is owed money. These numbers say how well a federation rewarded its clients (theory D7):

    IPR_accu   share of clients whose model is at least as accurate as their standalone model
    IPR_loss   share whose loss is at most that of their standalone model; ties count as not worse in both
    rho        Pearson correlation of final accuracies with contributions; undefined, None here, when either
               is the same for all clients
    average, best   accuracy over clients
    increase   average of accuracy minus standalone accuracy

All accuracies and losses are on the test set. For rho the choice of what counts as contribution matters
much. The paper takes the standalone accuracy on the *test* set, makes the reward rates from it, and scores
the models on the same set: rho then says that the rule followed the numbers it was given, be they signal or
noise of that set. `Scores` always has both: rho with contributions measured on the test set, and on a
validation set that the scores never see.

The statement has one row per client: what it gave, at which rate it was rewarded, and how accurate its
model is alone and together. Three claims are checked:

    no worse than alone             no client's model is less accurate than the one it trains alone
    better models for more          accuracies rise with contributions: rho (theory D7)
    no cheat pays, cheats are seen  if some clients cheated (`cheats.py`)

Every method that was trained has a line in the totals, and its scores are under `facts["methods"]`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats, finite_or_none
from bonafed.economics.findings import Finding, Kind, Witness
from bonafed.economics.statement import NO_WORSE, NO_WORSE_ALONE, Statement
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Roster
from bonafed.mechanisms.rewards.cheats import (
    CheatOutcome,
    ClientResults,
    cheating_pays,
    cheats_are_seen,
    outcome,
    parse_cheat,
)
from bonafed.mechanisms.rewards.section import HONEST, REWARDS, STANDALONE, Rewards


def participation_incentive(accuracy: ArrayLike, standalone: ArrayLike) -> float:
    """IPR_accu: share of clients with accuracy >= standalone."""
    own = checks.vector("standalone", standalone, sign="any")
    return float(np.mean(checks.vector("accuracy", accuracy, sign="any", length=own.size) >= own))


def participation_incentive_by_loss(loss: ArrayLike, standalone: ArrayLike) -> float:
    """IPR_loss: share of clients with loss <= standalone."""
    own = checks.vector("standalone", standalone, sign="any")
    return float(np.mean(checks.vector("loss", loss, sign="any", length=own.size) <= own))


def correlation(accuracy: ArrayLike, contribution: ArrayLike) -> float | None:
    """rho: Pearson's; None where it is undefined, that is when either side is constant.

    Constant means equal as numbers. Values that differ in the last digit only are not repaired: they have a
    correlation, and it is noise.
    """
    x = checks.vector("accuracy", accuracy, sign="any")
    y = checks.vector("contribution", contribution, sign="any", length=x.size)
    if (x == x[0]).all() or (y == y[0]).all():
        return None
    # Scaled first: squares of tiny differences must not vanish.
    a, b = (v / np.abs(v).max() for v in (x - x.mean(), y - y.mean()))
    return float(np.clip(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)), -1.0, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What was measured at the end of one run: all on the test set but the last field."""

    accuracy: Floats  # (N,) of the models clients end up with
    loss: Floats  # (N,)
    standalone_accuracy: Floats  # (N,) of models trained alone, with as many local steps
    standalone_loss: Floats  # (N,)
    validation_accuracy: Floats  # (N,) of the standalone models, on data the scores never see

    def __post_init__(self) -> None:
        n = checks.vector("accuracy", self.accuracy).size
        for name in self.__dataclass_fields__:
            value = checks.vector(name, getattr(self, name), sign="any", length=n)
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Scores:
    """The metrics of one run."""

    ipr_accuracy: float  # IPR_accu, in [0, 1]
    ipr_loss: float  # IPR_loss, in [0, 1]
    rho_test: (
        float | None
    )  # contributions: standalone accuracy on the test set, as in the paper; None: undefined
    rho_validation: float | None  # the same on a validation set; None: undefined, as above
    average: float  # accuracy
    best: float  # accuracy
    increase: float  # mean accuracy above standalone


def scores(run: Evaluation) -> Scores:
    """All metrics of a run, with rho by both ways to measure contribution."""
    return Scores(
        ipr_accuracy=participation_incentive(run.accuracy, run.standalone_accuracy),
        ipr_loss=participation_incentive_by_loss(run.loss, run.standalone_loss),
        rho_test=correlation(run.accuracy, run.standalone_accuracy),
        rho_validation=correlation(run.accuracy, run.validation_accuracy),
        average=float(run.accuracy.mean()),
        best=float(run.accuracy.max()),
        increase=float((run.accuracy - run.standalone_accuracy).mean()),
    )


class Summary(NamedTuple):
    """A metric over seeds."""

    mean: float | None  # over the seeds where it is defined; None if there is none
    error: float | None  # standard error of the mean; None with fewer than two such seeds
    defined: int  # seeds in which the metric has a value
    seeds: int  # all

    def __str__(self) -> str:
        if self.mean is None:
            return "undefined"
        text = f"{self.mean:.3f}" + ("" if self.error is None else f" +- {self.error:.3f}")
        return text if self.defined == self.seeds else f"{text} (defined in {self.defined} of {self.seeds})"


def summarise(runs: Sequence[Scores]) -> dict[str, Summary]:
    """Each metric's mean and standard error over the seeds in which it is defined."""
    if not runs:
        raise InvalidValue("runs", "must not be empty", "0 runs")
    summaries = {}
    for name in Scores.__dataclass_fields__:
        values = [value for run in runs if (value := getattr(run, name)) is not None]
        mean = float(np.mean(values)) if values else None
        error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
        summaries[name] = Summary(mean, error, len(values), len(runs))
    return summaries


MORE_FOR_MORE = "better models for more contribution"
TITLES: Mapping[str, str] = {
    "rewards": "model rewards",
    "honest": "all honest",
    "fedavg-ft": "FedAvg, fine-tuned",
    "lg-fedavg": "LG-FedAvg",
    "cgsv": "CGSV",
    "rank": "Rank",
}
Phases = Mapping[str, Mapping[str, NDArray[Any]]]


def settlement(section: Rewards, members: Roster, phases: Phases, samples: tuple[int, int]) -> Statement:
    """The statement of all phases; `samples` are the numbers of test and of validation samples."""
    alone, own, names = phases[STANDALONE], phases[REWARDS], members.names
    methods = {
        phase: scores(
            Evaluation(
                vectors["accuracy"], vectors["loss"], alone["accuracy"], alone["loss"], alone["validation"]
            )
        )
        for phase, vectors in phases.items()
        if phase != STANDALONE
    }
    cheats = _cheats(section, names, phases)
    scored = methods[REWARDS]
    findings = [no_worse_alone(names, own["accuracy"], alone["accuracy"]), _more_for_more(section, scored)]
    if cheats:
        findings += [cheating_pays(cheats, samples[0]), cheats_are_seen(cheats, section.measured)]
    return Statement(
        REWARDS,
        names,
        (0,) * len(names),
        columns={
            "samples": members.sizes.tolist(),
            "contribution": own["contribution"].tolist(),
            "reward_rate": [finite_or_none(rate) for rate in own["rate"].tolist()],
            "standalone_accuracy": alone["accuracy"].tolist(),
            "accuracy": own["accuracy"].tolist(),
            NO_WORSE: (own["accuracy"] >= alone["accuracy"]).tolist(),
        },
        forms={
            "samples": ",",
            "contribution": ".4g",
            "reward_rate": ".3f",
            "standalone_accuracy": ".2%",
            "accuracy": ".2%",
        },
        totals={
            "alone": f"mean accuracy {alone['accuracy'].mean():.2%}",
            **{TITLES[phase]: line(result) for phase, result in methods.items()},
        },
        findings=tuple(findings),
        notes=tuple(_notes(section)),
        facts={
            "measure": section.measure,
            "test_samples": samples[0],
            "validation_samples": samples[1],
            "test_accuracy": float(own["accuracy"].mean()),
            "standalone_accuracy": float(alone["accuracy"].mean()),
            "accuracies": {phase: vectors["accuracy"].tolist() for phase, vectors in phases.items()},
            "methods": {phase: asdict(result) for phase, result in methods.items()},
            "cheats": [cheat.to_json() for cheat in cheats],
        },
        figure_column="accuracy",
    )


def line(result: Scores) -> str:
    """The scores of a method in a line."""
    return (
        f"mean accuracy {result.average:.2%}, best {result.best:.2%}; no worse off "
        f"{result.ipr_accuracy:.2f} (by loss {result.ipr_loss:.2f}); rho {rho(result.rho_test)} "
        f"(validation {rho(result.rho_validation)})"
    )


def rho(value: float | None) -> str:
    """A correlation, if there is one."""
    return "undefined" if value is None else f"{value:.3f}"


def no_worse_alone(names: Sequence[str], accuracy: NDArray[Any], alone: NDArray[Any]) -> Finding:
    """Whether nobody's model is worse than the one it trains alone; whoever has the same is not worse."""
    loss = alone - accuracy
    fine = int((loss <= 0).sum())
    text = f"{fine} of {len(names)} clients have a model at least as accurate as their own"
    if fine == len(names):
        return Finding(
            NO_WORSE_ALONE, True, text, float(loss.max()), kind=Kind.PARTICIPATION, unit="accuracy"
        )
    worst = int(loss.argmax())
    case = f"client {names[worst]}: {accuracy[worst]:.2%}, alone {alone[worst]:.2%}"
    witness = Witness(case, gain=float(loss[worst]), client=worst)
    return Finding(
        NO_WORSE_ALONE, False, f"{text}; not {case}", float(loss[worst]), witness,
        kind=Kind.PARTICIPATION, unit="accuracy",
    )  # fmt: skip


def _more_for_more(section: Rewards, result: Scores) -> Finding:
    text = (
        f"rho {rho(result.rho_test)} with accuracies alone, {rho(result.rho_validation)} with those on the "
    )
    text += "validation samples"
    if section.sharing == 1:
        text = "sharing = 1 gives everybody everything; " + text
        return Finding(MORE_FOR_MORE, None, text, kind=Kind.MODEL)
    if result.rho_validation is None:
        return Finding(MORE_FOR_MORE, None, text, kind=Kind.MODEL)
    found = result.rho_validation
    return Finding(MORE_FOR_MORE, found > 0, text, found, kind=Kind.MODEL)


def _cheats(section: Rewards, names: Sequence[str], phases: Phases) -> list[CheatOutcome]:
    """What every cheat did to the client that tried it, beside the same federation with all honest."""
    if not section.agents:
        return []
    now, honest = (
        ClientResults(*(phases[phase][name] for name in ("accuracy", "rate", "share")))
        for phase in (REWARDS, HONEST)
    )
    alone = phases[STANDALONE]["accuracy"]
    return [
        outcome(names, names[parse_cheat("agents", text).number], text.split(" ", 1)[1], now, honest, alone)
        for text in section.agents
    ]


def _notes(section: Rewards) -> list[str]:
    notes = []
    if section.recovery == 0:
        notes.append(
            "without recovery every model drifts in a long run towards the optimum of its client's own "
            "data; recovery = 0.01 brings the models back"
        )
    if section.measure == "standalone":
        notes.append(
            "contributions are standalone accuracies on the test set, as in the paper; the models are "
            "judged on the same samples, which raises rho (test). rho (validation) is free of that effect"
        )
    if section.agents:
        notes.append("not following the protocol: clients " + ", ".join(section.agents))
    return notes
