"""From a config to everything the rounds need: data, parts, model, terms, noise. Writes nothing.

Whatever is wrong with a run shows here, before its folder is made: data that are missing, a partition that
does not exist, a model that does not fit the data, a contract that cannot be planned.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.datasets import Dataset
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import Program, flat_parameters
from bonafed.learning.evaluate import evaluate
from bonafed.learning.federation import BadUpdatePolicy, Participation, weighted_mean
from bonafed.learning.privacy import (
    Batches,
    Calibration,
    covering,
    noise_multiplier,
    sampled_multiplier,
)
from bonafed.learning.work import LocalTraining, Optimizer, largest_sum, record_steps, sampling_rate
from bonafed.mechanisms.coins import Coins
from bonafed.mechanisms.jsam import noise_scale as jsam_noise_scale
from bonafed.mechanisms.jsam import training as jsam
from bonafed.mechanisms.jsam.training import PrivacyTerms
from bonafed.mechanisms.sampling import training as sampling
from bonafed.mechanisms.sampling.convergence import RateVariant
from bonafed.mechanisms.sampling.training import SampledTerms, Scheme
from bonafed.randomness import Purpose, round_generator
from bonafed.runs.coins import VERIFIABLE, simulate
from bonafed.runs.config import Config, Privacy, to_tables
from bonafed.runs.holdings import hold
from bonafed.runs.sections import BY_THEOREM, PROPOSITION_1, Training, named

Terms = SampledTerms | PrivacyTerms
Ideal = Callable[[float, float], float]  # (epsilon, delta) -> noise multiplier, if numbers had all digits
Rates = Callable[[int], Floats]  # of round 1, 2, ...: (1,) for all its local steps, or one for each


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """A run that can begin; made by `prepare`."""

    config: Config  # resolved: nothing is left open
    module: nn.Module  # with its initial weights
    program: Program
    samples: Samples  # of all clients
    test: Samples  # perhaps none
    parts: list[NDArray[np.int64]]  # (N,) the samples of each client
    rates: Rates  # of every round
    spec: LocalTraining  # of the first round
    terms: Terms | None  # what was agreed with the clients, under a contract
    noise_multipliers: Floats | None  # (N,) noise over sensitivity of a private run; 0: never takes part
    digest: str  # of data and partition
    classes: int  # of the data, whether or not there is a sample of each; 0 for regression
    coins: Coins | None  # verifiable ones; None: who takes part follows from run.seed

    @property
    def start(self) -> Tensor:
        """(P,) the initial weights."""
        return flat_parameters(self.module)

    def local_training(self, round_number: int) -> LocalTraining:
        """What clients do in round 1, 2, ..."""
        return _at(self.spec, self.rates(round_number))

    def participation(self, round_number: int) -> Participation:
        """Who takes part in round 1, 2, ..., the same every time it is asked."""
        return _participation(self.config, self.parts, self.terms, self.coins, round_number)

    def with_coins(self, coins: Coins) -> Setting:
        """The same run with coins that were tossed before."""
        terms = _scheduled(self.terms, coins)
        noise = _noise_multipliers(self.config, self.parts, terms, coins, self.spec, self.program.size)
        return replace(self, terms=terms, coins=coins, noise_multipliers=noise)

    def spend(self, round_number: int, who: Participation) -> float | None:
        """Money paid in round 1, 2, ... to those who take part in it; None without a contract."""
        if self.terms is None:
            return None
        if isinstance(self.terms, PrivacyTerms):
            return jsam.spend(self.terms, round_number)
        return sampling.spend(self.terms, who)


def prepare(
    config: Config,
    *,
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    on_progress: Callable[[str], None] | None = None,
    entropy: Callable[[int], bytes] = secrets.token_bytes,
) -> Setting:
    """Load, split, build and plan; `dataset` and `module` may be the user's own.

    `entropy` gives so many bytes that nobody can guess: the secrets of verifiable coins.
    """
    held = hold(config, dataset, on_progress)
    config, dataset, parts, samples = held.config, held.dataset, held.parts, held.samples
    if module is None:
        module = held.module()
    program = held.program(module)
    steps = [config.training.local_steps(part.size) for part in parts]
    config, rates = _rates(config, dataset, max(steps))
    promise = "privacy" if config.jsam is None else "jsam"
    first = rates(1)
    plain = local_training(config.training, float(first[0]), config.clip, f"{promise}.clip", config.batches)
    spec = _at(plain, first)
    terms: Terms | None = _terms(config, len(parts))
    if config.jsam is not None:
        terms = _privacy_terms(config, program, flat_parameters(module), samples, parts, spec)
    coins = _coins(config, terms, entropy)
    if coins is not None:
        terms = _scheduled(terms, coins)
    return Setting(
        config,
        module,
        program,
        samples,
        held.test,
        parts,
        rates,
        spec,
        terms,
        _noise_multipliers(config, parts, terms, coins, spec, program.size),
        held.digest,
        dataset.classes,
        coins,
    )


def _at(spec: LocalTraining, rates: Floats) -> LocalTraining:
    """The same at these learning rates of a round."""
    first, *later = rates.tolist()
    return replace(spec, learning_rate=first, later_rates=tuple(later) or None)


def _rates(config: Config, dataset: Dataset, local_steps: int) -> tuple[Config, Rates]:
    """The learning rates of every round, and the config with the constants they came from.

    Proposition 1 is about clients that all make E local steps in a round. Where their numbers differ,
    E is the largest, `local_steps`: a round counts as E iterations, and who is done earlier rests.
    """
    given = config.training
    if given.learning_rate in BY_THEOREM:
        smooth = given.smoothness or _smoothness(config, dataset)
        convex = given.strong_convexity or dataset.strong_convexity
        for name, value in (("smoothness", smooth), ("strong_convexity", convex)):
            if value is None:
                rule = f"must be given for {given.learning_rate}: the data do not tell"
                raise InvalidValue(f"training.{name}", rule, "nothing")
        assert smooth is not None
        assert convex is not None
        decay = convex if given.weight_decay is None else given.weight_decay
        training = replace(given, smoothness=smooth, strong_convexity=convex, weight_decay=decay)
        variant: RateVariant = "corrected" if given.learning_rate == PROPOSITION_1 else "printed"
        with named("training"):
            sampling.proposition_1_rates(smooth, convex, local_steps, given.rounds)  # refuses bad constants
        return replace(config, training=training), lambda number: sampling.proposition_1_rates(
            smooth, convex, local_steps, number, variant
        )
    powers = np.power(given.learning_rate_decay, np.arange(given.rounds, dtype=np.float64))
    rates = float(given.learning_rate) * powers[:, None]
    if rates[-1, 0] <= 0:
        rule = f"must leave a learning rate above 0 after {given.rounds} rounds"
        raise InvalidValue("training.learning_rate_decay", rule, given.learning_rate_decay)
    training = replace(given, weight_decay=given.weight_decay or 0.0)
    return replace(config, training=training), lambda number: rates[number - 1]


def _smoothness(config: Config, dataset: Dataset) -> float | None:
    """What the data tell; nothing where it does not hold, or would give away a record."""
    if config.clip is not None:  # it is that of the longest record, without noise
        rate = config.training.learning_rate
        rule = f"must be given for {rate} in private training: that of the data is not private"
        raise InvalidValue("training.smoothness", rule, "nothing")
    noisy = config.partition.kind == "feature_noise"  # which makes features longer than the data knew
    return None if noisy else dataset.smoothness


def local_training(
    given: Training,
    learning_rate: float,
    clip: float | None = None,
    clip_key: str = "privacy.clip",
    batches: Batches = "passes",
) -> LocalTraining:
    """What clients do in a round; `clip_key` is the key of the config that the clip comes from."""
    with named("training", clip=clip_key):
        checks.literal("on_bad_update", given.on_bad_update, BadUpdatePolicy)
        return LocalTraining(
            batch_size=given.batch_size,
            learning_rate=learning_rate,
            epochs=given.epochs,
            steps=given.steps,
            optimizer=cast(Optimizer, given.optimizer),  # checked by LocalTraining
            momentum=given.momentum,
            weight_decay=given.weight_decay or 0.0,
            clip=clip,
            batches=batches,
        )


def _terms(config: Config, clients: int) -> SampledTerms | None:
    given = config.contract
    if given is None:
        return None
    with named("contract"):
        return sampling.sampled_terms(
            given.prior,
            given.total_budget,
            config.training.rounds,
            sampling.draw_costs(given.prior, clients, given.cost_seed),
            cast(Scheme, given.scheme),
            given.confidence,
        )


def _privacy_terms(
    config: Config,
    program: Program,
    start: Tensor,
    samples: Samples,
    parts: list[NDArray[np.int64]],
    spec: LocalTraining,
) -> PrivacyTerms:
    """What is bought from whom, and the whole schedule.

    For "largest losses" every client is asked for the loss of the initial model on its data, in clear.
    """
    given = config.jsam
    assert given is not None
    losses = None
    noise_scale, records = _noise_scale(config, program, parts, spec)
    if given.scheme == "largest losses":
        losses = [evaluate(program, start, _of(samples, part))[0] for part in parts]
    with named("jsam", losses="scheme"):
        settlement = jsam.settle_scheme(
            given.prior,
            jsam.draw_costs(given.prior, len(parts), given.cost_seed),
            noise_scale,
            cast(jsam.Scheme, given.scheme),
            eta=given.eta,
            budget=given.budget,
            expected_budget=given.expected_budget,
            members=given.members,
            losses=losses,
            max_epsilon=given.max_epsilon,
        )
        selection, turns = settlement.allocation.selection, config.training.rounds
        schedule = jsam.draw_schedule(selection, turns, given.clients_per_round, config.run.seed)
    return PrivacyTerms(settlement, schedule, noise_scale, records)


def _noise_scale(
    config: Config, program: Program, parts: list[NDArray[np.int64]], spec: LocalTraining
) -> tuple[float, int | None]:
    """Q, given or made of its ingredients; and the records per release it was made of.

    A client that is drawn takes some steps, and each moves the model: T is rounds times steps. A record is
    in fewer of them, one of every pass, and the noise is for those (theory P3), so that Q shrinks by passes
    over steps. Where clients average different numbers of records, M is the smallest: for the others Q is
    then too large, which selects fewer clients than would be best; privacy and truthfulness do not depend
    on Q.
    """
    given, training = config.jsam, config.training
    assert given is not None
    if given.noise_scale is not None:
        return given.noise_scale, None
    assert given.smoothness is not None
    records = min(min(training.batch_size, part.size) for part in parts)
    steps = max(training.local_steps(part.size) for part in parts)
    passes = max(record_steps(part.size, spec) for part in parts)
    with named("jsam"):
        scale = jsam_noise_scale(
            given.delta, program.size, training.rounds * steps, given.smoothness, records
        )
    return scale * passes / steps, records


def _coins(config: Config, terms: Terms | None, entropy: Callable[[int], bytes]) -> Coins | None:
    """Of the whole protocol, where the config asks for it."""
    paying = config.contract or config.jsam
    if terms is None or paying is None or paying.coins != VERIFIABLE:
        return None
    if isinstance(terms, PrivacyTerms):
        chances = terms.settlement.allocation.selection
    else:
        chances = terms.probability
    return simulate(to_tables(config), chances, entropy)


def _scheduled(terms: Terms | None, coins: Coins) -> Terms | None:
    """Terms whose schedule, where they have one, is that of the coins."""
    if not isinstance(terms, PrivacyTerms):
        return terms
    return replace(terms, schedule=jsam.schedule_of(coins))


def _of(samples: Samples, part: NDArray[np.int64]) -> Samples:
    rows = torch.from_numpy(part)
    return Samples(samples.features[rows], samples.labels[rows])


def _participation(
    config: Config,
    parts: list[NDArray[np.int64]],
    terms: Terms | None,
    coins: Coins | None,
    round_number: int,
) -> Participation:
    if isinstance(terms, PrivacyTerms):
        return jsam.participation(terms, round_number)
    if terms is not None:
        return sampling.participation(terms, config.run.seed if coins is None else coins, round_number)
    sizes = [part.size for part in parts]
    wanted = max(1, round(config.training.participation * len(parts)))
    if wanted == len(parts):
        return weighted_mean(range(len(parts)), sizes)
    rng = round_generator(config.run.seed, Purpose.PARTICIPANTS, round_number)
    who = rng.choice(len(parts), wanted, replace=False)
    return weighted_mean(np.sort(who), sizes)


def _noise_multipliers(
    config: Config,
    parts: list[NDArray[np.int64]],
    terms: Terms | None,
    coins: Coins | None,
    spec: LocalTraining,
    parameters: int,
) -> Floats | None:
    """(N,) for each client the noise that just keeps the promise over the releases its records are in.

    Who takes part when does not depend on the data, so their number is known in advance (theory P3).
    """
    sizes = [part.size for part in parts]
    each = np.array([record_steps(n, spec) if n else 0 for n in sizes])
    longest = max((largest_sum(n, spec) for n in sizes if n), default=0.0)

    def kept(ideal: Ideal, epsilon: float, delta: float, times: int) -> float:
        """Also by noise that is computed; one that a seed takes off promises nothing."""
        if config.noise != "secret":
            return ideal(epsilon, delta)
        return covering(ideal, epsilon, delta, parameters * times, longest)

    if isinstance(terms, PrivacyTerms) and config.jsam is not None:
        delta = config.jsam.delta

        def calibrate(epsilon: float, times: int) -> float:
            return kept(lambda e, d: noise_multiplier(e, d, times), epsilon, delta, times)

        with named("jsam"):
            return jsam.noise_multipliers(terms, delta, each, calibrate)
    given = config.privacy
    if given is None:
        return None
    turns = np.zeros(len(parts), dtype=np.int64)
    for number in range(1, config.training.rounds + 1):
        np.add.at(turns, _participation(config, parts, terms, coins, number).clients, 1)
    kinds = [
        (times, sampling_rate(n, spec)) if times else None
        for times, n in zip((turns * each).tolist(), sizes, strict=True)
    ]
    with named("privacy"):
        noise_multiplier(given.epsilon, given.delta)  # also if nobody takes part, bad values are refused
        found = {
            kind: kept(_ideal(given, *kind), given.epsilon, given.delta, kind[0])
            for kind in dict.fromkeys(kinds)
            if kind is not None
        }
    return np.array([0.0 if kind is None else found[kind] for kind in kinds])


def _ideal(given: Privacy, times: int, rate: float | None) -> Ideal:
    """Calibration for so many releases that a record is in, or in by a coin at this rate."""
    if rate is not None:
        return lambda epsilon, delta: sampled_multiplier(epsilon, delta, rate, times)
    return lambda epsilon, delta: noise_multiplier(
        epsilon, delta, times, cast(Calibration, given.calibration)
    )
