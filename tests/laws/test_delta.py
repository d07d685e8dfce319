"""A delta that promises nothing is refused wherever a delta enters; a new option cannot escape the rule.

Every key of a table and every option of a command that is called delta (or beta, as the papers call it) is
walked. Each must have the rule of a delta and a case below that tries it for a stated number of records, or
be listed as something else that has the same name.
"""

import dataclasses
from functools import cache

import pytest
import typer

from bonafed import cli
from bonafed.cli import nouns  # noqa: F401  # all commands are there
from bonafed.economics import Uniform
from bonafed.errors import InvalidValue
from bonafed.learning.privacy import checked_delta, delta_rule
from bonafed.learning.sections import Privacy
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.faithful.report import audit as audit_faithful
from bonafed.mechanisms.faithful.section import FaithfulAuditOptions, FaithfulPrivacy
from bonafed.mechanisms.faithful.theory.parameter_advice import PrivacyOptions, PromiseOptions
from bonafed.mechanisms.jsam.audit_command import JsamAuditOptions as JsamAudit
from bonafed.mechanisms.jsam.command_options import NoiseOptions
from bonafed.mechanisms.jsam.noise import Ingredients
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.mechanisms.jsam.quote_command import JsamQuoteOptions, quote
from bonafed.mechanisms.jsam.section import JsamSection
from bonafed.mechanisms.private_training import PrivateOptions
from bonafed.remote.participant.policy import Policy
from bonafed.runs import config as configs
from bonafed.runs.compare import Compare, compare
from bonafed.runs.prepare import prepare, under
from bonafed.sections import Section, is_required
from tests.laws import worlds

NAMES = ("delta", "beta")
# of the same name, but how unlike the data of agents are, or with which probability a bound fails
OTHERS = {"PopulationOptions", "AgentOptions", "GroupOptions"}


@cache
def sections():
    """Every table of a config and every set of options; what a study of a paper varies is its own."""
    for entry in catalogue.CATALOGUE.values():
        entry.load()
    found, waiting = {}, [Section]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("bonafed.") and ".papers." not in kind.__module__:
            found[kind.__module__, kind.__name__] = kind
    return tuple(found.values())


def with_a_delta():
    """(section, field) of every key that is called so and is a promise of privacy."""
    return [
        (kind, item)
        for kind in sections()
        for item in dataclasses.fields(kind)
        if item.name in NAMES and not _is_other(kind, item.name)
    ]


def _is_other(kind, name):
    if kind is FaithfulAuditOptions:
        return name == "delta"
    return kind.__name__ in OTHERS


def trained(name, *changes):
    return lambda delta: prepare(
        worlds.miniature(name, *[(t, k, delta if v is ... else v) for t, k, v in changes]),
        dataset=worlds.small(),
    )


def of_jsam(kind, **rest):
    about = dict(dimension=10, rounds=5, smoothness=0.5, records=25, **rest)
    return lambda delta: kind(delta=delta, **about)


def quoted(delta):
    """By sizes, which are read from a file, not only by records."""
    return of_jsam(JsamQuoteOptions, prior=Uniform(0, 1), eta=1.0, clients=3)(delta)


def compared(delta):
    tables = worlds.example("fedavg")
    tables["data"], tables["partition"] = {"name": "small", "classes": 3}, {"kind": "natural"}
    compare({**tables, "compare": {"delta": delta}}, dataset=worlds.small())


PRIVATELY = (("privacy", "epsilon", 1.0), ("privacy", "clip", 1.0), ("privacy", "noise", "reproducible"))
CASES = {  # every client has 25 records or so
    Privacy: trained("fedavg", *PRIVATELY, ("privacy", "delta", ...)),
    FaithfulPrivacy: trained(
        "faithful", ("privacy", "epsilon", 5.0), ("privacy", "delta", ...),
        ("privacy", "noise", "reproducible"), ("faithful", "variant", "stepwise"),
    ),
    JsamSection: trained("jsam", ("jsam", "delta", ...)),
    Compare: compared,
    PrivateOptions: lambda delta: PrivateOptions(25, 3, 10, 1.0, delta),
    PrivacyOptions: lambda delta: PrivacyOptions(samples=25, delta=delta),
    PromiseOptions: lambda delta: PromiseOptions(samples=25, epsilon=1.0, delta=delta),
    NoiseOptions: lambda delta: of_jsam(NoiseOptions)(delta).noise(),
    JsamQuoteOptions: quoted,
    JsamAudit: of_jsam(JsamAudit),
    FaithfulAuditOptions: lambda delta: audit_faithful(
        FaithfulAuditOptions(samples=250, agents=10, delta=0.0, variant="private", beta=delta, trials=2)
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "item"), with_a_delta(), ids=lambda x: getattr(x, "__qualname__", ""))
def test_every_delta_is_held_against_records(kind, item):
    check = item.metadata["check"]
    for value in (1.0, 2.0):
        with pytest.raises(InvalidValue, match="must be between 0 and 1, ends excluded"):
            check(item.name, value)
    assert is_required(item) or item.default is None or item.default <= 1e-5
    least = (
        1 / 20 if kind is FaithfulAuditOptions else 1 / 25
    )  # its data are drawn: some have more than others
    for delta in (2 * least, 0.5, 0.999):
        with pytest.raises(InvalidValue, match=r"(delta|beta) must be below 1/\d+, as a client holds"):
            CASES[kind](delta)


