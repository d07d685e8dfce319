"""The folder of a federation: where things are in it, and how a new one is written.

roster.toml              names, and the public key of each (`bonafed.remote.roster`)
operator.pem             the operator's private key, and operator.pub.pem, the public one
certificates/            ca.crt, server.crt, server.key: by what members know the SuperLink
members/NAME/            what NAME needs: me.toml, key and key.pub, copies of the roster, ca.crt and
                         operator.pub.pem
app/pyproject.toml       the Flower app
flower/config.toml       Flower's own settings (FLWR_HOME)
README.txt               the commands to type, in order

Nothing is ever overwritten.
"""

from __future__ import annotations

import datetime
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bonafed import __version__
from bonafed.contracts.signatures import make_keys
from bonafed.errors import InvalidValue, MissingValue, UnreadableFile
from bonafed.files import write_new, write_together
from bonafed.flower.certificates import VALID, Certificates, make_certificates
from bonafed.remote.keys import make_member_key, member_public, public_text
from bonafed.remote.roster import Membership, address, federation_name, member_names, read_roster
from bonafed.runs import toml


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a federation."""

    path: Path

    @property
    def roster(self) -> Path:
        """Names and public keys."""
        return self.path / "roster.toml"

    @property
    def operator_key(self) -> Path:
        """The operator's private key."""
        return self.path / "operator.pem"

    @property
    def authority(self) -> Path:
        """The certificate that vouches for the SuperLink."""
        return self.path / "certificates" / "ca.crt"

    @property
    def server_certificate(self) -> Path:
        """The certificate of the SuperLink."""
        return self.path / "certificates" / "server.crt"

    @property
    def server_key(self) -> Path:
        """The private key of that certificate."""
        return self.path / "certificates" / "server.key"

    @property
    def app(self) -> Path:
        """The folder of the Flower app."""
        return self.path / "app"

    @property
    def home(self) -> Path:
        """Flower's own settings and files (FLWR_HOME)."""
        return self.path / "flower"

    @property
    def database(self) -> Path:
        """What the SuperLink remembers."""
        return self.home / "superlink.db"

    def member(self, name: str) -> Path:
        """The folder of a member."""
        return self.path / "members" / name

    def settings(self, name: str) -> Path:
        """The settings of a member, `me.toml`."""
        return self.member(name) / "me.toml"

    def membership(self) -> Membership:
        """Who belongs to the federation."""
        if not self.roster.is_file():
            rule = f"must be the folder of a federation, with a file {self.roster.name}"
            raise UnreadableFile(self.path, rule)
        return read_roster(self.roster)


def flower_settings(folder: Folder, membership: Membership) -> bytes:
    """Flower's settings: a connection of the federation's name. Flower wants an absolute path there."""
    table = {"address": membership.address, "root-certificates": str(folder.authority.absolute())}
    return toml.dumps({"superlink": {"default": membership.name, membership.name: table}}).encode()


def refresh_flower_settings(folder: Folder, membership: Membership) -> None:
    """Write Flower's settings again where they do not fit: the folder may have been moved."""
    path, content = folder.home / "config.toml", flower_settings(folder, membership)
    if not path.is_file() or path.read_bytes() != content:
        folder.home.mkdir(exist_ok=True)
        write_together({path: content})


DEFAULT_ADDRESS: Final = "127.0.0.1:8000"
_NEW: Final = "must be new: the folder of a federation is never overwritten"


@dataclass(frozen=True, slots=True)
class NewFederation:
    """What a new federation consists of."""

    members: Sequence[str]  # names
    address: str = DEFAULT_ADDRESS  # of the SuperLink, host:port
    public_keys: Mapping[str, Path] | None = None  # of members that have made a key themselves: .pub files
    authority: Path | None = None  # certificate that vouches for the SuperLink; None: one is made
    certificate: Path | None = None  # of the SuperLink; with `authority`
    server_key: Path | None = None  # its private key; with `authority`


def make_federation(path: Path, new: NewFederation) -> Membership:
    """Write the folder of a new federation; its name is that of the folder."""
    name = federation_name("name of the federation", path.absolute().name)
    names, own_keys = member_names(new.members), dict(new.public_keys or {})
    if not names:
        raise MissingValue("--member", "must be given for every member")
    where = address("--address", new.address)
    for member in own_keys:
        if member not in names:
            raise InvalidValue("--public-key", f"must be of a member: {', '.join(names)}", repr(member))
    given = {member: _public_key(file) for member, file in own_keys.items()}
    certificates = _certificates(name, where, new)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError as error:
        raise InvalidValue("folder", _NEW, path) from error
    try:
        return _write(Folder(path), name, where, names, given, certificates, made=new.authority is None)
    except BaseException:
        shutil.rmtree(path)  # all of it or nothing; it was new
        raise


