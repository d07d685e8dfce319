"""Mechanisms that break a law of the protocol: a law that lets its own pass is broken itself.

Each is a price lottery, or a contract of sampling, with one thing done wrong.
"""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from bonafed.contracts.terms import Turns
from bonafed.economics.findings import Finding
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.averaging import Averaging
from bonafed.mechanisms.protocol import Attack
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train
from tests.laws import protocol, worlds

CAUGHT = (AssertionError, pytest.fail.Exception)
PRIVATE = [("privacy", key, value) for key, value in {
    "clip": 1.0, "epsilon": 2.0, "delta": 1e-5, "noise": "reproducible",
}.items()]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def price_lottery():
    with worlds.registered():
        yield


class Twisted:
    """Rules, some of which are others."""

    def __init__(self, rules, **others):
        self._rules, self._others = rules, others

    def __getattr__(self, name):
        return self._others[name] if name in self._others else getattr(self._rules, name)


def of_kind(made, kind=Averaging, **others):
    """The same setting under another kind of mechanism, or under other rules."""
    m = made.mechanism
    rules = Twisted(m.rules, **others) if others else m.rules
    return replace(made, mechanism=kind(m.config, m.members, m.parameters, rules, m.rates))


def test_terms_that_follow_the_order_of_reports_are_caught():
    made = worlds.setting("price-lottery")

    def by_place(members, reports):
        return made.mechanism.rules.agree(members, dict(zip(members.names, reports.values(), strict=True)))

    protocol.order_does_not_matter(made)
    with pytest.raises(CAUGHT):
        protocol.order_does_not_matter(of_kind(made, agree=by_place))


class Forgetful(Averaging):
    """Does not remember who took part."""

    __slots__ = ()

    def restore(self, agreement, arrays):
        kept = super().restore(agreement, arrays)
        none = np.zeros_like(kept.participations)
        return replace(kept, participations=none, delivered=none)


class Restless(Averaging):
    """Has a state that no checkpoint holds."""

    __slots__ = ()
    turns = 0

    def advance(self, state, federation):
        following, what = super().advance(state, federation)
        Restless.turns += 1
        return replace(following, model=following.model + np.float32(1e-3 * Restless.turns)), what


@pytest.mark.parametrize("kind", [Forgetful, Restless])
def test_a_state_that_is_forgotten_is_caught(kind, tmp_path):
    made = worlds.setting("price-lottery")
    with pytest.raises(CAUGHT):
        protocol.resumes_to_the_same_bits(of_kind(made, kind), tmp_path, really=False)
    with pytest.raises(CAUGHT):
        protocol.state_survives_arrays(of_kind(made, kind))


def paying(made, change):
    """Settles as before, but for the amounts."""

    def settle(account):
        statement = made.mechanism.rules.settle(account)
        return replace(statement, amounts=change(statement.amounts))

    return of_kind(made, settle=settle)


