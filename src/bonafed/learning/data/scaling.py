"""Features on a common scale: (x - mean)/scale, one of each per column of a table or channel of an image.

Where one feature reaches 10,000 and another 1, no learning rate suits both. The constants can be

    stated        by whoever knows what is measured, in the config or in a file
    public        mean and standard deviation of public data
    per client    of each client's own records, computed by that client; nobody else learns them

Stated and public constants are no function of anybody's records, so they change no promise. Those per
client are: one record moves the mean and the scale of all others, and with them every gradient of the
client, which no bound on a single record's gradient covers. A private run refuses them.

Below the seam: a client standardises what it holds before it answers. The test samples are the server's:
it applies the same stated or public constants and, where clients use their own, its own as well, those of
the test samples. A feature that does not vary is centred, and not divided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue, MissingValue, UnreadableFile
from bonafed.reports import cell_name, csv_rows, require_distinct
from bonafed.text import numeral

PER_CLIENT = "per client"
FAR_APART = 100.0  # features whose largest values differ by more than this factor are worth a note
_FORMS = "{mean = [...], scale = [...]}, {constants = FILE}, {public = FILE}"
Standardise = str | Mapping[str, Any]  # "per client", or a table of one of these forms


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """What is subtracted, and then divided by.

    >>> Scaling(np.array([100.0, 0.0]), np.array([50.0, 1.0])).apply(np.array([[200.0, 3.0]]))
    array([[2., 3.]], dtype=float32)
    """

    mean: Floats  # (c,)
    scale: Floats  # (c,) > 0

    @classmethod
    def of(cls, features: NDArray[Any]) -> Scaling:
        """Mean and standard deviation of these records; 1 where nothing varies."""
        rows = np.asarray(features, dtype=np.float64)
        axes = tuple(axis for axis in range(rows.ndim) if axis != 1)
        mean, spread = rows.mean(axis=axes), rows.std(axis=axes)
        varies = spread > 1e-12 * np.abs(mean)  # what is left of a constant after rounding is no spread
        return cls(mean, np.where(varies, spread, 1.0))

    def apply(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """(n, c, ...) in double precision until the end."""
        along = (1, -1, *(1,) * (features.ndim - 2))
        with np.errstate(over="ignore"):
            exact = (features - self.mean.reshape(along)) / self.scale.reshape(along)
            result: NDArray[np.float32] = exact.astype(np.float32)
        if not np.isfinite(result).all():
            most = f"{np.finfo(np.float32).max:.3g}"
            raise InvalidValue("standardise", f"must keep features below {most} in size", "a larger one")
        return result


def standardise_rule(name: str, value: object) -> Standardise:
    """The rule of the key `data.standardise`."""
    if value == PER_CLIENT:
        return PER_CLIENT
    if not isinstance(value, Mapping):
        raise InvalidValue(name, f'must be "{PER_CLIENT}" or one of {_FORMS}', repr(value)[:60])
    keys = set(value)
    if keys == {"mean", "scale"}:
        mean = _constants(f"{name}.mean", value["mean"], "any")
        scale = _constants(f"{name}.scale", value["scale"], "positive")
        if isinstance(mean, list) and isinstance(scale, list) and len(mean) != len(scale):
            rule = f"must be one number or as many as {name}.mean, {len(mean)}"
            raise InvalidValue(f"{name}.scale", rule, len(scale))
        return {"mean": mean, "scale": scale}
    if keys in ({"mean"}, {"scale"}):
        missing = ({"mean", "scale"} - keys).pop()
        raise MissingValue(f"{name}.{missing}", f"is required with {keys.pop()}")
    if keys in ({"constants"}, {"public"}):
        (kind,) = keys
        if not isinstance(value[kind], str) or not value[kind]:
            raise InvalidValue(f"{name}.{kind}", "must be the name of a file", repr(value[kind])[:60])
        return {kind: value[kind]}
    raise InvalidValue(name, f"must be one of {_FORMS}", f"{{{', '.join(map(str, value))}}}")


def _constants(name: str, value: object, sign: Any) -> float | list[float]:
    """One number, or a list of them."""
    if isinstance(value, list | tuple):
        return list(map(float, checks.vector(name, value, sign=sign)))
    return checks.positive(name, value) if sign == "positive" else checks.number(name, value)


def stated(standardise: Mapping[str, Any], count: int) -> Scaling:
    """The constants of a table {mean, scale} for so many columns or channels."""
    values = {}
    for name in ("mean", "scale"):
        given = np.atleast_1d(np.asarray(standardise[name], dtype=np.float64))
        if given.size not in (1, count):
            rule = f"must be one number, or {count}: one per column of a table, or channel of an image"
            raise InvalidValue(f"standardise.{name}", rule, given.size)
        values[name] = np.broadcast_to(given, count)
    return Scaling(values["mean"], values["scale"])


def read_constants(path: Path, columns: Sequence[str], count: int) -> Scaling:
    """Of a CSV file with columns mean and scale, and with feature where features have names."""
    rows = csv_rows(path)
    first, cells = next(rows, (1, []))
    header = [cell.strip(" ").lower() for cell in cells]
    needed = ("feature", "mean", "scale") if columns else ("mean", "scale")
    if sorted(header) != sorted(needed):
        got = ", ".join(header)[:200] or "none"
        raise UnreadableFile(path, f"must have the columns {', '.join(needed)}, got {got}", first)
    lines, names, numbers = [], list[str](), dict[str, list[float]]({"mean": [], "scale": []})
    for line, row in rows:
        if len(row) != len(header):
            raise UnreadableFile(path, f"must have {len(header)} columns, got {len(row)}", line)
        lines.append(line)
        for name in ("mean", "scale"):
            numbers[name].append(_constant(path, line, name, row[header.index(name)]))
        if columns:
            names.append(cell_name(path, line, "feature", row[header.index("feature")]))
    if not columns:
        if len(lines) != count:
            raise UnreadableFile(
                path, f"must have {count} rows, one per column or channel, got {len(lines)}"
            )
        return Scaling(np.array(numbers["mean"]), np.array(numbers["scale"]))
    require_distinct(path, "feature", zip(lines, names, strict=True))
    order = _in_order(path, names, columns)
    return Scaling(np.array(numbers["mean"])[order], np.array(numbers["scale"])[order])


def of_public(
    path: Path, public: NDArray[Any], names: Sequence[str], like: NDArray[Any], columns: Sequence[str]
) -> Scaling:
    """Of public records, whose columns, where they have names, may come in another order."""
    if public.shape[1:] != like.shape[1:]:
        rule = f"must hold records like those of the data, of shape {like.shape[1:]}"
        raise UnreadableFile(path, f"{rule}, got {public.shape[1:]}")
    scaling = Scaling.of(public)
    if not (names and columns):
        return scaling
    order = _in_order(path, names, columns)
    return Scaling(scaling.mean[order], scaling.scale[order])


def rows_among(
    public: NDArray[Any], names: Sequence[str], records: NDArray[Any], columns: Sequence[str]
) -> int:
    """How many public rows are also records, whatever their order; a row that is there twice counts twice.

    Both in single precision, in which data are held.

    >>> rows_among(np.array([[2.0, 1.0], [2.0, 1.0], [5.0, 5.0]]), "ba", np.array([[1.0, 2.0]]), "ab")
    2
    """
    if names and columns:
        public = public[:, [list(names).index(name) for name in columns]]
    times = Counter(_as_bytes(public))  # of which there are fewer, as a rule
    return sum(times[row] for row in {row for row in _as_bytes(records) if row in times})


def _as_bytes(rows: NDArray[Any]) -> Iterator[bytes]:
    """Row by row; -0 is 0."""
    return (row.tobytes() for row in np.ascontiguousarray(rows, dtype=np.float32) + np.float32(0))


def _constant(path: Path, line: int, name: str, cell: str) -> float:
    try:
        number = numeral(cell)
        return checks.positive(name, number) if name == "scale" else checks.number(name, number)
    except InvalidValue as error:
        raise UnreadableFile(path, str(error), line) from error
    except ValueError:
        raise UnreadableFile(path, f"{name} must be a number, got {cell[:20]!r}", line) from None


def _in_order(path: Path, names: Sequence[str], columns: Sequence[str]) -> list[int]:
    """The place of each column of the data among the names of a file, which are the same."""
    index = {name: k for k, name in enumerate(names)}
    for name in columns:
        if name not in index:
            rule = f"must have every feature of the data, also {name!r}"
            raise UnreadableFile(path, f"{rule}, got {', '.join(names)[:200] or 'none'}")
    for name in names:
        if name not in columns:
            raise UnreadableFile(path, f"must have the features of the data only, got {name!r}")
    return [index[name] for name in columns]


def per_client(features: NDArray[Any], parts: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
    """Every client's records by its own constants."""
    result = np.empty(features.shape, dtype=np.float32)
    for part in parts:
        result[part] = Scaling.of(features[part]).apply(features[part])
    return result


