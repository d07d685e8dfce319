"""What the mechanisms of the paper promise in expected risk, as printed and as corrected.

    faithfulness_bound            Proposition 6, (39)        no report gains more, FFL
    participation                 Proposition 7, (40), (41)  alone against joining with payment
    participation_slack           Proposition 7, (42)        by how much joining may still be worse, FFL
    private_efficiency_bound      Proposition 10, (56)       excess risk of DP-FFL's model
    private_faithfulness_bound    Corollary 2, (60)          no report gains more, DP-FFL
    private_participation_slack   Corollary 3, (61)          by how much joining may still be worse, DP-FFL

All are in units of loss and hold with probability 1 - delta of the `AgentPopulation`, the corrected ones by
the proofs; they are loose, and good for comparing. In what follows c and c' are the constants of `bounds`,
Phi is (30), and RB_C is (21) for a clustering C.

The corrections, beside those of the equations they rest on:

- K stands for 1/p_k: with equal weights, which the paper assumes from Lemma 2 on, there is no difference.
- (40) and (41) come from RB_C for C = {{k}, the others} and for one cluster, each divided by p_k. The print
  divides some terms and not others, and has the cluster's weight wrong (F-E11). As printed Proposition 7 is
  false: for K >= 3 agents with the same distribution and as many samples each Assumption 3 holds, and (41)
  is above (40) (F-E17). Divided throughout, Assumption 3 gives it at once.
- (56) hides its constant C_1, and T_1 and T_2 in it. What its proof gives, (122) to (124), has none:
  T_1 steps of 1/L_g with noise of variance sigma^2 in each of d coordinates leave
  (1 - mu/L_g)^T_1 gap + d sigma^2/(2 mu) of F - min F. That counts 2 L_g/mu times in expected risk, by
  (80); (125) has 2 (F-D10).
- (60) and (61) have the same D, and the A of (59), which lacks L_g (K - 1) K^2 (F-D9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.mechanisms.faithful.theory.bounds import (
    AgentPopulation,
    Tradeoff,
    TradeoffSetting,
    collective_risk,
    efficiency_bound,
    privacy_tradeoff,
    social_clustered_risk,
    social_federated_risk,
    social_local_risk,
)


class ParticipationBounds(NamedTuple):
    """(40) and (41) of one agent.

    Both leave out the same term, sum_{j != k} (p_j/p_k) min E_j - min sum_{j != k} (p_j/p_k) E_j, which
    depends on what nobody knows; it is 0 for agents of the same distribution, and never above.
    """

    alone: float  # RB^L, of learning alone
    joining: float  # RB^FFL, of taking part, VCG payment included; the paper has it approximately


def faithfulness_bound(
    population: AgentPopulation,
    smoothness: float,
    steps: int,
    gap: float,
    epsilon: float,
    *,
    printed: bool = False,
) -> float:
    """Proposition 6: what any report of an agent gains against the truth is at most 2 epsilon + Phi/p_k.

    `steps` is T_1 and `gap` is F(w[0]) - F(w°), of Phi; the largest over the agents is given. Printed,
    (39), is 2 epsilon + K Phi. One epsilon is the error of the payment, certified by the residual test,
    whose print lacks 1 - p_k: as printed it leaves epsilon/(1 - p_k) (F-E9). The data distributions are
    not in it.
    """
    certified = 2 * checks.positive("epsilon", epsilon)
    phi = efficiency_bound(population, smoothness, steps, gap)
    share = 1 / population.weights.size if printed else float(population.weights.min())
    return certified + phi / share


def participation(population: AgentPopulation, agent: int, *, printed: bool = False) -> ParticipationBounds:
    """Proposition 7: the bounds (40) and (41) that an agent compares.

    Right is RB_{{k}, others}/p_k against RB_{all}/p_k. Printed is

        (40)  c' (sum_{j != k} p_j^2/(n_j (1 - p_k)^2) + p_k/n_k)
              + 2 sum_{j != k} p_j ||P_j - mean of the others||
        (41)  c' sum p_j^2/(n_j p_k) + 2 sum p_j ||P_j - mean of all||

    >>> same = AgentPopulation([0.25] * 4, [50.0] * 4, [[0.5, 0.5]] * 4, 1.0, 10, 0.5, 0.05)
    >>> right, wrong = (participation(same, 0, printed=how) for how in (False, True))
    >>> right.joining < right.alone, wrong.joining < wrong.alone
    (True, False)
    """
    p, n, k = population.weights, population.counts, _agent(population, agent)
    others = [j for j in range(p.size) if j != k]
    if not printed:
        apart = social_clustered_risk(population, [[k], others])
        share = float(p[k])
        return ParticipationBounds(apart / share, social_federated_risk(population) / share)
    noise = social_local_risk(population) / float((p / n).sum())  # c', by (17)
    rest = float((p[others] ** 2 / n[others]).sum())
    distance = _distances(population, others)
    alone = noise * (rest / (1 - p[k]) ** 2 + p[k] / n[k]) + 2 * distance
    everybody = _distances(population, range(p.size))
    joining = noise * float((p**2 / n).sum()) / p[k] + 2 * everybody
    return ParticipationBounds(float(alone), float(joining))


def participation_slack(
    population: AgentPopulation, agent: int, smoothness: float, steps: int, gap: float, epsilon: float
) -> float:
    """(42): under Assumption 3, (41) is at most (40) plus this.

    epsilon for the payment, and (1/p_k) 2 L_g/mu (1 - mu/L_g)^T_1 gap for a model that T_1 steps have not
    brought to the minimum; the print has K for 1/p_k.
    """
    share = float(population.weights[_agent(population, agent)])
    left = efficiency_bound(population, smoothness, steps, gap) - 2 * collective_risk(population)
    return checks.positive("epsilon", epsilon) + left / share


@dataclass(frozen=True)
class PrivateBoundTerms:
    """What DP-FFL is run with (Algorithm 2, Proposition 11); agents have equal weights."""

    smoothness: float  # L_g
    gradient_bound: float  # L_f, of every sample's gradient (F-D4)
    alpha: float  # privacy, (alpha, beta)
    beta: float
    gap: float  # F(w[0]) - F(w°)
    epsilon: float  # error that Theorem 2's clusters may leave; any positive number if L = K
    step: float | None = None  # eta_2; if left out the largest allowed, 1/((K-1) L_g)

    def __post_init__(self) -> None:
        for name in ("smoothness", "gradient_bound", "alpha", "gap", "epsilon"):
            checks.positive(name, getattr(self, name))
        if not 0 < checks.number("beta", self.beta) < 1:
            raise InvalidValue("beta", "must be between 0 and 1, ends excluded", self.beta)
        if self.step is not None:
            checks.positive("step", self.step)

    def tradeoff(self, population: AgentPopulation, *, corrected: bool = True) -> Tradeoff:
        """(57) to (59) of these agents."""
        agents = _equal(population)
        largest = 1 / ((agents - 1) * self.smoothness)
        setting = TradeoffSetting(
            largest if self.step is None else self.step, population.dimension, self.gradient_bound, agents,
            self.alpha, self.beta, population.strong_convexity, int(population.counts.min()),
            self.smoothness,
        )  # fmt: skip
        return privacy_tradeoff(setting, corrected)

    def variance(self, population: AgentPopulation, steps: int) -> float:
        """sigma^2 of (52) for T_1 = T_2 = steps and L = K."""
        agents, smallest = _equal(population), float(population.counts.min())
        sums = steps + agents * steps
        return (
            16
            * self.gradient_bound**2
            * sums
            * math.log(1 / self.beta)
            / (agents * smallest * self.alpha) ** 2
        )


def private_efficiency_bound(population: AgentPopulation, terms: PrivateBoundTerms, steps: int) -> float:
    """Proposition 10: excess risk of the model after T_1 = T_2 = `steps` noisy steps of 1/L_g.

    2 (8) + (2 L_g/mu) [(1 - mu/L_g)^T_1 gap + d sigma^2/(2 mu)], sigma^2 by (52). Printed, (56), is

        C_1 L_f^2 d log(K n_(1)) log(1/beta)/(K n_(1)^2 alpha^2) + 2 (8),

    with a C_1 that is not given (`printed_private_term` is its factor); (124) and (126) have K^2 for K, and
    log^2, delta and epsilon for log, beta and alpha (F-D10). K is right: (K + 1) T_2 sums, over K^2.
    """
    exact = efficiency_bound(population, terms.smoothness, steps, terms.gap)
    mu = population.strong_convexity
    noise = population.dimension * terms.variance(population, steps) / (2 * mu)
    return exact + 2 * terms.smoothness / mu * noise


def printed_private_term(population: AgentPopulation, terms: PrivateBoundTerms) -> float:
    """L_f^2 d log(K n_(1)) log(1/beta)/(K n_(1)^2 alpha^2): what C_1 of (56) multiplies."""
    agents, smallest = _equal(population), float(population.counts.min())
    top = terms.gradient_bound**2 * population.dimension * math.log(agents * smallest)
    return top * math.log(1 / terms.beta) / (agents * (smallest * terms.alpha) ** 2)


def private_faithfulness_bound(
    population: AgentPopulation, terms: PrivateBoundTerms, *, printed_constant: float | None = None
) -> float:
    """Corollary 2: what any report gains against the truth under DP-FFL, in expectation over the noise.

    2 epsilon for the clusters, twice the error of private payments (Proposition 11), and K times the excess
    risk (Proposition 10), at the T_1 = T_2 of (57). With a `printed_constant` D it is (60), with the
    printed A, (58) and the term of (56).
    """
    agents, twice = _equal(population), 2 * terms.epsilon
    if printed_constant is None:
        plan = terms.tradeoff(population)
        return (
            twice
            + 2 * plan.loss_at_steps
            + agents * private_efficiency_bound(population, terms, plan.steps)
        )
    plan = terms.tradeoff(population, corrected=False)
    hidden = checks.positive("printed_constant", printed_constant) * printed_private_term(population, terms)
    return twice + 2 * plan.loss + agents * (2 * collective_risk(population) + hidden)


def private_participation_slack(
    population: AgentPopulation, terms: PrivateBoundTerms, *, printed_constant: float | None = None
) -> float:
    """Corollary 3: under Assumption 3, (41) with DP-FFL is at most (40) plus this.

    epsilon, the error of private payments, and K times what noise and unfinished training add to the risk.
    With a `printed_constant` D it is (61), which forgets unfinished training.
    """
    agents = _equal(population)
    if printed_constant is None:
        plan = terms.tradeoff(population)
        risk = private_efficiency_bound(population, terms, plan.steps) - 2 * collective_risk(population)
        return terms.epsilon + plan.loss_at_steps + agents * risk
    plan = terms.tradeoff(population, corrected=False)
    hidden = checks.positive("printed_constant", printed_constant) * printed_private_term(population, terms)
    return terms.epsilon + plan.loss + agents * hidden


def _agent(population: AgentPopulation, agent: int) -> int:
    if not 0 <= agent < population.weights.size:
        raise InvalidValue("agent", f"must be in 0..{population.weights.size - 1}", agent)
    return agent


def _equal(population: AgentPopulation) -> int:
    """K; the private mechanism is stated for equal weights only."""
    p = population.weights
    if p.size < 2 or float(np.ptp(p)) > 1e-9:
        raise InvalidValue("weights", "must be equal, of two agents or more", p.tolist())
    return p.size


def _distances(population: AgentPopulation, agents: range | list[int]) -> float:
    """sum of p_j ||P_j - mean of these agents|| over them."""
    who = np.array(agents)
    p, rows = population.weights[who], population.distributions[who]
    return float(p @ np.abs(rows - (p / p.sum()) @ rows).sum(1))
