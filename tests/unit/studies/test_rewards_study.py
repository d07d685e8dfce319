"""The study behind the tables of the rewards paper, on a small federation of digits."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.lab import rewards_cells as lab
from bonafed.lab import rewards_study as command
from bonafed.lab import rewards_tables as tables
from bonafed.lab.rewards_cells import Cell, Checkpoint, Outcome
from bonafed.learning import datasets
from bonafed.learning.engine.jobs import Job, batches, job_rng
from bonafed.learning.engine.programs import load_parameters
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.rewards import ModelRewards
from bonafed.mechanisms.rewards.local import ask
from bonafed.mechanisms.rewards.metrics import Evaluation

SMALL = Cell(
    "standalone",
    "quantity",
    "digits",
    seed=3,
    clients=4,
    rounds=3,
    batch_size=64,
    validation=1000,
    ranking=60,
)
OPTIONS = [
    "--data", "digits", "--clients", "4", "--rounds", "2", "--validation", "1100", "--ranking", "50",
    "--cores", "1", "--partitions", "iid",
]  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


@pytest.fixture(scope="module")
def ready(digits):
    return lab.federation(SMALL, digits)


@pytest.fixture(scope="module")
def alone(ready):
    return lab.run_cell(SMALL, ready)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A results file with every method of a setting, and the outcomes."""
    results = tmp_path_factory.mktemp("study") / "all.jsonl"
    wanted = lab.cells(SMALL, data=["digits"], partitions=["quantity"], methods=tuple(tables.METHODS))
    return results, wanted, lab.study(wanted, results)


def without_clocks(outcome):
    return outcome.accuracy, outcome.loss, outcome.validation_accuracy


class TestCells:
    def test_each_setting_is_complete_before_the_next_and_begins_alone(self):
        found = lab.cells(
            SMALL, data=["mnist", "digits"], partitions=["iid", "noise"], methods=["iafl", "rank"]
        )
        order = [(cell.data, cell.partition, cell.method) for cell in found]
        settings = [(d, p) for d in ("mnist", "digits") for p in ("iid", "noise")]
        assert order == [(*s, m) for s in settings for m in ("standalone", "iafl", "rank")]
        assert {cell.seed for cell in lab.cells(SMALL, data=["digits"], seeds=[4, 5])} == {4, 5}

    def test_the_defaults_are_the_papers(self):
        cell = Cell("iafl", "iid", "mnist")
        assert (cell.clients, cell.rounds, cell.batch_size, cell.model) == (50, 50, 64, "small-cnn")
        assert (cell.optimizer, cell.learning_rate, cell.decay) == ("adam", 0.01, 0.977)
        assert len(lab.cells(cell, data=["mnist", "fashion-mnist"])) == 2 * 5 * 6

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("method", "magic"),
            ("partition", "none"),
            ("clients", 0),
            ("rounds", 2.5),
            ("seed", -1),
            ("learning_rate", 0.0),
            ("ranking", 1001),
        ],
    )
    def test_bad_input_is_refused_by_name(self, name, value):
        with pytest.raises(InvalidValue, match=f"^{name} must be"):
            replace(SMALL, **{name: value})

    @pytest.mark.parametrize(
        ("name", "value"), [("validation", 1442), ("optimizer", "magic"), ("decay", 1.5)]
    )
    def test_what_only_the_data_or_the_engine_can_know_is_refused_there(self, digits, name, value):
        with pytest.raises(InvalidValue, match=f"^{name} must be"):
            lab.federation(replace(SMALL, **{name: value}), digits)


