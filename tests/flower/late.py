"""A participant that is late once: it sleeps in its first round before it answers.

python -m tests.flower.late me.toml
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bonafed.flower.participating import participate
from bonafed.remote.participant.open_from_disk import open_participant
from bonafed.remote.participant.settings import read_settings

LATE = 40.0  # seconds


def main() -> None:
    settings = read_settings(Path(sys.argv[1]))
    participant = open_participant(settings, print)
    slept = False

    def handle(data: bytes) -> bytes:
        nonlocal slept
        answer = participant.handle(data)
        if not slept and b'"kind":"work"' in data:
            slept = True
            print("asleep", flush=True)
            time.sleep(LATE)
        return answer

    participate(settings, handle)


if __name__ == "__main__":
    main()
