"""What is labelled, what is not, and with which number."""

import itertools

import pytest

from tests.node.marks.driving import MarkedSession, Marks

pytestmark = pytest.mark.browser


def names_off_screen(marks: Marks) -> list[str]:
    return [marks.regions[label]["aria_name"] for label in (*marks.above, *marks.below)]


async def test_hidden_covered_and_disabled_elements_have_no_label(session: MarkedSession) -> None:
    marks = await session.open("overlap.html")
    named = {region["aria_name"] for region in marks.regions.values()}
    hidden = {"Zero", "Hidden", "Transparent", "No pointer events", "Clipped away"}
    assert not named & {*hidden, "Not displayed", "Inert", "Outside"}
    assert not named & {"Covered whole", "Behind one", "Behind two"}
    assert not named & {"Anchor without href", "Tab index -1", "Heading"}
    # Neither what an open layer would show.
    assert not named & {"Close modal", "Dialog OK", "Popover button"}
    forms = await session.open("forms.html")
    named = {region["aria_name"] for region in forms.regions.values()}
    assert not named & {"Disabled", "Disabled text", "Disabled select", "None"}


async def test_labels_count_up_in_the_order_of_the_page(session: MarkedSession) -> None:
    marks = await session.open("combobox.html")
    edits = [f"Edit {name}" for name in ("Nora", "Ali", "Chen", "Bea", "Dov")]
    assert marks.names() == ["Country", "Actions", "Name", "Age", *edits, "One", "Two"]
    frames = await session.open("frames.html")
    order = [name for name in frames.names() if name.startswith("Click")]
    # A frame's elements come where the frame comes, whatever its origin.
    assert order[:7] == [
        *("Click same", "Click cross", "Click nested", "Click nested-inner"),
        *("Click cross-nested", "Click cross-nested-inner", "Click bordered"),
    ]


async def test_off_screen_labels_continue_the_numbers(session: MarkedSession) -> None:
    await session.open("scroll.html")
    await session.execute("page_down", amount=1500)
    marks = await session.mark()
    assert marks.names() == ["Button at 2000"]
    above = [marks.regions[label]["aria_name"] for label in marks.above]
    assert {"Button at 600", "Button at 1200", "To the bottom"} <= set(above)
    assert "Bottom of the nested box" in above
    assert [marks.regions[label]["aria_name"] for label in marks.below] == ["Button at 3900"]
    assert marks.all == [str(number) for number in range(1, len(marks.all) + 1)]


async def test_partly_covered_element_has_its_box_on_the_visible_part(
    session: MarkedSession,
) -> None:
    marks = await session.open("overlap.html")
    cover, half, middle, left = await session.evaluate("""["div.cover:nth-of-type(2)",
      "#covered-half", "#covered-centre", "#edge-left"].map((selector) => {
        const box = document.querySelector(selector).getBoundingClientRect();
        return [box.left, box.top, box.right, box.bottom];
      })""")
    box = marks.rect(marks.label("Covered half"))
    assert box is not None
    assert box.left == pytest.approx(cover[2], abs=1.5)
    assert box[1:] == pytest.approx(half[1:], abs=1.5)
    box = marks.rect(marks.label("Covered at its centre only"))
    assert box is not None
    assert box.left == pytest.approx(middle[0], abs=1.5)
    assert box.right - box.left == pytest.approx(80, abs=1.5)
    box = marks.rect(marks.label("Left edge"))
    assert box is not None
    assert box.left == 0
    assert box.right == pytest.approx(left[2])


async def test_box_ends_where_its_scroll_box_ends(session: MarkedSession) -> None:
    marks = await session.open("overlap.html")
    whole, part = marks.rect(marks.label("Whole")), marks.rect(marks.label("Part"))
    assert whole is not None
    assert part is not None
    clip = await session.evaluate(
        "document.getElementById('clip-box').getBoundingClientRect().bottom"
    )
    assert whole.bottom - whole.top == pytest.approx(36)
    assert part.bottom == pytest.approx(clip, abs=1.5)


async def test_wrapped_link_has_its_box_on_one_of_its_lines(session: MarkedSession) -> None:
    marks = await session.open("overlap.html")
    box = marks.rect(marks.label("A link wraps"))
    assert box is not None
    lines = await session.evaluate("""[...document.getElementById('wrapped-link').getClientRects()]
      .map((line) => [line.left, line.top, line.right, line.bottom])""")
    assert len(lines) == 2
    assert any(tuple(box) == pytest.approx(line, abs=0.1) for line in lines)


