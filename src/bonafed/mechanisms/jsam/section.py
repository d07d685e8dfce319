"""The table [jsam] of a config, and what it asks of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics import money
from bonafed.economics.priors import Prior
from bonafed.economics.registry import PRIOR_FORMS
from bonafed.economics.registry import prior as prior_rule
from bonafed.errors import InvalidValue, MissingValue, refuse
from bonafed.learning.federation import Roster
from bonafed.learning.privacy import delta_rule
from bonafed.learning.sections import DELTA, NOISE_AT, NoiseAt, NoiseSource, Training
from bonafed.mechanisms.jsam.noise import Noise, noise_of
from bonafed.mechanisms.jsam.schemes import (
    LARGEST_LOSSES,
    OPTIMAL,
    PUBLISHED,
    WITH_MEMBERS,
    Scheme,
    refuse_with_sizes,
)
from bonafed.mechanisms.jsam.sizes import whole_sizes
from bonafed.mechanisms.jsam.thresholds import Ints
from bonafed.mechanisms.jsam.water_level import one_cap
from bonafed.mechanisms.protocol import Config
from bonafed.mechanisms.server_rules import require_memory_possible
from bonafed.sections import Section, flag, key, one_of

Cap = float | tuple[float, ...] | Mapping[str, float]  # for all, or one per client: in order, or by name
VERIFIABLE = "verifiable"
Shares = Literal["alike", "sizes"]
BY_SIZE = "sizes"  # of `Shares`


def cap(name: str, value: object) -> Cap:
    """One number, a list of them in the order of the clients, or a table by client."""
    if isinstance(value, Mapping):
        if not value:
            raise InvalidValue(name, "must name a client", "an empty table")
        checks.names(name, value, one=name)
        return {client: one_cap(f"{name}.{client}", most) for client, most in value.items()}
    if isinstance(value, list | tuple):
        return tuple(one_cap(name, most) for most in checks.vector(name, value, sign="positive").tolist())
    return one_cap(name, value)


def sizes_of(name: str, value: object) -> dict[str, int]:
    """The records of each client by name, checked."""
    if not isinstance(value, Mapping):
        raise InvalidValue(name, "must be a table of records by client", repr(value)[:60])
    checks.names(name, value, one=name)
    return {client: checks.whole(f"{name}.{client}", held) for client, held in value.items()}


@dataclass(frozen=True)
class JsamSection(Section):
    """Whose privacy is bought, how much of it, for what money."""

    prior: Prior = key(
        prior_rule,
        help="What you believe about a client's cost per unit of epsilon: " + PRIOR_FORMS,
        example='"uniform:0,1"',
    )
    clip: float = key(checks.positive, help="Largest norm of one record's gradient.", example="1.0")
    noise_scale: Noise | None = key(
        noise_of, None, help="Q, how much noise harms training: a number, or a table of what it is made of."
    )
    smoothness: float | None = key(
        checks.positive, None, help="L of the loss, from which Q follows together with what the run knows."
    )
    eta: float | None = key(checks.positive, None, help="Weight of the training loss against money.")
    budget: float | None = key(
        checks.positive, None, help="Or: the payments for these reports stay within this sum."
    )
    expected_budget: float | None = key(
        checks.positive,
        None,
        help="Or: the payments are this sum on average over the prior; with eta, the one found for it.",
    )
    delta: float = key(delta_rule, 1e-5, help=DELTA)
    clients_per_round: int = key(checks.whole, 10, help="Clients drawn per round, with replacement.")
    scheme: str = key(
        one_of(Scheme), "jsam", help='Or "unbiased", "cheapest", "largest losses", "complete information".'
    )
    members: int | None = key(checks.whole, None, help='M of "cheapest" and "largest losses".')
    shares: str = key(
        one_of(Shares),
        "alike",
        help='Fair is to select everybody alike; or "sizes": by the number of records that each holds.',
    )
    max_epsilon: Cap | None = key(
        cap, None, help="Most that is bought from a client: a number, a list, or a table by client."
    )
    decimals: int = key(money.decimals, money.DECIMALS, help="Decimals of the amounts paid.")
    cost_seed: int = key(
        checks.seed, 0, help="Seed of the costs of simulated clients, drawn from the prior."
    )
    noise: str = key(
        one_of(NoiseSource), "secret", help='Or "reproducible": whoever knows the seed can subtract it.'
    )
    noise_at: str = key(
        one_of(NoiseAt),
        "client",
        help=NOISE_AT
        + ' With "sum" whoever is selected takes part in every round, with its weight; nobody is '
        "drawn.",
    )
    clear_losses: bool = key(
        flag,
        False,
        help='For "largest losses": accept that clients tell the server their losses without noise.',
    )
    coins: str = key(
        one_of(Literal["seed", "verifiable"]),
        "seed",
        help='Who is drawn when follows from run.seed; or "verifiable": anybody can check it.',
    )

    def _agree(self) -> Iterator[InvalidValue]:
        if (self.scheme == LARGEST_LOSSES) != self.clear_losses:
            yield InvalidValue("clear_losses", *_about_losses(self.scheme, self.clear_losses))
        if self.coins == VERIFIABLE and (self.scheme not in PUBLISHED or self.budget is not None):
            what = self.scheme if self.budget is None else "a hard budget"
            rule = f'must be "seed" with {what}, which cannot be published: coins belong to a contract'
            yield InvalidValue("coins", rule, repr(self.coins))
        if self.shares == BY_SIZE:
            refuse_with_sizes(self.scheme, self.max_epsilon, self.noise_at)
        yield from self._agree_on_noise_and_money()
        yield from self._agree_on_sums()
        if isinstance(self.max_epsilon, tuple | Mapping) and self.scheme == "cheapest":
            each = self.max_epsilon
            caps = list(each.values() if isinstance(each, Mapping) else each)
            yield InvalidValue("max_epsilon", "must be one for all clients with cheapest", caps)
        if self.scheme in WITH_MEMBERS and self.members is None:
            yield MissingValue("members", f"is required for {self.scheme}, such as members = 10")
        if self.scheme not in WITH_MEMBERS and self.members is not None:
            rule = "must not be given unless scheme is " + " or ".join(WITH_MEMBERS)
            yield InvalidValue("members", rule, self.members)

    def _agree_on_noise_and_money(self) -> Iterator[InvalidValue]:
        if self.noise_scale is None and self.smoothness is None:
            yield MissingValue("noise_scale", "or smoothness is required, such as smoothness = 1.0")
        if self.noise_scale is not None and self.smoothness is not None:
            yield InvalidValue("smoothness", "must not be given with noise_scale", self.smoothness)
        if self.eta is None and self.budget is None and self.expected_budget is None:
            yield MissingValue("eta", "or budget or expected_budget is required, such as eta = 1.0")
        if self.budget is not None:
            for name in ("eta", "expected_budget"):
                if getattr(self, name) is not None:
                    yield InvalidValue("budget", f"must not be given with {name}", self.budget)

    def _agree_on_sums(self) -> Iterator[InvalidValue]:
        if self.noise_at != "sum":
            return
        if self.coins == VERIFIABLE:
            rule = 'must be "seed" with noise_at = "sum", where nobody is drawn'
            yield InvalidValue("coins", rule, repr(self.coins))
        if isinstance(self.max_epsilon, tuple | Mapping) and self.scheme in OPTIMAL:
            rule = f'must be one for all clients with noise_at = "sum" and scheme {self.scheme}'
            yield InvalidValue("max_epsilon", rule, len(self.max_epsilon))

    def caps(self, members: Roster) -> float | Floats | None:
        """Most that is bought from each client of a roster."""
        if not isinstance(self.max_epsilon, tuple | Mapping):
            return self.max_epsilon
        if isinstance(self.max_epsilon, Mapping):
            return caps_by_name(self.max_epsilon, members.names)
        rule = f"must be one number, or {len(members)}, one per client"
        if len(self.max_epsilon) != len(members):
            raise InvalidValue("max_epsilon", rule, len(self.max_epsilon))
        return checks.vector("max_epsilon", self.max_epsilon)

    def expected_epsilon(self, members: Roster) -> Floats | None:
        """(N,) what is bought from each at most, before anybody reports (11.3); None: nothing says."""
        sums = [sum_ for sum_ in (self.budget, self.expected_budget) if sum_ is not None]
        caps = self.caps(members)
        return epsilon_before(caps, min(sums, default=None), len(members), self.prior.high)

    def sizes(self, members: Roster) -> Ints | None:
        """(N,) records of each client of a roster, where they count."""
        return whole_sizes("shares", members.sizes) if self.shares == BY_SIZE else None

    def table(self) -> dict[str, Any]:
        each = self.max_epsilon
        return (
            {**super().table(), "max_epsilon": dict(each)} if isinstance(each, Mapping) else super().table()
        )


def epsilon_before(
    caps: float | Floats | None, budget: float | None, clients: int, highest: float
) -> Floats | None:
    """(N,) eps_0 = min(cap, budget/(N c_max)) of (11.3), from what is public before anybody reports.

    >>> epsilon_before(5.0, 50.0, 5, 4.0)
    array([2.5, 2.5, 2.5, 2.5, 2.5])
    """
    if caps is None and budget is None:
        return None
    sold = np.inf if budget is None else budget / (clients * highest)
    most = np.inf if caps is None else caps
    return np.minimum(np.broadcast_to(np.asarray(most, dtype=np.float64), (clients,)), sold)


def caps_by_name(caps: Mapping[str, float], names: tuple[str, ...]) -> Floats:
    """(N,) caps in the order of the names: of all of them and of nobody else."""
    _require_same_clients("max_epsilon", "a cap", caps, names)
    return checks.vector("max_epsilon", [caps[name] for name in names])


def sizes_by_name(sizes: Mapping[str, float], names: tuple[str, ...]) -> Ints:
    """(N,) records in the order of the names: of all of them and of nobody else."""
    _require_same_clients("sizes", "the records", sizes, names)
    return whole_sizes("sizes", [sizes[name] for name in names])


def _require_same_clients(name: str, what: str, held: Mapping[str, float], names: tuple[str, ...]) -> None:
    for client in names:
        if client not in held:
            raise InvalidValue(name, f"must hold {what} for every client, also for {client!r}", "none")
    for client in held:
        if client not in names:
            raise InvalidValue(name, "must be for clients that take part", repr(client))


def _about_losses(scheme: str, accepted: bool) -> tuple[str, str]:
    """Rule and value where a scheme and what was accepted contradict each other."""
    if accepted:
        return f"must not be true unless scheme is {LARGEST_LOSSES}", f'true with "{scheme}"'
    rule = (
        f"must be true for {LARGEST_LOSSES}: every client sends its loss in clear, and no epsilon covers it"
    )
    return rule, "false"


def check(config: Config) -> Config:
    """What [jsam] asks of the other tables."""
    refuse(list(_against_training(config.local)))
    return require_memory_possible(config)


def _against_training(training: Training) -> Iterator[InvalidValue]:
    """What [jsam] does not go with."""
    if training.participation != 1:
        yield InvalidValue("training.participation", "must be left to jsam", training.participation)
    if training.optimizer != "sgd":
        yield InvalidValue("training.optimizer", "must be sgd with jsam", repr(training.optimizer))
    if training.server_optimizer != "sgd":
        value = repr(training.server_optimizer)
        yield InvalidValue("training.server_optimizer", "must be sgd with jsam", value)
    if training.aggregation == "memory":
        rule = "must be plain with jsam, whose plan counts the noise of every release once"
        yield InvalidValue("training.aggregation", rule, repr(training.aggregation))
