"""Data sets by name, from arrays, and where they are looked for."""

import dataclasses
import functools
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import requests

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.learning.data import archives, formats, sources
from bonafed.learning.data.datasets import NAMES, from_arrays, load, synthetic

PIXELS = np.arange(4 * 28 * 28).reshape(4, 28, 28) % 256


def write_mnist(folder):
    folder.mkdir(parents=True)
    for prefix, labels in (("train", [0, 9, 4, 4]), ("t10k", [1, 2, 3, 4])):
        images = (
            b"\x00\x00\x08\x03"
            + b"".join(n.to_bytes(4) for n in PIXELS.shape)
            + PIXELS.astype(np.uint8).tobytes()
        )
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(
            b"\x00\x00\x08\x01\x00\x00\x00\x04" + bytes(labels)
        )


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    """No data set anywhere, and no network."""

    def unreachable(*args, **kwargs):
        raise requests.ConnectionError("no network in tests")

    monkeypatch.delenv("BONAFED_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(requests, "get", unreachable)
    return tmp_path


def real_data(name):
    """The folder with the original files: $BONAFED_DATA, or `shared/data` beside the repository."""
    beside = Path(__file__).resolve().parents[5] / "shared" / "data"
    folder = Path(os.environ.get("BONAFED_DATA") or beside)
    if not (folder / name).is_dir():
        pytest.skip(f"needs the original files of {name}: set BONAFED_DATA to the folder above {name}/")
    return folder


def test_digits_are_split_by_class_and_always_the_same():
    data, again = load("digits"), load("digits", seed=5)
    assert data.features.shape == (1442, 1, 8, 8)
    assert data.test_features.shape == (355, 1, 8, 8)
    assert data.features.dtype == np.float32
    assert data.features.min() == 0
    assert data.features.max() == 1
    counts, tests = np.bincount(data.labels), np.bincount(data.test_labels)
    assert (tests == (counts + tests) // 5).all()
    assert np.array_equal(data.features, again.features)
    assert data.classes == 10


@pytest.mark.parametrize(
    ("name", "first", "mean"),
    [  # published: first labels, mean pixel of the training images
        ("mnist", [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], 0.1307),
        ("fashion-mnist", [9, 0, 0, 3, 0, 2, 7, 2, 5, 5], 0.2860),
    ],
)
def test_the_real_images(name, first, mean):
    data = load(name, folder=real_data(name))
    assert data.features.shape == (60_000, 1, 28, 28)
    assert data.test_features.shape == (10_000, 1, 28, 28)
    assert data.labels[:10].tolist() == first
    assert float(data.features.mean(dtype=np.float64)) == pytest.approx(mean, abs=5e-5)
    assert data.features.max() == 1


def test_the_real_photographs():
    data = load("cifar10", folder=real_data("cifar10"))
    assert data.features.shape == (50_000, 3, 32, 32)
    assert data.test_features.shape == (10_000, 3, 32, 32)
    assert data.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    means = data.features.mean(axis=(0, 2, 3), dtype=np.float64)  # red, green, blue, as published
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)


def test_the_real_sentences():
    data = load("sst", folder=real_data("sst"))
    assert np.bincount(data.labels).tolist() == [1092, 2218, 1624, 2322, 1288]
    assert np.bincount(data.test_labels).tolist() == [279, 633, 389, 510, 399]
    assert data.features.shape == (8544, 56)
    assert data.features.dtype == np.int64
    assert data.features.max() == data.vocabulary - 1
    assert (data.features[:, 0] != formats.PADDING).all()
    padded = data.features == formats.PADDING
    assert (padded[:, 1:] >= padded[:, :-1]).all()  # padding only at the end


def test_the_folder_comes_before_the_environment_before_the_cache(empty_home, monkeypatch):
    write_mnist(empty_home / "cache" / "bonafed" / "mnist")
    cached = load("mnist")
    assert cached.features.shape == (4, 1, 28, 28)
    assert cached.features[0, 0, 9, 3] == np.float32(255 / 255)
    assert cached.features[0, 0, 0, 1] == np.float32(1) / np.float32(255)
    assert cached.labels.tolist() == [0, 9, 4, 4]
    assert cached.classes == 10
    write_mnist(empty_home / "data" / "mnist")
    (empty_home / "data" / "mnist" / "train-labels-idx1-ubyte").write_bytes(
        b"\0\0\x08\x01\0\0\0\x04\1\1\1\1"
    )
    monkeypatch.setenv("BONAFED_DATA", str(empty_home / "data"))
    assert load("mnist").labels.tolist() == [1, 1, 1, 1]
    write_mnist(empty_home / "mine" / "mnist")
    assert load("mnist", folder=empty_home / "mine").labels.tolist() == [0, 9, 4, 4]
    assert load("mnist", folder=empty_home / "mine" / "mnist").labels.tolist() == [0, 9, 4, 4]


def test_half_a_data_set_is_refused_rather_than_looked_for_elsewhere(empty_home):
    folder = empty_home / "cache" / "bonafed" / "mnist"
    write_mnist(folder)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(UnreadableFile) as caught:
        load("mnist")
    assert str(caught.value) == f"{folder}: mnist is incomplete: t10k-labels-idx1-ubyte missing"


@pytest.mark.parametrize("name", sources.SOURCES)
def test_a_data_set_out_of_reach_names_files_and_folder(empty_home, monkeypatch, name):
    source = sources.SOURCES[name]
    place = "emnist" if name.startswith("emnist-") else name
    with pytest.raises(UnreadableFile) as caught:
        load(name)
    message = str(caught.value)
    assert message.startswith(f"{empty_home / 'cache' / 'bonafed' / place}: {name} not found: put ")
    assert all(file in message for file in source.files)
    offered = place not in ("sst", "emnist", "tiny-imagenet", "sentiment140", "ist", "schools")
    assert ("no network in tests" if offered else "not offered for download") in message
    assert "\n" not in message
    monkeypatch.setenv("BONAFED_DATA", str(empty_home))
    with pytest.raises(UnreadableFile, match=f"{empty_home / place}: {name} not found"):
        load(name)
    with pytest.raises(UnreadableFile, match="no such folder"):
        load(name, folder=empty_home / "absent")
    assert not [path for path in (empty_home / "cache").rglob("*") if path.is_file()]


class Server:
    """Answers like the homes of the data sets: files by their names."""

    def __init__(self, files):
        self.files, self.asked = files, []

    def get(self, url, timeout, stream):
        self.asked.append((url, timeout))
        answer = requests.Response()
        name = url.rpartition("/")[2]
        answer.status_code, answer.url = (200 if name in self.files else 404), url
        answer.raw = io.BytesIO(self.files.get(name, b""))
        return answer


def serve(monkeypatch, name, files, checksums=None):
    """A home that has these files, which are the ones expected unless other checksums are given."""
    server = Server(files)
    known = checksums or {file: hashlib.md5(data).hexdigest() for file, data in files.items()}
    source = dataclasses.replace(sources.SOURCES[name], checksums=known)
    monkeypatch.setitem(sources.SOURCES, name, source)
    monkeypatch.setattr(requests, "get", server.get)
    return server


def mnist_files(folder):
    write_mnist(folder)
    read = {path.name.removesuffix(".gz"): archives.read_bytes(path, 2**24) for path in folder.iterdir()}
    return {f"{name}.gz": gzip.compress(data) for name, data in sorted(read.items())}


def test_a_download_is_told_saved_and_used_again(empty_home, monkeypatch):
    server = serve(monkeypatch, "mnist", mnist_files(empty_home / "made"))
    messages = []
    data = load("mnist", on_progress=messages.append)
    assert [url.rpartition("/")[2] for url, _ in server.asked] == sorted(server.files)
    assert {limit for _, limit in server.asked} == {sources.STALLED}
    assert data.features.shape == (4, 1, 28, 28)
    assert data.labels.tolist() == [0, 9, 4, 4]
    assert messages[0].startswith("fetching t10k-images-idx3-ubyte.gz of mnist from https://")
    assert messages[-1].startswith("saved mnist to ")
    again = load("mnist")
    assert len(server.asked) == 4
    assert np.array_equal(again.features, data.features)
    assert [path.name for path in (empty_home / "cache" / "bonafed" / "mnist").iterdir()] == ["mnist.npz"]


def test_an_archive_is_unpacked(empty_home, monkeypatch):
    archive, record = io.BytesIO(), bytes([7]) + bytes(3072)
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for file in formats.CIFAR_FILES:
            member = tarfile.TarInfo(f"{formats.CIFAR_FOLDER}/{file}")
            member.size = len(record)
            tar.addfile(member, io.BytesIO(record))
    serve(monkeypatch, "cifar10", {"cifar-10-binary.tar.gz": archive.getvalue()})
    small = dataclasses.replace(
        sources.SOURCES["cifar10"], read=functools.partial(formats.read_cifar, records=1)
    )
    monkeypatch.setitem(sources.SOURCES, "cifar10", small)
    data = load("cifar10")
    assert data.features.shape == (5, 3, 32, 32)
    assert data.test_labels.tolist() == [7]


def test_how_much_has_arrived_is_told_once_a_second(monkeypatch):
    clock, messages = iter([0.0, 0.5, 1.0, 1.0, 1.5]), []
    monkeypatch.setattr(sources.time, "monotonic", lambda: next(clock))
    progress = sources._DownloadProgress(messages.append)
    for _ in range(3):
        progress.update(400_000)
    assert messages == ["0.8 MB received"]


def test_what_is_expected_of_the_homes_is_what_the_readers_need():
    for name in ("mnist", "fashion-mnist"):
        source = sources.SOURCES[name]
        assert {file.removesuffix(".gz") for file in source.checksums} == set(source.files)


def broken_off(files):
    first = next(iter(files))
    return {
        "in the middle": {**files, first: files[first][:-20]},
        "with other bytes": {**files, first: b"\xff" * 20},
        "into nothing": {file: data for file, data in files.items() if file != first},
    }


@pytest.mark.parametrize("how", ["in the middle", "with other bytes", "into nothing"])
def test_a_download_that_breaks_off_is_told_as_one_that_never_began(empty_home, monkeypatch, bonafed, how):
    files = mnist_files(empty_home / "made")
    known = {file: hashlib.md5(data).hexdigest() for file, data in files.items()}
    serve(monkeypatch, "mnist", broken_off(files)[how], known)
    with pytest.raises(UnreadableFile) as caught:
        load("mnist")
    message = str(caught.value)
    folder = empty_home / "cache" / "bonafed" / "mnist"
    assert message.startswith(f"{folder}: mnist not found: put train-images-idx3-ubyte[.gz], ")
    assert "the download failed, " in message
    assert "\n" not in message
    assert not list(folder.iterdir())
    bonafed("train", "--write-example", "fedavg")
    code, out, said = bonafed("train", "fedavg.toml", "--set", "data.name=mnist")
    assert (code, out) == (2, "")
    assert said.startswith(f"error: {folder}: mnist not found: ")  # previously `stopped by the user`


def test_a_damaged_cache_is_refused_by_its_path(empty_home):
    folder = empty_home / "cache" / "bonafed" / "cifar10"
    folder.mkdir(parents=True)
    np.savez(folder / "cifar10.npz", features=np.zeros((2, 3, 32, 32), np.uint8), labels=np.array([3, 10]))
    with pytest.raises(UnreadableFile, match=r"cifar10\.npz: labels must be in 0\.\.9, got 10 in sample 1"):
        load("cifar10")


@pytest.mark.parametrize("name", ["minst", "", "data.parquet", "../mnist"])
def test_unknown_names_are_refused(name):
    with pytest.raises(
        InvalidValue, match=rf"dataset must be one of {', '.join(NAMES)}, or a path ending in"
    ):
        load(name)


@pytest.mark.parametrize("seed", [-1, 0.5, float("nan"), "0"])
def test_seeds_are_whole_numbers(seed):
    with pytest.raises(InvalidValue, match="seed must be"):
        load("synthetic", seed=seed)


def hessian(kind, features, weights, regularisation):
    """Of the mean loss of a linear model with intercept, by its definition sample by sample."""
    size = weights.size
    total = np.zeros((size, size))
    for x in np.column_stack([features, np.ones(len(features))]).astype(np.float64):
        if kind == "logistic":
            p = np.exp(weights.reshape(-1, 2).T @ x)
            p /= p.sum()
            total += np.kron(np.outer(x, x), np.diag(p) - np.outer(p, p))
        else:
            total += np.outer(x, x)
    return total / len(features) + regularisation * np.eye(size)


@pytest.mark.parametrize("kind", ["logistic", "ridge"])
def test_smoothness_and_strong_convexity_hold_for_any_samples_and_weights(kind):
    data = synthetic(kind, samples=60, dimension=4, clients=5, regularisation=0.1, seed=3)
    assert np.linalg.norm(data.features.astype(np.float64), axis=1).max() <= 1 + 1e-6
    rng = np.random.default_rng(0)
    largest = np.argmax(np.linalg.norm(data.features, axis=1))
    for chosen in ([largest], data.groups == 2, np.arange(60)):
        for scale in (0, 1, 10):
            weights = scale * rng.standard_normal((5, 2) if kind == "logistic" else 5)
            values = np.linalg.eigvalsh(hessian(kind, data.features[chosen], weights, 0.1))
            assert values.max() <= data.smoothness
            assert values.min() >= data.strong_convexity - 1e-12
    tight = hessian(kind, data.features[[largest]], np.zeros((5, 2) if kind == "logistic" else 5), 0.1)
    assert np.linalg.eigvalsh(tight).max() == pytest.approx(data.smoothness, rel=1e-6)


def test_synthetic_data_come_from_the_seed():
    one, same, other = load("synthetic", seed=1), load("synthetic", seed=1), load("synthetic", seed=2)
    assert np.array_equal(one.features, same.features)
    assert np.array_equal(one.labels, same.labels)
    assert not np.array_equal(one.features, other.features)
    assert one.features.shape == (2000, 20)
    assert one.test_features.shape == (400, 20)
    assert one.classes == 2
    assert 0.4 < one.labels.mean() < 0.6
    assert np.bincount(one.groups).tolist() == [100] * 20
    ridge = load("synthetic-ridge")
    assert ridge.classes == 0
    assert ridge.labels.dtype == np.float32


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "lasso"},
        {"samples": 5},
        {"dimension": 0},
        {"clients": 0},
        {"heterogeneity": -1},
        {"regularisation": 0},
        {"regularisation": float("nan")},
        {"seed": -1},
    ],
)
def test_impossible_synthetic_data_are_refused(options):
    with pytest.raises(InvalidValue, match=next(iter(options)) + " must "):
        synthetic(**{"clients": 10, **options})


