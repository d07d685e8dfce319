"""The folder of a new federation: complete, private where it must be, never overwritten."""

import datetime
import shutil
import socket
import ssl
import stat
import threading
import tomllib
from pathlib import Path

import pytest

from bonafed.errors import InvalidValue, MissingValue, UnreadableFile
from bonafed.flower.certificates import make_certificates
from bonafed.flower.commands import superlink_command
from bonafed.flower.folder import Folder, NewFederation, make_federation, refresh_flower_settings
from bonafed.remote.keys import key_digest, make_member_key, operator_public, read_member_key
from bonafed.remote.participant.settings import read_settings
from bonafed.remote.roster import read_roster


@pytest.fixture
def folder(tmp_path):
    make_federation(tmp_path / "clinics", NewFederation(["north", "süd 1"], "fl.example:9092"))
    return Folder(tmp_path / "clinics")


def test_keys_fit_the_roster(folder):
    membership = read_roster(folder.roster)
    assert membership.name == "clinics"
    assert membership.address == "fl.example:9092"
    for name in ("north", "süd 1"):
        key = read_member_key(folder.member(name) / "key")
        assert membership.key_digests[name] == key_digest(key.public_key())
    public = (folder.path / "operator.pub.pem").read_bytes()
    assert key_digest(operator_public(public)) == key_digest(operator_public(membership.operator.encode()))


def test_a_members_settings_are_complete_but_for_its_data(folder):
    settings = read_settings(folder.settings("süd 1"))
    assert (settings.name, settings.federation, settings.address) == ("süd 1", "clinics", "fl.example:9092")
    assert settings.data.name == "records.csv"
    for path in (settings.key, settings.operator, settings.certificate):
        assert path.parent == folder.member("süd 1")  # which can be handed over as it is
        assert path.is_file()


def test_secrets_are_for_their_owner_only(folder):
    for path in (folder.operator_key, folder.server_key, folder.member("north") / "key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_the_readme_says_what_is_run(folder):
    text = (folder.path / "README.txt").read_text()
    assert "bonafed participate 'members/süd 1/me.toml'" in text
    assert folder.membership().digest in text


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1:8000", "127.0.0.1"), ("fl.example:9092", "0.0.0.0"), ("[::1]:9092", "::1")],
)
def test_a_superlink_for_others_listens_to_them(tmp_path, address, host):
    make_federation(tmp_path / "clinics", NewFederation(["ada"], address))
    command = superlink_command(Folder(tmp_path / "clinics"))
    assert command[command.index("--host") + 1] == host
    assert command[command.index("--port") + 1] == address.rpartition(":")[2]
    assert "--enable-supernode-auth" in command
    for option in ("--ssl-ca-certfile", "--ssl-certfile", "--ssl-keyfile"):
        assert Path(command[command.index(option) + 1]).is_file()


def test_flower_is_told_where_the_certificate_is_now(folder, tmp_path):
    moved = Folder(tmp_path / "moved")
    shutil.move(folder.path, moved.path)
    refresh_flower_settings(moved, moved.membership())
    settings = tomllib.loads((moved.home / "config.toml").read_text())["superlink"]["clinics"]
    assert settings == {"address": "fl.example:9092", "root-certificates": str(moved.authority)}


def test_nothing_is_overwritten(folder):
    before = folder.roster.read_bytes()
    with pytest.raises(InvalidValue, match="never overwritten"):
        make_federation(folder.path, NewFederation(["x"]))
    assert folder.roster.read_bytes() == before


def test_public_keys_of_members_are_taken(tmp_path):
    public = make_member_key(tmp_path / "mine")
    public.write_text(public.read_text().strip() + " me@example\n")
    membership = make_federation(tmp_path / "clinics", NewFederation(["a", "b"], public_keys={"a": public}))
    assert membership.key_digests["a"] == key_digest(read_member_key(tmp_path / "mine").public_key())
    assert not (tmp_path / "clinics" / "members" / "a" / "key").exists()
    assert (tmp_path / "clinics" / "members" / "b" / "key").exists()


def test_certificates_of_ones_own_are_taken(tmp_path):
    paths = {}
    for name in ("authority", "certificate", "server_key"):
        paths[name] = tmp_path / name
        paths[name].write_text(name)
    make_federation(tmp_path / "clinics", NewFederation(["a"], **paths))
    folder = Folder(tmp_path / "clinics")
    assert folder.authority.read_text() == "authority"
    assert folder.server_certificate.read_text() == "certificate"
    assert folder.server_key.read_text() == "server_key"


@pytest.mark.parametrize(
    ("name", "plan", "message"),
    [
        ("clinics", NewFederation([]), "--member must be given"),
        ("clinics", NewFederation(["a", "A"]), "all different"),
        ("clinics", NewFederation(["a/b"]), "usable as the name of a folder"),
        ("clinics", NewFederation([".."]), "usable as the name of a folder"),
        ("two words", NewFederation(["a"]), "name of the federation must be 1 to 32 letters"),
        ("clinics", NewFederation(["a"], "nowhere"), "--address must be host:port"),
        ("clinics", NewFederation(["a"], "here:70000"), "--address must be host:port"),
        (
            "clinics",
            NewFederation(["a"], public_keys={"b": None}),
            "--public-key must be of a member: a, got 'b'",
        ),
        ("clinics", NewFederation(["a"], authority="ca.crt"), "--certificate is required"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path, name, plan, message):
    with pytest.raises((InvalidValue, MissingValue), match=message):
        make_federation(tmp_path / name, plan)
    assert list(tmp_path.iterdir()) == []


def test_two_members_with_one_key_are_refused_and_nothing_is_left(tmp_path):
    public = make_member_key(tmp_path / "mine")
    with pytest.raises(InvalidValue, match="a key belongs to one member"):
        make_federation(
            tmp_path / "clinics", NewFederation(["a", "b"], public_keys={"a": public, "b": public})
        )
    assert not (tmp_path / "clinics").exists()


def test_another_folder_is_no_federation(tmp_path):
    with pytest.raises(UnreadableFile, match="must be the folder of a federation"):
        Folder(tmp_path).membership()


@pytest.mark.parametrize(
    ("name", "holds"), [("fl.example", True), ("127.0.0.1", True), ("other.example", False)]
)
def test_the_certificate_is_for_the_server_and_this_machine(tmp_path, name, holds):
    made = make_certificates("clinics", "fl.example", datetime.datetime.now(datetime.UTC))
    for file, content in (("chain", made.server), ("key", made.server_key)):
        (tmp_path / file).write_bytes(content)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(tmp_path / "chain", tmp_path / "key")
    asking = ssl.create_default_context(cadata=made.authority.decode())
    one, other = socket.socketpair()

    def serve():
        try:
            serving.wrap_socket(one, server_side=True).close()
        except OSError:
            one.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        if holds:
            asking.wrap_socket(other, server_hostname=name).close()
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                asking.wrap_socket(other, server_hostname=name)
            other.close()
    finally:
        thread.join()
        one.close()
        other.close()
