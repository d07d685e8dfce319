"""What a federation cannot do, refused before anybody is connected to or asked: known without PyTorch."""

from __future__ import annotations

from bonafed.errors import InvalidValue
from bonafed.mechanisms.protocol import Config
from bonafed.remote.masking.plan import threshold_for
from bonafed.remote.sums import NOT_SECURE


def require_ways(config: Config, colluders: int | None) -> None:
    """Refuse what the server asks of clients but is not to see, before it asks anybody for anything."""
    if config.noise_at == "sum" and colluders is None:
        raise InvalidValue("noise_at", NOT_SECURE, '"sum"')
    remembers = config.training is not None and config.training.aggregation == "memory"
    if remembers and colluders is not None:
        rule = 'must be "plain" with --secure-sums, where the server sees no single answer to remember'
        raise InvalidValue("training.aggregation", rule, '"memory"')


def require_honest(members: int, colluders: int) -> None:
    """Refuse more colluders than secure sums of so many members allow for."""
    try:
        threshold_for(members, colluders)
    except InvalidValue as error:
        raise error.renamed("--colluders") from error
