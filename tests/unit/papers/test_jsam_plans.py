import numpy as np
import pytest

from bonafed.economics import TruncatedExponential, Uniform
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam import allocate
from bonafed.mechanisms.jsam.allocation import threshold_plan
from bonafed.papers.jsam import plans as lab
from bonafed.papers.jsam import training
from bonafed.papers.jsam.plans import Population
from bonafed.papers.jsam.training import gradient_bound, swing

SMALL = Population(clients=12, draws=6)
ETAS = SMALL.unit * np.geomspace(0.02, 10, 13)


@pytest.fixture(scope="module")
def money():
    return lab.money_by_weight(SMALL, ETAS)


@pytest.fixture(scope="module")
def shares():
    return lab.cost_shares(SMALL, SMALL.unit * np.array([0.03, 5.0]))


@pytest.fixture(scope="module")
def curves():
    return lab.mechanism_curves(SMALL, ETAS)


class TestPopulation:
    def test_costs_are_sorted_and_the_same_every_time(self):
        costs = SMALL.costs()
        assert costs.shape == (6, 12)
        assert np.all(np.diff(costs, axis=1) >= 0)
        np.testing.assert_array_equal(costs, SMALL.costs())
        assert not np.array_equal(costs, Population(clients=12, draws=6, seed=1).costs())

    @pytest.mark.parametrize(
        ("name", "value"),
        [("clients", 1), ("clients", 2.5), ("noise_scale", 0.0), ("draws", 1), ("seed", -1)],
    )
    def test_bad_input_is_refused_by_name(self, name, value):
        with pytest.raises(InvalidValue, match=f"^{name} must be"):
            Population(**{name: value})


class TestMoneyByWeight:
    def test_money_and_clients_never_fall_in_eta(self, money):
        assert np.all(np.diff(money.money.mean(0)) >= 0)
        assert np.all(np.diff(money.selected.mean(0)) >= 0)

    def test_they_never_fall_for_any_single_population(self):
        for v in 2 * SMALL.costs():
            plans = [allocate(v, eta, 1.0) for eta in np.geomspace(0.01, 100, 60)]
            assert np.all(np.diff([p.threshold for p in plans]) >= 0)
            assert np.all(np.diff([p.total for p in plans]) >= 0)

    def test_money_is_concave_in_eta_at_a_fixed_threshold(self):
        v = np.sort(2 * SMALL.costs()[0])
        eta = np.geomspace(0.01, 100, 40)
        for h in range(1, 13):
            total = np.array([threshold_plan(v, h, e, 1.0).total for e in eta])
            assert np.all(np.diff(np.diff(total) / np.diff(eta)) < 0)

    def test_it_is_a_square_root_once_all_are_selected(self, money):
        everyone = money.selected.mean(0) == SMALL.clients
        assert everyone.sum() >= 3
        ratio = money.money.mean(0)[everyone] / np.sqrt(money.eta[everyone])
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)

    def test_observation_5_holds_only_at_first(self):
        """Convex on the way, concave after (erratum J-12); 100 clients at the quantiles of U(0, 1)."""
        v = 2 * (np.arange(100) + 0.5) / 100
        eta = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
        total = [allocate(v, e, 1.0).total for e in eta]
        bends = np.diff(np.diff(total) / np.diff(eta))
        assert np.all(bends[:2] > 0)
        assert np.all(bends[2:] < 0)

    def test_bends_tell_convex_from_concave(self):
        x = np.arange(1.0, 9.0)
        money = np.cumsum([0.0, 2, 1, 2, 3, 4, 1, 0.5])  # slopes: fall, rise three times, fall
        assert (lab.bends(x, money) > 0).tolist() == [False, True, True, True, False, False]
        np.testing.assert_array_equal(lab.bends(x, x), 0)
        np.testing.assert_array_equal(lab.bends(x, np.zeros(8)), 0)

    def test_noise_scale_and_highest_cost_only_set_units(self, money):
        other = Population(Uniform(0.0, 3.0), clients=12, noise_scale=4.0, draws=6)
        scaled = lab.money_by_weight(other, 6 * ETAS)
        np.testing.assert_allclose(scaled.money.mean(0), 6 * money.money.mean(0), rtol=1e-9)
        np.testing.assert_array_equal(scaled.selected.mean(0), money.selected.mean(0))

    @pytest.mark.parametrize(
        ("etas", "rule"),
        [
            ([1, 2], "at least 3"),
            ([1, 3, 2], "increasing"),
            ([-1, 1, 2], "positive"),
            ([1, 2, np.nan], "finite"),
        ],
    )
    def test_bad_weights_are_refused_by_name(self, etas, rule):
        with pytest.raises(InvalidValue, match=f"^etas must be {rule}"):
            lab.money_by_weight(SMALL, etas)


class TestSelectedByMoney:
    def test_more_money_never_selects_fewer(self):
        table = lab.selected_by_money(SMALL, steps=40)
        assert np.all(np.diff(table.selected.mean(0)) >= 0)
        assert np.all(np.diff(table.complete.mean(0)) >= 0)
        assert table.selected.mean(0)[-1] == 12
        assert np.all(table.complete.mean(0) >= table.selected.mean(0))

    def test_nothing_is_bought_for_next_to_nothing(self):
        table = lab.selected_by_money(SMALL, [1e-9, 1.0, 2.0], steps=20)
        assert table.selected.mean(0)[0] == 0

    def test_bad_money_is_refused_by_name(self):
        with pytest.raises(InvalidValue, match=r"^money must be increasing"):
            lab.selected_by_money(SMALL, [1.0, 1.0, 2.0])
        with pytest.raises(InvalidValue, match=r"^steps must"):
            lab.selected_by_money(SMALL, steps=1)


