import csv
import io
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bonafed.lab.faithful_cells import Cell, Outcome, Store, run_cell

from bonafed.errors import InvalidValue
from bonafed.lab import faithful_cells as cells
from bonafed.lab import faithful_studies as lab
from bonafed.lab import style
from bonafed.mechanisms.faithful.bounds import privacy_tradeoff


class Counter:
    """A store of made-up outcomes: agent k's loss is 1 + k + seed, its payment 0.1 or, if exact, 0.3."""

    def __init__(self):
        self.wanted = []

    def outcomes(self, wanted):
        self.wanted += wanted
        return {cell: self._outcome(cell) for cell in wanted}

    def _outcome(self, cell):
        exact = cell.scheme == "faithful" and cell.clusters is None
        pays = 0.3 if exact else 0.1 * (cell.scheme in ("faithful", "private"))
        each = tuple(1.0 + k + cell.seed for k in range(cell.agents))
        accuracy = (0.5 + 0.1 * cell.delta,) * cell.agents
        return Outcome(each, (pays,) * cell.agents, each, accuracy, 5, 0.0, 0.0)


class TestCurves:
    def test_what_figure_three_compares(self, base):
        store = Counter()
        table = lab.by_samples(store, base, [50, 100], seeds=2, alphas=[0.5], factors=[4.0])
        assert table.names == (
            "FFL", "DP-FFL, alpha 0.5", "manipulated, gamma 4", "local learning",
        )  # fmt: skip
        assert {cell.samples for cell in store.wanted} == {50, 100}
        assert {cell.seed for cell in store.wanted} == {0, 1}
        np.testing.assert_allclose(table.loss.mean, 3.0)  # 1 + mean of k + mean of the seeds
        np.testing.assert_allclose(table.loss.sd, math.sqrt(0.5))
        np.testing.assert_allclose(table.overall.mean[:, 0], [3.3, 3.1, 3.0, 3.0])
        np.testing.assert_allclose(table.test_overall.mean[:, 1], [3.3, 3.1, 3.0, 3.0])
        np.testing.assert_allclose(table.collected.mean[:, 0], [1.2, 0.4, 0.0, 0.0])
        np.testing.assert_allclose(table.error.mean[:, 0], [0.0, 0.2, np.nan, np.nan])

    def test_one_seed_has_no_spread(self, base):
        table = lab.by_heterogeneity(Counter(), base, [0.0, 0.5])
        assert np.all(table.loss.sd == 0)
        np.testing.assert_allclose(table.accuracy.mean[0], [0.5, 0.55])

    def test_payments_are_compared_with_the_same_agents(self, base):
        store = Counter()
        lab.by_privacy(store, base, [0.5, 2.0], seeds=1, payment_steps=[1, 3])
        private = [cell for cell in store.wanted if cell.scheme == "private"]
        assert {(c.privacy.alpha, c.privacy.payment_steps) for c in private} == {
            (0.5, 1), (2.0, 1), (0.5, 3), (2.0, 3),
        }  # fmt: skip
        assert all(lab.exact_twin(cell) == base for cell in private)
        assert base in store.wanted

    def test_as_many_clusters_as_agents_are_none(self, base):
        store = Counter()
        table = lab.by_clusters(store, base, seeds=1, alphas=[1.0])
        assert table.at.tolist() == [2, 3, 4]
        assert {cell.clusters for cell in store.wanted} == {2, 3, None}
        np.testing.assert_allclose(table.of("no noise", "error").mean, [0.2, 0.2, 0.0])

    def test_rows(self, base):
        table = lab.by_heterogeneity(Counter(), base, [0.0, 0.5], seeds=2)
        read = list(csv.DictReader(io.StringIO(lab.as_csv(table).decode())))
        assert len(read) == 6 * 2
        assert read[1]["curve"] == "FFL"
        assert (float(read[1]["delta"]), float(read[1]["overall"])) == (0.5, pytest.approx(3.3))
        with pytest.raises(InvalidValue, match=r"^name must be one of FFL"):
            table.of("VCG", "loss")

    def test_break_even_is_where_the_curves_cross(self, base):
        table = lab.by_heterogeneity(Counter(), base, [0.0, 0.2, 0.6])
        assert lab.break_even(table) is None  # payments make joining worse everywhere
        mean = table.test_overall.mean.copy()
        mean[0], mean[-1] = [1.0, 1.0, 1.0], [1.3, 1.1, 0.8]
        crossing = replace(table, test_overall=lab.Average(mean, mean))
        assert lab.break_even(crossing) == pytest.approx(0.2 + 0.4 / 3)

    @pytest.mark.parametrize(
        ("study", "values", "message"),
        [
            (lab.by_samples, [100, 50], r"^sizes must be increasing, got 50 at position 1"),
            (lab.by_samples, [0], r"^sizes must be positive"),
            (lab.by_heterogeneity, [-0.1], r"^deltas must not be negative"),
            (lab.by_heterogeneity, [0.5, 1.2], r"^delta must be"),
            (lab.by_privacy, [0.0], r"^alphas must be positive"),
            (lab.by_clusters, [1, 2], r"^clusters must be in 2\.\.4"),
        ],
    )
    def test_bad_points_are_refused_by_name(self, base, study, values, message):
        with pytest.raises(InvalidValue, match=message):
            study(Counter(), base, values)
        with pytest.raises(InvalidValue, match=r"^seeds must be"):
            study(Counter(), base, seeds=0)


