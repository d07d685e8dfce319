"""A participant that lies about whose words its answers are, once it is asked for its report.

python -m tests.flower.forger heard FILE me.toml   honest; but its signed report is left in a file
python -m tests.flower.forger replay FILE me.toml  sends the report in that file as its own answer
python -m tests.flower.forger sign ada me.toml     sends a report in ada's name, signed by its own key
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bonafed.flower.participating import participate
from bonafed.remote.keys import member_signer, read_member_key
from bonafed.remote.messages import SERVER, Message, seal
from bonafed.remote.participant.open_from_disk import open_participant
from bonafed.remote.participant.settings import read_settings

PATIENCE = 60.0  # seconds until somebody else's report is overheard


def header_of(data: bytes) -> bytes:
    return data[8 : 8 + int.from_bytes(data[4:8], "big")]


def overheard(file: Path) -> bytes:
    end = time.monotonic() + PATIENCE
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.1)
    return file.read_bytes()


def signed_for(name: str, asked: bytes, key: Path) -> bytes:
    """An answer that says it is from `name`, under the key of this participant."""
    fields: dict[str, Any] = json.loads(header_of(asked))
    answers = hashlib.sha256(header_of(asked)).hexdigest()
    content = {"report": 1.4, "commitment": None}
    forged = Message(fields["kind"], fields["run"], name, SERVER, content, None, answers)
    return seal(forged, member_signer(read_member_key(key)))[1]


def main() -> None:
    mode, what, path = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    settings = read_settings(path)
    participant = open_participant(settings, print)
    instead: dict[str, Callable[[bytes, bytes], bytes]] = {
        "heard": lambda _, answer: kept(Path(what), answer),
        "replay": lambda _asked, _answer: overheard(Path(what)),
        "sign": lambda asked, _: signed_for(what, asked, path.parent / "key"),
    }

    def handle(asked: bytes) -> bytes:
        answer = participant.handle(asked)
        return instead[mode](asked, answer) if b'"kind":"report"' in header_of(asked) else answer

    participate(settings, handle)


def kept(file: Path, answer: bytes) -> bytes:
    draft = file.with_suffix(".draft")
    draft.write_bytes(answer)
    draft.rename(file)  # whole, or not there
    return answer


if __name__ == "__main__":
    main()
