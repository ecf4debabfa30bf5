"""Pages that misbehave, clients that interfere: a typed answer in time, and the session lives."""

import asyncio
import time
from typing import Any

import pytest

from omniboxes.common.commands import BY_NAME
from omniboxes.errors import DeadlineExceeded, InstanceNotFound, InvalidRequest
from tests.node.instances.driving import DEADLINE_HEADER, Server, Session
from tests.site_server import Site

pytestmark = pytest.mark.browser

# An answer may be late by what a loaded machine takes to interrupt a page.
SLACK_S = 3.0


async def assert_healthy(session: Session) -> None:
    """Assert that the session can be used, and that the next tenant gets a clean one."""
    assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"
    await session.reset()
    async with session.server.leased(session.site) as fresh:
        assert (await fresh.step()).metadata["url"] == "about:blank"
        assert (await fresh.visit("landing.html")).metadata["title"] == "Landing"


# Scripts and loads without end.


async def test_endless_script_is_504_and_the_page_goes_on(session: Session) -> None:
    await session.visit("endless-script.html")
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"within 1\.5 s"):
        await session.click("spin", shows="log", deadline_s=1.5)
    assert time.monotonic() - started < 1.5 + SLACK_S
    assert await session.text("log") == "spinning"
    # The same page reacts again.
    step = await session.click("busy-1000", shows="log")
    assert step.value == "was busy"
    await assert_healthy(session)


async def test_script_that_becomes_endless_later_is_504(session: Session) -> None:
    await session.visit("endless-script.html")
    with pytest.raises(DeadlineExceeded):
        await session.click("spin-later", shows="log", deadline_s=1.5)
    await assert_healthy(session)


async def test_page_that_never_ends_parsing_is_504_then_shown(session: Session) -> None:
    with pytest.raises(DeadlineExceeded):
        await session.visit("endless-on-load.html", deadline_s=1.5)
    assert "Never seen" in await session.page_text()
    await assert_healthy(session)


@pytest.mark.parametrize("expression", ["for (;;);", "new Promise(() => {})"])
async def test_expression_without_end_is_504(session: Session, expression: str) -> None:
    await session.visit("timers.html")
    with pytest.raises(DeadlineExceeded):
        await session.execute("evaluate", expression=expression, deadline_s=0.7)
    with pytest.raises(DeadlineExceeded):
        await session.step(options={"expression": expression}, deadline_s=0.7)
    assert (await session.click("timer-400")).value == "done"
    await assert_healthy(session)


async def test_server_that_never_answers_is_504(session: Session) -> None:
    await session.visit("empty.html")
    with pytest.raises(DeadlineExceeded):
        await session.visit("hang", deadline_s=0.7)
    # The page that was there is still there.
    assert await session.evaluate("document.title") == "Nothing to press"
    await assert_healthy(session)


async def test_session_is_released_while_its_page_runs_wild(session: Session) -> None:
    await session.visit("endless-script.html")
    at = await session.centre("spin")
    running = asyncio.create_task(session.execute("click_coords", **at))
    await asyncio.sleep(0.3)
    await session.reset()
    with pytest.raises(InstanceNotFound):
        await running
    async with session.server.leased(session.site) as fresh:
        assert (await fresh.visit("empty.html")).metadata["title"] == "Nothing to press"


async def test_long_page_is_shown_before_the_deadline(session: Session) -> None:
    step = await session.visit("big?mb=50&hidden=1")
    assert step.metadata["title"] == "Big page"
    assert "Chapter 0" in (await session.execute("get_webpage_text", n_lines=5))["text"]
    await assert_healthy(session)


@pytest.mark.slow
async def test_page_of_50_megabytes_of_text_ends_in_time(session: Session) -> None:
    started = time.monotonic()
    try:
        step = await session.visit("big?mb=50")
        assert step.metadata["title"] == "Big page"
    except DeadlineExceeded:
        pass  # laying it out takes a slow machine longer than a command may take
    assert time.monotonic() - started < 30 + SLACK_S
    await assert_healthy(session)


# Dialogs.


@pytest.mark.parametrize(
    ("element", "shown", "message"),
    [
        ("alert", "alert closed", "An alert"),
        ("confirm", "confirm answered false", "Are you sure?"),
        ("prompt", "prompt answered null", "Your name?"),
        ("alert-timer", "alert closed", "A late alert"),
        ("alert-fetch", "slow answer", "An alert before a request"),
    ],
)
async def test_dialog_is_dismissed_and_reported(
    shared: Session, element: str, shown: str, message: str
) -> None:
    await shared.visit("dialogs.html")
    step = await shared.click(element)
    assert step.value == shown
    kind = element.partition("-")[0]
    assert step.fields["dialogs"] == [{"type": kind, "message": message}]
    assert "dialogs" not in (await shared.step()).fields


async def test_dialog_on_load_is_reported_by_the_visit(session: Session) -> None:
    answer = await session.execute("visit_page", url=f"{session.site.url}/alert-on-load.html")
    assert answer["dialogs"] == [{"type": "alert", "message": "Welcome"}]
    assert await session.text("log") == "after the alert"


async def test_dialogs_in_a_row_are_all_dismissed(session: Session) -> None:
    step = await session.visit("alert-loop.html")
    assert [d["message"] for d in step.fields["dialogs"]] == [
        f"Alert {n} of 5" for n in range(1, 6)
    ]
    assert (await session.click("again", shows="log")).value == "10"


