"""The questions that the theory of faithful learning answers."""

import math
from functools import partial

import numpy as np
import pytest

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.mechanisms.faithful.protocol.payments import cluster_count
from bonafed.mechanisms.faithful.slice import SLICE
from bonafed.mechanisms.faithful.theory import bounds
from bonafed.mechanisms.faithful.theory.grouping import best_clustering
from bonafed.mechanisms.faithful.theory.guarantees import (
    PrivateBoundTerms,
    faithfulness_bound,
    participation,
    participation_slack,
    private_faithfulness_bound,
    private_participation_slack,
)
from bonafed.mechanisms.faithful.theory.parameter_advice import (
    ClusterOptions,
    PrivacyOptions,
    PromiseOptions,
)
from bonafed.mechanisms.faithful.theory.population_advice import (
    AgentOptions,
    GroupOptions,
    PopulationOptions,
)

ALIKE = {"counts": (100, 400, 400), "delta": 0.0}
APART = {"counts": (400, 400, 400), "delta": 1.0}


def ask(question, options):
    return SLICE.advice[question].answer(options)


@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("join", AgentOptions(**ALIKE)),
        ("federate-or-cluster", GroupOptions(**ALIKE, groups="0,1/2")),
        ("manipulation", AgentOptions(**ALIKE)),
        ("manipulation", AgentOptions(**APART)),
        ("clusters", ClusterOptions(agents=100, epsilon=0.5)),
        ("privacy-tradeoff", PrivacyOptions(samples=10_000)),
        ("faithfulness", PromiseOptions()),
        ("faithfulness", PromiseOptions(epsilon=10.0)),
    ],
)
def test_every_answer_has_words_numbers_and_a_figure(question, options):
    command = SLICE.advice[question]
    assert isinstance(options, command.options)
    document = command.answer(options)
    assert document.data["question"] == question
    assert document.blocks[0].endswith(".")
    assert document.figure().axes


class TestPopulation:
    def test_delta_is_between_the_same_labels_and_one_label_each(self):
        rows = PopulationOptions((10, 10, 10), classes=2, delta=0.5).population().distributions
        assert rows.tolist() == [[0.75, 0.25], [0.25, 0.75], [0.75, 0.25]]

    def test_weights_follow_samples(self):
        assert PopulationOptions((100, 300)).population().weights.tolist() == [0.25, 0.75]

    def test_shares_come_from_a_file(self, tmp_path):
        file = tmp_path / "shares.csv"
        file.write_text("0.2,0.8\n1,0\n")
        rows = PopulationOptions((10, 10), shares=file).population().distributions
        assert rows.tolist() == [[0.2, 0.8], [1.0, 0.0]]

    @pytest.mark.parametrize(
        ("content", "rule"),
        [
            ("0.2,0.8\n", "shares must have 2 rows"),
            ("0.2,0.8\n0.5,0.6\n", "shares must be rows of probabilities"),
            ("0.2,0.8\n-0.5,1.5\n", "shares must be rows of probabilities"),
            ("0.2,0.8\nnan,0.5\n", "shares must be rows of probabilities"),
        ],
    )
    def test_shares_are_probabilities(self, tmp_path, content, rule):
        file = tmp_path / "shares.csv"
        file.write_text(content)
        with pytest.raises(InvalidValue, match=rule):
            PopulationOptions((10, 10), shares=file).population()

    def test_what_is_no_table_of_numbers_is_unreadable(self, tmp_path):
        file = tmp_path / "shares.csv"
        file.write_text("a,b\n")
        for path, said in ((file, "rows of numbers"), (tmp_path / "none.csv", "none.csv: No such file")):
            with pytest.raises(UnreadableFile, match=said):
                PopulationOptions((10, 10), shares=path).population()

    @pytest.mark.parametrize("counts", [(10,), (10, 0), (10, 0.5), (10, 2.5), (10, -1)])
    def test_counts_are_whole_samples_of_two_agents(self, counts):
        with pytest.raises(InvalidValue, match="counts"):
            PopulationOptions(counts)

    @pytest.mark.parametrize("chance", [0.0, 1.0, -0.1, math.nan, 5e-324])
    def test_the_chance_of_failure_is_a_probability(self, chance):
        for kind in (partial(PopulationOptions, (10, 10)), PromiseOptions):
            with pytest.raises(InvalidValue, match="failure_probability must be"):
                kind(failure_probability=chance)

    def test_bounds_that_may_fail_more_often_are_smaller(self):
        rare, often = (
            ask("join", AgentOptions(**ALIKE, failure_probability=chance)).data["risk_alone"]
            for chance in (0.01, 0.5)
        )
        assert rare > often

    def test_the_agent_is_one_of_them(self):
        with pytest.raises(InvalidValue, match=r"agent must be in 0\.\.1, got 2"):
            AgentOptions((10, 10), agent=2)


