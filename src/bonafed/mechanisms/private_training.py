"""How to train in noise (theory P9): `bonafed advise private-training`, and a word before a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.learning.privacy import REPLACE, delta_note, delta_rule, noise_multiplier, require_small_delta
from bonafed.learning.privacy.planning import DWARFED, REACH, noise_share, rate_for, steps_for
from bonafed.learning.rounds import Participation
from bonafed.learning.sections import DELTA, NOISE_AT, NoiseAt
from bonafed.learning.sum_noise import round_noise
from bonafed.learning.work import LocalTraining, sensitivity, step_count
from bonafed.mechanisms.protocol import Command
from bonafed.presentation.documents import Column, Document, Table, counted
from bonafed.sections import Section, key, one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
_TOO_LONG = 4.0  # times the best, before anything is said: the best is broad


@dataclass(frozen=True, slots=True)
class PrivatePlan:
    """What to do with a promise."""

    share: float  # a: noise of the whole run over the furthest that clipped gradients can take the model
    noise: float  # expected norm of the noise in the mean gradient of a step; its signal is at most clip
    steps: int  # of a client in a round
    learning_rate: float
    batch_size: int

    @property
    def dwarfed(self) -> bool:
        """Whether noise hides most of what could be learned."""
        return self.share > DWARFED


@dataclass(frozen=True)
class PrivateOptions(Section):
    """A private run that is being planned."""

    records: int = key(checks.whole, help="Records of each client, about.")
    clients: int = key(checks.whole, metavar="N", help="Clients in a round.")
    parameters: int = key(checks.whole, metavar="P", help="Weights of the model.")
    epsilon: float = key(checks.positive, help="Largest privacy loss of a record over the whole run.")
    delta: float = key(delta_rule, 1e-5, help=DELTA)
    clip: float = key(checks.positive, 1.0, help="Largest norm of one record's gradient.")
    noise_at: NoiseAt = key(one_of(NoiseAt), "client", help=NOISE_AT)
    rounds: int = key(checks.whole, 20, metavar="R", help="Rounds of the run.")

    def _agree(self) -> None:
        require_small_delta("delta", self.delta, self.records)

    def plan(self) -> PrivatePlan:
        """What to do with this promise, by (11.1) to (11.4) for clients that are alike."""
        on_sum = self.noise_at == "sum"
        # N equal squares add up to N of them
        one = noise_share([1.0], self.epsilon, self.records, self.delta, self.parameters)
        share = one / (self.clients if on_sum else math.sqrt(self.clients))
        steps = steps_for(share, self.rounds, on_sum=on_sum)
        noise = share * self.clip * math.sqrt(steps * self.rounds)
        if not math.isfinite(noise):
            raise OverflowError("noise beyond double precision")  # told of the number that led to it
        rate = rate_for(share, self.clip, steps * self.rounds)
        return PrivatePlan(share, noise, steps, rate, self.records)


def advise(options: PrivateOptions) -> Document:
    """Batch, steps and rate, and the same at other epsilons."""
    plan = options.plan()
    advice = (
        f"Train {counted(options.rounds, 'round')} of {counted(plan.steps, 'step')} at learning rate "
        f"{plan.learning_rate:.3g}, with batches of all records: batch_size = {plan.batch_size}, or as "
        "many as any client has. A private run whose [training] leaves the three out chooses them so."
    )
    noise = (
        f"The noise of a step has norm {plan.noise:.3g}, where clipped gradients have {options.clip:g} at "
        f"most; over the run it is {plan.share:.0%} of the furthest they can take the model, whatever "
        "rounds, steps and rate are."
    )
    blocks = [advice, noise]
    if (note := delta_note(options.delta, options.records)) is not None:
        blocks.append(f"Caution: {note}.")
    if plan.dwarfed:
        times, on_sum = plan.share / DWARFED, options.noise_at == "sum"
        more = math.ceil((times if on_sum else times**2) * options.clients)
        instead = (
            "" if on_sum else " Or noise once on the sum (noise_at), if the server may see single updates."
        )
        blocks.append(
            "That hides most of what could be learned. It takes about "
            f"{math.ceil(times * options.records):,} records for each client, or "
            f"{more:,} clients, or a larger epsilon.{instead}"
        )
    rows: list[tuple[float, float, float, int, float]] = []
    for epsilon in sorted({*_EPSILONS, options.epsilon}):
        other = replace(options, epsilon=epsilon).plan()
        rows.append((epsilon, other.share, other.noise, other.steps, other.learning_rate))
    columns = (
        Column("epsilon", "g"), Column("noise over the run", ".0%"), Column("noise of a step", ".3g"),
        Column("steps a round"), Column("rate", ".3g"),
    )  # fmt: skip
    caption = f'for "{REPLACE}": not to be compared with epsilons for adding or removing a record'
    title = (
        f"{counted(options.clients, 'client')} of {counted(options.records, 'record')}, "
        f"{counted(options.parameters, 'weight')}"
    )
    data = {
        "question": "private-training", "rounds": options.rounds, "steps": plan.steps,
        "learning_rate": plan.learning_rate, "batch_size": plan.batch_size, "noise": plan.noise,
        "noise_multiplier": noise_multiplier(options.epsilon, options.delta, plan.steps * options.rounds),
        "noise_share": plan.share, "dwarfed": plan.dwarfed, "adjacency": REPLACE,
        "table": [
            {"epsilon": e, "noise_share": a, "noise": v, "steps": s, "learning_rate": r}
            for e, a, v, s, r in rows
        ],
    }  # fmt: skip

    def figure() -> Figure:
        from bonafed.mechanisms.noise_figure import noise_figure

        epsilons, shares, _, _, rates = zip(*rows, strict=True)
        return noise_figure(epsilons, shares, rates, options.epsilon)

    return Document((*blocks, Table(title, columns, tuple(rows), caption)), data, figure)


@dataclass(frozen=True, slots=True)
class Course:
    """What a private run of plain steps will be like, over all its rounds."""

    records: int  # of a client, the mean
    clients: int  # in a round, the mean
    parameters: int
    noise: float  # expected norm of all the noise in the model
    furthest: float  # that clipped gradients can take the model
    time: float  # sum of the rates of all steps of the client that takes most
    whole: bool  # every batch holds all records of its client
    rounds: int
    noise_at: NoiseAt = "client"

    @property
    def share(self) -> float:
        """a."""
        return self.noise / self.furthest if self.furthest else 0.0


def course_of(
    rounds: Sequence[tuple[Participation, LocalTraining]],
    sizes: NDArray[np.int64],
    multipliers: Floats,
    parameters: int,
    *,
    on_sum: bool = False,
) -> Course:
    """From who is in every round and what they do: neither depends on the data."""
    spec = rounds[0][1]  # but for its rate that of all rounds
    assert spec.clip is not None  # the run is private
    steps = np.array([step_count(size, spec) for size in sizes.tolist()])
    scale = multipliers * np.array([sensitivity(size, spec) for size in sizes.tolist()])
    variance = furthest = time = 0.0
    for who, now in rounds:
        rates = who.weights * now.learning_rate
        if on_sum:
            variance += parameters * round_noise(who, multipliers, sizes, now, np.zeros(1), 1).sd ** 2
        else:
            variance += parameters * float(steps[who.clients] @ (rates * scale[who.clients]) ** 2)
        furthest += spec.clip * float(steps[who.clients] @ rates)
        time += now.learning_rate * int(steps.max())
    asked = sum(who.clients.size for who, _ in rounds) / len(rounds)
    return Course(
        max(1, round(float(sizes.mean()))), max(1, round(asked)), parameters, math.sqrt(variance), furthest,
        time, spec.batch_size >= int(sizes.max()), len(rounds), "sum" if on_sum else "client",
    )  # fmt: skip


def noise_note(course: Course, epsilon: float, delta: float, clip: float) -> str | None:
    """What to say before a run whose noise dwarfs its signal, or that is too long for it; None: nothing."""
    moved = (
        f"over the run, noise moves the model by {course.noise:.3g}, clipped gradients by "
        f"{course.furthest:.3g} at most"
    )
    about = PrivateOptions(
        course.records, course.clients, course.parameters, epsilon, delta, clip, course.noise_at,
        course.rounds,
    )  # fmt: skip
    stated = {name.replace("_", "-"): value for name, value in about.table().items() if value != "client"}
    flags = " ".join(f"--{name} {value}" for name, value in stated.items())
    more = f"bonafed advise private-training {flags}"
    if course.share > DWARFED:
        larger = "" if course.whole else "; batches of all records need less"
        return f"noise dwarfs the signal: {moved}{larger}: {more}"
    best = REACH / (course.share * clip) if course.share else math.inf
    if course.time > _TOO_LONG * best:
        return (
            f"this run goes on for long in so much noise: {moved}; its learning rates add up to "
            f"{course.time:.3g}, about {best:.3g} would do: {more}"
        )
    return None


PRIVATE_TRAINING = Command(
    "Batch, steps and rate of a private run, from the noise it will have.",
    PrivateOptions,
    advise,
    "From the promise and the sizes of things: how much noise there will be against what can be learned, "
    "and batch, steps of a round and learning rate: what a private run chooses where its config leaves "
    "them open. Batches in passes, noise at every client or once on the sum (--noise-at).",
    "bonafed advise private-training --records 144 --clients 10 --parameters 650 --epsilon 1",
)
