"""Every mechanism, end to end, on every federation of real clients, as somebody at the command line would.

A quote and its contract where the mechanism publishes one, training, statement, audit, page; or the reason
why the mechanism does not apply. The federations are those of invented people (`tests.natural`), which are
always there, and the real ones, if $BONAFED_DATA holds their files.
"""

import csv
import json
import os
from pathlib import Path

import pytest
from tests import natural
from tests.laws import worlds
from tests.laws.test_plain_data import require_plain, require_shown

from bonafed.economics import Uniform
from bonafed.economics.findings import Kind
from bonafed.economics.statement import Statement
from bonafed.learning.data.datasets import load
from bonafed.learning.data.real_federations.choices import FEDERATIONS, chosen
from bonafed.learning.sections import Training
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.protocol import Attack, Common
from bonafed.runs import config as configs
from bonafed.runs import pages, toml
from bonafed.runs.prepare import prepare

ROUNDS, CLIP, CAP = 4, 1.0, 5.0
BELIEF = "uniform:0.5,1.5"
KINDS = {  # the table [data], and how many clients the real one has
    "heart": ({"name": "heart"}, 4),
    "hospitals": ({"name": "ist"}, 464),
    "countries": ({"name": "ist", "clients": "countries"}, 36),
    "schools": ({"name": "schools"}, 160),
    "2,410 schools": ({"name": "schools", "study": "chem97"}, 2410),
}
# of invented clients: everything on classes, and on real targets what treats them differently
QUICK = {"heart": ("fedavg", "posted-price", "sampling", "jsam", "faithful", "rewards", "price-lottery")}
QUICK["schools"] = ("fedavg", "faithful", "rewards")
# why a mechanism does not apply to some data: whatever else is refused is a mistake
NOT_FOR = {("rewards", "schools"): "data.name must name data with classes: rewards are judged by accuracy"}
# a weight of the loss instead of a budget on average, which takes a hundred plans to find
WEIGHT = {"jsam": {"eta": 20.0, "expected_budget": None}}
# what `bonafed quote` needs beside clients, rounds and a prior: money, and what training will be like
QUOTED = {
    "auction": lambda money, parameters: ["--total-budget", money, "--seats", 2],
    "posted-price": lambda money, parameters: ["--cap", money],
    "sampling": lambda money, parameters: ["--budget", money],
    "jsam": lambda money, parameters: [
        *(["--expected-budget", money] if money else ["--eta", 20]), "--max-epsilon", CAP, "--clip", CLIP,
        "--delta", 1e-5, "--dimension", parameters, "--smoothness", 0.5, "--records", 1,
    ],
}  # fmt: skip


def every(quick):
    """All kinds and mechanisms; those that are not quick are for `make deep`."""
    return [
        pytest.param(
            kind, name, id=f"{kind}-{name}", marks=[pytest.mark.deep] * (name not in quick.get(kind, ()))
        )
        for kind in KINDS
        for name in worlds.all_names()
    ]


@pytest.fixture(autouse=True, scope="module")
def price_lottery():
    with worlds.registered():
        yield


@pytest.fixture(scope="module")
def invented(tmp_path_factory):
    return natural.write_all(tmp_path_factory.mktemp("invented"))


@pytest.fixture
def few_places(monkeypatch):
    """Pages of contracts work out what a participant would earn at few costs."""
    monkeypatch.setattr(pages, "_PLACES", 2)


@pytest.mark.usefixtures("few_places")
@pytest.mark.parametrize(("kind", "name"), every(QUICK))
def test_every_mechanism_on_invented_clients(kind, name, invented, bonafed):
    walk(KINDS[kind][0], name, invented, bonafed, WEIGHT.get(name, {}))


@pytest.mark.parametrize(("kind", "name"), every({}))
def test_every_mechanism_on_real_clients(kind, name, bonafed):
    table, clients = KINDS[kind]
    walked = walk(table, name, real_files(table), bonafed)
    assert walked is None or len(walked.clients) == clients


def real_files(table):
    """The folder of the files of a federation; skips where they are not."""
    root = os.environ.get("BONAFED_DATA")
    if not root or not (Path(root) / table["name"]).is_dir():
        pytest.skip(
            f"the files of {table['name']} are not there: BONAFED_DATA must name a folder with them"
        )
    return Path(root)


def test_all_federations_and_mechanisms_are_tried():
    assert {table["name"] for table, _ in KINDS.values()} == set(FEDERATIONS)
    quoted = {name for name in worlds.all_names() if catalogue.entry(name).load().quote is not None}
    assert quoted == set(QUOTED)
    tried = {name for name, _ in NOT_FOR}
    assert tried < set(worlds.all_names())


