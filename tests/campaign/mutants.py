"""Structure-aware mutations of JSON, TOML, CSV and options: most leave something valid, or nearly so.

Numbers are mostly nudged, sometimes driven to an edge; keys, rows and options are swapped, doubled,
dropped, reordered and renamed; types change; texts get letters of other scripts, control characters, or too
many. What decides how long a command works (`WORK`) never grows beyond what a case may take: to ask for
more work is no error.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from random import Random
from typing import Any

import tomli_w

WORK = {
    "agents", "batch_size", "cheaters", "checkpoint_every", "classes", "clients", "clients-per-round",
    "clients_per_round", "clusters", "cores", "counts", "dimension", "draws", "epochs", "evaluate_every",
    "grid", "members", "parameters", "payment-steps", "payment_steps", "points", "profiles", "records",
    "rounds", "samples", "seeds", "shapley_orders", "side", "steps", "training-steps", "training_steps",
    "trials",
}  # fmt: skip
_EDGES = (
    0, -1, 1, 2, 0.0, -0.0, 0.5, 1.0, 1 - 2**-53, 1 + 2**-52, -1e-9, 1e-9, 1e-17, 5e-324, 2.2e-308, 1e-300,
    1e17, 1e300, 1.7e308, -1e300, float("nan"), float("inf"), float("-inf"), 2**31, 2**53 + 1, 2**63,
    10**30,
)  # fmt: skip
_WORDS = (
    "", " ", "a", "A", "\u00e9", "e\u0301", "\uff41", "\u202eabc", "\u200b", "\u540d\u524d", "\U0001f600",
    "a\nb", "a\tb", "\x1b[31mred", "=1+1", "@SUM(1)", "-1", "0x10", "1_000", "\uff11\uff12", "\u0663",
    "nan", "NaN", "inf", "1e3", "true", "null", "../x", "/", ".", "a" * 3000, "%s", "{}", "'", '"', "\x00",
    "O.6",
)  # fmt: skip


def number(value: float, rng: Random, *, work: bool = False) -> Any:
    """Another number in its place; mostly one that is about as large."""
    if work:
        return rng.choice((1, 2, 3, 4, 5, 7, int(value) or 1, max(1, int(value) - 1), 0, -1, 1.5, 2.0))
    if rng.random() < 0.75:
        if isinstance(value, int):
            return value + rng.choice((-1, 1, 1, 2, 3, 0))
        return rng.choice(
            (value * rng.uniform(0.7, 1.4), value * (1 + 2**-50), round(value, 2), value * 2, value / 3)
        )
    return rng.choice(_EDGES)


def word(value: str, rng: Random) -> str:
    """Another text in its place; mostly the same with a number in it nudged, as in `uniform:0.5,1.5`."""
    head, colon, tail = value.partition(":")
    if colon and rng.random() < 0.8:
        return head + colon + numbers(tail, rng)
    if rng.random() < 0.4:
        return rng.choice((value, value.upper(), value + " ", " " + value, value[:-1], value * 2))
    return rng.choice(_WORDS)


def numbers(text: str, rng: Random) -> str:
    """`0.5,1.5` with one of its numbers mutated, or one more or less."""
    parts = text.split(",")
    place = rng.randrange(len(parts))
    if rng.random() < 0.15:
        return ",".join(rng.choice((parts[:-1] or [""], [*parts, parts[0]], parts[::-1])))
    try:
        parts[place] = str(number(float(parts[place]), rng))
    except ValueError:
        parts[place] = rng.choice(_WORDS)
    return ",".join(parts)


def tree(value: Any, rng: Random, key: str = "") -> Any:
    """Plain data with one part of it mutated."""
    if isinstance(value, dict) and value and rng.random() < 0.93:
        if rng.random() < 0.12:
            return _keys(value, rng)
        name = rng.choice(list(value))
        return {**value, name: tree(value[name], rng, name)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        if rng.random() < 0.25:
            return _items(value, rng)
        place = rng.randrange(len(value))
        return [*value[:place], tree(value[place], rng, key), *value[place + 1 :]]
    if rng.random() < 0.06:
        return rng.choice((None, True, [], {}, [value], {"a": value}, str(value), 1, 0.5, _deep(rng)))
    if isinstance(value, bool):
        return rng.choice((not value, int(value), str(value).lower()))
    if isinstance(value, int | float):
        return number(value, rng, work=key in WORK)
    if isinstance(value, str):
        return word(value, rng)
    return value


def _keys(value: dict[str, Any], rng: Random) -> dict[str, Any]:
    """An object with its keys in another order (which is harmless), or one missing, new, or renamed."""
    names, how = list(value), rng.randrange(6)
    chosen = rng.choice(names)
    if how <= 2:
        rng.shuffle(names)
        return {name: value[name] for name in names}
    if how == 3:
        return {name: part for name, part in value.items() if name != chosen}
    if how == 4:
        return {**value, rng.choice((chosen + "_", chosen.upper(), rng.choice(_WORDS))): value[chosen]}
    other = rng.choice(names)
    return {**value, chosen: value[other], other: value[chosen]}


def _items(value: list[Any], rng: Random) -> list[Any]:
    one, other = rng.randrange(len(value)), rng.randrange(len(value))
    changed = list(value)
    changed[one], changed[other] = changed[other], changed[one]
    return rng.choice((changed, value[:one] + value[one + 1 :], [*value, value[one]], value[::-1], []))


def _deep(rng: Random) -> Any:
    nested: Any = 1
    for _ in range(rng.choice((5, 50, 400))):
        nested = [nested] if rng.random() < 0.5 else {"a": nested}
    return nested


def json_file(content: bytes, rng: Random) -> bytes:
    """A JSON file, mutated as data; sometimes also as text."""
    data = json.loads(content)
    if rng.random() < 0.85:
        data = tree(data, rng)
    text = json.dumps(data, indent=rng.choice((None, 1, 2)), ensure_ascii=rng.random() < 0.8)
    return text_file(text.encode("utf-8", "surrogatepass"), rng) if rng.random() < 0.08 else text.encode()


def toml_file(content: bytes, rng: Random) -> bytes:
    """A TOML file likewise."""
    data = tomllib.loads(content.decode())
    for _ in range(rng.choice((1, 1, 1, 2))):
        changed = tree(data, rng)
        data = changed if isinstance(changed, dict) else data
    try:
        text = tomli_w.dumps(data).encode()
    except (TypeError, ValueError, RecursionError):  # TOML has no null, and its writer no depth
        text = content
    return text_file(text, rng) if rng.random() < 0.08 else text


def csv_file(content: bytes, rng: Random) -> bytes:
    """A CSV file, mutated as rows and cells; sometimes also as text."""
    rows = [line.split(",") for line in content.decode().splitlines()]
    how = rng.randrange(12)
    row = rng.randrange(1, len(rows))
    if how <= 5:
        cell = rng.randrange(len(rows[row]))
        rows[row][cell] = _cell(rows[row][cell], rng)
    elif how == 6:
        rows[row], rows[-1] = rows[-1], rows[row]
    elif how == 7:
        rows.insert(row, list(rows[rng.randrange(len(rows))]))
    elif how == 8:
        del rows[row]
    elif how == 9:
        rows[0] = [rng.choice((name, name.upper(), f" {name}", f'"{name}"')) for name in rows[0]]
    elif how == 10:
        order = rng.sample(range(len(rows[0])), len(rows[0]))
        rows = [[line[place] for place in order] if len(line) == len(order) else line for line in rows]
    else:
        rows = [[*line, "x"] for line in rows]
    end = rng.choice(("\n", "\n", "\n", "\r\n"))
    text = end.join(",".join(line) for line in rows) + rng.choice((end, end, "", end * 2))
    bom = "\ufeff" if rng.random() < 0.05 else ""
    encoded = (bom + text).encode("utf-8", "surrogatepass")
    return text_file(encoded, rng) if rng.random() < 0.05 else encoded


def _cell(cell: str, rng: Random) -> str:
    try:
        value = float(cell)
    except ValueError:
        return rng.choice((cell, f" {cell}", f'"{cell}"', *_WORDS))
    if rng.random() < 0.15:
        return rng.choice(_WORDS)
    changed = number(int(value) if cell.isdigit() else value, rng)
    return rng.choice((str(changed), f" {changed}", f'"{changed}"', f"+{changed}", f"{changed}"))


def text_file(content: bytes, rng: Random) -> bytes:
    """Any file, mutated as bytes."""
    how = rng.randrange(7)
    place = rng.randrange(len(content) or 1)
    if how == 0:
        return content[:place]
    if how == 1:
        return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]
    if how == 2:
        return content + content[place:]
    if how == 3:
        return b"\xef\xbb\xbf" + content
    if how == 4:
        return content.replace(b"\n", b"\r\n")
    if how == 5:
        return content[:place] + rng.choice((b"[", b"{", b'"')) * rng.choice((1, 3000)) + content[place:]
    return b""


def options(words: list[str], rng: Random, known: list[tuple[str, bool]]) -> list[str]:
    """The words of a command with a value changed, an option dropped, doubled, added or misspelt.

    `known` are the options of the command, and whether each takes a value.
    """
    places = [n for n, word_ in enumerate(words) if word_.startswith("--")]
    how = rng.randrange(20)
    if not places or how >= 18:
        return _added(words, rng, known)
    place = rng.choice(places)
    takes = dict(known).get(words[place], False) and place + 1 < len(words)
    if how <= 14 and takes:
        return [*words[: place + 1], _value(words[place], words[place + 1], rng), *words[place + 2 :]]
    if how == 15:
        return [*words[:place], *words[place + (2 if takes else 1) :]]
    if how == 16:
        return [*words, *words[place : place + (2 if takes else 1)]]
    if how == 17 and rng.random() < 0.3:
        return [*words[:place], words[place] + "x", *words[place + 1 :]]
    return _added(words, rng, known)


def _added(words: list[str], rng: Random, known: list[tuple[str, bool]]) -> list[str]:
    if not known:
        return words
    name, takes = rng.choice(known)
    if name in ("--plot", "--help", "--save", "--csv", "--out", "--folder", "--data", "--write-example"):
        return [*words, "--json"] if ("--json", False) in known else words
    value = rng.choice(("1", "2", "0.5", "0.9", "3", "yes", "0", "-1", "a", "1e-5", "uniform:0,1"))
    return [*words, name, *([value] if takes else [])]


def _value(option: str, value: str, rng: Random) -> str:
    work = option.lstrip("-") in WORK
    try:
        plain = int(value) if value.lstrip("-").isdigit() else float(value)
    except ValueError:
        if "," in value and ":" not in value and not work:
            return numbers(value, rng)
        return value if work else word(value, rng).replace("\0", "")  # which no system passes on
    return str(number(plain, rng, work=work))


FORMATS: dict[str, Callable[[bytes, Random], bytes]] = {
    ".json": json_file, ".toml": toml_file, ".csv": csv_file,
}  # fmt: skip
