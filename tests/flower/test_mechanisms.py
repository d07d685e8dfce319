"""Every mechanism on a real federation, beside the same run on one machine."""

from __future__ import annotations

from collections.abc import Iterator
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
    begin,
    command,
    locally,
    of_module,
    open_federation,
    outcome,
    receipts,
    require_balance,
    said,
    weights,
)
from tests.flower.harness import NAMES, Trial


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    trial = Trial(tmp_path_factory.mktemp("clinics") / "clinics")
    try:
        open_federation(trial)
        yield trial
    finally:
        trial.close()


@pytest.mark.parametrize("kind", EXACT)
def test_equal_to_one_machine(clinics: Trial, tmp_path: Path, kind: str) -> None:
    text = said(begin(clinics, tmp_path, kind, EXACT[kind]))
    assert "exchanges to come, about" in text
    summary = outcome(tmp_path, kind)
    alone = locally(EXACT[kind], kind in REPORTING)
    assert np.abs(weights(tmp_path, kind) - of_module(alone)).max() < 1e-5
    assert summary["statement"]["amounts"] == list(alone.statement.amounts)
    assert receipts(summary)["text"].startswith("4 of 4 participants")
    require_balance(clinics, summary)


@pytest.mark.parametrize("kind", LEDGERS)
def test_private_runs_by_ledger(clinics: Trial, tmp_path: Path, kind: str) -> None:
    said(begin(clinics, tmp_path, kind, LEDGERS[kind]))
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
def test_secure_sums(clinics: Trial, tmp_path: Path, noise: bool) -> None:
    tables = {**TABLES, "training": {**FULL, "rounds": 2}}
    if noise:
        tables["privacy"] = {**PRIVATE, "noise_at": "sum"}
    said(begin(clinics, tmp_path, "sums", tables, "--secure-sums"))
    summary = outcome(tmp_path, "sums")
    require_balance(clinics, summary)
    if not noise:
        alone = locally(tables, reporting=False)
        assert np.abs(weights(tmp_path, "sums") - of_module(alone)).max() < 1e-5
    else:
        assert all(0 < epsilon <= 3.0 for epsilon in summary["statement"]["columns"]["epsilon"])


def test_verifiable_coins_of_a_published_contract(clinics: Trial, tmp_path: Path) -> None:
    about = ["--prior", "uniform:0.5,1.5", "--clients", "4", "--rounds", "3", "--budget", "12"]
    published = ("--save", "contract.json", "--commit-coins", "server.secret")
    said(command(tmp_path, "quote", "sampling", *about, *published))
    more = ("--contract", "contract.json", "--secret", "server.secret")
    said(begin(clinics, tmp_path, "coins", TABLES, *more))
    require_balance(clinics, outcome(tmp_path, "coins"))
    said(command(tmp_path, "verify", "--coins", "runs/coins"))


def test_my_statement_and_who_is_there(clinics: Trial, tmp_path: Path) -> None:
    said(begin(clinics, tmp_path, "mine", TABLES))
    text = said(command(tmp_path, "statement", "--mine", str(clinics.folder.settings("ada"))))
    assert "says of me what my ledger says" in text
    status = said(command(tmp_path, "federation", "status", str(clinics.folder.path)))
    assert all(name in status for name in NAMES)


def test_no_secret_is_written_or_told(clinics: Trial, tmp_path: Path) -> None:
    """After all the runs above: costs only where they were asked for, keys and secrets nowhere."""
    text = said(begin(clinics, tmp_path, "quiet", TABLES))
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
