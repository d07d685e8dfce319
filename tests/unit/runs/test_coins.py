"""Runs with verifiable coins: anybody can recompute who took part, and every forgery is found."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.sealing import reseal

from bonafed import InvalidValue, UnreadableFile
from bonafed.contracts.roster import simulate
from bonafed.contracts.transcript import read_transcript
from bonafed.learning.function_federation import FunctionFederation
from bonafed.learning.noise import Reproducible
from bonafed.mechanisms.averaging import Averaging
from bonafed.runs import coins, folder, prepare, training
from bonafed.runs.private import private_folder
from bonafed.runs.summary import statement_of

CONTRACT = (
    "training.rounds=12",
    "sampling.prior=uniform:0.5,1.5",
    "sampling.total_budget=24",
    "sampling.coins=verifiable",
)
JSAM = (
    "training.rounds=12",
    "jsam.prior=uniform:0,1",
    "jsam.eta=1",
    "jsam.noise_scale=1",
    "jsam.clip=1",
    "jsam.clients_per_round=3",
    "jsam.noise=reproducible",
    "jsam.coins=verifiable",
)
KINDS = {"sampling": CONTRACT, "jsam": JSAM}


def fixed(seed=0):
    """Bytes that are the same every time, in the place of the operating system's."""
    return np.random.default_rng(seed).bytes


