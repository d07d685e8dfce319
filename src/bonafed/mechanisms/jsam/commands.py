"""`bonafed quote jsam` and `bonafed audit jsam`: options, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics import money
from bonafed.economics.audit import AuditReport, Claim, RespondingLike, audit
from bonafed.economics.claims import findings_table
from bonafed.economics.priors import Prior
from bonafed.economics.registry import PRIOR_FORMS, parse_prior
from bonafed.errors import InvalidValue, MissingValue
from bonafed.mechanisms.contracts.canonical import coin_commitment
from bonafed.mechanisms.jsam import schemes
from bonafed.mechanisms.jsam.budget import eta_for_budget
from bonafed.mechanisms.jsam.capped import checked_cap
from bonafed.mechanisms.jsam.controls import ClippedMechanism, PayAsBid, PrintedMechanism
from bonafed.mechanisms.jsam.noise import Ingredients, Noise, scale_of
from bonafed.mechanisms.jsam.payments import Admitted, JsamMechanism, admit, settle
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.mechanisms.jsam.report import PlanOnly, Quote, Weight, describe, describe_plan, quote_blocks
from bonafed.mechanisms.jsam.rules import Cheapest, unbiased
from bonafed.mechanisms.jsam.schemes import draw_costs
from bonafed.mechanisms.jsam.section import caps_by_name
from bonafed.mechanisms.protocol import Command
from bonafed.reports import read_clients, read_one_per_client, read_reports
from bonafed.sections import Section, key, one_of
from bonafed.shown import Document, JSONObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Variant = Literal["corrected", "printed", "printed-integral", "usbm", "fsbm", "pay-as-bid", "clipped"]
_CAPPED = ("corrected", "usbm", "fsbm", "clipped")  # variants that can have a cap
_CLAIMS: tuple[Claim, ...] = ("truthful", "individually rational", "monotone", "feasible")
_QUOTE_GRID, _AUDIT_GRID = 1e-4, 0.05  # steps of p_h in the printed algorithm
# With these the default profiles have thresholds from 1 to 3, and Algorithm 1 misses the optimum for some.
_ETA, _NOISE_SCALE = 1.0, 10.0
_BELIEF = "What you believe about a client's cost per unit of epsilon: " + PRIOR_FORMS
_NOTES = {
    "printed": "Algorithm 1 on a grid, with the payment formula of the exact mechanism, which takes the "
    "rent from the objective: right for an exact optimum only. With the integral of its own epsilon "
    "(--variant printed-integral) no lie pays.",
    "printed-integral": "Algorithm 1 on a grid, with the integral of its own epsilon. The plan is dearer "
    "than the exact one, but epsilon does not rise in the client's own report.",
    "clipped": "The optimum without a cap, cut off at --max-epsilon, with the payments of the optimum, "
    "which are for an epsilon that is not bought. The mechanism under the cap is --variant corrected.",
}


def _prior(name: str, value: object) -> Prior:
    return value if isinstance(value, Prior) else parse_prior(str(value))


def _path(name: str, value: object) -> Path:
    if not isinstance(value, str | Path):
        raise InvalidValue(name, "must be a file", repr(value))
    return Path(value)


def _cap(name: str, value: object) -> float | Path:
    """A number, or a file with one per client."""
    if isinstance(value, str):
        try:
            return checks.positive(name, float(value))
        except InvalidValue:
            raise
        except ValueError:
            return Path(value)
    return value if isinstance(value, Path) else checks.positive(name, value)


def _members(name: str, value: object) -> tuple[int, ...]:
    several = value if isinstance(value, list | tuple) else (value,)
    return tuple(checks.whole(name, one) for one in several)


def _commitment(name: str, value: object) -> str:
    return coin_commitment(value)


@dataclass(frozen=True, kw_only=True)
class _Noise(Section):
    """Q, or its parts; the most that is bought from a client."""

    noise_scale: float | None = key(
        checks.positive,
        None,
        metavar="Q",
        help="How much noise harms training, for the records that a release averages; or its parts:",
    )
    delta: float | None = key(checks.positive, None, help="... delta of differential privacy,")
    dimension: int | None = key(checks.whole, None, help="... number of parameters of the model,")
    rounds: int | None = key(
        checks.whole,
        None,
        help="... number of training rounds (times the steps of a client that is drawn),",
    )
    smoothness: float | None = key(checks.positive, None, help="... smoothness L of the loss,")
    records: int | None = key(
        checks.whole, None, metavar="M", help="... records of a client that each release averages,"
    )
    c2: float | None = key(
        checks.positive, None, help="... and the constant of Lemma 1 (the square root of 2)."
    )
    max_epsilon: float | Path | None = key(
        _cap,
        None,
        metavar="E",
        help="Most epsilon to buy from a client: a number, or a FILE.csv with one per client (public).",
    )

    @property
    def _for_a_contract(self) -> bool:
        """Whether delta and rounds are terms of a contract, and not only parts of Q."""
        return False

    def noise(self) -> Noise | None:
        """Q, or its ingredients; None: neither is given."""
        parts = {
            "--delta": self.delta,
            "--dimension": self.dimension,
            "--rounds": self.rounds,
            "--smoothness": self.smoothness,
            "--records": self.records,
        }
        shared = ("--delta", "--rounds") if self._for_a_contract else ()
        own = {name: value for name, value in {**parts, "--c2": self.c2}.items() if name not in shared}
        first = next((name for name, value in own.items() if value is not None), None)
        if self.noise_scale is not None:
            if first is not None:
                raise InvalidValue("--noise-scale", f"must not be given with {first}", self.noise_scale)
            return self.noise_scale
        if first is None:
            return None
        for name, value in parts.items():
            if value is None:
                raise MissingValue(name, f"is required with {first}")
        assert self.dimension is not None
        assert self.smoothness is not None
        assert self.records is not None
        ingredients = Ingredients(self.dimension, self.smoothness, self.records)
        return ingredients if self.c2 is None else replace(ingredients, c2=self.c2)

    def scale(self, noise: Noise) -> float:
        """Q itself."""
        return scale_of(noise, self.delta or 0.0, self.rounds or 0)

    def caps(self, names: Sequence[str]) -> float | Floats | None:
        """The most to buy: one for all, or (N,) of these clients, by name where the file has names."""
        if not isinstance(self.max_epsilon, Path):
            return self.max_epsilon
        each = read_one_per_client(self.max_epsilon, "--max-epsilon", "max_epsilon", len(names))
        if read_clients(self.max_epsilon) is not None:
            return caps_by_name(read_reports(self.max_epsilon, "max_epsilon"), tuple(names))
        return checked_cap(each, len(names))


@dataclass(frozen=True, kw_only=True)
class QuoteOptions(_Noise):
    """Options of `bonafed quote jsam`."""

    prior: Prior = key(_prior, metavar="KIND:ARGS", help=_BELIEF)
    reports: Path | None = key(
        _path, None, metavar="FILE.csv", help="What each client states as its cost of epsilon."
    )
    clients: int | None = key(
        checks.whole, None, help="Instead of --reports: draw this many costs from the prior."
    )
    seed: int = key(checks.seed, 0, help="Of the costs drawn.")
    eta: float | None = key(checks.positive, None, help="Weight of the training loss against money.")
    budget: float | None = key(
        checks.positive, None, help="Instead of --eta: the payments for these reports stay within this sum."
    )
    expected_budget: float | None = key(
        checks.positive, None, help="Instead of --eta: the payments are this sum on average over the prior."
    )
    members: tuple[int, ...] = key(
        _members,
        (),
        metavar="M",
        help="Clients of the baselines with a fixed number (a half, three quarters).",
    )
    losses: Path | None = key(
        _path, None, metavar="FILE.csv", help="Local losses, one per client: adds the baseline BBM."
    )
    shares: Path | None = key(
        _path, None, metavar="FILE.csv", help="Shares of the data, one per client: shows the plan only."
    )
    fairness_floor: float | None = key(
        checks.non_negative,
        None,
        help="Smallest selection probability of every client: shows the plan only.",
    )
    variant: Literal["exact", "printed"] = key(
        one_of(Literal["exact", "printed"]),
        "exact",
        help="Or printed: the plan of the paper's Algorithm 1, without payments.",
    )
    grid: float | None = key(
        checks.positive, None, help="With --variant printed: its step of probability (0.0001)."
    )
    clip: float | None = key(
        checks.positive,
        None,
        help="For a contract to --save, with --rounds and --delta: largest norm of one record's gradient.",
    )
    clients_per_round: int = key(
        checks.whole, 10, help="For a contract: clients drawn per round, with replacement."
    )
    decimals: int = key(
        money.decimals, money.DECIMALS, help="For a contract: decimals of the amounts paid."
    )
    coins: str | None = key(
        _commitment,
        None,
        metavar="HEX",
        help="For a contract: SHA-256 of the secret that decides who is drawn.",
    )

    @property
    def _for_a_contract(self) -> bool:
        return self.clip is not None

    def _agree(self) -> None:
        _exactly_one(eta=self.eta, budget=self.budget, expected_budget=self.expected_budget)
        if self.noise() is None:
            ways = "--noise-scale, or --delta, --dimension, --rounds, --smoothness and --records"
            raise InvalidValue("input", f"must be {ways}", "none")
        _exactly_one(reports=self.reports, clients=self.clients)
        if self.grid is not None and self.variant != "printed":
            raise InvalidValue("--grid", "must not be given without --variant printed", self.grid)
        printed = self.variant if self.variant == "printed" else None
        _at_most_one(shares=self.shares, fairness_floor=self.fairness_floor, variant=printed)
        self._agree_on_a_contract()

    def _agree_on_a_contract(self) -> None:
        if self.clip is None:
            if self.coins is not None:
                raise InvalidValue("--coins", "requires --clip, for a contract", self.coins)
            return
        for name, value in (("--rounds", self.rounds), ("--delta", self.delta)):
            if value is None:
                raise MissingValue(name, "is required with --clip, for a contract")
        if self.budget is not None:
            rule = (
                "must not be given with --clip: a weight that depends on the reports cannot be published; "
                "--expected-budget can"
            )
            raise InvalidValue("--budget", rule, self.budget)

    @property
    def lacking(self) -> str:
        """What a contract needs beyond these options."""
        kinds = {"--shares": self.shares, "--fairness-floor": self.fairness_floor}
        plans = [name for name, value in kinds.items() if value is not None]
        plans += ["--variant printed"] * (self.variant == "printed")
        if plans:
            return f"as the plan of {plans[0]} has no payments"
        needs = {"--clip": self.clip, "--rounds": self.rounds, "--delta": self.delta}
        names = [name for name, value in needs.items() if value is None]
        if self.budget is not None:
            names.append("--expected-budget in place of --budget")
        return f"it needs {' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))}"

    def stated(self) -> dict[str, float]:
        """What clients report, by name: as in the file, or drawn from the prior."""
        if self.reports is not None:
            return read_reports(self.reports, "cost")
        assert self.clients is not None  # one of the two
        costs = draw_costs(self.prior, self.clients, self.seed).tolist()
        return {str(number): cost for number, cost in enumerate(costs)}

    def plan_only(self, clients: int) -> PlanOnly | None:
        """What is asked for beyond the mechanism with payments, if anything."""
        plan = None
        if self.shares is not None:
            each = read_one_per_client(self.shares, "--shares", "share", clients)
            plan = PlanOnly("shares", shares=checks.shares("shares", each))
        elif self.fairness_floor is not None:
            plan = PlanOnly("fairness floor", floor=self.fairness_floor)
        elif self.variant == "printed":
            plan = PlanOnly("printed", grid=_QUOTE_GRID if self.grid is None else self.grid)
        if plan is not None:
            self._refuse_payments(plan)
        return plan

    def _refuse_payments(self, plan: PlanOnly) -> None:
        """Options of the mechanism with payments, where there are none."""
        excluded: dict[str, object] = {
            "--budget": self.budget,
            "--expected-budget": self.expected_budget,
            "--losses": self.losses,
            "--members": self.members[0] if self.members else None,
            "--max-epsilon": _typed(self.max_epsilon),
            "--clip": self.clip,
        }
        for name, value in excluded.items():
            if value is not None:
                rule = f"must not be given with {plan.option}, which has no payments"
                raise InvalidValue(name, rule, value)

    def contract(self, request: Quote, noise: Noise, weight: Weight) -> JsamContract | None:
        """What can be published, where the options say all that it needs."""
        if self.clip is None:
            return None
        assert self.rounds is not None
        assert self.delta is not None
        caps = request.max_epsilon
        each = (
            caps
            if caps is None or isinstance(caps, float)
            else dict(zip(request.names, caps.tolist(), strict=True))
        )
        return JsamContract(
            len(request.names), self.prior, weight.eta, noise, self.rounds, self.clip, self.delta,
            self.clients_per_round, max_epsilon=each, expected_budget=self.expected_budget,
            decimals=self.decimals, coin_commitment=self.coins,
        )  # fmt: skip


def _typed(cap: float | Path | None) -> object:
    return f"{cap:g}" if isinstance(cap, float) else cap


def _exactly_one(**ways: object) -> None:
    names = [name for name, value in ways.items() if value is not None]
    if len(names) != 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in ways)
        raise InvalidValue("input", f"must be one of {flags}", ("none", "", "two", "three")[len(names)])


def _at_most_one(**ways: object) -> None:
    options = [(f"--{name.replace('_', '-')}", value) for name, value in ways.items() if value is not None]
    if len(options) > 1:
        raise InvalidValue(options[1][0], f"must not be given with {options[0][0]}", options[1][1])


def quote(options: QuoteOptions) -> Document:
    """What privacy to buy from whom, and what it costs; a contract to publish."""
    noise = options.noise()
    assert noise is not None  # by the section's own rules
    costs = options.stated()
    reports = np.array(list(costs.values()))
    plan = options.plan_only(reports.size)
    caps = options.caps(tuple(costs))
    seed = options.seed if options.reports is None else None
    group = admit(reports, options.prior)
    request = Quote(options.prior, tuple(costs), reports, group, options.scale(noise), seed, caps)
    files: dict[str, bytes] = {}
    if plan is not None:
        assert options.eta is not None  # a sum of money is refused for plans
        description = describe_plan(request, options.eta, plan)
    else:
        description, files = _settled(options, request, noise)

    def draw() -> Figure:
        from bonafed.mechanisms.jsam.figures import terms_figure

        return terms_figure(description["terms"], with_payments=description["kind"] == "settlement")

    lacking = {} if files else {"contract": options.lacking}
    return Document(tuple(quote_blocks(description)), description, draw, files, lacking)


def _settled(options: QuoteOptions, request: Quote, noise: Noise) -> tuple[JSONObject, dict[str, bytes]]:
    """The description of a quote with payments, and the contract."""
    baselines = _baseline_members(options.members, request.group)
    losses = None
    if options.losses is not None:
        losses = read_one_per_client(options.losses, "--losses", "loss", request.reports.size)
    weight = _weight(options, request)
    contract = options.contract(request, noise, weight)
    settlement = settle(
        request.reports, request.prior, weight.eta, request.noise_scale, max_epsilon=request.max_epsilon
    )
    description = describe(request, weight, settlement, baselines, losses)
    if contract is None:
        return description, {}
    return {**description, "contract": contract.digest}, {"contract": contract.content}


def _weight(options: QuoteOptions, request: Quote) -> Weight:
    """eta, and where it comes from."""
    if options.eta is not None:
        return Weight(options.eta, "given", None)
    if options.budget is not None:
        budgeted = eta_for_budget(
            request.reports, request.prior, options.budget, request.noise_scale,
            max_epsilon=request.max_epsilon,
        )  # fmt: skip
        return Weight(budgeted.eta, "budget", options.budget)
    assert options.expected_budget is not None
    eta = schemes.expected_weight(
        request.prior, request.reports.size, options.expected_budget, request.noise_scale,
        max_epsilon=request.max_epsilon,
    )  # fmt: skip
    return Weight(eta, "expected budget", options.expected_budget, schemes.DRAWS)


def _baseline_members(members: tuple[int, ...], group: Admitted) -> list[int]:
    """M of the baselines that select a fixed number; in the paper 50 and 75 of 100 clients."""
    n = group.clients.size
    if not members:
        return sorted({max(1, n // 2), max(1, 3 * n // 4)})
    for m in members:
        if m > n:
            raise InvalidValue("members", f"must be at most the number of clients admitted, {n}", m)
    return sorted(set(members))


@dataclass(frozen=True, kw_only=True)
class AuditOptions(_Noise):
    """Options of `bonafed audit jsam`."""

    prior: Prior = key(_prior, "uniform:0,1", metavar="KIND:ARGS", help=_BELIEF)
    reports: Path | None = key(
        _path, None, metavar="FILE.csv", help="What each client states as its cost of epsilon."
    )
    clients: int | None = key(checks.whole, None, help="Instead of --reports: clients of each profile (8).")
    profiles: int | None = key(
        checks.whole, None, help="Instead of --reports: profiles drawn from the prior (5)."
    )
    seed: int = key(checks.seed, 0, help="Of these profiles.")
    eta: float = key(checks.positive, _ETA, help="Weight of the training loss against money.")
    variant: Variant = key(
        one_of(Variant),
        "corrected",
        help="The mechanism to attack: corrected (what quote jsam gives); printed (the paper's Algorithm 1 "
        "on a grid, with the payment formula), clipped (the optimum without a cap, cut off at "
        "--max-epsilon) and pay-as-bid, which can be gamed; printed-integral (the same grid, with the "
        "integral of its own epsilon); or the baselines usbm and fsbm.",
    )
    members: int | None = key(
        checks.whole, None, metavar="M", help="With --variant fsbm: clients selected (half)."
    )
    grid: float | None = key(
        checks.positive, None, help="With a printed variant: its step of probability (0.05)."
    )
    points: int = key(
        lambda name, value: checks.whole(name, value, at_least=3), 61, help="Reports of the first sweep."
    )

    def _agree(self) -> None:
        self.noise()
        if self.reports is not None:
            for name, value in (("--clients", self.clients), ("--profiles", self.profiles)):
                if value is not None:
                    raise InvalidValue(name, "must not be given with --reports", value)
        if self.max_epsilon is not None and self.variant not in _CAPPED:
            rule = f"must not be given with --variant {self.variant}"
            raise InvalidValue("--max-epsilon", rule, _typed(self.max_epsilon))
        if self.variant == "clipped" and not isinstance(self.max_epsilon, float):
            if self.max_epsilon is None:
                raise MissingValue("--max-epsilon", "is required with --variant clipped")
            rule = "must be one number with --variant clipped"
            raise InvalidValue("--max-epsilon", rule, self.max_epsilon)
        if self.members is not None and self.variant != "fsbm":
            raise InvalidValue("--members", "must not be given without --variant fsbm", self.members)
        if self.grid is not None and not self.variant.startswith("printed"):
            raise InvalidValue("--grid", "must not be given without --variant printed", self.grid)

    def cases(self) -> tuple[tuple[str, ...], list[Floats]]:
        """Names of the clients, and cost vectors to try."""
        if self.reports is not None:
            reports = read_reports(self.reports, "cost")
            return tuple(reports), [np.array(list(reports.values()))]
        people, count = self.clients or 8, self.profiles or 5
        both = draw_costs(self.prior, count * people, self.seed)
        return tuple(map(str, range(people))), list(both.reshape(count, people))

    def mechanism(self, clients: int, caps: float | Floats | None) -> RespondingLike:
        """What is attacked."""
        noise = self.noise()
        scale = _NOISE_SCALE if noise is None else self.scale(noise)
        prior, eta, step = self.prior, self.eta, _AUDIT_GRID if self.grid is None else self.grid
        if self.variant == "clipped":
            assert isinstance(caps, float)  # by the section's own rules
            return ClippedMechanism(prior, eta, scale, caps)
        if self.variant == "printed":
            return PrintedMechanism(prior, eta, scale, step, "objective")
        if self.variant == "printed-integral":
            return PrintedMechanism(prior, eta, scale, step, "integral")
        if self.variant == "pay-as-bid":
            return PayAsBid(prior, eta, scale)
        if self.variant == "usbm":
            return JsamMechanism(prior, eta, scale, unbiased(clients), caps)
        if self.variant == "fsbm":
            members = max(1, clients // 2) if self.members is None else self.members
            if members > clients:
                raise InvalidValue("members", f"must be at most the number of clients, {clients}", members)
            return JsamMechanism(prior, eta, scale, Cheapest(members), caps)
        return JsamMechanism(prior, eta, scale, max_epsilon=caps)


def attack(options: AuditOptions) -> Document:
    """Let every client lie about its cost of privacy while the others' reports stay fixed."""
    names, profiles = options.cases()
    caps = options.caps(names)
    mechanism = options.mechanism(profiles[0].size, caps)
    report = audit(
        mechanism, options.prior.low, options.prior.high, profiles=profiles, claims=_CLAIMS,
        points=options.points, quantity_limit=np.inf if caps is None else float(np.max(caps)),
        unit="over the run",
    )  # fmt: skip
    name = f"privacy compensation ({options.variant})"
    note = _NOTES.get(options.variant)
    data: JSONObject = {
        "subject": name,
        "passed": report.passed,
        "findings": [finding.to_json() for finding in report.findings],
    }
    table = findings_table(f"Audit of {name}", report.findings)

    def draw() -> Figure:
        return _lies(mechanism, options.prior, profiles, report, name)

    blocks = (table,) if note is None else (table, note)
    return Document(blocks, data if note is None else {**data, "note": note}, draw, holds=report.passed)


