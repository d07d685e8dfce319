"""`bonafed report` in a real browser: a contract, a run, and mechanisms compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bonafed.mechanisms import catalogue
from bonafed.mechanisms.contract_files import read_contract
from tests.browser.conftest import inspected, whole

CONFIG = """
[data]
name = "digits"
[partition]
kind = "iid"
clients = 3
[model]
name = "softmax"
[training]
rounds = 3
batch_size = 48
learning_rate = 0.1
"""
COMPARE = """
[compare]
mechanisms = ["fedavg", "sampling"]
budget = 5
costs = "uniform:0.5,1.5"
"""
REPORTS = """client,cost
"</script><b>eve",0.6
"a very long name of a hospital of the holy spirit, ward 17",1.1
ada,0.9
"""


@pytest.fixture
def contract(bonafed: Any, tmp_path: Path) -> Path:
    terms = ("--prior", "uniform:0.5,1.5", "--clients", 3, "--rounds", 3, "--budget", 4)
    assert bonafed("quote", "sampling", *terms, "--save", "contract.json")[0] == 0
    return tmp_path / "contract.json"


def test_a_contract(bonafed: Any, look: Any, contract: Path) -> None:
    code, said, _ = bonafed("report", contract)
    assert code == 0
    assert "wrote contract.html" in said
    inspected(look, contract.with_suffix(".html"))
    whole(look, contract.with_suffix(".html"))


def test_the_slider_shows_what_the_contract_says(bonafed: Any, look: Any, contract: Path) -> None:
    bonafed("report", contract)
    tab = look(contract.with_suffix(".html")).tab
    slider = tab.get_by_role("slider")
    assert "cost" in (slider.evaluate("(it) => it.labels[0].textContent"))
    before = tab.locator("output").inner_text()
    slider.press("ArrowRight")
    assert tab.locator("output").inner_text() != before
    cost = float(slider.get_attribute("aria-valuetext"))
    (mine,) = read_contract(contract).prospect(cost).data["prospects"]
    assert f"{mine['profit']:,.4g}" in tab.locator("output").inner_text()
    slider.press("End")
    assert "not admitted" in tab.locator("output").inner_text()


def test_without_scripts_there_is_the_table(bonafed: Any, look: Any, contract: Path) -> None:
    bonafed("report", contract)
    tab = look(contract.with_suffix(".html"), javascript=False).tab
    assert not tab.locator(".slider").is_visible()
    tab.locator("summary").click()
    assert tab.get_by_role("table", name="What every cost earns").is_visible()


def test_a_run_with_names_from_outside(bonafed: Any, look: Any, contract: Path, tmp_path: Path) -> None:
    Path("run.toml").write_text(CONFIG, "utf-8")
    Path("reports.csv").write_text(REPORTS, "utf-8")
    words = ("train", "run.toml", "--contract", contract, "--reports", "reports.csv", "--folder", "run")
    code, _, error = bonafed(*words)
    assert code == 0, error
    code, said, error = bonafed("report", "run")
    assert code == 0, error
    assert "wrote run.html" in said
    inspected(look, tmp_path / "run.html")
    whole(look, tmp_path / "run.html")
    tab = look(tmp_path / "run.html").tab
    assert tab.get_by_role("rowheader", name="</script><b>eve").count() == 1


def test_mechanisms_compared(bonafed: Any, look: Any, tmp_path: Path) -> None:
    Path("compare.toml").write_text(CONFIG + COMPARE, "utf-8")
    code, _, error = bonafed("compare", "compare.toml", "--folder", "kept", "--report", "now.html")
    assert code == 0, error
    assert bonafed("report", "kept", "--save", "later.html")[0] == 0
    for name in ("now.html", "later.html"):
        inspected(look, tmp_path / name)
        whole(look, tmp_path / name)
        tab = look(tmp_path / name).tab
        assert tab.get_by_role("table", name="The same federation under each mechanism").count() == 1


def test_a_run_of_every_mechanism_and_all_side_by_side(
    bonafed: Any, look: Any, contract: Path, tmp_path: Path
) -> None:
    asked = COMPARE.replace('["fedavg", "sampling"]', str(list(catalogue.CATALOGUE)).replace("'", '"'))
    limits = 'sensitivities = "uniform:0,4"\nmax_epsilon = 5\nclip = 1\n'
    Path("compare.toml").write_text(CONFIG + asked + limits, "utf-8")
    code, _, error = bonafed("compare", "compare.toml", "--folder", "kept", "--report", "now.html")
    assert code == 0, error
    inspected(look, tmp_path / "now.html")
    whole(look, tmp_path / "now.html")
    places = [f"kept/{name}" for name in catalogue.CATALOGUE]
    for place in places:
        assert bonafed("report", place, "--save", "run.html")[0] == 0
        whole(look, tmp_path / "run.html")
    for several in (places[:2], places):
        assert bonafed("report", *several, "--save", "runs.html")[0] == 0
        whole(look, tmp_path / "runs.html")


def test_a_contract_for_privacy(bonafed: Any, look: Any, tmp_path: Path) -> None:
    people = ("--prior", "uniform:0.5,1.5", "--clients", 3, "--rounds", 20)
    terms = (*people, "--eta", 5, "--noise-scale", 1, "--clip", 1, "--delta", "1e-5")
    code, _, error = bonafed("quote", "jsam", *terms, "--save", "contract.json")
    assert code == 0, error
    assert bonafed("report", "contract.json")[0] == 0
    inspected(look, tmp_path / "contract.html")
    whole(look, tmp_path / "contract.html")
