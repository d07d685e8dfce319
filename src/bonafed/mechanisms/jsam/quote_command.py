"""`bonafed quote jsam`: options, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.attendance import Attendance
from bonafed.economics import money
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.privacy.planning import DWARFED, noise_share, rate_for, steps_for
from bonafed.mechanisms.jsam import schemes
from bonafed.mechanisms.jsam.budget import eta_for_budget
from bonafed.mechanisms.jsam.command_options import (
    BELIEF,
    NoiseOptions,
    commitment,
    file_path,
    member_counts,
    spelled_prior,
)
from bonafed.mechanisms.jsam.noise import Ingredients, Noise, averaged
from bonafed.mechanisms.jsam.payments import Admitted, admit, settle
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.mechanisms.jsam.quote_report import Quote, Weight, describe, quote_blocks
from bonafed.mechanisms.jsam.schemes import draw_costs
from bonafed.mechanisms.jsam.section import epsilon_before
from bonafed.mechanisms.jsam.thresholds import Ints
from bonafed.mechanisms.protocol import Command
from bonafed.presentation.documents import Document, JSONObject
from bonafed.reports import read_one_per_client, read_reports
from bonafed.sections import exactly_one, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_DRAWN = 10  # clients per round of a contract


@dataclass(frozen=True, kw_only=True)
class JsamQuoteOptions(NoiseOptions):
    """Options of `bonafed quote jsam`."""

    prior: Prior = key(spelled_prior, metavar="KIND:ARGS", help=BELIEF)
    reports: Path | None = key(
        file_path, None, metavar="FILE.csv", help="What each client states as its cost of epsilon."
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
        member_counts,
        (),
        metavar="M",
        help="Clients of the baselines with a fixed number (a half, three quarters).",
    )
    losses: Path | None = key(
        file_path, None, metavar="FILE.csv", help="Local losses, one per client: adds the baseline BBM."
    )
    clip: float | None = key(
        checks.positive,
        None,
        help="For a contract to --save, with --rounds and --delta: largest norm of one record's gradient.",
    )
    clients_per_round: int | None = key(
        checks.whole, None, help="For a contract: clients drawn per round, with replacement (10)."
    )
    decimals: int = key(
        money.decimals, money.DECIMALS, help="For a contract: decimals of the amounts paid."
    )
    coins: str | None = key(
        commitment,
        None,
        metavar="HEX",
        help="For a contract: SHA-256 of the secret that decides who is drawn.",
    )

    @property
    def _for_a_contract(self) -> bool:
        return self.clip is not None

    def _agree(self) -> None:
        exactly_one(eta=self.eta, budget=self.budget, expected_budget=self.expected_budget)
        if self.noise() is None:
            ways = "--noise-scale, or --delta, --dimension, --rounds, --smoothness and --records"
            raise InvalidValue("input", f"must be {ways}", "none")
        exactly_one(reports=self.reports, clients=self.clients)
        self.refuse_with_sizes()
        self._refuse_baselines_with_sizes()
        self._agree_on_a_contract()
        if self.noise_at == "sum":
            refused = {
                "--coins": self.coins,
                "--clients-per-round": self.clients_per_round,  # nobody is drawn
            }  # fmt: skip
            for name, value in refused.items():
                if value is not None:
                    raise InvalidValue(name, "must not be given with --noise-at sum", value)
            if self.steps is not None and self.steps != 1:
                rule = "must be 1 with --noise-at sum: later steps would look at records again"
                raise InvalidValue("--steps", rule, self.steps)
            if isinstance(self.max_epsilon, Path):
                rule = "must be one number with --noise-at sum"
                raise InvalidValue("--max-epsilon", rule, self.max_epsilon)

    def _refuse_baselines_with_sizes(self) -> None:
        given = {"--members": self.members[0] if self.members else None, "--losses": self.losses}
        for name, value in given.items():
            if self.sizes is not None and value is not None:
                raise InvalidValue(name, "must not be given with --sizes: it is for clients alike", value)

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
        needs = {"--clip": self.clip, "--rounds": self.rounds, "--delta": self.delta}
        names = [name for name, value in needs.items() if value is None]
        if self.budget is not None:
            names.append("--expected-budget in place of --budget")
        return f"it needs {' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))}"

    def with_steps(
        self, noise: Noise, clients: int, caps: float | Floats | None, sizes: Ints | None
    ) -> Noise:
        """Q with the steps of a round that private training chooses (11.3), unless they are stated."""
        if not isinstance(noise, Ingredients) or self.steps is not None:
            return noise
        money = self.budget if self.budget is not None else self.expected_budget
        expected = epsilon_before(caps, money, clients, self.prior.high)
        if expected is None:
            return noise
        share = self._share(noise, np.full(clients, 1 / clients), expected, sizes)
        assert self.rounds is not None  # of these parts
        steps = steps_for(share, self.rounds, on_sum=self.noise_at == "sum")
        return replace(noise, steps=steps, passes=steps)

    def _share(self, noise: Ingredients, weights: Floats, epsilon: Floats, sizes: Ints | None) -> float:
        """(11.1); where sizes count, a release averages no more records than are stated."""
        assert self.delta is not None  # of the parts of Q
        held = noise.records if sizes is None else sizes
        return noise_share(
            weights, epsilon, held, self.delta, noise.dimension, on_sum=self.noise_at == "sum",
            batch_size=noise.records,
        )  # fmt: skip

    def training(self, noise: Noise, description: JSONObject, sizes: Ints | None) -> JSONObject | None:
        """Batch, steps and rate for this plan; the rate times the clip if that is not stated. None: P and
        the records are not known."""
        if not isinstance(noise, Ingredients):
            return None
        assert self.rounds is not None  # of the parts of Q
        rows = description["terms"]
        p, epsilon = (np.array([row[name] for row in rows]) for name in ("selection", "epsilon"))
        share = self._share(noise, p, epsilon, sizes)
        rate = rate_for(share, 1.0 if self.clip is None else self.clip, noise.steps * self.rounds)  # (11.4)
        return {
            "batch_size": noise.records, "steps": noise.steps, "learning_rate": rate,
            "for_clip": 1.0 if self.clip is None else self.clip, "noise_share": share,
            "dwarfed": share > DWARFED,
        }  # fmt: skip

    def stated(self) -> dict[str, float]:
        """What clients report, by name: as in the file, or drawn from the prior."""
        if self.reports is not None:
            return read_reports(self.reports, "cost")
        assert self.clients is not None  # one of the two
        costs = draw_costs(self.prior, self.clients, self.seed).tolist()
        return {str(number): cost for number, cost in enumerate(costs)}

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
            _DRAWN if self.clients_per_round is None else self.clients_per_round,
            max_epsilon=each, expected_budget=self.expected_budget,
            decimals=self.decimals, coin_commitment=self.coins,
            noise_at=self.noise_at, sizes=request.sizes_by_name,
        )  # fmt: skip


def quote(options: JsamQuoteOptions) -> Document:
    """What privacy to buy from whom, and what it costs; a contract to publish."""
    noise = options.noise()
    assert noise is not None  # by the section's own rules
    costs = options.stated()
    reports = np.array(list(costs.values()))
    sizes = options.held(tuple(costs))
    caps = options.caps(tuple(costs))
    noise = options.with_steps(noise, len(costs), caps, sizes)
    seed = options.seed if options.reports is None else None
    group = admit(reports, options.prior)
    request = Quote(
        options.prior, tuple(costs), reports, group, options.scale(noise), seed, caps, options.noise_at,
        sizes, None if sizes is None else averaged(noise, sizes),
    )  # fmt: skip
    description, files = _settled(options, request, noise)
    description["training"] = options.training(noise, description, sizes)
    description["warnings"] = [*description["warnings"], *options.delta_notes(sizes)]

    def draw() -> Figure:
        from bonafed.mechanisms.jsam.figures import terms_figure

        return terms_figure(description["terms"], description["noise_at"])

    lacking = {} if files else {"contract": options.lacking}
    return Document(tuple(quote_blocks(description)), description, draw, files, lacking)


def _settled(
    options: JsamQuoteOptions, request: Quote, noise: Noise
) -> tuple[JSONObject, dict[str, bytes]]:
    """The description of a quote, and the contract."""
    baselines = _baseline_members(options.members, request.group)
    losses = None
    if options.losses is not None:
        losses = read_one_per_client(options.losses, "--losses", "loss", request.reports.size)
    weight = _weight(options, request)
    contract = options.contract(request, noise, weight)
    settlement = settle(
        request.reports, request.prior, weight.eta, request.noise_scale, rule=request.rule,
        max_epsilon=request.max_epsilon,
    )  # fmt: skip
    description = describe(request, weight, settlement, baselines, losses)
    if options.rounds is not None:
        description["attendance"] = _attendance(options, settlement.allocation.selection, options.rounds)
    if contract is None:
        return description, {}
    return {**description, "contract": contract.digest}, {"contract": contract.content}


def _attendance(options: JsamQuoteOptions, selection: Floats, rounds: int) -> JSONObject:
    """How many will be in a round; with noise on the sum, everybody selected is in every one."""
    if options.noise_at == "sum":
        attendance = Attendance((selection > 0).astype(np.float64), rounds)
    else:
        attendance = Attendance(selection, rounds, options.clients_per_round or _DRAWN)
    return {"rounds": rounds, **attendance.to_json()}


def _weight(options: JsamQuoteOptions, request: Quote) -> Weight:
    """eta, and where it comes from."""
    if options.eta is not None:
        return Weight(options.eta, "given", None)
    if options.budget is not None:
        budgeted = eta_for_budget(
            request.reports, request.prior, options.budget, request.noise_scale,
            rule=request.rule, max_epsilon=request.max_epsilon,
        )  # fmt: skip
        return Weight(budgeted.eta, "budget", options.budget)
    assert options.expected_budget is not None
    eta = schemes.expected_weight(
        request.prior, request.reports.size, options.expected_budget, request.noise_scale,
        rule=request.rule, max_epsilon=request.max_epsilon,
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


QUOTE = Command(
    "Quote what privacy to buy from whom, and what it costs.",
    JsamQuoteOptions,
    quote,
    "For each client: the probability of being selected, the privacy budget epsilon that is bought, and "
    "the payment, under which stating the true cost of privacy is every client's best choice whatever the "
    "others state. Then the money, what is left of the training loss, and the same for the baselines. With "
    "--clip, --rounds and --delta the contract to publish can be saved; it needs no reports, --clients is "
    "enough.",
    "bonafed quote jsam --reports sensitivities.csv --prior uniform:0,1 --eta 5 --noise-scale 1",
)
