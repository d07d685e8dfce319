"""The study behind the tables of the rewards paper, on a small federation of digits."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
import torch

from bonafed.errors import InvalidValue
from bonafed.learning import datasets
from bonafed.learning.engine.jobs import Job, batches, job_rng
from bonafed.learning.engine.programs import load_parameters
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.rewards.metrics import Evaluation, scores, summarise
from bonafed.runs.config import from_tables
from bonafed.runs.folder import read_rounds
from bonafed.runs.setting import prepare
from bonafed.runs.training import train
from bonafed.studies.grid import as_csv, run
from bonafed.studies.rewards import tables as lab
from bonafed.studies.rewards.printed import printed_scores

SMALL = lab.Tables(
    data=("digits",), partitions=("quantity",), methods=tuple(lab.METHODS), seed=3, clients=4, rounds=3,
    validation=1000, ranking=60, cores=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


@pytest.fixture(scope="module")
def ready():
    """The first run of the study, before it begins."""
    planned = next(iter(lab.cells(SMALL).values()))
    return prepare(from_tables(planned.tables), dataset=planned.dataset())


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The document of the study with every method, and the results of its runs."""
    options, kept = replace(SMALL, out=tmp_path_factory.mktemp("study")), {}

    def show(chosen, results):
        kept.update(results)
        return lab.STUDY.show(chosen, results)

    return run(replace(lab.STUDY, show=show), options), kept, options


def facts(results, variant=""):
    return results[lab.Place("digits", "quantity", 3, variant)]["statement"]["facts"]


class TestCells:
    def test_a_run_trains_all_methods_of_a_setting(self):
        options = lab.Tables(
            data=("mnist", "digits"), partitions=("iid", "noise"), methods=("iafl", "rank")
        )
        planned = lab.cells(options)
        assert [place[:2] for place in planned] == [
            (d, p) for d in ("mnist", "digits") for p in ("iid", "noise")
        ]
        assert {tuple(cell.tables["rewards"]["baselines"]) for cell in planned.values()} == {("rank",)}
        assert {place.seed for place in lab.cells(replace(options, seed=4, seeds=2))} == {4, 5}

    def test_the_defaults_are_the_papers(self):
        planned = lab.cells(lab.Tables())
        assert len(planned) == 2 * 5
        tables = next(iter(planned.values())).tables
        assert (tables["partition"]["clients"], tables["model"]["name"]) == (50, "small-cnn")
        assert tables["training"] == {
            "rounds": 50, "batch_size": 64, "optimizer": "adam", "learning_rate": 0.01,
            "learning_rate_decay": 0.977,
        }  # fmt: skip
        own = tables["rewards"]
        assert (own["sharing"], own["recovery"], own["validation"], own["ranking"]) == (0, 0, 5000, 500)
        assert own["baselines"] == ["fedavg-ft", "lg-fedavg", "cgsv", "rank"]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("methods", "magic"), ("partitions", "none"), ("clients", 0), ("rounds", 2.5), ("seed", -1),
            ("learning_rate", 0.0), ("ranking", 1001),
        ],
    )  # fmt: skip
    def test_bad_input_is_refused_by_name(self, name, value):
        with pytest.raises(InvalidValue, match=f"^{name} must be"):
            replace(SMALL, **{name: value})

    @pytest.mark.parametrize(
        ("change", "name"),
        [
            ({"validation": 1442}, "validation"), ({"optimizer": "magic"}, "training.optimizer"),
            ({"decay": 1.5}, "training.learning_rate_decay"), ({"data": "nothing"}, "dataset"),
        ],
    )  # fmt: skip
    def test_what_only_the_data_or_a_run_can_know_is_refused_there(self, tmp_path, change, name):
        with pytest.raises(InvalidValue, match=f"^{name} must be"):
            run(lab.STUDY, replace(SMALL, out=tmp_path, **change))

    def test_a_folder_belongs_to_one_run(self):
        changes = (
            {}, {"seed": 1}, {"rounds": 4}, {"learning_rate": 0.1}, {"methods": "iafl"},
            {"partitions": "iid"}, {"cores": 2},
        )  # fmt: skip
        folders = [next(iter(lab.cells(replace(SMALL, **c)).values())).folder for c in changes]
        assert len(set(folders)) == 6  # cores change no result
        assert folders[-1] == folders[0]


