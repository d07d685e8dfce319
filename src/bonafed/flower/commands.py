"""Flower's own commands, run in the name of a federation."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bonafed.errors import BonafedError, InvalidValue, MissingExtra
from bonafed.files import write_together
from bonafed.flower.folder import Folder, refresh_flower_settings

# Nodes and the SuperLink refuse each other unless these two numbers agree, and `node` speaks to interfaces
# of Flower that change with them.
VERSION: Final = "1.41"
_TIMEOUT: Final = 60.0  # seconds that a command may take
_TAKEN: Final = "already in use"  # of a public key
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_QUIET: Final = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


class FlowerFailed(BonafedError):
    """A command of Flower failed; says which, and what it said."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How `flwr` reaches a SuperLink."""

    name: str  # of the connection in Flower's settings
    home: Path  # FLWR_HOME: the folder of these settings


def require_flower() -> None:
    """Refuse versions of Flower with which this was not tested."""
    try:
        version = importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingExtra("a Flower federation", "flower") from error
    if version.split(".")[:2] != VERSION.split("."):
        raise InvalidValue("flwr", f"must be {VERSION}: pip install 'bonafed[flower]'", version)


def environment(home: Path) -> dict[str, str]:
    """Variables for processes of Flower: its folder, no telemetry, no look for newer versions."""
    here = str(Path(sys.executable).parent)  # its processes start each other by name
    path = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])
    more = {"FLWR_HOME": str(home), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5", "PATH": path}
    return {**os.environ, **_QUIET, **more}


def superlink_command(folder: Folder) -> list[str]:
    """What starts the SuperLink of a federation, with a guard before it."""
    host, _, port = folder.membership().address.rpartition(":")
    bare = host.strip("[]")
    return [
        sys.executable, "-m", "bonafed.flower.superlink",
        "--ssl-ca-certfile", str(folder.authority),
        "--ssl-certfile", str(folder.server_certificate),
        "--ssl-keyfile", str(folder.server_key),
        "--enable-supernode-auth",
        "--database", str(folder.database),
        "--host", bare if bare in _LOOPBACK else "0.0.0.0",
        "--port", port,
        "--disable-runtime-dependency-installation",
    ]  # fmt: skip


def flwr(connection: Connection, arguments: Sequence[str]) -> Mapping[str, Any]:
    """Run `flwr` with these arguments; what it says, as data."""
    command = [sys.executable, "-m", "flwr.cli.app", *arguments, "--format", "json"]
    what = f"flwr {arguments[0]}"
    try:
        done = subprocess.run(
            command, env=environment(connection.home), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=_TIMEOUT, check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise FlowerFailed(f"{what} gave no answer within {_TIMEOUT:.0f} seconds") from error
    said = _data(done.stdout)
    if done.returncode or not said.get("success", True):
        reason = said.get("error-message") or done.stderr.strip() or done.stdout.strip()
        raise FlowerFailed(f"{what}: {' '.join(str(reason).split())[-500:]}")
    return said


def _data(text: str) -> Mapping[str, Any]:
    """The JSON object that a command printed; empty if it printed anything else."""
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def register(folder: Folder) -> Mapping[str, bool]:
    """Register the keys of all members with the running SuperLink; by name, whether it is new there."""
    membership = folder.membership()
    require_flower()
    refresh_flower_settings(folder, membership)
    connection = Connection(membership.name, folder.home.absolute())
    return {name: _register(connection, key) for name, key in membership.members.items()}


def _register(connection: Connection, key: str) -> bool:
    key_file = connection.home / "registering.pub"  # Flower reads keys from files only
    write_together({key_file: f"{key}\n".encode("ascii")})
    try:
        flwr(connection, ["supernode", "register", str(key_file), connection.name])
    except FlowerFailed as error:
        if _TAKEN in str(error):
            return False
        raise
    finally:
        key_file.unlink()
    return True
