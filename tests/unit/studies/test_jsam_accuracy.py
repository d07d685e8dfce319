"""Accuracy against money: a grid of runs that buy privacy, on a few digits."""

from dataclasses import replace

import numpy as np
import pytest

from bonafed.errors import InvalidValue
from bonafed.learning import datasets
from bonafed.learning.partition import owners, partition
from bonafed.mechanisms.jsam import noise_scale
from bonafed.studies import grid
from bonafed.studies.jsam import accuracy as lab

BASE = lab.Accuracy(
    data="digits", clients=12, rounds=4, clients_per_round=3, money=(1.0,), similarity=(100.0,), seeds=1,
    schemes=("jsam",), cores=1,
)  # fmt: skip


def trained(folder, **changes):
    """What the one run of such a grid came to, and its facts."""
    ((_, planned),) = lab.cells(replace(BASE, **changes)).items()
    place = folder / planned.folder
    summary = grid.read(place) or grid.train(planned, place, lambda _: None)
    return summary, summary["statement"]["facts"]


def test_all_combinations_seed_by_seed():
    options = replace(BASE, money=(1.0, 100.0), seeds=2, schemes=("jsam", "unbiased"))
    planned = lab.cells(options)
    assert len(planned) == 8
    assert [place.seed for place in planned] == [0] * 4 + [1] * 4
    assert len({cell.folder for cell in planned.values()}) == 8
    faraway = lab.cells(replace(options, similarity=(0.0,)))
    assert not {cell.folder for cell in planned.values()} & {cell.folder for cell in faraway.values()}


def test_a_study_is_taken_up_where_it_was_left(tmp_path):
    options = replace(BASE, out=tmp_path, money=(1.0, 100.0), seeds=2, schemes=("jsam", "unbiased"))
    told = []

    def stop(text):
        told.append(text)
        if len(told) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grid.run(lab.STUDY, options, stop)
    assert len(list(tmp_path.iterdir())) == 3 + 3  # what only a simulation knows lies beside a run
    document = grid.run(lab.STUDY, options, told.append)
    assert told[3] == "4 of 8: jsam s 100, money 100, USBM, seed 0"
    assert told[4] == "1 of 5: jsam s 100, money 100, USBM, seed 0"
    assert len(told) == 4 + 5  # nothing twice
    (table, kept, settings) = document.blocks
    assert [column.name for column in table.columns] == [
        "s", "money", "JSAM (clients, epsilon)", "USBM (clients, epsilon)", "JSAM - USBM",
    ]  # fmt: skip
    assert str(table).count("±") == 6
    assert kept.startswith("Nobody gave away more than")
    assert settings == (
        "Not the paper's settings, so its numbers are not to be expected: data digits (there mnist), model "
        "softmax (there a CNN), clients 12 (there 100), clients per round 3 (there 10), rounds 4 (there "
        "1,000), clip 1 (there 6)."
    )
    assert document.figure().axes
    assert all(row["spend"] <= row["money"] for row in document.data["rows"])
    again = grid.run(lab.STUDY, options, lambda text: pytest.fail(f"was done before: {text}"))
    assert again.data == document.data


def test_a_run_is_the_same_every_time_whatever_the_cores(tmp_path):
    changes = {"schemes": ("cheapest",), "members": 5, "money": (30.0,), "similarity": (0.0,)}
    one, two = (trained(tmp_path / str(cores), cores=cores, **changes) for cores in (1, 2))
    assert one[1] == two[1]
    assert one[0]["test_accuracy"] == two[0]["test_accuracy"]
    assert one[1]["clients_selected"] == 5


def test_q_is_made_of_the_records_a_release_averages_and_the_cap_is_kept(tmp_path):
    data = datasets.load("digits")
    summary, free = trained(tmp_path)
    rng = np.random.default_rng(np.random.SeedSequence((0, 100_000)))
    parts = partition("similarity", data.labels, 12, rng, s=100.0)
    dealt = lab._with_owners("digits", 12, 100.0, 0)
    np.testing.assert_array_equal(dealt.groups, owners(parts))
    smallest = min(part.size for part in parts)
    assert free["noise_scale"] == noise_scale(1e-5, 650, rounds=4, smoothness=0.5, records=smallest)
    same, _ = trained(tmp_path, noise_scale=free["noise_scale"])
    assert same["test_accuracy"] == summary["test_accuracy"]
    assert same["spend"] == summary["spend"]
    cap = max(free["epsilon_sold"]) / 2
    capped, facts = trained(tmp_path, max_epsilon=cap)
    assert max(facts["epsilon_sold"]) == cap
    assert facts["largest_epsilon_ratio"] <= 1
    assert capped["spend"] <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"money": -1.0}, r"^money must be positive, got -1\.0"),
        ({"schemes": "best"}, r"^schemes must be one of jsam"),
        ({"similarity": 101.0}, r"^similarity must be between 0 and 100"),
        ({"seeds": 0}, r"^seeds must be"),
        ({"money": ()}, r"^money must have at least one entry"),
    ],
)
def test_what_is_no_grid_is_refused(change, message):
    with pytest.raises(InvalidValue, match=message):
        replace(BASE, **change)
