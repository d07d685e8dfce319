"""How sampling contracts are shown: what a participant signs, what it would earn, everybody's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from bonafed.contracts.attendance import Attendance, few
from bonafed.contracts.terms import EARNINGS, Earning
from bonafed.economics.contracts import Menu
from bonafed.economics.registry import number_in_words, prior_in_words
from bonafed.mechanisms.sampling.prospects import prospect
from bonafed.mechanisms.sampling.spend import SpendDistribution
from bonafed.presentation.documents import Block, Column, Document, Draw, JSONObject, Table, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.mechanisms.sampling.benchmark import BenchmarkContract
    from bonafed.mechanisms.sampling.published import SamplingContract
    from bonafed.mechanisms.sampling.rules import PriorFreeContract

QUANTILES = (0.01, 0.5, 0.99)
_COINS = "in every round each client by a coin of its own, with the probability that its report is given; "


def contract_document(contract: SamplingContract) -> Document:
    """What a participant of a posted menu signs."""
    plan = contract.plan
    facts: JSONObject = {
        "kind": "sampling contract",
        "sha256": contract.digest,
        "clients": plan.clients,
        "rounds": plan.rounds,
        "budget": plan.total_budget,
        "confidence": plan.confidence,
        "intended_spend": plan.intended_spend,
        "decimals": plan.decimals,
        "groups": [
            {"clients": g.clients, "weight": g.weight, "prior": g.prior.to_json(), "highest": g.prior.high}
            for g in plan.groups
        ],
        "names": None if plan.names is None else list(plan.names),
        "membership": None if plan.names is None else plan.membership.tolist(),
    }
    rows = []
    for number, group in enumerate(plan.groups):
        several = f"group {number}: {counted(group.clients, 'client')} of weight {group.weight:g}, "
        words = (several if len(plan.groups) > 1 else "") + prior_in_words(group.prior)
        rows.append(("prior", f"{words}; reports above {group.prior.high:.6g} are refused"))
    if plan.names is not None:
        rows += [
            (
                f"group {number}",
                _listed([n for n, g in zip(plan.names, plan.membership, strict=True) if g == number]),
            )
            for number in range(len(plan.groups))
        ]

    def draw() -> Figure:
        from bonafed.mechanisms.sampling.figures import contract_figure

        return contract_figure(plan) if len(plan.menus) == 1 else _drawn_figure(contract)

    return _signed_document(facts, rows, contract.coin_commitment, draw, plan.attendance)


def _drawn_figure(contract: SamplingContract | BenchmarkContract) -> Figure:
    """The terms of simulated clients, drawn as the contract believes."""
    from bonafed.mechanisms.sampling.figures import terms_figure

    plan = getattr(contract, "plan", None)
    members = None if plan is None else plan.names
    names = members or tuple(map(str, range(contract.clients)))
    assert contract.question.simulate is not None  # sampling contracts hold a belief about costs
    costs = contract.question.simulate(contract.clients).tolist()
    return terms_figure(contract.terms_for(dict(zip(names, costs, strict=True))))


def rules_document(contract: PriorFreeContract) -> Document:
    """What a participant under prior-free rules signs."""
    rules = contract.rules
    own: JSONObject = {
        "highest": rules.highest,
        "initial": rules.first_clients,
        "initial_probability": rules.first_probability,
        "floor": rules.lowest_probability,
        "estimator": rules.estimator,
        "refresh": rules.refresh,
    }
    facts: JSONObject = {
        "kind": "prior-free rules",
        "sha256": contract.digest,
        "clients": rules.clients,
        "rounds": contract.rounds,
        "budget": contract.total_budget,
        "confidence": None,
        "decimals": contract.decimals,
        **own,
        "order": "SHA-256 of this contract's digest and the client's name",
        "names_are": "those the operator had listed before these rules were published",
    }
    rows = [(name.replace("_", " "), number_in_words(value)) for name, value in own.items()]
    rows.append(("approached", "in the order of " + facts["order"]))
    rows.append(("names", facts["names_are"]))

    def draw() -> Figure:
        from bonafed.mechanisms.sampling.figures import prior_free_figure

        assert contract.question.simulate is not None
        costs = contract.question.simulate(rules.clients)
        return prior_free_figure(rules, costs, rules.run(costs))

    return _signed_document(facts, rows, contract.coin_commitment, draw)


def benchmark_document(contract: BenchmarkContract) -> Document:
    """What a participant under uniform sampling or complete information signs."""
    prior = contract.prior.to_json()
    facts: JSONObject = {
        "kind": f"sampling contract ({contract.scheme})",
        "sha256": contract.digest,
        "clients": contract.clients,
        "rounds": contract.rounds,
        "budget": contract.total_budget,
        "confidence": None,
        "decimals": contract.decimals,
        "scheme": contract.scheme,
        "prior": prior,
        "highest": contract.prior.high,
    }
    terms = {
        "uniform": f"one probability for all, and {contract.prior.high:.6g} each time",
        "complete information": "everybody is paid what it states; the truth is not rewarded",
    }
    rows = [("prior", prior_in_words(contract.prior)), ("terms", terms[contract.scheme])]
    return _signed_document(
        facts, rows, contract.coin_commitment, lambda: _drawn_figure(contract), contract.attendance
    )  # fmt: skip


def _signed_document(
    facts: JSONObject,
    own: Sequence[tuple[str, str]],
    commitment: str | None,
    figure: Draw,
    attendance: Attendance | None = None,
) -> Document:
    """What every contract says, with the rows of its own kind."""
    empty = "it follows from all reports how many: settle says so"
    if attendance is not None:
        empty = f"{few(attendance.empty_rounds)} are to be expected"
    if commitment is None:
        sampled = _COINS + "nothing in this file binds the server to the coins it tosses"
    else:
        sampled = _COINS + "the server is held to a secret that it committed to"
    budget = f"{facts['budget']:,.10g} over the run"
    if facts["confidence"] is not None:
        budget += (
            f"; realised spend stays within with probability {facts['confidence']:g} at least, "
            f"expected spend {facts['intended_spend']:,.6g}"
        )
    rows = [
        ("clients", f"{facts['clients']:,}"),
        ("rounds", f"{facts['rounds']:,}"),
        ("budget", budget),
        *own,
        ("sampled", sampled),
        ("rounds without anybody", empty),
        ("paid", _rounding_in_words(facts["decimals"])),
    ]
    blocks: list[Block] = [_words(facts["kind"].capitalize(), rows)]
    if commitment is not None:
        blocks.append(f"coins   {commitment}")
    blocks.append(f"SHA-256 {facts['sha256']}")
    expected = None if attendance is None else attendance.empty_rounds
    data = {**facts, "coin_commitment": commitment, "sampled": sampled, "empty_rounds": expected}
    return Document(tuple(blocks), data, figure)


def _words(title: str, rows: Sequence[tuple[str, str]]) -> Table:
    return Table(title, (Column("", left=True), Column("", left=True)), tuple(rows))


def _rounding_in_words(decimals: int) -> str:
    return (
        "whoever is sampled and delivers, each time; after the last round everybody's sum is rounded to "
        f"{decimals} decimals, never below the costs it stated"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + more


def prospect_document(menus: Sequence[Menu], rounds: int, cost: float) -> Document:
    """What a participant of this cost would earn, in each group that it may be in."""
    prospects = [asdict(prospect(menu, rounds, cost)) for menu in menus]
    sentences = [
        f"A client of cost {mine['cost']:g}{f' in group {number}' if len(menus) > 1 else ''}: "
        + _prospect_in_words(mine)
        for number, mine in enumerate(prospects)
    ]
    earnings = [
        asdict(
            Earning(
                f"group {number}" if len(menus) > 1 else "", mine["admitted"], mine["income"],
                mine["profit"], mine["lie"], mine["gain"],
            )
        )
        for number, mine in enumerate(prospects)
    ]  # fmt: skip
    return Document(tuple(sentences), {"prospects": prospects, EARNINGS: earnings})


def _prospect_in_words(mine: JSONObject) -> str:
    if mine["lie"] is None:
        lie = "Every report gets the same terms: there is nothing to lie about."
    elif mine["gain"] > 0:
        lie = (
            f"The best lie of {mine['tries']:,} tried is to state {mine['lie']:.6g}, "
            f"which gains {mine['gain']:.3g}."
        )
    else:
        lie = (
            f"No lie gains: the best of {mine['tries']:,} tried, to state {mine['lie']:.6g}, "
            f"gains {mine['gain']:.3g}."
        )
    if not mine["admitted"]:
        return f"not admitted, it earns nothing. {lie}"
    return (
        f"in a round with probability {mine['probability']:.4f}, paid {mine['payment']:.6g} each time. "
        f"Over the run it is paid {mine['income']:,.6g} on average (sd over the coins "
        f"{mine['income_sd']:,.4g}, 1 % to 99 %: {mine['income_low']:,.6g} to {mine['income_high']:,.6g}) "
        f"and is left with {mine['profit']:,.6g} after its cost (sd {mine['profit_sd']:,.4g}). {lie}"
    )


def spend_to_json(spend: SpendDistribution, budget: float) -> JSONObject:
    """How much is spent, on average and in the tails."""
    return {
        "expected": spend.mean,
        "standard_deviation": spend.sd,
        "quantiles": {f"{p:g}": spend.quantile(p) for p in QUANTILES},
        "probability_of_exceeding_budget": spend.probability_above(budget),
        "method": spend.method,
    }


def spend_blocks(data: JSONObject) -> list[Block]:
    """What is spent on average, and how far it may stray."""
    spend, budget = data["spend"], data["budget"]
    amounts = [
        ("budget", budget),
        ("expected spend", spend["expected"]),
        ("standard deviation of realised spend", spend["standard_deviation"]),
        *((f"realised spend, {float(p):.0%} quantile", amount) for p, amount in spend["quantiles"].items()),
    ]
    risk = spend["probability_of_exceeding_budget"]
    rows = (
        *((name, f"{amount:,.2f}", f"{amount / budget:.2%}") for name, amount in amounts),
        ("probability that realised spend exceeds the budget", f"{risk:.3g}", ""),
    )
    columns = (Column("", left=True), Column("amount"), Column("of budget"))
    blocks: list[Block] = [Table("Money over the whole run", columns, rows)]
    if data.get("confidence") is not None:  # for a contract whose costs are not known yet
        blocks.append(
            "Shrunk so that realised spend stays within the budget with probability "
            f"{data['confidence']:g} or more."
        )
    return blocks
