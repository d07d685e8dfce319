"""`bonafed audit`: try to game a mechanism, and show the lie that pays if there is one."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import typer

from bonafed import checks
from bonafed.cli import inputs, tables
from bonafed.cli.audit_faithful import faithful
from bonafed.cli.audit_jsam import jsam
from bonafed.cli.audit_report import finish
from bonafed.cli.quote import (
    Budget,
    Clients,
    Highest,
    Json,
    PastCosts,
    Plot,
    Prior,
    PriorFree,
    Rounds,
)
from bonafed.economics.audit import AuditReport, MenuLike, audit
from bonafed.errors import InvalidValue
from bonafed.files import require_picture, write_together
from bonafed.mechanisms.sampling.controls import PayAsBid
from bonafed.mechanisms.sampling.menus import optimal_menu, uniform_menu
from bonafed.mechanisms.sampling.prior_free import PriorFreeSampling
from bonafed.mechanisms.sampling.rules import audit_sequence

audit_app = typer.Typer(
    help="Try to game a mechanism, and show the lie that pays if there is one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Variant = Literal["corrected", "printed", "uniform", "pay-as-bid"]


@audit_app.callback()
def _group() -> None:
    """Try to game a mechanism, and show the lie that pays if there is one."""


@audit_app.command()
def sampling(
    clients: Clients = None,
    rounds: Rounds = None,
    budget: Budget = None,
    prior: Prior = None,
    past_costs: PastCosts = None,
    prior_free: PriorFree = False,
    highest: Highest = None,
    variant: Annotated[
        Variant,
        typer.Option(
            help="The contract to attack: corrected (what quote gives; the default), printed (the "
            "paper's formulas), uniform, or pay-as-bid, which is easy to game.",
            show_default=False,
        ),
    ] = "corrected",
    points: Annotated[
        int, typer.Option(help="Cost levels of the first sweep (401).", show_default=False)
    ] = 401,
    profiles: Annotated[
        int, typer.Option(help="With --prior-free: sequences of costs to try (10).", show_default=False)
    ] = 10,
    seed: Annotated[int, typer.Option(help="Seed of those sequences (0).", show_default=False)] = 0,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """Search for a profitable lie in client sampling, and for broken promises.

    Checks that no lie pays, that nobody loses by joining, that probabilities are probabilities and do
    not rise in the cost, and that the budget holds. Exit code 1 if a violation is found; the witness
    (true cost, lie, gain) is printed.

    Example: bonafed audit sampling --prior uniform:0.5,1.5 --clients 100 --rounds 200 --budget 10000
    """
    if plot is not None:
        require_picture(plot)
    people, turns, money = inputs.required_numbers(clients, rounds, budget)
    per_round = money / turns
    if prior_free:
        if plot is not None:
            raise InvalidValue("--plot", "must not be given with --prior-free", plot)
        name, report = _audit_prior_free(
            people,
            per_round,
            highest,
            past_costs is None and prior is None,
            variant,
            points,
            profiles,
            seed,
        )
    else:
        belief = inputs.choose_prior(prior, past_costs, highest)
        share = per_round / people
        menu: MenuLike
        if variant == "pay-as-bid":
            menu = PayAsBid(belief, share)
        elif variant == "uniform":
            menu = uniform_menu(belief, share)
        else:
            menu = optimal_menu(belief, share, variant)
        name = f"sampling contract ({variant})"
        report = audit(menu, belief.low, belief.high, budget=share, prior=belief, points=points)
        if plot is not None:
            from bonafed.lab.figures import lie_figure
            from bonafed.style import render

            levels = np.linspace(belief.low, belief.high, 241)
            figure = lie_figure(
                levels, menu.probability(levels), menu.expected_payment(levels), name,
                witness=report["truthful"].witness,
            )  # fmt: skip
            write_together({plot: render(figure, plot)})
    finish(name, report, as_json, plot)


def _audit_prior_free(
    clients: int,
    per_round: float,
    highest: float | None,
    alone: bool,
    variant: Variant,
    points: int,
    profiles: int,
    seed: int,
) -> tuple[str, AuditReport]:
    if not alone:
        raise InvalidValue("input", "must be one of --prior, --past-costs, --prior-free", "two")
    if highest is None:
        raise InvalidValue("--highest", "must be given with --prior-free", "nothing")
    if variant not in ("corrected", "printed"):
        raise InvalidValue("--variant", "must be corrected or printed with --prior-free", variant)
    rules = PriorFreeSampling(
        clients, per_round, highest, variant="printed" if variant == "printed" else "safe"
    )
    rng = np.random.default_rng(checks.seed("seed", seed))
    count = checks.whole("profiles", profiles)
    drawn = list(rng.uniform(0.0, rules.highest, (count, clients)))
    with tables.working("playing sequences"):
        report = audit_sequence(rules, drawn, points)
    return f"prior-free sampling ({variant})", report


audit_app.command()(jsam)
audit_app.command()(faithful)
