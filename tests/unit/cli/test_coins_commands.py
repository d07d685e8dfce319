"""Coins on the command line: the steps of server and clients, and everybody's check."""

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.oracles.sealing import reseal

from bonafed.contracts.transcript import check_rounds, read_transcript

NAMES = ("ada", "ben", "[red]eve[/]")
COSTS = ("0.6", "0.7", "0.8")
QUOTE = [
    "quote",
    "sampling",
    "--prior",
    "uniform:0.5,1.5",
    "--clients",
    "3",
    "--rounds",
    "50",
    "--budget",
    "75",
]
FREE = [
    "quote",
    "sampling",
    "--prior-free",
    "--highest",
    "1.5",
    "--clients",
    "3",
    "--rounds",
    "50",
    "--budget",
    "75",
]


def nonce_file(name):
    return f"{NAMES.index(name)}.nonce"


@pytest.fixture
def agreed(bonafed):
    """agreed(): a contract, commitments, a roster and what was revealed, in the current folder."""

    def made(quote=QUOTE):
        assert bonafed(*quote, "--save", "contract.json", "--commit-coins", "server.secret")[0] == 0
        rows = ["client,cost,commitment"]
        for name, cost in zip(NAMES, COSTS, strict=True):
            words = ["--client", name, "--save", nonce_file(name), "--json"]
            said = json.loads(bonafed("coins", "nonce", "contract.json", *words)[1])
            rows.append(f"{name},{cost},{said['commitment']}")
        Path("stated.csv").write_text("\n".join(rows) + "\n")
        words = ["--reports", "stated.csv", "--save", "roster.json"]
        code, _, err = bonafed("coins", "roster", "contract.json", *words)
        assert code == 0, err
        revealed = [f"{name},{Path(nonce_file(name)).read_text().strip()}" for name in NAMES]
        Path("revealed.csv").write_text("client,nonce\n" + "\n".join(revealed) + "\n")

    return made


SERVER = ["--nonces", "revealed.csv", "--secret", "server.secret"]


@pytest.mark.parametrize("quote", [QUOTE, FREE], ids=["prior", "prior-free"])
def test_from_contract_to_verification(bonafed, agreed, quote):
    agreed(quote)
    assert bonafed("verify", "contract.json")[0] == 0
    own = ["--roster", "roster.json", "--client", "ada", "--nonce", "0.nonce", "--cost", "0.6"]
    said = json.loads(bonafed("coins", "reveal", "contract.json", *own, "--json")[1])
    assert said["nonce"] == Path("0.nonce").read_text().strip()
    assert bonafed("coins", "toss", "roster.json", *SERVER, "--save", "who.csv")[0] == 0
    assert bonafed("coins", "open", "roster.json", *SERVER, "--save", "coins.json")[0] == 0
    code, out, _ = bonafed("verify", "contract.json", "--coins", "coins.json")
    assert code == 0
    assert "Every check holds" in out
    assert said["roster"] in out.replace("\n", "").replace("│", "").replace(" ", "")
    assert "[red]eve[/]" in out  # a name is shown, not obeyed
    coins = read_transcript("coins.json").coins()
    assert coins.roster.digest == said["roster"]
    assert bonafed("coins", "toss", "coins.json", "--save", "again.csv")[0] == 0
    assert Path("again.csv").read_bytes() == Path("who.csv").read_bytes()
    rounds = json.loads(bonafed("coins", "toss", "coins.json", "--json")[1])["rounds"]
    assert check_rounds(coins, rounds).holds
    lines = Path("who.csv").read_text().splitlines()
    assert lines[0] == "round,client"
    assert len(lines) == 1 + sum(map(len, rounds))


def test_who_does_not_reveal_is_listed_as_not_admitted(bonafed, agreed):
    agreed()
    lines = Path("revealed.csv").read_text().splitlines()
    Path("revealed.csv").write_text("\n".join(lines[:-1]) + "\n")
    code, out, err = bonafed("coins", "toss", "roster.json", *SERVER)
    assert (code, err) == (0, "")
    (line,) = (line for line in out.splitlines() if NAMES[-1] in line)
    assert "not admitted: its nonce was not revealed" in line
    assert out.count("not admitted") == 1


def test_secrets_are_new_files_for_their_owner_alone(bonafed, agreed):
    agreed()
    if os.name == "posix":
        for name in ("server.secret", "0.nonce"):
            assert Path(name).stat().st_mode & 0o777 == 0o600
    before = Path("server.secret").read_bytes(), Path("contract.json").read_bytes()
    code, _, err = bonafed(*QUOTE, "--save", "contract.json", "--commit-coins", "server.secret")
    assert code == 2
    assert "must be a new file: a secret is used once and never replaced" in err
    assert (Path("server.secret").read_bytes(), Path("contract.json").read_bytes()) == before
    code, _, err = bonafed("coins", "nonce", "contract.json", "--client", "ada", "--save", "0.nonce")
    assert (code, "must be a new file" in err) == (2, True)


