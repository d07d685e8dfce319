"""The small federation, for all tests of rooms."""

from tests.federations import ending, kill_in, make, one_secret, small

__all__ = ["ending", "kill_in", "make", "one_secret", "small"]
