# ruff: noqa: RUF001  (digits at full width are meant)
"""Files from outside: read as published, refused with file, rule and line when broken."""

import gzip
import io
import struct
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.errors import BonafedError, UnreadableFile
from bonafed.learning.data import formats
from bonafed.learning.data.datasets import load, read_file


def idx(array, magic=None):
    header = struct.pack(f">{1 + array.ndim}I", magic or 0x0800 + array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx(folder, samples=12, tests=5, compress=True):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    content = {}
    for prefix, n in (("train", samples), ("t10k", tests)):
        content[f"{prefix}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 28, 28))
        content[f"{prefix}-labels-idx1-ubyte"] = np.arange(n) % 10
    for name, array in content.items():
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))
    return content


def found(folder, files):
    return {file: formats.locate(folder, file) for file in files}


@pytest.mark.parametrize("compress", [True, False])
def test_idx_images_are_read_compressed_or_not(tmp_path, compress):
    content = write_idx(tmp_path, compress=compress)
    arrays = formats.read_idx_images(found(tmp_path, formats.IDX_FILES.values()))
    for name, file in formats.IDX_FILES.items():
        assert np.array_equal(arrays[name].reshape(content[file].shape), content[file])
    assert arrays["features"].shape == (12, 1, 28, 28)


def test_idx_files_with_a_dot_in_their_name_are_found(tmp_path):
    (tmp_path / "train-images.idx3-ubyte").write_bytes(b"")
    assert formats.locate(tmp_path, "train-images-idx3-ubyte") == tmp_path / "train-images.idx3-ubyte"
    assert formats.locate(tmp_path, "train-labels-idx1-ubyte") is None


IMAGES = np.zeros((2, 28, 28))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (idx(IMAGES, magic=0x801), "idx magic number must be 0x00000803, got 0x00000801"),
        (idx(IMAGES, magic=0x50000), "idx magic number must be 0x00000803, got 0x00050000"),
        (idx(IMAGES)[:-1], "must hold 2 x 28 x 28 bytes after its header, got 1567"),
        (idx(IMAGES) + b"x", "must hold 2 x 28 x 28 bytes after its header, got 1569 or more"),
        (idx(IMAGES)[:10], "an idx header must have 16 bytes, got 10"),
        (b"", "an idx header must have 16 bytes, got 0"),
    ],
)
def test_a_broken_idx_file_is_refused(tmp_path, content, reason):
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile) as caught:
        formats.read_idx(path, 3)
    assert str(caught.value) == f"{path}: {reason}"


def test_truncated_or_damaged_compression_is_refused(tmp_path):
    path = tmp_path / "images.gz"
    whole = gzip.compress(idx(np.random.default_rng(0).integers(0, 256, (2, 28, 28))))
    path.write_bytes(whole[:500])
    with pytest.raises(UnreadableFile, match="the file is truncated"):
        formats.read_idx(path, 3)
    path.write_bytes(whole[:300] + bytes(20) + whole[320:])
    with pytest.raises(UnreadableFile, match=r"images\.gz: "):
        formats.read_idx(path, 3)
    path.write_bytes(b"no gzip at all")
    with pytest.raises(UnreadableFile, match="Not a gzipped file"):
        formats.read_idx(path, 3)
    with pytest.raises(UnreadableFile, match="No such file"):
        formats.read_idx(tmp_path / "absent", 3)


def test_labels_that_do_not_fit_the_images_are_refused(tmp_path):
    write_idx(tmp_path, compress=False)
    labels = tmp_path / "train-labels-idx1-ubyte"
    files = found(tmp_path, formats.IDX_FILES.values())
    labels.write_bytes(idx(np.arange(11) % 10))
    with pytest.raises(UnreadableFile, match="must hold a label for each of 12 images, got 11"):
        formats.read_idx_images(files)
    labels.write_bytes(idx(np.array([0] * 7 + [10] * 5)))
    with pytest.raises(UnreadableFile, match="labels must be below 10, got 10 for sample 7"):
        formats.read_idx_images(files)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((5, 28, 27))))
    labels.write_bytes(idx(np.zeros(12)))
    with pytest.raises(UnreadableFile, match=r"images must be 28 x 28, got \(28, 27\)"):
        formats.read_idx_images(files)


def write_cifar(folder, records):
    rng = np.random.default_rng(0)
    tables = {}
    for file in formats.CIFAR_FILES:
        table = rng.integers(0, 256, (records, 3073)).astype(np.uint8)
        table[:, 0] %= 10
        (folder / file).write_bytes(table.tobytes())
        tables[file] = table
    return tables


