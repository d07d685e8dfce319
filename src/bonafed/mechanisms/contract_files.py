"""Contract files of any mechanism: read, verified, written.

A file states its format, and the catalogue knows whose format it is: nobody who reads, verifies, signs or
settles a contract asks which mechanism it belongs to.
"""

from __future__ import annotations

from pathlib import Path

from bonafed.contracts.canonical import read_object
from bonafed.contracts.published import Contract
from bonafed.economics.registry import field
from bonafed.files import write_together
from bonafed.mechanisms import catalogue
from bonafed.presentation.documents import JSONObject


def read_contract(path: str | Path) -> Contract:
    """The contract in a file, of any mechanism: well formed, not yet known to be worth signing."""
    return contract_from_json(read_object(path))


def contract_from_json(data: JSONObject) -> Contract:
    """The contract that plain data states."""
    entry = catalogue.of_format(field(data, "format", "contract"))
    read = entry.load().read
    assert read is not None  # a mechanism whose files have a format reads them
    return read(data)


def write_contract(contract: Contract, path: str | Path) -> str:
    """Write a contract in canonical form and return its digest, as `sha256sum` prints it for the file."""
    write_together({Path(path): contract.content})
    return contract.digest
