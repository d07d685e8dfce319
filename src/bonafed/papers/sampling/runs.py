"""Training runs under four mechanisms that spend the same money.

A run is federated averaging of softmax regression. Every seed has its own costs, its own partition and its
own coins, and all mechanisms have the same. The loss is F, the mean over clients of each client's own
training loss, on as many records of every client as the one with fewest has.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bonafed import checks
from bonafed.economics.priors import Prior, TruncatedExponential, Uniform
from bonafed.papers.cells import Cell, training_cell
from bonafed.papers.claim import Settings
from bonafed.presentation.documents import JSONObject
from bonafed.sections import key, natural

if TYPE_CHECKING:
    from bonafed.learning.data.datasets import Dataset

SCHEMES = {  # [sampling] scheme of each
    "uniform": "uniform",
    "prior-based": "optimal",
    "prior-independent": "prior-free",
    "complete information": "complete information",
}
UNIFORM, EXPONENTIAL = Uniform(0.0, 2.0), TruncatedExponential(1.0, 0.0, 5.0)  # of mean 1, and about 1
SMALL: dict[str, Any] = {  # of a smoke test
    "seeds": 2, "clients": 20, "rounds": 20, "budget": 0.2, "steps": 5, "batch_size": 16,
}  # fmt: skip
QUICK_RECORDS = 12_000  # of the 60,000 for training: the rest would only cost time
_EVALUATIONS = 20  # of the loss, in a run
_LAST = 10  # of these: their mean is the loss at the end


@dataclass(frozen=True)
class Runs(Settings):
    """Runs of softmax regression under a budget."""

    clients: int = key(checks.whole, 100, help="N.")
    classes: int = key(checks.whole, 2, help="Classes that a client has records of.")
    rounds: int = key(lambda name, value: checks.whole(name, value, _EVALUATIONS), 100, help="R.")
    budget: float = key(checks.positive, 0.04, help="Money per client and round.")
    steps: int = key(checks.whole, 20, help="E, local steps of a round.")
    batch_size: int = key(checks.whole, 32, help="Records of a step.")
    learning_rate: float = key(checks.positive, 0.1, help="Of every round.")
    records: int = key(natural, 0, help="Of the data set, the first of them; 0: all.")
    uniform_money: float = key(
        checks.positive, 1.0, help="Money of uniform sampling over that of the others; control: 50."
    )
    known_money: float = key(
        checks.positive, 1.0, help="Money under complete information over that of the others; control: 50."
    )


def cells(runs: Runs, data: str, costs: Prior) -> Mapping[int, Cell]:
    """The runs of all mechanisms, by seed: together, as they share the data."""
    return {seed: _cell(runs, data, costs, seed) for seed in runs.all_seeds}


def _cell(runs: Runs, data: str, costs: Prior, seed: int) -> Cell:
    configs = {name: tables(runs, data, costs, name, seed) for name in SCHEMES}
    arguments = {"tables": configs, "data": data, "records": runs.records}
    return training_cell(f"sampling {data} {costs.kind} {seed}", train, arguments, configs["uniform"])


def by_mechanism(results: Mapping[int, JSONObject]) -> dict[tuple[str, int], JSONObject]:
    """The results of cells, run by run."""
    return {(name, seed): by_name[name] for seed, by_name in results.items() for name in SCHEMES}


def tables(runs: Runs, data: str, costs: Prior, name: str, seed: int) -> dict[str, dict[str, Any]]:
    """The config of a run."""
    factors = {"uniform": runs.uniform_money, "complete information": runs.known_money}
    money = runs.budget * factors.get(name, 1.0)
    drawn = costs.to_json()
    contract: dict[str, Any] = {
        "scheme": SCHEMES[name], "total_budget": money * runs.clients * runs.rounds, "costs": drawn,
        "cost_seed": seed,
    }  # fmt: skip
    contract |= {"highest": costs.high} if name == "prior-independent" else {"prior": drawn}
    return {
        "data": {"name": data},
        "partition": {"kind": "label_count", "clients": runs.clients, "k": runs.classes},
        "model": {"name": "softmax"},
        "training": {
            "rounds": runs.rounds, "steps": runs.steps, "batch_size": runs.batch_size,
            "learning_rate": runs.learning_rate, "aggregation": "plain",
        },
        "sampling": contract,
        "run": {
            "seed": seed, "cores": 1, "checkpoint_every": runs.rounds,
            "evaluate_every": runs.rounds // _EVALUATIONS,
        },
    }  # fmt: skip


def train(arguments: JSONObject, folder: Path) -> JSONObject:
    """The runs of a seed, by mechanism."""
    from bonafed.learning.data import datasets

    whole = datasets.load(arguments["data"])
    end = arguments["records"] or len(whole.labels)
    data = replace(whole, features=whole.features[:end], labels=whole.labels[:end])
    return {name: _trained(of, data, folder / "run") for name, of in arguments["tables"].items()}


def _trained(tables: JSONObject, data: Dataset, run_folder: Path) -> JSONObject:
    """A run that is judged by its training records: rounds, losses at them, participants, spend."""
    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.local import EngineFederation
    from bonafed.runs import config, prepare, training

    shutil.rmtree(run_folder, ignore_errors=True)  # of a cell that was stopped
    ready = prepare.prepare(config.from_tables(tables), dataset=data)
    clients = ready.clients
    assert isinstance(clients, EngineFederation)  # simulated, as the config has it
    fewest = min(part.size for part in clients.parts)
    some = np.concatenate([part[:fewest] for part in clients.parts])
    own = Samples(clients.samples.features[some], clients.samples.labels[some])
    done = training.train(replace(ready, test=own), run_folder)
    evaluated = [record for record in done.metrics if record["test_loss"] is not None]
    shutil.rmtree(run_folder)
    return {
        "rounds": [record["round"] for record in evaluated],
        "loss": [record["test_loss"] for record in evaluated],
        "participants": done.summary["mean_participants"], "spend": done.summary["spend"],
    }  # fmt: skip


def at_the_end(result: JSONObject) -> float:
    """The mean loss of the second half of the rounds: who was in the very last one is chance."""
    return float(np.mean(result["loss"][-_LAST:]))