class TestJoin:
    def test_many_small_agents_that_are_alike_join(self):
        options = AgentOptions((10,) * 50)
        data = ask("join", options).data
        population = options.population()
        assert data["choice"] == "join"
        assert data["risk_alone"] == bounds.local_risk(population)[0]
        assert data["risk_together"] == bounds.federated_risk(population)[0]
        assert data["largest_payment"] == bounds.payment_upper_bound(1 / 50, math.sqrt(2), 0.1)
        assert data["risk_together"] + data["largest_payment"] < data["risk_alone"]

    def test_whoever_is_unlike_the_others_stays_alone(self):
        document = ask("join", AgentOptions((100_000,) * 3, delta=1.0))
        assert document.data["choice"] == "stay alone"
        assert "unlike the others'" in document.blocks[0]

    def test_the_payment_may_tip_the_balance(self):
        document = ask("join", AgentOptions((1000,) * 3, regulariser=0.1))
        data = document.data
        assert data["risk_together"] < data["risk_alone"] <= data["risk_together"] + data["largest_payment"]
        assert data["choice"] == "stay alone"
        assert "unless its payment turns out below" in document.blocks[0]


class TestFederateOrCluster:
    def test_agents_are_grouped_by_their_main_label(self):
        data = ask("federate-or-cluster", GroupOptions((10,) * 4, classes=2, delta=0.9)).data
        assert data["groups"] == [[0, 2], [1, 3]]

    def test_the_choice_has_the_smallest_bound(self):
        options = GroupOptions((200,) * 4, groups="0,1/2,3")
        data = ask("federate-or-cluster", options).data
        assert data["groups"] == [[0, 1], [2, 3]]
        assert data["bounds"] == bounds.federate_or_cluster(options.population(), [[0, 1], [2, 3]]).bounds
        assert data["choice"] == min(data["bounds"], key=data["bounds"].get) == "federate"

    @pytest.mark.parametrize("groups", ["", "/", "0,1//2,3", "0,x/1", "0,1/", "-1,0", "0;1"])
    def test_groups_are_lists_of_agents(self, groups):
        with pytest.raises(InvalidValue, match="groups must be groups of agents such as 0,1/2,3"):
            GroupOptions((10,) * 4, groups=groups)

    @pytest.mark.parametrize("groups", ["0,1/2", "0,1/1,2,3", "0,1/2,3,4"])
    def test_every_agent_is_in_one_group(self, groups):
        with pytest.raises(InvalidValue, match=r"groups must hold every agent 0\.\.3 once"):
            ask("federate-or-cluster", GroupOptions((10,) * 4, groups=groups))


class TestManipulation:
    def test_the_factor_minimises_the_bound(self):
        options = AgentOptions((10, 400, 400), delta=0.2)
        data, population = ask("manipulation", options).data, options.population()
        factor = data["best_factor"][0]
        assert factor > 1
        nearby = [bounds.manipulated_risk(population, factor * x)[0] for x in (0.9, 1.0, 1.1)]
        assert data["risk_manipulated"][0] == nearby[1] == min(nearby)
        assert data["risk_manipulated"][0] < data["risk_honest"][0]

    def test_a_factor_without_limit_is_the_risk_alone(self):
        options = AgentOptions((100_000,) * 3, delta=1.0)
        document = ask("manipulation", options)
        assert document.data["best_factor"] == [None] * 3
        assert np.array(document.data["risk_manipulated"]) == pytest.approx(
            bounds.local_risk(options.population())
        )
        assert "without limit" in document.blocks[0]


