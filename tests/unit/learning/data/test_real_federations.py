"""Data sets with real clients: what is read from their files, who holds it, what is refused."""

import gzip
import hashlib
import re
import tracemalloc

import numpy as np
import pytest
from sklearn.model_selection import train_test_split
from tests import natural
from tests.unit.learning.data.test_datasets import empty_home, real_data, serve  # noqa: F401  # a fixture

from bonafed import InvalidValue
from bonafed.errors import UnreadableFile
from bonafed.learning.data import datasets
from bonafed.learning.data.datasets import load
from bonafed.learning.data.real_federations import hospitals
from bonafed.learning.data.real_federations.choices import FEDERATIONS, KEYS, chosen
from bonafed.learning.data.real_federations.tables import Answer, Measure, every_fifth
from bonafed.learning.sections import Data
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.protocol import Common
from bonafed.runs.config import from_tables, to_tables

MODEL = {"model": {"name": "softmax"}, "training": {"rounds": 1, "learning_rate": 0.1}}
CHOICES = [
    (name, dict(zip(one.choices, words, strict=True)))
    for name, one in FEDERATIONS.items()
    for words in np.array(np.meshgrid(*one.choices.values())).T.reshape(-1, len(one.choices)).tolist()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return natural.write_all(tmp_path_factory.mktemp("data"))


def refusal(name, folder, **choices):
    with pytest.raises(UnreadableFile) as caught:
        load(name, folder=folder, choices=choices)
    return str(caught.value).replace(f"{folder}/{name}/", "")


class TestChoices:
    def test_what_is_left_open_is_as_in_the_literature(self):
        assert chosen("heart", {}) == {"clients": "hospitals", "patients": "complete", "minimum_rows": 1}
        assert chosen("ist", {}) == {"clients": "hospitals", "minimum_rows": 1}
        assert chosen("schools", {}) == {"study": "mathachieve", "clients": "schools", "minimum_rows": 1}
        assert chosen("digits", {}) == {}

    @pytest.mark.parametrize("name", [*datasets.NAMES, "mine.csv"])
    @pytest.mark.parametrize("key", KEYS)
    def test_a_key_of_another_data_set_is_refused_by_its_name(self, name, key):
        known = name in FEDERATIONS and (key == "minimum_rows" or key in FEDERATIONS[name].choices)
        with pytest.raises(InvalidValue) as caught:
            Data(name, **{key: 1 - known if key == "minimum_rows" else "strangers"})
        assert str(caught.value).startswith(f"{key} must be ")
        assert ("must be left out of" in str(caught.value)) is not known

    def test_the_config_has_what_was_chosen_and_the_natural_clients(self):
        tables = {"data": {"name": "ist", "minimum_rows": 100}, **MODEL}
        config = from_tables(tables)
        assert config.partition.kind == "natural"
        assert to_tables(config)["data"]["clients"] == "hospitals"
        assert from_tables(to_tables(config)) == config
        dealt = from_tables({**tables, "partition": {"kind": "iid", "clients": 3}})
        assert dealt.partition.kind == "iid"

    @pytest.mark.parametrize("name", FEDERATIONS)
    def test_the_regulariser_is_fixed_where_it_is_left_open(self, name):
        tables = {"data": {"name": name}, "model": {"name": "softmax"}, "faithful": {}}
        assert from_tables(tables).own.regulariser == FEDERATIONS[name].regulariser
        tables["faithful"] = {"regulariser": 0.5}
        assert from_tables(tables).own.regulariser == 0.5
        tables = {"data": {"name": "digits"}, "partition": {"clients": 2}, "model": {"name": "softmax"}}
        with pytest.raises(InvalidValue, match=r"faithful\.regulariser is required"):
            from_tables({**tables, "faithful": {}})

    @pytest.mark.parametrize("name", FEDERATIONS)
    def test_a_comparison_has_the_same_regulariser(self, name):
        compare = catalogue.entry("faithful").load().compare
        own = compare(Common(training=None, data=name, model="softmax"))
        tables = {"data": {"name": name}, "model": {"name": "softmax"}, "faithful": own}
        assert from_tables(tables).own.regulariser == FEDERATIONS[name].regulariser
        assert "regulariser" in compare(Common(training=None, data="digits", model="softmax"))

    def test_mathematics_has_no_authorities(self):
        with pytest.raises(InvalidValue, match="clients must be schools with study"):
            chosen("schools", {"clients": "authorities"})


class TestColumns:
    def test_a_number_is_in_its_unit(self):
        field = Measure("AGE", "age", 50, 10, 0, 120)
        assert (field.names, field.read(" 65 ")) == (("age",), (1.5,))

    @pytest.mark.parametrize("cell", ["", "?", "121", "-1", "nan", "inf", "6_5", "old", "٦٥"])
    def test_what_is_no_number_or_an_impossible_one_is_refused(self, cell):
        with pytest.raises(ValueError, match="must be a number"):
            Measure("AGE", "age", 50, 10, 0, 120).read(cell)

    @pytest.mark.parametrize("cell", ["", "?"])
    def test_a_missing_value_is_0_and_has_a_feature_of_its_own(self, cell):
        number = Measure("x", "pressure", 130, 20, 0, 400, optional=True)
        answer = Answer("y", {"0": "", "1": "mild", "2": "severe"}, "grade not recorded", numbers=True)
        assert number.names == ("pressure", "pressure not recorded")
        assert answer.names == ("mild", "severe", "grade not recorded")
        assert (number.read(cell), number.read("150")) == ((0, 1), (1, 0))
        assert (answer.read(cell), answer.read("2.0"), answer.read("0")) == (
            (0, 0, 1),
            (0, 1, 0),
            (0, 0, 0),
        )

    def test_every_fifth_record_of_an_owner_is_for_testing(self):
        owners = list("abababababab")
        assert "".join("t" if test else "-" for test in every_fifth(owners)) == "--------tt--"


class TestReading:
    @pytest.mark.parametrize(("name", "choices"), CHOICES)
    def test_every_choice_gives_a_data_set_of_real_clients(self, folder, name, choices):
        if choices.get("study") == "mathachieve" and choices["clients"] == "authorities":
            pytest.skip("mathachieve names no authorities")
        data = load(name, folder=folder, choices=choices)
        assert data.features.dtype == np.float32
        assert data.features.shape[1] == len(data.columns) == len(set(data.columns))
        assert np.abs(data.features).max() < 10  # of order 1 without being standardised
        assert data.classes == (0 if name == "schools" else 2)
        assert np.unique(data.groups).size == len(data.owners) > 1
        assert len(data.test_labels) > 0
        again = load(name, folder=folder, choices=choices)
        for part in ("features", "labels", "groups", "test_features", "test_labels"):
            assert np.array_equal(getattr(data, part), getattr(again, part))

    def test_a_patient_of_heart_by_hand(self, tmp_path):
        natural.write_heart(tmp_path / "heart")
        row = "63,1,4,140,260,0,1,112,1,3,2,?,?,2\n"
        (tmp_path / "heart" / "processed.va.data").write_text(row * 3)
        data = load("heart", folder=tmp_path)
        (own,) = np.unique(data.features[data.groups == data.owners.index("Long Beach")], axis=0)
        assert dict(zip(data.columns, own.tolist(), strict=True)) == pytest.approx({
            "age": 1.3, "male": 1, "blood pressure": 0.5, "cholesterol": 0.6, "high fasting blood sugar": 0,
            "largest heart rate": -1.12, "exercise angina": 1, "ST depression": 2, "atypical angina": 0,
            "other chest pain": 0, "no chest pain": 1, "ST-T wave abnormality": 1,
            "left ventricular hypertrophy": 0,
        })  # fmt: skip
        assert set(data.labels[data.groups == data.owners.index("Long Beach")]) == {1}

    def test_incomplete_patients_are_left_out_or_have_a_feature_that_says_so(self, tmp_path):
        natural.write_heart(tmp_path / "heart", sizes=(60, 60, 60, 60), missing=0.1)
        complete, everybody = (
            load("heart", folder=tmp_path, choices={"patients": word}) for word in ("complete", "all")
        )
        assert len(everybody.labels) + len(everybody.test_labels) == 240
        assert len(complete.labels) + len(complete.test_labels) < 180
        missing = [name for name in everybody.columns if name.endswith(" not recorded")]
        assert [name for name in everybody.columns if name not in missing] == list(complete.columns)
        places = [everybody.columns.index(name) for name in missing]
        assert (everybody.features[:, places].sum(axis=1) > 0).any()

    def test_a_patient_of_ist_by_hand(self, tmp_path):
        row = natural.stroke_patient(np.random.default_rng(0), 17, "POLA") | {
            "RDELAY": "26", "RCONSC": "D", "SEX": "F", "AGE": "85", "RSLEEP": "N", "RATRIAL": "",
            "RCT": "Y", "RVISINF": "N", "RHEP24": "Y", "RASP3": "", "RSBP": "130", "STYPE": "LACS",
            "RXASP": "Y", "RXHEP": "H", "OCCODE": "1", **{f"RDEF{k}": "N" for k in range(1, 9)},
            "RDEF3": "C",
        }  # fmt: skip
        unknown = [row | {"OCCODE": code} for code in ("0", "8", "9")]
        (tmp_path / hospitals.STROKE_FILE).write_text(
            natural.stroke_table([row, *unknown, row | {"OCCODE": "3"}])
        )
        data = load("ist", folder=tmp_path)
        assert (data.labels.tolist(), data.owners) == ([1, 0], ("hospital 017",))
        told = dict(zip(data.columns, data.features[0].tolist(), strict=True))
        assert {name: value for name, value in told.items() if value} == pytest.approx({
            "hours of delay": 0.5, "drowsy": 1, "age": 1.5, "atrial fibrillation not recorded": 1,
            "scan before randomisation": 1, "heparin in the last day": 1,
            "aspirin in the last three days not recorded": 1, "systolic blood pressure": -1,
            "leg deficit not assessable": 1, "aspirin given": 1, "medium heparin given": 1,
        })  # fmt: skip
        assert load("ist", folder=tmp_path, choices={"clients": "countries"}).owners == ("Poland",)

    def test_a_pupil_by_hand(self, tmp_path):
        header = "rownames,School,Minority,Sex,SES,MathAch,MEANSES\n"
        (tmp_path / "MathAchieve.csv").write_text(header + "1,8367,Yes,Male,-0.5,20,0.25\n")
        data = load("schools", folder=tmp_path)
        assert data.columns == ("social status", "mean social status", "minority", "male")
        assert (data.features.tolist(), data.labels.tolist()) == ([[-0.5, 0.25, 1, 1]], [1])
        assert data.owners == ("school 8367",)

    def test_small_clients_are_left_out_with_their_tests(self, folder):
        whole = load("ist", folder=folder)
        large = load("ist", folder=folder, choices={"minimum_rows": 13})
        assert (len(whole.owners), large.owners) == (6, ("hospital 003", "hospital 013", "hospital 023"))
        assert (len(large.labels), len(large.test_labels)) == (32 + 18 + 11, 8 + 4 + 2)
        with pytest.raises(InvalidValue, match="minimum_rows must be at most 40, the records of the larg"):
            load("ist", folder=folder, choices={"minimum_rows": 41})

    def test_tests_are_the_same_whoever_the_clients_are(self, folder):
        hospitals, countries = (
            load("ist", folder=folder, choices={"clients": word}) for word in ("hospitals", "countries")
        )
        assert countries.owners == ("France", "United Kingdom")
        assert np.array_equal(hospitals.features, countries.features)
        assert np.array_equal(hospitals.test_features, countries.test_features)

    def test_a_client_with_few_records_has_some_for_training(self, folder):
        data = load("schools", folder=folder)
        assert np.unique(data.groups, return_counts=True)[1].tolist() == [12, 24, 8, 4, 1]


class TestRefusing:
    def write(self, folder, name, change):
        natural.write_all(folder)
        file = {"heart": "processed.va.data", "ist": "IST.csv", "schools": "MathAchieve.csv"}[name]
        path = folder / name / file
        path.write_bytes(change(path.read_bytes()))
        return path

    @pytest.mark.parametrize("name", FEDERATIONS)
    def test_what_is_no_text_in_utf_8(self, tmp_path, name):
        self.write(tmp_path, name, lambda content: content + b"\xff\xfe\n")
        assert "not UTF-8 text" in refusal(name, tmp_path)

    @pytest.mark.parametrize("name", FEDERATIONS)
    def test_a_row_that_is_cut(self, tmp_path, name):
        self.write(tmp_path, name, lambda content: content + b"1,2\n")
        assert re.search(r", line \d+: must have \d+ columns, got 2$", refusal(name, tmp_path))

    @pytest.mark.parametrize("name", FEDERATIONS)
    def test_an_empty_file(self, tmp_path, name):
        self.write(tmp_path, name, lambda content: b"")
        assert re.search("must h(old|ave)", refusal(name, tmp_path))

    @pytest.mark.parametrize("name", FEDERATIONS)
    def test_a_bomb_is_not_inflated(self, tmp_path, name):
        path = self.write(tmp_path, name, lambda content: content)
        path.unlink()
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(bytes(2**24 + 1)))
        load("digits")  # and all that it imports
        tracemalloc.start()
        said = refusal(name, tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert said.endswith("must have at most 16,777,216 bytes of text, got more")
        assert peak < 2**26

    @pytest.mark.parametrize("name", ["ist", "schools"])
    def test_a_column_that_is_missing_is_named(self, tmp_path, name):
        column = {"ist": b"OCCODE", "schools": b"MEANSES"}[name]
        self.write(tmp_path, name, lambda content: content.replace(column, b"OTHER", 1))
        said = refusal(name, tmp_path)
        assert f"line 1: header must have one column {column.decode()!r}, got " in said

    @pytest.mark.parametrize(
        ("column", "cell", "rule"),
        [
            ("AGE", "140", "AGE must be a number from 0 to 120, got '140'"),
            ("RSBP", "", "RSBP must be a number, got ''"),
            ("STYPE", "LACUNAR", "STYPE must be one of LACS, PACS, TACS, POCS, OTH, got 'LACUNAR'"),
            ("RXASP", "", "RXASP must be one of N, Y, got ''"),
            ("OCCODE", "5", "OCCODE must be one of 1, 2, 3, 4, 0, 8, 9, got '5'"),
            ("HOSPNUM", "1000", "HOSPNUM must be a whole number from 1 to 999, got '1000'"),
            (
                "HOSPNUM",
                "0000000011234",
                "HOSPNUM must be a whole number from 1 to 999, got '0000000011234'",
            ),
            ("HOSPNUM", "1".zfill(9) + "9" * 5000, "HOSPNUM must be a whole number from 1 to 999, got '0"),
            ("HOSPNUM", "-1", "HOSPNUM must be a whole number from 1 to 999, got '-1'"),
            ("COUNTRY", "UTOPIA", "COUNTRY must be one of ARGE, AUSL, "),
        ],
    )
    def test_an_impossible_cell_is_named_with_its_line(self, tmp_path, column, cell, rule):
        row = natural.stroke_patient(np.random.default_rng(0), 1, "UK")
        (tmp_path / hospitals.STROKE_FILE).write_text(natural.stroke_table([row, row | {column: cell}]))
        with pytest.raises(UnreadableFile) as caught:
            load("ist", folder=tmp_path)
        assert str(caught.value).startswith(f"{tmp_path}/IST.csv, line 3: {rule}")

    def test_a_trial_without_known_outcomes(self, tmp_path):
        row = natural.stroke_patient(np.random.default_rng(0), 1, "UK") | {"OCCODE": "0"}
        (tmp_path / hospitals.STROKE_FILE).write_text(natural.stroke_table([row]))
        with pytest.raises(UnreadableFile, match="at least one patient whose outcome is known, got none"):
            load("ist", folder=tmp_path)

    def test_a_hospital_without_enough_patients(self, tmp_path):
        natural.write_heart(tmp_path / "heart", sizes=(5, 5, 1, 5))
        said = refusal("heart", tmp_path)
        assert said == "processed.switzerland.data: must hold at least two patients that can be used, got 1"

    def test_a_table_that_is_not_there(self, empty_home):  # noqa: F811  # the fixture
        for study, file in (("mathachieve", "MathAchieve.csv"), ("chem97", "Chem97.csv")):
            with pytest.raises(
                UnreadableFile, match=rf"schools not found: put {file}\[\.gz\] there, or set"
            ):
                load("schools", choices={"study": study})


def test_a_download_keeps_the_files_as_they_were_published(empty_home, monkeypatch):  # noqa: F811  # likewise
    natural.write_heart(empty_home / "made", sizes=(60, 60, 60, 60), missing=0.1)
    files = {file: (empty_home / "made" / file).read_bytes() for file in hospitals.HOSPITALS}
    server = serve(monkeypatch, "heart", files)
    complete = load("heart")
    everybody = load("heart", choices={"patients": "all"})
    assert len(server.asked) == 4
    assert len(everybody.labels) > len(complete.labels)
    cache = empty_home / "cache" / "bonafed" / "heart"
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == files


def flamby(folder, file):
    """Age and blood pressure of the test patients of a hospital, by FLamby's rule spelled out."""
    rows = [line.split(",") for line in (folder / "heart" / file).read_text().split()]
    rows = [row for row in rows if "?" not in row[:10] + row[13:]]
    ill = np.array([float(row[13]) > 0 for row in rows])
    _, tests = train_test_split(
        np.arange(len(rows)), test_size=1.0 - 0.66, train_size=0.66, random_state=43, shuffle=True,
        stratify=ill if min(ill.sum(), (~ill).sum()) > 2 else None,
    )  # fmt: skip
    return [[int(float(rows[place][0])), int(float(rows[place][3]))] for place in sorted(tests)]


class TestRealFiles:
    def test_heart_is_as_flamby_has_it(self):
        data = load("heart", folder=real_data("heart"))
        assert data.features.shape == (486, 13)
        sizes = dict(zip(data.owners, np.bincount(data.groups).tolist(), strict=True))
        assert sizes == {"Cleveland": 199, "Hungary": 172, "Switzerland": 30, "Long Beach": 85}
        assert len(data.test_labels) == 104 + 89 + 16 + 45
        tested = data.columns.index("age"), data.columns.index("blood pressure")
        found = np.round(data.test_features[:, tested] * (10, 20) + (50, 130)).astype(int).tolist()
        pinned = hashlib.sha256(repr(found).encode()).hexdigest()[:16]
        assert pinned == "e18ebb976132a0be"  # whatever the version of scikit-learn
        assert found == [
            tested for file in hospitals.HOSPITALS for tested in flamby(real_data("heart"), file)
        ]
        everybody = load("heart", folder=real_data("heart"), choices={"patients": "all"})
        assert len(everybody.labels) + len(everybody.test_labels) == 920

    @pytest.mark.parametrize(
        ("choices", "clients", "patients"),
        [
            ({}, 464, 19_285),
            ({"minimum_rows": 100}, 49, 8_149),
            ({"clients": "countries", "minimum_rows": 100}, 24, 18_724),
        ],
    )
    def test_ist_is_as_its_source_says(self, choices, clients, patients):
        data = load("ist", folder=real_data("ist"), choices=choices)
        assert len(data.owners) == clients
        assert len(data.labels) + len(data.test_labels) == patients
        assert data.features.shape[1] == 38

    @pytest.mark.parametrize(
        ("choices", "clients", "pupils"),
        [
            ({}, 160, 7_185),
            ({"study": "chem97"}, 2_410, 31_022),
            ({"study": "chem97", "clients": "authorities"}, 131, 31_022),
        ],
    )
    def test_schools_are_as_their_source_says(self, choices, clients, pupils):
        data = load("schools", folder=real_data("schools"), choices=choices)
        assert len(data.owners) == clients
        assert len(data.labels) + len(data.test_labels) == pupils
        assert abs(float(data.labels.mean())) < 0.1
        assert float(data.labels.var()) == pytest.approx(1, abs=0.25)
