"""`bonafed federation`: the folder of a federation over Flower, its registration, and who is there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bonafed.cli.options import CommandGroup, Json
from bonafed.errors import InvalidValue
from bonafed.flower.commands import environment, require_flower, superlink_command
from bonafed.flower.commands import register as register_keys
from bonafed.flower.folder import DEFAULT_ADDRESS, Folder, NewFederation, make_federation
from bonafed.flower.link import FlowerTransport
from bonafed.presentation import terminal
from bonafed.presentation.documents import Column, Document, Table, counted

if TYPE_CHECKING:
    from bonafed.flower.link import OnlineNodes
    from bonafed.remote.roster import Membership

federation_app = typer.Typer(
    cls=CommandGroup,
    help="A federation over Flower: set it up, register its members, see who is there.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
FederationFolder = Annotated[Path, typer.Argument(metavar="DIR", hidden=True)]


@federation_app.command()
def init(
    folder: FederationFolder,
    member: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A member; once for each (required)."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where members reach the SuperLink; by default, here."),
    ] = None,
    public_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE.pub",
            help="The public key of a member that made one itself (ssh-keygen -t ecdsa -b 384).",
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your own certificates: the one that vouches for the server."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --ca: the certificate of the server.")
    ] = None,
    server_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --ca: the private key of that certificate.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Set up a federation: a new folder with all that its operator and its members need.

    It holds a roster that binds names to keys, keys and certificates, a folder for each member, the app
    for Flower, and a README.txt with the commands to type, in order. Its name is that of the federation.

    Certificates and keys that are made here are for trials and closed networks. Take your own with --ca,
    --certificate and --server-key, and the public keys of members with --public-key.

    Example: bonafed federation init clinics --member north --member south --address fl.example:9092
    """

    keys = dict(_pair(text) for text in public_key or ())
    new = NewFederation(tuple(member or ()), address or DEFAULT_ADDRESS, keys, ca, certificate, server_key)
    membership = make_federation(folder, new)
    if as_json:
        terminal.say_json(_identity(membership))
        return
    members = counted(len(membership.members), "member")
    terminal.tell(f"federation {membership.name} at {membership.address}, of {members}")
    terminal.tell(f"digest of the roster: {membership.digest}")
    terminal.tell(f"what to type next: {folder / 'README.txt'}")


def _pair(text: str) -> tuple[str, Path]:
    name, equals, path = text.rpartition("=")
    if not equals or not name or not path:
        raise InvalidValue("--public-key", "must be NAME=FILE.pub", repr(text))
    return name, Path(path)


@federation_app.command()
def serve(folder: FederationFolder) -> None:
    """Run the SuperLink, which members connect to, until stopped (Ctrl-C).

    It is Flower's, started with the certificates of the folder, authentication of nodes, and a guard:
    other machines reach what serves nodes, and nothing else. What it knows is kept in the folder.

    Example: bonafed federation serve clinics
    """
    paths = Folder(folder.absolute())
    command = superlink_command(paths)
    require_flower()
    os.execve(command[0], command, environment(paths.home))


@federation_app.command()
def register(folder: FederationFolder, as_json: Json = False) -> None:
    """Register the keys of all members with the SuperLink, which must be running.

    Only nodes with a registered key may connect. Those that are registered already stay as they are.

    Example: bonafed federation register clinics
    """
    registered = register_keys(Folder(folder))
    if as_json:
        terminal.say_json({"new": [name for name, new in registered.items() if new]})
        return
    for name, new in registered.items():
        terminal.tell(f"{name}: {'registered' if new else 'was registered before'}")


@federation_app.command()
def status(folder: FederationFolder, as_json: Json = False) -> None:
    """Say who is connected, under which name and key, who is missing, and who is a stranger.

    Names come from the roster, by the key that a node is registered with, not from what a node says of
    itself. A stranger's key is registered, but not on the roster: it is sent nothing.

    Example: bonafed federation status clinics
    """
    with terminal.working("asking the SuperLink"), FlowerTransport(folder) as transport:
        online = transport.online_nodes()
    terminal.show(_status(transport.membership, online), as_json=as_json)


def _identity(membership: Membership) -> dict[str, object]:
    return {"federation": membership.name, "address": membership.address, "roster": membership.digest}


def _status(membership: Membership, online: OnlineNodes) -> Document:
    digests = membership.key_digests
    rows = [(name, name in online.nodes, digest) for name, digest in digests.items()]
    columns = (Column("member", left=True), Column("connected", left=True), Column("key", left=True))
    blocks: list[Table | str] = [
        Table(f"{membership.name} at {membership.address}", columns, tuple(rows), _strangers(online))
    ]
    members = [{"name": name, "connected": here, "key": digest} for name, here, digest in rows]
    data = {**_identity(membership), "members": members, "strangers": list(online.strangers)}
    return Document((*blocks, f"digest of the roster: {membership.digest}"), data)


def _strangers(online: OnlineNodes) -> str:
    count = len(online.strangers)
    if not count:
        return ""
    keys: Sequence[str] = [key or "without a key" for key in online.strangers]
    return f"{counted(count, 'stranger')}, not on the roster: {', '.join(keys)}"
