"""The overlay that shows the marks: there for the screenshot, and gone without a trace."""

import struct
import zlib

import pytest

from tests.node.marks.driving import MarkedSession

pytestmark = pytest.mark.browser

RECORDS = """(() => {
  window.seen = [];
  new MutationObserver((records) => seen.push(...records)).observe(document, {
    childList: true, subtree: true, attributes: true, characterData: true,
  });
})(), 0"""


class Picture:
    """The pixels of an 8-bit RGB or RGBA PNG."""

    def __init__(self, png: bytes) -> None:
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        data, at = b"", 8
        while at < len(png):
            size, kind = struct.unpack_from(">I4s", png, at)
            if kind == b"IHDR":
                self.width, self.height, depth, colour = struct.unpack_from(">IIBB", png, at + 8)
                assert depth == 8
                self._bytes = {2: 3, 6: 4}[colour]
            if kind == b"IDAT":
                data += png[at + 8 : at + 8 + size]
            at += size + 12
        self._rows = self._unfiltered(zlib.decompress(data))

    def at(self, x: int, y: int) -> tuple[int, int, int]:
        row = self._rows[y]
        red, green, blue = row[x * self._bytes : x * self._bytes + 3]
        return red, green, blue

    def _unfiltered(self, data: bytes) -> list[bytearray]:
        size, step = self.width * self._bytes, self._bytes
        rows: list[bytearray] = []
        above = bytearray(size)
        for number in range(self.height):
            start = number * (size + 1)
            kind, row = data[start], bytearray(data[start + 1 : start + 1 + size])
            for i in range(size):
                left = row[i - step] if i >= step else 0
                up = above[i]
                corner = above[i - step] if i >= step else 0
                if kind == 1:
                    row[i] = (row[i] + left) & 255
                elif kind == 2:
                    row[i] = (row[i] + up) & 255
                elif kind == 3:
                    row[i] = (row[i] + (left + up) // 2) & 255
                elif kind == 4:
                    row[i] = (row[i] + _guess(left, up, corner)) & 255
            rows.append(row)
            above = row
        return rows


def _guess(left: int, up: int, corner: int) -> int:
    return min((left, up, corner), key=lambda value: abs(left + up - corner - value))


async def picture(session: MarkedSession, mode: str = "set_of_marks") -> Picture:
    return Picture(await session.call("GET", "/screenshot", params={"interaction_mode": mode}))


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
    await session.evaluate("""(() => {
      const style = document.createElement("style");
      style.textContent = `:root > div, div { display: none !important; opacity: 0 !important;
        transform: translate(50px) !important; } :root { transform: translateZ(0) }`;
      document.head.append(style);
    })(), 0""")
    styled = await picture(session)
    edge = round(box.left) + 1, round(box.bottom) - 5
    assert plain.at(*edge) == styled.at(*edge) != (255, 255, 255)


async def test_marks_are_drawn_above_modal_dialogs(session: MarkedSession) -> None:
    marks = await session.open("overlap.html")
    await session.click_label(marks.label("Open dialog"))
    marks = await session.mark()
    box = marks.rect(marks.label("Dialog OK"))
    assert box is not None
    point = round(box.left) + 1, round((box.top + box.bottom) / 2)
    marked, plain = await picture(session), await picture(session, "coordinates")
    assert marked.at(*point) != plain.at(*point)


@pytest.mark.parametrize(
    "page", ["doc.xml", "picture.svg", "plain.txt", "no-title.html", "csp.html"]
)
async def test_unusual_documents_are_marked(session: MarkedSession, page: str) -> None:
    marks = await session.open(page)
    if page == "picture.svg":
        box = marks.rect(marks.label("A link"))
        assert box is not None
        point = round(box.left) + 1, round(box.bottom) - 5
        assert (await picture(session)).at(*point) != (await picture(session, "coordinates")).at(
            *point
        )
        await session.click_label(marks.label("A link"))
        assert (await session.call("GET", "/metadata"))["url"].endswith("landing.html?from=svg")


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
