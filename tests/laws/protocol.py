"""The laws that every mechanism keeps, each a function that fails where it is broken.

They know mechanisms only through `bonafed.mechanisms.protocol`, as runs and the command line do.
"""

import csv
import io
import json
import math
import os
import re
import signal
from collections import Counter
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal

import numpy as np
import pytest
import torch

from bonafed.contracts.terms import PaidTerms, Turns
from bonafed.economics.findings import Kind
from bonafed.economics.statement import COVERED, NO_WORSE_ALONE, Statement
from bonafed.errors import BonafedError
from bonafed.learning.engine.programs import flat_parameters
from bonafed.runs import config as configs
from bonafed.runs import folder as folders
from bonafed.runs import log
from bonafed.runs.training import train
from tests.laws.worlds import OWNERS


class Killed(BaseException):
    """Stands for the end of the process."""


def ending(place):
    """What a run left in its folder, but for the time it took."""
    summary = {**folders.read_json(place, folders.SUMMARY), "seconds": 0}
    lines = [{**line, "seconds": 0} for line in folders.read_rounds(place)]
    return summary, lines, (place / folders.MODEL).read_bytes()


# 1 ------------------------------------------------------------------------------------------------


def terms_by_name(terms):
    """A row of all digits for every client."""
    rows = csv.DictReader(io.StringIO(terms.document().files["csv"].decode()))
    return {row["client"]: row for row in rows}


def order_does_not_matter(made):
    """Reports in any order give the same terms by name."""
    mechanism, agreement = made.mechanism, made.agreement
    if mechanism.question is None:
        assert not agreement.reports
        return
    names = agreement.members.names
    assert set(agreement.reports) == set(names)
    first = mechanism.agree(agreement.members, agreement.reports)
    for turn in (1, 3):
        shuffled = [*names[turn:], *names[:turn]][::-1]
        again = mechanism.agree(agreement.members, {name: agreement.reports[name] for name in shuffled})
        assert dict(again.reports) == dict(first.reports)
        if first.terms is not None:
            assert again.terms.to_json() == first.terms.to_json()
            assert terms_by_name(again.terms) == terms_by_name(first.terms)
            assert list(terms_by_name(again.terms)) == list(names)
            places = [agreement.members.index[name] for name in shuffled]
            moved = replace(agreement.members, names=tuple(shuffled), sizes=agreement.members.sizes[places])
            assert terms_by_name(mechanism.agree(moved, agreement.reports).terms) == terms_by_name(
                first.terms
            )


# 2 ------------------------------------------------------------------------------------------------


def moments(rounds):
    """When a run is killed: after every round, before a line has its checkpoint, when it settles, ends."""
    return [
        *(("round", number) for number in range(1, rounds + 1)),
        ("checkpoint", 1), ("settling", 1), ("finish", 1),
    ]  # fmt: skip


def _train_until(made, place, moment, stop):
    """Train, and call `stop` at the moment."""
    kind, when = moment

    def on_round(record):
        if kind == "round" and record.round == when:
            stop()

    def on_phase(text):
        if kind == text:
            stop()

    with pytest.MonkeyPatch.context() as patch:
        if kind in ("checkpoint", "finish"):
            patch.setattr(log.RunLog, kind, lambda *_args: stop())
        train(made, place, on_round=on_round, on_phase=on_phase)


def _raise():
    raise Killed


def resumes_to_the_same_bits(made, tmp_path, really=True):
    """A run that is killed anywhere ends as if it had not been."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _handle: None)  # slow, and no machine loses its power here
        _resumes(made, tmp_path, really)


def _resumes(made, tmp_path, really):
    whole = tmp_path / "whole" / "run"
    train(made, whole)
    expected = ending(whole)
    rounds = len(folders.read_rounds(whole))
    every = moments(rounds) if rounds <= 12 else [m for m in moments(rounds) if m[1] in (1, 2, rounds)]
    for number, moment in enumerate(every):
        place = tmp_path / f"cut{number}" / "run"
        with pytest.raises(Killed):
            _train_until(made, place, moment, _raise)
        train(made, place, resume=True)
        assert ending(place) == expected, moment
    if really:
        place = tmp_path / "killed" / "run"
        kill_a_child(lambda: _train_until(made, place, ("round", 3), _kill))
        train(made, place, resume=True)
        assert ending(place) == expected


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_a_child(work):
    """A process forked from this one does the work, and is ended by SIGKILL in the middle of it."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


