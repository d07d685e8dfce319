"""Mechanisms of other packages: listed like those of bonafed, or named and passed over."""

import json
import os
import subprocess
import sys
import warnings

import pytest
from tests.oracles.plugins import GOOD, SLICE, entry_file, install

import bonafed
from bonafed.errors import InvalidValue, UnusablePlugin
from bonafed.mechanisms import advice, catalogue, fedavg
from bonafed.mechanisms.protocol import Slice
from bonafed.runs import config as configs
from bonafed.runs.compare import Compare
from bonafed.sections import Section

TABLES = {
    "data": {"name": "digits"}, "partition": {"clients": 3}, "model": {"name": "softmax"},
    "training": {"rounds": 1, "epochs": 1, "batch_size": 8, "learning_rate": 0.1},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on the path, in which packages are found as soon as they lie there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(catalogue, "_registered", {})
    before = set(sys.modules)
    catalogue._installed.cache_clear()
    yield tmp_path
    catalogue._installed.cache_clear()
    for name in set(sys.modules) - before:
        if "toll" in name:
            del sys.modules[name]


@pytest.fixture
def heard():
    """What is warned about, as text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnusablePlugin)
        yield caught


def said(heard):
    assert all(issubclass(warning.category, UnusablePlugin) for warning in heard)
    return [str(warning.message) for warning in heard]


def run(folder, *words, program="from bonafed.cli import main; main()"):
    """A command in a process of its own, with the packages of the folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)


class TestAGoodOne:
    def test_it_is_looked_up_like_those_of_bonafed(self, folder):
        install(folder)
        assert [*catalogue.mechanisms()] == [*catalogue.CATALOGUE, "toll"]
        found = catalogue.entry("toll")
        assert (found.package, found.summary) == ("toll-road 1.0", "a toll for nobody")
        assert catalogue.of_table({**TABLES, "toll": {}}) is found
        assert catalogue.of_format("toll-contract") is found
        assert found in catalogue.with_verb("audit")
        assert found not in catalogue.with_verb("quote")
        assert found.load().name == "toll"
        assert found.example.read_text() == GOOD["example.toml"]

    def test_a_function_may_return_its_entry(self, folder):
        install(
            folder,
            files={**GOOD, "__init__.py": GOOD["__init__.py"] + "\ndef make(): return ENTRY"},
            value="make",
        )
        assert catalogue.entry("toll").package == "toll-road 1.0"

    def test_its_configs_are_read_and_written(self, folder):
        install(folder)
        config = configs.from_tables({**TABLES, "toll": {"height": 4}})
        assert (config.mechanism, config.own.height) == ("toll", 4.0)
        assert configs.to_tables(config)["toll"] == {"height": 4.0}
        with pytest.raises(InvalidValue, match=r"^toll must not be given with jsam"):
            configs.from_tables({**TABLES, "toll": {}, "jsam": {"prior": "uniform:0,1", "eta": 1.0}})
        assert "toll" in Compare().mechanisms

    def test_listing_it_imports_neither_its_slice_nor_what_trains(self, folder):
        install(folder)
        program = (
            "import sys; from bonafed.mechanisms import catalogue; assert 'toll' in catalogue.mechanisms();"
            "print(sorted({'torch', 'toll_road', 'toll_road.slice'} & {*sys.modules}))"
        )
        done = run(folder, program=program)
        assert (done.stdout, done.stderr) == ("['toll_road']\n", "")

    def test_commands_know_it(self, folder):
        install(folder)
        listed, asked = run(folder, "audit", "--help"), run(folder, "audit", "toll", "--height", "5")
        assert "a toll for nobody" in listed.stdout
        assert (asked.stdout, asked.stderr) == ("The gate is 5.0 high.\n", "")
        assert run(folder, "train", "--write-example", "toll").stdout == "wrote toll.toml\n"
        assert (folder / "toll.toml").read_text() == GOOD["example.toml"]
        refused = run(folder, "train", "--write-example", "tol").stderr
        assert refused.endswith(
            "must be one of faithful, fedavg, jsam, posted-price, rewards, sampling, toll, got 'tol'\n"
        )


def test_what_bonafed_has_itself_is_found_without_importing_any_package(folder):
    install(folder, files={"__init__.py": "raise RuntimeError"})
    tables = {"data": {}, "sampling": {}, "compare": {}}
    program = f"""
import sys
from bonafed.mechanisms import catalogue
catalogue.entry("sampling"), catalogue.entry("jsam", "quote"), catalogue.of_table({tables})
catalogue.of_table({{"data": {{}}, "privacy": {{}}}}), catalogue.of_format("bonafed-jsam-contract")
assert "toll_road" not in sys.modules
"""
    done = run(folder, program=program)
    assert (done.returncode, done.stderr) == (0, "")
    words = ["--clients", "3", "--rounds", "3", "--budget", "3", "--prior", "uniform:0.5,1.5"]
    for command in (["--version"], ["quote", "sampling", *words], ["audit", "sampling", "--help"]):
        done = run(folder, *command)
        assert (done.returncode, done.stderr) == (0, ""), command


