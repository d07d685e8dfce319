"""Where named data sets come from: the files of each, how they are read, and their home.

Files are looked for in `folder` or $BONAFED_DATA, in the subfolder <name> (`emnist` for all splits of
EMNIST), then in the user's cache ($XDG_CACHE_HOME or ~/.cache)/bonafed/<name>. Missing ones are downloaded,
checked by checksum and saved to the cache.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from bonafed import files
from bonafed.errors import UnreadableFile
from bonafed.extras import explained
from bonafed.learning.data import formats
from bonafed.learning.data import official_formats as official
from bonafed.learning.data.formats import Arrays
from bonafed.learning.data.real_federations import choices as natural
from bonafed.learning.data.real_federations import hospitals, schools

Progress = Callable[[str], None]

STALLED = 10.0  # seconds without an answer after which a download is abandoned
_BROKEN = (OSError, ValueError)  # what a failed download raises


@dataclass(frozen=True, slots=True)
class DataSource:
    """Where a named data set comes from."""

    files: tuple[str, ...]  # that a folder must hold
    read: Callable[[Mapping[str, Path]], Arrays]
    classes: int | None  # None: real targets
    home: str = ""  # the address to download from
    checksums: Mapping[str, str] = field(default_factory=dict)  # MD5 of each file there; empty: no download
    unpacked: str = ""  # the folder that its archive unpacks to
    folder: str = ""  # subfolder of its files, if it is not called like the data set
    as_published: bool = False  # the cache keeps its files, which can be read in several ways


_IDX = tuple(formats.IDX_FILES.values())
SOURCES = {
    "mnist": DataSource(
        _IDX,
        formats.read_idx_images,
        10,
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": DataSource(
        _IDX,
        formats.read_idx_images,
        10,
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cifar10": DataSource(
        formats.CIFAR_FILES,
        formats.read_cifar,
        10,
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        formats.CIFAR_FOLDER,
    ),
    "sst": DataSource(formats.SST_FILES, formats.read_sst, 5),
    **{
        f"emnist-{split}": DataSource(
            tuple(formats.emnist_files(split).values()),
            partial(formats.read_emnist, split),
            classes,
            "https://www.nist.gov/itl/products-and-services/emnist-dataset",
            unpacked=formats.EMNIST_FOLDER,
            folder="emnist",
        )
        for split, classes in formats.EMNIST_CLASSES.items()
    },
    "svhn": DataSource(
        official.SVHN_FILES,
        official.read_svhn,
        10,
        "http://ufldl.stanford.edu/housenumbers/",
        {
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
    ),
    "cifar100": DataSource(
        official.CIFAR100_FILES,
        official.read_cifar100,
        100,
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        official.CIFAR100_FOLDER,
    ),
    "tiny-imagenet": DataSource(
        official.TINY_FILES, official.read_tiny_imagenet, 200, unpacked=official.TINY_FOLDER
    ),
    "sentiment140": DataSource(official.SENTIMENT_FILES, official.read_sentiment140, 2),
    "heart": DataSource(
        tuple(hospitals.HOSPITALS),
        hospitals.read_heart,
        2,
        "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/",
        {
            "processed.cleveland.data": "2d91a8ff69cfd9616aa47b59d6f843db",
            "processed.hungarian.data": "22e96bee155b5973568101c93b3705f6",
            "processed.switzerland.data": "9a87f7577310b3917730d06ba9349e20",
            "processed.va.data": "4249d03ca7711e84f4444768c9426170",
        },
        as_published=True,
    ),
    "ist": DataSource(
        (hospitals.STROKE_FILE,), hospitals.read_ist, 2, "https://doi.org/10.7488/ds/104", as_published=True
    ),
    "schools": DataSource(
        (schools.FILES["mathachieve"],),
        schools.read_schools,
        None,
        "the R packages nlme and mlmRev",
        as_published=True,
    ),
}


def source_of(name: str, chosen: Mapping[str, str | int]) -> DataSource:
    """Where a named data set comes from, read as chosen."""
    source = SOURCES[name]
    if not chosen:
        return source
    files = (schools.FILES[str(chosen["study"])],) if "study" in chosen else source.files
    words = natural.FEDERATIONS[name].choices  # of which a single one is no choice
    open_ones = {key: value for key, value in chosen.items() if len(words.get(key, chosen)) > 1}
    return replace(source, files=files, read=partial(source.read, **open_ones))


def look_up(
    name: str, choices: Mapping[str, str | int], folder: Path | None, say: Progress
) -> tuple[Path, Arrays]:
    """Where a named data set was, and its arrays: in the folder, the user's cache, or at its home."""
    source = source_of(name, choices)
    own = source.folder or name
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bonafed" / own
    root = os.environ.get("BONAFED_DATA")
    if folder is not None:
        if not folder.is_dir():
            raise UnreadableFile(folder, f"no such folder, looking for {name}")
        folders = [folder / own, folder, cache]
    else:
        folders = [Path(root) / own, cache] if root else [cache]
    for each in folders:
        match = _in_folder(name, source, each)
        if match is not None:
            return match
    reason = "not offered for download" + (f", they come from {source.home}" if source.home else "")
    if source.checksums:
        try:
            arrays = _download(name, source, cache, say)
        except _BROKEN as error:
            message = " ".join(str(error).split())
            reason = f"the download failed, {type(error).__name__}: {message}".rstrip(": ")
        else:
            return cache, arrays
    needed = ", ".join(f"{file}[.gz]" for file in source.files)
    elsewhere = "or set $BONAFED_DATA or `folder` to where they are"
    raise UnreadableFile(folders[0], f"{name} not found: put {needed} there, {elsewhere} ({reason})")


