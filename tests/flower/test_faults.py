"""Nodes and servers that die, are late or lie, on a real federation: named, and never a wrong payment."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bonafed.flower.link import FlowerTransport
from bonafed.runs import toml
from bonafed.runs.config import read_tables
from bonafed.runs.folder import METRICS
from tests.flower.clinics import (
    EXACT,
    PRIVATE,
    TABLES,
    begin,
    command,
    furnish,
    hostile,
    locally,
    of_module,
    on_federation,
    outcome,
    receipts,
    require_balance,
    said,
    weights,
)
from tests.flower.harness import NAMES, PARTICIPATE, Trial
from tests.oracles import wire

Run = Callable[..., str]
LATE = ("-m", "tests.flower.late")
FORGER = ("-m", "tests.flower.forger")
LONG = {**TABLES, "training": {**TABLES["training"], "rounds": 6, "on_bad_update": "skip"}}
SAMPLING = {
    **LONG,
    "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 60.0},
    "training": {**LONG["training"], "aggregation": "plain"},
}


def rounds(folder: Path, name: str) -> int:
    """Completed rounds of a run."""
    lines = folder / "runs" / name / METRICS
    return len(lines.read_bytes().splitlines()) if lines.is_file() else 0


def wait_for_rounds(folder: Path, name: str, count: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 240
    while rounds(folder, name) < count:
        assert process.poll() is None, said(process)
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_node_that_is_killed_is_left_out_and_paid_for_what_it_delivered(
    clinics: Trial, tmp_path: Path
) -> None:
    run = begin(clinics, tmp_path, "killed", SAMPLING, "--answer-within", "12", "--exclude-after", "2")
    wait_for_rounds(tmp_path, "killed", 2, run)
    clinics.kill("dan")
    text = said(run)
    try:
        summary = outcome(tmp_path, "killed")
        statement = summary["statement"]
        turns = dict(zip(statement["clients"], statement["columns"]["participations"], strict=True))
        whole = locally(SAMPLING, reporting=True).statement
        due = dict(zip(whole.clients, whole.columns["participations"], strict=True))
        assert 0 < turns["dan"] < due["dan"]  # type: ignore[operator]
        assert all(turns[name] == due[name] for name in ("ada", "ben", "cyd"))
        payment = dict(zip(statement["clients"], statement["columns"]["payment"], strict=True))
        amounts = dict(zip(statement["clients"], statement["amounts"], strict=True))
        assert abs(amounts["dan"] / 100 - turns["dan"] * payment["dan"]) < 0.02
        assert "dan" in text
        assert "dan is not asked again in this run" in text
        assert "no receipt from dan" in receipts(summary)["text"]
        require_balance(clinics, summary, ("ada", "ben", "cyd"))
    finally:
        clinics.start("dan", PARTICIPATE)
        clinics.await_connected("dan")


def test_a_participant_that_is_killed_goes_on_with_its_ledger(clinics: Trial, tmp_path: Path) -> None:
    tables = {**LONG, "privacy": PRIVATE, "training": {**LONG["training"], "rounds": 8}}
    run = begin(clinics, tmp_path, "back", tables, "--answer-within", "15", "--exclude-after", "9")
    wait_for_rounds(tmp_path, "back", 1, run)
    clinics.kill("ben")
    clinics.start("ben", PARTICIPATE)
    clinics.await_connected("ben")
    said(run)
    summary = outcome(tmp_path, "back")
    require_balance(clinics, summary)
    assert all(epsilon <= 3.0 for epsilon in summary["statement"]["columns"]["epsilon"])


@pytest.mark.parametrize("kind", ["sampling", "faithful"])
def test_a_server_that_is_killed_goes_on_from_the_last_round(
    clinics: Trial, tmp_path: Path, kind: str
) -> None:
    run = begin(clinics, tmp_path, kind, EXACT[kind])
    wait_for_rounds(tmp_path, kind, 1, run)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    where = ("--on", "flower", "--federation", str(clinics.folder.path))
    assert "--on is required: this run is on a federation" in said(
        command(tmp_path, "train", "--resume", f"runs/{kind}"), code=2
    )
    said(command(tmp_path, "train", "--resume", f"runs/{kind}", *where))
    summary = outcome(tmp_path, kind)
    alone = locally(EXACT[kind], kind == "sampling")
    assert np.abs(weights(tmp_path, kind) - of_module(alone)).max() < 1e-5
    assert summary["statement"]["amounts"] == list(alone.statement.amounts)
    require_balance(clinics, summary)


def test_one_that_is_late_is_left_out_of_the_round(clinics: Trial, tmp_path: Path) -> None:
    clinics.stop("cyd")
    clinics.start("cyd", LATE)
    clinics.await_connected("cyd")
    try:
        run = begin(clinics, tmp_path, "late", LONG, "--answer-within", "15", "--exclude-after", "9")
        text = said(run)
        summary = outcome(tmp_path, "late")
        failed = summary["failed_clients"]
        assert failed == ["cyd"]
        assert "cyd: " in text
        statement = summary["statement"]
        turns = dict(zip(statement["clients"], statement["columns"]["participations"], strict=True))
        assert turns["ada"] == 6
        assert turns["cyd"] < 6
        require_balance(clinics, summary)
    finally:
        clinics.stop("cyd")
        clinics.start("cyd", PARTICIPATE)
        clinics.await_connected("cyd")


def test_one_that_lies_about_its_name_is_not_believed(clinics: Trial, here: Run, tmp_path: Path) -> None:
    """dan's node, with dan's key, calls itself ada: it is asked as dan, and refuses; ada stays ada."""
    clinics.stop("dan")
    path = clinics.folder.settings("dan")
    honest = path.read_text(encoding="utf-8")
    tables: dict[str, Any] = read_tables(path)
    lying = clinics.folder.member("dan") / "lying.toml"
    tables["participant"] |= {"name": "ada", "folder": "lying"}
    del tables["federation"]["roster"]  # by which it would find out at once itself
    lying.write_text(toml.dumps(tables), encoding="utf-8")
    clinics.start("dan", PARTICIPATE, lying)
    clinics.await_connected("dan")
    try:
        text = here(*on_federation(clinics, tmp_path, "liar", TABLES))
        assert "dan is not in this run" in text
        summary = outcome(tmp_path, "liar")
        assert summary["statement"]["clients"] == ["ada", "ben", "cyd"]
        require_balance(clinics, summary, ("ada", "ben", "cyd"))
    finally:
        clinics.stop("dan")
        path.write_text(honest, encoding="utf-8")
        clinics.start("dan", PARTICIPATE)
        clinics.await_connected("dan")


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("replay", "dan: sender must be 'dan', got 'ada'"),
        ("sign", "dan: signature must be that of 'ada' or of the server, got another"),
    ],
)
def test_a_report_of_another_is_refused_and_whoever_sent_it_is_named(
    clinics: Trial, here: Run, tmp_path: Path, mode: str, says: str
) -> None:
    """dan sends ada's signed report, as it was overheard, or one of his own making in her name."""
    heard = tmp_path / "heard"
    forgers = {"ada": ("heard", str(heard)), "dan": (mode, str(heard) if mode == "replay" else "ada")}
    for name, words in forgers.items():
        clinics.stop(name)
        clinics.start(name, (*FORGER, *words))
    clinics.await_connected(*forgers)
    try:
        text = here(*on_federation(clinics, tmp_path, "forged", SAMPLING), code=2)
        assert says in text
        assert heard.exists()
        assert not (tmp_path / "runs" / "forged" / METRICS).exists()  # nobody was trained, nobody is owed
    finally:
        for name in forgers:
            clinics.stop(name)
            clinics.start(name, PARTICIPATE)
        clinics.await_connected(*forgers)


