"""A figure and the table beside it are made of the same values, and no number is cut at any width.

Every command with --plot is run once in a small form. What its figure draws, by the data of the artists, is
then held against what its table prints, cell by cell. The same documents, and those of the commands without
a figure, are printed on narrow terminals.
"""

import io
import re
import sys
from collections import Counter
from contextlib import ExitStack
from unittest import mock

import numpy as np
import pytest
import typer
from rich.console import Console
from tests.legible import illegible

from bonafed.cli import app, main
from bonafed.presentation import terminal
from bonafed.presentation.documents import Table

FEDERATION = """
[data]
name = "digits"
[partition]
kind = "label_dirichlet"
clients = 5
beta = 0.5
[model]
name = "softmax"
[training]
rounds = 3
learning_rate = 0.5
steps = 3
[run]
cores = 1
"""
COMPARE = """
[compare]
budget = 20.0
costs = "uniform:0.5,1.5"
sensitivities = "uniform:0,1"
max_epsilon = 5.0
clip = 1.0
"""
FAITHFUL = """
[data]
name = "synthetic"
[partition]
kind = "iid"
clients = 4
[model]
name = "softmax"
[faithful]
regulariser = 0.05
[run]
cores = 1
evaluate_every = 10
"""
REPORTS = "client,cost\n" + "".join(f"client {k},{0.9 - 0.07 * k:.2f}\n" for k in range(12))
SAMPLING = ["--prior", "uniform:0.5,1.5", "--clients", "20", "--rounds", "30", "--budget", "300"]
JSAM = ["--prior", "uniform:0,1", "--eta", "5", "--noise-scale", "1"]
AGENTS = ["--data", "synthetic", "--samples", "150", "--agents", "4", "--delta", "0.9"]

# Every command with --plot, some of them in several forms; --plot is added.
PLOTS = {
    "advise join": "--counts 100,400,400 --delta 0.2 --agent 0",
    "advise federate-or-cluster": "--counts 200,200,200,200 --delta 0.5 --groups 0,1/2,3",
    "advise manipulation": "--counts 100,400,400 --delta 0.05",
    "advise clusters": "--agents 100 --epsilon 0.5",
    "advise convergence": "--clients 5 --rounds 20 --budget 50 --prior uniform:0.5,1.5",
    "advise private-training": "--records 144 --clients 10 --parameters 650 --epsilon 1.5",
    "advise privacy-tradeoff": "--agents 10 --samples 10000 --epsilon 20",
    "advise faithfulness": "--agents 10 --samples 10000 --epsilon 20",
    "advise reward-rule": "--cost 0.1 --cost 0.2 --cost 0.5 --ceiling 2 --sharing 0",
    "advise reward-parameters": "--cost 0.1 --cost 0.2 --goal received",
    "quote sampling": [*SAMPLING, "--confidence", "0.95"],
    "quote sampling, prior-free": "--prior-free --highest 1.5 --clients 20 --rounds 30 --budget 300",
    "quote posted-price": "--cap 50 --clients 5 --rounds 10",
    "quote jsam": ["--reports", "reports.csv", *JSAM],
    "quote jsam, many": ["--clients", "60", *JSAM],
    "audit sampling": SAMPLING,
    "audit sampling, pay-as-bid": [*SAMPLING, "--variant", "pay-as-bid"],
    "audit jsam": ["--reports", "reports.csv", "--points", "11"],
    "audit jsam, pay-as-bid": ["--reports", "reports.csv", "--points", "11", "--variant", "pay-as-bid"],
    "audit faithful": [*AGENTS, "--regulariser", "0.03"],
    "audit faithful, fedavg": [*AGENTS, "--regulariser", "0.03", "--variant", "fedavg"],
    "audit faithful, private": [*AGENTS, "--variant", "private", "--alpha", "10", "--trials", "2"],
    "audit rewards": "--clients 4 --rounds 2 --cheaters 2",
    "statement": "runs/paid",
    "runs": "runs",
    "compare": "compare.toml",
    "reproduce": "faithful-fig2 --preset smoke",
    "reproduce, money": "jsam-fig7 --preset smoke",
    "reproduce, clients": "jsam-fig8 --preset smoke",
}
# take --plot like their neighbours, and refuse it
NO_FIGURE = {"advise mechanism", "audit posted-price"}
OTHERS = {
    "verify": "contract.json --cost 0.9",
    "settle": "contract.json --draw 1",
    "advise mechanism": "--money yes --costs privacy --prior yes",
    "audit posted-price": "--cap 50 --clients 5 --rounds 10",
    "train": "paid.toml --folder runs/again",
}


