"""`bonafed advise convergence`: what Proposition 1 says of a federation, with constants from its data.

The constants L, mu, G_n, sigma_n and Gamma come from `learning.problems.constants`, the bound and the data
weights s_n from `convergence` (corrected, S-E8 and S-E11). Two contracts are compared with uniform sampling
and known costs: the paper's, in which all clients weigh the same, and one made for the weights s_n.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics import registry
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue
from bonafed.extras import explained
from bonafed.learning.data.partition import options_of
from bonafed.mechanisms.protocol import Command
from bonafed.mechanisms.sampling.convergence import ConvergenceModel
from bonafed.mechanisms.sampling.plan import benchmarks, plan
from bonafed.presentation.documents import Column, Document, JSONObject, Table, counted
from bonafed.sections import Section, flag, key, text, word

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.learning.problems.constants import ConvergenceConstants


_NATURAL = "natural"  # everybody has the records that are its own


def _dealt(name: str, value: object) -> str:
    """How records are dealt out, KIND or KIND:NUMBER, such as label_dirichlet:0.5."""
    _deal(name, text(name, value))
    return str(value)


def _deal(name: str, words: str) -> tuple[str, dict[str, float]]:
    kind, colon, number = words.partition(":")
    try:
        required = [option for option, needed in options_of(kind).items() if needed]
    except InvalidValue as error:
        raise error.renamed(name) from error
    if kind == "feature_noise":
        raise InvalidValue(name, "must leave the records as they are", repr(words))
    if kind == _NATURAL:
        required.remove("groups")  # they come with the data
    if bool(colon) != bool(required):
        form = f"{kind}:{required[0].upper()}" if required else kind
        raise InvalidValue(name, f"must be {form}", repr(words))
    if not required:
        return kind, {}
    value = registry.parse_numbers(name, number, required[0].upper())
    if len(value) != 1:
        raise InvalidValue(name, f"must be {kind}:{required[0].upper()}", repr(words))
    whole = required[0] == "k"
    return kind, {required[0]: checks.whole(name, value[0]) if whole else value[0]}


def _findable(name: str, value: object) -> float:
    """A strong convexity with which the minimum of a loss can be found in double precision."""
    return checks.between(name, checks.positive(name, value), 1e-12, 1e12)


@dataclass(frozen=True)
class ConvergenceOptions(Section):
    """A federation that is being planned, with data that stand for the clients'."""

    clients: int = key(checks.whole, help="Number of clients.")
    rounds: int = key(checks.whole, help="Number of training rounds.")
    budget: float = key(checks.positive, help="Money for the whole run.")
    prior: Prior = key(
        registry.prior,
        help="What you believe about a client's cost per participation: " + registry.PRIOR_FORMS,
        metavar="KIND:ARGS",
    )
    data: str = key(word, "digits", help="A data set of classes, or your own .npz or .csv file.")
    partition: str = key(
        _dealt, "iid", metavar="KIND[:X]", help="Who holds which records, such as label_dirichlet:0.5."
    )
    regulariser: float = key(
        _findable, 0.01, metavar="MU", help="Weight decay: strong convexity of the losses."
    )
    steps: int = key(checks.whole, 5, metavar="E", help="Local steps of a client in a round.")
    batch_size: int = key(checks.whole, 32, help="Records of a step.")
    seed: int = key(checks.seed, 0, help="Of the partition.")
    standardise: bool = key(flag, False, help="Give every feature of the data mean 0 and spread 1 first.")

    def constants(self) -> ConvergenceConstants:
        """Those of softmax regression on the data, dealt out to the clients."""
        return self.constants_and_hint()[0]

    def constants_and_hint(self) -> tuple[ConvergenceConstants, str]:
        """The constants, and a sentence about the scale of the data where it makes the bounds useless."""
        with explained():
            from bonafed.learning.data import datasets
            from bonafed.learning.data.partition import partition
            from bonafed.learning.data.scaling import Scaling, off_scale
            from bonafed.learning.problems.constants import estimate_constants
        data = datasets.load(self.data)
        if not data.classes or data.vocabulary:
            raise InvalidValue("data", "must be numbers with classes, for softmax regression", self.data)
        features = Scaling.of(data.features).apply(data.features) if self.standardise else data.features
        kind, given = _deal("partition", self.partition)
        options: dict[str, Any] = dict(given)
        if kind == _NATURAL:
            if data.groups is None:
                rule = f"must not be natural, as {self.data} does not say who owns its records"
                raise InvalidValue("partition", rule, repr(self.partition))
            options["groups"] = data.groups
        parts = partition(kind, data.labels, self.clients, np.random.default_rng(self.seed), **options)
        found = estimate_constants(
            features, data.labels, parts, classes=data.classes, regulariser=self.regulariser,
            batch_size=self.batch_size,
        )  # fmt: skip
        table = features.ndim == 2 and not self.standardise
        return found, off_scale(features, data.columns, "--standardise") if table else ""


def convergence_model(found: ConvergenceConstants, local_steps: int) -> ConvergenceModel:
    """Proposition 1 with estimated constants."""
    return ConvergenceModel(
        found.smoothness, found.strong_convexity, local_steps, found.gradient_bounds, found.gradient_noise,
        found.heterogeneity, found.initial_distance,
    )  # fmt: skip