@pytest.fixture(params=KINDS)
def changes(request):
    return KINDS[request.param]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Where runs that have ended are kept, to be copied."""
    return tmp_path_factory.mktemp("ended")


@pytest.fixture
def run(make, small, tmp_path, changes, ended):
    """A run that has ended."""
    kept = ended / changes[-1] / "run"
    if not kept.exists():
        training.train(prepare.prepare(make(*changes), dataset=small), kept, entropy=fixed())
    return shutil.copytree(kept, tmp_path / "run")


def failing(place):
    """The check that fails, and what it says; whoever forged something made the digests fit."""
    if folder.is_finished(place):
        reseal(place)
    return [(check.claim, check.text) for check in coins.verify_run(place) if check.holds is False]


def rewrite(path, change):
    """A JSON file after a change."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def rewrite_round(place, number, change):
    lines = (place / "metrics.jsonl").read_text().splitlines()
    record = json.loads(lines[number - 1])
    change(record)
    lines[number - 1] = json.dumps(record)
    (place / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def participants(place):
    return [record["participants"] for record in folder.read_rounds(place)]


def test_a_run_can_be_verified(run, changes):
    assert failing(run) == []
    coin = [
        "agreement", "contract", "roster", "commitments", "chances", "participants", "deliveries", "spend"
    ]  # fmt: skip
    claims = [check.claim for check in coins.verify_run(run)]
    assert claims[: len(coin)] == coin
    assert claims[-2:] == ["participations", "amounts"]
    if changes == CONTRACT:
        assert claims[len(coin) : -2] == ["cost", "probability", "payment"]


def test_every_run_has_coins_of_its_own(make, small, tmp_path, changes):
    for name in ("one", "other"):
        training.train(prepare.prepare(make(*changes), dataset=small), tmp_path / name)
        assert failing(tmp_path / name) == []
    assert participants(tmp_path / "one") != participants(tmp_path / "other")


def test_while_it_runs_the_secret_is_not_in_the_folder(make, small, tmp_path, changes, kill_in):
    made = prepare.prepare(make(*changes), dataset=small)
    with pytest.raises(kill_in.error):
        training.train(made, tmp_path / "run", on_round=kill_in(5), entropy=fixed())
    secret = fixed()(32)
    for path in (tmp_path / "run").iterdir():
        assert secret not in path.read_bytes(), path
        assert secret.hex().encode() not in path.read_bytes(), path
    transcript = read_transcript(tmp_path / "run" / "coins.json")
    assert transcript.secret is None
    assert transcript.coins(secret).roster.digest == transcript.roster.digest
    kept = private_folder(tmp_path / "run") / "coins.secret"
    assert kept.read_bytes() == secret
    if os.name == "posix":
        assert kept.stat().st_mode & 0o777 == 0o600
        assert kept.parent.stat().st_mode & 0o777 == 0o700
    ((name, detail),) = failing(tmp_path / "run")
    assert (name, "secret must be opened" in detail) == ("commitments", True)


def test_killed_and_resumed_it_has_the_same_coins(make, small, tmp_path, changes, kill_in, ending):
    training.train(
        prepare.prepare(make(*changes), dataset=small), tmp_path / "whole" / "run", entropy=fixed()
    )
    made = prepare.prepare(make(*changes), dataset=small)
    with pytest.raises(kill_in.error):
        training.train(made, tmp_path / "run", on_round=kill_in(5), entropy=fixed())
    another = prepare.prepare(make(*changes), dataset=small)  # as a new process would
    training.train(another, tmp_path / "run", resume=True, entropy=fixed(9))
    assert ending(tmp_path / "run") == ending(tmp_path / "whole" / "run")
    assert failing(tmp_path / "run") == []
    assert not (private_folder(tmp_path / "run") / "coins.secret").exists()


def test_resumed_after_the_secret_was_opened(run, make, small, changes, ending):
    before = ending(run)
    (run / "summary.json").unlink()
    training.train(prepare.prepare(make(*changes), dataset=small), run, resume=True)
    assert ending(run) == before
    assert failing(run) == []


def test_without_the_secret_it_is_not_resumed(make, small, tmp_path, changes, kill_in):
    made = prepare.prepare(make(*changes), dataset=small)
    with pytest.raises(kill_in.error):
        training.train(made, tmp_path / "run", on_round=kill_in(5))
    kept = private_folder(tmp_path / "run") / "coins.secret"
    kept.write_bytes(bytes(32))
    with pytest.raises(InvalidValue, match="secret must be the one committed to in the contract"):
        training.train(made, tmp_path / "run", resume=True)
    kept.unlink()
    with pytest.raises(InvalidValue, match="must exist to resume: who is sampled in the rounds to come"):
        training.train(made, tmp_path / "run", resume=True)


def test_a_participant_removed_is_named(run):
    number = next(n for n, who in enumerate(participants(run), 1) if who)
    client = participants(run)[number - 1][0]
    rewrite_round(run, number, lambda record: record["participants"].pop(0))
    ((name, detail),) = failing(run)
    assert name == "participants"
    assert detail.startswith(f"round {number}: client {client} took part ")


def test_a_participant_added_is_named(run):
    rewrite_round(run, 3, lambda record: record["participants"].append("2"))
    ((name, detail),) = failing(run)
    assert name == "participants"
    assert detail.startswith("round 3: client 2 took part ")


def test_two_rounds_exchanged_are_found(run):
    who = participants(run)
    other = next(n for n in range(2, 13) if who[n - 1] != who[0])
    rewrite_round(run, 1, lambda record: record.update(participants=who[other - 1]))
    rewrite_round(run, other, lambda record: record.update(participants=who[0]))
    assert failing(run)[0][1].startswith("round 1: ")


def test_a_round_left_out_is_found(run):
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-1]))
    assert failing(run) == [("participants", "11 rounds are recorded, but 12 were agreed")]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda data: data.update(secret="00" * 32), "commitments"),
        (lambda data: data.update(secret=None), "commitments"),
        (lambda data: data.update(commitment="00" * 32), "contract"),
        (lambda data: data.update(contract="00" * 32), "contract"),
        (lambda data: data.update(rounds=11), "contract"),
        (lambda data: data.update(draws=4), "contract"),
        (lambda data: data["clients"].pop(), "chances"),
        (lambda data: data["clients"][1].update(nonce="00" * 32), "commitments"),
        (lambda data: data["clients"][1].update(nonce=None), "participants"),
        (lambda data: data["clients"][1].update(commitment="00" * 32), "commitments"),
        (lambda data: data["clients"][1].update(name="eve"), "commitments"),
        (lambda data: data["clients"][1].update(chance=0.123), "chances"),
        (lambda data: data["clients"].reverse(), "chances"),
    ],
)
def test_a_forged_transcript_is_found(run, change, name):
    rewrite(run / "coins.json", change)
    assert name in [found for found, _ in failing(run)]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda data: data["amounts"].__setitem__(0, 1 + data["amounts"][0]), "amounts"),
        (lambda data: data["columns"]["participations"].__setitem__(0, 99), "participations"),
        (lambda data: data["columns"].pop("participations"), "participations"),
        (lambda data: data["clients"].reverse(), "statement"),
    ],
)
def test_a_forged_statement_is_found(run, change, name):
    rewrite(run / "summary.json", lambda data: change(data["statement"]))
    assert [found for found, _ in failing(run)] == [name]


@pytest.mark.parametrize("changes", [CONTRACT])
@pytest.mark.parametrize("name", ["cost", "probability", "payment"])
def test_forged_terms_of_a_statement_are_found(run, name):
    def forge(data):
        data["statement"]["columns"][name][0] *= 1 + 1e-9

    rewrite(run / "summary.json", forge)
    ((claim, detail),) = failing(run)
    assert (claim, detail.startswith("client 0: ")) == (name, True)


