"""The runs and rows behind the claims of the rewards paper, on a small federation of digits."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bonafed.errors import InvalidValue
from bonafed.learning.data import datasets
from bonafed.learning.engine.jobs import Job, batches, job_rng
from bonafed.learning.engine.programs import load_parameters
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.rewards.settlement import Evaluation, scores
from bonafed.papers import register
from bonafed.papers.cells import compute_all
from bonafed.papers.claim import only, where
from bonafed.papers.rewards import baselines
from bonafed.papers.rewards import tables as lab
from bonafed.papers.rewards.federations import SettingPoint, Sizes, federation, split_of, train_setting
from bonafed.papers.rewards.figures import table_figure
from bonafed.papers.rewards.printed import LARGE, printed_scores, printed_wins
from bonafed.papers.rewards.recovery import RECOVERY, recovery_cells
from bonafed.runs.config import from_tables
from bonafed.runs.folder import read_rounds
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train

SMALL = lab.Tables(
    data=("digits",), partitions=("quantity",), methods=tuple(lab.METHODS), seeds=1, seed=3, clients=4,
    rounds=3, learning_rate=0.01, validation=1000, ranking=60,
)  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


def first_cell(options):
    return next(iter(lab.cells(options).values()))


@pytest.fixture(scope="module")
def ready():
    """The first run, before it begins."""
    return prepare(from_tables(first_cell(SMALL).arguments["tables"]), dataset=made())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of the runs with every method."""
    computed = compute_all(lab.cells(SMALL), tmp_path_factory.mktemp("cells"), cores=1)
    assert not computed.failures
    return computed.results


def of(results, variant=""):
    return results[SettingPoint("digits", "quantity", 3, variant)]


class TestCells:
    def test_a_run_trains_all_methods_of_a_setting(self):
        options = lab.Tables(
            data=("mnist", "digits"), partitions=("iid", "noise"), methods=("iafl", "rank"), seeds=1
        )
        planned = lab.cells(options)
        assert [place[:2] for place in planned] == [
            (d, p) for d in ("mnist", "digits") for p in ("iid", "noise")
        ]
        tables = [cell.arguments["tables"] for cell in planned.values()]
        assert {tuple(each["rewards"]["baselines"]) for each in tables} == {("rank",)}
        assert {place.seed for place in lab.cells(replace(options, seed=4, seeds=2))} == {4, 5}

    def test_the_preset_paper_is_the_papers(self):
        paper = baselines.PRESETS["paper"]
        planned = {place: cell.arguments["tables"] for place, cell in lab.cells(paper).items()}
        assert len(planned) == 29 * 10
        assert {place[:2] for place in planned} == {
            key[:2] for key in printed_scores() if key[0] not in LARGE
        }
        tables = planned[SettingPoint("mnist", "iid", 0)]
        assert (tables["partition"]["clients"], tables["model"]["name"]) == (50, "small-cnn")
        assert tables["training"] == {
            "rounds": 50, "batch_size": 64, "optimizer": "adam", "learning_rate": 0.01,
            "learning_rate_decay": 0.977,
        }  # fmt: skip
        own = tables["rewards"]
        assert (own["sharing"], own["recovery"], own["validation"], own["ranking"]) == (0, 0, 5000, 500)
        assert own["baselines"] == ["fedavg-ft", "lg-fedavg", "cgsv", "rank"]
        assert planned[SettingPoint("fashion-mnist", "iid", 0)]["training"]["learning_rate"] == 0.001
        assert planned[SettingPoint("sst", "iid", 0)]["model"]["name"] == "text-lstm"
        photographs = planned[SettingPoint("cifar100", "classes", 0)]["training"]
        assert (photographs["rounds"], photographs["augmentation"]) == (100, "crop-and-flip")
        assert split_of("cifar100", "classes").options == {"k": 30}
        assert split_of("mnist", "classes").options == {"k": 3}

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
            ({"decay": 1.5}, "training.learning_rate_decay"),
        ],
    )  # fmt: skip
    def test_what_only_the_data_or_a_run_can_know_is_refused_there(self, tmp_path, change, name):
        with pytest.raises(InvalidValue, match=f"^{name} must be"):
            train_setting(first_cell(replace(SMALL, **change)).arguments, tmp_path)

    def test_a_cell_belongs_to_one_run(self):
        changes = (
            {}, {"seed": 1}, {"rounds": 4}, {"learning_rate": 0.1}, {"methods": "iafl"},
            {"partitions": "iid"}, {"noise": 1.0}, {"samples": 400}, {"reversed": True},
        )  # fmt: skip
        cells = [first_cell(replace(SMALL, **c)) for c in changes]
        texts = [json.dumps(cell.arguments, sort_keys=True) for cell in cells]
        assert len(set(texts)) == 8  # how numbers are read changes no run
        assert texts[-1] == texts[0]

    def test_without_recovery_the_reference_does_not_matter(self):
        planned = recovery_cells(RECOVERY["smoke"])
        tables = [cell.arguments["tables"]["rewards"] for cell in planned.values()]
        assert [(each["recovery"], each["reference"]) for each in tables] == [
            (0.0, "max"), (0.5, "max"), (0.5, "median"),
        ]  # fmt: skip


