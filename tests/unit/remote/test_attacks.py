"""What a hostile server or participant got, or broke, in an attack on the federation."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tests.oracles import wire

from bonafed.remote.keys import member_signer, operator_signer, read_member_key
from bonafed.remote.messages import InProcess, JSONObject, Message, seal, unseal
from bonafed.remote.participant.policy import Policy
from bonafed.remote.secure_sums import BatchPlan, collected, gathered, parcels_for, revealed
from bonafed.remote.sums import EXTRAS, about_sum, common_work, digest_of_models
from bonafed.remote.tasks import work_from_json

from .conftest import NAMES, RUN, TABLES, World
from .test_hostile_servers import MODEL, PRIVATE, Server, noisy
from .test_secure import NOISY

START = np.zeros(650, dtype="<f4")


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Sums:
    """A server of secure sums that asks what it likes."""

    def __init__(self, world: World, noise: float = 0.0) -> None:
        self.world, self.sign = world, operator_signer(world.operator_pem)
        self.verify = world.operator().verify
        self.plan = BatchPlan(NAMES, 3, 650 + EXTRAS, 2.0**20, 4, RUN.encode() + b" x", 0, noise)
        self.batch = self.plan.digest.hex()
        keys = {name: self.bytes_of(name, "keys", {"plan": text(self.plan.to_bytes())}) for name in NAMES}
        self.book, _ = gathered(self.plan, keys, self.verify)
        content = {"batch": self.batch, "book": text(self.book.to_bytes())}
        shares = {name: self.bytes_of(name, "shares", content) for name in NAMES}
        self.parcels = parcels_for(self.book, shares)

    def ask(self, name: str, kind: str, content: JSONObject, numbers: Any = None) -> Message:
        data = seal(Message(kind, RUN, "", name, content, numbers), self.sign)[1]
        message = unseal(self.world.participants[name].handle(data), self.verify).message
        if message.kind == "refused":
            raise PermissionError(message.content["reason"])
        return message

    def bytes_of(self, name: str, kind: str, content: JSONObject) -> bytes:
        return base64.b64decode(self.ask(name, kind, content).content[kind])

    def about(self, which: int, task: JSONObject, unit: float = 1.0) -> JSONObject:
        return {
            "batch": self.batch, "which": which, "unit": [unit], "parts": {name: [[1.0]] for name in NAMES},
            "shape": [1, 650], "models": digest_of_models(START),
            "work": common_work(work_from_json(task["work"])),
        }  # fmt: skip

    def total(
        self, which: int, task: JSONObject, survivors: Sequence[str] = NAMES, unit: float = 1.0
    ) -> Any:
        """The sum of all numbers, with the two at the end."""
        common, words = self.about(which, task, unit), dict[str, bytes]()
        for name in survivors:
            more = {"tasks": [task], "shares": [[1.0]], "accepted": [], "parcels": text(self.parcels[name])}
            answer = self.ask(name, "input", {**common, **more}, START)
            assert answer.numbers is not None
            words[name] = answer.numbers.astype("<u8").tobytes()
        pending = collected(self.book, which, words, about_sum(common))
        content = {"batch": self.batch, "which": which, "survivors": list(pending.round.survivors)}
        answers = {
            name: base64.b64decode(self.ask(name, "unmask", content).content["shares"])
            for name in pending.round.survivors
        }
        return revealed(pending, answers).values


def multiplier_of(setting: Any) -> float:
    return float(setting.mechanism.begin(setting.agreement, setting.start).noise_multipliers[0])


class TestMoreThanWasSold:
    def test_the_exact_loss_of_private_records_does_not_leave(self, world: World) -> None:
        multiplier = multiplier_of(world.prepare(PRIVATE))
        row = Server(world).work(noisy("a", 1, multiplier))["a"]
        assert row["loss"] is None

    def test_nor_in_a_sum_of_noisy_updates(self, world: World) -> None:
        multiplier = multiplier_of(world.prepare(NOISY["client"], colluders=0))
        total = Sums(world).total(0, noisy("a", 1, multiplier))
        assert np.abs(total[-EXTRAS:]).max() < 1e-9

    def test_nor_beside_a_noisy_sum(self, world: World) -> None:
        """Nobody charges for it: a record moves it by as much as the server's model lets it."""
        world.prepare(NOISY["sum"], colluders=0)
        task = wire.training("a", training={"clip": 1.0, "batch_size": 400, "steps": 1, "epochs": None})
        drawn: list[Any] = []
        from bonafed.learning.noise import Secret

        real = Secret.noisy

        def noisily(self: Secret, values: Any, *rest: Any) -> Any:
            drawn.append(np.array(values))
            return real(self, values, *rest)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Secret, "noisy", noisily)
            Sums(world, 1.0).total(0, task, unit=0.01)
        assert all(not values[-EXTRAS:].any() for values in drawn if len(values) == 650 + EXTRAS)

    @pytest.mark.parametrize(
        "changes", [{"optimizer": "adam"}, {"batches": "poisson"}, {"weight_decay": 1e30}]
    )
    def test_steps_that_the_clip_does_not_bound_are_not_in_noisy_sums(
        self, world: World, changes: JSONObject
    ) -> None:
        """Adam's step is as long as the rate times sqrt(P), whatever the clip; poisson halves the
        sensitivity, which is then that of another promise; weight decay rounds before the noise."""
        world.prepare(NOISY["sum"], colluders=0)
        spec = {"clip": 1.0, "batch_size": 10_000, "steps": 1, "epochs": None, **changes}
        with pytest.raises(PermissionError, match="must be"):
            Sums(world, 1.0).total(0, wire.training("a", training=spec), unit=0.01)

    def test_a_promise_for_replacing_is_not_kept_by_adding_or_removing(self, world: World) -> None:
        """All records, in half the noise: (3, 1e-5) for adding one is far more for replacing one."""
        multiplier = multiplier_of(world.prepare(PRIVATE))
        spec = {"clip": 1.0, "batches": "poisson", "batch_size": 10_000}
        task = wire.training("a", noise_multiplier=multiplier, training=spec)
        assert "refused" in Server(world).work(task)["a"]

    @pytest.mark.parametrize("policy", [Policy(max_epsilon=0.1), Policy(max_epsilon_in_all=0.1)])
    def test_who_limits_epsilon_is_in_no_run_without_any(self, make_world: Any, policy: Policy) -> None:
        world = make_world(policies={"ada": policy})
        assert "ada" not in world.prepare(TABLES).agreement.members.names

    def test_an_epsilon_at_a_delta_of_almost_one_is_none(self, make_world: Any) -> None:
        world = make_world(policies={"ada": Policy(max_epsilon=0.1)})
        tables = {**PRIVATE, "privacy": {"epsilon": 0.1, "delta": 0.999999, "clip": 1.0}}
        with pytest.raises(ValueError, match="ada: refused: delta must be below 1/360"):
            world.prepare(tables)


