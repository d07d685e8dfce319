"""What a member has done is kept, and nothing is done twice in two ways."""

import pytest
from tests.oracles.secure_sums import plan_for

from bonafed.errors import InvalidValue
from bonafed.remote.secure_sums import Once


def test_it_is_stored_and_read_back():
    once = Once.of(plan_for(3)).noted("keys", b"\x00a").noted("input 0", b"b")
    assert Once.from_bytes(once.to_bytes()) == once
    assert once.noted("keys", b"\x00a") == once
    with pytest.raises(InvalidValue, match="input 0 must be what it was the first time"):
        Once.from_bytes(once.to_bytes()).noted("input 0", b"c")


def test_it_does_not_change():
    once = Once.of(plan_for(3))
    once.noted("keys", b"a")
    assert once.noted("keys", b"b").seen == {"keys": b"b"}
    with pytest.raises(TypeError):
        once.seen["keys"] = b"c"


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"plan": "zz", "seen": {}}', b'{"plan": "00", "seen": {"keys": 1}}']
)
def test_what_was_not_stored_is_refused(content):
    with pytest.raises(InvalidValue, match="once must be what was stored"):
        Once.from_bytes(content)
