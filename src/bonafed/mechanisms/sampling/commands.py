"""`bonafed quote sampling` and `bonafed audit sampling`: options, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.attendance import FEW, Attendance, empty_in_words, few, unheld_in_words
from bonafed.contracts.canonical import coin_commitment
from bonafed.economics import registry
from bonafed.economics.audit import AuditReport, MenuLike, audit
from bonafed.economics.contracts import Menu, admitted
from bonafed.economics.discrete import Empirical, FinitePrior
from bonafed.economics.findings import findings_table
from bonafed.economics.money import DECIMALS, decimals
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue, MissingValue
from bonafed.mechanisms.protocol import Command
from bonafed.mechanisms.sampling.controls import PayAsBid
from bonafed.mechanisms.sampling.menus import optimal_menu, uniform_menu
from bonafed.mechanisms.sampling.plan import SamplingPlan, benchmarks, plan
from bonafed.mechanisms.sampling.prior_free import PriorFreeRun, PriorFreeSampling, PriorFreeState
from bonafed.mechanisms.sampling.published import SamplingContract
from bonafed.mechanisms.sampling.report import spend_blocks, spend_to_json
from bonafed.mechanisms.sampling.rules import PriorFreeContract, audit_sequence
from bonafed.mechanisms.sampling.spend import known_lotteries, spend_distribution
from bonafed.presentation.documents import (
    Block,
    Cell,
    Column,
    Document,
    JSONObject,
    Sketch,
    SketchCurve,
    Table,
    counted,
)
from bonafed.reports import read_costs
from bonafed.sections import Section, flag, key, one_of, word

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 11  # cost levels shown where the user names none
_TIMES = (2, 4, 8, 16, 32, 64)  # of the budget
_CASES = {
    1: "no cost is low enough to be in every round",
    2: "costs up to {threshold:.4g} are in every round",
    3: "the budget pays for everybody in every round",
}
Variant = Literal["corrected", "printed", "uniform", "pay-as-bid"]
PRIOR_HELP = "What you believe about a client's cost per participation: " + registry.PRIOR_FORMS


def _levels(name: str, value: object) -> tuple[float, ...]:
    """Numbers, or a text of them with commas."""
    numbers = registry.parse_numbers(name, value) if isinstance(value, str) else value
    return tuple(checks.vector(name, numbers).tolist())  # type: ignore[arg-type]  # refused by it


def _commitment(name: str, value: object) -> str:
    return coin_commitment(value)


@dataclass(frozen=True)
class _Belief(Section):
    """Whom the contract is for, and what is believed about their costs."""

    clients: int = key(checks.whole, help="Number of clients.")
    rounds: int = key(checks.whole, help="Number of training rounds.")
    budget: float = key(checks.positive, help="Money for the whole run.")
    prior: Prior | None = key(registry.prior, None, help=PRIOR_HELP, metavar="KIND:ARGS")
    past_costs: str | None = key(
        word,
        None,
        help="Past costs to estimate the prior from; not these clients' own reports.",
        metavar="FILE.csv",
    )
    prior_free: bool = key(flag, False, help="Assume nothing but the highest cost (--highest).")
    highest: float | None = key(
        checks.positive,
        None,
        help="Highest cost admitted; with --past-costs, the largest in the file by default.",
    )

    def _agree(self) -> None:
        if self.prior_free and self.past_costs is not None:
            rule = "must not be given with --prior-free; use --reports for what the clients state"
            raise InvalidValue("past_costs", rule, self.past_costs)
        ways = [self.prior is not None, self.past_costs is not None, self.prior_free]
        if sum(ways) != 1:
            count = {0: "none", 2: "two", 3: "three"}[sum(ways)]
            raise InvalidValue("input", "must be one of --prior, --past-costs, --prior-free", count)
        if self.prior is not None and self.highest is not None:
            raise InvalidValue("highest", "must not be given with --prior", self.highest)
        if self.prior_free and self.highest is None:
            raise MissingValue("highest", "is required with --prior-free")

    def belief(self) -> Prior:
        """The prior, given or estimated from past costs (theory A6, "plus")."""
        if self.prior is not None:
            return self.prior
        assert self.past_costs is not None  # one of the two: the third way has no prior
        costs = read_costs(Path(self.past_costs))
        return Empirical(costs, float(costs.max()) if self.highest is None else self.highest)

    def rules(self, variant: Literal["safe", "printed"] = "safe") -> PriorFreeSampling:
        """Of prior-free sampling."""
        assert self.highest is not None
        return PriorFreeSampling(self.clients, self.budget / self.rounds, self.highest, variant=variant)


@dataclass(frozen=True)
class QuoteOptions(_Belief):
    """Options of `bonafed quote sampling`."""

    at: Sequence[float] | None = key(
        _levels, None, help="Cost levels to show the terms for.", metavar="C,C,..."
    )
    confidence: float | None = key(
        checks.number,
        None,
        help="Shrink the contract until realised (not only expected) spend stays within the budget with "
        "this probability.",
    )
    decimals: int = key(decimals, DECIMALS, help="Decimals of the amounts paid.")
    reports: str | None = key(
        word,
        None,
        help="With --prior-free: what clients state, for the illustration.",
        metavar="FILE.csv",
    )
    seed: int = key(checks.seed, 0, help="Seed of the illustration with --prior-free.")
    coins: str | None = key(
        _commitment, None, help="SHA-256 of the secret that decides who is sampled.", metavar="HEX"
    )

    def _agree(self) -> None:
        super()._agree()
        if self.prior_free and self.confidence is not None:
            raise InvalidValue("confidence", "must not be given with --prior-free", self.confidence)
        if not self.prior_free and self.reports is not None:
            rule = "requires --prior-free; see also bonafed settle"
            raise InvalidValue("reports", rule, self.reports)


def quote(options: QuoteOptions) -> Document:
    """The contract to publish, what it costs, and what it buys."""
    return _quote_prior_free(options) if options.prior_free else _quote_contract(options)


def _quote_contract(options: QuoteOptions) -> Document:
    belief = options.belief()
    contract = plan(
        belief, options.budget, options.clients, options.rounds,
        confidence=options.confidence, decimals=options.decimals,
    )  # fmt: skip
    costs = _shown_levels(contract.menu) if options.at is None else admitted(options.at, belief.high)
    data = describe(contract, costs)

    def draw() -> Figure:
        from bonafed.mechanisms.sampling.figures import contract_figure

        return contract_figure(contract)

    published = SamplingContract.of(contract)
    if options.coins is not None:
        published = published.with_coins(options.coins)
    blocks = _quote_blocks(contract, data, estimated=options.past_costs is not None)
    return Document(tuple(blocks), data, draw, {"contract": published.content})


def _quote_blocks(contract: SamplingPlan, data: JSONObject, estimated: bool) -> list[Block]:
    highest = contract.menu.prior.high
    blocks: list[Block] = [
        f"Truthful sampling contract: {counted(contract.clients, 'client')}, "
        f"{counted(contract.rounds, 'round')}, budget "
        f"{contract.total_budget:,.10g}; {_CASES[data['case']].format(**data)}."
    ]
    if estimated:
        blocks.append(
            f"Prior estimated from {data['past_costs']:,} past costs; highest cost admitted "
            f"{highest:.6g} (set it with --highest; otherwise the largest of the file)."
        )
    for left, right, value in [] if estimated else data["ironed_intervals"]:
        blocks.append(
            f"Costs from {left:.4g} to {right:.4g} share one price: the prior is irregular there "
            f"and is ironed (virtual cost {value:.4g})."
        )
    names = ("cost", "probability", "payment", "expected per round", "profit per round")
    rows = tuple(tuple(row.values()) for row in data["terms"])
    blocks.append(Table("Terms to publish", tuple(Column(name, ".4f") for name in names), rows))
    if contract.menu.prior.low < highest:
        blocks.append(_sketch(contract.menu))
    blocks += spend_blocks(data)
    blocks += [_empty_rounds(data), *unheld_in_words(data["secure_sums"], contract.rounds)]
    same = "expected spend" if contract.confidence is not None else "budget"
    blocks.append(_benchmarks_table(f"What the same {same} buys", data["benchmarks"]))
    blocks.append(
        "probability: of being sampled in a round; payment: per participation, the sum over the run "
        f"rounded to {contract.decimals} decimals; a report above {highest:.6g} is refused. Figures "
        "rounded for display; --save keeps all digits."
    )
    return blocks


def _empty_rounds(data: JSONObject) -> str:
    """How many rounds will have nobody in them, and what to change."""
    empty, rounds = data["empty_rounds"], data["rounds"]
    text, richer = empty_in_words(empty["expected"], rounds), empty["with_more_money"]
    if richer is None:
        return text
    words = (
        f"{text} They leave the model as it was. With {richer['times']:,} times the budget "
        f"{few(richer['expected'])} of {rounds:,} are empty"
    )
    if shorter := rounds // richer["times"]:
        fewer = few(richer["expected"] / rounds * shorter)
        words += f"; with the same budget for {counted(shorter, 'round')}, {fewer} of {shorter:,}"
    return words + "."


def _empty(contract: SamplingPlan) -> JSONObject:
    """Rounds without anybody, on average over costs and coins; where they are many, with more money too.

    So many times the budget, or the same for so many times fewer rounds, is the same money for a round.
    """
    expected, rounds = contract.attendance.empty_rounds, contract.rounds
    found: JSONObject = {"expected": expected, "with_more_money": None}
    if expected <= FEW * rounds or len(contract.groups) > 1:
        return found
    prior, clients, money = contract.menu.prior, contract.clients, contract.expected_spend
    for times in _TIMES:
        richer = plan(prior, times * money, clients, rounds).attendance.empty_rounds
        found["with_more_money"] = {"times": times, "expected": richer}
        if richer <= FEW * rounds:
            break
    return found


def _sketch(menu: Menu) -> Sketch:
    """Probability and payment over the cost, for a look at them in a terminal."""
    costs = np.linspace(menu.prior.low, menu.prior.high, 400)
    q, r = menu.price(costs)
    low = float(min(r.min(), costs[0]))
    return Sketch(
        "cost",
        costs.tolist(),
        (
            SketchCurve("probability of being sampled (left scale)", q.tolist(), 0.0, 1.0),
            SketchCurve("payment per participation (right scale)", r.tolist(), low, float(menu.prior.high)),
        ),
    )


def _benchmarks_table(title: str, rows: list[JSONObject]) -> Table:
    uniform = rows[1]["mean_inverse_probability"]
    columns = (
        Column("", left=True),
        Column("mean probability", ".4f"),
        Column("mean 1/probability", ".4f"),
        Column("sampling error against uniform", "+.1%"),
    )
    cells = tuple(
        (
            row["name"],
            row["mean_probability"],
            row["mean_inverse_probability"],
            row["mean_inverse_probability"] / uniform - 1,
        )
        for row in rows
    )
    return Table(title, columns, cells)


def _shown_levels(menu: Menu) -> Floats:
    """Cost levels worth a row: all of a short menu, else evenly spread ones."""
    costs = menu.prior.costs if isinstance(menu.prior, FinitePrior) else None
    if costs is not None and costs.size <= 2 * _ROWS:
        return costs
    if costs is not None:
        return np.asarray(costs[np.unique(np.linspace(0, costs.size - 1, _ROWS).round().astype(int))])
    return np.linspace(menu.prior.low, menu.prior.high, _ROWS)


def describe(contract: SamplingPlan, levels: Floats) -> JSONObject:
    """Everything a quote says, as plain data."""
    menu = contract.menu
    q, r = menu.price(levels)
    return {
        "clients": contract.clients,
        "rounds": contract.rounds,
        "budget": contract.total_budget,
        "confidence": contract.confidence,
        "decimals": contract.decimals,
        "prior": menu.prior.to_json(),
        "past_costs": menu.prior.samples.size if isinstance(menu.prior, Empirical) else None,
        "case": menu.case,
        "threshold": menu.threshold,
        "ironed_intervals": [list(pool) for pool in menu.prior.ironed_intervals],
        "terms": [
            {
                "cost": float(c),
                "probability": float(a),
                "payment": float(b),
                "expected_payment_per_round": float(a * b),
                "profit_per_round": float(a * (b - c)),
            }
            for c, a, b in zip(levels, q, r, strict=True)
        ],
        "empty_rounds": _empty(contract),
        "secure_sums": contract.attendance.to_json()["secure_sums"],
        "spend": {
            **spend_to_json(contract.spend, contract.total_budget),
            "expected": contract.expected_spend,
        },
        "benchmarks": [
            {
                "name": b.name,
                "expected_spend": b.expected_spend,
                "mean_probability": b.expected_probability,
                "mean_inverse_probability": b.sampling_term / contract.clients,
            }
            for b in benchmarks(contract)
        ],
    }


def _quote_prior_free(options: QuoteOptions) -> Document:
    rules, clients = options.rules(), options.clients
    rng = np.random.default_rng(options.seed)
    if options.reports is None:
        example = rng.uniform(0.0, rules.highest, clients)
    else:
        costs = read_costs(Path(options.reports))
        if costs.size != clients:
            raise InvalidValue("reports", f"must hold {clients} costs, one per client", costs.size)
        example = costs[rules.order(rng)]
    run = rules.run(example)
    levels = (
        np.linspace(0.0, rules.highest, 7) if options.at is None else admitted(options.at, rules.highest)
    )
    contract = PriorFreeContract(rules, options.rounds, options.decimals, options.coins)
    data = describe_prior_free(
        contract,
        run,
        milestones(rules, example),
        levels,
        "file" if options.reports else "uniform",
    )

    def draw() -> Figure:
        from bonafed.mechanisms.sampling.figures import prior_free_figure

        return prior_free_figure(rules, example, run)

    return Document(tuple(_prior_free_blocks(data)), data, draw, {"contract": contract.content})


def milestones(rules: PriorFreeSampling, example: Floats) -> list[tuple[int, PriorFreeState]]:
    """The states before the first client, after the first n0, halfway, and before the last."""
    places = sorted({0, min(rules.first_clients, rules.clients - 1), rules.clients // 2, rules.clients - 1})
    state, states = rules.start(), []
    for place, report in enumerate(example):
        if place in places:
            states.append((place, state))
        _, state = state.settle(float(report))
    return states


def describe_prior_free(
    published: PriorFreeContract,
    run: PriorFreeRun,
    moments: list[tuple[int, PriorFreeState]],
    levels: Floats,
    source: str,
) -> JSONObject:
    """Everything the quote says when no prior is known, as plain data."""
    rules, rounds = published.rules, published.rounds
    served = run.probability > 0
    inverse = 1 / run.probability[served]
    spend = spend_distribution(known_lotteries(run.probability, run.payment), rounds)
    terms = []
    for place, state in moments:
        q, r = state.menu.price(levels)
        terms.append(
            {
                "client": place + 1,
                "cost": levels.tolist(),
                "probability": q.tolist(),
                "payment": r.tolist(),
            }
        )
    return {
        "rules": published.to_json(),
        "example": {
            "costs": source,
            "terms": terms,
            "expected_spend": run.spent * rounds,
            "standard_deviation_of_coins": spend.sd,
            "not_admitted": int((~served).sum()),
            **Attendance(run.probability, rounds).to_json(),
            "mean_probability": float(run.probability.mean()),
            "mean_inverse_probability": float(inverse.mean()) if inverse.size else None,
            "uniform_inverse_probability": max(1.0, rules.clients * rules.highest / rules.budget),
        },
    }


def _prior_free_blocks(data: JSONObject) -> list[Block]:
    rules, example = data["rules"], data["example"]
    source = (
        "the costs of the file, in an order drawn at random"
        if example["costs"] == "file"
        else "costs drawn evenly from 0 to the highest"
    )
    columns = (
        Column("cost", ".3f"),
        *(Column(f"client {t['client']:,}") for t in example["terms"]),
    )
    rows: list[tuple[Cell, ...]] = []
    for k, cost in enumerate(example["terms"][0]["cost"]):
        cells = (f"{t['probability'][k]:.3f} @ {t['payment'][k]:.3f}" for t in example["terms"])
        rows.append((cost, *cells))
    total = rules["budget_per_round"] * rules["rounds"]
    inverse = example["mean_inverse_probability"]
    first = "client" if rules["initial"] == 1 else f"{rules['initial']} clients"
    blocks: list[Block] = [
        f"Prior-free truthful sampling: {counted(rules['clients'], 'client')}, "
        f"{counted(rules['rounds'], 'round')}, at most "
        f"{rules['budget_per_round']:,.6g} per round in expectation over the sampling coins, whatever the "
        "costs turn out to be.",
        f"The first {first}: probability {rules['initial_probability']:.4f}, payment "
        f"{rules['highest']:,.6g}. Every later client is shown a menu made from earlier reports only; "
        f"nobody is sampled with probability below {rules['floor']:.4g}. Clients are approached in an "
        "order that follows from the published rules and their names, which must be listed before the "
        "rules are published: who may still choose its name chooses its place.",
        Table(f"Example, probability @ payment: {source}", columns, tuple(rows)),
        f"In the example {example['expected_spend']:,.2f} of {total:,.2f} is committed, give or take "
        f"{example['standard_deviation_of_coins']:,.2f} by the sampling coins. Mean 1/probability "
        f"{'undefined, nobody is admitted' if inverse is None else f'{inverse:.4f}'}; uniform sampling of "
        f"the same budget {example['uniform_inverse_probability']:.4f}.",
    ]
    words = empty_in_words(example["empty_rounds"], rules["rounds"])
    if example["empty_rounds"] > FEW * rules["rounds"]:
        words += " More money, or fewer rounds for the same money, leaves fewer of them empty."
    blocks.append(f"In the example: {words[0].lower()}{words[1:]}")
    blocks += unheld_in_words(example["secure_sums"], rules["rounds"])
    if example["not_admitted"]:
        blocks.append(f"{example['not_admitted']} costs above the highest were not admitted.")
    return blocks


@dataclass(frozen=True)
class AuditOptions(_Belief):
    """Options of `bonafed audit sampling`."""

    variant: Variant = key(
        one_of(Variant),
        "corrected",
        help="The contract to attack: corrected (what quote gives), printed (the paper's formulas), "
        "uniform, or pay-as-bid, which is easy to game.",
    )
    points: int = key(checks.whole, 401, help="Cost levels of the first sweep.")
    profiles: int = key(checks.whole, 10, help="With --prior-free: sequences of costs to try.")
    seed: int = key(checks.seed, 0, help="Of those sequences.")

    def _agree(self) -> None:
        super()._agree()
        if self.prior_free and self.variant not in ("corrected", "printed"):
            rule = "must be corrected or printed with --prior-free"
            raise InvalidValue("variant", rule, self.variant)


def attack(options: AuditOptions) -> Document:
    """Try to game a contract, and show the lie that pays if there is one."""
    if options.prior_free:
        rules = options.rules("printed" if options.variant == "printed" else "safe")
        rng = np.random.default_rng(options.seed)
        sequences = list(rng.uniform(0.0, rules.highest, (options.profiles, options.clients)))
        report = audit_sequence(rules, sequences, options.points)
        return audit_document(f"prior-free sampling ({options.variant})", report)
    belief, share = options.belief(), options.budget / options.rounds / options.clients
    menu: MenuLike
    if options.variant == "pay-as-bid":
        menu = PayAsBid(belief, share)
    elif options.variant == "uniform":
        menu = uniform_menu(belief, share)
    else:
        menu = optimal_menu(belief, share, options.variant)
    name = f"sampling contract ({options.variant})"
    report = audit(menu, belief.low, belief.high, budget=share, prior=belief, points=options.points)

    def draw() -> Figure:
        from bonafed.mechanisms.lies_figure import lie_figure

        levels = np.linspace(belief.low, belief.high, 241)
        return lie_figure(
            levels, menu.probability(levels), menu.expected_payment(levels), name, report["truthful"]
        )  # fmt: skip

    return audit_document(name, report, draw)


def audit_document(name: str, report: AuditReport, draw: Any = None) -> Document:
    """The findings of an audit; holds if none is violated."""
    data = {
        "subject": name,
        "passed": report.passed,
        "findings": [finding.to_json() for finding in report.findings],
    }
    table = findings_table(f"Audit of {name}", report.findings)
    return Document((table,), data, draw, holds=report.passed)


QUOTE = Command(
    "Quote the truthful sampling contract of a budget.",
    QuoteOptions,
    quote,
    "For each cost level: the probability of being sampled in a round and the payment per participation, "
    "under which stating the true cost is every client's best choice. Then the expected spend, how far "
    "realised spend may stray, and what the same budget buys under uniform sampling and if all costs were "
    "known.",
    "bonafed quote sampling --prior uniform:0.5,1.5 --clients 100 --rounds 200 --budget 10000",
)
ATTACK = Command(
    "Try to game truthful sampling, and show the lie that pays if there is one.",
    AuditOptions,
    attack,
    "Checks that no lie pays, that nobody loses by joining, that probabilities are probabilities and do "
    "not rise in the cost, and that the budget holds. The witness of a violation (true cost, lie, gain) is "
    "shown.",
    "bonafed audit sampling --prior uniform:0.5,1.5 --clients 100 --rounds 200 --budget 10000",
)
