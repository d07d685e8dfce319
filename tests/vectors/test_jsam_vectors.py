"""Every number of jsam.json, reproduced by the library at 1e-9 (quadrature payments at 5e-6)."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from bonafed.economics import TruncatedExponential, Uniform
from bonafed.mechanisms.jsam import allocate, settle

HERE = Path(__file__).parent
DATA = json.loads((HERE / "jsam.json").read_text())
PRIORS = {"U(0,1)": Uniform(0.0, 1.0), "truncexp(1)[0.05,2]": TruncatedExponential(1.0, 0.05, 2.0)}


def name(v):
    return f"{v['prior']}-N{v['N']}-eta{v['eta']}-Q{v['Q']}"


ALL = pytest.mark.parametrize("v", DATA["vectors"], ids=name)
SMALL = pytest.mark.parametrize("v", [v for v in DATA["vectors"] if v["N"] == 5], ids=name)
LARGE = pytest.mark.parametrize("v", [v for v in DATA["vectors"] if v["N"] == 100], ids=name)


def near(expected, rel=1e-9):
    return pytest.approx(np.array(expected, dtype=float), rel=rel, abs=1e-12)


def settled(v, reports=None):
    return settle(v["c"] if reports is None else reports, PRIORS[v["prior"]], v["eta"], v["Q"])


def test_the_file_is_complete():
    assert [v["N"] for v in DATA["vectors"]] == [5] * 10 + [100] * 6
    assert len(DATA["dp_noise"]) == 24


def test_its_noise_multipliers_are_those_that_are_tested_beside():
    """dp_noise.json is read by test_privacy_vectors.py."""
    assert DATA["dp_noise"] == json.loads((HERE / "dp_noise.json").read_text())


@ALL
def test_plan(v):
    plan = settled(v).allocation
    assert plan.threshold == v["h"]
    assert plan.privacy == near(v["eps"])
    assert plan.total == near(v["B"])
    assert plan.objective == near(v["objective"])
    assert plan.distance == near(v.get("l1", 2 * (v["N"] - v["h"]) / v["N"]))


@SMALL
def test_virtual_costs_and_selection(v):
    virtual = PRIORS[v["prior"]].ironed_virtual_cost(v["c"])
    assert virtual == near(v["v"])
    plan = allocate(v["v"], v["eta"], v["Q"])
    assert plan.selection == near(v["p"])
    assert plan.privacy == near(v["eps"])
    assert plan.objective == near(v["objective"])


@LARGE
def test_leader_and_active_clients(v):
    selection = settled(v).allocation.selection
    assert int(np.argmax(selection)) == v["leader_index"] or v["h"] == v["N"]
    assert selection[v["leader_index"]] == near(v["p_leader"])
    assert np.flatnonzero(selection).tolist() == v["active_indices"]
    others = np.setdiff1d(v["active_indices"], [v["leader_index"]])
    assert selection[others] == near(np.full(others.size, 1 / v["N"]))


@ALL
def test_payments(v):
    done, rel = settled(v), 1e-9 if v["prior"].startswith("U") else 5e-6
    assert done.payment == near(v["payments_dsic"], rel)
    assert done.spend == near(v["sum_payments"], rel)


def state(v, client, report):
    """(h, leader, active) when one client reports something else."""
    reports = np.array(v["c"])
    reports[client] = report
    selection = allocate(PRIORS[v["prior"]].ironed_virtual_cost(reports), v["eta"], v["Q"]).selection
    return tuple(np.flatnonzero(selection)), int(np.argmax(selection))


@pytest.mark.parametrize("client", range(5))
@SMALL
def test_breakpoints(v, client):
    """Between the given reports nothing changes; 1e-6 to either side of each of them it differs.

    Where everybody is selected alike nobody leads; there the file counts the report that would lead.
    """
    given = v["payment_breakpoints"][client]
    ends = [v["c"][client], *given, v["c_max"]]
    pieces = [
        {state(v, client, z) for z in np.linspace(a + 1e-6, b - 1e-6, 9)}
        for a, b in itertools.pairwise(ends)
    ]
    assert all(len(piece) == 1 for piece in pieces)
    for (before, after), point in zip(itertools.pairwise(pieces), given, strict=True):
        all_alike = before == after and len(next(iter(before))[0]) == v["N"]
        assert before != after or (all_alike and point == near(min(np.delete(v["c"], client))))