class Shown:
    """What a command said: its document and its figure."""

    def __init__(self, document, figure):
        self.document, self.figure = document, figure
        self.data = document.data
        self.tables = [block for block in document.blocks if isinstance(block, Table)]
        self.text = "\n".join(block for block in document.blocks if isinstance(block, str))

    def table(self, title=""):
        return next(table for table in self.tables if table.title.startswith(title))

    def column(self, name, title=""):
        """The cells under a heading, as they are printed."""
        table = self.table(title)
        place = [column.name for column in table.columns].index(name)
        return [row[place] for row in table.cells]

    def written(self, name, values, title=""):
        """Numbers of the figure, written as the column of the table writes its own."""
        column = next(column for column in self.table(title).columns if column.name == name)
        return [column.text(float(value)) for value in values]


def run(words):
    """Run a command: the document that it shows, and the figure that it draws."""
    shown, drawn = [], []
    with ExitStack() as stack:
        say = stack.enter_context(mock.patch.object(terminal, "show"))
        say.side_effect = lambda document, **_: shown.append(document)
        draw = stack.enter_context(mock.patch("bonafed.presentation.figures.render"))
        draw.side_effect = lambda figure, path: drawn.append(figure) or b"picture"
        stack.enter_context(mock.patch.object(sys, "argv", ["bonafed", *words]))
        with pytest.raises(SystemExit) as stop:
            main()
    assert stop.value.code == 0, words
    return Shown(shown[-1], drawn[-1] if drawn else None)


