import csv
import io
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bonafed.errors import InvalidValue, NoSolution, UnreadableFile
from bonafed.lab import faithful_cells as cells
from bonafed.lab import faithful_studies as lab
from bonafed.lab import style
from bonafed.lab.faithful_cells import Cell, Manipulation, Outcome, Privacy, Store, run_cell
from bonafed.mechanisms.faithful import SoftmaxRegression, minimise, random_clusters, train, vcg_payments
from bonafed.mechanisms.faithful.agents import amplify
from bonafed.mechanisms.faithful.bounds import privacy_tradeoff


@pytest.fixture(scope="module")
def blobs(tmp_path_factory):
    """Three overlapping clouds of points in five dimensions, 240 to train on and 90 to test."""
    rng = np.random.default_rng(5)
    labels = np.arange(330) % 3
    features = 1.0 + rng.standard_normal((330, 5)) + 1.5 * np.eye(3, 5)[labels]
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    np.savez(
        path, features=features[:240], labels=labels[:240],
        test_features=features[240:], test_labels=labels[240:],
    )  # fmt: skip
    return str(path)


@pytest.fixture(scope="module")
def base(blobs):
    return Cell("faithful", samples=150, delta=0.4, data=blobs, agents=4, regulariser=0.02)


def problem_of(cell):
    share = cells.draw(cell)
    return SoftmaxRegression(share.features, share.labels, share.owner, 3, cell.regulariser, agents=4)


class TestDraw:
    def test_rows_have_norm_one_and_every_agent_has_samples(self, base):
        share = cells.draw(base)
        np.testing.assert_allclose(np.linalg.norm(share.features, axis=1), 1)
        np.testing.assert_allclose(np.linalg.norm(share.test_features, axis=1), 1)
        assert np.bincount(share.owner, minlength=4).min() > 0

    def test_fewer_samples_are_a_part_of_more(self, base):
        few, many = cells.draw(replace(base, samples=60)), cells.draw(base)
        np.testing.assert_array_equal(few.features, many.features[:60])

    def test_the_seed_decides(self, base):
        again, other = cells.draw(base), cells.draw(replace(base, seed=1))
        np.testing.assert_array_equal(again.owner, cells.draw(base).owner)
        assert not np.array_equal(again.features, other.features)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"samples": 241}, r"^samples must be at most the 240 there are, got 241"),
            ({"data": "synthetic-ridge"}, r"^data must be images or numbers with classes"),
            ({"agents": 2}, r"^clients must be at least the number of classes, 3"),
        ],
    )
    def test_what_the_data_cannot_give_is_refused(self, base, changes, message):
        with pytest.raises(InvalidValue, match=message):
            cells.draw(replace(base, **changes))

    def test_a_class_without_test_samples_is_refused(self, tmp_path):
        path = tmp_path / "half.npz"
        labels = np.arange(30) % 3
        np.savez(
            path, features=np.eye(30, 4), labels=labels, test_features=np.eye(2, 4), test_labels=[0, 1]
        )
        with pytest.raises(InvalidValue, match=r"^data must have test samples of every class"):
            cells.draw(Cell("local", samples=30, data=str(path), agents=3))


class TestOptimum:
    def test_it_is_newtons(self, base):
        problem = problem_of(base)
        for mix in (problem.weights, problem.without_each()[1]):
            exact = minimise(problem, mix)
            found = cells.optimum(problem, mix, close=1e-10)
            assert 0 <= problem.value(found, mix) - problem.value(exact, mix) <= 1e-10
            np.testing.assert_allclose(found, exact, atol=1e-4)

    def test_what_is_not_found_is_said(self, base):
        with pytest.raises(NoSolution, match="was not found to 1e-40"):
            cells.optimum(problem_of(base), np.full(4, 0.25), close=1e-40)


