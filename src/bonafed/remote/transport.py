"""What carries messages: bytes out, bytes or a failure back, by the name of the member.

A transport knows who is connected under which registered key; it reads nothing of what it carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from bonafed.learning.federation import Failure

Handle = Callable[[bytes], bytes]  # a participant: a request in, the answer out


class Transport(Protocol):
    """A way to reach the members of a federation."""

    def connected(self) -> Mapping[str, str]:
        """Who is there: name, and SHA-256 in hex of the public key in DER that it is registered with."""
        ...

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        """Send each its message and wait for the answers, at most `ttl` seconds; by name, sorted."""
        ...


@dataclass(frozen=True, slots=True)
class InProcess:
    """Members in this process: for tests, and to try a federation before it is deployed."""

    handles: Mapping[str, Handle]

    def connected(self) -> Mapping[str, str]:
        return dict.fromkeys(self.handles, "")

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        return {
            name: self.handles[name](message)
            if name in self.handles
            else Failure("not connected", absent=True)
            for name, message in sorted(messages.items())
        }
