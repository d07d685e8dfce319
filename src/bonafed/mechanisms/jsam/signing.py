"""How a contract to buy privacy is shown: what a participant signs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bonafed.economics.registry import prior_in_words
from bonafed.mechanisms.jsam.noise import Ingredients
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.presentation.documents import Block, Column, Document, Table, pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CURVE = 81  # costs of a figure
_EXAMPLE = (Column("report", ".4g"), Column("epsilon", ".4g"), Column("payment", ",.4f"))
_SCHEMES = {
    "jsam": "the plan that is best for loss and money together",
    "unbiased": "everybody alike",
    "cheapest": "the {members} cheapest, alike",
}


_PROTECTED = {
    "client": "You add noise to every gradient, from your own secret, so that no record of yours loses "
    "more than the epsilon you sold, at this delta.",
    "sum": "Noise is added once, to the sum of all gradients of a round, so that no record of yours loses "
    "more than the epsilon you sold, at this delta, to anybody who sees models or sums. Whoever adds it "
    "sees your gradients without noise: you trust the server with them.",
}


def contract_document(contract: JsamContract) -> Document:
    """What a participant signs."""
    cap = contract.max_epsilon
    rows = [
        ("clients", f"{contract.clients:,}"),
        ("prior", prior_in_words(contract.prior)),
        ("highest cost admitted", f"{contract.prior.high:.10g} per unit of epsilon"),
        ("rounds", f"{contract.rounds:,}"),
        ("draws per round", f"{contract.clients_per_round:,}, with replacement")
        if contract.noise_at == "client"
        else ("in a round", "everybody selected, with its weight"),
        ("rounds without anybody", "none, unless no report leads to a selection"),
        ("who is selected", _SCHEMES[contract.scheme].format(members=contract.members)),
        ("weight of the loss eta", f"{contract.eta:.6g}"),
        ("noise scale Q", f"{contract.noise_scale:.6g}"),
        ("delta", f"{contract.delta!r}"),
        ("largest norm of a record's gradient", f"{contract.clip!r}"),
    ]
    if isinstance(contract.noise, Ingredients):
        parts = ", ".join(f"{name} {value:.6g}" for name, value in contract.noise.to_json().items())
        rows.append(("Q is made of", f"{parts}, with delta and rounds"))
    if contract.held is not None:
        rows.append(("fair", f"by the shares of {contract.held.sum():,} records"))
    if cap is not None:
        most = f"{cap!r} from everybody" if isinstance(cap, float) else "of each client its own"
        rows.append(("epsilon at most", most))
    if contract.expected_budget is not None:
        rows.append(("payments on average over the prior", f"{contract.expected_budget!r}"))
    rows.append(("smallest unit of money", f"{10**-contract.decimals:.{contract.decimals}f}"))
    if contract.coin_commitment is not None:
        rows.append(("commitment of the coins", contract.coin_commitment))
    rows.append(("SHA-256 of the contract", contract.digest))
    blocks: list[Block] = [
        pairs("A contract to buy privacy", rows),
        Table(
            "An example, if costs were spread as expected",
            _EXAMPLE,
            tuple(zip(*contract.example, strict=True)),
        ),
        "You state what one unit of epsilon costs you. From all statements follow, by the numbers in the "
        "file and nothing else, how much you take part, the epsilon you sell over the whole run, and "
        "one payment, made after the last round, also if you are never asked to take part. It is at least "
        "what you state times your epsilon, rounded up if need be. If you do not answer every time you are "
        "asked, it shrinks with the epsilon that you give. Whatever the others state, nothing leaves you "
        "with more than to state the truth and to answer. Whoever states more than the highest cost is not "
        "in the run.",
        _PROTECTED[contract.noise_at],
        *(f"Caution: {note}." for note in contract.delta_notes),
    ]
    if isinstance(cap, Mapping):
        columns = (Column("client", left=True), Column("epsilon at most"))
        blocks.insert(1, Table("Caps", columns, tuple((name, most) for name, most in cap.items())))
    if contract.held is not None:
        columns = (Column("client", left=True), Column("records"))
        table = zip(contract.names, contract.held.tolist(), strict=True)
        blocks.insert(1, Table("Sizes", columns, tuple(table)))
    return Document(
        tuple(blocks),
        {**contract.to_json(), "digest": contract.digest, "empty_rounds": 0.0},
        lambda: _draw_contract(contract),
        files={"contract": contract.content},
    )


def _draw_contract(contract: JsamContract) -> Figure:
    from bonafed.mechanisms.jsam.figures import contract_figure

    n, prior = contract.clients, contract.prior
    reports = np.asarray(prior.quantile((np.arange(n) + 0.5) / n))
    costs = np.linspace(max(prior.low, float(reports[0]) / 2), prior.high, _CURVE)
    subject = contract.responding(contract.caps(contract.names))
    epsilon, payment = subject.respond(reports, n // 2, costs)
    return contract_figure(costs, epsilon, payment, n)
