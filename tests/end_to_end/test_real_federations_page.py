"""The page about real federations says what the code does: choices, sizes, regulariser, sources, output."""

import re
import shlex

import numpy as np
import pytest
from tests import natural
from tests.end_to_end.test_documentation import ROOT, blocks
from tests.end_to_end.test_real_federations import real_files

from bonafed.learning.data import datasets, sources
from bonafed.learning.data.real_federations import hospitals
from bonafed.learning.data.real_federations.choices import FEDERATIONS, chosen

PAGE = ROOT / "docs" / "how-to" / "real-federations.md"
TEXT = PAGE.read_text(encoding="utf-8")
PLAIN = " ".join(TEXT.split())  # without line ends
NUMBER = re.compile(r"^-?[\d,]+(\.\d+)?%?$")
# of a value as it is printed: rounding of float32 sums may turn the prediction for one of 254 patients
ONE_SAMPLE = 1 / 203


def rows():
    """(name, choices, the rest of the row) of the table of federations."""
    for line in TEXT.splitlines():
        if found := re.match(r"\| `(heart|ist|schools)` \| (.*?) \| (.*) \|$", line):
            name, choices, rest = found.groups()
            yield name, dict(re.findall(r'(\w+) = "(\w+)"', choices)), rest.split(" | ")


def test_the_page_is_short():
    assert len(TEXT.split()) < 800


def test_every_choice_is_there_and_the_first_is_the_default():
    for name, federation in FEDERATIONS.items():
        mine = [choices for other, choices, _ in rows() if other == name]
        said = chosen(name, mine[0])
        assert said == chosen(name, {})
        for key, words in federation.choices.items():
            shown = {chosen(name, choices)[key] for choices in mine}
            assert shown == set(words), (name, key)


def test_licence_citation_and_regulariser_are_those_of_the_code():
    for name, federation in FEDERATIONS.items():
        assert f"- `{name}`, {federation.licence}: {federation.source}." in PLAIN
    (regulariser,) = {federation.regulariser for federation in FEDERATIONS.values()}
    assert f"**Regulariser** of `[faithful]`: {regulariser:g}, unless" in PLAIN


def test_the_rule_of_heart_is_that_of_the_code():
    assert f"{hospitals._TRAINING:.0%}".replace("%", " % train") in PLAIN
    assert f"split with seed {hospitals._SEED}" in PLAIN


def test_the_files_are_those_that_are_looked_for():
    named = re.findall(r"(?<=[`/])([\w.]+\.(?:data|csv))(?=`)", TEXT[TEXT.index("| file |") :])
    wanted = [sources.source_of(name, chosen(name, choices)).files for name, choices, _ in rows()]
    assert set(named) == {file for files in wanted for file in files}


@pytest.mark.parametrize(("name", "choices", "rest"), [*rows()])
def test_sizes(name, choices, rest):
    data = datasets.load(name, folder=real_files({"name": name}), choices=choices)
    clients, *sizes = rest
    assert [int(size.replace(",", "")) for size in sizes] == [
        len(data.labels), len(data.test_labels), data.features.shape[1],
    ]  # fmt: skip
    assert int(clients.split()[0].replace(",", "")) == len(data.owners) == np.unique(data.groups).size


def shown():
    """(command, the lines it is said to print) of every block of output."""
    for kind, content in blocks(PAGE):
        if kind == "text":
            command, *lines = content.splitlines()
            yield command.removeprefix("$ "), lines


def files(folder):
    for kind, content in blocks(PAGE):
        _, _, name = kind.partition(" ")
        if name:
            (folder / name).write_text(content, encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        pytest.param(command, lines, marks=[pytest.mark.deep] * command.startswith("bonafed compare"))
        for command, lines in shown()
    ],
)
def test_the_commands_run_on_files_of_that_format(command, lines, bonafed, tmp_path, monkeypatch):
    monkeypatch.setenv("BONAFED_DATA", str(natural.write_all(tmp_path / "data")))
    files(tmp_path)
    code, out, err = bonafed(*shlex.split(command)[1:])
    assert code == 0, err
    words = set(out.split())
    assert {word for line in lines for word in line.split() if word.isalpha()} <= words


def test_three_commands_are_shown():
    assert len([*shown()]) == 3


@pytest.mark.deep
@pytest.mark.parametrize(("command", "lines"), [*shown()])
def test_the_commands_print_what_the_page_says(command, lines, bonafed, tmp_path):
    for name in FEDERATIONS:
        real_files({"name": name})
    files(tmp_path)
    code, out, err = bonafed(*shlex.split(command)[1:])
    assert code == 0, err
    printed = [re.sub(r"[│┃┏━┡┩└┘┌┐─┴┬]", " ", line).split() for line in out.splitlines()]
    for line in lines:
        words = line.split()
        if words[0] == "jsam":  # its noise is secret
            continue
        assert any(agree(words, found) for found in printed), line


def agree(words, found):
    """Whether a line begins as the page says: words alike, numbers but for a sample."""
    if len(found) < len(words):
        return False
    return all(
        word == other or (bool(NUMBER.match(word) and NUMBER.match(other)) and close(word, other))
        for word, other in zip(words, found, strict=False)
    )


def close(word, other):
    first, second = (float(text.replace(",", "").rstrip("%")) for text in (word, other))
    whole = "." not in word
    return not whole and abs(first - second) <= ONE_SAMPLE * max(1.0, 100.0 * word.endswith("%"))
