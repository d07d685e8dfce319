"""What secure sums cost: `python benchmarks/secure_sums.py [--json FILE] [--repeats N]`.

Seconds of a member and of the server, and bytes, for n members and vectors of P numbers, where a third of
the members may collude, at the smallest threshold for that. All in one process: what a network adds is not
here. Every sum is compared with the plain sum before a time is printed. Times are of the processor, since
cores are shared; medians over the repeats, and over the members.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import ParamSpec, TypeVar

import cryptography
import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from bonafed.checks import Floats
from bonafed.remote.secure_sums import (
    BatchPlan,
    Member,
    Once,
    advertise,
    collected,
    gathered,
    masked,
    parcels_for,
    received,
    revealed,
    share,
    threshold_for,
    unmask,
)
from harness import agree, arguments, machine, say

P, T = ParamSpec("P"), TypeVar("T")
MEMBERS, SIZES, SUMS = (4, 10, 30), (10_000, 1_000_000), 20
BOUND = 10.0
SIGNED = ec.ECDSA(SHA256())


@dataclass(frozen=True)
class Case:
    """One line of the table; processor time in seconds, medians."""

    members: int  # n
    threshold: int  # t
    size: int  # P
    setting_up: float  # of a member, for all sums of the batch: keys, shares, parcels
    masking: float  # of a member, a sum
    answering: float  # of a member, a sum
    plain: float  # of the server, without masks: adding up what is sent in clear
    all_there: float  # of the server, a sum from which nobody drops out
    dropped: float  # of the server, a sum from which n - t drop out
    set_up_bytes: int  # that a member sends and receives, for all sums of the batch
    input_bytes: int  # that a member sends in a sum
    answer_bytes: int  # likewise, to take the masks off


class Clock:
    """Processor times by what they were spent on."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def timed(self, what: str, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """The result, and the time is noted."""
        start = time.process_time()
        result = work(*args, **options)
        self.times.setdefault(what, []).append(time.process_time() - start)
        return result

    def median(self, *what: str) -> float:
        """Of the times of each, added up."""
        return sum(statistics.median(self.times[each]) for each in what)


class Identities:
    """P-384 keys, as members register them."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.keys = {name: ec.generate_private_key(ec.SECP384R1()) for name in names}

    def sign(self, name: str, content: bytes) -> bytes:
        """The member's signature."""
        return self.keys[name].sign(content, SIGNED)

    def verify(self, name: str, content: bytes, signature: bytes) -> bool:
        """Whether the member has signed the content."""
        try:
            self.keys[name].public_key().verify(signature, content, SIGNED)
        except InvalidSignature:
            return False
        return True


def vector(place: int, size: int) -> Floats:
    """The numbers of a member."""
    return np.random.default_rng(place).standard_normal(size) * (0.9 * BOUND / size**0.5)


def case(n: int, size: int, repeats: int) -> Case:
    """Set up a batch once, and add up as often as said, with everybody and with n - t dropped."""
    names, colluders = tuple(f"member {k}" for k in range(n)), n // 3
    plan = BatchPlan(
        names, threshold_for(n, colluders), size, BOUND, max(SUMS, 2 * repeats), b"benchmark", colluders
    )
    identities, clock = Identities(names), Clock()
    members = {name: Member(plan, name, hashlib.sha256(name.encode()).digest()) for name in names}
    once = {name: Once.of(plan) for name in names}
    messages = {
        name: clock.timed("keys", advertise, members[name], partial(identities.sign, name))
        for name in names
    }
    book, failures = gathered(plan, messages, identities.verify)
    agree(not failures, "keys are refused")
    keys, shares, verify = book.to_bytes(), {}, identities.verify
    for name in names:
        shares[name], once[name] = clock.timed("shares", share, members[name], keys, verify, once[name])
    parcels = parcels_for(book, shares)
    ready = {
        name: clock.timed("parcels", received, members[name], keys, verify, parcels[name], once[name])
        for name in names
    }
    sent: list[int] = []
    for which in range(2 * repeats):
        kind, there = ("all", names) if which % 2 else ("dropped", names[: plan.threshold])
        inputs, answers, total = {}, {}, np.zeros(size)
        for place, name in enumerate(there):
            own = vector(place, size)
            clock.timed("plain", np.add, total, own, out=total)
            inputs[name], once[name] = clock.timed("input", masked, ready[name], once[name], which, own)
        pending = clock.timed(f"add, {kind}", collected, book, which, inputs)
        for name in there:
            answers[name], once[name] = clock.timed("answer", unmask, ready[name], once[name], which, there)
        found = clock.timed(f"reveal, {kind}", revealed, pending, answers)
        agree(not found.failures and found.survivors == there, "an honest member is blamed")
        rounding = n * 2.0 ** -(plan.fraction_bits + 1) + 1e-12
        agree(float(np.abs(found.values - total).max()) <= rounding, "the sum is another")
        sent = [len(inputs[names[0]]), len(answers[names[0]])]
    name = names[0]
    return Case(
        n,
        plan.threshold,
        size,
        clock.median("keys", "shares", "parcels"),
        clock.median("input"),
        clock.median("answer"),
        clock.median("plain") * n,
        clock.median("add, all", "reveal, all"),
        clock.median("add, dropped", "reveal, dropped"),
        sum(map(len, (messages[name], keys, shares[name], parcels[name]))),
        *sent,
    )


def shown(found: Case) -> str:
    """A line of the table."""
    times = (found.setting_up, found.masking, found.answering, found.plain, found.all_there, found.dropped)
    cells = [f"{found.members:>3}", f"{found.threshold:>3}", f"{found.size:>9,}"]
    cells += [f"{1e3 * seconds:>9.1f}" for seconds in times]
    cells += [f"{count:>11,}" for count in (found.set_up_bytes, found.input_bytes, found.answer_bytes)]
    return "  ".join(cells)


def smallest() -> None:
    """Four members and a hundred numbers."""
    print(shown(case(4, 100, 1)))


def main() -> None:
    """Measure, print, and write the file."""
    options = arguments("what secure sums cost")
    facts = machine(cryptography=cryptography.__version__)
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    cases = []
    for n in MEMBERS:
        for size in SIZES:
            say(f"{n} members, {size:,} numbers")
            cases.append(case(n, size, options.repeats))
    print("  n    t          P    set up     input    answer     plain    all in   dropped   bytes of each")
    print("\n".join(map(shown, cases)))
    print(
        f"Milliseconds of processor time, medians of {options.repeats} sums of each kind on shared cores; "
        f"setting up is for {max(SUMS, 2 * options.repeats)} sums."
    )
    if options.json is not None:
        rows = [asdict(each) for each in cases]
        options.json.write_text(json.dumps({"machine": facts, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