def test_cifar_records_become_images_with_the_colours_first(tmp_path):
    tables = write_cifar(tmp_path, 3)
    arrays = formats.read_cifar(found(tmp_path, formats.CIFAR_FILES), records=3)
    assert arrays["features"].shape == (15, 3, 32, 32)
    assert arrays["test_features"].shape == (3, 3, 32, 32)
    second = tables["data_batch_2.bin"][1]  # sample 4
    assert arrays["labels"][4] == second[0]
    assert arrays["features"][4, 1, 0, 5] == second[1 + 1024 + 5]  # green, first row, sixth pixel
    assert np.array_equal(arrays["test_labels"], tables["test_batch.bin"][:, 0])


def test_a_broken_cifar_file_is_refused(tmp_path):
    tables = write_cifar(tmp_path, 3)
    files = found(tmp_path, formats.CIFAR_FILES)
    with pytest.raises(UnreadableFile, match="must hold 10000 records of 3073 bytes, got 9219 bytes"):
        formats.read_cifar(files)
    table = tables["data_batch_5.bin"].copy()
    table[2, 0] = 77
    (tmp_path / "data_batch_5.bin").write_bytes(table.tobytes())
    with pytest.raises(
        UnreadableFile, match=r"data_batch_5\.bin: labels must be below 10, got 77 for sample 2"
    ):
        formats.read_cifar(files, records=3)


SENTENCES = "3 the film is good .\n0 The film is\u00a0bad , bad , bad .\n"


