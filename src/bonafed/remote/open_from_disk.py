"""A participant from its settings, and an operator from its key: secrets and journals from disk."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import write_new
from bonafed.remote.federation import ANSWER_WITHIN, EXCLUDE_AFTER, Operator
from bonafed.remote.journal import Journal
from bonafed.remote.keys import (
    key_digest,
    member_public,
    member_signer,
    operator_public,
    operator_signer,
    read_member_key,
    verifier,
)
from bonafed.remote.local_data import open_holding
from bonafed.remote.messages import Verify
from bonafed.remote.participant import Participant
from bonafed.remote.roster import Membership, read_roster
from bonafed.remote.settings import ParticipantSettings
from bonafed.remote.transport import Transport

SECRET = "noise.secret"  # in a participant's folder: what its noise and its nonces come from
SECRET_BYTES = 32


def open_participant(
    settings: ParticipantSettings, tell: Callable[[str], None] = lambda _text: None
) -> Participant:
    """The participant with its records loaded, ready to answer."""
    key = read_member_key(settings.key)
    operator = operator_public(_content(settings.operator), "federation.operator")

    def verify(keys: Mapping[str, str]) -> Verify:
        return verifier(operator, {name: member_public(text) for name, text in keys.items()})

    part = settings.part
    holding = open_holding(
        settings.data, None if part is None else part.partition, 0 if part is None else part.number,
        0 if part is None else part.seed,
    )  # fmt: skip
    others = None
    if settings.roster is not None:
        others = read_roster(settings.roster).key_digests
        mine = key_digest(key.public_key())
        if others.get(settings.name) != mine:
            rule = f"must have my key under my name, {settings.name}: {mine}"
            raise InvalidValue("federation.roster", rule, others.get(settings.name))
    journal = Journal(settings.folder)
    return Participant(
        settings.name, settings.federation, holding, settings.costs, settings.policy, journal,
        member_signer(key), verify, _secret(settings.folder), tell, others,
    )  # fmt: skip


def operator_of(
    membership: Membership,
    key: Path,
    transport: Transport,
    *,
    answer_within: float = ANSWER_WITHIN,
    exclude_after: int = EXCLUDE_AFTER,
    colluders: int | None = None,
    tell: Callable[[str], None] = lambda _text: None,
) -> Operator:
    """The operator whose private key is in this file, and whose public key is on the roster."""
    members = {name: member_public(text, f"members.{name}") for name, text in membership.members.items()}
    public = operator_public(membership.operator.encode(), "federation.operator")
    sign, verify = operator_signer(key), verifier(public, members)
    if not verify("", b"mine", sign(b"mine")):
        raise InvalidValue("operator key", "must be the one on the roster", key)
    return Operator(
        membership.name, membership.members, sign, verify, transport, answer_within, exclude_after, tell,
        colluders,
    )  # fmt: skip


def _secret(folder: Path) -> bytes:
    """The participant's own secret, made when it is first needed, for its owner only."""
    path = folder / SECRET
    if not os.path.lexists(path):
        write_new(path, secrets.token_bytes(SECRET_BYTES), "secret", "must be a new file")
    if path.is_symlink():
        raise InvalidValue("secret", "must be a file, not a link", path)
    value = _content(path)
    if len(value) != SECRET_BYTES:
        raise UnreadableFile(path, f"must hold {SECRET_BYTES} bytes, got {len(value)}")
    path.chmod(0o600)
    return value


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
