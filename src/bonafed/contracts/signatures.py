"""An operator's signature under a published contract: Ed25519 (RFC 8032), keys and signatures as text.

What is signed are the bytes of the canonical form, so a signature holds for everything that a contract says
and for nothing else. It lies beside the contract, in a file with `.sig` added to its name, in base64.
Keys are PEM files (PKCS 8, SubjectPublicKeyInfo), which other tools read too.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import require_writable, write_new, write_together


def signature_path(contract: Path) -> Path:
    """Where the signature of a contract lies."""
    return contract.with_name(contract.name + ".sig")


def public_path(key: Path) -> Path:
    """Where the public part of a key lies: key.pem, key.pub.pem."""
    return key.with_name(f"{key.stem}.pub{key.suffix}")


def make_keys(path: Path) -> Path:
    """Write a new private key, for its owner only (mode 0600), and the public one; returns its path."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    beside, rule = public_path(path), "must be a new file: a key is never replaced"
    for place in (path, beside):
        require_writable(place)
        if place.exists():
            raise InvalidValue("key", rule, place)
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_new(path, private, "key", rule)
    try:
        write_together({beside: public})
    except BaseException:
        for place in (path, beside):  # neither without the other
            place.unlink(missing_ok=True)
        raise
    return beside


def sign(content: bytes, key: Path) -> bytes:
    """The signature of a canonical form, as the content of a file."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(_read(key), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnreadableFile(key, "must be a private key in PEM, without a password") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise UnreadableFile(key, "must be an Ed25519 key; make one with bonafed keygen")
    return base64.b64encode(private.sign(content)) + b"\n"


def signature_holds(content: bytes, signature: bytes, key: Path) -> bool:
    """Whether whoever holds the private part of a public key signed just this canonical form."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        public = load_pem_public_key(_read(key))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnreadableFile(key, "must be a public key in PEM") from error
    if not isinstance(public, Ed25519PublicKey):
        raise UnreadableFile(key, "must be an Ed25519 key")
    try:
        public.verify(base64.b64decode(signature.strip(), validate=True), content)
    except (InvalidSignature, binascii.Error):
        return False
    return True


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
