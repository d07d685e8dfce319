"""`bonafed audit jsam`: let every client lie about its cost of privacy, the others' reports given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

from bonafed import checks
from bonafed.checks import Floats
from bonafed.cli import inputs, tables
from bonafed.cli.audit_report import finish
from bonafed.cli.jsam import (
    C2,
    Delta,
    Dimension,
    MaxEpsilon,
    Records,
    Reports,
    Rounds,
    Smoothness,
    noise_scale_of,
    read_caps,
)
from bonafed.cli.quote import Json, Plot
from bonafed.economics.audit import AuditReport, Claim, RespondingLike, audit
from bonafed.economics.priors import Prior
from bonafed.economics.registry import parse_prior
from bonafed.errors import InvalidValue
from bonafed.files import require_picture, write_together
from bonafed.mechanisms.jsam import Cheapest, JsamMechanism, unbiased
from bonafed.mechanisms.jsam.controls import ClippedMechanism, PayAsBid, PrintedMechanism
from bonafed.mechanisms.jsam.training import draw_costs

Variant = Literal["corrected", "printed", "printed-integral", "usbm", "fsbm", "pay-as-bid", "clipped"]
_CAPPED = ("corrected", "usbm", "fsbm", "clipped")  # variants that can have a cap
_CLAIMS: tuple[Claim, ...] = ("truthful", "individually rational", "monotone", "feasible")
_GRID = 0.05
# With these the default profiles have thresholds from 1 to 3, and Algorithm 1 misses the optimum for some.
_ETA, _NOISE_SCALE = 1.0, 10.0
_NOTES = {
    "printed": "Algorithm 1 on a grid, with the payment formula of the exact mechanism, which takes the "
    "rent from the objective: right for an exact optimum only. With the integral of its own epsilon "
    "(--variant printed-integral) no lie pays.",
    "printed-integral": "Algorithm 1 on a grid, with the integral of its own epsilon. The plan is dearer "
    "than the exact one, but epsilon does not rise in the own report.",
    "clipped": "The optimum without a cap, cut off at --max-epsilon, with the payments of the optimum, "
    "which are for an epsilon that is not bought. The mechanism under the cap is --variant corrected.",
}


def jsam(
    prior: Annotated[
        str,
        typer.Option(
            metavar="KIND:ARGS", help=inputs.SENSITIVITY_HELP + " (uniform:0,1)", show_default=False
        ),
    ] = "uniform:0,1",
    costs: Reports = None,
    clients: Annotated[
        int | None, typer.Option(help="Instead of --reports: clients of each profile (8).")
    ] = None,
    profiles: Annotated[
        int | None, typer.Option(help="Instead of --reports: profiles drawn from the prior (5).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of these profiles (0).", show_default=False)] = 0,
    eta: Annotated[
        float, typer.Option(help="Weight of the training loss against money (1).", show_default=False)
    ] = _ETA,
    noise: Annotated[
        float | None,
        typer.Option("--noise-scale", metavar="Q", help="How much noise harms training (10); or parts:"),
    ] = None,
    delta: Delta = None,
    dimension: Dimension = None,
    rounds: Rounds = None,
    smoothness: Smoothness = None,
    records: Records = None,
    c2: C2 = None,
    max_epsilon: MaxEpsilon = None,
    variant: Annotated[
        Variant,
        typer.Option(
            help="The mechanism to attack: corrected (what jsam quote gives; the default); printed (the "
            "paper's Algorithm 1 on a grid, with the payment formula), clipped (the optimum without a cap, "
            "cut off at --max-epsilon) and pay-as-bid, which can be gamed; "
            "printed-integral (the same grid, with the integral of its own epsilon); or the baselines "
            "usbm and fsbm.",
            show_default=False,
        ),
    ] = "corrected",
    members: Annotated[
        int | None, typer.Option(metavar="M", help="With --variant fsbm: clients selected (half).")
    ] = None,
    grid: Annotated[
        float | None, typer.Option(help="With a printed variant: its step of probability (0.05).")
    ] = None,
    points: Annotated[int, typer.Option(help="Reports of the first sweep (61).", show_default=False)] = 61,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """Search for a profitable lie about the cost of privacy, and for broken promises.

    Every client of every profile of costs is let lie, the others' reports given. Checks that no lie pays
    by more than 1e-9 of the largest payment, that nobody loses by joining, and that epsilon does not rise
    in the own report. Exit code 1 if a violation is found; the witness (true cost, lie, gain) is printed.

    Example: bonafed audit jsam --prior uniform:0,1 --eta 5 --noise-scale 1
    """
    if plot is not None:
        require_picture(plot)
    weight = checks.positive("eta", eta)
    parts = (delta, dimension, rounds, smoothness, records, c2)
    given = _NOISE_SCALE if noise is None and all(part is None for part in parts) else noise
    scale = noise_scale_of(given, *parts)
    belief = parse_prior(prior)
    drawn = _profiles(belief, costs, clients, profiles, seed)
    caps = read_caps(max_epsilon, drawn[0].size)
    mechanism = _mechanism(variant, belief, weight, scale, drawn[0].size, members, grid, caps)
    with tables.working("trying lies"):
        report = audit(
            mechanism, belief.low, belief.high, profiles=drawn, claims=_CLAIMS, points=points,
            quantity_limit=np.inf if caps is None else float(np.max(caps)), unit="over the run",
        )  # fmt: skip
    name = f"privacy compensation ({variant})"
    if plot is not None:
        _draw(plot, mechanism, belief, drawn, report, name)
    finish(name, report, as_json, plot, _NOTES.get(variant))


def _profiles(
    belief: Prior, costs: Path | None, clients: int | None, profiles: int | None, seed: int
) -> list[Floats]:
    """Cost vectors to try."""
    if costs is None:
        people = checks.whole("clients", 8 if clients is None else clients)
        count = checks.whole("profiles", 5 if profiles is None else profiles)
        both = draw_costs(belief, count * people, checks.seed("seed", seed))
        return list(both.reshape(count, people))
    for name, value in (("--clients", clients), ("--profiles", profiles)):
        if value is not None:
            raise InvalidValue(name, "must not be given with --reports", value)
    return [inputs.read_costs(costs)]


def _mechanism(
    variant: Variant,
    prior: Prior,
    eta: float,
    noise_scale: float,
    clients: int,
    members: int | None,
    grid: float | None,
    caps: float | Floats | None,
) -> RespondingLike:
    if caps is not None and variant not in _CAPPED:
        raise InvalidValue("--max-epsilon", f"must not be given with --variant {variant}", caps)
    if variant == "clipped":
        if not isinstance(caps, float):
            rule = "must be one number with --variant clipped"
            raise InvalidValue("--max-epsilon", rule, "nothing" if caps is None else caps.size)
        return ClippedMechanism(prior, eta, noise_scale, caps)
    if members is not None and variant != "fsbm":
        raise InvalidValue("--members", "must not be given without --variant fsbm", members)
    if grid is not None and not variant.startswith("printed"):
        raise InvalidValue("--grid", "must not be given without --variant printed", grid)
    step = _GRID if grid is None else grid
    if variant == "printed":
        return PrintedMechanism(prior, eta, noise_scale, step, "objective")
    if variant == "printed-integral":
        return PrintedMechanism(prior, eta, noise_scale, step, "integral")
    if variant == "pay-as-bid":
        return PayAsBid(prior, eta, noise_scale)
    if variant == "usbm":
        return JsamMechanism(prior, eta, noise_scale, unbiased(clients), caps)
    if variant == "fsbm":
        chosen = max(1, clients // 2) if members is None else checks.whole("members", members)
        if chosen > clients:
            raise InvalidValue("members", f"must be at most the number of clients, {clients}", chosen)
        return JsamMechanism(prior, eta, noise_scale, Cheapest(chosen), caps)
    return JsamMechanism(prior, eta, noise_scale, max_epsilon=caps)


def _draw(
    plot: Path,
    mechanism: RespondingLike,
    prior: Prior,
    profiles: list[Floats],
    report: AuditReport,
    name: str,
) -> None:
    """The lies of the client of the witness, or of the first one."""
    from bonafed.lab.figures import lie_figure
    from bonafed.style import render

    witness = report["truthful"].witness
    found = witness is not None and witness.client is not None and witness.others is not None
    client = witness.client if witness is not None and witness.client is not None else 0
    others = np.array(witness.others) if found and witness is not None else profiles[0]
    costs = np.linspace(prior.low, prior.high, 241)
    with np.errstate(over="ignore", invalid="ignore"):  # told by the findings
        epsilon, payment = mechanism.respond(others, client, costs)
    # Who understates a high cost may lose far more than anyone is paid: not of interest.
    reach = float(payment[np.isfinite(payment)].max(initial=0.0))
    title = f"{name}, client {client}"
    figure = lie_figure(costs, epsilon, payment, title, "over the run", reach, witness)
    write_together({plot: render(figure, plot)})