class TestClusters:
    def test_the_number_is_that_of_theorem_two(self):
        data = ask("clusters", ClusterOptions(agents=100, epsilon=50.0)).data
        assert data["clusters"] == cluster_count(100, 0.6, math.sqrt(2), 0.1, 50.0) < 100
        numbers = [row["clusters"] for row in data["table"]]
        assert numbers == sorted(numbers, reverse=True)

    def test_nothing_is_saved_where_every_agent_needs_its_own(self):
        document = ask("clusters", ClusterOptions(agents=10, epsilon=1e-3))
        assert document.data["clusters"] == 10
        assert "Nothing is saved" in document.blocks[0]


class TestPrivacyTradeoff:
    def test_much_data_makes_payments_usable(self):
        data = ask("privacy-tradeoff", PrivacyOptions(samples=10_000_000, delta=1e-9)).data
        assert data["usable"]
        assert data["payment_error"] <= data["payment_scale"]

    def test_little_data_needs_more_of_it_or_of_epsilon(self):
        document = ask("privacy-tradeoff", PrivacyOptions(samples=100, epsilon=2.0))
        assert not document.data["usable"]
        assert "Do not" in document.blocks[0]
        assert "would be enough" in document.blocks[0]
        table = document.data["table"]
        assert [row["epsilon"] for row in table] == sorted(row["epsilon"] for row in table)
        assert 2.0 in [row["epsilon"] for row in table]
        errors = [row["model_error"] + row["payment_error"] for row in table]
        assert errors == sorted(errors, reverse=True)  # more epsilon, less noise

    def test_noise_at_the_agents_costs(self):
        once, own = (
            ask("privacy-tradeoff", PrivacyOptions(samples=10_000, epsilon=5.0, noise_at=at)).data
            for at in ("sum", "client")
        )
        assert own["payment_error"] > 2 * once["payment_error"]
        assert own["noise_at"] == "client"

    @pytest.mark.parametrize("delta", [0.0, 1.0, 2.0])
    def test_delta_is_refused_under_its_own_name(self, delta):
        with pytest.raises(InvalidValue, match="delta"):
            PrivacyOptions(delta=delta)


class TestGroupsThatAreFound:
    APART = GroupOptions((200,) * 4, classes=4, delta=0.9)

    def test_they_are_the_best_of_all(self):
        data = ask("federate-or-cluster", self.APART).data
        best = best_clustering(self.APART.population())
        assert data["groups"] == [list(members) for members in best.clusters]
        assert data["bounds"]["cluster"] == best.bound
        assert data["assumption_3"] == {
            "holds": False, "all_searched": True, "least_bound": best.bound, "best_groups": data["groups"],
        }  # fmt: skip

    def test_whether_one_model_is_best_of_all_is_said(self):
        alike, apart = (
            str(ask("federate-or-cluster", options)) for options in (GroupOptions(**ALIKE), self.APART)
        )
        assert "Assumption 3 holds: of all clusterings, one model" in alike
        assert "Assumption 3 does not hold: of all clusterings, 0 / 1 / 2 / 3 has" in apart

    def test_of_many_agents_it_is_said_of_those_tried(self):
        assert "of the clusterings that were tried" in str(
            ask("federate-or-cluster", GroupOptions((50,) * 20, delta=0.9))
        )


def test_joining_has_the_bounds_of_proposition_7():
    options = AgentOptions((100, 400, 400), delta=0.2, agent=1)
    found = participation(options.population(), 1)
    assert ask("join", options).data["participation"] == {"alone": found.alone, "join": found.joining}


