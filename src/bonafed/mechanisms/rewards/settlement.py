"""The account at the end of a run of model rewards: nobody is owed money, everybody was given a model.

One row per client: what it gave, at which rate it was rewarded, and how accurate its model is alone and
together. Three claims are checked:

    no worse than alone             no client's model is less accurate than the one it trains alone
    better models for more          accuracies rise with contributions: rho (theory D7)
    no cheat pays, cheats are seen  if some clients cheated (`cheats.py`)

Every method that was trained has a line in the totals, and its scores are under `facts["methods"]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from numpy.typing import NDArray

from bonafed.checks import finite_or_none
from bonafed.economics.claims import NO_WORSE, NO_WORSE_ALONE, Finding, Kind, Statement, Witness
from bonafed.learning.federation import Roster
from bonafed.mechanisms.rewards.cheats import (
    CheatOutcome,
    Standing,
    cheating_pays,
    cheats_are_seen,
    outcome,
    parse_cheat,
)
from bonafed.mechanisms.rewards.metrics import Evaluation, Scores, scores
from bonafed.mechanisms.rewards.section import HONEST, REWARDS, STANDALONE, Rewards

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
    mine = methods[REWARDS]
    findings = [no_worse_alone(names, own["accuracy"], alone["accuracy"]), _more_for_more(section, mine)]
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
        Standing(*(phases[phase][name] for name in ("accuracy", "rate", "share")))
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
