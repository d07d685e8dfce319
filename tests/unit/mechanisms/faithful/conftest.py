"""The small federation that runs are tested with."""

from tests.unit.runs.conftest import ending, kill_in, make, one_secret, small

__all__ = ["ending", "kill_in", "make", "one_secret", "small"]
