"""`bonafed federation` and `bonafed participate`, as far as they need no Flower."""

import json

from bonafed.flower.folder import NewFederation, make_federation
from bonafed.flower.link import OnlineNodes


def test_init_writes_a_folder_and_says_what_to_type(bonafed, tmp_path):
    code, out, err = bonafed("federation", "init", "clinics", "--member", "ada", "--member", "ben")
    assert (code, err) == (0, "")
    assert "federation clinics at 127.0.0.1:8000, of 2 members" in out
    assert "what to type next: clinics/README.txt" in out
    assert (tmp_path / "clinics" / "members" / "ben" / "me.toml").is_file()
    code, _, err = bonafed("federation", "init", "clinics", "--member", "ada")
    assert code == 2
    assert (
        err == "error: folder must be new: the folder of a federation is never overwritten, got clinics\n"
    )


def test_init_takes_public_keys(bonafed, tmp_path):
    bonafed("federation", "init", "one", "--member", "ada")
    public = tmp_path / "one" / "members" / "ada" / "key.pub"
    code, out, _ = bonafed(
        "federation", "init", "two", "--member", "a=b", "--public-key", f"a=b={public}", "--json"
    )
    assert code == 0
    assert json.loads(out)["federation"] == "two"
    assert not (tmp_path / "two" / "members" / "a=b" / "key").exists()
    code, _, err = bonafed("federation", "init", "three", "--member", "ada", "--public-key", "ada")
    assert (code, err) == (2, "error: --public-key must be NAME=FILE.pub, got 'ada'\n")


def test_status_names_the_connected_the_missing_and_strangers(tmp_path):
    from bonafed.cli.federation import _status

    membership = make_federation(tmp_path / "clinics", NewFederation(["ada", "ben"]))
    document = _status(membership, OnlineNodes({"ben": 7}, ("", "ab" * 32)))
    assert [member["connected"] for member in document.data["members"]] == [False, True]
    assert document.data["members"][0]["key"] == membership.key_digests["ada"]
    text = str(document)
    assert f"2 strangers, not on the roster: without a key, {'ab' * 32}" in text
    assert membership.digest in text
    assert "stranger" not in str(_status(membership, OnlineNodes({})))


def test_another_folder_is_no_federation(bonafed):
    for command in ("status", "register", "serve"):
        code, _, err = bonafed("federation", command, "nowhere")
        assert code == 2
        assert "must be the folder of a federation" in err


def test_settings_are_checked_before_anything_is_started(bonafed, tmp_path):
    (tmp_path / "me.toml").write_text("[participant]\n")
    code, _, err = bonafed("participate", "me.toml")
    assert (code, err) == (2, "error: federation is required\n")
