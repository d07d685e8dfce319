"""Model rewards beside their baselines on MNIST and Fashion-MNIST (rewards paper, Tables 1, 2, 4 and 5).

A setting is a data set, a way to split it among clients and a seed; a cell is one method in one setting.
The first cell of a setting trains every client alone: these models say what joining must beat, and their
accuracies are the contributions. All methods of a setting then start from the same model, with the same
clients, batches and learning rates.

What the paper says (section 6, appendix E.1) and is done here: 50 clients, the small CNN, standardised
pixels, 50 rounds of one local epoch, a learning rate of 0.01 that falls by 0.977 per round, kappa = 0 and
q = 0, LG-FedAvg shares the last three layers, p_i is the standalone accuracy on the TEST set. What it does
not say and is chosen here: batches of 64, Adam made anew each round, the ceiling max p_i, weights n_i/n in
the averages of the baselines, Gamma = 0.5 and beta = 1 of CGSV; feature noise is added to standardised
pixels; and some training samples are held out to validate on. Rank orders clients by the first `ranking`
of these, and on all of them contributions are measured a second time for rho, since the accuracy on the
test set that scores the models is in both sides of the correlation (theory D7). The paper gives 0.001 as
its learning rate where it says nothing else, so perhaps for Fashion-MNIST: `--learning-rate 0.001`.

A finished cell is a line of a file. A cell under way leaves its state beside that file every few rounds;
the same command goes on from there and arrives at the same digits. The command is in `rewards_study`.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import write_together
from bonafed.lab.results import append_result, read_results
from bonafed.lab.rewards_tables import METHODS, PARTITIONS
from bonafed.mechanisms.rewards import (
    BaselineState,
    CosineRewards,
    FederatedAveraging,
    LocalGlobal,
    LocalRounds,
    ModelRewards,
    RankRewards,
    RewardsState,
    Standalone,
    run,
)
from bonafed.mechanisms.rewards.baselines import SHARED_LAYERS
from bonafed.mechanisms.rewards.history import Models
from bonafed.randomness import RewardsStudy, generator

if TYPE_CHECKING:
    from torch import nn

    from bonafed.learning.datasets import Dataset
    from bonafed.learning.engine.crew import Crew
    from bonafed.learning.engine.federation import EngineFederation
    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.evaluate import ModelScores

TABLES = ("fedavg", "lg-fedavg", "cgsv", "rank", "iafl")  # the methods of the paper's tables
OnRound = Callable[["Cell", int, float], None]  # with rounds done in the cell, and seconds of this one
OnCell = Callable[["Cell", "Outcome"], None]


@dataclass(frozen=True)
class Cell:
    """One method in one setting; everything its result depends on."""

    method: str  # a key of METHODS
    partition: str  # a key of PARTITIONS
    data: str
    seed: int = 0  # of split, first model, batches and rewards
    model: str = "small-cnn"
    clients: int = 50  # N
    rounds: int = 50  # T, one local epoch each
    batch_size: int = 64
    optimizer: str = "adam"  # made anew each round
    learning_rate: float = 0.01  # of the first round
    decay: float = 0.977  # factor on it per round
    validation: int = 5000  # training samples held out
    ranking: int = 500  # of those, how many Rank looks at in every round

    def __post_init__(self) -> None:
        checks.one_of("method", self.method, tuple(METHODS))
        checks.one_of("partition", self.partition, tuple(PARTITIONS))
        for name in ("clients", "rounds", "batch_size", "validation", "ranking"):
            checks.whole(name, getattr(self, name))
        checks.seed("seed", self.seed)
        checks.positive("learning_rate", self.learning_rate)
        if self.ranking > self.validation:
            raise InvalidValue("ranking", f"must be at most validation, {self.validation}", self.ranking)

    @property
    def alone(self) -> Cell:
        """The cell of the same setting in which clients train by themselves."""
        return replace(self, method="standalone")


@dataclass(frozen=True)
class Outcome:
    """What a cell came to, per client."""

    accuracy: tuple[float, ...]  # (N,) on the test set
    loss: tuple[float, ...]  # (N,) on the test set
    validation_accuracy: tuple[float, ...] | None  # (N,) on the samples held out; standalone only
    seconds: float  # all rounds and the evaluation
    round_seconds: float  # mean of a round of all clients
    round_cpu_seconds: float  # the same in time of processors, whatever else the machine does


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """A setting, ready to train."""

    module: nn.Module
    clients: EngineFederation
    local: LocalRounds  # what they are asked to do
    start: Models  # (P,) everybody's first model
    test: Samples
    validation: Samples
    ranking: Samples

    @property
    def sizes(self) -> list[int]:
        """(N,) samples of each client."""
        return [part.size for part in self.clients.parts]

    def scores(self, models: Models, samples: Samples) -> ModelScores:
        """Loss and accuracy of each model."""
        from bonafed.learning.evaluate import evaluate_models

        return evaluate_models(self.clients.program, models, samples, cores=self.clients.cores)


def cells(
    base: Cell,
    *,
    data: Sequence[str],
    partitions: Sequence[str] = tuple(PARTITIONS),
    methods: Sequence[str] = TABLES,
    seeds: Sequence[int] = (0,),
) -> list[Cell]:
    """Standalone and all methods, setting by setting, with the other values of `base`."""
    order = dict.fromkeys(("standalone", *methods))
    return [
        replace(base, method=method, partition=partition, data=name, seed=seed)
        for seed in seeds
        for name in data
        for partition in partitions
        for method in order
    ]


def federation(cell: Cell, dataset: Dataset, cores: int = 1) -> Federation:
    """Hold out, split, standardise, perhaps add noise; all by the cell's seed."""
    import torch

    from bonafed.learning import models
    from bonafed.learning.engine.federation import EngineFederation
    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import flat_parameters, program_for
    from bonafed.learning.federation import Roster
    from bonafed.learning.partition import add_feature_noise, feature_noise_levels, partition
    from bonafed.learning.work import LocalTraining, Optimizer

    if cell.validation >= len(dataset.labels):
        raise InvalidValue("validation", f"must be below {len(dataset.labels)} samples", cell.validation)
    order = generator(cell.seed, RewardsStudy.VALIDATION).permutation(len(dataset.labels))
    held, kept = np.sort(order[: cell.validation]), np.sort(order[cell.validation :])
    kind, options = PARTITIONS[cell.partition].kind, PARTITIONS[cell.partition].options
    labels = dataset.labels[kept]
    parts = partition(kind, labels, cell.clients, generator(cell.seed, RewardsStudy.PARTITION), **options)
    train = dataset.features[kept]
    mean, sd = (np.float32(value) for value in (train.mean(dtype=np.float64), train.std(dtype=np.float64)))
    train = (train - mean) / sd
    if kind == "feature_noise":
        levels = feature_noise_levels(cell.clients, **options)
        train = add_feature_noise(train, parts, levels, generator(cell.seed, RewardsStudy.FEATURE_NOISE))
    module = models.build(cell.model, train.shape[1:], dataset.classes, cell.seed, dataset.vocabulary)

    def samples(x: Any, y: Any) -> Samples:
        return Samples(torch.from_numpy(x), torch.from_numpy(y))

    validation = samples((dataset.features[held] - mean) / sd, dataset.labels[held])
    some = slice(cell.ranking)
    spec = LocalTraining(cell.batch_size, cell.learning_rate, optimizer=cast(Optimizer, cell.optimizer))
    names = tuple(str(i) for i in range(len(parts)))
    roster = Roster(names, np.array([part.size for part in parts]), classes=dataset.classes)
    return Federation(
        module,
        EngineFederation(roster, program_for(module), samples(train, labels), parts, cores=cores),
        LocalRounds(spec, cell.seed, cell.decay),
        flat_parameters(module).numpy(),
        samples((dataset.test_features - mean) / sd, dataset.test_labels),
        validation,
        Samples(validation.features[some], validation.labels[some]),
    )