class TestSchemes:
    def test_faithful_payments_are_vcg(self, base):
        problem, found = problem_of(base), run_cell(base)
        shared = minimise(problem, problem.weights)
        exact = vcg_payments(problem, shared)
        np.testing.assert_allclose(found.payment, exact.amount, atol=1e-5)
        np.testing.assert_allclose(found.loss, problem.losses(shared[None])[0], atol=1e-4)
        assert min(found.payment) > 0.001  # far above the tolerance
        np.testing.assert_allclose(found.overall, np.add(found.loss, found.payment))
        assert found.smallest == problem.counts.min()

    def test_manipulation_is_the_fixed_point_of_amplified_reports(self, base):
        cell = replace(base, scheme="manipulated", manipulation=Manipulation(2, 3.0))
        problem = problem_of(cell)
        reached, _ = train(problem, {2: amplify(3.0)}, 3000)
        np.testing.assert_allclose(run_cell(cell).loss, problem.losses(reached[None])[0], atol=1e-3)

    def test_it_serves_the_one_and_harms_the_federation(self, base):
        honest = run_cell(base)
        for factor in (3.0, 30.0):
            cell = replace(base, scheme="manipulated", manipulation=Manipulation(2, factor))
            cheated = run_cell(cell)
            assert cheated.loss[2] < honest.loss[2]
            assert np.mean(cheated.loss) > np.mean(honest.loss)
            assert set(cheated.payment) == {0.0}

    def test_local_learning_is_never_worse_on_the_training_loss(self, base):
        """Spec A.2, fact 5: J_k >= F_k(w*) >= min F_k, for every agent."""
        local, shared = run_cell(replace(base, scheme="local")), run_cell(base)
        assert np.all(np.less(local.loss, shared.loss))
        assert np.all(np.less(shared.loss, shared.overall))

    def test_local_losses_are_each_agents_own_minimum(self, base):
        problem = problem_of(base)
        least = [problem.value(minimise(problem, problem.one(k)), problem.one(k)) for k in range(4)]
        np.testing.assert_allclose(run_cell(replace(base, scheme="local")).loss, least, atol=1e-6)

    def test_cluster_payments_are_at_most_vcg(self, base):
        """Erratum D11: the cluster's model is not the best one without k."""
        exact, pairs = run_cell(base), run_cell(replace(base, clusters=2))
        assert pairs.loss == exact.loss
        assert np.all(np.less(pairs.payment, exact.payment))
        problem = problem_of(base)
        shared = minimise(problem, problem.weights)
        groups = random_clusters(4, 2, np.random.default_rng(np.random.SeedSequence(0, spawn_key=(2,))))
        for members in groups:
            outside = np.where(np.isin(np.arange(4), members), 0.0, 0.25)
            model = minimise(problem, outside)
            change = problem.losses(np.stack([shared, model])) @ (1 - np.eye(4)[members]).T
            np.testing.assert_allclose(np.take(pairs.payment, members), change[0] - change[1], atol=1e-4)

    def test_private_training_keeps_its_promise_and_repeats_itself(self, base):
        cell = replace(base, scheme="private", privacy=Privacy(2.0, 0.01, 10, 3))
        found = run_cell(cell)
        assert 1.99 < found.epsilon <= 2.0 * (1 + 1e-9)
        assert replace(run_cell(cell), seconds=0.0) == replace(found, seconds=0.0)
        assert run_cell(replace(cell, seed=1)).loss != found.loss

    def test_without_privacy_to_speak_of_it_is_gradient_descent(self, base):
        cell = replace(base, scheme="private", privacy=Privacy(1e9, 0.01, 50, 5))
        problem = problem_of(base)
        reached, _ = train(problem, None, 50)
        np.testing.assert_allclose(run_cell(cell).loss, problem.losses(reached[None])[0], atol=1e-3)


class TestFreshSamples:
    @pytest.mark.parametrize("scheme", ["faithful", "local"])
    def test_an_agent_is_tested_on_its_own_distribution(self, base, scheme):
        """The slow way: every test sample's loss, weighted by how likely the agent is to draw it."""
        cell = replace(base, scheme=scheme)
        share, problem = cells.draw(cell), problem_of(cell)
        found = run_cell(cell)
        for k in range(4):
            mix = problem.weights if scheme == "faithful" else problem.one(k)
            model = minimise(problem, mix).reshape(-1, 3)
            loss = right = 0.0
            home = sum(1 for y in share.test_labels if y == k % 3)
            for x, y in zip(share.test_features, share.test_labels, strict=True):
                chance = 0.6 / len(share.test_labels) + (0.4 / home if y == k % 3 else 0.0)
                z = x @ model
                loss += chance * (math.log(sum(math.exp(v) for v in z)) - z[y])
                right += chance * (int(np.argmax(z)) == y)
            assert found.test_loss[k] == pytest.approx(loss, abs=1e-4)
            assert found.accuracy[k] == pytest.approx(right, abs=1e-9)


