"""Participants that lie, break, are late or go: named, left out by a stated rule, never a wrong payment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles import wire

from bonafed.learning.federation import Failure
from bonafed.remote.keys import member_signer, read_member_key
from bonafed.remote.messages import SERVER, Handle, InProcess, Message, seal
from bonafed.remote.server.operating import begin
from bonafed.runs.config import from_tables
from bonafed.runs.prepare import prepare

from .conftest import NAMES, TABLES, World

SAMPLING = {
    **TABLES,
    "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 14.0},
    "training": {**TABLES["training"], "rounds": 5, "on_bad_update": "skip", "aggregation": "plain"},
}
SKIPPING = {**TABLES, "training": {**TABLES["training"], "rounds": 5, "on_bad_update": "skip"}}


@dataclass
class Broken:
    """A way to members of whom one does something else in some exchanges, counted from 0."""

    handles: Mapping[str, Handle]
    instead: Callable[[bytes, bytes], bytes | Failure] = lambda asked, answer: answer
    who: str = "eve"
    when: Callable[[int], bool] = lambda exchange: exchange == 4
    count: int = field(default=-1)

    def connected(self) -> Mapping[str, str]:
        return dict.fromkeys(self.handles, "")

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        self.count += 1
        came = dict(InProcess(self.handles).exchange(messages, ttl))
        if self.who in came and self.when(self.count):
            answer = came[self.who]
            assert isinstance(answer, bytes)
            came[self.who] = self.instead(messages[self.who], answer)
        return came


def header(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[4:8], "big")
    fields: dict[str, Any] = wire.json.loads(data[8 : 8 + length])
    return fields


def forged(world: World, name: str, asked: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """An answer signed by `name` with content of its own."""
    fields = header(asked)
    answers = wire.hashlib.sha256(asked[8 : 8 + int.from_bytes(asked[4:8], "big")]).hexdigest()
    new: dict[str, Any] = {
        "kind": fields["kind"], "run": fields["run"], "sender": name, "recipient": SERVER,
        "content": {}, "numbers": None, "answers": answers,
    }  # fmt: skip
    change(new)
    return seal(Message(**new), member_signer(read_member_key(world.folder / name)))[1]


def values(fill: float, size: int = 650) -> Callable[[dict[str, Any]], None]:
    def change(new: dict[str, Any]) -> None:
        row = {"identifier": "round 2, eve, 0", "shape": [1, size], "at": 0, "loss": 0.1, "steps": 1,
               "releases": []}  # fmt: skip
        new["content"] = {"answers": [row]}
        new["numbers"] = np.full(size, fill, dtype=np.float32)

    return change


def other(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda new: new.update({key: value})


# what eve does in the second round, and what is said about it
FAULTS: dict[str, tuple[Callable[[World], Callable[[bytes, bytes], bytes | Failure]], str]] = {
    "late": (lambda w: lambda asked, _: Failure("no answer in time", absent=True), "no answer in time"),
    "NaN": (lambda w: lambda asked, _: forged(w, "eve", asked, values(np.nan)), "NaN or inf"),
    "wrong shape": (lambda w: lambda asked, _: forged(w, "eve", asked, values(0.1, 649)), "shape"),
    "no task": (lambda w: lambda asked, _: forged(w, "eve", asked, other("content", {"answers": []})),
                "nothing"),
    "no answers": (lambda w: lambda asked, _: forged(w, "eve", asked, lambda new: None), "answers must be"),
    "another request": (lambda w: lambda asked, _: forged(w, "eve", asked, other("answers", "0" * 64)),
                        "answer must be to this request"),
    "another run": (lambda w: lambda asked, _: forged(w, "eve", asked, other("run", "6" * 32)),
                    "answer must be to this request"),
    "another kind": (lambda w: lambda asked, _: forged(w, "eve", asked, other("kind", "settle")),
                     "kind must be 'work'"),
    "junk": (lambda w: lambda asked, _: b"junk", "message must begin with"),
    "cut short": (lambda w: lambda _, answer: answer[:-3], "body must hold"),
    "as another": (lambda w: lambda asked, _: forged(w, "eve", asked, other("sender", "ada")),
                   "signature must be"),
    "signed by another": (lambda w: lambda asked, _: forged(w, "ben", asked, other("sender", "eve")),
                          "signature must be"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_is_named_and_left_out_of_the_round(world: World, fault: str) -> None:
    how, says = FAULTS[fault]
    setting = world.prepare(SKIPPING, transport=Broken(world.handles, how(world)))
    from bonafed.runs.training import train

    run = train(setting)
    assert [record["failed"] for record in run.metrics] == [[], ["eve"], [], [], []]
    assert any(line.startswith("eve: ") and says in line for line in world.told)
    honest = world.participants["eve"]
    assert honest.name == "eve"
    assert run.findings[-1].claim == "receipts"


@pytest.mark.parametrize("fault", ["late", "NaN", "junk"])
def test_who_delivered_is_paid_and_who_did_not_is_not(world: World, fault: str) -> None:
    how, _ = FAULTS[fault]
    broken = Broken(world.handles, how(world), when=lambda count: count >= 3)  # from the first round on
    run = world.train(SAMPLING, transport=broken, exclude_after=2)
    whole = world.locally(SAMPLING, reports=dict(world.costs))
    paid, due = (dict(zip(NAMES, result.statement.amounts, strict=True)) for result in (run, whole))
    assert paid["eve"] == 0 < due["eve"]
    assert [paid[name] for name in ("ada", "ben", "joe")] == [due[name] for name in ("ada", "ben", "joe")]


def test_after_so_many_faults_in_a_row_it_is_not_asked_again(world: World) -> None:
    asked: list[int] = []

    def silent(_asked: bytes, _answer: bytes) -> Failure:
        asked.append(1)
        return Failure("no answer in time", absent=True)

    broken = Broken(world.handles, silent, when=lambda count: count >= 3)
    run = world.train(SKIPPING, transport=broken, exclude_after=2)
    assert len(asked) == 3  # two rounds, and the statement, which everybody may see
    assert all(record["failed"] == ["eve"] for record in run.metrics)
    assert any("eve is not asked again in this run, after 2 faults" in line for line in world.told)


def test_a_fault_now_and_then_excludes_nobody(world: World) -> None:
    late = FAULTS["late"][0](world)
    broken = Broken(world.handles, late, when=lambda count: count >= 3 and count % 2 == 0)
    run = world.train(SKIPPING, transport=broken, exclude_after=2)
    assert [bool(record["failed"]) for record in run.metrics] == [False, True, False, True, False]


class TestReports:
    def test_of_another_are_refused(self, world: World) -> None:
        """eve sends ada's signed report, as it was overheard."""
        heard = dict[str, bytes]()

        def overheard(asked: bytes) -> bytes:
            heard["ada"] = answer = world.participants["ada"].handle(asked)
            return answer

        handles = {**world.handles, "ada": overheard}
        broken = Broken(handles, lambda asked, answer: heard["ada"], when=lambda count: count == 1)
        with pytest.raises(
            ValueError,
            match="reports must come from everybody in this run, got eve: sender must be 'eve', got 'ada'",
        ):
            world.prepare(SAMPLING, transport=broken)
        assert any("eve: sender must be 'eve', got 'ada'" in line for line in world.told)

    def test_signed_for_another_are_refused(self, world: World) -> None:
        def change(new: dict[str, Any]) -> None:
            new["sender"], new["content"] = "ada", {"report": 1.4, "commitment": None}

        broken = Broken(
            world.handles,
            lambda asked, _: forged(world, "eve", asked, change),
            "ada",
            lambda count: count == 1,
        )
        with pytest.raises(
            ValueError, match="reports must come from everybody in this run, got ada: signature"
        ):
            world.prepare(SAMPLING, transport=broken)
        assert any("ada: signature must be that of 'ada'" in line for line in world.told)

    def test_changed_after_commitment_are_refused(self, world: World) -> None:
        """The acceptance cites other terms than those that follow from its signed report."""
        other_terms = other("content", {"accepts": "0" * 64})
        broken = Broken(
            world.handles,
            lambda asked, _: forged(world, "eve", asked, other_terms),
            when=lambda count: count == 2,
        )
        with pytest.raises(
            ValueError, match=r"terms must be accepted by everybody.*eve: accepts something else"
        ):
            world.prepare(SAMPLING, transport=broken)

    def test_asked_again_it_says_the_same(self, world: World) -> None:
        setting = world.prepare(SAMPLING)
        first, question = setting.agreement.reports, setting.mechanism.question
        assert question is not None
        world.costs = {**world.costs, "eve": 0.5}
        world.start("eve")  # with another cost in its settings
        setting.clients._operator.transport.handles["eve"] = world.participants["eve"].handle  # type: ignore[attr-defined]
        assert setting.clients.report(question) == first  # the same run
        assert world.prepare(SAMPLING, run="7" * 32).agreement.reports["eve"] == 0.5


