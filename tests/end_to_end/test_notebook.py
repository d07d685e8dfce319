"""Figures in a fresh notebook: a real kernel without pyplot shows what every plot() returns."""

import base64

import nbformat
import pytest
from nbclient import NotebookClient

FIRST = """
import sys
from pathlib import Path

import bonafed
from bonafed.economics.statement import Statement

belief = bonafed.Uniform(0.5, 1.5)
costs = {"ada": 0.6, "ben": 0.9, "eve": 0.7}
sampling = bonafed.sampling.contract(belief, 30, 3, 20)
jsam = bonafed.jsam.contract(belief, 3, 20, noise_scale=1.0, clip=1.0, eta=5)
config = {
    "data": {"name": "digits"}, "partition": {"kind": "iid", "clients": 3}, "model": {"name": "softmax"},
    "training": {"rounds": 2, "batch_size": 8, "learning_rate": 0.1},
}
"""
FIGURES = {
    "a contract of sampling": "sampling.plot()",
    "its terms": "sampling.settle(costs).plot()",
    "without a prior": "bonafed.sampling.prior_free_contract(1.5, 30, 3, 20).settle(costs).plot()",
    "a contract of JSAM": "jsam.plot()",
    "terms of JSAM": "jsam.settle(costs).plot()",
    "a prospect": "jsam.prospect(0.7).plot()",
    "a statement": "Statement('any', ('ada', 'ben'), (150, -50)).plot()",
    "a run": "run = bonafed.train(config)\nrun.plot()",
    "its statement": "run.statement.plot()",
    "a comparison": "bonafed.compare({**config, 'compare': {'mechanisms': ['fedavg']}}).plot()",
}
LAST = {
    "to a file, too": "sampling.plot('contract.png')",
    "a document by itself": "sampling.document()",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What a notebook shows under each of the cells, which start in one kernel."""
    sources = [FIRST, *FIGURES.values(), *LAST.values(), "'matplotlib.pyplot' in sys.modules"]
    sources += ["import matplotlib.pyplot", "sampling.plot()", "%matplotlib inline\nsampling.plot()"]
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    names = ["first", *FIGURES, *LAST, "imported", "import", "with pyplot", "inline"]
    assert (folder / "contract.png").read_bytes().startswith(b"\x89PNG")
    return {name: cell.outputs for name, cell in zip(names, notebook.cells, strict=True)}


def pictures(cell):
    return [
        base64.b64decode(output.data["image/png"])
        for output in cell
        if "image/png" in output.get("data", ())
    ]


@pytest.mark.parametrize("name", [*FIGURES, "to a file, too"])
def test_a_figure_shows_itself(outputs, name):
    (shown,) = pictures(outputs[name])
    assert shown.startswith(b"\x89PNG")
    (output,) = [one for one in outputs[name] if "data" in one]
    assert output.metadata["image/png"]["width"] > 300


def test_nobody_imported_pyplot(outputs):
    (output,) = outputs["imported"]
    assert output.data["text/plain"] == "False"


@pytest.mark.parametrize("name", ["with pyplot", "inline"])
def test_with_pyplot_a_figure_is_shown_once(outputs, name):
    assert len(pictures(outputs[name])) == 1


def test_a_document_shows_its_tables(outputs):
    (output,) = outputs["a document by itself"]
    assert "<table>" in output.data["text/html"]
