"""Resolve names off the loop, in threads of their own, remembered for a minute.

Chromium keeps a name for as long, but behind a SOCKS proxy it leaves names to the proxy and a
page opens many connections to one host.
"""

import asyncio
import socket
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address

from omniboxes.node.egress._address import IPAddress, parse_literal

_KEPT_S = 60.0
_KEPT_NAMES = 1024
# Not the loop's default executor: a slow DNS server must not hold up image work.
_THREADS = 16

# What a localhost name means is fixed (RFC 6761), and some DNS servers get it wrong.
_LOOPBACK = (ip_address("127.0.0.1"), ip_address("::1"))

Addresses = tuple[IPAddress, ...]


class Resolver:
    """Turns canonical hosts into addresses; `OSError` when there are none."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="egress-dns")
        self._kept: OrderedDict[str, tuple[float, Addresses]] = OrderedDict()
        self._pending: dict[str, asyncio.Future[Addresses]] = {}

    async def resolve(self, host: str) -> Addresses:
        """Return the addresses of `host`, best first."""
        literal = parse_literal(host)
        if literal is not None:
            return (literal,)
        if host == "localhost" or host.endswith(".localhost"):
            return _LOOPBACK
        loop = asyncio.get_running_loop()
        expiry, addresses = self._kept.get(host, (0.0, ()))
        if loop.time() < expiry:
            return addresses
        pending = self._pending.get(host)
        if pending is None:
            pending = loop.run_in_executor(self._threads, _lookup, host)
            self._pending[host] = pending
            pending.add_done_callback(partial(self._land, host))
        # Others may wait for the same answer: one who leaves must not take it away from them.
        return await asyncio.shield(pending)

    def close(self) -> None:
        """Forget all lookups; one inside the C library ends on its own."""
        for pending in list(self._pending.values()):
            pending.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _land(self, host: str, pending: asyncio.Future[Addresses]) -> None:
        del self._pending[host]
        if pending.cancelled() or pending.exception() is not None:
            return
        self._kept[host] = (pending.get_loop().time() + _KEPT_S, pending.result())
        self._kept.move_to_end(host)
        while len(self._kept) > _KEPT_NAMES:
            self._kept.popitem(last=False)


def _lookup(host: str) -> Addresses:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as exc:
        raise socket.gaierror(socket.EAI_NONAME, str(exc)) from exc
    return tuple(dict.fromkeys(ip_address(sockaddr[0]) for *_, sockaddr in found))
