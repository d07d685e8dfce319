"""Tables 1, 2, 4, 5 and 6 of the rewards paper, as it prints them.

Means over ten seeds, transcribed for MNIST and Fashion-MNIST, the columns in the order FedAvg with
fine-tuning, LG-FedAvg, CGSV, Rank, IAFL. Its rho takes contributions on the test set; so there is none to
put beside the rho with contributions on validation data.
"""

from __future__ import annotations

from collections.abc import Iterator

_ORDER = ("fedavg", "lg-fedavg", "cgsv", "rank", "iafl")  # columns of the paper's tables

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
PERCENT = ("average", "best", "increase")  # of the columns
Key = tuple[str, str, str]  # data, partition, method


def printed_scores() -> dict[Key, dict[str, float]]:
    """The paper's numbers by data, partition and method; accuracies as shares like ours.

    >>> printed_scores()["mnist", "classes", "iafl"]["average"]
    0.93
    """
    numbers: dict[Key, dict[str, float]] = {}
    for name, text in (
        ("ipr_accuracy", _IPR_ACCURACY),
        ("rho_test", _RHO),
        ("ipr_loss", _IPR_LOSS),
        ("increase", _INCREASE),
    ):
        for key, (value,) in _entries(text, 1):
            numbers.setdefault(key, {})[name] = value / 100 if name in PERCENT else value
    for key, (average, best) in _entries(_ACCURACY, 2):
        numbers[key] |= {"average": average / 100, "best": best / 100}
    return numbers


def _entries(text: str, each: int) -> Iterator[tuple[Key, list[float]]]:
    """The numbers of each method in a transcribed table."""
    for line in text.strip().splitlines():
        data, partition, *values = line.split()
        numbers = [float(value) for value in values]
        for k, method in enumerate(_ORDER):
            yield (data, partition, method), numbers[each * k : each * (k + 1)]
