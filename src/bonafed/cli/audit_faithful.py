"""`bonafed audit faithful`: let agents cheat, and show what that brings them with and without payments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from bonafed import checks
from bonafed.checks import finite_or_none
from bonafed.cli import tables
from bonafed.cli.audit_private import PRIVATE, audit_private
from bonafed.cli.quote import Json, Plot
from bonafed.economics.priors import JSONObject
from bonafed.errors import InvalidValue
from bonafed.files import require_picture, write_together
from bonafed.randomness import FaithfulAudit, numbered_generator

if TYPE_CHECKING:  # the mechanism and the data sets are loaded when the command runs, not for every command
    from bonafed.economics.claims import Finding
    from bonafed.learning.datasets import Dataset
    from bonafed.mechanisms.faithful.cheating import AgentData, Attempt, Case
    from bonafed.mechanisms.faithful.cheating import Variant as CheatedVariant
    from bonafed.mechanisms.faithful.cheating_claims import Collusion

Variant = Literal[
    "corrected", "left", "printed", "fedavg", "clusters", "private", "private-continued", "private-printed"
]
_AGENTS, _DELTA, _AGENT = 10, 0.5, 3
_NOTES = {
    "left": "The left rule asks a little more than the VCG payment, so understating by a few per cent "
    "gains a little; that is within what its integration error allows.",
    "printed": "The paper's step and T_2 = 20 payment steps (sign corrected) collect a part of the VCG "
    "payment only, so overstating the gradient pays.",
    "fedavg": "Plain averaging: nobody pays, and whoever overstates its gradient has the model lean "
    "towards its own data.",
    "clusters": "Measured against a model without the whole cluster, payments are below VCG and may be "
    "negative: incentives survive, budget balance does not.",
}


def faithful(
    data: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Data set, or an .npz or .csv file (digits).", show_default=False
        ),
    ] = "digits",
    samples: Annotated[
        int, typer.Option(help="Training samples, drawn at random (1200).", show_default=False)
    ] = 1200,
    side: Annotated[
        int,
        typer.Option(metavar="S", help="Images are pooled to S x S pixels (4).", show_default=False),
    ] = 4,
    agents: Annotated[
        int | None, typer.Option(metavar="K", help="Agents (10, or the owners the data names).")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="How unlike their data are: 0 alike, 1 own labels (0.5)."),
    ] = None,
    regulariser: Annotated[
        float,
        typer.Option(metavar="MU", help="mu/2 |w|^2 is added to every loss (0.003).", show_default=False),
    ] = 0.003,
    agent: Annotated[
        str | None, typer.Option(metavar="N", help="The agent that cheats, or all, one at a time (3).")
    ] = None,
    epsilon: Annotated[
        float,
        typer.Option(
            help="Certified error of training and of payments, in units of loss (0.001).",
            show_default=False,
        ),
    ] = 1e-3,
    variant: Annotated[
        Variant,
        typer.Option(
            help="The mechanism to attack: corrected (the default); left (payments by the left rule); "
            "printed (the paper's step and number of payment steps) and fedavg (no payments), which can be "
            "gamed; clusters (fewer leave-one-out models; the budget may not balance); private (with "
            "noise); or private-continued and private-printed (payments measured from the shared model), "
            "which can be gamed.",
            show_default=False,
        ),
    ] = "corrected",
    clusters: Annotated[
        int | None,
        typer.Option(metavar="L", help="With --variant clusters: how many (half the agents)."),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="With a private variant: the epsilon promised to samples (10).")
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Likewise: the delta (1e-5).")] = None,
    trials: Annotated[
        int | None, typer.Option(help="Likewise: draws of the noise that gains are averaged over (16).")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of samples, owners, noise and clusters (0).", show_default=False)
    ] = 0,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """Let agents cheat in faithful learning, and show whether it pays, here and under plain averaging.

    An agent reports multiples of its gradient (and the best multiple, by search), the opposite, zeros, old
    or noisy gradients, those of flipped labels or of another agent, or drops out; all against the gradient
    protocol. A gain counts only above what the certificate allows, twice epsilon and the integration error.
    Of the private variants gains are averaged over the noise, and counted by their lower confidence limit.
    Pairs that collude are shown too; no such mechanism promises anything against them. Checks also
    efficiency, participation and budget balance. Exit code 1 if a violation is found, with the witness.

    Example: bonafed audit faithful --delta 0.9 --plot cheating.png
    """
    if plot is not None:
        require_picture(plot)
    from bonafed.mechanisms.faithful.cheating import Terms, attack, prepare
    from bonafed.mechanisms.faithful.cheating_claims import collusion, verdicts
    from bonafed.mechanisms.faithful.clusters import random_clusters

    number = checks.seed("seed", seed)
    if clusters is not None and variant != "clusters":
        raise InvalidValue("--clusters", "must not be given without --variant clusters", clusters)
    Terms(epsilon=epsilon)  # refuses what is not an epsilon before data are read
    _require_private(variant, {"--alpha": alpha, "--beta": beta, "--trials": trials}, plot)
    with tables.working("reading data"):
        held = _holdings(data, samples, side, agents, delta, regulariser, number)
    count = int(held.owner.max()) + 1
    who = _who(agent, count)
    if variant in PRIVATE:
        audit_private(held, data, who, PRIVATE[variant], alpha, beta, trials, as_json)
        return
    groups = []
    if variant == "clusters":
        groups = random_clusters(
            count,
            max(2, count // 2) if clusters is None else clusters,
            numbered_generator(number, FaithfulAudit.CLUSTERS),
        )
    with tables.working("training by truthful reports"):
        case = prepare(held, Terms(cast("CheatedVariant", variant), epsilon, clusters=groups))
    tried, pairs = [], []
    for k in who:
        with tables.working(f"agent {k} cheats"):
            tried += attack(case, k, number)
        with tables.working(f"agent {k} looks for a partner"):
            pairs.append(collusion(case, k))
    with tables.working("checking the claims"):
        found = verdicts(case, tried)
    if plot is not None:
        _draw(plot, case, tried, variant)
    subject = f"faithful learning ({variant})"
    if as_json:
        tables.say_json(_as_json(subject, case, found, tried, pairs))
    else:
        _show(subject, data, case, found, tried, pairs, plot)
    if not all(verdict.holds for verdict in found):
        raise typer.Exit(1)


def _require_private(variant: Variant, given: Mapping[str, float | None], plot: Path | None) -> None:
    """What is for private variants goes with those, and a picture with the others."""
    for name, value in given.items():
        if value is not None and variant not in PRIVATE:
            raise InvalidValue(name, "must not be given without a private variant", value)
    if plot is not None and variant in PRIVATE:
        raise InvalidValue("--plot", "must not be given with a private variant", str(plot))


def _who(agent: str | None, count: int) -> list[int]:
    if agent is None:
        return [min(_AGENT, count - 1)]
    if agent == "all":
        return list(range(count))
    if not agent.isdecimal() or int(agent) >= count:
        raise InvalidValue("--agent", f"must be in 0..{count - 1}, or all", agent)
    return [int(agent)]


def _holdings(
    data: str,
    samples: int,
    side: int,
    agents: int | None,
    delta: float | None,
    regulariser: float,
    seed: int,
) -> AgentData:
    """Samples with their owners: those the data names, or by label as far as delta says."""
    from bonafed.learning import datasets, partition
    from bonafed.mechanisms.faithful.cheating import AgentData

    heterogeneity = checks.between("delta", _DELTA if delta is None else delta, 0.0, 1.0)
    count = checks.whole("agents", _AGENTS if agents is None else agents, at_least=2)
    mu, most = checks.positive("regulariser", regulariser), checks.whole("samples", samples, at_least=2)
    source = datasets.load(data, seed=seed)
    rows = numbered_generator(seed, FaithfulAudit.SAMPLES).permutation(source.labels.size)[:most]
    y, named = source.labels[rows], source.groups
    if named is not None and agents is None and delta is None:
        parts = partition.natural(named[rows])
    elif source.classes == 0:
        raise InvalidValue("--data", "must have classes, or owners and neither --agents nor --delta", data)
    else:
        present = np.unique(y).size
        if count < present:
            raise InvalidValue("--agents", f"must be at least the number of classes, {present}", count)
        parts = partition.typicality(
            y, count, numbered_generator(seed, FaithfulAudit.PARTITION), heterogeneity
        )
    targets = y.astype(np.int64) if source.classes else y.astype(np.float64)
    return AgentData(_features(source, rows, side), targets, partition.owners(parts), source.classes, mu)


def _features(source: Dataset, rows: NDArray[np.int64], side: int) -> checks.Floats:
    """(n, d) of some samples: pooled, with a constant, the largest row of norm 1."""
    from bonafed.learning.problems.convex import scaled_features

    if source.vocabulary:
        raise InvalidValue("--data", "must be images or numbers, not text", source.name)
    x = source.features[rows].astype(np.float64)
    if x.ndim == 4:
        n, channels, height, width = x.shape
        small = checks.whole("side", side)
        if height % small or width % small:
            raise InvalidValue("side", f"must divide {height} and {width}", small)
        x = x.reshape(n, channels, small, height // small, small, width // small).mean((3, 5))
    return scaled_features(x)[0]


def _draw(plot: Path, case: Case, tried: Sequence[Attempt], variant: str) -> None:
    """The gains of the agent that gains most, if several were tried."""
    from bonafed.lab.cheating_figure import cheating_figure
    from bonafed.mechanisms.faithful.cheating import FACTORS, gain_curve, safe_factor
    from bonafed.style import render

    agent = max(tried, key=lambda attempt: attempt.gain).agent
    high = min(FACTORS[-1], safe_factor(case.problem, agent))
    factors = np.unique(np.append(np.geomspace(FACTORS[0], high, 25), 1.0))
    with tables.working("drawing"):
        curve = gain_curve(case, agent, list(factors))
        own = [attempt for attempt in tried if attempt.agent == agent]
        figure = cheating_figure(curve, own, f"Faithful learning ({variant}), agent {agent}")
        write_together({plot: render(figure, plot)})


def _show(
    subject: str,
    data: str,
    case: Case,
    found: Sequence[Finding],
    tried: Sequence[Attempt],
    pairs: Sequence[Collusion],
    plot: Path | None,
) -> None:
    console = tables.new_console()
    claims = tables.new_table(f"Audit of {subject}", ["", "", "finding"])
    claims.columns[2].justify = "left"
    for verdict in found:
        mark = "[green]holds[/]" if verdict.holds else "[red]FAILS[/]"
        text = verdict.text if verdict.holds else f"VIOLATED, {verdict.text}"
        claims.add_row(verdict.claim, mark, text)
    console.print(claims)
    console.print(
        f"{case.problem.agents} agents, {case.holdings.owner.size:,} samples of {escape(data)}, "
        f"{case.problem.size} parameters; {case.steps} training steps. Losses and payments are in units of "
        f"loss. A gain counts above 2 epsilon = {2 * case.terms.epsilon:g} and the integration error of "
        "the payments."
    )
    if len(pairs) == 1:
        _show_attempts(console, case, tried)
    else:
        _show_best(console, case, tried, pairs)
    for pair in pairs if len(pairs) == 1 else ():
        console.print(_pair_text(pair, case.terms.variant))
    for note in _notes(case, tried):
        console.print(note, markup=False)
    if plot is not None:
        tables.say_written(console, [plot])


def _show_attempts(console: Console, case: Case, tried: Sequence[Attempt]) -> None:
    agent = tried[0].agent
    table = tables.new_table(
        f"What agent {agent} reports", ["", "loss", "payment", "gain", "pays", "FedAvg gain", "pays"]
    )
    truth, paid = case.losses[agent], case.honest[agent].amount
    table.add_row("the truth", f"{truth:.4f}", f"{paid:.4f}", "", "", "", "")
    for a in tried:
        if math.isnan(a.loss):
            table.add_row(a.name, "none", "none", "", "no", "", "no")
            continue
        unpaid = a.gain_unpaid > case.terms.epsilon
        table.add_row(
            a.name, f"{a.loss:.4f}", f"{a.payment:.4f}", _signed(a.gain), _yes(a.pays),
            _signed(a.gain_unpaid), _yes(unpaid),
        )  # fmt: skip
    console.print(table)


def _show_best(console: Console, case: Case, tried: Sequence[Attempt], pairs: Sequence[Collusion]) -> None:
    table = tables.new_table(
        "Best deviation of every agent",
        ["", "here", "gain", "allowed", "FedAvg", "gain", "best partner", "gain together"],
    )
    for pair in pairs:
        k = pair.agents[0]
        mine = [a for a in tried if a.agent == k]
        here, there = max(mine, key=lambda a: a.gain), max(mine, key=lambda a: a.gain_unpaid)
        table.add_row(
            f"agent {k}", here.name, _signed(here.gain), f"{here.allowed:.4f}", there.name,
            _signed(there.gain_unpaid), str(pair.agents[1]), _signed(pair.gain),
        )  # fmt: skip
    console.print(table)


def _pair_text(pair: Collusion, variant: str) -> str:
    first, second = pair.agents
    what = (
        f"Agents {first} and {second}, if both report {pair.factor:g} x the gradient of their joint loss,"
    )
    if pair.gain <= 0:
        return f"{what} lose {-pair.gain:.4f} together, and no other partner does better."
    if variant == "fedavg":
        return f"{what} gain {pair.gain:.4f} together."
    return (
        f"{what} gain {pair.gain:.4f} together. That breaks no claim: such payments make the lies of one "
        "agent unprofitable, not those of several."
    )


def _notes(case: Case, tried: Sequence[Attempt]) -> list[str]:
    from bonafed.mechanisms.faithful.cheating_claims import alone

    notes = [_NOTES[case.terms.variant]] if case.terms.variant in _NOTES else []
    notes += [f"Agent {a.agent}, {a.name}: {a.end}." for a in tried if a.end]
    if case.terms.variant != "fedavg":
        notes.append(
            "Silence does not pay for whoever drops the models it was sent. Should it keep the last one, "
            "it owes the payment for that (bonafed train says how much), to be secured before training."
        )
    own, k = alone(case), tried[0].agent
    joined = float(case.losses[k] + case.honest[k].amount)
    notes.append(
        "Participation is against using the others' model. Against learning alone nobody gains on its own "
        f"samples, whatever the mechanism: agent {k} has {joined:.4f} here and {own[k]:.4f} alone. What a "
        "federation adds shows on fresh samples."
    )
    return notes


def _signed(gain: float) -> str:
    return f"{round(gain, 4) + 0.0:+.4f}"  # a loss that rounds to nothing is no -0.0000


def _yes(pays: bool) -> str:
    return "[red]YES[/]" if pays else "no"


def _as_json(
    subject: str,
    case: Case,
    found: Sequence[Finding],
    tried: Sequence[Attempt],
    pairs: Sequence[Collusion],
) -> JSONObject:
    return {
        "subject": subject,
        "passed": all(verdict.holds for verdict in found),
        "agents": case.problem.agents,
        "epsilon": case.terms.epsilon,
        "training_steps": case.steps,
        "findings": [
            {
                "claim": v.claim, "holds": v.holds, "tries": v.tries, "largest": finite_or_none(v.number),
                "allowed": v.allowed, "text": v.text,
            }
            for v in found
        ],
        "truth": [
            {"agent": k, "loss": float(case.losses[k]), "payment": charge.amount}
            for k, charge in enumerate(case.honest)
        ],
        "deviations": [
            {
                "agent": a.agent, "name": a.name, "factor": a.factor, "loss": finite_or_none(a.loss),
                "payment": finite_or_none(a.payment), "gain": finite_or_none(a.gain), "allowed": a.allowed,
                "pays": a.pays, "gain_under_fedavg": finite_or_none(a.gain_unpaid),
                "pays_under_fedavg": a.gain_unpaid > case.terms.epsilon, "end": a.end or None,
            }
            for a in tried
        ],
        "pairs": [
            {
                "agents": list(c.agents), "factor": c.factor, "gain": c.gain,
                "gain_under_fedavg": c.gain_unpaid, "payments": list(c.payments),
            }
            for c in pairs
        ],
        "notes": _notes(case, tried),
    }  # fmt: skip
