"""The desk: who waits, who is refused, who is served next, and what a failing pool changes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from redis.asyncio import Redis

from omniboxes.common.wire import InstanceId
from omniboxes.errors import InstanceNotFound, NodeUnavailable, PoolExhausted, PoolUnavailable
from omniboxes.node.desk import Desk
from omniboxes.node.leases import Lease, Ledger
from omniboxes.node.pool import EmbeddedPool, Pool
from omniboxes.node.redis_pool import RedisPool
from tests.master.redis_server import RedisServer

LONG_S = 30.0
IDLE_S = 60.0
A, B, C = (InstanceId(f"{letter}:9000") for letter in "abc")


class HangingPool(EmbeddedPool):
    """An embedded pool whose leases hang after they were made, as when an answer is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.answer = asyncio.Event()

    async def lease(self) -> InstanceId | None:
        leased = await super().lease()
        if self.hangs:
            await self.answer.wait()
        return leased


@asynccontextmanager
async def desk_over(
    *ready: InstanceId, pool: Pool | None = None, size: int = 2, wait_s: float = LONG_S
) -> AsyncIterator[Desk]:
    """Yield a desk over `size` slots of which some are ready."""
    pool = pool or EmbeddedPool()
    await pool.open()
    ledger = Ledger([(9000, size)], max_lease_s=3600)
    desk = Desk(ledger, pool, wait_s=wait_s)
    keeper = asyncio.create_task(desk.keep_in_step())
    try:
        for instance_id in ready:
            desk.ready(instance_id)
        await wait_all_tasks_blocked()
        yield desk
    finally:
        keeper.cancel()
        await asyncio.wait([keeper])
        await pool.aclose()


async def waiting(group: asyncio.TaskGroup, desk: Desk) -> asyncio.Task[Lease]:
    """Start a request that has to wait, and return when it does."""
    task = group.create_task(desk.take(IDLE_S))
    await wait_all_tasks_blocked()
    assert not task.done()
    return task


async def test_free_session_is_leased_at_once() -> None:
    async with desk_over(A, B) as desk:
        assert (await desk.take(IDLE_S)).instance_id == A
        assert (await desk.take(IDLE_S)).instance_id == B
        info = await desk.info()
        assert (info.available, info.capacity, info.in_use) == (0, 2, [A, B])


async def test_full_node_refuses_at_once() -> None:
    async with desk_over(A, size=1) as desk:
        await desk.take(IDLE_S)
        with pytest.raises(PoolExhausted, match="No instances available"):
            await desk.take(IDLE_S)


async def test_session_being_prepared_is_waited_for() -> None:
    async with desk_over(size=1) as desk, asyncio.TaskGroup() as group:
        waiter = await waiting(group, desk)
        desk.ready(A)
        assert (await waiter).instance_id == A


async def test_released_session_is_waited_for() -> None:
    async with desk_over(A, size=1) as desk, asyncio.TaskGroup() as group:
        await desk.take(IDLE_S)
        await desk.give_back(A)
        waiter = await waiting(group, desk)
        desk.ready(B)
        assert (await waiter).instance_id == B


async def test_no_more_wait_than_there_are_sessions_to_come() -> None:
    async with desk_over(size=1) as desk, asyncio.TaskGroup() as group:
        waiter = await waiting(group, desk)
        with pytest.raises(PoolExhausted):
            await desk.take(IDLE_S)
        desk.ready(A)
        await waiter


async def test_waiting_ends_after_its_time() -> None:
    async with desk_over(size=1, wait_s=0.01) as desk:
        with pytest.raises(PoolExhausted):
            await desk.take(IDLE_S)
        desk.ready(A)
        assert (await desk.take(IDLE_S)).instance_id == A


async def test_first_to_wait_is_first_served() -> None:
    async with desk_over(size=3) as desk, asyncio.TaskGroup() as group:
        waiters = [await waiting(group, desk) for _ in range(3)]
        for instance_id in (A, B, C):
            desk.ready(instance_id)
        assert [(await waiter).instance_id for waiter in waiters] == [A, B, C]


@pytest.mark.parametrize("cancelled", [0, 1])
async def test_cancelled_waiter_passes_the_session_on(cancelled: int) -> None:
    async with desk_over(size=2) as desk, asyncio.TaskGroup() as group:
        waiters = [await waiting(group, desk) for _ in range(2)]
        waiters.pop(cancelled).cancel()
        await wait_all_tasks_blocked()
        desk.ready(A)
        assert (await waiters[0]).instance_id == A
        assert repr(desk) == "<Desk [0 in line] <Ledger [0 ready, 1 leased, 0 recycling of 2]>>"


