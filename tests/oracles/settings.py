"""What a run that averages is going to do, read off its setting."""

from __future__ import annotations


def participation(made, number):
    """Who is in round 1, 2, ..."""
    return made.mechanism.rules.participation(made.agreement, number)


def local_training(made, number=1):
    """What clients do in it."""
    return made.mechanism.local_training(number, made.agreement)


def noise_multipliers(made):
    """(N,) noise over sensitivity; None: the run is not private."""
    return made.mechanism.begin(made.agreement, made.start).noise_multipliers


def parts(made):
    """(N,) the samples of each client."""
    return made.clients.parts


def samples(made):
    """Of all clients."""
    return made.clients.samples