class TestWhatThePaperSays:
    """On the 8x8 digits, cheap enough for every run."""

    @pytest.fixture
    def digits(self):
        return Cell("faithful", samples=400, delta=0.05, data="digits", regulariser=0.003)

    def test_less_privacy_makes_better_models_and_payments(self, digits):
        table = lab.by_privacy(Store(), digits, [0.3, 3.0, 300.0], seeds=1, payment_steps=[2])
        assert np.all(np.diff(table.error.mean[0]) < 0)
        assert np.all(np.diff(table.loss.mean[0]) < 0)
        assert np.all(np.diff(table.accuracy.mean[0]) > 0)

    def test_heterogeneity_moves_local_learning_and_not_the_federation(self, digits):
        shown = [replace(digits, delta=d, scheme=s) for d in (0.05, 0.9) for s in ("faithful", "local")]
        (near, near_local), (far, far_local) = ([run_cell(c) for c in shown[i : i + 2]] for i in (0, 2))
        assert abs(np.mean(far.accuracy) - np.mean(near.accuracy)) < 0.03
        assert np.mean(far_local.loss) < 0.6 * np.mean(near_local.loss)
        # expected loss, payment included: joining pays at 0.05, and does not at 0.9
        assert np.mean(near.test_loss) + np.mean(near.payment) < np.mean(near_local.test_loss)
        assert np.mean(far.test_loss) + np.mean(far.payment) > np.mean(far_local.test_loss)


class TestTradeoff:
    def test_it_is_proposition_11(self):
        table = lab.tradeoff(100, 500, 5, 0.1, alphas=[1.0, 100.0], step_shares=[0.5])
        eta = 0.5 / (4 * 0.6)
        assert table.step[0] == pytest.approx(eta)
        for j, alpha in enumerate((1.0, 100.0)):
            right = privacy_tradeoff(eta, 100, math.sqrt(2), 5, alpha, 0.01, 0.1, 500, 0.6)
            printed = privacy_tradeoff(
                eta, 100, math.sqrt(2), 5, alpha, 0.01, 0.1, 500, 0.6, corrected=False
            )
            assert (table.steps[0, j], table.printed_steps[0, j]) == (right.steps, printed.steps)
            assert table.loss[0, j] == right.loss
            assert table.printed_loss[0, j] == printed.loss

    def test_steps_grow_and_the_loss_falls_with_alpha(self):
        """Erratum F-D9: the text after figure 2 has both the other way round."""
        table = lab.tradeoff(7840, 950)
        assert table.alpha.size == 61
        for steps, loss in ((table.steps, table.loss), (table.printed_steps, table.printed_loss)):
            assert np.all(np.diff(steps, axis=1) >= 0)
            assert np.all(np.diff(loss, axis=1) <= 0)
            assert np.all(steps[:, -1] > steps[:, 0])
            assert np.all(loss[:, -1] < loss[:, 0])
        assert np.all(table.printed_loss <= table.loss)
        assert np.any(table.printed_loss < table.loss)

    def test_without_steps_the_bound_is_where_one_starts(self):
        table = lab.tradeoff(7840, 950, alphas=[0.01])
        assert np.all(table.steps == 0)
        np.testing.assert_allclose(table.loss, 9 * 2 / (2 * 0.001))

    def test_rows(self):
        rows = lab.tradeoff(10, 100, alphas=[1.0, 2.0]).to_rows()
        assert len(rows) == 6
        assert list(rows[0]) == ["eta2", "alpha", "printed_steps", "printed_loss", "steps", "loss"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"agents": 1}, r"^agents must be"), ({"regulariser": -1.0}, r"^regulariser must be positive"),
            ({"alphas": [2.0, 1.0]}, r"^alphas must be increasing"),
            ({"step_shares": [0.0]}, r"^step_shares must be positive"),
        ],
    )  # fmt: skip
    def test_bad_input_is_refused_by_name(self, changes, message):
        with pytest.raises(InvalidValue, match=message):
            lab.tradeoff(10, 100, **changes)


