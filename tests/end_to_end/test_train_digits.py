"""From a config file to a model that reads digits, alone, under a contract, and in private."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bonafed.learning import models
from bonafed.learning.data import datasets


@pytest.fixture
def train(trained):
    """train(example, change, ..., folder=...): the summary of a run in an empty folder."""

    def run(example, *changes, folder="run"):
        if not Path(f"{example}.toml").exists():
            trained("--write-example", example)
        settings = [word for change in changes for word in ("--set", change)]
        return json.loads(trained(f"{example}.toml", "--json", "--folder", folder, *settings))

    return run


def test_federated_averaging_of_ten_clients_passes_90_percent(train):
    said = train("fedavg")
    assert said["clients"] == 10
    assert said["test_accuracy"] >= 0.93
    data = datasets.load("digits")
    model = models.build("softmax", (1, 8, 8), 10, seed=0)
    model.load_state_dict(torch.load("run/model.pt", weights_only=True))
    with torch.no_grad():
        guess = model(torch.tensor(data.test_features)).argmax(1).numpy()
    assert np.mean(guess == data.test_labels) == pytest.approx(said["test_accuracy"], abs=1e-9)


def test_sampled_training_learns_for_about_its_budget(train):
    spent = {}
    for scheme in ("optimal", "uniform", "complete information"):
        said = train(
            "sampling", f"sampling.scheme={scheme}", "run.evaluate_every=40", "run.checkpoint_every=40",
            folder=scheme,
        )  # fmt: skip
        assert said["test_accuracy"] >= 0.85
        spent[scheme] = said["spend"]
        totals, columns = said["statement"]["totals"], said["statement"]["columns"]
        assert abs(said["spend"] - totals["expected_spend"]) < 0.2 * totals["budget"]
        assert np.all(np.array(columns["payment"]) >= np.array(columns["cost"]) * (1 - 1e-12))
    assert len(set(spent.values())) == 3


def test_a_private_run_reports_the_epsilon_that_was_asked(train):
    said = train(
        "fedavg", "privacy.clip=1", "privacy.epsilon=8", "privacy.delta=1e-5", "training.batch_size=150",
        "training.rounds=15", "training.epochs=1", "training.learning_rate=1",
    )  # fmt: skip
    assert 7.99 < said["epsilon"] <= 8
    assert said["statement"]["columns"]["epsilon"] == [said["epsilon"]] * 10
    assert said["test_accuracy"] >= 0.6
