"""`bonafed keygen` and `bonafed sign`: an operator answers for a published contract."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bonafed.cli import tables
from bonafed.files import write_together
from bonafed.mechanisms.contracts import signatures
from bonafed.mechanisms.contracts.canonical import read_object
from bonafed.mechanisms.sampling.rules import read_published


def keygen(
    key: Annotated[Path, typer.Argument(metavar="KEY.pem", hidden=True)],
) -> None:
    """Make a key to sign contracts with: KEY.pem for yourself, KEY.pub.pem for everybody.

    An Ed25519 key in PEM. The private part is readable by you alone (mode 0600) and has no password: keep
    it where you keep such things. Hand the public part to participants by another way than the contract.

    Example: bonafed keygen operator.pem
    """
    public = signatures.make_keys(key)
    console = tables.new_console()
    console.print(f"{key} is private: whoever has it signs as you.", markup=False, soft_wrap=True)
    console.print(f"{public} is public: bonafed verify --key {public}", markup=False, soft_wrap=True)


def sign(
    contract: Annotated[Path, typer.Argument(metavar="CONTRACT.json", hidden=True)],
    key: Annotated[Path, typer.Option(metavar="KEY.pem", help="The private key.", show_default=False)],
) -> None:
    """Sign a published contract, into CONTRACT.json.sig.

    The signature holds for the canonical form, of which `bonafed verify` prints the digest: for what the
    contract says, however the file is laid out. What the contract promises is checked by `bonafed verify`.

    Example: bonafed sign contract.json --key operator.pem
    """
    document = read_published(read_object(contract))
    written = {signatures.signature_path(contract): signatures.sign(document.content, key)}
    write_together(written)
    console = tables.new_console()
    console.print(f"SHA-256 {document.digest}", markup=False, soft_wrap=True)
    tables.say_written(console, written)
