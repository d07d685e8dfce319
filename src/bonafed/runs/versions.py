"""What a run's result depends on besides its config: versions of libraries, and the data."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bonafed import __version__
from bonafed.errors import InvalidValue
from bonafed.runs import folder as folders
from bonafed.runs.config import AnyConfig, differences, read, to_toml
from bonafed.runs.folder import JSONObject, Log


def versions(seed: int, digest: str) -> JSONObject:
    """As written into a run's folder; the digest is that of data and partition."""
    libraries = {name: metadata.version(name) for name in ("numpy", "scipy", "torch")}
    return {
        "bonafed": __version__,
        "python": platform.python_version(),
        **libraries,
        "seed": seed,
        "data": digest,
    }


def changed_versions(seed: int, digest: str, folder: Path) -> dict[str, tuple[str, str]]:
    """Libraries that are not as they were when the run began; it may then end with other digits."""
    then, now = folders.read_json(folder, folders.VERSIONS), versions(seed, digest)
    return {
        name: (str(then.get(name)), str(now[name]))
        for name in ("bonafed", "numpy", "torch")
        if then.get(name) != now[name]
    }


def require_same_config(now: AnyConfig, began: AnyConfig) -> None:
    """But for what changes no result: the rest of a run would be of another, its promises of neither."""
    for key, given, then in differences(now, began):
        raise InvalidValue(key, f"must be as when the run began, {then!r}", repr(given))


def require_same_data(digest: str, folder: Path) -> None:
    """Wherever their files are now: samples, labels, and who holds them."""
    began = folders.read_json(folder, folders.VERSIONS).get("data")
    if began != digest:
        rule = f"must be the data and the partition the run began with ({str(began)[:12]}...)"
        raise InvalidValue("data", rule, f"{digest[:12]}...")


def begin_or_resume(
    log: Log,
    folder: Path,
    config: AnyConfig,
    digest: str,
    resume: bool,
    start: NDArray[Any],
    coins: bytes | None = None,
) -> NDArray[Any]:
    """Set up a new run, or make sure that config, data and partition are those the run began with.

    `start` are the weights of the model at hand; returned are those the run begins, or began, with. `coins`
    is what a new run publishes of its coins.
    """
    if not resume:
        log.begin(to_toml(config), versions(config.run.seed, digest), start, coins)
        return start
    require_same_config(config, read(folder / folders.CONFIG))
    require_same_data(digest, folder)
    kept = folders.read_start(folder)
    if (kept.dtype, kept.shape) != (start.dtype, start.shape):
        rule = f"must be as when the run began, with {kept.size:,} weights of {kept.dtype}"
        raise InvalidValue("model", rule, f"{start.size:,} of {start.dtype}")
    return kept
