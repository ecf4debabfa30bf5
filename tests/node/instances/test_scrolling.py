"""Scrolling the page and what lies under a point."""

import pytest

from tests.node.instances.driving import Session

pytestmark = pytest.mark.browser

WINDOW = {"expression": "scrollY"}
NESTED = {"expression": "document.getElementById('nested').scrollTop"}
INNER = {"expression": "document.getElementById('inner').scrollTop"}


async def test_page_down_scrolls_by_200_unless_told(shared: Session) -> None:
    await shared.visit("scroll.html")
    assert (await shared.step("page_down", options=WINDOW)).value == 200
    assert (await shared.step("page_down", amount=350, options=WINDOW)).value == 550
    assert (await shared.step("page_up", options=WINDOW)).value == 350
    assert (await shared.step("page_up", amount=50, options=WINDOW)).value == 300


async def test_full_page_is_a_screen_less_50_pixels(shared: Session) -> None:
    await shared.visit("scroll.html")
    assert (await shared.step("page_down", full_page=True, options=WINDOW)).value == 718
    assert (await shared.step("page_down", full_page=True, options=WINDOW)).value == 1436
    assert (await shared.step("page_up", full_page=True, options=WINDOW)).value == 718


async def test_scrolling_ends_at_the_ends_of_the_page(shared: Session) -> None:
    await shared.visit("scroll.html")
    assert (await shared.step("page_up", options=WINDOW)).value == 0
    end = await shared.step("page_down", amount=100_000, options=WINDOW)
    assert end.value == await shared.evaluate("document.documentElement.scrollHeight - 768")


async def test_answer_comes_after_the_pages_scroll_handlers(shared: Session) -> None:
    await shared.visit("scroll.html")
    shown = {"expression": "document.getElementById('position').textContent"}
    step = await shared.step("page_down", options=shown)
    assert step.value.startswith("window 0,200 ")


async def test_box_under_the_point_scrolls_by_most_of_its_height(shared: Session) -> None:
    await shared.visit("scroll.html")
    at = await shared.centre("nested-top")
    height = await shared.evaluate("document.getElementById('nested').clientHeight")
    step = await shared.step("hover_and_scroll_coords", **at, options=NESTED)
    assert step.value == int(0.8 * height)
    step = await shared.step("hover_and_scroll_coords", **at, direction="up", options=NESTED)
    assert step.value == 0


async def test_innermost_box_under_the_point_scrolls(shared: Session) -> None:
    await shared.visit("scroll.html")
    at = await shared.centre("inner-button")
    step = await shared.step("hover_and_scroll_coords", **at, options=INNER)
    assert step.value > 0
    assert await shared.evaluate("document.getElementById('nested').scrollTop") == 0


async def test_page_scrolls_where_nothing_under_the_point_does(shared: Session) -> None:
    await shared.visit("scroll.html")
    await shared.execute("hover_and_scroll_coords", x=900, y=300)
    step = await shared.step("hover_and_scroll_coords", x=900, y=300, options=WINDOW)
    assert step.value == 200
    step = await shared.step("hover_and_scroll_coords", x=900, y=300, direction="up")
    assert await shared.evaluate("scrollY") == 100


async def test_wheel_scrolls_a_page_that_asks_for_smooth_scrolling(shared: Session) -> None:
    await shared.visit("scroll-smooth.html")
    assert (await shared.step("page_down", amount=900, options=WINDOW)).value == 900
