"""What is wrong in print, shown by running it (docs/errata.md lists each)."""

import itertools

import numpy as np
import pytest
from scipy.optimize import brentq

from bonafed.economics import Discrete, Empirical, ScaledBeta, TruncatedExponential, Uniform, audit
from bonafed.economics.curves import unironed_curve, virtual_curve
from bonafed.errors import NoSolution
from bonafed.mechanisms.sampling import (
    ConvergenceModel,
    PriorFreeSampling,
    complete_information_population,
    optimal_menu,
    uniform_menu,
)
from bonafed.mechanisms.sampling.printed import (
    PrintedMenu,
    printed_threshold,
    printed_threshold_function,
)
from tests.oracles.convergence import loss_bounds

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


@pytest.mark.parametrize("low", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("share", [0.001, 0.05, 0.3, 0.8, 0.99])
def test_e12_with_uniform_costs_the_sampling_term_falls_by_a_ninth_at_most(low, share):
    prior = Uniform(low, low + 1.0)
    best = optimal_menu(prior, share * prior.high).expected_inverse_probability
    flat = uniform_menu(prior, share * prior.high).expected_inverse_probability
    assert best / flat >= 8 / 9 - 1e-12
    if low == 0 and share <= 0.001:
        assert best / flat == pytest.approx(8 / 9, abs=1e-5)


@pytest.mark.parametrize("low", [0.0, 0.1, 1.0, 5.0])
def test_e13_with_uniform_costs_secrecy_costs_four_times_what_the_optimum_gains(low):
    prior = Uniform(low, low + 1.0)
    budget = 0.001 * prior.high
    rules = (uniform_menu, optimal_menu, complete_information_population)
    flat, best, known = (rule(prior, budget).expected_inverse_probability for rule in rules)
    assert (best - known) / (flat - best) >= 4 - 1e-3


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


class TestE11TheRateCountsRoundsWhereTheBoundCountsIterations:
    """The recursion of the proof against the bound, L/mu = 10 unless said otherwise."""

    ROUNDS = 3000

    def values(self, steps, kappa=10.0, **more):
        given = {
            "smoothness": kappa,
            "strong_convexity": 1.0,
            "local_steps": steps,
            "gradient_bounds": [1.0],
            "gradient_noise": [0.0],
            "heterogeneity": 0.0,
            "initial_distance": 0.0,
        }
        return {**given, **more}

    def ratios(self, values, rates, q=np.inf):
        """(rounds,) what the recursion comes to, over the bound; without sampling unless q is given."""
        model = ConvergenceModel(**values)
        stated = model.constant + float(np.sum(model.data_weights / q))
        return loss_bounds(values, np.array([q]), rates) * np.arange(1, len(rates) + 1) / stated

    def rates(self, values, variant):
        model, rounds = ConvergenceModel(**values), np.arange(self.ROUNDS)[:, None]
        return model.learning_rate(rounds, np.arange(values["local_steps"]), variant)

    @pytest.mark.parametrize(("steps", "factor"), [(5, 2.7), (10, 5.1), (50, 24.6)])
    def test_the_printed_rate_misses_the_bound_by_half_of_e(self, steps, factor):
        values = self.values(steps)
        printed = self.ratios(values, self.rates(values, "printed"))
        assert printed[-1] == pytest.approx(factor, abs=0.05)
        limit = steps**2 / (2 * steps - 1) * self.ROUNDS / (self.ROUNDS + 80)  # 80 = 8 L/mu
        assert printed[-1] == pytest.approx(limit, rel=2e-3)
        corrected = self.ratios(values, self.rates(values, "corrected"))
        assert 0.98 < corrected[-1] <= corrected.max() <= 1.0

    @pytest.mark.parametrize("steps", [5, 50])
    def test_the_same_of_the_term_of_heterogeneity(self, steps):
        values = self.values(steps, gradient_bounds=[1e-9], heterogeneity=1.0)
        limit = steps**2 / (2 * steps - 1) * self.ROUNDS / (self.ROUNDS + 80)
        printed = self.ratios(values, self.rates(values, "printed"))
        assert printed[-1] == pytest.approx(limit, rel=2e-3)
        assert self.ratios(values, self.rates(values, "corrected")).max() <= 1.0

    @pytest.mark.parametrize("steps", [5, 50])
    def test_the_term_of_sampling_stands_as_printed(self, steps):
        q = 1e-9  # so rare that the rest does not count
        values = self.values(steps)
        printed = self.ratios(values, self.rates(values, "printed"), q)
        limit = steps / (2 * steps - 1) * self.ROUNDS / (self.ROUNDS + 80)
        assert printed[-1] == pytest.approx(limit, rel=2e-2)  # right after what the last round adds
        assert printed.max() <= 1.0
        assert self.ratios(values, self.rates(values, "corrected"), q).max() <= 1.0

    @pytest.mark.parametrize("steps", [1, 2, 4, 5, 10, 50])
    def test_kept_constant_within_a_round_the_induction_needs_a_third_of_e_squared(self, steps):
        """A round from d = 4 B/(mu^2 g), g = max(8 L/mu, E) + E r, ends at 4 B/(mu^2 (g + E)) or below."""
        g = np.linspace(max(steps, 2.001), 2 * steps**2 + 20, 100_001)
        kept = (1 - 2 / g) ** steps
        after = kept * 4 / g + (1 - kept) * 2 / g  # times B/mu^2
        holds = after <= 4 / (g + steps) * (1 + 1e-12)
        assert holds[g >= steps**2 / 3 + 0.55].all()
        assert not holds[(g >= 8) & (g < steps**2 / 3)].any()  # 8 L/mu is 8 or more
        if steps <= 4:
            assert holds[g >= 8].all()
        # and what it needs is never more than 1.19 times as much: then c instead of 4 keeps itself
        c = 1.19 * 4
        assert (kept * c / g + (1 - kept) * 2 / g <= c / (g + steps))[g >= 8].all()

    def test_kept_constant_within_a_round_from_far_away(self):
        values = self.values(50, kappa=1.0, initial_distance=np.sqrt(4 * 8 * 50**2 / 50))
        first = ConvergenceModel(**values).learning_rate(np.arange(self.ROUNDS))[:, None]
        drift_only = 4 * 8 * 50**2  # 4 B/mu^2
        reached = 2 * loss_bounds(values, np.array([np.inf]), np.repeat(first, 50, axis=1))
        stated = drift_only / (50 + 50 * np.arange(1, self.ROUNDS + 1))
        assert 1.1 < (reached / stated).max() < 1.19
        assert (reached / stated)[-1] < 1.01
        every_step = 2 * loss_bounds(values, np.array([np.inf]), self.rates(values, "corrected"))
        assert (every_step / stated).max() <= 1.0 + 1e-12
