"""A federation of agents that a function answers for, by number."""

import numpy as np

from bonafed.learning.federation import Roster, Slopes
from bonafed.learning.function_federation import FunctionFederation
from bonafed.learning.problems.agreed import FederatedProblem


def _sent(task):
    """The models, or those at the nodes of all ways where slopes are asked for."""
    if not isinstance(task.work, Slopes):
        return task.models
    starts, end = task.models[:-1], task.models[-1]
    nodes = np.array(task.work.nodes)[:, None]
    return np.concatenate([start + nodes * (end - start) for start in starts])


def _answer(task, said):
    """Reports, as the task wants them; what is none is passed on."""
    if not isinstance(task.work, Slopes) or np.shape(said) != np.shape(_sent(task)):
        return said
    ways = np.repeat(task.models[-1] - task.models[:-1], len(task.work.nodes), axis=0)
    return np.reshape((said * ways).sum(1), (len(task.models) - 1, -1))


def function_federation(ask, agents):
    """Agents 0, 1, ... asked by a function from models to reports, by number."""

    def by_task(tasks):
        said = ask({int(task.client): _sent(task) for task in tasks})
        if not isinstance(said, dict):
            return said
        asked = {int(task.client): task for task in tasks}
        return {
            asked[k].identifier if k in asked else k: _answer(asked[k], answer) if k in asked else answer
            for k, answer in said.items()
        }

    roster = Roster(tuple(map(str, range(agents))), np.ones(agents, dtype=np.int64))
    return FunctionFederation(roster, by_task)


def asked_problem(ask, weights, **agreed):
    """What such agents agreed on, and the federation that asks them: the first arguments of `faithful`."""
    return FederatedProblem(weights, **agreed), function_federation(ask, len(weights))
