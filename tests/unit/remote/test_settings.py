"""`me.toml`: paths are relative to it, unknown keys are refused, and a cost is not shown in an error."""

import subprocess
import sys

import pytest

from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.sections import Partition
from bonafed.remote.participant.settings import read_settings

TEXT = """
[participant]
name = "ada"
key = "key"

[federation]
name = "clinics"
address = "fl.example:9092"
operator = "operator.pub.pem"
certificate = "/etc/ca.crt"

[data]
name = "records.csv"

[costs]
cost = 0.7
"""
PART = """
[data.part]
kind = "label_dirichlet"
beta = 0.5
clients = 4
number = 3
seed = 5
"""


@pytest.fixture
def read(tmp_path):
    def reading(text):
        (tmp_path / "me.toml").write_text(text)
        return read_settings(tmp_path / "me.toml")

    return reading


def test_paths_are_relative_to_the_file(read, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    settings = read(TEXT)
    assert settings.key == tmp_path / "key"
    assert settings.folder == tmp_path / "state"
    assert settings.operator == tmp_path / "operator.pub.pem"
    assert str(settings.certificate) == "/etc/ca.crt"
    assert (settings.data.folder, settings.data.name) == (str(tmp_path), "records.csv")
    assert settings.part is None
    assert settings.costs == {"cost": 0.7}
    assert settings.policy.verify
    assert settings.policy.no_loss


@pytest.mark.parametrize(
    ("data", "folder", "standardise"),
    [
        ('name = "/data/records.csv"', "", None),
        ('name = "records.csv"\nfolder = "there"', "{here}/there", None),
        ('name = "digits"', "", None),
        ('name = "mnist"\nfolder = "there"', "{here}/there", None),
        (
            'name = "records.csv"\nstandardise = {{public = "public.csv"}}',
            "{here}",
            {"public": "{here}/public.csv"},
        ),
        (
            'name = "records.csv"\nstandardise = {{mean = [1.0], scale = [2.0]}}',
            "{here}",
            {"mean": [1.0], "scale": [2.0]},
        ),
    ],
)
def test_where_records_and_constants_are_looked_for(read, tmp_path, data, folder, standardise):
    settings = read(TEXT.replace('name = "records.csv"', data.replace("{{", "{").replace("}}", "}")))
    assert settings.data.folder == folder.format(here=tmp_path)
    if standardise is not None and "public" in standardise:
        standardise = {"public": standardise["public"].format(here=tmp_path)}
    assert settings.data.standardise == standardise


def test_a_part_of_a_known_data_set(read):
    part = read(TEXT.replace("records.csv", "digits") + PART).part
    assert part is not None
    assert (part.number, part.seed) == (3, 5)
    assert part.partition == Partition("label_dirichlet", 4, {"beta": 0.5})
    assert part.table() == {"kind": "label_dirichlet", "beta": 0.5, "clients": 4, "number": 3, "seed": 5}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[costs]", "[cost]", "cost is unknown"),
        ("[costs]", "[policy]\nmax_epsilom = 3\n[costs]", "policy.max_epsilom is unknown"),
        ("[costs]", "[policy]\nmax_rounds = 0\n[costs]", "policy.max_rounds must be a whole number"),
        ('key = "key"', "", "participant.key is required"),
        ('name = "ada"', 'name = "../ada"', "participant.name must be usable as the name of a folder"),
        ("fl.example:9092", "fl.example:http", "federation.address must be host:port"),
        ('certificate = "/etc/ca.crt"', "insecure = true", "federation.insecure is unknown"),
        ("[data]", "[data]\npart = 3", r"data.part must be a section \[data.part\]"),
        ("[costs]", f"{PART}number = 4\n[costs]", "not TOML"),
        ("[costs]", PART.replace("number = 3", "number = 4") + "[costs]", "data.part.number must be below"),
        ("[costs]", PART.replace("number = 3", "") + "[costs]", "data.part.number is required"),
        ("[costs]", PART.replace("beta", "gamma") + "[costs]", "data.part.gamma is unknown"),
    ],
)
def test_what_cannot_be_is_refused_by_name(read, old, new, message):
    assert old in TEXT
    with pytest.raises(Exception, match=message):
        read(TEXT.replace(old, new, 1))


@pytest.mark.parametrize("table", ["participant", "federation", "data"])
def test_required_tables(read, table):
    parts = [part for part in TEXT.split("\n\n") if f"[{table}]" not in part]
    with pytest.raises(MissingValue, match=f"{table} is required"):
        read("\n\n".join(parts))


@pytest.mark.parametrize("value", ["'0.7'", "[0.7]", "nan", "true"])
def test_a_cost_that_is_no_number_is_not_shown(read, value):
    with pytest.raises(InvalidValue, match=r"costs\.cost must be") as error:
        read(TEXT.replace("0.7", value))
    assert "0.7" not in str(error.value)


def test_settings_are_read_without_torch():
    code = "import sys, bonafed.remote.participant.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