# 3 ------------------------------------------------------------------------------------------------


def statement_adds_up(made, result):
    """What is owed is the sum of what became due, up to one smallest unit for each client.

    Rounding (`bonafed.economics.money`) changes each client's amount by less than one unit, so that all
    together differ from the money of the rounds by less than N units; nothing else is allowed but the
    double's own rounding of a sum of R numbers, R 2^-52 of it.
    """
    statement = result.statement
    assert all(type(amount) is int for amount in statement.amounts)
    assert statement.clients == made.agreement.members.names
    own = [record for record in result.metrics if not record["phase"]]
    due = [record["spend"] for record in own if record["spend"] is not None]
    unit = 10.0**-statement.decimals
    if due:
        spend = math.fsum(due)
        allowed = unit * len(statement.clients) + len(due) * 2.0**-52 * spend
        assert abs(statement.total - spend) < allowed
        assert result.summary["spend"] == spend
    asked = Counter(name for record in own for name in record["participants"])
    missing = Counter(name for record in own for name in record["failed"])
    took_part = asked - missing  # what was not delivered is not paid
    assert took_part + missing == asked
    for column, times in (("participations", took_part), ("sampled", asked)):
        counted = statement.columns.get(column)
        if counted is not None:
            shown = {name: count for name, count in zip(statement.clients, counted, strict=True) if count}
            assert shown == {**times}
    question, scale = made.mechanism.question, Decimal(10) ** statement.decimals
    if question is not None and question.unit == "money per participation":  # nobody loses a cent
        for name, amount in zip(statement.clients, statement.amounts, strict=True):
            stated = Decimal(repr(made.agreement.reports[name]))
            assert amount >= stated * took_part[name] * scale, name
    terms = made.agreement.terms
    if isinstance(terms, PaidTerms):
        places = {name: place for place, name in enumerate(terms.clients)}
        drawn, given = Counter(), Counter()
        for record in own:
            there = Counter(record["participants"]) - Counter(record["failed"])
            drawn, given = drawn + Counter(record["participants"]), given + there
            turns = Turns.of(
                [given[name] for name in terms.clients], [drawn[name] for name in terms.clients]
            )
            due = terms.due_in(record["round"], [places[name] for name in there.elements()], turns)
            assert record["spend"] == pytest.approx(due, rel=1e-12, abs=0)
        assert tuple(terms.amounts(turns)) == statement.amounts
    for finding in statement.findings:  # after rounding: amounts are what findings speak of
        if finding.claim == COVERED or finding.kind is Kind.BUDGET:
            assert finding.holds is not False, str(finding)
    budget_is_told(statement, stated_budget(made.config))


def stated_budget(config):
    """The money that the table of a config says is to be spent; None: it says nothing."""
    names = ("total_budget", "budget", "expected_budget", "cap")
    amounts = [getattr(config.own, name, None) for name in names]
    return next((amount for amount in amounts if amount is not None), None)


def budget_is_told(statement, budget):
    """Whoever states a budget says what came of it, and never that it holds where more was spent."""
    about = [found for found in statement.findings if found.kind is Kind.BUDGET and found.unit == "money"]
    if budget is None:
        assert about == []
        return
    (found,) = about
    assert (found.number, found.allowed) == (statement.total, budget)
    over = statement.total > budget
    assert (found.holds is True) <= (not over), str(found)
    assert (found.verdict in ("FAILS", "exceeded")) >= over, str(found)
    assert f"{statement.total:,.{statement.decimals}f} spent of" in found.text
    assert "promised" in found.text
    if over:
        assert f"{statement.total - budget:,.{statement.decimals}f} (" in found.text
        assert "too much" in found.text
        assert "%" in found.text