def write_sst(folder, train=SENTENCES, test="4 a good film\n"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stsa.fine.train").write_text(train, encoding="utf-8")
    (folder / "stsa.fine.test.gz").write_bytes(gzip.compress(test.encode()))
    return found(folder, formats.SST_FILES)


def test_sentences_become_tokens(tmp_path):
    arrays = formats.read_sst(write_sst(tmp_path), length=6)
    # bad 3; then with 2 each, by alphabet: ',' '.' film is the
    bad, comma, stop, film, is_, the = range(2, 8)
    good = formats.UNKNOWN  # occurs once
    assert arrays["features"].tolist() == [
        [the, film, is_, good, stop, formats.PADDING],
        [the, film, is_, bad, comma, bad],
    ]
    assert arrays["test_features"].tolist() == [[1, 1, film, 0, 0, 0]]
    assert arrays["labels"].tolist() == [3, 0]
    assert arrays["vocabulary"] == 8
    every_word = formats.read_sst(write_sst(tmp_path), length=6, minimum_count=1)
    assert every_word["vocabulary"] == 9


@pytest.mark.parametrize(
    ("train", "reason"),
    [
        ("3 fine .\n5 odd .\n", ", line 2: label must be 0, 1, 2, 3 or 4, got '5'"),
        ("3 fine .\n\n1 bad .\n", ", line 2: label must be 0, 1, 2, 3 or 4, got ''"),
        ("3 fine .\n2\n", ", line 2: must have a sentence after the label, got none"),
        ("", ", line 1: label must be 0, 1, 2, 3 or 4, got ''"),
    ],
)
def test_a_broken_sentence_is_refused_by_its_line(tmp_path, train, reason):
    files = write_sst(tmp_path, train=train)
    with pytest.raises(UnreadableFile) as caught:
        formats.read_sst(files)
    assert str(caught.value) == f"{files['stsa.fine.train']}{reason}"


def test_sentences_that_are_not_text_are_refused(tmp_path):
    files = write_sst(tmp_path)
    files["stsa.fine.train"].write_bytes("3 crème brûlée\n".encode("latin-1"))
    with pytest.raises(UnreadableFile, match="not UTF-8 text"):
        formats.read_sst(files)


TABLE = """height,label,width,client,test
1,0,-2.5,anna,0
1e3,2,0,bert,0
0.5,1, 7 ,anna,1

4,1,8,anna,0
"""


def test_a_table_is_read_by_its_header(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("\ufeff" + TABLE, encoding="utf-8")
    data = read_file(path)
    assert data.name == "own"
    assert data.features.dtype == np.float32
    assert data.features.tolist() == [[1, -2.5], [1000, 0], [4, 8]]
    assert data.labels.tolist() == [0, 2, 1]
    assert data.test_features.tolist() == [[0.5, 7]]
    assert data.test_labels.tolist() == [1]
    assert data.groups.tolist() == [0, 1, 0]
    assert data.classes == 3


def test_clients_that_are_numbers_are_ordered_as_numbers(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("x,label,client\n0,0,10\n0,1,9\n0,0,10\n")
    assert read_file(path).groups.tolist() == [1, 0, 1]


def test_labels_may_be_names(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("weight,label,test\n4,cat,0\n30, dog,0\n5,cat ,1\n6,cat,0\n")
    data = read_file(path)
    assert (data.class_names, data.classes, data.classes_stated) == (("cat", "dog"), 2, False)
    assert (data.labels.tolist(), data.test_labels.tolist()) == ([0, 1, 0], [0])
    assert data.columns == ("weight",)
    assert str(data) == "<Dataset own: 3 samples of shape (1,), 1 for testing, 2 classes (cat, dog)>"


COMMAS = ", line 1: cells must be separated by commas, got"
REMEDY = (
    "drop these rows or columns, fill in what is missing, or write text as numbers "
    "(a column of 0 and 1 per word)"
)


def unread(line, column, cell, found, rule="a finite number"):
    return f", line {line}: {column} must be {rule}, got {cell} (in all {found}): {REMEDY}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ", line 1: header must have a column 'label', got none"),
        ("a,b\n1,2\n", ", line 1: header must have a column 'label', got a, b"),
        ("label\n1\n", ", line 1: header must have at least one feature column, got none"),
        ("a,a,label\n", ", line 1: columns must have distinct names, got 'a'"),
        ("a,,label\n", ", line 1: columns must have distinct names, got ''"),
        ("a,label\n", ": must hold at least one row below its header, got none"),
        ("a,label\n1,0\n\n2\n", ", line 4: must have 2 columns, got 1"),
        ("a,label\n1,0\nx,0\n", unread(3, "a", "'x'", "1 of 2 rows, column 'a' (1 text)")),
        ("a,b,label\n1,,0\n", unread(2, "b", "''", "1 of 1 row, column 'b' (1 empty)")),
        ("a,label\n1,0\nnan,0\n", unread(3, "a", "nan", "1 row of 2, columns 'a'")),
        ("a,label\n1,0\n\n-inf,0\n", unread(4, "a", "-inf", "1 row of 2, columns 'a'")),
        ("a,label\n1,0\n-1e300,0\n", ", line 3: a must not exceed 3.4e+38 in size, got -1e+300"),
        ("a,label\n1e39,0\n", ", line 2: a must not exceed 3.4e+38 in size, got 1e+39"),
        ("a,label\n1,-1\n", ", line 2: label must be a whole number from 0, or a name, got '-1'"),
        ("a,label\n1,0.5\n", ", line 2: label must be a whole number from 0, or a name, got '0.5'"),
        (
            "a,label\n1,\n",
            unread(
                2, "label", "''", "1 of 1 row, column 'label' (1 empty)", "a whole number from 0, or a name"
            ),
        ),
        (
            "a,b,c,label\n1,,x,0\n1,2,x,0\n1,,y,\n1,2,3,1\n",
            unread(2, "b", "''", "3 of 4 rows, columns 'b' (2 empty), 'c' (3 text), 'label' (1 empty)"),
        ),
        (
            "a,b,label\nnan,1,0\n1,inf,0\n",
            unread(2, "a", "nan", "2 rows of 2, columns 'a', 'b'"),
        ),
        ("a;label\n1;0\n", f"{COMMAS} ';': save the table with commas"),
        ("a\tlabel\n1\t0\n", f"{COMMAS} a tab: save the table with commas"),
        ("a,label\n1_000,0\n", unread(2, "a", "'1_000'", "1 of 1 row, column 'a' (1 text)")),
        ("a,label,client\n1,0,x\n1,0, \n", ", line 3: client has no name"),
        ("a,label,test\n1,0,yes\n", ", line 2: test must be 0 or 1, got 'yes'"),
        ("a,label,test\n1,0,2\n", ", line 2: test must be 0 or 1, got '2'"),
        ('a,label\n"1,0\n', ", line 2: not a table: unexpected end of data"),
        ("a,label\n1,123456\n", ": labels must be in 0..99999, got 123456 in sample 0"),
        ("a,label,test\n1,0,0\n1,2,1\n", ": test_labels must be in 0..0, got 2 in sample 0"),
        ("a,label\n０,0\n", unread(2, "a", "'０'", "1 of 1 row, column 'a' (1 text)")),
        ("a,label\n1,１\n", ", line 2: label must be a whole number from 0, or a name, got '１'"),
        ("a,label\n1,1_0\n", ", line 2: label must be a whole number from 0, or a name, got '1_0'"),
        ("a,label\n1,nan\n", ", line 2: label must be a whole number from 0, or a name, got 'nan'"),
        ("a,label\n1,0\n1,O\n", ", line 3: label must be a whole number from 0 as in line 2, got 'O'"),
        ("a,label\n1,cat\n1,0\n", ", line 3: label must be a name as in line 2, got '0'"),
        (
            "a,label\n1,cat\n1,dog\n1,Cat\n",
            ", line 4: label must differ from 'cat' in line 2 by more than case, width or spaces, "
            "got 'Cat'",
        ),
        ("a,label\n1,c\x1bt\n", ", line 2: label must be 1 to 200 printable characters, got 'c\\x1bt'"),
        ("a,label,test\n1,cat,0\n1,dog,1\n", ": test_labels must be classes by name: 'cat', got 'dog'"),
        ("a\x00,label\n1,0\n", ", line 1: column must be 1 to 200 printable characters, got 'a\\x00'"),
        (
            "a,label,client\n1,0,Ann\n1,0,ann\n",
            ", line 3: client must differ from 'Ann' in line 2 by more than case, width or spaces, "
            "got 'ann'",
        ),
        (
            "a,label,client\n1,0,a\x00\n1,0,a\n",
            ", line 2: client must be 1 to 200 printable characters, got 'a\\x00'",
        ),
        ("0.5,0\n0.6,1\n", ", line 1: header must have a column 'label', got 0.5, 0"),
        (
            "a,label,test\n1,0,1\n",
            ": features must hold samples of at least one number each, got shape (0, 1)",
        ),
    ],
)
def test_a_mistake_in_a_table_is_refused_by_its_line(tmp_path, text, reason):
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises(UnreadableFile) as caught:
        load(str(path))
    assert str(caught.value) == f"{path}{reason}"


def test_tables_that_are_missing_or_no_text_are_refused(tmp_path):
    with pytest.raises(UnreadableFile, match=r"absent\.csv: No such file or directory"):
        load(str(tmp_path / "absent.csv"))
    (tmp_path / "own.csv").write_bytes(b"a,label\n\xff,0\n")
    with pytest.raises(UnreadableFile, match="not UTF-8 text"):
        load(str(tmp_path / "own.csv"))


GOOD = {"features": np.eye(3), "labels": np.array([0, 1, 1])}


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"labels": GOOD["labels"]}, "must hold an array 'features', got labels"),
        ({**GOOD, "test_feature": np.eye(3)}, "arrays must be among features, .*, got 'test_feature'"),
        ({**GOOD, "vocabulary": np.arange(2)}, r"vocabulary must be one number, got shape \(2,\)"),
        ({**GOOD, "labels": np.array([None, 1, 1])}, "not a NumPy archive of numbers: Object arrays"),
        (
            {**GOOD, "labels": np.array([0, 1])},
            r"labels must be one for each of 3 samples, got shape \(2,\)",
        ),
        ({**GOOD, "features": np.full((3, 2), np.nan)}, "features must be finite, got nan in sample 0"),
    ],
)
def test_an_archive_that_is_no_data_set_is_refused(tmp_path, arrays, reason):
    path = tmp_path / "own.npz"
    np.savez(path, **arrays)
    with pytest.raises(UnreadableFile, match=rf"own\.npz: {reason}"):
        load(str(path))