def split(words):
    return words.split() if isinstance(words, str) else list(words)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with what the commands read."""
    folder = tmp_path_factory.mktemp("commands")
    files = {"plain.toml": FEDERATION, "compare.toml": FEDERATION + COMPARE, "reports.csv": REPORTS}
    files["paid.toml"] = FEDERATION + '[sampling]\nprior = "uniform:0.5,1.5"\ntotal_budget = 9\n'
    files["steps.toml"] = FAITHFUL
    for name, content in files.items():
        (folder / name).write_text(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("COLUMNS", raising=False)
        for name in ("plain", "paid", "steps"):
            run(["train", f"{name}.toml", "--folder", f"runs/{name}"])
        run(["quote", "sampling", *SAMPLING, "--save", "contract.json"])
        yield folder


@pytest.fixture(scope="module")
def said(place):
    """said(name): what the command of that name showed; each is run once."""
    kept = {}

    def of(name):
        if name not in kept:
            command = name.partition(",")[0].split()
            if name in PLOTS:
                kept[name] = run([*command, *split(PLOTS[name]), "--plot", "figure.png"])
            else:
                kept[name] = run([*command, *split(OTHERS[name])])
        return kept[name]

    return of


def commands(command, names=()):
    """Every command below this one that has --plot."""
    context = command.context_class(command)
    if hasattr(command, "list_commands"):
        return [
            found
            for name in command.list_commands(context)
            for found in commands(command.get_command(context, name), (*names, name))
        ]
    return [" ".join(names)] if any("--plot" in p.opts for p in command.params) else []


def test_every_command_with_a_figure_is_looked_at():
    listed = {name.partition(",")[0] for name in PLOTS}
    assert set(commands(typer.main.get_command(app))) == listed | NO_FIGURE


@pytest.mark.parametrize("name", PLOTS)
def test_the_words_of_every_figure_can_be_read(said, name):
    assert illegible(said(name).figure) == []


# What is drawn


def heights(container):
    return [bar.get_height() for bar in container]


def widths(container):
    return [bar.get_width() for bar in container]


def line(axes, label):
    """(x, y) of the line of that name."""
    (found,) = [one for one in axes.get_lines() if one.get_label() == label]
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def names(axes):
    return [label.get_text() for label in axes.get_xticklabels()]


class TestQuotes:
    def test_sampling_beside_its_benchmarks_at_the_shrunk_spend(self, said):
        shown = said("quote sampling")
        who, pays, spend = shown.figure.axes
        costs, q = line(who, "this contract")
        levels = [float(cost) for cost in shown.column("cost", "Terms")]
        at = [int(np.argmin(abs(costs - level))) for level in levels]
        assert shown.column("probability", "Terms") == [f"{q[k]:.4f}" for k in at]
        assert shown.column("payment", "Terms") == [f"{line(pays, 'payment')[1][k]:.4f}" for k in at]
        _, uniform, known = shown.column("mean probability", "What the same expected spend buys")
        assert {f"{y:.4f}" for y in line(who, "uniform")[1]} == {uniform}
        drawn = np.trapezoid(line(who, "if costs were known")[1], costs)  # the prior is uniform, of width 1
        assert f"{drawn:.4f}" == known
        assert shown.column("amount", "Money")[0] == f"{line(spend, 'budget')[0][0]:,.2f}"

    def test_a_posted_price_is_paid_to_all_who_state_no_more(self, said):
        shown = said("quote posted-price")
        who, pays = shown.figure.axes
        (price,) = [row[1] for row in shown.table("What the contract").cells if row[0] == "price"]
        costs, chances = line(who, "probability")
        assert (chances == (costs <= float(price))).all()
        assert 0 < chances.mean() < 1
        assert (line(pays, "payment")[1] == float(price) * chances).all()

    def test_sampling_without_a_prior(self, said):
        shown = said("quote sampling, prior-free")
        terms, money = shown.figure.axes[:2]
        first = {cell.split(" @ ")[0] for cell in shown.column("client 1", "Example")}
        assert first == {f"{terms.collections[0].get_offsets()[0, 1]:.3f}"}  # the first has no choice
        _, even = line(money, "even use")
        assert f"of {30 * even[0]:,.2f} is committed" in shown.text

    @pytest.mark.parametrize("name", ["quote jsam", "quote jsam, many"])
    def test_jsam_names_clients_as_the_table_does(self, said, name):
        shown = said(name)
        rows = sorted(shown.data["terms"], key=lambda row: row["report"])
        assert len(rows) == {"quote jsam": 12, "quote jsam, many": 60}[name]
        panels = shown.figure.axes
        for panel in panels:
            by_place = dict(zip((round(x) for x in panel.get_xticks()), names(panel), strict=True))
            assert by_place.items() <= {k: row["client"] for k, row in enumerate(rows)}.items()
            assert len(by_place) == (12 if len(rows) > 30 else len(rows))
        columns = ["selected with", "epsilon", "payment"]
        places = {row["client"]: k for k, row in enumerate(rows)}
        for panel, column in zip(panels, columns, strict=True):
            bars = heights(panel.containers[0])
            for client, cell in zip(
                shown.column("client", "Terms"), shown.column(column, "Terms"), strict=True
            ):
                assert float(cell) == pytest.approx(bars[places[client]], abs=5.1e-5)


class TestAudits:
    @pytest.mark.parametrize("mechanism", ["sampling", "jsam"])
    def test_the_verdict_is_the_findings(self, said, mechanism):
        fine, gamed = said(f"audit {mechanism}"), said(f"audit {mechanism}, pay-as-bid")
        findings = dict(zip(fine.column(""), fine.column("finding"), strict=True))
        assert "no profitable lie found in" in findings["truthful"]
        assert fine.figure.axes[0].get_title().endswith("no lie pays")
        finding = gamed.data["findings"][0]
        gain = finding["witness"]["gain"]
        assert f"best lie gains {gain:.3g}" in gamed.figure.axes[0].get_title()
        assert f"gains {gain:.6g}" in gamed.column("finding")[0]
        (mark,) = [one for one in gamed.figure.axes[0].get_lines() if one.get_label() == "lie found"]
        assert mark.get_xdata()[0] == finding["witness"]["report"]

    def test_a_client_is_named_and_not_numbered(self, said):
        gamed = said("audit jsam, pay-as-bid")
        (client,) = re.findall(r"client (client \d+):", gamed.column("finding")[0])
        assert f"client {client}" in gamed.figure.axes[0].get_title()

    @pytest.mark.parametrize(("name", "pay"), [("audit faithful", False), ("audit faithful, fedavg", True)])
    def test_what_pays_in_faithful_learning(self, said, name, pay):
        shown = said(name)
        left, right = shown.figure.axes
        pays = dict(zip(shown.column("", "What agent"), shown.column("pays", "What agent"), strict=True))
        assert ("YES" in pays.values()) is pay
        title = left.get_title()
        assert title.endswith("none pays") is not pay
        if pay:
            best = max(shown.data["deviations"], key=lambda one: one["gain"] if one["factor"] else -9)
            assert title == f"Multiples of its gradient: {best['factor']:.3g} is best"
        gains = dict(zip(shown.column("", "What agent"), shown.column("gain", "What agent"), strict=True))
        x, y = line(left, "runs of the protocol")
        drawn = {f"{factor:g} x its gradient": gain for factor, gain in zip(x, y, strict=True)}
        compared = [deviation for deviation in drawn if deviation in gains]
        assert len(compared) >= 5
        for deviation in compared:
            assert gains[deviation] == f"{round(drawn[deviation], 4) + 0.0:+.4f}"
        others = [label.get_text() for label in right.get_yticklabels()]
        assert {*compared, *others, "the truth"} == {name for name in gains if not name.startswith("best")}
        for deviation, gain in zip(others, widths(right.containers[0]), strict=True):
            assert gains[deviation] in ("", f"{round(gain, 4) + 0.0:+.4f}")  # "": there is no model

    def test_private_gains(self, said):
        shown = said("audit faithful, private")
        (axes,) = shown.figure.axes
        bars = next(one for one in axes.containers if hasattr(one, "patches"))
        assert shown.column("mean gain", "What agents") == [f"{gain:+.4f}" for gain in widths(bars)]
        assert shown.column("allowed", "What agents") == [f"{x:.2g}" for x in line(axes, "allowed")[0]]
        agents = zip(shown.column("agent", "What agents"), shown.column("", "What agents"), strict=True)
        drawn = [label.get_text() for label in axes.get_yticklabels()]
        assert drawn == [f"agent {agent}, {name}" for agent, name in agents]

    def test_cheats(self, said):
        shown = said("audit rewards")
        left, right = shown.figure.axes
        honest, cheats = left.containers
        assert shown.column("accuracy") == [f"{x:.2%}" for x in heights(cheats)]
        assert shown.column("if honest") == [f"{x:.2%}" for x in heights(honest)]
        rates = right.containers
        assert shown.column("rate") == [f"{x:.3f}" for x in heights(rates[1])]
        assert shown.column("honest rate") == [f"{x:.3f}" for x in heights(rates[0])]
        who = zip(shown.column("client"), shown.column("cheat"), strict=True)
        assert names(left) == [f"{client}: {cheat}" for client, cheat in who]


class TestAdvice:
    def test_bars_are_the_choices(self, said):
        shown = said("advise join")
        (axes,) = shown.figure.axes
        assert shown.column("in all") == [f"{x:.4g}" for x in widths(axes.containers[0])]
        shown = said("advise federate-or-cluster")
        (axes,) = shown.figure.axes
        drawn = [f"{x:.4g}" for x in widths(axes.containers[0])]
        assert shown.column("risk bound, all together") == drawn
        assert shown.column("choice") == [label.get_text() for label in axes.get_yticklabels()]

    def test_manipulation(self, said):
        shown = said("advise manipulation")
        (axes,) = shown.figure.axes
        (mark,) = [one for one in axes.get_lines() if one.get_label().startswith("best factor")]
        assert shown.column("best factor")[0] == f"{mark.get_xdata()[0]:.4g}"
        assert mark.get_label() == f"best factor, {shown.column('best factor')[0]}"
        x, y = line(axes, "plain averaging")
        assert float(shown.column("risk bound, honest")[0]) == pytest.approx(np.interp(1, x, y), rel=2e-3)
        assert float(shown.column("manipulated")[0]) == pytest.approx(y.min(), rel=2e-3)

    def test_clusters(self, said):
        shown = said("advise clusters")
        (axes,) = shown.figure.axes
        x, y = line(axes, "clusters")
        table = [
            (float(e), int(n))
            for e, n in zip(shown.column("epsilon (loss)"), shown.column("clusters"), strict=True)
        ]
        for (epsilon, count), at in ((table[0], 0), (table[-1], -1)):
            assert (epsilon, count) == (pytest.approx(x[at], rel=1e-2), y[at])
        for epsilon, count in table:
            near = y[np.argsort(abs(np.log(x / epsilon)))[:2]]
            assert near.min() <= count <= near.max()

    def test_privacy(self, said):
        shown = said("advise privacy-tradeoff")
        (axes,) = shown.figure.axes
        x, y = line(axes, "payments")
        assert shown.column("epsilon") == [f"{each:g}" for each in x]
        assert shown.column("payments off by") == [f"{each:.2g}" for each in y]
        assert shown.column("model off by") == [f"{each:.2g}" for each in line(axes, "model")[1]]

    def test_private_training(self, said):
        shown = said("advise private-training")
        left, right = shown.figure.axes
        x, y = left.get_lines()[0].get_data()
        assert shown.column("epsilon") == [f"{each:g}" for each in x]
        assert shown.column("noise over the run") == [f"{each:.0%}" for each in y]
        assert shown.column("rate") == [f"{each:.3g}" for each in right.get_lines()[0].get_ydata()]
        assert {tuple(axes.get_lines()[-1].get_xdata()) for axes in (left, right)} == {(1.5, 1.5)}

    def test_reward_rules(self, said):
        shown = said("advise reward-rule")
        left, middle, right = shown.figure.axes
        bars = [one for one in left.containers if hasattr(one, "patches")]
        assert shown.column("contributes") == [f"{x:.4f}" for x in heights(bars[-1])]
        bars = [one for one in middle.containers if hasattr(one, "patches")]
        assert shown.column("utility") == [f"{x:.4f}" for x in heights(bars[-1])]
        assert shown.column("client") == [label.split("\n")[0] for label in names(left)]
        totals = dict(
            zip(shown.column("", "Equilibria"), shown.column("total contribution", "Eq"), strict=True)
        )
        for label, name in (
            ("standard", "federated averaging"),
            ("social optimum",) * 2,
            ("all alone",) * 2,
        ):
            assert totals[name] == f"{line(right, label)[1][0]:.4f}"

    def test_reward_parameters(self, said):
        shown = said("advise reward-parameters")
        title = shown.figure.axes[0].get_title()
        this, standard = shown.column("worst")[:2]
        ours, theirs = re.search(r"\n(\S+) against (\S+) by standard", title).groups()
        assert float(ours) == pytest.approx(float(this), rel=1e-3)
        assert float(theirs) == pytest.approx(float(standard), rel=1e-3)


class TestRuns:
    def test_a_statement(self, said):
        shown = said("statement")
        (axes,) = shown.figure.axes
        assert shown.column("client") == names(axes)
        assert shown.column("amount (money)") == [f"{x:.2f}" for x in heights(axes.containers[0])]

    def test_runs_end_where_the_table_says_and_what_differs_is_marked(self, said):
        shown = said("runs")
        accuracy, loss, *money = shown.figure.axes
        rows = zip(
            *(shown.column(name) for name in ("name", "accuracy", "loss", "length", "test set")),
            strict=True,
        )
        marks = {}
        for name, correct, lost, length, test_set in rows:
            unit = length.partition(" ")[2]
            label = f"{name} (test set {test_set}, by {unit})"
            assert f"{line(accuracy, label)[1][-1]:.2%}" == correct
            assert f"{line(loss, label)[1][-1]:.4f}" == lost
            # "3/3 rounds", or "7 exchanges" where a run ends by itself
            assert re.split("[/ ]", length)[0] == f"{line(accuracy, label)[0][-1]:.0f}"
            marks[name] = (test_set, unit)
        assert marks == {
            "paid": ("A", "rounds"),
            "plain": ("A", "rounds"),
            "steps": ("B", "exchanges"),
        }
        assert accuracy.get_xlabel() == "round or exchange"
        assert "compare between runs of the same letter only" in shown.tables[0].caption
        paid = line(money[0], "paid (test set A, by rounds)")[0][-1]
        assert shown.column("spend") == [f"{paid:,.2f}", "", ""]

    def test_runs_that_compare_are_not_marked(self, place):
        shown = run(["runs", "runs/plain", "runs/paid", "--plot", "figure.png"])
        headings = [column.name for column in shown.tables[0].columns]
        assert "rounds" in headings
        assert "test set" not in headings
        assert shown.figure.axes[0].get_xlabel() == "round"
        assert {one.get_label() for one in shown.figure.axes[0].get_lines()} == {"plain", "paid"}

    def test_comparisons_write_the_same_numbers(self, said):
        shown = said("compare")
        for panel, name in zip(
            shown.figure.axes, ("accuracy", "money", "epsilon", "lie gains"), strict=True
        ):
            assert [text.get_text() for text in panel.texts] == [cell or "-" for cell in shown.column(name)]
            drawn = shown.written(name, heights(panel.containers[0]))
            assert [cell for cell in drawn if cell in shown.column(name)] == [
                c for c in shown.column(name) if c
            ]
        judged = zip(shown.column("mechanism"), shown.column("tested on"), strict=True)
        assert names(shown.figure.axes[0]) == [f"{name} ({tests})" for name, tests in judged]
        assert len(set(shown.column("tested on"))) == 2  # model rewards look at some of the test samples


class TestClaims:
    """Figures of claims are drawn from the table that is printed and judged, and from nothing else."""

    def test_tradeoff(self, said):
        shown = said("reproduce")
        steps, loss = shown.figure.axes
        title = "What was measured"
        etas = shown.column("eta2", title)
        for k, eta in enumerate(dict.fromkeys(etas)):
            rows = [i for i, cell in enumerate(etas) if cell == eta]
            x, y = line(steps, f"corrected, eta2 {float(eta):.3g}")
            assert [shown.column("alpha", title)[i] for i in rows] == [f"{each:.5g}" for each in x]
            assert [shown.column("steps", title)[i] for i in rows] == [f"{each:,.0f}" for each in y]
            bound = loss.get_lines()[3 + k].get_ydata()
            assert [shown.column("loss", title)[i] for i in rows] == [f"{each:.5g}" for each in bound]

    def test_money(self, said):
        shown = said("reproduce, money")
        x, y = line(shown.figure.axes[1], "mean ± 2 se")
        assert shown.column("eta", "What was measured") == [f"{each:.5g}" for each in x]
        assert shown.column("money", "What was measured") == [f"{each:.5g}" for each in y]

    def test_clients(self, said):
        shown = said("reproduce, clients")
        x, y = line(shown.figure.axes[0], "JSAM")
        mine = [k for k, cell in enumerate(shown.column("mechanism", "What")) if cell == "JSAM"]
        drawn = [(f"{a:.5g}", f"{b:.5g}") for a, b in zip(x, y, strict=True)]
        cells = zip(shown.column("money", "What"), shown.column("selected", "What"), strict=True)
        assert [cell for k, cell in enumerate(cells) if k in mine] == drawn[: len(mine)]


# How it is printed

NUMBER = re.compile(r"(?<![\w.,])[+\-]?\d[\d.,]*(?:e[+\-]?\d+)?%?(?![\w])")


def printed(table, width):
    """The lines of a table on a terminal that is so wide."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None, highlight=False)
    terminal._print(console, table)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("name", [*PLOTS, *OTHERS])
