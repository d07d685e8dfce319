"""A participant from its settings: secrets and journals from disk."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import write_new
from bonafed.remote.keys import (
    key_digest,
    member_public,
    member_signer,
    operator_public,
    read_member_key,
    verifier,
)
from bonafed.remote.messages import Verify
from bonafed.remote.participant.journal import Journal
from bonafed.remote.participant.local_data import open_holding
from bonafed.remote.participant.participant import Participant
from bonafed.remote.participant.settings import ParticipantSettings
from bonafed.remote.roster import read_roster

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
        own = key_digest(key.public_key())
        if others.get(settings.name) != own:
            rule = f"must have my key under my name, {settings.name}: {own}"
            raise InvalidValue("federation.roster", rule, others.get(settings.name))
    journal = Journal(settings.folder)
    return Participant(
        settings.name, settings.federation, holding, settings.costs, settings.policy, journal,
        member_signer(key), verify, _secret(settings.folder), tell, others,
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
