"""Registration and health of the nodes: who they are, whether they answer, what they have free.

Nodes are polled all at once, each with its own time-out, so a dead one delays nobody; requests
never wait for a poll. The registry's last list holds while its Redis is out of reach, but an empty
list is an answer: then there are no registered nodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from pydantic import ValidationError

from omniboxes.common.hop import Hop
from omniboxes.common.redis_registry import RedisRegistry
from omniboxes.common.wire import ClusterInfo, NodeInfo
from omniboxes.errors import OmniboxError, RegistryUnavailable
from omniboxes.master.node_table import Node, NodeTable

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 2.0
POLL_TIMEOUT_S = 2.0
REGISTRY_INTERVAL_S = 10.0


class NodeManager:
    """Keeps a `NodeTable` true while `running()`."""

    def __init__(
        self,
        table: NodeTable,
        hop: Hop,
        registry: RedisRegistry | None = None,
        *,
        registry_interval_s: float = REGISTRY_INTERVAL_S,
    ) -> None:
        self.table = table
        self.registry_is_up: bool | None = None
        """Whether the registry's last refresh succeeded; None without a registry."""
        self.registry_failures = 0
        self._hop = hop
        self._registry = registry
        self._registry_interval_s = registry_interval_s
        self._is_closing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look at registry and nodes once, then go on doing so as long as the block runs."""
        await self.refresh_registry()
        await self.poll(self.table)
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(self._every(POLL_INTERVAL_S, self._poll_all))]
            if self._registry is not None:
                interval_s = self._registry_interval_s
                loops.append(group.create_task(self._every(interval_s, self.refresh_registry)))
            try:
                yield
            finally:
                self._is_closing = True
                for task in loops:
                    task.cancel()

    async def info(self) -> ClusterInfo:
        """Ask all nodes now and return what they say."""
        await self._poll_all()
        return ClusterInfo(nodes=[node.state() for node in self.table])

    async def poll(self, nodes: Iterable[Node]) -> None:
        """Ask the nodes for their state, all at once; none takes longer than its time-out."""
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(self._poll_one(node))

    async def _poll_all(self) -> None:
        await self.poll(self.table)

    async def _poll_one(self, node: Node) -> None:
        was_healthy = node.healthy
        try:
            async with asyncio.timeout(POLL_TIMEOUT_S):
                answer = await self._hop.json("GET", f"{node.url}/info", deadline_s=POLL_TIMEOUT_S)
            self.table.record(node, NodeInfo.model_validate(answer))
        except (OmniboxError, ValidationError, TimeoutError) as exc:
            self.table.record_failure(node)
            if was_healthy:
                reason = str(exc) or f"no answer within {POLL_TIMEOUT_S:g} s"
                logger.warning("Node %s (%s) is unhealthy: %s", node.id, node.url, reason)
            return
        if not was_healthy:
            fields = {"capacity": node.capacity, "available": node.reported}
            logger.info("Node %s (%s) is healthy", node.id, node.url, extra={"fields": fields})

    async def refresh_registry(self) -> None:
        """Read the registry and poll the nodes that are new; keep the last list if it is down."""
        if self._registry is None:
            return
        try:
            registered = await self._registry.list_nodes()
        except RegistryUnavailable as exc:
            self.registry_failures += 1
            if self.registry_is_up is not False:
                logger.warning("%s; the last list of nodes is kept", exc.detail)
            self.registry_is_up = False
            return
        if self.registry_is_up is False:
            logger.info("The registry's Redis answers again")
        self.registry_is_up = True
        await self.poll(self.table.sync(node.url for node in registered))

    async def _every(self, interval_s: float, action: Callable[[], Awaitable[None]]) -> None:
        """Run an action, `interval_s` from start to start; a slow run delays the next one."""
        loop = asyncio.get_running_loop()
        next_start = loop.time() + interval_s
        # A client library that swallows a cancellation must not keep the server from ending.
        while not self._is_closing:
            await asyncio.sleep(next_start - loop.time())
            next_start = loop.time() + interval_s
            try:
                await action()
            except Exception:  # a background loop survives what nobody foresaw, and says so
                logger.exception("The background task failed; it goes on")
