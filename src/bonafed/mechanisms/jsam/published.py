"""A contract to buy privacy, as a file.

What the file states, and nothing else, fixes the terms of every client for any reports:

    format, version     which rules to read it by
    clients             how many it is for; N of those admitted are the ones not above the highest cost
    prior               of a client's cost per unit of epsilon; its highest cost is the highest admitted
    eta                 weight of the training loss against money
    expected_budget     money that the payments are on average over the prior, where eta was found for it
    noise_scale         Q: a number, or what it is made of with delta and rounds (`noise.py`)
    scheme, members     which plan: the optimum, everybody alike, or the M cheapest
    sizes               records of every client by name, where their shares are what is fair (theory B7);
                        Q then is that of M = 2, and a release averages what a client has, at most `records`
    max_epsilon         most that is bought from a client, where there is a cap: one for all, or by name
    delta, rounds, clients_per_round, clip
                        what epsilon is for: the draws, the noise and the promise to every record
    noise_at            "sum" where noise is added once to the sum, by a server that is trusted with single
                        updates; everybody selected then takes part in every round, and there are no draws
                        and no clients_per_round. Left out where every client adds its own
    decimals            digits after the point of an amount of money
    coins               the commitment to how who is drawn is decided, where the server made one
    example             terms of some clients if reports were the quantiles of the prior

Terms are computed from the other numbers (theory B3). The example shows what these come to, so that nobody
changes one of them unseen and another implementation can be held against it: a file whose example does not
show the terms that will be paid is refused when it is read. Terms do not depend on the order of reports:
clients are taken in the order of their names, shorter ones first, which is also who comes first where
virtual costs are equal. It depends on no report, and who comes second is left with the same utility, as V_k
is continuous.

A hard budget is not published: its weight follows from the reports, every client has a say in it, and the
contract could not promise that no lie pays. `expected_budget` is what can be promised.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.canonical import coin_commitment
from bonafed.contracts.published import PublishedContract
from bonafed.contracts.terms import Reports
from bonafed.economics import money
from bonafed.economics.findings import Finding
from bonafed.economics.priors import Prior
from bonafed.economics.registry import field, prior_from_json
from bonafed.economics.registry import prior as checked_prior
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.federation import Question
from bonafed.learning.privacy import checked_delta, delta_rule
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.jsam.noise import Ingredients, Noise, averaged, noise_of, scale_of
from bonafed.mechanisms.jsam.payments import JsamMechanism, capped_rule, settle, virtual_costs_of
from bonafed.mechanisms.jsam.rules import Rule
from bonafed.mechanisms.jsam.schemes import (
    DRAWS,
    PUBLISHED,
    draw_costs,
    expected_weight,
    refuse_with_sizes,
    rule_of,
)
from bonafed.mechanisms.jsam.section import cap, caps_by_name, sizes_by_name, sizes_of
from bonafed.mechanisms.jsam.terms import Example, JsamTerms, example_from_json, in_order
from bonafed.mechanisms.jsam.thresholds import Ints
from bonafed.presentation.documents import Document, JSONObject

MOST_CLIENTS = 10**6
MOST_ROUNDS = 10**9
PublishedScheme = Literal["jsam", "unbiased", "cheapest"]
_SHOWN = 9  # clients of the example


def by_name(name: str) -> tuple[int, str]:
    """Shorter names first, so that numbers are in their order."""
    return len(name), name


def question(
    prior: Prior, seed: int = 0, *, optional: bool = True, names: tuple[str, ...] = ()
) -> Question:
    """What every client is asked to state; simulated ones draw their costs from the prior."""
    return Question(
        "cost", "money per unit of epsilon", lambda clients, again=seed: draw_costs(prior, clients, again),
        optional=optional, names=names,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class JsamContract(PublishedContract):
    """Terms for all reports; made by `publish`, or read from a file."""

    mechanism = "jsam"
    format = "bonafed-jsam-contract"

    clients: int
    prior: Prior  # of a client's cost per unit of epsilon
    eta: float  # weight of the training loss against money
    noise: Noise  # Q, or what it is made of
    rounds: int
    clip: float  # largest norm of one record's gradient
    delta: float = 1e-5
    clients_per_round: int = 10  # drawn with replacement
    scheme: PublishedScheme = "jsam"
    members: int | None = None  # M of "cheapest"
    max_epsilon: float | Mapping[str, float] | None = None  # most that is bought from a client
    expected_budget: float | None = None  # money on average over the prior that eta was found for
    decimals: int = money.DECIMALS  # digits after the point of an amount
    coin_commitment: str | None = None  # SHA-256, in hex, of the secret that decides who is drawn
    noise_at: NoiseAt = "client"  # "sum": noise is added once, by whom clients trust with their updates
    sizes: Mapping[str, int] | None = None  # records by client, where their shares are what is fair
    example_in_file: Example | None = dataclasses.field(default=None, repr=False)  # None: not read from one

    def __post_init__(self) -> None:
        values: dict[str, object] = {
            "clients": checks.whole("clients", self.clients, at_most=MOST_CLIENTS),
            "eta": checks.positive("eta", self.eta),
            "noise": noise_of("noise_scale", self.noise),
            "rounds": checks.whole("rounds", self.rounds, at_most=MOST_ROUNDS),
            "clip": checks.positive("clip", self.clip),
            "delta": delta_rule("delta", self.delta),
            "clients_per_round": checks.whole("clients_per_round", self.clients_per_round),
            "scheme": checks.one_of("scheme", self.scheme, PUBLISHED),
            "decimals": money.decimals("decimals", self.decimals),
            "noise_at": checks.literal("noise_at", self.noise_at, NoiseAt),
        }
        if self.max_epsilon is not None:
            values["max_epsilon"] = cap("max_epsilon", self.max_epsilon)
        if self.sizes is not None:
            values["sizes"] = sizes_of("sizes", self.sizes)
        if self.expected_budget is not None:
            values["expected_budget"] = checks.positive("expected_budget", self.expected_budget)
        if self.coin_commitment is not None:
            values["coin_commitment"] = coin_commitment(self.coin_commitment)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._agree()

    def _agree(self) -> None:
        """Rules between fields, and that there is a plan at all."""
        if not isinstance(self.prior, Prior):
            raise InvalidValue("prior", "must be a prior", repr(self.prior)[:60])
        if isinstance(self.max_epsilon, Mapping) and len(self.max_epsilon) != self.clients:
            rule = f"must be one number, or {self.clients}, one per client"
            raise InvalidValue("max_epsilon", rule, len(self.max_epsilon))
        if self.noise_at == "sum":
            if self.coin_commitment is not None:
                rule = 'must be left out with noise_at = "sum", where nobody is drawn'
                raise InvalidValue("coins", rule, self.coin_commitment)
            if isinstance(self.max_epsilon, Mapping) and self.scheme == "jsam":
                rule = 'must be one for all clients with noise_at = "sum"'
                raise InvalidValue("max_epsilon", rule, len(self.max_epsilon))
        if self.sizes is not None:
            refuse_with_sizes(self.scheme, self.max_epsilon, self.noise_at)
            if len(self.sizes) != self.clients:
                raise InvalidValue("sizes", f"must be {self.clients}, one per client", len(self.sizes))
        _ = self.rule, self.noise_scale, self.delta_notes

    @cached_property
    def delta_notes(self) -> list[str]:
        """What to say of delta for the records that it states; one that promises nothing is refused."""
        stated = [] if self.sizes is None else [int(size) for size in self.sizes.values()]
        if self.sizes is None and isinstance(self.noise, Ingredients):
            stated = [self.noise.records]
        return checked_delta("delta", self.delta, stated)

    @cached_property
    def noise_scale(self) -> float:
        """Q; where sizes count, that of M = 2."""
        return scale_of(self.noise, self.delta, self.rounds, by_size=self.sizes is not None)

    @cached_property
    def rule(self) -> Rule:
        """Which plan, without a cap; where sizes count, for the clients in the order of `names`."""
        return rule_of(
            self.scheme, self.clients, self.members, noise_at=self.noise_at, sizes=self.held,
            records=self.averaged,
        )  # fmt: skip

    @cached_property
    def held(self) -> Ints | None:
        """(N,) records of each client in the order of `names`, where sizes count."""
        return None if self.sizes is None else sizes_by_name(self.sizes, tuple(self.names))

    @cached_property
    def averaged(self) -> Ints | None:
        """(N,) records that each client's releases average, where sizes count and Q is made of them."""
        return None if self.held is None else averaged(self.noise, self.held)

    @cached_property
    def expected_spend(self) -> float:
        """Money that its weight buys for, on average over the draws of all costs that the format fixes."""
        rng = np.random.default_rng(0)
        draws = np.array([self.prior.sample(rng, self.clients) for _ in range(DRAWS)])
        rule = capped_rule(self.rule, self.caps(self.names))
        virtual = virtual_costs_of(draws, self.prior)
        return float(np.mean(rule.spending(virtual, self.eta, self.noise_scale)))

    def caps(self, names: Sequence[str]) -> float | Floats | None:
        """Most that is bought from each of these clients."""
        if not isinstance(self.max_epsilon, Mapping):
            return self.max_epsilon
        return caps_by_name(self.max_epsilon, tuple(names))

    def responding(self, caps: ArrayLike | None) -> JsamMechanism:
        """What an audit attacks: epsilon and payment for any reports."""
        rule = capped_rule(self.rule, caps)
        return JsamMechanism(self.prior, self.eta, self.noise_scale, rule)

    @cached_property
    def example(self) -> Example:
        """What the numbers come to, for everybody to see."""
        return self._example() if self.example_in_file is None else self.example_in_file

    def _example(self) -> Example:
        n = self.clients
        reports = np.asarray(self.prior.quantile((np.arange(n) + 0.5) / n))
        mechanism = self.responding(self.caps(self.names))
        for cost in (self.prior.low, self.prior.high):  # there is a plan, however low or high costs are
            mechanism.plan(np.full(n, cost))
        places = np.unique(np.linspace(0, n - 1, min(n, _SHOWN)).round().astype(int))
        terms = [mechanism.respond(reports, int(place), reports[[place]]) for place in places]
        epsilon, payment = np.array(terms)[:, :, 0].T + 0.0
        return Example(*(tuple(column.tolist()) for column in (reports[places] + 0.0, epsilon, payment)))

    @property
    def names(self) -> list[str]:
        """Of the clients in their order: those of sizes or caps, or numbers where anybody may take part."""
        for known in (self.sizes, self.max_epsilon):
            if isinstance(known, Mapping):
                return sorted(known, key=by_name)
        return [str(number) for number in range(self.clients)]

    @property
    def listed(self) -> tuple[str, ...]:
        """The clients that it is for; (): anybody, so many at most."""
        by_client = self.sizes is not None or isinstance(self.max_epsilon, Mapping)
        return tuple(self.names) if by_client else ()

    def fields(self) -> JSONObject:
        from_parts = isinstance(self.noise, Ingredients)
        data: JSONObject = {
            "clients": self.clients,
            "prior": self.prior.to_json(),
            "eta": self.eta,
            "noise_scale": self.noise.to_json() if from_parts else self.noise,  # type: ignore[union-attr]  # made
            "rounds": self.rounds,
            "clip": self.clip,
            "delta": self.delta,
            "clients_per_round": self.clients_per_round,
            "scheme": self.scheme,
            "decimals": self.decimals,
            "example": {name: list(column) for name, column in self.example._asdict().items()},
        }
        for name in ("members", "expected_budget"):
            if getattr(self, name) is not None:
                data[name] = getattr(self, name)
        if self.max_epsilon is not None:
            caps = self.max_epsilon
            data["max_epsilon"] = dict(caps) if isinstance(caps, Mapping) else caps
        if self.sizes is not None:
            data["sizes"] = dict(self.sizes)
        if self.noise_at == "sum":
            data["noise_at"] = self.noise_at
            del data["clients_per_round"]
        return data

    @classmethod
    def from_fields(cls, data: JSONObject) -> Self:
        needed = ["clients", "eta", "rounds", "clip", "delta", "scheme", "decimals"]
        if data.get("noise_at") != "sum":
            needed.append("clients_per_round")
        values = {name: field(data, name, "contract") for name in needed}
        optional = {
            name: data[name]
            for name in ("members", "max_epsilon", "expected_budget", "noise_at", "sizes")
            if name in data
        }
        for name, value in optional.items():
            if value is None:
                raise InvalidValue(f"contract.{name}", "must be left out if there is none", "null")
        prior = prior_from_json(field(data, "prior", "contract"))
        noise = noise_of("contract.noise_scale", field(data, "noise_scale", "contract"))
        example = field(data, "example", "contract")
        try:
            contract = cls(
                prior=prior, noise=noise, **values, **optional,
                example_in_file=example_from_json(example),
            )  # fmt: skip
            contract.example.require(contract._example())
        except InvalidValue as error:
            raise error.renamed(f"contract.{error.name}") from error
        return contract

    @property
    def draws(self) -> int:
        """Clients drawn in a round, with replacement; with noise on the sum, all take part."""
        return self.clients if self.noise_at == "sum" else self.clients_per_round

    @property
    def question(self) -> Question:
        return question(self.prior, names=self.listed)

    @property
    def is_posted(self) -> bool:
        """How likely a client is to be drawn depends on what the others report."""
        return False

    def terms_for(self, reports: Reports) -> JsamTerms:
        """No term depends on the order of the reports.

        >>> from bonafed.economics import Uniform
        >>> contract = JsamContract(3, Uniform(0, 1), eta=5, noise=1.0, rounds=100, clip=1.0)
        >>> terms = contract.settle({"ada": 0.2, "ben": 0.5, "eve": 1.5})
        >>> terms.epsilon.round(3).tolist(), [amount / 100 for amount in terms.promised]
        ([1.925, 1.419, 0.0], [1.42, 1.3, 0.0])
        """
        names = [*self.listed] or sorted(reports, key=by_name)
        # whoever does not report is as one whose cost is above the highest: not admitted
        stated = [reports.get(name, math.inf) for name in names]
        stated += [math.inf] * (self.clients - len(names))
        beyond = 2 * self.prior.high + 1
        settlement = settle(
            np.minimum(stated, beyond), self.prior, self.eta, self.noise_scale,
            rule=capped_rule(self.rule, self.caps(names)),
        )  # fmt: skip
        place = {name: k for k, name in enumerate(names)}
        return JsamTerms(
            tuple(reports), in_order(settlement, [place[name] for name in reports]), self.prior,
            self.clients_per_round, self.rounds, self.delta, self.decimals, self.expected_budget,
            digest=self.digest, noise_at=self.noise_at,
            held=None if self.sizes is None else tuple(self.sizes[name] for name in reports),
            expected_clients=self.clients,
        )  # fmt: skip

    def verify(self) -> list[Finding]:
        """Checks that trust nothing the writer computed (`verification.py`)."""
        from bonafed.mechanisms.jsam.verification import verify

        return verify(self)

    def prospect(self, report: float) -> Document:
        """What a participant whose true cost this is would earn, and what the best lie would gain."""
        from bonafed.mechanisms.jsam.prospects import prospect

        return prospect(self, report).document()

    def signed(self) -> Document:
        from bonafed.mechanisms.jsam.signing import contract_document

        return contract_document(self)

    def settings(self) -> Mapping[str, Any]:
        """From these keys of [jsam] the same contract follows."""
        caps, noise = self.max_epsilon, self.noise
        drawn = {} if self.noise_at == "sum" else {"clients_per_round": self.clients_per_round}
        return {
            **drawn,
            "prior": self.prior.to_json(),
            "clip": self.clip,
            "noise_scale": noise.to_json() if isinstance(noise, Ingredients) else noise,
            "smoothness": None,  # it is in noise_scale
            "eta": self.eta,
            "budget": None,
            "expected_budget": self.expected_budget,
            "delta": self.delta,
            "scheme": self.scheme,
            "members": self.members,
            "max_epsilon": dict(caps) if isinstance(caps, Mapping) else caps,
            "noise_at": self.noise_at,
            "shares": "alike" if self.sizes is None else "sizes",
        }


