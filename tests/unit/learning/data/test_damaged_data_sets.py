"""Damaged and hostile files of data sets: refused in one line, or still a data set; nothing ever crashes.

Readers run in a process of their own here: what takes it down is one failed test, not the end of all.
"""

import gzip
import io
import json
import os
import random
import struct
import subprocess
import sys
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests import natural

from bonafed.errors import UnreadableFile
from bonafed.learning.data import formats
from bonafed.learning.data import official_formats as official
from bonafed.learning.data.real_federations import hospitals, schools

TRIES = 300
MOST_MEMORY = 2**23  # bytes; the files have some thousands
ONE_CLASS = partial(official.read_tiny_imagenet, classes=1, images=1, tests=1)
CLASS = "n00000001"


def idx(array, *sizes):
    sizes = sizes or array.shape
    return struct.pack(f">{1 + len(sizes)}I", 0x0800 + len(sizes), *sizes) + array.tobytes()


def jpeg(size=(64, 64)):
    stream = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, "JPEG")
    return stream.getvalue()


def damaged(chance, whole):
    """Cut, or with bytes that are changed, added or moved, most often where a format keeps its sizes."""
    how = chance.random()
    if how < 0.15:
        return whole[: chance.randrange(len(whole))]
    content = bytearray(whole)
    for _ in range(chance.randint(1, 4)):
        near = chance.random() < 0.6
        place = chance.randrange(min(len(content), 80 if near else len(content)))
        place += 128 if near and len(content) > 300 and chance.random() < 0.7 else 0
        if how < 0.25:
            content[place:place] = chance.randbytes(chance.choice([1, 4, 8, 100]))
        else:
            content[place] = chance.choice(
                [0, 1, 0x7F, 0x80, 0xFF, content[place] ^ 1, chance.randrange(256)]
            )
    return bytes(content)


def cifar100(folder, chance):
    whole = b"".join(bytes([k, k]) + bytes(3072) for k in range(3))
    broken = damaged(chance, whole)
    packed = chance.random() < 0.5
    (folder / f"train.bin{'.gz' * packed}").write_bytes(gzip.compress(broken) if packed else broken)
    (folder / f"train.bin{'.gz' * (not packed)}").unlink(missing_ok=True)
    (folder / "test.bin").write_bytes(whole)
    return partial(official.read_cifar100, records=(3, 3)), official.CIFAR100_FILES


def emnist(folder, chance):
    names = formats.emnist_files("letters")
    whole = {
        name: idx(np.ones((3, 28, 28) if name.endswith("features") else 3, np.uint8)) for name in names
    }
    victim = chance.choice(sorted(names))
    for name, file in names.items():
        content = damaged(chance, whole[name]) if name == victim else whole[name]
        packed = gzip.compress(content)
        if name == victim and chance.random() < 0.3:
            packed = damaged(chance, gzip.compress(whole[name]))
        (folder / f"{file}.gz").write_bytes(packed)
    return partial(formats.read_emnist, "letters"), tuple(names.values())


def tiny_imagenet(folder, chance):
    own = folder / "train" / CLASS / "images"
    own.mkdir(parents=True, exist_ok=True)
    (folder / "val" / "images").mkdir(parents=True, exist_ok=True)
    contents = {
        "wnids.txt": f"{CLASS}\n".encode(),
        "val/val_annotations.txt": f"val_0.JPEG\t{CLASS}\t0\t0\t62\t62\n".encode(),
        "val/images/val_0.JPEG": jpeg(),
        f"train/{CLASS}/images/{CLASS}_0.JPEG": jpeg(),
    }
    victim = chance.choice([*contents, *[f"train/{CLASS}/images/{CLASS}_0.JPEG"] * 8])
    for name, content in contents.items():
        (folder / name).write_bytes(damaged(chance, content) if name == victim else content)
    return ONE_CLASS, official.TINY_FILES


def sentiment140(folder, chance):
    whole = b'"0","1","d","q","ann","so caf\xe9 bad"\n"4","2","d","q","bob","so ""very"" good"\n' * 3
    for name in official.SENTIMENT_FILES:
        (folder / name).write_bytes(
            damaged(chance, whole) if name == official.SENTIMENT_FILES[0] else whole
        )
    return partial(official.read_sentiment140, minimum_count=1), official.SENTIMENT_FILES


WHOLE = {}  # the files of federations, written once


