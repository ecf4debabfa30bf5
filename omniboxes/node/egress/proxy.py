"""The forwarding proxy that everything a page sends goes through.

Chromium is started with `--proxy-server=socks5://127.0.0.1:PORT --proxy-bypass-list=<-loopback>`
and leaves names to the proxy, which resolves them, checks every address and dials the checked one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from omniboxes.errors import EgressRefused
from omniboxes.node.egress._dial import ConnectFailure, DialError
from omniboxes.node.egress._door import Door, Outcome
from omniboxes.node.egress._gate import Gate, is_local_address
from omniboxes.node.egress._resolver import Resolver
from omniboxes.node.egress._route import DirectRoute, Route, UpstreamRoute
from omniboxes.node.egress._socks import Target
from omniboxes.node.egress._upstream import UpstreamProxy
from omniboxes.node.egress.policy import EgressPolicy, Refusal, canonical_host

__all__ = ["ConnectFailure", "EgressProxy", "Outcome", "UpstreamProxy", "is_local_address"]


class EgressProxy:
    """One SOCKS5 port for all leases, and one more for each lease that brings its own proxy."""

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        on_refused: Callable[[Refusal], None] | None = None,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self._policy = policy
        self._on_refused = on_refused
        self._connect_timeout_s = connect_timeout_s
        self._resolver = Resolver()
        self._gate = Gate(policy, self._resolver)
        self._main = self._door(DirectRoute(self._gate))
        self._doors: set[Door] = set()
        self.refused_total = 0

    @property
    def port(self) -> int:
        """The loopback port for Chromium's `--proxy-server`."""
        return self._main.port

    @property
    def connections_open(self) -> int:
        """Connections being served, those through upstreams included."""
        return sum(door.connections_open for door in self._doors)

    async def __aenter__(self) -> Self:
        await self._open(self._main)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        async with asyncio.TaskGroup() as group:
            for door in list(self._doors):
                group.create_task(self._close(door))
        self._resolver.close()

    def last_failure(self, host: str, port: int, *, via: int | None = None) -> Outcome | None:
        """Return why the latest connection to `host` and `port` failed; None when it did not.

        Chromium only says ERR_SOCKS_CONNECTION_FAILED. `via` is the port of an `upstream`, whose
        failures are its own.
        """
        wanted = self.port if via is None else via
        door = next((door for door in self._doors if door.port == wanted), None)
        return None if door is None else door.last_failure(Target(canonical_host(host), port))

    @asynccontextmanager
    async def upstream(self, upstream: UpstreamProxy) -> AsyncIterator[int]:
        """Open a port whose connections go through a user's own proxy; closing it cuts them.

        EgressRefused when the policy refuses that proxy's address. It is checked again on every
        connection; one that cannot be resolved now fails then.
        """
        endpoint = upstream.endpoint()
        deadline = asyncio.get_running_loop().time() + self._connect_timeout_s
        try:
            await self._gate.permitted(endpoint.target, deadline)
        except DialError as exc:
            if isinstance(exc.outcome, Refusal):
                self._count(exc.outcome)
                raise EgressRefused(exc.outcome.sentence) from exc
        door = self._door(UpstreamRoute(self._gate, endpoint))
        await self._open(door)
        try:
            yield door.port
        finally:
            await self._close(door)

    def _door(self, route: Route) -> Door:
        return Door(route, connect_timeout_s=self._connect_timeout_s, on_refused=self._count)

    async def _open(self, door: Door) -> None:
        await door.open()
        self._doors.add(door)
        self._guard_doors()

    async def _close(self, door: Door) -> None:
        await door.aclose()
        self._doors.discard(door)
        self._guard_doors()

    def _guard_doors(self) -> None:
        """Keep pages from our own ports: another lease's proxy is not theirs to use."""
        self._gate.policy = self._policy.guarding(door.port for door in self._doors)

    def _count(self, refusal: Refusal) -> None:
        self.refused_total += 1
        if self._on_refused is not None:
            self._on_refused(refusal)