class TestWhoIsIn:
    def test_who_does_not_answer_in_the_beginning_is_not_in_the_run(self, world: World) -> None:
        broken = Broken(world.handles, FAULTS["late"][0](world), when=lambda count: count == 0)
        setting = world.prepare(TABLES, transport=broken)
        assert setting.agreement.members.names == ("ada", "ben", "joe")
        assert "eve is not in this run: no answer in time" in world.told

    def test_other_shapes_are_refused_by_name(self, world: World) -> None:
        def change(new: dict[str, Any]) -> None:
            new["content"] = {
                "records": 10, "shape": [1, 4, 4], "classes": 10, "class_names": [], "vocabulary": 0,
                "feature_bound": 1.0, "smoothness": None, "strong_convexity": None,
            }  # fmt: skip

        broken = Broken(
            world.handles,
            lambda asked, _: forged(world, "eve", asked, change),
            when=lambda count: count == 0,
        )
        with pytest.raises(ValueError, match="shape of eve must be as that of ada"):
            world.prepare(TABLES, transport=broken)

    def test_nobody(self, world: World) -> None:
        silent = dict.fromkeys(NAMES, lambda data: b"")
        with pytest.raises(
            ValueError, match="federation must have a member that joins this run, got nobody"
        ):
            world.prepare(TABLES, transport=InProcess(silent))


