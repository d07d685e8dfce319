"""Members of a federation simulated by Flower's engine (Ray), on one machine or a cluster.

Everything but the network is as in deployment: the same relay, the same participants, each with its own
`me.toml` in the federation's folder. The engine numbers its nodes; number k is the k-th name of the roster.
Nodes are not registered: here the operator simulates them, and there is nobody to be told apart.

A SuperLink of one's own is started for it. With RAY_ADDRESS in the environment the members are spread over
that cluster, whose machines must all see the federation's folder under the same path.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, final

from bonafed.errors import AskFailed, MissingExtra
from bonafed.files import open_log, write_together
from bonafed.flower.commands import Connection, environment
from bonafed.flower.folder import Folder
from bonafed.flower.link import Relay, RelayedTransport, Standing, Tell
from bonafed.flower.participating import free_port
from bonafed.flower.simulated import DEFAULT_OPENER
from bonafed.learning.federation import Failure
from bonafed.runs import toml

_NAME: Final = "simulation"  # of the connection
_TTL: Final = 120.0  # seconds in which a node is to say its number: the engine may still be starting
_ENDING: Final = 20.0  # seconds in which the SuperLink is to end by itself
_READY: Final = 30.0  # seconds in which it is to start


@final
class SimulatedTransport(RelayedTransport):
    """Reaches members that are simulated, by the names and settings in the folder of a federation."""

    def __init__(
        self,
        folder: Path,
        *,
        processors: float = 1.0,  # that a member uses while it works
        opener: str = DEFAULT_OPENER,  # module:function that makes a participant from its settings
        tell: Tell = lambda _text: None,
    ) -> None:
        self._folder = Folder(folder)
        super().__init__(self._folder.membership(), new_runs=1, patience=30.0, tell=tell)
        self._processors, self._opener = processors, opener
        self._numbers: tuple[str, dict[str, int]] = ("", {})  # of a run: the nodes by name

    def _open(self, resources: ExitStack, private: Path) -> Connection:
        if importlib.util.find_spec("ray") is None:
            raise MissingExtra("a simulated federation", "flower")
        home, address = private / "flower", f"127.0.0.1:{free_port()}"
        home.mkdir()
        settings = {"superlink": {"default": _NAME, _NAME: {"address": address, "insecure": True}}}
        write_together({home / "config.toml": toml.dumps(settings).encode()})
        host, _, port = address.partition(":")
        with open_log(private / "superlink.log") as log:
            superlink = subprocess.Popen(
                [str(Path(sys.executable).with_name("flower-superlink")), "--simulation", "--insecure",
                 "--host", host, "--port", port, "--disable-runtime-dependency-installation"],
                env=environment(home), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        resources.callback(_end, superlink)
        _await(superlink, private / "superlink.log")
        return Connection(_NAME, home)

    def _run(self) -> tuple[Path, Sequence[str]]:
        count = len(self.membership.members)
        engine = f"num-supernodes={count} client-resources-num-cpus={self._processors:g}"
        own = f'folder="{self._folder.path.absolute()}" opener="{self._opener}"'
        return self._folder.app, ("--federation-config", engine, "--run-config", own)

    def _named(self, relay: Relay) -> Standing:
        run, nodes = self._numbers
        if run != relay.run:
            nodes = self._asked(relay)
            self._numbers = (relay.run, nodes)
        return Standing(nodes)

    def _asked(self, relay: Relay) -> dict[str, int]:
        """The nodes by name; each says its number."""
        names, nodes = list(self.membership.members), {}

        def note(node: int, answer: bytes | Failure) -> None:
            if isinstance(answer, Failure):
                raise AskFailed(f"a simulated node {answer.reason}")
            nodes[names[int(answer)]] = node

        relay.ask({node: b"" for node, _ in relay.nodes()}, _TTL, note)
        return nodes


def _await(superlink: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the SuperLink serves requests."""
    end = time.monotonic() + _READY
    while b"Uvicorn running" not in log.read_bytes():
        if superlink.poll() is not None or time.monotonic() > end:
            said = " ".join(log.read_text(errors="replace").split())[-300:]
            raise AskFailed(f"the SuperLink of the simulation did not start: {said}")
        time.sleep(0.1)


def _end(superlink: subprocess.Popen[bytes]) -> None:
    superlink.terminate()
    with suppress(subprocess.TimeoutExpired):
        superlink.wait(_ENDING)
    if superlink.poll() is None:
        superlink.kill()
        superlink.wait()
