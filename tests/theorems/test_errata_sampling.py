"""What is wrong in print, shown by running it (docs/errata.md lists each)."""

import itertools

import numpy as np
import pytest
from scipy.optimize import brentq

from bonafed.economics import Discrete, Empirical, ScaledBeta, TruncatedExponential, Uniform, audit
from bonafed.economics.curves import unironed_curve, virtual_curve
from bonafed.errors import NoSolution
from bonafed.mechanisms.sampling import PriorFreeSampling, optimal_menu, uniform_menu
from bonafed.mechanisms.sampling.printed import (
    PrintedMenu,
    printed_threshold,
    printed_threshold_function,
)

PRIOR = Uniform(0.5, 1.5)


def corrected_threshold_function(prior, x):
    """H(x) = E[phi 1{c <= x}] + sqrt(phi(x)) E[sqrt(phi) 1{c > x}] (corrected Theorem 2)."""
    curve = virtual_curve(prior)
    return curve.head(x) + np.sqrt(prior.virtual_cost(x)) * curve.tail_root(x)


class TestE1TheThresholdEquationLacksAFactor:
    def test_the_printed_range_misses_most_of_case_2(self):
        x = np.linspace(0.5, 1.5, 100_001)
        printed = printed_threshold_function(PRIOR, x)
        assert printed.min() == pytest.approx(1.17178, abs=1e-5)
        assert printed.max() == pytest.approx(1.5, abs=1e-9)
        assert not np.all(np.diff(printed) >= 0)  # not monotone, as the proof claims
        corrected = corrected_threshold_function(PRIOR, x)
        assert corrected[0] == pytest.approx(0.848362, abs=1e-6)
        assert corrected[-1] == pytest.approx(1.5, abs=1e-9)
        assert np.all(np.diff(corrected) > 0)

    @pytest.mark.parametrize("budget", [0.85, 0.9, 1.0, 1.1, 1.17])
    def test_no_root_where_the_optimum_exists(self, budget):
        with pytest.raises(NoSolution, match="no root"):
            optimal_menu(PRIOR, budget, variant="printed")
        assert optimal_menu(PRIOR, budget).case == 2

    def test_the_printed_threshold_depends_on_the_unit_of_money(self):
        cents = Uniform(50.0, 150.0)
        assert optimal_menu(cents, 120.0).threshold == pytest.approx(
            100 * optimal_menu(PRIOR, 1.2).threshold, rel=1e-9
        )
        assert printed_threshold(cents, 120.0) > 1.2 * 100 * printed_threshold(PRIOR, 1.2)

    @pytest.mark.parametrize("budget", [1.18, 1.3, 1.4])
    def test_where_it_has_a_root_it_is_worse(self, budget):
        printed, corrected = optimal_menu(PRIOR, budget, "printed"), optimal_menu(PRIOR, budget)
        assert printed.threshold != pytest.approx(corrected.threshold, rel=1e-3)
        gain = 1 - corrected.expected_inverse_probability / printed.expected_inverse_probability
        assert gain > 1e-4

    def test_the_printed_probability_may_exceed_one(self):
        prior, budget = Uniform(0.05, 0.8), 0.76
        grid = np.linspace(prior.low, prior.high, 2001)
        gap = printed_threshold_function(prior, grid) - budget
        roots = [
            brentq(lambda x: float(printed_threshold_function(prior, x)) - budget, *grid[[k, k + 1]])
            for k in np.flatnonzero(gap[:-1] * gap[1:] < 0)
        ]
        assert len(roots) == 2  # the theorem claims exactly one
        menu = PrintedMenu(prior, budget, 1.0, roots[0], unironed_curve(prior))
        found = audit(menu, prior.low, prior.high)["feasible"]
        assert not found.holds
        assert float(menu.probability(found.witness.report)) == pytest.approx(1 + found.witness.gain)