def test_disputes_are_named(world: World) -> None:
    """A server that counts one participation less than it was given."""
    setting = world.prepare(SAMPLING)
    federation = setting.clients
    from bonafed.runs.training import train

    real = federation.account  # type: ignore[attr-defined]

    def short(statement: Any, agreement: Any) -> Any:
        from dataclasses import replace

        turns = list(statement.columns["participations"])
        turns[0] -= 1
        return real(replace(statement, columns={**statement.columns, "participations": turns}), agreement)

    federation.account = short  # type: ignore[attr-defined]
    run = train(setting)
    receipts = run.findings[-1]
    assert receipts.holds is False
    assert "DISPUTED by ada: participations:" in receipts.text
    assert "3 of 4 participants' own ledgers say the same" in receipts.text


def test_an_attempt_that_ended_before_the_terms_is_not_in_the_way(world: World, tmp_path: Path) -> None:

    folder = tmp_path / "run"
    digests = world.records().key_digests
    begin(world.operator(), from_tables(TABLES), folder, digests)  # and nothing came of it
    again = begin(world.operator(), from_tables(TABLES), folder, digests)
    prepare(from_tables(TABLES), federation=again)  # now there are terms
    with pytest.raises(ValueError, match="must be new: the records of another run are beside it"):
        begin(world.operator(), from_tables(TABLES), folder, digests)