def made(split="quantity", seed=3, **sizes):
    return federation("digits", split, Sizes(4, 1000, **sizes), seed)


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

    def test_less_can_be_taken(self):
        some, all_of_it = made("iid", samples=100, tested=50), made("iid")
        assert (len(some.labels), len(some.test_labels)) == (100, 1050)
        np.testing.assert_array_equal(some.test_labels[50:], all_of_it.test_labels[-1000:])
        np.testing.assert_array_equal(some.test_labels[:50], all_of_it.test_labels[:50])


class TestRunning:
    def test_standalone_is_plain_training_with_a_new_optimizer_every_round(self, ready, results, tmp_path):
        judges, clients, losses = ready.mechanism.judges, ready.clients, []
        own = of(results)["accuracies"]["standalone"]
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
            assert own[i] == pytest.approx(accuracy, abs=2.5 / 355)
            accuracy = float((held.argmax(1) == judges.validation.labels).float().mean())
            by_validation = of(results, "validation")["contribution"]
            assert by_validation[i] == pytest.approx(accuracy, abs=2.5 / 1000)
        train(ready, tmp_path / "run")
        lines = read_rounds(tmp_path / "run")
        assert lines[2]["test_loss"] == pytest.approx(np.mean(losses), abs=2e-3)
        assert lines[2]["accuracies"] == own

    def test_every_client_has_a_curve(self, tmp_path):
        cell = first_cell(replace(SMALL, methods=("fedavg", "iafl")))
        cell.arguments["tables"]["run"]["evaluate_every"] = 2
        found = train_setting(cell.arguments, tmp_path)
        assert list(found["curves"]) == ["standalone", "rewards", "fedavg-ft"]
        for curve in found["curves"].values():
            assert curve["rounds"] == [2, 3]
            assert np.shape(curve["accuracies"]) == (2, 4)
        assert found["curves"]["rewards"]["accuracies"][-1] == found["accuracies"]["rewards"]
        assert np.mean(found["accuracies"]["rewards"]) == found["methods"]["rewards"]["average"]
        assert not list(Path(tmp_path).iterdir())  # a finished run leaves nothing behind

    def test_variants_differ_in_what_they_say(self, results):
        tables = {
            place.variant: cell.arguments["tables"]["rewards"] for place, cell in lab.cells(SMALL).items()
        }
        assert tables["first rate"]["fine_tuning"] == "first"
        assert (tables["defaults"]["sharing"], tables["defaults"]["recovery"]) == (0.5, 0.01)
        assert tables["validation"]["measure"] == "validation"
        alone = [of(results, variant)["accuracies"]["standalone"] for variant in lab.VARIANTS]
        assert all(each == alone[0] for each in alone)
        for variant in ("first rate", "defaults"):
            name = "fedavg-ft" if variant == "first rate" else "rewards"
            changed = of(results, variant)["accuracies"][name]
            assert changed != of(results)["accuracies"][name]

    def test_rewards_go_by_test_accuracy_or_by_validation_accuracy(self, results):
        by_test, by_validation = (of(results, variant)["contribution"] for variant in ("", "validation"))
        assert by_test == of(results)["accuracies"]["standalone"]
        assert by_validation != by_test
        assert all(round(1000 * each, 6).is_integer() for each in by_validation)

    def test_methods_differ(self, results):
        accuracies = of(results)["accuracies"]
        assert list(accuracies) == ["standalone", "rewards", "fedavg-ft", "lg-fedavg", "cgsv", "rank"]
        assert len({tuple(each) for each in accuracies.values()}) == 6

    def test_a_stopped_run_goes_on_to_the_same_digits(self, results, tmp_path):
        """Stopped in the middle, after a checkpoint."""
        cell = first_cell(replace(SMALL, methods=lab.TABLES))
        tables = cell.arguments["tables"]
        tables["run"]["checkpoint_every"] = 1
        ready = prepare(from_tables(tables), dataset=made())

        def stop(record):
            if record.round == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(ready, tmp_path / "run", on_round=stop)
        found = train_setting(cell.arguments, tmp_path)
        assert found["methods"] == of(results)["methods"]
        assert found["curves"] == of(results)["curves"]