def test_what_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "own.npz"
    with pytest.raises(UnreadableFile, match="No such file"):
        load(str(path))
    with path.open("wb") as stream:
        np.save(stream, np.eye(2))
    with pytest.raises(UnreadableFile, match=r"must be an \.npz archive, got a single array"):
        load(str(path))
    for content in (b"", b"just text"):
        path.write_bytes(content)
        with pytest.raises(UnreadableFile, match=r"not a NumPy archive: must be written by numpy\.savez"):
            load(str(path))


def archive_bytes():
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **GOOD)
    return buffer.getvalue()


def test_a_damaged_header_in_a_long_archive_is_refused(tmp_path):
    """The sum of a zip entry is checked at its end, so that NumPy parses a damaged header first."""
    path, rows = tmp_path / "own.npz", 3000
    np.savez(path, features=np.zeros((rows, 2)), labels=np.zeros(rows, dtype=np.int64))
    content = path.read_bytes()
    for good, bad in ((b"), }", b"),  "), (b"'descr'", b"'descr("), (b"(3000, 2)", b"(9" + b"9" * 7)):
        path.write_bytes(content.replace(good, bad, 1))
        assert path.read_bytes() != content
        with pytest.raises(UnreadableFile, match=r"own\.npz: not a NumPy archive of numbers"):
            load(str(path))


