"""`bonafed keygen` and `bonafed sign`: an operator answers for a published contract."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bonafed.cli.options import missing
from bonafed.contracts import signatures
from bonafed.contracts.signatures import make_keys, signature_path
from bonafed.errors import InvalidValue
from bonafed.mechanisms.contract_files import read_contract
from bonafed.presentation import terminal


def keygen(
    key: Annotated[Path, typer.Argument(metavar="KEY.pem", hidden=True)],
) -> None:
    """Make a key to sign contracts with: KEY.pem for yourself, KEY.pub.pem for everybody.

    An Ed25519 key in PEM. The private part is readable by you alone (mode 0600) and has no password: keep
    it where you keep your other keys. Send participants the public part separately from the contract.

    Example: bonafed keygen operator.pem
    """
    public = make_keys(key)
    terminal.say(f"{key} is private: whoever has it can sign as you.")
    terminal.say(f"{public} is public: bonafed verify --key {public}")


def sign(
    contract_file: Annotated[Path, typer.Argument(metavar="CONTRACT.json", hidden=True)],
    key: Annotated[
        Path | None, typer.Option(metavar="KEY.pem", help="The private key of the operator. (required)")
    ] = None,
) -> None:
    """Sign a published contract, into CONTRACT.json.sig.

    The signature is for the canonical form, whose digest `bonafed verify` prints: it covers what the
    contract says, however the file is laid out. What the contract promises is checked by `bonafed verify`.

    Example: bonafed sign contract.json --key operator.pem
    """
    if key is None:
        raise missing("--key", ": the private key that `bonafed keygen` wrote")

    contract = read_contract(contract_file)
    signature = signatures.signature_path(contract_file)
    terminal.write_together({signature: signatures.sign(contract.content, key)})
    terminal.say(f"SHA-256 {contract.digest}")
    terminal.say(f"wrote {signature}")


def contract_files(path: Path, content: bytes, key: Path | None) -> dict[Path, bytes]:
    """A contract as files: itself and, with a key, its signature; none that is signed is replaced."""
    from bonafed.contracts.signatures import sign

    if signature_path(path).exists() and not (path.is_file() and path.read_bytes() == content):
        rule = f"must not replace a contract that is signed ({signature_path(path)}): name another file"
        raise InvalidValue("--save", rule, path)
    if key is None:
        return {path: content}
    return {path: content, signature_path(path): sign(content, key)}
