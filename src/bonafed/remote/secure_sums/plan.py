"""What a batch of secure sums is agreed to be: who, how many may fail or collude, how large numbers are.

Everybody derives every key and signs every key message for the digest of the plan, so that nothing made for
one run, batch or plan is of any use in another (theory M5). With n members, threshold t and c colluders,

    (1)  2t > n + c     at most one set of survivors is ever answered about (M6)
    (2)  t - c >= 2     every sum that can be read has two honest members in it at least (M7)
    (3)  n limit 2^f < 2^62     sums of n fixed-point numbers of up to `limit` in size stay in the ring (M3)
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.learning.privacy.added_noise import sd_of_share

MOST_MEMBERS = 1000
MOST_SUMS = 10_000
LONGEST_CONTEXT = 1024  # bytes
REACH = 14.0  # standard deviations of noise that the ring has room for; beyond, it is cut off
_ROOM = 62  # (3): one bit of the 63 is left for rounding
_GRID = 4  # noise is at least 2^4 grid steps wide, as decision 0010 wants it


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch of sums over the same members.

    >>> names = ("ada", "ben", "cleo", "dan")
    >>> plan = BatchPlan(names, 3, size=2, bound=1.0, sums=5, context=b"run 7, batch 1")
    >>> plan.tolerated, plan.crowd(4), plan.fraction_bits
    (1, 3, 59)
    """

    members: tuple[str, ...]  # (n,) everybody who is invited, n >= 3; shares are numbered in this order
    threshold: int  # t: so many must be in a sum, and so many must answer for it to be read
    size: int  # P, numbers in a vector
    bound: float  # largest Euclidean norm of what a member adds, before noise
    sums: int  # m, sums that keys and shares are made for at once
    context: bytes  # names run and batch; never used for two different batches
    colluders: int = 0  # c: members that may tell the server everything and follow its orders
    noise: float = 0.0  # standard deviation that every number of a sum must carry at least; 0: none
    digest: bytes = field(init=False, repr=False, compare=False)  # SHA-256 of all of it

    def __post_init__(self) -> None:
        n = len(checks.names("members", self.members, "name of a member"))
        if not isinstance(self.members, tuple) or not 3 <= n <= MOST_MEMBERS:
            rule = f"must be 3 to {MOST_MEMBERS}: whoever knows a sum of two subtracts its own part"
            raise InvalidValue("members", rule, n)
        self._keep("colluders", checks.whole("colluders", self.colluders, at_least=0))
        self._keep("threshold", checks.whole("threshold", self.threshold))
        least = threshold_for(n, self.colluders)
        if not least <= self.threshold <= n:
            rule = f"must be {least} to {n} for {n} members and {self.colluders} colluders"
            raise InvalidValue("threshold", rule, self.threshold)
        self._keep("size", checks.whole("size", self.size))
        self._keep("sums", checks.whole("sums", self.sums, at_most=MOST_SUMS))
        if not isinstance(self.context, bytes) or not 0 < len(self.context) <= LONGEST_CONTEXT:
            raise InvalidValue("context", f"must be 1 to {LONGEST_CONTEXT} bytes", repr(self.context)[:60])
        self._keep("bound", checks.moderate("bound", self.bound))
        self._keep(
            "noise", checks.non_negative("noise", self.noise) and checks.moderate("noise", self.noise)
        )
        if self.noise and self._grid_bits > self._most_bits:
            finest = self.noise * 2.0 ** (self._grid_bits - self._most_bits)
            raise InvalidValue("noise", f"must be about {finest:.1g} at least for this bound", self.noise)
        self._keep("digest", hashlib.sha256(self.to_bytes()).digest())

    def _keep(self, name: str, value: object) -> None:
        """Set a field, while it is still being made: a 3.0 that counts something is kept as 3."""
        object.__setattr__(self, name, value)

    @property
    def tolerated(self) -> int:
        """Members that may drop out of a sum, n - t."""
        return len(self.members) - self.threshold

    def crowd(self, contributors: int) -> int:
        """Honest members with numbers of their own in any sum that can be read, at least (M7).

        Of so many contributors, the others add zeros. With all n it is t - c.
        """
        return max(0, contributors - self.tolerated - self.colluders)

    @property
    def noise_share(self) -> float:
        """Standard deviation of the noise that every member adds (M9); 0: none."""
        if not self.noise:
            return 0.0
        return sd_of_share(self.noise, len(self.members), dropouts=self.tolerated, colluders=self.colluders)

    @property
    def limit(self) -> float:
        """Largest size of a number that a member adds, noise included."""
        return self.bound + REACH * self.noise_share

    @property
    def fraction_bits(self) -> int:
        """f: numbers are added in steps of 2^-f; as fine as fits (3), or a 16th to a 32nd of the noise."""
        return self._grid_bits if self.noise else self._most_bits

    @property
    def _most_bits(self) -> int:
        return _ROOM - math.frexp(len(self.members) * self.limit)[1]

    @property
    def _grid_bits(self) -> int:
        return _GRID - (math.frexp(self.noise_share)[1] - 1)

    def number_of(self, name: str) -> int:
        """The number of a member among the shares, 1, 2, ...; 0 would be the secret itself."""
        return self.members.index(name) + 1

    def to_bytes(self) -> bytes:
        """One spelling per plan, for its digest and for sending it."""
        content = {
            "bound": self.bound.hex(),
            "colluders": self.colluders,
            "context": self.context.hex(),
            "members": list(self.members),
            "noise": self.noise.hex(),
            "size": self.size,
            "sums": self.sums,
            "threshold": self.threshold,
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> BatchPlan:
        """The plan that was spelled; any other spelling of it is refused."""
        try:
            entries = json.loads(content)
            entries["context"] = bytes.fromhex(entries["context"])
            entries["members"] = tuple(entries["members"])
            entries |= {name: float.fromhex(entries[name]) for name in ("bound", "noise")}
            plan = cls(**entries)
        except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise InvalidValue("plan", "must be a plan of secure sums", type(error).__name__) from error
        except InvalidValue:
            raise
        except ValueError as error:  # of the JSON, or of a number in it
            raise InvalidValue("plan", "must be a plan of secure sums", type(error).__name__) from error
        if plan.to_bytes() != content:
            raise InvalidValue("plan", "must be spelled as it is signed", "another spelling")
        return plan


def threshold_for(members: int, colluders: int) -> int:
    """The smallest threshold that keeps (1) and (2): the most drop-outs for so many colluders.

    >>> [threshold_for(10, colluders) for colluders in (0, 1, 3, 8)]
    [6, 6, 7, 10]
    >>> threshold_for(10, 9)
    Traceback (most recent call last):
        ...
    bonafed.errors.InvalidValue: colluders must leave 2 of 10 members that are honest, got 9
    """
    least = max((members + colluders) // 2 + 1, colluders + 2)
    if least > members:
        raise InvalidValue("colluders", f"must leave 2 of {members} members that are honest", colluders)
    return least
