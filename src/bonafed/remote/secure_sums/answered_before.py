"""What a member has done in a batch, so that it does nothing twice in two ways (theory M8).

Everything a member sends is determined by its secret and by what it is asked. Asked the same again, after a
restart for instance, it answers the same. Asked something else in the same place, it refuses:

    keys         one set of keys per batch, under which it shares its secrets
    input j      one vector in sum j: the difference of two under the same mask would be readable
    survivors j  one set of survivors of sum j: no client's two secrets are both given away

Every step returns the value to go on with. It must be on disk before the step's message is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from bonafed.errors import InvalidValue
from bonafed.remote.secure_sums.plan import Plan


@dataclass(frozen=True, slots=True)
class Once:
    """What was done, by its place, with a digest of how.

    >>> done = Once(bytes(32)).noted("input 0", b"one digest")
    >>> done.noted("input 0", b"one digest") == done
    True
    >>> done.noted("input 0", b"another")
    Traceback (most recent call last):
        ...
    bonafed.errors.InvalidValue: input 0 must be what it was the first time, got something else
    """

    plan: bytes  # digest of the plan of the batch
    seen: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, plan: Plan) -> Once:
        """Nothing done yet; only for a batch that this member has never taken part in."""
        return cls(plan.digest)

    def noted(self, what: str, content: bytes) -> Once:
        """With this done, too; refused if it was done in another way before."""
        known = self.seen.get(what)
        if known == content:
            return self
        if known is not None:
            raise InvalidValue(what, "must be what it was the first time", "something else")
        return Once(self.plan, MappingProxyType({**self.seen, what: content}))

    def to_bytes(self) -> bytes:
        """To be stored; nothing in it is secret."""
        seen = {what: content.hex() for what, content in self.seen.items()}
        return json.dumps({"plan": self.plan.hex(), "seen": seen}, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Once:
        """What was stored."""
        try:
            found = json.loads(content)
            seen = {str(what): bytes.fromhex(digest) for what, digest in found["seen"].items()}
            return cls(bytes.fromhex(found["plan"]), MappingProxyType(seen))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidValue("once", "must be what was stored", type(error).__name__) from error
