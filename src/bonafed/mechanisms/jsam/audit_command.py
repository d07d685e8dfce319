"""`bonafed audit jsam`: options, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.audit import AuditReport, Claim, RespondingLike, audit
from bonafed.economics.findings import findings_table
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue, MissingValue
from bonafed.mechanisms.jsam.command_options import (
    BELIEF,
    NoiseOptions,
    as_typed,
    file_path,
    spelled_prior,
)
from bonafed.mechanisms.jsam.controls import ClippedMechanism, EqualRents, PayAsBid, PrintedMechanism
from bonafed.mechanisms.jsam.noise import averaged
from bonafed.mechanisms.jsam.payments import JsamMechanism
from bonafed.mechanisms.jsam.rules import Cheapest, Jsam, Rule, unbiased
from bonafed.mechanisms.jsam.schemes import draw_costs, rule_of
from bonafed.mechanisms.protocol import Command
from bonafed.presentation.documents import Document, JSONObject
from bonafed.reports import read_reports
from bonafed.sections import key, one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Variant = Literal[
    "corrected", "printed", "printed-integral", "usbm", "fsbm", "pay-as-bid", "clipped", "equal-rents"
]
_CAPPED = ("corrected", "usbm", "fsbm", "clipped")  # variants that can have a cap
_ON_SUM = ("corrected", "usbm", "fsbm", "pay-as-bid")  # variants that can have noise on the sum
_BY_SIZE = ("corrected", "usbm", "equal-rents")  # variants for which sizes can count
_CLAIMS: tuple[Claim, ...] = ("truthful", "individually rational", "monotone", "feasible")
_GRID = 0.05  # step of p_h in the printed algorithm
# With these the default profiles have thresholds from 1 to 3, and Algorithm 1 misses the optimum for some.
_ETA, _NOISE_SCALE = 1.0, 10.0
_NOTES = {
    "printed": "Algorithm 1 on a grid, with the payment formula of the exact mechanism, which takes the "
    "rent from the objective: right for an exact optimum only. With the integral of its own epsilon "
    "(--variant printed-integral) no lie pays.",
    "printed-integral": "Algorithm 1 on a grid, with the integral of its own epsilon. The plan is dearer "
    "than the exact one, but epsilon does not rise in the client's own report.",
    "clipped": "The optimum without a cap, cut off at --max-epsilon, with the payments of the optimum, "
    "which are for an epsilon that is not bought. The mechanism under the cap is --variant corrected.",
    "equal-rents": "The plan for unequal sizes, with the rents that clients of equal sizes would get, "
    "which are for an epsilon that is not bought. The mechanism for unequal sizes is --variant corrected.",
}


@dataclass(frozen=True, kw_only=True)
class JsamAuditOptions(NoiseOptions):
    """Options of `bonafed audit jsam`."""

    prior: Prior = key(spelled_prior, "uniform:0,1", metavar="KIND:ARGS", help=BELIEF)
    reports: Path | None = key(
        file_path, None, metavar="FILE.csv", help="What each client states as its cost of epsilon."
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
        "--max-epsilon), equal-rents (the plan for --sizes, paid as if they were equal) and pay-as-bid, "
        "which can be gamed; printed-integral (the same grid, with the "
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
            raise InvalidValue("--max-epsilon", rule, as_typed(self.max_epsilon))
        if self.variant == "clipped" and not isinstance(self.max_epsilon, float):
            if self.max_epsilon is None:
                raise MissingValue("--max-epsilon", "is required with --variant clipped")
            rule = "must be one number with --variant clipped"
            raise InvalidValue("--max-epsilon", rule, self.max_epsilon)
        if self.noise_at == "sum":
            if self.variant not in _ON_SUM:
                raise InvalidValue("--variant", "must not be given with --noise-at sum", self.variant)
            if isinstance(self.max_epsilon, Path) and self.variant == "corrected":
                rule = "must be one number with --noise-at sum"
                raise InvalidValue("--max-epsilon", rule, self.max_epsilon)
        self.refuse_with_sizes()
        if self.sizes is not None and self.variant not in _BY_SIZE:
            raise InvalidValue("--sizes", f"must not be given with --variant {self.variant}", self.sizes)
        if self.sizes is None and self.variant == "equal-rents":
            raise MissingValue("--sizes", "is required with --variant equal-rents")
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

    def mechanism(self, names: tuple[str, ...], caps: float | Floats | None) -> RespondingLike:
        """The mechanism that the options name, as the audit attacks it."""
        clients = len(names)
        noise = self.noise()
        scale = _NOISE_SCALE if noise is None else self.scale(noise)
        prior, eta, step = self.prior, self.eta, _GRID if self.grid is None else self.grid
        if (sizes := self.held(names)) is not None:
            records = None if noise is None else averaged(noise, sizes)
            kind: Literal["jsam", "unbiased"] = "unbiased" if self.variant == "usbm" else "jsam"
            rule = rule_of(kind, clients, sizes=sizes, records=records)
            attacked = EqualRents if self.variant == "equal-rents" else JsamMechanism
            return attacked(prior, eta, scale, rule)
        if self.variant == "clipped":
            assert isinstance(caps, float)  # by the section's own rules
            return ClippedMechanism(prior, eta, scale, caps)
        if self.variant == "printed":
            return PrintedMechanism(prior, eta, scale, step, "objective")
        if self.variant == "printed-integral":
            return PrintedMechanism(prior, eta, scale, step, "integral")
        if self.variant == "pay-as-bid":
            return PayAsBid(prior, eta, scale, self.noise_at)
        if self.variant == "usbm":
            return JsamMechanism(prior, eta, scale, self._placed(unbiased(clients)), caps)
        if self.variant == "fsbm":
            members = max(1, clients // 2) if self.members is None else self.members
            if members > clients:
                raise InvalidValue("members", f"must be at most the number of clients, {clients}", members)
            return JsamMechanism(prior, eta, scale, self._placed(Cheapest(members)), caps)
        return JsamMechanism(prior, eta, scale, self._placed(Jsam()), caps)

    def _placed(self, rule: Rule) -> Rule:
        return rule.on_sum() if self.noise_at == "sum" else rule


def attack(options: JsamAuditOptions) -> Document:
    """Let every client lie about its cost of privacy while the others' reports stay fixed."""
    names, profiles = options.cases()
    caps = options.caps(names)
    mechanism = options.mechanism(names, caps)
    report = audit(
        mechanism, options.prior.low, options.prior.high, profiles=profiles, claims=_CLAIMS,
        points=options.points, quantity_limit=np.inf if caps is None else float(np.max(caps)),
        unit="over the run", names=names,
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
        return _lies(mechanism, options.prior, names, profiles, report, name)

    blocks = (table,) if note is None else (table, note)
    return Document(blocks, data if note is None else {**data, "note": note}, draw, holds=report.passed)


def _lies(
    mechanism: RespondingLike,
    prior: Prior,
    names: tuple[str, ...],
    profiles: list[Floats],
    report: AuditReport,
    name: str,
) -> Figure:
    """The lies of the client of the witness, or of the first one."""
    from bonafed.mechanisms.lies_figure import lie_figure

    finding = report["truthful"]
    witness = finding.witness
    client, others = 0, profiles[0]
    if witness is not None and witness.client is not None and witness.others is not None:
        client, others = witness.client, np.array(witness.others)
    costs = np.linspace(prior.low, prior.high, 241)
    with np.errstate(over="ignore", invalid="ignore"):  # told by the findings
        epsilon, payment = mechanism.respond(others, client, costs)
    # Who understates a high cost may lose far more than anyone is paid: not of interest.
    reach = float(payment[np.isfinite(payment)].max(initial=0.0))
    return lie_figure(costs, epsilon, payment, name, finding, "over the run", reach, names[client])


ATTACK = Command(
    "Search for a profitable lie about the cost of privacy, and for broken promises.",
    JsamAuditOptions,
    attack,
    "Every client of every profile of costs lies while the others' reports stay fixed. Checks that no lie "
    "pays by more than 1e-9 of the largest payment, that nobody loses by joining, and that epsilon does "
    "not rise in the client's own report. The witness of a violation (true cost, lie, gain) is shown.",
    "bonafed audit jsam --prior uniform:0,1 --eta 5 --noise-scale 1",
)
