"""The master's routes, against small real nodes on real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import aiohttp
import pytest
from fastapi.responses import JSONResponse, Response
from pydantic import SecretStr

from omniboxes.common import framing
from omniboxes.common.settings import Settings
from omniboxes.errors import (
    InstanceCrashed,
    InternalFault,
    OmniboxError,
    PoolUnavailable,
)
from omniboxes.master.gateway import NO_CAPACITY
from omniboxes.master.node_table import node_id
from tests.master.running import free_port, serve_master, serve_node
from tests.master.small_node import PNG, STEP_FIELDS, SmallNode

ERROR_KEYS = {"detail", "code", "retryable"}


class Reply(NamedTuple):
    """An answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Setup(NamedTuple):
    """One node behind one master."""

    node: SmallNode
    url: str
    client: aiohttp.ClientSession


async def ask(client: aiohttp.ClientSession, method: str, path: str, **kwargs: Any) -> Reply:
    async with client.request(method, path, **kwargs) as answer:
        return Reply(answer.status, answer.headers, await answer.read())


async def lease(client: aiohttp.ClientSession, **params: str) -> dict[str, str]:
    reply = await ask(client, "POST", "/get", params=params)
    assert reply.status == 200, reply.body
    granted: dict[str, str] = reply.json
    return granted


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Setup]:
    node = SmallNode()
    async with serve_node(node) as url, serve_master([url]) as client:
        yield Setup(node, url, client)


@pytest.fixture
def one(shared: Setup) -> Setup:
    shared.node.forget()
    return shared


async def serve_nodes(stack: AsyncExitStack, *nodes: SmallNode) -> list[str]:
    return [await stack.enter_async_context(serve_node(node)) for node in nodes]


async def test_a_session_lives_through_all_routes(one: Setup) -> None:
    granted = await lease(one.client, lifetime_mins="5")
    assert set(granted) == {"instance_id", "node"}
    assert granted["node"] == node_id(one.url)
    assert one.node.asked[-1].query == {"lifetime_mins": "5.0"}

    probed = await ask(one.client, "GET", "/probe", params=granted)
    assert probed.json == {"status": "success", "message": "Probe successful"}
    shot = await ask(one.client, "GET", "/screenshot", params=granted)
    assert (shot.headers["Content-Type"], shot.body) == ("image/png", PNG)
    page = await ask(one.client, "GET", "/metadata", params=granted)
    assert page.headers["Content-Type"] == "application/json"
    assert set(page.json) == {"title", "url", "width", "height"}
    done = await ask(one.client, "POST", "/execute", json={**granted, "back": {}})
    assert done.json == {"status": "success", "got": {"back": {}}}
    released = await ask(one.client, "POST", "/reset", params=granted)
    assert released.json["status"] == "success"
    assert not one.node.in_use

    again = await ask(one.client, "POST", "/reset", params=granted)
    assert again.status == 400
    assert again.json["detail"] == "Instance not in use or already released"


async def test_a_screenshot_passes_its_options_on(one: Setup) -> None:
    granted = await lease(one.client)
    options = {"interaction_mode": "coordinates", "format": "webp", "quality": "40"}
    assert (
        await ask(one.client, "GET", "/screenshot", params={**granted, **options})
    ).status == 200
    assert one.node.asked[-1].query == {"instance_id": granted["instance_id"], **options}
    assert (await ask(one.client, "GET", "/screenshot", params=granted)).status == 200
    assert one.node.asked[-1].query["interaction_mode"] == "set_of_marks"


async def test_a_step_is_streamed_byte_for_byte(one: Setup) -> None:
    granted = await lease(one.client)
    body = {**granted, "page_down": {}, "interaction_mode": "coordinates"}
    reply = await ask(one.client, "POST", "/step", json=body, headers={"accept": "image/x"})
    assert reply.headers["Content-Type"] == framing.MEDIA_TYPE
    assert reply.body == framing.encode(STEP_FIELDS, PNG)
    asked = one.node.asked[-1]
    assert json.loads(asked.body) == {"page_down": {}, "interaction_mode": "coordinates"}
    assert asked.headers["accept"] == "image/x"


async def test_a_body_without_its_content_type_is_read_too(one: Setup) -> None:
    granted = await lease(one.client)
    form = {"content-type": "application/x-www-form-urlencoded"}  # what `curl -d` says
    raw = json.dumps({**granted, "back": {}})
    reply = await ask(one.client, "POST", "/execute", data=raw, headers=form)
    assert reply.status == 200
    assert one.node.asked[-1].headers["content-type"] == "application/json"


