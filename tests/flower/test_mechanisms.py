"""Every mechanism on a real federation, beside the same run on one machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bonafed.flower.link import FlowerTransport
from bonafed.mechanisms import catalogue
from bonafed.remote.participant.journal import Journal
from bonafed.remote.roster import roster_from_json
from bonafed.runs.config import from_tables
from bonafed.runs.folder import VERSIONS, read_json
from bonafed.runs.prepare import prepare
from tests.flower.clinics import (
    COSTS,
    EXACT,
    FULL,
    LEDGERS,
    PRIVATE,
    REPORTING,
    SHARED,
    TABLES,
    hostile,
    locally,
    of_module,
    on_federation,
    outcome,
    receipts,
    require_balance,
    weights,
)
from tests.flower.harness import NAMES, Trial
from tests.oracles import wire

Run = Callable[..., str]


@pytest.mark.parametrize("kind", EXACT)
def test_equal_to_one_machine(clinics: Trial, here: Run, tmp_path: Path, kind: str) -> None:
    text = here(*on_federation(clinics, tmp_path, kind, EXACT[kind]))
    assert "exchanges to come, about" in text
    summary = outcome(tmp_path, kind)
    alone = locally(EXACT[kind], kind in REPORTING)
    assert np.abs(weights(tmp_path, kind) - of_module(alone)).max() < 1e-5
    assert summary["statement"]["amounts"] == list(alone.statement.amounts)
    assert receipts(summary)["text"].startswith("4 of 4 participants")
    require_balance(clinics, summary)


@pytest.mark.parametrize("kind", LEDGERS)
def test_private_runs_by_ledger(clinics: Trial, here: Run, tmp_path: Path, kind: str) -> None:
    here(*on_federation(clinics, tmp_path, kind, LEDGERS[kind]))
    summary = outcome(tmp_path, kind)
    assert receipts(summary)["holds"]
    require_balance(clinics, summary)
    statement: dict[str, Any] = summary["statement"]
    sold = {"private": 3.0, "private-faithful": 5.0}
    if "epsilon" in statement["columns"]:
        limits = statement["columns"].get("epsilon_sold", [sold.get(kind)] * 4)
        assert all(0 < e <= limit for e, limit in zip(statement["columns"]["epsilon"], limits, strict=True))
    if kind == "jsam":
        alone = locally(LEDGERS[kind], reporting=True)
        assert statement["amounts"] == list(alone.statement.amounts)


@pytest.mark.parametrize("noise", [False, True], ids=["plain", "noise on the sum"])
def test_secure_sums(clinics: Trial, here: Run, tmp_path: Path, noise: bool) -> None:
    tables = {**TABLES, "training": {**FULL, "rounds": 2}}
    if noise:
        tables["privacy"] = {**PRIVATE, "noise_at": "sum"}
    here(*on_federation(clinics, tmp_path, "sums", tables), "--secure-sums")
    summary = outcome(tmp_path, "sums")
    require_balance(clinics, summary)
    if not noise:
        alone = locally(tables, reporting=False)
        assert np.abs(weights(tmp_path, "sums") - of_module(alone)).max() < 1e-5
    else:
        assert all(0 < epsilon <= 3.0 for epsilon in summary["statement"]["columns"]["epsilon"])


def test_verifiable_coins_of_a_published_contract(clinics: Trial, here: Run, tmp_path: Path) -> None:
    about = ["--prior", "uniform:0.5,1.5", "--clients", "4", "--rounds", "3", "--budget", "12"]
    published = ("--save", "contract.json", "--commit-coins", "server.secret")
    here("quote", "sampling", *about, *published)
    more = ("--contract", "contract.json", "--secret", "server.secret")
    here(*on_federation(clinics, tmp_path, "coins", TABLES), *more)
    require_balance(clinics, outcome(tmp_path, "coins"))
    here("verify", "--coins", "runs/coins")


def test_everybody_chooses_the_batch_and_steps_that_private_training_leaves_open(
    clinics: Trial, line: FlowerTransport, here: Run, tmp_path: Path
) -> None:
    """As one machine does, each by itself: five steps are answered, a sixth is refused."""
    tables = {**SHARED, "training": {"rounds": 2}, "privacy": PRIVATE}
    text = here(*on_federation(clinics, tmp_path, "open", tables))
    alone = prepare(from_tables(tables)).chosen
    assert "batches of all records, 5 steps a round" in text
    assert (alone["batch_size"], alone["steps"]) == (361, 5)
    assert read_json(tmp_path / "runs" / "open", VERSIONS)["chosen"] == pytest.approx(alone)
    summary = outcome(tmp_path, "open")
    assert receipts(summary)["text"].startswith("4 of 4 participants")
    require_balance(clinics, summary)
    assert all(0 < epsilon <= 3.0 for epsilon in summary["statement"]["columns"]["epsilon"])
    for name in NAMES:
        journal = Journal(clinics.folder.member(name) / "state", reading=True)
        run = journal.runs[-1]
        config = from_tables(journal.fact(run, "describe")["config"])
        members = roster_from_json(journal.fact(run, "report")["members"])
        answers = [journal.answered(run, each) for each in journal.identifiers(run)]
        journal.close()
        mine = catalogue.entry(config.mechanism).load().make(config, members, 650).config
        assert mine.chosen == {"batch_size": alone["batch_size"], "steps": alone["steps"]}
        assert [each.answer["steps"] for each in answers if each and "steps" in each.answer] == [5, 5]
    # noise of next to no epsilon, so that nothing but the steps is in the way
    for steps, says in ((6, "steps must be at most 5, as agreed, got 6"), (5, "tasks of training must be")):
        spec = {"batch_size": 361, "epochs": None, "steps": steps, "clip": 1.0}
        task = wire.training(f"{steps} steps", training=spec, noise_multiplier=1e9)
        fields = hostile(clinics, line, run, "work", {"tasks": [task], "accepted": []}, np.ones(650))
        assert says in fields["content"]["answers"][0]["refused"]


def test_my_statement_who_is_there_and_no_secret_is_written_or_told(
    clinics: Trial, here: Run, tmp_path: Path
) -> None:
    """After all the runs above: costs only where they were asked for, keys and secrets nowhere."""
    text = here(*on_federation(clinics, tmp_path, "quiet", TABLES))
    mine = here("statement", "--mine", clinics.folder.settings("ada"))
    assert "says of me what my ledger says" in mine
    status = here("federation", "status", clinics.folder.path)
    assert all(name in status for name in NAMES)
    written = b"".join(path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file())
    for name in NAMES:
        private = (clinics.folder.member(name) / "key").read_bytes().split(b"\n")[1]
        secret = (clinics.folder.member(name) / "state" / "noise.secret").read_bytes()
        logs = clinics.said(name).encode() + (clinics.folder.path / "superlink.log").read_bytes()
        for heard in (written, text.encode(), logs):
            assert private not in heard
            assert secret not in heard
            assert secret.hex().encode() not in heard
        assert str(COSTS[name]).encode() not in written  # nobody asked
