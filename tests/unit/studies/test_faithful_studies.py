import csv
import io
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bonafed.errors import InvalidValue
from bonafed.mechanisms.faithful.bounds import privacy_tradeoff
from bonafed.studies.faithful import curves as lab
from bonafed.studies.faithful.cases import Case, Outcome, outcome
from bonafed.studies.faithful.tradeoff import STUDY as TRADEOFF
from bonafed.studies.faithful.tradeoff import tradeoff
from bonafed.studies.grid import Average, as_csv, run


def made_up(case):
    """Agent k's loss is 1 + k + seed, its payment 0.1 or, if exact, 0.3."""
    exact = case.scheme == "faithful" and case.clusters is None
    pays = 0.3 if exact else 0.1 * (case.scheme in ("faithful", "private"))
    each = [1.0 + k + case.seed for k in range(case.agents)]
    accuracy = [0.5 + 0.1 * case.delta] * case.agents
    return Outcome(each, [pays] * case.agents, each, accuracy, 5, 0.0)


@pytest.fixture
def small(base):
    """Options of the agents of `base`."""
    common = {"data": base.data, "samples": 150, "delta": 0.4, "agents": 4, "regulariser": 0.02}
    return lambda kind, **more: kind(**common, **more)


def curves(options):
    wanted = options.lines.all_cases(options.seeds)
    return wanted, lab.curves(options.lines, options.seeds, {case: made_up(case) for case in wanted})


class TestCurves:
    def test_what_figure_three_compares(self, small):
        wanted, table = curves(
            small(lab.BySamples, sizes=(50, 100), seeds=2, alphas=(0.5,), factors=(4.0,))
        )
        assert table.names == (
            "FFL", "DP-FFL, alpha 0.5", "manipulated, gamma 4", "local learning",
        )  # fmt: skip
        assert {case.samples for case in wanted} == {50, 100}
        assert {case.seed for case in wanted} == {0, 1}
        np.testing.assert_allclose(table.loss.mean, 3.0)  # 1 + mean of k + mean of the seeds
        np.testing.assert_allclose(table.loss.sd, math.sqrt(0.5))
        np.testing.assert_allclose(table.overall.mean[:, 0], [3.3, 3.1, 3.0, 3.0])
        np.testing.assert_allclose(table.test_overall.mean[:, 1], [3.3, 3.1, 3.0, 3.0])
        np.testing.assert_allclose(table.collected.mean[:, 0], [1.2, 0.4, 0.0, 0.0])
        np.testing.assert_allclose(table.error.mean[:, 0], [0.0, 0.2, np.nan, np.nan])

    def test_one_seed_has_no_spread(self, small):
        _, table = curves(small(lab.ByHeterogeneity, deltas=(0.0, 0.5)))
        assert np.all(table.loss.sd == 0)
        np.testing.assert_allclose(table.accuracy.mean[0], [0.5, 0.55])

    def test_payments_are_compared_with_the_same_agents(self, small, base):
        wanted, _ = curves(small(lab.ByPrivacy, alphas=(0.5, 2.0), payment_steps=(1, 3)))
        private = [case for case in wanted if case.scheme == "private"]
        assert {(case.alpha, case.payment_steps) for case in private} == {
            (0.5, 1), (2.0, 1), (0.5, 3), (2.0, 3),
        }  # fmt: skip
        assert all(lab.exact_twin(case) == base for case in private)
        assert base in wanted

    def test_as_many_clusters_as_agents_are_none(self, small):
        wanted, table = curves(small(lab.ByClusters, alphas=(1.0,)))
        assert table.at.tolist() == [2, 3, 4]
        assert {case.clusters for case in wanted} == {2, 3, None}
        np.testing.assert_allclose(table.of("no noise", "error").mean, [0.2, 0.2, 0.0])

    def test_studies_share_cases(self, small):
        one = curves(small(lab.ByHeterogeneity, deltas=(0.4,)))[0]
        other = curves(small(lab.BySamples, sizes=(150,)))[0]
        assert {case.cell.folder for case in one} == {case.cell.folder for case in other}

    def test_rows(self, small):
        _, table = curves(small(lab.ByHeterogeneity, deltas=(0.0, 0.5), seeds=2))
        read = list(csv.DictReader(io.StringIO(as_csv(table.to_rows()).decode())))
        assert len(read) == 6 * 2
        assert read[1]["curve"] == "FFL"
        assert (float(read[1]["delta"]), float(read[1]["overall"])) == (0.5, pytest.approx(3.3))
        with pytest.raises(InvalidValue, match=r"^name must be one of FFL"):
            table.of("VCG", "loss")

    def test_break_even_is_where_the_curves_cross(self, small):
        _, table = curves(small(lab.ByHeterogeneity, deltas=(0.0, 0.2, 0.6)))
        assert lab.break_even(table) is None  # payments make joining worse everywhere
        mean = table.test_overall.mean.copy()
        mean[0], mean[-1] = [1.0, 1.0, 1.0], [1.3, 1.1, 0.8]
        crossing = replace(table, test_overall=Average(mean, mean))
        assert lab.break_even(crossing) == pytest.approx(0.2 + 0.4 / 3)

    @pytest.mark.parametrize(
        ("kind", "more", "message"),
        [
            (lab.BySamples, {"sizes": [100, 50]}, r"^sizes must be increasing, got 50 at position 1"),
            (lab.BySamples, {"sizes": [0]}, r"^sizes must be positive"),
            (lab.ByHeterogeneity, {"deltas": [-0.1]}, r"^deltas must not be negative"),
            (lab.ByHeterogeneity, {"deltas": [0.5, 1.2]}, r"^delta must be"),
            (lab.ByPrivacy, {"alphas": [0.0]}, r"^alphas must be positive"),
            (lab.ByClusters, {"clusters": [1, 2]}, r"^clusters must be"),
            (lab.ByClusters, {"clusters": [2, 5]}, r"^clusters must be in 2\.\.4"),
            (lab.BySamples, {"seeds": 0}, r"^seeds must be"),
        ],
    )
    def test_bad_points_are_refused_by_name(self, small, kind, more, message):
        with pytest.raises(InvalidValue, match=message):
            curves(small(kind, **more))