def test_the_walk_finds_what_there_is():
    assert {kind for kind, _ in with_a_delta()} == set(CASES)
    assert delta_rule("delta", 0.5) == 0.5


def test_one_over_the_records_is_refused_however_it_is_rounded():
    for records in range(1, 1000):  # 49 * (1/49) is below 1
        with pytest.raises(InvalidValue, match="must be below 1/"):
            checked_delta("delta", 1 / records, [records])
        checked_delta("delta", 0.99 / records, [records])


def test_a_delta_beyond_double_precision_is_refused():
    """Its hundredth, which arithmetic may take, is 0."""
    with pytest.raises(InvalidValue, match=r"^delta must be at least 1e-300, got 5e-324$"):
        delta_rule("delta", 5e-324)


def test_options_of_commands_come_from_sections():
    """No command has an option of that name that is not a key of a section, where the walk finds it."""
    items = [item for kind in sections() for item in dataclasses.fields(kind)]
    known = {item.metadata.get("flag") or item.name for item in items}
    waiting, options = [typer.main.get_command(cli.app)], set()
    while waiting:
        command = waiting.pop()
        if hasattr(command, "list_commands"):
            context = command.context_class(command)
            waiting += [command.get_command(context, name) for name in command.list_commands(context)]
        options |= {name for parameter in command.params for name in parameter.opts}
    named = {option for option in options if option.lstrip("-") in NAMES}
    assert "--delta" in named
    assert {option.lstrip("-") for option in named} <= known


class TestSomeValues:
    SIZES = (40, 600)

    @pytest.mark.parametrize(
        ("delta", "said"),
        [(1e-5, False), (1 / 6000, False), (1.1 / 6000, True), (1e-2, True), (0.0249, True)],
    )
    def test_above_a_tenth_is_remarked_upon(self, delta, said):
        assert bool(checked_delta("delta", delta, self.SIZES)) == said

    @pytest.mark.parametrize("delta", [1 / 40, 0.5, 0.999])
    def test_one_over_the_smallest_is_refused(self, delta):
        with pytest.raises(InvalidValue, match=r"must be below 1/40, .* choose 0.002 or less, got"):
            checked_delta("delta", delta, self.SIZES)

    def test_clients_without_records_promise_nothing(self):
        assert checked_delta("delta", 1e-3, [0, 40]) == []
        assert checked_delta("delta", 0.9, [0, 0]) == []

    @pytest.mark.parametrize("records", [1, 7, 10, 144, 999, 1000, 123_456, 10**7])
    def test_the_value_it_proposes_needs_no_remark(self, records):
        with pytest.raises(InvalidValue, match="choose") as refused:
            checked_delta("delta", 1 / records if records > 1 else 1.0, [records])
        proposed = float(str(refused.value).split("choose ")[1].split(" or less")[0])
        assert 0.049 / records < proposed <= 0.1 / records * (1 + 1e-12)
        assert checked_delta("delta", proposed, [records]) == []


class TestWhereItIsSaid:
    def test_a_run_says_what_promises_little(self):
        made = CASES[Privacy](0.01)
        assert any("delta 0.01 is above 1/(10 x 2" in note for note in made.notes)

    def test_a_quote_says_so(self):
        warnings = quote(quoted(0.01)).data["warnings"]
        assert any("delta 0.01 is above 1/(10 x 25)" in text for text in warnings)

    def test_a_quote_by_sizes_is_of_the_smallest(self, tmp_path):
        file = tmp_path / "sizes.csv"
        file.write_text("client,size\nada,10\nben,400\n")
        options = JsamQuoteOptions(
            prior=Uniform(0, 1), eta=1.0, clients=2, sizes=file, noise_scale=1.0, delta=0.2, clip=1.0,
            rounds=5,
        )  # fmt: skip
        with pytest.raises(InvalidValue, match="--delta must be below 1/10,"):
            options.held(("ada", "ben"))

    def test_a_contract_is_read_with_its_own_records(self):
        offer = JsamContract(3, Uniform(0, 1), 1.0, Ingredients(10, 0.5, 25), 5, 1.0, delta=0.01)
        assert any("delta 0.01 is above" in str(block) for block in offer.document().blocks)
        data = {**offer.to_json(), "delta": 0.5}
        with pytest.raises(InvalidValue, match=r"contract.delta must be below 1/25,"):
            JsamContract.from_json(data)

    def test_a_participant_holds_it_against_its_own_records(self):
        config = worlds.miniature("fedavg", *PRIVATELY, ("privacy", "delta", 0.01))
        assert Policy(reproducible_noise=True).check_config(config, 5) == []
        assert Policy(reproducible_noise=True).check_config(config, 25)
        with pytest.raises(InvalidValue, match="delta must be below 1/400,"):
            Policy(reproducible_noise=True).check_config(config, 400)

    def test_a_contract_that_states_no_records_is_held_against_those_it_is_trained_for(self):
        offer = JsamContract(6, Uniform(0, 1), 1.0, 1.0, worlds.ROUNDS, 1.0, delta=0.1)
        tables = configs.to_tables(worlds.miniature("jsam"))
        del tables["jsam"]
        with pytest.raises(InvalidValue, match=r"jsam.delta must be below 1/2\d,"):
            prepare(under(tables, offer), dataset=worlds.small(), contract=offer)