def test_a_hostile_server_is_refused(
    clinics: Trial, line: FlowerTransport, here: Run, tmp_path: Path
) -> None:
    here(*on_federation(clinics, tmp_path, "honest", {**TABLES, "privacy": PRIVATE}))
    lines = (tmp_path / "runs" / "honest.records.jsonl").read_text().splitlines()
    run = wire.json.loads(lines[0])["run"]
    quote = "quote sampling --prior uniform:0.5,1.5 --clients 4 --rounds 3 --budget 12 --save contract.json"
    here(*quote.split())
    contract = wire.json.loads((tmp_path / "contract.json").read_text())
    contract["groups"][0]["levels"]["payment"][3] *= 0.99
    altered = {
        "federation": "clinics", "config": {**TABLES, "data": {"name": "federation"}}, "contract": contract,
        "seed": "0" * 64, "secure": None,
    }  # fmt: skip
    noisy: dict[str, Any] = {"noise_multiplier": 2.0, "training": {"clip": 1.0}}
    more = wire.training("one more", round_number=3, **noisy)  # everything that was sold has been given
    twice = wire.training("round 1, ada, 0", round_number=1, **noisy)  # with another model than before
    for task, says in (
        (more, "the epsilon that I sold"),
        (twice, "must not be reused for different work"),
    ):
        content = {"tasks": [task], "accepted": []}
        fields = hostile(clinics, line, run, "work", content, np.ones(650))
        assert says in fields["content"]["answers"][0]["refused"]
    fields = hostile(clinics, line, "b2" * 16, "describe", altered)
    assert fields["kind"] == "refused"
    assert "contract" in fields["content"]["reason"]


def test_the_fixture_furnishes(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "furnished")
    furnish(trial, {"max_rounds": 7})
    assert all("max_rounds = 7" in trial.folder.settings(name).read_text() for name in NAMES)
