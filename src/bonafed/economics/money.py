"""Amounts in the smallest unit of money, rounded so that what was promised holds after rounding.

A client that is paid must not lose by rounding, so its amount covers what it stated as its cost; the server
must not spend more than was promised, so nothing else is rounded up:

    amount_n = max( floor(due_n), ceil(cost_n) )    in smallest units,

due_n >= cost_n the exact amount and the stated cost of what was delivered. Where floor(due_n) < cost_n the
amount is rounded up, by less than one unit. Should all amounts together then exceed all that is due, the
surplus is taken unit by unit from whoever is left with most above its cost, so that

    amount_n >= cost_n for all n,    and    sum of amounts <= sum of due_n

as long as any two such promises can be kept together; if everybody is paid just its cost they cannot, and
the sum is above by less than one unit per client. `reserve` is what a hard budget sets aside for that. A
client that owes is charged the floor of what it owes, in its favour.

Numbers are taken as they are written: a payment of 0.07 is seven cents, although the nearest double is a
little more.

>>> owed([0.074, 0.07], covering=[0.01, 0.07], times=[3, 3])
(22, 21)
>>> owed([1.001], covering=[1.001], times=[1])  # a cost that no whole number of cents is
(101,)
>>> owed([1.001, 5.0], covering=[1.001, 2.0])  # the second has a profit, of which the cent is taken
(101, 499)
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from heapq import heapify, heappop, heapreplace

from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.errors import InvalidValue

DECIMALS = 2  # of money, by default
MOST_DECIMALS = 9


def decimals(name: str, value: object) -> int:
    """The decimals of an amount."""
    return checks.whole(name, value, at_least=0, at_most=MOST_DECIMALS)


def owed(
    payment: ArrayLike, covering: ArrayLike, times: Sequence[int] | None = None, decimals: int = DECIMALS
) -> tuple[int, ...]:
    """(N,) smallest units for `times` payments, never below the cost that they must cover."""
    due = checks.vector("payment", payment)
    least = checks.vector("covering", covering, length=due.size)
    counts = [1] * due.size
    if times is not None:
        counts = [checks.whole("times", count, at_least=0) for count in times]
        if len(counts) != due.size:
            raise InvalidValue("times", f"must have {due.size} values", len(counts))
    amounts, covers, total = list[int](), list[int](), Decimal(0)
    with localcontext() as context:
        context.prec = 400  # any double times any count is exact
        scale = Decimal(10) ** decimals
        for pay, cost, count in zip(due.tolist(), least.tolist(), counts, strict=True):
            exact = Decimal(repr(pay)) * count * scale
            cover = (Decimal(repr(min(cost, pay))) * count * scale).to_integral_value(ROUND_CEILING)
            covers.append(int(cover))
            amounts.append(int(max(exact.to_integral_value(ROUND_FLOOR), cover)))
            total += exact
        surplus = sum(amounts) - int(total.to_integral_value(ROUND_FLOOR))
    return tuple(_without(surplus, amounts, covers))


def _without(surplus: int, amounts: list[int], covers: list[int]) -> list[int]:
    """Amounts less a surplus, taken unit by unit from whoever is left with most above its cost."""
    if surplus <= 0:
        return amounts
    margins = [
        (cover - amount, client)  # the largest margin first; among equals, the first client
        for client, (amount, cover) in enumerate(zip(amounts, covers, strict=True))
        if amount > cover
    ]
    heapify(margins)
    while surplus > 0 and margins:  # else everybody is paid just its cost: no rounding keeps both promises
        below, client = margins[0]
        amounts[client] -= 1
        surplus -= 1
        if below < -1:
            heapreplace(margins, (below + 1, client))
        else:
            heappop(margins)
    return amounts


def charged(due: ArrayLike, decimals: int) -> tuple[int, ...]:
    """(N,) smallest units, below zero, for clients that owe; rounded in their favour."""
    with localcontext() as context:
        context.prec = 400
        scale = Decimal(10) ** decimals
        values = checks.vector("due", due, sign="any").tolist()
        return tuple(-int((Decimal(repr(x)) * scale).to_integral_value(ROUND_FLOOR)) for x in values)


def units(value: float, decimals: int = DECIMALS) -> int:
    """Whole smallest units in a sum, rounded down.

    >>> units(0.07), units(0.079)
    (7, 7)
    """
    amount = checks.number("amount", value)
    with localcontext() as context:
        context.prec = 400
        scale = Decimal(10) ** decimals
        return int((Decimal(repr(amount)) * scale).to_integral_value(ROUND_FLOOR))


def price(name: str, value: object) -> float:
    """A sum above 0 in whole smallest units, so that nothing is ever rounded."""
    amount = checks.positive(name, value)
    if units(amount) / 10**DECIMALS != amount:
        raise InvalidValue(name, f"must have at most {DECIMALS} decimals", value)
    return amount


def reserve(clients: int, decimals: int = DECIMALS) -> float:
    """Money that a hard budget sets aside, so that it holds after rounding."""
    return float(clients / 10**decimals)
