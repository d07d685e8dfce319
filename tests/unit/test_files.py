"""All files or none, and never half a file."""

from pathlib import Path

import pytest

from bonafed.errors import InvalidValue
from bonafed.files import require_different, require_writable, write_together


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


def test_failing_to_write_leaves_everything_as_it_was(tmp_path, monkeypatch):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    one.write_bytes(b"old")
    write = Path.write_bytes

    def full_disk(self, data):
        if self.name.startswith("two"):
            write(self, data[:1])
            raise OSError(28, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_together({one: b"new", two: b"xyz"})
    monkeypatch.undo()
    assert one.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["one.json"]


def test_nothing_to_write_is_fine():
    write_together({})
