"""Where things are in the folder of a federation (`setup` writes it)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bonafed.errors import UnreadableFile
from bonafed.files import write_together
from bonafed.remote.roster import Membership, read_roster
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
        """The Flower app."""
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
        """A member's `me.toml`."""
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
    place, content = folder.home / "config.toml", flower_settings(folder, membership)
    if not place.is_file() or place.read_bytes() != content:
        folder.home.mkdir(exist_ok=True)
        write_together({place: content})
