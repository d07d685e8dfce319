"""Raw features in a run: standardised below the seam, by constants that are nobody's record."""

from dataclasses import replace

import numpy as np
import pytest

import bonafed
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.learning.data import scaling
from bonafed.learning.data.datasets import from_arrays, load
from bonafed.runs import config, prepare, toml, training

SCALES = np.array([1.0, 1024.0, 1.0, 2.0**-10, 1.0, 65536.0])  # powers of two: exact in any precision
PRIVACY = ("privacy.clip=1", "privacy.epsilon=8", "privacy.delta=1e-5")
JSAM = ("jsam.prior=uniform:0,1", "jsam.budget=20", "jsam.noise_scale=1", "jsam.clip=1",
        "jsam.clients_per_round=3", "training.steps=1")  # fmt: skip


@pytest.fixture(scope="module")
def raw(small):
    """The same samples in other units."""
    return replace(
        small,
        features=(small.features * SCALES).astype(np.float32),
        test_features=(small.test_features * SCALES).astype(np.float32),
    )


def scaled(make, how, *changes):
    """The small federation with `data.standardise`."""
    tables = config.to_tables(make(*changes))
    return config.from_tables({**tables, "data": {**tables["data"], "standardise": how}})


def stated(scales=SCALES):
    return {"mean": 0.0, "scale": scales.tolist()}


def weights(made):
    return [value.detach().numpy() for value in training.train(made).model.parameters()]


def message(call, *arguments, **named):
    with pytest.raises((InvalidValue, UnreadableFile)) as caught:
        call(*arguments, **named)
    return str(caught.value)


class TestStated:
    def test_units_make_no_difference(self, make, small, raw):
        """Data in other units, divided by those, are the same data: to the last bit of the model."""
        plain = weights(prepare.prepare(make(), dataset=small))
        again = weights(prepare.prepare(scaled(make, stated()), dataset=raw))
        assert all(map(np.array_equal, plain, again))

    def test_raw_features_train_badly_and_it_is_said(self, make, raw):
        bad = bonafed.train(make("training.rounds=10"), data=raw)
        good = bonafed.train(scaled(make, stated(), "training.rounds=10"), data=raw)
        assert good.summary["test_accuracy"] > 0.9
        assert good.summary["test_loss"] < 0.5
        assert bad.summary["test_loss"] > 100
        note = "features differ in scale by more than 100: column 5 reaches"
        assert note in str(bad)
        assert "features differ in scale" not in str(good)

    def test_in_a_file(self, make, small, raw, tmp_path):
        path = tmp_path / "scales.csv"
        path.write_text("mean,scale\n" + "".join(f"0,{scale!r}\n" for scale in SCALES.tolist()))
        again = weights(prepare.prepare(scaled(make, {"constants": str(path)}), dataset=raw))
        assert all(map(np.array_equal, weights(prepare.prepare(make(), dataset=small)), again))

    def test_as_many_as_there_are_columns(self, make, raw):
        said = message(prepare.prepare, scaled(make, {"mean": [0, 1], "scale": 1}), dataset=raw)
        assert said.startswith("data.standardise.mean must be one number, or 6: one per column of a table")

    def test_constants_of_the_loss_do_not_survive(self, make):
        """L of synthetic data is for these features; of others it is unknown, and asked for."""
        rate = ("data.name=synthetic", 'training.learning_rate="proposition-1"')
        prepare.prepare(make(*rate))
        said = message(prepare.prepare, scaled(make, {"mean": 0, "scale": 0.1}, *rate))
        assert said.startswith("training.smoothness must be set for proposition-1")

    def test_words_are_not_scaled(self, make):
        words = from_arrays("words", np.ones((20, 3), dtype=int), [0, 1] * 10, vocabulary=5)
        made = scaled(make, "per client", "model.name=text-lstm")
        assert message(prepare.prepare, made, dataset=words) == (
            "data.standardise must be left out: features are words, got 'per client'"
        )

    def test_set_on_the_command_line(self):
        tables = toml.override({"data": {"name": "x"}}, "data.standardise.mean=[0, 1]")
        tables = toml.override(tables, "data.standardise.scale=2.5")
        assert tables["data"]["standardise"] == {"mean": [0, 1], "scale": 2.5}
        assert (
            toml.override({"data": {}}, "data.standardise=per client")["data"]["standardise"]
            == "per client"
        )