def _in_folder(name: str, source: DataSource, folder: Path) -> tuple[Path, Arrays] | None:
    """A data set in a folder, original files before an archive; an incomplete one is refused."""
    for each in dict.fromkeys((folder, folder / source.unpacked)):
        paths = {file: path for file in source.files if (path := formats.locate(each, file))}
        if paths:
            missing = [file for file in source.files if file not in paths]
            if missing:
                raise UnreadableFile(each, f"{name} is incomplete: {', '.join(missing)} missing")
            return each, source.read(paths)
    archive = folder / f"{name}.npz"
    if source.as_published or not archive.is_file():
        return None
    return archive, formats.read_npz(archive)


def _download(name: str, source: DataSource, cache: Path, say: Progress) -> Arrays:
    """Fetch a data set from its home and save it to the cache, completely or not at all."""
    with explained():
        import pooch

    pooch.get_logger().setLevel(logging.WARNING)  # `say` reports progress
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        for file, checksum in source.checksums.items():
            say(f"fetching {file} of {name} from {source.home}")
            pooch.retrieve(
                source.home + file,
                known_hash=f"md5:{checksum}",
                fname=file,
                path=scratch,
                processor=pooch.Untar(extract_dir=".") if file.endswith(".tar.gz") else None,
                downloader=pooch.HTTPDownloader(timeout=STALLED, progressbar=_DownloadProgress(say)),
            )
        match = _in_folder(name, source, Path(scratch))
        if match is None:
            raise ValueError(f"{source.home} does not hold the files of {name}")
        arrays = match[1]
        if source.as_published:
            kept = {cache / file: (Path(scratch) / file).read_bytes() for file in source.checksums}
        else:
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **arrays)
            kept = {cache / f"{name}.npz": buffer.getvalue()}
    files.write_together(kept)
    say(f"saved {name} to {cache}")
    return arrays


class _DownloadProgress:
    """Says once a second how much of a file has arrived, with the interface of pooch's progress bars."""

    def __init__(self, say: Progress) -> None:
        self._say, self._received, self._reported = say, 0, time.monotonic()
        self.total = 0  # bytes; 0: unknown

    def update(self, count: int) -> None:
        """Count this many more bytes."""
        self._received += count
        if time.monotonic() - self._reported >= 1.0:
            self._reported = time.monotonic()
            self._say(f"{self._received / 1e6:.1f} MB received")

    def reset(self) -> None:
        """Count from zero again, as pooch asks before a new attempt."""
        self._received = 0

    def close(self) -> None:
        """pooch closes its progress bars; this one holds nothing open."""
