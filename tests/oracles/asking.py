"""A federation of agents that a function answers for, by number."""

import numpy as np

from bonafed.learning.federation import Roster
from bonafed.learning.functions import FunctionFederation
from bonafed.learning.problems.agreed import FederatedProblem


def function_federation(ask, agents):
    """Agents 0, 1, ... asked by a function from models to reports, by number."""

    def by_task(tasks):
        said = ask({int(task.client): task.models for task in tasks})
        if not isinstance(said, dict):
            return said
        names = {int(task.client): task.identifier for task in tasks}
        return {names.get(k, k): answer for k, answer in said.items()}

    roster = Roster(tuple(map(str, range(agents))), np.ones(agents, dtype=np.int64))
    return FunctionFederation(roster, by_task)


def asked_problem(ask, weights, **agreed):
    """What such agents agreed on, and the federation that asks them: the first arguments of `faithful`."""
    return FederatedProblem(weights, **agreed), function_federation(ask, len(weights))