@pytest.mark.parametrize("changes", [CONTRACT])
def test_payments_that_are_not_those_of_the_contract_are_found_with_all_that_follows(run):
    """Payment, amount and the money of every round are forged so that they agree with each other."""
    who = participants(run)

    def forge(data):
        statement = data["statement"]
        pay, times = statement["columns"]["payment"], statement["columns"]["participations"]
        pay[0] *= 7
        statement["amounts"][0] = int(100 * pay[0] * times[0])
        forge.payment = dict(zip(statement["clients"], pay, strict=True))

    rewrite(run / "summary.json", forge)
    for number, there in enumerate(who, 1):
        money = sum(forge.payment[client] for client in there)
        rewrite_round(run, number, lambda record, money=money: record.update(spend=money))
    assert [name for name, _ in failing(run)] == ["spend", "payment", "amounts"]


@pytest.mark.parametrize("changes", [CONTRACT])
def test_a_report_that_was_not_made_is_found(run):
    """The chances on the roster are those of the reports that clients saw before they revealed."""
    rewrite(run / "agreement.json", lambda data: data["reports"].update({"1": 0.51}))
    ((name, detail),) = failing(run)
    assert (name, detail.startswith("client 1: ")) == ("chances", True)


@pytest.mark.parametrize("changes", [CONTRACT])
def test_money_of_a_round_that_is_not_due_is_found(run):
    rewrite_round(run, 2, lambda record: record.update(spend=7.0))
    ((name, detail),) = failing(run)
    assert (name, detail.startswith("round 2: 7.0 were spent")) == ("spend", True)


def test_other_terms_in_the_config_are_found(run):
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(re.sub(r"(total_budget|eta) = .*", r"\1 = 25.0", text))
    assert [name for name, _ in failing(run)] == ["agreement"]


@pytest.mark.parametrize("key", ["participants", "failed"])
def test_what_is_no_list_of_names(run, key):
    rewrite_round(run, 2, lambda record: record.update({key: "all"}))
    reseal(run)
    with pytest.raises(UnreadableFile, match=f"{key} of round 2 must be a list of names"):
        coins.verify_run(run)


def busiest(place):
    names = [name for who in participants(place) for name in who]
    return max(sorted(set(names)), key=names.count)


@pytest.fixture
def unanswered(make, small, tmp_path, changes, ended, run):
    """The run with a client that did not answer in the even rounds."""
    kept = ended / f"unanswered {changes[-1]}" / "run"
    if not kept.exists():
        clients = prepare.prepare(make(*changes), dataset=small).federation(Reproducible(0))

        def ask(tasks):
            there = [t for t in tasks if t.client != busiest(run) or t.work.round_number % 2]
            return clients.replies(there) if there else {}

        reached = FunctionFederation(clients.members, ask, clients.report)
        training.train(
            prepare.prepare(make(*changes), dataset=small, federation=reached), kept, entropy=fixed()
        )
    return shutil.copytree(kept, tmp_path / "unanswered")


def missed(place):
    return [record["failed"] for record in folder.read_rounds(place)]


def delivering(place):
    (found,) = (check for check in coins.verify_run(place) if check.claim == "deliveries")
    return found


def test_who_did_not_deliver_is_not_paid_and_is_named(run, unanswered):
    count, who = sum(map(len, missed(unanswered))), busiest(run)
    assert count
    assert failing(unanswered) == []
    found = delivering(unanswered)
    assert found.holds is None  # no coin says so
    assert found.number == count
    assert found.text.startswith(f"{count} of ")
    assert f": {who} {count}." in found.text
    assert delivering(run).holds is True
    whole, less = (
        statement_of(folder.read_json(place, "summary.json"), place).row(who) for place in (run, unanswered)
    )
    assert less["sampled"] == whole["participations"]
    assert less["participations"] == whole["participations"] - count
    assert 0 < float(less["amount"]) < float(whole["amount"])


def test_money_for_what_was_not_delivered_is_found(unanswered):
    number = next(n for n, who in enumerate(missed(unanswered), 1) if who)
    rewrite_round(unanswered, number, lambda record: record.update(failed=[]))
    claims = [name for name, _ in failing(unanswered)]
    assert claims[0] == "spend"
    assert claims[-1] == "amounts"


def test_an_absence_claimed_afterwards_does_not_fit_the_money(run):
    number, who = next((n, who) for n, who in enumerate(participants(run), 1) if who)
    rewrite_round(run, number, lambda record: record.update(failed=[who[0]]))
    assert {"spend", "amounts"} <= {name for name, _ in failing(run)}
    assert delivering(run).number == 1  # and is told


def test_nobody_fails_more_often_than_it_takes_part(run):
    number = next(n for n, who in enumerate(participants(run), 1) if "0" not in who)
    rewrite_round(run, number, lambda record: record.update(failed=["0"]))
    (found,) = failing(run)
    assert found == ("deliveries", f"round {number}: client 0 failed 1 time, but was in 0")