class TestFederation:
    def test_every_sample_is_held_out_or_with_one_client(self, digits, ready):
        x = ready.clients.samples.features.numpy()
        held = ready.validation.features.numpy()
        assert len(held) == 1000
        assert len(x) == 442
        np.testing.assert_array_equal(np.sort(np.concatenate(ready.clients.parts)), np.arange(442))
        assert ready.sizes == [part.size for part in ready.clients.parts]
        both = np.concatenate([x, held]).reshape(1442, -1)
        scale = digits.features.reshape(1442, -1)
        kept = both * (scale.std() / both.std())
        order = np.lexsort((kept - kept.min()).round(2).T), np.lexsort(scale.round(2).T)
        np.testing.assert_allclose((kept - kept.min())[order[0]], scale[order[1]], atol=0.01)
        np.testing.assert_array_equal(ready.ranking.features, ready.validation.features[:60])

    def test_pixels_are_standardised_by_what_clients_hold(self, digits, ready):
        x = ready.clients.samples.features.numpy()
        assert abs(x.mean()) < 1e-5
        assert abs(x.std() - 1) < 1e-5
        test = ready.test.features.numpy()
        slope = (test.max() - test.min()) / np.ptp(digits.test_features)
        assert slope == pytest.approx((x.max() - x.min()) / np.ptp(digits.features), rel=1e-5)

    def test_noise_grows_with_the_client_and_leaves_test_and_validation_alone(self, digits):
        cell = replace(SMALL, partition="noise")
        noisy, clean = (lab.federation(replace(cell, partition=p), digits) for p in ("noise", "iid"))
        added = (noisy.clients.samples.features - clean.clients.samples.features).numpy()
        for i, part in enumerate(noisy.clients.parts, 1):
            np.testing.assert_array_equal(part, clean.clients.parts[i - 1])
            assert added[part].var() == pytest.approx(0.1 * i / 4, rel=0.05)
        assert torch.equal(noisy.test.features, clean.test.features)
        assert torch.equal(noisy.validation.features, clean.validation.features)

    def test_the_seed_decides(self, digits, ready):
        same, other = (lab.federation(replace(SMALL, seed=seed), digits) for seed in (3, 4))
        np.testing.assert_array_equal(same.start, ready.start)
        assert same.sizes == ready.sizes
        assert other.sizes != ready.sizes
        assert not np.array_equal(other.start, ready.start)


class TestRunning:
    def test_standalone_is_plain_training_with_a_new_optimizer_every_round(self, ready, alone):
        for i, part in enumerate(ready.clients.parts):
            model = load_parameters(ready.module, torch.from_numpy(ready.start))
            for number in (1, 2, 3):
                optimizer = torch.optim.Adam(model.parameters(), 0.01 * 0.977 ** (number - 1))
                rng = job_rng(3, number, Job(i, part))
                for index in batches(Job(i, part), LocalTraining(64, 0.01), rng):
                    optimizer.zero_grad()
                    x, y = ready.clients.samples.features[index], ready.clients.samples.labels[index]
                    torch.nn.functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
            with torch.no_grad():
                z, held = model(ready.test.features), model(ready.validation.features)
            loss = float(torch.nn.functional.cross_entropy(z, ready.test.labels))
            assert alone.loss[i] == pytest.approx(loss, abs=2e-3)
            accuracy = float((z.argmax(1) == ready.test.labels).float().mean())
            assert alone.accuracy[i] == pytest.approx(accuracy, abs=2.5 / 355)
            accuracy = float((held.argmax(1) == ready.validation.labels).float().mean())
            assert alone.validation_accuracy[i] == pytest.approx(accuracy, abs=2.5 / 1000)

    def test_rewards_go_by_test_accuracy_or_by_validation_accuracy(self, ready, alone):
        def method(name):
            return lab.method_for(replace(SMALL, method=name), ready, alone)

        assert tuple(method("iafl").contributions) == alone.accuracy
        assert tuple(method("iafl-validation").contributions) == alone.validation_accuracy
        assert (method("iafl").sharing, method("iafl").recovery) == (0, 0)
        defaults = method("iafl-defaults")
        assert tuple(defaults.contributions) == alone.accuracy
        assert (defaults.sharing, defaults.recovery) == (0.5, 0.01)
        assert isinstance(defaults, ModelRewards)
        with pytest.raises(InvalidValue, match=r"^alone must be given for method iafl"):
            lab.method_for(replace(SMALL, method="iafl"), ready, None)

    def test_fine_tuning_may_be_at_the_first_learning_rate(self, ready):
        models, everybody = np.tile(ready.start, (4, 1)), np.ones(4, dtype=bool)
        cell = replace(SMALL, method="fedavg-first-rate")

        def updates(local, round_number):
            return ask(ready.clients, local, models, round_number, everybody).updates

        method = lab.method_for(cell, ready, None)
        np.testing.assert_array_equal(updates(method.local, 3), updates(ready.local, 3))
        tuned, slower = updates(method.tuning, 4), updates(ready.local, 4)
        full = replace(ready.local, training=replace(ready.local.training, learning_rate=0.01 / 0.977**3))
        np.testing.assert_allclose(tuned, updates(full, 4), atol=1e-6)
        assert np.abs(tuned - slower).max() > 1e-4
        assert lab.method_for(replace(cell, method="fedavg"), ready, None).tuning is None

    def test_lg_fedavg_shares_the_three_dense_layers(self, ready):
        shared = lab.method_for(replace(SMALL, method="lg-fedavg"), ready, None).shared
        dense = [part for part in ready.module if isinstance(part, torch.nn.Linear)]
        assert shared.stop - shared.start == sum(p.numel() for part in dense for p in part.parameters())
        assert shared.stop == ready.start.size

    def test_methods_differ(self, finished):
        _, wanted, done = finished
        trained = [
            cell for cell in wanted if cell.method in (*lab.TABLES, "standalone", "fedavg-first-rate")
        ]
        assert len({done[cell].loss for cell in trained}) == 7
        for cell in wanted:
            assert (done[cell].validation_accuracy is not None) == (cell.method == "standalone")

    def test_cores_do_not_matter(self, digits, alone):
        two = lab.run_cell(SMALL, lab.federation(SMALL, digits, cores=2))
        assert without_clocks(two) == without_clocks(alone)


