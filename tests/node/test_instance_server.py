"""The routes of an instance server: leases, keys, bad input, events, its beginning and end."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from omniboxes.common import framing
from omniboxes.errors import (
    BodyTooLarge,
    InstanceNotFound,
    InvalidRequest,
    MethodNotAllowed,
    PoolExhausted,
    RouteNotFound,
    Unauthorized,
    UnknownCommand,
)
from tests.node.instances.driving import KEY, Server, Session
from tests.site_server import Site

pytestmark = pytest.mark.browser

SLOTS = 2
MAX_BODY_BYTES = 100_000


@pytest.fixture(scope="module")
async def server(anyio_backend: str) -> AsyncIterator[Server]:
    async with Server.running(SLOTS, {"OMNIBOX_MAX_BODY_BYTES": str(MAX_BODY_BYTES)}) as server:
        yield server


@pytest.fixture
async def session(server: Server, site: Site) -> AsyncIterator[Session]:
    async with server.leased(site) as session:
        yield session


async def test_info_counts_the_slots(server: Server, site: Site) -> None:
    await server.wait_available(SLOTS)
    assert await server.info() == {
        "ready": True,
        "in_lease": False,
        "slots": SLOTS,
        "available": SLOTS,
        "leased": 0,
    }
    async with server.leased(site):
        info = await server.info()
        assert (info["in_lease"], info["leased"]) == (True, 1)


async def test_more_leases_than_slots_are_503(server: Server, site: Site) -> None:
    await server.wait_available(SLOTS)
    async with server.leased(site), server.leased(site):
        with pytest.raises(PoolExhausted, match="No instances available"):
            await server.call("POST", "/get")


async def test_named_slot_is_leased_once(server: Server, site: Site) -> None:
    await server.wait_available(SLOTS)
    wanted = server.ready_ids().pop()
    params = {"instance_id": wanted}
    assert await server.call("POST", "/get", params=params) == {"instance_id": wanted}
    with pytest.raises(InstanceNotFound, match="already in lease"):
        await server.call("POST", "/get", params=params)
    await server.call("POST", "/reset", params=params)
    with pytest.raises(InstanceNotFound, match=f"Invalid instance UUID: {wanted}"):
        await server.call("POST", "/get", params=params)


async def test_release_makes_room_and_a_second_one_changes_nothing(
    server: Server, site: Site
) -> None:
    await server.wait_available(SLOTS)
    session = Session(server, site, await server.lease())
    await session.reset()
    await server.wait_available(SLOTS)
    with pytest.raises(InstanceNotFound):
        await session.reset()
    assert (await server.info())["available"] == SLOTS


async def test_events_tell_of_every_id_once(server: Server, site: Site) -> None:
    async with server.leased(site) as session:
        assert session.id in {e["instance_id"] for e in server.events if e["event"] == "ready"}
    while session.id not in server.gone_ids("released"):
        await server.changed()
    told = [(e["event"], e["instance_id"]) for e in server.events if "instance_id" in e]
    assert len(told) == len(set(told))


async def test_refused_sub_requests_are_counted_in_events(server: Server, site: Site) -> None:
    async with server.leased(site) as session:
        await session.visit("empty.html")
        before = sum(e.get("count", 0) for e in server.events)
        await session.evaluate("fetch('http://10.1.2.3/').catch(() => 'refused')")
        async with asyncio.timeout(5):
            while sum(e.get("count", 0) for e in server.events) == before:
                await server.changed()


# Bad input.


@pytest.mark.parametrize("path", ["/info", "/get", "/step", "/docs", "/openapi.json", "/nowhere"])
@pytest.mark.parametrize("key", [None, "wrong"])
async def test_every_route_asks_for_the_key(server: Server, path: str, key: str | None) -> None:
    async with server.client.request(
        "GET", path, headers={"x-api-key": key or ""}, skip_auto_headers=["x-api-key"]
    ) as answer:
        assert answer.status == Unauthorized.status
        assert (await answer.json())["code"] == "unauthorized"


async def test_health_needs_no_key(server: Server) -> None:
    async with server.client.get("/healthz", headers={"x-api-key": ""}) as answer:
        assert await answer.json() == {"status": "ok"}


async def test_unknown_route_and_method_are_named(server: Server) -> None:
    with pytest.raises(RouteNotFound, match="/nowhere"):
        await server.call("GET", "/nowhere")
    with pytest.raises(MethodNotAllowed, match="/info does not take POST"):
        await server.call("POST", "/info")


@pytest.mark.parametrize(
    ("body", "error", "named"),
    [
        ({"no_such_command": {}}, UnknownCommand, "Unsupported command: no_such_command"),
        ({"back": {}, "sleep": {"duration": 1}}, UnknownCommand, "Only one command per request"),
        ({}, UnknownCommand, "names no command"),
        ({"click_coords": {"x": "left", "y": 1}}, InvalidRequest, "click_coords: x"),
        ({"click_coords": {"x": 1}}, InvalidRequest, "click_coords: y"),
        ({"click_coords": {"x": 1, "y": -1}}, InvalidRequest, "click_coords: y"),
        ({"click_coords": {"x": 1, "y": 1, "z": 1}}, InvalidRequest, "click_coords: z"),
        ({"click_coords": [1, 1]}, InvalidRequest, "must be a JSON object"),
        ({"page_down": {"amount": -5}}, InvalidRequest, "amount"),
        ({"click_id": {"id": "15"}}, InvalidRequest, "15 is not a mark"),
        ([1], InvalidRequest, "must be a JSON object"),
        ("back", InvalidRequest, "must be a JSON object"),
        (None, InvalidRequest, "must be valid JSON"),
    ],
)
async def test_bad_command_is_422_that_names_the_field(
    session: Session, body: Any, error: type[InvalidRequest], named: str
) -> None:
    with pytest.raises(error, match=named):
        await session.call("POST", "/execute", json=body)
    assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"


async def test_coordinates_that_are_no_number_are_refused(session: Session) -> None:
    for text in ("NaN", "Infinity", "1e999"):
        async with session.server.client.post(
            "/execute",
            params={"instance_id": session.id},
            data=f'{{"click_coords": {{"x": {text}, "y": 1}}}}',
        ) as answer:
            assert answer.status == InvalidRequest.status
            assert "x" in (await answer.json())["detail"]


async def test_missing_id_is_refused_by_name(server: Server) -> None:
    for method, path in (("GET", "/probe"), ("POST", "/step"), ("POST", "/reset")):
        with pytest.raises(InvalidRequest, match="instance_id"):
            await server.call(method, path)


async def test_oversized_body_is_413(session: Session) -> None:
    body = {"fill_coords": {"x": 1, "y": 1, "value": "x" * MAX_BODY_BYTES}}
    with pytest.raises(BodyTooLarge):
        await session.call("POST", "/execute", json=body)
    assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"


async def test_step_is_a_frame_whose_parts_are_where_they_are_said_to_be(
    session: Session,
) -> None:
    await session.visit("empty.html")
    async with session.server.client.post(
        "/step", params={"instance_id": session.id}, json={}
    ) as answer:
        assert answer.content_type == framing.MEDIA_TYPE
        body = await answer.read()
    size = int.from_bytes(body[:4], "big")
    fields = json.loads(body[4 : 4 + size])
    assert fields.keys() == {"status", "metadata", "marks", "settle", "format"}
    assert body[4 + size :].startswith(b"\x89PNG")


# Its beginning and its end.


async def run_to_its_end(environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "omniboxes.node.instance_server", *arguments),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        env={**os.environ, "OMNIBOX_INSTANCE_KEY": KEY, **environment},
    )
    async with asyncio.timeout(20):
        _, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, error.decode()


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"OMNIBOX_EGRESS_ALLOW": "no such entry!"}, "OMNIBOX_EGRESS_ALLOW"),
        ({"OMNIBOX_MAX_TABS": "none"}, "OMNIBOX_MAX_TABS"),
    ],
)
async def test_bad_setting_is_one_sentence(environment: dict[str, str], named: str) -> None:
    status, error = await run_to_its_end(environment, "--port", "0")
    assert status == 2
    assert named in error
    assert "Traceback" not in error


async def test_port_in_use_is_one_sentence(server: Server) -> None:
    status, error = await run_to_its_end({}, "--port", str(server.port))
    assert status == 2
    assert f"Cannot listen on 127.0.0.1:{server.port}" in error


async def test_browser_that_does_not_start_ends_the_server() -> None:
    status, error = await run_to_its_end({"OMNIBOX_BROWSER": "/bin/false"}, "--port", "0")
    assert status == 1
    assert "/bin/false" in error


def left_after(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Return those that still run then; one that ended is nobody's, even if init is slow."""
    deadline = time.monotonic() + seconds
    while True:
        left = []
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    left.append(process)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "stdin"])
async def test_server_leaves_no_process_behind(site: Site, how: str) -> None:
    async with Server.running(1) as server:
        session = Session(server, site, await server.lease())
        await session.visit("empty.html")
        family = await asyncio.to_thread(
            psutil.Process(server.process.pid).children, recursive=True
        )
        assert family
        if how == "stdin":
            assert server.process.stdin is not None
            server.process.stdin.close()
        else:
            server.process.send_signal(signal.Signals[how])
        async with asyncio.timeout(15):
            await server.process.wait()
        assert await asyncio.to_thread(left_after, family, 5.0) == []


async def test_worn_chromium_is_replaced_when_it_is_idle(site: Site) -> None:
    async with Server.running(1, {"OMNIBOX_RECYCLE_AFTER_LEASES": "2"}) as server:
        first = (await asyncio.to_thread(server.chromium)).pid
        async with server.leased(site) as session:
            await session.visit("empty.html")
        async with server.leased(site) as session:
            # Two leases are granted, and it is still in use.
            await session.visit("empty.html")
            assert (await asyncio.to_thread(server.chromium)).pid == first
        async with asyncio.timeout(15):
            while not server.gone_ids("recycled"):
                await server.changed()
            async with server.leased(site) as session:
                assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"
        assert (await asyncio.to_thread(server.chromium)).pid != first
