"""The cases of `benchmarks/accuracy.py` are configs that can be run; measuring them is not for tests."""

import importlib.util
import sys
from pathlib import Path

import pytest

from bonafed.runs import config

PATH = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"


@pytest.fixture(scope="module")
def accuracy():
    spec = importlib.util.spec_from_file_location("benchmark_of_accuracy", PATH)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PATH.parent))  # a script finds what lies beside it
        spec.loader.exec_module(module)
    return module


def test_every_side_of_every_case_is_a_config_of_its_own(accuracy):
    names = [case.name for case in accuracy.CASES]
    assert len(set(names)) == len(names)
    for case in accuracy.CASES:
        cells = [accuracy.Cell(case, side, seed) for side in case.sides for seed in (0, 1)]
        assert len({cell.key for cell in cells}) == len(cells)
        for cell in cells:
            made = config.from_tables(cell.tables)
            assert (made.run.seed, made.run.cores) == (cell.seed, 1)


def test_differences_are_taken_seed_by_seed(accuracy):
    case = accuracy.CASES[0]
    first, second = case.sides
    found = {
        accuracy.Cell(case, side, seed).key: {
            "accuracy": value, "last": value, "spend": 1.0, "epsilon": None,
        }
        for side, values in ((first, (0.5, 0.7)), (second, (0.6, 0.8)))
        for seed, value in enumerate(values)
    }  # fmt: skip
    *_, before, after = accuracy.table([case], 2, found).splitlines()
    assert before.split(" | ")[:5] == [f"| {case.name}", first, "2", "60.0 ± 10.0", ""]
    assert after.split(" | ")[:5] == ["| ", second, "2", "70.0 ± 10.0", "+10.0 ± 0.0"]
