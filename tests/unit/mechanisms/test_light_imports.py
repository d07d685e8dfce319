"""Whoever prices a contract does not wait for what trains."""

import json
import subprocess
import sys

import pytest

from bonafed.errors import InvalidValue
from bonafed.mechanisms.catalogue import CATALOGUE
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.mechanisms.posted_price.contract import PostedPriceContract
from bonafed.mechanisms.sampling.contracts import KINDS


@pytest.mark.parametrize(
    "program",
    [
        "from bonafed.mechanisms.sampling.slice import SLICE",
        "from bonafed.mechanisms.advice import ADVICE",
        "from bonafed.mechanisms import contract_files",
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


FORMATS = [(name, kind) for name, entry in CATALOGUE.items() for kind in entry.formats]


@pytest.mark.parametrize(("name", "kind"), FORMATS)
def test_whoever_reads_a_contract_loads_the_mechanism_it_belongs_to_and_no_other(name, kind):
    """Fields that are missing are refused by the reader of that format, not by that of another."""
    program = (
        "import json, sys\n"
        "from bonafed import InvalidValue\n"
        "from bonafed.mechanisms.contract_files import contract_from_json\n"
        f"try: contract_from_json({{'format': {kind!r}}})\n"
        "except InvalidValue as error: said = str(error)\n"
        "loaded = {n.split('.')[2] for n in sys.modules if n.startswith('bonafed.mechanisms.')}\n"
        "print(json.dumps([said, sorted(loaded)]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said, loaded = json.loads(done.stdout)
    assert "contract.format" not in said
    folders = {known.replace("-", "_") for known in CATALOGUE}
    assert {*loaded} & folders == {name.replace("-", "_")}


def test_formats_are_those_that_contracts_are_written_in():
    sampling = CATALOGUE["sampling"].load().read
    assert {kind for _, kind in FORMATS} == {
        kind.format for kind in (*KINDS, PostedPriceContract, JsamContract)
    }
    for kind in CATALOGUE["sampling"].formats:
        with pytest.raises(InvalidValue) as refusal:
            sampling({"format": kind})
        assert refusal.value.name != "contract.format"