class TestResuming:
    def test_a_stopped_cell_goes_on_to_the_same_digits(self, finished, tmp_path):
        """Every method is stopped in its last round, after a checkpoint in the one before."""
        _, wanted, done = finished
        results, seen = tmp_path / "some.jsonl", []

        def stop(cell, number, seconds):
            seen.append((cell, number))
            if number == 2 and (cell, 2) not in seen[:-1]:
                raise KeyboardInterrupt

        for _ in wanted:
            with pytest.raises(KeyboardInterrupt):
                lab.study(wanted, results, every=1, on_round=stop)
        found = lab.study(wanted, results, every=1, on_round=stop)
        assert seen == [(cell, number) for cell in wanted for number in (1, 2, 3)]
        for cell in wanted:
            assert without_clocks(found[cell]) == without_clocks(done[cell])
        assert not lab.states_beside(results).exists()

    def test_finished_cells_are_not_trained_again(self, finished):
        results, wanted, done = finished
        assert lab.study(wanted, results, on_round=pytest.fail) == done

    def test_two_studies_do_not_write_to_one_file(self, finished, tmp_path):
        fcntl = pytest.importorskip("fcntl")
        copy = tmp_path / "copy.jsonl"
        copy.write_bytes(finished[0].read_bytes())
        with copy.open("ab") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(InvalidValue, match=r"^results must not be in use by another process"):
                lab.study([replace(SMALL, rounds=1)], copy)
            assert lab.study(finished[1], copy) == finished[2]  # to read them is always possible

    def test_another_setting_in_the_same_file_is_left_alone(self, finished, tmp_path):
        results, _, done = finished
        copy = tmp_path / "copy.jsonl"
        copy.write_bytes(results.read_bytes())
        other = replace(SMALL, rounds=1)
        lab.study([other], copy)
        assert lab.read_cells(copy).keys() == {*done, other}

    def test_a_line_cut_short_is_dropped_and_written_anew(self, finished, tmp_path):
        results, wanted, done = finished
        lines = results.read_bytes().splitlines(keepends=True)
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(b"".join(lines[:-1]) + lines[-1][:50])
        assert list(lab.read_cells(cut)) == wanted[:-1]
        again = lab.study(wanted, cut)
        assert without_clocks(again[wanted[-1]]) == without_clocks(done[wanted[-1]])
        assert len(cut.read_bytes().splitlines()) == len(wanted)

    @pytest.mark.parametrize(
        "line",
        ["{", "[]", '{"cell": {}, "outcome": {}}', '{"cell": {"method": "magic"}}', '{"outcome": 3}'],
    )
    def test_a_line_that_is_no_result_is_refused_by_number(self, finished, tmp_path, line):
        results, _, _ = finished
        bad = tmp_path / "bad.jsonl"
        bad.write_bytes(results.read_bytes().splitlines(keepends=True)[0] + line.encode() + b"\n")
        with pytest.raises(UnreadableFile, match="line 2: must be the result of a cell"):
            lab.read_cells(bad)

    def test_a_broken_checkpoint_is_named(self, ready, tmp_path):
        checkpoint = Checkpoint(tmp_path, SMALL)
        checkpoint.path.write_bytes(b"PK\x03\x04 half a file")
        with pytest.raises(UnreadableFile, match="must be the state of a cell"):
            lab.run_cell(SMALL, ready, checkpoint=checkpoint)

    def test_a_checkpoint_belongs_to_one_cell(self, tmp_path):
        paths = {Checkpoint(tmp_path, replace(SMALL, **change)).path for change in (
            {}, {"seed": 1}, {"rounds": 4}, {"learning_rate": 0.1}, {"method": "iafl"}, {"partition": "iid"}
        )}  # fmt: skip
        assert len(paths) == 6