BROKEN = {
    "it cannot be imported": (
        {"__init__.py": "import a_package_that_is_not_there"}, "ENTRY",
        "ModuleNotFoundError: No module named 'a_package_that_is_not_there'",
    ),
    "it ends the process": ({"__init__.py": "raise SystemExit(3)"}, "ENTRY", "SystemExit: 3"),
    "it has no such attribute": (
        {"__init__.py": ""}, "ENTRY", "AttributeError: module 'toll_road' has no attribute 'ENTRY'"
    ),
    "it is something else": (
        {"__init__.py": "ENTRY = 5"}, "ENTRY",
        "toll_road:ENTRY must be an Entry of bonafed.mechanisms.catalogue, got 5",
    ),
    "it gives something else": (
        {"__init__.py": "def make(): return 'toll'"}, "make",
        "toll_road:make must be an Entry of bonafed.mechanisms.catalogue, got 'toll'",
    ),
    "its function fails": (
        {"__init__.py": "def make(): return 1 / 0"}, "make", "ZeroDivisionError: division by zero"
    ),
    "its name is taken": (
        entry_file(name="sampling"), "ENTRY", "name belongs to a mechanism of bonafed, got 'sampling'"
    ),
    "its table is taken": (entry_file(table="jsam"), "ENTRY", "table belongs to jsam of bonafed, got"),
    "its table is that of every config": (
        entry_file(table="training"), "ENTRY", "table must not be a table of every config, got 'training'"
    ),
    "its table was one": (
        entry_file(table="contract"), "ENTRY", "table must not be a table of every config, got 'contract'"
    ),
    "it has no table": (entry_file(table=None), "ENTRY", "table must be of the form"),
    "its format is taken": (
        entry_file(formats=("bonafed-jsam-contract",)), "ENTRY",
        "formats must not hold one of jsam of bonafed, got 'bonafed-jsam-contract'",
    ),
    "its formats are text": (entry_file(formats="toll"), "ENTRY", "formats must be a tuple of texts, got"),
    "its name is two lines": (entry_file(name="toll\nroad"), "ENTRY", "name must be of the form"),
    "its module is relative": (entry_file(module=".slice"), "ENTRY", "module must be of the form"),
    "it has an unknown verb": (
        entry_file(verbs="quote sing"), "ENTRY", "verbs must be of quote, audit, advise, got 'sing'"
    ),
    "its summary is a number": (entry_file(summary=3), "ENTRY", "summary must be text, got 3"),
    "its fit is text": (entry_file(fit="good"), "ENTRY", "fit must be a Fit, or None, got 'good'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_named_and_passed_over(folder, heard, case):
    files, value, reason = BROKEN[case]
    install(folder, files=files, value=value)
    other = entry_file(
        name="bridge", table="bridge", module="toll_bridge.slice", formats=("bridge-contract",)
    )
    install(folder, "toll-bridge", other, name="bridge")
    assert [*catalogue.mechanisms()] == [*catalogue.CATALOGUE, "bridge"]
    (warning,) = said(heard)
    assert warning.startswith(f"mechanism toll of package toll-road 1.0 cannot be used: {reason}")
    assert catalogue.entry("sampling") is catalogue.CATALOGUE["sampling"]
    assert len(said(heard)) == 1  # once


def test_the_list_of_a_package_may_be_damaged(folder, heard, monkeypatch):
    def damaged(**_):
        raise ValueError("bad entry point")

    monkeypatch.setattr(catalogue.metadata, "entry_points", damaged)
    assert catalogue.mechanisms() == catalogue.CATALOGUE
    assert "ValueError: bad entry point" in said(heard)[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "name belongs to a mechanism of toll-road 1.0, got 'toll'"),
        ({"name": "toll-two"}, "table belongs to toll of toll-road 1.0, got 'toll'"),
        (
            {"name": "toll-two", "table": "toll_two"},
            "formats must not hold one of toll of toll-road 1.0, got 'toll-contract'",
        ),
    ],
)
def test_of_two_packages_the_second_is_told_what_the_first_has(folder, heard, changes, reason):
    install(folder)
    install(folder, "toll-two", entry_file(module="toll_two.slice", **changes))
    assert catalogue.entry("toll").package == "toll-road 1.0"
    (warning,) = said(heard)
    assert warning == f"mechanism toll of package toll-two 1.0 cannot be used: {reason}"


