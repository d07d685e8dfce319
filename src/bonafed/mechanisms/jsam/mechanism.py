"""Private federated learning in which the server buys privacy (paper II-C, VI): the rules of its rounds.

    (1)  every client reports its privacy sensitivity, money per unit of epsilon;
    (2)  the scheme turns reports into selection probabilities p_k, privacy budgets epsilon_k and payments
         (`schemes.py`), as published beforehand where it can be (`published.py`);
    (3)  the whole schedule is drawn before training: m clients per round, with replacement, by p. T_k is
         how often client k is drawn, with multiplicity, and known before the first gradient (theory B5);
    (4)  every gradient of client k carries the noise that makes all those a record of its is in, T_k if it
         takes one step whenever it is drawn, together (epsilon_k, delta)-private, exactly; a client drawn
         twice in a round releases twice;
    (5)  the round's change is the mean of what was received;
    (6)  payments are made once, after the last round, by the epsilon that was given (`payments.py`, theory
         B11). They buy the right to epsilon_k: a client that is never drawn releases nothing and is paid
         all the same; one that is drawn and does not answer is not paid for what it did not give.
    (7)  with noise_at = "sum" nobody is drawn: whoever is selected takes part in every round with weight
         p_k, and the sum carries the noise that is enough for each of them (theory B10).

The schedule comes from the seed of the run, or from verifiable coins. "largest losses" asks every client
for the loss of the first model on its records, in the first round, before anybody is drawn
(`chosen_by_loss.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.attendance import Lottery
from bonafed.contracts.canonical import require_same_coins
from bonafed.contracts.published import Agreement, PublishedContract
from bonafed.contracts.terms import Reports, Turns
from bonafed.economics import money
from bonafed.economics.budgets import BudgetPromise
from bonafed.economics.findings import Finding, Kind
from bonafed.economics.statement import COVERED, Statement
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Question, Roster
from bonafed.learning.rounds import Participation
from bonafed.learning.sections import NoiseAt, NoiseSource
from bonafed.learning.work import record_steps
from bonafed.mechanisms.averaging import Account, Averaging, missing_turns
from bonafed.mechanisms.jsam.chosen_by_loss import ByLosses
from bonafed.mechanisms.jsam.noise import Ingredients, Noise, averaged, scale_of
from bonafed.mechanisms.jsam.published import JsamContract, PublishedScheme, publish, question
from bonafed.mechanisms.jsam.schemes import LARGEST_LOSSES, PUBLISHED, Scheme, settle_scheme
from bonafed.mechanisms.jsam.section import BY_SIZE, VERIFIABLE, JsamSection, sizes_by_name
from bonafed.mechanisms.jsam.terms import COLUMN, RECORDS, JsamTerms, in_order
from bonafed.mechanisms.left_open import Steps, with_steps
from bonafed.mechanisms.promises import Promise
from bonafed.mechanisms.protocol import Config, Ints
from bonafed.randomness import Purpose, generator
from bonafed.sections import named, section_from

_NEARLY = 1.02  # clients whose records differ by less are alike, as far as Q goes


def draw_schedule(selection: ArrayLike, rounds: int, clients_per_round: int, seed: int) -> Ints:
    """(3): (rounds, clients_per_round) client numbers, each drawn by the selection probabilities."""
    p = checks.vector("selection", selection)
    size = (checks.whole("rounds", rounds), checks.whole("clients_per_round", clients_per_round))
    rng = generator(checks.seed("seed", seed), Purpose.SCHEDULE)
    return rng.choice(p.size, size=size, p=p / p.sum())


@lru_cache(maxsize=4)  # asked for round by round
def _schedule(selection: bytes, rounds: int, clients_per_round: int, seed: int) -> Ints:
    return draw_schedule(np.frombuffer(selection), rounds, clients_per_round, seed)


@dataclass(frozen=True, slots=True, eq=False)
class BoughtPrivacy:
    """The rules of a run under [jsam]."""

    config: Config
    noise: Noise  # Q, or what it is made of
    contract: JsamContract | None  # None: what is bought follows from more than the reports
    unequal: tuple[int, int] | None = None  # records per release, fewest and most, if Q is made of them
    differs: str | None = None  # what Q is made of that is otherwise in this run, with both numbers

    @classmethod
    def of(cls, config: Config, members: Roster, parameters: int) -> BoughtPrivacy:
        """From a config; whatever is wrong with it for these clients is refused here."""
        section = _section(config)
        if config.contract is not None:
            published = _under(config.contract, config, members)
            differs = _different(published.noise, config, members, parameters)
            return cls(config, published.noise, published, differs=differs)
        with named("jsam"):
            noise = section.noise_scale or _ingredients(config, members, parameters)
            contract = _contract(section, config, members, noise)
        differs = _different(noise, config, members, parameters)
        each = {min(config.local.batch, int(size)) for size in members.sizes}
        of_fewest = isinstance(noise, Ingredients) and noise.records == min(each)
        unequal = (min(each), max(each)) if of_fewest and max(each) > _NEARLY * min(each) else None
        return cls(config, noise, contract, None if section.shares == BY_SIZE else unequal, differs)

    @property
    def section(self) -> JsamSection:
        """The table [jsam] of the run's config."""
        return _section(self.config)

    @property
    def noise_at(self) -> NoiseAt:
        """Who adds the noise: every client, or the server to the sum."""
        return cast(NoiseAt, self.section.noise_at)

    @property
    def noise_scale(self) -> float:
        """Q; where sizes count, that of M = 2."""
        by_size = self.section.shares == BY_SIZE
        return scale_of(self.noise, self.section.delta, self.config.local.rounds, by_size=by_size)

    @property
    def question(self) -> Question:
        optional = self.section.scheme in PUBLISHED  # under the others terms depend on everybody
        names = () if self.contract is None else self.contract.listed
        return question(self.section.prior, self.section.cost_seed, optional=optional, names=names)

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        """(2); where clients are chosen by their losses, the terms are still to come."""
        costs = {name: reports[name] for name in members.names if name in reports}
        self.question.require_enough(costs, len(members))
        present, silent = members.only(costs), tuple(name for name in members.names if name not in costs)
        if self.contract is not None:
            return Agreement(present, costs, self.contract, self.contract.settle(costs), silent=silent)
        terms = None if self.section.scheme == LARGEST_LOSSES else self.terms(members, costs)
        return Agreement(present, costs, terms=terms, silent=silent)

    def terms(self, members: Roster, reports: Reports, losses: Floats | None = None) -> JsamTerms:
        """(2) of a scheme that is not published."""
        section, beyond = self.section, 2 * self.section.prior.high + 1
        here = [index for index, name in enumerate(members.names) if name in reports]
        with named("jsam", losses="scheme"):
            sizes = section.sizes(members)
            settlement = settle_scheme(
                # whoever does not report is as one whose cost is above the highest: not admitted
                section.prior, [reports.get(name, beyond) for name in members.names], self.noise_scale,
                cast(Scheme, section.scheme), eta=section.eta,
                budget=_without_reserve(section, len(members)),
                expected_budget=None if section.eta else section.expected_budget,
                members=section.members, losses=losses, max_epsilon=section.caps(members),
                noise_at=self.noise_at, sizes=sizes,
                records=None if sizes is None else averaged(self.noise, sizes),
            )  # fmt: skip
        return JsamTerms(
            tuple(members.names[index] for index in here), in_order(settlement, here), section.prior,
            section.clients_per_round, self.config.local.rounds,
            section.delta, section.decimals, section.expected_budget, section.budget,
            noise_at=self.noise_at, held=None if sizes is None else tuple(sizes[here].tolist()),
            expected_clients=len(members),
        )  # fmt: skip

    def lottery(self, agreement: Agreement) -> Lottery | None:
        if self.section.coins != VERIFIABLE:
            return None
        return _terms(agreement).lottery

    def participation(self, agreement: Agreement, round_number: int) -> Participation:
        """(3), (5): each release is an equal share of the mean; with noise on the sum, (7)."""
        if self.noise_at == "sum":
            weights = _terms(agreement).selection
            selected = np.flatnonzero(weights)
            return Participation(selected, weights[selected], is_mean=True, expected=weights)
        if agreement.coins is not None:
            who = agreement.coins.participants(round_number)
        else:
            selection, rounds = _terms(agreement).selection.tobytes(), self.config.local.rounds
            schedule = _schedule(selection, rounds, self.section.clients_per_round, self.config.run.seed)
            who = schedule[round_number - 1]
        expected = _terms(agreement).selection
        return Participation(who, np.full(who.size, 1 / max(1, who.size)), is_mean=True, expected=expected)

    def spend(
        self, agreement: Agreement, round_number: int, who: Participation, turns: Turns
    ) -> float | None:
        """Money that falls due in this round: all of it after the last one (6)."""
        return _terms(agreement).due_in(round_number, who.clients.tolist(), turns)

    def promise(self, agreement: Agreement) -> Promise | None:
        """The privacy that each client was promised for the run (4)."""
        section = self.section
        return Promise(
            _terms(agreement).epsilon, section.delta, section.clip,
            noise=cast(NoiseSource, section.noise), noise_at=self.noise_at, table="jsam",
        )  # fmt: skip

    def settle(self, account: Account) -> Statement:
        terms, section = _terms(account.agreement), self.section
        plan = terms.settlement.allocation
        assert account.epsilon is not None  # something is promised
        ratio, share = _largest_ratio(account.epsilon, terms.epsilon), terms.shares(account.turns)
        given = {} if (share == 1).all() else {"share_given": share.tolist()}
        return Statement(
            self.config.mechanism,
            account.agreement.members.names,
            terms.amounts(account.turns),
            decimals=terms.decimals,
            columns={**terms.columns, **account.turns.columns, **given},
            forms={
                "cost": ".4g",
                RECORDS: ".4f",
                COLUMN[self.noise_at]: ".4f",
                "epsilon_sold": ".4g",
                "share_given": ".4f",
            },
            totals={"clients_selected": plan.threshold},
            findings=_findings(terms, account, ratio, self.contract),
            notes=(*missing_turns(account.turns), *self._notes(terms)),
            facts={
                "scheme": section.scheme,
                "eta": plan.eta,
                "noise_scale": self.noise_scale,
                "records_per_release": self._records_per_release(terms),
                "shares": section.shares,
                "max_epsilon": section.table()["max_epsilon"],
                "expected_spend": plan.total,  # whose mean over costs is the mean of what is paid
                "budget": section.budget,
                "expected_budget": section.expected_budget,
                "clients_selected": plan.threshold,
                "reports": terms.reports.tolist(),  # stated to the server
                "selection": plan.selection.tolist(),
                "times_drawn": account.turns.asked.tolist(),
                "epsilon_sold": terms.epsilon.tolist(),
                "payment": terms.settlement.payment.tolist(),  # before rounding
                "largest_epsilon_ratio": ratio,
            },
        )

    def cautions(self, agreement: Agreement) -> list[str]:
        """What Q assumes and this run does otherwise: it makes figures inexact, and breaks no promise."""
        return [] if self.differs is None else [self.differs]

    def _records_per_release(self, terms: JsamTerms) -> int | list[int] | None:
        """M of everybody; where sizes count, of each; None where Q is a number."""
        if not isinstance(self.noise, Ingredients):
            return None
        if terms.held is None:
            return self.noise.records
        return [min(self.noise.records, held) for held in terms.held]

    def _notes(self, terms: JsamTerms) -> list[str]:
        notes = []
        if self.section.scheme == LARGEST_LOSSES:
            notes.append("local losses were sent in clear: no privacy ledger counts them")
        # what the terms caution against, the hard budget first
        cautions = terms.cautions
        notes += sorted(cautions, key=lambda caution: "hard budget" not in caution)
        if terms.held is not None:
            notes.append(
                f"sizes count: clients hold {min(terms.held):,} to {max(terms.held):,} records, and fair "
                "is to select each by its share of them"
            )
        if self.unequal is not None:
            fewest, most = self.unequal
            notes.append(
                f"clients average {fewest} to {most} records per release; noise_scale is made of the "
                "fewest, so it is too large for the others"
            )
        return notes


