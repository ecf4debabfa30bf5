"""The shapes in which labels are told."""

import io
import json
from typing import Any

import pytest

from tests.node.marks.driving import MarkedSession

pytestmark = pytest.mark.browser

RECORD = {"tag_name", "role", "aria_name", "value", "v_scrollable", "rects"}
RECT = {"x", "y", "width", "height", "top", "right", "bottom", "left"}
NO_INFO = {"error": "No screenshot info available"}


def assert_record(record: dict[str, Any]) -> None:
    assert record.keys() == RECORD
    assert all(isinstance(record[key], str) for key in ("tag_name", "role", "aria_name", "value"))
    assert isinstance(record["v_scrollable"], bool)
    assert len(record["rects"]) <= 1
    for rect in record["rects"]:
        assert rect.keys() == RECT
        assert (rect["x"], rect["y"]) == (rect["left"], rect["top"])
        assert rect["width"] == pytest.approx(rect["right"] - rect["left"], abs=0.02)
        assert rect["height"] == pytest.approx(rect["bottom"] - rect["top"], abs=0.02)


async def test_screenshot_info(session: MarkedSession) -> None:
    marks = await session.open("shop.html")
    assert set(marks.info) == {
        *("visible_rects", "rects_above", "rects_below", "interactive_regions", "id_mapping"),
    }
    assert len(marks.visible) == 27
    assert len(marks.below) == 381
    for record in marks.regions.values():
        assert_record(record)
    search = marks.of("Search", "input, type=search")
    assert (search["role"], search["value"]) == ("searchbox", "")
    assert marks.of("Sort by")["value"] == "Name"
    card = marks.of("Oak Lamp 1")
    assert (card["tag_name"], card["role"], card["v_scrollable"]) == ("a", "link", False)


async def test_interactive_rects(session: MarkedSession) -> None:
    await session.execute("visit_page", url=f"{session.site.url}/forms.html")
    rects = await session.execute("get_interactive_rects")
    assert list(rects) == [str(number) for number in range(1, len(rects) + 1)]
    for record in rects.values():
        assert_record(record)
    by_name = {record["aria_name"]: record for record in rects.values()}
    assert by_name["Newsletter"]["value"] == "checked"
    assert by_name["Gift wrap"]["value"] == ""
    assert by_name["Medium"]["role"] == "radio"
    assert by_name["Toppings"]["v_scrollable"]
    assert by_name["Colour"]["tag_name"] == "select"
    assert by_name["Quantity"]["tag_name"] == "input, type=number"


async def test_page_without_anything_to_label(session: MarkedSession) -> None:
    marks = await session.open("empty.html")
    assert marks.all == []
    assert marks.regions == {}
    assert await session.execute("get_interactive_rects") == {}


async def test_info_before_a_marked_screenshot_and_after_a_navigation(
    session: MarkedSession,
) -> None:
    assert await session.execute("get_screenshot_info") == NO_INFO
    await session.visit("shop.html")
    assert await session.execute("get_screenshot_info") == NO_INFO
    await session.mark()
    await session.visit("empty.html")
    assert await session.execute("get_screenshot_info") == NO_INFO


async def test_step_answers_with_the_marks_of_its_image(session: MarkedSession) -> None:
    step = await session.marked_step("visit_page", url=f"{session.site.url}/forms.html")
    told = step.fields["marks"]
    assert told.keys() == {"visible_rects", "rects_above", "rects_below", "interactive_regions"}
    assert list(told["interactive_regions"]) == told["visible_rects"]
    shown = await session.shown()
    assert told["visible_rects"] == shown.visible
    assert told["interactive_regions"].items() <= shown.regions.items()
    step = await session.marked_step("click_id", id=shown.label("Colour"))
    assert len(step.fields["marks"]["visible_rects"]) == len(shown.visible) + 3
    plain = await session.step(options={"interaction_mode": "coordinates"})
    assert plain.fields["marks"] is None


async def test_info_tells_what_the_screenshot_showed(session: MarkedSession) -> None:
    marks = await session.open("removed.html")
    await session.click_label(marks.label("Remove A"))
    await session.click_label(marks.label("Move C"))
    assert (await session.shown()).info == marks.info


async def test_password_is_never_told(session: MarkedSession) -> None:
    marks = await session.open_html("""<form><label>Password <input type="password"></label>
      <label>Again <input type="password" value="hunter2-hunter2"></label></form>""")
    secret = "hunter2-hunter2"
    await session.fill(marks.label("Password"), secret)
    step = await session.marked_step()
    told = [
        step.fields,
        await session.execute("get_screenshot_info"),
        await session.execute("get_interactive_rects"),
        await session.execute("get_ax_tree"),
        await session.execute("get_webpage_text"),
        await session.execute("get_page_metadata"),
    ]
    assert secret not in json.dumps(told)
    # That there is one can be seen.
    shown = await session.shown()
    assert {shown.of(name)["value"] for name in ("Password", "Again")} == {"•" * 8}


async def test_names_come_from_what_a_reader_sees(session: MarkedSession) -> None:
    marks = await session.open_html("""
      <button aria-label="By label">x</button> <button><img alt="By picture"></button>
      <input placeholder="By placeholder"> <input type="submit" value="By value">
      <a href="#t" title="By title"><svg width="9" height="9"><rect width="9" height="9"/></svg></a>
      <b id="other">By other</b> <input aria-labelledby="other">
      <label>By wrapping <select><option>not this</option></select></label>
      <input name="by-name"> <button>  By
         text </button>""")
    assert marks.names() == [
        *("By label", "By picture", "By placeholder", "By value", "By title", "By other"),
        *("By wrapping", "by-name", "By text"),
    ]


@pytest.mark.parametrize("image_format", ["png", "jpeg", "webp"])
async def test_marked_screenshot_in_every_format(session: MarkedSession, image_format: str) -> None:
    await session.visit("shop.html")
    parameters = {"interaction_mode": "set_of_marks", "format": image_format}
    marked = await session.call("GET", "/screenshot", params=parameters)
    magic = {"png": b"\x89PNG", "jpeg": b"\xff\xd8\xff", "webp": b"RIFF"}[image_format]
    assert io.BytesIO(marked).read(len(magic)) == magic
    parameters["interaction_mode"] = "coordinates"
    assert marked != await session.call("GET", "/screenshot", params=parameters)
