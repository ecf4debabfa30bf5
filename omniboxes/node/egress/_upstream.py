"""A user's own proxy, and how to ask it for a tunnel: HTTP CONNECT or SOCKS5."""

import asyncio
import base64
import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from omniboxes.node.egress._address import canonical_host, parse_literal
from omniboxes.node.egress._dial import Connection
from omniboxes.node.egress._rule import is_name
from omniboxes.node.egress._socks import SocksError, Target, request_tunnel

_DEFAULT_PORTS = {"http": 80, "socks5": 1080, "socks5h": 1080}
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")


class Endpoint(NamedTuple):
    """A proxy taken apart."""

    scheme: str
    target: Target
    credentials: tuple[str, str] | None


class TunnelError(Exception):
    """The upstream did not open the tunnel; `reason` is Chromium's word for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class UpstreamProxy:
    """A proxy that one lease's pages go through, as in `http://user:pass@10.0.0.5:3128`.

    The scheme is `http` (also when there is none) or `socks5`. Credentials may stand in the URL
    or beside it. ValueError when it cannot be used; neither it nor the repr shows a credential.
    """

    server: str = field(repr=False)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.endpoint()

    def endpoint(self) -> Endpoint:
        """Return the parsed form."""
        text = self.server if "://" in self.server else f"http://{self.server}"
        try:
            url = urlsplit(text)
            port = url.port
        except ValueError:
            raise ValueError("proxy.server is not a proxy's URL.") from None
        if url.scheme not in _DEFAULT_PORTS:
            raise ValueError(f"proxy.server: {url.scheme!r} is not http or socks5.")
        host = canonical_host(url.hostname or "")
        is_plain = url.path in ("", "/") and not (url.query or url.fragment)
        if not is_plain or not (is_name(host) or parse_literal(host)) or port == 0:
            raise ValueError("proxy.server is not scheme://host:port.")
        target = Target(host, port or _DEFAULT_PORTS[url.scheme])
        return Endpoint(url.scheme, target, self._credentials(url))

    def _credentials(self, url: SplitResult) -> tuple[str, str] | None:
        username = unquote(url.username or "") if self.username is None else self.username
        password = unquote(url.password or "") if self.password is None else self.password
        if not username and not password:
            return None
        if any(len(part.encode()) > 255 for part in (username, password)):
            raise ValueError("proxy.username and proxy.password take 255 bytes each.")
        return username, password


async def open_tunnel(connection: Connection, endpoint: Endpoint, target: Target) -> None:
    """Ask the proxy at the other end of `connection` for `target`; TunnelError unless it agrees."""
    try:
        if endpoint.scheme == "http":
            await _connect(connection, endpoint, target)
        else:
            await request_tunnel(*connection, target, endpoint.credentials)
    except SocksError as exc:
        raise TunnelError("net::ERR_SOCKS_CONNECTION_FAILED") from exc
    except (OSError, asyncio.IncompleteReadError) as exc:
        raise TunnelError("net::ERR_PROXY_CONNECTION_FAILED") from exc


async def _connect(connection: Connection, endpoint: Endpoint, target: Target) -> None:
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = [f"CONNECT {host}:{target.port} HTTP/1.1", f"Host: {host}:{target.port}"]
    if endpoint.credentials is not None:
        token = base64.b64encode(":".join(endpoint.credentials).encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {token}")
    connection.writer.write("\r\n".join([*lines, "", ""]).encode())
    try:
        head = await connection.reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as exc:
        raise TunnelError("net::ERR_TUNNEL_CONNECTION_FAILED") from exc
    status = _STATUS_LINE.match(head)
    if status is not None and status[1] == b"407":
        raise TunnelError("net::ERR_PROXY_AUTH_REQUESTED")
    if status is None or not status[1].startswith(b"2"):
        raise TunnelError("net::ERR_TUNNEL_CONNECTION_FAILED")
