"""Tables 1, 2, 4, 5 and 6 of the rewards paper, what it prints beside what is measured here.

The paper's numbers are means over ten seeds. They are transcribed for MNIST and Fashion-MNIST, the columns
in the order FedAvg with fine-tuning, LG-FedAvg, CGSV, Rank, IAFL. Its rho takes contributions on the test
set; so there is none to put beside the rho with contributions on validation data.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bonafed.mechanisms.rewards.metrics import Evaluation, Summary, scores, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Split(NamedTuple):
    """A way to deal out data, as the paper names it."""

    label: str
    kind: str  # a name in `learning.partition`
    options: dict[str, Any]


PARTITIONS = {
    "dirichlet": Split("Dir(0.5)", "label_dirichlet", {"beta": 0.5}),
    "classes": Split("#C = 3", "label_count", {"k": 3}),
    "noise": Split("N(0.1)", "feature_noise", {"sigma": 0.1}),
    "quantity": Split("quantity Dir(0.5)", "quantity_dirichlet", {"beta": 0.5}),
    "iid": Split("IID", "iid", {}),
}
METHODS = {
    "standalone": "standalone",
    "fedavg": "FedAvg-FT",
    "lg-fedavg": "LG-FedAvg",
    "cgsv": "CGSV",
    "rank": "Rank",
    "iafl": "IAFL",
    "fedavg-first-rate": "FedAvg-FT, at the first learning rate",
    "iafl-defaults": "IAFL, kappa 0.5, q 0.01",
    "iafl-validation": "IAFL, rewards by validation accuracy",
}
_ORDER = ("fedavg", "lg-fedavg", "cgsv", "rank", "iafl")  # columns of the paper's tables
_ALSO = {"fedavg-first-rate": "fedavg"}  # another reading of a column

_IPR_ACCURACY = """
mnist          dirichlet  0.85  0.96  0.95  0.79  1.00
mnist          classes    0.73  1.00  1.00  0.84  1.00
fashion-mnist  dirichlet  0.65  0.89  0.95  0.80  0.99
fashion-mnist  classes    0.41  0.99  0.99  0.71  1.00
mnist          noise      0.19  0.70  0.98  0.21  0.71
fashion-mnist  noise      0.66  0.16  0.02  0.68  1.00
mnist          quantity   0.75  0.89  0.95  0.97  0.99
fashion-mnist  quantity   0.88  0.80  0.52  0.90  1.00
mnist          iid        0.23  0.58  0.99  0.25  0.71
fashion-mnist  iid        0.60  0.37  0.01  0.68  1.00
"""  # Table 1
_RHO = """
mnist          dirichlet   0.74  0.66 -0.80  0.71  0.81
mnist          classes     0.27  0.12 -0.01  0.56  0.59
fashion-mnist  dirichlet   0.85  0.82  0.23  0.92  0.84
fashion-mnist  classes    -0.05  0.35  0.28  0.65  0.86
mnist          noise       0.01  0.09 -0.02  0.03  0.39
fashion-mnist  noise       0.04  0.06  0.01  0.03  0.39
mnist          quantity   -0.56  0.82  0.37  0.88  0.77
fashion-mnist  quantity   -0.37  0.90  0.86  0.94  0.78
mnist          iid        -0.03  0.02  0.08  0.01  0.39
fashion-mnist  iid         0.04 -0.06  0.01  0.12  0.39
"""  # Table 2
_IPR_LOSS = """
mnist          dirichlet  0.97  0.93  1.00  0.80  1.00
mnist          classes    0.89  0.90  1.00  0.68  1.00
fashion-mnist  dirichlet  1.00  0.98  1.00  0.85  1.00
fashion-mnist  classes    0.92  0.95  1.00  0.81  1.00
mnist          noise      0.66  0.24  1.00  0.76  1.00
fashion-mnist  noise      1.00  0.92  1.00  0.96  1.00
mnist          quantity   0.96  0.56  1.00  0.92  1.00
fashion-mnist  quantity   1.00  0.74  1.00  0.99  1.00
mnist          iid        0.81  0.41  1.00  0.76  1.00
fashion-mnist  iid        1.00  0.98  1.00  1.00  1.00
"""  # Table 4
_ACCURACY = """
mnist          dirichlet  79 95  86 94  89 93  71 94  90 96
mnist          classes    32 46  47 63  64 72  38 66  93 96
fashion-mnist  dirichlet  60 77  64 75  71 73  62 80  74 83
fashion-mnist  classes    30 46  35 46  47 54  32 47  71 78
mnist          noise      92 96  95 97  96 96  91 96  95 96
fashion-mnist  noise      79 82  76 79  75 75  79 83  84 84
mnist          quantity   95 98  93 97  96 96  91 97  97 97
fashion-mnist  quantity   82 85  76 83  75 76  75 83  85 86
mnist          iid        93 96  94 96  96 96  91 96  95 96
fashion-mnist  iid        79 82  78 80  75 75  79 83  84 84
"""  # Table 5: average and highest, in percent
_INCREASE = """
mnist          dirichlet   8.6  15.0  18.2   0.9  19.1
mnist          classes     2.7  17.2  34.0   8.4  63.2
fashion-mnist  dirichlet   3.0   7.2  14.2   5.5  17.5
fashion-mnist  classes     1.9   6.8  18.3   3.5  42.7
mnist          noise      -1.9   1.0   2.2  -3.3   1.4
fashion-mnist  noise       0.6  -2.6  -3.6   1.1   5.9
mnist          quantity   10.1   7.7  10.8   6.3  11.3
fashion-mnist  quantity   10.6   5.2   4.1   3.7  13.5
mnist          iid        -1.2   0.5   2.3  -2.9   1.5
fashion-mnist  iid         0.3  -0.7  -3.6   0.9   5.2
"""  # Table 6, in percentage points
COLUMNS = {
    "ipr_accuracy": "IPR_accu",
    "ipr_loss": "IPR_loss",
    "rho_test": "rho, test",
    "rho_validation": "rho, validation",
    "average": "mean accuracy",
    "best": "best accuracy",
    "increase": "increase",
}
_PERCENT = ("average", "best", "increase")
Key = tuple[str, str, str]  # data, partition, method


def published() -> dict[Key, dict[str, float]]:
    """The paper's numbers by data, partition and method; accuracies as shares like ours.

    >>> published()["mnist", "classes", "iafl"]["average"]
    0.93
    """
    found: dict[Key, dict[str, float]] = {}
    for name, text in (
        ("ipr_accuracy", _IPR_ACCURACY),
        ("rho_test", _RHO),
        ("ipr_loss", _IPR_LOSS),
        ("increase", _INCREASE),
    ):
        for key, (value,) in _entries(text, 1):
            found.setdefault(key, {})[name] = value / 100 if name in _PERCENT else value
    for key, (average, best) in _entries(_ACCURACY, 2):
        found[key] |= {"average": average / 100, "best": best / 100}
    return found


def _entries(text: str, each: int) -> Iterator[tuple[Key, list[float]]]:
    """The numbers of each method in a transcribed table."""
    for line in text.strip().splitlines():
        data, partition, *values = line.split()
        numbers = [float(value) for value in values]
        for k, method in enumerate(_ORDER):
            yield (data, partition, method), numbers[each * k : each * (k + 1)]


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """What was measured for one method in one setting."""

    data: str
    partition: str
    method: str
    learning_rate: float  # of the first round
    run: Evaluation


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A line of a table: a method in a setting, over all seeds."""

    data: str
    partition: str
    method: str
    learning_rate: float
    measured: dict[str, Summary]  # by the names in COLUMNS
    paper: dict[str, float]  # by the same names; empty where the paper has none


