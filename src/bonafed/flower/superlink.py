"""The SuperLink of a federation: Flower's own, with a guard before it.

Flower 1.41 serves nodes, the operator and its own executors on one port, and asks nobody but nodes who they
are: whoever reaches the port could start a run, that is, a program on the operator's machine, with the
rights of whoever started the SuperLink. Members reach it, and are not to be trusted with that. The guard
lets requests from other machines through to `/v1/fleet/` only, where nodes are authenticated by their keys.
Everything else is for this machine, whose users are trusted.

A reverse proxy on this machine makes every request look like one from here, unless it says whom it is for
(X-Forwarded-For); it must pass on `/v1/fleet/` only.

    python -m bonafed.flower.superlink [arguments of flower-superlink]
"""

from __future__ import annotations

import importlib
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import uvicorn

from bonafed.flower.commands import FlowerFailed, require_flower

Scope = MutableMapping[str, Any]
Call = Callable[[Scope, Any, Any], Awaitable[None]]
FOR_NODES: Final = "/v1/fleet/"
_REFUSAL: Final = b"this is for the machine of the SuperLink only"


class Guard:
    """An ASGI application that lets others in only where nodes are served."""

    def __init__(self, application: Call) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan" and not (_is_for_nodes(scope) or _is_from_here(scope)):
            headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(_REFUSAL))]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSAL})
            return
        await self._application(scope, receive, send)


def _is_for_nodes(scope: Scope) -> bool:
    return scope["type"] == "http" and str(scope["path"]).startswith(FOR_NODES)


def _is_from_here(scope: Scope) -> bool:
    client = scope.get("client")
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:  # the name that a proxy gave
        return False


class _Guarded:
    """In place of the module `uvicorn`, of which the SuperLink uses this only."""

    @staticmethod
    def run(app: Call, **options: Any) -> None:
        """Serve an application behind the guard."""
        uvicorn.run(app=Guard(app), **options)


def main() -> None:
    """Run the SuperLink of Flower behind the guard."""
    require_flower()
    superlink = importlib.import_module(
        "flwr.superlink.cli.flower_superlink"
    )  # a function has its name, too
    if vars(superlink).get("uvicorn") is not uvicorn:
        raise FlowerFailed("this version of Flower serves in another way, which would be without a guard")
    vars(superlink)["uvicorn"] = _Guarded
    superlink.flower_superlink()


if __name__ == "__main__":
    main()
