import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bonafed.errors import InvalidValue, NoSolution
from bonafed.mechanisms.faithful import SoftmaxRegression, minimise, random_clusters, train, vcg_payments
from bonafed.mechanisms.faithful.adversaries.agents import amplify
from bonafed.mechanisms.faithful.protocol.reports import Watch
from bonafed.papers.cells import data_digest
from bonafed.papers.faithful import cases as cells
from bonafed.papers.faithful.cases import Case, outcome
from bonafed.papers.faithful.curves import cell_of


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
            cells.draw(Case("local", samples=30, data=str(path), agents=3))


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
        problem, found = problem_of(base), outcome(base)
        shared = minimise(problem, problem.weights)
        exact = vcg_payments(problem, shared)
        np.testing.assert_allclose(found.payment, exact.amount, atol=1e-5)
        np.testing.assert_allclose(found.loss, problem.losses(shared[None])[0], atol=1e-4)
        assert min(found.payment) > 0.001  # far above the tolerance
        np.testing.assert_allclose(found.overall, np.add(found.loss, found.payment))
        assert found.smallest == problem.counts.min()

    def test_manipulation_is_the_fixed_point_of_amplified_reports(self, base):
        cell = replace(base, scheme="manipulated", manipulator=2, factor=3.0)
        problem = problem_of(cell)
        reached, _ = train(problem, {2: amplify(3.0)}, 3000, watch=Watch(problem, "numbers"))
        np.testing.assert_allclose(outcome(cell).loss, problem.losses(reached[None])[0], atol=1e-3)

    def test_it_serves_the_one_and_harms_the_federation(self, base):
        honest = outcome(base)
        for factor in (3.0, 30.0):
            cell = replace(base, scheme="manipulated", manipulator=2, factor=factor)
            cheated = outcome(cell)
            assert cheated.loss[2] < honest.loss[2]
            assert np.mean(cheated.loss) > np.mean(honest.loss)
            assert set(cheated.payment) == {0.0}

    def test_local_learning_is_never_worse_on_the_training_loss(self, base):
        """Spec A.2, fact 5: J_k >= F_k(w*) >= min F_k, for every agent."""
        local, shared = outcome(replace(base, scheme="local")), outcome(base)
        assert np.all(np.less(local.loss, shared.loss))
        assert np.all(np.less(shared.loss, shared.overall))

    def test_local_losses_are_each_agents_own_minimum(self, base):
        problem = problem_of(base)
        least = [problem.value(minimise(problem, problem.one(k)), problem.one(k)) for k in range(4)]
        np.testing.assert_allclose(outcome(replace(base, scheme="local")).loss, least, atol=1e-6)

    def test_cluster_payments_are_at_most_vcg(self, base):
        """Erratum F-D11: the cluster's model is not the best one without k."""
        exact, pairs = outcome(base), outcome(replace(base, clusters=2))
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
        cell = replace(base, scheme="private", alpha=2.0, training_steps=10, payment_steps=3)
        found = outcome(cell)
        assert 1.99 < found.epsilon <= 2.0 * (1 + 1e-9)
        assert outcome(cell) == found
        assert outcome(replace(cell, seed=1)).loss != found.loss

    def test_steps_end_after_as_many_as_were_asked_for(self, base):
        """Algorithm 1 by hand: the model after T_1 steps, and the sum of T_2 pieces per payment."""
        cell = replace(base, scheme="stepwise", training_steps=7, payment_steps=3)
        problem, found = problem_of(base), outcome(cell)
        w = np.zeros(problem.size)
        for _ in range(7):
            w = w - problem.gradient(w[None], problem.weights[None])[0] / problem.smoothness
        np.testing.assert_allclose(found.loss, problem.losses(w[None])[0])
        for k, mix in enumerate(problem.without_each()):
            at, owed = w, 0.0
            for _ in range(3):
                before = problem.gradient(at[None], mix[None])[0]
                moved = at - before / (0.75 * problem.smoothness)
                owed += (at - moved) @ (before + problem.gradient(moved[None], mix[None])[0]) / 2 / 0.25
                at = moved
            assert found.payment[k] == pytest.approx(owed)

    def test_without_privacy_to_speak_of_it_is_gradient_descent(self, base):
        cell = replace(base, scheme="private", alpha=1e9, training_steps=50, payment_steps=5)
        problem = problem_of(base)
        reached, _ = train(problem, None, 50)
        np.testing.assert_allclose(outcome(cell).loss, problem.losses(reached[None])[0], atol=1e-3)


class TestFreshSamples:
    @pytest.mark.parametrize("scheme", ["faithful", "local"])
    def test_an_agent_is_tested_on_its_own_distribution(self, base, scheme):
        """The slow way: every test sample's loss, weighted by how likely the agent is to draw it."""
        cell = replace(base, scheme=scheme)
        share, problem = cells.draw(cell), problem_of(cell)
        found = outcome(cell)
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
            ({"samples": 3}, r"^samples must be at least the 4 agents, got 3"),
            ({"delta": 1.5}, r"^delta must be"),
            ({"regulariser": 0.0}, r"^regulariser must be positive"),
            ({"seed": -1}, r"^seed must be"),
            ({"clusters": 1}, r"^clusters must be a whole number of at least 2, got 1"),
            ({"clusters": 5}, r"^clusters must be in 2\.\.4, got 5"),
            ({"scheme": "private"}, r'^alpha must be set for "private", and for no other scheme, got None'),
            ({"alpha": 1.0}, r"^alpha must be set for"),
            ({"scheme": "manipulated"}, r'^factor must be set for "manipulated"'),
            ({"scheme": "manipulated", "factor": 2.0, "manipulator": 4}, r"^manipulator must be in 0\.\.3"),
            ({"scheme": "private", "alpha": 0.0}, r"^alpha must be positive"),
            ({"training_steps": 0}, r"^training_steps must be"),
            ({"payment_steps": 1.5}, r"^payment_steps must be"),
            ({"scheme": "manipulated", "factor": -1.0}, r"^factor must be positive"),
            ({"manipulator": -1}, r"^manipulator must be"),
        ],
    )
    def test_are_refused_by_name(self, base, changes, message):
        with pytest.raises(InvalidValue, match=message):
            replace(base, **changes)


class TestCells:
    def test_a_cell_is_the_outcome_of_its_case(self, base, tmp_path):
        cell = cell_of(replace(base, scheme="local"))
        assert cell.compute(json.loads(json.dumps(cell.arguments)), tmp_path) == asdict(
            outcome(replace(base, scheme="local"))
        )

    def test_another_file_of_the_same_name_is_another_cell(self, base, blobs, tmp_path):
        copy = tmp_path / "own.npz"
        copy.write_bytes(Path(blobs).read_bytes())
        before = cell_of(replace(base, data=str(copy))).folder
        assert cell_of(replace(base, data=str(copy))).folder == before
        parts = dict(np.load(copy))
        np.savez(copy, **{**parts, "features": parts["features"] + 1})
        data_digest.cache_clear()  # of this process: it takes files to stay as they are
        assert cell_of(replace(base, data=str(copy))).folder != before
