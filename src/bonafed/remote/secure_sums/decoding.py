"""The polynomial that most shares agree on: Reed-Solomon decoding by Gao's algorithm.

Let e of r shares of a polynomial f of degree below t be wrong, 2e <= r - t. Then f is found. It is the only
one that agrees with so many shares, since two of degree below t agree in t - 1 places at most.

With g the product of (X - x_i) and h the polynomial through all r shares, the extended Euclidean algorithm
on g and h is stopped at the first remainder of degree below (r + t)/2, u g + v h. There v is zero where
shares are wrong, and the remainder is f v (Gao 2003).

Polynomials are lists of coefficients modulo the prime, lowest first, without zeros at the end.
"""

from __future__ import annotations

from collections.abc import Mapping

from bonafed.remote.secure_sums import field

Polynomial = list[int]


def decoded(shares: Mapping[int, int], threshold: int) -> Polynomial | None:
    """f, from its values by place; None: too many are wrong."""
    remainder, last = _through(shares), _vanishing(shares)
    factor: Polynomial = [1]
    last_factor: Polynomial = []
    while 2 * (len(remainder) - 1) >= len(shares) + threshold:
        quotient, rest = _divided(last, remainder)
        last, remainder = remainder, rest
        factor, last_factor = _minus(last_factor, _product(quotient, factor)), factor
    found, rest = _divided(remainder, factor)
    return None if rest or len(found) > threshold else found


def _vanishing(places: Mapping[int, int]) -> Polynomial:
    """g"""
    result: Polynomial = [1]
    for place in places:
        result = _product(result, [-place % field.PRIME, 1])
    return result


def _through(shares: Mapping[int, int]) -> Polynomial:
    """h, by Newton's rule: at every new place a multiple of what vanishes at all before is added."""
    result: Polynomial = []
    vanishing: Polynomial = [1]
    for place, share in shares.items():
        missing = (share - field.value(result, place)) * pow(field.value(vanishing, place), -1, field.PRIME)
        result = _minus(result, [-missing * each % field.PRIME for each in vanishing])
        vanishing = _product(vanishing, [-place % field.PRIME, 1])
    return result


def _divided(above: Polynomial, below: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Quotient and remainder."""
    rest, inverse = list(above), pow(below[-1], -1, field.PRIME)
    quotient = [0] * max(0, len(above) - len(below) + 1)
    for shift in reversed(range(len(quotient))):
        multiple = rest[shift + len(below) - 1] * inverse % field.PRIME
        quotient[shift] = multiple
        for at, each in enumerate(below):
            rest[shift + at] = (rest[shift + at] - multiple * each) % field.PRIME
    return _trimmed(quotient), _trimmed(rest)


def _product(one: Polynomial, other: Polynomial) -> Polynomial:
    result = [0] * (len(one) + len(other))
    for at, each in enumerate(one):
        for shift, factor in enumerate(other):
            result[at + shift] = (result[at + shift] + each * factor) % field.PRIME
    return _trimmed(result)


def _minus(one: Polynomial, other: Polynomial) -> Polynomial:
    longer = max(len(one), len(other))
    padded = zip(one + [0] * (longer - len(one)), other + [0] * (longer - len(other)), strict=True)
    return _trimmed([(a - b) % field.PRIME for a, b in padded])


def _trimmed(polynomial: Polynomial) -> Polynomial:
    while polynomial and not polynomial[-1]:
        polynomial.pop()
    return polynomial
