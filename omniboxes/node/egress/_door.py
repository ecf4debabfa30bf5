"""One listening port: its connections, the route they take and how they lately failed."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

from omniboxes.node.egress._dial import CHUNK_BYTES, ConnectFailure, Connection, DialError
from omniboxes.node.egress._relay import relay
from omniboxes.node.egress._route import Route
from omniboxes.node.egress._socks import Reply, SocksError, Target, accept_request, send_reply
from omniboxes.node.egress.policy import Refusal

logger = logging.getLogger(__name__)

Outcome = Refusal | ConnectFailure

_BACKLOG = 512
_GREETING_S = 10.0
_KEPT_FAILURES = 1024

_REPLIES = {
    "net::ERR_CONNECTION_REFUSED": Reply.CONNECTION_REFUSED,
    "net::ERR_CONNECTION_TIMED_OUT": Reply.TTL_EXPIRED,
    "net::ERR_NAME_NOT_RESOLVED": Reply.HOST_UNREACHABLE,
    "net::ERR_ADDRESS_UNREACHABLE": Reply.HOST_UNREACHABLE,
}


class Door:
    """A SOCKS5 server on a free loopback port."""

    def __init__(
        self, route: Route, *, connect_timeout_s: float, on_refused: Callable[[Refusal], None]
    ) -> None:
        self._route = route
        self._connect_timeout_s = connect_timeout_s
        self._on_refused = on_refused
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: OrderedDict[Target, Outcome] = OrderedDict()
        self.port = 0

    @property
    def connections_open(self) -> int:
        """How many clients are being served."""
        return len(self._tasks)

    def last_failure(self, target: Target) -> Outcome | None:
        """Return how the latest connection to `target` failed; None when it did not."""
        return self._failures.get(target)

    async def open(self) -> None:
        """Start to listen."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=CHUNK_BYTES, backlog=_BACKLOG
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Stop listening and cut every connection; a second time does nothing."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # An aborted transport closes its socket on the loop's next turn.
        await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("egress connection failed unexpectedly", exc_info=error)

    async def _serve(self, client: Connection) -> None:
        try:
            async with asyncio.timeout(_GREETING_S):
                target = await accept_request(*client)
            if (remote := await self._reach(target, client.writer)) is not None:
                await relay(client, remote)
        except (OSError, SocksError, asyncio.IncompleteReadError) as exc:
            # A peer that broke off or talks nonsense ends its own connection, nothing more.
            logger.debug("egress connection ended: %r", exc)
        finally:
            # Not an abort: uvloop sends a reply only on its next turn.
            client.writer.close()

    async def _reach(self, target: Target, client: asyncio.StreamWriter) -> Connection | None:
        """Connect and tell the client; None when that failed."""
        deadline = asyncio.get_running_loop().time() + self._connect_timeout_s
        try:
            remote = await self._route.open(target, deadline)
        except DialError as exc:
            self._remember(target, exc.outcome)
            send_reply(client, _reply_to(exc.outcome))
            logger.debug("%s", exc)
            return None
        self._failures.pop(target, None)
        send_reply(client, Reply.SUCCEEDED)
        return remote

    def _remember(self, target: Target, outcome: Outcome) -> None:
        self._failures[target] = outcome
        self._failures.move_to_end(target)
        while len(self._failures) > _KEPT_FAILURES:
            self._failures.popitem(last=False)
        if isinstance(outcome, Refusal):
            self._on_refused(outcome)


def _reply_to(outcome: Outcome) -> Reply:
    if isinstance(outcome, Refusal):
        return Reply.NOT_ALLOWED
    return _REPLIES.get(outcome.reason, Reply.GENERAL_FAILURE)