class TestTables:
    def test_the_transcription_is_complete_and_agrees_with_itself(self):
        """Average accuracy less average increase is the standalone accuracy, whatever the method."""
        paper = tables.published()
        names = {"ipr_accuracy", "ipr_loss", "rho_test", "average", "best", "increase"}
        assert len(paper) == 2 * 5 * 5
        for numbers in paper.values():
            assert numbers.keys() == names
            assert numbers["best"] >= numbers["average"]
        for data in ("mnist", "fashion-mnist"):
            for split in tables.PARTITIONS:
                cells = [paper[data, split, method] for method in lab.TABLES]
                standalone = [100 * (one["average"] - one["increase"]) for one in cells]
                assert np.ptp(standalone) < 1.11  # accuracies are rounded to whole percents

    def test_numbers_stand_beside_the_papers(self):
        row = tables.rows([finding("iafl")])[0]
        text = tables.as_markdown([row])
        assert "mnist, learning rate 0.01" in text
        words = text.splitlines()[-1].strip("| ").split(" | ")
        assert words == [
            "#C = 3", "IAFL", "1.00 / 1.00", "0.33 / 1.00", "0.50 / 0.59", "-0.50", "60.0 / 93",
            "70.0 / 96", "20.0 / 63.2",
        ]  # fmt: skip

    def test_undefined_is_said_and_standalone_is_not_compared_with_itself(self):
        same = replace(finding("fedavg").run, accuracy=np.full(3, 0.5))
        found = [replace(finding("fedavg"), run=same), finding("standalone")]
        text = tables.as_markdown(tables.rows(found)).splitlines()
        assert "| undefined / 0.27 | undefined |" in text[-2]
        assert text[-1] == "| #C = 3 | standalone |  |  |  |  | 60.0 | 70.0 |  |"

    def test_seeds_are_averaged(self):
        second = replace(finding("iafl").run, accuracy=np.array([0.6, 0.5, 0.4]))
        table = tables.rows([finding("iafl"), replace(finding("iafl"), run=second)])
        assert len(table) == 1
        assert table[0].measured["average"].mean == pytest.approx(0.55)
        assert table[0].measured["average"].error == pytest.approx(0.05)
        assert "55.0 ± 5.0 / 93" in tables.as_markdown(table)

    def test_csv_has_what_the_table_has(self):
        (line,) = csv.DictReader(io.StringIO(tables.as_csv(tables.rows([finding("iafl")]))))
        assert (line["data"], line["method"], line["seeds"]) == ("mnist", "iafl", "1")
        assert float(line["rho_test"]) == pytest.approx(0.5)
        assert float(line["rho_test_paper"]) == 0.59
        assert float(line["increase"]) == pytest.approx(0.2)
        also = tables.rows([finding("fedavg-first-rate")])[0]
        assert also.paper == tables.published()["mnist", "classes", "fedavg"]
        assert line["rho_validation_paper"] == line["average_error"] == ""

    def test_the_figure_has_a_dot_for_every_client_and_method(self):
        drawn = tables.figure([finding("iafl"), finding("rank"), finding("standalone")])
        (panel,) = drawn.axes
        assert [dots.get_offsets().shape[0] for dots in panel.collections] == [3, 3]
        assert panel.get_title() == "#C = 3"


