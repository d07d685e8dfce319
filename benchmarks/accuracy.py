"""Accuracy before and after, at the same money, epsilon and seeds: `python benchmarks/accuracy.py`.

A case is a federation and two or more sides, each a few changes of its config: the first is "before", the
others are held against it, seed by seed. A cell is one run, of one side with one seed, which decides
partition, batches, coins, costs and (reproducible) noise, the same for all sides. Accuracy is that of the
last model on the test samples; beside it stands the mean of the last five rounds, which moves less.

`--json FILE` appends every cell that is measured, and cells in it are not measured again unless their
config has changed. `--only 'digits*'` takes cases by name, `--seeds 5` so many of each, `--processes 2`
runs cells side by side, one thread each: weights do not depend on how busy the machine is. The table is
Markdown.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatch
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from harness import commit

Tables = Mapping[str, Mapping[str, Any]]
Changes = Mapping[str, Any]  # values by dotted key; None leaves the key out
Found = dict[str, Any]
_LAST = 5  # rounds


@dataclass(frozen=True)
class Case:
    """A federation, and what is changed about it."""

    name: str
    stated: str  # what is claimed, and by this table confirmed or not
    base: Tables
    sides: Mapping[str, Changes]  # the first is what the others are compared with
    seeded: Sequence[str] = ("run.seed",)  # keys that get the number of the seed


@dataclass(frozen=True)
class Cell:
    """One run."""

    case: Case
    side: str
    seed: int

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """Its config."""
        changes = {**self.case.sides[self.side], **dict.fromkeys(self.case.seeded, self.seed)}
        return changed(self.case.base, {**changes, "run.cores": 1})

    @property
    def key(self) -> str:
        """By which it is found again: name, side, seed and a digest of the config."""
        digest = hashlib.sha256(json.dumps(self.tables, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.case.name}, {self.side}, {self.seed}, {digest}"


def changed(base: Tables, changes: Changes) -> dict[str, dict[str, Any]]:
    """The tables with other values for some dotted keys."""
    tables = {name: dict(table) for name, table in base.items()}
    for dotted, value in changes.items():
        table, key = dotted.split(".")
        if value is None:
            tables.get(table, {}).pop(key, None)
        else:
            tables.setdefault(table, {})[key] = value
    return tables


DIGITS: Tables = {  # the example of the sampling contract
    "data": {"name": "digits"},
    "partition": {"kind": "label_dirichlet", "clients": 20, "beta": 0.5},
    "model": {"name": "softmax"},
    "training": {
        "rounds": 30, "epochs": 2, "batch_size": 16, "learning_rate": 0.1, "learning_rate_decay": 0.98,
    },
    "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 100},
}  # fmt: skip
PLAIN: Changes = {"training.aggregation": "plain"}
MEMORY: Changes = {"training.aggregation": "memory"}
PAID = ("run.seed", "sampling.cost_seed")
BOUGHT = ("run.seed", "jsam.cost_seed")


def _sampling() -> Iterator[Case]:
    """Memory under a sampling contract."""
    stated = {
        100: "87.9 -> 92.3 % at budget 100",
        200: "without memory 91.9 % costs 200",
        300: "without memory 92.6 % costs 300",
    }
    for budget, claim in stated.items():
        base = changed(DIGITS, {"sampling.total_budget": budget})
        yield Case(f"digits-budget-{budget}", claim, base, {"plain": PLAIN, "memory": MEMORY}, PAID)
    two = {"partition.kind": "label_count", "partition.k": 2, "partition.beta": None}
    for name, changes in (("iid", {"partition.kind": "iid", "partition.beta": None}), ("two-classes", two)):
        base = changed(DIGITS, changes)
        yield Case(f"digits-{name}-budget-100", "", base, {"plain": PLAIN, "memory": MEMORY}, PAID)
    weights = {f"g = {g:g}": {**MEMORY, "training.memory_weight": g} for g in (0.0, 0.25, 0.5, 0.75, 1.0)}
    for budget in (30, 60, 100, 300):
        base = changed(DIGITS, {"sampling.total_budget": budget})
        yield Case(f"digits-g-budget-{budget}", "g = 1 fails at small q", base, weights, PAID)
    for budget in (50, 75, 100, 150):  # a third, half, two thirds and all of what pays one a round for sure
        base = changed(DIGITS, {"sampling.total_budget": budget, "training.rounds": 100})
        yield Case(f"digits-g-budget-{budget}-rounds-100", "g = 1 fails at small q", base, weights, PAID)
    hot = {"training.learning_rate": 0.3, "training.epochs": 5}
    for name, changes in (  # the money of a round pays just one client of the highest cost
        ("dirichlet-hot", hot),
        ("two-classes-hot", {**two, **hot}),
        ("50-clients", {"partition.clients": 50}),
        ("5-clients", {"partition.clients": 5}),
    ):
        base = changed(DIGITS, {"sampling.total_budget": 45, **changes})
        yield Case(f"one-a-round-{name}", "", base, {"plain": PLAIN, "memory": MEMORY}, PAID)


def _two_classes() -> Iterator[Case]:
    """Many clients of whom each knows two digits; all of MNIST."""
    wide = {
        "data.name": "mnist", "partition.kind": "label_count", "partition.k": 2, "partition.beta": None,
        "partition.clients": 50, "training.batch_size": 64, "training.epochs": 1,
        "training.learning_rate": 0.05, "sampling.total_budget": 500,
    }  # fmt: skip
    yield Case(
        "mnist-two-classes", "88.7 -> 89.8 % at budget 500", changed(DIGITS, wide),
        {"plain": PLAIN, "memory": MEMORY}, PAID,
    )  # fmt: skip


def _plain_averaging() -> Iterator[Case]:
    """Memory where a share of the clients is drawn, and in noise."""
    for kind, more in (
        ("dirichlet", {}),
        ("two-classes", {"partition.kind": "label_count", "partition.k": 2, "partition.beta": None}),
        ("iid", {"partition.kind": "iid", "partition.beta": None}),
        ("unequal", {"partition.kind": "quantity_dirichlet"}),
    ):
        base = changed(DIGITS, {"training.participation": 0.2, **more})
        del base["sampling"]
        yield Case(f"fedavg-fifth-{kind}", "", base, {"plain": PLAIN, "memory": MEMORY})
    for epsilon in (2.0, 8.0):
        private = {
            "privacy.epsilon": epsilon, "privacy.clip": 1.0, "privacy.delta": 1e-5,
            "privacy.noise": "reproducible", "training.batch_size": 72, "training.epochs": 1,
            "training.learning_rate": 0.5, "training.learning_rate_decay": 1.0,
        }  # fmt: skip
        sides = {"plain": PLAIN, "memory": MEMORY}
        yield Case(f"digits-private-{epsilon:g}", "post-processing", changed(DIGITS, private), sides, PAID)


def _server() -> Iterator[Case]:
    """One local step, so that optimizers made anew every round are SGD and a sign step."""
    one = {
        "training.steps": 1, "training.epochs": None, "training.batch_size": 32,
        "training.learning_rate": 0.3,
    }  # fmt: skip
    momentum: Changes = {"training.server_optimizer": "momentum"}
    adam: Changes = {"training.server_optimizer": "adam", "training.server_learning_rate": 0.1}
    base = changed(DIGITS, one)
    del base["sampling"]
    sides = {
        "sgd": {},
        "local momentum": {"training.optimizer": "momentum"},
        "local adam": {"training.optimizer": "adam", "training.learning_rate": 0.01},
        "server momentum": momentum,
        "server adam": adam,
    }
    stated = "with one local step momentum is SGD and adam a sign step"
    yield Case("one-local-step", stated, base, sides)
    paid = {"plain": PLAIN, "memory": MEMORY, "memory, adam": {**MEMORY, **adam}}
    yield Case("one-local-step-budget-100", "", changed(DIGITS, one), paid, PAID)


def _noise_on_sum() -> Iterator[Case]:
    """Noise once on the sum instead of at every client: at the same epsilon, or at the same money."""
    base: Tables = {
        "data": {"name": "digits", "classes": 10},
        "partition": {"kind": "iid", "clients": 10},
        "model": {"name": "softmax"},
        "training": {"rounds": 30, "steps": 1, "batch_size": 1000, "learning_rate": 2.0},
        "privacy": {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "noise": "reproducible"},
    }
    sides = {"client": {}, "sum": {"privacy.noise_at": "sum"}}
    yield Case("digits-noise-on-sum", "42 -> 82 %, 10 clients, epsilon 1", base, sides)
    wide = {
        "data.name": "mnist", "partition.clients": 50, "training.batch_size": 200, "privacy.epsilon": 0.5,
    }  # fmt: skip
    yield Case("mnist-noise-on-sum", "43 -> 83 %, 50 clients, epsilon 0.5", changed(base, wide), sides)
    whole = changed(base, {**wide, "training.batch_size": 2000})  # all 1,200 records of a client in a step
    yield Case("mnist-noise-on-sum-whole", "less to gain where noise is small anyway", whole, sides)
    two = {"partition.kind": "label_count", "partition.k": 2, "training.rounds": 60, "privacy.epsilon": 1.9}
    stated = "the clients of the next case, at the epsilon that is bought there"
    yield Case("digits-two-classes-noise-on-sum", stated, changed(base, two), sides)
    bought = {
        "partition.kind": "label_count", "partition.k": 2, "training.rounds": 60,
        "jsam.prior": "uniform:0,1", "jsam.smoothness": 0.5, "jsam.clip": 1.0, "jsam.expected_budget": 20.0,
        "jsam.noise": "reproducible",
    }  # fmt: skip
    tables = changed(base, bought)
    del tables["privacy"]
    stated = "50 -> 82 %, with weights 84.6 %, at the same money"
    sides = {"client": {}, "sum": {"jsam.noise_at": "sum"}}
    yield Case("digits-jsam-on-sum", stated, tables, sides, BOUGHT)
    wide = {
        "data.name": "mnist", "partition.clients": 50, "training.batch_size": 200,
        "jsam.expected_budget": 30.0,
    }  # fmt: skip
    yield Case("mnist-jsam-on-sum", stated, changed(tables, wide), sides, BOUGHT)


PRIVATE: Tables = {
    "data": {"name": "digits"},
    "partition": {"kind": "iid", "clients": 10},
    "model": {"name": "softmax"},
    "training": {"rounds": 20, "epochs": 2, "batch_size": 16, "learning_rate": 0.2},
    "privacy": {"clip": 1.0, "delta": 1e-5, "noise": "reproducible"},
}
WHOLE: Changes = {"training.epochs": 1, "training.batch_size": 150, "training.learning_rate": 1.0}
OPEN: Changes = {f"training.{name}": None for name in ("epochs", "batch_size", "learning_rate")}


def _advice() -> Iterator[Case]:
    """A private run as the example has it, with whole batches, and with what it chooses itself."""
    for epsilon in (0.5, 1.0, 2.0, 8.0):
        yield Case(
            f"advice-digits-{epsilon:g}", "", changed(PRIVATE, {"privacy.epsilon": epsilon}),
            {"the example": {}, "all records, rate 1": WHOLE, "left open": OPEN},
        )  # fmt: skip


def _advice_mnist() -> Iterator[Case]:
    """The same with MNIST, and with data on which nothing was chosen."""
    for data, epsilon in (("mnist", 0.5), ("fashion-mnist", 0.5), ("fashion-mnist", 2.0)):
        wide = {"data.name": data, "partition.clients": 50, "privacy.epsilon": epsilon}
        base = changed(PRIVATE, {**wide, **WHOLE, "training.batch_size": 1200})
        sides = {"all records, rate 1": {}, "left open": OPEN}
        yield Case(f"advice-{data}-{epsilon:g}", "", base, sides)


CASES: tuple[Case, ...] = (  # the slow ones last
    *_sampling(),
    *_plain_averaging(),
    *_server(),
    *_advice(),
    *_noise_on_sum(),
    *_two_classes(),
    *_advice_mnist(),
)


def measure(cell: Cell) -> Found:
    """What a run comes to."""
    from bonafed.runs import config, prepare, training

    began = time.perf_counter()
    made = prepare.prepare(config.from_tables(cell.tables))
    result = training.train(made)
    accuracies = [row["test_accuracy"] for row in result.metrics if row["test_accuracy"] is not None]
    summary = result.summary
    return {
        "key": cell.key,
        "accuracy": summary["test_accuracy"],
        "last": statistics.mean(accuracies[-_LAST:]),
        "loss": summary["test_loss"],
        "spend": summary["spend"],
        "epsilon": summary["epsilon"],
        "seconds": round(time.perf_counter() - began, 1),
    }


def spread(values: Sequence[float], scale: float = 100.0, sign: str = "") -> str:
    """Mean and standard error of the mean."""
    mean = scale * statistics.mean(values)
    if len(values) < 2:
        return f"{mean:{sign}.1f}"
    return f"{mean:{sign}.1f} ± {scale * statistics.stdev(values) / len(values) ** 0.5:.1f}"


def table(cases: Sequence[Case], seeds: int, done: Mapping[str, Found]) -> str:
    """A line per side that was measured: means over seeds, differences seed by seed."""
    head = ["case", "side", "seeds", "accuracy, %", "against the first", "last five rounds, %"]
    head += ["money", "epsilon", "stated"]
    lines = [_line(head), _line(["---"] * len(head))]
    for case in cases:
        first = next(iter(case.sides))
        before = {seed: done.get(Cell(case, first, seed).key) for seed in range(seeds)}
        for side in case.sides:
            found = {seed: row for seed in range(seeds) if (row := done.get(Cell(case, side, seed).key))}
            if not found:
                continue
            both = [
                row["accuracy"] - other["accuracy"]
                for seed, row in found.items()
                if (other := before[seed])
            ]
            rows, is_first = list(found.values()), side == first
            lines.append(
                _line(
                    [
                        case.name if is_first else "",
                        side,
                        str(len(rows)),
                        spread([row["accuracy"] for row in rows]),
                        spread(both, sign="+") if both and not is_first else "",
                        spread([row["last"] for row in rows]),
                        _mean(row["spend"] for row in rows),
                        _mean(row["epsilon"] for row in rows),
                        case.stated if is_first else "",
                    ]
                )
            )
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mean(values: Iterator[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{statistics.mean(there):.4g}" if there else ""


def kept(path: Path | None) -> dict[str, Found]:
    """Cells that were measured before."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["key"]: row for row in rows}


