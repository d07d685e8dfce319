"""All files or none, and never half a file."""

import os
import re
import stat
from pathlib import Path

import pytest

from bonafed import files
from bonafed.errors import InvalidValue
from bonafed.files import require_different, require_writable, write_secret, write_together


def test_writes_all(tmp_path):
    one, two = tmp_path / "one.json", tmp_path / "two.png"
    one.write_bytes(b"old")
    write_together({one: b"new", two: b"\x00\x01"})
    assert one.read_bytes() == b"new"
    assert two.read_bytes() == b"\x00\x01"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.json", "two.png"]


def test_a_missing_folder_is_noticed_before_anything_is_written(tmp_path):
    one, two = tmp_path / "one.json", tmp_path / "nowhere" / "two.png"
    with pytest.raises(InvalidValue, match=r"output must be in an existing folder, got .*two\.png"):
        write_together({one: b"new", two: b"x"})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(InvalidValue, match="output must not be a folder, got"):
        require_writable(tmp_path)


def test_two_outputs_are_two_files(tmp_path):
    one = tmp_path / "one.json"
    require_different("--save", one, "--plot", tmp_path / "two.json")
    with pytest.raises(InvalidValue, match="--save must not be the same file as --plot, got"):
        require_different("--save", one, "--plot", tmp_path / "." / "one.json")


@pytest.fixture
def full_disk(monkeypatch):
    """full_disk(b"z"): the disk is full where something with these bytes is written, after one of them."""

    def fill(marked):
        write = os.write

        def limited(handle, data):
            if marked in bytes(data):
                write(handle, data[:1])
                raise OSError(28, "No space left on device")
            return write(handle, data)

        monkeypatch.setattr(os, "write", limited)

    return fill


def test_failing_to_write_leaves_everything_as_it_was_and_names_the_file(tmp_path, full_disk):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    one.write_bytes(b"old")
    full_disk(b"xyz")
    with pytest.raises(OSError, match="No space left") as failed:
        write_together({one: b"new", two: b"xyz"})
    assert failed.value.filename == str(two)
    assert one.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["one.json"]


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_files_that_cannot_be_moved_are_all_put_back(tmp_path, monkeypatch, broken):
    paths = [tmp_path / name for name in ("one", "two", "three")]
    paths[0].write_bytes(b"old")
    paths[0].chmod(0o640)
    replace = Path.replace

    def fails(self, target):
        if target == paths[broken]:
            raise OSError(5, "Input/output error", str(self))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="Input/output error") as failed:
        write_together(dict.fromkeys(paths, b"new"))
    assert failed.value.filename == str(paths[broken])
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("one", b"old")]
    assert stat.S_IMODE(paths[0].stat().st_mode) == 0o640


def test_a_link_where_a_draft_could_be_is_not_followed(tmp_path, monkeypatch):
    """Formerly contract.json.partial was written through, and the victim had the contract."""
    victim, place = tmp_path / "victim", tmp_path / "contract.json"
    victim.write_bytes(b"mine")
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "0" * 2 * size)  # even if it were known
    for name in ("contract.json.partial", f".bonafed-{'0' * 16}.partial"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_together({place: b"new"})
    monkeypatch.undo()
    write_together({place: b"new"})
    assert victim.read_bytes() == b"mine"
    assert place.read_bytes() == b"new"


def test_drafts_have_names_that_nobody_knows(tmp_path, monkeypatch):
    seen = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: (seen.append(self), replace(self, to))[1])
    for _ in range(20):
        write_together({tmp_path / "contract.json": b"new"})
    assert len(set(seen)) == 20
    assert all(files.is_draft(path) for path in seen)


@pytest.mark.parametrize("target", ["there", "not there"])
def test_an_output_that_is_a_link_is_refused(tmp_path, target):
    victim, link = tmp_path / "victim", tmp_path / "link.json"
    if target == "there":
        victim.write_bytes(b"mine")
    link.symlink_to(victim)
    for write in (lambda: write_together({link: b"new"}), lambda: write_secret(link, b"new")):
        with pytest.raises(InvalidValue, match=r"output must not be a symbolic link: .*, got .*link\.json"):
            write()
    assert link.is_symlink()
    assert victim.exists() == (target == "there")
    assert target == "not there" or victim.read_bytes() == b"mine"


def test_a_device_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidValue, match="output must be a file, got"):
        require_writable(tmp_path / "pipe")


def test_permissions_are_kept_and_new_files_have_those_of_the_umask(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"")
    old.chmod(0o640)
    umask = os.umask(0o027)
    try:
        write_together({old: b"1", new: b"2"})
        write_together({tmp_path / "private": b"3"}, private=True)
    finally:
        os.umask(umask)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("old", "new", "private")]
    assert modes == [0o640, 0o640, 0o600]


def test_half_a_secret_is_not_left_behind(tmp_path, full_disk):
    full_disk(b"secret")
    with pytest.raises(OSError, match="No space left") as failed:
        write_secret(tmp_path / "key", b"secret")
    assert failed.value.filename == str(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


def test_a_secret_is_never_replaced(tmp_path):
    write_secret(tmp_path / "key", b"one")
    with pytest.raises(InvalidValue, match="secret must be a new file"):
        write_secret(tmp_path / "key", b"two")
    assert (tmp_path / "key").read_bytes() == b"one"


def test_nothing_is_written_in_any_other_way():
    """One way to write for the whole product: no write_text, no open for writing beside `files`."""
    source = Path(files.__file__).parent
    other = re.compile(
        r"""\.write_(text|bytes)\(|\bopen\([^)]*["'][wax]b?\+?["']|np\.save\w*\(\s*[^b\s]|savefig\((?!buffer)|O_CREAT"""
    )
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in sorted(source.rglob("*.py"))
        for line in path.read_text().splitlines()
        if path.name != "files.py" and other.search(line)
    ]
    assert found == []


def test_nothing_to_write_is_fine():
    write_together({})