def far_apart(features: NDArray[Any], columns: Sequence[str], remedy: str = "data.standardise") -> str:
    """A sentence about columns whose largest values differ by more than `FAR_APART`; empty if none do.

    The largest value of a column, and not its spread: a column that is mostly 0 is not a small one.
    """
    sizes = np.abs(features).max(axis=0)
    some = np.flatnonzero(sizes > 0)
    if not some.size:
        return ""
    large, small = some[sizes[some].argmax()], some[sizes[some].argmin()]
    if sizes[large] <= FAR_APART * sizes[small]:
        return ""
    one, other = (repr(columns[k]) if columns else f"column {k}" for k in (large, small))
    return (
        f"features differ in scale by more than {FAR_APART:g}: {one} reaches {sizes[large]:.3g}, {other} "
        f"{sizes[small]:.3g}; {remedy} puts them on a common one"
    )


def off_scale(features: NDArray[Any], columns: Sequence[str], remedy: str) -> str:
    """A sentence about columns that are far apart, or all far from 1 in size; empty if they are neither."""
    apart = far_apart(features, columns, remedy)
    largest = float(np.abs(features).max(initial=0.0))
    if apart or largest <= FAR_APART:
        return apart
    return f"features reach {largest:.3g}, and losses grow with their square; {remedy} scales them to 1"