def smallest() -> None:
    """Two rounds of a case with both sides; and the configs of all cases are still configs."""
    from bonafed.runs import config

    for case in CASES:
        for side in case.sides:
            config.from_tables(Cell(case, side, 0).tables)
    base = changed(DIGITS, {"training.rounds": 2, "partition.clients": 3})
    case = Case("smallest", "", base, {"plain": PLAIN, "memory": MEMORY}, PAID)
    found = [measure(Cell(case, side, 0)) for side in case.sides]
    print(table([case], 1, {row["key"]: row for row in found}))


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="cases by name, such as 'digits*'")
    parser.add_argument("--seeds", type=int, default=5, metavar="N")
    parser.add_argument("--processes", type=int, default=1, metavar="N")
    parser.add_argument("--json", type=Path, help="append cells; what is there is not measured again")
    options = parser.parse_args()
    for name in ("seeds", "processes"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    cases = [case for case in CASES if fnmatch(case.name, options.only)]
    if not cases:
        parser.error(f"--only must match one of {', '.join(case.name for case in CASES)}")
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    print(f"commit {commit()}", file=sys.stderr)
    done = kept(options.json)
    missing = [
        cell
        for case in cases
        for seed in range(options.seeds)
        for side in case.sides
        if (cell := Cell(case, side, seed)).key not in done
    ]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(measure, cell) for cell in missing]):
            found = future.result()
            done[found["key"]] = found
            print(
                f"{found['key']}: {found['accuracy']:.4f}, {found['seconds']} s",
                file=sys.stderr,
                flush=True,
            )
            if options.json is not None:
                with options.json.open("a") as file:
                    file.write(json.dumps(found) + "\n")
    print(table(cases, options.seeds, done))


if __name__ == "__main__":
    main()