class TestPublic:
    @pytest.fixture
    def public(self, raw, tmp_path):
        """Other records of the same kind."""
        path = tmp_path / "open.npz"
        np.savez(path, features=raw.features[::-1][:50] * np.float32(1.5), labels=raw.labels[:50])
        return path

    def test_mean_and_deviation_of_public_data(self, make, raw, public):
        made = prepare.prepare(scaled(make, {"public": str(public)}), dataset=raw)
        rows = np.load(public)["features"].astype(np.float64)
        expected = (raw.features - rows.mean(0)) / rows.std(0)
        np.testing.assert_allclose(made.clients.samples.features.numpy(), expected, rtol=1e-5, atol=1e-6)
        tested = (raw.test_features - rows.mean(0)) / rows.std(0)
        np.testing.assert_allclose(made.test.features.numpy(), tested, rtol=1e-5, atol=1e-6)

    def test_columns_go_by_name(self, make, tmp_path):
        (tmp_path / "own.csv").write_text(
            "age,income,label\n" + "".join(f"{20 + k},{1000 * k},{k % 2}\n" for k in range(40))
        )
        (tmp_path / "open.csv").write_text("income,age\n0,10\n2000,30\n")  # and no labels
        how = {"public": "open.csv"}
        made = prepare.prepare(scaled(make, how, "data.name=own.csv", f"data.folder={tmp_path}"))
        assert made.config.data.standardise == {"public": str(tmp_path / "open.csv")}
        np.testing.assert_allclose(made.clients.samples.features.numpy()[3], [0.3, 2.0], rtol=1e-6)
        (tmp_path / "open.csv").write_text("income,size\n0,10\n2000,30\n")
        said = message(prepare.prepare, scaled(make, how, "data.name=own.csv", f"data.folder={tmp_path}"))
        assert said.endswith("open.csv: must have every feature of the data, also 'age', got income, size")

    @pytest.mark.parametrize("more", [(), PRIVACY])
    def test_the_records_themselves_are_not_public(self, make, raw, tmp_path, more):
        path = tmp_path / "copy.npz"
        np.savez(path, features=raw.features, labels=raw.labels)
        said = message(prepare.prepare, scaled(make, {"public": str(path)}, *more), dataset=raw)
        assert said == (
            "data.standardise.public must not be the records of the run: fewer than half of its rows may "
            f"be among them, got 120 of 120 in {path}"
        )

    @pytest.mark.parametrize("more", [(), PRIVACY])
    def test_nor_are_most_of_them_in_another_order(self, make, raw, tmp_path, more):
        path, own = tmp_path / "copy.npz", raw.features
        other = own[:60] * np.float32(1.5)
        for rows, known in (
            (own[::-1], 120), (own[:-1], 119), (np.vstack([own, other[:1]]), 120),
            (np.vstack([own[[7] * 30], other[:30]]), 30),
        ):  # fmt: skip
            np.savez(path, features=rows, labels=np.zeros(len(rows), np.int64))
            said = message(prepare.prepare, scaled(make, {"public": str(path)}, *more), dataset=raw)
            assert said.startswith("data.standardise.public must not be the records of the run: ")
            assert said.endswith(f", got {known} of {len(rows)} in {path}")
        np.savez(path, features=np.vstack([own[:59], other]), labels=np.zeros(119, np.int64))
        prepare.prepare(scaled(make, {"public": str(path)}, *more, "data.classes=3"), dataset=raw)

    def test_nor_with_their_columns_in_another_order(self, make, tmp_path):
        rows = [(20 + k, 1000 * k) for k in range(40)]
        own = "".join(f"{age},{income},{k % 2}\n" for k, (age, income) in enumerate(rows))
        (tmp_path / "own.csv").write_text(f"age,income,label\n{own}")
        (tmp_path / "open.csv").write_text("income,age\n" + "".join(f"{i},{a}\n" for a, i in rows[5:]))
        how = {"public": "open.csv"}
        said = message(prepare.prepare, scaled(make, how, "data.name=own.csv", f"data.folder={tmp_path}"))
        assert ", got 35 of 35 in " in said

    def test_files_that_do_not_fit(self, make, raw, tmp_path):
        for name, said in (
            ("none.csv", "No such file"),
            ("x.txt", "must be a path ending in .npz or .csv"),
        ):
            assert said in message(
                prepare.prepare, scaled(make, {"public": str(tmp_path / name)}), dataset=raw
            )
        np.savez(tmp_path / "other.npz", features=np.ones((4, 2)), labels=np.ones(4))
        said = message(prepare.prepare, scaled(make, {"public": str(tmp_path / "other.npz")}), dataset=raw)
        assert said.endswith("must hold records like those of the data, of shape (6,), got (2,)")