def test_no_secret_of_a_contract_that_was_not_written(bonafed, monkeypatch):
    def fail(contents):
        raise OSError(28, "No space left on device", "contract.json")

    monkeypatch.setattr("bonafed.cli.coin_secret.write_together", fail)
    assert bonafed(*QUOTE, "--save", "contract.json", "--commit-coins", "server.secret")[0] == 2
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--commit-coins", "s"], "--commit-coins requires --save"),
        (
            ["--save", "c.json", "--commit-coins", "c.json"],
            "--commit-coins must not be the same file as another output",
        ),
        (
            ["--save", "c.json", "--plot", "s.png", "--commit-coins", "s.png"],
            "must not be the same file as another output",
        ),
        (["--save", "c.json", "--commit-coins", "no/s"], "must be in an existing folder"),
    ],
)
def test_quotes_that_cannot_commit(bonafed, words, message):
    code, _, err = bonafed(*QUOTE, *words)
    assert (code, message in err) == (2, True), err
    assert list(Path().iterdir()) == []


def test_a_contract_without_commitment_has_no_coins(bonafed):
    assert bonafed(*QUOTE, "--save", "contract.json")[0] == 0
    code, _, err = bonafed("coins", "nonce", "contract.json", "--client", "ada", "--save", "n")
    assert code == 2
    assert "coins must be in the contract (quote --commit-coins)" in err


def reveal(bonafed, **changes):
    own = {"roster": "roster.json", "client": "ada", "nonce": "0.nonce", "cost": "0.6"} | changes
    words = [word for name, value in own.items() for word in (f"--{name}", value)]
    return bonafed("coins", "reveal", "contract.json", *words)


def change(path, changed):
    data = json.loads(Path(path).read_text())
    changed(data)
    Path(path).write_text(json.dumps(data))


def test_a_client_reveals_nothing_on_a_roster_that_is_not_what_it_agreed_to(bonafed, agreed):
    agreed()
    assert reveal(bonafed)[0] == 0
    nonce = Path("0.nonce").read_text().strip()
    for changes, message in (
        ({"cost": "0.7"}, "roster must give ada the chance 0.43"),
        ({"nonce": "1.nonce"}, "roster must hold the commitment of ada's nonce"),
        ({"client": "joe"}, "client must be on the roster: do not reveal, got 'joe'"),
        ({"nonce": "contract.json"}, "must hold 64 hexadecimal digits"),
        ({"nonce": "none"}, "No such file"),
    ):
        code, out, err = reveal(bonafed, **changes)
        assert (code, message in err) == (2, True), err
        assert nonce not in out + err
    for forged, message in (
        (lambda d: d["clients"][0].update(chance=d["clients"][0]["chance"] * 0.999), "must give ada"),
        (lambda d: d["clients"][0].update(commitment="00" * 32), "must hold the commitment"),
        (lambda d: d.update(contract="00" * 32), "roster must belong to this contract, got digest"),
        (lambda d: d.update(commitment="00" * 32), "roster must belong to this contract, got commitment"),
        (lambda d: d.update(rounds=49), "roster must belong to this contract, got rounds 49"),
        (
            lambda d: d["clients"].append({**d["clients"][1], "name": "joe"}),
            "roster must belong to this contract, got clients 4",
        ),
        (lambda d: d.update(draws=2), "roster must belong to this contract, got draws 2"),
    ):
        shutil.copy("roster.json", "forged.json")
        change("forged.json", forged)
        code, out, err = reveal(bonafed, roster="forged.json")
        assert (code, message in err) == (2, True), err
        assert nonce not in out + err


def test_another_contract_fails_the_verification(bonafed, agreed):
    agreed()
    bonafed("coins", "open", "roster.json", *SERVER, "--save", "coins.json")
    other = [*QUOTE[:-1], "76", "--save", "other.json", "--commit-coins", "other.secret"]
    assert bonafed(*other)[0] == 0
    code, out, _ = bonafed("verify", "other.json", "--coins", "coins.json", "--json")
    assert code == 1
    assert [check["claim"] for check in json.loads(out)["findings"] if not check["holds"]] == ["contract"]
    code, _, err = bonafed(
        "coins", "toss", "roster.json", "--nonces", "revealed.csv", "--secret", "other.secret"
    )
    assert code == 2
    assert "secret must be the one committed to in the contract" in err


def test_before_they_are_opened_coins_do_not_verify(bonafed, agreed):
    agreed()
    code, out, _ = bonafed("verify", "--coins", "roster.json")
    assert code == 1
    assert "The record of the coins fails a check." in out


