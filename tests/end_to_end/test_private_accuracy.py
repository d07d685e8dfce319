"""A private run learns whatever its batch size, and keeps its promise: digits, 10 clients, epsilon 8."""

import os
from pathlib import Path

import pytest

from bonafed.runs import config, prepare, toml, training


def accuracy(tmp_path, batch_size, **privacy):
    tables = {
        "data": {"name": "digits"},
        "partition": {"kind": "iid", "clients": 10},
        "model": {"name": "softmax"},
        "training": {"rounds": 20, "batch_size": batch_size, "epochs": 1, "learning_rate": 0.5},
        "privacy": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5, "noise": "reproducible", **privacy},
        "run": {"cores": 1, "evaluate_every": 20},
    }
    made = prepare.prepare(config.from_tables(tables))
    summary = training.train(made, tmp_path / "run").summary
    assert 7.9 < summary["epsilon"] <= 8
    return summary["test_accuracy"]


@pytest.mark.parametrize(("batch_size", "reached"), [(150, 0.85), (144, 0.85), (143, 0.85), (72, 0.83)])
def test_a_ragged_last_batch_does_no_harm(tmp_path, batch_size, reached):
    """Clients have 143 or 144 records: averaged over what it holds, a last batch of one ruins the run."""
    assert accuracy(tmp_path, batch_size) > reached


def test_batches_by_coins_learn_as_well(tmp_path):
    assert accuracy(tmp_path, 36, batches="poisson") > 0.85


def test_what_a_run_chooses_beats_the_example_at_the_same_epsilon():
    """Digits, 10 clients, epsilon 1 and 2, two seeds or four: by 10 points at least, and not by luck."""
    seeds = 4 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 2
    for epsilon in (1.0, 2.0):
        usual = {"rounds": 20, "learning_rate": 0.2, "batch_size": 16, "epochs": 2}  # examples/fedavg.toml
        gains = [
            private(epsilon, seed, {"rounds": 20}) - private(epsilon, seed, usual) for seed in range(seeds)
        ]
        assert min(gains) > 0
        assert sum(gains) / seeds > 0.1


def private(epsilon, seed, trained):
    tables = {
        "data": {"name": "digits"},
        "partition": {"kind": "iid", "clients": 10},
        "model": {"name": "softmax"},
        "training": trained,
        "privacy": {"clip": 1.0, "epsilon": epsilon, "delta": 1e-5, "noise": "reproducible"},
        "run": {"cores": 1, "seed": seed, "evaluate_every": 100},
    }
    summary = training.train(prepare.prepare(config.from_tables(tables))).summary
    assert summary["epsilon"] <= epsilon
    return summary["test_accuracy"]


def test_the_demo_leaves_training_open_and_bought_privacy_learns():
    """What `make demo` compares, under [jsam], with noise that is the same every time."""
    tables = toml.loads((Path(__file__).parents[2] / "docs/demo/federation.toml").read_text())
    assert tables["training"] == {"rounds": 20}
    asked = tables.pop("compare")
    tables["jsam"] = {
        "prior": asked["sensitivities"], "expected_budget": asked["budget"], "clip": asked["clip"],
        "max_epsilon": asked["max_epsilon"], "smoothness": 0.5, "clients_per_round": 5,
        "noise": "reproducible",
    }  # fmt: skip
    made = prepare.prepare(config.from_tables({**tables, "run": {"cores": 1, "evaluate_every": 20}}))
    assert {"batch_size": 289, "steps": 1, "learning_rate": 4.0}.items() <= made.chosen.items()
    assert training.train(made).summary["test_accuracy"] >= 0.8