async def test_cancellation_while_the_pool_answers_loses_nothing() -> None:
    pool = HangingPool()
    async with desk_over(A, pool=pool, size=1) as desk, asyncio.TaskGroup() as group:
        pool.hangs = True
        lost = await waiting(group, desk)
        lost.cancel()
        pool.hangs = False
        await wait_all_tasks_blocked()
        assert (await desk.info()).available == 1
        assert (await desk.take(IDLE_S)).instance_id == A


async def test_session_that_goes_while_it_is_leased_is_not_granted() -> None:
    pool = HangingPool()
    async with desk_over(A, B, pool=pool) as desk, asyncio.TaskGroup() as group:
        pool.hangs = True
        waiter = await waiting(group, desk)
        desk.gone(A, comes_back=False)
        pool.answer.set()
        assert (await waiter).instance_id == B
        await wait_all_tasks_blocked()
        assert (await desk.info()).in_use == [B]


async def test_of_two_releases_exactly_one_succeeds() -> None:
    async with desk_over(A, size=1) as desk:
        await desk.take(IDLE_S)
        async with asyncio.TaskGroup() as group:
            attempts = [group.create_task(_is_released(desk, A)) for _ in range(2)]
        assert sorted(attempt.result() for attempt in attempts) == [False, True]


async def _is_released(desk: Desk, instance_id: InstanceId) -> bool:
    try:
        await desk.give_back(instance_id)
    except InstanceNotFound:
        return False
    return True


async def test_first_release_of_a_crashed_session_succeeds() -> None:
    async with desk_over(A, size=1) as desk:
        lease = await desk.take(IDLE_S)
        assert desk.gone(A, comes_back=False) is lease
        assert await desk.give_back(A) is None
        with pytest.raises(InstanceNotFound):
            await desk.give_back(A)


async def test_dropped_lease_is_over() -> None:
    async with desk_over(A, size=1) as desk:
        lease = await desk.take(IDLE_S)
        assert desk.drop(lease)
        assert not desk.drop(lease)
        await wait_all_tasks_blocked()
        assert (await desk.info()).in_use == []


async def test_closing_refuses_who_waits_and_who_comes() -> None:
    async with desk_over(size=1) as desk, asyncio.TaskGroup() as group:
        waiter = group.create_task(_refused(desk))
        await wait_all_tasks_blocked()
        desk.close()
        await waiter
        await _refused(desk)


async def _refused(desk: Desk) -> None:
    with pytest.raises(NodeUnavailable):
        await desk.take(IDLE_S)


@pytest.mark.redis
async def test_redis_outage_is_survived() -> None:
    with RedisServer.running() as server:
        async with desk_over(A, B, C, pool=RedisPool(server.url), size=3) as desk:
            await _until_available(desk, 3)
            first = await desk.take(IDLE_S)
            second = await desk.take(IDLE_S)
            server.stop()
            for _ in range(2):
                with pytest.raises(PoolUnavailable):
                    await desk.take(IDLE_S)
                with pytest.raises(PoolUnavailable):
                    await desk.give_back(first.instance_id)
                with pytest.raises(PoolUnavailable):
                    await desk.info()
            assert desk.gone(second.instance_id, comes_back=True) is second
            server.start()
            await _until_available(desk, 1)
            assert (await desk.info()).in_use == [first.instance_id]
            assert await desk.give_back(first.instance_id) is first


@pytest.mark.redis
@pytest.mark.parametrize(
    "harm",
    [
        lambda redis: redis.flushall(),
        lambda redis: redis.delete("available"),
        lambda redis: redis.sadd("available", "junk:9000"),
        lambda redis: redis.smove("available", "in_use", A),
    ],
)
async def test_what_somebody_else_does_to_the_sets_is_undone(
    harm: Callable[[Redis], Awaitable[object]],
) -> None:
    with RedisServer.running() as server:
        async with (
            desk_over(A, pool=RedisPool(server.url), size=1) as desk,
            Redis.from_url(server.url, decode_responses=True) as redis,
        ):
            await _until_available(desk, 1)
            await harm(redis)
            while await redis.smembers("available") != {A}:
                await checkpoint()
            assert (await desk.take(IDLE_S)).instance_id == A


async def _until_available(desk: Desk, count: int) -> None:
    while True:
        try:
            if (await desk.info()).available == count:
                return
        except PoolUnavailable:
            pass
        await asyncio.sleep(0.01)
