"""Features on a common scale: whose constants, and what is refused."""

import numpy as np
import pytest

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.learning.data import scaling
from bonafed.learning.data.scaling import Scaling, far_apart, read_constants, standardise_rule, stated

RNG = np.random.default_rng(3)
RAW = (RNG.standard_normal((40, 3)) * [1.0, 1000.0, 0.01] + [0.0, 50_000.0, 3.0]).astype(np.float32)


def message(call, *arguments):
    with pytest.raises((InvalidValue, UnreadableFile)) as caught:
        call(*arguments)
    return str(caught.value)


def test_own_constants_give_mean_0_and_spread_1():
    scaled = Scaling.of(RAW).apply(RAW)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-4)  # 50,000 in single precision
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-4)


def test_images_are_scaled_by_channel():
    images = RNG.random((5, 3, 4, 4)).astype(np.float32) * np.array([1, 10, 100])[:, None, None]
    constants = Scaling.of(images)
    assert constants.mean.shape == constants.scale.shape == (3,)
    expected = (images - constants.mean[None, :, None, None]) / constants.scale[None, :, None, None]
    np.testing.assert_allclose(constants.apply(images), expected, rtol=1e-6)


def test_what_does_not_vary_is_centred_and_not_divided():
    constant = np.full((7, 2), [0.1, 1e6], dtype=np.float32)
    constants = Scaling.of(constant)
    assert constants.scale.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(constants.apply(constant), 0, atol=1e-9)


def test_every_client_has_its_own_constants():
    parts = [np.array([0, 2, 4]), np.arange(5, 40), np.array([1, 3])]
    scaled = scaling.per_client(RAW, parts)
    for part in parts:
        own = RAW[part].astype(np.float64)
        np.testing.assert_allclose(scaled[part], (own - own.mean(0)) / own.std(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "value",
    [
        "per client", {"mean": 0.5, "scale": 2.0}, {"mean": [0.0, 1.0], "scale": 2.0},
        {"mean": 0, "scale": [1, 2]}, {"constants": "scales.csv"}, {"public": "open.npz"},
    ],
)  # fmt: skip
def test_the_forms_of_the_key(value):
    assert standardise_rule("standardise", value) == value
    assert standardise_rule("standardise", standardise_rule("standardise", value)) == value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("records", 'standardise must be "per client" or one of {mean = [...], scale'),
        (True, 'standardise must be "per client" or one of'),
        ({}, "standardise must be one of {mean = [...]"),
        ({"mean": 1}, "standardise.scale is required with mean"),
        ({"scale": 1}, "standardise.mean is required with scale"),
        ({"mean": 1, "scale": 0}, "standardise.scale must be positive, got 0.0"),
        ({"mean": 1, "scale": [1, -1]}, "standardise.scale must be positive, got -1 at position 1"),
        ({"mean": "1", "scale": 1}, "standardise.mean must be a number, got '1'"),
        ({"mean": [1, float("nan")], "scale": 1}, "standardise.mean must be finite, got nan at position 1"),
        ({"mean": [1, 2], "scale": [1, 2, 3]}, "standardise.scale must be one number or as many as"),
        ({"public": 3}, "standardise.public must be the name of a file, got 3"),
        ({"public": "a.csv", "mean": 1}, "standardise must be one of {mean"),
        ({"public": "a.csv", "constants": "b.csv"}, "standardise must be one of {mean"),
    ],
)
def test_what_is_no_form_of_the_key(value, said):
    assert message(standardise_rule, "standardise", value).startswith(said)


def test_stated_constants_fit_the_data():
    one = stated({"mean": 1.0, "scale": [1.0, 2.0, 4.0]}, 3)
    assert (one.mean.tolist(), one.scale.tolist()) == ([1.0, 1.0, 1.0], [1.0, 2.0, 4.0])
    said = message(stated, {"mean": [1.0, 2.0], "scale": 1.0}, 3)
    assert said.startswith("standardise.mean must be one number, or 3: one per column of a table")


def test_what_leaves_single_precision_is_refused():
    said = message(Scaling(np.zeros(3), np.full(3, 1e-40)).apply, RAW)
    assert said == "standardise must keep features below 3.4e+38 in size, got a larger one"


class TestConstantsInAFile:
    @pytest.fixture
    def file(self, tmp_path):
        def made(text):
            path = tmp_path / "scales.csv"
            path.write_text(text)
            return path

        return made

    def test_by_name_in_any_order(self, file):
        path = file("scale,feature,mean\n2,age,40\n30000,income,50000\n")
        constants = read_constants(path, ("income", "age"), 2)
        assert constants.mean.tolist() == [50_000, 40]
        assert constants.scale.tolist() == [30_000, 2]

    def test_in_order_where_features_have_no_names(self, file):
        assert read_constants(file("mean,scale\n1,2\n3,4\n"), (), 2).scale.tolist() == [2, 4]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", ", line 1: must have the columns feature, mean, scale, got none"),
            ("mean,scale\n1,2\n", ", line 1: must have the columns feature, mean, scale, got mean, scale"),
            ("feature,mean,scale\na,1,2\n", ": must have every feature of the data, also 'b', got a"),
            (
                "feature,mean,scale\na,1,2\nb,1,2\nc,1,2\n",
                ": must have the features of the data only, got 'c'",
            ),
            ("feature,mean,scale\na,1,2\na,1,2\n", ", line 3: duplicate feature 'a', first in line 2"),
            ("feature,mean,scale\na,1,2\nb,1_0,2\n", ", line 3: mean must be a number, got '1_0'"),
            ("feature,mean,scale\na,inf,2\n", ", line 2: mean must be finite, got inf"),
            ("feature,mean,scale\na,1,0\n", ", line 2: scale must be positive, got 0.0"),
            ("feature,mean,scale\na,1\n", ", line 2: must have 3 columns, got 2"),
        ],
    )
    def test_mistakes_are_named_with_their_line(self, file, text, said):
        path = file(text)
        assert message(read_constants, path, ("a", "b"), 2) == f"{path}{said}"

    def test_too_few(self, file):
        said = message(read_constants, file("mean,scale\n1,2\n"), (), 2)
        assert said.endswith("must have 2 rows, one per column or channel, got 1")


class TestNote:
    def test_scales_that_differ_by_more_than_100(self):
        table = np.array([[0.5, 100.0], [-1.0, 101.0]])
        assert far_apart(table, ("age", "income")) == (
            "features differ in scale by more than 100: 'income' reaches 101, 'age' 1; "
            "data.standardise puts them on a common one"
        )
        assert "column 1 reaches 101, column 0 1" in far_apart(table, ())

    def test_scales_that_do_not(self):
        assert far_apart(np.array([[1.0, 100.0]]), ()) == ""
        assert far_apart(np.zeros((3, 2)), ()) == ""
        sparse = np.zeros((10_000, 2))  # mostly 0, and still of one scale
        sparse[0], sparse[1:, 1] = (1.0, 1.0), 1.0
        assert far_apart(sparse, ()) == ""