async def test_a_known_url_is_accepted_as_node(one: Setup) -> None:
    granted = await lease(one.client)
    reply = await ask(one.client, "GET", "/probe", params={**granted, "node": one.url + "/"})
    assert reply.status == 200


async def test_lease_options_reach_the_node_as_given(one: Setup) -> None:
    options = {"viewport": {"width": 800, "height": 600}, "caller": "me"}
    assert (await ask(one.client, "POST", "/get", json=options)).status == 200
    assert json.loads(one.node.asked[-1].body) == options
    wrong = await ask(one.client, "POST", "/get", json={"viewprot": {}})
    assert wrong.status == 422
    assert "viewprot" in wrong.json["detail"]


async def test_the_request_id_travels(one: Setup) -> None:
    reply = await ask(one.client, "POST", "/get", headers={"x-request-id": "abc"})
    assert reply.headers["x-request-id"] == "abc"
    assert one.node.asked[-1].headers["x-request-id"] == "abc"


SESSION_CALLS: list[tuple[str, str]] = [
    ("POST", "/reset"),
    ("GET", "/screenshot"),
    ("GET", "/probe"),
    ("GET", "/metadata"),
    ("POST", "/execute"),
    ("POST", "/step"),
]


async def call(
    client: aiohttp.ClientSession, method: str, path: str, handle: dict[str, str], **kwargs: Any
) -> Reply:
    if path in {"/execute", "/step"}:
        return await ask(client, method, path, json={**handle, "back": {}}, **kwargs)
    return await ask(client, method, path, params=handle, **kwargs)


@pytest.mark.parametrize(("method", "path"), SESSION_CALLS)
async def test_an_unknown_node_is_400(one: Setup, method: str, path: str) -> None:
    reply = await call(one.client, method, path, {"node": "nope", "instance_id": "x"})
    assert reply.status == 400
    assert reply.json == {
        "detail": "Node nope is not found", "code": "node_not_found", "retryable": False
    }  # fmt: skip


@pytest.mark.parametrize(("method", "path"), SESSION_CALLS)
async def test_a_missing_routing_key_is_422_and_named(one: Setup, method: str, path: str) -> None:
    for missing in ("node", "instance_id"):
        handle = {name: "x" for name in ("node", "instance_id") if name != missing}
        reply = await call(one.client, method, path, handle)
        assert reply.status == 422
        assert missing in reply.json["detail"]
        assert set(reply.json) == ERROR_KEYS


@pytest.mark.parametrize(("method", "path"), SESSION_CALLS)
async def test_the_nodes_own_errors_pass_unchanged(one: Setup, method: str, path: str) -> None:
    granted = await lease(one.client)
    for error in (InstanceCrashed("The browser crashed"), InternalFault("A bug behind")):
        one.node.answers[path] = error
        reply = await call(one.client, method, path, granted)
        assert (reply.status, reply.json) == (error.status, error.to_body())
    one.node.answers[path] = Response(b"<h1>teapot</h1>", 418, media_type="text/html")
    reply = await call(one.client, method, path, granted)
    assert (reply.status, reply.body) == (418, b"<h1>teapot</h1>")
    assert reply.headers["Content-Type"].startswith("text/html")


async def test_the_default_lifetime_is_left_to_the_node(one: Setup) -> None:
    await lease(one.client)
    assert one.node.asked[-1].query == {}


async def test_a_lifetime_out_of_range_is_the_nodes_400(one: Setup) -> None:
    reply = await ask(one.client, "POST", "/get", params={"lifetime_mins": "1000"})
    assert reply.status == 400
    assert reply.json["code"] == "invalid_lifetime"
    assert reply.json["detail"].startswith("Invalid lifetime_mins: 1000. Must be between 0 and")


@pytest.mark.parametrize("value", ["abc", "nan", "inf", ""])
async def test_a_lifetime_that_is_no_number_is_422(one: Setup, value: str) -> None:
    reply = await ask(one.client, "POST", "/get", params={"lifetime_mins": value})
    assert reply.status == 422
    assert "lifetime_mins" in reply.json["detail"]


