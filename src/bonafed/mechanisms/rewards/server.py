r"""The server's part of model rewards: what a contribution earns, and the step that hands it out.

Reward rates (Wu, Amiri, Raskar, Low: equation (1), Algorithm 1) say how much of the others' work a client
is given.

With contributions p_i >= 0, a ceiling p_ceil beyond which more earns no more, and a sharing coefficient
kappa:

    reward rate        gamma_i  = min((p_i/p_ceil)^(1-kappa), 1)
    updates received   |S_i|    = 1 + ceil(gamma_i (N-1)): the own one, and a share gamma_i of the others'
    induced rate       gamma'_i = (gamma_i (N-1) + 1)/N, so |S_i| = ceil(gamma'_i N)
    reference          |S_ref|  = ceil(gamma'_ref N), gamma'_ref the largest (default) or median

kappa = 0 rewards in proportion, kappa = 1 gives everybody everything (federated averaging). The ceilings
are taken of x - 1e-9, because .07 * 100 is 7.000000000000001 in floating point. The paper does not say
what p_ceil its experiments use; the largest contribution is taken unless one is given (theory D1).

The step (Procedure 2, theory D1 and D2) is a pure function of its arguments:

    S_i      = {i} + a uniform sample, without replacement, of ceil(gamma_i (n-1)) of the others present
    reward_i = mean of g_j over S_i                              own="paper"
             = g_i/n + (n-1)/n times the mean over S_i \ {i}     own="unbiased"
    S_ref    = a uniform sample of ceil(gamma'_ref n) of those present; the reference moves by their mean

with n clients present. An absent client neither sends nor receives: it is in no set, and its reward is
zero.

The paper's rule gives the own update the weight 1/|S_i| > 1/n, so rewards are not unbiased: on average

    reward = W g,   W_ii = 1/|S_i|,   W_ij = (1 - 1/|S_i|)/(n-1)          (`expected_weights`)

and W is positive definite if at most one client has |S_i| = n. Without recovery the only fixed point is
then g = 0: every client drifts to the optimum of its own data (theory D2; Lemma D.2 of the paper, which
says otherwise, holds for gamma = 1 or homogeneous data only). own="unbiased" has W_ij = 1/n throughout, at
the price of a random walk of the models, which recovery (q > 0) keeps in check. A client whose set holds
nobody else gets its own update whole under both rules: there is nothing to be unbiased with.

Draws are a fixed function of (seed, round, client): one generator per round and purpose draws for all,
present or not, and client i has the i-th row. Every client has a random place in it, and the first ones are
taken: a client with a higher rate receives all it would have received with a lower one, and more. Sums are
taken in the order of the clients and without BLAS, so digits depend neither on threads nor on libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.measures import Models
from bonafed.randomness import Purpose, generator

Reference = Literal["max", "median"]
Counts = NDArray[np.int64]
_ROUNDING = 1e-9  # a count above a whole number by less than this is that whole number


def reward_rates(
    contributions: ArrayLike,
    *,
    sharing: float = 0.5,
    ceiling: float | None = None,
    name: str = "contributions",
    measured: bool = False,
) -> Floats:
    """(N,) gamma_i in [0, 1]; `name` is what a refused contribution is called in the message.

    Contributions that were `measured` may all be zero, in a round in which nobody's update helped: nobody
    earned anything then. Given ones may not, as they would for the whole training.

    >>> reward_rates([0.2, 0.5, 0.8, 1.0, 1.3], sharing=0, ceiling=1.0).tolist()
    [0.2, 0.5, 0.8, 1.0, 1.0]
    """
    p = checks.vector(name, contributions)
    kappa = checks.between("sharing", sharing, 0.0, 1.0)
    if not measured and not p.any():
        raise InvalidValue(name, "must not all be zero", f"{p.size} zeros")
    top = (float(p.max()) or 1.0) if ceiling is None else checks.positive("ceiling", ceiling)
    return np.asarray((np.minimum(p, top) / top) ** (1 - kappa))  # the minimum first: no overflow


def induced_rates(rates: ArrayLike, clients: int) -> Floats:
    """(n,) gamma'_i: the share of all N updates, the own one included."""
    gamma = _valid(rates)
    return np.asarray((gamma * (checks.whole("clients", clients) - 1) + 1) / clients)


def set_sizes(rates: ArrayLike, clients: int) -> Counts:
    """(n,) |S_i| in 1..N: how many updates go into each reward, the own one included.

    >>> set_sizes([0.07, 0.3, 0.7], 101).tolist()
    [8, 31, 71]
    """
    others = _valid(rates) * (checks.whole("clients", clients) - 1)
    return 1 + np.ceil(others - _ROUNDING).astype(np.int64)


def reference_size(rates: ArrayLike, clients: int, reference: Reference = "max") -> int:
    """|S_ref| in 1..N: how many updates go into the reference model."""
    checks.literal("reference", reference, Reference)
    induced = induced_rates(rates, clients)
    rate = float(induced.max() if reference == "max" else np.median(induced))
    return int(np.ceil(rate * clients - _ROUNDING))


def _valid(rates: ArrayLike) -> Floats:
    gamma = checks.vector("rates", rates)
    if gamma.max() > 1:
        raise InvalidValue("rates", "must not exceed 1", float(gamma.max()))
    return gamma


Own = Literal["paper", "unbiased"]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ServerStep:
    """What the server makes of a round's uploads."""

    rewards: Models  # (N, P) what each client's model moves by; zeros for the absent
    reference: Models  # (P,) what the reference model moves by
    sets: Bools  # (N, N) row i: whose updates are in client i's reward (S_i); no one for the absent
    reference_set: Bools  # (N,) whose are in the reference (S_ref)


