"""Mutated contracts, CSVs, configs and options, for every command: most still valid, to reach deep paths.

Whatever comes in, a command ends within its CPU time with a documented exit code and, if it refuses, one
line of error; and of what it accepts some promises are checked again by other means:

    quote      a contract that is written verifies, and settles
    verify     of an edited contract: what is certified settles, and pays everybody's cost; where its terms
               are others than those of the contract before, what verify says is something else too
    settle     nobody is paid less than the stated cost; amounts add up to what is spent, and stay within a
               budget that holds for every settlement
    train      the statement agrees with itself, and amounts stay within the budget that is promised
    any        --json prints JSON; a command that refuses changes no file
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import mutants
from tests.campaign.cases import Campaign, Case, Ended, Tally, Verdict, run
from tests.campaign.inputs import Input, all_inputs
from tests.campaign.kinds import RUN, contents

NAME = "mutation"
CASES = 10_000
ACCEPTED = ("accepted", "accepted, a check fails")
LEAST_ACCEPTED = 0.4  # of the mutants, so that deep paths are reached
_LENIENT = 1e-9  # relative, of sums of doubles


def campaign(seed: int, _names: Sequence[str], cases: int | None = None) -> Campaign:
    """Mutants of all inputs, those of large weight more often."""
    count = CASES if cases is None else cases
    all_inputs()  # before the fork
    return Campaign(NAME, _cases(seed, count), judge, count, _deep_enough)


def _deep_enough(tally: Tally) -> str:
    """What is wrong if most mutants do not get past the readers."""
    share = sum(tally.counts[how] for how in ACCEPTED) / tally.cases
    return "" if share >= LEAST_ACCEPTED else f"only {share:.0%} of the mutants were accepted"


def _cases(seed: int, count: int) -> Iterator[Case]:
    inputs = list(all_inputs().values())
    weights = [item.weight for item in inputs]
    for number in range(1, count + 1):
        rng = Random(f"{seed} {number}")
        item = inputs[number % len(inputs)] if number % 3 == 0 else rng.choices(inputs, weights)[0]
        yield Case(NAME, number, _mutant(item, rng))


def _mutant(item: Input, rng: Random) -> dict[str, Any]:
    """The input with one file mutated, or the words; sometimes both."""
    words, files = list(item.words), {}
    if item.mutable and rng.random() < 0.8:
        name = rng.choice(item.mutable)
        files[name] = mutants.FORMATS[Path(name).suffix](item.files[name], rng)
    if not files or rng.random() < 0.1:
        words = mutants.options(words, rng, _known(tuple(item.words)))
    texts = {name: content.decode("utf-8", "surrogateescape") for name, content in files.items()}
    return {"input": item.name, "words": words, "files": texts}


@cache
def _known(words: tuple[str, ...]) -> list[tuple[str, bool]]:
    """The options of a command, and whether each takes a value."""
    import typer

    from bonafed.cli import app

    command: Any = typer.main.get_command(app)
    context = command.make_context("bonafed", ["--help"], resilient_parsing=True)
    for word in words:
        if not hasattr(command, "get_command") or word.startswith("-"):
            break
        command = command.get_command(context, word)
    return [(name, not option.is_flag) for option in command.params if hasattr(option, "is_flag")
            for name in option.opts]  # fmt: skip


def judge(case: Case, place: Path) -> Verdict:
    """Run the mutant, and look at what came of it."""
    failure, counts = _tried(case.about, place / "case")
    if not failure:
        return Verdict(counts=counts)
    shrunk = _shrunk(case.about, failure, place)
    return Verdict(f"{shrunk['input']}: {' '.join(shrunk['words'])}"[:300] + f": {failure}", counts, shrunk)


def _shrunk(about: dict[str, Any], failure: str, place: Path) -> dict[str, Any]:
    """The same failure with fewer of the mutations."""
    item = all_inputs()[about["input"]]
    smaller = [{**about, "words": list(item.words)}]
    smaller += [
        {**about, "files": {other: text for other, text in about["files"].items() if other != name}}
        for name in about["files"]
    ]
    for number, candidate in enumerate(smaller):
        if candidate != about and _tried(candidate, place / f"smaller{number}")[0] == failure:
            return candidate
    return about


def _tried(about: dict[str, Any], place: Path) -> tuple[str, tuple[str, ...]]:
    """What is wrong, and what to count."""
    item = all_inputs()[about["input"]]
    given = dict(item.files)
    for name, text in about["files"].items():
        given[name] = text.encode("utf-8", "surrogateescape")
    for name, content in given.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    place.mkdir(exist_ok=True)
    ended = run(about["words"], place)
    verb = item.words[0]
    how = {0: ACCEPTED[0], 1: ACCEPTED[1], 2: "refused in one line"}.get(ended.code, "other")
    if ended.problem:
        return ended.problem, (how, verb)
    if ended.code == 2:
        now = contents(place)
        if verb != "train" and now != given:
            return f"refused, but it wrote {sorted({*now} - {*given})}", (how, verb)
        return "", (how, verb)
    return _promises(verb, about, ended, place), (how, verb)


def _promises(verb: str, about: dict[str, Any], ended: Ended, place: Path) -> str:
    """What is wrong with what was accepted; empty if nothing."""
    words = about["words"]
    if "--json" in words and "--help" not in words:
        try:
            json.loads(ended.out)
        except ValueError as error:
            return f"--json printed no JSON: {error}"
    if verb == "quote" and (place / "c.json").is_file():
        return _verifies("c.json", place)
    if verb == "verify" and "contract.json" in words and ended.code == 0:
        return _settles("contract.json", place) or _says_what_it_is(about, place)
    if verb == "settle" and ended.code == 0 and "contract.json" in words:
        return _covers(run(words if "--json" in words else [*words, "--json"], place))
    if verb == "train" and (place / RUN / "summary.json").is_file():
        return _adds_up(place)
    return ""


def _verifies(contract: str, place: Path) -> str:
    ended = run(["verify", contract], place)
    if ended.problem or ended.code != 0:
        found = ended.problem or ended.out[-600:]
        return f"the contract that was written does not verify: {ended.code}, {found}"
    return _settles(contract, place)


def _settles(contract: str, place: Path) -> str:
    ended = run(["settle", contract, "--draw", "1", "--json"], place)
    if ended.code == 2 and "--draw cannot be used" in ended.err:
        return ""
    if ended.problem or ended.code != 0:
        return f"a contract that verifies does not settle: {ended.problem or ended.err}"
    return _covers(ended)


def _says_what_it_is(about: dict[str, Any], place: Path) -> str:
    """A contract with other terms than before must not be told as if it had the same."""
    (terms, said), (terms_before, said_before) = _terms(place), _terms_before(about["input"])
    return (
        f"{terms} in place of {terms_before}, unsaid"
        if terms != terms_before and said == said_before
        else ""
    )


@cache
def _terms_before(name: str) -> tuple[Any, Any]:
    """Of the contract that nobody has edited."""
    place = Path(tempfile.mkdtemp(prefix="before-"))
    for file, content in all_inputs()[name].files.items():
        (place / file).write_bytes(content)
    return _terms(place)


def _terms(place: Path) -> tuple[Any, Any]:
    """What a contract that verifies pays whom, and what `verify` says of it, but for its digest."""
    settled = run(["settle", "contract.json", "--draw", "1", "--json"], place)
    verified = json.loads(run(["verify", "contract.json", "--json"], place).out)
    said = json.loads(settled.out) if settled.code == 0 else {}  # names without costs cannot be drawn
    return said.get("terms", said.get("clients")), {**verified, "sha256": ""}


def _covers(ended: Ended) -> str:
    """Everybody who is admitted is paid the stated cost at least, and the amounts are those spent."""
    if ended.problem or ended.code != 0:
        return f"settled with --json it ends with {ended.code}: {ended.problem or ended.err}"
    said = json.loads(ended.out)
    for row in said["terms"] if "terms" in said else said["clients"]:
        if not row["admitted"]:
            continue
        cost = row["cost"] if "cost" in row else row["report"] * row["epsilon"]
        paid = row["payment"]
        if paid is None or not paid >= cost * (1 - _LENIENT):
            return f"{row['client']} is paid {paid} for a cost of {cost}"
    if "terms" not in said:
        return ""  # what is spent depends on who will take part
    total, budget = sum(row["amount"] or 0 for row in said["terms"]), said["budget"]
    if abs(total - said["spend"]) > _LENIENT * max(1, abs(total)):
        return f"amounts add up to {total}, not to {said['spend']}"
    if budget is not None and total > budget * (1 + _LENIENT):
        return f"{total} is paid of a budget of {budget}"
    return ""


def _adds_up(place: Path) -> str:
    """The statement of a run agrees with itself, and with what is promised about money."""
    ended = run(["statement", RUN, "--json"], place)
    if ended.problem or ended.code not in (0, 1):
        return f"a finished run has no statement: {ended.problem or ended.err}"
    said = json.loads(ended.out)
    total = sum(said["amounts"]) / 10 ** said["decimals"]
    failing = [finding for finding in said["findings"] if finding["holds"] is False]
    if (ended.code == 1) != bool(failing):
        return f"exit code {ended.code} with {len(failing)} promises broken"
    within = [f for f in said["findings"] if (f["kind"], f["unit"]) == ("budget", "money") and f["holds"]]
    for found in within:
        if total > min(found["allowed"], said["totals"].get("budget", found["allowed"])):
            return f"{found['claim']} holds, but {total} of {found['allowed']} is paid"
    return ""
