"""The transcript of coins: every forged element is refused and named; other participants are found."""

import json

import numpy as np
import pytest

from bonafed.contracts.coins import Coins, commit, commit_nonce, make_roster, toss
from bonafed.contracts.transcript import (
    check_openings,
    check_rounds,
    read_transcript,
    transcript_bytes,
    transcript_from_json,
    transcript_of,
)
from bonafed.errors import InvalidValue, UnreadableFile

SECRET = bytes(range(32))
NONCES = {name: np.random.default_rng(n).bytes(32) for n, name in enumerate(("ada", "ben", "zoë"))}


def tossed(draws=None, missing=()):
    contract = "ab" * 32
    promised = {name: commit_nonce(contract, name, nonce) for name, nonce in NONCES.items()}
    roster = make_roster(contract, commit(SECRET), 20, promised, [0.1, 0.7, 1 / 3], draws)
    return toss(roster, SECRET, {name: x for name, x in NONCES.items() if name not in missing})


def data(coins=None, opened=True):
    return json.loads(transcript_bytes(transcript_of(coins or tossed(), opened=opened)))


def everyone(coins):
    return [coins.participants(number).tolist() for number in range(1, 21)]


@pytest.mark.parametrize("draws", [None, 4])
def test_a_file_holds_the_same_coins(tmp_path, draws):
    path = tmp_path / "coins.json"
    path.write_bytes(transcript_bytes(transcript_of(tossed(draws), opened=True)))
    again = read_transcript(str(path)).coins()
    assert again.beacon == tossed(draws).beacon
    assert everyone(again) == everyone(tossed(draws))


def test_before_it_is_opened_the_secret_is_not_in_the_file():
    coins = tossed()
    shown = transcript_bytes(transcript_of(coins, opened=False))
    assert SECRET.hex().encode() not in shown
    read = transcript_from_json(json.loads(shown))
    with pytest.raises(InvalidValue, match="secret must be opened"):
        read.coins()
    assert read.coins(SECRET).beacon == coins.beacon
    checks, found = check_openings(read)
    assert found is None
    assert not checks[-1].holds


def forged(path, value):
    """The transcript with one element replaced."""
    found = data()
    *way, last = path
    place = found
    for step in way:
        place = place[step]
    place[last] = value
    return found


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("contract",), "00" * 32, "nonce of ada"),
        (("commitment",), "00" * 32, "secret must be the one committed to"),
        (("secret",), "00" * 32, "secret must be the one committed to"),
        (("secret",), None, "secret must be opened"),
        (("clients", 1, "nonce"), "00" * 32, "nonce of ben"),
        (("clients", 1, "commitment"), "00" * 32, "nonce of ben"),
        (("clients", 1, "name"), "bert", "nonce of bert"),
    ],
)
def test_what_does_not_open_is_named(path, value, named):
    checks, coins = check_openings(transcript_from_json(forged(path, value)))
    assert coins is None
    assert named in next(check.text for check in checks if not check.holds)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("clients", 0, "chance"), 0.1000000001),
        (("clients", 2, "nonce"), None),
        (("rounds",), 21),
        (("draws",), 2),
    ],
)
def test_what_opens_all_the_same_gives_other_coins(path, value):
    _, coins = check_openings(transcript_from_json(forged(path, value)))
    assert coins is not None
    assert not check_rounds(coins, everyone(tossed())).holds


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "x", "format must be 'bonafed-coins', got 'x'"),
        (("version",), 2, "version must be 1, got 2"),
        (("version",), True, "version must be 1, got True"),
        (("fee",), 3, "coins.fee is unknown, got 3"),
        (("clients", 0, "fee"), 3, "client.fee is unknown"),
        (("clients",), [], "clients must be a non-empty list"),
        (("clients", 0), 7, "client must be an object, got 7"),
        (("clients", 0, "chance"), "1", "chance must be a number"),
        (("clients", 0, "chance"), 1.5, "chances must not exceed 1"),
        (("clients", 0, "nonce"), "0x", "nonce of ada must be 64 hexadecimal digits"),
        (("clients", 0, "nonce"), 7, "nonce of ada must be 64 hexadecimal digits"),
        (("clients", 0, "name"), "ben", "names must be all different"),
        (("rounds",), 20.0, "rounds must be a whole number, got 20.0"),
        (("rounds",), 0, "rounds must be a whole number of at least 1"),
        (("draws",), "2", "draws must be a whole number, got '2'"),
    ],
)
def test_what_is_no_transcript(path, value, message):
    with pytest.raises(InvalidValue, match=message):
        transcript_from_json(forged(path, value))


def test_every_key_is_needed():
    for key in data():
        with pytest.raises(InvalidValue, match=f"coins.{key} is required"):
            transcript_from_json({name: value for name, value in data().items() if name != key})
    with pytest.raises(InvalidValue, match="coins must be an object"):
        transcript_from_json([])


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"format": 1, "format": 2}', "must occur once"), ("{", "not JSON"), ("[" * 10**5, "not JSON")],
)
def test_files_that_are_none(tmp_path, text, message):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(UnreadableFile, match=message):
        read_transcript(path)


def test_errors_of_a_file_name_it(tmp_path):
    path = tmp_path / "c.json"
    with pytest.raises(UnreadableFile, match="No such file"):
        read_transcript(path)
    path.write_text(json.dumps(forged(("rounds",), 0)))
    with pytest.raises(InvalidValue, match=r"c\.json: rounds must be"):
        read_transcript(path)


def test_participants_as_recorded():
    coins = tossed()
    assert check_rounds(coins, everyone(coins)).holds
    assert check_rounds(tossed(4), everyone(tossed(4))).holds


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (
            lambda rounds: rounds[6].append(0),
            "round 7: client ada took part once, the coins say not",
        ),
        (lambda rounds: rounds[6].append(9), "client 9, who is not on the roster, took part once"),
        (lambda rounds: rounds[6].append(-1), "client -1, who is not on the roster, took part once"),
        (lambda rounds: rounds.pop(), "19 rounds are recorded, but 20 were agreed"),
        (lambda rounds: rounds.append([]), "21 rounds are recorded, but 20 were agreed"),
    ],
)
def test_the_first_difference_is_named(change, detail):
    coins = tossed()
    rounds = everyone(coins)
    assert 0 not in rounds[6]
    change(rounds)
    found = check_rounds(coins, rounds)
    assert not found.holds
    assert detail in found.text


def test_a_participant_left_out_is_named():
    coins = tossed()
    rounds = everyone(coins)
    number = next(n for n, who in enumerate(rounds) if 1 in who)
    rounds[number].remove(1)
    expected = f"round {number + 1}: client ben took part not at all, the coins say once"
    assert check_rounds(coins, rounds).text == expected


def test_who_withheld_is_listed():
    checks, coins = check_openings(transcript_of(tossed(missing={"ben"}), opened=True))
    assert isinstance(coins, Coins)
    assert "not revealed, not admitted: ben" in checks[-1].text