@pytest.mark.parametrize("width", [80, 60, 40])
def test_no_number_is_cut(said, name, width):
    shown = said(name)
    assert shown.tables
    for table in shown.tables:
        lines = printed(table, width)
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        assert "…" not in text
        there = Counter(NUMBER.findall(text))
        wanted = Counter(number for row in table.cells for cell in row for number in NUMBER.findall(cell))
        assert wanted <= there, wanted - there


@pytest.mark.parametrize("name", [*PLOTS, *OTHERS])
def test_a_heading_occurs_once(said, name):
    """Or it would not be clear what stands in the parts of a table that is split."""
    for table in said(name).tables:
        headings = [column.name for column in table.columns if column.name]
        assert len(set(headings)) == len(headings)


def test_parts_of_a_table_repeat_what_tells_its_rows_apart():
    from bonafed.presentation.documents import Column

    columns = (
        Column("who", left=True),
        Column("how", left=True),
        *(Column(f"number {k}") for k in range(9)),
    )
    rows = tuple((who, how, *range(9)) for who in ("ada", "ben") for how in ("this way", "that way"))
    lines = printed(Table("", columns, rows), 50)
    assert sum(line.split()[:2] == ["who", "how"] for line in lines) >= 3
    for who, how, *_ in rows:
        assert sum(line.startswith(f"{who}  {how}") for line in lines) >= 3


