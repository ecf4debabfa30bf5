"""Parsing of command bodies."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniboxes.common.commands import BY_NAME, ClickId, parse_command
from omniboxes.errors import InvalidRequest, UnknownCommand

DOCUMENTED = {
    "visit_page", "click_coords", "click_id", "fill_coords", "fill_id", "page_down", "page_up",
    "scroll_id", "hover_coords", "hover_id", "keypress", "back", "select_option",
    "hover_and_scroll_coords", "sleep", "tab_and_enter", "get_page_metadata", "get_webpage_text",
    "get_interactive_rects", "screenshot", "get_screenshot_info",
}  # fmt: skip


def test_every_documented_command_is_known() -> None:
    assert set(BY_NAME) >= DOCUMENTED


@pytest.mark.parametrize("written", [15, "15", " 15 "])
def test_a_mark_may_be_written_as_number_or_text(written: object) -> None:
    assert parse_command({"click_id": {"id": written}}) == ClickId(id="15")


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({}, "names no command"),
        ({"fly": {}}, "Unsupported command: fly"),
        ({"back": {}, "click_id": {"id": 1}}, "Only one command per request is supported"),
    ],
)
def test_not_exactly_one_known_command_is_refused(body: dict[str, Any], part: str) -> None:
    with pytest.raises(UnknownCommand, match=part):
        parse_command(body)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"visit_page": {}}, "url"),
        ({"click_coords": {"x": "left", "y": 1}}, "x"),
        ({"click_coords": {"x": float("nan"), "y": 1}}, "x"),
        ({"click_coords": {"x": -1, "y": 1}}, "x"),
        ({"click_id": {"id": "abc"}}, "id"),
        ({"click_id": {"id": True}}, "id"),
        ({"sleep": {"duration": 1e9}}, "duration"),
        ({"keypress": {"keys": []}}, "keys"),
        ({"scroll_id": {"id": 1, "direction": "sideways"}}, "direction"),
        ({"back": {"far": 1}}, "far"),
        ({"back": [1]}, "arguments"),
        ({"back": None}, "arguments"),
    ],
)
def test_a_wrong_argument_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        parse_command(body)


@given(st.sampled_from(sorted(BY_NAME)), st.dictionaries(st.text(), st.integers() | st.text()))
def test_any_arguments_end_in_a_command_or_a_typed_error(name: str, given: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidRequest):
        assert parse_command({name: given}).name == name
