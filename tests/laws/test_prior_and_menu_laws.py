"""What every prior and every menu must do, whatever its kind."""

import json

import numpy as np
import pytest

from bonafed.economics import prior_from_json
from bonafed.errors import ReportRefused
from bonafed.mechanisms.sampling import contract_from_json, optimal_menu, plan, uniform_menu
from bonafed.mechanisms.sampling.published import SamplingContract
from tests.laws.test_mechanism_laws import PRIORS

MENUS = {
    **{
        f"optimal, {name}, {share:g}": (optimal_menu, name, share)
        for name in PRIORS
        for share in (0.2, 0.8, 1.1)
    },
    "uniform": (uniform_menu, "beta", 0.4),
}


@pytest.fixture(params=PRIORS)
def prior(request):
    return PRIORS[request.param]()


@pytest.fixture(params=MENUS)
def menu(request):
    make, name, share = MENUS[request.param]
    known = PRIORS[name]()
    return make(known, share * known.high)


def support(prior, points=401):
    return getattr(prior, "costs", np.linspace(prior.low, prior.high, points))


class TestPriors:
    def test_the_cdf_rises_from_0_to_1(self, prior):
        costs = np.linspace(prior.low - 0.1, prior.high + 0.1, 301)
        values = prior.cdf(costs)
        assert np.all(np.diff(values) >= 0)
        assert values[0] == 0
        assert values[-1] == 1
        assert prior.cdf(prior.high) == 1

    def test_the_quantile_inverts_the_cdf_within_the_support(self, prior):
        levels = np.linspace(0, 1, 101)
        costs = prior.quantile(levels)
        assert costs.min() >= prior.low
        assert costs.max() <= prior.high
        assert np.all(np.diff(costs) >= 0)
        assert np.all(prior.cdf(costs) >= levels - 1e-9)

    def test_samples_are_reproduced_by_their_seed_and_have_the_mean(self, prior):
        first, again = (prior.sample(np.random.default_rng(3), 20_000) for _ in range(2))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, prior.sample(np.random.default_rng(4), 20_000))
        error = first.std() / np.sqrt(first.size)
        assert abs(first.mean() - prior.mean) < 5 * error

    def test_the_ironed_virtual_cost_never_falls_and_keeps_the_mean(self, prior):
        costs = support(prior)
        ironed = prior.ironed_virtual_cost(costs)
        finite = ironed[np.isfinite(ironed)]
        assert np.all(np.diff(finite) >= -1e-12 * finite[1:])
        assert np.all(prior.virtual_cost(costs) >= costs)
        if prior.is_regular:
            assert np.array_equal(ironed, prior.virtual_cost(costs))
        else:
            for pool in prior.ironed_intervals:
                assert pool.left < pool.right
                assert prior.ironed_virtual_cost([pool.left, pool.right]) == pytest.approx(
                    pool.virtual_cost
                )

    def test_it_survives_json(self, prior):
        again = prior_from_json(json.loads(json.dumps(prior.to_json())))
        costs = support(prior)
        assert np.array_equal(again.cdf(costs), prior.cdf(costs))
        assert np.array_equal(again.ironed_virtual_cost(costs), prior.ironed_virtual_cost(costs))

    def test_it_cannot_be_changed(self, prior):
        with pytest.raises(AttributeError):
            prior.low = 0.1


class TestMenus:
    def test_many_reports_are_priced_like_one_in_any_shape(self, menu):
        costs = np.linspace(menu.prior.low, menu.prior.high, 12).reshape(3, 4)
        q, r = menu.price(costs)
        assert q.shape == r.shape == (3, 4)
        for cost, probability, payment in zip(costs.ravel(), q.ravel(), r.ravel(), strict=True):
            assert menu.probability(cost) == probability
            assert menu.payment(cost) == payment
        many = np.resize(costs.ravel(), 40_000)  # priced in several chunks
        assert np.array_equal(menu.price(many)[0], np.resize(q.ravel(), 40_000))
        assert np.array_equal(menu.price(many)[1], np.resize(r.ravel(), 40_000))

    def test_payments_cover_costs_to_the_last_bit(self, menu):
        costs = np.concatenate(
            [support(menu.prior, 5001), menu.prior.high - np.geomspace(1e-16, 0.1, 50) * menu.prior.high]
        )
        costs = costs[costs >= 0]
        assert np.all(menu.payment(costs) >= costs)

    def test_the_budget_is_kept_to_the_last_bit(self, menu):
        assert menu.expected_spend <= menu.budget
        assert menu.expected_spend == pytest.approx(min(menu.budget, menu.prior.high), rel=1e-9)

    def test_reports_outside_are_refused_and_below_are_the_lowest(self, menu):
        for bad, rule in (
            (menu.prior.high * 1.001, "at most"),
            (float("nan"), "at most"),
            (-0.1, "negative"),
        ):
            with pytest.raises(ReportRefused, match=rule):
                menu.price([menu.prior.low, bad])
        if menu.prior.low > 0:
            assert menu.price(menu.prior.low / 2) == menu.price(menu.prior.low)

    def test_settling_is_pricing(self, menu):
        cost = (menu.prior.low + menu.prior.high) / 2
        terms = menu.settle(cost)
        assert (terms.probability, terms.payment) == tuple(map(float, menu.price(cost)))
        assert terms.expected_payment == pytest.approx(float(menu.expected_payment(cost)))
        assert float(menu.utility(cost, cost)) == pytest.approx(
            terms.expected_payment - cost * terms.probability
        )

    def test_its_contract_survives_json_bit_by_bit(self, menu):
        contract = plan(menu.prior, menu.budget * 40, clients=8, rounds=5)
        again = contract_from_json(json.loads(SamplingContract.of(contract).content))
        assert SamplingContract.of(again).content == SamplingContract.of(contract).content
        menu, again = contract.menu, again.menu
        costs = np.linspace(menu.prior.low, menu.prior.high, 1001)
        for name in ("price", "expected_payment"):
            assert np.array_equal(getattr(again, name)(costs), getattr(menu, name)(costs))
        for name in ("case", "threshold", "expected_spend", "expected_probability", "budget"):
            assert getattr(again, name) == getattr(menu, name)

    def test_it_cannot_be_changed(self, menu):
        with pytest.raises(AttributeError):
            menu.budget = 3.0
