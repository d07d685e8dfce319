"""What the commands of model rewards show: the audit by cheats, and two pieces of advice.

bonafed audit rewards                clients cheat in every known way; does it pay, is it seen?
bonafed advise reward-rule           what does this rule make my clients do?
bonafed advise reward-parameters     which ceiling and sharing coefficient should I take?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import finite_or_none
from bonafed.economics.findings import all_hold, findings_table
from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.advice import Goal, Prediction, Range, Recommendation, predict, recommend
from bonafed.mechanisms.rewards.cheats import CheatOutcome, cheating_pays, cheats_are_seen
from bonafed.mechanisms.rewards.game import Equilibrium, Game, game, relative, with_ceiling
from bonafed.mechanisms.rewards.section import MeasureName, Rewards, unit
from bonafed.presentation.documents import Block, Column, Document, JSONObject, Table
from bonafed.sections import Section, key, one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WORTH = ("exp", "frac", "log")
_WORTH_HELP = "What contributions are worth: exp 1-e^-x, frac x/(1+x), log log(1+x)."
_GOALS: Mapping[str, str] = {
    "total": "total contribution",
    "received": "contribution in all models together",
    "welfare": "welfare of all clients",
}
_ROUNDING = 1e-9  # relative: numbers this close are equal


def _at_least_two(name: str, value: object) -> int:
    return checks.whole(name, value, at_least=2)


def _classes(name: str, value: object) -> int:
    return checks.whole(name, value, at_least=1, at_most=10)


def _costs(name: str, value: Any) -> tuple[float, ...]:
    costs = checks.vector(name, value, sign="positive")
    if costs.size < 2:
        raise InvalidValue(name, "must list at least two clients", costs.size)
    return tuple(costs.tolist())


def _worth(name: str, value: object) -> str:
    return checks.one_of(name, value, _WORTH)


@dataclass(frozen=True)
class RewardsAuditOptions(Section):
    """Of `bonafed audit rewards`."""

    measure: MeasureName = key(one_of(MeasureName), "cosine", help="How contributions are measured.")
    sharing: float = key(unit, 0.0, help="kappa: 0 rewards in proportion, 1 gives everybody everything.")
    recovery: float = key(unit, 0.0, help="q: probability of being handed the reference model, per round.")
    clients: int = key(_at_least_two, 10, help="Clients that share the handwritten digits.")
    classes: int | None = key(_classes, None, help="Digits that each client holds; all ten if left out.")
    rounds: int = key(checks.whole, 15, help="Rounds of training, repeated for every cheat.")
    cheaters: int = key(
        checks.whole, 1, help="Clients that cheat, one at a time; 1: the median contributor."
    )
    seed: int = key(checks.seed, 0, help="Of data, model and rewards.")


@dataclass(frozen=True)
class RuleOptions(Section):
    """Of `bonafed advise reward-rule`."""

    costs: tuple[float, ...] = key(
        _costs, flag="cost", help="What a unit of contribution costs a client; once per client."
    )
    sharing: float = key(unit, 0.5, help="kappa: 0 rewards in proportion, 1 gives everybody everything.")
    ceiling: float | None = key(
        checks.positive, None, help="Contribution that earns everything; the largest if left out."
    )
    worth: str = key(_worth, "exp", help=_WORTH_HELP)


@dataclass(frozen=True)
class ParameterOptions(Section):
    """Of `bonafed advise reward-parameters`."""

    costs: tuple[float, ...] = key(
        _costs, flag="cost", help="What a unit of contribution costs a client; once per client."
    )
    goal: Goal = key(
        one_of(Goal),
        "received",
        help="What to maximise: what clients give in all, what they get, or their welfare.",
    )
    worth: str = key(_worth, "exp", help=_WORTH_HELP)


def audit(options: RewardsAuditOptions) -> Document:
    """Clients of a small federation cheat in every known way."""
    from bonafed.mechanisms.rewards.cheat_search import search, simulate

    section = Rewards(measure=options.measure, sharing=options.sharing, recovery=options.recovery)
    simulation = simulate(
        section, clients=options.clients, classes=options.classes, rounds=options.rounds, seed=options.seed
    )
    with simulation.federation:
        outcomes = search(
            simulation.mechanism,
            simulation.federation,
            simulation.start,
            cheaters=options.cheaters,
        )
    return cheats_document(outcomes, section, len(simulation.mechanism.test_samples().labels))


def cheats_document(outcomes: Sequence[CheatOutcome], section: Rewards, samples: int) -> Document:
    """The outcome of every cheat, and whether one pays."""
    findings = (cheating_pays(outcomes, samples), cheats_are_seen(outcomes, section.measured))
    data = {
        "measure": section.measure,
        "test_samples": samples,
        "cheats": [outcome.to_json() for outcome in outcomes],
        "findings": [finding.to_json() for finding in findings],
    }

    def draw() -> Figure:
        from bonafed.mechanisms.rewards.figures import cheats_figure

        return cheats_figure(outcomes)

    blocks = (cheats_table(outcomes, section.measure), findings_table("Findings", findings))
    return Document(blocks, data, draw, holds=all_hold(findings))


def cheats_table(outcomes: Sequence[CheatOutcome], measure: str) -> Table:
    """One row per cheat, next to the same federation with everybody honest."""
    columns = (
        Column("client", left=True), Column("cheat", left=True), Column("accuracy", ".2%"),
        Column("if honest", ".2%"), Column("alone", ".2%"), Column("rate", ".3f"),
        Column("honest rate", ".3f"), Column("share", ".4f"), Column("honest share", ".4f"), Column("seen"),
        Column("pays"), Column("others", ".2%"), Column("others, if honest", ".2%"),
    )  # fmt: skip
    rows = tuple(
        (
            one.client, one.cheat, one.accuracy, one.honest_accuracy, one.standalone_accuracy,
            finite_or_none(one.reward_rate), finite_or_none(one.honest_reward_rate),
            one.share, one.honest_share, one.seen, one.gain > 0,
            one.others_accuracy, one.others_honest_accuracy,
        )
        for one in outcomes
    )  # fmt: skip
    caption = (
        "honest: if everybody is; rate: reward rate, mean over rounds; share: of all contributions; "
        "seen: its share is a tenth lower; others: their mean accuracy"
    )
    return Table(f"Cheats, with contributions by {measure}", columns, rows, caption)


def rule_advice(options: RuleOptions) -> Document:
    """What a rule makes clients do."""
    rule = (
        relative(options.sharing)
        if options.ceiling is None
        else with_ceiling(options.ceiling, options.sharing)
    )
    return prediction_document(predict(game(options.costs, options.worth), rule))


def prediction_document(prediction: Prediction) -> Document:
    """The worst equilibrium client by client, beside learning alone, averaging and the optimum."""
    game, worst = prediction.game, prediction.equilibria[0]

    def draw() -> Figure:
        from bonafed.mechanisms.rewards.figures import behaviour_figure

        return behaviour_figure(game, prediction.rule)

    blocks = (
        _rule_sentence(prediction),
        _clients_table(game, worst, prediction),
        _totals_table(prediction),
    )
    return Document(blocks, _prediction_data(prediction), draw)


def _rule_sentence(prediction: Prediction) -> str:
    game, worst = prediction.game, prediction.equilibria[0]
    active = int((worst.contributions > 0).sum())
    joining = int(_joining_pays(game, worst).sum())
    more = worst.total / prediction.standard.total - 1 if prediction.standard.total else float("inf")
    against = "as much as" if abs(more) < 5e-4 else f"{abs(more):.0%} {'more' if more > 0 else 'less'} than"
    text = (
        f"Under the rule '{prediction.rule}' {active} of {game.clients} clients contribute, "
        f"{worst.total:.4g} in all, {against} under federated averaging, and {joining} of {game.clients} "
        "are at least as well off as alone."
    )
    if len(prediction.equilibria) > 1:
        text += (
            f" There are {len(prediction.equilibria)} equilibria, and nobody chooses among them: this is "
            f"the worst; the best has {prediction.equilibria[-1].total:.4g}."
        )
    return text


def _joining_pays(game: Game, equilibrium: Equilibrium) -> NDArray[np.bool_]:
    """(N,) who has at least as much as alone, up to rounding."""
    alone = game.standalone_utility
    return np.asarray(equilibrium.utility >= alone - _ROUNDING * np.abs(alone))


def _clients_table(game: Game, worst: Equilibrium, prediction: Prediction) -> Table:
    pays = _joining_pays(game, worst)
    columns = tuple(
        Column(name, form)
        for name, form in (
            ("client", ""), ("cost", ".4g"), ("contributes", ".4f"), ("alone", ".4f"), ("receives", ".2%"),
            ("utility", ".4f"), ("utility alone", ".4f"), ("joining pays", ""),
        )
    )  # fmt: skip
    rows = tuple(
        (
            i, float(game.costs[i]), float(worst.contributions[i]), float(game.standalone[i]),
            float(worst.share[i]), float(worst.utility[i]), float(game.standalone_utility[i]),
            bool(pays[i]),
        )
        for i in range(game.clients)
    )  # fmt: skip
    caption = (
        "in the equilibrium with the least total; receives: its share of what the others contribute; "
        "utility: what its model is worth to it, less the cost of its contribution"
    )
    return Table(f"What clients do under '{prediction.rule}'", columns, rows, caption)


def _totals_table(prediction: Prediction) -> Table:
    columns = (Column("", left=True), Column("total contribution", ".4f"), Column("welfare", ".4f"))
    alone = prediction.game
    rows = [(f"from {one.start}", one.total, one.welfare) for one in prediction.equilibria]
    rows += [
        ("federated averaging", prediction.standard.total, prediction.standard.welfare),
        ("all alone", float(alone.standalone.sum()), float(alone.standalone_utility.sum())),
        ("social optimum", prediction.optimum.total, prediction.optimum.welfare),
    ]
    return Table("Equilibria, by where clients begin", columns, tuple(rows))


def _prediction_data(prediction: Prediction) -> JSONObject:
    return {
        "rule": {"ceiling": prediction.rule.ceiling, "sharing": prediction.rule.sharing},
        "costs": prediction.game.costs.tolist(),
        "worth": prediction.game.worth.name,
        "standalone": prediction.game.standalone.tolist(),
        "standalone_utility": prediction.game.standalone_utility.tolist(),
        "equilibria": [
            {
                "start": one.start, "contributions": one.contributions.tolist(),
                "share": one.share.tolist(), "utility": one.utility.tolist(),
                "total": one.total, "welfare": one.welfare, "gain": one.gain,
            }
            for one in prediction.equilibria
        ],
        "standard": {"total": prediction.standard.total, "welfare": prediction.standard.welfare},
        "optimum": {"total": prediction.optimum.total, "welfare": prediction.optimum.welfare},
    }  # fmt: skip


def parameter_advice(options: ParameterOptions) -> Document:
    """Which ceiling and sharing coefficient."""
    return recommendation_document(recommend(game(options.costs, options.worth), options.goal))


def recommendation_document(advice: Recommendation) -> Document:
    """A rule, and the evidence for it."""

    def draw() -> Figure:
        from bonafed.mechanisms.rewards.figures import advice_figure

        return advice_figure(advice)

    columns = (Column("", left=True), Column("worst", ".4f"), Column("best", ".4f"))
    ranges: list[tuple[str, Range]] = [
        ("this rule", advice.reached), ("federated averaging", advice.standard),
        ("in proportion to the largest", advice.relative),
        ("social optimum", Range(advice.social, advice.social)),
    ]  # fmt: skip
    rows = tuple((name, value.worst, value.best) for name, value in ranges)
    caption = f"{_GOALS[advice.goal]}, in the worst and the best equilibrium that was found"
    table = Table(f"Largest {_GOALS[advice.goal]}", columns, rows, caption)
    blocks: tuple[Block, ...] = (_parameters_sentence(advice), table, *_cautions(advice))
    return Document(blocks, _recommendation_data(advice), draw)


def _parameters_sentence(advice: Recommendation) -> str:
    even = advice.standard.worst >= advice.reached.worst - _ROUNDING * abs(advice.reached.worst)
    if even or advice.rule.sharing == 1:
        return (
            "Take sharing = 1, where everybody gets everything and the ceiling does not matter: no rule "
            f"that was tried has a larger {_GOALS[advice.goal]}."
        )
    assert advice.rule.ceiling is not None  # a grid of ceilings was searched
    return (
        f"Take ceiling = {advice.rule.ceiling:.4g} and sharing = {advice.rule.sharing:.4g}: even in the "
        f"worst equilibrium found the {_GOALS[advice.goal]} is {advice.reached.worst:.4g}, against "
        f"{advice.standard.worst:.4g} under federated averaging."
    )


def _cautions(advice: Recommendation) -> list[str]:
    if not advice.at_edge:
        return []
    return [
        "The best ceiling lies at the edge of those tried. A total that grows with the ceiling is that of "
        "clients who learn alone: the goals 'received' and 'welfare' count what they gain from each other."
    ]


def _recommendation_data(advice: Recommendation) -> JSONObject:
    return {
        "rule": {"ceiling": advice.rule.ceiling, "sharing": advice.rule.sharing},
        "goal": advice.goal,
        "reached": advice.reached._asdict(),
        "standard": advice.standard._asdict(),
        "relative": advice.relative._asdict(),
        "social": advice.social,
        "at_edge": advice.at_edge,
        "sharing": advice.sharing.tolist(),
        "ceilings": advice.ceilings.tolist(),
        "worst": [[finite_or_none(value) for value in row] for row in advice.worst.tolist()],
    }
