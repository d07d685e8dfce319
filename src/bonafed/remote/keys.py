"""Keys: a participant's, with which its node is registered and it signs, and the operator's.

A participant has one key, ECDSA on P-384 as Flower's authentication of nodes wants it, in OpenSSH's format
(`ssh-keygen -t ecdsa -b 384` makes one as well). The operator's is the Ed25519 key that signs contracts
(`bonafed keygen`). A key is told apart by its digest, the SHA-256 of the public key in DER.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import write_new, write_together
from bonafed.remote.messages import SERVER, Sign, Verify

_ECDSA = ec.ECDSA(hashes.SHA256())
_RULE = "must be a new file: a key is never replaced"
PublicKey = ec.EllipticCurvePublicKey | Ed25519PublicKey


def make_member_key(path: Path) -> Path:
    """Write a new private key of a member (mode 0600) and, beside it, its public key; returns its path."""
    beside = path.with_name(path.name + ".pub")
    if beside.exists():
        raise InvalidValue("key", _RULE, beside)
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    write_new(path, private, "key", _RULE)
    try:
        write_together({beside: (public_text(key.public_key()) + "\n").encode()})
    except BaseException:
        path.unlink(missing_ok=True)  # neither without the other
        raise
    return beside


def read_member_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A member's private key."""
    try:
        key = serialization.load_ssh_private_key(_read(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnreadableFile(
            path, "must be a private key in OpenSSH's format, without a password"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP384R1):
        raise UnreadableFile(path, "must be an ECDSA key on the curve P-384")
    return key


def member_signer(key: ec.EllipticCurvePrivateKey) -> Sign:
    """Signs as a member."""
    return lambda content: key.sign(content, _ECDSA)


def operator_signer(path: Path) -> Sign:
    """Signs as the operator, whose private key is in this file."""
    try:
        key = serialization.load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnreadableFile(path, "must be a private key in PEM, without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UnreadableFile(path, "must be an Ed25519 key; make one with bonafed keygen")
    return key.sign


def member_public(text: str, name: str = "public key") -> ec.EllipticCurvePublicKey:
    """A member's public key from a line as in a `.pub` file."""
    try:
        key = serialization.load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidValue(name, "must be a public key as in a .pub file", repr(text)[:60]) from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise InvalidValue(name, "must be an ECDSA key on the curve P-384", type(key).__name__)
    return key


def operator_public(pem: bytes, name: str = "operator") -> Ed25519PublicKey:
    """The operator's public key."""
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidValue(name, "must be a public key in PEM", repr(pem)[:60]) from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidValue(name, "must be an Ed25519 key; make one with bonafed keygen", type(key).__name__)
    return key


def public_text(key: ec.EllipticCurvePublicKey) -> str:
    """A public key as a line of text."""
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return key.public_bytes(encoding, form).decode()


def key_digest(key: PublicKey) -> str:
    """SHA-256 of the public key in DER, in hex."""
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(encoding, form)).hexdigest()


def verifier(operator: Ed25519PublicKey, members: Mapping[str, ec.EllipticCurvePublicKey]) -> Verify:
    """Whether a signature is that of the server, or of a member of this name."""
    checks: dict[str, Callable[[bytes, bytes], Any]] = {SERVER: operator.verify}
    checks |= {name: _checking(key) for name, key in members.items()}

    def verify(sender: str, content: bytes, signature: bytes) -> bool:
        check = checks.get(sender)
        if check is None:
            return False
        try:
            check(signature, content)
        except InvalidSignature:
            return False
        return True

    return verify


def _checking(key: ec.EllipticCurvePublicKey) -> Callable[[bytes, bytes], None]:
    return lambda signature, content: key.verify(signature, content, _ECDSA)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