@pytest.mark.parametrize(
    ("name", "change"),
    {
        "one cent too little": ("sampling", lambda amounts: (amounts[0] - 1, *amounts[1:])),
        "one cent too much": ("sampling", lambda amounts: (*amounts[:-1], amounts[-1] + 1)),
        "whole money only": ("price-lottery", lambda amounts: tuple(a // 100 * 100 for a in amounts)),
        "fractions of a cent": ("price-lottery", lambda amounts: tuple(float(a) for a in amounts)),
        "those who did nothing": ("price-lottery", lambda amounts: tuple(a + 100 for a in amounts)),
    }.values(),
)
def test_a_statement_that_does_not_add_up_is_caught(name, change):
    made = worlds.setting(name)
    protocol.statement_adds_up(made, train(made))
    wrong = paying(made, change)
    with pytest.raises((*CAUGHT, TypeError)):  # a statement holds no fraction of a unit
        protocol.statement_adds_up(wrong, train(wrong))


def test_a_client_that_loses_a_cent_is_caught():
    """Its cost is the price, and rounding would allow as much in the sum."""
    costs = dict.fromkeys(worlds.OWNERS, 0.9)
    made = worlds.setting(
        "price-lottery", ("partition", "kind", "iid"), ("partition", "clients", 6), reports=costs
    )
    protocol.statement_adds_up(made, train(made))

    def settle(account):
        statement = made.mechanism.rules.settle(account)
        paid = max(range(6), key=lambda client: statement.amounts[client])
        short = [amount - (client == paid) for client, amount in enumerate(statement.amounts)]
        return replace(statement, amounts=tuple(short))

    wrong = of_kind(made, settle=settle)
    with pytest.raises(CAUGHT):
        protocol.statement_adds_up(wrong, train(wrong))


def test_paying_for_what_was_not_delivered_is_caught():
    plain = worlds.setting("price-lottery")
    task, _ = worlds.some_task(plain)
    clients = worlds.Failing(worlds.clients_of(plain), lambda t: t.client == task.client, absent=True)
    made = prepare(plain.config, dataset=worlds.small(), federation=clients)

    def settle(account):
        turns = account.turns
        return made.mechanism.rules.settle(replace(account, turns=Turns(turns.asked, turns.asked)))

    protocol.statement_adds_up(made, train(made))
    wrong = of_kind(made, settle=settle)
    with pytest.raises(CAUGHT):
        protocol.statement_adds_up(wrong, train(wrong))


class Fragile(Averaging):
    """Cannot do without anybody."""

    __slots__ = ()

    def advance(self, state, federation):
        following, what = super().advance(state, federation)
        assert not what.failed
        return following, what


class Secretive(Averaging):
    """Does not say who failed."""

    __slots__ = ()

    def advance(self, state, federation):
        following, what = super().advance(state, federation)
        return following, replace(what, failed=[])


class Witnessed:
    """A federation whose failures somebody else remembers."""

    def __init__(self, clients):
        self.clients, self.members, self.vouched, self.failed = (
            clients,
            clients.members,
            clients.vouched,
            [],
        )

    def total(self, tasks, shares, noise=0.0):
        total = self.clients.total(tasks, shares, noise)
        self.failed = [t.client for t, fine in zip(tasks, total.delivered, strict=True) if not fine]
        return total


class Talkative(Averaging):
    """Says who failed, private or not."""

    __slots__ = ()

    def advance(self, state, federation):
        witness = Witnessed(federation)
        following, what = super().advance(state, witness)
        return following, replace(what, failed=witness.failed)


class Patient(Averaging):
    """Goes on whatever the policy says."""

    __slots__ = ()

    def advance(self, state, federation):
        lenient = replace(self.config, training=replace(self.config.local, on_bad_update="skip"))
        return replace(self, config=lenient).calm(state, federation)

    def calm(self, state, federation):
        return super().advance(state, federation)


@pytest.mark.parametrize(
    ("kind", "policy", "changes"),
    [
        (Fragile, "skip", []),
        (Secretive, "skip", []),
        (Talkative, "skip", PRIVATE),
        (Patient, "raise", []),
    ],
)
def test_a_failure_that_is_not_handled_is_caught(kind, policy, changes):
    plain = worlds.setting("price-lottery", ("training", "on_bad_update", "skip"), *changes)
    task, number = worlds.some_task(plain)
    made = worlds.setting("price-lottery", ("training", "on_bad_update", policy), *changes)
    failing = worlds.failing(made, task.identifier)
    law = protocol.failure_is_skipped if policy == "skip" else protocol.failure_is_raised
    law(failing, task.client, number)
    with pytest.raises(CAUGHT):
        law(of_kind(failing, kind), task.client, number)


def settled(made):
    """Mechanism, last state, federation and statement."""
    mechanism, federation = made.mechanism, worlds.clients_of(made)
    state = mechanism.begin(made.agreement, made.start)
    while state.round_number < mechanism.rounds:
        state, _ = mechanism.advance(state, federation)
    return mechanism, state, federation, mechanism.settle(state, federation)


def test_findings_that_are_always_true_are_caught():
    made = worlds.setting("price-lottery")

    def settle(account):
        statement = made.mechanism.rules.settle(account)
        return replace(statement, findings=(Finding("within budget", True, "of course"),))

    protocol.findings_can_fail(*settled(made))
    with pytest.raises(CAUGHT, match="within budget"):
        protocol.findings_can_fail(*settled(of_kind(made, settle=settle)))


@dataclass(frozen=True)
class Paper:
    """A contract that believes whatever it says."""

    data: dict

    @property
    def content(self):
        return json.dumps(self.data).encode()

    @property
    def digest(self):
        return str(self.data)

    def verify(self):
        return [Finding("terms", True, "as they stand")]


class Blank(Paper):
    """... and does not notice what it says."""

    @property
    def digest(self):
        return "the same"


@pytest.mark.parametrize("kind", [Paper, Blank])
def test_a_contract_that_can_be_edited_is_caught(kind):
    with pytest.raises(CAUGHT):
        protocol.contract_edits_are_seen(kind({"payment": [1.0, 0.5], "budget": 3.0}), kind)


def test_a_section_that_is_written_with_fewer_digits_is_caught(tmp_path):
    config = worlds.setting("price-lottery", ("price_lottery", "budget", 7.25)).config

    @dataclass(frozen=True)
    class Rounded(type(config.own)):
        def table(self):
            return {**super().table(), "budget": float(round(self.budget))}

    protocol.config_survives_toml(config, tmp_path)
    kept = {item: getattr(config.own, item) for item in config.own.__dataclass_fields__}
    with pytest.raises(CAUGHT):
        protocol.config_survives_toml(replace(config, own=Rounded(**kept)), tmp_path)


class Parallel(Averaging):
    """Comes to other numbers on more cores."""

    __slots__ = ()

    def final(self, state):
        return state.model * np.float32(1 + 1e-3 * self.config.run.cores)


def test_numbers_that_follow_the_cores_are_caught():
    one, two = (
        train(of_kind(worlds.setting("price-lottery", ("run", "cores", n)), Parallel)) for n in (1, 2)
    )
    with pytest.raises(CAUGHT):
        protocol.same_result(one, two, bits=True)


def test_clients_who_lose_their_names_are_caught():
    made = worlds.setting("price-lottery")

    def settle(account):
        statement = made.mechanism.rules.settle(account)
        return replace(statement, clients=tuple(map(str, range(len(statement.clients)))))

    protocol.names_survive(made, train(made))
    with pytest.raises(CAUGHT):
        protocol.names_survive(made, train(of_kind(made, settle=settle)))


class Insider(Averaging):
    """Does something else where clients are simulated by this process."""

    __slots__ = ()

    def advance(self, state, federation):
        following, what = super().advance(state, federation)
        trusted = np.float32(1e-5 if federation.vouched else 0)
        return replace(following, model=following.model + trusted), what


def test_a_mechanism_that_looks_behind_the_seam_is_caught():
    made = worlds.setting("price-lottery")
    with worlds.elsewhere(made) as clients:
        far = prepare(made.config, dataset=worlds.small(), federation=clients)
        protocol.same_result(train(made), train(far), bits=True)
        inside = of_kind(made, Insider)
        forgotten = replace(of_kind(far, Insider), clients=replace(clients, _digests={}))
        with pytest.raises(CAUGHT):
            protocol.same_result(train(inside), train(forgotten))


def test_claims_that_nothing_looks_into_or_that_are_broken_are_caught():
    made = worlds.setting("price-lottery")
    part = catalogue.entry("price-lottery").load()
    attack = Attack(made.config, made.agreement, worlds.clients_of(made), made.mechanism, made.start)
    findings = part.audit(attack)
    protocol.claims_are_looked_into(part, findings)
    with pytest.raises(CAUGHT, match="nothing looks into 'faithfulness'"):
        protocol.claims_are_looked_into(replace(part, claims=(*part.claims, "faithfulness")), findings)
    plain = catalogue.entry("fedavg").load()  # which is gamed, and says so
    with pytest.raises(CAUGHT, match="truthful"):
        protocol.claims_are_looked_into(replace(plain, claims=("truthful",)), plain.audit(attack))
