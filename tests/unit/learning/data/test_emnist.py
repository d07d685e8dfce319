"""EMNIST's official files: every split, images upright, labels from 0; what is wrong is refused by name."""

import gzip

import numpy as np
import pytest

from bonafed.errors import UnreadableFile
from bonafed.learning.data.datasets import load
from bonafed.learning.data.formats import EMNIST_CLASSES

SPLITS = sorted(EMNIST_CLASSES)


def idx(array):
    sizes = np.array([0x0800 + array.ndim, *array.shape], dtype=">u4")
    return sizes.tobytes() + array.astype(np.uint8).tobytes()


def upright(n):
    """(n, 28, 28) images that are not their own mirror image: a bar at the top, of growing length."""
    images = np.zeros((n, 28, 28), dtype=np.uint8)
    for k in range(n):
        images[k, 1, : k + 2] = 255
    return images


def write(folder, split, packed=True, **replaced):
    """A small split as NIST publishes it: every image transposed, `letters` counted from 1."""
    folder.mkdir(parents=True, exist_ok=True)
    first, classes = (1 if split == "letters" else 0), EMNIST_CLASSES[split]
    labels = {"train": np.array([0, classes - 1, 3]), "test": np.array([classes - 1, 0])}
    for part, own in labels.items():
        content = {
            f"emnist-{split}-{part}-images-idx3-ubyte": upright(own.size).swapaxes(1, 2),
            f"emnist-{split}-{part}-labels-idx1-ubyte": own + first,
        }
        for name, array in content.items():
            whole = idx(replaced.get(f"{part}_{name.split('-')[-3]}", array))
            path = folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(whole) if packed else whole)
    return labels


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_is_read_upright_with_labels_from_zero(tmp_path, split):
    labels = write(tmp_path / "emnist", split)
    data = load(f"emnist-{split}", folder=tmp_path)
    assert data.classes == EMNIST_CLASSES[split]
    assert data.labels.tolist() == labels["train"].tolist()
    assert data.test_labels.tolist() == labels["test"].tolist()
    assert np.array_equal(data.features[:, 0], upright(3) / np.float32(255))
    assert np.array_equal(data.test_features[:, 0], upright(2) / np.float32(255))


def test_the_splits_have_the_classes_that_nist_states():
    assert EMNIST_CLASSES == {
        "byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10,
    }  # fmt: skip


@pytest.mark.parametrize("place", ["emnist", "emnist/gzip", "."])
@pytest.mark.parametrize("packed", [True, False])
def test_they_lie_in_one_folder_as_unpacked_from_the_archive(tmp_path, monkeypatch, place, packed):
    for split in ("letters", "digits"):
        write(tmp_path / place, split, packed)
    assert load("emnist-letters", folder=tmp_path).classes == 26
    if place != ".":
        monkeypatch.setenv("BONAFED_DATA", str(tmp_path))
        assert load("emnist-digits").classes == 10


def test_absent_files_are_named_with_where_they_come_from(tmp_path, monkeypatch):
    monkeypatch.setenv("BONAFED_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UnreadableFile) as caught:
        load("emnist-letters")
    message = str(caught.value)
    assert message.startswith(
        f"{tmp_path / 'emnist'}: emnist-letters not found: put emnist-letters-train-images-idx3-ubyte[.gz]"
    )
    assert "not offered for download, they come from https://www.nist.gov/" in message


def test_a_split_that_is_incomplete_is_refused(tmp_path):
    write(tmp_path / "emnist", "letters")
    (tmp_path / "emnist" / "emnist-letters-test-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UnreadableFile, match="incomplete: emnist-letters-test-labels-idx1-ubyte missing"):
        load("emnist-letters", folder=tmp_path)


@pytest.mark.parametrize(
    ("split", "replaced", "reason"),
    [
        ("letters", {"train_labels": np.array([1, 26, 0])}, r"must be in 1\.\.26, got 0 for sample 2"),
        ("letters", {"test_labels": np.array([27, 1])}, r"must be in 1\.\.26, got 27 for sample 0"),
        ("balanced", {"train_labels": np.array([0, 46, 47])}, "must be below 47, got 47 for sample 2"),
        ("digits", {"test_labels": np.zeros(3)}, "a label for each of 2 images, got 3"),
        ("mnist", {"train_images": np.zeros((3, 28, 20))}, r"images must be 28 x 28, got \(28, 20\)"),
        ("byclass", {"train_images": np.zeros(3)}, "an idx header must have 16 bytes|magic number"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, split, replaced, reason):
    write(tmp_path, split, **replaced)
    part, kind = next(iter(replaced)).split("_")
    with pytest.raises(
        UnreadableFile, match=rf"emnist-{split}-{part}-{kind}-idx\d-ubyte\.gz: .*({reason})"
    ):
        load(f"emnist-{split}", folder=tmp_path)


def test_a_damaged_file_is_refused_by_name(tmp_path):
    write(tmp_path, "letters")
    path = tmp_path / "emnist-letters-train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(UnreadableFile, match=r"train-images-idx3-ubyte\.gz: .*the file is truncated"):
        load("emnist-letters", folder=tmp_path)