async def test_elements_of_almost_the_whole_screen_are_not_labelled(session: MarkedSession) -> None:
    await session.open("overlap.html")
    await session.evaluate("""document.getElementById('huge').setAttribute('onclick', '');
      document.getElementById('huge').scrollIntoView({ behavior: 'instant' }); 0""")
    marks = await session.mark()
    assert "Inside" in marks.names()
    assert all(marks.regions[label]["tag_name"] != "div" for label in marks.visible)


async def test_page_whose_root_has_a_pointer(session: MarkedSession) -> None:
    marks = await session.open("html-pointer.html")
    assert marks.names() == ["A link", "A button", "pointer again"]
    await session.click_label(marks.label("pointer again"))
    assert await session.log() == "clicked pointer"


async def test_pointer_marks_its_outermost_element_only(session: MarkedSession) -> None:
    marks = await session.open("overlap.html")
    assert marks.of("Pointer div")["tag_name"] == "div"
    assert not marks.labels("Pointer")


async def test_custom_cursor_is_read_by_what_it_falls_back_to(session: MarkedSession) -> None:
    marks = await session.open_html("""
      <p style="cursor: url(none.png), auto">arrow</p>
      <p style="cursor: url(none.png), pointer">hand</p> <p style="cursor: grab">grab</p>""")
    assert marks.names() == ["hand", "grab"]


async def test_image_map_areas_and_svg_links(session: MarkedSession) -> None:
    marks = await session.open("overlap.html")
    left, right = marks.rect(marks.label("Left half")), marks.rect(marks.label("Right half"))
    assert left is not None
    assert right is not None
    assert left.right == pytest.approx(right.left)
    for name, element in [
        *(("Left half", "area-left"), ("Right half", "area-right"), ("SVG link", "svg-link")),
    ]:
        await session.click_label(marks.label(name))
        assert await session.log() == f"clicked {element}"


async def test_shapes_of_areas(session: MarkedSession) -> None:
    marks = await session.open_html("""<img usemap="#m" width="300" height="100"
      style="padding: 7px"
      src="data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==">
      <map name="m" onclick="document.title = event.target.alt">
      <area shape="circle" coords="50,50,40" href="#c" alt="circle">
      <area shape="poly" coords="110,10,190,10,190,90" href="#p" alt="triangle">
      <area shape="default" href="#d" alt="rest"></map>""")
    assert sorted(marks.names()) == ["circle", "rest", "triangle"]
    for name in marks.names():
        await session.click_label(marks.label(name))
        assert await session.evaluate("document.title") == name


async def test_painted_check_box_is_clicked_by_its_label(session: MarkedSession) -> None:
    marks = await session.open("forms.html")
    assert marks.of("Express")["tag_name"] == "label"
    # The other labels have controls that can be clicked themselves.
    tags = [marks.regions[label]["tag_name"] for label in marks.visible]
    assert tags.count("label") == 1
    await session.click_label(marks.label("Express"))
    assert await session.log() == "input custom-check = on\nchange custom-check = on"


async def test_label_without_a_pointer_stands_in_for_its_hidden_control(
    session: MarkedSession,
) -> None:
    marks = await session.open_html("""
      <input type="checkbox" id="a" hidden><label for="a">Hidden</label>
      <input type="checkbox" id="b" hidden disabled><label for="b">Disabled</label>
      <input type="checkbox" id="c"><label for="c">Shown</label>
      <label>Over <input type="checkbox" id="d" style="opacity: 0"></label>""")
    tags = [
        (marks.regions[label]["tag_name"], name)
        for label, name in zip(marks.visible, marks.names(), strict=True)
    ]
    assert tags == [
        *(("label", "Hidden"), ("input, type=checkbox", "Shown"), ("input, type=checkbox", "Over")),
    ]


async def test_options_are_listed_while_their_drop_down_has_the_focus(
    session: MarkedSession,
) -> None:
    marks = await session.open("forms.html")
    assert not marks.labels("Green")
    await session.click_label(marks.label("Colour"))
    marks = await session.mark()
    listed = [marks.label(name) for name in ("Red", "Green", "Blue")]
    assert [marks.rect(label) for label in listed] == [None, None, None]
    assert marks.visible[-3:] == listed
    assert marks.of("Red")["value"] == "selected"
    await session.execute("select_option", id=marks.label("Green"))
    assert await session.log() == "input select = green\nchange select = green"
    # An agent that only knows how to click chooses as well.
    await session.click_label(marks.label("Blue"))
    assert (await session.log()).endswith("input select = blue\nchange select = blue")