UNLIKE = {
    "it cannot be imported": ("import a_package_that_is_not_there", "ModuleNotFoundError"),
    "there is none": ("", "AttributeError: module 'toll_road.slice' has no attribute 'SLICE'"),
    "it is none": ("SLICE = 3", "SLICE must be a Slice of bonafed.mechanisms.protocol, got 3"),
    "its contract overrides what all share": (
        "from bonafed.contracts.published import PublishedContract\n"
        "class Own(PublishedContract):\n    def settle(self, reports): ...\n",
        "TypeError: Own must not override settle",
    ),
    "it has another name": (
        SLICE.replace('Slice("toll"', 'Slice("tax"'),
        "SLICE.name must be 'toll', as in its",
    ),
    "it has another table": (
        SLICE.replace('"toll", Toll', '"tax", Toll'),
        "SLICE.table must be 'toll', as in its",
    ),
    "it has no audit": (
        SLICE.replace("attack=AUDIT, ", ""),
        "verbs must not name audit, which the SLICE does not",
    ),
    "it reads nothing": (
        SLICE.replace(", read=lambda data: data", ""),
        "formats must be empty without a function",
    ),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_a_slice_unlike_its_entry_harms_nobody_else(folder, heard, case):
    text, reason = UNLIKE[case]
    install(folder, files={**GOOD, "slice.py": text})
    with pytest.raises(
        UnusablePlugin, match=r"mechanism toll of package toll-road 1\.0 cannot be used"
    ) as refused:
        catalogue.entry("toll").load()
    assert reason in str(refused.value)
    assert said(heard) == []
    assert Compare().mechanisms == tuple(catalogue.CATALOGUE)
    assert reason in said(heard)[0]
    config = configs.from_tables(TABLES)
    assert config.mechanism == "fedavg"


def test_a_package_without_an_example_says_so(folder):
    install(folder, files={**GOOD, "slice.py": SLICE})
    (folder / "toll_road" / "example.toml").unlink()
    with pytest.raises(UnusablePlugin, match=r"toll-road 1\.0 cannot be used: it has no example\.toml"):
        _ = catalogue.entry("toll").example


def test_commands_show_a_warning_as_a_line(folder):
    install(folder, files={"__init__.py": "raise ImportError('no\\nsuch thing')"})
    done = run(folder, "audit", "--help")
    assert done.returncode == 0
    assert "sampling" in done.stdout
    assert done.stderr == (
        "warning: mechanism toll of package toll-road 1.0 cannot be used: ImportError: no such thing\n"
    )
    done = run(folder, "audit", "toll")
    assert done.returncode == 2
    assert done.stderr.splitlines()[1].startswith("error: mechanism must be one of sampling, posted-price")


def test_a_question_that_others_answer_is_passed_over(folder, heard):
    text = SLICE.replace("attack=AUDIT", 'advice={"mechanism": AUDIT}')
    install(folder, files={**entry_file(verbs="advise"), "slice.py": text})
    from bonafed.cli import nouns

    assert nouns._advice()["mechanism"] is advice.ADVICE["mechanism"]
    assert "toll-road 1.0 cannot be used: others answer the questions mechanism" in said(heard)[0]


class TestRegister:
    def slice(self, name="toll", **about):
        return Slice(name, fedavg._make, name, Section, **about)

    def test_a_session_knows_it_by_name_and_table(self, folder):
        mine = self.slice()
        bonafed.register(mine, summary="of a notebook")
        assert catalogue.entry("toll").load() is mine
        assert catalogue.entry("toll").summary == "of a notebook"
        result = bonafed.train({**TABLES, "toll": {}})
        assert result.statement.mechanism == "toll"

    def test_a_cell_can_be_run_twice(self, folder):
        bonafed.register(self.slice())
        again = self.slice()
        bonafed.register(again)
        assert catalogue.entry("toll").load() is again

    def test_its_contracts_are_read_by_format(self, folder, tmp_path):
        read = []
        bonafed.register(self.slice(read=lambda data: read.append(data) or data), formats=["toll-contract"])
        path = tmp_path / "c.json"
        path.write_text(json.dumps({"format": "toll-contract"}))
        bonafed.read_contract(path)
        assert read == [{"format": "toll-contract"}]

    @pytest.mark.parametrize("name", ["sampling", "fedavg", "training"])
    def test_what_is_taken_is_refused(self, folder, name):
        with pytest.raises(InvalidValue, match=r"(belongs to a mechanism of bonafed|must not be a table)"):
            bonafed.register(self.slice(name))
        assert name not in catalogue._registered

    def test_what_a_package_has_is_refused(self, folder):
        install(folder)
        with pytest.raises(InvalidValue, match=r"^name belongs to a mechanism of toll-road 1\.0, got"):
            bonafed.register(self.slice())

    def test_something_else_is_refused(self):
        with pytest.raises(InvalidValue, match="mechanism must be a mechanism"):
            bonafed.register("toll")