def finding(method):
    """Three clients: all gained accuracy, one of them the smaller loss too."""
    run = Evaluation(
        accuracy=np.array([0.5, 0.7, 0.6]),
        loss=np.array([1.0, 1.0, 0.5]),
        standalone_accuracy=np.array([0.3, 0.4, 0.5])
        if method != "standalone"
        else np.array([0.5, 0.7, 0.6]),
        standalone_loss=np.array([0.9, 0.9, 0.9]),
        validation_accuracy=np.array([0.5, 0.4, 0.3]),
    )
    return tables.Finding("mnist", "classes", method, 0.01, run)


class TestCommand:
    def test_it_trains_resumes_and_reports(self, tmp_path, capsys):
        words = [*OPTIONS, "--methods", "iafl", "--results", str(tmp_path / "r.jsonl")]
        words += ["--csv", str(tmp_path / "r.csv"), "--figure", str(tmp_path / "figures")]
        assert command.main(words) == 0
        first = capsys.readouterr()
        assert "digits, IID, IAFL: round 2 of 2" in first.err
        assert "1 cells" in first.err
        assert "| IID | IAFL |" in first.out
        assert "2 cells in" in first.out
        assert "a round of 4 clients took" in first.out
        assert (tmp_path / "figures" / "rewards_digits.png").read_bytes()[:4] == b"\x89PNG"
        table = (tmp_path / "r.csv").read_text()
        assert command.main(words) == 0
        second = capsys.readouterr()
        assert second.err == ""
        assert second.out == first.out
        assert (tmp_path / "r.csv").read_text() == table

    def test_time_left_counts_only_rounds_still_to_do(self, capsys):
        wanted = [replace(SMALL, rounds=10), replace(SMALL, rounds=10, method="iafl")]
        progress = command._Progress(wanted, {})
        progress.round(wanted[0], 8, 1.0)  # seven were done before
        assert progress._left == 12
        progress.round(wanted[0], 9, 1.0)
        assert progress._left == 11
        progress.round(wanted[1], 1, 1.0)
        assert "2 cells" in capsys.readouterr().err

    def test_an_interruption_is_told(self, tmp_path, capsys, monkeypatch):
        def stopped(*args, **options):
            raise KeyboardInterrupt

        monkeypatch.setattr(command, "study", stopped)
        assert command.main([*OPTIONS, "--results", str(tmp_path / "r.jsonl")]) == 130
        assert "the same command goes on" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (["--clients", "0"], "error: clients must be"),
            (["--data", "nothing"], "error: dataset must be one of"),
            (["--keep-every", "0"], "error: every must be"),
            (["--results", "no/such/folder/r.jsonl"], "error: output must be in an existing folder"),
        ],
    )
    def test_bad_input_is_one_line(self, tmp_path, capsys, monkeypatch, more, message):
        monkeypatch.chdir(tmp_path)
        assert command.main([*OPTIONS, *more]) == 2
        shown = capsys.readouterr().err
        assert shown.startswith(message)
        assert shown.count("\n") == 1

    def test_the_loop_does_the_same_round(self):
        found = command.time_round(replace(SMALL, clients=3, validation=1300), cores=2, repeats=1)
        assert 0 < found.difference < 1e-4
        for cost in (found.engine, found.engine_alone, found.loop):
            assert min(cost.seconds, cost.cpu_seconds) > 0
        assert (found.engine.cores, found.engine_alone.cores) == (2, 1)
        assert f"{found.loop.seconds / found.engine.seconds:.1f} times" in str(found)


def test_a_result_line_is_plain_json(finished):
    results, wanted, done = finished
    first = json.loads(results.read_text().splitlines()[0])
    assert first["cell"]["method"] == "standalone"
    assert len(first["outcome"]["accuracy"]) == wanted[0].clients
    assert isinstance(done[wanted[0]], Outcome)