async def test_dialogs_without_end_are_504_and_the_page_goes_on(session: Session) -> None:
    await session.visit("timers.html")
    with pytest.raises(DeadlineExceeded):
        await session.execute("evaluate", expression="for (;;) alert('again')", deadline_s=1)
    # They are reported, but not without end.
    assert len((await session.step("sleep", duration=0)).fields["dialogs"]) == 20
    assert (await session.click("sync")).value == "done"
    await assert_healthy(session)


async def test_question_before_leaving_does_not_hold_up_the_way_out(session: Session) -> None:
    for leave in ("link", "visit", "back"):
        await session.visit("landing.html")
        await session.visit("beforeunload.html")
        assert (await session.click("touch", shows="log")).value == "clicked"
        if leave == "link":
            step = await session.click("leave", shows="log")
            assert step.value == "arrived at /landing.html?from=beforeunload"
        elif leave == "visit":
            step = await session.visit("landing.html")
        else:
            step = await session.step("back")
        assert step.metadata["title"] == "Landing"
        assert [d["type"] for d in step.fields["dialogs"]] == ["beforeunload"]
    await assert_healthy(session)


# Clients.


async def test_commands_of_one_session_run_one_after_the_other(session: Session) -> None:
    await session.visit("timers.html")
    await session.evaluate("window.log = []; 0")
    busy = """(async () => { log.push("begin"); await new Promise((r) => setTimeout(r, 100));
      log.push("end"); })()"""
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(session.execute("evaluate", expression=busy))
            group.create_task(session.step())
    assert await session.evaluate("log") == ["begin", "end"] * 5


async def test_deadline_counts_while_a_command_waits_for_its_turn(session: Session) -> None:
    running = asyncio.create_task(session.execute("sleep", duration=2))
    await asyncio.sleep(0.1)
    with pytest.raises(DeadlineExceeded):
        await session.step(deadline_s=0.3)
    assert (await running)["status"] == "success"


async def test_sessions_do_not_wait_for_each_other(server: Server, site: Site) -> None:
    async with server.leased(site) as first, server.leased(site) as second:
        running = asyncio.create_task(first.execute("sleep", duration=5))
        await second.visit("empty.html")
        assert not running.done()
        await first.reset()
        with pytest.raises(InstanceNotFound):
            await running


async def test_client_that_goes_away_leaves_the_session_usable(session: Session) -> None:
    await session.visit("timers.html")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await session.execute("sleep", duration=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await session.click("timer-400")
    assert (await session.click("timer-chain")).value == "done"


async def test_released_session_is_400_on_every_route(session: Session) -> None:
    await session.reset()
    for method, path, body in (
        ("GET", "/metadata", None),
        ("GET", "/probe", None),
        ("GET", "/screenshot", None),
        ("POST", "/step", {}),
        ("POST", "/execute", {"get_webpage_text": {}}),
        ("POST", "/reset", None),
    ):
        with pytest.raises(InstanceNotFound):
            await session.call(method, path, json=body)


async def test_command_in_flight_ends_with_400_when_its_session_is_released(
    session: Session,
) -> None:
    running = asyncio.create_task(session.execute("sleep", duration=20))
    await asyncio.sleep(0.2)
    waiting = asyncio.create_task(session.step())
    await asyncio.sleep(0.1)
    async with asyncio.timeout(SLACK_S):
        await session.reset()
        for command in (running, waiting):
            with pytest.raises(InstanceNotFound, match="already released"):
                await command


@pytest.mark.parametrize("deadline", ["soon", "-1", "0", "nan", "inf"])
async def test_deadline_that_is_no_number_of_seconds_is_refused(
    shared: Session, deadline: str
) -> None:
    async with shared.server.client.get(
        "/metadata", params={"instance_id": shared.id}, headers={DEADLINE_HEADER: deadline}
    ) as answer:
        assert answer.status == InvalidRequest.status
        assert DEADLINE_HEADER in (await answer.json())["detail"]


async def test_probe_asks_the_page_itself(session: Session) -> None:
    await session.visit("endless-script.html")
    assert (await session.call("GET", "/probe"))["status"] == "success"
    await session.evaluate("setTimeout(() => { for (;;); }, 600); 0")
    await asyncio.sleep(0.8)
    with pytest.raises(DeadlineExceeded):
        await session.call("GET", "/probe", deadline_s=0.5)
    assert (await session.call("GET", "/probe"))["status"] == "success"


ARGUMENTS: dict[str, dict[str, Any]] = {
    "visit_page": {"url": "about:blank"},
    "evaluate": {"expression": "1"},
    "sleep": {"duration": 0},
    "keypress": {"keys": ["a"]},
    "drag_coords": {"x": 5, "y": 5, "to_x": 9, "to_y": 9},
    "switch_tab": {"index": 0},
}


async def test_every_command_can_be_a_step(shared: Session) -> None:
    for name, command in BY_NAME.items():
        await shared.visit("timers.html")
        await shared.step(options={"interaction_mode": "set_of_marks"})
        given = {"x": 300, "y": 300, "id": "1", "value": "text"}
        needed = command.model_json_schema().get("required", [])
        arguments = ARGUMENTS.get(name) or {field: given[field] for field in needed}
        step = await shared.step(name, **arguments)
        assert step.image.startswith(b"\x89PNG"), name


async def test_deadline_of_a_pause_leaves_the_pages_scripts_alone(session: Session) -> None:
    await session.visit("timers.html")
    await session.evaluate("setTimeout(() => { document.title = 'ran'; }, 900); 0")
    with pytest.raises(DeadlineExceeded):
        await session.execute("sleep", duration=5, deadline_s=0.3)
    assert (await session.step("sleep", duration=1)).metadata["title"] == "ran"
