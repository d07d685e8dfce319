"""`bonafed jsam quote`: whom to select how often, whose privacy to buy, what to pay; and the baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bonafed import checks
from bonafed.checks import Floats
from bonafed.cli import inputs, jsam_tables, tables
from bonafed.cli.jsam_describe import PlanOnly, Quote, Weight, describe, describe_plan
from bonafed.cli.quote import Json, Plot
from bonafed.economics.priors import Prior
from bonafed.economics.registry import parse_prior
from bonafed.errors import InvalidValue
from bonafed.files import require_picture, write_together
from bonafed.mechanisms.jsam import (
    Admitted,
    admit,
    eta_for_budget,
    eta_for_expected_budget,
    noise_scale,
    settle,
)
from bonafed.mechanisms.jsam.capped import checked_cap
from bonafed.mechanisms.jsam.training import DRAWS, draw_costs

jsam_app = typer.Typer(
    help="Joint client selection and privacy compensation: buy privacy, and pay for it truthfully.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_GRID = 1e-4  # step of p_h in the printed algorithm

Sensitivity = Annotated[
    str | None, typer.Option("--prior", metavar="KIND:ARGS", help=inputs.SENSITIVITY_HELP)
]
Reports = Annotated[
    Path | None,
    typer.Option("--reports", metavar="FILE.csv", help="What each client states as its cost of epsilon."),
]
Eta = Annotated[float | None, typer.Option(help="Weight of the training loss against money.")]
NoiseScale = Annotated[
    float | None,
    typer.Option(
        "--noise-scale",
        metavar="Q",
        help="How much noise harms training, for the records that a release averages; or its parts:",
    ),
]
Delta = Annotated[float | None, typer.Option(help="... delta of differential privacy,")]
Dimension = Annotated[int | None, typer.Option(help="... number of parameters of the model,")]
Rounds = Annotated[
    int | None,
    typer.Option(help="... number of training rounds (times the steps of a client that is drawn),"),
]
Smoothness = Annotated[float | None, typer.Option(help="... smoothness L of the loss,")]
Records = Annotated[
    int | None, typer.Option(metavar="M", help="... records of a client that each release averages,")
]
MaxEpsilon = Annotated[
    str | None,
    typer.Option(
        "--max-epsilon",
        metavar="E",
        help="Most epsilon to buy from a client: a number, or a FILE.csv with one per client (public).",
    ),
]
C2 = Annotated[float | None, typer.Option(help="... and the constant of Lemma 1 (the square root of 2).")]


@jsam_app.callback()
def _group() -> None:
    """Joint client selection and privacy compensation: buy privacy, and pay for it truthfully."""


@jsam_app.command()
def quote(
    prior: Sensitivity = None,
    costs: Reports = None,
    clients: Annotated[
        int | None, typer.Option(help="Instead of --reports: draw so many costs from the prior.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the costs drawn, and of --expected-budget (0).", show_default=False)
    ] = 0,
    eta: Eta = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Instead of --eta: the payments for these reports stay within this sum."),
    ] = None,
    expected_budget: Annotated[
        float | None,
        typer.Option(help="Instead of --eta: the payments are this sum on average over the prior."),
    ] = None,
    noise: NoiseScale = None,
    delta: Delta = None,
    dimension: Dimension = None,
    rounds: Rounds = None,
    smoothness: Smoothness = None,
    records: Records = None,
    c2: C2 = None,
    max_epsilon: MaxEpsilon = None,
    members: Annotated[
        list[int] | None,
        typer.Option(
            metavar="M",
            help="Clients of the baselines with a fixed number, may be repeated (a half, three quarters).",
        ),
    ] = None,
    losses: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Local losses, one per client: adds the baseline BBM."),
    ] = None,
    shares: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Shares of the data, one per client: shows the plan only."),
    ] = None,
    fairness_floor: Annotated[
        float | None,
        typer.Option(help="Smallest selection probability of every client: shows the plan only."),
    ] = None,
    variant: Annotated[
        Literal["exact", "printed"],
        typer.Option(
            help="exact (the default), or printed: the plan only of the paper's Algorithm 1.",
            show_default=False,
        ),
    ] = "exact",
    grid: Annotated[
        float | None, typer.Option(help="With --variant printed: its step of probability (0.0001).")
    ] = None,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """Quote what privacy to buy from whom, and what it costs.

    For each client: the probability of being selected, the privacy budget epsilon that is bought, and
    the payment, under which stating the true cost of privacy is every client's best choice whatever
    the others state. Then the money, what is left of the training loss, and the same for the
    baselines.

    Example: bonafed jsam quote --reports sensitivities.csv --prior uniform:0,1 --eta 5 --noise-scale 1
    """
    if plot is not None:
        require_picture(plot)
    way = inputs.exactly_one(eta=eta, budget=budget, expected_budget=expected_budget)
    money = {"eta": eta, "budget": budget, "expected_budget": expected_budget}[way]
    scale = noise_scale_of(noise, delta, dimension, rounds, smoothness, records, c2)
    belief = required_prior(prior)
    reports = _reports(belief, costs, clients, seed)
    plan_only = _plan_only(shares, fairness_floor, variant, grid, reports.size)
    caps = read_caps(max_epsilon, reports.size)
    group = admit(reports, belief)
    request = Quote(belief, reports, group, scale, seed if costs is None else None, caps)
    if plan_only is not None:
        _refuse_payments(plan_only, budget, expected_budget, losses, members, max_epsilon)
        weight = Weight(checks.positive("eta", money), "given", None)
        description = describe_plan(request, weight.eta, plan_only)
    else:
        baselines = _members(members, group)
        losing = None if losses is None else _losses(losses, reports.size)
        with tables.working("looking for the weight"):
            weight = _weight(way, checks.positive(way, money), request, seed)
        settlement = settle(reports, belief, weight.eta, scale, max_epsilon=caps)
        description = describe(request, weight, settlement, baselines, losing)
    outputs: dict[Path, bytes] = {}
    if plot is not None:
        from bonafed.lab.jsam_figures import quote_figure
        from bonafed.style import render

        outputs[plot] = render(quote_figure(description), plot)
    write_together(outputs)
    if as_json:
        tables.say_json(description)
    else:
        jsam_tables.show(description, outputs)


def required_prior(prior: str | None) -> Prior:
    """--prior, which cannot be estimated from the reports: they would move their own price."""
    if prior is None:
        raise InvalidValue("--prior", "must be given", "nothing")
    return parse_prior(prior)


def noise_scale_of(
    given: float | None,
    delta: float | None,
    dimension: int | None,
    rounds: int | None,
    smoothness: float | None,
    records: int | None,
    c2: float | None,
) -> float:
    """Q, given or made of its ingredients."""
    needed = {
        "--delta": delta,
        "--dimension": dimension,
        "--rounds": rounds,
        "--smoothness": smoothness,
        "--records": records,
    }
    first = next((name for name, value in {**needed, "--c2": c2}.items() if value is not None), None)
    if given is not None:
        if first is not None:
            raise InvalidValue("--noise-scale", f"must not be given with {first}", given)
        return checks.positive("noise_scale", given)
    if first is None:
        ways = "--noise-scale, or --delta, --dimension, --rounds, --smoothness and --records"
        raise InvalidValue("input", f"must be {ways}", "none")
    for name, value in needed.items():
        if value is None:
            raise InvalidValue(name, f"must be given with {first}", "nothing")
    assert delta is not None
    assert dimension is not None
    assert rounds is not None
    assert smoothness is not None
    assert records is not None
    ingredients = (delta, dimension, rounds, smoothness, records)
    made = noise_scale(*ingredients) if c2 is None else noise_scale(*ingredients, c2)
    return checks.positive("noise_scale", made)


def read_caps(max_epsilon: str | None, clients: int) -> float | Floats | None:
    """--max-epsilon: a number, or a file with one per client."""
    if max_epsilon is None:
        return None
    try:
        one = float(max_epsilon)
    except ValueError:
        caps = inputs.read_one_per_client(Path(max_epsilon), "--max-epsilon", "max_epsilon", clients)
        return checked_cap(caps, clients)
    return checks.positive("max_epsilon", one)


def _reports(belief: Prior, costs: Path | None, clients: int | None, seed: int) -> Floats:
    if inputs.exactly_one(reports=costs, clients=clients) == "reports":
        assert costs is not None
        return inputs.read_costs(costs)
    return draw_costs(belief, checks.whole("clients", clients), checks.seed("seed", seed))


def _weight(way: str, money: float, request: Quote, seed: int) -> Weight:
    """eta, and where it comes from."""
    if way == "eta":
        return Weight(money, "given", None)
    if way == "budget":
        found = eta_for_budget(
            request.reports, request.prior, money, request.noise_scale, max_epsilon=request.max_epsilon
        )
        return Weight(found.eta, "budget", money)
    number = checks.seed("seed", seed)
    eta = eta_for_expected_budget(
        request.prior, request.reports.size, money, request.noise_scale,
        max_epsilon=request.max_epsilon, samples=DRAWS, seed=number,
    )  # fmt: skip
    return Weight(eta, "expected budget", money, DRAWS)


def _plan_only(
    shares: Path | None, floor: float | None, variant: str, grid: float | None, clients: int
) -> PlanOnly | None:
    """What is asked for beyond the mechanism with payments, if anything."""
    if grid is not None and variant != "printed":
        raise InvalidValue("--grid", "must not be given without --variant printed", grid)
    printed = variant if variant == "printed" else None
    inputs.at_most_one(shares=shares, fairness_floor=floor, variant=printed)
    if shares is not None:
        held = checks.shares("shares", inputs.read_one_per_client(shares, "--shares", "share", clients))
        return PlanOnly("shares", shares=held)
    if floor is not None:
        return PlanOnly("fairness floor", floor=checks.non_negative("fairness_floor", floor))
    if printed is not None:
        return PlanOnly("printed", grid=_GRID if grid is None else grid)
    return None


def _refuse_payments(
    plan_only: PlanOnly,
    budget: float | None,
    expected_budget: float | None,
    losses: Path | None,
    members: list[int] | None,
    max_epsilon: str | None,
) -> None:
    """Options of the mechanism with payments, where there are none."""
    given: dict[str, object] = {
        "--budget": budget,
        "--expected-budget": expected_budget,
        "--losses": losses,
        "--members": members[0] if members else None,
        "--max-epsilon": max_epsilon,
    }
    for name, value in given.items():
        if value is not None:
            rule = f"must not be given with {plan_only.option}, which has no payments"
            raise InvalidValue(name, rule, value)


def _members(members: list[int] | None, group: Admitted) -> list[int]:
    """M of the baselines that select a fixed number; in the paper 50 and 75 of 100 clients."""
    n = group.clients.size
    if not members:
        return sorted({max(1, n // 2), max(1, 3 * n // 4)})
    for m in members:
        if checks.whole("members", m) > n:
            raise InvalidValue("members", f"must be at most the number of clients admitted, {n}", m)
    return sorted(set(members))


def _losses(path: Path, clients: int) -> Floats:
    return inputs.read_one_per_client(path, "--losses", "loss", clients)
