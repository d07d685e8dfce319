"""A server that holds the operator's key and wants more than was agreed on: every participant refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.oracles import wire

from bonafed.economics import Uniform
from bonafed.learning.privacy.ledger import Ledger
from bonafed.mechanisms.sampling import SamplingContract, plan
from bonafed.remote.keys import make_member_key
from bonafed.remote.participant.policy import Policy
from bonafed.remote.server.federation import sent_tables
from bonafed.runs.config import from_tables
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train

from .conftest import RUN, TABLES, World

MODEL = np.zeros(650)
PRIVATE = {
    **TABLES,
    "training": {"epochs": 1, **TABLES["training"]},
    "privacy": {"epsilon": 3.0, "delta": 1e-5, "clip": 1.0},
}


class Server:
    """Speaks with one participant."""

    def __init__(self, world: World, name: str = "ada") -> None:
        self.world, self.name, self.run = world, name, RUN
        self.key = world.operator_pem.read_bytes()

    def ask(self, kind: str, content: Any, numbers: Any = None, **changes: str) -> dict[str, Any]:
        run, to = changes.get("run", self.run), changes.get("to", self.name)
        data = wire.message(self.key, run, to, kind, content, numbers)
        fields, self.body = wire.answer(
            self.world.participants[self.name].handle(data), self.world.keys[self.name]
        )
        return fields

    def refusal(self, kind: str, content: Any, numbers: Any = None, **changes: str) -> str:
        fields = self.ask(kind, content, numbers, **changes)
        assert fields["kind"] == "refused", fields["content"]
        return str(fields["content"]["reason"])

    def work(self, *tasks: dict[str, Any], model: Any = MODEL) -> dict[str, Any]:
        fields = self.ask("work", {"tasks": list(tasks), "accepted": []}, model)
        assert fields["kind"] == "work", fields["content"]
        return {row["identifier"]: row for row in fields["content"]["answers"]}


def agreed(world: World, tables: dict[str, Any]) -> Server:
    """After all have agreed to these terms, an honest server is replaced."""
    world.prepare(tables)
    return Server(world)


def noisy(identifier: str, number: int, multiplier: float) -> dict[str, Any]:
    return wire.training(
        identifier, round_number=number, noise_multiplier=multiplier, training={"clip": 1.0}
    )


class TestOneReleaseTooMany:
    def test_is_refused_and_charged_to_nobody(self, world: World) -> None:
        setting = world.prepare(PRIVATE)
        state = setting.mechanism.begin(setting.agreement, setting.start)
        multiplier = float(state.noise_multipliers[0])
        server = Server(world)
        for number in (1, 2, 3):
            row = server.work(noisy(f"round {number}", number, multiplier))[f"round {number}"]
            assert "shape" in row
        row = server.work(noisy("round 3, once more", 3, multiplier))["round 3, once more"]
        assert row["refused"].startswith("epsilon must stay within 3, the epsilon that I sold, got 3.")
        assert len(world.journals["ada"].releases(RUN, 0)) == 3

    def test_two_in_one_message_count_together(self, world: World) -> None:
        setting = world.prepare(PRIVATE)
        multiplier = float(setting.mechanism.begin(setting.agreement, setting.start).noise_multipliers[0])
        tasks = [noisy(f"task {number}", 1, multiplier) for number in range(5)]
        rows = Server(world).work(*tasks)
        assert ["refused" in rows[task["identifier"]] for task in tasks] == [False] * 3 + [True] * 2

    def test_less_noise_is_refused(self, world: World) -> None:
        server = agreed(world, PRIVATE)
        assert "epsilon must stay" in server.work(noisy("a", 1, 0.3))["a"]["refused"]

    @pytest.mark.parametrize(
        "task",
        [
            wire.training("a"),
            wire.training("a", training={"clip": 1.0}),
            wire.training("a", noise_multiplier=0.0, training={"clip": 1.0, "batches": "poisson"}),
            {**wire.training("a"), "work": {
                "kind": "gradients", "clip": 1.0, "released": 0,
                "objective": {"regulariser": 0.1, "kind": "linear", "scale": 1.0, "shorten": True}}},
            {**wire.training("a"), "work": {
                "kind": "losses", "limit": None, "released": 0,
                "objective": {"regulariser": 0.1, "kind": "linear", "scale": 1.0, "shorten": True}}},
        ],
    )  # fmt: skip
    def test_bare_work_is_refused_where_privacy_was_promised(
        self, world: World, task: dict[str, Any]
    ) -> None:
        row = agreed(world, PRIVATE).work(task)["a"]
        assert "must be clipped and noised: privacy was promised" in row["refused"]

    def test_a_task_too_many_is_refused_also_without_a_promise(self, world: World) -> None:
        server = agreed(world, TABLES)
        tasks = [wire.training(f"task {number}", seed=number) for number in range(5)]
        rows = server.work(*tasks)
        assert ["refused" in rows[task["identifier"]] for task in tasks] == [False] * 3 + [True] * 2
        assert "tasks of training must be at most 3, as agreed, got 4" in rows["task 3"]["refused"]

    def test_a_model_of_another_size_is_refused(self, world: World) -> None:
        task = {**wire.training("a"), "shape": [1, 649]}
        row = agreed(world, TABLES).work(task)["a"]
        assert row["refused"] == "models must have 650 weights, got 649"

    def test_a_round_too_many_is_refused(self, world: World) -> None:
        row = agreed(world, TABLES).work(wire.training("a", round_number=4))["a"]
        assert row["refused"] == "round must be at most 3, as agreed, got 4"


class TestOneTaskTwice:
    def test_the_same_gives_the_same_answer(self, world: World) -> None:
        setting = world.prepare(PRIVATE)
        multiplier = float(setting.mechanism.begin(setting.agreement, setting.start).noise_multipliers[0])
        server = Server(world)
        server.work(noisy("a", 1, multiplier))
        first = server.body
        server.work(noisy("a", 1, multiplier))
        assert server.body == first
        assert len(world.journals["ada"].releases(RUN, 0)) == 1

    def test_another_model_under_its_identifier_is_refused(self, world: World) -> None:
        server = agreed(world, TABLES)
        server.work(wire.training("a"))
        row = server.work(wire.training("a"), model=np.full(650, 0.1))["a"]
        assert row["refused"] == "identifier must not be reused for different work, got 'a'"

    def test_other_work_under_its_identifier_is_refused(self, world: World) -> None:
        server = agreed(world, TABLES)
        server.work(wire.training("a"))
        assert "reused" in server.work(wire.training("a", seed=1))["a"]["refused"]
        assert "shape" in server.work(wire.training("a"))["a"]


class TestContracts:
    @pytest.fixture
    def contract(self) -> SamplingContract:
        return SamplingContract.of(plan(Uniform(0.5, 1.5), total_budget=10, clients=4, rounds=3))

    def described(self, contract: Any, tables: dict[str, Any] = TABLES) -> dict[str, Any]:
        return {
            "federation": "clinics",
            "config": sent_tables(from_tables(tables)),
            "contract": None if contract is None else json.loads(contract.content),
        }

    def test_an_honest_one_is_verified_and_taken(self, world: World, contract: SamplingContract) -> None:
        run = world.train({**TABLES}, contract=contract)
        assert run.findings[-1].holds

    @pytest.mark.parametrize("column", ["payment", "probability"])
    def test_an_altered_one_is_refused(self, world: World, contract: SamplingContract, column: str) -> None:
        content = self.described(contract)
        levels = content["contract"]["groups"][0]["levels"]
        levels[column][7] *= 0.999
        assert "must" in Server(world).refusal("describe", content)
        content = self.described(contract)
        content["contract"]["total_budget"] = 11.0
        assert "must" in Server(world).refusal("describe", content)

    def test_another_one_than_published_is_refused(self, world: World, contract: SamplingContract) -> None:
        world.prepare(TABLES, contract=contract)
        other = SamplingContract.of(plan(Uniform(0.5, 1.5), total_budget=9, clients=4, rounds=3))
        reason = Server(world).refusal("describe", self.described(other))
        assert reason.startswith("describe must be what was asked before in this run")

    def test_terms_that_do_not_follow_are_refused(self, world: World, contract: SamplingContract) -> None:
        """The contract is right, the reports are signed, the terms are not what follows from both."""
        from bonafed.remote.server import federation as module

        real = module.Agreement.to_json
        federation = world.gather(TABLES, contract=contract)
        from bonafed.runs.prepare import prepare, under

        def forged(agreement: Any) -> Any:
            data = real(agreement)
            data["terms"]["clients"][0]["payment"] *= 0.99
            return data

        with pytest.MonkeyPatch.context() as patch:
            calls = {"n": 0}

            def to_json(agreement: Any) -> Any:
                calls["n"] += 1
                return forged(agreement) if calls["n"] == 1 else real(agreement)  # the server's only

            patch.setattr(module.Agreement, "to_json", to_json)
            with pytest.raises(ValueError, match=r"agreement\.terms\.clients\[0\]\.payment must be what I"):
                prepare(under(TABLES, contract), federation=federation, contract=contract)

    def test_work_before_agreement_is_refused(self, world: World) -> None:
        world.gather(TABLES)
        content = {"tasks": [wire.training("a")], "accepted": []}
        assert "agreed on before I work" in Server(world).refusal("work", content, MODEL)

    def test_the_report_comes_after_the_description(self, world: World) -> None:
        reason = Server(world).refusal("report", {"members": None})
        assert reason.startswith("run must have been described to me first")


class TestPolicies:
    @pytest.mark.parametrize(
        ("policy", "tables", "says"),
        [
            (Policy(max_rounds=2), TABLES, "training.rounds must be at most 2, my limit, got 3"),
            (Policy(only_private=True), TABLES, "privacy must be promised"),
            (Policy(max_epsilon=2.0), PRIVATE, "epsilon must be at most 2, what I sell at most, got 3"),
        ],
    )
    def test_are_kept(self, make_world: Any, policy: Policy, tables: dict[str, Any], says: str) -> None:
        world = make_world(policies={"ada": policy})
        setting = world.prepare(tables)
        assert setting.agreement.members.names == ("ben", "eve", "joe")  # the others go on
        assert any(line.startswith("ada is not in this run") and says in line for line in world.told)

    def test_many_runs_cannot_be_used_to_get_more(self, make_world: Any) -> None:
        world = make_world(policies={"ada": Policy(max_epsilon_in_all=5.0)})
        world.train(PRIVATE)
        tables = {**PRIVATE, "training": {**PRIVATE["training"], "on_bad_update": "skip"}}
        second = world.prepare(tables, run="7" * 32)
        train(second)
        assert any("must stay within 5 over all runs" in line for line in world.told)
        given = [
            Ledger(tuple(world.journals["ada"].releases(run, 0))).epsilon(0, 1e-5)
            for run in (RUN, "7" * 32)
        ]
        assert 3.0 < sum(given) <= 5.0

    def test_noise_that_the_server_can_take_off_is_refused(self, world: World) -> None:
        tables = {**PRIVATE, "privacy": {**PRIVATE["privacy"], "noise": "reproducible"}}
        with pytest.raises(ValueError, match=r'nobody .*noise must be "secret"'):
            world.prepare(tables)

    def test_an_epsilon_that_is_sold_by_the_terms_is_held_against_them(self, make_world: Any) -> None:
        jsam = {"prior": "uniform:0,4", "eta": 20.0, "smoothness": 0.5, "clip": 1.0, "max_epsilon": 5.0}
        world = make_world(policies={"ada": Policy(max_epsilon=0.5)})
        with pytest.raises(ValueError, match=r"ada: refused: epsilon must be at most 0\.5, what I sell"):
            world.prepare({**TABLES, "jsam": jsam})

    def test_a_cost_above_all_terms_stays_out_of_the_rounds(self, make_world: Any) -> None:
        costs = {"ada": 9.0, "ben": 0.95, "eve": 1.32, "joe": 0.55}
        world = make_world(costs=costs)
        tables = {**TABLES, "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 10.0}}
        run = world.train(tables)
        assert run.statement.amounts[0] == 0


class TestStrangers:
    def test_members_that_the_server_makes_up_are_refused(self, world: World) -> None:
        """It has keys of its own for eve, and could sign anything for her."""
        made = make_member_key(world.folder / "made-up").read_text().strip()
        federation = world.gather(TABLES)
        federation._operator = replace(federation._operator, keys={**world.keys, "eve": made})
        with pytest.raises(ValueError, match="key of eve must be the one on the roster that I have"):
            prepare(from_tables(TABLES), federation=federation)


class TestMessages:
    def test_of_another_key_recipient_kind_or_federation(self, world: World) -> None:
        server = Server(world)
        assert "recipient must be 'ada'" in server.refusal("describe", {}, to="ben")
        assert "kind must be one of" in server.refusal("give me all", {})
        assert "federation must be 'clinics'" in server.refusal("describe", {"federation": "others"})
        from bonafed.contracts.signatures import make_keys

        make_keys(world.folder / "other.pem")
        server.key = (world.folder / "other.pem").read_bytes()
        assert "signature must be" in server.refusal("describe", {"federation": "clinics"})

    def test_a_run_of_another_number_knows_nothing(self, world: World) -> None:
        server = agreed(world, TABLES)
        content = {"tasks": [wire.training("a")], "accepted": []}
        assert "agreed on" in server.refusal("work", content, MODEL, run="6" * 32)

    @pytest.mark.parametrize("junk", [b"", b"BFM1", b"x" * 100, bytes(1000)])
    def test_junk_is_answered_by_a_refusal(self, world: World, junk: bytes) -> None:
        fields, _ = wire.answer(world.participants["ada"].handle(junk), world.keys["ada"])
        assert fields["kind"] == "refused"