def test_arrays_are_taken_copied_and_typed():
    features, labels = np.arange(6.0).reshape(3, 2), [0, 2, 1]
    data = from_arrays("own", features, labels, test_features=[[1, 2]], test_labels=[2], groups=[5, 5, 0])
    features[:] = 9
    assert data.features.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert (data.features.dtype, data.labels.dtype, data.groups.dtype) == (np.float32, np.int64, np.int64)
    assert (data.classes, data.vocabulary) == (3, 0)
    alone = from_arrays("own", data.features, labels, test_features=np.zeros((0, 2)), test_labels=[])
    assert alone.test_features.shape == (0, 2)
    assert alone.test_labels.shape == (0,)


def test_bytes_are_pixels_whole_numbers_are_tokens_and_real_labels_are_targets():
    images = np.full((2, 5, 5), 51, dtype=np.uint8)
    assert from_arrays("own", images, [0, 1]).features.shape == (2, 1, 5, 5)
    assert (from_arrays("own", images, [0, 1]).features == np.float32(0.2)).all()
    for one, other in ((images, images.astype(np.int64)), (images[:, None] / 255, images[:, None])):
        with pytest.raises(InvalidValue, match=r"^test_features must be (not )?uint8 like the features"):
            from_arrays("own", one, [0, 1], test_features=other, test_labels=[0, 1])
    tokens = from_arrays("own", [[3, 0], [1, 2]], [0, 1], vocabulary=4)
    assert tokens.features.dtype == np.int64
    assert tokens.vocabulary == 4
    targets = from_arrays("own", [[3, 0], [1, 2]], [0.5, -1.0])
    assert targets.features.dtype == np.float32
    assert (targets.labels.dtype, targets.classes) == (np.float32, 0)