# 4 ------------------------------------------------------------------------------------------------


def failure_is_skipped(made, client, number):
    """The run goes on; it says who failed when, or who was left out of it, unless that tells too much."""
    result = train(made)
    own = [record for record in result.metrics if not record["phase"]]
    told = [(record["round"], list(record["failed"])) for record in own if record["failed"]]
    if made.config.noise is not None:
        assert told == []
        assert result.summary["failed_clients"] == []
        return
    assert result.summary["failed_clients"] == [client]
    if not any(client in record["participants"] for record in own[1:]):  # left out of the whole run
        assert told == [(1, [client])]
        assert any(client in note for note in result.statement.notes)
        assert dict(zip(result.statement.clients, result.statement.amounts, strict=True))[client] == 0
        return
    assert told == [(number, [client])]


def failure_is_raised(made, client, number):
    """The error names the client and the round, counted in all or in its phase, where it was the second."""
    with pytest.raises(BonafedError) as refused:
        train(made)
    text = str(refused.value)
    assert client in text
    assert re.search(rf"\b(round|step|exchange) ({number}|2)\b", text), text


# 5 ------------------------------------------------------------------------------------------------

_FACTORS = (1e4, 1e-4, -1.0)


def perturbed(value, depth=6):
    """The same value with one number in it, or all numbers of an array, changed: many values."""
    if isinstance(value, bool) or value is None or depth == 0:
        return
    if isinstance(value, int):
        yield from (value + 10**6, -value)
    elif isinstance(value, float):
        yield from (value * factor for factor in _FACTORS)
    elif isinstance(value, np.ndarray):
        if value.size and value.size < 200 and value.dtype.kind in "iuf":
            yield value + np.asarray(10**6, value.dtype)
            yield from ((value * factor).astype(value.dtype) for factor in _FACTORS)
    elif isinstance(value, (tuple, list)):
        if value and all(isinstance(entry, (int, float)) for entry in value):
            yield from (type(value)(entry * factor for entry in value) for factor in _FACTORS)
        elif len(value) < 8:
            for place, entry in enumerate(value):
                for other in perturbed(entry, depth - 1):
                    entries = [*value[:place], other, *value[place + 1 :]]
                    yield type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    elif isinstance(value, dict):
        for key, entry in value.items():
            for other in perturbed(entry, depth - 1):
                yield {**value, key: other}
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            if item.init:
                for other in perturbed(getattr(value, item.name), depth - 1):
                    try:
                        yield replace(value, **{item.name: other})
                    except (BonafedError, ValueError, TypeError, OverflowError, AttributeError):
                        continue  # no such value exists: it is refused, which is as good


def findings_can_fail(mechanism, state, federation, statement, claims=None):
    """Every claim that was kept is found broken when some number behind it is another."""
    open_claims = {finding.claim for finding in statement.findings if finding.holds}
    for subject in (state, mechanism):
        for other in perturbed(subject):
            if not open_claims:
                return
            pair = (mechanism, other) if subject is state else (other, state)
            try:
                with np.errstate(all="ignore"):
                    settled = pair[0].settle(pair[1], federation)
            except (BonafedError, ArithmeticError, AssertionError, ValueError, IndexError, KeyError):
                continue
            open_claims -= {finding.claim for finding in settled.findings if finding.holds is False}
    assert not open_claims, f"nothing breaks {sorted(open_claims)}"


def claims_are_looked_into(part, findings):
    """Every claim of a slice has a finding of its name, and none of these is broken."""
    for claim in part.claims:
        mine = [finding for finding in findings if finding.claim == claim]
        assert mine, f"nothing looks into {claim!r}"
        assert all(finding.holds is not False for finding in mine), [str(finding) for finding in mine]
        assert all(finding.text for finding in mine), f"nothing says why {claim!r} is not claimed"


