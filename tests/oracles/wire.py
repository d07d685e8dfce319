"""A server, written from the description of the wire format alone: it shares nothing with the product.

It holds the operator's key, so that what it sends is signed as it should be; what it asks is for the test
to say.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DOMAIN = b"bonafed message 1\x00"


def compact(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")


def message(key_pem: bytes, run: str, to: str, kind: str, content: Any, numbers: Any = None) -> bytes:
    raw, body = b"", None
    if numbers is not None:
        raw = np.asarray(numbers).astype("<f4").tobytes()
        body = {"dtype": "<f4", "length": len(raw) // 4, "sha256": hashlib.sha256(raw).hexdigest()}
    header = compact(
        {
            "answers": "",
            "body": body,
            "content": content,
            "kind": kind,
            "recipient": to,
            "run": run,
            "sender": "",
        }
    )
    key = serialization.load_pem_private_key(key_pem, None)
    signature = key.sign(DOMAIN + header)  # type: ignore[union-attr,call-arg]
    pack = struct.pack
    return b"BFM1" + pack(">I", len(header)) + header + pack(">I", len(signature)) + signature + raw


def answer(data: bytes, public: str) -> tuple[dict[str, Any], bytes]:
    """Header and body of an answer whose signature holds under this public key, as in a .pub file."""
    assert data[:4] == b"BFM1"
    (length,) = struct.unpack(">I", data[4:8])
    header = data[8 : 8 + length]
    at = 8 + length
    (signed,) = struct.unpack(">I", data[at : at + 4])
    signature, body = data[at + 4 : at + 4 + signed], data[at + 4 + signed :]
    key = serialization.load_ssh_public_key(public.encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    try:
        key.verify(signature, DOMAIN + header, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise AssertionError("the answer is not signed by this participant") from error
    fields: dict[str, Any] = json.loads(header)
    if fields["body"] is not None:
        assert hashlib.sha256(body).hexdigest() == fields["body"]["sha256"]
    return fields, body


def training(identifier: str, **changes: Any) -> dict[str, Any]:
    """A task of local training on a model of 650 weights that are the first numbers of the body."""
    spec = {
        "batch_size": 48, "learning_rate": 0.1, "epochs": 1, "steps": None, "optimizer": "sgd",
        "momentum": 0.9, "weight_decay": 0.0, "clip": None, "batches": "passes", "later_rates": None,
    }  # fmt: skip
    spec |= changes.pop("training", {})
    work = {
        "kind": "train", "training": spec, "round_number": 1, "seed": 0, "copy": 0, "noise_multiplier": 0.0
    }  # fmt: skip
    work |= changes
    return {"identifier": identifier, "work": work, "noise": 0.0, "shape": [1, 650], "at": 0}