class TestE4TheStrictInequalities:
    COSTS, MASSES = np.array([0.4, 0.7, 1.0, 1.3, 1.8]), np.array([0.3, 0.25, 0.2, 0.15, 0.1])

    def h(self, m):
        phi = Discrete(self.COSTS, self.MASSES).virtual_cost(self.COSTS)
        return (self.MASSES * phi)[:m].sum() + np.sqrt(phi[m]) * (self.MASSES * np.sqrt(phi))[m:].sum()

    @pytest.mark.parametrize("m", range(4))
    def test_on_a_boundary_both_formulas_give_the_same_terms(self, m):
        prior, phi = Discrete(self.COSTS, self.MASSES), None
        phi = prior.virtual_cost(self.COSTS)

        def formula(k, budget):
            scale = (budget - (self.MASSES * phi)[:k].sum()) / (self.MASSES * np.sqrt(phi))[k:].sum()
            return np.where(np.arange(5) < k, 1.0, scale / np.sqrt(phi))

        budget = self.h(m)
        assert formula(m, budget) == pytest.approx(formula(m + 1, budget), rel=1e-12)
        assert optimal_menu(prior, budget).probability(self.COSTS) == pytest.approx(
            formula(m, budget), rel=1e-12
        )

    def test_the_last_two_values_of_h_are_equal(self):
        phi = Discrete(self.COSTS, self.MASSES).virtual_cost(self.COSTS)
        assert self.h(4) == pytest.approx((self.MASSES * phi).sum(), rel=1e-14)  # H(K-1) = H(K)
        assert self.h(4) == pytest.approx(1.8, rel=1e-14)  # = c_K


@pytest.mark.parametrize(
    "prior", [PRIOR, TruncatedExponential(1.0, 0.2, 3.0), ScaledBeta(2, 3, 0.5, 1.5)], ids=str
)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_e10_the_average_probability_is_higher_than_uniform(prior, share):
    budget = share * prior.high
    optimal, uniform = optimal_menu(prior, budget), uniform_menu(prior, budget)
    assert optimal.expected_probability > uniform.expected_probability * 1.01
    assert optimal.expected_inverse_probability < uniform.expected_inverse_probability


def sequences(runs=60, clients=60):
    rng = np.random.default_rng(2024)
    return rng.uniform(0.5, 1.5, (runs, clients))


class TestA6TheAlgorithmWithoutPrior:
    @pytest.mark.parametrize("per_client", [0.3, 0.5, 0.9])
    def test_1_the_printed_algorithm_overspends_and_the_safe_one_never(self, per_client):
        budget = 60 * per_client
        printed = PriorFreeSampling(60, budget, 1.5, initial=6, variant="printed")
        safe = PriorFreeSampling(60, budget, 1.5, initial=6)
        spent = np.array([printed.run(costs).spent for costs in sequences()])
        assert np.mean(spent > budget) > 0.15
        assert spent.max() > budget * (1 + 1e-4)
        assert all(safe.run(costs).spent <= budget for costs in sequences())

    def test_1_the_test_of_line_8_looks_at_the_smallest_payment(self):
        menu = optimal_menu(PRIOR, 0.5)
        costs = np.linspace(0.5, 1.5, 101)
        assert np.all(np.diff(menu.expected_payment(costs)) < 0)  # the dearest client gets least

    def test_2_without_ironing_an_estimated_prior_invites_lies(self):
        reports = sequences()[0][:20]
        printed = optimal_menu(Empirical(reports, 1.5), 0.5, "printed")
        found = audit(printed, 0.5, 1.5, claims=("truthful", "monotone"))
        lie = found["truthful"].witness
        assert not found["monotone"].holds
        gain = printed.utility(lie.true_cost, lie.report) - printed.utility(lie.true_cost, lie.true_cost)
        assert float(gain) == pytest.approx(lie.gain)
        assert lie.gain > 1e-3
        assert audit(optimal_menu(Empirical(reports, 1.5), 0.5), 0.5, 1.5).passed

    def test_3_payments_rise_above_plan_beyond_the_largest_report(self):
        rules = PriorFreeSampling(40, 20.0, 1.5, initial=10, variant="printed")
        state = rules.start()
        for cost in np.linspace(0.5, 1.0, 10):  # the largest report is 1.0, the highest cost 1.5
            _, state = state.settle(float(cost))
        terms, support = state.terms, state.terms.support
        q = terms.probabilities[: support.size]
        planned = [
            sum(q[j] * (support[j] - support[j - 1]) for j in range(k + 1, support.size))
            for k in range(support.size)
        ]
        above = terms.rents[: support.size] - np.array(planned)
        assert above == pytest.approx(np.full(support.size, q[-1] * (1.5 - 1.0)), rel=1e-12)
        expected = float(np.sum(terms.masses * (support * q + terms.rents[: support.size])))
        assert expected > terms.target * 1.05  # more than the menu was made for

    def test_4_the_printed_algorithm_survives_an_empty_purse(self):
        rules = PriorFreeSampling(12, 0.5, 1.5, initial=8, variant="printed")
        for costs in itertools.islice(sequences(20, 12), 20):
            run = rules.run(costs)
            assert np.all((run.probability >= 0) & (run.probability <= 1))