def compared_bounds(options: ConvergenceOptions, model: ConvergenceModel) -> Mapping[str, JSONObject]:
    """By mechanism: mean probability, the sum of s_n E[1/q_n], the bound on the loss above the least."""
    weights, clients = model.data_weights, options.clients
    best, flat, _ = benchmarks(plan(options.prior, options.budget, clients, options.rounds))
    fitted = plan(options.prior, options.budget, clients, options.rounds, weights=weights)
    by_weight, _, known = benchmarks(fitted)  # their sums have s_n in them
    mean = float(weights.mean())
    terms = {
        "uniform": (flat, mean * flat.sampling_term), "prior-based": (best, mean * best.sampling_term),
        "prior-based, by weight": (by_weight, by_weight.sampling_term),
        "complete information, by weight": (known, known.sampling_term),
    }  # fmt: skip
    return {
        name: {
            "mean_probability": row.expected_probability, "sampling_term": term,
            "bound": model.bound_for(term, options.rounds),
        }
        for name, (row, term) in terms.items()
    }  # fmt: skip


def advise(options: ConvergenceOptions) -> Document:
    """The constants, the weights, and what each mechanism may come to."""
    found, hint = options.constants_and_hint()
    model = convergence_model(found, options.steps)
    bounds = compared_bounds(options, model)
    best, flat = bounds["prior-based"], bounds["uniform"]
    gain = 1 - best["sampling_term"] / flat["sampling_term"]
    advice = (
        f"After {counted(options.rounds, 'round')} the loss is at most {best['bound']:.4g} above the least "
        f"one, {found.least_loss:.4g}, on average over costs and coins, against {flat['bound']:.4g} under "
        f"uniform sampling; the part of it that sampling decides is {gain:.1%} smaller."
    )
    caution = (
        "A worst case: the bound holds for any losses with these constants, with the learning rates "
        '"proposition-1", and is far above what is seen; use it to compare. L and mu are bounds, G_n and '
        "sigma_n the largest values on the straight way to the optimum."
    )
    rows = tuple(
        (name, row["mean_probability"], row["sampling_term"], row["bound"]) for name, row in bounds.items()
    )
    columns = (
        Column("mechanism", left=True), Column("mean probability", ".4f"),
        Column("sum of s/q", ".4g"), Column("bound on the loss above the least", ".4g"),
    )  # fmt: skip
    data = {
        "question": "convergence", "constants": _plain(found), "constant_term": model.constant,
        "data_weights": model.data_weights.tolist(), "mechanisms": dict(bounds),
        "hint": hint or None,
    }  # fmt: skip
    table = Table(f"What the same budget buys, {counted(options.clients, 'client')}", columns, rows)

    def draw() -> Figure:
        from bonafed.mechanisms.sampling.figures import bounds_figure

        return bounds_figure(
            {name: row["sampling_term"] for name, row in bounds.items()}, model.data_weights
        )

    notes = (f"note: {hint}",) if hint else ()
    return Document((advice, *notes, _constants_table(found, model), table, caution), data, draw)


def _plain(found: ConvergenceConstants) -> dict[str, Any]:
    return {
        "smoothness": found.smoothness, "strong_convexity": found.strong_convexity,
        "gradient_bounds": found.gradient_bounds.tolist(), "gradient_noise": found.gradient_noise.tolist(),
        "heterogeneity": found.heterogeneity, "initial_distance": found.initial_distance,
        "least_loss": found.least_loss,
    }  # fmt: skip


def _constants_table(found: ConvergenceConstants, model: ConvergenceModel) -> Table:
    def spread(values: Floats) -> tuple[float, float, float]:
        return float(values.min()), float(np.median(values)), float(values.max())

    single = {
        "L, smoothness": found.smoothness, "mu, strong convexity": found.strong_convexity,
        "Gamma, heterogeneity": found.heterogeneity, "|w_0 - w*|": found.initial_distance,
        "beta, what sampling does not change": model.constant,
    }  # fmt: skip
    each = {
        "G_n, gradients": found.gradient_bounds, "sigma_n, their noise": found.gradient_noise,
        "s_n, weight of a client": model.data_weights,
    }  # fmt: skip
    rows = (
        *((name, None, value, None) for name, value in single.items()),
        *((name, *spread(values)) for name, values in each.items()),
    )
    columns = (
        Column("constant", left=True), Column("least", ".4g"), Column("value, or median", ".4g"),
        Column("largest", ".4g"),
    )  # fmt: skip
    return Table("Estimated from the data", columns, rows)


CONVERGENCE = Command(
    "What does the convergence theorem say of a federation, with constants from its data?",
    ConvergenceOptions,
    advise,
    "Estimates smoothness, strong convexity, gradients and heterogeneity of softmax regression on data "
    "that are dealt out to clients, and gives the weight s_n of every client (with --json) and the bound "
    "on the loss (Proposition 1, corrected) under uniform sampling, the truthful contract, the one made "
    "for the weights, and known costs.",
    "bonafed advise convergence --clients 20 --rounds 500 --budget 5000 --prior uniform:0.5,1.5 "
    "--partition label_dirichlet:0.5",
)
