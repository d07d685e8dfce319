"""The paper's risk and complexity bounds as plain functions, as printed and as corrected.

`AgentPopulation` holds what the risk bounds depend on. With c = L_ell^2 d log(2d/delta)/(4 mu) and the
distance ||P - Q|| = sum |P - Q| between data distributions:

    collective_risk     (8)   c sum p_k^2/n_k
    local_risk          (13)  c/n_k
    federated_risk      (14)  (8) + 2 ||P_k - sum p_j P_j||
    manipulated_risk    (16)  (14) for the weights an agent that amplifies by gamma gives itself
    best_manipulation         the gamma that minimises (16), in closed form (F-E13)
    social_local_risk   (17)  c' sum p_k/n_k,            c' with log(2Kd/delta)
    social_federated    (18)  c' sum p_k^2/n_k + 2 sum p_k ||P_k - sum p_j P_j||
    social_clustered    (21)  c' sum p_k p_{k,C(k)}/n_k + 2 sum p_k ||P_k - mean of the cluster|| (F-E11)

The printed constants are kept (F-E12: Hoeffding's range would give 4 times as much unless the derivative's
range is at most L_ell). (19) is local minus federated, not the reverse (F-E10).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue


@dataclass(frozen=True, eq=False)
class AgentPopulation:
    """K agents, as far as the risk bounds depend on them."""

    weights: Floats  # (K,) p, sum 1
    counts: Floats  # (K,) n, samples
    distributions: Floats  # (K, m) P_k over m outcomes, rows sum to 1
    lipschitz: float  # L_ell, of the per-sample loss
    dimension: int  # d, of the model
    strong_convexity: float  # mu
    confidence: float  # delta: the bounds hold with probability 1 - delta

    def __post_init__(self) -> None:
        p = checks.shares("weights", self.weights)
        n = checks.vector("counts", self.counts, sign="positive", length=p.size)
        rows = np.asarray(self.distributions, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[0] != p.size:
            raise InvalidValue("distributions", f"must have {p.size} rows", f"shape {rows.shape}")
        if (rows < 0).any() or (np.abs(rows.sum(1) - 1) > 1e-9).any():
            raise InvalidValue("distributions", "must be rows of probabilities", f"sums {rows.sum(1)}")
        checks.positive("lipschitz", self.lipschitz)
        checks.whole("dimension", self.dimension)
        checks.positive("strong_convexity", self.strong_convexity)
        if not 0 < checks.number("confidence", self.confidence) < 1:
            raise InvalidValue("confidence", "must be between 0 and 1, ends excluded", self.confidence)
        for name, value in (("weights", p), ("counts", n), ("distributions", rows)):
            object.__setattr__(self, name, value)

    def _constant(self, union: bool = False) -> float:
        """c, or c' with a union bound over the K agents."""
        times = 2 * self.dimension * (self.weights.size if union else 1)
        return (
            self.lipschitz**2
            * self.dimension
            * math.log(times / self.confidence)
            / (4 * self.strong_convexity)
        )

    def _from_mean(self, weights: Floats) -> Floats:
        """(K,) distances of every agent's distribution from the weighted mean."""
        return np.asarray(np.abs(self.distributions - weights @ self.distributions).sum(1))


def collective_risk(population: AgentPopulation) -> float:
    """(8): excess of the federation's expected risk."""
    return float((population.weights**2 / population.counts).sum()) * population._constant()


def local_risk(population: AgentPopulation) -> Floats:
    """(13): (K,) of learning alone."""
    return np.asarray(population._constant() / population.counts)


def federated_risk(population: AgentPopulation) -> Floats:
    """(14): (K,) of taking part: what is estimated better, plus how far an agent is from typical."""
    return collective_risk(population) + 2 * population._from_mean(population.weights)


def manipulated_risk(population: AgentPopulation, factor: float) -> Floats:
    """(16): (K,) for each agent, if it alone amplifies its gradient by `factor`."""
    gamma, p = checks.positive("factor", factor), population.weights
    risks = np.empty(p.size)
    for k in range(p.size):
        own = p.copy()
        own[k] *= gamma
        own /= own.sum()
        noise = float((own**2 / population.counts).sum()) * population._constant()
        risks[k] = noise + 2 * population._from_mean(own)[k]
    return risks


def best_manipulation(population: AgentPopulation) -> Floats:
    """(K,) the gamma that minimises (16); infinity where learning alone is best (F-E13)."""
    p, n, c = population.weights, population.counts, population._constant()
    rest = float((p**2 / n).sum()) - p**2 / n
    distance = population._from_mean(p)
    u = (c * (1 - p) / n - distance) / (c * (rest + (1 - p) ** 2 / n))
    with np.errstate(divide="ignore"):
        return np.where(u > 0, 1 + (1 / np.maximum(u, 1e-300) - 1) / p, np.inf)


def social_local_risk(population: AgentPopulation) -> float:
    """(17): everybody learns alone."""
    return float((population.weights / population.counts).sum()) * population._constant(union=True)


