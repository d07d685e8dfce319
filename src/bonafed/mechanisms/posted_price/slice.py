"""A posted price as the rest of the product sees it."""

from __future__ import annotations

from typing import Any

from bonafed.learning.federation import Roster
from bonafed.mechanisms.building_blocks import audit_command, audit_of, quote_command
from bonafed.mechanisms.posted_price.contract import Offer, PostedPriceContract
from bonafed.mechanisms.protocol import Common, Config, Slice
from bonafed.mechanisms.server_rules import same_in_every_round

NAME, TABLE, made = "posted-price", "posted_price", PostedPriceContract.of


def _make(config: Config, members: Roster, parameters: int) -> Any:
    from bonafed.mechanisms.paid_rounds import PaidRounds, paid_averaging

    def plan(offer: Offer) -> PostedPriceContract:
        return made(offer, len(members), config.local.rounds)

    return paid_averaging(config, members, parameters, TABLE, (PostedPriceContract,), plan, PaidRounds)


def _compare(common: Common) -> dict[str, Any] | str:
    """A price that half of the clients take, and as many seats as the money pays."""
    if common.budget is None or common.costs is None or common.training is None:
        return "needs a budget and a prior of the cost of taking part"
    median = float(common.costs.quantile(0.5))
    seats = min(int(common.budget / common.training.rounds / median), common.clients or 1)
    return {"cap": common.budget, "seats": max(1, seats), "prior": common.costs.to_json()}


SLICE = Slice(
    NAME, _make, TABLE, Offer, check=same_in_every_round, read=PostedPriceContract.from_json,
    claims=("truthful", "individually rational", "within budget"), compare=_compare,
    audit=audit_of(lambda offer, clients, rounds: made(offer, clients, rounds).subject()),
    attack=audit_command(NAME, Offer, lambda *terms: made(*terms).subject()),
    quote=quote_command(NAME, Offer, made),
)  # fmt: skip
