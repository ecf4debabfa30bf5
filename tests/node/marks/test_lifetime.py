"""How long a label holds: to the next marked screenshot, and only while its element is there."""

from typing import Any

import pytest

from omniboxes.errors import NotInteractable, StaleMark
from tests.node.instances.driving import Server
from tests.node.marks.driving import MarkedSession, Marks
from tests.site_server import Site

pytestmark = pytest.mark.browser


@pytest.fixture
async def marks(session: MarkedSession) -> Marks:
    return await session.open("removed.html")


async def assert_stale(session: MarkedSession, label: str) -> None:
    """Every command on the label is refused, and nothing is clicked."""
    for command in ("click_id", "hover_id", "fill_id", "scroll_id", "select_option"):
        arguments: dict[str, Any] = {"id": label}
        if command == "fill_id":
            arguments["value"] = "x"
        with pytest.raises(StaleMark, match=f"mark {label}|{label} is not a mark"):
            await session.execute(command, **arguments)


async def test_label_holds_over_everything_but_a_marked_screenshot(
    session: MarkedSession, marks: Marks
) -> None:
    target = marks.label("Target C")
    await session.call("GET", "/screenshot", params={"interaction_mode": "coordinates"})
    await session.call("GET", "/metadata")
    await session.execute("get_interactive_rects")
    await session.click_label(marks.label("Insert before all"))
    await session.execute("get_interactive_rects")
    await session.step("page_down")
    await session.execute("screenshot", interaction_mode="coordinates")
    await session.execute("get_webpage_text")
    await session.execute("keypress", keys=["Tab"])
    await session.click_label(target)
    assert await session.log() == "clicked target-c"
    assert (await session.shown()).info == marks.info


async def test_removed_element_is_stale(session: MarkedSession, marks: Marks) -> None:
    await session.click_label(marks.label("Remove A"))
    await assert_stale(session, marks.label("Target A"))
    assert await session.log() == "removed A"
    await session.click_label(marks.label("Target B"))
    assert await session.log() == "clicked target-b"


async def test_identical_copy_is_not_the_element(session: MarkedSession, marks: Marks) -> None:
    await session.click_label(marks.label("Replace B"))
    await assert_stale(session, marks.label("Target B"))
    assert await session.log() == "replaced B"
    again = await session.mark()
    await session.click_label(again.label("Target B"))
    assert await session.log() == "clicked the copy of target-b"


async def test_moved_element_keeps_its_label(session: MarkedSession, marks: Marks) -> None:
    await session.click_label(marks.label("Move C"))
    await session.click_label(marks.label("Target C"))
    assert await session.log() == "clicked target-c"


async def test_hidden_element_is_refused_but_not_stale(
    session: MarkedSession, marks: Marks
) -> None:
    await session.click_label(marks.label("Hide D"))
    with pytest.raises(NotInteractable):
        await session.click_label(marks.label("Target D"))
    assert await session.log() == "hid D"
    await session.evaluate("document.getElementById('target-d').style.display = '', 0")
    await session.click_label(marks.label("Target D"))
    assert await session.log() == "clicked target-d"


async def test_new_elements_do_not_shift_labels(session: MarkedSession, marks: Marks) -> None:
    await session.click_label(marks.label("Insert before all"))
    await session.click_label(marks.label("Target A"))
    assert await session.log() == "clicked target-a"
    assert "Inserted 1" not in (await session.shown()).names()
    again = await session.mark()
    assert again.names()[0] == "Inserted 1"
    assert again.label("Target A") != marks.label("Target A")
    await session.click_label(again.label("Target A"))
    assert await session.log() == "clicked target-a"


async def test_rewritten_document_spoils_all_labels(session: MarkedSession, marks: Marks) -> None:
    await session.click_label(marks.label("Rewrite the document"))
    for label in marks.visible:
        with pytest.raises(StaleMark):
            await session.click_label(label)
    assert (await session.mark()).names() == ["New"]