def test_a_summary_without_a_statement(run):
    rewrite(run / "summary.json", lambda data: data.pop("statement"))
    reseal(run)
    with pytest.raises(UnreadableFile, match=r"summary\.json: must hold a statement"):
        coins.verify_run(run)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (CONTRACT[:-1], 'must be a run whose config says coins = "verifiable"'),
        (CONTRACT[:1], 'must be a run whose config says coins = "verifiable"'),
    ],
)
def test_other_runs_prove_nothing(make, small, tmp_path, given, message):
    training.train(prepare.prepare(make(*given), dataset=small), tmp_path / "run")
    with pytest.raises(InvalidValue, match=message):
        coins.verify_run(tmp_path / "run")


def test_coins_of_a_seed_are_what_they_were(make, small, tmp_path):
    """Old runs keep their numbers; and the seed says nothing of verifiable coins."""

    def who(name, *changes):
        made = prepare.prepare(make(*changes), dataset=small)
        training.train(made, tmp_path / name, entropy=fixed())
        return participants(tmp_path / name)

    seeded = who("seeded", *CONTRACT, "sampling.coins=seed")
    made = who("made", *CONTRACT)
    assert not (tmp_path / "seeded" / "coins.json").exists()
    assert seeded == who("again", *CONTRACT[:-1])
    assert made == who("other", *CONTRACT, "run.seed=8")
    assert made != seeded
    before = [folder.read_json(tmp_path / name, "agreement.json")["terms"] for name in ("seeded", "made")]
    assert before[0] == before[1]


def test_weights_are_those_of_unbiased_sampling(make, small):
    made = prepare.prepare(make(*CONTRACT), dataset=small)
    agreement = simulate(made.agreement, fixed())
    q = agreement.terms.probability
    for number in range(1, 13):
        who = made.mechanism.rules.participation(agreement, number)
        assert np.array_equal(who.weights, 1 / (4 * q[who.clients]))


def test_a_folder_with_a_file_of_that_name_is_not_taken(make, small, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "coins.json").write_text("mine")
    with pytest.raises(InvalidValue, match="must be new or empty"):
        training.train(prepare.prepare(make(*CONTRACT), dataset=small), tmp_path / "run")
    assert (tmp_path / "run" / "coins.json").read_text() == "mine"


def test_a_run_that_fails_at_once_leaves_nothing(make, small, tmp_path, monkeypatch, kill_in):
    def fail(*args, **kwargs):
        raise kill_in.error

    monkeypatch.setattr(Averaging, "advance", fail)
    with pytest.raises(kill_in.error):
        training.train(prepare.prepare(make(*CONTRACT), dataset=small), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_coins_noise_and_seed_are_separate_secrets(make, small, tmp_path, kill_in):
    made = prepare.prepare(make(*JSAM, "jsam.noise=secret", "run.seed=3"), dataset=small)
    with pytest.raises(kill_in.error):
        training.train(made, tmp_path / "run", on_round=kill_in(5))
    kept = {path.name: path.read_bytes() for path in private_folder(tmp_path / "run").iterdir()}
    assert kept["coins.secret"] != kept["noise.secret"]
    another = prepare.prepare(make(*JSAM, "jsam.noise=secret", "run.seed=3"), dataset=small)
    training.train(another, tmp_path / "run", resume=True)
    assert failing(tmp_path / "run") == []
    left = [path.name for path in private_folder(tmp_path / "run").iterdir()]
    assert not {"coins.secret", "noise.secret"} & set(left)


class Cut(BaseException):
    """The end of the process, between two steps of writing."""


def test_cut_short_at_any_step_of_writing_it_ends_with_coins_that_verify(
    make, small, tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # slow, and no process is really killed here
    changes = (*CONTRACT, "training.rounds=2")
    steps = 0
    while True:
        steps += 1
        place, left = tmp_path / str(steps), steps
        replace, unlink = Path.replace, Path.unlink

        def cut(step):
            def call(*args, **kwargs):
                nonlocal left
                left -= 1
                if left == 0:
                    raise Cut
                return step(*args, **kwargs)

            return call

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "replace", cut(replace))
            patch.setattr(Path, "unlink", cut(unlink))
            try:
                training.train(prepare.prepare(make(*changes), dataset=small), place)
            except Cut:
                pass
            else:
                break  # every step has had its turn
        began = folder.holds_run(place)
        training.train(prepare.prepare(make(*changes), dataset=small), place, resume=began)
        assert failing(place) == [], steps
        assert not (private_folder(place) / "coins.secret").exists()
    assert steps > 8


def test_a_secret_that_is_another_one_is_named(make, small, tmp_path, changes, kill_in):
    made = prepare.prepare(make(*changes), dataset=small)
    with pytest.raises(kill_in.error):
        training.train(made, tmp_path / "run", on_round=kill_in(2), entropy=fixed())
    (tmp_path / "run.private" / "coins.secret").write_bytes(bytes(32))
    with pytest.raises(InvalidValue, match=r"^\S*run\.private/coins\.secret must be the one committed to"):
        training.train(made, tmp_path / "run", resume=True)
