"""The registry of nodes: each node keeps one key alive in Redis, masters read them all.

    omnibox:nodes:<node id>   {"version": 1, "url": "http://10.0.0.7:8080"}   TTL 120 s

A node's id is made by `new_node_id`, never from the host's name: containers share those. All keys
are in database 1, whatever database the URL names, apart from the pool's sets in database 0.
A node that dies without a word is gone when its key expires; one that lost Redis for a while comes
back with its next heartbeat. A value that is a plain URL is read as well.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from redis import RedisError
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from omniboxes.common.wire import NodeId
from omniboxes.errors import RegistryUnavailable, SetupError

__all__ = ["HEARTBEAT_S", "TTL_S", "RedisRegistry", "RegisteredNode", "new_node_id", "node_url"]

logger = logging.getLogger(__name__)

DATABASE = 1
PREFIX = "omnibox:nodes:"
TTL_S = 120
HEARTBEAT_S = 30.0
OPERATION_TIMEOUT_S = 3.0
_SCAN_COUNT = 500


class RegisteredNode(NamedTuple):
    """One node that announced itself."""

    id: NodeId
    url: str


def new_node_id() -> NodeId:
    """Return an id for one run of one node."""
    return NodeId(uuid.uuid4().hex)


def node_url(text: str) -> str:
    """Return the URL of a node in its one spelling; raises ValueError when it is none."""
    parts = urlsplit(text.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{text!r} is not a node's URL, like http://10.0.0.7:8080")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"{parts.hostname}: a node's URL has no user, password or query")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


class RedisRegistry:
    """The registry in one Redis; every call is bounded and raises RegistryUnavailable at worst."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[RedisRegistry]:
        """Yield the registry at a `redis://` URL; connects with the first call, not here."""
        try:
            options: dict[str, Any] = {**parse_url(url)}
        except ValueError as exc:
            raise SetupError(f"The Redis URL cannot be used: {exc}") from exc
        options |= {
            "db": DATABASE,
            "socket_timeout": OPERATION_TIMEOUT_S,
            "socket_connect_timeout": OPERATION_TIMEOUT_S,
            # Once, for a connection that died since the last call; callers come again anyway.
            "retry": Retry(NoBackoff(), 1),
        }
        pool = ConnectionPool(**options)
        redis = Redis(connection_pool=pool)
        try:
            yield cls(redis)
        finally:
            await redis.aclose()
            await pool.disconnect()

    async def register(self, node_id: NodeId, url: str) -> None:
        """Announce a node for the next `TTL_S` seconds."""
        value = json.dumps({"version": 1, "url": node_url(url)})
        with _translated():
            async with asyncio.timeout(OPERATION_TIMEOUT_S):
                await self._redis.set(PREFIX + node_id, value, ex=TTL_S)

    async def heartbeat(self, node_id: NodeId, url: str) -> None:
        """Keep a node announced, also when its key has expired or Redis has lost it."""
        await self.register(node_id, url)

    async def unregister(self, node_id: NodeId) -> None:
        """Take a node's announcement back; nothing happens when there is none."""
        with _translated():
            async with asyncio.timeout(OPERATION_TIMEOUT_S):
                await self._redis.delete(PREFIX + node_id)

    async def list_nodes(self) -> list[RegisteredNode]:
        """Return the nodes announced now, ordered by id."""
        with _translated():
            async with asyncio.timeout(OPERATION_TIMEOUT_S):
                pattern = PREFIX + "*"
                # SCAN may return a key twice.
                keys = {key async for key in self._redis.scan_iter(pattern, count=_SCAN_COUNT)}
                ordered = sorted(keys)
                values = await self._redis.mget(ordered) if ordered else []
        pairs = zip(ordered, values, strict=True)
        # A key may expire between SCAN and MGET; then its value is None.
        found = (_parsed(key, value) for key, value in pairs if value is not None)
        return [node for node in found if node is not None]


def _parsed(key: bytes, value: bytes | str) -> RegisteredNode | None:
    identifier = NodeId(key.decode(errors="replace").removeprefix(PREFIX))
    try:
        text = value if isinstance(value, str) else value.decode()
        url = json.loads(text)["url"] if text.startswith("{") else text
        return RegisteredNode(identifier, node_url(url))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        logger.warning("The registry's entry %s is no node: %s", identifier, exc)
        return None


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as exc:  # TimeoutError is an OSError
        raise RegistryUnavailable(f"The registry's Redis does not answer: {exc}") from exc