class TestPerClient:
    def test_units_of_each_client_make_no_difference(self, make, raw, small):
        """Every client may measure in units of its own: nobody else needs to know them."""
        grouped = replace(small, groups=np.arange(120) % 4, owners=tuple("abcd"))
        units = 4.0 ** (np.arange(120) % 4)
        mixed = replace(
            grouped,
            features=(grouped.features * units[:, None]).astype(np.float32),
            test_features=small.test_features * np.float32(8),  # and so may the server
        )
        natural = ("partition.kind=natural",)
        one = weights(prepare.prepare(scaled(make, "per client", *natural), dataset=grouped))
        other = weights(prepare.prepare(scaled(make, "per client", *natural), dataset=mixed))
        assert all(map(np.array_equal, one, other))

    def test_the_test_samples_have_constants_of_their_own(self, make, raw):
        made = prepare.prepare(scaled(make, "per client"), dataset=raw)
        tested = made.test.features.numpy()
        np.testing.assert_allclose(tested.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(tested.std(0), 1, rtol=1e-5)
        alone = replace(raw, test_features=raw.test_features[:0], test_labels=raw.test_labels[:0])
        assert len(prepare.prepare(scaled(make, "per client"), dataset=alone).test.labels) == 0

    @pytest.mark.parametrize("more", [PRIVACY, JSAM, (*PRIVACY, "privacy.noise=reproducible")])
    def test_not_in_a_private_run(self, make, raw, more):
        said = message(prepare.prepare, scaled(make, "per client", *more), dataset=raw)
        assert said == (
            'data.standardise must not be "per client" in a private run, as one record moves the scale of '
            "all others: state constants, such as standardise = {mean = 0.0, scale = 10.0}, or name public "
            "data, got 'per client'"
        )

    def test_why_not(self, raw):
        """One record moves the features of all others of its client, far beyond any bound of its own."""
        neighbour = raw.features.copy()
        neighbour[0] *= 1000
        part = [np.arange(30)]
        apart = scaling.per_client(raw.features, part)[1:30] - scaling.per_client(neighbour, part)[1:30]
        assert (np.abs(apart).max(axis=0) > 1).all()


class TestPrivate:
    def test_nothing_is_computed_from_the_records(self, make, raw, monkeypatch):
        def never(*_arguments):
            raise AssertionError("computed from private records")

        monkeypatch.setattr(scaling, "far_apart", never)
        monkeypatch.setattr(scaling.Scaling, "of", never)
        run = bonafed.train(scaled(make, stated(), *PRIVACY, "training.rounds=2"), data=raw)
        assert "features differ" not in str(run)
        assert "features differ" not in str(bonafed.train(make(*PRIVACY, "training.rounds=1"), data=raw))

    def test_public_constants_come_from_the_public_file_alone(self, make, raw, tmp_path, monkeypatch):
        path, seen = tmp_path / "open.npz", []
        np.savez(path, features=raw.features[:50] * 2, labels=raw.labels[:50])
        whole = scaling.Scaling.of
        monkeypatch.setattr(scaling.Scaling, "of", lambda rows: seen.append(len(rows)) or whole(rows))
        prepare.prepare(scaled(make, {"public": str(path)}, *PRIVACY), dataset=raw)
        assert seen == [50]


class TestResume:
    @pytest.fixture
    def begun(self, make, raw, tmp_path, kill_in):
        """begun(how): the folder of a run that was killed after two rounds."""

        def made(how):
            with pytest.raises(kill_in.error):
                training.train(
                    prepare.prepare(scaled(make, how), dataset=raw), tmp_path / "run", on_round=kill_in(2)
                )
            return tmp_path / "run"

        return made

    def test_another_standardisation_is_refused(self, make, raw, begun):
        place = begun(stated())
        for how in (stated(2 * SCALES), "per client", {"mean": 1.0, "scale": 2.0}):
            made = prepare.prepare(scaled(make, how), dataset=raw)
            said = message(training.train, made, place, resume=True)
            assert said.startswith("data.standardise must be as it was when the run began, {'mean': 0.0, ")
        said = message(training.train, prepare.prepare(make(), dataset=raw), place, resume=True)
        assert said.startswith("data.standardise must be as it was")
        same = prepare.prepare(scaled(make, stated()), dataset=raw)
        whole = training.train(same)
        assert training.train(same, place, resume=True).summary["test_loss"] == whole.summary["test_loss"]

    def test_a_file_may_move_and_must_not_change(self, make, raw, begun, tmp_path):
        path, moved = tmp_path / "scales.csv", tmp_path / "moved.csv"
        text = "mean,scale\n" + "".join(f"0,{scale!r}\n" for scale in SCALES.tolist())
        path.write_text(text)
        place = begun({"constants": str(path)})
        moved.write_text(text.replace("0,1024.0", "0,1025.0"))
        other = prepare.prepare(scaled(make, {"constants": str(moved)}), dataset=raw)
        assert message(training.train, other, place, resume=True).startswith("data must be the data")
        moved.write_text(text)
        again = prepare.prepare(scaled(make, {"constants": str(moved)}), dataset=raw)
        assert training.train(again, place, resume=True).summary["rounds"] == 5


def test_clients_that_answer_for_themselves_standardise_for_themselves(make, raw):
    members = prepare.prepare(make(), dataset=raw).clients
    said = message(prepare.prepare, scaled(make, stated()), federation=members)
    assert said.startswith("data.standardise must be left out: clients that answer for themselves")


def test_a_comparison_standardises_once(make, raw, small):
    tables = config.to_tables(make("training.rounds=2", "run.cores=1"))
    compared = {"budget": 20.0, "costs": "uniform:0.5,1.5", "mechanisms": ["fedavg"]}
    how = {**tables, "data": {**tables["data"], "standardise": stated()}, "compare": compared}
    one = bonafed.compare({**tables, "compare": compared}, data=small)["fedavg"].result.summary
    other = bonafed.compare(how, data=raw)["fedavg"].result.summary
    assert one["test_loss"] == other["test_loss"]


class TestNamedClasses:
    NAMES = ("hazel", "ash", "elm")

    @pytest.fixture
    def named(self, small):
        """The small data with names for labels; their alphabet is another order."""
        return from_arrays(
            "trees", small.features, [self.NAMES[label] for label in small.labels],
            test_features=small.test_features,
            test_labels=[self.NAMES[label] for label in small.test_labels],
        )  # fmt: skip

    def test_names_are_kept(self, make, named):
        made = prepare.prepare(make(), dataset=named)
        assert named.class_names == made.agreement.members.class_names == ("ash", "elm", "hazel")
        run = training.train(made)
        assert run.summary["class_names"] == ["ash", "elm", "hazel"]
        assert "ash, elm, hazel" in str(run)

    def test_their_order_can_be_stated(self, make, small, named):
        """In the order of the numbers, names change nothing but what things are called."""
        listed = make(f"data.classes={list(self.NAMES)}")
        made = prepare.prepare(listed, dataset=named)
        assert made.agreement.members.class_names == self.NAMES
        assert all(map(np.array_equal, weights(made), weights(prepare.prepare(make(), dataset=small))))
        called = prepare.prepare(listed, dataset=small)  # numbers can be given names, too
        assert called.agreement.members.class_names == self.NAMES
        assert config.from_tables(config.to_tables(listed)).data.classes == self.NAMES

    @pytest.mark.parametrize(
        ("classes", "said"),
        [
            (
                ["ash", "elm"],
                "data.classes must name every class of the data, also 'hazel', got ['ash', 'elm']",
            ),
            (
                3,
                "data.classes must list the names of the classes in their order, as labels are names, "
                "got 3",
            ),
        ],
    )
    def test_what_does_not_fit(self, make, named, classes, said):
        assert message(prepare.prepare, make(f"data.classes={classes}"), dataset=named) == said

    def test_too_few_names_for_numbers(self, make, small):
        said = message(prepare.prepare, make('data.classes=["a", "b"]'), dataset=small)
        assert said == "data.classes must name 3 classes for these data, got 2"

    def test_names_are_names(self, make):
        for classes, said in (
            ('["a", "A"]', "data.classes must be all different, by more than case, width or spaces"),
            ("[]", "data.classes must name a class, got an empty list"),
            ("[1, 2]", "data.classes must be text, got 1"),
            ("0", "data.classes must be a whole number of at least 1, got 0"),
        ):
            assert message(make, f"data.classes={classes}").startswith(said)

    def test_a_private_run_must_be_told(self, make, named):
        """In alphabetical order of what occurs, one record could move the number of every other class."""
        assert message(prepare.prepare, make(*PRIVACY), dataset=named).startswith(
            "data.classes is required"
        )
        assert "must list the names" in message(
            prepare.prepare, make(*PRIVACY, "data.classes=3"), dataset=named
        )
        made = prepare.prepare(make(*PRIVACY, f"data.classes={[*self.NAMES, 'oak']}"), dataset=named)
        assert made.agreement.members.classes == 4

    def test_test_samples_of_a_server_are_numbered_as_its_clients(self, make, named, small):
        federation = prepare.prepare(make(f"data.classes={list(self.NAMES)}"), dataset=named).clients
        made = prepare.prepare(make(), federation=federation, dataset=named)
        assert made.test.labels.tolist() == small.test_labels.tolist()


def test_on_the_command_line(bonafed, tmp_path):
    """The note comes before the first round, and a run is resumed with its own standardisation only."""
    rows = "".join(f"{k % 7},{1000 * k},{('even', 'odd')[k % 2]},{int(k % 4 == 0)}\n" for k in range(80))
    (tmp_path / "own.csv").write_text(f"age,income,label,test\n{rows}")
    (tmp_path / "own.toml").write_text(
        '[data]\nname = "own.csv"\n[partition]\nclients = 3\n[model]\nname = "softmax"\n'
        "[training]\nrounds = 2\nlearning_rate = 0.1\n[run]\ncores = 1\n"
    )
    code, out, err = bonafed("train", "own.toml", "--folder", "raw")
    assert (code, "even, odd" in out) == (0, True)
    assert err == (
        "note: features differ in scale by more than 100: 'income' reaches 7.9e+04, 'age' 6; "
        "data.standardise puts them on a common one\n"
    )
    set_to = ("--set", "data.standardise.mean=0", "--set", "data.standardise.scale=[3, 4e4]")
    assert bonafed("train", "own.toml", "--folder", "scaled", *set_to)[::2] == (0, "")
    code, _, err = bonafed("train", "--resume", "scaled", "--set", "data.standardise=per client")
    assert code == 2
    assert err.startswith("error: data.standardise must be as it was when the run began, {'mean': 0.0, ")
    assert bonafed("train", "--resume", "scaled")[0] == 0
    code, _, err = bonafed("train", "own.toml", "--folder", "x", "--set", "data.standardise=records")
    assert (code, err.partition(" or ")[0]) == (2, 'error: data.standardise must be "per client"')


def test_a_table_with_names_and_raw_columns(tmp_path):
    """From the file to the model: text labels, columns by name, one line for the data."""
    rng = np.random.default_rng(0)
    rows = ["age,income,label,client,test"]
    for k in range(200):
        sick = k % 2
        age, income = (
            40 + 10 * sick + rng.standard_normal(),
            50_000 - 9_000 * sick + 2_000 * rng.standard_normal(),
        )
        rows.append(f"{age},{income},{'ill' if sick else 'well'},ward {k % 4},{int(k % 5 == 0)}")
    path = tmp_path / "own.csv"
    path.write_text("\n".join(rows))
    data = load(str(path))
    assert (
        print_of(data)
        == "<Dataset own: 160 samples of shape (2,), 40 for testing, 2 classes (ill, well), 4 owners>"
    )
    assert data.columns == ("age", "income")
    tables = {
        "data": {"name": str(path)}, "partition": {"kind": "natural"}, "model": {"name": "softmax"},
        "training": {"rounds": 10, "learning_rate": 0.1}, "run": {"cores": 1},
    }  # fmt: skip
    bad = bonafed.train(tables).summary
    assert any("'income' reaches 5" in note and "'age'" in note for note in bad["notes"])
    tables["data"]["standardise"] = {"mean": [45, 45_000], "scale": [5, 5_000]}
    good = bonafed.train(tables).summary
    assert good["test_loss"] < 0.3 < 10 < bad["test_loss"]
    assert good["test_accuracy"] > 0.95
    assert good["notes"] == []


def print_of(value):
    assert str(value) == repr(value)
    assert "\n" not in str(value)
    return str(value)