async def test_no_capacity_is_503_with_the_documented_text() -> None:
    async with serve_node(SmallNode(capacity=0)) as url, serve_master([url]) as client:
        reply = await ask(client, "POST", "/get")
        assert reply.status == 503
        assert reply.json == {"detail": NO_CAPACITY, "code": "pool_exhausted", "retryable": True}
        assert reply.headers["Retry-After"] == "1"


async def test_without_nodes_there_is_no_capacity() -> None:
    async with serve_master([]) as client:
        assert (await ask(client, "POST", "/get")).json["detail"] == NO_CAPACITY
        assert (await ask(client, "GET", "/info")).json == {"nodes": []}


async def test_a_reason_other_than_full_reaches_the_caller(one: Setup) -> None:
    one.node.answers["/get"] = PoolUnavailable("Redis connection refused")
    reply = await ask(one.client, "POST", "/get")
    assert (reply.status, reply.json["detail"]) == (503, "Redis connection refused")


@pytest.mark.parametrize("sends_count", [True, False])
async def test_leases_go_where_most_is_free(sends_count: bool) -> None:
    small = SmallNode(capacity=2, sends_count=sends_count)
    large = SmallNode(capacity=6, sends_count=sends_count)
    async with AsyncExitStack() as stack:
        urls = await serve_nodes(stack, small, large)
        client = await stack.enter_async_context(serve_master(urls))
        for _ in range(4):
            await lease(client)
        assert (len(small.in_use), len(large.in_use)) == (0, 4)
        for _ in range(4):
            await lease(client)
        assert (small.available, large.available) == (0, 0)


@pytest.mark.parametrize("sends_count", [True, False])
async def test_a_burst_spreads_over_the_nodes(sends_count: bool) -> None:
    nodes = [
        SmallNode(capacity=4, delay_s={"/get": 0.05}, sends_count=sends_count) for _ in range(3)
    ]
    async with AsyncExitStack() as stack:
        urls = await serve_nodes(stack, *nodes)
        client = await stack.enter_async_context(serve_master(urls))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(lease(client)) for _ in range(12)]
        assert len({task.result()["instance_id"] for task in tasks}) == 12
        # Every node was asked for what it had, and none was asked in vain.
        assert [node.paths().count("/get") for node in nodes] == [4, 4, 4]


@pytest.mark.parametrize("error", [PoolUnavailable("no Redis"), InternalFault("bug")])
async def test_a_node_that_refuses_gives_way_to_the_next(error: OmniboxError) -> None:
    refusing, other = SmallNode(capacity=9, answers={"/get": error}), SmallNode(capacity=1)
    async with AsyncExitStack() as stack:
        urls = await serve_nodes(stack, refusing, other)
        client = await stack.enter_async_context(serve_master(urls))
        assert (await lease(client))["instance_id"] in other.in_use
        assert "/get" in refusing.paths()


async def test_an_answer_that_is_no_lease_gives_way_to_the_next() -> None:
    odd, other = SmallNode(capacity=9), SmallNode(capacity=1)
    odd.answers["/get"] = JSONResponse({"status": "success"})
    async with AsyncExitStack() as stack:
        urls = await serve_nodes(stack, odd, other)
        client = await stack.enter_async_context(serve_master(urls))
        assert (await lease(client))["instance_id"] in other.in_use


async def test_a_node_that_says_it_is_full_is_asked_last_from_then_on() -> None:
    full, other = SmallNode(capacity=9), SmallNode(capacity=4)
    async with AsyncExitStack() as stack:
        urls = await serve_nodes(stack, full, other)
        client = await stack.enter_async_context(serve_master(urls))
        full.capacity = 0
        for _ in range(3):
            assert (await lease(client))["instance_id"] in other.in_use
        assert full.paths().count("/get") <= 1  # none, if a poll was quicker


async def test_a_node_that_looks_full_is_asked_all_the_same() -> None:
    node = SmallNode(capacity=1)
    async with serve_node(node) as url, serve_master([url]) as client:
        await lease(client)
        node.in_use.clear()  # released behind the master's back
        assert (await lease(client))["instance_id"] in node.in_use