class TestTheCommand:
    @pytest.fixture
    def words(self, blobs, tmp_path):
        return [
            "--folder", str(tmp_path), "--data", blobs, "--samples", "120", "--sizes", "60", "120",
            "--agents", "4", "--regulariser", "0.05", "--seeds", "1",
        ]  # fmt: skip

    def test_all_files_are_written_and_a_second_run_does_nothing_again(
        self, words, tmp_path, monkeypatch, capsys
    ):
        monkeypatch.setattr(lab, "_STEPS", (4, 2))
        assert lab.main(words) == 0
        names = ["by_clusters", "by_heterogeneity", "by_privacy", "by_samples", "tradeoff"]
        expected = [f"faithful_{name}.{kind}" for name in names for kind in ("csv", "png")]
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            [*expected, "faithful_cells.jsonl"]
        )
        assert all(path.read_bytes()[:4] == b"\x89PNG" for path in tmp_path.glob("*.png"))
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.count(": done") == 5
        assert "private, n 60, Delta 0.05, seed 0, alpha 0.1, T2 2: loss" in shown.err
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        monkeypatch.setattr(
            style, "render", lambda figure, path: before[path.name]
        )  # slow, and no question
        monkeypatch.setattr(cells, "run_cell", lambda cell: pytest.fail("was done before"))
        assert lab.main(words) == 0
        assert sorted(capsys.readouterr().err.splitlines()) == [f"{name}: done" for name in names]
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    def test_a_stopped_command_says_how_to_go_on(self, words, monkeypatch, capsys):
        def stop(_cell):
            raise KeyboardInterrupt

        monkeypatch.setattr(cells, "run_cell", stop)
        assert lab.main(words) == 130
        assert capsys.readouterr().err.startswith("\nstopped; the same command goes on from ")

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (["--samples", "2"], "error: samples must be a whole number of at least 4, got 2"),
            (["--delta", "2"], "error: delta must be"),
            (["--data", "nothing"], "error: dataset must be one of digits"),
            (["--seeds", "0"], "error: seeds must be"),
            (["--folder", "/nowhere/at/all"], "error: output must be in an existing folder"),
        ],
    )
    def test_bad_input_is_one_line(self, words, more, message, capsys):
        assert lab.main([*words, *more]) == 2
        shown = capsys.readouterr().err
        assert shown.startswith(message)
        assert shown.count("\n") == 1


@pytest.mark.skipif(
    not (Path(os.environ.get("BONAFED_DATA", "")) / "mnist").is_dir(),
    reason="needs the original files of mnist: set BONAFED_DATA to the folder above mnist/",
)
def test_on_mnist_the_federation_learns_more_than_its_agents_alone():
    shared = run_cell(Cell("faithful", samples=1000))
    local = run_cell(Cell("local", samples=1000))
    assert np.mean(shared.accuracy) > 0.84
    assert np.mean(shared.accuracy) - np.mean(local.accuracy) > 0.1
    assert np.mean(shared.test_loss) + np.mean(shared.payment) < np.mean(local.test_loss)
