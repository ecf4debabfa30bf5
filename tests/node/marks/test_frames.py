"""Marks in frames: every origin, nested, scrolled, bordered, scaled, turned, covered, far away."""

from contextlib import suppress

import pytest

from omniboxes.errors import NotInteractable, StaleMark
from tests.node.marks.driving import MarkedSession, Marks

pytestmark = pytest.mark.browser

# The button of each frame, by what it logs when it is clicked.
BUTTONS = {
    "Click same": "clicked same",
    "Click cross": "clicked cross",
    "Click nested": "clicked nested",
    "Click nested-inner": "clicked nested-inner",
    "Click cross-nested": "clicked cross-nested",
    "Click cross-nested-inner": "clicked cross-nested-inner",
    "Click bordered": "clicked bordered",
    "Click transformed": "clicked transformed",
    "Click rotated": "clicked rotated",
    "Click srcdoc": "clicked srcdoc",
    "Click covered": "clicked covered",
}


async def clicked(session: MarkedSession, text: str) -> bool:
    """Tell whether a frame of whatever origin shows a text."""
    tree = (await session.execute("get_ax_tree", max_chars=100_000))["ax_tree"]
    return text in tree


@pytest.fixture
async def marks(session: MarkedSession) -> Marks:
    return await session.open("frames.html")


async def test_every_button_in_a_frame_is_clicked_by_its_label(
    session: MarkedSession, marks: Marks
) -> None:
    for name, logged in BUTTONS.items():
        label = marks.label(name)
        assert marks.rect(label) is not None
        await session.click_label(label)
        assert await clicked(session, f"{logged} 1"), name
    await session.click_label(marks.label("Button of the top page"))
    assert await session.log() == "clicked top-button"


async def test_every_link_and_low_button_of_a_frame_is_clicked(
    session: MarkedSession, marks: Marks
) -> None:
    frames = ["same", "cross", "nested-inner", "cross-nested-inner", "bordered", "transformed"]
    frames += ["rotated", "covered"]
    links = [label for label in marks.labels("Link") if label in marks.visible]
    for name, label in zip(frames, links, strict=True):
        await session.click_label(label)
        assert await clicked(session, f"clicked link {name} 1")
    # The low button of the frame under the banner cannot be seen.
    low = [label for label in marks.labels("Low button") if label in marks.visible]
    for name, label in zip(frames[:-1], low, strict=True):
        await session.click_label(label)
        assert await clicked(session, f"clicked low {name} 2")


async def test_fields_in_frames_are_filled(session: MarkedSession, marks: Marks) -> None:
    fields = [
        label for label in marks.visible if marks.regions[label]["aria_name"] == "Frame input"
    ]
    assert len(fields) == 8
    for number, label in enumerate(fields):
        await session.fill(label, f"word{number}")
    again = await session.mark()
    values = [again.regions[label]["value"] for label in fields]
    assert values == [f"word{number}" for number in range(8)]


async def test_boxes_lie_where_the_frames_show_them(session: MarkedSession, marks: Marks) -> None:
    # The frame with a border of 12, a padding of 10 and 20, at (328, 250) of the body.
    box = marks.rect(marks.label("Click bordered"))
    frame = await session.evaluate("""(() => {
      const frame = document.getElementById("bordered");
      const outer = frame.getBoundingClientRect();
      const box = frame.contentDocument.getElementById("button").getBoundingClientRect();
      return [outer.left + 32 + box.left, outer.top + 22 + box.top, box.width];
    })()""")
    assert box is not None
    assert [box.left, box.top, box.right - box.left] == pytest.approx(frame, abs=0.1)
    scaled = marks.rect(marks.label("Click transformed"))
    assert scaled is not None
    assert scaled.bottom - scaled.top == pytest.approx((box.bottom - box.top) * 0.75, abs=0.1)


async def test_elements_scrolled_away_in_a_frame_are_labelled_and_clicked(
    session: MarkedSession, marks: Marks
) -> None:
    for name, element in [
        *(("Out of view below", "last-button"), ("Out of view above", "first-button")),
        ("Scrolled into view", "button"),
    ]:
        # One in the frame of this origin, one in the other's.
        for label in marks.labels(name):
            await session.click_label(label)
        tree = (await session.execute("get_ax_tree"))["ax_tree"]
        assert tree.count(f"clicked {element} ") == 2


async def test_frame_below_the_screen_is_scrolled_to(session: MarkedSession, marks: Marks) -> None:
    label = marks.label("Click below")
    assert label in marks.below
    await session.click_label(label)
    assert await clicked(session, "clicked below 1")


async def test_frame_of_another_origin_below_the_screen(session: MarkedSession) -> None:
    await session.open("frames.html")
    await session.evaluate("document.getElementById('cross').style.top = '600px', 0")
    marks = await session.mark()
    label = marks.label("Click cross")
    await session.evaluate("document.getElementById('cross').style.top = '1300px', 0")
    await session.click_label(label)
    assert await clicked(session, "clicked cross 1")


