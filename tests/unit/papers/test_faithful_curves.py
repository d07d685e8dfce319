import math
import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bonafed.errors import InvalidValue
from bonafed.mechanisms.faithful.theory.bounds import TradeoffSetting, privacy_tradeoff
from bonafed.papers.claim import Estimate
from bonafed.papers.faithful import curves as lab
from bonafed.papers.faithful import figures
from bonafed.papers.faithful.bounds import tradeoff
from bonafed.papers.faithful.cases import Case, Outcome, outcome


def made_up(case):
    """Agent k's loss is 1 + k + seed, its payment 0.1 or, if exact, 0.3."""
    exact = case.scheme == "faithful" and case.clusters is None
    pays = 0.3 if exact else 0.1 * (case.scheme in ("faithful", "stepwise", "private"))
    each = [1.0 + k + case.seed for k in range(case.agents)]
    accuracy = [0.5 + 0.1 * case.delta] * case.agents
    return Outcome(each, [pays] * case.agents, each, accuracy, 5, 0.0)


@pytest.fixture
def small(base):
    """Options of the agents of `base`."""
    common = {"data": base.data, "samples": 150, "delta": 0.4, "agents": 4, "regulariser": 0.02}
    return lambda kind, **more: kind(**common, **more)


def curves(options, **more):
    """All cases, and the table of everything that is measured of what `made_up` says of them."""
    wanted = options.lines.all_cases(options.seeds)
    columns = ("loss", "overall", "test_loss", "test_overall", "accuracy", "collected")
    return wanted, lab.table(*columns, **more)(options, {case: asdict(made_up(case)) for case in wanted})


def column(rows, name, curve=None):
    """Numbers of one curve along the axis; or of all curves at the first point."""
    if curve is not None:
        return [row[name] for row in lab.curve(rows, curve)]
    return [lab.curve(rows, each)[0][name] for each in lab.names(rows)]


