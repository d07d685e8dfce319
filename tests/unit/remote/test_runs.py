"""Every mechanism on participants that verify, sign and keep a ledger, beside the run on one machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from bonafed import jsam
from bonafed.contracts.coins import commit, commit_nonce, toss
from bonafed.contracts.roster import contract_roster
from bonafed.economics import Uniform
from bonafed.learning.engine.programs import flat_parameters
from bonafed.mechanisms.posted_price.contract import Offer, PostedPriceContract
from bonafed.mechanisms.sampling import SamplingContract, plan
from bonafed.remote.messages import InProcess
from bonafed.remote.participant.policy import Policy
from bonafed.remote.participation_coins import own_nonce
from bonafed.runs.config import from_tables
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train

from .conftest import NAMES, RUN, TABLES, World

SHARED = {name: TABLES[name] for name in ("data", "partition", "model")}
EXACT: dict[str, dict[str, Any]] = {
    "fedavg": TABLES,
    "half": {**TABLES, "training": {**TABLES["training"], "participation": 0.5}},
    "memory": {**TABLES, "training": {**TABLES["training"], "participation": 0.5, "aggregation": "memory"}},
    "cnn": {**TABLES, "model": {"name": "small-cnn"}},
    "sampling": {**TABLES, "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 10.0}},
    "posted-price": {**TABLES, "posted_price": {"cap": 9.0, "seats": 3}},
    "prior-free": {**TABLES, "sampling": {"scheme": "prior-free", "highest": 1.5, "total_budget": 10.0}},
    "private": {**TABLES, "privacy": {"epsilon": 5.0, "delta": 1e-5, "clip": 1.0, "noise": "reproducible"}},
    "jsam": {
        **TABLES,
        "jsam": {"prior": "uniform:0,4", "eta": 20.0, "smoothness": 0.5, "clip": 1.0, "max_epsilon": 5.0,
                 "noise": "reproducible"},
    },
    "faithful": {**SHARED, "faithful": {"regulariser": 0.1}},
    "stepwise": {
        **SHARED,
        "faithful": {"regulariser": 0.5, "variant": "stepwise", "training_steps": 4, "payment_steps": 2,
                     "epsilon": 9.0},
    },
    "rewards": {**TABLES, "rewards": {"measure": "data size"}},
    "cosine": {**TABLES, "rewards": {"measure": "cosine"}},
}  # fmt: skip
REPORTING = ("sampling", "posted-price", "prior-free", "jsam")


@pytest.fixture
def trusting(make_world: Callable[..., World]) -> World:
    return make_world(policies=dict.fromkeys(NAMES, Policy(reproducible_noise=True)))


@pytest.mark.parametrize("kind", EXACT)
def test_equal_to_one_machine(trusting: World, kind: str) -> None:
    tables = EXACT[kind]
    run = trusting.train(tables)
    reports = {"reports": dict(trusting.costs)} if kind in REPORTING else {}
    alone = trusting.locally(tables, **reports)
    difference = (flat_parameters(run.model) - flat_parameters(alone.model)).abs().max()
    assert float(difference) < 1e-6
    assert run.statement.amounts == alone.statement.amounts
    receipts = run.findings[-1]
    assert receipts.claim == "receipts"
    assert receipts.holds
    assert "4 of 4" in receipts.text


@pytest.mark.parametrize("batches", ["passes", "poisson"])
def test_secret_noise_by_ledger_and_statistics(world: World, batches: str) -> None:
    privacy = {"epsilon": 3.0, "delta": 1e-5, "clip": 1.0, "batches": batches}
    run = world.train({**TABLES, "privacy": privacy})
    assert run.findings[-1].holds
    epsilon = run.statement.columns["epsilon"]
    assert all(2.5 < float(value) <= 3.0 for value in epsilon)  # type: ignore[arg-type]
    quiet = world.locally(TABLES)
    distance = float((flat_parameters(run.model) - flat_parameters(quiet.model)).norm())
    noisy = world.locally({**TABLES, "privacy": privacy})
    expected = float((flat_parameters(noisy.model) - flat_parameters(quiet.model)).norm())
    assert expected / 2 < distance < expected * 2  # 650 numbers: a norm of noise is within a few per cent


def test_a_different_secret_gives_different_noise(make_world: Callable[..., World]) -> None:
    privacy = {"epsilon": 3.0, "delta": 1e-5, "clip": 1.0}
    one, other = make_world(), make_world()
    for name in NAMES:  # the second world's participants have other secrets
        (other.folder / f"{name}.secret").write_bytes(bytes([99]) * 32)
        other.start(name)
    models = [flat_parameters(w.train({**TABLES, "privacy": privacy}).model) for w in (one, other)]
    assert float((models[0] - models[1]).abs().max()) > 1e-3


def test_nothing_above_the_seam_holds_records(world: World) -> None:
    setting = world.prepare(TABLES)
    sizes = {name: participant._holding for name, participant in world.participants.items()}
    for name, holding in sizes.items():
        assert setting.agreement.members.sizes[NAMES.index(name)] == len(holding)
    assert not hasattr(setting.clients, "samples")
    assert not hasattr(setting.clients, "oracle")


def test_no_cost_but_the_report_and_no_secret_is_told(world: World, tmp_path: Any) -> None:
    """Costs, secrets and records stay where they are, whatever is written or told."""
    sent: list[bytes] = []
    handles = world.handles

    def overheard(name: str) -> Callable[[bytes], bytes]:
        def handle(data: bytes) -> bytes:
            answer = handles[name](data)
            sent.extend((data, answer))
            return answer

        return handle

    folder, records = tmp_path / "run", world.records(tmp_path / "run.records.jsonl")
    world.train(TABLES, folder, transport=InProcess({n: overheard(n) for n in NAMES}), records=records)
    heard = b"".join(sent) + "".join(world.told).encode()
    heard += b"".join(path.read_bytes() for path in (*folder.iterdir(), tmp_path / "run.records.jsonl"))
    for name in NAMES:
        assert str(world.costs[name]).encode() not in heard  # nobody asked for it
        secret = (world.folder / f"{name}.secret").read_bytes()
        assert secret not in heard
        assert secret.hex().encode() not in heard
        assert b"PRIVATE KEY" not in heard
    assert np.float32(0.5).tobytes() * 64 not in heard


class TestLots:
    """Who takes part is unknown to everybody who reports, and chosen by nobody."""

    TABLES: ClassVar[dict[str, Any]] = {**TABLES, "training": {**TABLES["training"], "rounds": 6}}

    def test_the_seed_is_bound_before_reports_and_opened_after(self, world: World) -> None:
        sent: list[bytes] = []
        handles = {
            name: lambda data, handle=handle: (sent.append(data), handle(data))[1]
            for name, handle in world.handles.items()
        }
        tables = {**self.TABLES, "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 20.0},
                  "run": {"seed": 987654321}}  # fmt: skip
        world.train(tables, transport=InProcess(handles))
        before, after = b"".join(sent[:8]), b"".join(sent[8:12])  # descriptions and reports; terms
        assert b"987654321" not in before
        assert b"987654321" in after

    def test_another_seed_than_the_one_bound_is_refused(self, world: World) -> None:
        tables = {**self.TABLES, "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 20.0}}
        federation = world.gather(tables)
        federation._seed["value"] = 1
        with pytest.raises(ValueError, match="seed must be the one committed to before anybody reported"):
            prepare(from_tables(tables), federation=federation)

    @pytest.mark.parametrize("kind", ["sampling", "posted-price", "jsam"])
    def test_verifiable_coins_of_real_clients(self, world: World, kind: str) -> None:
        secret = bytes(range(32))
        if kind == "sampling":
            made: Any = SamplingContract.of(plan(Uniform(0.5, 1.5), total_budget=20, clients=4, rounds=6))
        elif kind == "posted-price":
            made = PostedPriceContract.of(Offer(18, seats=3), 4, 6)
        else:
            noise = {"dimension": 650, "smoothness": 0.5, "records": 48}
            made = jsam.contract(
                Uniform(0, 4), clients=4, rounds=6, eta=20, noise_scale=noise, max_epsilon=5.0, clip=1.0
            )
        contract = made.with_coins(commit(secret))
        setting = world.prepare(self.TABLES, contract=contract)
        run = train(setting, secret=secret)
        assert run.findings[-1].holds, run.findings[-1].text
        nonces = {name: own_nonce(world.participants[name]._secret, RUN) for name in NAMES}
        hashes = {name: commit_nonce(contract.digest, name, nonce) for name, nonce in nonces.items()}
        coins = toss(contract_roster(contract, setting.agreement.reports, hashes), secret, nonces)
        due = [[NAMES[k] for k in np.sort(coins.participants(r + 1))] for r in range(6)]
        assert [record["participants"] for record in run.metrics] == due

    def test_a_server_that_asks_others_than_the_coins_say_is_found_out(self, world: World) -> None:
        """It tosses with another secret than the one it opens; the contract binds it to one."""
        contract = SamplingContract.of(plan(Uniform(0.5, 1.5), total_budget=20, clients=4, rounds=6))
        secret = bytes(range(32))
        setting = world.prepare(self.TABLES, contract=contract.with_coins(commit(secret)))
        federation: Any = setting.clients
        real = federation.account

        def cheating(statement: Any, agreement: Any) -> Any:
            """What it opens is not what it used."""
            told = federation._ask

            def ask(kind: str, contents: Any, *rest: Any, **more: Any) -> Any:
                contents = {
                    name: {**content, "coins": {**content["coins"], "secret": "00" * 32}}
                    for name, content in contents.items()
                }  # fmt: skip
                return told(kind, contents, *rest, **more)

            federation._ask = ask
            return real(statement, agreement)

        federation.account = cheating
        run = train(setting, secret=secret)
        assert run.findings[-1].holds is False
        assert "secret must be the one committed to in the contract" in run.findings[-1].text

    def test_coins_need_a_contract_that_commits_to_them(self, world: World) -> None:
        tables = {
            **self.TABLES,
            "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 20.0, "coins": "verifiable"},
        }
        with pytest.raises(ValueError, match="secret of the coins is required"):
            world.train(tables)