def measured(runs, *metrics, **changes):
    """Rows of results that are made up: by method and seed, the accuracies of three clients."""
    options = lab.Tables(
        **{
            "data": ("mnist",), "partitions": ("classes",), "methods": tuple(runs), "seeds": 1,
            **changes,
        }
    )  # fmt: skip
    results = {}
    for place in lab.cells(options):
        methods = {}
        for name, accuracies in runs.items():
            evaluation = Evaluation(
                accuracy=np.array(accuracies[place.seed]),
                loss=np.array([1.0, 1.0, 0.5]),
                standalone_accuracy=np.array([0.3, 0.4, 0.5]),
                standalone_loss=np.array([0.9, 0.9, 0.9]),
                validation_accuracy=np.array([0.5, 0.4, 0.3]),
            )
            kept = scores(evaluation)
            methods[lab.METHODS[name].phase] = {n: getattr(kept, n) for n in kept.__slots__}
        results[place] = {"methods": methods}
    return lab.table(options, results, *metrics)


class TestTables:
    def test_the_transcription_is_complete_and_agrees_with_itself(self):
        """Average accuracy less average increase is the standalone accuracy, whatever the method."""
        paper = printed_scores()
        names = {"ipr_accuracy", "ipr_loss", "rho_test", "average", "best", "increase"}
        whole = {key: numbers for key, numbers in paper.items() if key[0] not in LARGE}
        assert len(whole) == 29 * 5
        assert len(paper) == (29 + 9) * 5 - 3  # three numbers are undefined in print
        for numbers in whole.values():
            assert numbers.keys() == names
            assert numbers["best"] >= numbers["average"]
        for data in lab.DATA:
            for split in lab.PARTITIONS:
                cells = [paper[data, split, m] for m in lab.TABLES if (data, split, m) in paper]
                standalone = [100 * (one["average"] - one["increase"]) for one in cells]
                assert np.ptp(standalone or [0.0]) < 1.11  # accuracies are rounded to whole percents

    def test_iafl_is_best_as_often_as_the_table_shows(self):
        """Of rho the text counts 16 of 29 settings; the table has 15 (erratum R-11)."""
        assert printed_wins("ipr_accuracy") == (24, 29)
        assert printed_wins("rho_test") == (15, 29)
        assert printed_wins("ipr_loss") == (29, 29)

    def test_numbers_stand_beside_the_papers(self):
        rows = measured({"iafl": [[0.5, 0.7, 0.6]], "rank": [[0.5, 0.5, 0.5]]}, "rho_test", "average")
        own = only(rows, data="mnist", method="IAFL")
        assert own["rho_test"] == pytest.approx(0.5)
        assert (own["paper"], own["partition"], own["as_in_the_paper"]) == (0.59, "#C = 3", True)
        assert own["average"] == pytest.approx(0.6)
        assert own["lead"] == pytest.approx(0.5)  # Rank's is undefined, and counts as 0
        assert (own["highest"], own["seeds"]) == (1.0, 1)
        other = only(rows, data="mnist", method="Rank")
        assert (other["rho_test"], other["rho_test_se"], other["highest"]) == (None, None, 0.0)
        assert only(rows, data=lab.ALL, method="Rank")["rho_test"] == 0.0

    def test_seeds_are_averaged_and_leads_taken_seed_by_seed(self):
        runs = {
            "iafl": [[0.5, 0.7, 0.6], [0.6, 0.5, 0.4]], "fedavg": [[0.4, 0.6, 0.5], [0.7, 0.6, 0.5]],
        }  # fmt: skip
        own = only(measured(runs, "average", seeds=2), data="mnist", method="IAFL")
        assert own["average"] == pytest.approx(0.55)
        assert own["average_se"] == pytest.approx(0.05)
        assert own["lead"] == pytest.approx(0.0)
        assert own["lead_se"] == pytest.approx(0.1)
        assert (own["highest"], own["highest_se"]) == (0.5, 0.5)

    def test_over_all_settings_means_come_first_then_seeds(self):
        runs = {"iafl": [[0.5, 0.7, 0.6]], "fedavg": [[0.4, 0.6, 0.5]]}
        rows = measured(runs, "average", partitions=("classes", "iid"))
        assert len(rows) == 2 * 2 + 2
        assert only(rows, data=lab.ALL, method="IAFL")["average"] == pytest.approx(0.6)
        assert only(rows, data=lab.ALL, method="IAFL")["highest"] == 1.0

    def test_contributions_can_be_read_backwards(self):
        runs = {"iafl": [[0.5, 0.7, 0.6]], "fedavg": [[0.4, 0.6, 0.5]]}
        rows = measured(runs, "rho_test", reversed=True)
        assert only(rows, data="mnist", method="IAFL")["rho_test"] == pytest.approx(-0.5)

    def test_the_papers_numbers_are_asked_for_at_no_other_settings(self):
        runs = {"iafl": [[0.5, 0.7, 0.6]], "fedavg": [[0.4, 0.6, 0.5]]}
        claim = register.find("rewards-table5")

        def asked(**changes):
            rows = measured(runs, "average", "best", **changes)
            return [check for check in claim.judge(rows) if check.printed is not None]

        (check,) = asked()
        assert (check.printed, check.what) == (0.93, "mean accuracy of IAFL, mnist, #C = 3")
        assert check.outcome == "contradicted"
        assert asked(data=("fashion-mnist",))
        for change in (
            {"clients": 4}, {"rounds": 3}, {"model": "softmax"}, {"decay": 1.0}, {"samples": 100},
            {"learning_rate": 0.1},
        ):  # fmt: skip
            assert not asked(**change)
        assert not asked(data=("digits",))

    def test_the_figure_has_a_point_for_every_method_and_setting(self):
        runs = {"iafl": [[0.5, 0.7, 0.6]], "fedavg": [[0.4, 0.6, 0.5]]}
        rows = measured(runs, "average", data=("mnist", "fashion-mnist"), partitions=("classes", "iid"))
        picture = table_figure(rows, "average", "accuracy, %", 100.0)
        assert [axes.get_title() for axes in picture.axes] == ["mnist", "fashion-mnist"]
        assert [len(axes.containers) for axes in picture.axes] == [2, 2]
        assert len(where(rows, data="mnist")) == 4

    def test_other_settings_are_named(self):
        claim = register.find("rewards-table1")
        changed = claim.departures(replace(baselines.PRESETS["paper"], clients=4, rounds=3))
        assert changed == {"clients": (4, 50), "rounds": (3, lab.BY_DATA)}
