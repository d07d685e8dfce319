"""Federations for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flower.harness import NAMES, Trial


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """A SuperLink, and four registered participants that echo."""
    federation = Trial(tmp_path_factory.mktemp("federation") / "trial")
    try:
        federation.start_superlink()
        federation.register()
        for name in NAMES:
            federation.start(name)
        federation.await_connected(*NAMES)
        yield federation
    finally:
        federation.close()
