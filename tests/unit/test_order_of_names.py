"""Clients are listed in one order, wherever their names come from: the same seed draws the same clients."""

from types import SimpleNamespace

import numpy as np

from bonafed.learning.data.datasets import from_arrays
from bonafed.learning.sections import Data, Model, Partition, Run
from bonafed.mechanisms.protocol import Config
from bonafed.remote.server import federation
from bonafed.runs.data import hold

GIVEN = ("ward 10", "ben", "ward 9", "10", "9", "Ada")
IN_ORDER = ("9", "10", "Ada", "ben", "ward 9", "ward 10")


def held(kind):
    groups = np.repeat(GIVEN, 4)
    data = from_arrays("mine", np.ones((24, 2)), np.arange(24) % 2, groups=groups, classes=2)
    config = Config("fedavg", Data("mine"), Partition(kind, 6), Model("softmax"), run=Run(seed=0))
    return hold(config, data)


def test_owners_of_records_in_a_table():
    assert held("natural").roster().names == IN_ORDER


def test_names_of_reports():
    assert held("iid").roster(GIVEN).names == IN_ORDER


def test_members_of_a_federation():
    """In whatever order their answers come, and whatever the order of the roster."""
    facts = {"records": 4, "shape": [2], "classes": 2, "class_names": [], "vocabulary": 0}
    facts |= {"feature_bound": None, "smoothness": None, "strong_convexity": None}
    for names in (GIVEN, GIVEN[::-1]):
        answers = {name: SimpleNamespace(message=SimpleNamespace(content=facts)) for name in names}
        assert federation._roster(answers, print).names == IN_ORDER
