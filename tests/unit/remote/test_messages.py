from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.remote.messages import MAGIC, BadMessage, Message, holds, seal, unseal

RUN = "0123456789abcdef" * 2


def signed(content: bytes) -> bytes:
    return b"by ada:" + content[-20:]


def checked(sender: str, content: bytes, signature: bytes) -> bool:
    return sender == "ada" and signature == b"by ada:" + content[-20:]


def sent(**changes: object) -> bytes:
    fields = {"kind": "work", "run": RUN, "sender": "ada", "recipient": "", "content": {"a": [1, 2.5]}}
    return seal(Message(**{**fields, **changes}), signed)[1]  # type: ignore[arg-type]


class TestThereAndBack:
    @pytest.mark.parametrize("dtype", ["f4", "f8", "u8"])
    @pytest.mark.parametrize("size", [0, 1, 1000])
    def test_numbers_keep_every_bit(self, dtype: str, size: int) -> None:
        numbers = np.arange(size).astype(dtype) * (3 if dtype == "u8" else 0.1)
        back = unseal(sent(numbers=numbers.astype(dtype)), checked).message
        assert back.numbers is not None
        assert back.numbers.dtype == np.dtype(dtype)
        assert np.array_equal(back.numbers, numbers.astype(dtype))
        assert back.content == {"a": [1, 2.5]}

    def test_numbers_of_the_other_byte_order_are_turned(self) -> None:
        back = unseal(sent(numbers=np.array([1.5, 2.5], dtype=">f8")), checked).message
        assert back.numbers is not None
        assert back.numbers.tolist() == [1.5, 2.5]

    def test_evidence_holds_without_the_body(self) -> None:
        sealed = unseal(sent(numbers=np.ones(5)), checked)
        said = holds(sealed.header, sealed.signature, checked)
        assert said is not None
        assert said.content == {"a": [1, 2.5]}
        assert holds(sealed.header.replace(b"2.5", b"2.6"), sealed.signature + b"x", checked) is None


class TestRefused:
    def test_every_changed_byte(self) -> None:
        whole = sent(numbers=np.arange(4.0))
        for place in range(len(whole)):
            broken = bytearray(whole)
            broken[place] ^= 1
            # the toy signature looks at the last bytes of the header only, so what it misses must be equal
            try:
                message = unseal(bytes(broken), lambda sender, content, signature: False)
            except BadMessage:
                continue
            pytest.fail(f"byte {place} changed, and {message} was read")

    @given(st.binary(max_size=300))
    def test_any_bytes(self, data: bytes) -> None:
        with pytest.raises(BadMessage):
            unseal(data, checked)

    @given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
    def test_any_header(self, data: bytes, length: int) -> None:
        with pytest.raises(BadMessage):
            unseal(MAGIC + struct.pack(">I", length) + data, checked)

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"run": "abc"}, "run must be 32"),
            ({"sender": "ben"}, "signature must be"),
            ({"answers": "12"}, "answers must be a SHA-256"),
        ],
    )
    def test_what_does_not_fit(self, change: dict[str, str], says: str) -> None:
        with pytest.raises(BadMessage, match=says):
            unseal(sent(**change), checked)

    @pytest.mark.parametrize("header", [b"[" * 3000, b'{"a": 1}', b"7", b"{}", b'{"a":1,"a":2}', b"\xff"])
    def test_headers_that_are_none(self, header: bytes) -> None:
        data = MAGIC + struct.pack(">I", len(header)) + header + struct.pack(">I", 1) + b"s"
        with pytest.raises(BadMessage, match="header must"):
            unseal(data, checked)

    def test_a_body_of_another_length_kind_or_content(self) -> None:
        whole = sent(numbers=np.arange(4.0))
        with pytest.raises(BadMessage, match="body must hold 4 numbers, got 24 bytes"):
            unseal(whole[:-8], checked)
        with pytest.raises(BadMessage, match="digest"):
            unseal(whole[:-8] + bytes(8), checked)
        with pytest.raises(BadMessage, match="body must be empty"):
            unseal(sent() + b"more", checked)
        with pytest.raises(BadMessage, match="dtype must be one of"):
            unseal(sent(numbers=np.arange(4, dtype=np.int32)), checked)

    def test_numbers_that_are_none_in_json(self) -> None:
        with pytest.raises(ValueError, match="JSON compliant"):
            sent(content={"a": float("nan")})
        header = json.dumps({"a": float("nan")}).encode()
        data = MAGIC + struct.pack(">I", len(header)) + header + struct.pack(">I", 0)
        with pytest.raises(BadMessage, match="finite"):
            unseal(data, checked)
