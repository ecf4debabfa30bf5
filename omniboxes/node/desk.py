"""The desk, where sessions are handed out and taken back: it keeps ledger and pool in step.

The ledger decides, synchronously; the pool says the same to the world. Every pair of changes (in
the pool, then in the ledger) happens under one lock, `_turn`, whose invariant is: when nobody holds
it and nothing is pending, the pool's sets are what the ledger says. After a failure of the pool
that is unknown, so nothing is leased until the sets have been rebuilt from the ledger.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from omniboxes.common.wire import InstanceId, NodeInfo
from omniboxes.errors import (
    InstanceCrashed,
    InstanceNotFound,
    NodeUnavailable,
    PoolExhausted,
    PoolUnavailable,
)
from omniboxes.node.leases import Lease, Ledger
from omniboxes.node.pool import Pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

logger = logging.getLogger(__name__)

EXHAUSTED = "No instances available"
CLOSING = "The node is shutting down"


class Desk:
    """Leases out the sessions of one node, first come, first served."""

    def __init__(self, ledger: Ledger, pool: Pool, *, wait_s: float) -> None:
        """Wait at most `wait_s` for a session that is being prepared."""
        self._ledger = ledger
        self._pool = pool
        self._wait_s = wait_s
        self._turn = asyncio.Lock()
        # Whoever is first in line looks at the pool; an asyncio.Lock is fair, so the line is too.
        self._line = asyncio.Lock()
        self._in_line = 0
        self._freed = asyncio.Event()
        self._work = asyncio.Event()
        self._pending: deque[Callable[[], Awaitable[None]]] = deque()
        self._trouble: PoolUnavailable | None = None
        self._is_stale = False
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<Desk [{self._in_line} in line] {self._ledger!r}>"

    @property
    def waiting(self) -> int:
        """How many requests for a session are not served yet."""
        return self._in_line

    async def take(self, idle_s: float) -> Lease:
        """Lease a session.

        Raises PoolExhausted at once when all are leased or spoken for, or when none became ready in
        time; PoolUnavailable when the pool is out of reach.
        """
        self._check_open()
        if self._in_line >= self._ledger.counts().leasable:
            raise PoolExhausted(EXHAUSTED)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_s
        self._in_line += 1
        try:
            async with self._line:
                while (lease := await self._try_take(idle_s)) is None:
                    async with asyncio.timeout_at(deadline):
                        await self._freed.wait()
                return lease
        except TimeoutError as exc:
            raise PoolExhausted(EXHAUSTED) from exc
        finally:
            self._in_line -= 1

    async def _try_take(self, idle_s: float) -> Lease | None:
        self._check_open()
        self._freed.clear()
        async with self._changing():
            while (instance_id := await self._pool.lease()) is not None:
                lease = self._ledger.grant(instance_id, idle_s)
                if lease is not None:
                    return lease
                # It ceased to exist a moment ago, or was never one of ours.
                self._remove(instance_id)
        return None

    async def give_back(self, instance_id: InstanceId) -> Lease | None:
        """End a lease for its client; None when its session had crashed.

        Raises InstanceNotFound when there is no such lease (any more), PoolUnavailable when the
        pool is out of reach, and then nothing has changed.
        """
        if self._acknowledged(instance_id):
            return None
        try:
            async with self._changing():
                self._ledger.find(instance_id)
                await self._pool.release(instance_id)
                return self._ledger.release(instance_id)
        except InstanceCrashed:
            self._ledger.forget(instance_id)
            return None

    def _acknowledged(self, instance_id: InstanceId) -> bool:
        was_buried = self._ledger.is_buried(instance_id)
        self._ledger.forget(instance_id)
        return was_buried

    def drop(self, lease: Lease) -> bool:
        """End a lease that nobody holds; False when it had ended already."""
        if self._acknowledged(lease.instance_id):
            return False
        self._remove(lease.instance_id)
        try:
            self._ledger.release(lease.instance_id)
        except InstanceNotFound:
            return False
        return True

    def expire(self) -> list[Lease]:
        """End the leases whose time is over and return them."""
        over = self._ledger.expire()
        for lease in over:
            self._remove(lease.instance_id)
        return over

    def ready(self, instance_id: InstanceId) -> None:
        """Take in a session that can be leased."""
        if self._ledger.ready(instance_id):
            self._later(lambda: self._pool.add(instance_id))
        else:
            logger.warning("The session %s was announced twice", instance_id)

    def gone(self, instance_id: InstanceId, *, comes_back: bool) -> Lease | None:
        """Take out a session that ceased to exist; returns the lease this ended, if any."""
        lease = self._ledger.gone(instance_id, comes_back=comes_back)
        self._remove(instance_id)
        return lease

    def down(self, port: int) -> list[Lease]:
        """Take out all sessions of an instance server; returns the leases this ended."""
        ready, leases = self._ledger.down(port)
        for instance_id in (*ready, *(lease.instance_id for lease in leases)):
            self._remove(instance_id)
        return leases

    async def info(self) -> NodeInfo:
        """Return what the pool says, and how many sessions are up."""
        async with self._changing():
            state = await self._pool.snapshot()
        counts = self._ledger.counts()
        return NodeInfo(
            available=len(state.available),
            capacity=counts.capacity,
            in_use=sorted(state.in_use),
            callers=self._ledger.callers(),
        )

    def close(self) -> None:
        """Hand out nothing any more; who waits is refused at once."""
        self._is_closing = True
        self._freed.set()

    async def keep_in_step(self) -> None:
        """Bring to the pool what happened in the ledger, for ever; rebuild it after a failure."""
        check_s = self._pool.check_s
        loop = asyncio.get_running_loop()
        check_at = None if check_s is None else loop.time()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(check_at):
                    await self._work.wait()
            self._work.clear()
            try:
                async with self._turn, self._noting_trouble():
                    await self._bring()
                    if check_at is not None and check_s is not None and loop.time() >= check_at:
                        await self._check()
                        check_at = loop.time() + check_s
            except PoolUnavailable as exc:
                logger.debug("The pool is out of reach: %s", exc.detail)
                await asyncio.sleep(check_s or 0)
            self._freed.set()

    async def _bring(self) -> None:
        if self._is_stale:
            await self._rebuild()
        while self._pending:
            await self._pending[0]()
            self._pending.popleft()

    async def _check(self) -> None:
        """Keep the claim, and see whether anybody else changed the sets."""
        if await self._pool.is_ours():
            state = await self._pool.snapshot()
            # What happened while the answer came is pending, and then nothing can be compared.
            if self._pending or state == self._ledger.state():
                return
        logger.warning("The pool's sets were changed by somebody else; rebuilding them")
        await self._rebuild()

    async def _rebuild(self) -> None:
        self._pending.clear()
        await self._pool.replace(self._ledger.state())
        if self._trouble is not None:
            logger.info("The pool is back and was rebuilt: %r", self._ledger)
        self._is_stale, self._trouble = False, None

    def _remove(self, instance_id: InstanceId) -> None:
        self._later(lambda: self._pool.discard(instance_id))

    def _later(self, change: Callable[[], Awaitable[None]]) -> None:
        self._pending.append(change)
        self._work.set()

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        async with self._turn:
            if self._trouble is not None:
                raise PoolUnavailable(self._trouble.detail)
            async with self._noting_trouble():
                yield

    @asynccontextmanager
    async def _noting_trouble(self) -> AsyncIterator[None]:
        try:
            yield
        except PoolUnavailable as exc:
            if self._trouble is None:
                logger.error("%s; no session is leased until it is back", exc.detail)
            self._trouble, self._is_stale = exc, True
            self._freed.set()
            self._work.set()
            raise
        except asyncio.CancelledError:
            # A change may have been made without its answer having arrived.
            self._is_stale = True
            self._work.set()
            raise

    def _check_open(self) -> None:
        if self._is_closing:
            raise NodeUnavailable(CLOSING)
