"""A participant for tests: `python -m tests.flower.echo me.toml` answers "name:message"."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bonafed.flower.participating import participate
from bonafed.remote.participant.settings import ParticipantSettings, read_settings


class Echo:
    """Answers "name:message"; "fail" has it fail, "wait S" wait S seconds first, "who" say its process."""

    def __init__(self, settings: ParticipantSettings) -> None:
        self._name = settings.name.encode()

    def handle(self, message: bytes) -> bytes:
        if message == b"fail":
            raise ValueError("my cost is 0.7")
        if message == b"who":
            return str(os.getpid()).encode()
        if message.startswith(b"wait "):
            time.sleep(float(message.split()[1]))
        return self._name + b":" + message


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    me = read_settings(Path(sys.argv[1]))
    participate(me, Echo(me).handle, _tell)
