"""Pages with more in them than anyone looks at."""

import pytest

from tests.node.marks.driving import MarkedSession

pytestmark = pytest.mark.browser


async def test_page_of_forty_thousand_buttons(session: MarkedSession) -> None:
    await session.visit("empty.html")
    await session.evaluate("""(() => {
      for (let n = 0; n < 40_000; n++) {
        document.body.append(Object.assign(document.createElement("button"), { textContent: n }));
      }
    })(), 0""")
    marks = await session.mark()
    assert len(marks.visible) > 200
    # What is off screen is labelled up to a limit.
    assert len(marks.below) == 500
    assert marks.names() == [str(number) for number in range(len(marks.visible))]
    await session.evaluate("scrollTo(0, document.body.scrollHeight), 0")
    end = await session.mark()
    assert end.names()[-1] == "39999"
    assert len(end.above) == 500
    # The accessibility tree would take Chromium a minute; the text has to do.
    tree = (await session.execute("get_ax_tree", max_chars=1000))["ax_tree"]
    assert tree.startswith("Nothing to press")
    assert len(tree) == 1000


async def test_large_page_that_is_mostly_hidden(session: MarkedSession) -> None:
    marks = await session.open("big?mb=10&hidden=1")
    assert marks.names()[0] == "Chapter 0"
    hidden = await session.evaluate("document.links.length") - 499
    assert hidden > 9000
    assert len(marks.all) == 499


async def test_deep_page(session: MarkedSession) -> None:
    await session.visit("empty.html")
    await session.evaluate("""(() => {
      let inner = document.body;
      for (let n = 0; n < 2000; n++) inner = inner.appendChild(document.createElement("div"));
      inner.append(Object.assign(document.createElement("button"), { textContent: "Deep" }));
      inner.style.overflow = "auto";
    })(), 0""")
    marks = await session.mark()
    assert marks.names() == ["Deep"]
    assert 'button "Deep"' in (await session.execute("get_ax_tree"))["ax_tree"]
