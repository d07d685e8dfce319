"""The server's side of secure sums: it passes on what it cannot read, adds up, and takes off the masks.

    gathered      key messages               ->  the book, for everybody
    parcels_for   what each member shared    ->  what each member is sent
    collected     masked vectors of one sum  ->  their sum, still masked, and the survivors
    revealed      the survivors' answers     ->  the sum of the survivors' vectors

Who sends something unusable is a `Failure`, by name. Fewer than the plan's threshold, or shares of which
no secret can be found, end the sum: `SumFailed` says how many are missing, or whose shares do not fit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import BonafedError, InvalidValue
from bonafed.learning.federation import Failure
from bonafed.remote.secure_sums import sealed_answers, sharing
from bonafed.remote.secure_sums.client import parcel_length
from bonafed.remote.secure_sums.key_book import Book, MemberKeys, Verify, commitment, own_mask, pair_mask
from bonafed.remote.secure_sums.plan import BatchPlan
from bonafed.remote.secure_sums.sharing import Dispute, secret_from, to_blame
from bonafed.remote.secure_sums.streams import Words, add_streams, from_ring, public_key

Failures = dict[str, Failure]  # by name
_MISFIT = Failure("must send tokens and shares that fit those of others, got ones that fit less than half")
_BROKEN = Failure("must lock its answer with a key that opens it, got another")
_NO_SECRET = Failure("must deal shares of its secrets, got shares of none")


class SumFailed(BonafedError):
    """A sum, or setting up a batch, cannot go on; says how many are missing, and who is to blame."""

    def __init__(
        self, what: str, missing: int, failures: Mapping[str, Failure], disputes: Collection[Dispute] = ()
    ) -> None:
        self.missing = missing  # members short of those that are needed
        self.failures = dict(failures)  # what is wrong with whom, by name
        self.disputes = frozenset(disputes)  # pairs of members one of whom is wrong
        needed = f", {missing} more needed" if missing else ""
        named = "; ".join(f"{name} {failure.reason}" for name, failure in self.failures.items())
        super().__init__(what + needed + (f" ({named})" if named else ""))


@dataclass(frozen=True, slots=True, eq=False)
class Masked:
    """A sum whose masks are still on it."""

    round: sealed_answers.Unmasking  # the book, which sum, and the survivors: whose vectors are in it
    about: bytes  # what every member was told alike
    words: Words  # (P,) modulo 2^64
    failures: Failures = field(default_factory=dict)  # of those who sent something unusable


@dataclass(frozen=True, slots=True, eq=False)
class Revealed:
    """A sum without masks, and what is wrong with whom."""

    values: Floats  # (P,) sum over the survivors
    survivors: tuple[str, ...]  # whose vectors are in it
    failures: Failures  # of those whose answers or shares were certainly wrong
    disputes: frozenset[Dispute]  # pairs of members one of whom was wrong


def gathered(plan: BatchPlan, messages: Mapping[str, bytes], verify: Verify) -> tuple[Book, Failures]:
    """The book of all whose keys are there, signed and well-formed, and what is wrong with the others."""
    keys, failures = {}, _unknown(plan, messages)
    for name in plan.members:
        if name in messages:
            try:
                keys[name] = MemberKeys.from_bytes(plan, name, messages[name], verify)
            except InvalidValue as error:
                failures[name] = Failure(str(error))
    if len(keys) < plan.threshold:
        what = f"keys of {len(keys)} members are there, the threshold is {plan.threshold}"
        raise SumFailed(what, plan.threshold - len(keys), failures)
    return Book(plan, keys), failures


def parcels_for(book: Book, messages: Mapping[str, bytes]) -> dict[str, bytes]:
    """What every present member is to be sent.

    All of them must have shared: who has keys in the book is part of everybody's masks. If one has not,
    the batch is set up again, under another context, without it.
    """
    size, count, failures = parcel_length(book.plan), len(book.keys) - 1, _unknown(book.plan, messages)
    for name in book.keys:
        if len(messages.get(name, b"")) != size * count:
            failures[name] = Failure(
                f"must share its secrets in {count} parcels of {size} bytes, "
                f"got {len(messages.get(name, b''))} bytes"
            )
    if missing := sum(name in failures for name in book.keys):
        what = f"{len(book.keys) - missing} of {len(book.keys)} members with keys have shared their secrets"
        raise SumFailed(what, missing, failures)

    def parcel(sender: str, receiver: str) -> bytes:
        at = size * book.others(sender).index(receiver)
        return messages[sender][at : at + size]

    return {name: b"".join(parcel(other, name) for other in book.others(name)) for name in book.keys}


def collected(book: Book, which: int, messages: Mapping[str, bytes], about: bytes = b"") -> Masked:
    """Add up masked vectors; whoever sent one is a survivor."""
    plan = book.plan
    which = checks.whole("which", which, at_least=0, at_most=plan.sums - 1)
    words, survivors, failures = np.zeros(plan.size, dtype=np.uint64), [], _unknown(plan, messages)
    for name in book.keys:
        if name in messages:
            if len(messages[name]) == words.nbytes:
                words += np.frombuffer(messages[name], dtype="<u8")
                survivors.append(name)
            else:
                rule = f"must be {plan.size} numbers of 8 bytes"
                failures[name] = Failure(f"{rule}, got {len(messages[name])} bytes")
    if len(survivors) < plan.threshold:
        what = f"{len(survivors)} members are in sum {which}, the threshold is {plan.threshold}"
        raise SumFailed(what, plan.threshold - len(survivors), failures)
    return Masked(sealed_answers.Unmasking(book, which, tuple(survivors)), about, words, failures)


def revealed(pending: Masked, answers: Mapping[str, bytes]) -> Revealed:
    """Take the masks off: own masks of the survivors, and what their pairs with the others have left."""
    asked, plan = pending.round, pending.round.book.plan
    opened, failures = _opened(asked, answers)
    if len(opened.contents) < plan.threshold:  # fewer than that open none at all
        usable = sum(name in answers and name not in failures for name in asked.survivors)
        what = f"{usable} usable answers about sum {asked.which}, the threshold is {plan.threshold}"
        raise SumFailed(what, max(1, plan.threshold - usable), failures, opened.disputes)
    secrets, disputes = _secrets(asked, opened, failures)
    failures |= dict.fromkeys(to_blame(disputes, len(asked.book.keys) - 1), _MISFIT)
    survivors, masks = frozenset(asked.survivors), []
    for name, secret in secrets.items():
        if name in survivors:
            masks.append((-1, own_mask(asked.book, asked.which, pending.about, secret)))
            continue
        for other in asked.survivors:  # what the other has added is minus what this one would have
            masks.append(pair_mask(asked.book, asked.which, pending.about, name, secret, other))
    words = pending.words.copy()
    add_streams(words, masks)
    return Revealed(
        from_ring(words, plan.fraction_bits), asked.survivors, failures, opened.disputes | disputes
    )


def _unknown(plan: BatchPlan, messages: Mapping[str, bytes]) -> Failures:
    """Whoever is not in the plan."""
    rest = (name for name in messages if name not in plan.members)
    return {name: Failure("must be a member of the plan, got a message of somebody else") for name in rest}


def _opened(
    asked: sealed_answers.Unmasking, answers: Mapping[str, bytes]
) -> tuple[sealed_answers.Opened, Failures]:
    """What is in the answers, and who is certainly to blame for what does not open."""
    content = sharing.WIDTH * len(asked.book.keys)
    size = sealed_answers.length(asked, content)
    failures, usable = _unknown(asked.book.plan, answers), {}
    for name in asked.survivors:
        if name in answers:
            if len(answers[name]) == size:
                usable[name] = answers[name]
            else:
                failures[name] = Failure(f"must answer in {size} bytes, got {len(answers[name])}")
    opened = sealed_answers.opened(asked, usable, content)
    failures |= dict.fromkeys(to_blame(opened.disputes, len(usable) - 1), _MISFIT)
    return opened, failures | dict.fromkeys(opened.broken, _BROKEN)


def _secrets(
    asked: sealed_answers.Unmasking, opened: sealed_answers.Opened, failures: Failures
) -> tuple[dict[str, bytes], frozenset[Dispute]]:
    """Of every present member the secret that was asked for, and whose shares do not fit."""
    book, plan = asked.book, asked.book.plan
    given = {plan.number_of(name): sharing.from_bytes(content) for name, content in opened.contents.items()}
    first = tuple(sorted(given))[: plan.threshold]
    secrets: dict[str, bytes] = {}
    disputes: set[Dispute] = set()
    lost: list[str] = []
    for index, dealer in enumerate(book.keys):
        shares = {point: values[index] for point, values in given.items()}
        shared = secret_from(shares, first, partial(_fits, asked, dealer))
        if shared is None:
            lost.append(dealer)
            continue
        secrets[dealer] = shared.secret
        first = shared.right[: plan.threshold]  # who told the truth once is believed first again
        disputes |= {(dealer, plan.members[point - 1]) for point in shared.wrong}
    if not lost:
        return secrets, frozenset(disputes)
    spare = len(given) - plan.threshold
    if secrets and spare:  # with few wrong holders, it would have been computed
        failures = failures | dict.fromkeys(lost, _NO_SECRET)
    what = f"no secret of {', '.join(lost)} fits the shares of {len(given)} answers about sum {asked.which}"
    raise SumFailed(what, 0 if spare else 1, failures, opened.disputes | disputes)


def _fits(asked: sealed_answers.Unmasking, dealer: str, secret: bytes) -> bool:
    """Whether it is the secret of that member that was asked for."""
    keys, which = asked.book.keys[dealer], asked.which
    if dealer in asked.survivors:
        return commitment(asked.book.plan, dealer, which, secret) == keys.commitments[which]
    return public_key(secret) == keys.masks[which]
