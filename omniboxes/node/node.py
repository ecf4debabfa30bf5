"""One node: leases out the sessions of its instance servers and forwards what clients do in them.

The handlers of the node server are calls of `Node`. A request is checked against the ledger before
it is forwarded, and a crash reported while it is under way ends it with InstanceCrashed at once,
whatever the instance server does.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response

from omniboxes.common.commands import MAX_SLEEP_S
from omniboxes.common.hop import FORWARDED_REQUEST_HEADERS, Answer, Hop, budget_s
from omniboxes.common.settings import Settings
from omniboxes.common.wire import InstanceId, LeaseOptions, NodeInfo
from omniboxes.errors import (
    DeadlineExceeded,
    InstanceCrashed,
    InstanceNotFound,
    InternalFault,
    InvalidLifetime,
    NodeUnavailable,
    OmniboxError,
    PoolExhausted,
    SetupError,
)
from omniboxes.node.background import Background
from omniboxes.node.desk import Desk
from omniboxes.node.launch import INSTANCE_SERVER, Launch, environment, plan
from omniboxes.node.leases import CRASHED, Lease, Ledger
from omniboxes.node.metrics import LEAKED_AFTER_S, Metrics, SessionCollector
from omniboxes.node.pool import EmbeddedPool, Pool
from omniboxes.node.redis_pool import RedisPool
from omniboxes.node.supervisor import Down, EgressRefused, Event, Gone, Ready, Supervisor

logger = logging.getLogger(__name__)

DEFAULT_LIFETIME_MINS = 60.0
SLACK_S = 5.0
"""What a forwarded command may take beyond its own limit: settling, capture, the way back."""
CLAIM_S = 10.0
VERDICT_S = 2.0
"""How long a broken connection waits for the news that its instance server died."""
RECYCLE_ATTEMPTS = 3
RECYCLE_DEADLINE_S = 5.0
LEAK_CHECK_S = 10.0

# What an instance server answers when the slot, not the caller, is the reason.
_DEAD_SLOT = (
    DeadlineExceeded,
    InstanceCrashed,
    InstanceNotFound,
    InternalFault,
    NodeUnavailable,
    PoolExhausted,
)


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What one node is started with."""

    settings: Settings
    instances: int
    port: int = 8080
    instance_start_port: int = 9000
    command: tuple[str, ...] = INSTANCE_SERVER
    """How an instance server is started; `--port` and `--slots` are added."""


@asynccontextmanager
async def open_node(config: NodeConfig, metrics: Metrics) -> AsyncIterator[Node]:
    """Yield a running node; on the way out nothing of it is left.

    Raises SetupError when the ports or the pool cannot be used.
    """
    key = secrets.token_urlsafe(32)
    # In a thread, because the name of a Redis host is looked up.
    launch = await asyncio.to_thread(_launch, config, key)
    async with AsyncExitStack() as stack:
        hop = await stack.enter_async_context(Hop.open(key))
        pool = _pool(config.settings)
        stack.push_async_callback(pool.aclose)
        await pool.open()
        background = await stack.enter_async_context(Background())
        node = Node(config.settings, launch, pool, hop=hop, background=background, metrics=metrics)
        stack.push_async_callback(node.aclose)
        await node.open()
        yield node


def _launch(config: NodeConfig, key: str) -> Launch:
    settings = config.settings
    servers = plan(config.instances, settings.slots_per_browser, config.instance_start_port)
    ports = [server.port for server in servers]
    if config.port in ports:
        raise SetupError(
            f"Port {config.port} of the node lies among those of its instance servers, "
            f"{ports[0]}-{ports[-1]}; choose another --port or --instance-start-port."
        )
    guarded = environment(settings, instance_key=key, guarded_ports=[config.port, *ports])
    return Launch(servers, config.command, guarded)


def _pool(settings: Settings) -> Pool:
    if settings.redis_url is None:
        return EmbeddedPool()
    return RedisPool(settings.redis_url, settings.redis_prefix)