OK = {"features": [[1.0], [2.0]], "labels": [0, 1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": [[1.0], [float("nan")]]}, "features must be finite, got nan in sample 1"),
        ({"features": [[1.0, float("-inf")], [2.0, 3.0]]}, "features must be finite, got -inf in sample 0"),
        (
            {"features": [[1.0], [1e39]]},
            r"features must not exceed 3.4e\+38 in size, got 1e\+39 in sample 1",
        ),
        (
            {"features": [1.0, 2.0]},
            r"features must hold samples of at least one number each, got shape \(2,\)",
        ),
        (
            {"features": [[], []]},
            r"features must hold samples of at least one number each, got shape \(2, 0\)",
        ),
        (
            {"features": [[1.0], [2.0, 3.0]]},
            "features must be an array, got rows of different lengths",
        ),
        ({"features": [["a"], ["b"]]}, "features must be an array of numbers, got type <U1"),
        ({"features": [[1j], [2]]}, "features must be an array of numbers, got type complex128"),
        ({"labels": [0, -1]}, r"labels must be in 0\.\.99999, got -1 in sample 1"),
        ({"labels": [0, 2], "classes": 2}, r"labels must be in 0\.\.1, got 2 in sample 1"),
        ({"labels": [0.0, 1.0], "classes": 2}, "labels must be whole numbers below 2, got float64"),
        ({"labels": [0.0, float("nan")]}, "labels must be finite, got nan in sample 1"),
        ({"labels": [0]}, r"labels must be one for each of 2 samples, got shape \(1,\)"),
        ({"labels": [[0], [1]]}, r"labels must be one for each of 2 samples, got shape \(2, 1\)"),
        ({"labels": [True, False]}, "labels must be an array of numbers, got type bool"),
        (
            {"test_features": [[1.0]]},
            "test_labels is required with the other half of the test data",
        ),
        (
            {"test_labels": [1]},
            "test_features is required with the other half of the test data",
        ),
        ({"test_features": [[1.0]], "test_labels": []}, r"test_labels must be one for each of 1 samples"),
        (
            {"test_features": [[1.0, 2.0]], "test_labels": [1]},
            r"test_features must have samples of the shape of",
        ),
        (
            {"test_features": [[1.0]], "test_labels": [2]},
            r"test_labels must be in 0\.\.1, got 2 in sample 0",
        ),
        ({"test_features": [[1.0]], "test_labels": [0.5]}, "test_labels must be whole numbers below 2"),
        (
            {"labels": [0.5, 1], "test_features": [[1.0]], "test_labels": [1]},
            "test_labels must be real numbers like the other labels, got int64",
        ),
        ({"groups": [[1], [1, 2]]}, "groups must be an array, got rows of different lengths"),
        ({"groups": [1]}, r"groups must be one for each of 2 samples, got shape \(1,\)"),
        ({"groups": [1.0, 2.0]}, "groups must be whole numbers or text, got float64"),
        ({"vocabulary": 5}, r"features must be rows of whole-number tokens, got float64 \(2, 1\)"),
        ({"vocabulary": 5, "features": [[5], [0]]}, "features must be tokens below 5, got 5 in sample 0"),
        ({"vocabulary": -1}, "vocabulary must be a whole number of at least 0, got -1"),
    ],
)
def test_bad_arrays_are_refused(change, message):
    with pytest.raises(InvalidValue, match=message):
        from_arrays("own", **{**OK, **change})