def test_an_archive_with_other_files_is_refused(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, **GOOD)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("vocabulary", "seven")
    with pytest.raises(UnreadableFile, match="must hold arrays only, got a file 'vocabulary'"):
        load(str(path))


WHOLE = {".npz": archive_bytes(), ".csv": TABLE.encode(), ".gz": gzip.compress(idx(IMAGES))}


@given(
    st.sampled_from(sorted(WHOLE)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    st.floats(0, 1),
)
def test_a_damaged_file_is_read_or_refused_but_never_anything_else(tmp_path_factory, kind, damage, kept):
    content = bytearray(WHOLE[kind])
    for place, value in damage:
        content[int(place * len(content))] = value
    path = tmp_path_factory.mktemp("damaged") / f"file{kind}"
    path.write_bytes(content[: max(1, round(kept * len(content)))])
    with suppress(BonafedError):
        if kind == ".gz":
            formats.read_idx(path, 3)
        else:
            read_file(path)


@pytest.fixture
def memory():
    """memory(action): the most memory, in bytes, that an action takes beyond what there was."""

    def most(action):
        tracemalloc.start()
        try:
            action()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return most


BOMBS = [  # 64 MB of zeros each, in a file of 64 kB
    ({"weights": np.zeros(2**23)}, "arrays must be among features"),
    ({"labels": np.zeros(2**23)}, "labels must be one for each of 3 samples"),
    ({"groups": np.zeros((2**13, 2**10), np.int64)}, "groups must be one for each of 3 samples"),
    ({"test_labels": np.zeros(2**23), "test_features": np.eye(3)}, "test_labels must be one for each of 3"),
    ({"vocabulary": np.zeros(2**23)}, "vocabulary must be one number"),
    ({"groups": np.zeros(3, "<U5000000")}, "groups must be numbers, or words of at most 1,000 characters"),
    ({"test_features": np.zeros((2, 2**21), np.complex128)}, "test_features must be an array of numbers"),
]


@pytest.mark.parametrize(("bomb", "reason"), BOMBS)
def test_what_does_not_fit_is_refused_before_it_is_inflated(tmp_path, memory, bomb, reason):
    """Formerly 14 MB took 3.1 GB before they were refused."""
    path = tmp_path / "own.npz"
    np.savez_compressed(path, **{**GOOD, **bomb})

    def refuse():
        with pytest.raises(UnreadableFile, match=rf"own\.npz: {reason}"):
            load(str(path))

    assert memory(refuse) < 2**20


def test_a_header_that_says_more_than_the_directory_is_refused(tmp_path, memory):
    path = tmp_path / "own.npz"
    np.savez(path, features=np.zeros((3000, 2)), labels=np.zeros(3000))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"(3000, 2)", b"(30000,2)"))

    def refuse():
        with pytest.raises(UnreadableFile, match=r"features must have [0-9,]+ bytes, as its header"):
            load(str(path))

    assert memory(refuse) < 2**20


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (idx(np.zeros((1, 28, 28))), "must hold 1 x 28 x 28 bytes after its header, got 785 or more"),
        (struct.pack(">4I", 0x803, 4, 2**14, 2**14), r"images must be 28 x 28, got \(16384, 16384\)"),
    ],
)
def test_no_more_of_a_compressed_file_is_read_than_its_header_says(tmp_path, memory, content, reason):
    write_idx(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(content)
        for _ in range(64):
            file.write(bytes(2**20))

    def refuse():
        with pytest.raises(UnreadableFile, match=reason):
            formats.read_idx_images(found(tmp_path, formats.IDX_FILES.values()))

    assert memory(refuse) < 2**21


def test_labels_for_more_images_than_there_are_are_not_read(tmp_path, memory):
    write_idx(tmp_path, samples=12)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(struct.pack(">2I", 0x801, 2**26))
        for _ in range(64):
            file.write(bytes(2**20))

    def refuse():
        with pytest.raises(UnreadableFile, match=f"a label for each of 12 images, got {2**26}"):
            formats.read_idx_images(found(tmp_path, formats.IDX_FILES.values()))

    assert memory(refuse) < 2**21
