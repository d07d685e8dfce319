"""How far a run of faithful learning has come, as arrays: a run that was killed goes on with the same bits.

Of the stepwise variants the memory of reports is not kept; they are held against those that follow. By
exchanges everything is: the reports of the training are what payments begin with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.contracts.published import Agreement
from bonafed.errors import BadReport
from bonafed.mechanisms.faithful.protocol.exchanges import ExchangesProgress
from bonafed.mechanisms.faithful.protocol.payments import Ending, LeftOut, Payments
from bonafed.mechanisms.faithful.protocol.reports import Watch
from bonafed.mechanisms.faithful.protocol.searches import QuasiNewtonSearch, TrainingLog
from bonafed.mechanisms.faithful.protocol.stepwise import StepwiseProgress
from bonafed.mechanisms.protocol import Arrays

_VECTORS = ("model", "gradient", "best_model", "best_gradient")  # of a search
_PAIRS = ("steps", "changes")
_Written = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class FaithfulState:
    """How far training and payments have come."""

    agreement: Agreement
    start: Floats  # (P,) before the first step
    progress: StepwiseProgress | ExchangesProgress
    resumable: bool  # False: some agent cheats, and has a memory

    @property
    def round_number(self) -> int:
        """Exchanges, or steps with those who are left."""
        return self.progress.steps

    def arrays(self) -> Arrays:
        """Everything that the rest of the run depends on."""
        if not self.resumable:
            return {}
        at = self.progress
        arrays: _Written = {
            "start": self.start,
            "model": at.model,
            **_bad_reports(at.bad_reports, at.model),
        }
        arrays |= _of_exchanges(at) if isinstance(at, ExchangesProgress) else _of_steps(at)
        if at.ending is not None:
            end = at.ending
            arrays |= {
                "amount": end.payments.amount, "error": end.payments.error, "models": end.payments.models,
                "payment_steps": np.array(end.payments.steps),
                "errors": np.array([end.integration_error, end.training_error, end.gauss_distance]),
                "left_out": _text([asdict(out) for out in end.left_out]),
            }  # fmt: skip
        return arrays


def steps_from(arrays: Arrays, watch: Watch) -> StepwiseProgress:
    """The progress of steps that was saved in these arrays, with a new memory of reports."""
    first = float(arrays["first"])
    return StepwiseProgress(
        int(arrays["steps"]), arrays["model"], watch, None if math.isnan(first) else first,
        bad_reports=_read_bad_reports(arrays), ending=_ending(arrays),
    )  # fmt: skip


def exchanges_from(arrays: Arrays) -> ExchangesProgress:
    """The progress of exchanges that was saved in these arrays."""
    log = None
    if "log_models" in arrays:
        log = TrainingLog(arrays["log_models"], arrays["log_reports"], arrays["log_origins"])
    training = _searches(arrays, "training")
    return ExchangesProgress(
        arrays["model"], int(arrays["exchanges"]), int(arrays["training"]), log,
        training[0] if training else None, tuple(_searches(arrays, "payments")), int(arrays["searched"]),
        arrays.get("said"),
        _read_bad_reports(arrays), _ending(arrays), bool(arrays["done"]),
    )  # fmt: skip


def _of_steps(at: StepwiseProgress) -> _Written:
    first = math.nan if at.first is None else at.first
    return {"steps": np.array(at.steps), "first": np.array(first)}


def _of_exchanges(at: ExchangesProgress) -> _Written:
    arrays: _Written = {"exchanges": np.array(at.exchanges), "training": np.array(at.training)}
    arrays |= {"searched": np.array(at.searched), "done": np.array(at.done)}
    if at.log is not None:
        arrays |= {
            "log_models": at.log.models, "log_reports": at.log.reports, "log_origins": at.log.origins,
        }  # fmt: skip
    arrays |= _of_searches("training", [] if at.search is None else [at.search])
    arrays |= _of_searches("payments", at.payments)
    return arrays if at.said is None else {**arrays, "said": at.said}


def _of_searches(name: str, searches: Sequence[QuasiNewtonSearch]) -> _Written:
    """Searches one after another; they may know different numbers of pairs."""
    if not searches:
        return {}
    arrays: _Written = {
        f"{name}_{part}": np.stack([getattr(search, part) for search in searches]) for part in _VECTORS
    }
    arrays |= {
        f"{name}_{part}": np.concatenate([getattr(search, part) for search in searches]) for part in _PAIRS
    }
    return arrays | {
        f"{name}_pairs": np.array([len(search.steps) for search in searches]),
        f"{name}_mark": np.array([search.mark for search in searches]),
        f"{name}_since": np.array([search.since for search in searches]),
    }


def _searches(arrays: Arrays, name: str) -> list[QuasiNewtonSearch]:
    if f"{name}_pairs" not in arrays:
        return []
    ends = np.cumsum(arrays[f"{name}_pairs"])[:-1]
    columns: list[Any] = [arrays[f"{name}_{part}"] for part in _VECTORS]
    columns += [np.split(arrays[f"{name}_{part}"], ends) for part in _PAIRS]
    marks, since = arrays[f"{name}_mark"].tolist(), arrays[f"{name}_since"].tolist()
    return [QuasiNewtonSearch(*parts) for parts in zip(*columns, marks, since, strict=True)]


def _bad_reports(bad_reports: Sequence[BadReport], model: Floats) -> _Written:
    texts = [
        {"agent": bad.agent, "where": bad.where, "problem": bad.problem, "name": bad.name}
        for bad in bad_reports
    ]
    models = np.array([bad.model for bad in bad_reports]).reshape(-1, model.size)
    return {"bad_reports": _text(texts), "bad_report_models": models}


def _read_bad_reports(arrays: Arrays) -> tuple[BadReport, ...]:
    return tuple(
        BadReport(bad["agent"], bad["where"], bad["problem"], model, name=bad["name"])
        for bad, model in zip(_data(arrays["bad_reports"]), arrays["bad_report_models"], strict=True)
    )


def _ending(arrays: Arrays) -> Ending | None:
    if "amount" not in arrays:
        return None
    payments = Payments(arrays["amount"], arrays["error"], arrays["models"], int(arrays["payment_steps"]))
    integration, training, gauss = arrays["errors"].tolist()
    left_out = tuple(LeftOut(**out) for out in _data(arrays["left_out"]))
    return Ending(payments, integration, training, left_out, gauss)


def _text(data: object) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(data).encode(), dtype=np.uint8)


def _data(text: NDArray[np.uint8]) -> Any:
    return json.loads(text.tobytes().decode())
