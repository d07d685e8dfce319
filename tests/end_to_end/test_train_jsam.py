"""Privacy bought, trained with, and accounted for: digits from a config file."""

import json

import numpy as np


def facts(text):
    """A summary with what its statement says beside it."""
    summary = json.loads(text)
    statement = summary["statement"]
    return {
        **summary,
        "outcome": summary["budget"],
        **statement["facts"],
        "epsilon_per_client": statement["columns"]["epsilon"],
    }


def test_ten_clients_sell_their_privacy_and_the_model_learns(trained):
    trained("--write-example", "jsam")
    quiet = ["--json", "--set", "run.evaluate_every=100", "--set", "run.checkpoint_every=100"]
    said = facts(trained("jsam.toml", "--folder", "bought", *quiet))
    same_each_time = ["--set", "jsam.noise=reproducible"]  # of secret noise no single run promises anything
    learned = json.loads(trained("jsam.toml", "--folder", "learned", *quiet, *same_each_time))
    assert learned["test_accuracy"] >= 0.7
    assert said["eta"] == 60
    assert max(said["epsilon_sold"]) == said["max_epsilon"] == 5  # a privacy worth buying
    (chosen,) = said["notes"]  # and nothing else: exactly truthful
    assert chosen.startswith(
        "what [training] leaves out is chosen for the noise: batches of all records, 1 step a"
    )
    sold, given = np.array(said["epsilon_sold"]), np.array(said["epsilon_per_client"])
    assert np.all(given <= sold)
    assert said["largest_epsilon_ratio"] <= 1
    assert np.all(np.array(said["payment"]) >= np.array(said["reports"]) * sold * (1 - 1e-12))
    assert sum(said["times_drawn"]) == 30 * 5
    hard = ["--set", "jsam.eta=", "--set", "jsam.budget=0.5"]
    dear = facts(trained("jsam.toml", "--folder", "dear", *quiet, *hard))
    assert dear["spend"] <= dear["budget"] == dear["outcome"]["budget"] == 0.5
    assert dear["outcome"]["verdict"] == "holds"
    assert dear["notes"][0].startswith("a hard budget depends on the reports")
    assert dear["clients_selected"] < said["clients_selected"]
    assert max(dear["times_drawn"]) > 30  # drawn more often than there are rounds
    assert np.all(np.array(dear["epsilon_per_client"]) <= np.array(dear["epsilon_sold"]))
    assert dear["test_accuracy"] < said["test_accuracy"]
