"""Bodies of /execute and /step: the routing keys, and the sentence that names what is wrong."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniboxes.errors import InvalidRequest
from omniboxes.master.bodies import parse_command, read_command


def body(**fields: object) -> bytes:
    return json.dumps({"node": "n", "instance_id": "i:9000", **fields}).encode()


def test_the_routing_keys_are_split_off() -> None:
    command = parse_command(body(click_coords={"x": 1, "y": 2}))
    assert (command.node, command.instance_id) == ("n", "i:9000")
    assert json.loads(command.body) == {"click_coords": {"x": 1, "y": 2}}


def test_sleep_may_take_longer() -> None:
    assert parse_command(body(back={})).extra_s == 0
    assert parse_command(body(sleep={"duration": 60})).extra_s == 60


@pytest.mark.parametrize(
    ("raw", "detail"),
    [
        (b'{"instance_id": "i"}', "node: field required"),
        (b'{"node": "n"}', "instance_id: field required"),
        (b'{"node": 5, "instance_id": "i"}', "node: input should be a valid string"),
        (b'{"node": "", "instance_id": "i"}', "node: string should have at least 1 character"),
        (b"[]", "body: must be a JSON object, not an array"),
        (b"null", "body: must be a JSON object, not null"),
        (b"true", "body: must be a JSON object, not a boolean"),
        (b"3", "body: must be a JSON object, not a number"),
        (b'"x"', "body: must be a JSON object, not a string"),
        (b"", "body: not JSON (Expecting value at character 0)"),
        (b"{", "body: not JSON (Expecting property name enclosed in double quotes at character 1)"),
        (b"\xff", "body: not JSON (not UTF-8 or a huge number)"),
        (b"9" * 5000, "body: not JSON (not UTF-8 or a huge number)"),
        (b"[" * 100_000, "body: not JSON (nested too deeply)"),
    ],
)
def test_a_wrong_body_is_a_sentence_that_names_the_field(raw: bytes, detail: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_command(raw)
    assert caught.value.detail == detail


def test_lone_surrogates_in_a_routing_key_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^node: "):
        parse_command(b'{"node": "\\ud800", "instance_id": "i"}')


@settings(max_examples=50)
@given(st.binary() | st.text().map(str.encode) | st.recursive(
    st.none() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_body_is_answered_with_a_fault(raw: bytes) -> None:
    with suppress(InvalidRequest):
        parse_command(raw)


async def test_a_large_body_is_parsed_alike() -> None:
    command = await read_command(body(fill_coords={"x": 1, "y": 1, "value": "x" * 300_000}))
    assert len(command.body) > 300_000