def made(split="quantity", seed=3):
    return lab.federation("digits", split, 4, seed, 1000)


class TestFederation:
    def test_every_sample_is_held_out_or_with_one_client(self, digits, ready):
        data = made()
        x, held = data.features, data.test_features[-1000:]
        assert len(x) == 442
        assert len(data.test_labels) == len(digits.test_labels) + 1000
        np.testing.assert_array_equal(np.sort(np.concatenate(ready.clients.parts)), np.arange(442))
        both = np.concatenate([x, held]).reshape(1442, -1)
        scale = digits.features.reshape(1442, -1)
        kept = both * (scale.std() / both.std())
        order = np.lexsort((kept - kept.min()).round(2).T), np.lexsort(scale.round(2).T)
        np.testing.assert_allclose((kept - kept.min())[order[0]], scale[order[1]], atol=0.01)
        judges = ready.mechanism.judges
        np.testing.assert_array_equal(judges.validation.features, held)
        np.testing.assert_array_equal(judges.test.features, data.test_features[:-1000])
        assert judges.ranking == 60

    def test_pixels_are_standardised_by_what_clients_hold(self, digits):
        data = made()
        assert abs(data.features.mean()) < 1e-5
        assert abs(data.features.std() - 1) < 1e-5
        slope = np.ptp(data.test_features) / np.ptp(np.concatenate([digits.test_features, digits.features]))
        assert slope == pytest.approx(np.ptp(data.features) / np.ptp(digits.features), rel=1e-5)

    def test_noise_grows_with_the_client_and_leaves_test_and_validation_alone(self):
        noisy, clean = made("noise"), made("iid")
        np.testing.assert_array_equal(noisy.groups, clean.groups)
        added = noisy.features - clean.features
        for i in range(4):
            assert added[noisy.groups == i].var() == pytest.approx(0.1 * (i + 1) / 4, rel=0.05)
        np.testing.assert_array_equal(noisy.test_features, clean.test_features)

    def test_the_seed_decides(self):
        np.testing.assert_array_equal(made(seed=3).groups, made().groups)
        assert not np.array_equal(made(seed=4).groups, made().groups)


