"""Whoever prices a contract does not wait for what trains."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "program",
    [
        "from bonafed.mechanisms.sampling.slice import SLICE",
        "from bonafed.mechanisms.advice import ADVICE",
        "from bonafed.mechanisms.contracts import files",
        "from bonafed.mechanisms.sampling.slice import SLICE; from bonafed.sections import section_from; "
        "print(SLICE.quote.answer(section_from(SLICE.quote.options, 'quote', {'clients': 3, 'rounds': 3, "
        "'budget': 3, 'prior': 'uniform:0.5,1.5'})))",
    ],
)
def test_heavy_libraries_are_not_imported(program):
    heavy = {"torch", "sklearn", "matplotlib", "dp_accounting", "scipy.optimize", "scipy.stats"}
    program += f"; import sys; print(sorted({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
