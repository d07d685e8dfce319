"""The example in a contract: what its numbers come to for some clients."""

from __future__ import annotations

from typing import NamedTuple

from bonafed import checks
from bonafed.economics.registry import field
from bonafed.errors import InvalidValue

_RTOL = 1e-9  # an example against the terms it shows: the same formulas, perhaps on two machines
_ATOL = 1e-12  # ... of the largest of them: what rounding makes of 0


class Example(NamedTuple):
    """Terms of some clients, of all of which the reports are the quantiles (k + 1/2)/N of the prior."""

    report: tuple[float, ...]  # money per unit of epsilon
    epsilon: tuple[float, ...]
    payment: tuple[float, ...]  # money, before it is rounded to what can be paid

    def require(self, due: Example) -> None:
        """Shows the terms that will be paid, which are those of `due`."""
        for name, value, right in zip(Example._fields, self, due, strict=True):
            if len(value) != len(right):
                raise InvalidValue(f"example.{name}", f"must have {len(right)} values", len(value))
            for client, (one, other) in enumerate(zip(value, right, strict=True)):
                if abs(one - other) > _RTOL * other + _ATOL * max(right):
                    rule = (
                        f"must show what the contract comes to at report {due.report[client]:g}, {other!r}"
                    )
                    raise InvalidValue(f"example.{name}", rule, one)


def example_from_json(data: object) -> Example:
    """The example of a file."""
    columns = (field(data, name, "example") for name in Example._fields)
    return Example(*(
        tuple(checks.vector(f"example.{name}", column).tolist())
        for name, column in zip(Example._fields, columns, strict=True)
    ))  # fmt: skip
