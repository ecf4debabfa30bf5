"""The binary answer of `/step`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniboxes.common import framing

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values, max_size=5), st.binary(max_size=2000))
def test_what_is_encoded_is_decoded(fields: dict[str, object], image: bytes) -> None:
    assert framing.decode(framing.encode(fields, image)) == (fields, image)


def test_the_length_is_four_bytes_big_endian() -> None:
    body = framing.encode({"a": 1}, b"IMAGE")
    assert body == b"\x00\x00\x00\x07" + b'{"a":1}' + b"IMAGE"


@pytest.mark.parametrize("body", [b"", b"\x00\x00", b"\x00\x00\x00\x09{}", b"\x00\x00\x00\x02[]"])
def test_a_cut_or_foreign_body_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="step answer"):
        framing.decode(body)
