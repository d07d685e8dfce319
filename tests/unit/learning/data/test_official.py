"""SVHN, CIFAR-100, Tiny-ImageNet and Sentiment140, on small files in their formats."""

import gzip
import hashlib
import io
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.io
from PIL import Image
from scipy.io import savemat

from bonafed.errors import UnreadableFile
from bonafed.learning.data import formats, sources
from bonafed.learning.data import official_formats as official
from bonafed.learning.data.datasets import load

RNG = np.random.default_rng(0)
A, B = "n00000001", "n00000002"  # classes of Tiny-ImageNet
BOXES = "val/val_annotations.txt"
WRONG_CLASS = "wnids.txt, line 2: a class must be n and 8 digits, got"


def files_in(folder, names):
    return {name: formats.locate(folder, name) for name in names}


def refused(read, folder, names):
    with pytest.raises(UnreadableFile) as caught:
        read(files_in(folder, names))
    return str(caught.value).replace(f"{folder}/", "")


class TestSVHN:
    def write(self, folder, monkeypatch, n=7, tests=3, packed=False):
        """Small files that count as published; the images for testing."""
        folder.mkdir(parents=True, exist_ok=True)
        published = {}
        for name, count in zip(official.SVHN_FILES, (n, tests), strict=True):
            images = RNG.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
            labels = (np.arange(count) % 10 + 1).astype(np.uint8)[:, None]
            stream = io.BytesIO()
            savemat(stream, {"X": images, "y": labels}, do_compression=True)
            content = stream.getvalue()
            published[name] = official.KnownFile(len(content), hashlib.sha256(content).hexdigest())
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
        monkeypatch.setattr(official, "SVHN_PUBLISHED", published)
        return images

    @pytest.mark.parametrize("packed", [False, True])
    def test_they_are_read_with_channels_first_and_ten_as_zero(self, tmp_path, monkeypatch, packed):
        images = self.write(tmp_path / "svhn", monkeypatch, tests=12, packed=packed)
        monkeypatch.setenv("BONAFED_DATA", str(tmp_path))
        data = load("svhn")
        assert (data.features.shape, data.classes) == ((7, 3, 32, 32), 10)
        assert data.test_labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
        np.testing.assert_allclose(data.test_features[5, 2], images[:, :, 2, 5] / 255, atol=1e-6)

    def test_no_file_but_the_published_one_reaches_the_reader(self, tmp_path, monkeypatch):
        self.write(tmp_path, monkeypatch)
        path = tmp_path / "train_32x32.mat"
        whole, known = path.read_bytes(), official.SVHN_PUBLISHED["train_32x32.mat"]
        monkeypatch.setattr(scipy.io, "loadmat", lambda stream: pytest.fail("an unknown file was read"))
        due = f"must be the published file, {known.size:,} bytes with the SHA-256 {known.digest}, got "
        changed = [whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :] for k in range(0, len(whole), 997)]
        digests = [hashlib.sha256(content).hexdigest() for content in changed]
        for content, got in [
            (whole[: len(whole) // 2], f"{len(whole) // 2:,} bytes"),
            (b"", "0 bytes"),
            (whole + b"\0", "more"),
            (whole * 50, "more"),
            *((changed[k], f"{known.size:,} bytes with {digest}") for k, digest in enumerate(digests)),
        ]:
            path.write_bytes(content)
            said = refused(official.read_svhn, tmp_path, official.SVHN_FILES)
            assert said == f"train_32x32.mat: {due}{got}"

    def test_the_published_files_are_those_that_are_downloaded(self):
        assert set(sources.SOURCES["svhn"].checksums) == set(official.SVHN_PUBLISHED)
        assert {len(known.digest) for known in official.SVHN_PUBLISHED.values()} == {64}


class TestCIFAR100:
    read = staticmethod(partial(official.read_cifar100, records=(6, 4)))

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        tables = {}
        for name, n in (("train.bin", 6), ("test.bin", 4)):
            table = RNG.integers(0, 256, (n, 3074), dtype=np.uint8)
            table[:, 0], table[:, 1] = np.arange(n), 99 - np.arange(n)
            (folder / name).write_bytes(table.tobytes())
            tables[name] = table
        return tables

    def test_classes_are_the_fine_labels(self, tmp_path):
        tables = self.write(tmp_path)
        arrays = self.read(files_in(tmp_path, official.CIFAR100_FILES))
        assert arrays["labels"].tolist() == [99, 98, 97, 96, 95, 94]
        np.testing.assert_array_equal(arrays["test_features"].reshape(4, 3072), tables["test.bin"][:, 2:])
        assert arrays["features"].shape == (6, 3, 32, 32)

    def test_the_folder_of_the_archive_is_found(self, tmp_path, monkeypatch):
        self.write(tmp_path / "cifar100" / "cifar-100-binary")
        source = sources.SOURCES["cifar100"]
        monkeypatch.setitem(sources.SOURCES, "cifar100", replace(source, read=self.read))
        monkeypatch.setenv("BONAFED_DATA", str(tmp_path))
        data = load("cifar100")
        assert (data.classes, len(data.labels), len(data.test_labels)) == (100, 6, 4)

    def test_others_are_refused(self, tmp_path):
        tables = self.write(tmp_path)
        path = tmp_path / "train.bin"
        whole = path.read_bytes()
        for content, reason in (
            (whole[:-1], "must hold 6 records of 3074 bytes, got 18443 bytes"),
            (whole + b"x", "must hold 6 records of 3074 bytes, got more"),
            (b"\x14" + whole[1:], "labels must be below 20, got 20 for sample 0"),
            (whole[:1] + b"\x64" + whole[2:], "labels must be below 100, got 100 for sample 0"),
        ):
            path.write_bytes(content)
            assert refused(self.read, tmp_path, official.CIFAR100_FILES) == f"train.bin: {reason}"
        path.write_bytes(tables["train.bin"].tobytes())
        (tmp_path / "test.bin").rename(tmp_path / "test.bin.gz")
        assert refused(self.read, tmp_path, official.CIFAR100_FILES).startswith("test.bin.gz: ")


def boxes(*images):
    return "".join(f"{image}.JPEG\t{B}\t0\t32\t44\t62\n" for image in images)


class TestTinyImageNet:
    read = staticmethod(partial(official.read_tiny_imagenet, classes=3, images=2, tests=4))
    names = (B, A, "n00000003")

    def write(self, folder):
        (folder / "val" / "images").mkdir(parents=True)
        (folder / "wnids.txt").write_text("\n".join(self.names))
        for k, name in enumerate(self.names):
            (folder / "train" / name / "images").mkdir(parents=True)
            for i in (10, 2):
                self.image(folder / "train" / name / "images" / f"{name}_{i}.JPEG", 60 * k + i)
        lines = []
        for i in range(4):
            self.image(folder / "val" / "images" / f"val_{i}.JPEG", 50 * i, grey=i == 1)
            lines.append(f"val_{i}.JPEG\t{self.names[i % 3]}\t0\t32\t44\t62")
        (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")

    def image(self, path, shade, size=(64, 64), grey=False):
        pixels = np.full((size[1], size[0], 3), shade, np.uint8)
        image = Image.fromarray(pixels)
        (image.convert("L") if grey else image).save(path, "JPEG")

    def test_images_are_read_by_class_and_number(self, tmp_path, monkeypatch):
        self.write(tmp_path / "tiny-imagenet" / "tiny-imagenet-200")
        source = sources.SOURCES["tiny-imagenet"]
        changed = replace(source, read=self.read, classes=3)
        monkeypatch.setitem(sources.SOURCES, "tiny-imagenet", changed)
        monkeypatch.setenv("BONAFED_DATA", str(tmp_path))
        data = load("tiny-imagenet")
        assert data.features.shape == (6, 3, 64, 64)
        assert data.labels.tolist() == [0, 0, 1, 1, 2, 2]
        shades = (255 * data.features.mean((1, 2, 3))).round().astype(int).tolist()
        assert shades == [2, 10, 62, 70, 122, 130]
        assert data.test_labels.tolist() == [0, 1, 2, 0]
        np.testing.assert_allclose(255 * data.test_features.mean((1, 2, 3)), [0, 50, 100, 150], atol=1)

    @pytest.mark.parametrize(
        ("file", "content", "reason"),
        [
            ("wnids.txt", f"{A}\n{A}\n{B}\n", "wnids.txt: must name 3 classes, each once, got 2"),
            ("wnids.txt", f"{B}\n{A}\nn00000009\n", "train/n00000009/images: must hold 2 images, got 0"),
            ("wnids.txt", "é", "wnids.txt: not ASCII text"),
            ("wnids.txt", f"{A}\n../{B}\n", f"{WRONG_CLASS} '../{B}'"),
            ("wnids.txt", f"{A}\n/etc\n", f"{WRONG_CLASS} '/etc'"),
            ("wnids.txt", f"{A}\n{B}\0\n", f"{WRONG_CLASS} '{B}\\x00'"),
            ("wnids.txt", f"{A}\n{'n' * 300}\n", f"{WRONG_CLASS} '{'n' * 20}'"),
            (BOXES, f"val_0.JPEG\t{A}\n", f"{BOXES}: must have 4 lines, got 1"),
            (
                BOXES, boxes("val_0", "val_1", "val_2", "val_9"),
                "val/images/val_9.JPEG: No such file or directory",
            ),
            (
                BOXES, boxes("val_0", "val_1", "val_2", "val_1"),
                f"{BOXES}, line 4: must name every file once, got val_1.JPEG again",
            ),
            *(
                (
                    BOXES, boxes(name, "val_1", "val_2", "val_3"),
                    f"{BOXES}, line 1: must name a file val_NUMBER.JPEG, got '{shown}",
                )
                for name, shown in (
                    ("../val_0", "../val_0.JPEG'"), ("/val_0", "/val_0.JPEG'"), ("v\0", "v\\x00.JPEG'"),
                    ("v" * 300, "v" * 40), ("", ".JPEG'"),
                )
            ),
            (
                BOXES, boxes("val_0", "val_1", "val_2", "val_3").replace(B, "n00000007"),
                f"{BOXES}, line 1: must name a class of wnids.txt, got 'n00000007'",
            ),
            (BOXES, "val_0.JPEG\n" * 4, f"{BOXES}, line 1: must name a class of wnids.txt"),
            ("val/images/val_2.JPEG", "no image", "val/images/val_2.JPEG: not a JPEG that can be read"),
            ("val/images/val_2.JPEG", None, "val/images/val_2.JPEG: No such file or directory"),
        ],
    )  # fmt: skip
    def test_others_are_refused_by_name(self, tmp_path, file, content, reason):
        self.write(tmp_path)
        if content is None:
            (tmp_path / file).unlink()
        else:
            (tmp_path / file).write_text(content)
        said = refused(self.read, tmp_path, official.TINY_FILES)
        assert said.startswith(reason)
        assert "\n" not in said

    def test_images_of_another_size_and_half_images_are_refused(self, tmp_path):
        self.write(tmp_path)
        path = tmp_path / "train" / "n00000003" / "images" / "n00000003_2.JPEG"
        whole = path.read_bytes()
        self.image(path, 3, size=(64, 32))
        said = refused(self.read, tmp_path, official.TINY_FILES)
        assert said == "train/n00000003/images/n00000003_2.JPEG: must be 64 x 64 pixels, got 64 x 32"
        path.write_bytes(whole[: len(whole) - 200])
        assert "not a JPEG that can be read" in refused(self.read, tmp_path, official.TINY_FILES)

    def test_without_pillow_it_is_said_what_to_install(self, tmp_path, monkeypatch):
        self.write(tmp_path)
        monkeypatch.setitem(sys.modules, "PIL", None)
        said = refused(self.read, tmp_path, official.TINY_FILES)
        assert said == "wnids.txt: its JPEGs need Pillow: pip install pillow"


class TestSentiment140:
    rows = (
        '"0","1467810369","Mon Apr 06","NO_QUERY","ann","Caf\xe9 is CLOSED, again"\n'
        '"4","1467810370","Mon Apr 06","NO_QUERY","bob","again ""again"" good"\n'
    )

    def write(self, folder, train=None, test=None):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in zip(official.SENTIMENT_FILES, (train, test), strict=True):
            (folder / name).write_bytes((self.rows if text is None else text).encode("latin-1"))

    def test_sentences_are_numbered_and_neutral_ones_left_out(self, tmp_path, monkeypatch):
        self.write(tmp_path / "sentiment140", test=self.rows + '"2","1","d","q","u","so so"\n')
        read = partial(official.read_sentiment140, minimum_count=1, length=4)
        source = sources.SOURCES["sentiment140"]
        monkeypatch.setitem(sources.SOURCES, "sentiment140", replace(source, read=read))
        monkeypatch.setenv("BONAFED_DATA", str(tmp_path))
        data = load("sentiment140")
        assert (data.labels.tolist(), data.test_labels.tolist(), data.classes) == ([0, 1], [0, 1], 2)
        assert data.features.shape == (2, 4)
        assert data.features[1, 0] == 2  # "again", the most frequent word
        assert data.features[1, 3] == 0  # padding
        assert data.vocabulary == 2 + len({"again", '"again"', "café", "closed,", "good", "is"})
        rare = official.read_sentiment140(
            files_in(tmp_path / "sentiment140", official.SENTIMENT_FILES), minimum_count=1, words=1
        )
        assert rare["vocabulary"] == 3
        assert set(rare["features"].ravel().tolist()) == {0, 1, 2}

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ('"1","a","b","c","d","e"\n', "polarity must be 0 or 4, got '1'"),
            ('"2","a","b","c","d","e"\n', "polarity must be 0 or 4, got '2'"),
            ('"0","a","b"\n', "must have 6 columns, got 3"),
            ('"0","a","b","c","d","e\n', "not a table: unexpected end of data"),
            ("", "must hold sentences, got none"),
        ],
    )
    def test_others_are_refused_with_the_line(self, tmp_path, text, reason):
        self.write(tmp_path, train=text)
        with pytest.raises(UnreadableFile) as caught:
            official.read_sentiment140(files_in(tmp_path, official.SENTIMENT_FILES))
        assert reason in str(caught.value)
        assert official.SENTIMENT_FILES[0] in str(caught.value)

    def test_half_an_archive_is_refused(self, tmp_path):
        self.write(tmp_path)
        path = tmp_path / official.SENTIMENT_FILES[0]
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes() * 50)[:60])
        path.unlink()
        said = refused(official.read_sentiment140, tmp_path, official.SENTIMENT_FILES)
        assert said.startswith(official.SENTIMENT_FILES[0] + ".gz: ")
