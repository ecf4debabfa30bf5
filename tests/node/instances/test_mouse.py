"""Clicks, hovering and dragging, at viewport coordinates."""

import pytest

from omniboxes.errors import InvalidRequest
from tests.node.instances.driving import Session, reading

pytestmark = pytest.mark.browser

POINT_COMMANDS = (
    "click_coords",
    "double_click_coords",
    "right_click_coords",
    "hover_coords",
    "hover_and_scroll_coords",
)


async def test_click_reaches_the_element_at_the_point(session: Session) -> None:
    await session.visit("timers.html")
    step = await session.click("sync")
    assert step.fields["status"] == "success"
    assert step.value == "done"


async def test_double_click_is_one_double_click(shared: Session) -> None:
    await shared.visit("drag.html")
    at = await shared.centre("double")
    step = await shared.step("double_click_coords", **at, options=reading("double-count"))
    assert step.value == "1"


async def test_right_click_opens_the_pages_own_menu(session: Session) -> None:
    await session.visit("drag.html")
    await session.evaluate("addEventListener('mousedown', (e) => { document.title = e.buttons; })")
    at = await session.centre("context")
    step = await session.step("right_click_coords", **at, options=reading("context-count"))
    assert step.value == "1"
    assert step.metadata["title"] == "2"


async def test_hover_opens_a_menu_and_leaving_closes_it(session: Session) -> None:
    await session.visit("drag.html")
    at = await session.centre("hover-menu")
    is_open = {"expression": "getComputedStyle(submenu).display !== 'none'"}
    assert (await session.step("hover_coords", **at, options=is_open)).value is True
    assert (await session.step("hover_coords", x=5, y=5, options=is_open)).value is False


async def test_drag_moves_a_slider_through_intermediate_points(session: Session) -> None:
    await session.visit("drag.html")
    start = await session.centre("slider-handle")
    step = await session.step(
        "drag_coords",
        **start,
        to_x=start["x"] + 234,
        to_y=start["y"],
        steps=6,
        options=reading("slider-value"),
    )
    assert step.value == "50"
    assert await session.text("slider-moves") == "6"
    assert await session.text("log") == "slider released at 50"


async def test_drag_draws_on_a_canvas(shared: Session) -> None:
    await shared.visit("drag.html")
    at = await shared.centre("canvas")
    target = {"to_x": at["x"] + 50, "to_y": at["y"] + 20}
    step = await shared.step("drag_coords", **at, **target, steps=5, options=reading("points"))
    assert step.value == "5"


async def test_drag_drops_what_html_drag_and_drop_picked_up(session: Session) -> None:
    await session.visit("drag.html")
    start, end = await session.centre("drag-source"), await session.centre("drop-target")
    target = {"to_x": end["x"], "to_y": end["y"]}
    step = await session.step("drag_coords", **start, **target, options=reading("drop-target"))
    assert step.value == "Got parcel"
    # The mouse is free again.
    at = await session.centre("double")
    step = await session.step("double_click_coords", **at, options=reading("double-count"))
    assert step.value == "1"


@pytest.mark.parametrize("command", POINT_COMMANDS)
@pytest.mark.parametrize(
    ("point", "named"), [((1281, 5), "x: 1281 is outside"), ((5, 768.5), "y: 768.5 is outside")]
)
async def test_point_outside_the_viewport_is_refused(
    shared: Session, command: str, point: tuple[float, float], named: str
) -> None:
    with pytest.raises(InvalidRequest, match=named):
        await shared.execute(command, x=point[0], y=point[1])


async def test_drag_that_ends_outside_the_viewport_is_refused(shared: Session) -> None:
    with pytest.raises(InvalidRequest, match="2000 is outside"):
        await shared.execute("drag_coords", x=5, y=5, to_x=2000, to_y=5)


@pytest.mark.parametrize("command", POINT_COMMANDS)
async def test_edge_of_the_viewport_is_accepted(shared: Session, command: str) -> None:
    await shared.visit("empty.html")
    for x, y in ((0, 0), (1280, 768), (1279.5, 0)):
        assert (await shared.execute(command, x=x, y=y))["status"] == "success"


async def test_click_at_the_far_edge_is_one_pixel_in(session: Session) -> None:
    await session.visit("empty.html")
    await session.evaluate("onclick = (e) => { document.title = `${e.clientX},${e.clientY}`; }; 0")
    step = await session.step("click_coords", x=1280, y=768)
    assert step.metadata["title"] == "1279,767"