async def test_a_dead_node_is_passed_over_and_its_sessions_are_503() -> None:
    async with AsyncExitStack() as stack:
        living = SmallNode(capacity=2)
        [url] = await serve_nodes(stack, living)
        dead_url = f"http://127.0.0.1:{free_port()}"
        client = await stack.enter_async_context(serve_master([dead_url, url]))
        assert (await lease(client))["node"] == node_id(url)
        handle = {"node": node_id(dead_url), "instance_id": "x"}
        for method, path in SESSION_CALLS:
            reply = await call(client, method, path, handle)
            assert (reply.status, reply.json["code"]) == (503, "node_unavailable")
            assert reply.json["retryable"] is True
        assert (
            await ask(client, "GET", "/probe", params={**handle, "node": dead_url})
        ).status == 503
        states = {
            state["url"]: state for state in (await ask(client, "GET", "/info")).json["nodes"]
        }
        assert states[dead_url] == {
            "url": dead_url, "hash": node_id(dead_url), "healthy": False, "capacity": 0,
            "available": 0, "instances": [],
        }  # fmt: skip
        assert states[url]["healthy"]
        assert states[url]["available"] == 1
        assert states[url]["instances"] == list(living.in_use)


async def test_a_node_that_dies_between_polls_gives_way_to_the_next() -> None:
    async with AsyncExitStack() as stack:
        other = SmallNode(capacity=1)
        [url] = await serve_nodes(stack, other)
        async with serve_node(SmallNode(capacity=9)) as dying_url:
            client = await stack.enter_async_context(serve_master([dying_url, url]))
        assert (await lease(client))["instance_id"] in other.in_use


async def test_a_slow_node_delays_nobody_else() -> None:
    slow = SmallNode(delay_s={"/execute": 30.0})
    quick = SmallNode(capacity=9)
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        urls = await serve_nodes(stack, slow, quick)
        client = await stack.enter_async_context(serve_master(urls))
        slow.in_use.add("x")
        handle = {"node": node_id(urls[0]), "instance_id": "x"}
        headers = {"x-omnibox-deadline-s": "1"}
        async with asyncio.TaskGroup() as group:
            stuck = group.create_task(call(client, "POST", "/execute", handle, headers=headers))
            started = loop.time()
            granted = await lease(client)
            for _ in range(5):
                await ask(client, "GET", "/probe", params=granted)
            assert loop.time() - started < 0.9
            assert not stuck.done()
        assert stuck.result().status == 504


async def test_info_does_not_wait_for_a_node_that_hangs() -> None:
    hanging, quick = SmallNode(), SmallNode()
    async with AsyncExitStack() as stack:
        urls = await serve_nodes(stack, hanging, quick)
        client = await stack.enter_async_context(serve_master(urls))
        hanging.delay_s["/info"] = 60
        states = (await ask(client, "GET", "/info")).json["nodes"]
        assert [state["healthy"] for state in states] == [False, True]


async def test_the_inner_deadline_is_the_one_that_answers(one: Setup) -> None:
    granted = await lease(one.client)
    one.node.delay_s["/execute"] = 30
    headers = {"x-omnibox-deadline-s": "0.2"}
    reply = await call(one.client, "POST", "/execute", granted, headers=headers)
    assert (reply.status, reply.json["detail"]) == (504, "The command took too long")


async def test_a_node_that_heeds_no_deadline_is_504_too(one: Setup) -> None:
    granted = await lease(one.client)
    one.node.delay_s["/execute"] = 3
    one.node.heeds_deadline = False
    headers = {"x-omnibox-deadline-s": "0.05"}
    reply = await call(one.client, "POST", "/execute", granted, headers=headers)
    assert (reply.status, reply.json["code"]) == (504, "deadline_exceeded")


async def test_commands_have_the_settings_limit_and_sleep_a_minute_more(one: Setup) -> None:
    granted = await lease(one.client)
    for body, limit in (({"back": {}}, 40), ({"sleep": {"duration": 1}}, 100)):
        await ask(one.client, "POST", "/execute", json={**granted, **body})
        assert float(one.node.asked[-1].headers["x-omnibox-deadline-s"]) == limit


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
async def test_a_deadline_that_is_none_is_422(one: Setup, value: str) -> None:
    reply = await ask(one.client, "POST", "/get", headers={"x-omnibox-deadline-s": value})
    assert reply.status == 422


async def test_a_lease_whose_client_left_goes_back_at_once(one: Setup) -> None:
    one.node.delay_s["/get"] = 0.3
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await lease(one.client)
    async with asyncio.timeout(5):
        while "/reset" not in one.node.paths():  # noqa: ASYNC110 - a request has no event
            await asyncio.sleep(0.01)
    assert not one.node.in_use