@pytest.mark.parametrize(
    ("groups", "numbers"),
    [
        (np.array(["ward b", "ward a"]), [1, 0]),
        (np.array([2**63, 5], dtype=np.uint64), [1, 0]),
        (np.array([7, 5], dtype=np.uint64), [7, 5]),
    ],
)
def test_owners_are_whole_numbers_or_text_also_in_an_archive(tmp_path, groups, numbers):
    path = tmp_path / "own.npz"
    np.savez(path, groups=groups, **OK)
    for data in (from_arrays("own", groups=groups, **OK), load(str(path))):
        assert data.groups.tolist() == numbers
        assert data.groups.dtype == np.int64


def test_importing_the_module_is_light():
    code = (
        "import sys, bonafed.learning.data.datasets, bonafed.learning.data.partition as _;"
        "print('sklearn' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_labels_of_an_array_may_be_names():
    words = ["dog", "cat", "dog"]
    for labels in (words, tuple(words), np.array(words), np.array(words, dtype=object)):
        data = from_arrays(
            "pets", [[1.0], [2.0], [3.0]], labels, test_features=[[4.0]], test_labels=["dog"]
        )
        assert (data.labels.tolist(), data.test_labels.tolist()) == ([1, 0, 1], [1])
        assert (data.class_names, data.classes_stated) == (("cat", "dog"), False)
        assert data.labels.dtype == np.int64
    told = from_arrays("pets", [[1.0], [2.0], [3.0]], words, classes=["dog", "emu", "cat"])
    assert (told.labels.tolist(), told.classes, told.classes_stated) == ([0, 2, 0], 3, True)
    called = from_arrays("pets", [[1.0], [2.0]], [1, 0], classes=["dog", "cat"])
    assert (called.class_names, called.classes) == (("dog", "cat"), 2)


@pytest.mark.parametrize(
    ("labels", "more", "said"),
    [
        (
            ["a", "b"], {"classes": 2},
            "classes must be the names of the classes, as labels are names, got 2",
        ),
        (["a", "b"], {"classes": ["a"]}, "labels must be classes by name: 'a', got 'b'"),
        (
            ["a", "A"], {},
            "labels must be all different, by more than case, width or spaces, got 'A' and 'a'",
        ),
        (["a", "a\x00"], {}, "label must be 1 to 200 printable characters, got 'a\\x00'"),
        (["a", 1], {}, "label must be text, got 1"),
        (["a", ""], {}, "label must be 1 to 200 printable characters, got ''"),
        (["a"], {}, "labels must be one for each of 2 samples, got shape (1,)"),
        ([0, 1], {"columns": ["x", "y"]}, "columns must be one for each of (1,), got 2"),
        ([0, 1], {"columns": ["x\x1b"]}, "column must be 1 to 200 printable characters, got 'x\\x1b'"),
        (
            ["a", "b"], {"test_features": [[0.0]], "test_labels": ["c"]},
            "test_labels must be classes by name: 'a', 'b', got 'c'",
        ),
    ],
)  # fmt: skip
def test_labels_that_are_no_names(labels, more, said):
    with pytest.raises(InvalidValue) as caught:
        from_arrays("own", [[1.0], [2.0]], labels, **more)
    assert str(caught.value) == said


def test_a_data_set_is_one_line():
    assert (
        str(load("digits"))
        == "<Dataset digits: 1,442 samples of shape (1, 8, 8), 355 for testing, 10 classes>"
    )
    assert repr(synthetic("ridge", samples=40, clients=4)).endswith(
        "8 for testing, real targets, 4 owners>"
    )
    words = from_arrays("words\n", [[3, 0], [1, 2]], [0, 1], vocabulary=4)
    assert str(words) == "<Dataset words\\n: 2 samples of shape (2,), 0 for testing, 2 classes, 4 tokens>"
