"""Two ways to a target: straight, or through a lease's own proxy."""

import asyncio
from typing import Protocol

from omniboxes.node.egress._dial import ConnectFailure, Connection, DialError, dial, reason_of
from omniboxes.node.egress._gate import Gate
from omniboxes.node.egress._socks import Target
from omniboxes.node.egress._upstream import Endpoint, TunnelError, open_tunnel


class Route(Protocol):
    """Opens connections; DialError says why one could not be opened before the deadline."""

    async def open(self, target: Target, deadline: float) -> Connection:
        """Connect to `target`."""


class DirectRoute:
    """Dials the checked address itself, so no second resolution can differ from the first."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def open(self, target: Target, deadline: float) -> Connection:
        """Connect to `target`."""
        addresses = await self._gate.permitted(target, deadline)
        try:
            return await dial(addresses, target.port, deadline)
        except OSError as exc:
            raise DialError(ConnectFailure(*target, reason_of(exc))) from exc


class UpstreamRoute:
    """Asks a lease's own proxy, whose address is checked like any other."""

    def __init__(self, gate: Gate, endpoint: Endpoint) -> None:
        self._gate = gate
        self._endpoint = endpoint

    async def open(self, target: Target, deadline: float) -> Connection:
        """Connect to `target`."""
        asked = await self._gate.named(target)
        try:
            connection = await self._reach_proxy(deadline)
        except OSError as exc:
            raise DialError(ConnectFailure(*target, "net::ERR_PROXY_CONNECTION_FAILED")) from exc
        try:
            async with asyncio.timeout_at(deadline):
                await open_tunnel(connection, self._endpoint, asked)
        except BaseException as exc:
            connection.writer.transport.abort()
            if isinstance(exc, TunnelError):
                raise DialError(ConnectFailure(*target, exc.reason)) from exc
            if isinstance(exc, TimeoutError):
                raise DialError(ConnectFailure(*target, reason_of(exc))) from exc
            raise
        return connection

    async def _reach_proxy(self, deadline: float) -> Connection:
        proxy = self._endpoint.target
        return await dial(await self._gate.permitted(proxy, deadline), proxy.port, deadline)
