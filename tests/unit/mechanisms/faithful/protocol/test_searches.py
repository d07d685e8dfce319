"""Sums without each agent: the digits of K sums formed one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.faithful import digits_problem

from bonafed.learning.problems.federation import ProblemFederation
from bonafed.mechanisms.faithful.protocol import searches
from bonafed.mechanisms.faithful.protocol.exchanges import Exchanges
from bonafed.mechanisms.faithful.protocol.searches import mixed, without_each


@given(st.integers(1, 3), st.integers(2, 8), st.integers(1, 5), st.integers(0, 99))
def test_sums_without_each_agent_are_those_formed_one_by_one(models, agents, size, seed):
    rng = np.random.default_rng(seed)
    weights, reports = rng.random(agents), rng.normal(size=(models, agents, size))
    weights[rng.random(agents) < 0.2] = 0.0  # those who are left out
    members = np.flatnonzero(weights)
    slow = [mixed(np.where(np.arange(agents) == k, 0.0, weights), reports) for k in members]
    found = without_each(weights, reports)
    assert found.shape == (members.size, models, size)
    assert all(np.array_equal(one, other) for one, other in zip(found, slow, strict=True))


@pytest.mark.parametrize("at_once", [1 << 22, 500])
def test_searches_without_each_agent_begin_where_each_alone_would(monkeypatch, at_once):
    monkeypatch.setattr(searches, "_AT_ONCE", at_once)
    problem = digits_problem(0.5)
    course = Exchanges(problem, ProblemFederation.of(problem), 1e-2)
    at = course.begin()
    while not at.payments:
        at = course.advance(at)
    log, place = at.log, at.log.row_of(at.model)
    for mix, search in zip(
        problem.without_each(), log.searches_without_each(problem.weights, place), strict=True
    ):
        alone = log.search(mix, place)
        for part in ("model", "gradient", "best_gradient", "steps", "changes"):
            assert np.array_equal(getattr(search, part), getattr(alone, part)), part
        assert search.mark == alone.mark


def test_reports_are_remembered_only_of_those_who_are_checked():
    problem = digits_problem(0.5)
    course = Exchanges(problem, ProblemFederation.of(problem), 1e-2)
    at = course.begin()
    while not at.payments:
        at = course.advance(at)
    assert at.said is None
