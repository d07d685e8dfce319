"""Contract files of any mechanism: how they are read.

A file states its format, and the catalogue knows whose format it is: nobody who reads, verifies, signs or
settles a contract asks which mechanism it belongs to.
"""

from __future__ import annotations

from pathlib import Path

from bonafed.contracts.canonical import read_object
from bonafed.contracts.published import PublishedContract
from bonafed.economics.registry import field
from bonafed.mechanisms import catalogue
from bonafed.presentation.documents import JSONObject


def read_contract(path: str | Path) -> PublishedContract:
    """The contract in a file, of any mechanism: well formed, not yet known to be worth signing."""
    return contract_from_json(read_object(path))


def contract_from_json(data: JSONObject) -> PublishedContract:
    """The contract that plain data states."""
    entry = catalogue.of_format(field(data, "format", "contract"))
    read = entry.load().read
    assert read is not None  # a mechanism whose files have a format reads them
    return read(data)
