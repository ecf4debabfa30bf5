"""Windows that sites open: the new one is active and reported; closing it returns to its opener."""

import pytest

from omniboxes.errors import InvalidRequest
from tests.node.instances.driving import Session, reading

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("element", "title"),
    [
        ("open", "Popup open"),
        ("open-window", "Popup window"),
        ("open-timer", "Popup timer"),
        ("open-blank", "Written popup"),
        ("blank-link", "Popup blank-link"),
        ("noopener-link", "Popup noopener"),
        ("named-link", "Popup named"),
        ("blank-submit", "Echo"),
    ],
)
async def test_window_that_a_click_opens_becomes_active(
    session: Session, element: str, title: str
) -> None:
    await session.visit("popups.html")
    step = await session.click(element, shows="log")
    assert step.metadata["title"] == title
    assert step.fields["opened_tabs"] == 1
    assert step.fields["tabs"] == {"count": 2, "active": 1}
    # A small window is as large as any other: coordinates mean the same everywhere.
    assert (step.metadata["width"], step.metadata["height"]) == (1280, 768)
    answer = await session.execute("close_tab")
    assert answer["tabs"] == {"count": 1, "active": 0}
    assert await session.evaluate("document.title") == "Popups"


async def test_new_window_is_seen_used_and_settled(session: Session) -> None:
    await session.visit("popups.html")
    before = await session.step()
    opened = await session.click("open", shows="name")
    assert opened.value == "Popup open"
    assert opened.image != before.image
    step = await session.click("button", shows="log")
    assert step.value == "1"
    assert step.fields["tabs"] == {"count": 2, "active": 1}
    assert "opened_tabs" not in step.fields
    await session.evaluate("onclick = () => setTimeout(() => { document.title = 'late'; }, 300); 0")
    step = await session.step("click_coords", x=600, y=600)
    assert (step.metadata["title"], step.waited_for) == ("late", ["timer"])


async def test_named_window_is_used_again(session: Session) -> None:
    await session.visit("popups.html")
    await session.click("named-link", shows="log")
    await session.execute("switch_tab", index=0)
    step = await session.click("named-link", shows="log")
    assert step.fields["tabs"]["count"] == 2


async def test_window_that_closes_itself_returns_to_its_opener(session: Session) -> None:
    await session.visit("popups.html")
    await session.click("open", shows="log")
    step = await session.click("close", shows="log")
    assert step.metadata["title"] == "Popups"
    assert step.fields["closed_tabs"] == 1
    assert step.fields["tabs"] == {"count": 1, "active": 0}
    assert "open: loaded" in step.value


async def test_window_that_closes_itself_at_once_is_no_trouble(session: Session) -> None:
    await session.visit("popups.html")
    step = await session.click("open-self-closing", shows="log")
    assert step.metadata["title"] == "Popups"
    assert "self-closing: opened" in step.value
    assert (await session.execute("list_tabs"))["tabs"][0]["active"] is True


async def test_fifteen_windows_at_once_stay_within_the_limit(session: Session) -> None:
    await session.visit("popups.html")
    step = await session.click("open-fifteen", shows="name")
    assert step.fields["opened_tabs"] == 9
    assert step.fields["closed_tabs"] == 6
    assert step.fields["tabs"]["count"] == 10
    assert step.value.startswith("Popup fifteen-")
    tabs = (await session.execute("list_tabs"))["tabs"]
    assert [tab["index"] for tab in tabs if tab["active"]] == [step.fields["tabs"]["active"]]
    # And none of those beyond the limit has stayed behind, out of sight.
    await session.execute("switch_tab", index=0)
    step = await session.click("open", shows="log")
    assert step.fields["tabs"]["count"] == 10
    assert step.fields["closed_tabs"] == 1
    assert step.metadata["title"] == "Popups"