def test_who_does_not_reveal_is_listed(bonafed, agreed):
    agreed()
    lines = Path("revealed.csv").read_text().splitlines()
    Path("revealed.csv").write_text("\n".join(lines[:-1]) + "\n")
    assert bonafed("coins", "open", "roster.json", *SERVER, "--save", "coins.json")[0] == 0
    code, out, _ = bonafed("verify", "--coins", "coins.json", "--json")
    assert code == 0
    assert "not revealed, not admitted: [red]eve[/]" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,nonce\nada,xy\n", "nonce of ada must be hexadecimal digits, got xy"),
        ("client,nonce\nada,00\n", "must be 32 bytes, got 1 bytes"),
        ("client,nonce\njoe,00\n", "nonces must belong to clients on the roster, got 'joe'"),
        ("client,nonce\nada,00\nada,01\n", "duplicate client 'ada'"),
        ("client,nonce\nada,\n", "client and nonce must not be empty"),
        ("client\nada\n", "must have a header with one column 'nonce'"),
    ],
)
def test_what_was_revealed_must_be_nonces(bonafed, agreed, text, message):
    agreed()
    Path("revealed.csv").write_text(text)
    code, _, err = bonafed("coins", "toss", "roster.json", *SERVER)
    assert (code, message in err) == (2, True), err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["coins", "toss", "roster.json"], "--nonces is required: the coins are not opened"),
        (["coins", "toss", "roster.json", *SERVER[:2]], "--secret is required"),
        (
            ["coins", "toss", "roster.json", *SERVER, "--save", "roster.json"],
            "must not be the same file as",
        ),
        (["coins", "open", "roster.json", *SERVER], "--save is required"),
        (["coins", "nonce", "contract.json", "--save", "n"], "--client is required"),
        (["coins", "roster", "contract.json", "--save", "r"], "--reports is required"),
        (["coins", "reveal", "contract.json", "--client", "ada"], "--cost is required"),
        (["verify"], "CONTRACT.json or --coins is required"),
        (["verify", "--coins", "none.json"], "No such file"),
    ],
)
def test_what_is_missing(bonafed, agreed, words, message):
    agreed()
    code, _, err = bonafed(*words)
    assert (code, message in err) == (2, True), err


def test_a_run_is_trained_and_verified(bonafed):
    assert bonafed("train", "--write-example", "sampling")[0] == 0
    words = [
        "--set",
        "training.rounds=4",
        "--set",
        "sampling.total_budget=20",
        "--set",
        "training.epochs=1",
    ]
    code, _, err = bonafed("train", "sampling.toml", *words, "--set", "sampling.coins=verifiable")
    assert code == 0, err
    code, out, _ = bonafed("verify", "--coins", "runs/sampling")
    assert code == 0
    assert "Every check holds" in out
    path = Path("runs/sampling/metrics.jsonl")
    first, *rest = path.read_text().splitlines()
    record = json.loads(first)
    record["participants"] = [*record["participants"], "0", "0"]
    path.write_text("\n".join([json.dumps(record), *rest]) + "\n")
    code, _, err = bonafed("verify", "--coins", "runs/sampling")
    assert (code, err) == (2, f"error: {path}: was changed since the run ended\n")
    reseal(path.parent)  # as a server would that means to cheat
    code, out, _ = bonafed("verify", "--coins", "runs/sampling", "--json")
    assert code == 1
    assert json.loads(out)["findings"][-1]["text"].startswith("round 1: client ")
    assert bonafed("verify", "c.json", "--coins", "runs/sampling")[0] == 2


def test_a_run_under_a_contract_that_buys_privacy_uses_the_coins_it_commits_to(bonafed):
    assert bonafed("train", "--write-example", "jsam")[0] == 0
    words = ["--prior", "uniform:0,1", "--clients", "10", "--rounds", "4", "--delta", "1e-5", "--eta", "60"]
    quote = ["quote", "jsam", *words, "--noise-scale", "1", "--clip", "1", "--clients-per-round", "5"]
    code, _, err = bonafed(*quote, "--save", "jc.json", "--commit-coins", "server.secret")
    assert code == 0, err
    removed = ("coins", "max_epsilon", "smoothness")
    words = [word for key in removed for word in ("--set", f"jsam.{key}=")]
    train = ["train", "jsam.toml", "--contract", "jc.json", "--set", "training.rounds=4", *words]
    code, _, err = bonafed(*train, "--secret", "server.secret")
    assert code == 0, err
    assert Path("runs/jsam/contract.json").read_bytes() == Path("jc.json").read_bytes()
    code, out, err = bonafed("verify", "--coins", "runs/jsam")
    assert code == 0, out + err
    assert "Every check holds" in out
    code, _, err = bonafed(*train, "--secret", "server.secret", "--set", "jsam.coins=seed")
    assert (code, "jsam.coins must be as in the published contract, 'verifiable'" in err) == (2, True), err
