"""Every mechanism on a real federation, beside the same run on one machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.flower.clinics import (
    COSTS,
    EXACT,
    FULL,
    LEDGERS,
    PRIVATE,
    REPORTING,
    TABLES,
    locally,
    of_module,
    on_federation,
    outcome,
    receipts,
    require_balance,
    weights,
)
from tests.flower.harness import NAMES, Trial

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
