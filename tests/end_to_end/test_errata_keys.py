"""Every erratum has one key, the same in the code and on all pages, and docs/errata.md lists it."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ERRATA = ROOT / "docs" / "errata.md"
KEY = r"(?:[SF]-[EDA]\d+(?:\.\d+)?|[JR]-\d+[ab]?)"
# Keys as they were, the same for several papers; D0 to D7 are also sections of the theory of rewards.
OLD = r"(?<![\w-])(?:[EIJ]\d+[ab]?|D(?:[89]|1\d)|A6 \(\d\))(?!\w)|[Ee]rrat(?:um|a) [A-Z]\d"
OLD_FAITHFUL = r"(?<![\w-])[DE]\d+(?!\w)"


def texts():
    """The files that may name an erratum."""
    folders = ("src", "docs", "benchmarks", "tests")
    found = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in (".py", ".md")]
    return [*ROOT.glob("*.md"), *(path for path in sorted(found) if path != Path(__file__))]


def read(path):
    """A file without the linter's rules, which look like keys."""
    return path.read_text(encoding="utf-8").replace("noqa: E", "noqa: ")


def listed():
    """The keys in the tables of docs/errata.md, in order."""
    return re.findall(rf"^\| ({KEY}) \|", ERRATA.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_erratum_has_a_key_of_its_own():
    page = ERRATA.read_text(encoding="utf-8")
    assert [key for key, times in Counter(listed()).items() if times > 1] == []
    assert not re.search(r"^\| \| (?!where)", page, re.MULTILINE)
    assert {key[0] for key in listed()} == set("SJFR")


def test_every_section_on_an_erratum_is_in_a_table():
    sections = re.findall(r"^### (\S+)\. ", ERRATA.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections
    assert set(sections) <= set(listed())


def test_every_key_that_is_named_is_listed():
    known = set(listed())
    wrong = [
        (path.relative_to(ROOT).as_posix(), key)
        for path in texts()
        for key in re.findall(rf"(?<![\w-]){KEY}(?!\w)", read(path))
        if key not in known
    ]
    assert wrong == []


def test_no_key_without_its_paper_is_left():
    wrong = [
        (path.relative_to(ROOT).as_posix(), match)
        for path in texts()
        for match in re.findall(OLD_FAITHFUL if "faithful" in path.as_posix() else OLD, read(path))
    ]
    assert wrong == []


@pytest.mark.parametrize("text", ["erratum E11", "(E3)", "J13", "A6 (1)", "I2: the", "D11"])
def test_what_is_taken_for_an_old_key(text):
    assert re.search(OLD, text)


@pytest.mark.parametrize(
    "text", ["(S-E3)", "J-13", "theory D7", "A6", "test_e1_", "TestJ10bX", "1E5", "E[q]"]
)
def test_what_is_not_taken_for_an_old_key(text):
    assert not re.search(OLD, text)
