"""Nodes that announce themselves in a real Redis, and masters that follow them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from redis.asyncio import Redis

from omniboxes.common.redis_registry import (
    DATABASE,
    PREFIX,
    TTL_S,
    RedisRegistry,
    RegisteredNode,
    new_node_id,
)
from omniboxes.common.wire import NodeId
from omniboxes.errors import RegistryUnavailable, SetupError
from omniboxes.master.node_table import node_id
from tests.master.redis_server import RedisServer
from tests.master.running import free_port, serve_master, serve_node
from tests.master.small_node import SmallNode

pytestmark = pytest.mark.redis

URL = "http://10.0.0.7:8080"


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator["Redis"]:
    client = Redis.from_url(f"{redis_server.url}/{DATABASE}")
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
async def registry(redis_server: RedisServer, redis: Redis) -> AsyncIterator[RedisRegistry]:
    # The URL names another database on purpose: the registry has its own.
    async with RedisRegistry.open(f"{redis_server.url}/0") as opened:
        yield opened


async def test_nodes_come_and_go(registry: RedisRegistry) -> None:
    first, second = NodeId("a"), NodeId("b")
    await registry.register(first, URL + "/")
    await registry.register(second, "http://10.0.0.8:8080")
    listed = [RegisteredNode(first, URL), RegisteredNode(second, "http://10.0.0.8:8080")]
    assert await registry.list_nodes() == listed
    await registry.unregister(first)
    await registry.unregister(first)
    assert await registry.list_nodes() == listed[1:]


async def test_an_entry_expires_and_a_heartbeat_brings_it_back(
    registry: RedisRegistry, redis: Redis
) -> None:
    await registry.register(NodeId("a"), URL)
    assert 0 < await redis.ttl(PREFIX + "a") <= TTL_S
    await redis.pexpire(PREFIX + "a", 1)
    await until(lambda: is_empty(registry))
    await registry.heartbeat(NodeId("a"), URL)
    assert await redis.ttl(PREFIX + "a") > TTL_S - 5
    assert await registry.list_nodes() == [RegisteredNode(NodeId("a"), URL)]


async def is_empty(registry: RedisRegistry) -> bool:
    return not await registry.list_nodes()


def test_two_nodes_of_one_host_have_two_ids() -> None:
    assert new_node_id() != new_node_id()


async def test_more_nodes_than_one_scan_returns(registry: RedisRegistry, redis: Redis) -> None:
    await redis.mset({f"{PREFIX}{n:04}": f"http://n{n}:8080" for n in range(1500)})
    assert len(await registry.list_nodes()) == 1500


async def test_plain_urls_are_read_and_rubbish_is_left_out(
    registry: RedisRegistry, redis: Redis
) -> None:
    values: list[str | bytes] = [
        URL,
        "",
        "{",
        "{}",
        '{"url": 5}',
        "file:///etc/passwd",
        "http://u:p@x",
        b"\xff",
    ]
    await redis.mset({f"{PREFIX}{n}": value for n, value in enumerate(values)})
    await redis.set("other", "http://not-a-node:1")
    assert await registry.list_nodes() == [RegisteredNode(NodeId("0"), URL)]


async def test_an_unreachable_redis_is_a_typed_error() -> None:
    async with RedisRegistry.open(f"redis://127.0.0.1:{free_port()}") as registry:
        with pytest.raises(RegistryUnavailable):
            await registry.list_nodes()
        with pytest.raises(RegistryUnavailable):
            await registry.register(NodeId("a"), URL)
        with pytest.raises(RegistryUnavailable):
            await registry.unregister(NodeId("a"))


async def test_a_url_that_is_no_redis_is_a_setup_error() -> None:
    with pytest.raises(SetupError, match="Redis URL"):
        async with RedisRegistry.open("http://x"):
            pass


async def node_urls(client: aiohttp.ClientSession) -> list[str]:
    async with client.get("/info") as answer:
        return [state["url"] for state in (await answer.json())["nodes"]]


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(5):
        while not await is_so():  # noqa: ASYNC110 - another process has no event for us
            await asyncio.sleep(0.02)


async def test_a_master_follows_the_registry(
    redis_server: RedisServer, registry: RedisRegistry
) -> None:
    node = SmallNode(capacity=1)
    async with (
        serve_node(node) as url,
        serve_node(SmallNode(capacity=0)) as static_url,
        serve_master([static_url], registry_url=redis_server.url) as client,
    ):
        assert await node_urls(client) == [static_url]
        await registry.register(NodeId("a"), url)

        async def has_joined() -> bool:
            return await node_urls(client) == [static_url, url]

        await until(has_joined)
        async with client.post("/get") as answer:
            assert (await answer.json())["node"] == node_id(url)
        # An empty registry is an answer: the last node to leave is gone.
        await registry.unregister(NodeId("a"))

        async def has_left() -> bool:
            return await node_urls(client) == [static_url]

        await until(has_left)
        handle = {"node": node_id(url), "instance_id": "x"}
        async with client.get("/probe", params=handle) as answer:
            assert answer.status == 400


async def metric(client: aiohttp.ClientSession, name: str) -> float | None:
    async with client.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(name + " ")), None)


async def test_an_outage_of_the_registry_keeps_its_last_list() -> None:
    node = SmallNode()
    with RedisServer.running() as server:
        async with serve_node(node) as url, RedisRegistry.open(server.url) as registry:
            await registry.register(NodeId("a"), url)
            async with serve_master([], registry_url=server.url) as client:
                assert await metric(client, "omnibox_master_registry_up") == 1
                await asyncio.to_thread(server.stop)

                async def is_down() -> bool:
                    return await metric(client, "omnibox_master_registry_up") == 0

                await until(is_down)
                failures = await metric(client, "omnibox_master_registry_failures_total")
                assert failures is not None
                assert failures >= 1
                assert await node_urls(client) == [url]
                async with client.post("/get") as answer:
                    assert answer.status == 200
                # Redis comes back empty, and so does the list.
                await asyncio.to_thread(server.start)

                async def is_gone() -> bool:
                    return not await node_urls(client)

                await until(is_gone)
                await registry.heartbeat(NodeId("a"), url)

                async def is_back() -> bool:
                    return await node_urls(client) == [url]

                await until(is_back)


async def test_a_master_starts_without_its_registry() -> None:
    async with serve_node(SmallNode()) as url:
        registry_url = f"redis://127.0.0.1:{free_port()}"
        async with serve_master([url], registry_url=registry_url) as client:
            assert await node_urls(client) == [url]
            assert await metric(client, "omnibox_master_registry_up") == 0


async def test_the_value_is_json_with_a_version(registry: RedisRegistry, redis: Redis) -> None:
    await registry.register(NodeId("a"), URL)
    value = await redis.get(PREFIX + "a")
    assert value is not None
    assert json.loads(value) == {"version": 1, "url": URL}
