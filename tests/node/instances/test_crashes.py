"""Renderers and Chromiums that die or freeze: typed answers at once, full capacity soon."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator

import psutil
import pytest

from omniboxes.errors import DeadlineExceeded, InstanceCrashed, InstanceNotFound
from tests.node.instances.driving import Server, Session
from tests.site_server import Site

pytestmark = pytest.mark.browser

SLOTS = 2
# How soon after a crash its commands must have ended; far below their deadline of 30 s.
AT_ONCE_S = 3.0
RECOVERY_S = 5.0


@pytest.fixture(scope="module")
async def fragile(anyio_backend: str) -> AsyncIterator[Server]:
    """A server of its own: what dies here disturbs nobody."""
    async with Server.running(SLOTS) as server:
        yield server


@pytest.fixture
async def pair(fragile: Server, site: Site) -> AsyncIterator[tuple[Session, Session]]:
    await fragile.wait_available(SLOTS)
    async with fragile.leased(site) as first, fragile.leased(site) as second:
        yield first, second


async def renderer_of(session: Session) -> psutil.Process:
    """Return the process that runs the session's page: the one that works when the page does."""

    def used() -> dict[int, float]:
        return {p.pid: p.cpu_times().user for p in session.server.renderers()}

    before = await asyncio.to_thread(used)
    await session.evaluate("(() => { const t = Date.now(); while (Date.now() - t < 400); })()")
    after = await asyncio.to_thread(used)
    return psutil.Process(max(after, key=lambda pid: after[pid] - before.get(pid, 0.0)))


async def assert_gone(session: Session) -> None:
    """Assert that every route of a crashed session says so, until it is released."""
    for method, path, body in (
        ("GET", "/metadata", None),
        ("GET", "/probe", None),
        ("GET", "/screenshot", None),
        ("POST", "/step", {}),
        ("POST", "/execute", {"get_webpage_text": {}}),
    ):
        with pytest.raises(InstanceCrashed):
            await session.call(method, path, json=body)


async def test_crashed_renderer_is_410_and_its_neighbour_lives(
    pair: tuple[Session, Session],
) -> None:
    victim, neighbour = pair
    await victim.visit("empty.html")
    await neighbour.visit("landing.html")
    process = await renderer_of(victim)
    process.kill()
    async with asyncio.timeout(AT_ONCE_S):
        while victim.id not in victim.server.gone_ids("crashed"):
            await victim.server.changed()
    await assert_gone(victim)
    assert (await neighbour.step()).metadata["title"] == "Landing"
    await victim.reset()
    with pytest.raises(InstanceNotFound):
        await victim.reset()


@pytest.mark.parametrize(
    "command",
    [
        {"sleep": {"duration": 20}},
        {"evaluate": {"expression": "new Promise(() => {})"}},
        {"evaluate": {"expression": "for (;;);"}},
        {"visit_page": {"url": "/hang"}},
    ],
    ids=["sleep", "promise", "endless", "visit"],
)
async def test_renderer_that_crashes_in_a_command_ends_it_at_once(
    pair: tuple[Session, Session], command: dict[str, dict[str, str]]
) -> None:
    session, _ = pair
    await session.visit("fetch.html")
    process = await renderer_of(session)
    if "visit_page" in command:
        command = {"visit_page": {"url": f"{session.site.url}/hang"}}
    running = asyncio.create_task(session.call("POST", "/execute", json=command))
    await asyncio.sleep(0.3)
    process.kill()
    async with asyncio.timeout(AT_ONCE_S):
        with pytest.raises(InstanceCrashed):
            await running


async def test_killed_chromium_ends_all_its_sessions_and_comes_back(
    pair: tuple[Session, Session],
) -> None:
    server = pair[0].server
    for session in pair:
        await session.visit("fetch.html")
    commands = [asyncio.create_task(session.execute("sleep", duration=20)) for session in pair]
    await asyncio.sleep(0.3)
    killed = (await asyncio.to_thread(server.chromium)).pid
    psutil.Process(killed).kill()
    started = time.monotonic()
    for command in commands:
        with pytest.raises(InstanceCrashed):
            await command
    assert time.monotonic() - started < AT_ONCE_S
    for session in pair:
        await assert_gone(session)
    async with asyncio.timeout(RECOVERY_S):
        await server.wait_available(SLOTS)
    assert (await asyncio.to_thread(server.chromium)).pid != killed
    assert {session.id for session in pair} <= server.gone_ids("crashed")
    async with server.leased(pair[0].site) as fresh:
        assert (await fresh.visit("empty.html")).metadata["title"] == "Nothing to press"


async def test_chromium_killed_while_idle_comes_back(fragile: Server, site: Site) -> None:
    await fragile.wait_available(SLOTS)
    idle = fragile.ready_ids()
    (await asyncio.to_thread(fragile.chromium)).kill()
    async with asyncio.timeout(RECOVERY_S):
        while not idle <= fragile.gone_ids():
            await fragile.changed()
        await fragile.wait_available(SLOTS)
    with pytest.raises(InstanceNotFound):
        await fragile.call("POST", "/get", params={"instance_id": idle.pop()})
    async with fragile.leased(site) as session:
        assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"


async def test_frozen_renderer_is_504_and_the_slot_survives(
    pair: tuple[Session, Session],
) -> None:
    session, neighbour = pair
    await session.visit("empty.html")
    process = await renderer_of(session)
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(DeadlineExceeded):
            await session.step("click_coords", x=5, y=5, deadline_s=0.5)
        assert (await neighbour.visit("landing.html")).metadata["title"] == "Landing"
        # Released while it hangs: the next tenant gets another one.
        await session.reset()
        async with session.server.leased(session.site) as fresh:
            assert (await fresh.visit("empty.html")).metadata["title"] == "Nothing to press"
    finally:
        if process.is_running():
            process.send_signal(signal.SIGCONT)


async def test_crash_of_idle_slots_costs_no_capacity(site: Site) -> None:
    # Without spares, nothing is being opened when all slots are there.
    async with Server.running(SLOTS, {"OMNIBOX_SPARES_PER_BROWSER": "0"}) as server:
        idle = server.ready_ids()
        for process in await asyncio.to_thread(server.renderers):
            process.kill()
        async with asyncio.timeout(RECOVERY_S):
            while not idle <= server.gone_ids("crashed"):
                await server.changed()
            async with server.leased(site) as first, server.leased(site) as second:
                for session in (first, second):
                    step = await session.visit("empty.html")
                    assert step.metadata["title"] == "Nothing to press"


async def test_death_of_the_driver_ends_the_server(site: Site) -> None:
    # The node sees it and starts another; a server without its driver could do nothing.
    async with Server.running(1) as server:
        session = Session(server, site, await server.lease())
        driver = psutil.Process(server.process.pid).children()[0]
        running = asyncio.create_task(session.execute("sleep", duration=20))
        await asyncio.sleep(0.3)
        driver.kill()
        async with asyncio.timeout(AT_ONCE_S):
            with pytest.raises(InstanceCrashed):
                await running
            await server.process.wait()
