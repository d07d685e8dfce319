"""Members of a federation simulated by Flower's engine (Ray), on one machine or a cluster.

Everything but the network is as in deployment: the same relay, the same participants, each with its own
`me.toml` in the federation's folder. The engine numbers its nodes; number k is the k-th name of the roster.
Nodes are not registered: here the operator simulates them, and there is nobody to be told apart.

A SuperLink of one's own is started for it. With RAY_ADDRESS in the environment the members are spread over
that cluster, whose machines must all see the federation's folder under the same path.

`make_trial` writes such a folder: its members hold the parts of a known data set, as a config splits it.
The same config that runs on one machine runs on these members, with the same records, names and reports, so
that both can be compared.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, final

from bonafed.contracts.terms import Reports
from bonafed.errors import AskFailed, MissingExtra
from bonafed.files import open_log, write_together
from bonafed.flower.commands import Connection, environment
from bonafed.flower.folder import DEFAULT_ADDRESS, Folder, NewFederation, make_federation
from bonafed.flower.link import OnlineNodes, RelayConnection, RelayedTransport, Tell
from bonafed.flower.participating import free_port
from bonafed.learning.federation import Failure
from bonafed.mechanisms.protocol import Config
from bonafed.remote.roster import Membership
from bonafed.runs import toml
from bonafed.runs.config import read_tables
from bonafed.runs.data import hold
from bonafed.runs.prepare import prepare

DEFAULT_OPENER: Final = "bonafed.remote.participant.open_from_disk:open_participant"
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

    def _named(self, relay: RelayConnection) -> OnlineNodes:
        run, nodes = self._numbers
        if run != relay.run:
            nodes = self._asked(relay)
            self._numbers = (relay.run, nodes)
        return OnlineNodes(nodes)

    def _asked(self, relay: RelayConnection) -> dict[str, int]:
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


def make_trial(
    path: Path, config: Config, reports: Reports | None = None, address: str = DEFAULT_ADDRESS
) -> Membership:
    """Write the folder of a federation whose members hold what simulated clients of this config would."""
    setting = prepare(config, reports=reports, contract=config.contract)
    question, members = setting.mechanism.question, setting.agreement.members
    membership = make_federation(path, NewFederation(members.names, address))
    config, folder = hold(config).config, Folder(path)  # with paths that are valid from any folder
    files = {}
    for number, name in enumerate(members.names):
        costs = {} if question is None else {question.name: float(setting.agreement.reports[name])}
        settings = trial_settings(folder.settings(name), config, number, costs)
        files[folder.settings(name)] = toml.dumps(settings).encode()
    write_together(files)
    return membership


def trial_settings(
    path: Path, config: Config, number: int, costs: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """The settings in a file, with part `number` of the config's data, and these costs."""
    tables = read_tables(path)
    data = {key: value for key, value in config.data.table().items() if value not in (None, "")}
    split = {key: value for key, value in config.partition.table().items() if value is not None}
    data["part"] = {"number": number, "seed": config.run.seed, **split}
    policy = {**tables["policy"], "reproducible_noise": config.noise == "reproducible"}
    return {**tables, "data": data, "costs": dict(costs), "policy": policy}