def of_clients(write, reader, file, folder, chance):
    """A federation of hospitals or schools with a damaged file."""
    path = folder / file
    if file not in WHOLE:
        write(folder)
        WHOLE[file] = path.read_bytes()
    if chance.random() < 0.2:  # a digit for a digit: another table that can mostly be read
        places = [place for place, byte in enumerate(WHOLE[file]) if chr(byte).isdigit()]
        content = bytearray(WHOLE[file])
        content[chance.choice(places)] = ord(chance.choice("0123456789"))
    else:
        content = damaged(chance, WHOLE[file])
    path.unlink(missing_ok=True)
    path.with_name(f"{file}.gz").unlink(missing_ok=True)
    if chance.random() < 0.3:
        packed = gzip.compress(content)
        content = damaged(chance, packed) if chance.random() < 0.5 else packed
        path = path.with_name(f"{file}.gz")
    path.write_bytes(content)
    return reader


def hearts(folder, chance):
    reader = of_clients(natural.write_heart, hospitals.read_heart, "processed.va.data", folder, chance)
    return reader, tuple(hospitals.HOSPITALS)


def strokes(folder, chance):
    return of_clients(natural.write_ist, hospitals.read_ist, hospitals.STROKE_FILE, folder, chance), (
        hospitals.STROKE_FILE,
    )


def pupils(folder, chance):
    file = schools.FILES["mathachieve"]
    return of_clients(natural.write_schools, schools.read_schools, file, folder, chance), (file,)


KINDS = {
    made.__name__: made for made in (cifar100, emnist, tiny_imagenet, sentiment140, hearts, strokes, pupils)
}


def attempt(folder, kind):
    """Read as many damaged data sets; how many were refused and read, what else was raised, the memory."""
    refused, read, others = 0, 0, []
    for seed in range(TRIES):
        if seed == 10:  # modules that readers need are there by now
            tracemalloc.start()
        reader, names = KINDS[kind](folder, random.Random(seed))
        try:
            reader({name: formats.locate(folder, name) for name in names})
            read += 1
        except UnreadableFile as error:
            refused += 1
            if "\n" in str(error) or len(str(error)) > 500:
                others.append(f"{seed}: {error}")
        except Exception as error:
            others.append(f"{seed}: {error!r}")
    return {"refused": refused, "read": read, "others": others, "peak": tracemalloc.get_traced_memory()[1]}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_damaged_is_refused_or_read(tmp_path, kind):
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, str(tmp_path), kind], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["others"] == []
    assert found["refused"] + found["read"] == TRIES
    assert min(found["refused"], found["read"]) >= 10  # neither blind nor bricked up
    assert found["peak"] < MOST_MEMORY


def refusal(reader, folder, names):
    with pytest.raises(UnreadableFile) as caught:
        reader({name: formats.locate(folder, name) for name in names})
    return str(caught.value).replace(f"{folder}/", "")


class TestEMNIST:
    names = formats.emnist_files("letters")

    def write(self, folder, images):
        for name, file in self.names.items():
            content = images if name == "features" else idx(np.ones(1, np.uint8))
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))

    def test_what_claims_to_be_huge_is_not_read(self, tmp_path):
        for images in (2**32 - 1, 700_001):
            self.write(tmp_path, idx(np.zeros(10, np.uint8), images, 28, 28))
            said = refusal(partial(formats.read_emnist, "letters"), tmp_path, tuple(self.names.values()))
            assert said.endswith(f"ubyte.gz: must hold at most 700,000 images, got {images:,}")

    def test_no_memory_is_set_aside_for_what_is_not_there(self, tmp_path):
        self.write(tmp_path, idx(np.zeros(10, np.uint8), 700_000, 28, 28))
        tracemalloc.start()
        said = refusal(partial(formats.read_emnist, "letters"), tmp_path, tuple(self.names.values()))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert said.endswith("must hold 700000 x 28 x 28 bytes after its header, got 10")
        assert peak < 2**23

    def test_of_a_bomb_a_byte_more_than_expected_is_inflated(self, tmp_path):
        self.write(tmp_path, idx(np.zeros(2 * 10**7, np.uint8), 2, 28, 28))
        tracemalloc.start()
        said = refusal(partial(formats.read_emnist, "letters"), tmp_path, tuple(self.names.values()))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert said.endswith("must hold 2 x 28 x 28 bytes after its header, got 1569 or more")
        assert peak < 2**20


