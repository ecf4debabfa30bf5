"""The contract of the pool, embedded and in Redis; what only the one in Redis promises."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from omniboxes.common.wire import InstanceId
from omniboxes.errors import PoolUnavailable, SetupError
from omniboxes.node.pool import EmbeddedPool, Pool, PoolState
from omniboxes.node.redis_pool import Keys, RedisPool
from tests.master.redis_server import RedisServer
from tests.master.running import free_port

A, B, C = (InstanceId(f"{letter}:9000") for letter in "abc")


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer.running() as server:
        yield server


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """A client beside the pool, as an operator has one; the server is empty before each test."""
    async with Redis.from_url(redis_server.url, decode_responses=True) as client:
        await client.flushall()
        yield client


@asynccontextmanager
async def opened(pool: Pool) -> AsyncIterator[Pool]:
    await pool.open()
    try:
        yield pool
    finally:
        await pool.aclose()


@pytest.fixture(params=["embedded", pytest.param("redis", marks=pytest.mark.redis)])
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[Pool]:
    if request.param == "embedded":
        made: Pool = EmbeddedPool()
    else:
        url = request.getfixturevalue("redis_server").url
        async with Redis.from_url(url) as client:
            await client.flushall()
        made = RedisPool(url)
    async with opened(made):
        yield made


async def state(pool: Pool) -> tuple[set[str], set[str]]:
    available, in_use = await pool.snapshot()
    return set(available), set(in_use)


async def test_added_session_is_available_once(pool: Pool) -> None:
    await pool.add(A)
    await pool.add(A)
    assert await state(pool) == ({A}, set())


async def test_lease_moves_a_session_to_in_use(pool: Pool) -> None:
    await pool.add(A)
    assert await pool.lease() == A
    assert await state(pool) == (set(), {A})


async def test_lease_of_an_empty_pool_is_none(pool: Pool) -> None:
    assert await pool.lease() is None
    await pool.add(A)
    await pool.lease()
    assert await pool.lease() is None


async def test_session_in_use_is_not_made_available_again(pool: Pool) -> None:
    await pool.add(A)
    await pool.lease()
    await pool.add(A)
    assert await state(pool) == (set(), {A})


async def test_release_tells_the_first_time_from_the_second(pool: Pool) -> None:
    await pool.add(A)
    await pool.lease()
    assert await pool.release(A)
    assert not await pool.release(A)
    assert await state(pool) == (set(), set())


async def test_release_leaves_available_sessions_alone(pool: Pool) -> None:
    await pool.add(A)
    assert not await pool.release(A)
    assert await state(pool) == ({A}, set())


async def test_discard_takes_a_session_out_of_either_set(pool: Pool) -> None:
    await pool.replace(PoolState(frozenset({A, C}), frozenset({B})))
    for instance_id in (A, B, InstanceId("unknown:9000")):
        await pool.discard(instance_id)
    assert await state(pool) == ({C}, set())


async def test_replace_makes_the_sets_what_it_is_told(pool: Pool) -> None:
    await pool.add(A)
    await pool.lease()
    await pool.replace(PoolState(frozenset({A, B}), frozenset({C})))
    assert await state(pool) == ({A, B}, {C})
    await pool.replace(PoolState(frozenset(), frozenset()))
    assert await state(pool) == (set(), set())


async def test_concurrent_leases_never_get_the_same_session(pool: Pool) -> None:
    ids = {InstanceId(f"{number}:9000") for number in range(50)}
    for instance_id in ids:
        await pool.add(instance_id)
    async with asyncio.TaskGroup() as group:
        leases = [group.create_task(pool.lease()) for _ in range(60)]
    granted = [lease.result() for lease in leases if lease.result() is not None]
    assert len(granted) == len(ids)
    assert set(granted) == ids


async def test_pool_is_its_owners(pool: Pool) -> None:
    assert await pool.is_ours()


async def test_embedded_pool_hands_out_the_session_that_waited_longest() -> None:
    pool = EmbeddedPool()
    for instance_id in (C, A, B):
        await pool.add(instance_id)
    assert [await pool.lease() for _ in range(3)] == [C, A, B]
    assert repr(pool) == "<EmbeddedPool [0 available, 3 in use]>"


@pytest.mark.redis
async def test_operators_see_plain_keys(redis_server: RedisServer, redis: Redis) -> None:
    async with opened(RedisPool(redis_server.url)) as pool:
        await pool.replace(PoolState(frozenset({A, B}), frozenset({C})))
        assert await redis.smembers("available") == {A, B}
        assert await redis.smembers("in_use") == {C}


@pytest.mark.redis
async def test_close_leaves_no_key(redis_server: RedisServer, redis: Redis) -> None:
    async with opened(RedisPool(redis_server.url)) as pool:
        await pool.replace(PoolState(frozenset({A}), frozenset({B})))
    assert await redis.keys() == []


@pytest.mark.redis
async def test_keys_of_a_node_that_died_expire(redis_server: RedisServer, redis: Redis) -> None:
    async with opened(RedisPool(redis_server.url)) as pool:
        await pool.replace(PoolState(frozenset({A}), frozenset({B})))
        assert await pool.is_ours()
        assert {await redis.ttl(key) > 0 for key in Keys.under("")} == {True}


@pytest.mark.redis
async def test_open_clears_what_a_dead_node_left(redis_server: RedisServer, redis: Redis) -> None:
    await redis.sadd("available", A)
    await redis.sadd("in_use", B)
    async with opened(RedisPool(redis_server.url)) as pool:
        assert await state(pool) == (set(), set())


@pytest.mark.redis
async def test_open_waits_until_the_claim_of_a_killed_node_lapses(
    redis_server: RedisServer, redis: Redis
) -> None:
    await redis.set(Keys.under("").owner, "a node that was killed", px=300)
    async with opened(RedisPool(redis_server.url)) as pool:
        assert await pool.is_ours()


@pytest.mark.redis
async def test_second_node_refuses_to_start(redis_server: RedisServer, redis: Redis) -> None:
    async with opened(RedisPool(redis_server.url)) as first, asyncio.TaskGroup() as group:
        second = RedisPool(redis_server.url)
        attempt = group.create_task(_refusal(second))
        while not attempt.done():
            assert await first.is_ours()
            await asyncio.sleep(0.05)
        assert "OMNIBOX_REDIS_PREFIX" in attempt.result()
        await second.aclose()
        await first.add(A)
        assert await state(first) == ({A}, set())


async def _refusal(pool: RedisPool) -> str:
    with pytest.raises(SetupError) as caught:
        await pool.open()
    return str(caught.value)


@pytest.mark.redis
async def test_nodes_with_prefixes_share_one_redis(redis_server: RedisServer, redis: Redis) -> None:
    async with (
        opened(RedisPool(redis_server.url, "one:")) as one,
        opened(RedisPool(redis_server.url, "two:")) as two,
    ):
        await one.add(A)
        await two.add(B)
        assert await one.lease() == A
        assert await redis.smembers("one:in_use") == {A}
        assert await redis.smembers("two:available") == {B}


@pytest.mark.redis
@pytest.mark.parametrize("holder", [None, "another node"])
async def test_pool_that_was_lost_changes_nothing(
    redis_server: RedisServer, redis: Redis, holder: str | None
) -> None:
    async with opened(RedisPool(redis_server.url)) as pool:
        await redis.flushall()
        if holder is not None:
            await redis.set(Keys.under("").owner, holder)
        assert not await pool.is_ours()
        with pytest.raises(PoolUnavailable):
            await pool.add(A)
        assert not await redis.exists("available")


@pytest.mark.redis
async def test_replace_takes_an_emptied_redis_back(redis_server: RedisServer, redis: Redis) -> None:
    async with opened(RedisPool(redis_server.url)) as pool:
        await redis.flushall()
        await pool.replace(PoolState(frozenset({A}), frozenset({B})))
        assert await pool.is_ours()
        assert await state(pool) == ({A}, {B})


@pytest.mark.redis
async def test_outage_is_pool_unavailable_and_ends_with_it() -> None:
    with RedisServer.running() as server:
        async with opened(RedisPool(server.url)) as pool:
            await pool.add(A)
            server.stop()
            with pytest.raises(PoolUnavailable, match="redis-cli ping"):
                await pool.lease()
            server.start()
            assert not await pool.is_ours()
            await pool.replace(PoolState(frozenset({A}), frozenset()))
            assert await pool.lease() == A


async def test_unreachable_redis_is_one_sentence_at_start() -> None:
    pool = RedisPool(f"redis://user:secret@127.0.0.1:{free_port()}")
    try:
        said = await _refusal(pool)
    finally:
        await pool.aclose()
    assert "Redis connection refused" in said
    assert "redis-cli ping" in said
    assert "secret" not in said


def test_url_that_is_none_is_refused() -> None:
    with pytest.raises(SetupError, match="OMNIBOX_REDIS_URL"):
        RedisPool("http://localhost")
