"""The guard before the SuperLink: other machines reach what serves nodes, and nothing else."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.request

import pytest

from bonafed.flower.superlink import Guard


def status_of(path: str, client: tuple[str, int] | None, kind: str = "http") -> int:
    """What a request gets: 200 from the application, 403 from the guard."""
    sent = []

    async def application(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(event):
        sent.append(event)

    asyncio.run(Guard(application)({"type": kind, "path": path, "client": client}, None, send))
    return sent[0]["status"]


@pytest.mark.parametrize(
    "path",
    ["/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs", "/", "",
     "/v1/fleet", "/v1/fleetx/pull", "//v1/fleet/", "/V1/fleet/"],
)  # fmt: skip
def test_others_are_kept_out(path):
    for client in (("192.0.2.7", 50000), ("2001:db8::7", 1), ("not an address", 1), None):
        assert status_of(path, client) == 403
    for client in (("127.0.0.1", 50000), ("::1", 1)):
        assert status_of(path, client) == 200


def test_nodes_are_let_in_from_everywhere():
    assert status_of("/v1/fleet/activate-node", ("192.0.2.7", 50000)) == 200


def test_other_protocols_are_kept_out():
    assert status_of("/v1/fleet/activate-node", ("192.0.2.7", 50000), "websocket") == 403


def test_a_real_one_is_guarded(trial):
    """From here it lets everything in; the guard shows where a proxy here says whom a request is for."""
    context = ssl.create_default_context(cafile=str(trial.folder.authority))

    def status(**headers: str) -> int:
        request = urllib.request.Request(
            f"https://{trial.membership.address}/v1/control/list-nodes",
            data=b"",
            headers=headers,
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, context=context) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert status(**{"X-Forwarded-For": "192.0.2.7"}) == 403
    assert status() != 403
