"""What the options of `bonafed quote jsam` and `bonafed audit jsam` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.canonical import coin_commitment
from bonafed.economics.priors import Prior
from bonafed.economics.registry import PRIOR_FORMS, parse_prior
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.privacy import checked_delta, delta_rule
from bonafed.learning.sections import NOISE_AT, NoiseAt
from bonafed.mechanisms.jsam.noise import Ingredients, Noise, scale_of
from bonafed.mechanisms.jsam.section import caps_by_name, sizes_by_name
from bonafed.mechanisms.jsam.sizes import whole_sizes
from bonafed.mechanisms.jsam.thresholds import Ints
from bonafed.mechanisms.jsam.water_level import checked_cap, one_cap
from bonafed.reports import read_clients, read_one_per_client, read_reports
from bonafed.sections import Section, key, one_of
from bonafed.text import numeral

BELIEF = "What you believe about a client's cost per unit of epsilon: " + PRIOR_FORMS


def spelled_prior(name: str, value: object) -> Prior:
    """A prior, or one as it is typed."""
    return value if isinstance(value, Prior) else parse_prior(str(value))


def file_path(name: str, value: object) -> Path:
    """The name of a file."""
    if not isinstance(value, str | Path):
        raise InvalidValue(name, "must be a file", repr(value))
    return Path(value)


def cap_or_file(name: str, value: object) -> float | Path:
    """A number, or a file with one per client."""
    if isinstance(value, str):
        try:
            return one_cap(name, numeral(value))
        except InvalidValue:
            raise
        except ValueError:
            return Path(value)
    return value if isinstance(value, Path) else one_cap(name, value)


def member_counts(name: str, value: object) -> tuple[int, ...]:
    """Numbers of members, one or several."""
    several = value if isinstance(value, list | tuple) else (value,)
    return tuple(checks.whole(name, one) for one in several)


def commitment(name: str, value: object) -> str:
    """The SHA-256 that the server is held to, in hex."""
    return coin_commitment(value)


@dataclass(frozen=True, kw_only=True)
class NoiseOptions(Section):
    """Q, or its parts; the most that is bought from a client."""

    noise_scale: float | None = key(
        checks.positive,
        None,
        metavar="Q",
        help="How much noise harms training, for the records that a release averages; or its parts:",
    )
    delta: float | None = key(delta_rule, None, help="... delta of differential privacy,")
    dimension: int | None = key(checks.whole, None, help="... number of parameters of the model,")
    rounds: int | None = key(
        checks.whole,
        None,
        help="... number of training rounds,",
    )
    steps: int | None = key(
        checks.whole,
        None,
        metavar="E",
        help="... steps on all its records that a client takes in a round (as private training chooses "
        "where a budget or a cap says how much is bought; otherwise 1),",
    )
    smoothness: float | None = key(checks.positive, None, help="... smoothness L of the loss,")
    records: int | None = key(
        checks.whole, None, metavar="M", help="... records of a client that each release averages,"
    )
    c2: float | None = key(
        checks.positive, None, help="... and the constant of Lemma 1 (the square root of 2)."
    )
    max_epsilon: float | Path | None = key(
        cap_or_file,
        None,
        metavar="E",
        help="Most epsilon to buy from a client: a number, or a FILE.csv with one per client (public).",
    )

    sizes: Path | None = key(
        file_path,
        None,
        metavar="FILE.csv",
        help="Records that each client holds (a column size): fair is to select each by its share of them. "
        "Then --records is the most that a release averages.",
    )
    noise_at: NoiseAt = key(one_of(NoiseAt), "client", help=NOISE_AT)

    @property
    def _for_a_contract(self) -> bool:
        """Whether delta and rounds are terms of a contract, and not only parts of Q."""
        return False

    def noise(self) -> Noise | None:
        """Q, or its ingredients; None: neither is given."""
        parts = {
            "--delta": self.delta,
            "--dimension": self.dimension,
            "--rounds": self.rounds,
            "--smoothness": self.smoothness,
            "--records": self.records,
        }
        shared = ("--delta", "--rounds") if self._for_a_contract else ()
        own = {
            name: value
            for name, value in {**parts, "--steps": self.steps, "--c2": self.c2}.items()
            if name not in shared
        }
        first = next((name for name, value in own.items() if value is not None), None)
        if self.noise_scale is not None:
            if first is not None:
                raise InvalidValue("--noise-scale", f"must not be given with {first}", self.noise_scale)
            return self.noise_scale
        if first is None:
            return None
        for name, value in parts.items():
            if value is None:
                raise MissingValue(name, f"is required with {first}")
        assert self.dimension is not None
        assert self.smoothness is not None
        assert self.records is not None
        self.delta_notes(None)
        steps = self.steps or 1
        ingredients = Ingredients(self.dimension, self.smoothness, self.records, steps, steps)
        return ingredients if self.c2 is None else replace(ingredients, c2=self.c2)

    def scale(self, noise: Noise) -> float:
        """Q, from its ingredients where these are given."""
        return scale_of(noise, self.delta or 0.0, self.rounds or 0, by_size=self.sizes is not None)

    def delta_notes(self, sizes: Ints | None) -> list[str]:
        """Refuse a delta that promises nothing for the records that are stated; what else to say of it."""
        if self.delta is None:
            return []
        stated = sizes.tolist() if sizes is not None else []
        if self.sizes is None and self.records is not None:
            stated = [self.records]
        return checked_delta("--delta", self.delta, stated)

    def refuse_with_sizes(self) -> None:
        """What is for clients that are alike."""
        if self.sizes is None:
            return
        if self.max_epsilon is not None:
            raise InvalidValue(
                "--max-epsilon", "must not be given with --sizes", as_typed(self.max_epsilon)
            )
        if self.noise_at != "client":
            raise InvalidValue("--noise-at", "must be client with --sizes", self.noise_at)

    def held(self, names: Sequence[str]) -> Ints | None:
        """(N,) records of these clients, by name where the file has names; None: all are alike."""
        if self.sizes is None:
            return None
        each = read_one_per_client(self.sizes, "--sizes", "size", len(names))
        if read_clients(self.sizes) is not None:
            sizes = sizes_by_name(read_reports(self.sizes, "size"), tuple(names))
        else:
            sizes = whole_sizes("--sizes", each)
        self.delta_notes(sizes)
        return sizes

    def caps(self, names: Sequence[str]) -> float | Floats | None:
        """The most to buy: one for all, or (N,) of these clients, by name where the file has names."""
        if not isinstance(self.max_epsilon, Path):
            return self.max_epsilon
        each = read_one_per_client(self.max_epsilon, "--max-epsilon", "max_epsilon", len(names))
        if read_clients(self.max_epsilon) is not None:
            return caps_by_name(read_reports(self.max_epsilon, "max_epsilon"), tuple(names))
        return checked_cap(each, len(names))


def as_typed(cap: float | Path | None) -> object:
    """A cap as an error shows it."""
    return f"{cap:g}" if isinstance(cap, float) else cap