def _section(config: Config) -> JsamSection:
    assert isinstance(config.own, JsamSection)  # a config of this mechanism
    return config.own


def _terms(agreement: Agreement) -> JsamTerms:
    assert isinstance(agreement.terms, JsamTerms)  # an agreement of these rules
    return agreement.terms


def _ingredients(config: Config, members: Roster, parameters: int) -> Ingredients:
    """What Q is made of in this run.

    Where clients average different numbers of records, M is the smallest: for the others Q is then too
    large, which selects fewer clients than would be best; privacy and truthfulness do not depend on Q.
    Where sizes count, M is the largest, and each has its own (`averaged`).
    """
    section = _section(config)
    assert section.smoothness is not None  # or Q was given
    return _made_here(config, members, parameters, section.smoothness)


def _made_here(config: Config, members: Roster, parameters: int, smoothness: float) -> Ingredients:
    """The same for this smoothness."""
    section, training, sizes = _section(config), config.local, [int(size) for size in members.sizes]
    spec = training.local_training(1.0, section.clip, "jsam.clip")
    which = max if section.shares == BY_SIZE else min
    return Ingredients(
        parameters,
        smoothness,
        which(min(training.batch, size) for size in sizes),
        max(training.local_steps(size) for size in sizes),
        max(record_steps(size, spec) for size in sizes),
    )