class TestBadCells:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"scheme": "vcg"}, r"^scheme must be one of faithful"),
            ({"agents": 1}, r"^agents must be a whole number of at least 2"),
            ({"samples": 3}, r"^samples must be a whole number of at least 4"),
            ({"delta": 1.5}, r"^delta must be"),
            ({"regulariser": 0.0}, r"^regulariser must be positive"),
            ({"seed": -1}, r"^seed must be"),
            ({"clusters": 1}, r"^clusters must be in 2\.\.4, got 1"),
            ({"clusters": 5}, r"^clusters must be in 2\.\.4, got 5"),
            ({"scheme": "private"}, r'^privacy must be given for "private", and only then, got None'),
            ({"privacy": Privacy()}, r"^privacy must be given"),
            ({"scheme": "manipulated"}, r'^manipulation must be given for "manipulated"'),
            (
                {"scheme": "manipulated", "manipulation": Manipulation(4)},
                r"^agent must be in 0\.\.3, got 4",
            ),
        ],
    )
    def test_are_refused_by_name(self, base, changes, message):
        with pytest.raises(InvalidValue, match=message):
            replace(base, **changes)

    @pytest.mark.parametrize(
        ("kind", "name", "value"),
        [
            (Privacy, "alpha", 0.0), (Privacy, "beta", 1.0), (Privacy, "beta", 0.0),
            (Privacy, "training_steps", 0), (Privacy, "payment_steps", 1.5), (Privacy, "calibration", "b"),
            (Manipulation, "factor", -1.0), (Manipulation, "agent", -1),
        ],
    )  # fmt: skip
    def test_so_are_bad_parts(self, kind, name, value):
        with pytest.raises(InvalidValue, match=f"^{name} must be"):
            kind(**{name: value})


class TestStore:
    @pytest.fixture
    def wanted(self, base):
        return [
            base,
            replace(base, clusters=2),
            replace(base, scheme="private", privacy=Privacy(5.0, 0.01, 3, 1)),
            replace(base, scheme="manipulated", manipulation=Manipulation(1, 2.0)),
        ]

    def test_finished_cells_are_read_not_run(self, wanted, tmp_path, monkeypatch):
        path, seen = tmp_path / "cells.jsonl", []
        first = Store(path, lambda cell, outcome, done, of: seen.append((cell, done, of))).outcomes(wanted)
        assert seen == [(cell, i + 1, 4) for i, cell in enumerate(wanted)]
        monkeypatch.setattr(cells, "run_cell", lambda cell: pytest.fail("was done before"))
        assert Store(path).outcomes(wanted) == first

    def test_a_line_cut_short_is_done_again(self, wanted, tmp_path):
        path = tmp_path / "cells.jsonl"
        first = Store(path).outcomes(wanted[:2])
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        assert list(cells.read_cells(path)) == wanted[:1]
        again = Store(path).outcomes(wanted[:2])
        assert again[wanted[1]].payment == first[wanted[1]].payment
        assert len(path.read_text().splitlines()) == 2

    @pytest.mark.parametrize("bad", ["{", "{}", '{"cell": {"scheme": "best"}, "outcome": {}}'])
    def test_a_bad_line_is_named(self, wanted, tmp_path, bad):
        path = tmp_path / "cells.jsonl"
        Store(path).outcomes(wanted[:1])
        path.write_text(path.read_text() + bad + "\n")
        with pytest.raises(UnreadableFile, match=r"line 2.*must be the result of a cell"):
            cells.read_cells(path)

    def test_the_file_is_plain(self, wanted, tmp_path):
        path = tmp_path / "cells.jsonl"
        Store(path).outcomes(wanted[2:3])
        record = json.loads(path.read_text())
        assert record["cell"]["privacy"]["alpha"] == 5.0
        assert len(record["outcome"]["payment"]) == 4


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
        """Erratum D9: the text after figure 2 has both the other way round."""
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
