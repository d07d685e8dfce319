"""The front door for Python users: what `import bonafed` offers beyond priors and audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bonafed.contracts.published import PublishedContract
from bonafed.door import guard
from bonafed.economics.findings import Finding
from bonafed.errors import InvalidValue
from bonafed.extras import explained
from bonafed.learning.federation import Federation
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.contract_files import read_contract
from bonafed.mechanisms.protocol import Config, Slice

if TYPE_CHECKING:
    from torch import nn

    from bonafed.learning.data.datasets import Dataset
    from bonafed.runs.compare import Comparison
    from bonafed.runs.training import RunResult

ConfigLike = Config | Mapping[str, Any] | str | Path  # tables by name, TOML text, or a file
__all__ = ["compare", "read_contract", "register", "train", "verify"]


@explained()
def train(
    config: ConfigLike,
    *,
    data: Dataset | None = None,
    model: nn.Module | None = None,
    contract: PublishedContract | Path | str | None = None,
    reports: Mapping[str, float] | None = None,
    federation: Federation | None = None,
    folder: Path | str | None = None,
    resume: bool = False,
) -> RunResult:
    """Train a federation as a config says: tables by name, TOML text, or the path of a file.

    `data` and `model` may be your own (`bonafed.learning.data.datasets.from_arrays`, any
    `torch.nn.Module`). With a published `contract` and the clients' `reports` by name, the run uses exactly
    these. Clients are simulated here unless a `federation` answers for them. Nothing is saved unless a
    `folder` is named.
    """
    from bonafed.runs import prepare, training
    from bonafed.runs.config import from_tables

    published = read_contract(contract) if isinstance(contract, (str, Path)) else contract
    tables = config if isinstance(config, Config) else _tables(config)
    own_data = data is not None or federation is not None
    own_model = model is not None or federation is not None
    if published is not None:
        settings = prepare.under(tables, published, own_data=own_data, own_model=own_model)
    elif isinstance(tables, Config):
        settings = tables
    else:
        settings = from_tables(tables, own_data=own_data, own_model=own_model)
    prepared = prepare.prepare(
        settings, dataset=data, module=model, contract=published, reports=reports, federation=federation
    )
    return training.train(prepared, folder, resume=resume)


@explained()
def compare(
    config: ConfigLike,
    *,
    data: Dataset | None = None,
    model: nn.Module | None = None,
    folder: Path | str | None = None,
) -> Comparison:
    """One federation under every mechanism that applies; the config may have a table [compare]."""
    from bonafed.runs.compare import compare as compare_mechanisms
    from bonafed.runs.config import to_tables

    tables = to_tables(config) if isinstance(config, Config) else _tables(config)
    path = None if folder is None else Path(folder)
    return compare_mechanisms(tables, dataset=data, module=model, folder=path)


def verify(contract: PublishedContract | Path | str) -> Sequence[Finding]:
    """Check a published contract, a value or a file, without trusting whoever wrote it."""
    published = read_contract(contract) if isinstance(contract, (str, Path)) else contract
    return published.verify()


def register(mechanism: Slice, *, summary: str = "", formats: Sequence[str] = ()) -> None:
    """Let this session know a mechanism of your own, as if it were one of bonafed.

    `formats` are those of its contract files. Registering a mechanism of the same name again replaces it,
    so that a cell of a notebook can be run twice. A name, a table or a format that belongs to another
    mechanism is refused. Commands and other processes need a package (docs/how-to/add-a-mechanism.md).
    """
    catalogue.register(mechanism, summary=summary, formats=formats)


def _tables(config: Mapping[str, Any] | str | Path) -> Mapping[str, Any]:
    """Tables by name; text of several lines is TOML, other text is a path."""
    from bonafed.runs import toml
    from bonafed.runs.config import read_tables

    if isinstance(config, Mapping):
        return config
    if isinstance(config, str) and "\n" in config:
        try:
            return toml.loads(config)
        except ValueError as error:
            raise InvalidValue("config", f"must be TOML ({error})", "text") from error
    return read_tables(Path(config))


guard(globals())