def _different(noise: Noise, config: Config, members: Roster, parameters: int) -> str | None:
    """What Q was made of where this run does otherwise, with both numbers; None: nothing, or Q is a number.

    Q decides whom the plan selects and how much it buys. Privacy, truthfulness and money do not depend on
    it: the noise of every client follows from its own records, and payments from the plan that is made.
    """
    if not isinstance(noise, Ingredients):
        return None
    known = [config.local.smoothness, members.smoothness, noise.smoothness]
    here = _made_here(config, members, parameters, next(value for value in known if value is not None))
    names = ("dimension", "smoothness", "records", "steps", "passes")
    both = [(name, getattr(noise, name), getattr(here, name)) for name in names]
    said = [f"{name} {stated:g} where this run has {due:g}" for name, stated, due in both if stated != due]
    if not said:
        return None
    section, rounds = _section(config), config.local.rounds
    by_size = section.shares == BY_SIZE
    stated, due = (scale_of(made, section.delta, rounds, by_size=by_size) for made in (noise, here))
    fits = "" if stated == due else f", so that Q is {stated:.4g} where {due:.4g} would fit"
    return (
        f"the noise scale assumes {', '.join(said)}{fits}: whom to select and how much to buy is not what "
        "would be best here; privacy, truthfulness and payments hold"
    )


