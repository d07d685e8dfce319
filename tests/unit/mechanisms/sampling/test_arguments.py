"""Every argument of the sampling mechanisms: name, rule and value."""

import numpy as np
import pytest

from bonafed.economics import Discrete, Uniform
from bonafed.errors import InvalidValue, ReportRefused
from bonafed.mechanisms.sampling import (
    ConvergenceModel,
    PriorFreeSampling,
    benchmarks,
    complete_information,
    complete_information_population,
    known_lotteries,
    optimal_menu,
    plan,
    uniform_menu,
)

PRIOR = Uniform(0.5, 1.5)
NAN = float("nan")
MODEL = {"smoothness": 2.0, "strong_convexity": 1.0, "local_steps": 5, "gradient_bounds": [1.0, 2.0]}


def model(**changes):
    return lambda: ConvergenceModel(**{**MODEL, **changes})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: optimal_menu(PRIOR, 0), "budget must be positive, got 0.0"),
        (lambda: optimal_menu(PRIOR, NAN), "budget must be finite, got nan"),
        (lambda: optimal_menu(PRIOR, 1, "best"), "variant must be one of corrected, printed, got 'best'"),
        (lambda: uniform_menu(PRIOR, -1), "budget must be positive, got -1.0"),
        (lambda: complete_information([1, -1], 1), "costs must not be negative, got -1 at position 1"),
        (lambda: complete_information([1, 1], 0), "budget must be positive, got 0.0"),
        (lambda: complete_information([1, 1], 1, [1]), "weights must have 2 values, got 1"),
        (lambda: complete_information([1, 1], 1, [1, 0]), "weights must be positive, got 0 at position 1"),
        (lambda: complete_information_population(PRIOR, -1), "budget must be positive, got -1.0"),
        (lambda: plan(PRIOR, 0, 10, 5), "total_budget must be positive, got 0.0"),
        (lambda: plan(PRIOR, 1, 0, 5), "clients must be a whole number of at least 1, got 0"),
        (
            lambda: plan(Uniform(0, 1e308), 1, 1, 1),
            "total_budget must not be too far from the costs for double precision, got 1.0",
        ),
        (lambda: plan(PRIOR, 1e-322, 1, 200), "total_budget must not be too far from the costs"),
        (lambda: optimal_menu(Uniform(0, 1e308), 1), "budget must not be too far from the costs"),
        (lambda: plan(PRIOR, 1, 10, 0.5), "rounds must be a whole number of at least 1, got 0.5"),
        (lambda: plan(None, 1, 10, 5), "prior or priors is required, not both, got neither"),
        (lambda: plan(PRIOR, 1, 1, 5, priors=[PRIOR]), "prior or priors is required, not both, got both"),
        (lambda: plan(None, 1, 10, 5, priors=[PRIOR]), "priors must have 10 entries, got 1"),
        (lambda: plan(PRIOR, 1, 2, 5, weights=[1]), "weights must have 2 values, got 1"),
        (lambda: plan(PRIOR, 1, 2, 5, weights=[1, -1]), "weights must be positive, got -1 at position 1"),
        (
            lambda: plan(PRIOR, 1, 2, 5, confidence=1.0),
            "confidence must be between 0 and 1, ends excluded, got 1.0",
        ),
        (lambda: plan(PRIOR, 1, 2, 5, confidence="high"), "confidence must be a number, got 'high'"),
        (lambda: plan(PRIOR, 1, 2, 5).allocate([1.0]), "reports must have 2 values, got 1"),
        (
            lambda: plan(PRIOR, 1, 2, 5, weights=[1, 2]).menu,
            "menu differs between clients: use menu_for(n), got 2",
        ),
        (
            lambda: benchmarks(plan(PRIOR, 1, 3, 5), ConvergenceModel(**MODEL)),
            "model must have 3 clients, got 2",
        ),
        (lambda: known_lotteries([-0.1], [1]), "probability must not be negative, got -0.1 at position 0"),
        (lambda: plan(PRIOR, 1, 2, 5).spend.quantile(1.5), "p must be between 0 and 1, got 1.5"),
        (lambda: plan(PRIOR, 1, 2, 5).spend.probability_above(NAN), "amount must be finite, got nan"),
        (model(smoothness=0), "smoothness must be positive, got 0.0"),
        (model(strong_convexity=3.0), "strong_convexity must not exceed smoothness = 2, got 3.0"),
        (model(local_steps=0), "local_steps must be a whole number of at least 1, got 0"),
        (model(gradient_bounds=[1, 0]), "gradient_bounds must be positive, got 0 at position 1"),
        (model(gradient_noise=[1]), "gradient_noise must have 2 values, got 1"),
        (model(heterogeneity=-1), "heterogeneity must not be negative, got -1.0"),
        (model(initial_distance=-1), "initial_distance must not be negative, got -1.0"),
        (lambda: model()().bound([0.5], 10), "probability must have 2 values, got 1"),
        (lambda: model()().bound([0.5, 1.5], 10), "probability must not exceed 1, got 1.5"),
        (lambda: model()().bound([0.5, 0.0], 10), "probability must be positive, got 0 at position 1"),
        (lambda: model()().bound([0.5, 0.5], 0), "rounds must be a whole number of at least 1, got 0"),
        (lambda: model()().bound_for(-1.0, 5), "sampling_term must not be negative, got -1.0"),
        (lambda: PriorFreeSampling(0, 1, 1), "clients must be a whole number of at least 1, got 0"),
        (lambda: PriorFreeSampling(5, 0, 1), "budget must be positive, got 0.0"),
        (lambda: PriorFreeSampling(5, 1, -1), "highest must be positive, got -1.0"),
        (lambda: PriorFreeSampling(5, 1, 1, 6), "initial must not exceed clients = 5, got 6"),
        (lambda: PriorFreeSampling(5, 1, 1, -1), "initial must be a whole number of at least 0, got -1"),
        (
            lambda: PriorFreeSampling(5, 1, 1, initial_probability=1.5),
            "initial_probability must be between 0 and 1, got 1.5",
        ),
        (lambda: PriorFreeSampling(5, 1, 1, floor=0), "floor must be positive, got 0.0"),
        (lambda: PriorFreeSampling(5, 1, 1, floor=0.3), "floor must not exceed 0.2 "),
        (
            lambda: PriorFreeSampling(4, 2, 1, 2, initial_probability=0.9, floor=0.2),
            "initial_probability must leave the floor for the rest: 2.2 needed, budget 2, got 0.9",
        ),
        (
            lambda: PriorFreeSampling(5, 1, 1, estimator="map"),
            "estimator must be one of plus, mle, got 'map'",
        ),
        (
            lambda: PriorFreeSampling(5, 1, 1, variant="fast"),
            "variant must be one of safe, printed, got 'fast'",
        ),
        (
            lambda: PriorFreeSampling(2, 1, 1).run(["a", 1]),
            "reports must be a list of numbers, got ['a', 1]",
        ),
        (
            lambda: PriorFreeSampling(2, 1, 1).run([[1], 1]),
            "reports must be a list of numbers, got [[1], 1]",
        ),
        (
            lambda: PriorFreeSampling(2, 1, 1).run([10**400, 1]),
            "reports must be a list of numbers, got [1000",
        ),
        (lambda: PriorFreeSampling(2, 1, 1).run([1]), "reports must have 2 values, got (1,)"),
        (lambda: PriorFreeSampling(5, 1, 1, refresh=-1), "refresh must not be negative, got -1.0"),
        (
            lambda: PriorFreeSampling(5, 1, 1, 0, variant="printed"),
            "initial must be at least 1 for the printed algorithm, got 0",
        ),
        (lambda: PriorFreeSampling(5, 1, 1).run([1.0]), "reports must have 5 values, got (1,)"),
        (lambda: PriorFreeSampling(5, 1, 1).start().settle("1"), "report must be a number, got '1'"),
    ],
)
def test_bad_arguments(call, said):
    with pytest.raises(InvalidValue) as caught:
        call()
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_sequence_ends():
    state = PriorFreeSampling(1, 1.0, 1.0).start().settle(0.5)[1]
    for ask in (lambda: state.menu, lambda: state.settle(0.1)):
        with pytest.raises(InvalidValue, match="sequence must have clients left, got 0"):
            ask()


def test_a_plan_refuses_reports_above_the_highest_cost():
    with pytest.raises(ReportRefused, match=r"report must be at most the highest cost 1\.5, got 1\.6"):
        plan(PRIOR, 1, 2, 5).allocate([0.6, 1.6])


def test_the_same_call_gives_the_same_numbers():
    """No hidden state: a plan, its spend and a sequence are the same bits when made again."""

    def everything():
        contract = plan(Discrete([0.5, 1.0], [0.4, 0.6]), 16.0, 3, 9, weights=[1, 2, 3], confidence=0.9)
        run = PriorFreeSampling(30, 9.0, 1.0, refresh=0.3).run(np.linspace(0, 1, 30))
        return [
            contract.expected_spend,
            contract.spend.quantile(0.9),
            *contract.allocate(np.full(3, 0.7)).transfer,
            *run.payment,
        ]

    assert everything() == everything()


def test_a_plan_cannot_be_changed():
    contract = plan(PRIOR, 10, 2, 5)
    with pytest.raises(AttributeError):
        contract.total_budget = 3
    with pytest.raises(AttributeError):
        PriorFreeSampling(5, 1, 1).budget = 3
