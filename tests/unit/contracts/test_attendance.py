"""What is said before a run about rounds without anybody, and about those that secure sums cannot hold."""

import numpy as np
import pytest
from tests.laws import worlds

from bonafed import InvalidValue, Uniform, jsam, sampling
from bonafed.contracts.attendance import IN_A_SUM, Attendance
from bonafed.contracts.published import Agreement
from bonafed.learning.federation import Roster
from bonafed.mechanisms.sampling.benchmark import BenchmarkContract
from bonafed.remote.participant.summing import LEAST
from bonafed.remote.server.feasibility import before_the_run, require_honest, require_ways

NAMES = ("ada", "ben", "eve", "joe")
REPORTS = dict(zip(NAMES, (0.6, 0.9, 1.2, 1.4), strict=True))


def terms(rounds=10, budget=10.0):
    return sampling.contract(Uniform(0.5, 1.5), budget, clients=4, rounds=rounds).settle(REPORTS)


def agreed(made):
    return Agreement(Roster(NAMES, np.full(4, 9)), REPORTS, terms=made)


def test_what_cannot_be_held_is_what_happens():
    made = terms()
    q = made.probability
    rng = np.random.default_rng(0)
    counts = (rng.random((200_000, 4)) < q).sum(1)
    found = made.attendance.unheld()
    assert found.needed == LEAST == IN_A_SUM
    assert found.chance == pytest.approx((counts == 1).mean(), abs=5e-3)
    assert made.attendance.empty_rounds == pytest.approx(10 * (counts == 0).mean(), abs=5e-2)
    assert made.attendance.empty_rounds == pytest.approx(10 * np.prod(1 - q), rel=1e-12)
    assert found.participations == pytest.approx(10 * found.chance)
    two = made.attendance.unheld(colluders=1)
    assert two.participations == pytest.approx(10 * counts[counts < 3].sum() / counts.size, rel=2e-2)
    assert found.ever == pytest.approx(1 - (1 - found.chance) ** 10)


def test_draws_that_fall_on_one_client_are_one_participant():
    found = Attendance(np.array([0.5, 0.5]), 8, draws=3).unheld()
    assert (found.chance, found.rounds, found.participations) == pytest.approx((0.25, 2.0, 6.0))


def test_terms_and_quotes_say_it_in_words_and_as_data():
    made = terms()
    document = made.document()
    unheld = made.attendance.unheld()
    assert document.data["empty_rounds"] == made.attendance.empty_rounds
    assert document.data["secure_sums"]["participations"] == unheld.participations
    text = " ".join(str(document).split())
    assert f"Rounds without anybody: {made.attendance.empty_rounds:.1f} of 10" in text
    assert f"{unheld.participations:.1f} participations are expected to be unpaid" in text
    rich = str(terms(budget=60.0).document())
    assert "With secure sums" not in rich  # everybody is in every round


@pytest.mark.parametrize("name", [name for name in worlds.all_names() if name in ("sampling", "jsam")])
def test_contracts_say_how_many_rounds_stay_empty(name):
    contract = worlds.setting(name).mechanism.contract
    document = contract.document()
    assert "rounds without anybody" in str(document)
    assert document.data["empty_rounds"] >= 0


def test_every_kind_of_sampling_contract_says_so():
    prior = Uniform(0.5, 1.5)
    known = BenchmarkContract("uniform", prior, 4, 10, 10.0)
    mean = known.menu.expected_probability
    assert known.document().data["empty_rounds"] == pytest.approx(10 * (1 - mean) ** 4)
    for contract in (
        BenchmarkContract("complete information", prior, 4, 10, 10.0),
        sampling.prior_free_contract(1.5, 10.0, clients=4, rounds=10),
    ):
        document = contract.document()
        assert document.data["empty_rounds"] is None
        assert "it follows from all reports how many: settle says so" in str(document)


def test_before_a_run_on_secure_sums_it_is_said_or_refused():
    assert before_the_run(agreed(terms()), 10, None) == terms().attendance.sentences()[:1]
    assert before_the_run(agreed(terms()), 10, 0) == terms().attendance.sentences()
    assert before_the_run(agreed(terms(budget=60.0)), 10, 0) == []
    alone = {name: (0.7 if name == "ada" else 9.0) for name in NAMES}  # only she is admitted
    made = sampling.contract(Uniform(0.5, 1.5), 10.0, clients=4, rounds=10).settle(alone)
    with pytest.raises(InvalidValue, match=r"^--secure-sums must not be given where no round .* 2 part"):
        before_the_run(agreed(made), 10, 0)
    assert before_the_run(Agreement(Roster(NAMES, np.full(4, 9))), 10, 0) == []


def test_whom_secure_sums_cannot_hide_is_told_from_the_config():
    config = worlds.setting("fedavg", ("training", "participation", 0.3)).config
    require_honest(config, 10, 1)
    with pytest.raises(InvalidValue, match=r"^training.participation must leave 2 of 4 members"):
        require_honest(config, 4, 0)
    with pytest.raises(InvalidValue, match=r"^--colluders must leave 2 of 4 members that are honest"):
        require_honest(config, 4, 3)
    remembers = worlds.setting("sampling", ("training", "aggregation", "memory")).config
    require_ways(remembers, None)
    with pytest.raises(InvalidValue, match=r'^training.aggregation must be "plain" with --secure-sums'):
        require_ways(remembers, 0)


@pytest.mark.parametrize("noise_at", ["client", "sum"])
def test_jsam_says_it_too(noise_at):
    drawn = {"clients_per_round": 2} if noise_at == "client" else {}
    contract = jsam.contract(
        Uniform(0.0, 1.0), 4, 6, noise_scale=1.0, eta=3.0, clip=1.0, noise_at=noise_at, **drawn
    )
    made = contract.settle(dict(zip(NAMES, (0.1, 0.2, 0.3, 0.4), strict=True)))
    found = made.attendance
    assert found.empty_rounds == 0
    p = made.selection
    assert found.unheld().chance == pytest.approx(np.sum(p**2) if noise_at == "client" else 0.0)
    assert made.document().data["secure_sums"]["chance"] == found.unheld().chance
    assert "Rounds without anybody: fewer than 0.1 of 6" in str(made.document())
