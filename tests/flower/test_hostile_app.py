"""An app that a hostile server sends to nodes: Flower runs it there, a participant's node does not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bonafed.flower.commands import Connection, environment, flwr
from bonafed.flower.participating import free_port
from bonafed.runs import toml
from tests.flower.harness import Trial

CLIENT = """
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
Path({marker!r}).write_text("the server's code was run")
app = ClientApp()
@app.query()
def query(message, context):
    return Message(RecordDict(), reply_to=message)
"""
SERVER = """
import json, time
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp
app = ServerApp()
@app.main()
def main(grid, context):
    nodes = list(grid.get_node_ids())
    waiting = set(grid.push_messages([Message(RecordDict(), node, "query", ttl=40.0) for node in nodes]))
    said = []
    while waiting:
        time.sleep(0.5)
        for reply in grid.pull_messages(waiting):
            waiting.discard(reply.metadata.reply_to_message_id)
            said.append(reply.error.reason if reply.has_error() else "")
    draft = Path({answers!r} + ".partial")
    draft.write_text(json.dumps(said))
    draft.rename({answers!r})
"""


@pytest.fixture(scope="module")
def node_of_ada(tmp_path_factory):
    """A federation in which ada alone is registered; nothing of hers is started yet."""
    trial = Trial(tmp_path_factory.mktemp("hostile") / "trial", ["ada"])
    try:
        trial.start_superlink()
        trial.register()
        yield trial
    finally:
        trial.close()


def answers_to_hostile_app(trial: Trial, folder: Path) -> list[str]:
    """What the nodes answer to an app whose code for clients leaves a mark; "": as it wants."""
    app = folder / "app"
    (app / "hostile").mkdir(parents=True)
    (app / "hostile" / "__init__.py").touch()
    (app / "hostile" / "client.py").write_text(CLIENT.format(marker=str(folder / "marker")))
    (app / "hostile" / "server.py").write_text(SERVER.format(answers=str(folder / "answers")))
    components = {"serverapp": "hostile.server:app", "clientapp": "hostile.client:app"}
    tables = {
        "project": {"name": "hostile", "version": "1.0.0", "dependencies": []},
        "tool": {"flwr": {"app": {"publisher": "mallory", "components": components}}},
    }
    (app / "pyproject.toml").write_text(toml.dumps(tables))
    flwr(Connection(trial.membership.name, trial.folder.home), ["run", str(app), trial.membership.name])
    end = time.monotonic() + 60
    while not (folder / "answers").exists():
        assert time.monotonic() < end
        time.sleep(0.2)
    return json.loads((folder / "answers").read_text())


def test_a_participant_does_not_run_the_servers_app(node_of_ada, tmp_path):
    node_of_ada.start("ada")
    node_of_ada.await_connected("ada")
    refused = "must be a message of bonafed, got other content"
    assert answers_to_hostile_app(node_of_ada, tmp_path) == [refused]
    assert not (tmp_path / "marker").exists()
    assert node_of_ada.stop("ada") == 0


def test_flowers_own_node_does_run_it(node_of_ada, tmp_path):
    """So the test above would notice."""
    folder = node_of_ada.folder
    command = [
        str(Path(sys.executable).with_name("flower-supernode")),
        "--superlink", node_of_ada.membership.address, "--root-certificates", str(folder.authority),
        "--port", str(free_port()), "--auth-supernode-private-key", str(folder.member("ada") / "key"),
    ]  # fmt: skip
    log = tmp_path / "supernode.log"
    with log.open("wb") as file:
        node = subprocess.Popen(command, env=environment(folder.home), stdout=file, stderr=file)
    try:
        end = time.monotonic() + 60
        while "SuperNode ID" not in log.read_text(errors="replace"):
            assert time.monotonic() < end
            time.sleep(0.2)
        assert answers_to_hostile_app(node_of_ada, tmp_path) == [""]
        assert (tmp_path / "marker").exists()
    finally:
        node.terminate()
        node.wait(20)
