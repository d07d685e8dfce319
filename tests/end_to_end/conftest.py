"""Shared by the end-to-end tests: a training command that must succeed."""

import pytest


@pytest.fixture
def trained(bonafed):
    """trained(...) -> standard output of `bonafed train ...`, which must succeed, in an empty folder."""

    def run(*words):
        code, out, err = bonafed("train", *words)
        assert code == 0, err
        return out

    return run