class Node:
    """The behaviour behind every route of the node server."""

    def __init__(
        self,
        settings: Settings,
        launch: Launch,
        pool: Pool,
        *,
        hop: Hop,
        background: Background,
        metrics: Metrics,
    ) -> None:
        self.metrics = metrics
        self._settings = settings
        self._hop = hop
        self._background = background
        self._ledger = Ledger(launch.servers, max_lease_s=settings.lease_max_mins * 60)
        self._desk = Desk(self._ledger, pool, wait_s=settings.get_wait_s)
        self._supervisor = Supervisor(launch, hop=hop, background=background, report=self.on_event)
        self._under_way: defaultdict[InstanceId, set[asyncio.Timeout]] = defaultdict(set)
        self._poke = asyncio.Event()
        self._wakes_at = math.inf
        metrics.registry.register(SessionCollector(self._ledger, self._desk, self._supervisor))

    async def open(self) -> None:
        """Start the instance servers and what runs beside the requests."""
        await self._supervisor.open()
        self._background.start(self._desk.keep_in_step(), "keep-pool-in-step")
        self._background.start(self._reap(), "reap-leases")
        self._background.start(self._restart_leaking(), "restart-leaking")

    async def aclose(self) -> None:
        """Grant nothing more and end the instance servers, with all sessions."""
        self._desk.close()
        await self._supervisor.aclose()

    @property
    def available(self) -> int:
        """How many sessions can be leased now."""
        return self._ledger.counts().ready

    async def get(
        self, request: Request, lifetime_mins: float | None, options: LeaseOptions | None
    ) -> InstanceId:
        """Lease a session.

        Raises InvalidLifetime, PoolExhausted, PoolUnavailable, or what the instance server has
        against the options.
        """
        idle_s = self._lifetime_s(lifetime_mins)
        limit_s = budget_s(request, self._settings.get_wait_s + CLAIM_S)
        try:
            async with asyncio.timeout(limit_s):
                lease = await self._lease(idle_s, options)
        except TimeoutError as exc:
            raise DeadlineExceeded(f"No session could be leased within {limit_s:g} s") from exc
        lease.caller = options.caller if options else None
        self.metrics.granted.inc()
        logger.debug("Leased %s", lease.instance_id)
        if await request.is_disconnected():
            # Nobody is left to use it, so it goes back now and not when it expires.
            self._drop(lease)
        self._note_expiry(lease)
        return lease.instance_id

    def _lifetime_s(self, lifetime_mins: float | None) -> float:
        longest = self._settings.lease_max_mins
        if lifetime_mins is None:
            lifetime_mins = min(DEFAULT_LIFETIME_MINS, longest)
        if not 0 < lifetime_mins <= longest:
            raise InvalidLifetime(
                f"Invalid lifetime_mins: {lifetime_mins:g}. Must be between 0 and {longest:g} "
                "minutes."
            )
        return lifetime_mins * 60

    async def _lease(self, idle_s: float, options: LeaseOptions | None) -> Lease:
        while True:
            lease = await self._desk.take(idle_s)
            try:
                await self._claim(lease, options)
            except BaseException as exc:
                self._drop(lease)
                if not isinstance(exc, _DEAD_SLOT):
                    raise
                logger.warning("%s cannot be leased: %s", lease.instance_id, exc.detail)
            else:
                return lease

    async def _claim(self, lease: Lease, options: LeaseOptions | None) -> None:
        body = None if options is None else options.model_dump_json(exclude_unset=True).encode()
        async with self._unless_crashed(lease):
            await self._hop.json(
                "POST",
                _url(lease, "/get"),
                deadline_s=CLAIM_S,
                params={"instance_id": lease.uuid},
                body=body,
                headers={"content-type": "application/json"} if body else None,
            )

    async def reset(self, instance_id: InstanceId) -> None:
        """Release a session; its browser context is cleaned behind this.

        Raises InstanceNotFound when it is not leased, PoolUnavailable when the pool is out of
        reach, and then the lease goes on.
        """
        lease = await self._desk.give_back(instance_id)
        if lease is not None:
            self.metrics.released.inc()
            self._recycle(lease)

    async def info(self) -> NodeInfo:
        """Return the state of the pool."""
        return await self._desk.info()

    async def forward(
        self,
        request: Request,
        instance_id: InstanceId,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response:
        """Pass a request to the same route of the session's instance server.

        Raises InstanceNotFound without a lease, InstanceCrashed when the session is gone or goes
        while the request is under way, NodeUnavailable or DeadlineExceeded on a bad connection.
        """
        limit_s = budget_s(request, self._limit_s(body))
        lease = self._ledger.begin(instance_id)
        try:
            async with self._unless_crashed(lease):
                answer = await self._ask(request, lease, params or {}, body, limit_s)
                if answer.status == InstanceNotFound.status:
                    await self._explain_unknown(lease)
        finally:
            self._ledger.end(lease)
            self._note_expiry(lease)
        return _as_is(answer)

    def _limit_s(self, body: bytes | None) -> float:
        own_s = MAX_SLEEP_S if body is not None and b'"sleep"' in body else 0.0
        return self._settings.command_timeout_s + own_s + SLACK_S

    async def _ask(
        self,
        request: Request,
        lease: Lease,
        params: Mapping[str, str],
        body: bytes | None,
        deadline_s: float,
    ) -> Answer:
        headers = {
            name: request.headers[name]
            for name in FORWARDED_REQUEST_HEADERS
            if name in request.headers
        }
        if body is not None:
            headers["content-type"] = "application/json"
        # Read to its end here, so that a death in the middle is still an answer of its own.
        return await self._hop.fetch(
            request.method,
            _url(lease, request.scope["path"]),
            deadline_s=deadline_s,
            params={"instance_id": lease.uuid, **params},
            body=body,
            headers=headers,
        )

    @asynccontextmanager
    async def _unless_crashed(self, lease: Lease) -> AsyncIterator[None]:
        """Raise InstanceCrashed as soon as the crash of the session is reported."""
        scopes = self._under_way[lease.instance_id]
        try:
            async with asyncio.timeout(None) as scope:
                scopes.add(scope)
                try:
                    yield
                except NodeUnavailable as exc:
                    await self._await_verdict(lease)
                    if self._ledger.is_buried(lease.instance_id):
                        # Reported in the same turn of the loop, too late to cancel this one.
                        raise InstanceCrashed(CRASHED) from exc
                    raise
                finally:
                    scopes.discard(scope)
                    if not scopes:
                        self._under_way.pop(lease.instance_id, None)
        except TimeoutError as exc:
            assert scope.expired(), "every other time limit has a type of its own"
            raise InstanceCrashed(CRASHED) from exc

    async def _await_verdict(self, lease: Lease) -> None:
        # A broken connection is seen before the death that broke it, by a moment.
        if self._is_live(lease):
            await asyncio.sleep(VERDICT_S)

    async def _explain_unknown(self, lease: Lease) -> None:
        await self._await_verdict(lease)
        if self._is_live(lease):
            logger.error("The instance server does not know %s any more", lease.instance_id)
            self.on_event(Gone(lease.instance_id, "crashed"))
            raise InstanceCrashed(CRASHED)

    def _is_live(self, lease: Lease) -> bool:
        try:
            return self._ledger.find(lease.instance_id) is lease
        except OmniboxError:
            return False

    def on_event(self, event: Event) -> None:
        """Take note of what the supervisor reports."""
        match event:
            case Ready(instance_id):
                self._desk.ready(instance_id)
            case Gone(instance_id, reason):
                lease = self._desk.gone(instance_id, comes_back=reason != "crashed")
                self._end_crashed([lease] if lease is not None else [])
            case Down(port):
                self._end_crashed(self._desk.down(port))
            case EgressRefused(count):
                self.metrics.egress_refused.inc(count)

    def _end_crashed(self, leases: Iterable[Lease]) -> None:
        now = asyncio.get_running_loop().time()
        for lease in leases:
            logger.warning("The browser of %s crashed", lease.instance_id)
            self.metrics.crashed.inc()
            for scope in self._under_way.pop(lease.instance_id, ()):
                scope.reschedule(now)

    def _drop(self, lease: Lease) -> None:
        if self._desk.drop(lease):
            self._recycle(lease)

    def _recycle(self, lease: Lease) -> None:
        self._background.start(self._clean(lease), f"recycle-{lease.instance_id}")

    async def _clean(self, lease: Lease) -> None:
        """Have the session's context replaced; a server that cannot do it is replaced itself."""
        for attempt in range(RECYCLE_ATTEMPTS):
            try:
                await self._hop.json(
                    "POST",
                    _url(lease, "/reset"),
                    deadline_s=RECYCLE_DEADLINE_S,
                    params={"instance_id": lease.uuid},
                )
            except (InstanceNotFound, InstanceCrashed):
                return  # gone already, which is all that was wanted
            except OmniboxError as exc:
                await asyncio.sleep(0.2 * 2**attempt)
                if self._ledger.is_outlived(lease):
                    return  # its server died, and the context with it
                logger.warning("%s cannot be recycled: %s", lease.instance_id, exc.detail)
            else:
                return
        logger.error("Restarting instance server %d, which cannot recycle", lease.port)
        self._supervisor.restart(lease.port)

    async def _reap(self) -> None:
        """End leases when their time is over."""
        while True:
            self._poke.clear()
            self._wakes_at = self._ledger.next_expiry()
            left_s = self._wakes_at - time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if left_s == math.inf else max(0.0, left_s)):
                    await self._poke.wait()
            for lease in self._desk.expire():
                logger.info("The lease of %s expired", lease.instance_id)
                self.metrics.expired.inc()
                self._recycle(lease)

    def _note_expiry(self, lease: Lease) -> None:
        if lease.expires_at() < self._wakes_at:
            self._poke.set()

    async def _restart_leaking(self) -> None:
        """Replace instance servers that lose sessions, once nobody uses them."""
        while True:
            await asyncio.sleep(LEAK_CHECK_S)
            for port, count in self._ledger.overdue(LEAKED_AFTER_S).items():
                if self._ledger.is_idle(port):
                    logger.error("Restarting instance server %d, which lost %d slots", port, count)
                    self._supervisor.restart(port)


def _url(lease: Lease, path: str) -> str:
    return f"http://127.0.0.1:{lease.port}{path}"


def _as_is(answer: Answer) -> Response:
    kept = ("content-type", "retry-after")
    headers = {name: answer.headers[name] for name in kept if name in answer.headers}
    return Response(answer.body, answer.status, headers=headers)