def rows(found: Sequence[Finding]) -> list[Row]:
    """One row for all seeds of a method in a setting, in the order they come."""
    groups: dict[tuple[str, str, str, float], list[Finding]] = {}
    for one in found:
        groups.setdefault((one.data, one.partition, one.method, one.learning_rate), []).append(one)
    printed, table = published(), []
    for (data, partition, method, rate), members in groups.items():
        measured = summarise([scores(one.run) for one in members])
        paper = printed.get((data, partition, _ALSO.get(method, method)), {})
        table.append(Row(data, partition, method, rate, measured, paper))
    return table


def as_markdown(found: Sequence[Row]) -> str:
    """A table for each data set and learning rate; "ours / the paper's" where the paper has a number."""
    parts = []
    for data, rate in dict.fromkeys((row.data, row.learning_rate) for row in found):
        head = ["partition", "method", *COLUMNS.values()]
        lines = [f"{data}, learning rate {rate:g}: measured / paper", ""]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for row in found:
            if (row.data, row.learning_rate) == (data, rate):
                values = [_beside(row, name) for name in COLUMNS]
                words = [PARTITIONS[row.partition].label, METHODS[row.method], *values]
                lines.append("| " + " | ".join(words) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _beside(row: Row, name: str) -> str:
    """ "0.98 / 1.00", accuracies in percent."""
    ours, theirs = row.measured[name], row.paper.get(name)
    if row.method == "standalone" and name not in ("average", "best"):
        return ""  # compared with itself
    scale, digits = (100, 1) if name in _PERCENT else (1, 2)
    text = "undefined" if ours.mean is None else f"{scale * ours.mean:.{digits}f}"
    if ours.error is not None:
        text += f" ± {scale * ours.error:.{digits}f}"
    if 0 < ours.defined < ours.seeds:
        text += f" ({ours.defined} of {ours.seeds} seeds)"
    if theirs is None:
        return text
    return f"{text} / {scale * theirs:.{0 if name in ('average', 'best') else digits}f}"


def as_csv(found: Sequence[Row]) -> str:
    """A line per row; empty where a number is undefined or not in the paper."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["data", "partition", "method", "learning_rate", "seeds"]
    for name in COLUMNS:
        head += [name, f"{name}_error", f"{name}_paper"]
    writer.writerow(head)
    for row in found:
        line: list[object] = [row.data, row.partition, row.method, row.learning_rate]
        line.append(row.measured["average"].seeds)
        for name in COLUMNS:
            ours = row.measured[name]
            line += [_text(ours.mean), _text(ours.error), _text(row.paper.get(name))]
        writer.writerow(line)
    return out.getvalue()


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def figure(found: Sequence[Finding]) -> Figure:
    """Accuracy with the federation over standalone accuracy, a panel per partition, a dot per client."""
    from bonafed.style import COLOURS, sheet

    splits = list(dict.fromkeys(one.partition for one in found))
    methods = [name for name in dict.fromkeys(one.method for one in found) if name != "standalone"]
    drawn = sheet(3.4 * len(splits), 3.8)
    panels = drawn.subplots(1, len(splits), squeeze=False)[0]
    for axes, split in zip(panels, splits, strict=True):
        ends = []
        for one in found:
            if one.partition != split or one.method == "standalone":
                continue
            x, y = 100 * one.run.standalone_accuracy, 100 * one.run.accuracy
            colour = COLOURS[methods.index(one.method) % len(COLOURS)]
            axes.scatter(x, y, s=9, color=colour, alpha=0.7, lw=0, label=METHODS[one.method])
            ends += [x.min(), x.max()]
        if ends:
            line = np.array([min(ends), max(ends)])
            axes.plot(line, line, color="black", lw=0.8, ls=":")  # below it, joining did not pay
        axes.set(title=PARTITIONS[split].label, xlabel="accuracy alone, %")
    panels[0].set_ylabel("accuracy with the federation, %")
    handles, names = panels[0].get_legend_handles_labels()
    known = dict(zip(names, handles, strict=True))
    drawn.legend(known.values(), known.keys(), loc="outside lower center", ncols=len(known), frameon=False)
    return drawn
