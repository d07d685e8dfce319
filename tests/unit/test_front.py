"""The front door: what `import bonafed` offers, and that nothing heavy comes with it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bonafed
from bonafed import InvalidValue, Uniform
from bonafed.learning.data import datasets
from bonafed.mechanisms.sampling.published import SamplingContract

CONFIG = """
[data]
name = "digits"

[partition]
kind = "iid"
clients = 4

[model]
name = "softmax"

[training]
rounds = 3
learning_rate = 0.2
steps = 2
"""


@pytest.fixture(scope="module")
def contract():
    return SamplingContract.of(bonafed.sampling.plan(Uniform(0.5, 1.5), 9.0, clients=4, rounds=3))


@pytest.fixture(scope="module")
def reports():
    return {"ada": 0.6, "ben": 1.4, "cleo": 0.9, "dan": 1.1}


def test_importing_it_imports_none_of_what_trains():
    program = "import bonafed, sys; print(sorted({'torch', 'sklearn', 'matplotlib'} & {*sys.modules}))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_every_name_it_lists_is_there():
    for name in bonafed.__all__:
        assert getattr(bonafed, name) is not None
    assert set(dir(bonafed)) == set(bonafed.__all__)
    with pytest.raises(AttributeError, match="no attribute 'unheard_of'"):
        _ = bonafed.unheard_of


def test_a_config_may_be_text_tables_or_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(CONFIG)
    tables = {
        "data": {"name": "digits"}, "partition": {"kind": "iid", "clients": 4},
        "model": {"name": "softmax"}, "training": {"rounds": 3, "learning_rate": 0.2, "steps": 2},
    }  # fmt: skip
    losses = {bonafed.train(config).summary["train_loss"] for config in (CONFIG, tables, path, str(path))}
    assert len(losses) == 1
    with pytest.raises(InvalidValue, match="config must be TOML"):
        bonafed.train("[data\nname = 3")


def test_a_run_has_a_model_metrics_a_statement_and_findings(contract, reports, tmp_path):
    result = bonafed.train(CONFIG, contract=contract, reports=reports, folder=tmp_path / "run")
    assert [line["round"] for line in result.metrics] == [1, 2, 3]
    assert result.statement.clients == ("ada", "ben", "cleo", "dan")
    assert {finding.claim for finding in result.findings} >= {"stated costs are covered", "budget"}
    assert result.folder == tmp_path / "run"
    assert sum(p.numel() for p in result.model.parameters()) == 650
    for payment, cost in zip(result.statement.columns["payment"], reports.values(), strict=True):
        assert payment >= cost
    assert "ada" in str(result)
    assert repr(result) == "<RunResult: Run run>"
    assert repr(result.statement) == "<Statement: Statement of run>"
    assert "<table>" in result._repr_html_()


def test_nothing_is_kept_unless_a_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert bonafed.train(CONFIG).folder is None
    assert not list(tmp_path.iterdir())


def test_own_data_and_own_model(reports):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 5)).astype(np.float32), rng.integers(0, 2, 80)
    owners = np.repeat(["ada", "ben", "cleo", "dan"], 20)
    data = datasets.from_arrays("mine", x, y, groups=owners, classes=2)
    config = CONFIG.replace('kind = "iid"\nclients = 4', 'kind = "natural"')
    result = bonafed.train(config, data=data, model=torch.nn.Linear(5, 2))
    assert result.statement.clients == ("ada", "ben", "cleo", "dan")


def test_reports_of_strangers_are_refused_and_missing_ones_are_left_out(contract, reports):
    with pytest.raises(InvalidValue, match=r"^reports must be of the run's 4 clients, got 5$"):
        bonafed.train(CONFIG, contract=contract, reports={**reports, "eve": 1.0})
    few = {name: reports[name] for name in ("ada", "ben")}
    result = bonafed.train(CONFIG, contract=contract, reports=few)
    assert result.statement.clients == ("ada", "ben")
    assert "2 clients of the data did not report, do not take part and are owed nothing" in (
        result.statement.notes
    )


@pytest.mark.parametrize(
    ("reports", "reason"),
    [
        ([1, 1, 1, 1], r"reports must be a mapping of numbers by client, got \[1, 1, 1, 1\]"),
        ({"a": 1, "b": 1, "c": "x", "d": 1}, "report of c must be a number, got 'x'"),
    ],
)
def test_reports_are_numbers_by_client(contract, reports, reason):
    with pytest.raises(InvalidValue, match=f"^{reason}$"):
        bonafed.train(CONFIG, contract=contract, reports=reports)


def test_a_folder_that_holds_a_run_is_not_used_twice(tmp_path):
    first = bonafed.train(CONFIG, folder=tmp_path / "run")
    with pytest.raises(InvalidValue, match=r"must hold no run yet \(--resume, or resume=True in Python"):
        bonafed.train(CONFIG, folder=tmp_path / "run")
    again = bonafed.train(CONFIG, folder=tmp_path / "run", resume=True)
    assert again.statement.to_json() == first.statement.to_json()


def test_misspelt_names_are_told_with_those_that_are_missing(contract, reports):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 5)).astype(np.float32), rng.integers(0, 2, 80)
    data = datasets.from_arrays("mine", x, y, groups=np.repeat([*reports], 20), classes=2)
    config = CONFIG.replace('kind = "iid"\nclients = 4', 'kind = "natural"')
    misspelt = {name.replace("ada", "Ada"): cost for name, cost in reports.items()}
    rule = (
        "reports must be of the run's 4 clients: 'Ada' is not among them, 'ada' is without a report, got 4"
    )
    with pytest.raises(InvalidValue, match=f"^{rule}$"):
        bonafed.train(config, data=data, contract=contract, reports=misspelt)
    strangers = {name.upper(): cost for name, cost in reports.items()}
    named = (
        "'ADA', 'BEN', 'CLEO' and 1 more are not among them, 'ada', 'ben', 'cleo' and 1 more are without "
        "a report"
    )
    with pytest.raises(InvalidValue, match=named):
        bonafed.train(config, data=data, contract=contract, reports=strangers)


def test_reports_in_any_order_give_the_same_run(contract, reports):
    backwards = dict(reversed(reports.items()))
    one, other = (bonafed.train(CONFIG, contract=contract, reports=r) for r in (reports, backwards))
    assert one.statement.to_json() == other.statement.to_json()


def test_a_contract_is_verified_as_a_value_and_as_a_file(contract, tmp_path):
    path = tmp_path / "contract.json"
    path.write_bytes(contract.content)
    for subject in (contract, path, str(path)):
        assert all(finding.holds for finding in bonafed.verify(subject))
    assert bonafed.read_contract(path).digest == contract.digest


def test_what_shows_itself_can_be_drawn(contract, reports, tmp_path):
    terms = contract.settle(reports)
    result = bonafed.train(CONFIG, contract=contract, reports=reports)
    for number, value in enumerate((contract, terms, result, result.statement)):
        path = tmp_path / f"{number}.png"
        value.plot(path)
        assert Path(path).stat().st_size > 1000
        assert value._repr_html_()
        assert str(value)


def test_a_federation_that_answers_for_itself_needs_no_data_here(contract, reports):
    torch = pytest.importorskip("torch")
    from bonafed.learning.federation import Roster
    from bonafed.learning.function_federation import FunctionFederation

    def ask(tasks):
        return {task.identifier: 0.1 * np.ones_like(task.models) for task in tasks}

    members = Roster(tuple(reports), np.array([10, 20, 30, 40]), shape=(3,), classes=2)
    config = CONFIG.replace('"digits"', '"nobody has them"')
    result = bonafed.train(
        config, model=torch.nn.Linear(3, 2), contract=contract, reports=reports,
        federation=FunctionFederation(members, ask),
    )  # fmt: skip
    assert result.statement.clients == members.names
    assert result.summary["test_accuracy"] is None
    built = bonafed.train(CONFIG, federation=FunctionFederation(members, ask))
    assert sum(p.numel() for p in built.model.parameters()) == 3 * 2 + 2
    strange = datasets.from_arrays("mine", np.zeros((4, 5)), [0, 1, 0, 1], classes=2)
    with pytest.raises(InvalidValue, match="test samples must be like the clients': shape"):
        bonafed.train(CONFIG, data=strange, federation=FunctionFederation(members, ask))