def social_federated_risk(population: AgentPopulation) -> float:
    """(18): one model for all."""
    return social_clustered_risk(population, [range(population.weights.size)])


def social_clustered_risk(
    population: AgentPopulation, clusters: Sequence[Sequence[int]], printed: bool = False
) -> float:
    """(21): one model per cluster; the printed first term lacks the cluster's weight (F-E11)."""
    p, total = population.weights, 0.0
    agents = sorted(k for members in clusters for k in members)
    if agents != list(range(p.size)):
        raise InvalidValue("clusters", f"must hold every agent 0..{p.size - 1} once", agents)
    for members in clusters:
        who = np.array(members)
        inside = p[who] / p[who].sum()
        first = inside**2 if printed else p[who] * inside
        total += float((first / population.counts[who]).sum()) * population._constant(union=True)
        away = np.abs(population.distributions[who] - inside @ population.distributions[who]).sum(1)
        total += 2 * float(p[who] @ away)
    return total


def federation_advantage(population: AgentPopulation) -> float:
    """(19) as printed: local minus federated, for equal weights and sample sizes (F-E10)."""
    k = population.weights.size
    away = np.abs(population.distributions - population.distributions.mean(0)).sum(1)
    first = (k - 1) * population._constant(union=True) / float(population.counts.sum())
    return first - 2 / k * float(away.sum())


def efficiency_bound(population: AgentPopulation, smoothness: float, steps: int, gap: float) -> float:
    """Phi of (30): (8) with twice the constant, plus what T_1 gradient steps leave of the start's gap."""
    l_g, t = checks.positive("smoothness", smoothness), checks.whole("steps", steps, at_least=0)
    mu = population.strong_convexity
    if mu > l_g:
        raise InvalidValue("smoothness", f"must be at least the strong convexity, {mu:g}", l_g)
    remainder = 2 * l_g / mu * (1 - mu / l_g) ** t * checks.non_negative("gap", gap)
    return 2 * collective_risk(population) + remainder


class Advice(NamedTuple):
    """A recommendation and the numbers behind it."""

    choice: str
    bounds: dict[str, float]  # risk bound of every choice; the smallest is recommended


def should_join(population: AgentPopulation, agent: int) -> Advice:
    """Should this agent join? Compares its risk bounds alone (13) and in the federation (14).

    The payments of faithful learning are not in it: they are O(1/K), see `payment_upper_bound`.
    """
    if not 0 <= agent < population.weights.size:
        raise InvalidValue("agent", f"must be in 0..{population.weights.size - 1}", agent)
    bounds = {
        "stay alone": float(local_risk(population)[agent]),
        "join": float(federated_risk(population)[agent]),
    }
    return Advice(min(bounds, key=bounds.__getitem__), bounds)


def federate_or_cluster(population: AgentPopulation, clusters: Sequence[Sequence[int]]) -> Advice:
    """Should everybody share one model, should these clusters, or nobody? By (17), (18) and (21)."""
    bounds = {
        "federate": social_federated_risk(population),
        "cluster": social_clustered_risk(population, clusters),
        "learn alone": social_local_risk(population),
    }
    return Advice(min(bounds, key=bounds.__getitem__), bounds)


class Complexity(NamedTuple):
    """Theorem 1: steps that are enough, and what they certify."""

    training_steps: int  # T_1
    payment_steps: int  # T_2
    interval: tuple[float, float]  # (37)
    interval_holds: bool  # not empty
    inside: bool  # T_2 lies in it
    work: int  # K T_2
    printed_bound: float  # (36), too small by up to a factor 2 (F-E6)
    bound: float  # corrected


def complexity(
    agents: int,
    smoothness: float,
    strong_convexity: float,
    gradient_bound: float,
    distance: float,
    accuracy: float,
    epsilon: float,
) -> Complexity:
    """Theorem 1: steps for payments within epsilon. Vacuous where it applies (F-E7): use the residual test.

    `distance` is G = |w[0] - w°|, `accuracy` is Delta.
    """
    k, l_g, mu = checks.whole("agents", agents), smoothness, strong_convexity
    l_f, eps = gradient_bound, epsilon
    for name, value in (
        ("smoothness", l_g), ("strong_convexity", mu), ("gradient_bound", l_f), ("distance", distance),
        ("accuracy", accuracy), ("epsilon", eps),
    ):  # fmt: skip
        checks.positive(name, value)
    if mu >= l_g:
        raise InvalidValue("strong_convexity", f"must be below smoothness = {l_g:g}", mu)
    rate = math.log(l_g / (l_g - mu))
    reach = (l_f + accuracy * mu) ** 2 * l_g / (mu**2 * eps)  # X of F-E6
    low, high = math.log(reach / k) / rate, l_g * eps * k / (2 * l_f**2)
    t_1 = max(0, math.ceil(2 * math.log(k * distance / accuracy) / -math.log(1 - mu / l_g)))
    t_2 = max(0, math.ceil(low))
    return Complexity(
        t_1, t_2, (low, high), low <= high, low <= t_2 <= high, k * t_2,
        (1 + reach / (2 * math.e)) / rate, reach * (1 + 1 / (math.e * rate)),
    )  # fmt: skip