def server_step(
    updates: Models,
    rates: ArrayLike,
    *,
    seed: int,
    round_number: int,
    own: Own = "paper",
    reference: Reference = "max",
    present: Bools | None = None,
) -> ServerStep:
    """Rewards and reference update from uploads (N, P) and rates (N,); everybody is present by default."""
    checks.literal("own", own, Own)
    clients = updates.shape[0]
    gamma = checks.vector("rates", rates, length=clients)
    here = np.ones(clients, dtype=bool) if present is None else present
    sets = draw_sets(gamma, here, seed=seed, round_number=round_number)
    size = reference_size(gamma[here], int(here.sum()), reference) if here.any() else 0
    ranks = generator(seed, Purpose.REFERENCE_SET, round_number).random((1, clients))
    reference_set = _first(ranks, here, np.array([size]))
    rewards = combine(reward_weights(sets, here, own), updates)
    return ServerStep(rewards, combine(mean_weights(reference_set), updates)[0], sets, reference_set[0])


def draw_sets(rates: Floats, present: Bools, *, seed: int, round_number: int) -> Bools:
    """(N, N) the sets S_i as rows; empty for the absent."""
    n, everybody = int(present.sum()), present.size
    if n == 0:
        return np.zeros((everybody, everybody), dtype=bool)
    ranks = generator(seed, Purpose.REWARD_SETS, round_number).random((everybody, everybody))
    np.fill_diagonal(ranks, -1.0)  # the own update comes first, and is counted in |S_i|
    sets = _first(ranks, present, set_sizes(rates, n))
    sets[~present] = False
    return sets


def reward_weights(sets: Bools, present: Bools, own: Own = "paper") -> Floats:
    """(N, N) the weight of each client's update in each client's reward."""
    if own == "paper":
        return mean_weights(sets)
    others = sets & ~np.eye(present.size, dtype=bool)
    alone: Bools = ~np.asarray(others.any(1))
    n = max(int(present.sum()), 1)
    weights = (n - 1) / n * mean_weights(others)
    at = np.flatnonzero(sets.any(1))
    weights[at, at] = np.where(alone[at], 1.0, 1 / n)
    return weights


def mean_weights(sets: Bools) -> Floats:
    """(m, N) weights of the mean over each row's set; zeros for an empty set."""
    return np.asarray(sets / np.maximum(sets.sum(1, keepdims=True), 1))


def combine(weights: Floats, updates: Models) -> Models:
    """(m, P) weighted sums of the updates, in their precision; added in the order of the clients."""
    # Not `@`: BLAS splits sums by threads and kernels. This takes 50 ms for 50 updates of 44,000 numbers.
    sums: Models = np.einsum("ij,jp->ip", weights.astype(updates.dtype), np.ascontiguousarray(updates))
    return sums


def expected_weights(sizes: ArrayLike, own: Own = "paper") -> Floats:
    """(N, N) the expectation W of the weights for set sizes |S_i| in 1..N, all present (theory D2)."""
    checks.literal("own", own, Own)
    s: Counts = np.asarray(sizes, dtype=np.int64)
    n = s.size
    if n == 0 or s.min() < 1 or s.max() > n:
        raise InvalidValue("sizes", f"must be in 1..{n}", s.tolist())
    if n == 1:
        return np.ones((1, 1))
    share = 1 / s if own == "paper" else np.where(s == 1, 1.0, 1 / n)  # alone: the own update whole
    weights = np.repeat(((1 - share) / (n - 1))[:, None], n, axis=1)
    np.fill_diagonal(weights, share)
    return weights


def who_recovers(recovery: float, present: Bools, *, seed: int, round_number: int) -> Bools:
    """(N,) who is handed the reference model in this round: each one present with probability q."""
    draws = generator(seed, Purpose.RECOVERY, round_number).random(present.size)
    return np.asarray((draws < recovery) & present)


def who_is_present(
    participation: Floats | Bools | None, clients: int, *, seed: int, round_number: int
) -> Bools:
    """(N,) A_t: all; or each client by its rate (N,); or row t - 1 of a schedule (rounds, N)."""
    if participation is None:
        return np.ones(clients, dtype=bool)
    if participation.ndim == 2:
        return np.asarray(participation[round_number - 1], dtype=bool)
    return np.asarray(generator(seed, Purpose.PRESENCE, round_number).random(clients) < participation)


def checked_participation(participation: ArrayLike | None, clients: int) -> Floats | Bools | None:
    """Rates in (0, 1] or a schedule of booleans, refused if they are neither."""
    if participation is None:
        return None
    schedule = np.asarray(participation)
    if schedule.ndim == 2:
        if schedule.dtype != np.bool_ or schedule.shape[1] != clients:
            rule = f"must be booleans of shape (rounds, {clients}) if a schedule"
            raise InvalidValue("participation", rule, f"{schedule.dtype} of shape {schedule.shape}")
        return np.asarray(schedule, dtype=bool)
    rates = checks.vector("participation", participation, sign="positive", length=clients)
    if rates.max() > 1:
        raise InvalidValue("participation", "must not exceed 1", float(rates.max()))
    return rates


def _first(ranks: Floats, among: Bools, sizes: Counts) -> Bools:
    """(m, N) the first sizes[k] of those in `among` by their place in row k."""
    order = np.argsort(np.where(among, ranks, np.inf), axis=1, kind="stable")  # places are below 1
    members = np.zeros(ranks.shape, dtype=bool)
    np.put_along_axis(members, order, np.arange(ranks.shape[1]) < sizes[:, None], axis=1)
    return members
