"""The roster of a federation: where it is, who operates it, and which public key belongs to which name.

    [federation]
    name = "clinics"
    address = "federation.example:9092"
    operator = '''-----BEGIN PUBLIC KEY----- ...'''

    [members]
    "north" = "ecdsa-sha2-nistp384 AAAA..."

A name is whoever holds the private part of its key, whatever a node calls itself. Every member and the
operator have the same roster, which its digest tells: the SHA-256 of its canonical form.

The roster of one run, who of the members is in it and with which records, travels as plain data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from bonafed import checks
from bonafed.contracts.canonical import canonical_bytes, digest
from bonafed.errors import InvalidValue, MissingValue
from bonafed.files import write_together
from bonafed.learning.federation import Roster
from bonafed.remote.keys import key_digest, member_public, operator_public, public_text
from bonafed.remote.messages import JSONObject
from bonafed.runs import toml
from bonafed.runs.config import read_tables
from bonafed.sections import Section, key, natural, section_from, unknown, word

_TABLES: Final = ("federation", "members")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")  # it is a folder, and a key of Flower's config
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_UNFIT: Final = frozenset('/\\:*?"<>|')  # which some system does not allow in the name of a folder


def federation_name(name: str, value: object) -> str:
    """The name of a federation."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        rule = "must be 1 to 32 letters, digits, _ or -, and begin with a letter or digit"
        raise InvalidValue(name, rule, repr(value)[:60])
    return value


def address(name: str, value: object) -> str:
    """Host and port, such as federation.example:9092 or [::1]:9092."""
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[2]) < 65536:
        raise InvalidValue(name, "must be host:port, such as federation.example:9092", repr(value)[:60])
    return match[0]


def member_names(values: Any) -> tuple[str, ...]:
    """Names of members, no two alike; each can be the name of a folder."""
    names = checks.names("members", values, "name of a member")
    for name in names:
        if name.startswith(".") or name.endswith(".") or not _UNFIT.isdisjoint(name):
            rule = 'must be usable as the name of a folder: no / \\ : * ? " < > |, no dot at either end'
            raise InvalidValue("name of a member", rule, repr(name))
    return names


@dataclass(frozen=True)
class _Federation(Section):
    """The table [federation] of a roster."""

    name: str = key(federation_name)
    address: str = key(address)
    operator: str = key(word)


@dataclass(frozen=True)
class Membership:
    """Who belongs to a federation, by name and key."""

    name: str  # of the federation
    address: str  # of its SuperLink, host:port
    operator: str  # the operator's public key: Ed25519 in PEM
    members: Mapping[str, str]  # public key of each member by name, as a line of OpenSSH: ECDSA on P-384

    def __post_init__(self) -> None:
        federation_name("federation.name", self.name)
        address("federation.address", self.address)
        operator_public(self.operator.encode(), "federation.operator")
        if not self.members:
            raise MissingValue("members", "must name at least one member")
        member_names(self.members)
        owners: dict[str, str] = {}
        for name, own in self.key_digests.items():
            if own in owners:
                rule = f"must not be the key of {owners[own]} as well: a key belongs to one member"
                raise InvalidValue(f"members.{name}", rule, own)
            owners[own] = name

    @cached_property
    def key_digests(self) -> dict[str, str]:
        """SHA-256 of each member's public key in DER, in hex, by name."""
        return {
            name: key_digest(member_public(text, f"members.{name}")) for name, text in self.members.items()
        }

    @cached_property
    def by_digest(self) -> dict[str, str]:
        """The name of each key."""
        return {own: name for name, own in self.key_digests.items()}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the whole roster, in hex; comments after a key do not matter."""
        return digest(canonical_bytes(self._tables()))

    def _tables(self) -> dict[str, dict[str, Any]]:
        federation = {"name": self.name, "address": self.address, "operator": self.operator.strip() + "\n"}
        members = {name: public_text(member_public(text)) for name, text in self.members.items()}
        return {"federation": federation, "members": members}

    def content(self) -> bytes:
        """The content of its file."""
        return toml.dumps(self._tables()).encode()

    def write(self, path: Path) -> None:
        """Write it to a file."""
        write_together({path: self.content()})


def sections_of(path: Path, known: Sequence[str], required: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The tables of a TOML file: no other than the known ones, and all that are required."""
    tables = read_tables(path)
    for table, value in tables.items():
        if table not in known:
            raise unknown("", table, value, known)
        if not isinstance(value, Mapping):
            raise InvalidValue(table, f"must be a section [{table}]", repr(value)[:60])
    for table in required:
        if table not in tables:
            raise MissingValue(table)
    return tables


def read_roster(path: Path) -> Membership:
    """The roster in a file."""
    tables = sections_of(path, _TABLES, _TABLES)
    part = section_from(_Federation, "federation", tables["federation"])
    for name, text in tables["members"].items():
        word(f"members.{name}", text)
    return Membership(part.name, part.address, part.operator, dict(tables["members"]))


_OPTIONAL = ("feature_bound", "smoothness", "strong_convexity")


def roster_to_json(members: Roster) -> JSONObject:
    """Plain data from which `roster_from_json` makes the same roster."""
    return {
        "names": list(members.names), "sizes": members.sizes.tolist(), "shape": list(members.shape),
        "classes": members.classes, "vocabulary": members.vocabulary,
        "class_names": list(members.class_names),
        **{name: getattr(members, name) for name in _OPTIONAL},
    }  # fmt: skip


def roster_from_json(data: object) -> Roster:
    """The roster that plain data state."""
    if not isinstance(data, dict):
        raise MissingValue("members")
    known = ("names", "sizes", "shape", "classes", "vocabulary", "class_names", *_OPTIONAL)
    if sorted(map(str, data)) != sorted(known):
        raise InvalidValue(
            "members", f"must have the keys {', '.join(known)}", ", ".join(map(str, data))[:90]
        )
    for name in ("names", "sizes", "shape", "class_names"):
        if not isinstance(data[name], list):
            raise InvalidValue(f"members.{name}", "must be a list", type(data[name]).__name__)
    sizes = [natural("members.sizes", size) for size in data["sizes"]]
    optional = {
        name: None if data[name] is None else checks.positive(f"members.{name}", data[name])
        for name in _OPTIONAL
    }
    return Roster(
        checks.names("members.names", data["names"]), np.array(sizes, dtype=np.int64),
        tuple(natural("members.shape", length) for length in data["shape"]),
        natural("members.classes", data["classes"]), optional["feature_bound"],
        natural("members.vocabulary", data["vocabulary"]), optional["smoothness"],
        optional["strong_convexity"], checks.names("members.class_names", data["class_names"]),
    )  # fmt: skip