async def test_navigation_spoils_all_labels(session: MarkedSession, marks: Marks) -> None:
    await session.execute("visit_page", url=f"{session.site.url}/shop.html")
    await assert_stale(session, "1")
    assert await session.execute("get_screenshot_info") == {"error": "No screenshot info available"}
    await session.execute("back")
    await assert_stale(session, marks.label("Target A"))


async def test_reload_spoils_all_labels(session: MarkedSession, marks: Marks) -> None:
    await session.execute("keypress", keys=["F5"])
    await session.evaluate("location.reload(), 0")
    await assert_stale(session, marks.label("Target A"))
    assert await session.log() == "nothing"


async def test_navigation_to_another_site_and_renderer(
    session: MarkedSession, marks: Marks
) -> None:
    # Another site means another renderer, which counts its worlds from the start again.
    await session.execute("visit_page", url=f"{session.site.cross_origin_url}/removed.html")
    for label in marks.visible:
        with pytest.raises(StaleMark):
            await session.click_label(label)
    assert await session.log() == "nothing"


async def test_change_of_the_address_keeps_labels(session: MarkedSession, marks: Marks) -> None:
    await session.evaluate("history.pushState(null, '', '?elsewhere'), 0")
    await session.evaluate("location.hash = 'part', 0")
    await session.click_label(marks.label("Target A"))
    assert await session.log() == "clicked target-a"


async def test_unknown_labels(session: MarkedSession, marks: Marks) -> None:
    for label in ("0", str(len(marks.all) + 1), "999999999"):
        await assert_stale(session, label)


async def test_no_label_before_the_first_marked_screenshot(session: MarkedSession) -> None:
    await session.execute("visit_page", url=f"{session.site.url}/shop.html")
    assert await session.execute("get_screenshot_info") == {"error": "No screenshot info available"}
    await assert_stale(session, "1")


async def test_interactive_rects_extend_the_labels(session: MarkedSession, marks: Marks) -> None:
    await session.click_label(marks.label("Insert before all"))
    rects = await session.execute("get_interactive_rects")
    known = {label: region["aria_name"] for label, region in marks.regions.items()}
    assert known.items() <= {label: r["aria_name"] for label, r in rects.items()}.items()
    ((new, region),) = [(label, r) for label, r in rects.items() if label not in known]
    assert region["aria_name"] == "Inserted 1"
    await session.click_label(new)
    assert await session.log() == "clicked inserted-1"
    # A second look gives the same numbers.
    assert set(await session.execute("get_interactive_rects")) == set(rects)


async def test_interactive_rects_give_labels_without_a_screenshot(session: MarkedSession) -> None:
    await session.execute("visit_page", url=f"{session.site.url}/removed.html")
    rects = await session.execute("get_interactive_rects")
    (label,) = [label for label, r in rects.items() if r["aria_name"] == "Target A"]
    await session.click_label(label)
    assert await session.log() == "clicked target-a"
    assert "error" in await session.execute("get_screenshot_info")


async def test_labels_of_one_tab_do_not_act_on_another(session: MarkedSession) -> None:
    first = await session.open("popups.html")
    await session.evaluate("window.open('removed.html'), 0")
    assert len((await session.execute("list_tabs"))["tabs"]) == 2
    with pytest.raises(StaleMark):
        await session.click_label(first.visible[0])
    second = await session.mark()
    await session.execute("switch_tab", index=0)
    # The last marked screenshot showed the other page.
    for label in first.visible:
        with pytest.raises(StaleMark):
            await session.click_label(label)
    assert "error" in await session.execute("get_screenshot_info")
    await session.execute("switch_tab", index=1)
    await session.click_label(second.label("Target A"))
    assert await session.log() == "clicked target-a"


async def test_labels_of_one_session_are_unknown_in_another(
    session: MarkedSession, marks: Marks, server: Server, site: Site
) -> None:
    async with server.leased(site) as leased:
        other = MarkedSession(leased.server, leased.site, leased.id)
        await other.visit("removed.html")
        await assert_stale(other, marks.label("Target A"))
        assert "error" in await other.execute("get_screenshot_info")