class TestCurves:
    def test_what_figure_three_compares(self, small):
        wanted, rows = curves(small(lab.BySamples, sizes=(50, 100), seeds=2, alphas=(0.5,), factors=(4.0,)))
        assert lab.names(rows) == [
            "FFL", "FFL by steps", "DP-FFL, alpha 0.5", "manipulated, gamma 4", "local learning",
        ]  # fmt: skip
        assert {case.samples for case in wanted} == {50, 100}
        assert {case.seed for case in wanted} == {0, 1}
        assert all(row["loss"] == pytest.approx(3.0) for row in rows)  # 1 + mean of k + mean of the seeds
        assert all(row["loss_se"] == pytest.approx(0.5) for row in rows)
        assert column(rows, "overall") == pytest.approx([3.3, 3.1, 3.1, 3.0, 3.0])
        assert column(rows, "test_overall") == pytest.approx([3.3, 3.1, 3.1, 3.0, 3.0])
        assert column(rows, "collected") == pytest.approx([1.2, 0.4, 0.4, 0.0, 0.0])

    def test_errors_are_of_the_same_agents_exact_payments(self, small):
        options = small(lab.ByPrivacy, alphas=(0.5,), payment_steps=(1,), regularisers=(0.02,))
        results = {case: asdict(made_up(case)) for case in options.lines.all_cases(options.seeds)}
        (row,) = lab.table("error", "error_sd")(options, results)
        assert (row["error"], row["error_sd"]) == (pytest.approx(0.2), pytest.approx(0.0))

    def test_differences_are_seed_by_seed(self, small):
        """Losses vary between seeds, what payments add to them does not."""
        options = small(lab.BySamples, sizes=(50, 100), seeds=2, factors=(2.0, 4.0))
        rows = curves(options, less=("FFL", "manipulated"), since_first=True)[1]
        assert column(rows, "overall_less_ffl") == pytest.approx([0.0, -0.2, -0.2, -0.3, -0.3, -0.3])
        assert column(rows, "overall_less_manipulated") == pytest.approx([0.3, 0.1, 0.1, 0.0, 0.0, 0.0])
        assert all(row["overall_less_ffl_se"] == pytest.approx(0.0, abs=1e-12) for row in rows)
        assert all(row["overall_since_first"] == 0 for row in rows)

    def test_one_seed_has_no_spread(self, small):
        rows = curves(small(lab.ByHeterogeneity, deltas=(0.0, 0.5), seeds=1))[1]
        assert all(row["loss_se"] == 0 for row in rows)
        assert column(rows, "accuracy", "FFL") == pytest.approx([0.5, 0.55])

    def test_payments_are_compared_with_the_same_agents(self, small, base):
        options = small(
            lab.ByPrivacy, alphas=(0.5, 2.0), payment_steps=(1, 3), regularisers=(0.02,), seeds=1
        )
        wanted = options.lines.all_cases(1)
        private = [case for case in wanted if case.scheme == "private"]
        assert {(case.alpha, case.payment_steps) for case in private} == {
            (0.5, 1), (2.0, 1), (0.5, 3), (2.0, 3),
        }  # fmt: skip
        assert all(lab.exact_twin(case) == base for case in private)
        assert base in wanted

    def test_as_many_clusters_as_agents_are_none(self, small):
        options = small(lab.ByClusters, alphas=(1.0,))
        results = {case: asdict(made_up(case)) for case in options.lines.all_cases(options.seeds)}
        rows = lab.table("error")(options, results)
        assert column(rows, "clusters", "no noise") == [2, 3, 4]
        assert {case.clusters for case in results} == {2, 3, None}
        assert column(rows, "error", "no noise") == pytest.approx([0.2, 0.2, 0.0])

    def test_claims_share_cells(self, small):
        one = lab.cells(small(lab.ByHeterogeneity, deltas=(0.4,)))
        other = lab.cells(small(lab.BySamples, sizes=(150,)))
        assert {cell.folder for cell in one.values()} == {cell.folder for cell in other.values()}

    def test_a_control_exchanges_schemes_or_points(self, small):
        common = {"deltas": (0.0, 0.5), "seeds": 1}
        plain, schemes, points = (
            curves(small(lab.ByHeterogeneity, exchanged=how, **common))[1]
            for how in ("nothing", "schemes", "points")
        )
        assert column(schemes, "overall") == column(plain, "overall")[::-1]
        assert column(points, "accuracy", "FFL") == column(plain, "accuracy", "FFL")[::-1]

    def test_break_even_is_where_the_curves_cross(self, small):
        rows = curves(small(lab.ByHeterogeneity, deltas=(0.0, 0.2, 0.6)))[1]
        assert lab.break_even(rows) is None  # payments make joining worse everywhere
        for name, losses in (("FFL", [1.0, 1.0, 1.0]), ("local learning", [1.3, 1.1, 0.8])):
            for row, loss in zip(lab.curve(rows, name), losses, strict=True):
                row["test_overall"] = loss
        assert lab.break_even(rows) == pytest.approx(0.2 + 0.4 / 3)

    def test_a_ratio_has_the_errors_of_both(self):
        ratio = lab.over(Estimate(1.0, 0.1, 3), Estimate(2.0, 0.4, 3))
        assert (ratio.value, ratio.error, ratio.seeds) == (0.5, pytest.approx(0.15), 3)
        assert lab.over(Estimate(0.0), Estimate(2.0)).value == 0
        assert math.isinf(lab.over(Estimate(1.0), Estimate(0.0)).value)

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
            data="digits", samples=400, regulariser=0.003, alphas=(0.3, 3.0, 300.0), payment_steps=(2,),
            regularisers=(0.003,), seeds=1,
        )  # fmt: skip
        results = {case: asdict(outcome(case)) for case in options.lines.all_cases(1)}
        rows = lab.table("error", "loss", "accuracy")(options, results)
        for name, sign in (("error", -1), ("loss", -1), ("accuracy", 1)):
            assert np.all(sign * np.diff([row[name] for row in rows]) > 0)

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
            setting = TradeoffSetting(eta, 100, math.sqrt(2), 5, alpha, 0.01, 0.1, 500, 0.6)
            right = privacy_tradeoff(setting)
            printed = privacy_tradeoff(setting, corrected=False)
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


class TestFigures:
    @pytest.mark.parametrize("draw", [figures.loss_figure, figures.accuracy_figure])
    def test_private_curves_and_learning_alone_are_drawn(self, small, draw):
        rows = curves(small(lab.BySamples, sizes=(60, 120)))[1]
        drawn = draw(rows)
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in drawn.axes)
        named = [text.get_text() for text in drawn.legends[0].get_texts()]
        assert named[: len(lab.names(rows))] == lab.names(rows)

    def test_exact_payments_have_no_place_on_a_logarithmic_axis(self, small):
        options = small(lab.ByClusters)
        results = {case: asdict(made_up(case)) for case in options.lines.all_cases(options.seeds)}
        drawn = figures.error_figure(lab.table("error", "error_sd")(options, results))
        shown = drawn.axes[0].lines[0].get_ydata()
        assert np.isnan(shown[-1])
        assert not np.isnan(shown[:-1]).any()


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
