"""SOCKS5 (RFC 1928, RFC 1929): the server side for Chromium, the client side for an upstream."""

import asyncio
from enum import IntEnum
from ipaddress import IPv4Address, ip_address
from typing import NamedTuple

from omniboxes.node.egress._address import canonical_host, parse_literal
from omniboxes.node.egress._rule import is_name

_VERSION = 5
_NO_AUTH, _PASSWORD, _NO_METHOD = 0, 2, 0xFF
_CONNECT = 1
_IPV4, _DOMAIN, _IPV6 = 1, 3, 4


class Reply(IntEnum):
    """What a SOCKS server says to a request."""

    SUCCEEDED = 0
    GENERAL_FAILURE = 1
    NOT_ALLOWED = 2
    HOST_UNREACHABLE = 4
    CONNECTION_REFUSED = 5
    TTL_EXPIRED = 6
    COMMAND_NOT_SUPPORTED = 7
    ADDRESS_NOT_SUPPORTED = 8


class Target(NamedTuple):
    """Where a client wants to go; `host` is canonical."""

    host: str
    port: int


class SocksError(Exception):
    """The peer does not speak SOCKS5 as we do, or (as a server) said no."""


async def accept_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Target:
    """Read a client's greeting and CONNECT request; what is not one is answered and raised."""
    version, count = await reader.readexactly(2)
    if version != _VERSION:
        raise SocksError(f"version {version}")
    methods = await reader.readexactly(count)
    method = _NO_AUTH if _NO_AUTH in methods else _NO_METHOD
    writer.write(bytes((_VERSION, method)))
    if method == _NO_METHOD:
        raise SocksError("the client wants to authenticate")
    version, command, _, kind = await reader.readexactly(4)
    if version != _VERSION or command != _CONNECT:
        send_reply(writer, Reply.COMMAND_NOT_SUPPORTED)
        raise SocksError(f"command {command}")
    host = await _read_host(reader, kind)
    if host is None:
        send_reply(writer, Reply.ADDRESS_NOT_SUPPORTED)
        raise SocksError(f"address type {kind} or its host")
    return Target(host, int.from_bytes(await reader.readexactly(2)))


def send_reply(writer: asyncio.StreamWriter, reply: Reply) -> None:
    """Answer a request; the bound address is left out, no client of ours looks at it."""
    writer.write(bytes((_VERSION, reply, 0, _IPV4)) + bytes(6))


async def _read_host(reader: asyncio.StreamReader, kind: int) -> str | None:
    """Read a host; None unless it is an address or a plain name, so none can smuggle a line."""
    if kind in (_IPV4, _IPV6):
        return str(ip_address(await reader.readexactly(4 if kind == _IPV4 else 16)))
    if kind != _DOMAIN:
        return None
    (length,) = await reader.readexactly(1)
    host = canonical_host((await reader.readexactly(length)).decode("latin-1"))
    return host if parse_literal(host) is not None or is_name(host) else None


async def request_tunnel(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    target: Target,
    credentials: tuple[str, str] | None,
) -> None:
    """Ask a SOCKS5 server for a tunnel to `target`; SocksError unless it opens one."""
    methods = (_NO_AUTH,) if credentials is None else (_NO_AUTH, _PASSWORD)
    writer.write(bytes((_VERSION, len(methods), *methods)))
    version, method = await reader.readexactly(2)
    if version != _VERSION:
        raise SocksError(f"version {version}")
    if method == _PASSWORD and credentials is not None:
        await _log_in(reader, writer, *credentials)
    elif method != _NO_AUTH:
        raise SocksError("no authentication method in common")
    writer.write(bytes((_VERSION, _CONNECT, 0)) + _packed(target))
    version, reply, _, kind = await reader.readexactly(4)
    if version != _VERSION or reply != Reply.SUCCEEDED:
        raise SocksError(f"reply {reply}")
    # The bound address and port stand between the reply and the tunnel's first byte.
    size = {_IPV4: 4, _IPV6: 16}.get(kind) or (await reader.readexactly(1))[0]
    await reader.readexactly(size + 2)


async def _log_in(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, username: str, password: str
) -> None:
    fields = (username.encode(), password.encode())
    writer.write(b"\x01" + b"".join(bytes((len(field),)) + field for field in fields))
    _, status = await reader.readexactly(2)
    if status != 0:
        raise SocksError("wrong user name or password")


def _packed(target: Target) -> bytes:
    address = parse_literal(target.host)
    if address is None:
        name = target.host.encode("ascii")
        host = bytes((_DOMAIN, len(name))) + name
    else:
        kind = _IPV4 if isinstance(address, IPv4Address) else _IPV6
        host = bytes((kind,)) + address.packed
    return host + target.port.to_bytes(2)
