"""Ten organisations, from the example config to a statement each; cheated, in private, with a network."""

import json


def test_the_example_ends_with_a_statement_and_four_promises(trained):
    trained("--write-example", "faithful")
    said = trained("faithful.toml", "--folder", "shown")
    for text in (
        "Statement of shown",
        "efficiency",
        "faithfulness",
        "no worse than without paying",
        "budget balance",
    ):
        assert text in said
    assert said.count("holds") == 4
    assert "FAILS" not in said
    again = json.loads(trained("--resume", "shown", "--json"))
    columns = again["statement"]["columns"]
    assert len(columns["payment"]) == 10
    assert min(columns["payment"]) >= 0
    assert {"overall_loss", "loss_with_the_others_model", "loss_alone", "no_worse_than_alone"} < set(
        columns
    )
    assert again["test_accuracy"] > 0.85


def test_a_printed_protocol_says_what_it_does_not_keep(trained):
    trained("--write-example", "faithful")
    wrong = ["--set", "faithful.variant=printed", "--set", "faithful.training_steps=400"]
    said = trained("faithful.toml", *wrong, "--set", "faithful.regulariser=0.02")
    assert "FAILS" in said
    assert "overstating may pay" in said


def test_a_network_is_trained_and_paid_for_and_says_what_is_lost(trained):
    trained("--write-example", "faithful")
    network = ["--set", "model.name=small-cnn", "--set", "faithful.learning_rate=0.1"]
    short = ["--set", "faithful.training_steps=3", "--set", "faithful.payment_steps=2"]
    said = trained("faithful.toml", *network, *short)
    assert said.count("not promised") >= 3
    assert "is not convex: efficiency, faithfulness, participation and budget balance are not" in said


def test_privacy_is_stated_from_the_record(trained):
    trained("--write-example", "faithful")
    private = ["--set", "privacy.epsilon=10", "--set", "privacy.delta=1e-5"]
    said = json.loads(trained("faithful.toml", *private, "--set", "faithful.training_steps=30", "--json"))
    assert 9 < said["epsilon"] <= 10
    assert said["test_accuracy"] > 0.3
