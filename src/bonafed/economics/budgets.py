"""One rule for every budget: what was promised about it, what was spent, and by how much they differ.

A budget is promised in one of three ways:

    in every run        more is never spent: a run that spends more breaks the promise
    with a confidence   more is spent with a small probability at most, if costs are as believed
    on average          over coins, and perhaps over costs: a single run may spend more

Only the first is broken by a single run. Under the others a run that spends more breaks no promise, but the
finding about it never says that the budget holds: its verdict is "exceeded", with the amount. A promise on
average is broken where the contract itself expects to spend more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

from bonafed.economics import money
from bonafed.economics.findings import Finding, Kind

CLAIM = "budget"
_RTOL = 1e-9  # of an expectation; what was spent is compared exactly


@dataclass(frozen=True, slots=True)
class BudgetPromise:
    """What was promised about the money of a whole run."""

    budget: float  # money
    average: str = ""  # over what the promise is an average; "": it is for every run
    confidence: float | None = None  # probability of keeping to it; None: no other than on average
    expected: float | None = None  # money that the contract itself expects to spend; None: it does not say

    @property
    def words(self) -> str:
        """How it was promised."""
        if self.confidence is not None:
            return f"promised with a confidence of {self.confidence:.4g} over {self.average}"
        if self.average:
            return f"promised on average over {self.average}"
        return "promised in every run"

    def finding(
        self,
        amounts: Sequence[int],
        decimals: int = money.DECIMALS,
        *,
        claim: str = CLAIM,
        for_reports: float | None = None,
    ) -> Finding:
        """About a run that owes these amounts, in smallest units; `for_reports` is the expected spend now
        that costs are known.

        >>> promise = BudgetPromise(60.0, average="the coins")
        >>> print(promise.finding([5_000, 900]))
        budget: 59.00 spent of 60.00, 1.00 (1.7%) less; promised on average over the coins
        >>> promise.finding([7_200]).verdict, BudgetPromise(60.0).finding([7_200]).verdict
        ('exceeded', 'FAILS')
        """
        with localcontext() as context:
            context.prec = 400  # any double is exact
            spent = Decimal(sum(amounts)).scaleb(-decimals)
            apart = spent - Decimal(repr(self.budget))
        over = apart > 0
        text = f"{spent:,} spent of {_written(self.budget, decimals)}{_difference(apart, self, decimals)}"
        text += f"; {self.words}"
        if over and self.average:
            text += ", not in every run"
        if over and for_reports is not None:
            text += f"; {for_reports:,.{decimals}f} were to be expected for these reports"
        holds: bool | None = not over
        if self.average and self.expected is not None and self.expected > self.budget * (1 + _RTOL):
            text += f"; the contract itself expects to spend {self.expected:,.{decimals}f}"
            holds = False
        elif over and self.average:
            holds = None
        return Finding(
            claim, holds, text, float(spent), allowed=self.budget, kind=Kind.BUDGET, unit="money"
        )


def _difference(apart: Decimal, promise: BudgetPromise, decimals: int) -> str:
    """By how much, as an amount and in percent of the budget."""
    if not apart:
        return ""
    side = "too much" if apart > 0 else "less"
    share = abs(float(apart)) / promise.budget
    percent = f"{share:.1%}" if share >= 0.0005 else f"{share:.2g} of it"
    return f", {abs(apart):,.{decimals}f} ({percent}) {side}"


def _written(amount: float, decimals: int) -> str:
    """With the decimals of amounts, or all digits where it has more."""
    short = f"{amount:,.{decimals}f}"
    return short if float(short.replace(",", "")) == amount else f"{amount:,.10g}"