async def test_options_of_a_list_box_are_clicked(session: MarkedSession) -> None:
    marks = await session.open("forms.html")
    await session.click_label(marks.label("Olives"))
    assert await session.text("value") == "listbox = olives"
    # Those that the list must be scrolled to are labelled too.
    assert {"Pepper", "Tomato"} <= set(names_off_screen(marks))
    await session.click_label(marks.label("Tomato"))
    assert await session.text("value") == "listbox = tomato"
    await session.execute("select_option", id=marks.label("Olives"))
    assert await session.text("value") == "listbox = olives,tomato"


async def test_shadow_roots_are_looked_into_and_closed_ones_do_no_harm(
    session: MarkedSession,
) -> None:
    marks = await session.open("shadow.html")
    names = marks.names()
    for name in [
        *("Light button", "Outer button", "Outer link", "Outer pointer", "Inner button"),
        *("Inner input", "Button beside the slot", "Slotted button", "Slotted link"),
    ]:
        assert name in names
    assert not {"Closed button", "Never shown"} & set(names)
    for name in ("Outer button", "Inner button", "Slotted button", "Button beside the slot"):
        await session.click_label(marks.label(name))
    await session.fill(marks.label("Inner input"), "typed")
    lines = (await session.log()).splitlines()
    assert lines == [
        f"clicked {name}-button" for name in ("outer", "inner", "slotted", "slot-shadow")
    ]
    assert (
        await session.evaluate(
            """document.getElementById('outer-host').shadowRoot.getElementById('inner-host').shadowRoot
          .getElementById('inner-value').textContent"""
        )
        == "typed"
    )


async def test_cursor_that_comes_through_a_slot_marks_nothing_twice(
    session: MarkedSession,
) -> None:
    await session.open("empty.html")
    await session.evaluate("""(() => {
      const host = document.createElement("my-button");
      host.innerHTML = "<span>Press</span>";
      host.attachShadow({ mode: "open" }).innerHTML =
        "<div role='button' style='cursor: pointer'><slot></slot></div>";
      document.body.append(host);
    })(), 0""")
    marks = await session.mark()
    (label,) = marks.visible
    assert marks.regions[label]["role"] == "button"


async def test_no_two_boxes_are_of_one_element(session: MarkedSession) -> None:
    marks = await session.open("overlap.html")
    boxes = list(marks.boxed())
    for (one, box), (other, box_of_other) in itertools.combinations(boxes, 2):
        same = marks.regions[one]["aria_name"] == marks.regions[other]["aria_name"]
        assert not (same and box == box_of_other)


async def test_click_on_an_off_screen_label_scrolls_to_it(session: MarkedSession) -> None:
    marks = await session.open("scroll.html")
    for name, element in [
        *(("Button at 3900", "mark-3900"), ("Bottom of the nested box", "nested-bottom")),
        *(("Far right", "horizontal-right"), ("Inner button", "inner-button")),
        *(("Button at 1200", "mark-1200"), ("Top of the nested box", "nested-top")),
    ]:
        await session.click_label(marks.label(name, "button"))
        assert await session.log() == f"clicked {element}"


async def test_container_is_clicked_beside_the_buttons_in_it(session: MarkedSession) -> None:
    marks = await session.open_html("""<div tabindex="0" aria-label="Card" style="width: 200px;
      height: 100px" onclick="document.title += ' card'"><button style="width: 180px; height: 80px;
      margin: 10px" onclick="document.title += ' button'; event.stopPropagation()">Buy</button>
      </div>""")
    await session.click_label(marks.label("Card"))
    await session.click_label(marks.label("Buy"))
    assert (await session.evaluate("document.title")).split()[-2:] == ["card", "button"]


async def test_picture_in_an_inline_link_is_part_of_its_box(session: MarkedSession) -> None:
    marks = await session.open_html("""<p><a href="#x"><img alt="Picture" width="200" height="150"
      src="data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="></a></p>
      <a href="#y" style="display: contents"><b>Bare</b></a>""")
    box = marks.rect(marks.label("Picture"))
    assert box is not None
    assert box.bottom - box.top >= 150
    assert marks.names() == ["Picture", "Bare"]