def method_for(cell: Cell, ready: Federation, alone: Outcome | None) -> Any:
    """The method of a cell; model rewards need the outcome of standalone training."""
    from bonafed.mechanisms.rewards.layers import last_layers, layer_slices

    rules: dict[str, Any] = {"sizes": ready.sizes, "seed": cell.seed, "local": local_for(cell, ready)}
    if cell.method == "standalone":
        return Standalone(**rules)
    if cell.method in ("fedavg", "fedavg-first-rate"):
        return FederatedAveraging(**rules, tuning=tuning_for(cell, ready))
    if cell.method == "lg-fedavg":
        return LocalGlobal(**rules, shared=last_layers(ready.module, SHARED_LAYERS))
    if cell.method == "cgsv":
        return CosineRewards(**rules, layers=layer_slices(ready.module))
    if cell.method == "rank":

        def score(models: Models) -> Floats:
            return ready.scores(models, ready.ranking).accuracy

        return RankRewards(**rules, score=score)
    if alone is None:
        raise InvalidValue("alone", f"must be given for method {cell.method}", None)
    if cell.method == "iafl-defaults":
        return ModelRewards(alone.accuracy, **rules)
    p = alone.validation_accuracy if cell.method == "iafl-validation" else alone.accuracy
    return ModelRewards(np.asarray(p), **rules, sharing=0.0, recovery=0.0)


def local_for(cell: Cell, ready: Federation) -> LocalRounds:
    """Local training; tasks of every method have identifiers of their own."""
    return replace(ready.local, name=cell.method)


def tuning_for(cell: Cell, ready: Federation) -> LocalRounds | None:
    """In "fedavg-first-rate" the fine-tuning at the end is at the first learning rate.

    The paper does not say at which one clients fine-tune. The rate reached after 50 rounds, a third of the
    first, does much less harm to the common model than the paper reports.
    """
    local = local_for(cell, ready)
    return replace(local, decay=1.0) if cell.method == "fedavg-first-rate" else None


