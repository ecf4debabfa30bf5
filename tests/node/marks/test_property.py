"""On every page of the site the mouse meets in the middle of a box what the mark denotes."""

import json

import pytest

from tests.node.marks.driving import HEIGHT, WIDTH, MarkedSession, Marks
from tests.node.marks.odd_pages import ODD
from tests.node.marks.oracle import Oracle
from tests.site_server import SITE_DIR

pytestmark = pytest.mark.browser

# The one page whose script never ends has no document to speak of.
PAGES = sorted(path.name for path in SITE_DIR.glob("*.html") if path.stem != "endless-on-load")
OPENERS = {
    "Open modal": "Close modal",
    "Open dialog": "Dialog OK",
    "Open popover": "Popover button",
}


def assert_numbered(marks: Marks) -> None:
    assert marks.all == [str(number) for number in range(1, len(marks.all) + 1)]
    assert set(marks.regions) == set(marks.all)
    assert marks.info["id_mapping"] == {label: label for label in marks.all}


async def assert_marks_hold(session: MarkedSession) -> Marks:
    """Mark the page, and compare every box with what Chromium's own mouse meets in its middle."""
    oracle = Oracle(session)
    await oracle.install()
    expected = await oracle.plainly_interactive()
    marks = await session.mark()
    assert_numbered(marks)
    for _, rect in marks.boxed():
        assert 0 <= rect.left < rect.right <= WIDTH
        assert 0 <= rect.top < rect.bottom <= HEIGHT
    hits = await oracle.at([rect.centre for _, rect in marks.boxed()])
    met = dict(zip((label for label, _ in marks.boxed()), hits, strict=True))
    denoted: dict[int, str] = {}
    for label, rect in marks.boxed():
        if met[label].is_foreign:
            continue  # test_frames.py clicks all of these
        record = marks.regions[label]
        by_label = await oracle.by_label(label, rect.centre)
        candidates = [
            node
            for node in met[label].matching(record)
            if node in by_label.ids() and node not in denoted
        ]
        assert candidates, f"label {label} {record} met {met[label]}, by label {by_label}"
        denoted[candidates[0]] = label
    missing = {html for node, html in expected.items() if node not in denoted}
    assert not missing
    return marks


@pytest.mark.parametrize("page", PAGES)
async def test_middle_of_every_box_is_the_labelled_element(hasty: MarkedSession, page: str) -> None:
    await hasty.visit(page)
    await assert_marks_hold(hasty)
    before = await hasty.evaluate("scrollY")
    await hasty.execute("page_down", full_page=True)
    if await hasty.evaluate("scrollY") != before:
        await assert_marks_hold(hasty)


@pytest.mark.parametrize("opener", OPENERS)
async def test_marks_hold_with_something_open_above_the_page(
    hasty: MarkedSession, opener: str
) -> None:
    marks = await hasty.open("overlap.html")
    await hasty.click_label(marks.label(opener))
    opened = await assert_marks_hold(hasty)
    assert OPENERS[opener] in opened.names()
    # A popover leaves the rest of the page in reach.
    assert ("Header link" in opened.names()) == (opener == "Open popover")


@pytest.mark.parametrize("kind", ODD)
async def test_marks_hold_on_odd_pages(hasty: MarkedSession, kind: str) -> None:
    await hasty.visit("empty.html")
    await hasty.evaluate(f"document.body.innerHTML = {json.dumps(ODD[kind])}; 0")
    marks = await assert_marks_hold(hasty)
    assert marks.visible