def contract(
    prior: Prior | str,
    clients: int,
    rounds: int,
    *,
    noise_scale: float | Ingredients | Mapping[str, float],
    clip: float,
    eta: float | None = None,
    expected_budget: float | None = None,
    max_epsilon: float | Mapping[str, float] | None = None,
    delta: float = 1e-5,
    clients_per_round: int = 10,
    scheme: PublishedScheme = "jsam",
    members: int | None = None,
    decimals: int = money.DECIMALS,
    noise_at: NoiseAt = "client",
    sizes: Mapping[str, int] | None = None,
) -> JsamContract:
    """The contract to publish for a weight `eta` of the loss, or for an `expected_budget`: one of the two.

    `noise_scale` is Q, or what it is made of: dimension, smoothness and records. A prior may be spelled,
    "uniform:0,1". With `sizes`, records by client, their shares are what is fair.

    >>> from bonafed.economics import Uniform
    >>> offer = contract(Uniform(0, 1), 2, 100, noise_scale=1.0, clip=1.0, expected_budget=3)
    >>> offer.settle({"ada": 0.2, "ben": 0.5}).epsilon.round(3).tolist()
    [2.187, 1.611]
    """
    if eta is None and expected_budget is None:
        raise MissingValue("eta", "is required, or expected_budget in its place")
    if eta is not None and expected_budget is not None:
        raise InvalidValue("expected_budget", "must not be set together with eta", expected_budget)
    offer = JsamContract(
        clients, checked_prior("prior", prior), 1.0 if eta is None else eta,
        noise_of("noise_scale", noise_scale), rounds, clip, delta, clients_per_round, scheme, members,
        max_epsilon, decimals=decimals, noise_at=noise_at, sizes=sizes,
    )  # fmt: skip
    return offer if expected_budget is None else publish(offer, expected_budget)


def publish(contract: JsamContract, expected_budget: float) -> JsamContract:
    """The contract whose payments are this sum on average over the prior, instead of its own weight."""
    caps = contract.caps(contract.names)
    eta = expected_weight(
        contract.prior, contract.clients, expected_budget, contract.noise_scale,
        capped_rule(contract.rule, caps), caps,
    )  # fmt: skip
    return replace(contract, eta=eta, expected_budget=expected_budget, example_in_file=None)
