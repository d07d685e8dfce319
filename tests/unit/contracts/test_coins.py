"""Coins are uniform, independent and chosen by nobody; who tries to choose them is refused by name."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.oracles import coins as oracle

from bonafed.contracts.coins import CoinRoster, Coins, commit, commit_nonce, make_roster, toss, uniforms
from bonafed.errors import InvalidValue

CONTRACT = "ab" * 32
FALSE_ALARM = 1e-9


def secret(number):
    """A fixed one: a test that fails must fail again."""
    return np.random.default_rng(number).bytes(32)


def tossed(chances, draws=None, rounds=10, seed=0, names=None, missing=()):
    names = [f"client {n}" for n in range(len(chances))] if names is None else names
    nonces = {name: secret([seed, n + 1]) for n, name in enumerate(names)}
    promised = {name: commit_nonce(CONTRACT, name, nonce) for name, nonce in nonces.items()}
    roster = make_roster(CONTRACT, commit(secret(seed)), rounds, promised, chances, draws)
    return toss(roster, secret(seed), {name: x for name, x in nonces.items() if name not in missing})


def everyone(coins):
    return [coins.participants(number).tolist() for number in range(1, coins.roster.rounds + 1)]


def numbers(coins, count):
    """(rounds, count) uniform numbers in [0, 1)."""
    seed = bytes.fromhex(coins.beacon)
    return np.array([uniforms(seed, r, count) for r in range(1, coins.roster.rounds + 1)]) / 2.0**64


CHANCES = st.lists(st.floats(0, 1), min_size=1, max_size=6)


@given(CHANCES, st.integers(0, 2**32), st.integers(1, 4), st.sets(st.integers(0, 5)))
def test_coins_are_those_of_the_oracle(chances, seed, round_number, missing):
    gone = {f"client {n}" for n in missing}
    coins = tossed(chances, seed=seed, missing=gone)
    clients = list(zip(coins.roster.names, chances, coins.nonces, coins.roster.commitments, strict=True))
    expected = oracle.participants(CONTRACT, secret(seed), 10, None, clients, round_number)
    assert coins.participants(round_number).tolist() == expected


@given(CHANCES.filter(any), st.integers(1, 5), st.integers(0, 2**32), st.sets(st.integers(0, 5)))
def test_draws_are_those_of_the_oracle(chances, draws, seed, missing):
    gone = {f"client {n}" for n in missing}
    coins = tossed(chances, draws, seed=seed, missing=gone)
    clients = list(zip(coins.roster.names, chances, coins.nonces, coins.roster.commitments, strict=True))
    expected = oracle.participants(CONTRACT, secret(seed), 10, draws, clients, 2)
    assert coins.participants(2).tolist() == expected


def test_numbers_are_uniform():
    found = numbers(tossed([0.5] * 100, rounds=1000), 100)
    assert stats.kstest(found.ravel(), "uniform").pvalue > FALSE_ALARM
    low = (found * 2**53).astype(np.int64) & 255  # the last bits are as good as the first
    assert stats.chisquare(np.bincount(low.ravel(), minlength=256)).pvalue > FALSE_ALARM


def test_numbers_of_clients_and_rounds_are_independent():
    found = numbers(tossed([0.5] * 100, rounds=1000), 100)
    cells = (found * 8).astype(int)
    pairs = {
        "clients of a round": (cells[:, :-1], cells[:, 1:]),
        "rounds of a client": (cells[:-1], cells[1:]),
        "far apart": (cells[:500, :50], cells[500:, 50:]),
    }
    for what, (one, other) in pairs.items():
        counted = np.bincount((8 * one + other).ravel(), minlength=64)
        assert stats.chisquare(counted).pvalue > FALSE_ALARM, what


def test_the_tests_of_uniformity_would_notice_a_coin_that_leans():
    found = numbers(tossed([0.5] * 100, rounds=1000), 100) ** 1.05
    assert stats.kstest(found.ravel(), "uniform").pvalue < FALSE_ALARM


@pytest.mark.parametrize("q", [0.03, 0.5, 0.97])
def test_a_client_is_in_as_often_as_its_chance_says(q):
    times = tossed([q] * 50, rounds=2000).times_in().sum()
    assert stats.binomtest(int(times), 100_000, q).pvalue > FALSE_ALARM


def test_draws_fall_on_clients_by_their_chances():
    p = np.array([0.0, 0.1, 0.6, 0.0, 0.3, 0.0])
    times = tossed(p, 10, rounds=5000).times_in()
    assert not times[p == 0].any()
    assert stats.chisquare(times[p > 0], 50_000 * p[p > 0]).pvalue > FALSE_ALARM


def test_chance_0_is_never_and_1_is_always():
    coins = tossed([0.0, 1.0, 5e-324], rounds=3000)
    assert coins.times_in().tolist() == [0, 3000, 0]


@pytest.mark.parametrize("q", [2.0**-12, 0.3, 1 - 2.0**-53, 1.0, 1e-3])
def test_the_chance_is_exact_to_the_last_bit(q):
    """Of the 2^64 numbers exactly q 2^64 are heads."""
    assert (int(tossed([q])._ends[0]) + 1) == q * 2**64


@given(st.floats(0, 2.0**-12, exclude_min=True))
def test_small_chances_are_rounded_up_by_less_than_one_number(q):
    assert 0 <= int(tossed([q])._ends[0]) + 1 - oracle.Fraction(q) * 2**64 < 1


def changed(**what):
    """The beacon after a change to one part of what was agreed, everything opening as it should."""
    names = what.get("names", ["ada", "ben", "eve"])
    chances = what.get("chances", [0.5, 0.5, 0.5])
    contract, server = what.get("contract", CONTRACT), what.get("secret", secret(0))
    nonces = {name: secret(n + 1) for n, name in enumerate(names)} | what.get("nonces", {})
    promised = {name: commit_nonce(contract, name, nonce) for name, nonce in nonces.items()}
    roster = make_roster(
        contract, commit(server), what.get("rounds", 64), promised, chances, what.get("draws")
    )
    return toss(roster, server, {k: v for k, v in nonces.items() if k != what.get("missing")})


@pytest.mark.parametrize(
    "what",
    [
        {"secret": secret(99)},
        {"nonces": {"ben": secret(99)}},
        {"names": ["ada", "ben", "eva"]},
        {"names": ["ben", "ada", "eve"]},
        {"contract": "ba" * 32},
        {"rounds": 65},
        {"draws": 3},
        {"chances": [0.5, 0.5, 0.5000000000000001]},
        {"missing": "eve"},
    ],
    ids=lambda what: next(iter(what)),
)
def test_any_change_gives_other_coins(what):
    before, after = changed(), changed(**what)
    assert before.beacon != after.beacon
    assert everyone(before)[:64] != everyone(after)[:64]


def test_rounds_have_their_own_numbers():
    found = numbers(changed(), 3)
    assert np.unique(found).size == found.size


def test_names_cannot_be_moved_into_each_other():
    """Parts carry their length: ("ab", "c") is not ("a", "bc")."""
    assert changed(names=["ab", "c", "d"]).beacon != changed(names=["a", "bc", "d"]).beacon


def test_a_server_that_grinds_its_secret_after_the_nonces_is_caught():
    """It would like client 0 never to be in; it finds such a secret, and its commitment refuses it."""
    coins = tossed([0.5] * 3, rounds=4)
    better = next(
        secret([5, n])
        for n in range(1000)
        if not Coins(
            CoinRoster(
                CONTRACT,
                commit(secret([5, n])),
                4,
                None,
                coins.roster.names,
                coins.roster.commitments,
                [0.5] * 3,
            ),
            secret([5, n]),
            coins.nonces,
        ).times_in()[0]
    )
    with pytest.raises(InvalidValue, match="secret must be the one committed to in the contract"):
        Coins(coins.roster, better, coins.nonces)


def test_a_client_that_changes_its_nonce_is_caught():
    coins = tossed([0.5] * 3)
    with pytest.raises(InvalidValue, match="nonce of client 1 must be the one committed to"):
        Coins(coins.roster, coins.secret, (coins.nonces[0], secret(77), coins.nonces[2]))


def test_a_commitment_cannot_be_taken_over_under_another_name_or_contract():
    nonce = secret(1)
    assert len({commit_nonce(c, n, nonce) for c in (CONTRACT, "00" * 32) for n in ("ada", "ben")}) == 4


def test_who_withholds_is_not_admitted_and_is_listed():
    coins = tossed([1.0, 1.0, 1.0], missing={"client 1"})
    assert coins.withheld == ("client 1",)
    assert everyone(coins) == [[0, 2]] * 10
    drawn = tossed([1.0, 1.0, 1.0], 30, missing={"client 1"})
    assert all(1 not in who and 0 < len(who) < 30 for who in everyone(drawn))


def test_hundreds_of_clients_and_rounds_take_no_time():
    began = time.process_time()
    tossed([0.5] * 100, rounds=1000).times_in()
    tossed([0.5] * 10_000, rounds=100).times_in()
    assert time.process_time() - began < 10  # 0.4 s; this only notices another order of growth


ROSTER = {
    "contract": CONTRACT,
    "commitment": commit(secret(0)),
    "rounds": 3,
    "draws": None,
    "names": ("a", "b"),
    "commitments": ("0" * 64, "1" * 64),
    "chances": [0.5, 0.5],
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("contract", "xy", "contract must be 64 hexadecimal digits"),
        ("contract", "AB" * 32, "contract must be 64 hexadecimal digits in lower case"),
        ("commitment", None, "commitment must be 64"),
        ("rounds", 0, "rounds must be a whole number of at least 1, got 0"),
        ("draws", 0, "draws must be a whole number of at least 1, got 0"),
        ("names", ("a", "a"), "names must be all different, got 'a' twice"),
        ("names", ("a", ""), "name of a client must be 1 to 200 printable characters, got ''"),
        ("names", ("a", "b\n"), "name of a client must be"),
        ("names", ("a", "\ud800"), "name of a client must be"),
        ("names", ("a", 3), "name of a client must be"),
        ("commitments", ("0" * 64,), "commitments must have 2 values, got 1"),
        ("commitments", ("0" * 64, "1"), "commitment of b must be 64"),
        ("chances", [0.5], "chances must have 2 values"),
        ("chances", [0.5, 1.1], "chances must not exceed 1, got 1.1"),
        ("chances", [0.5, -0.1], "chances must not be negative"),
        ("chances", [0.5, float("nan")], "chances must be finite"),
    ],
)
def test_rosters_that_are_none(name, value, message):
    with pytest.raises(InvalidValue, match=message):
        CoinRoster(**{**ROSTER, name: value})


def test_draws_need_somebody_to_fall_on():
    with pytest.raises(InvalidValue, match="chances must not all be 0"):
        CoinRoster(**{**ROSTER, "draws": 2, "chances": [0.0, 0.0]})


@pytest.mark.parametrize("number", [0, 11])
def test_there_are_no_other_rounds(number):
    with pytest.raises(InvalidValue, match="round must"):
        tossed([0.5]).participants(number)


@pytest.mark.parametrize(("value", "got"), [(b"short", "5 bytes"), ("x" * 32, "str")])
def test_secrets_are_32_bytes(value, got):
    with pytest.raises(InvalidValue, match=f"secret must be 32 bytes, got {got}"):
        commit(value)
    with pytest.raises(InvalidValue, match=f"nonce of 'ada' must be 32 bytes, got {got}"):
        commit_nonce(CONTRACT, "ada", value)


def test_a_nonce_of_nobody_on_the_roster():
    coins = tossed([0.5])
    with pytest.raises(InvalidValue, match="nonces must belong to clients on the roster, got 'eve'"):
        toss(coins.roster, coins.secret, {"eve": secret(1)})


def test_nonces_of_each():
    coins = tossed([0.5, 0.5])
    with pytest.raises(InvalidValue, match="nonces must have 2 values, got 1"):
        Coins(coins.roster, coins.secret, coins.nonces[:1])


def test_secrets_are_not_shown_by_accident():
    coins = tossed([0.5])
    assert coins.secret.hex() not in repr(coins)
    assert repr(coins.secret) not in repr(coins)
