"""The pool as two Redis sets, which operators read with `redis-cli smembers available`.

    <prefix>available    ids that can be leased
    <prefix>in_use       ids that are leased
    <prefix>node_owner   token of the one node that writes the two sets

Every change is one script that first checks the owner, so a node that lost its claim (it was
paused, or Redis was emptied) changes nothing. The owner renews all three keys; when it dies without
a word, they expire together.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from redis import AuthenticationError, RedisError, ResponseError
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript

from omniboxes.common.wire import InstanceId
from omniboxes.errors import PoolUnavailable, SetupError
from omniboxes.node.pool import PoolState

OPERATION_TIMEOUT_S = 1.0
OWNER_TTL_S = 5.0
CHECK_S = 1.0
_WATCH_S = 0.2

# KEYS: owner, available, in_use. ARGV[1]: our token.
_LOST = "LOST"
_GUARD = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('LOST') end\n"
_CLAIM = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
redis.call('DEL', KEYS[2], KEYS[3])
return 1
"""
_RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
return 1
"""
_ADD = """
if redis.call('SISMEMBER', KEYS[3], ARGV[2]) == 0 then redis.call('SADD', KEYS[2], ARGV[2]) end
"""
_LEASE = """
local id = redis.call('SPOP', KEYS[2])
if id then redis.call('SADD', KEYS[3], id) end
return id
"""
_RELEASE = "return redis.call('SREM', KEYS[3], ARGV[2])"
_DISCARD = "redis.call('SREM', KEYS[2], ARGV[2]) redis.call('SREM', KEYS[3], ARGV[2])"
_SNAPSHOT = "return {redis.call('SMEMBERS', KEYS[2]), redis.call('SMEMBERS', KEYS[3])}"
# ARGV: token, ttl, how many of the rest are available, ids.
_REPLACE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return redis.error_reply('LOST') end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('DEL', KEYS[2], KEYS[3])
for i = 4, #ARGV do
  local key = KEYS[2]
  if i - 3 > tonumber(ARGV[3]) then key = KEYS[3] end
  redis.call('SADD', key, ARGV[i])
end
for i = 2, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
"""
_CLEAR = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1], KEYS[2], KEYS[3]) end
"""


class Keys(NamedTuple):
    """The names of all keys the pool uses, in the order the scripts take them."""

    owner: str
    available: str
    in_use: str

    @classmethod
    def under(cls, prefix: str) -> Keys:
        """Return the keys of the pool with that prefix."""
        return cls(f"{prefix}node_owner", f"{prefix}available", f"{prefix}in_use")


class RedisPool:
    """The pool in Redis. One node owns it; a second one that comes refuses to start."""

    check_s: float | None = CHECK_S

    def __init__(self, url: str, prefix: str = "") -> None:
        try:
            options: dict[str, Any] = {**parse_url(url)}
        except ValueError as exc:
            raise SetupError(f"OMNIBOX_REDIS_URL cannot be used: {exc}") from exc
        options |= {
            "decode_responses": True,
            "socket_timeout": OPERATION_TIMEOUT_S,
            "socket_connect_timeout": OPERATION_TIMEOUT_S,
            # A lease whose answer was lost must not be asked for twice; the node rebuilds instead.
            "retry": Retry(NoBackoff(), 0),
        }
        self._connections = ConnectionPool(**options)
        self._redis = Redis(connection_pool=self._connections)
        self._where, self._check = _describe(url)
        self._keys = Keys.under(prefix)
        self._token = uuid.uuid4().hex
        self._claim = self._redis.register_script(_CLAIM)
        self._renew = self._redis.register_script(_RENEW)
        self._add = self._redis.register_script(_GUARD + _ADD)
        self._lease = self._redis.register_script(_GUARD + _LEASE)
        self._release = self._redis.register_script(_GUARD + _RELEASE)
        self._discard = self._redis.register_script(_GUARD + _DISCARD)
        self._snapshot = self._redis.register_script(_GUARD + _SNAPSHOT)
        self._replace = self._redis.register_script(_REPLACE)
        self._clear = self._redis.register_script(_CLEAR)

    def __repr__(self) -> str:
        return f"<RedisPool {self._where}, key {self._keys.available}>"

    async def open(self) -> None:
        """Claim the two sets and clear what a dead node left.

        Raises SetupError when Redis is out of reach or another node is alive. The claim of a node
        that was killed is waited for: it lapses within `OWNER_TTL_S`.
        """
        try:
            await self._claim_sets()
        except PoolUnavailable as exc:
            if isinstance(exc.__cause__, AuthenticationError):
                reason = f"Redis at {self._where} refuses the user or the password"
            else:
                reason = f"Redis connection refused: nothing usable answers at {self._where}"
            raise SetupError(f"{reason}; {self._check}.") from exc

    async def _claim_sets(self) -> None:
        seen_ms: float = math.inf
        while not await self._run(self._claim, _ms(OWNER_TTL_S)):
            with self._translated():
                async with asyncio.timeout(OPERATION_TIMEOUT_S):
                    left_ms = await self._redis.pttl(self._keys.owner)
            if left_ms == -1 or left_ms > seen_ms:
                raise SetupError(
                    f"Another node uses the pool {self._keys.available!r} at {self._where}; stop "
                    "it, or give each node a prefix of its own with OMNIBOX_REDIS_PREFIX."
                )
            seen_ms = left_ms
            # The other side is another process, or none: there is nothing to wait on but time.
            await asyncio.sleep(_WATCH_S)

    async def aclose(self) -> None:
        """Delete the keys if they are still ours, and close the connections."""
        try:
            await self._run(self._clear)
        except PoolUnavailable:
            # Out of reach: the keys expire by themselves.
            pass
        finally:
            await self._redis.aclose()
            await self._connections.disconnect()

    async def is_ours(self) -> bool:
        """Renew the claim; False when it was lost, with Redis emptied or after a long pause."""
        return bool(await self._run(self._renew, _ms(OWNER_TTL_S)))

    async def add(self, instance_id: InstanceId) -> None:
        """Make a session available; one that is in use stays in use."""
        await self._run(self._add, instance_id)

    async def lease(self) -> InstanceId | None:
        """Move any available session to in use; None when there is none."""
        instance_id = await self._run(self._lease)
        return None if instance_id is None else InstanceId(instance_id)

    async def release(self, instance_id: InstanceId) -> bool:
        """Take a session out of use; tells whether it was in use."""
        return bool(await self._run(self._release, instance_id))

    async def discard(self, instance_id: InstanceId) -> None:
        """Take a session out of both sets."""
        await self._run(self._discard, instance_id)

    async def snapshot(self) -> PoolState:
        """Return both sets."""
        available, in_use = await self._run(self._snapshot)
        return PoolState(
            frozenset(InstanceId(member) for member in available),
            frozenset(InstanceId(member) for member in in_use),
        )

    async def replace(self, state: PoolState) -> None:
        """Make the sets what `state` says; takes the claim again where nobody holds it."""
        ids = (*state.available, *state.in_use)
        await self._run(self._replace, _ms(OWNER_TTL_S), str(len(state.available)), *ids)

    async def _run(self, script: AsyncScript, *args: str) -> Any:
        with self._translated():
            async with asyncio.timeout(OPERATION_TIMEOUT_S):
                return await script(keys=list(self._keys), args=[self._token, *args])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as exc:  # TimeoutError is an OSError
            if str(exc) == _LOST:
                detail = f"The pool in Redis at {self._where} was lost and is being rebuilt"
            elif isinstance(exc, ResponseError):
                detail = f"Redis at {self._where} does not keep the pool: {exc}"
            else:
                detail = f"Redis at {self._where} does not answer; {self._check}"
            raise PoolUnavailable(detail) from exc


def _ms(seconds: float) -> str:
    return str(int(seconds * 1000))


def _describe(url: str) -> tuple[str, str]:
    """Say where the Redis is and how to check it, without user and password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path, f"check it with `redis-cli ping` (add `-s {parts.path}`)"
    host, port = parts.hostname or "localhost", parts.port or 6379
    tls = " --tls" if parts.scheme == "rediss" else ""
    return f"{host}:{port}", f"check it with `redis-cli ping` (add `-h {host} -p {port}{tls}`)"