class TestTinyImageNet:
    @pytest.fixture
    def folder(self, tmp_path):
        whole = tmp_path / "whole"
        whole.mkdir()
        tiny_imagenet(whole, random.Random(0))
        (whole / "wnids.txt").write_text(CLASS)
        (whole / "val/val_annotations.txt").write_text(f"val_0.JPEG\t{CLASS}\n")
        for name in ("val/images/val_0.JPEG", f"train/{CLASS}/images/{CLASS}_0.JPEG"):
            (whole / name).write_bytes(jpeg())
        assert len(ONE_CLASS({name: whole / name for name in official.TINY_FILES})["labels"]) == 1
        return whole

    def refused(self, folder):
        return refusal(ONE_CLASS, folder, official.TINY_FILES)

    @pytest.mark.parametrize(
        ("side", "got"), [(65, "65 x 65"), (12_000, "12000 x 12000"), (65_500, "far more")]
    )
    def test_the_size_in_the_header_is_enough_to_refuse(self, folder, side, got):
        whole = jpeg()
        frame = whole.index(b"\xff\xc0") + 5
        claimed = whole[:frame] + struct.pack(">HH", side, side) + whole[frame + 4 :]
        (folder / "val/images/val_0.JPEG").write_bytes(claimed)
        assert self.refused(folder) == f"val/images/val_0.JPEG: must be 64 x 64 pixels, got {got}"

    @pytest.mark.parametrize(
        "name",
        [
            "wnids.txt", "val/val_annotations.txt", "val/images", "val/images/val_0.JPEG", "train",
            f"train/{CLASS}/images", f"train/{CLASS}/images/{CLASS}_0.JPEG",
        ],
    )  # fmt: skip
    def test_links_out_of_the_folder_are_not_followed(self, folder, name):
        elsewhere = folder.parent / "elsewhere"
        (folder / name).rename(elsewhere)
        (folder / name).symlink_to(elsewhere)
        said = self.refused(folder)
        assert said.startswith(name if name != "train" else f"train/{CLASS}/images")
        assert said.endswith(f"must not be a link that leads out of {folder}")

    def test_a_folder_that_is_linked_to_is_read_and_links_inside_it_too(self, folder):
        image = folder / "val/images/val_0.JPEG"
        image.rename(folder / "val/kept.JPEG")
        image.symlink_to("../kept.JPEG")
        linked = folder.parent / "linked"
        linked.symlink_to(folder)
        assert len(ONE_CLASS({name: linked / name for name in official.TINY_FILES})["labels"]) == 1

    def test_a_pipe_is_not_waited_for(self, folder):
        image = folder / "val/images/val_0.JPEG"
        image.unlink()
        os.mkfifo(image)
        assert self.refused(folder) == "val/images/val_0.JPEG: must be a file, got something else"

    def test_images_by_other_names_are_refused(self, folder):
        (folder / f"train/{CLASS}/images/{CLASS}_x.JPEG").write_bytes(jpeg())
        said = self.refused(folder)
        assert said.endswith(f"images must be called {CLASS}_NUMBER.JPEG, got '{CLASS}_x.JPEG'")


class TestSentiment140:
    def refused(self, folder, content, suffix=""):
        train, test = official.SENTIMENT_FILES
        (folder / (train + suffix)).write_bytes(content)
        (folder / test).write_bytes(b'"0","1","d","q","ann","bad"\n')
        said = refusal(official.read_sentiment140, folder, official.SENTIMENT_FILES)
        assert said.startswith(train + suffix)
        return said.removeprefix(train + suffix)

    @pytest.mark.parametrize(
        "start",
        [b"", b'"0","1","d","q","ann","', b'"0","1"' + b',"a\n"' * 10_000],
        ids=["a line without an end", "a cell without an end", "a row of many lines"],
    )
    def test_of_a_row_without_an_end_little_is_read(self, tmp_path, start):
        content = gzip.compress(start + b"a" * 2 * 10**7)
        tracemalloc.start()
        said = self.refused(tmp_path, content, ".gz")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert said.endswith(": a row must have at most 16,384 characters, got more")
        assert peak < 2**20

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (
                b'"0","1","d","q","ann","bad\0"\n',
                ", line 1: must be text in Latin-1, got a character of code 0",
            ),
            (
                '"0","1","d","q","ann","bad"\n'.encode("utf-16"),
                ", line 1: must be text in Latin-1, got a character of code 0",
            ),
            (
                '"0","1","d","q","ann","bad"\n'.encode("utf-8-sig"),
                ", line 1: polarity must be 0 or 4, got 'ï»¿\"0\"'",
            ),
            (
                b'"0","1","d","q","ann","bad"\n"5","1","d","q","ann","bad"\n',
                ", line 2: polarity must be 0 or 4",
            ),
            (b'"0","1","d","q","ann","bad","x"\n', ", line 1: must have 6 columns, got 7"),
        ],
        ids=["nul", "utf-16", "utf-8 with a mark", "polarity", "columns"],
    )
    def test_other_text_is_refused_with_the_line(self, tmp_path, content, reason):
        assert self.refused(tmp_path, content).startswith(reason)

    def test_tables_are_bounded(self, tmp_path, monkeypatch):
        monkeypatch.setattr(official, "_LONGEST_TABLE", 100)
        said = self.refused(tmp_path, b'"0","1","d","q","ann","bad"\n' * 5)
        assert said == ", line 4: must have at most 100 characters, got more"


if __name__ == "__main__":
    print(json.dumps(attempt(Path(sys.argv[1]), sys.argv[2])))
