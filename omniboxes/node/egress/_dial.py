"""Open a TCP connection to one of several checked addresses and name what went wrong."""

import asyncio
import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from omniboxes.node.egress._address import IPAddress
from omniboxes.node.egress.policy import Refusal

# A loop's transport reads at most this much at a time.
CHUNK_BYTES = 256 * 1024

_REASONS = {
    errno.ECONNREFUSED: "net::ERR_CONNECTION_REFUSED",
    errno.ECONNRESET: "net::ERR_CONNECTION_RESET",
    errno.ETIMEDOUT: "net::ERR_CONNECTION_TIMED_OUT",
    errno.EHOSTUNREACH: "net::ERR_ADDRESS_UNREACHABLE",
    errno.ENETUNREACH: "net::ERR_ADDRESS_UNREACHABLE",
    errno.EADDRNOTAVAIL: "net::ERR_ADDRESS_UNREACHABLE",
    errno.EAFNOSUPPORT: "net::ERR_ADDRESS_UNREACHABLE",
    errno.EACCES: "net::ERR_NETWORK_ACCESS_DENIED",
    errno.EPERM: "net::ERR_NETWORK_ACCESS_DENIED",
    errno.EMFILE: "net::ERR_INSUFFICIENT_RESOURCES",
    errno.ENFILE: "net::ERR_INSUFFICIENT_RESOURCES",
}

_UNREACHABLE = frozenset(
    (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
)


@dataclass(frozen=True, slots=True)
class ConnectFailure:
    """A connection that the policy allowed and the network did not; `reason` is Chromium's word."""

    host: str
    port: int
    reason: str

    @property
    def sentence(self) -> str:
        """Say it to the person who asked for the page."""
        where = f"[{self.host}]" if ":" in self.host else self.host
        return f"No connection to {where}:{self.port}: {self.reason}."


class DialError(Exception):
    """No connection was made; the outcome says why."""

    def __init__(self, outcome: Refusal | ConnectFailure) -> None:
        super().__init__(outcome.sentence)
        self.outcome = outcome


class Connection(NamedTuple):
    """One open TCP connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def reason_of(error: OSError) -> str:
    """Return Chromium's name for a failed connect."""
    if isinstance(error, TimeoutError):
        return "net::ERR_CONNECTION_TIMED_OUT"
    return _REASONS.get(error.errno or 0, "net::ERR_CONNECTION_FAILED")


async def dial(addresses: Sequence[IPAddress], port: int, deadline: float) -> Connection:
    """Connect to the first address that answers; OSError (the most telling one) when none does.

    The addresses share the time that is left, so a silent first one leaves some for the others.
    """
    loop = asyncio.get_running_loop()
    errors: list[OSError] = []
    for index, address in enumerate(addresses):
        share_s = max(deadline - loop.time(), 0.0) / (len(addresses) - index)
        try:
            async with asyncio.timeout(share_s):
                reader, writer = await asyncio.open_connection(
                    str(address), port, limit=CHUNK_BYTES
                )
        except OSError as exc:
            errors.append(exc)
            continue
        # Finds out about a peer that vanished while nobody had anything to say.
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return Connection(reader, writer)
    telling = (error for error in errors if error.errno not in _UNREACHABLE)
    raise next(telling, errors[-1])
