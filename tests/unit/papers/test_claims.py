"""Every claim of the register, by its smoke preset: it runs, is judged from its table alone, can be told
false, and shows itself."""

import fcntl
import importlib
import json
import math
import os
import subprocess
import sys
from itertools import product

import pytest

from bonafed.papers import register
from bonafed.papers.claim import PRESETS, judged
from bonafed.papers.reproducing import reproduce

CLAIMS = register.claims()


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """Claims share cells, and so do the processes of the tests."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "cells"


@pytest.fixture(params=CLAIMS)
def claim(request):
    return CLAIMS[request.param]


def once(claim, kept, memory={}, **how):  # noqa: B006  # on purpose: a claim is computed once for all tests
    key = claim.identifier, *how.items()
    if key not in memory:
        kept.mkdir(exist_ok=True)
        with (kept / f"{claim.paper}.lock").open("w") as turn:  # whoever comes second finds the cells
            fcntl.flock(turn, fcntl.LOCK_EX)
            (memory[key],) = reproduce([claim], "smoke", kept, cores=1, **how)
        assert not memory[key].failures, memory[key].failures
    return memory[key]


def test_it_is_named_and_says_something(claim):
    assert claim.identifier.startswith(f"{claim.paper}-")
    assert claim.says.endswith(".")
    assert claim.place


def test_presets_are_of_one_kind(claim):
    kinds = {type(claim.presets[name]) for name in PRESETS}
    assert len(kinds) == 1
    assert claim.settings("smoke", claim.control).table() != claim.presets["smoke"].table()


def test_it_is_judged_from_its_table_alone(claim, kept):
    result = once(claim, kept)
    plain = json.loads(json.dumps(result.to_json(), allow_nan=False))
    again = judged(claim, plain["rows"])
    assert again.verdict == plain["verdict"]
    assert [check.to_json() for check in again.checks] == plain["checks"]
    assert str(result)
    assert result.document().files["csv"].count(b"\n") == len(result.rows) + 1


def test_its_control_is_contradicted(claim, kept):
    result = once(claim, kept, control=True)
    assert result.judgement.verdict == "contradicted", result.judgement.checks


def test_its_verdict_follows_the_table(claim, kept):
    """Some change of the numbers gives another verdict."""
    result = once(claim, kept)
    same = {result.judgement.verdict, None}
    assert any(verdict_of(claim, rows) not in same for rows in perturbed(result.rows))


def test_it_is_drawn(claim, kept):
    figure = claim.draw(once(claim, kept).rows)
    assert figure.axes
    labelled = [axes for axes in figure.axes if axes.get_xlabel() or axes.get_ylabel()]
    assert labelled
    figure.set_dpi(40)  # few dots: it is drawn, and nobody looks at it
    figure.canvas.draw()


def verdict_of(claim, rows):
    """None: a table so changed that it cannot be read, with costs below 0, say."""
    try:
        return judged(claim, rows).verdict
    except (ArithmeticError, LookupError, TypeError, ValueError, Warning):
        return None


def perturbed(rows):
    """Tables with one numeric column changed: turned round, scaled, shifted, or exchanged between rows."""
    columns = {
        name
        for row in rows
        for name, value in row.items()
        if isinstance(value, (int, float))
        and not isinstance(value, bool)
        and not name.endswith(("_se", "seeds"))
    }
    for name, change in product(sorted(columns), CHANGES):
        yield [{**row, name: _changed(row.get(name), change)} for row in rows]
    for name in sorted(columns):
        values = [row.get(name) for row in rows]
        known = sorted(value for value in values if isinstance(value, (int, float)))
        for order in (values[::-1], known, known[::-1]):
            if len(order) == len(rows):
                yield [{**row, name: value} for row, value in zip(rows, order, strict=True)]
    for change in CHANGES:
        yield [
            {name: _changed(v, change) if name in columns else v for name, v in row.items()} for row in rows
        ]


CHANGES = (
    lambda x: -x, lambda x: 10 * x + 1, lambda x: x / 10, lambda x: x / 1000, lambda x: x - 10,
    lambda x: 0 * x, lambda x: 0 * x + 1, lambda x: 0.93 * x, lambda x: 1.07 * x, abs,
)  # fmt: skip


def _changed(value, change):
    return change(value) if isinstance(value, (int, float)) and math.isfinite(value) else value


def test_every_module_has_the_claims_that_the_register_finds_there():
    for module in dict.fromkeys(register.modules().values()):
        there = {claim.identifier for claim in importlib.import_module(module).CLAIMS}
        assert there == {name for name, other in register.modules().items() if other == module}


@pytest.mark.parametrize(
    "name", ["sampling-fig2a", "faithful-fig2", "jsam-theorem4", "rewards-table1", "rewards-theorem1"]
)
def test_one_claim_imports_what_it_needs(name):
    """No module of other claims, and nothing that trains or draws."""
    program = (
        f"import sys; from bonafed.papers import register; register.find({name!r}); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded & set(register.modules().values()) == {register.modules()[name]}
    assert not loaded & {"torch", "matplotlib", "sklearn", "pandas", "rich", "typer"}
    assert sum(module.startswith("bonafed") for module in loaded) <= 100  # of 400


def test_everything_listed_has_a_claim_or_a_reason():
    listed = register.paper_items()
    for item in listed:
        assert item.paper in register.PAPERS
        assert bool(item.claims) != bool(item.open), item
        for name in item.claims:
            assert name in CLAIMS, f"{item.paper}, {item.place}"
    answered = {name for item in listed for name in item.claims}
    assert answered == set(CLAIMS)
