"""The server's evidence: what every client signed, and which answers were counted; one line each, on disk.

    begin       the run, the federation, the roster as it was described
    concluded   everybody has accepted the terms
    signed      the header of a client's message, and its signature: reports, acceptances, answers, receipts
    counted     identifiers of a client's answers that the server counts
    asked again those of answers that were lost with a killed server: they count when they come again

The file stands beside the folder of the run, `<folder>.records.jsonl`. A dispute is settled from it
(docs/how-to/settle-a-dispute.md). It holds no numbers of an answer, only their digest, which is in the
signed header.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import APPENDING
from bonafed.remote.messages import JSONObject, Sealed

ENDING = ".records.jsonl"


def evidence_path(folder: Path) -> Path:
    """Where the records of a run stand."""
    return folder.with_name(folder.name + ENDING)


def was_remote(folder: Path) -> bool:
    """Whether a run was on a federation."""
    return evidence_path(folder).is_file()


class Evidence:
    """Lines that are appended and forced to disk; without a path they are kept in memory only."""

    def __init__(self, path: Path | None, key_digests: Mapping[str, str] | None = None) -> None:
        self._path, self._lines = path, list[JSONObject]()
        self.key_digests: Mapping[str, str] = key_digests or {}
        if path is not None and path.exists():
            self._lines = _read(path)

    def beside(self, ending: str) -> Path | None:
        """Another file of the same run; None: nothing is kept."""
        if self._path is None:
            return None
        return self._path.with_name(self._path.name.removesuffix(ENDING) + ending)

    @property
    def lines(self) -> Sequence[JSONObject]:
        """All lines so far, the oldest first."""
        return self._lines

    @property
    def has_terms(self) -> bool:
        """Whether everybody accepted the terms of the run."""
        return any(line["what"] == "concluded" for line in self._lines)

    @property
    def secure(self) -> int | None:
        """Colluders that secure sums of this run allow for; None: it has none."""
        number: int | None = self._lines[0].get("secure") if self._lines else None
        return number

    def begin(self, run: str, federation: str, members: JSONObject, secure: int | None = None) -> None:
        """Write the first line, of a new run."""
        if self._lines:
            raise InvalidValue("records", "must not hold a run yet", self._path)
        self._append(
            {
                "what": "begin", "run": run, "federation": federation, "members": members,
                "secure": secure, "keys": dict(self.key_digests),
            }
        )  # fmt: skip

    def begun(self) -> tuple[str, JSONObject, dict[str, list[str]]]:
        """Run, roster, and what was counted of each, of a run that goes on."""
        if not self._lines or self._lines[0]["what"] != "begin":
            raise InvalidValue("records", "must hold the beginning of the run", self._path)
        if not self.has_terms:
            raise InvalidValue("records", "must hold terms that everybody accepted", self._path)
        counted = dict[str, list[str]]()
        for line in self._lines:
            own = counted.setdefault(line.get("client", ""), [])
            if line["what"] == "counted":
                own += line["identifiers"]
            elif line["what"] == "asked again":
                counted[line["client"]] = [one for one in own if one not in line["identifiers"]]
        return self._lines[0]["run"], self._lines[0]["members"], counted

    def concluded(self) -> None:
        """Everybody accepted the terms."""
        self._append({"what": "concluded"})

    def keep(self, sealed: Sealed) -> None:
        """What a client signed."""
        self._append(
            {
                "what": "signed", "client": sealed.message.sender, "kind": sealed.message.kind,
                "header": base64.b64encode(sealed.header).decode(),
                "signature": base64.b64encode(sealed.signature).decode(),
            }
        )  # fmt: skip

    def count(self, client: str, identifiers: Sequence[str]) -> None:
        """The server counts these answers of a client."""
        if identifiers:
            self._append({"what": "counted", "client": client, "identifiers": list(identifiers)})

    def uncount(self, client: str, identifiers: Sequence[str]) -> None:
        """These answers were lost, and are asked for again."""
        self._append({"what": "asked again", "client": client, "identifiers": list(identifiers)})

    def _append(self, line: JSONObject) -> None:
        self._lines.append(line)
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, APPENDING, 0o600)
        try:
            os.write(handle, json.dumps(line, sort_keys=True).encode() + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)


def _read(path: Path) -> list[Any]:
    """All whole lines; a last one that a kill cut short is dropped from the file."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    lines = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            lines.append(json.loads(line))
        except ValueError as error:
            raise UnreadableFile(path, f"must be JSON ({error})", number) from error
    return lines
