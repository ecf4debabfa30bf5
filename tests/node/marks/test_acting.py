"""What commands do to the element of a label: fill, hover, scroll, choose."""

import pytest

from omniboxes.errors import InvalidRequest
from tests.node.marks.driving import MarkedSession

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("name", "element", "value"),
    [
        ("Text", "text-input", "Grüße, 世界"),
        ("Password", "password-input", "s3cret"),
        ("Email", "email-input", "a@b.example"),
        ("Search", "search-input", "tea"),
        ("Notes", "textarea", "two\nlines"),
        ("Rich text", "editable", "rich"),
        ("Quantity", "number", "42"),
        ("Date", "date", "2025-01-31"),
        ("Volume", "range", "77"),
        ("Colour", "select", "Green"),
    ],
)
async def test_fields_are_filled(
    session: MarkedSession, name: str, element: str, value: str
) -> None:
    marks = await session.open("forms.html")
    await session.fill(marks.label(name), value)
    node = f"document.getElementById('{element}')"
    held = await session.evaluate(f"{node}.value ?? {node}.innerText")
    assert held == ("green" if element == "select" else value)
    assert f"{element} = " in await session.text("value")
    record = (await session.mark()).of(name)
    if element != "password-input":
        assert record["value"] == " ".join(value.split())


async def test_filling_appends_unless_told_to_delete(session: MarkedSession) -> None:
    marks = await session.open("forms.html")
    await session.fill(marks.label("Text"), " and more", delete_existing=False)
    assert (await session.mark()).of("Text")["value"] == "preset and more"


async def test_filling_presses_enter(session: MarkedSession) -> None:
    marks = await session.open("forms.html")
    await session.fill(marks.label("Search"), "tea", press_enter=True)
    assert "search = tea" in await session.text("log")


async def test_filling_a_date_presses_enter_too(session: MarkedSession) -> None:
    marks = await session.open("forms.html")
    await session.fill(marks.label("Date"), "2025-01-31", press_enter=True)
    assert "date = 2025-01-31" in await session.text("log")


async def test_value_that_a_date_cannot_have(session: MarkedSession) -> None:
    marks = await session.open("forms.html")
    with pytest.raises(InvalidRequest, match=r"^value: .*date.*2025-01-31"):
        await session.fill(marks.label("Date"), "tomorrow")
    assert (await session.mark()).of("Date")["value"] == "2024-05-17"


async def test_value_that_a_drop_down_does_not_offer(session: MarkedSession) -> None:
    marks = await session.open("forms.html")
    with pytest.raises(InvalidRequest, match=r"^value: .*Red, Green, Blue"):
        await session.fill(marks.label("Colour"), "Mauve")
    assert (await session.mark()).of("Colour")["value"] == "Red"


async def test_field_in_a_wrapper_is_what_is_filled(session: MarkedSession) -> None:
    marks = await session.open_html("""<div role="combobox" aria-label="City" style="padding: 40px">
      <input id="inner" aria-label="Inner" style="width: 20px"></div>
      <label style="cursor: pointer">Wrapped <input id="wrapped" style="width: 20px"></label>""")
    await session.fill(marks.label("City"), "Oslo")
    assert await session.evaluate("document.getElementById('inner').value") == "Oslo"
    await session.fill(marks.label("Wrapped", "label"), "Rome")
    assert await session.evaluate("document.getElementById('wrapped').value") == "Rome"


async def test_hover_moves_the_mouse_over_the_element(session: MarkedSession) -> None:
    marks = await session.open_html("""<button onmouseenter="document.title = 'over'"
      onmouseleave="document.title = 'left'">Over</button><p><button>Else</button></p>""")
    await session.execute("hover_id", id=marks.label("Over"))
    assert await session.evaluate("document.title") == "over"
    await session.execute("hover_id", id=marks.label("Else"))
    assert await session.evaluate("document.title") == "left"