def test_names_in_wide_letters_are_not_folded_where_there_is_room():
    from bonafed.presentation.documents import Column

    table = Table(
        "", (Column("client", left=True), Column("amount", ".2f")), (("北京大学医院", 9.85), ("上海", 8.5))
    )
    assert any("北京大学医院" in line for line in printed(table, 80))
    heading, first, second = str(table).splitlines()[:3]
    assert first.index("9.85") + 6 == second.index("8.50") + 2 == heading.index("amount") + 2


def test_a_number_among_words_is_not_folded():
    from bonafed.presentation.documents import Column

    amount = "123,456,789,012,345,678.90"
    columns = (Column("who", left=True), Column("what", left=True), Column("money", ",.2f"))
    rows = (("a client with a long name", f"is owed {amount} and no more", 12345678.9),)
    for width in range(24, 100):
        text = "\n".join(printed(Table("", columns, rows), width))
        if width > len(amount) + 8:
            assert amount in text, width
        assert "12,345,678.90" in text, width


def test_a_sketch_fits_and_its_scales_are_whole():
    from bonafed.presentation.documents import Sketch, SketchCurve

    sketch = Sketch(
        "cost",
        (0.0, 1.0),
        (SketchCurve("up", (0, 1), 0.0, 1234.0), SketchCurve("down", (1, 0), 0.0, 0.125)),
    )
    for width in (40, 60, 80):
        lines = printed(sketch, width)
        assert max(map(len, lines)) <= width
        assert lines[0].startswith("1.23e+03 ┤")
        assert lines[0].endswith("├ 0.125")
    assert printed(sketch, 24) == [""]  # no room to see anything