def keyed() -> Settings:
    return Settings(api_key=SecretStr("outer"), node_key=SecretStr("inner"))


ALL_CALLS = [*SESSION_CALLS, ("POST", "/get"), ("GET", "/info"), ("GET", "/metrics")]
ALL_CALLS += [("GET", "/openapi.json"), ("GET", "/docs"), ("GET", "/nowhere")]


async def test_every_route_but_healthz_needs_the_key() -> None:
    async with serve_node(SmallNode(key="inner")) as url, serve_master([url], keyed()) as client:
        async with aiohttp.ClientSession(client._base_url) as stranger:
            for method, path in ALL_CALLS:
                missing = await ask(stranger, method, path)
                assert (missing.status, missing.json["detail"]) == (401, "API Key is missing")
                wrong = await ask(stranger, method, path, headers={"x-api-key": "inner"})
                assert (wrong.status, wrong.json["detail"]) == (401, "Invalid API Key.")
            assert (await ask(stranger, "GET", "/healthz")).json == {"status": "ok"}
        assert await lease(client)


async def test_a_node_that_refuses_the_masters_key_is_unavailable() -> None:
    node = SmallNode(key="another")
    async with serve_node(node) as url, serve_master([url], keyed()) as client:
        handle = {"node": node_id(url), "instance_id": "x"}
        reply = await ask(client, "GET", "/probe", params=handle)
        assert reply.status == 503
        assert "OMNIBOX_NODE_KEY" in reply.json["detail"]
        assert not (await ask(client, "GET", "/info")).json["nodes"][0]["healthy"]


@pytest.mark.parametrize("path", ["/execute", "/step", "/get"])
@pytest.mark.parametrize("is_chunked", [True, False])
async def test_an_oversized_body_is_413(path: str, is_chunked: bool) -> None:
    settings = Settings(max_body_bytes=2048)
    raw = json.dumps({"caller": "x" * 4000}).encode()

    async def chunks() -> AsyncIterator[bytes]:
        yield raw

    headers = {"content-type": "application/json"}
    async with serve_node(SmallNode()) as url, serve_master([url], settings) as client:
        data = chunks() if is_chunked else raw
        reply = await ask(client, "POST", path, data=data, headers=headers)
        assert (reply.status, reply.json["code"]) == (413, "body_too_large")


async def test_metrics_count_requests_nodes_and_sessions() -> None:
    async with serve_node(SmallNode()) as url, serve_master([url]) as client:
        await lease(client)
        await ask(client, "GET", "/info")
        await ask(client, "GET", "/wp-admin.php")
        text = (await ask(client, "GET", "/metrics")).body.decode()
    name = node_id(url)
    for line in (
        'omnibox_master_requests_total{route="/get",status="200"} 1.0',
        'omnibox_master_requests_total{route="other",status="404"} 1.0',
        'omnibox_master_request_seconds_count{route="/get"} 1.0',
        'omnibox_master_nodes{state="healthy"} 1.0',
        'omnibox_master_nodes{state="unhealthy"} 0.0',
        f'omnibox_master_node_sessions{{node="{name}",state="available"}} 3.0',
        f'omnibox_master_node_sessions{{node="{name}",state="in_use"}} 1.0',
    ):
        assert line in text.splitlines()
    assert "registry" not in text


async def test_openapi_lists_what_occurs(one: Setup) -> None:
    paths = (await ask(one.client, "GET", "/openapi.json")).json["paths"]
    expected = {400, 401, 410, 413, 422, 503, 504}
    for method, path in SESSION_CALLS:
        operation = paths[path][method.lower()]
        listed = {int(status) for status in operation["responses"]}
        assert expected | {200} <= listed
        assert (403 in listed) == (path in {"/execute", "/step"})
        if path in {"/execute", "/step"}:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            assert {"node", "instance_id"} <= set(schema["required"])
    images = paths["/screenshot"]["get"]["responses"]["200"]["content"]
    assert set(images) == {"image/png", "image/jpeg", "image/webp"}
    step = paths["/step"]["post"]["responses"]["200"]["content"]
    assert set(step) == {framing.MEDIA_TYPE, "application/json"}
    got = {int(status) for status in paths["/get"]["post"]["responses"]}
    assert got == {200, 400, 401, 403, 413, 422, 503, 504}