class TestWhatThePaperSays:
    """On the 8x8 digits, cheap enough for every run."""

    DIGITS = Case("faithful", samples=400, delta=0.05, data="digits", regulariser=0.003)

    def test_less_privacy_makes_better_models_and_payments(self):
        options = lab.ByPrivacy(
            data="digits", samples=400, regulariser=0.003, alphas=(0.3, 3.0, 300.0), payment_steps=(2,)
        )
        outcomes = {case: outcome(case) for case in options.lines.all_cases(1)}
        table = lab.curves(options.lines, 1, outcomes)
        assert np.all(np.diff(table.error.mean[0]) < 0)
        assert np.all(np.diff(table.loss.mean[0]) < 0)
        assert np.all(np.diff(table.accuracy.mean[0]) > 0)

    def test_heterogeneity_moves_local_learning_and_not_the_federation(self):
        shown = [
            replace(self.DIGITS, delta=d, scheme=s) for d in (0.05, 0.9) for s in ("faithful", "local")
        ]
        (near, near_local), (far, far_local) = ([outcome(c) for c in shown[i : i + 2]] for i in (0, 2))
        assert abs(np.mean(far.accuracy) - np.mean(near.accuracy)) < 0.03
        assert np.mean(far_local.loss) < 0.6 * np.mean(near_local.loss)
        # expected loss, payment included: joining pays at 0.05, and does not at 0.9
        assert np.mean(near.test_loss) + np.mean(near.payment) < np.mean(near_local.test_loss)
        assert np.mean(far.test_loss) + np.mean(far.payment) > np.mean(far_local.test_loss)


class TestTradeoff:
    def test_it_is_proposition_11(self):
        table = tradeoff(100, 500, 5, 0.1, alphas=[1.0, 100.0], step_shares=[0.5])
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
        table = tradeoff(7840, 950)
        assert table.alpha.size == 61
        for steps, loss in ((table.steps, table.loss), (table.printed_steps, table.printed_loss)):
            assert np.all(np.diff(steps, axis=1) >= 0)
            assert np.all(np.diff(loss, axis=1) <= 0)
            assert np.all(steps[:, -1] > steps[:, 0])
            assert np.all(loss[:, -1] < loss[:, 0])
        assert np.all(table.printed_loss <= table.loss)
        assert np.any(table.printed_loss < table.loss)

    def test_without_steps_the_bound_is_where_one_starts(self):
        table = tradeoff(7840, 950, alphas=[0.01])
        assert np.all(table.steps == 0)
        np.testing.assert_allclose(table.loss, 9 * 2 / (2 * 0.001))

    def test_rows(self):
        rows = tradeoff(10, 100, alphas=[1.0, 2.0]).to_rows()
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
            tradeoff(10, 100, **changes)


class TestStudies:
    @pytest.mark.parametrize(
        ("study", "more", "points"),
        [
            (lab.BY_SAMPLES, {"sizes": (60, 120)}, 2), (lab.BY_HETEROGENEITY, {"deltas": (0.1, 0.4)}, 2),
            (lab.BY_PRIVACY, {"alphas": (1.0, 10.0), "payment_steps": (1, 2)}, 2), (lab.BY_CLUSTERS, {}, 3),
        ],
    )  # fmt: skip
    def test_each_is_a_table_a_figure_and_cells_that_are_kept(self, small, tmp_path, study, more, points):
        quick = {} if "payment_steps" in more else {"payment_steps": 2}
        options = small(study.options, out=tmp_path, training_steps=4, **quick, **more)
        told = []
        first = run(study, options, told.append)
        assert len(told) == len(options.lines.all_cases(1)) == len(list(tmp_path.iterdir()))
        assert len(first.data["rows"]) == points * len(options.lines.schemes)
        assert first.figure().axes
        again = run(study, options, lambda text: pytest.fail(f"was done before: {text}"))
        assert again.files == first.files

    def test_proposition_11_is_shown(self):
        document = run(TRADEOFF, TRADEOFF.options())
        assert len(document.data["rows"]) == 3 * 61
        assert len(document.blocks[0].rows) == 3 * 6
        assert document.figure().axes


@pytest.mark.skipif(
    not (Path(os.environ.get("BONAFED_DATA", "")) / "mnist").is_dir(),
    reason="needs the original files of mnist: set BONAFED_DATA to the folder above mnist/",
)
def test_on_mnist_the_federation_learns_more_than_its_agents_alone():
    shared = outcome(Case("faithful", samples=1000))
    local = outcome(Case("local", samples=1000))
    assert np.mean(shared.accuracy) > 0.84
    assert np.mean(shared.accuracy) - np.mean(local.accuracy) > 0.1
    assert np.mean(shared.test_loss) + np.mean(shared.payment) < np.mean(local.test_loss)