class TestFaithfulness:
    def test_the_bounds_are_those_of_the_propositions(self):
        options = PromiseOptions(agents=5, samples=300, epsilon=3.0, payment_error=0.01)
        agents, gap = options.population, math.log(10)
        found = ask("faithfulness", options).data["bounds"]
        assert found["without privacy"]["lie"] == faithfulness_bound(agents, 0.6, 80, gap, 0.01)
        assert found["without privacy"]["joining"] == participation_slack(agents, 0, 0.6, 80, gap, 0.01)
        terms = PrivateBoundTerms(0.6, math.sqrt(2), 3.0, 1e-5, gap, 0.01)
        assert found["private"]["lie"] == private_faithfulness_bound(agents, terms)
        assert found["private"]["joining"] == private_participation_slack(agents, terms)
        assert found["private"]["steps"] == terms.tradeoff(agents).steps

    def test_samples_and_steps_lower_what_a_lie_gains(self):
        def lie(**more):
            return ask("faithfulness", PromiseOptions(**more)).data["lie"]

        assert lie(samples=10_000) < lie() < lie(training_steps=1)
        assert lie(epsilon=1.0) > lie(epsilon=10.0) > lie()

    def test_a_bound_that_rules_nothing_out_is_called_vacuous(self):
        document = ask("faithfulness", PromiseOptions(epsilon=1.0))
        assert document.data["vacuous"] == {
            "without privacy": ["lie"],
            "private": ["lie", "model", "joining"],
        }
        assert document.blocks[1] == (
            "Vacuous without privacy: gained by a lie. Vacuous with privacy: gained by a lie, model above "
            "the best, joining above learning alone. A bound that is not below 2.303, all that training "
            "can lower the mean loss by, rules nothing out."
        )
        certain = PromiseOptions(samples=100_000, training_steps=200)
        assert ask("faithfulness", certain).data["vacuous"] == {"without privacy": []}
        assert "acuous" not in str(ask("faithfulness", certain))

    @pytest.mark.parametrize(
        "name", ["epsilon", "gradient_bound", "gap", "regulariser", "smoothness", "payment_error"]
    )
    def test_numbers_that_nothing_can_be_computed_with_are_refused(self, name):
        for value in (1e-300, 1e300, 1e31, 9e-31):
            with pytest.raises(InvalidValue, match=rf"{name} must be between 1e-30 and 1e\+30, got"):
                PromiseOptions(**{name: value})
        for value in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(InvalidValue, match=rf"{name} must be"):
                PromiseOptions(**{name: value})

    @pytest.mark.parametrize("samples", [1, 10**17])
    @pytest.mark.parametrize("chance", [1e-250, 1 - 1e-16])
    @pytest.mark.parametrize("size", [1e-30, 1e30])
    @pytest.mark.parametrize("epsilon", [1e-30, 1e30])
    def test_every_other_number_is_answered(self, samples, chance, size, epsilon):
        delta = min(chance, 0.5 / samples)
        for mu, smoothness in ((1e-30, 1e-20), (1e20, 1e30), (1e-30, 1.5e-30), (0.1, 0.6)):
            options = PromiseOptions(
                2, samples, 10**17, mu, smoothness, size, size, 10**17, size, chance, epsilon, delta
            )
            document = ask("faithfulness", options)
            assert np.isfinite([list(row.values()) for row in document.data["bounds"].values()]).all()
            assert document.figure().axes

    def test_delta_counts_only_where_there_is_privacy(self):
        assert PromiseOptions(samples=100_000, delta=0.5).epsilon is None
        with pytest.raises(InvalidValue, match="delta must be below 1/100,000"):
            PromiseOptions(samples=100_000, delta=0.5, epsilon=1.0)

    def test_smoothness_and_regulariser_fit_together(self):
        with pytest.raises(InvalidValue, match=r"smoothness must be at least the strong convexity, 0\.1"):
            ask("faithfulness", PromiseOptions(smoothness=0.05))
        for smoothness in (0.1, 1e15):
            with pytest.raises(
                InvalidValue, match="smoothness must be above the regulariser, and at most 1e"
            ):
                PromiseOptions(smoothness=smoothness, epsilon=1.0)

    def test_there_are_no_more_agents_than_fit_into_memory(self):
        with pytest.raises(InvalidValue, match="agents must not exceed 1000000, got 1000001"):
            PromiseOptions(agents=1_000_001)


def test_a_plan_is_for_a_model_of_all_classes_and_agents_that_can_be_counted():
    with pytest.raises(InvalidValue, match="parameters must be at least the number of classes, 10, got 9"):
        PrivacyOptions(parameters=9)
    with pytest.raises(InvalidValue, match="agents must not exceed 10000, got 10001"):
        PrivacyOptions(agents=10_001)
    assert math.isfinite(ask("privacy-tradeoff", PrivacyOptions(parameters=10)).data["payment_error"])


def test_many_classes_take_little_memory():
    rows = PopulationOptions((10, 10), classes=100_000, delta=1.0).population().distributions
    assert (rows.shape, rows.sum(1).tolist()) == ((2, 100_000), [1.0, 1.0])
    with pytest.raises(InvalidValue, match="classes must not exceed 100000, got 100001"):
        PopulationOptions((10, 10), classes=100_001)