def integration_error_bound(
    weight: float, smoothness: float, gradient_bound: float, steps: int, step: float
) -> float:
    """(33) of Proposition 5: bounds the payment against the loss difference it integrates.

    Not against the VCG payment, as printed: the truncation after T_2 steps is missing (F-E4).
    """
    p = checks.between("weight", weight, 1e-300, 1.0)
    return (1 - p) / p * smoothness * gradient_bound**2 * (checks.whole("steps", steps, 0) + 1) * step**2


def payment_upper_bound(weight: float, gradient_bound: float, strong_convexity: float) -> float:
    """P_k <= p_k L_f^2/(2 (1 - p_k) mu): payments are O(1/K) (theory C1.3)."""
    p = checks.between("weight", weight, 0.0, 1 - 1e-12)
    return p * gradient_bound**2 / (2 * (1 - p) * checks.positive("strong_convexity", strong_convexity))


def steps_needed(
    weight: float,
    smoothness: float,
    strong_convexity: float,
    gradient_norm: float,
    epsilon: float,
    step_share: float = 1.0,
) -> int:
    """Payment steps until the residual test is sure to hold, from |grad f_-k(w*)| (theory C3.2)."""
    p, mu = checks.between("weight", weight, 1e-300, 1 - 1e-12), checks.positive("mu", strong_convexity)
    gap = gradient_norm**2 / (2 * (1 - p) * mu * p)
    if gap <= checks.positive("epsilon", epsilon):
        return 0
    shrinking = step_share * mu / smoothness
    return 1 if shrinking >= 1 else math.ceil(math.log(gap / epsilon) / -math.log1p(-shrinking))


class Tradeoff(NamedTuple):
    """Proposition 11: privacy, steps and accuracy of private payments."""

    noise: float  # A
    start: float  # B
    contraction: float  # C
    steps: int  # T_1 = T_2, (57)
    loss: float  # (58) without its epsilon
    loss_at_steps: float  # A T + B C^T at the whole number of steps


class TradeoffSetting(NamedTuple):
    """What private payments are computed with (Proposition 11)."""

    step: float  # eta_2
    dimension: int  # d
    gradient_bound: float  # L_f
    agents: int  # K
    alpha: float  # privacy, (alpha, beta)
    beta: float
    strong_convexity: float  # mu
    smallest: int  # n_(1), samples of the agent with the fewest
    smoothness: float  # L_g


def privacy_tradeoff(setting: TradeoffSetting, corrected: bool = True) -> Tradeoff:
    """(57)-(59). The printed A lacks a factor L_g (K-1) K^2 (erratum F-D9).

    T_1 = T_2 increase and the loss decreases with alpha; the text after Fig. 2 has it the other way round.
    """
    k = checks.whole("agents", setting.agents, 2)
    mu = checks.positive("strong_convexity", setting.strong_convexity)
    eta, a = checks.positive("step", setting.step), checks.positive("alpha", setting.alpha)
    squares = setting.gradient_bound**2
    noise = 8 * eta * setting.dimension * squares * (k + 1) * math.log(1 / setting.beta)
    noise /= mu * k**2 * (k - 1) * setting.smallest**2 * a**2
    if corrected:
        noise *= setting.smoothness * (k - 1) * k**2
    begin, keep = (k - 1) * squares / (2 * mu), 1 - (k - 1) * mu * eta
    if not 0 < keep < 1:
        raise InvalidValue("step", "must be below 1/((K-1) mu)", eta)
    rate = -math.log(keep)
    optimum = math.log(begin * rate / noise) / rate
    steps = max(0, math.ceil(optimum))
    loss = noise * (1 + math.log(begin * rate / noise)) / rate
    return Tradeoff(noise, begin, keep, steps, loss, noise * steps + begin * keep**steps)


def amplified_weights(weights: ArrayLike, agent: int, factor: float) -> Floats:
    """(K,) the weights the federation ends up with if an agent amplifies its gradient."""
    p = np.array(checks.shares("weights", weights))
    p[agent] *= checks.positive("factor", factor)
    return np.asarray(p / p.sum())


def zcdp_epsilon(rho: float, beta: float) -> float:
    """rho-zCDP as (alpha, beta): alpha = rho + 2 sqrt(rho log(1/beta)); (120) drops rho (F-D7)."""
    loss = checks.non_negative("rho", rho)
    return loss + 2 * math.sqrt(loss * math.log(1 / checks.between("beta", beta, 1e-300, 1.0)))


def gaussian_delta(mean: float, epsilon: float) -> float:
    """delta of a Gaussian release of mean shift m: Phi(-e/m + m/2) - exp(e) Phi(-e/m - m/2) (F-D7)."""
    from scipy.special import log_ndtr, ndtr

    m, e = checks.positive("mean", mean), checks.non_negative("epsilon", epsilon)
    return float(ndtr(-e / m + m / 2) - math.exp(e + float(log_ndtr(-e / m - m / 2))))
