"""The side of simulated members: a ClientApp in Flower's simulation engine (Ray).

The engine gives a message to whichever of its processes is free, so that any of them may have to answer for
any member. A participant, however, is in one process at a time: its journal is, and what it has in memory
must not fall behind it. So members live in hosts, processes of Ray with a name, each with its share of the
members; an engine's process passes a message on to the host of its member.

A message without content asks for the number of the member (`partition-id`).
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from bonafed.flower.folder import Folder
from bonafed.flower.frames import packed, unpacked
from bonafed.flower.participant_process import FAILED
from bonafed.remote.messages import Handle
from bonafed.remote.participant.settings import read_settings

FOLDER, OPENER = "folder", "opener"  # keys of the run's config: the federation, and who opens a participant
_NUMBER: Final = "partition-id"


def answer(message: Message, context: Context) -> Message:
    """Answer as a simulated member."""
    if _NUMBER not in context.node_config:
        reason = "this app is for simulations: a participant's node is started by bonafed participate"
        return Message(Error(ErrorCode.LOAD_CLIENT_APP_EXCEPTION, reason), reply_to=message)
    number, data = int(context.node_config[_NUMBER]), unpacked(message.content)
    if not data:
        return Message(packed(str(number).encode()), reply_to=message)
    folder, opener = str(context.run_config[FOLDER]), str(context.run_config[OPENER])
    try:
        return Message(packed(_ask_host(folder, opener, number, data)), reply_to=message)
    except Exception:  # as the participant's process does: what a participant raises is not for the server
        traceback.print_exc()
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, FAILED), reply_to=message)


app = ClientApp()
app.query()(answer)


_hosts: dict[int, Any] = {}  # that this process has asked: Ray ends those that nobody refers to


def _ask_host(folder: str, opener: str, number: int, data: bytes) -> bytes:
    import ray

    slot = number % max(1, int(ray.cluster_resources().get("CPU", 1)))
    if slot not in _hosts:
        # it takes no share of the processors: whoever asks waits meanwhile, and has one
        options = {"num_cpus": 0, "get_if_exists": True, "scheduling_strategy": "SPREAD"}
        _hosts[slot] = ray.remote(Host).options(name=f"bonafed-{slot}", **options).remote(folder, opener)
    try:
        reply: bytes = ray.get(_hosts[slot].handle.remote(number, data))
    except ray.exceptions.RayActorError:
        del _hosts[slot]  # it was killed; the next message has another one started
        raise
    return reply


class Host:
    """Some of the members of a federation."""

    def __init__(self, folder: str, opener: str) -> None:
        self._folder = Folder(Path(folder))
        self._names = list(self._folder.membership().members)
        module, _, name = opener.partition(":")
        self._open: Callable[..., Any] = getattr(importlib.import_module(module), name)
        self._handles: dict[int, Handle] = {}  # of those who were asked so far

    def handle(self, number: int, data: bytes) -> bytes:
        """The answer of a member, by its number on the roster."""
        if number not in self._handles:
            settings = read_settings(self._folder.settings(self._names[number]))
            self._handles[number] = self._open(settings).handle
        return self._handles[number](data)