class TestCostShares:
    def test_shares_sum_to_one(self, shares):
        assert shares.paid.mean(0).shape == (2, 12)
        np.testing.assert_allclose(shares.paid.mean(0).sum(1), 1)
        np.testing.assert_allclose(shares.planned.mean(0).sum(1), 1)

    def test_who_costs_most(self, shares):
        """Planned: the first while few are selected, the last when all are. Paid: the first."""
        assert shares.selected.mean(0)[1] == 12
        planned, paid = (part.mean(0) for part in shares.first_is_dearest)
        assert planned[0] > 0.5 > planned[1] == 0
        assert shares.planned.mean(0)[1].argmax() == 11
        assert np.all(paid == 1)

    @pytest.mark.parametrize("eta", [0.1, 0.5, 1.0, 3.0])
    def test_the_condition_for_the_first_is_exact(self, eta):
        for v in 2 * SMALL.costs():
            plan = allocate(v, eta, 1.0)
            first = int(np.argmax(plan.privacy * v)) == 0
            assert first == ((12 - plan.threshold + 1) * v[0] >= v[plan.threshold - 1])


class TestMechanismCurves:
    def test_nothing_truthful_is_better_and_knowing_is(self, curves):
        assert curves.names == lab.MECHANISMS
        excess = dict(zip(curves.names, curves.excess.mean(0), strict=True))
        assert np.all(excess.pop("JSAM-CI") < 0)
        assert np.all(excess.pop("JSAM") == 0)
        for name, above in excess.items():
            assert np.all(above >= -1e-12), name

    def test_at_high_weights_jsam_is_the_unbiased_mechanism(self, curves):
        assert curves.excess.mean(0)[curves.names.index("USBM")][-1] == pytest.approx(0, abs=1e-12)

    def test_objective_is_loss_and_money(self, curves):
        np.testing.assert_allclose(
            curves.eta * curves.loss.mean(0) + curves.money.mean(0), curves.objective.mean(0)
        )

    def test_other_priors_work(self):
        population = Population(TruncatedExponential(2.0, 0.1, 2.0), clients=4, draws=2)
        assert lab.mechanism_curves(population, [0.1, 1.0, 10.0]).money.mean(0).shape == (6, 3)


class TestDescent:
    def test_the_bound_with_its_terms_by_hand(self):
        p, sd = np.array([0.75, 0.25]), np.array([0.1, 0.2])
        constants = {"dimension": 50, "smoothness": 0.5, "gradient": 2.0, "start_gap": 3.0}
        bound = gradient_bound(p, sd, rounds=100, clients_per_round=4, clipping_error=0.1, **constants)
        drawn = p * 4 * 100
        noise = 50 * np.sum(p**2 * sd**2 / drawn)
        assert bound.bias == pytest.approx(2 / 2 * (0.5 + 0.1))
        assert bound.start == pytest.approx(3 / 10)
        assert bound.curvature == pytest.approx(0.5 * 4 / 20)
        assert bound.noise == pytest.approx(0.5 * 4 * 10 / 2 * noise)
        assert bound.total == pytest.approx(0.6 + np.sqrt(0.6**2 + bound.noise + 0.3 + 0.1))
        root = np.sqrt(0.6**2 + 2 * np.sqrt(100 * 0.5) * noise)
        assert bound.printed == pytest.approx(0.6 + root + np.sqrt(0.3) + 0.1)

    def test_more_noise_and_more_bias_never_lower_it(self):
        def total(p, sd):
            return gradient_bound(
                p,
                sd,
                rounds=50,
                clients_per_round=2,
                dimension=10,
                smoothness=1.0,
                gradient=1.0,
                start_gap=1.0,
            ).total

        assert total([0.5, 0.5], [0.1, 0.1]) < total([0.5, 0.5], [0.1, 0.2])
        assert total([0.5, 0.5], [0.0, 0.0]) < total([0.6, 0.4], [0.0, 0.0]) < total([0.9, 0.1], [0.0, 0.0])

    @pytest.mark.parametrize("rounds", [4, 100, 2500])
    def test_across_a_kink_the_printed_bound_is_broken(self, rounds):
        """Erratum J-15."""
        norm, bound = swing(rounds, 0.1)
        assert norm == pytest.approx(0.1)
        assert bound.printed < norm <= bound.total

    def test_gradients_of_softmax_regression_are_those_of_its_loss(self):
        rng = np.random.default_rng(0)
        w, x = rng.normal(size=(3, 4)), rng.normal(size=(2, 5, 3))
        y = np.eye(4)[rng.integers(4, size=(2, 5))]
        each, loss = training._gradients(w, x, y)
        nudge = np.zeros((3, 4))
        nudge[1, 2] = 1e-6
        slope = (training._gradients(w + nudge, x, y)[1] - loss) / 1e-6
        assert each.mean(0)[1, 2] == pytest.approx(slope, rel=1e-4)
