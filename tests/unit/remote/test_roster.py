"""Rosters: what is written reads back, the digest tells whether two are the same, and twins are refused."""

import pytest

from bonafed.contracts.signatures import make_keys
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.remote.keys import key_digest, make_member_key, read_member_key
from bonafed.remote.roster import Membership, read_roster


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The operator's public key, and those of members."""
    folder = tmp_path_factory.mktemp("keys")
    members = {name: make_member_key(folder / name).read_text().strip() for name in ("ada", "ben")}
    return folder, make_keys(folder / "operator.pem").read_text(), members


@pytest.fixture
def membership(keys):
    return Membership("clinics", "fl.example:9092", keys[1], keys[2])


def test_it_reads_back(membership, tmp_path):
    membership.write(tmp_path / "roster.toml")
    read = read_roster(tmp_path / "roster.toml")
    assert read == membership
    assert read.digest == membership.digest


def test_keys_are_known_by_their_digests(membership, keys):
    digest = key_digest(read_member_key(keys[0] / "ada").public_key())
    assert membership.key_digests["ada"] == digest
    assert membership.by_digest[digest] == "ada"


def test_comments_do_not_matter_and_everything_else_does(membership, keys):
    _, operator, members = keys
    same = Membership(
        "clinics", "fl.example:9092", operator, {**members, "ada": members["ada"] + " me@home"}
    )
    assert same.digest == membership.digest
    swapped = {"ada": members["ben"], "ben": members["ada"]}
    others = [
        Membership("clinic", "fl.example:9092", operator, members),
        Membership("clinics", "fl.example:9093", operator, members),
        Membership("clinics", "fl.example:9092", operator, swapped),
        Membership("clinics", "fl.example:9092", operator, {"ada": members["ada"]}),
    ]
    assert len({membership.digest, *(other.digest for other in others)}) == 5


def test_a_key_belongs_to_one_member(keys):
    _, operator, members = keys
    with pytest.raises(InvalidValue, match=r"members\.eve must not be the key of ada as well"):
        Membership("clinics", "fl.example:9092", operator, {"ada": members["ada"], "eve": members["ada"]})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[members]", "[member]", "member is unknown"),
        ('name = "clinics"', 'name = "the clinics"', "federation.name must be"),
        ('name = "clinics"', "", "federation.name is required"),
        ("fl.example:9092", "fl.example", "federation.address must be host:port"),
        ('ada = "ecdsa', 'ada = "rsa', "members.ada must be a public key"),
        ('ada = "', 'Ben = "', "must be all different, by more than case"),
        ("[members]", "[members]\neve = 3", "members.eve must be text"),
        ("BEGIN PUBLIC", "BEGUN PUBLIC", "federation.operator must be a public key in PEM"),
        ('name = "clinics"', 'name = "clinics"\nport = 3', "federation.port is unknown"),
    ],
)
def test_what_is_no_roster_is_refused(membership, tmp_path, old, new, message):
    path = tmp_path / "roster.toml"
    text = membership.content().decode()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidValue, match=message):
        read_roster(path)


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(UnreadableFile, match=r"roster\.toml"):
        read_roster(tmp_path / "roster.toml")
    (tmp_path / "roster.toml").write_text("[members")
    with pytest.raises(UnreadableFile, match="not TOML"):
        read_roster(tmp_path / "roster.toml")
