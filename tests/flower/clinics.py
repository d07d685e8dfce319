"""Four clinics that hold parts of the digits on a real federation, and runs of theirs.

Configs are those that run on one machine; the same run there is what a run here is compared with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bonafed.flower.link import FlowerTransport
from bonafed.flower.simulation import trial_settings
from bonafed.runs import toml
from bonafed.runs.config import from_tables
from bonafed.runs.folder import SUMMARY, read_json
from bonafed.runs.prepare import prepare
from bonafed.runs.training import RunResult, train
from tests.flower.harness import NAMES, PARTICIPATE, Trial
from tests.oracles import wire

COSTS = {"ada": 0.61, "ben": 0.95, "cyd": 1.32, "dan": 0.55}
SHARED: dict[str, Any] = {
    "data": {"name": "digits"},
    "partition": {"kind": "iid", "clients": 4},
    "model": {"name": "softmax"},
}
TABLES: dict[str, Any] = {**SHARED, "training": {"rounds": 3, "batch_size": 48, "learning_rate": 0.1}}
FULL = {**TABLES["training"], "batch_size": 400}
PRIVATE = {"epsilon": 3.0, "delta": 1e-5, "clip": 1.0}
JSAM = {"prior": "uniform:0,4", "eta": 20.0, "smoothness": 0.5, "clip": 1.0, "max_epsilon": 5.0}
EXACT: dict[str, dict[str, Any]] = {
    "fedavg": TABLES,
    "posted-price": {**TABLES, "posted_price": {"cap": 9.0, "seats": 3}},
    "sampling": {**TABLES, "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 10.0}},
    "prior-free": {**TABLES, "sampling": {"scheme": "prior-free", "highest": 1.5, "total_budget": 10.0}},
    "faithful": {**SHARED, "faithful": {"regulariser": 0.1}},
    "rewards": {**TABLES, "rewards": {"measure": "cosine"}},
}
LEDGERS: dict[str, dict[str, Any]] = {
    "private": {**TABLES, "privacy": PRIVATE},
    "jsam": {**TABLES, "jsam": JSAM},
    "private-faithful": {
        **SHARED,
        "faithful": {"regulariser": 0.1, "training_steps": 2, "payment_steps": 2},
        "privacy": {"epsilon": 5.0, "delta": 1e-5, "noise_at": "client"},
    },
}
REPORTING = ("posted-price", "sampling", "prior-free", "jsam")


def furnish(trial: Trial, policy: Mapping[str, Any] | None = None) -> None:
    """Give every member its part of the digits, and its cost."""
    config = from_tables(TABLES)
    for number, name in enumerate(NAMES):
        path = trial.folder.settings(name)
        settings = trial_settings(path, config, number, {"cost": COSTS[name]})
        settings["policy"] |= policy or {}
        path.write_text(toml.dumps(settings), encoding="utf-8")


def open_federation(trial: Trial) -> None:
    """A SuperLink, and everybody registered and connected."""
    furnish(trial)
    trial.start_superlink()
    trial.register()
    for name in NAMES:
        trial.start(name, PARTICIPATE)
    trial.await_connected(*NAMES)


def command(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """`bonafed` with these arguments, in this folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "bonafed", *arguments], cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )  # fmt: skip


def said(process: subprocess.Popen[str], code: int = 0) -> str:
    """All that a command said, once it has ended with this code."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, out[-3000:] + err[-3000:]
    return out + err


def on_federation(trial: Trial, folder: Path, name: str, tables: Mapping[str, Any]) -> list[str]:
    """The arguments that start a run on the federation; its config is written to the folder."""
    (folder / f"{name}.toml").write_text(toml.dumps(dict(tables)), encoding="utf-8")
    return ["train", f"{name}.toml", "--on", "flower", "--federation", str(trial.folder.path)]


def begin(
    trial: Trial, folder: Path, name: str, tables: Mapping[str, Any], *more: str
) -> subprocess.Popen[str]:
    """Start a run on the federation, as a process of its own."""
    return command(folder, *on_federation(trial, folder, name, tables), *more)


def outcome(folder: Path, name: str) -> dict[str, Any]:
    """The summary of a finished run."""
    return dict(read_json(folder / "runs" / name, SUMMARY))


def weights(folder: Path, name: str) -> np.ndarray[Any, Any]:
    """(P,) of the final model."""
    saved = torch.load(folder / "runs" / name / "model.pt", weights_only=True)
    return np.concatenate([value.numpy().ravel() for value in saved.values()])


def locally(tables: Mapping[str, Any], reporting: bool) -> RunResult:
    """The same run on one machine."""
    reports = {name: COSTS[name] for name in NAMES} if reporting else None
    return train(prepare(from_tables(tables), reports=reports))


def of_module(run: RunResult) -> np.ndarray[Any, Any]:
    """(P,) of the final model."""
    return np.concatenate([value.detach().numpy().ravel() for value in run.model.state_dict().values()])


def receipts(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """What participants said to the statement."""
    findings: list[dict[str, Any]] = summary["statement"]["findings"]
    return next(finding for finding in findings if finding["claim"] == "receipts")


def require_balance(trial: Trial, summary: Mapping[str, Any], members: tuple[str, ...] = NAMES) -> None:
    """The statement is what every one of these participants' own ledgers says."""
    from bonafed.remote.participant.journal import Journal
    from bonafed.remote.participant.own_account import my_document

    statement = summary["statement"]
    for name in members:
        journal = Journal(trial.folder.member(name) / "state", reading=True)
        document = my_document(journal, name)
        journal.close()
        assert document.holds, document.data["differences"]
        account = document.data["account"]
        place = statement["clients"].index(name)
        for column, key in (("participations", "participations"), ("epsilon", "counted")):
            if column in statement["columns"] and account[key] is not None:
                told = statement["columns"][column][place]
                assert abs(told - account[key]) <= 1e-6 * max(1.0, abs(told)), (name, column)


def hostile(trial: Trial, transport: FlowerTransport, run: str, kind: str, *rest: Any) -> dict[str, Any]:
    """What ada answers a server that has the operator's key, and is written from the wire format alone."""
    data = wire.message(trial.folder.operator_key.read_bytes(), run, "ada", kind, *rest)
    answer = transport.exchange({"ada": data}, 60.0)["ada"]
    assert isinstance(answer, bytes), answer
    fields, _ = wire.answer(answer, trial.membership.members["ada"])
    return fields