async def test_scroll_in_four_directions(session: MarkedSession) -> None:
    marks = await session.open("scroll.html")
    boxes = {
        marks.regions[label]["aria_name"]: label
        for label in marks.visible
        if marks.regions[label]["tag_name"] == "div"
    }
    nested, horizontal = boxes.values()
    for label, direction, expected in [
        (nested, "down", "nested 0,250 "),
        (nested, "down", "nested 0,500 "),
        (nested, "up", "nested 0,250 "),
        (horizontal, "right", "horizontal 600,0"),
        (horizontal, "left", "horizontal 0,0"),
    ]:
        answer = await session.execute("scroll_id", id=label, direction=direction)
        assert answer["moved"]
        assert expected in f"{await session.text('position')} "
    assert not (await session.execute("scroll_id", id=horizontal, direction="left"))["moved"]


async def test_scrolling_what_does_not_scroll_scrolls_the_box_around_it(
    session: MarkedSession,
) -> None:
    marks = await session.open("scroll.html")
    for name, direction, expected in [
        ("Inner button", "down", "inner 0,120"),
        ("Top of the nested box", "down", "nested 0,250"),
        ("Far right", "right", "horizontal 600,0"),
        ("Button at 600", "down", "window 0,768"),
        ("Button at 600", "up", "window 0,0"),
    ]:
        await session.execute("scroll_id", id=marks.label(name, "button"), direction=direction)
        assert expected in await session.text("position")


async def test_scrolling_inside_frames(session: MarkedSession) -> None:
    marks = await session.open("frames.html")
    # A frame that does not scroll itself scrolls the page.
    await session.execute("scroll_id", id=marks.label("Click same"), direction="down")
    assert await session.evaluate("scrollY") > 0
    await session.execute("scroll_id", id=marks.label("Click same"), direction="up")
    own, foreign = marks.labels("Scrolled into view")
    await session.execute("scroll_id", id=own, direction="down")
    assert await session.evaluate("frames['scrolled'].scrollY") > 400
    assert (await session.execute("scroll_id", id=foreign, direction="down"))["moved"]


async def test_options_of_an_aria_list_are_chosen(session: MarkedSession) -> None:
    marks = await session.open("combobox.html")
    await session.click_label(marks.label("Country"))
    marks = await session.mark()
    assert marks.of("Canada")["role"] == "option"
    await session.execute("select_option", id=marks.label("Canada"))
    assert await session.text("country-value") == "Canada"


async def test_option_of_a_list_that_closed_since_is_chosen(session: MarkedSession) -> None:
    marks = await session.open("combobox.html")
    await session.click_label(marks.label("Country"))
    marks = await session.mark()
    await session.evaluate("document.getElementById('country').blur(), 0")
    assert "Canada" not in await session.page_text()
    await session.execute("select_option", id=marks.label("Canada"))
    assert await session.text("country-value") == "Canada"


async def test_menu_is_opened_and_an_item_clicked(session: MarkedSession) -> None:
    marks = await session.open("combobox.html")
    assert not marks.labels("Copy")
    await session.click_label(marks.label("Actions"))
    marks = await session.mark()
    await session.click_label(marks.label("Copy"))
    assert await session.log() == "chose Copy"


async def test_typed_combobox(session: MarkedSession) -> None:
    marks = await session.open("combobox.html")
    await session.fill(marks.label("Country"), "F")
    marks = await session.mark()
    assert [n for n in marks.names() if n in ("Finland", "France", "Greece")] == [
        "Finland",
        "France",
    ]
    await session.click_label(marks.label("France"))
    assert await session.text("country-value") == "France"


async def test_what_choosing_starts_is_waited_for(session: MarkedSession) -> None:
    marks = await session.open_html("""<select id="s" aria-label="Size"><option>S</option>
      <option>L</option></select><input type="date" aria-label="Day"><p id="log">idle</p>""")
    await session.evaluate("""document.body.addEventListener("change", async () => {
      await fetch("/slow?ms=150");
      document.getElementById("log").textContent += " fetched";
    }), 0""")
    await session.click_label(marks.label("Size"))
    marks = await session.mark()
    await session.click_label(marks.label("L"))
    assert await session.log() == "idle fetched"
    await session.fill(marks.label("Day"), "2025-01-31")
    assert await session.log() == "idle fetched fetched"
