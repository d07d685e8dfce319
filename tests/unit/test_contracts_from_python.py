"""Contracts from the front door: made in one call, published, settled, and drawn."""

import pytest

import bonafed

COSTS = {"ada": 0.61, "ben": 0.95, "eve": 0.7}
BELIEF = bonafed.Uniform(0.5, 1.5)


def jsam(**options):
    return bonafed.jsam.contract(BELIEF, 3, 20, noise_scale=1.0, clip=1.0, **options)


CONTRACTS = {
    "sampling": lambda: bonafed.sampling.contract(BELIEF, 30, 3, 20),
    "groups": lambda: bonafed.sampling.contract(BELIEF, 30, 3, 20, weights=[1, 2, 3], names=list(COSTS)),
    "prior-free": lambda: bonafed.sampling.prior_free_contract(1.5, 30, 3, 20),
    "uniform": lambda: bonafed.sampling.BenchmarkContract("uniform", BELIEF, 3, 20, 30.0),
    "jsam": lambda: jsam(eta=5),
    "caps": lambda: jsam(eta=5, max_epsilon=dict.fromkeys(COSTS, 2.0)),
    "money": lambda: jsam(expected_budget=3),
}


@pytest.mark.parametrize("kind", CONTRACTS)
def test_a_contract_and_its_terms_show_and_draw_themselves(kind, tmp_path):
    contract = CONTRACTS[kind]()
    terms = contract.settle(COSTS)
    for value in (contract, terms):
        assert "<table>" in value._repr_html_()
        assert str(value)
        path = tmp_path / "figure.png"
        value.plot(path)
        assert path.read_bytes().startswith(b"\x89PNG")
        short = repr(value)
        assert short.startswith(f"<{type(value).__name__}: ")
        assert "\n" not in short
        assert len(short) < 160
    for name in COSTS:
        assert name in str(terms)


@pytest.mark.parametrize("kind", CONTRACTS)
def test_it_is_the_same_from_a_file(kind, tmp_path):
    contract, path = CONTRACTS[kind](), tmp_path / "contract.json"
    contract.write(path)
    again = bonafed.read_contract(path)
    assert again.digest == contract.digest
    assert again.settle(COSTS).to_json() == contract.settle(COSTS).to_json()


def test_a_prior_may_be_spelled():
    spelled = bonafed.sampling.contract("uniform:0.5,1.5", 30, 3, 20)
    assert spelled.digest == CONTRACTS["sampling"]().digest
    each = bonafed.sampling.contract(None, 30, 2, 20, priors=["uniform:0.5,1.5", BELIEF])
    assert len(each.plan.groups) == 1
    spelled = bonafed.jsam.contract("uniform:0.5,1.5", 3, 20, noise_scale=1.0, clip=1.0, eta=5)
    assert spelled.digest == jsam(eta=5).digest


@pytest.mark.parametrize("prior", ["uniform", "unheard:1,2", 3, [0.5, 1.5]])
def test_what_is_no_prior_is_refused_by_name(prior):
    with pytest.raises(bonafed.InvalidValue, match=r"^prior"):
        bonafed.sampling.contract(prior, 30, 3, 20)
    with pytest.raises(bonafed.InvalidValue, match=r"^prior"):
        bonafed.jsam.contract(prior, 3, 20, noise_scale=1.0, clip=1.0, eta=5)


def test_privacy_is_bought_by_a_weight_or_by_a_sum_of_money():
    with pytest.raises(bonafed.InvalidValue, match=r"^eta is required, or expected_budget in its place$"):
        jsam()
    with pytest.raises(bonafed.InvalidValue, match=r"^expected_budget must not be set together with eta"):
        jsam(eta=5, expected_budget=3)
    assert jsam(expected_budget=3).expected_budget == 3