def walk(table, name, folder, bonafed, instead=()):
    """The statement of a run; None where the mechanism does not apply, for the reason that is known.

    `instead` are keys of the mechanism's table that replace what a comparison would give it.
    """
    part = catalogue.entry(name).load()
    data = {**table, "folder": str(folder)}
    choices = chosen(table["name"], {key: value for key, value in table.items() if key != "name"})
    clients = len(load(table["name"], folder=folder, choices=choices).owners)
    tables = {
        "data": data,
        "model": {"name": "softmax"},
        "training": {"rounds": ROUNDS, "learning_rate": 0.1, "batch_size": 32},
        "run": {"cores": 1},
    }
    own = part.compare(common(clients, table["name"]))
    assert not isinstance(own, str), own
    own = {key: value for key, value in {**own, **dict(instead)}.items() if value is not None}
    if part.training is None:
        del tables["training"]
    Path("run.toml").write_text(
        toml.dumps({**tables, **({part.table: written(own)} if part.table else {})}), encoding="utf-8"
    )
    said = bonafed("train", "run.toml", "--folder", "run", "--json")
    reason = NOT_FOR.get((name, table["name"]))
    if reason is not None:
        assert said[0] == 2
        assert reason in said[2]
        return None
    require_plain(json.loads(success(said)))
    statement = shown(bonafed, "run")
    audited(part)
    if part.quote is not None:
        money = None if instead else budget(clients)
        published(bonafed, name, tables, money, statement.clients)
    return statement


def common(clients, data):
    """What a comparison would give every mechanism."""
    return Common(
        training=Training(rounds=ROUNDS), clients=clients, budget=budget(clients), costs=Uniform(0.5, 1.5),
        sensitivities=Uniform(0.5, 1.5), max_epsilon=CAP, clip=CLIP, data=data, model="softmax",
    )  # fmt: skip


def budget(clients):
    """Enough for most to take part, on average."""
    return 0.8 * clients * ROUNDS


def written(table):
    """A table as a file has it."""
    return {key: value.to_json() if hasattr(value, "to_json") else value for key, value in table.items()}


def success(said):
    code, out, err = said
    assert code == 0, err
    return out


def shown(bonafed, run):
    """The statement of a run, read in every way it is shown."""
    code, out, err = bonafed("statement", run, "--json")
    require_plain(json.loads(out))
    statement = Statement.from_json(json.loads(out))
    broken = any(finding.holds is False for finding in statement.findings)
    assert (code, err) == (int(broken), "")
    for finding in statement.findings:
        if finding.kind is Kind.BUDGET and finding.number > finding.allowed:
            assert finding.verdict == "exceeded", finding
    _, text, _ = bonafed("statement", run)
    assert statement.clients[0] in text
    assert all(finding.verdict in text for finding in statement.findings)
    assert (
        bonafed("statement", run, "--client", statement.clients[-1], "--csv", f"{run}-own.csv")[0] == code
    )
    bonafed("statement", run, "--csv", f"{run}.csv")
    rows = list(csv.DictReader(Path(f"{run}.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["client"] for row in rows] == list(statement.clients)
    success(bonafed("report", run))
    assert statement.clients[0] in Path(f"{run}.html").read_text(encoding="utf-8")
    success(bonafed("runs", run, "--check"))
    return statement


def audited(part):
    """What the mechanism's own search for a violated claim finds is plain, and is about its claims."""
    made = prepare(configs.of_run(Path("run")))
    require_shown(made.agreement.terms.document()) if made.agreement.terms is not None else None
    attack = Attack(made.config, made.agreement, made.federation(None), made.mechanism, made.start)
    found = part.audit(attack)
    assert found
    for finding in found:
        require_plain(finding.to_json())
    lies = [finding for finding in found if finding.kind is Kind.LIE]
    assert all(finding.unit for finding in lies)


def published(bonafed, name, tables, money, names):
    """Quote, verify, settle and train under the contract, with the same clients' reports."""
    clients = len(names)
    dimension = json.loads(Path("run/summary.json").read_text(encoding="utf-8"))["parameters"]
    rest = QUOTED[name](money, dimension)
    success(bonafed(
        "quote", name, "--clients", clients, "--rounds", ROUNDS, "--prior", BELIEF, *rest,
        "--save", "contract.json",
    ))  # fmt: skip
    assert json.loads(success(bonafed("verify", "contract.json", "--json")))["holds"] is True
    success(bonafed("report", "contract.json"))
    costs = Uniform(0.5, 1.5).quantile([(place + 0.5) / clients for place in range(clients)])
    lines = [f"{client},{cost!r}" for client, cost in zip(names, costs.tolist(), strict=True)]
    Path("reports.csv").write_text("client,cost\n" + "\n".join(lines), encoding="utf-8")
    both = ["--reports", "reports.csv"]
    require_plain(json.loads(success(bonafed("settle", "contract.json", *both, "--json"))))
    Path("plain.toml").write_text(toml.dumps(tables), encoding="utf-8")
    success(bonafed("train", "plain.toml", "--contract", "contract.json", *both, "--folder", "bound"))
    assert shown(bonafed, "bound").clients == names
