"""`me.toml`: a participant's settings. Paths in it are relative to the file.

    [participant]    who I am: name, private key, the folder that remembers what I agreed to and gave
    [federation]     whom I deal with: name, address, certificate, the operator's public key, the roster
    [data]           my records; [data.part]: a part of a known data set, for trials
    [costs]          what I know of myself, by the name under which it may be asked for: cost = 0.8
    [policy]         what I accept

What stands under [costs] leaves the participant only as its report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from bonafed import checks, sections
from bonafed.errors import InvalidValue
from bonafed.learning.data.datasets import is_own_file
from bonafed.learning.sections import Data, Partition
from bonafed.remote.participant.policy import Policy
from bonafed.remote.roster import address, federation_name, member_names, sections_of
from bonafed.sections import Section, key, natural, section_from, word

_TABLES: Final = ("participant", "federation", "data", "costs", "policy")
_REQUIRED: Final = ("participant", "federation", "data")
_PART: Final = "part"


def _member(name: str, value: object) -> str:
    try:
        return member_names([value])[0]
    except InvalidValue as error:
        raise error.renamed(name) from error


@dataclass(frozen=True)
class Identity(Section):
    """[participant]: who I am."""

    name: str = key(_member, help="The name that the roster binds to my key.")
    key: str = sections.key(word, help="My private key: ECDSA on P-384, in OpenSSH's format.")
    folder: str = sections.key(word, "state", help="Where I keep what I agreed to and gave.")


@dataclass(frozen=True)
class Address(Section):
    """[federation]: whom I deal with."""

    name: str = key(federation_name, help="The name of the federation.")
    address: str = key(address, help="Host and port of its SuperLink.")
    operator: str = key(word, help="The operator's public key, in PEM.")
    roster: str | None = key(
        word, None, help="The roster: by whose keys I know the others; required for secure sums."
    )
    certificate: str | None = key(
        word, None, help="Certificate that vouches for the SuperLink; if left out, those of the system."
    )


@dataclass(frozen=True)
class DataPart(Section):
    """[data.part]: which part of a known data set is mine, for trials on one machine."""

    number: int = key(natural, help="Which part: 0, 1, ...")
    seed: int = key(checks.seed, 0, help="Of the split, as run.seed of the config.")
    partition: Partition = field(
        default_factory=lambda: Partition(clients=1),
        metadata={"check": lambda _, value: value, "help": "kind, clients and options of the split."},
    )

    def _agree(self) -> None:
        clients = self.partition.clients
        if clients is not None and self.number >= clients:
            raise InvalidValue("number", f"must be below clients = {clients}", self.number)

    def table(self) -> dict[str, Any]:
        return {"number": self.number, "seed": self.seed, **self.partition.table()}

    @classmethod
    def reading(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        """Its own keys, and those of the split."""
        own = {name: value for name, value in table.items() if name in ("number", "seed")}
        split = {name: value for name, value in table.items() if name not in own}
        return {**own, "partition": section_from(Partition, f"data.{_PART}", split)}


@dataclass(frozen=True)
class ParticipantSettings:
    """All of a `me.toml`, with absolute paths."""

    name: str  # mine, as the roster has it
    key: Path  # my private key
    folder: Path  # what I remember
    federation: str  # its name
    address: str  # of its SuperLink, host:port
    operator: Path  # the operator's public key
    roster: Path | None  # names and keys of all members; None: whatever the operator says they are
    certificate: Path | None  # that vouches for the SuperLink; None: those of the system
    data: Data  # my records
    part: DataPart | None = None  # which of them are mine; None: all
    costs: Mapping[str, float] = field(default_factory=dict)  # what I know of myself, by its name
    policy: Policy = field(default_factory=Policy)  # what I accept


def read_settings(path: Path) -> ParticipantSettings:
    """The settings in a file."""
    tables = sections_of(path, _TABLES, _REQUIRED)
    base = path.absolute().parent
    me = section_from(Identity, "participant", tables["participant"])
    them = section_from(Address, "federation", tables["federation"])
    data = dict(tables["data"])
    part = data.pop(_PART, None)
    if part is not None and not isinstance(part, Mapping):
        raise InvalidValue(f"data.{_PART}", f"must be a section [data.{_PART}]", repr(part)[:60])
    return ParticipantSettings(
        name=me.name,
        key=_from(base, me.key),
        folder=_from(base, me.folder),
        federation=them.name,
        address=them.address,
        operator=_from(base, them.operator),
        roster=None if them.roster is None else _from(base, them.roster),
        certificate=None if them.certificate is None else _from(base, them.certificate),
        data=_data_from(base, section_from(Data, "data", data)),
        part=None if part is None else section_from(DataPart, f"data.{_PART}", part),
        costs={name: _cost(name, value) for name, value in tables.get("costs", {}).items()},
        policy=section_from(Policy, "policy", tables.get("policy", {})),
    )


def _from(base: Path, path: str) -> Path:
    return base / Path(path).expanduser()


def _cost(name: str, value: object) -> float:
    """A number; what it is instead is not shown: it may be a secret with a typo in it."""
    try:
        return checks.number(f"costs.{name}", value)
    except InvalidValue as error:
        raise InvalidValue(error.name, error.rule, "something else (not shown)") from None


def _data_from(base: Path, data: Data) -> Data:
    """The data with paths that hold in any folder."""
    own, how = is_own_file(data.name), data.standardise
    folder = _from(base, data.folder)
    if isinstance(how, Mapping) and "mean" not in how:
        ((kind, name),) = how.items()
        how = {kind: str(folder / Path(name).expanduser())}
    if not data.folder and (not own or Path(data.name).expanduser().is_absolute()):
        return replace(data, standardise=how)
    return replace(data, folder=str(folder), standardise=how)