class TestRunning:
    def test_standalone_is_plain_training_with_a_new_optimizer_every_round(self, ready, done):
        _, results, options = done
        judges, clients, losses = ready.mechanism.judges, ready.clients, []
        by_validation = results[lab.Place("digits", "quantity", 3, "validation")]["statement"]["columns"]
        for i, part in enumerate(clients.parts):
            model = load_parameters(ready.module, torch.from_numpy(ready.start))
            for number in (1, 2, 3):
                optimizer = torch.optim.Adam(model.parameters(), 0.01 * 0.977 ** (number - 1))
                rng = job_rng(3, number, Job(i, part))
                for index in batches(Job(i, part), LocalTraining(64, 0.01), rng):
                    optimizer.zero_grad()
                    x, y = clients.samples.features[index], clients.samples.labels[index]
                    torch.nn.functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
            with torch.no_grad():
                z, held = model(judges.test.features), model(judges.validation.features)
                losses.append(
                    float(torch.nn.functional.cross_entropy(model(ready.test.features), ready.test.labels))
                )
            accuracy = float((z.argmax(1) == judges.test.labels).float().mean())
            assert facts(results)["accuracies"]["standalone"][i] == pytest.approx(accuracy, abs=2.5 / 355)
            accuracy = float((held.argmax(1) == judges.validation.labels).float().mean())
            assert by_validation["contribution"][i] == pytest.approx(accuracy, abs=2.5 / 1000)
        folder = options.out / next(iter(lab.cells(options).values())).folder
        assert read_rounds(folder)[2]["test_loss"] == pytest.approx(np.mean(losses), abs=2e-3)

    def test_variants_differ_in_what_they_say(self, done):
        _, results, options = done
        tables = {place.variant: cell.tables["rewards"] for place, cell in lab.cells(options).items()}
        assert tables["first rate"]["fine_tuning"] == "first"
        assert (tables["defaults"]["sharing"], tables["defaults"]["recovery"]) == (0.5, 0.01)
        assert tables["validation"]["measure"] == "validation"
        alone = [facts(results, variant)["accuracies"]["standalone"] for variant in lab.VARIANTS]
        assert all(each == alone[0] for each in alone)
        for variant in ("first rate", "defaults"):
            name = "fedavg-ft" if variant == "first rate" else "rewards"
            changed = facts(results, variant)["accuracies"][name]
            assert changed != facts(results)["accuracies"][name]

    def test_rewards_go_by_test_accuracy_or_by_validation_accuracy(self, done):
        _, results, _ = done
        by_test, by_validation = (
            results[lab.Place("digits", "quantity", 3, variant)]["statement"]["columns"]["contribution"]
            for variant in ("", "validation")
        )
        assert by_test == facts(results)["accuracies"]["standalone"]
        assert by_validation != by_test
        assert all(round(1000 * each, 6).is_integer() for each in by_validation)

    def test_methods_differ(self, done):
        accuracies = facts(done[1])["accuracies"]
        assert list(accuracies) == ["standalone", "rewards", "fedavg-ft", "lg-fedavg", "cgsv", "rank"]
        assert len({tuple(each) for each in accuracies.values()}) == 6

    def test_the_table_has_a_row_for_every_method_and_the_figure_a_dot_for_every_client(self, done):
        document, results, _ = done
        assert [row["method"] for row in document.data["rows"]] == ["standalone", *lab.METHODS]
        assert len(list(csv.DictReader(io.StringIO(document.files["csv"].decode())))) == 9
        (panel,) = document.figure().axes
        assert [dots.get_offsets().shape[0] for dots in panel.collections] == [4] * 8
        assert panel.get_title() == "quantity Dir(0.5)"
        assert {place.variant for place in results} == set(lab.VARIANTS)
        assert "4 runs" in str(document)

    def test_a_stopped_study_goes_on_to_the_same_digits(self, done, tmp_path):
        """Stopped in the middle of its first run, after a checkpoint."""
        _, results, options = done
        options = replace(options, out=tmp_path, methods=lab.TABLES, checkpoint_every=1)
        ((place, planned),) = lab.cells(options).items()
        ready = prepare(from_tables(planned.tables), dataset=planned.dataset())

        def stop(record):
            if record.round == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(ready, tmp_path / planned.folder, on_round=stop)
        rows = run(lab.STUDY, options).data["rows"]
        whole = [row for row in done[0].data["rows"] if row["method"] in ("standalone", *lab.TABLES)]
        assert rows == whole
        assert place in results


def measured(method, *runs):
    """A row of three clients: all gained accuracy, one of them the smaller loss too."""
    alone = method == "standalone"
    given = runs or (np.array([0.5, 0.7, 0.6]),)
    each = [
        scores(
            Evaluation(
                accuracy=accuracy,
                loss=np.array([1.0, 1.0, 0.5]),
                standalone_accuracy=accuracy if alone else np.array([0.3, 0.4, 0.5]),
                standalone_loss=np.array([0.9, 0.9, 0.9]),
                validation_accuracy=np.array([0.5, 0.4, 0.3]),
            )
        )
        for accuracy in given
    ]
    kind = lab.METHODS.get(method, lab.ALONE)
    printed = printed_scores().get(("mnist", "classes", kind.printed or ""), {})
    return lab.Measurement("mnist", "classes", method, kind.label, summarise(each), printed)


