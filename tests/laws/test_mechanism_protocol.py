"""Every mechanism of the catalogue keeps the laws of the protocol, on this process and in another one.

Registering a mechanism is enough to have it tested: the laws (`protocol.py`) try a miniature of its example
config. `test_protocol_controls.py` has a mechanism for each law that must fail it.
"""

from contextlib import ExitStack
from dataclasses import fields

import pytest

from bonafed.mechanisms import catalogue
from bonafed.mechanisms.protocol import Attack
from bonafed.runs.setting import prepare
from bonafed.runs.training import train
from tests.laws import protocol, worlds

NAMES = worlds.all_names()


@pytest.fixture(autouse=True, scope="module")
def posted_price():
    with worlds.registered(worlds.POSTED_PRICE):
        yield


@pytest.fixture(params=["here", "elsewhere"])
def world(request):
    """world(name, ("table", "key", value), ...): a setting whose clients are here, or in another process."""
    with ExitStack() as stack:

        def make(name, *changes, **about):
            made = worlds.setting(name, *changes, **about)
            if request.param == "here":
                return made
            clients = stack.enter_context(worlds.elsewhere(made))
            return prepare(made.config, dataset=worlds.small(), federation=clients)

        make.here = request.param == "here"
        yield make


@pytest.mark.parametrize("name", NAMES)
def test_reports_in_any_order_give_the_same_terms(name, world):
    protocol.order_does_not_matter(world(name))


@pytest.mark.parametrize("name", NAMES)
def test_killed_anywhere_it_ends_with_the_same_bits(name, world, tmp_path):
    protocol.resumes_to_the_same_bits(world(name), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_statements_add_up_and_names_survive(name, world):
    made = world(name)
    result = train(made)
    protocol.statement_adds_up(made, result)
    protocol.names_survive(made, result)


@pytest.mark.parametrize("name", NAMES)
def test_reports_may_come_with_names(name):
    made = worlds.setting(name)
    if made.mechanism.question is None:
        return
    reports = {name: made.agreement.reports[name] for name in reversed(worlds.OWNERS)}
    stated = worlds.setting(name, ("partition", "kind", "iid"), ("partition", "clients", 6), reports=reports)
    result = train(stated)
    assert stated.agreement.reports == made.agreement.reports
    protocol.names_survive(stated, result)


def policy_of(name):
    """The key that says what happens to a client that fails, and what it may say beside "raise"."""
    part = catalogue.entry(name).load()
    for table, section in (("training", part.training), (part.table, part.section)):
        for item in fields(section) if section is not None else ():
            if item.name.startswith("on_bad_"):
                return table, item.name, "skip" if item.name == "on_bad_update" else "leave out"
    raise AssertionError(f"{name} says nothing about clients that fail")


def failing(made, task):
    """The same setting with clients that fail in one task."""
    clients = worlds.Failing(worlds.clients_of(made), lambda asked: asked.identifier == task)
    return prepare(made.config, dataset=worlds.small(), federation=clients)


def some_task(made):
    """A task of the second round of the mechanism itself, and whose it is."""
    asked = []

    def spy(task):
        asked.append(task)
        return False

    clients = worlds.Failing(worlds.clients_of(made), spy)
    rounds = []
    spied = prepare(made.config, dataset=worlds.small(), federation=clients)

    def on_round(record):
        rounds.append((record, list(asked)))
        asked.clear()

    train(spied, on_round=on_round)
    own = [(record, tasks) for record, tasks in rounds if not record.phase and tasks]
    record, tasks = own[1]
    return tasks[-1], record.round


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_fails_is_handled_by_policy(name, world):
    table, key, other = policy_of(name)
    made = world(name, (table, key, other))
    task, number = some_task(made)
    result = train(failing(made, task.identifier))
    private = made.config.noise is not None
    protocol.failure_is_skipped(result, task.client, number, private=private)
    strict = failing(world(name, (table, key, "raise")), task.identifier)
    protocol.failure_is_raised(lambda: train(strict), task.client, number)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_promised_can_be_found_broken(name):
    made = worlds.setting(name)
    federation, mechanism = worlds.clients_of(made), made.mechanism
    state = mechanism.begin(made.agreement, made.start)
    while state.round_number < mechanism.rounds:
        state, _ = mechanism.advance(state, federation)
    statement = mechanism.settle(state, federation)
    protocol.findings_can_fail(mechanism, state, federation, statement)


@pytest.mark.parametrize("name", NAMES)
def test_a_published_contract_cannot_be_edited(name):
    contract, part = worlds.setting(name).mechanism.contract, catalogue.entry(name).load()
    assert (contract is None) == (part.read is None)
    if contract is not None:
        protocol.contract_edits_are_seen(contract, part.read)


@pytest.mark.parametrize("name", NAMES)
def test_an_audit_of_a_run_keeps_the_claims(name):
    part, made = catalogue.entry(name).load(), worlds.setting(name)
    if part.audit is None:
        assert not part.claims
        return
    federation = worlds.clients_of(made)
    findings = part.audit(Attack(made.config, made.agreement, federation))
    assert findings
    assert all(finding.tries > 0 or finding.holds is None for finding in findings)
    assert [str(finding) for finding in findings if finding.holds is False] == []


@pytest.mark.parametrize("name", NAMES)
def test_configs_and_checkpoints_survive(name, world, tmp_path):
    made = world(name)
    protocol.config_survives_toml(made.config, tmp_path)
    protocol.state_survives_arrays(made)


@pytest.mark.parametrize("name", NAMES)
def test_two_cores_come_to_the_same(name):
    one, two = (train(worlds.setting(name, ("run", "cores", cores))) for cores in (1, 2))
    protocol.same_result(one, two, bits=True)


@pytest.mark.parametrize("name", NAMES)
def test_clients_in_another_process_come_to_the_same(name):
    made = worlds.setting(name)
    with worlds.elsewhere(made) as clients:
        far = prepare(made.config, dataset=worlds.small(), federation=clients)
        protocol.same_result(train(made), train(far), bits=made.mechanism.needs == "total")


def test_every_mechanism_of_the_catalogue_is_tried():
    assert set(catalogue.CATALOGUE) == set(NAMES)