def _contract(section: JsamSection, config: Config, members: Roster, noise: Noise) -> JsamContract | None:
    """What can be published: no weight that follows from reports, nothing only the server knows."""
    if section.scheme not in PUBLISHED or section.budget is not None:
        return None
    caps = section.caps(members)
    by_name = (
        caps
        if caps is None or isinstance(caps, float)
        else dict(zip(members.names, caps.tolist(), strict=True))
    )
    sizes = section.sizes(members)
    contract = JsamContract(
        len(members), section.prior, section.eta or 1.0, noise, config.local.rounds, section.clip,
        section.delta, section.clients_per_round, cast(PublishedScheme, section.scheme), section.members,
        by_name, section.expected_budget, section.decimals, noise_at=cast(NoiseAt, section.noise_at),
        sizes=None if sizes is None else dict(zip(members.names, sizes.tolist(), strict=True)),
    )  # fmt: skip
    if section.eta is not None:
        return contract
    assert section.expected_budget is not None  # one of the two was given
    return publish(contract, section.expected_budget)


def _with_steps(config: Config, members: Roster, parameters: int) -> Config:
    """The config with batch and steps where it leaves them open: noise, and so Q, depends on them.

    The steps are those that Q is made of, where it is stated with its parts.
    """
    section, contract = _section(config), config.contract
    noise = contract.noise if isinstance(contract, JsamContract) else section.noise_scale
    stated = Steps(noise.steps, noise.passes) if isinstance(noise, Ingredients) else None
    with named("jsam"):
        epsilon = section.expected_epsilon(members)
    return with_steps(config, members, parameters, epsilon, stated=stated)