class TestTables:
    def test_the_transcription_is_complete_and_agrees_with_itself(self):
        """Average accuracy less average increase is the standalone accuracy, whatever the method."""
        paper = printed_scores()
        names = {"ipr_accuracy", "ipr_loss", "rho_test", "average", "best", "increase"}
        assert len(paper) == 2 * 5 * 5
        for numbers in paper.values():
            assert numbers.keys() == names
            assert numbers["best"] >= numbers["average"]
        for data in ("mnist", "fashion-mnist"):
            for split in lab.PARTITIONS:
                cells = [paper[data, split, method] for method in lab.TABLES]
                standalone = [100 * (one["average"] - one["increase"]) for one in cells]
                assert np.ptp(standalone) < 1.11  # accuracies are rounded to whole percents

    def test_numbers_stand_beside_the_papers(self):
        (table,) = lab.tables([measured("iafl")], 0.01)
        assert table.title == "mnist, learning rate 0.01: measured / paper"
        assert table.rows[0] == (
            "#C = 3", "IAFL", "1.00 / 1.00", "0.33 / 1.00", "0.50 / 0.59", "-0.50", "60.0 / 93",
            "70.0 / 96", "20.0 / 63.2",
        )  # fmt: skip

    def test_undefined_is_said_and_standalone_is_not_compared_with_itself(self):
        (table,) = lab.tables([measured("fedavg", np.full(3, 0.5)), measured("standalone")], 0.01)
        assert table.rows[0][4:6] == ("undefined / 0.27", "undefined")
        assert table.rows[1] == ("#C = 3", "standalone", "", "", "", "", "60.0", "70.0", "")

    def test_seeds_are_averaged(self):
        row = measured("iafl", np.array([0.5, 0.7, 0.6]), np.array([0.6, 0.5, 0.4]))
        assert row.scores["average"].mean == pytest.approx(0.55)
        assert row.scores["average"].error == pytest.approx(0.05)
        assert "55.0 ± 5.0 / 93" in str(lab.tables([row], 0.01)[0])

    def test_csv_has_what_the_table_has(self):
        content = as_csv([lab._plain(measured("iafl"), 0.01)]).decode()
        (line,) = csv.DictReader(io.StringIO(content))
        assert (line["data"], line["method"], line["seeds"]) == ("mnist", "iafl", "1")
        assert float(line["rho_test"]) == pytest.approx(0.5)
        assert float(line["rho_test_paper"]) == 0.59
        assert float(line["increase"]) == pytest.approx(0.2)
        assert measured("fedavg-first-rate").printed == printed_scores()["mnist", "classes", "fedavg"]
        assert line["rho_validation_paper"] == line["average_error"] == ""

    def test_the_papers_numbers_stand_beside_no_other_settings(self, monkeypatch):
        same = scores(Evaluation(*(np.array([0.5, 0.6]),) * 5))
        monkeypatch.setattr(lab, "_scores", lambda *_: same)

        def made_with(data, **changes):
            options = lab.Tables(data=(data,), partitions=("iid",), methods=("iafl",), **changes)
            rows = lab.measure(options, {place: {} for place in lab.cells(options)})
            (table,) = lab.tables(rows, options.learning_rate)
            return table, lab._plain(rows[-1], options.learning_rate)["average_paper"]

        table, printed = made_with("mnist")
        assert table.title.endswith("measured / paper")
        assert (printed, table.caption) == (
            0.95, "measured with 1 seed; the paper's are means over 10 seeds",
        )  # fmt: skip
        assert made_with("mnist", seeds=10)[0].caption == ""
        assert made_with("fashion-mnist", seeds=10)[0].caption == (
            "measured with 10 seeds; its learning rate is 0.001"
        )
        for change in ({"clients": 4}, {"rounds": 3}, {"model": "softmax"}, {"decay": 1.0}):
            table, printed = made_with("mnist", **change)
            assert (printed, table.caption) == (None, "")
            assert table.title.endswith(": measured")
            assert "/" not in str(table)

    def test_other_settings_are_named(self, done):
        document, _, _ = done
        assert document.blocks[-1] == (
            "Not the paper's settings, so its numbers are not to be expected: clients 4 (there 50), rounds "
            "3 (there 50)."
        )
        assert document.data["not_as_in_the_paper"] == ["clients", "rounds"]