async def test_what_the_page_covers_in_a_frame_has_no_label(session: MarkedSession) -> None:
    await session.open("frames.html")
    await session.evaluate("""(() => {
      const cover = document.createElement("div");
      cover.style = "position: absolute; left: 320px; top: 60px; width: 120px; height: 100px";
      document.body.append(cover);
    })(), 0""")
    marks = await session.mark()
    assert not marks.labels("Click cross")
    assert "Click same" in marks.names()


async def test_covered_since_it_was_labelled(session: MarkedSession, marks: Marks) -> None:
    await session.evaluate("""(() => {
      const cover = document.createElement("div");
      cover.style = "position: fixed; inset: 0; background: gold";
      document.body.append(cover);
    })(), 0""")
    for name in ("Click cross", "Click same", "Button of the top page"):
        with pytest.raises(NotInteractable):
            await session.click_label(marks.label(name))


async def test_navigated_frame_spoils_its_own_labels_only(
    session: MarkedSession, marks: Marks
) -> None:
    for frame, name in (("same", "Click same"), ("cross", "Click cross")):
        await session.evaluate(f"""new Promise((done) => {{
          const frame = document.getElementById("{frame}");
          frame.onload = () => done(0);
          frame.src += "&again";
        }})""")
        with pytest.raises(StaleMark):
            await session.click_label(marks.label(name))
    await session.click_label(marks.label("Click nested"))
    assert await clicked(session, "clicked nested 1")
    await session.click_label(marks.label("Click cross-nested-inner"))
    assert await clicked(session, "clicked cross-nested-inner 1")
    await session.click_label(marks.label("Button of the top page"))
    assert await session.log() == "clicked top-button"


async def test_removed_frame_spoils_its_labels(session: MarkedSession, marks: Marks) -> None:
    await session.evaluate("""for (const id of ["same", "cross", "cross-nested"]) {
      document.getElementById(id).remove();
    } 0""")
    for name in ("Click same", "Click cross", "Click cross-nested", "Click cross-nested-inner"):
        with pytest.raises(StaleMark):
            await session.click_label(marks.label(name))


async def test_frame_that_was_taken_out_and_put_back_is_another(
    session: MarkedSession, marks: Marks
) -> None:
    await session.evaluate("""new Promise((done) => {
      const frame = document.getElementById("cross");
      frame.remove();
      frame.onload = () => done(0);
      document.body.append(frame);
    })""")
    with pytest.raises(StaleMark):
        await session.click_label(marks.label("Click cross"))
    again = await session.mark()
    await session.click_label(again.label("Click cross"))
    assert await clicked(session, "clicked cross 1")


async def test_sandboxed_and_data_frames(session: MarkedSession) -> None:
    marks = await session.open_html("""
      <iframe sandbox="allow-scripts"
        srcdoc="<button onclick='this.textContent += 1'>boxed</button>"></iframe>
      <iframe src="data:text/html,<button onclick='this.textContent += 1'>data</button>"></iframe>
      <iframe style="visibility: hidden" srcdoc="<button>hidden</button>"></iframe>""")
    assert marks.names() == ["boxed", "data"]
    await session.click_label(marks.label("boxed"))
    await session.click_label(marks.label("data"))
    assert (await session.mark()).names() == ["boxed1", "data1"]


async def test_frame_under_css_zoom_and_individual_transforms(session: MarkedSession) -> None:
    frame = "<button onclick='parent.document.title = this.id' id={0}>{0}</button>"
    marks = await session.open_html(
        f"""<iframe style="zoom: 1.5; border: 4px solid" srcdoc="{frame.format("zoomed")}"></iframe>
        <div style="rotate: 30deg; scale: 0.8 1.2"><iframe style="transform: skewX(10deg)"
          srcdoc="{frame.format("turned")}"></iframe></div>"""
    )
    for name in ("zoomed", "turned"):
        await session.click_label(marks.label(name))
        assert (await session.evaluate("document.title")).endswith(name)


async def test_body_that_is_edited_in_a_frame(session: MarkedSession) -> None:
    marks = await session.open_html(
        """<iframe srcdoc="<body contenteditable aria-label='Editor'>"></iframe>"""
    )
    await session.fill(marks.label("Editor"), "written")
    assert (await session.mark()).of("Editor")["value"] == "written"


async def test_frames_that_come_and_go_while_they_are_marked(session: MarkedSession) -> None:
    await session.open_html("<button>Still here</button><p id='frames'></p>")
    await session.evaluate("""setInterval(() => {
      const frames = [1, 2, 3].map((n) => {
        const frame = document.createElement("iframe");
        frame.src = `data:text/html,<button>Frame ${n}</button>`;
        return frame;
      });
      document.getElementById("frames").replaceChildren(...frames);
    }, 200), 0""")
    seen = 0
    for _ in range(4):
        marks = await session.mark()
        assert "Still here" in marks.names()
        await session.execute("get_interactive_rects")
        await session.execute("get_ax_tree")
        if labels := marks.labels("Frame 1"):
            seen += 1
            with suppress(StaleMark, NotInteractable):
                await session.click_label(labels[0])
    assert seen > 0