async def test_window_whose_server_does_not_answer_does_not_hold_up_the_session(
    session: Session,
) -> None:
    await session.visit("popups.html")
    await session.evaluate(
        "document.getElementById('open').onclick = () => window.open('/hang'); 0"
    )
    step = await session.click("open", shows="log")
    assert step.metadata["title"] == "Popups"
    assert (await session.click("open-blank", shows="log")).metadata["title"] == "Written popup"


async def test_window_of_a_slow_server_is_waited_for(session: Session) -> None:
    await session.visit("popups.html")
    await session.evaluate("""document.getElementById("open").onclick = () =>
      window.open("/slow-page?ms=900"); 0""")
    step = await session.click("open", shows="log")
    assert step.metadata["title"] == "Slow page"


async def test_tabs_are_listed_switched_and_closed(session: Session) -> None:
    await session.visit("popups.html")
    await session.click("open", shows="log")
    url = session.site.url
    assert (await session.execute("list_tabs"))["tabs"] == [
        {"index": 0, "url": f"{url}/popups.html", "active": False},
        {"index": 1, "url": f"{url}/popup.html?name=open", "active": True},
    ]
    step = await session.step("switch_tab", index=0, options=reading("log"))
    assert step.metadata["title"] == "Popups"
    assert "open: loaded" in step.value
    await session.click("blank-link", shows="log")
    answer = await session.execute("close_tab", index=1)
    assert answer["tabs"] == {"count": 2, "active": 1}
    assert await session.evaluate("document.title") == "Popup blank-link"


async def test_shown_image_is_that_of_the_active_tab(session: Session) -> None:
    await session.visit("popups.html")
    first = (await session.step()).image
    second = (await session.click("open", shows="log")).image
    back = (await session.step("switch_tab", index=0)).image
    again = (await session.step("switch_tab", index=1)).image
    assert again == second
    assert back != second
    # The opener has written a line into its log meanwhile.
    assert back != first


async def test_background_tab_is_awake_when_it_is_switched_to(session: Session) -> None:
    await session.visit("popups.html")
    await session.click("open", shows="log")
    await session.execute("switch_tab", index=0)
    frames = (
        "new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r('two'))))"
    )
    assert await session.evaluate(frames) == "two"


async def test_last_tab_is_replaced_by_a_blank_one(session: Session) -> None:
    await session.visit("empty.html")
    step = await session.step("close_tab")
    assert step.metadata["url"] == "about:blank"
    assert step.fields["tabs"] == {"count": 1, "active": 0}
    assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"
    # The blank page works like the first one did: windows are followed from it, too.
    await session.visit("popups.html")
    assert (await session.click("open", shows="log")).metadata["title"] == "Popup open"


async def test_page_that_closes_its_only_window_leaves_a_blank_one(session: Session) -> None:
    await session.visit("popups.html")
    await session.click("open", shows="log")
    await session.execute("close_tab", index=0)
    step = await session.click("close", shows="log")
    assert step.metadata["url"] == "about:blank"
    assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"


@pytest.mark.parametrize("command", ["switch_tab", "close_tab"])
async def test_tab_that_does_not_exist_is_refused(session: Session, command: str) -> None:
    with pytest.raises(InvalidRequest, match="there is no tab 3; 1 are open"):
        await session.execute(command, index=3)
    with pytest.raises(InvalidRequest, match="index"):
        await session.execute(command, index=-1)


async def test_window_that_becomes_a_download_is_closed_and_reported(session: Session) -> None:
    await session.visit("navigate.html")
    await session.evaluate("document.getElementById('link-download').target = '_blank'")
    step = await session.click("link-download", shows="log")
    assert step.fields["downloads"] == ["report.csv"]
    assert step.metadata["title"] == "Navigate"
    assert len((await session.execute("list_tabs"))["tabs"]) == 1


async def test_window_for_another_program_is_not_waited_for(session: Session) -> None:
    await session.visit("navigate.html")
    await session.evaluate("document.getElementById('link-mailto').target = '_blank'")
    step = await session.click("link-mailto", shows="log")
    assert (step.reason, step.metadata["title"]) == ("idle", "Navigate")
    assert "tabs" not in step.fields