def _lies(
    mechanism: RespondingLike, prior: Prior, profiles: list[Floats], report: AuditReport, name: str
) -> Figure:
    """The lies of the client of the witness, or of the first one."""
    from bonafed.mechanisms.lies_figure import lie_figure

    witness = report["truthful"].witness
    client, others = 0, profiles[0]
    if witness is not None and witness.client is not None and witness.others is not None:
        client, others = witness.client, np.array(witness.others)
    costs = np.linspace(prior.low, prior.high, 241)
    with np.errstate(over="ignore", invalid="ignore"):  # told by the findings
        epsilon, payment = mechanism.respond(others, client, costs)
    # Who understates a high cost may lose far more than anyone is paid: not of interest.
    reach = float(payment[np.isfinite(payment)].max(initial=0.0))
    title = f"{name}, client {client}"
    return lie_figure(costs, epsilon, payment, title, "over the run", reach, witness)


QUOTE = Command(
    "Quote what privacy to buy from whom, and what it costs.",
    QuoteOptions,
    quote,
    "For each client: the probability of being selected, the privacy budget epsilon that is bought, and "
    "the payment, under which stating the true cost of privacy is every client's best choice whatever the "
    "others state. Then the money, what is left of the training loss, and the same for the baselines. With "
    "--clip, --rounds and --delta the contract to publish can be saved; it needs no reports, --clients is "
    "enough.",
    "bonafed quote jsam --reports sensitivities.csv --prior uniform:0,1 --eta 5 --noise-scale 1",
)
ATTACK = Command(
    "Search for a profitable lie about the cost of privacy, and for broken promises.",
    AuditOptions,
    attack,
    "Every client of every profile of costs lies while the others' reports stay fixed. Checks that no lie "
    "pays by more than 1e-9 of the largest payment, that nobody loses by joining, and that epsilon does "
    "not rise in the client's own report. The witness of a violation (true cost, lie, gain) is shown.",
    "bonafed audit jsam --prior uniform:0,1 --eta 5 --noise-scale 1",
)
