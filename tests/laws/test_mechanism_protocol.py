"""Every mechanism of the catalogue keeps the laws of the protocol, on this process and in another one.

Registering a mechanism is enough to have it tested: the laws (`protocol.py`) try a miniature of its example
config. `test_protocol_controls.py` has a mechanism for each law that must fail it.
"""

from contextlib import ExitStack

import pytest

from bonafed.mechanisms import catalogue
from bonafed.mechanisms.protocol import Attack
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train
from tests.laws import protocol, worlds

NAMES = worlds.all_names()


@pytest.fixture(autouse=True, scope="module")
def price_lottery():
    with worlds.registered():
        yield


@pytest.fixture(params=["here", "elsewhere"])
def world(request):
    """world(name, ("table", "key", value), ...): a setting; its clients are here, or in another process."""
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
    stated = worlds.setting(
        name, ("partition", "kind", "iid"), ("partition", "clients", 6), reports=reports
    )
    result = train(stated)
    assert stated.agreement.reports == made.agreement.reports
    protocol.names_survive(stated, result)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_fails_is_handled_by_policy(name, world):
    table, key, other = worlds.policy_of(name)
    made = world(name, (table, key, other))
    task, number = worlds.some_task(made)
    protocol.failure_is_skipped(worlds.failing(made, task.identifier), task.client, number)
    strict = worlds.failing(world(name, (table, key, "raise")), task.identifier)
    protocol.failure_is_raised(strict, task.client, number)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_promised_can_be_found_broken(name):
    made = worlds.setting(name)
    federation, mechanism = worlds.clients_of(made), made.mechanism
    state = mechanism.begin(made.agreement, made.start)
    while not mechanism.finished(state):
        state, _ = mechanism.advance(state, federation)
    statement = mechanism.settle(state, federation)
    protocol.findings_can_fail(mechanism, state, federation, statement)


@pytest.mark.parametrize("name", NAMES)
def test_a_published_contract_cannot_be_edited(name):
    made, part = worlds.setting(name, *worlds.REDUNDANT.get(name, ())), catalogue.entry(name).load()
    contract = made.mechanism.contract
    assert (contract is None) == (part.read is None)
    if contract is not None:
        protocol.contract_edits_are_seen(contract, part.read)


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_is_looked_into_and_kept(name):
    part, made = catalogue.entry(name).load(), worlds.setting(name)
    findings = [*train(made).findings]
    if made.mechanism.contract is not None:
        findings += made.mechanism.contract.verify()
    if part.audit is not None:
        federation = worlds.clients_of(made)
        audited = part.audit(Attack(made.config, made.agreement, federation, made.mechanism, made.start))
        assert all(finding.tries > 0 or finding.holds is None for finding in audited)
        if not part.claims:  # who promises nothing is gamed, and it is found
            assert any(finding.holds is False for finding in audited)
        findings += audited
    protocol.claims_are_looked_into(part, findings)


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
