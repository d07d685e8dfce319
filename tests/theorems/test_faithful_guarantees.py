"""Propositions 6, 7 and 10, Corollaries 2 and 3, and Assumption 3 of the faithful paper, as corrected."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bonafed.errors import InvalidValue
from bonafed.mechanisms.faithful.theory import bounds as b
from bonafed.mechanisms.faithful.theory import guarantees as g
from bonafed.mechanisms.faithful.theory.grouping import assumption_3, best_clustering, obvious_clusterings
from tests.oracles.grouping import all_clusterings, slow_bound


@st.composite
def populations(draw, most=6, equal=False, convexity=(0.05, 5.0)):
    """K agents over three outcomes; noise and distance of like size, so that any clustering may be best."""
    k = draw(st.integers(2, most))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    weights = np.full(k, 1 / k) if equal else rng.dirichlet(np.full(k, 3.0))
    counts = rng.integers(5, 400, k).astype(float)
    kinds = rng.dirichlet(np.ones(3), k)
    kinds = kinds[rng.integers(0, k, k)] if draw(st.booleans()) else kinds  # some alike
    return b.AgentPopulation(weights, counts, kinds, 1.0, 10, draw(st.floats(*convexity)), 0.05)


TERMS = g.PrivateBoundTerms(smoothness=6.0, gradient_bound=1.4, alpha=2.0, beta=0.01, gap=2.3, epsilon=0.01)


class TestAssumption3:
    @given(population=populations())
    def test_the_best_clustering_is_the_best_of_all(self, population):
        """Every clustering, one by one, each bound summed by hand."""
        least = min(slow_bound(population, each) for each in all_clusterings(population.weights.size))
        best = best_clustering(population)
        assert best.exact
        assert best.bound == pytest.approx(least, rel=1e-12)
        assert best.bound == pytest.approx(slow_bound(population, best.clusters), rel=1e-12)
        assert sorted(k for members in best.clusters for k in members) == [*range(population.weights.size)]

    @given(population=populations())
    def test_it_holds_exactly_if_no_clustering_is_better(self, population):
        found = assumption_3(population)
        every = [slow_bound(population, each) for each in all_clusterings(population.weights.size)]
        assert found.federated == pytest.approx(b.social_federated_risk(population))
        assert found.holds == (found.federated <= min(every) * (1 + 1e-9))

    @given(population=populations(most=7))
    def test_the_heuristic_is_never_worse_than_what_is_obvious_nor_better_than_the_best(self, population):
        found, best = best_clustering(population, exact_up_to=0), best_clustering(population)
        assert not found.exact
        obvious = [b.social_clustered_risk(population, each) for each in obvious_clusterings(population)]
        assert found.bound <= min(obvious) * (1 + 1e-12)
        assert found.bound >= best.bound * (1 - 1e-12)

    def test_the_heuristic_mostly_finds_the_best(self):
        rng = np.random.default_rng(3)
        right = 0
        for _ in range(40):
            kinds = rng.dirichlet(np.ones(3), 3)[rng.integers(0, 3, 8)]
            agents = b.AgentPopulation(
                np.full(8, 1 / 8), rng.integers(20, 300, 8), kinds, 1.0, 10, 0.5, 0.05
            )
            best = best_clustering(agents)
            right += best_clustering(agents, exact_up_to=0).bound <= best.bound * (1 + 1e-9)
        assert right >= 36

    def test_many_agents_of_two_kinds_are_two_clusters(self):
        kinds = [[0.9, 0.1] if k % 2 else [0.1, 0.9] for k in range(60)]
        many = b.AgentPopulation(np.full(60, 1 / 60), np.full(60, 50.0), kinds, 1.0, 10, 0.5, 0.05)
        found = assumption_3(many)
        assert not found.holds
        assert not found.exact
        assert found.best.clusters == (tuple(range(0, 60, 2)), tuple(range(1, 60, 2)))

    def test_one_distribution_is_one_cluster(self):
        same = b.AgentPopulation([0.2, 0.3, 0.5], [10, 200, 40], [[0.5, 0.5]] * 3, 1.0, 10, 0.5, 0.05)
        assert assumption_3(same).best.clusters == ((0, 1, 2),)
        assert assumption_3(same).holds


class TestParticipation:
    @given(population=populations(convexity=(0.001, 0.05)))  # little is known of each: one model is best
    def test_proposition_7_follows_from_assumption_3(self, population):
        assume(assumption_3(population).holds)
        for k in range(population.weights.size):
            alone, joining = g.participation(population, k)
            assert joining <= alone * (1 + 1e-9)

    @given(agents=st.integers(3, 20), samples=st.integers(1, 1000))
    def test_e17_as_printed_it_does_not(self, agents, samples):
        """Equal agents of one distribution: one model has the least bound, and (41) is above (40)."""
        kinds = [[0.5, 0.5]] * agents
        same = b.AgentPopulation(
            np.full(agents, 1 / agents), np.full(agents, samples), kinds, 1.0, 10, 0.5, 0.05
        )
        assert assumption_3(same, exact_up_to=6).holds
        printed = g.participation(same, 0, printed=True)
        assert printed.joining > printed.alone
        noise = b.social_local_risk(same) * samples  # c'
        assert printed.alone == pytest.approx(noise / samples * (1 / (agents - 1) + 1 / agents))
        assert printed.joining == pytest.approx(noise / samples)

    @given(population=populations())
    def test_the_bounds_are_those_of_the_clusterings_over_the_weight(self, population):
        for k, share in enumerate(population.weights.tolist()):
            others = [j for j in range(population.weights.size) if j != k]
            found = g.participation(population, k)
            assert found.alone == pytest.approx(slow_bound(population, [[k], others]) / share)
            assert found.joining == pytest.approx(slow_bound(population, [[k, *others]]) / share)

    def test_the_slack_is_what_payments_and_steps_leave(self):
        agents = b.AgentPopulation([0.25, 0.75], [30, 90], [[1.0, 0.0]] * 2, 1.0, 10, 0.5, 0.05)
        found = g.participation_slack(agents, 0, smoothness=2.0, steps=3, gap=1.5, epsilon=0.01)
        assert found == pytest.approx(0.01 + 2 * 2.0 / 0.5 * 0.75**3 * 1.5 / 0.25)

    def test_it_shrinks_to_epsilon_with_more_steps(self):
        agents = b.AgentPopulation([0.5, 0.5], [30, 90], [[1.0, 0.0]] * 2, 1.0, 10, 0.5, 0.05)
        slacks = [g.participation_slack(agents, 1, 2.0, steps, 1.5, 0.01) for steps in (0, 10, 1000)]
        assert slacks == sorted(slacks, reverse=True)
        assert slacks[-1] == pytest.approx(0.01)


class TestFaithfulness:
    @given(population=populations(equal=True), steps=st.integers(0, 200))
    def test_proposition_6_with_equal_weights_is_as_printed(self, population, steps):
        right, printed = (
            g.faithfulness_bound(population, 6.0, steps, 2.3, 0.01, printed=how) for how in (False, True)
        )
        phi = b.efficiency_bound(population, 6.0, steps, 2.3)
        assert right == pytest.approx(printed) == pytest.approx(0.02 + population.weights.size * phi)

    def test_with_other_weights_the_lightest_agent_decides(self):
        agents = b.AgentPopulation([0.1, 0.9], [30, 90], [[1.0, 0.0]] * 2, 1.0, 10, 0.5, 0.05)
        right, printed = (
            g.faithfulness_bound(agents, 2.0, 5, 1.0, 0.01, printed=how) for how in (False, True)
        )
        phi = b.efficiency_bound(agents, 2.0, 5, 1.0)
        assert right == pytest.approx(0.02 + 10 * phi)
        assert printed == pytest.approx(0.02 + 2 * phi)

    @given(population=populations())
    def test_remark_2_distributions_are_not_in_it(self, population):
        alike = b.AgentPopulation(
            population.weights, population.counts, np.full_like(population.distributions, 1 / 3), 1.0, 10,
            population.strong_convexity, 0.05,
        )  # fmt: skip
        found = [g.faithfulness_bound(each, 6.0, 20, 1.0, 0.01) for each in (population, alike)]
        assert found[0] == found[1]


class TestPrivate:
    @settings(max_examples=30)
    @given(population=populations(equal=True))
    def test_proposition_10_is_the_recursion_it_solves(self, population):
        """(122): a noisy step of 1/L_g keeps 1 - mu/L_g of the gap and adds d sigma^2/(2 L_g)."""
        steps, mu, l_g = 40, population.strong_convexity, TERMS.smoothness
        variance = TERMS.variance(population, steps)
        gap = TERMS.gap
        for _ in range(steps):
            gap = (1 - mu / l_g) * gap + population.dimension * variance / (2 * l_g)
        reached = 2 * b.collective_risk(population) + 2 * l_g / mu * gap
        bound = g.private_efficiency_bound(population, TERMS, steps)
        left = (1 - mu / l_g) ** steps * population.dimension * variance / (2 * mu)  # of its first noise
        assert bound == pytest.approx(reached + 2 * l_g / mu * left, rel=1e-9)

    @pytest.mark.parametrize(("agents", "samples", "alpha"), [(4, 100, 1.0), (10, 957, 0.1)])
    def test_the_noise_is_that_of_equation_52(self, agents, samples, alpha):
        equal = population_of(agents, samples)
        terms = g.PrivateBoundTerms(6.0, 1.4, alpha, 0.01, 2.3, 0.01)
        right = 16 * 1.4**2 * (20 + agents * 20) * math.log(100) / (agents**2 * samples**2 * alpha**2)
        assert terms.variance(equal, 20) == pytest.approx(right)

    def test_k_and_not_k_squared_is_right_in_56(self):
        """With T_1 = T_2 the noise's part falls as (K + 1)/K^2, so K times it tends to a constant."""
        parts = [
            k * (g.private_efficiency_bound(population_of(k, 100), TERMS, 10)
                 - b.efficiency_bound(population_of(k, 100), 6.0, 10, TERMS.gap))
            for k in (10, 100, 1000)
        ]  # fmt: skip
        assert parts[1] == pytest.approx(parts[2], rel=0.01)
        printed = [k * g.printed_private_term(population_of(k, 100), TERMS) for k in (10, 100, 1000)]
        assert printed[2] / printed[1] == pytest.approx(math.log(100_000) / math.log(10_000))

    def test_corollary_2_is_the_sum_of_its_parts(self):
        equal = population_of(10, 400)
        plan = TERMS.tradeoff(equal)
        right = 0.02 + 2 * plan.loss_at_steps + 10 * g.private_efficiency_bound(equal, TERMS, plan.steps)
        assert g.private_faithfulness_bound(equal, TERMS) == pytest.approx(right)
        printed = TERMS.tradeoff(equal, corrected=False)
        term = 1.4**2 * 10 * math.log(10 * 400) * math.log(100) / (400**2 * 2.0**2)  # of D
        noise = (10 / 400) * 1.0 * 10 * math.log(2 * 10 / 0.05) / (2 * 10 * 0.5)
        found = g.private_faithfulness_bound(equal, TERMS, printed_constant=3.0)
        assert found == pytest.approx(0.02 + 2 * printed.loss + noise + 3.0 * term)

    def test_corollary_3_is_the_sum_of_its_parts(self):
        equal = population_of(10, 400)
        plan, printed = TERMS.tradeoff(equal), TERMS.tradeoff(equal, corrected=False)
        risk = g.private_efficiency_bound(equal, TERMS, plan.steps) - 2 * b.collective_risk(equal)
        assert g.private_participation_slack(equal, TERMS) == pytest.approx(
            0.01 + plan.loss_at_steps + 10 * risk
        )
        term = 1.4**2 * 10 * math.log(10 * 400) * math.log(100) / (400**2 * 2.0**2)
        found = g.private_participation_slack(equal, TERMS, printed_constant=3.0)
        assert found == pytest.approx(0.01 + printed.loss + 3.0 * term)

    def test_privacy_costs_more_than_none(self):
        equal = population_of(10, 400)
        plan = TERMS.tradeoff(equal)
        open_bound = g.faithfulness_bound(equal, 6.0, plan.steps, TERMS.gap, 0.01)
        assert g.private_faithfulness_bound(equal, TERMS) > open_bound
        assert g.private_participation_slack(equal, TERMS) > g.participation_slack(
            equal, 0, 6.0, plan.steps, TERMS.gap, 0.01
        )

    def test_other_weights_are_refused(self):
        with pytest.raises(InvalidValue, match=r"^weights must be equal"):
            g.private_efficiency_bound(
                b.AgentPopulation([0.4, 0.6], [10, 20], [[1.0, 0.0]] * 2, 1.0, 10, 0.5, 0.05), TERMS, 5
            )

    @pytest.mark.parametrize(
        ("changes", "message"),
        [({"alpha": 0.0}, "^alpha must"), ({"beta": 1.0}, "^beta must"), ({"step": -1.0}, "^step must")],
    )
    def test_bad_terms_are_refused_by_name(self, changes, message):
        with pytest.raises(InvalidValue, match=message):
            g.PrivateBoundTerms(**{
                "smoothness": 6.0, "gradient_bound": 1.4, "alpha": 2.0, "beta": 0.01, "gap": 2.3,
                "epsilon": 0.01, **changes,
            })  # fmt: skip


@pytest.mark.parametrize(
    "call", [g.participation, lambda p, k: g.participation_slack(p, k, 1.0, 1, 1.0, 1.0)]
)
def test_an_agent_that_is_not_there_is_refused(call):
    with pytest.raises(InvalidValue, match=r"^agent must be in 0\.\.3, got 4"):
        call(population_of(4, 10), 4)


def population_of(agents, samples):
    kinds = np.full((agents, 2), 0.5)
    return b.AgentPopulation(
        np.full(agents, 1 / agents), np.full(agents, samples), kinds, 1.0, 10, 0.5, 0.05
    )
