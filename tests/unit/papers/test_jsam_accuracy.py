"""Accuracy against money: a grid of runs that buy privacy, on a few digits."""

from dataclasses import replace

import numpy as np
import pytest

from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam import noise_scale
from bonafed.papers.cells import compute_all, run_cell
from bonafed.papers.jsam import accuracy as lab

BASE = replace(
    lab.SMOKE,
    clients=12,
    rounds=4,
    clients_per_round=3,
    money=(1.0,),
    similarity=(100.0,),
    mechanisms=("JSAM",),
)


def trained(folder, **changes):
    """What the one run of such a grid came to, and its facts."""
    (summary,) = compute_all(lab.cells(replace(BASE, **changes)), folder, 1).results.values()
    return summary, summary["statement"]["facts"]


def test_all_combinations_seed_by_seed():
    settings = replace(BASE, money=(1.0, 100.0), seeds=2, mechanisms=("JSAM", "USBM"))
    planned = lab.cells(settings)
    assert len(planned) == 8
    assert [place.seed for place in planned] == [0] * 4 + [1] * 4
    assert len({cell.folder for cell in planned.values()}) == 8
    faraway = lab.cells(replace(settings, similarity=(0.0,)))
    assert not {cell.folder for cell in planned.values()} & {cell.folder for cell in faraway.values()}


def test_large_sums_are_those_of_the_tables():
    both = lab.cells(replace(BASE, sums="both"))
    large = lab.cells(replace(BASE, sums="large"))
    assert [place.money for place in both] == [1.0, 0.0]
    ((place, cell),) = large.items()
    assert cell.folder == both[place].folder
    assert cell.arguments["tables"]["jsam"]["budget"] == 590.5221


def test_claims_of_figure_6_share_their_cells():
    small, both = lab.cells(lab.QUICK), lab.cells(replace(lab.QUICK, sums="both"))
    assert len(small) == 6 * 4 * 2 * 3
    assert {place: cell.arguments for place, cell in small.items()}.items() <= {
        place: cell.arguments for place, cell in both.items()
    }.items()


def test_a_run_is_the_same_every_time(tmp_path):
    changes = {"mechanisms": ("FSBM-50",), "money": (30.0,), "similarity": (0.0,)}
    one, two = (trained(tmp_path / name, **changes) for name in ("one", "two"))
    assert one[1] == two[1]
    assert one[0]["test_accuracy"] == two[0]["test_accuracy"]
    assert one[1]["clients_selected"] == 6


def test_nobody_gives_away_more_than_it_sold_and_no_sum_is_exceeded(tmp_path):
    for name in lab.SCHEMES:
        summary, facts = trained(tmp_path, mechanisms=(name,))
        assert facts["largest_epsilon_ratio"] <= 1
        assert 0.5 < summary["spend"] <= 1


def test_q_is_made_of_the_records_a_release_averages_and_the_cap_is_kept(tmp_path):
    (place,) = lab.cells(BASE)

    def facts(**own):
        tables = lab.tables(BASE, place)
        jsam = {name: value for name, value in tables["jsam"].items() if name != "noise_scale"}
        cell = run_cell("one", {**tables, "jsam": {**jsam, **own}})
        return compute_all({0: cell}, tmp_path, 1).results[0]["statement"]["facts"]

    free = facts(smoothness=0.5)
    smallest = free["records_per_release"]
    assert 1442 // 12 - 2 <= smallest <= 1442 // 12
    assert free["noise_scale"] == noise_scale(1e-5, 650, rounds=4, smoothness=0.5, records=smallest)
    same = facts(noise_scale=free["noise_scale"])
    assert same["payment"] == free["payment"]
    cap = max(free["epsilon_sold"]) / 2
    assert max(facts(smoothness=0.5, max_epsilon=cap)["epsilon_sold"]) == cap


def test_losses_differ_from_the_beginning(tmp_path):
    """BBM chooses by them; from weights of 0 all would be log(10)."""
    _, facts = trained(tmp_path, mechanisms=("BBM",))
    assert facts["clients_selected"] == 6
    _, other = trained(tmp_path, mechanisms=("BBM",), seed=1)
    assert np.flatnonzero(facts["selection"]).tolist() != np.flatnonzero(other["selection"]).tolist()


def test_differences_are_taken_seed_by_seed():
    accuracies = {"JSAM": (0.5, 0.7), "USBM": (0.4, 0.2), "JSAM-CI": (0.6, 0.6)}
    facts = {"facts": {"clients_selected": 3, "epsilon_sold": [1.0, 2.0]}}
    results = {
        lab.AccuracyPoint(name, 1.0, 100.0, seed): {
            "test_accuracy": value,
            "spend": 0.9,
            "statement": facts,
        }
        for name, values in accuracies.items()
        for seed, value in enumerate(values)
    }
    settings = replace(BASE, mechanisms=tuple(accuracies), seeds=2)
    first = lab.rows(settings, results)[0]
    assert (first["mechanism"], first["money"], first["largest_epsilon"]) == ("JSAM", 0.9, 2.0)
    assert first["over_usbm"] == pytest.approx(0.3)
    assert first["over_usbm_se"] == pytest.approx(0.2)
    assert first["over_ci"] == pytest.approx(0.0)
    assert first["ahead_of_ci"] == 0.5
    assert "over_best" not in first  # some baselines are missing
    turned = lab.rows(replace(settings, read="one for all"), results)[0]
    assert turned["over_usbm"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"money": -1.0}, r"^money must be positive, got -1\.0"),
        ({"mechanisms": "best"}, r"^mechanisms must be one of JSAM"),
        ({"similarity": 101.0}, r"^similarity must be between 0 and 100"),
        ({"seeds": 0}, r"^seeds must be"),
        ({"money": ()}, r"^money must have at least one entry"),
    ],
)
def test_what_is_no_grid_is_refused(change, message):
    with pytest.raises(InvalidValue, match=message):
        replace(BASE, **change)
