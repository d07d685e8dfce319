"""Who holds which sample: labels and a generator in, one sorted index array per client out.

Every partition gives each sample to exactly one client, leaves no client empty, and refuses impossible
requests before anything is drawn. With n samples, N clients and K classes (the labels that occur):

    iid                 every class spread evenly: counts per client and class differ by at most one
    label_dirichlet     of each class, client i gets a share ~ Dirichlet(beta)             (NIID benchmark)
    label_count         each client holds k classes                                        (NIID: #C = k)
    feature_noise       iid; client i = 1..N then gets noise of variance sigma i/N         (NIID benchmark)
    quantity_dirichlet  iid in kind, sizes ~ Dirichlet(beta)                               (NIID benchmark)
    similarity          s % spread uniformly, the rest by label, at most two classes each  (JSAM, VI-A.2)
    typicality          label y to client y mod K, moved anywhere w. p. 1 - delta            (faithful, VII)
    natural             the owner the data come with

"NIID benchmark" is Li, Diao, Chen and He, "Federated Learning on Non-IID Data Silos", ICDE 2022. All
randomness comes from the generator: the same state gives the same partition.

With label_count the classes of a client are drawn at random or, where that fails, by exchanges. Client i
(from 0) of N holds the class i mod K. The rest is a flow from clients to classes, in which a class
has room for as many holders as it has samples: a client that finds no class with room takes one from
another client, which in turn looks for another. If no such chain ends at a class with room there is no
solution. No class loses its last holder along the way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue, MissingValue
from bonafed.text import natural_order

Indices = NDArray[np.int64]
Parts = list[Indices]  # one sorted array of sample numbers per client; together every sample once

REDRAWS = 1_000  # before a minimum counts as out of reach, or classes are exchanged
MOST_SIGMA = 1e73  # variance of noise: a hundred standard deviations still fit into single precision
BETAS = (1e-100, 1e100)  # concentrations at which a Dirichlet distribution can be drawn in double precision


def iid(labels: ArrayLike, clients: int, rng: np.random.Generator) -> Parts:
    """Every class spread evenly: sizes, and counts per class, differ between clients by at most one.

    >>> [part.size for part in iid([0, 0, 0, 0, 1, 1, 1], 3, np.random.default_rng(0))]
    [2, 2, 3]
    """
    values, number = _request(labels, clients)
    order = np.concatenate([rng.permutation(members) for members in _classes(values, targets=True)])
    owner = np.empty(values.size, dtype=np.int64)
    owner[order] = rng.permutation(number)[np.arange(values.size) % number]
    return _by_owner(owner, number)


def label_dirichlet(
    labels: ArrayLike, clients: int, rng: np.random.Generator, beta: float, minimum: int = 10
) -> Parts:
    """Of each class in turn, client i gets a share pi_i of pi ~ Dirichlet(beta, ..., beta).

    As in the NIID benchmark, a client that already has its fair share n/N gets none of the next classes
    (the other shares are scaled up), and all is redrawn until the smallest client has `minimum` samples.
    """
    values, number = _request(labels, clients, minimum)
    concentration = _beta(beta)
    classes = _classes(values)
    fair_share = values.size / number
    for _ in range(REDRAWS):
        counts = np.zeros((len(classes), number), dtype=np.int64)
        sizes = np.zeros(number, dtype=np.int64)
        for row, members in zip(counts, classes, strict=True):
            shares = rng.dirichlet(np.full(number, concentration))
            shares[sizes >= fair_share] = 0.0
            if shares.sum() <= 0:  # the whole draw went to clients that are full
                break
            row[:] = _apportion(shares, members.size)
            sizes += row
        if sizes.sum() == values.size and sizes.min() >= minimum:
            break
    else:
        raise InvalidValue(
            "minimum",
            f"must be smaller, or beta larger: none of {REDRAWS} draws with beta = {concentration:g} gave "
            f"each of {number} clients that many samples",
            minimum,
        )
    owner = np.empty(values.size, dtype=np.int64)
    for row, members in zip(counts, classes, strict=True):
        owner[rng.permutation(members)] = np.repeat(np.arange(number), row)
    return _by_owner(owner, number)


def label_count(labels: ArrayLike, clients: int, rng: np.random.Generator, k: int) -> Parts:
    """#C = k: each client holds exactly k classes, every class is held, its samples split evenly.

    As in the NIID benchmark, client i (from 0) holds the class i mod K and k - 1 others drawn at random.
    With fewer clients than classes, which the benchmark does not cover, the classes without a holder are
    dealt out first. A class never has more holders than samples; where a draw hardly ever achieves that,
    clients exchange classes until it does.
    """
    values, number = _request(labels, clients)
    classes = _classes(values)
    sizes = np.array([members.size for members in classes])
    per_client = checks.whole("k", k)
    if per_client > sizes.size:
        raise InvalidValue("k", f"must be at most the number of classes, {sizes.size}", per_client)
    if number * per_client < sizes.size:
        raise InvalidValue(
            "k", f"must be at least {-(-sizes.size // number)} for every class to have a holder", per_client
        )
    first = np.bincount(np.arange(number) % sizes.size, minlength=sizes.size)
    if number * per_client > np.minimum(sizes, number).sum() or (first > sizes).any():
        raise InvalidValue(
            "clients", f"must be fewer for each to hold samples of k = {per_client} classes", number
        )
    holds = holders(sizes, number, per_client, rng)
    if holds is None:
        raise InvalidValue(
            "k", f"must be smaller for {number} clients to hold samples of k classes", per_client
        )
    owner = np.empty(values.size, dtype=np.int64)
    for members, column in zip(classes, holds.T, strict=True):
        who = rng.permutation(np.flatnonzero(column))
        owner[rng.permutation(members)] = who[np.arange(members.size) % who.size]
    return _by_owner(owner, number)


def feature_noise(labels: ArrayLike, clients: int, rng: np.random.Generator, sigma: float) -> Parts:
    """The partition of the noise-based feature skew: iid. The noise itself: `add_feature_noise`."""
    checks.between("sigma", sigma, 0, MOST_SIGMA)
    return iid(labels, clients, rng)


def feature_noise_levels(clients: int, sigma: float) -> Floats:
    """The noise VARIANCE of each client, (clients,): sigma i/N for client i = 1..N.

    This is the definition in the benchmark's paper: Gau(sigma i/N) has mean 0 and variance sigma i/N. Its
    published code differs: there sigma i/(N - 1), i from 0, is the standard deviation.

    >>> feature_noise_levels(4, 0.1)
    array([0.025, 0.05 , 0.075, 0.1  ])
    """
    number = checks.whole("clients", clients)
    return checks.between("sigma", sigma, 0, MOST_SIGMA) * np.arange(1, number + 1) / number


def add_feature_noise(
    features: NDArray[np.float32], parts: Parts, levels: ArrayLike, rng: np.random.Generator
) -> NDArray[np.float32]:
    """A copy of `features` with N(0, levels[i]) (variances) added to every entry of client i's samples.

    Nothing is clipped: noisy pixels may leave [0, 1], as in the benchmark.
    """
    variances = checks.vector("levels", levels, length=len(parts))
    if variances.max() > MOST_SIGMA:
        raise InvalidValue("levels", f"must not exceed {MOST_SIGMA:g}", float(variances.max()))
    if not np.issubdtype(features.dtype, np.floating):
        raise InvalidValue("features", "must be real numbers for noise to be added", features.dtype)
    noisy = features.astype(np.float32)
    for part, deviation in zip(parts, np.sqrt(variances).astype(np.float32), strict=True):
        if deviation > 0:
            noisy[part] += deviation * rng.standard_normal(noisy[part].shape, dtype=np.float32)
    return noisy


def quantity_dirichlet(
    labels: ArrayLike, clients: int, rng: np.random.Generator, beta: float, minimum: int = 10
) -> Parts:
    """Samples at random, sizes minimum + pi_i (n - N minimum) with pi ~ Dirichlet(beta, ..., beta).

    The NIID benchmark instead redraws pi until min_i pi_i n reaches the minimum, which practically never
    happens for 100 clients and beta = 0.5. Where it does (n far above N minimum) the two hardly differ, and
    for beta = 1 this is the same distribution: uniform on the simplex above the minimum.
    """
    values, number = _request(labels, clients, minimum)
    shares = rng.dirichlet(np.full(number, _beta(beta)))
    least = int(minimum)
    sizes = least + _apportion(shares, values.size - number * least)
    owner = rng.permutation(np.repeat(np.arange(number), sizes))
    return _by_owner(owner, number)


def similarity(labels: ArrayLike, clients: int, rng: np.random.Generator, s: float) -> Parts:
    """s percent of the data spread uniformly; the rest by label, at most two classes per client from it.

    Client sizes differ by at most one (JSAM: 600 each for MNIST) when there are at least as many clients
    as classes. The rest is dealt out client by client: from the smallest class left, topped up from the
    largest when that is used up. With fewer clients than classes some clients take two whole classes, the
    smallest left, and sizes differ; fewer than half as many clients as classes cannot be served.
    """
    values, number = _request(labels, clients)
    percent = checks.between("s", s, 0, 100)
    classes = len(_classes(values))
    if percent < 100 and 2 * number < classes:
        raise InvalidValue("clients", f"must be at least {-(-classes // 2)}, two classes each", number)
    order = rng.permutation(values.size)
    uniform = round(percent / 100 * values.size)
    owner = np.empty(values.size, dtype=np.int64)
    owner[order[:uniform]] = np.arange(uniform) % number  # spare samples to the first clients
    rest = order[uniform:]
    stocks = [rest[members] for members in _classes(values[rest])] if rest.size else []
    for client in range(number):  # spare samples of the rest to the last clients
        for samples in _next_hand(stocks, number - client):
            owner[samples] = client
    return _by_owner(owner, number)


def typicality(labels: ArrayLike, clients: int, rng: np.random.Generator, delta: float) -> Parts:
    """The faithful paper's Delta: 0 is iid, 1 the most heterogeneous.

    A sample of class y goes to a client whose index is y modulo the number of classes, uniformly if there
    are several; then, with probability 1 - delta, to any client, uniformly. Redrawn if a client has none.
    """
    values, number = _request(labels, clients)
    heterogeneity = checks.between("delta", delta, 0, 1)
    classes = _classes(values)
    if number < len(classes):
        raise InvalidValue("clients", f"must be at least the number of classes, {len(classes)}", number)
    home = np.empty(values.size, dtype=np.int64)
    for position, members in enumerate(classes):
        home[members] = position
    choices = (number - 1 - home) // len(classes) + 1  # clients with index = home modulo classes
    for _ in range(REDRAWS):
        owner = home.copy()
        if number > len(classes):
            owner += len(classes) * rng.integers(0, choices)
        moved = rng.random(values.size) < 1 - heterogeneity
        owner[moved] = rng.integers(0, number, int(moved.sum()))
        if np.bincount(owner, minlength=number).min() > 0:
            return _by_owner(owner, number)
    raise InvalidValue("clients", f"must be fewer: each of {REDRAWS} draws left one without data", number)


def natural(groups: ArrayLike) -> Parts:
    """One client per distinct owner, in the order of `owner_numbers`.

    >>> natural([7, 3, 7])
    [array([1]), array([0, 2])]
    """
    owner = owner_numbers(groups)
    return _by_owner(owner, int(owner.max()) + 1)


def owner_numbers(groups: ArrayLike) -> Indices:
    """(n,) owners numbered from 0, in the order of their names (`natural_order`).

    >>> owner_numbers(["ward 9", "ward 10", "ward 9"])
    array([0, 1, 0])
    """
    if isinstance(groups, list | tuple):  # before NumPy cuts off what ends in NUL
        for name in dict.fromkeys(name for name in groups if isinstance(name, str) and name):
            checks.one_name("name in groups", name)
    array = np.asarray(groups)
    if array.ndim != 1 or array.size == 0:
        raise InvalidValue("groups", "must be a non-empty list of owners", f"shape {array.shape}")
    if np.issubdtype(array.dtype, np.integer):
        return np.unique(array, return_inverse=True)[1].astype(np.int64)
    names = array.tolist()
    if not all(isinstance(name, str) for name in names):
        raise InvalidValue("groups", "must be whole numbers or text", array.dtype)
    if "" in names:
        raise InvalidValue("groups", "must name an owner", f"nothing in sample {names.index('')}")
    number_of = {name: number for number, name in enumerate(sorted(set(names), key=natural_order))}
    return np.array([number_of[name] for name in names], dtype=np.int64)


def owner_names(groups: ArrayLike) -> tuple[str, ...]:
    """The names of the owners, in the order of their numbers.

    >>> owner_names(["ward 9", "ward 10", "ward 9"])
    ('ward 9', 'ward 10')
    """
    _, first = np.unique(owner_numbers(groups), return_index=True)
    return checks.names("names in groups", map(str, np.asarray(groups)[first].tolist()))


def _natural(labels: ArrayLike, clients: int, rng: np.random.Generator, groups: ArrayLike) -> Parts:
    """`natural` with the signature of the others; the arguments must agree with the groups."""
    values, number = _request(labels, clients)
    parts = natural(groups)
    if (count := sum(part.size for part in parts)) != values.size:
        raise InvalidValue("groups", f"must name an owner for each of {values.size} samples", count)
    if len(parts) != number:
        raise InvalidValue("clients", f"must be the number of owners in the data, {len(parts)}", number)
    return parts


PARTITIONS: dict[str, Callable[..., Parts]] = {
    "iid": iid,
    "label_dirichlet": label_dirichlet,
    "label_count": label_count,
    "feature_noise": feature_noise,
    "quantity_dirichlet": quantity_dirichlet,
    "similarity": similarity,
    "typicality": typicality,
    "natural": _natural,
}


def options_of(name: str) -> dict[str, bool]:
    """The options of a partition by name, and whether each is required.

    >>> options_of("label_dirichlet")
    {'beta': True, 'minimum': False}
    """
    make = PARTITIONS[checks.one_of("partition", name, tuple(PARTITIONS))]
    extra = list(inspect.signature(make).parameters.values())[3:]  # after labels, clients, rng
    return {option.name: option.default is option.empty for option in extra}


def partition(
    name: str, labels: ArrayLike, clients: int, rng: np.random.Generator, **options: Any
) -> Parts:
    """The named partition; unknown names, unknown options and missing options are refused.

    >>> partition("label_count", [0, 0, 1, 1], 2, np.random.default_rng(0), k=1)
    [array([0, 1]), array([2, 3])]
    """
    choices = options_of(name)
    for option in options:
        if option not in choices:
            allowed = "be one of " + ", ".join(choices) if choices else "not be given"
            raise InvalidValue(f"option of partition {name}", f"must {allowed}", repr(option))
    for option, required in choices.items():
        if required and option not in options:
            raise MissingValue(option, f"is required for partition {name}")
    return PARTITIONS[name](labels, clients, rng, **options)


def _request(labels: ArrayLike, clients: int, minimum: int = 1) -> tuple[NDArray[Any], int]:
    """Labels as an array and the number of clients, if each can have `minimum` samples."""
    values = np.asarray(labels)
    if values.ndim != 1 or values.size == 0:
        raise InvalidValue("labels", "must be a non-empty list", f"shape {values.shape}")
    if not np.issubdtype(values.dtype, np.integer) and not np.issubdtype(values.dtype, np.floating):
        raise InvalidValue("labels", "must be numbers", values.dtype)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise InvalidValue("labels", "must be finite", f"{values[bad[0]]} at position {bad[0]}")
    number = checks.whole("clients", clients)
    if number > values.size:
        raise InvalidValue("clients", f"must be at most the number of samples, {values.size}", number)
    least = checks.whole("minimum", minimum)
    if least * number > values.size:
        most = values.size // number
        raise InvalidValue(
            "minimum", f"must be at most {most}, {values.size} samples for {number} clients", least
        )
    return values, number


def _beta(beta: float) -> float:
    concentration = checks.positive("beta", beta)
    return checks.between("beta", concentration, *BETAS)


def _classes(values: NDArray[Any], targets: bool = False) -> list[Indices]:
    """The sample numbers of each class that occurs, by ascending label; real targets are one class."""
    if np.issubdtype(values.dtype, np.floating):
        if not targets:
            raise InvalidValue("labels", "must be classes (whole numbers)", values.dtype)
        return [np.arange(values.size)]
    _, counts = np.unique(values, return_counts=True)
    return np.split(np.argsort(values, kind="stable"), np.cumsum(counts)[:-1])


def owners(parts: Parts) -> Indices:
    """(n,) the client of each sample, where every sample has one.

    >>> owners([np.array([1]), np.array([0, 2])])
    array([1, 0, 1])
    """
    owner = np.empty(sum(part.size for part in parts), dtype=np.int64)
    for client, part in enumerate(parts):
        owner[part] = client
    return owner


def _by_owner(owner: Indices, clients: int) -> Parts:
    counts = np.bincount(owner, minlength=clients)
    return np.split(np.argsort(owner, kind="stable"), np.cumsum(counts)[:-1])


def _apportion(shares: Floats, total: int) -> Indices:
    """Whole numbers that sum to `total`, in proportion to the shares; 0 for a share of 0."""
    reach = np.cumsum(shares)
    edges: Indices = np.floor(reach / reach[-1] * total).astype(
        np.int64
    )  # the last positive share ends at 1
    edges[1:] -= edges[:-1].copy()
    return edges


def _next_hand(stocks: list[Indices], clients: int) -> list[Indices]:
    """What the next of `clients` takes from the stocks of the classes, in place: at most two.

    While classes <= clients, an equal hand is at most the average stock, so the largest can top it up; and
    either a stock is used up or all stocks exceed the hand, so the next client finds the same.
    """
    stocks.sort(key=len)
    if len(stocks) > clients:
        return [stocks.pop(0), stocks.pop(0)]
    size = sum(map(len, stocks)) // clients
    hand: list[Indices] = []
    for position in (0, -1):
        if size and stocks:
            samples, stocks[position] = stocks[position][:size], stocks[position][size:]
            hand.append(samples)
            size -= samples.size
            stocks[:] = [stock for stock in stocks if stock.size]
    return hand


Holders = NDArray[np.bool_]  # (clients, classes)


def holders(
    sizes: NDArray[np.int64], clients: int, per_client: int, rng: np.random.Generator
) -> Holders | None:
    """Each client with `per_client` classes, no class with more holders than samples; None: impossible."""
    for _ in range(REDRAWS):
        holds, room = _begin(sizes, clients, rng)
        if all(_take(row, room, per_client, rng) for row in holds):
            return holds
    holds, room = _begin(sizes, clients, rng)
    for client in rng.permutation(clients).tolist():
        for _ in range(per_client - int(holds[client].sum())):
            if not _exchange(holds, room, client, rng.permutation(sizes.size)):
                return None
    return holds


def _begin(
    sizes: NDArray[np.int64], clients: int, rng: np.random.Generator
) -> tuple[Holders, NDArray[np.int64]]:
    """Class i mod K for client i, classes without a holder dealt out; and the room left in each class."""
    holds = np.zeros((clients, sizes.size), dtype=np.bool_)
    holds[np.arange(clients), np.arange(clients) % sizes.size] = True
    unheld = rng.permutation(np.flatnonzero(~holds.any(axis=0)))
    holds[np.arange(unheld.size) % clients, unheld] = True
    return holds, sizes - holds.sum(axis=0)


def _take(row: Holders, room: NDArray[np.int64], per_client: int, rng: np.random.Generator) -> bool:
    """Give one client random classes with room; False if there are too few."""
    missing = per_client - int(row.sum())
    free = np.flatnonzero(~row & (room > 0))
    if free.size < missing:
        return False
    picks = rng.choice(free, missing, replace=False)
    row[picks] = True
    room[picks] -= 1
    return True


def _exchange(holds: Holders, room: NDArray[np.int64], client: int, order: NDArray[np.int64]) -> bool:
    """One more class for a client, by the shortest chain of clients that each give one up; or False."""
    classes = holds.shape[1]
    chains: dict[int, list[tuple[int, int]]] = {client: []}  # (taker, class) up to each client
    waiting, seen = [client], set[int]()
    for taker in waiting:  # grows during the loop
        for label in order[~holds[taker, order]].tolist():
            if label in seen:
                continue
            seen.add(label)
            chain = [*chains[taker], (taker, label)]
            if room[label] > 0:
                _carry_out(holds, chain)
                room[label] -= 1
                return True
            for giver in np.flatnonzero(holds[:, label]).tolist():
                if giver not in chains and giver % classes != label:  # it keeps its first class
                    chains[giver] = chain
                    waiting.append(giver)
    return False


def _carry_out(holds: Holders, chain: list[tuple[int, int]]) -> None:
    """Every client takes a class, which the next one gives up."""
    for step, (taker, label) in enumerate(chain):
        holds[taker, label] = True
        if step:
            holds[taker, chain[step - 1][1]] = False
