"""The overlay that shows the marks: there for the screenshot, and gone without a trace."""

import base64
import json

import pytest

from omniboxes.errors import DeadlineExceeded
from tests.node.marks.driving import MarkedSession

pytestmark = pytest.mark.browser

RECORDS = """(() => {
  window.seen = [];
  new MutationObserver((records) => seen.push(...records)).observe(document, {
    childList: true, subtree: true, attributes: true, characterData: true,
  });
})(), 0"""


# Chromium itself looks at the pictures, on a page of its own.
PIXELS = """(async () => {
  const image = await createImageBitmap(await (await fetch("data:image/webp;base64,%s")).blob());
  const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
  context.drawImage(image, 0, 0);
  return %s.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data.slice(0, 3)]);
})()"""

Point = tuple[int, int]
Colour = tuple[int, int, int]


async def picture(session: MarkedSession, mode: str = "set_of_marks") -> str:
    parameters = {"interaction_mode": mode, "format": "webp", "quality": 90}
    return base64.b64encode(await session.call("GET", "/screenshot", params=parameters)).decode()


async def colours(session: MarkedSession, image: str, *points: Point) -> list[Colour]:
    """Return the colours of an image; the session shows another page then."""
    await session.visit("empty.html")
    expression = PIXELS % (image, json.dumps(points))
    return [tuple(colour) for colour in await session.evaluate(expression)]


def differs(one: Colour, other: Colour) -> bool:
    """Tell whether two colours are more than the encoding apart."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) > 60


async def outer_html(session: MarkedSession) -> str:
    return str(await session.evaluate("document.documentElement.outerHTML"))


@pytest.mark.parametrize("page", ["shop.html", "frames.html", "csp.html", "shadow.html"])
async def test_overlay_leaves_nothing_behind(session: MarkedSession, page: str) -> None:
    await session.visit(page)
    before = await outer_html(session)
    await session.evaluate(RECORDS)
    await session.mark()
    await session.marked_step()
    assert await outer_html(session) == before
    records = await session.evaluate(
        "seen.map((r) => [r.type, r.target.nodeName, r.addedNodes.length, r.removedNodes.length])"
    )
    # Two screenshots: the overlay comes and goes as one node.
    assert records == [["childList", "HTML", 1, 0], ["childList", "HTML", 0, 1]] * 2


async def test_page_cannot_look_into_the_overlay_or_be_hit_through_it(
    session: MarkedSession,
) -> None:
    await session.visit("shop.html")
    await session.evaluate("""(() => {
      window.found = [];
      new MutationObserver((records) => {
        for (const node of records.flatMap((record) => [...record.addedNodes])) {
          const box = document.getElementById("search").getBoundingClientRect();
          const hit = document.elementFromPoint(box.left + 5, box.top + 5);
          const { pointerEvents } = getComputedStyle(node);
          found.push([node.shadowRoot, node.textContent, hit.id, pointerEvents]);
        }
      }).observe(document.documentElement, { childList: true });
    })(), 0""")
    await session.mark()
    assert await session.evaluate("found") == [[None, "", "search", "none"]]


async def test_styles_of_the_page_do_not_reach_the_overlay(session: MarkedSession) -> None:
    marks = await session.open_html("<button style='width: 300px; height: 200px'>Big</button>")
    box = marks.rect("1")
    assert box is not None
    plain = await picture(session)
    edge = round(box.left) - 1, round(box.bottom) - 5
    await session.evaluate("""(() => {
      const style = document.createElement("style");
      style.textContent = `:root > div, div { display: none !important; opacity: 0 !important;
        transform: translate(50px) !important; } :root { transform: translateZ(0) }`;
      document.head.append(style);
    })(), 0""")
    styled = await picture(session)
    (before,) = await colours(session, plain, edge)
    (after,) = await colours(session, styled, edge)
    assert not differs(before, after)
    assert differs(before, (255, 255, 255))


async def test_marks_are_drawn_above_modal_dialogs(session: MarkedSession) -> None:
    marks = await session.open("overlap.html")
    await session.click_label(marks.label("Open dialog"))
    marks = await session.mark()
    box = marks.rect(marks.label("Dialog OK"))
    assert box is not None
    point = round(box.left) - 1, round((box.top + box.bottom) / 2)
    marked, plain = await picture(session), await picture(session, "coordinates")
    (with_mark,), (without,) = [await colours(session, p, point) for p in (marked, plain)]
    assert differs(with_mark, without)


@pytest.mark.parametrize(
    "page", ["doc.xml", "picture.svg", "plain.txt", "no-title.html", "csp.html"]
)
async def test_unusual_documents_are_marked(session: MarkedSession, page: str) -> None:
    marks = await session.open(page)
    await session.marked_step()
    if page == "doc.xml":
        assert len(marks.visible) == 3


async def test_link_in_a_picture_is_marked_and_clicked(session: MarkedSession) -> None:
    marks = await session.open("picture.svg")
    box = marks.rect(marks.label("A link"))
    assert box is not None
    point = round(box.left) - 1, round(box.bottom) - 5
    marked, plain = await picture(session), await picture(session, "coordinates")
    await session.click_label(marks.label("A link"))
    assert (await session.call("GET", "/metadata"))["url"].endswith("landing.html?from=svg")
    (with_mark,), (without,) = [await colours(session, p, point) for p in (marked, plain)]
    assert differs(with_mark, without)


async def test_open_popover_and_focus_stay_as_they_are(session: MarkedSession) -> None:
    marks = await session.open("overlap.html")
    await session.click_label(marks.label("Open popover"))
    await session.evaluate("document.getElementById('wrap-input').focus(), 0")
    await session.mark()
    assert await session.evaluate("document.getElementById('popover').matches(':popover-open')")
    assert await session.evaluate("document.activeElement.id") == "wrap-input"


async def test_plain_screenshot_after_a_marked_one_has_no_marks(session: MarkedSession) -> None:
    await session.visit("forms.html")
    parameters = {"interaction_mode": "coordinates"}
    before = await session.call("GET", "/screenshot", params=parameters)
    await session.mark()
    assert await session.call("GET", "/screenshot", params=parameters) == before


async def test_marks_of_a_page_that_hung_are_not_in_the_next_picture(
    session: MarkedSession,
) -> None:
    await session.visit("forms.html")
    parameters = {"interaction_mode": "coordinates"}
    before = await session.call("GET", "/screenshot", params=parameters)
    await session.evaluate("""new MutationObserver((_, observer) => {
      observer.disconnect();
      for (;;);
    }).observe(document.documentElement, { childList: true }), 0""")
    with pytest.raises(DeadlineExceeded):
        await session.call("GET", "/screenshot", deadline_s=1)
    assert await session.call("GET", "/screenshot", params=parameters) == before
    assert "Send" in (await session.mark()).names()
