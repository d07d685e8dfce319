"""Secure sums over messages: the sums are right, and nobody gives more than its part of one, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles import wire

from bonafed.errors import AskFailed
from bonafed.learning.data import datasets
from bonafed.learning.engine.programs import flat_parameters
from bonafed.learning.federation import Failure
from bonafed.learning.noise import Secret
from bonafed.learning.privacy.ledger import Ledger
from bonafed.learning.sections import Partition
from bonafed.learning.sum_noise import round_noise
from bonafed.remote.messages import Handle, InProcess, unseal
from bonafed.remote.server.secure import SecureFederation
from bonafed.remote.sums import contributing, digest_of_models, fewest
from bonafed.runs.config import from_tables, of_run
from bonafed.runs.prepare import from_outside, prepare
from bonafed.runs.training import RunResult, train

from .conftest import NAMES, RUN, TABLES, World
from .test_hostile_servers import Server

FULL = {**TABLES["training"], "batch_size": 400}
KINDS: dict[str, dict[str, Any]] = {
    "fedavg": TABLES,
    "half": {**TABLES, "training": {**TABLES["training"], "participation": 0.5}},
    "sampling": {
        **TABLES,
        "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 14.0},
        "training": {**TABLES["training"], "aggregation": "plain", "on_bad_update": "skip"},
    },
}
NOISY: dict[str, dict[str, Any]] = {
    "sum": {**TABLES, "training": FULL,
            "privacy": {"epsilon": 3.0, "delta": 1e-5, "clip": 1.0, "noise_at": "sum"}},
    "faithful": {
        **{name: TABLES[name] for name in ("data", "partition", "model")},
        "faithful": {"regulariser": 0.1, "training_steps": 2, "payment_steps": 1},
        "privacy": {"epsilon": 5.0, "delta": 1e-5},
    },
    "client": {**TABLES, "privacy": {"epsilon": 3.0, "delta": 1e-5, "clip": 1.0}},
    "jsam": {**TABLES, "training": FULL,
             "jsam": {"prior": "uniform:0,4", "eta": 20.0, "smoothness": 0.5, "clip": 1.0,
                      "max_epsilon": 5.0, "noise_at": "sum"}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "colluders"), [("fedavg", 0), ("fedavg", 1), ("half", 0), ("sampling", 0)]
)
def test_sums_are_those_of_one_machine(world: World, kind: str, colluders: int) -> None:
    run = world.train(KINDS[kind], colluders=colluders)
    reports = {"reports": dict(world.costs)} if kind == "sampling" else {}
    alone = world.locally(KINDS[kind], **reports)
    assert float((flat_parameters(run.model) - flat_parameters(alone.model)).abs().max()) < 1e-6
    assert run.statement.amounts == alone.statement.amounts
    assert run.findings[-1].holds, run.findings[-1].text
    assert run.metrics[0]["train_loss"] == pytest.approx(alone.metrics[0]["train_loss"])


@pytest.mark.parametrize("kind", NOISY)
def test_noise_is_within_the_promise_and_in_every_ledger(world: World, kind: str) -> None:
    run = world.train(NOISY[kind], colluders=0)
    reports = {"reports": dict(world.costs)} if kind == "jsam" else {}
    alone = world.locally(NOISY[kind], **reports)
    assert run.findings[-1].holds, run.findings[-1].text
    if kind != "client":
        assert any("sums carry 1.33 times the variance" in note for note in run.statement.notes)
    if kind == "faithful":
        for name in NAMES:
            journal = world.journals[name]
            given = Ledger(tuple(journal.releases(RUN, NAMES.index(name)))).epsilon(NAMES.index(name), 1e-5)
            assert 4.5 < given <= 5.0
        return
    assert run.statement.columns["epsilon"] == pytest.approx(alone.statement.columns["epsilon"], rel=1e-6)
    for name in NAMES:
        assert len(world.journals[name].releases(RUN, NAMES.index(name))) == 3


def test_the_sum_carries_the_noise_it_was_promised(make_world: Callable[..., World]) -> None:
    """By the spread of the difference of two runs: shares of a third of the variance, of four members."""
    tables = {**NOISY["sum"], "training": {**FULL, "rounds": 1}}
    settings = [make_world().prepare(tables, colluders=0, run=digit * 32) for digit in "67"]
    one, other = (flat_parameters(train(setting).model) for setting in settings)
    mechanism: Any = settings[0].mechanism
    agreement, state = settings[0].agreement, mechanism.begin(settings[0].agreement, settings[0].start)
    due = round_noise(
        mechanism.rules.participation(agreement, 1), state.noise_multipliers, agreement.members.sizes,
        mechanism.local_training(1, agreement), state.model, 1,
    )  # fmt: skip
    spread = float((one - other).std()) / np.sqrt(2)
    # one drop-out is allowed for, so that 4/3 of the variance is there; 650 numbers tell it to 3 per cent
    assert spread == pytest.approx(due.sd * np.sqrt(4 / 3), rel=0.12)


def test_single_updates_are_not_in_the_messages(world: World) -> None:
    """Masked parts look alike whoever has a task; with the masks off one of them would show."""
    heard: dict[str, list[Any]] = {name: [] for name in NAMES}
    operator = world.operator()

    def overheard(name: str) -> Handle:
        def handle(data: bytes) -> bytes:
            answer = world.participants[name].handle(data)
            message = unseal(answer, operator.verify).message
            if message.kind == "input":
                heard[name].append(message.numbers)
            return answer

        return handle

    world.train(KINDS["half"], colluders=0, transport=InProcess({name: overheard(name) for name in NAMES}))
    for name in NAMES:
        for words in heard[name]:
            top = np.bincount((words >> np.uint64(60)).astype(int), minlength=16)
            assert top.max() < 2.2 * len(words) / 16  # 650 numbers below 1 would all have the same top bits
            assert top.min() > 0.3 * len(words) / 16


@dataclass
class Failing:
    """A way to members of whom some do not answer one kind of message."""

    world: World
    kind: str
    silent: tuple[str, ...]
    after: int = 0  # messages of this kind that still arrive
    count: int = 0

    def connected(self) -> Mapping[str, str]:
        return dict.fromkeys(NAMES, "")

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        came = dict(InProcess(self.world.handles).exchange(messages, ttl))
        length = int.from_bytes(next(iter(messages.values()))[4:8], "big")
        if wire.json.loads(next(iter(messages.values()))[8 : 8 + length])["kind"] == self.kind:
            self.count += 1
            if self.count > self.after:
                came |= {
                    name: Failure("no answer in time", absent=True) for name in self.silent if name in came
                }
        return came


SKIPPING = {**TABLES, "training": {**TABLES["training"], "on_bad_update": "skip"}}


class TestDropOuts:
    def test_one_of_four_is_left_out_of_the_sum(self, world: World) -> None:
        run = world.train(SKIPPING, colluders=0, transport=Failing(world, "input", ("eve",), after=1))
        assert [record["failed"] for record in run.metrics] == [[], ["eve"], ["eve"]]

    def test_after_it_gave_its_part_it_is_in(self, world: World) -> None:
        run = world.train(SKIPPING, colluders=0, transport=Failing(world, "unmask", ("eve",)))
        alone = world.locally(SKIPPING)
        assert float((flat_parameters(run.model) - flat_parameters(alone.model)).abs().max()) < 1e-6

    def test_two_of_four_are_too_many(self, world: World) -> None:
        with pytest.raises(
            AskFailed, match=r"2 members are in sum 0, the threshold is 3.*eve: no answer in time"
        ):
            world.train(SKIPPING, colluders=0, transport=Failing(world, "input", ("eve", "joe")))

    def test_who_has_gone_is_not_in_the_next_batch(self, make_world: Callable[..., World]) -> None:
        world = make_world()
        tables = {**SKIPPING, "training": {**SKIPPING["training"], "rounds": 4}}
        gone = Failing(world, "input", ("eve",))
        run = world.train(tables, colluders=0, transport=gone, exclude_after=2)
        assert all(record["failed"] == ["eve"] for record in run.metrics)
        assert any("eve is not asked again" in line for line in world.told)

    def test_a_round_of_one_is_not_asked_for(self, world: World) -> None:
        quarter = {**SKIPPING, "training": {**SKIPPING["training"], "participation": 0.25}}
        run = world.train(quarter, colluders=0)
        assert all(record["failed"] == record["participants"] for record in run.metrics)
        assert not world.journals["ada"].identifiers(RUN)[3:]  # nobody was asked for anything

    def test_two_members_are_too_few(self, make_world: Callable[..., World]) -> None:
        world = make_world(
            names=("ada", "ben"), costs={"ada": 1.0, "ben": 1.0}, partition=Partition("iid", 2)
        )
        with pytest.raises(ValueError, match="members must be 3 to 1000"):
            world.train(TABLES, colluders=0)


def test_what_needs_single_answers_is_refused(world: World) -> None:
    shared = {name: TABLES[name] for name in ("data", "partition", "model")}
    memory = {**TABLES, "training": {**TABLES["training"], "aggregation": "memory", "participation": 0.5}}
    for tables in (
        {**shared, "faithful": {"regulariser": 0.1}},
        {**TABLES, "rewards": {"measure": "cosine"}},
        memory,
    ):
        with pytest.raises(ValueError, match="federation must offer replies, which this run needs"):
            world.prepare(tables, colluders=0, run=f"{len(str(tables)):032x}")


class Killed(BaseException):
    pass


@dataclass
class Dying:
    """Ends the server when it sends its n-th message of a kind, before or after members have answered."""

    world: World
    kind: str
    at: int
    after: bool
    count: int = 0

    def connected(self) -> Mapping[str, str]:
        return dict.fromkeys(NAMES, "")

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        length = int.from_bytes(next(iter(messages.values()))[4:8], "big")
        hit = wire.json.loads(next(iter(messages.values()))[8 : 8 + length])["kind"] == self.kind
        self.count += hit
        if hit and self.count == self.at and not self.after:
            raise Killed
        came = InProcess(self.world.handles).exchange(messages, ttl)
        if hit and self.count == self.at:
            raise Killed
        return came


def resumed(world: World, folder: Path) -> RunResult:
    records = world.records(folder.with_name(folder.name + ".records.jsonl"))
    federation = SecureFederation.again(world.operator(colluders=0), records)
    _, reports = from_outside(folder)
    setting = prepare(
        of_run(folder), federation=federation, reports=reports, dataset=datasets.load("digits")
    )
    return train(setting, folder, resume=True)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("noise", "kind"),
    [("none", "keys"), ("none", "shares"), ("none", "input"), ("none", "unmask"), ("sum", "unmask")],
)
def test_a_killed_server_goes_on_with_the_same_sum(
    make_world: Callable[..., World], tmp_path: Path, kind: str, after: bool, noise: str
) -> None:
    tables = TABLES if noise == "none" else NOISY["sum"]

    def begun(world: World, name: str, transport: Any = None) -> RunResult:
        records = world.records(tmp_path / f"{name}.records.jsonl")
        setting = world.prepare(tables, colluders=0, transport=transport, records=records)
        return train(setting, tmp_path / name)

    whole = begun(make_world(), "whole")
    world = make_world()
    first = kind in ("keys", "shares")  # there is one batch only
    with pytest.raises(Killed):
        begun(world, "run", Dying(world, kind, 1 if first else 2, after))
    run = resumed(world, tmp_path / "run")
    if noise == "none":  # other noise in every batch: only the ledgers are the same
        assert (flat_parameters(run.model) == flat_parameters(whole.model)).all()
    assert run.findings[-1].holds, run.findings[-1].text
    assert len(world.journals["ada"].releases(RUN, 0)) == (0 if noise == "none" else 3)


class TestHostileServers:
    def test_a_single_answer_is_refused(self, world: World) -> None:
        world.prepare(TABLES, colluders=0)
        content = {"tasks": [wire.training("a")], "accepted": []}
        reason = Server(world).refusal("work", content, np.zeros(650))
        assert "must be that of secure sums, as agreed" in reason

    def test_secure_sums_that_were_not_agreed_on_are_none(self, world: World) -> None:
        world.prepare(TABLES)
        assert "agreed on, with secure sums" in Server(world).refusal("keys", {"plan": ""})

    def ran(self, world: World) -> list[tuple[str, str, bytes]]:
        """A whole run; every request as it was sent, by kind and recipient."""
        sent: list[tuple[str, str, bytes]] = []

        def overheard(name: str) -> Handle:
            def handle(data: bytes) -> bytes:
                length = int.from_bytes(data[4:8], "big")
                sent.append((wire.json.loads(data[8 : 8 + length])["kind"], name, data))
                return world.participants[name].handle(data)

            return handle

        world.train(TABLES, colluders=0, transport=InProcess({name: overheard(name) for name in NAMES}))
        return sent

    def content(self, data: bytes) -> dict[str, Any]:
        length = int.from_bytes(data[4:8], "big")
        fields: dict[str, Any] = wire.json.loads(data[8 : 8 + length])
        return dict(fields["content"])

    def test_a_task_is_in_one_sum_only(self, world: World) -> None:
        sent = self.ran(world)
        mine = next(data for kind, name, data in sent if kind == "input" and name == "ada")
        length = int.from_bytes(mine[4:8], "big")
        signed = int.from_bytes(mine[8 + length : 12 + length], "big")
        numbers = np.frombuffer(mine[12 + length + signed :], dtype="<f4")
        again = {**self.content(mine), "which": 5}
        assert "identifier must be in one sum only" in Server(world).refusal("input", again, numbers)

    def test_another_model_under_the_same_sum_is_refused(self, world: World) -> None:
        sent = self.ran(world)
        mine = next(data for kind, name, data in sent if kind == "input" and name == "ada")
        content, other = self.content(mine), np.ones(650)
        assert "models must be those that everybody is sent" in Server(world).refusal(
            "input", content, other
        )
        content["models"] = digest_of_models(other.astype("<f4"))
        reason = Server(world).refusal("input", content, other)
        assert "identifier must be in one sum only, with the same work" in reason

    def test_members_that_are_told_different_things_hide_each_other_all_the_same(
        self, world: World
    ) -> None:
        """A server that sends one of them another model gets a sum of nothing but noise."""
        from bonafed.remote.server import secure

        federation = world.gather(TABLES, colluders=0)
        real = federation._ask

        def ask(kind: str, contents: Any, numbers: Any = None, **more: Any) -> Any:
            if kind == "input":
                numbers = {**numbers, "ada": numbers["ada"] + 1}
                contents = {**contents, "ada": {
                    **contents["ada"], "models": digest_of_models(numbers["ada"])}}  # fmt: skip
            return real(kind, contents, numbers, **more)

        federation._ask = ask  # type: ignore[method-assign]
        setting = prepare(from_tables(TABLES), federation=federation)
        mechanism = setting.mechanism
        state = mechanism.begin(setting.agreement, setting.start)
        after, _ = mechanism.advance(state, setting.clients)
        assert float(np.abs(mechanism.models(after)).max()) > secure.BOUND / 100  # trained: below 1

    def test_shares_that_are_next_to_nothing_hide_nobody(self) -> None:
        one, little = [np.array([0.5])], [np.array([1e-6])]
        assert contributing({"ada": one, "ben": little, "eve": little}) == [["ada"]]
        assert contributing({"ada": one, "ben": one}) == [["ada", "ben"]]
        rows = {"ada": [np.array([0.5, 0.0])], "ben": [np.array([0.5, 0.5])], "eve": [np.array([0.4, 0.3])]}
        assert contributing(rows) == [["ada", "ben", "eve"], ["ben", "eve"]]
        assert fewest(contributing(rows), ["ada", "ben"]) == 1

    def test_noise_is_fresh_in_every_sum_also_on_zeros(self, world: World) -> None:
        """Of a member that has no task in two sums: the same noise would cancel in their difference."""
        drawn: list[Any] = []
        real = Secret.noisy

        def noisy(self: Secret, values: Any, sd: float, request: bytes, released: int) -> Any:
            result = real(self, values, sd, request, released)
            if not np.any(values):
                drawn.append(result)
            return result

        half = {**NOISY["sum"], "training": {**FULL, "rounds": 6, "participation": 0.5}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Secret, "noisy", noisy)
            world.train(half, colluders=0)
        assert len(drawn) >= 6
        for place, one in enumerate(drawn):
            assert all(not np.array_equal(one, other) for other in drawn[:place])

    @pytest.mark.parametrize(
        ("survivors", "says"),
        [
            (["ada", "ben", "eve"], "survivors 0 must be what it was the first time"),
            (["ada"], "must leave 2 contributors besides 0 colluders"),
            (["ada", "ben"], "must be 3 at least, the threshold"),
            (["ben", "eve", "joe"], "survivors must include ada"),
            ("ada", "survivors must be of a sum that I am in"),
        ],
    )
    def test_other_survivors_are_refused(self, world: World, survivors: Any, says: str) -> None:
        sent = self.ran(world)
        mine = next(data for kind, name, data in sent if kind == "unmask" and name == "ada")
        assert says in Server(world).refusal("unmask", {**self.content(mine), "survivors": survivors})

    def test_a_plan_of_few_or_of_another_run_is_refused(self, world: World) -> None:
        from bonafed.remote.secure_sums import BatchPlan

        world.prepare(TABLES, colluders=1)
        server = Server(world)

        def refused(**changes: Any) -> str:
            given: dict[str, Any] = {
                "members": NAMES, "threshold": 3, "size": 652, "bound": 1.0, "sums": 2,
                "context": RUN.encode() + b" 1", "colluders": 1, **changes,
            }  # fmt: skip
            text = wire_text(BatchPlan(**given).to_bytes())
            return server.refusal("keys", {"plan": text})

        assert "plan.colluders must be 1, as agreed" in refused(colluders=0)
        assert "plan.context must be of this run" in refused(context=b"another")
        assert "plan.members must be 3 members of this run at least" in refused(
            members=("ada", "zoe", "zed"), threshold=3
        )


def wire_text(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()