class Checkpoint:
    """The state of a cell under way, in a file named by what the cell is."""

    def __init__(self, folder: Path, cell: Cell) -> None:
        name = hashlib.sha256(json.dumps(asdict(cell), sort_keys=True).encode()).hexdigest()[:16]
        self.path = folder / f"{Path(cell.data).stem}-{cell.partition}-{cell.method}-{name}.npz"

    def load(self, kind: type[RewardsState] | type[BaselineState]) -> tuple[Any, Floats]:
        """The state and (2,) seconds and processor seconds of its rounds; None and zeros without a file."""
        if not self.path.exists():
            return None, np.zeros(2)
        try:
            with np.load(io.BytesIO(self.path.read_bytes())) as file:
                arrays = dict(file)
            return kind.from_arrays(arrays), arrays["spent"]
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            rule = f"must be the state of a cell ({error}); without this file the cell begins anew"
            raise UnreadableFile(self.path, rule) from error

    def save(self, state: RewardsState | BaselineState, spent: Floats) -> None:
        """Replace the file as a whole."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, spent=spent, **state.arrays())
        self.path.parent.mkdir(exist_ok=True)
        write_together({self.path: buffer.getvalue()})

    def remove(self) -> None:
        """The cell is finished; the folder goes with its last file."""
        self.path.unlink(missing_ok=True)
        if self.path.parent.is_dir() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()


def run_cell(
    cell: Cell,
    ready: Federation,
    alone: Outcome | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    every: int = 5,
    on_round: OnRound | None = None,
) -> Outcome:
    """Train from the start or from the checkpoint, then score every client's model on the test set."""
    method = method_for(cell, ready, alone)
    state, spent = None, np.zeros(2)
    if checkpoint is not None:
        state, spent = checkpoint.load(RewardsState if isinstance(method, ModelRewards) else BaselineState)
    clock = _clock(ready.clients.crew)

    def after(now: RewardsState | BaselineState) -> None:
        nonlocal spent, clock
        took = _clock(ready.clients.crew) - clock
        spent = spent + took
        if checkpoint is not None and now.round_number % every == 0 and now.round_number < cell.rounds:
            checkpoint.save(now, spent)
        if on_round is not None:
            on_round(cell, now.round_number, float(took[0]))
        clock = _clock(ready.clients.crew)

    models, _ = run(method, ready.clients, ready.start, rounds=cell.rounds, state=state, on_round=after)
    found = ready.scores(models, ready.test)
    validation = None
    if cell.method == "standalone":
        validation = tuple(ready.scores(models, ready.validation).accuracy.tolist())
    seconds, cpu = (spent / cell.rounds).tolist()
    return Outcome(
        tuple(found.accuracy.tolist()),
        tuple(found.loss.tolist()),
        validation,
        round(float(spent[0] + (_clock(ready.clients.crew) - clock)[0]), 3),
        round(seconds, 4),
        round(cpu, 4),
    )


def _clock(crew: Crew) -> Floats:
    """(2,) seconds that passed, and of processors."""
    return np.array([time.perf_counter(), time.process_time() + crew.cpu_seconds_of_others])


def study(
    wanted: Sequence[Cell],
    results: Path,
    *,
    cores: int = 1,
    every: int = 5,
    on_round: OnRound | None = None,
    on_cell: OnCell | None = None,
) -> dict[Cell, Outcome]:
    """The outcome of every cell; those in `results` are read, the others trained and added to it."""
    checks.whole("every", every)
    if (known := read_cells(results)).keys() >= set(wanted):
        return {cell: known[cell] for cell in wanted}
    with _held(results):
        done = read_cells(results)
        for cell in wanted:
            if cell in done:
                continue
            ready = _prepared(cell.alone, cores)
            checkpoint = Checkpoint(states_beside(results), cell)
            done[cell] = run_cell(
                cell, ready, done.get(cell.alone), checkpoint=checkpoint, every=every, on_round=on_round
            )
            append_result(results, asdict(cell), asdict(done[cell]))
            checkpoint.remove()
            if on_cell is not None:
                on_cell(cell, done[cell])
    return {cell: done[cell] for cell in wanted}


@lru_cache(maxsize=1)
def _prepared(setting: Cell, cores: int) -> Federation:
    """The setting of a standalone cell; the methods of a setting follow each other."""
    from bonafed.learning import datasets

    return federation(setting, datasets.load(setting.data), cores)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Inside, no other process trains for this file."""
    with path.open("ab") as file:
        try:
            import fcntl  # not on every system
        except ImportError:
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InvalidValue("results", "must not be in use by another process", path) from error
        yield


def states_beside(results: Path) -> Path:
    """The folder of checkpoints of a results file."""
    return results.with_name(results.name + ".states")


def read_cells(path: Path) -> dict[Cell, Outcome]:
    """The finished cells of a file."""
    return read_results(path, _understand)


def _understand(cell: dict[str, Any], outcome: dict[str, Any]) -> tuple[Cell, Outcome]:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in outcome.items()}
    return Cell(**cell), Outcome(**values)