def _public_key(path: Path) -> str:
    """A member's own public key, without the comment that may follow it."""
    return public_text(member_public(_bytes(path).decode("utf-8", "replace"), str(path)))


def _certificates(name: str, where: str, new: NewFederation) -> Certificates:
    given = {"--ca": new.authority, "--certificate": new.certificate, "--server-key": new.server_key}
    paths = [path for path in given.values() if path is not None]
    if not paths:
        now = datetime.datetime.now(datetime.UTC)
        return make_certificates(name, where.rpartition(":")[0], now)
    for option, path in given.items():
        if path is None:
            rule = "is required: give --ca, --certificate and --server-key, or none of them"
            raise MissingValue(option, rule)
    return Certificates(*map(_bytes, paths))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error


def _write(
    folder: Folder, name: str, where: str, names: Sequence[str], given: Mapping[str, str],
    certificates: Certificates, *, made: bool,
) -> Membership:  # fmt: skip
    for subfolder in (folder.authority.parent, folder.app, folder.home, folder.path / "members"):
        subfolder.mkdir(mode=0o700)
    operator = make_keys(folder.operator_key).read_bytes()
    keys = dict(given)
    for member in names:
        folder.member(member).mkdir(mode=0o700)
        if member not in keys:
            keys[member] = make_member_key(folder.member(member) / "key").read_text().strip()
    membership = Membership(name, where, operator.decode(), {member: keys[member] for member in names})
    write_new(folder.server_key, certificates.server_key, "key", _NEW)
    files = {
        folder.roster: membership.content(),
        folder.authority: certificates.authority,
        folder.server_certificate: certificates.server,
        folder.app / "pyproject.toml": app_content(),
        folder.home / "config.toml": flower_settings(folder, membership),
        folder.path / "README.txt": _readme(membership, made).encode(),
    }
    for member in names:
        own = folder.member(member)
        files[folder.settings(member)] = _me(membership, member, made=member not in given).encode()
        files[own / "ca.crt"], files[own / "operator.pub.pem"] = certificates.authority, operator
        files[own / "roster.toml"] = membership.content()
    write_together(files)
    return membership


def app_content() -> bytes:
    """The Flower app: names of what is installed, and nothing else."""
    app: dict[str, Any] = {
        "publisher": "bonafed",
        "components": {
            "serverapp": "bonafed.flower.relay:app",
            "clientapp": "bonafed.flower.simulated:app",
        },
        "config": {"socket": "", "folder": "", "opener": ""},
    }
    project = {
        "name": "bonafed-relay",
        "version": __version__,
        "description": "Passes messages between the operator of a federation and its members",
        "license": "Apache-2.0",
    }
    return toml.dumps({"project": {**project, "dependencies": []}, "tool": {"flwr": {"app": app}}}).encode()


def _me(membership: Membership, member: str, *, made: bool) -> str:
    quoted = toml.dumps({"": {"name": member}}).split("\n")[1]
    comment = "" if made else "  # the private part of the key that you sent"
    return f"""\
# What {member} runs with: bonafed participate me.toml. Paths are relative to this file.

[participant]
{quoted}
key = "key"{comment}
folder = "state"  # what you agreed to and gave: keep it

[federation]
name = "{membership.name}"
address = "{membership.address}"
operator = "operator.pub.pem"
roster = "roster.toml"  # by whose keys you know the others
certificate = "ca.crt"

[data]
name = "records.csv"  # your records, .csv or .npz
# classes = 2

[costs]  # what you know of yourself; it leaves you only as your report
# cost = 1.0

[policy]  # what you accept
verify = true  # only contracts that verify
no_loss = true  # only terms that cover your cost
# max_epsilon = 4.0
# max_rounds = 100
"""


def _readme(membership: Membership, made: bool) -> str:
    here = Folder(Path())
    participate = "\n".join(
        f"    bonafed participate {shlex.quote(str(here.settings(member)))}"
        for member in membership.members
    )
    remark = (
        f"\nThe certificates were made for this federation and hold for {VALID.days} days.\n"
        if made
        else ""
    )
    return f"""\
The federation {membership.name}, at {membership.address}; digest of the roster
{membership.digest}

What to type, in this order. All commands are typed in this folder, in an environment in which
bonafed[train,flower] is installed.

1. The operator starts the SuperLink and leaves it running:

    bonafed federation serve .

2. The operator registers the keys of the roster, once:

    bonafed federation register .

3. Each member gets its folder of members/ (over a safe channel if a key is in it), states its data, costs
   and policy in me.toml, and leaves this running:

{participate}

4. The operator looks who is there, and trains:

    bonafed federation status .
    bonafed train CONFIG.toml --on flower --federation .
{remark}"""