def contract_edits_are_seen(contract, read):
    """No number of a published file can be another: it is refused, or fails to verify, or is another
    contract, by its digest, whose terms for the same reports are those it states."""
    data = json.loads(contract.content)
    assert read(json.loads(contract.content)).digest == contract.digest
    assert all(finding.holds is not False for finding in contract.verify())
    seen = 0
    for path, other in _edited(data):
        try:
            edited = read(other)
        except BonafedError:
            seen += 1
            continue
        assert edited.digest != contract.digest, path
        if not seen:  # it takes a while
            seen += any(finding.holds is False for finding in edited.verify())
    assert seen, "no edit of any number was found out"


def _edited(data, path=()):
    for key, value in data.items():
        if isinstance(value, dict):
            for where, other in _edited(value, (*path, key)):
                yield where, {**data, key: other}
        elif isinstance(value, list):
            for place, entry in enumerate(value):
                for where, other in _edited({"": entry}, (*path, key)):
                    yield where, {**data, key: [*value[:place], other[""], *value[place + 1 :]]}
        elif isinstance(value, float):
            yield (*path, key), {**data, key: value * 1.01 + 0.01}


# 6 ------------------------------------------------------------------------------------------------


def config_survives_toml(config, tmp_path):
    """A config that was written is read as the same."""
    path = tmp_path / "again.toml"
    path.write_text(configs.to_toml(config), encoding="utf-8")
    again = configs.read(path)
    assert configs.to_tables(again) == configs.to_tables(config)
    assert configs.differences(again, config) == []
    assert again == replace(config, contract=None, chosen={})  # what follows from the roster is not written


def state_survives_arrays(made, rounds=2):
    """A state restored from its arrays is the same, and so is what follows."""
    mechanism, federation = made.mechanism, made.federation(None)
    state = mechanism.begin(made.agreement, made.start)
    for _ in range(rounds):
        state, _ = mechanism.advance(state, federation)
    kept = {name: np.array(values) for name, values in state.arrays().items()}
    again = mechanism.restore(made.agreement, kept)
    _same_arrays(state.arrays(), again.arrays())
    assert again.round_number == state.round_number
    assert mechanism.models(again).tobytes() == mechanism.models(state).tobytes()
    if not mechanism.finished(state):
        (one, log), (other, same) = (mechanism.advance(s, federation) for s in (state, again))
        _same_arrays(one.arrays(), other.arrays())
        assert (log.participants, log.spend) == (same.participants, same.spend)


def _same_arrays(one, other):
    assert set(one) == set(other)
    for name in one:
        a, b = np.asarray(one[name]), np.asarray(other[name])
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), name


# 7 ------------------------------------------------------------------------------------------------


def names_survive(made, result):
    """Clients are called in statement and metrics as the data, or the reports, call them."""
    assert made.agreement.members.names == OWNERS
    assert result.statement.clients == OWNERS
    seen = {name for record in result.metrics for name in record["participants"]}
    assert seen <= set(OWNERS)
    assert seen
    assert set(made.agreement.reports) in (set(), set(OWNERS))
    for name in OWNERS:
        assert result.statement.row(name)["client"] == name
        assert result.statement.only(name).clients == (name,)
    again = Statement.from_json(json.loads(json.dumps(result.statement.to_json())))
    assert again.to_csv() == result.statement.to_csv()


# 8 ------------------------------------------------------------------------------------------------


def same_result(one, other, *, tolerance=1e-6, bits=False):
    """Two runs came to the same statement and the same model."""
    assert one.statement.clients == other.statement.clients
    assert one.statement.amounts == other.statement.amounts
    here, there = ({f.claim: f.holds for f in result.findings} for result in (one, other))
    for promises in (here, there):  # of fresh samples, which a real federation does not give away
        promises.pop(NO_WORSE_ALONE, None)
    assert here == there
    a, b = (flat_parameters(result.model) for result in (one, other))
    if bits:
        assert torch.equal(a, b)
    assert float((a - b).abs().max()) <= tolerance
    for mine, theirs in zip(one.metrics, other.metrics, strict=True):
        assert mine["participants"] == theirs["participants"]
        assert mine["spend"] == theirs["spend"]