class TestSingleUpdates:
    def test_the_same_work_in_two_sums_is_refused(self, world: World) -> None:
        """Under another name, and without ada: the difference is hers, bit for bit."""
        world.prepare(TABLES, colluders=0)
        sums = Sums(world)
        both = sums.total(0, wire.training("a"))
        assert np.isfinite(both).all()
        with pytest.raises(PermissionError, match="must"):
            sums.total(1, wire.training("b"), NAMES[1:])

    def test_rounds_that_were_not_agreed_on_are_in_no_sum(self, world: World) -> None:
        world.prepare(TABLES, colluders=0)
        with pytest.raises(PermissionError, match="round must be at most 3"):
            Sums(world).total(0, wire.training("a", round_number=4))


class TestAnyRequestIsAnswered:
    @pytest.mark.parametrize("multiplier", [1e-200, 1e200])
    def test_whatever_the_noise(self, world: World, multiplier: float) -> None:
        world.prepare(PRIVATE)
        fields = Server(world).ask("work", {"tasks": [noisy("a", 1, multiplier)], "accepted": []}, MODEL)
        assert fields["kind"] in ("work", "refused")

    def test_whatever_the_identifier(self, world: World) -> None:
        world.prepare(TABLES)
        content = {"tasks": [wire.training("\ud800")], "accepted": []}
        assert Server(world).refusal("work", content, MODEL)

    @pytest.mark.parametrize(
        "changes",
        [
            {"parts": {"ada": None}}, {"parts": {"ada": [[1.0]], "ben": [[1.0, 2.0], [1.0]]}},
            {"shares": 5}, {"parts": {"ada": [[1.0]], "ben": [[1.0, 1.0]], "eve": [[1.0, 1.0, 1.0]]}},
        ],
    )  # fmt: skip
    def test_whatever_the_shares(self, world: World, changes: JSONObject) -> None:
        world.prepare(TABLES, colluders=0)
        sums, task = Sums(world), wire.training("a")
        more = {"tasks": [task], "shares": [[1.0]], "accepted": [], "parcels": text(sums.parcels["ada"])}
        with pytest.raises(PermissionError):
            sums.ask("ada", "input", {**sums.about(0, task), **more, **changes}, START)

    def test_whatever_the_statement(self, world: World) -> None:
        tables = {**TABLES, "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 10.0}}
        statement: JSONObject = {}

        def hear(data: bytes) -> bytes:
            message = unseal(data, world.operator().verify).message
            if message.kind == "settle":
                statement.update(message.content["statement"])
            return world.participants["ada"].handle(data)

        world.train(tables, transport=InProcess({**world.handles, "ada": hear}))
        statement["columns"] = {**statement["columns"], "participations": ["many"] * len(NAMES)}
        content = {"statement": statement, "accepted": [], "coins": None}
        assert Server(world).ask("settle", content)["kind"] in ("settle", "refused")

    def test_a_refused_report_leaves_nothing_behind(self, world: World) -> None:
        """Terms would be held against the first roster, work against the second."""
        federation = world.gather(TABLES)
        sent: list[JSONObject] = []
        real = federation._ask

        def ask(kind: str, contents: Any, *rest: Any, **more: Any) -> Any:
            sent.append(contents["ada"])
            return real(kind, contents, *rest, **more)

        federation._ask = ask  # type: ignore[method-assign]
        from bonafed.runs.config import from_tables
        from bonafed.runs.prepare import prepare

        prepare(from_tables(TABLES), federation=federation)
        report, other = sent[0], "8" * 32
        server = Server(world)
        server.run = other
        described = world.journals["ada"].fact(RUN, "describe")
        assert server.ask("describe", described)["kind"] == "describe"
        members = report["members"]
        larger = {**members, "sizes": [members["sizes"][0], *(9 * size for size in members["sizes"][1:])]}
        server.refusal("report", {**report, "members": larger, "contract": "another"})
        assert server.ask("report", report)["kind"] == "report"
        known = world.participants["ada"]._knows(other)
        assert known.members.sizes.tolist() == members["sizes"]


def lying(world: World, kind: str, change: Callable[[JSONObject], Mapping[str, Any]]) -> InProcess:
    """A way to members of whom eve signs something else."""
    sign = member_signer(read_member_key(world.folder / "eve"))

    def eve(data: bytes) -> bytes:
        answer = world.participants["eve"].handle(data)
        message = unseal(answer, world.operator().verify).message
        if message.kind != kind:
            return answer
        return seal(dataclasses.replace(message, content=change(dict(message.content))), sign)[1]

    return InProcess({**world.handles, "eve": eve})


class TestNobodyStopsTheServer:
    def test_by_a_nonce_that_is_none(self, world: World) -> None:
        world.prepare(TABLES, transport=lying(world, "agree", lambda row: {**row, "nonce": "z" * 64}))

    @pytest.mark.parametrize("failed", [5, None])
    def test_by_failures_that_are_no_list(self, world: World, failed: Any) -> None:
        way = lying(world, "input", lambda row: {**row, "failed": failed})
        assert world.train(TABLES, colluders=0, transport=way).metrics
