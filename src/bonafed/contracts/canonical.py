"""One form for everything that is published: what a file says, byte for byte, and its digest.

The canonical form of an object is JSON in ASCII with sorted keys, one value per line, indented by one
space, and a line feed at the end. Counts are integers; every other number is a double in the shortest
decimal form that reads back as the same double, as Python writes it (0.5, 10000.0, 1e-05). What means
nothing is not in it. The digest is the SHA-256 of these bytes, so that `sha256sum` of a file as it was
written says it.

A file may be laid out differently, but it must say the same: no key twice, none unknown, none missing.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NoReturn

from bonafed import checks
from bonafed.economics.priors import JSONObject
from bonafed.errors import InvalidValue, MissingValue, UnreadableFile

_TOO_DEEP = "not a contract: nested too deeply"
Coins = Literal["seed", "verifiable"]  # of a config: where the coins of a run come from
VERIFIABLE = "verifiable"
_HEX = frozenset("0123456789abcdef")


def canonical_bytes(data: JSONObject) -> bytes:
    """The canonical form of plain data."""
    return (json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def digest(content: bytes) -> str:
    """SHA-256 of a canonical form, in hex."""
    return hashlib.sha256(content).hexdigest()


def read_object(path: str | Path) -> JSONObject:
    """The JSON object of a contract file, not yet trusted."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UnreadableFile(file, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(file, "not a contract: the file is not text") from error

    def once(pairs: list[tuple[str, object]]) -> JSONObject:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice = counts.most_common(1)[0][0]
            raise UnreadableFile(file, f"not a contract: duplicate key {twice!r:.60}")
        return fields

    def no_number(word: str) -> NoReturn:
        raise UnreadableFile(file, f"not a contract: numbers must be finite, got {word}")

    try:
        data = json.loads(text, object_pairs_hook=once, parse_constant=no_number)
    except json.JSONDecodeError as error:
        raise UnreadableFile(file, f"not JSON: {error.msg}", error.lineno) from error
    except RecursionError as error:
        raise UnreadableFile(file, _TOO_DEEP) from error
    except ValueError as error:  # integers of thousands of digits
        raise UnreadableFile(file, "not a contract: a number has too many digits") from error
    if not checks.shallow(data):
        raise UnreadableFile(file, _TOO_DEEP)
    if not isinstance(data, dict):
        raise UnreadableFile(file, "not a contract: the file must hold one JSON object")
    return data


def require_same(value: object, canonical: object, name: str) -> None:
    """What was read is what would be written: the same keys and values, all the way down."""
    if isinstance(canonical, dict):
        if not isinstance(value, dict):
            raise InvalidValue(name, "must be an object", repr(value)[:60])
        for key in value:
            if key not in canonical:
                raise InvalidValue(f"{name}.{key}"[:90], "must be absent", repr(value[key])[:60])
        for key in canonical:
            if key not in value:
                raise MissingValue(f"{name}.{key}")
            require_same(value[key], canonical[key], f"{name}.{key}")
    elif isinstance(canonical, list):
        if not isinstance(value, list) or len(value) != len(canonical):
            raise InvalidValue(name, f"must be a list of {len(canonical)} values", repr(value)[:60])
        for place, (one, other) in enumerate(zip(value, canonical, strict=True)):
            if isinstance(other, (dict, list)) or not _same_value(one, other):
                require_same(one, other, f"{name}[{place}]")
    elif not _same_value(value, canonical):
        raise InvalidValue(name, f"must be {canonical!r:.60}", repr(value)[:60])


def _same_value(value: object, canonical: object) -> bool:
    """Equal, and of a kind: 7 may stand for 7.0, but not true or 7.0 for a count, nor -0.0 for 0.0."""
    if isinstance(value, bool) or (isinstance(canonical, int) and type(value) is not int):
        return False
    return value == canonical and (value != 0 or not str(value).startswith("-"))


def tidy(data: JSONObject) -> JSONObject:
    """Plain data with every -0.0 as 0.0."""

    def value(x: Any) -> Any:
        if isinstance(x, dict):
            return {key: value(part) for key, part in x.items()}
        if isinstance(x, list):
            return [value(part) for part in x]
        return x + 0.0 if isinstance(x, float) else x

    return {key: value(part) for key, part in data.items()}


def require_version(version: object, current: int, name: str) -> None:
    """Files of another version are refused."""
    if version != current or isinstance(version, bool):
        raise InvalidValue(name, f"must be {current}", repr(version)[:60])


def coins_from_json(coins: object) -> str | None:
    """The commitment to the secret that decides who is sampled, where one is published.

    `coins` is {"commitment": 64 hex digits}: the SHA-256 that the server is held to when it reveals.
    """
    if coins is None:
        return None
    if not isinstance(coins, dict) or set(coins) != {"commitment"}:
        raise InvalidValue("contract.coins", "must be an object with one key, commitment", repr(coins)[:90])
    return coin_commitment(coins["commitment"])


def coin_commitment(value: object) -> str:
    """A SHA-256 in lowercase hex."""
    if not isinstance(value, str) or len(value) != 64 or not set(value) <= _HEX:
        raise InvalidValue(
            "contract.coins.commitment", "must be 64 hexadecimal digits in lower case", repr(value)[:90]
        )
    return value


def coins_to_json(commitment: str | None) -> JSONObject:
    """The entry of the file, or none."""
    return {} if commitment is None else {"coins": {"commitment": coin_commitment(commitment)}}


def coins_word(commitment: str | None) -> str:
    """What a config under a contract with this commitment, or with none, says about coins."""
    return "seed" if commitment is None else VERIFIABLE


def require_same_coins(name: str, coins: str, commitment: str | None) -> None:
    """Require of a config that its coins are those of the contract that was published for it.

    With others the run would be under a contract of another digest, or leave the secret unused.
    """
    due = coins_word(commitment)
    if coins != due:
        raise InvalidValue(name, f"must be as in the published contract, {due!r}", repr(coins))