def _resolved(config: Config, members: Roster, parameters: int) -> Config:
    """The config with the numbers of the contract that is made for it, where it left them open."""
    contract = BoughtPrivacy.of(config, members, parameters).contract
    if contract is None or config.contract is not None:
        return config
    own = _section(config)
    table = {**own.table(), **contract.table(), "coins": own.coins}
    return replace(config, own=section_from(JsamSection, "jsam", table))


def _under(contract: PublishedContract, config: Config, members: Roster) -> JsamContract:
    """A contract that was published before, if it fits this run."""
    if not isinstance(contract, JsamContract):
        raise InvalidValue("contract", "must belong to this mechanism", contract.mechanism)
    for name, due, here in (
        ("training.rounds", contract.rounds, config.local.rounds),
        ("jsam.noise_at", contract.noise_at, _section(config).noise_at),
        ("jsam.shares", "alike" if contract.sizes is None else BY_SIZE, _section(config).shares),
    ):
        if due != here:
            raise InvalidValue(name, f"must be {due}, as in the published contract", here)
    if contract.sizes is not None:
        due_sizes = sizes_by_name(contract.sizes, members.names).tolist()
        for client, due, here in zip(members.names, due_sizes, members.sizes.tolist(), strict=True):
            if due != here:
                rule = f"must be {due}, as in the published contract"
                raise InvalidValue(f"records of client {client}", rule, here)
    require_same_coins("jsam.coins", _section(config).coins, contract.coin_commitment)
    return contract


def _without_reserve(section: JsamSection, clients: int) -> float | None:
    """A hard budget less what rounding may add to it."""
    if section.budget is None:
        return None
    aside = money.reserve(clients, section.decimals)
    if section.budget <= aside:
        rule = f"must exceed {aside:g}, the most that rounding to {section.decimals} decimals adds"
        raise InvalidValue("budget", rule, section.budget)
    return section.budget - aside


def _largest_ratio(spend: Floats, sold: Floats) -> float:
    """The largest ratio of the privacy that a client lost to what it sold."""
    sellers = sold > 0
    if np.any(spend[~sellers] > 0):
        return float("inf")
    return float(np.max(spend[sellers] / sold[sellers], initial=0.0))


def _findings(
    terms: JsamTerms, account: Account, ratio: float, contract: JsamContract | None
) -> tuple[Finding, ...]:
    cost = terms.reports * terms.epsilon * terms.shares(account.turns)
    amounts = terms.amounts(account.turns)
    least = float((np.array(amounts) / 10**terms.decimals - cost).min())
    findings = [
        Finding(
            "privacy", ratio <= 1,
            f"nobody gave away more than {100 * ratio:.6g}% of the epsilon it sold", ratio,
            allowed=1.0, kind=Kind.PRIVACY,
        ),
        Finding(
            COVERED, least >= -1e-12 * float(cost.max(initial=0.0)),
            f"the smallest surplus over a stated cost is {max(0.0, least):.4g}", -least,
            kind=Kind.PARTICIPATION, unit="money",
        ),
    ]  # fmt: skip
    if terms.budget is not None:
        findings.append(BudgetPromise(terms.budget).finding(amounts, terms.decimals))
    elif terms.expected_budget is not None:
        expected = None if contract is None else contract.expected_spend
        promise = BudgetPromise(terms.expected_budget, "the costs believed in", expected=expected)
        findings.append(promise.finding(amounts, terms.decimals))
    return tuple(findings)


def make(config: Config, members: Roster, parameters: int) -> Averaging | ByLosses:
    """The mechanism of a config with a table [jsam]."""
    config = _with_steps(config, members, parameters)
    config = _resolved(config, members, parameters)
    averaging = Averaging.of(
        config, members, parameters, lambda resolved: BoughtPrivacy.of(resolved, members, parameters)
    )
    rules = averaging.rules
    assert isinstance(rules, BoughtPrivacy)  # made above
    return ByLosses(averaging, rules) if rules.section.scheme == LARGEST_LOSSES else averaging
