"""A config with several mistakes: all of them are told at once, each with its name, rule and value."""

import tomllib
from dataclasses import fields

import pytest

from bonafed.errors import InvalidValue, InvalidValues, MissingValue
from bonafed.learning.data.partition import PARTITIONS, options_of
from bonafed.learning.sections import Partition
from bonafed.mechanisms import catalogue
from bonafed.runs import config as configs
from bonafed.runs import toml
from bonafed.sections import is_required, section_from

ODD = ["of no type", {"that": "a key has"}]  # a list in which there is a table


def sections():
    """Every table of every mechanism."""
    for name, entry in catalogue.CATALOGUE.items():
        for table, (kind, _) in configs._tables_of(entry.load()).items():
            yield pytest.param(table, kind, id=f"{name}-{table}")


def example(name):
    return tomllib.loads(catalogue.CATALOGUE[name].example.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("table", "kind"), [*sections()])
def test_a_required_key_is_told_with_an_example_that_it_takes(table, kind):
    required = [item for item in fields(kind) if is_required(item)]
    for item in required:
        value = tomllib.loads(f"value = {item.metadata['example']}")["value"]
        item.metadata["check"](item.name, value)
    if required:
        with pytest.raises(InvalidValue) as refusal:
            section_from(kind, table, {})
        problems = refusal.value.problems
        assert [problem.name for problem in problems] == [f"{table}.{item.name}" for item in required]
        for problem, item in zip(problems, required, strict=True):
            assert isinstance(problem, MissingValue)
            assert str(problem).endswith(f"is required, such as {item.name} = {item.metadata['example']}")


@pytest.mark.parametrize("name", catalogue.CATALOGUE)
def test_every_key_of_every_table_that_is_wrong_is_told(name):
    kinds = configs._tables_of(catalogue.CATALOGUE[name].load())
    tables, due = {}, {"datta", *(f"{table}.misspelt" for table in kinds if table != "partition")}
    for table, (kind, _) in kinds.items():
        tables[table] = {"misspelt": 1}
        for item in fields(kind):
            try:
                item.metadata["check"](item.name, ODD)
            except InvalidValue:
                tables[table][item.name] = ODD
                due.add(f"{table}.{item.name}")
    with pytest.raises(InvalidValues) as refusal:
        configs.from_tables({**tables, "datta": {}})
    assert due <= {problem.name for problem in refusal.value.problems}
    text = str(refusal.value)
    assert text.startswith(f"{len(refusal.value.problems)} mistakes: (1) ")
    assert "\n" not in text
    assert all(problem.text() in text for problem in refusal.value.problems)


def test_rules_between_keys_and_between_tables_are_told_together():
    tables = example("jsam")
    for change in ("jsam.members=3", "jsam.smoothness=1", "training.momentum=0.5", "run.seed=-1"):
        tables = toml.override(tables, change)
    with pytest.raises(InvalidValues) as refusal:
        configs.from_tables(tables)
    names = {problem.name for problem in refusal.value.problems}
    assert names >= {"jsam.members", "training.momentum", "run.seed"}
    tables = example("jsam")
    for change in ("training.participation=0.5", "training.optimizer=adam", "training.learning_rate=1"):
        tables = toml.override(tables, change)
    with pytest.raises(InvalidValues, match=r"^2 mistakes: \(1\) training.participation must"):
        configs.from_tables(tables)


def test_one_mistake_is_told_as_it_is():
    with pytest.raises(InvalidValue) as refusal:
        configs.from_tables(toml.override(example("jsam"), "run.seed=-1"))
    assert str(refusal.value) == "run.seed must be a whole number of at least 0, got -1"
    assert not isinstance(refusal.value, InvalidValues)
    several = InvalidValues([MissingValue("a"), InvalidValue("b", "must be 1", 2)])
    assert str(several.renamed("c")) == "2 mistakes: (1) c is required; (2) b must be 1, got 2"


@pytest.mark.parametrize("kind", PARTITIONS)
def test_what_a_partition_cannot_do_without_has_an_example_that_it_takes(kind):
    for name, required in options_of(kind).items():
        if required and name != "groups":
            with pytest.raises(InvalidValue, match=f"{name} is required for {kind}, such as") as refusal:
                Partition(kind, clients=3)
            text = next(str(problem) for problem in refusal.value.problems if problem.name == name)
            given = tomllib.loads(text.partition("such as ")[2])
            Partition(kind, clients=3, options=given)
