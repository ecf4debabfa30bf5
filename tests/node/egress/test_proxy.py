"""The egress proxy, with real sockets on loopback and a real Chromium."""

import asyncio
import base64
import hashlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from ipaddress import ip_address
from typing import NamedTuple

import pytest
from aiohttp import web
from playwright.async_api import Page, async_playwright

from omniboxes.browser import find_browser
from omniboxes.errors import EgressRefused
from omniboxes.node.egress.policy import EgressPolicy, Refusal
from omniboxes.node.egress.proxy import (
    ConnectFailure,
    EgressProxy,
    UpstreamProxy,
    is_local_address,
)

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

LOOPBACK = "127.0.0.0/8"
SUCCEEDED, FAILED, NOT_ALLOWED, UNREACHABLE, REFUSED, EXPIRED = 0, 1, 2, 4, 5, 6
NO_COMMAND, NO_ADDRESS = 7, 8


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


def policy(allow: str = LOOPBACK, *guarded_ports: int) -> EgressPolicy:
    return EgressPolicy.parse(allow, guarded_ports=guarded_ports)


@asynccontextmanager
async def serve(handler: Handler, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Run a TCP server; its connections are cut on exit."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the other side broke off, as some tests want
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def keep_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    await asyncio.Event().wait()


class Answer(NamedTuple):
    code: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def packed_name(host: str) -> bytes:
    return bytes((3, len(host))) + host.encode()


@asynccontextmanager
async def connect(proxy_port: int, host: str | bytes, port: int) -> AsyncIterator[Answer]:
    """Ask the proxy for a connection, as Chromium does: by name, whatever the host is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy_port)
    try:
        writer.write(b"\x05\x01\x00")
        assert await reader.readexactly(2) == b"\x05\x00"
        address = packed_name(host) if isinstance(host, str) else host
        writer.write(b"\x05\x01\x00" + address + port.to_bytes(2))
        answer = await reader.readexactly(10)
        assert answer[0] == 5
        yield Answer(answer[1], reader, writer)
    finally:
        writer.transport.abort()


async def code_of(proxy_port: int, host: str | bytes, port: int) -> int:
    async with connect(proxy_port, host, port) as answer:
        return answer.code


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def silent_port() -> Iterator[int]:
    """Yield a port with a full backlog: the kernel drops whatever knocks."""
    with socket.socket() as busy, socket.socket() as first, socket.socket() as second:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)
        port: int = busy.getsockname()[1]
        for sock in (first, second):
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        yield port


async def test_bytes_pass_both_ways_at_once_and_a_half_close_is_passed_on() -> None:
    down = os.urandom(6_000_000)
    up = os.urandom(8_000_000)

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send() -> None:
            writer.write(down)
            await writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            received = group.create_task(reader.read(-1))
        # Only the client's half-close got us here; the answer goes the other way.
        writer.write(hashlib.sha256(received.result()).digest())
        await writer.drain()
        writer.write_eof()
        await reader.read()

    async with serve(exchange) as port, EgressProxy(policy()) as proxy:
        async with connect(proxy.port, "127.0.0.1", port) as answer:
            assert answer.code == SUCCEEDED
            async with asyncio.TaskGroup() as group:
                received = group.create_task(answer.reader.read(-1))
                answer.writer.write(up)
                answer.writer.write_eof()
        assert received.result() == down + hashlib.sha256(up).digest()
        await until(lambda: proxy.connections_open == 0)


async def test_a_slow_reader_holds_the_sender_back() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _ in range(2000):
            writer.write(bytes(100_000))
            await writer.drain()
            sent += 100_000
        writer.write_eof()
        await reader.read()

    async with (
        serve(flood) as port,
        EgressProxy(policy()) as proxy,
        connect(proxy.port, "127.0.0.1", port) as answer,
    ):
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 100_000_000
        received = 0
        while data := await answer.reader.read(1 << 20):
            received += len(data)
        assert received == 200_000_000


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "::1",
        "[::1]",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "0.0.0.0",
        "0",
        "::",
        "169.254.169.254",
        "10.0.0.1",
        b"\x01\x7f\x00\x00\x01",
        b"\x04" + ip_address("::1").packed,
        b"\x04" + ip_address("::ffff:127.0.0.1").packed,
    ],
)
async def test_no_spelling_of_a_refused_address_is_dialled(host: str | bytes) -> None:
    refusals: list[Refusal] = []
    async with serve(echo) as port, EgressProxy(policy(""), on_refused=refusals.append) as proxy:
        assert await code_of(proxy.port, host, port) == NOT_ALLOWED
        assert proxy.refused_total == 1
    assert [refusal.port for refusal in refusals] == [port]


async def test_a_refusal_is_remembered_until_a_connection_succeeds() -> None:
    async with serve(echo) as port, EgressProxy(policy("127.0.0.2")) as proxy:
        assert proxy.last_failure("localhost", port) is None
        assert await code_of(proxy.port, "localhost", port) == NOT_ALLOWED
        failure = proxy.last_failure("LOCALHOST.", port)
        assert isinstance(failure, Refusal)
        assert f"127.0.0.1:{port} (localhost)" in failure.sentence

    closed = free_port()
    async with EgressProxy(policy()) as proxy:
        assert await code_of(proxy.port, "127.0.0.1", closed) == REFUSED
        expected = ConnectFailure("127.0.0.1", closed, "net::ERR_CONNECTION_REFUSED")
        assert proxy.last_failure("2130706433", closed) == expected
        with socket.create_server(("127.0.0.1", closed)):
            assert await code_of(proxy.port, "127.0.0.1", closed) == SUCCEEDED
        assert proxy.last_failure("127.0.0.1", closed) is None
        assert proxy.refused_total == 0


async def test_only_the_latest_failures_are_kept() -> None:
    async with EgressProxy(policy("")) as proxy:
        for port in range(1, 1031):
            await code_of(proxy.port, "127.0.0.1", port)
        assert proxy.last_failure("127.0.0.1", 1) is None
        assert proxy.last_failure("127.0.0.1", 1030) is not None
        assert proxy.refused_total == 1030


async def test_a_guarded_port_is_refused_though_it_is_allowed() -> None:
    async with serve(echo) as port:
        allow = f"{LOOPBACK}, localhost, 127.0.0.1:{port}"
        async with EgressProxy(policy(allow, port)) as proxy:
            for host in ("127.0.0.1", "localhost", "127.9.9.9", "::ffff:127.0.0.1"):
                assert await code_of(proxy.port, host, port) == NOT_ALLOWED


async def test_the_proxy_is_no_way_to_the_proxy() -> None:
    async with EgressProxy(policy()) as proxy:
        assert await code_of(proxy.port, "127.0.0.1", proxy.port) == NOT_ALLOWED


async def test_a_name_that_does_not_resolve_says_so() -> None:
    async with EgressProxy(policy()) as proxy:
        assert await code_of(proxy.port, "nowhere.invalid", 80) == UNREACHABLE
        expected = ConnectFailure("nowhere.invalid", 80, "net::ERR_NAME_NOT_RESOLVED")
        assert proxy.last_failure("nowhere.invalid", 80) == expected


async def test_a_target_that_does_not_answer_times_out() -> None:
    with silent_port() as port:
        async with EgressProxy(policy(), connect_timeout_s=0.3) as proxy:
            assert await code_of(proxy.port, "127.0.0.1", port) == EXPIRED
            expected = ConnectFailure("127.0.0.1", port, "net::ERR_CONNECTION_TIMED_OUT")
            assert proxy.last_failure("127.0.0.1", port) == expected


async def test_the_next_permitted_address_is_tried_when_the_first_fails() -> None:
    async with serve(echo, "::1") as port, EgressProxy(policy("localhost")) as proxy:
        assert await code_of(proxy.port, "localhost", port) == SUCCEEDED


async def test_an_address_that_is_not_permitted_is_not_tried() -> None:
    async with serve(echo, "::1") as port, EgressProxy(policy(LOOPBACK)) as proxy:
        assert await code_of(proxy.port, "localhost", port) == REFUSED


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b""),
        (b"\x05\x01\x02", b"\x05\xff"),
        (b"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", b"\x05\x00\x05\x07"),
        (b"\x05\x01\x00\x05\x01\x00\x09\x7f\x00\x00\x01\x00\x50", b"\x05\x00\x05\x08"),
        (b"\x05\x01\x00\x05\x01\x00" + packed_name("") + b"\x00\x50", b"\x05\x00\x05\x08"),
        (b"\x05\x01\x00\x05\x01\x00" + packed_name("a\r\nb") + b"\x00\x50", b"\x05\x00\x05\x08"),
        (b"\x05\x01\x00\x05\x01\x00" + packed_name("a@b:1") + b"\x00\x50", b"\x05\x00\x05\x08"),
        (b"\x05\x01\x00\x05\x01\x00" + packed_name("a\0b") + b"\x00\x50", b"\x05\x00\x05\x08"),
        (b"\x05\x01\x00\x05\x01\x00\x03\x02\xff\xfe\x00\x50", b"\x05\x00\x05\x08"),
    ],
)
async def test_what_is_not_a_connect_request_is_turned_away(
    request_bytes: bytes, answer: bytes
) -> None:
    async with EgressProxy(policy()) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(request_bytes)
        try:
            received = await reader.read()
        except ConnectionResetError:
            received = b""  # it was closed with bytes unread
        assert received[: len(answer)] == answer
        assert bool(received) == bool(answer)
        writer.transport.abort()
        await until(lambda: proxy.connections_open == 0)


async def test_when_the_remote_breaks_off_the_client_sees_a_reset() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"half an answer")
        await reader.readexactly(4)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with serve(break_off) as port, EgressProxy(policy()) as proxy:
        async with connect(proxy.port, "127.0.0.1", port) as answer:
            assert await answer.reader.readexactly(14) == b"half an answer"
            answer.writer.write(b"more")
            with pytest.raises(ConnectionResetError):
                await answer.reader.read()
        await until(lambda: proxy.connections_open == 0)


async def test_when_the_client_dies_the_remote_is_closed() -> None:
    gone = asyncio.Event()

    async def send_for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(bytes(10_000))
                await writer.drain()
        finally:
            gone.set()

    async with serve(send_for_ever) as port, EgressProxy(policy()) as proxy:
        async with connect(proxy.port, "127.0.0.1", port) as answer:
            await answer.reader.readexactly(10_000)
        async with asyncio.timeout(5):
            await gone.wait()
        await until(lambda: proxy.connections_open == 0)


async def test_a_connection_whose_client_left_does_not_wait_for_a_silent_remote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("omniboxes.node.egress._relay._CLIENT_LEFT_IDLE_S", 0.2)
    async with serve(keep_open) as port, EgressProxy(policy()) as proxy:
        async with connect(proxy.port, "127.0.0.1", port) as answer:
            assert answer.code == SUCCEEDED
            assert proxy.connections_open == 1
        await until(lambda: proxy.connections_open == 0)


async def test_a_client_may_take_its_time_over_what_a_remote_sent_before_it_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("omniboxes.node.egress._relay._CLIENT_LEFT_IDLE_S", 0.05)

    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(1_000_000))
        writer.close()
        await writer.wait_closed()

    async with (
        serve(send) as port,
        EgressProxy(policy()) as proxy,
        connect(proxy.port, "127.0.0.1", port) as answer,
    ):
        await asyncio.sleep(0.3)
        assert len(await answer.reader.read()) == 1_000_000


async def test_leaving_closes_every_connection_whatever_it_is_doing() -> None:
    cut = 0

    async def count_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal cut
        try:
            await reader.read()
        finally:
            cut += 1

    async with serve(count_end) as port:
        tasks = asyncio.all_tasks()
        async with EgressProxy(policy()) as proxy:
            greeted, greeted_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            async with (
                connect(proxy.port, "127.0.0.1", port) as idle,
                connect(proxy.port, "127.0.0.1", port) as half,
            ):
                half.writer.write_eof()
                await until(lambda: proxy.connections_open == 3)
                await proxy.__aexit__(None, None, None)
                assert proxy.connections_open == 0
                for reader in (greeted, idle.reader, half.reader):
                    assert await reader.read() == b""
                await until(lambda: cut == 2)
                assert asyncio.all_tasks() == tasks
            greeted_writer.transport.abort()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", proxy.port)


async def test_leaving_ends_a_connection_attempt() -> None:
    with silent_port() as port:
        async with EgressProxy(policy()) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + port.to_bytes(2))
            await reader.readexactly(2)
        assert await reader.read() == b""
        writer.transport.abort()


def test_local_addresses_are_those_of_this_machine() -> None:
    for text in ("127.0.0.1", "127.3.2.1", "::1"):
        assert is_local_address(ip_address(text))
    for text in ("8.8.8.8", "2606:4700::1111", "203.0.113.99"):
        assert not is_local_address(ip_address(text))


class ConnectProxy:
    """A tiny HTTP proxy that knows CONNECT only and takes every name for `port` of loopback."""

    def __init__(self, port: int, status: str = "200 OK") -> None:
        self.port = port
        self.status = status
        self.heads: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(f"HTTP/1.1 {self.status}\r\nVia: test\r\n\r\n".encode())
        if self.status != "200 OK":
            await reader.read()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            while data := await reader.read(65536):
                back.write(data)
                writer.write(await there.read(65536))
        finally:
            back.transport.abort()


class PasswordSocks:
    """A tiny SOCKS5 server that wants a password and serves an echo itself."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.seen: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen.append(await reader.readexactly(4))
        writer.write(b"\x05\x02")
        self.seen.append(await reader.readexactly(len(b"\x01\x04user\x04pass")))
        writer.write(bytes((1, self.status)))
        head = await reader.readexactly(5)
        self.seen.append(head + await reader.readexactly(head[4] + 2))
        # The longest form of an answer, with the first bytes of the tunnel right behind.
        writer.write(b"\x05\x00\x00" + packed_name("bound.example") + b"\x00\x50hello")
        await echo(reader, writer)


async def echoes(answer: Answer) -> bool:
    answer.writer.write(b"ping")
    return await answer.reader.readexactly(4) == b"ping"


async def test_an_http_upstream_is_asked_by_name_with_the_users_credentials() -> None:
    async with serve(echo) as port:
        connect_proxy = ConnectProxy(port)
        async with serve(connect_proxy) as upstream_port, EgressProxy(policy()) as proxy:
            server = f"http://us%40er:p%3Ass@127.0.0.1:{upstream_port}"
            async with proxy.upstream(UpstreamProxy(server)) as via:
                async with connect(via, "shop.test", 443) as answer:
                    assert answer.code == SUCCEEDED
                    assert await echoes(answer)
                    assert proxy.connections_open == 1
                async with connect(via, "2606:4700::1111", 80) as answer:
                    assert answer.code == SUCCEEDED
    token = base64.b64encode(b"us@er:p:ss").decode()
    assert connect_proxy.heads == [
        "CONNECT shop.test:443 HTTP/1.1\r\nHost: shop.test:443\r\n"
        f"Proxy-Authorization: Basic {token}\r\n\r\n",
        "CONNECT [2606:4700::1111]:80 HTTP/1.1\r\nHost: [2606:4700::1111]:80\r\n"
        f"Proxy-Authorization: Basic {token}\r\n\r\n",
    ]


async def test_a_socks_upstream_may_be_another_egress_proxy() -> None:
    async with (
        serve(echo) as port,
        EgressProxy(policy()) as far,
        EgressProxy(policy()) as near,
        near.upstream(UpstreamProxy(f"socks5://127.0.0.1:{far.port}")) as via,
    ):
        async with connect(via, "127.0.0.1", port) as answer:
            assert answer.code == SUCCEEDED
            assert await echoes(answer)
            assert far.connections_open == 1
        assert await code_of(via, "nowhere.test", 80) == FAILED
        expected = ConnectFailure("nowhere.test", 80, "net::ERR_SOCKS_CONNECTION_FAILED")
        assert near.last_failure("nowhere.test", 80, via=via) == expected
        assert near.last_failure("nowhere.test", 80) is None


async def test_a_socks_upstream_gets_the_users_password() -> None:
    socks = PasswordSocks()
    async with serve(socks) as upstream_port, EgressProxy(policy()) as proxy:
        upstream = UpstreamProxy(f"socks5://127.0.0.1:{upstream_port}", "user", "pass")
        async with proxy.upstream(upstream) as via, connect(via, "shop.test", 80) as answer:
            assert answer.code == SUCCEEDED
            assert await answer.reader.readexactly(5) == b"hello"
            assert await echoes(answer)
    assert socks.seen == [
        b"\x05\x02\x00\x02",
        b"\x01\x04user\x04pass",
        b"\x05\x01\x00" + packed_name("shop.test") + b"\x00\x50",
    ]


async def test_a_wrong_password_at_a_socks_upstream_is_a_failure() -> None:
    async with serve(PasswordSocks(status=1)) as upstream_port, EgressProxy(policy()) as proxy:
        upstream = UpstreamProxy(f"socks5://127.0.0.1:{upstream_port}", "user", "pass")
        async with proxy.upstream(upstream) as via:
            assert await code_of(via, "shop.test", 80) == FAILED
            failure = proxy.last_failure("shop.test", 80, via=via)
            assert failure == ConnectFailure("shop.test", 80, "net::ERR_SOCKS_CONNECTION_FAILED")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("407 Proxy Authentication Required", "net::ERR_PROXY_AUTH_REQUESTED"),
        ("502 Bad Gateway", "net::ERR_TUNNEL_CONNECTION_FAILED"),
        ("nonsense", "net::ERR_TUNNEL_CONNECTION_FAILED"),
    ],
)
async def test_an_http_upstream_that_opens_no_tunnel_is_a_failure(status: str, reason: str) -> None:
    async with (
        serve(ConnectProxy(0, status)) as port,
        EgressProxy(policy()) as proxy,
        proxy.upstream(UpstreamProxy(f"127.0.0.1:{port}")) as via,
    ):
        assert await code_of(via, "shop.test", 443) == FAILED
        failure = proxy.last_failure("shop.test", 443, via=via)
        assert failure == ConnectFailure("shop.test", 443, reason)


async def test_an_upstream_that_is_down_or_silent_is_a_failure() -> None:
    async with serve(keep_open) as silent, EgressProxy(policy(), connect_timeout_s=0.3) as proxy:
        for port, code, reason in (
            (free_port(), FAILED, "net::ERR_PROXY_CONNECTION_FAILED"),
            (silent, EXPIRED, "net::ERR_CONNECTION_TIMED_OUT"),
        ):
            async with proxy.upstream(UpstreamProxy(f"http://127.0.0.1:{port}")) as via:
                assert await code_of(via, "shop.test", 443) == code
                failure = proxy.last_failure("shop.test", 443, via=via)
                assert failure == ConnectFailure("shop.test", 443, reason)


async def test_the_upstreams_own_address_is_checked() -> None:
    async with serve(echo) as port:
        for rules in (policy(""), policy(LOOPBACK, port)):
            async with EgressProxy(rules) as proxy:
                with pytest.raises(EgressRefused, match=rf"127\.0\.0\.1:{port}"):
                    async with proxy.upstream(UpstreamProxy(f"http://127.0.0.1:{port}")):
                        pass
                assert proxy.refused_total == 1


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "localhost", "a.localhost", "intranet", "printer.local", "127.0.0.1."]
)
async def test_what_is_refused_directly_is_refused_through_an_upstream(host: str) -> None:
    connect_proxy = ConnectProxy(0)
    async with (
        serve(connect_proxy) as port,
        EgressProxy(policy(f"127.0.0.1:{port}")) as proxy,
        proxy.upstream(UpstreamProxy(f"127.0.0.1:{port}")) as via,
    ):
        assert await code_of(via, host, 443) == NOT_ALLOWED
        assert isinstance(proxy.last_failure(host, 443, via=via), Refusal)
    assert connect_proxy.heads == []


async def test_on_a_guarded_port_an_upstream_gets_the_checked_address() -> None:
    connect_proxy = ConnectProxy(0)
    rules = EgressPolicy.parse(
        f"{LOOPBACK}, localhost", guarded_ports=(), guarded_endpoints=[("10.9.9.9", 6379)]
    )
    async with (
        serve(connect_proxy) as port,
        EgressProxy(rules) as proxy,
        proxy.upstream(UpstreamProxy(f"127.0.0.1:{port}")) as via,
    ):
        assert await code_of(via, "localhost", 80) == SUCCEEDED
        assert await code_of(via, "localhost", 6379) == SUCCEEDED
        assert await code_of(via, "shop.test", 6379) == NOT_ALLOWED
    asked = [head.split()[1] for head in connect_proxy.heads]
    assert asked == ["localhost:80", "127.0.0.1:6379"]


async def test_closing_an_upstream_cuts_its_connections_and_no_others() -> None:
    async with (
        serve(echo) as port,
        serve(ConnectProxy(port)) as upstream_port,
        EgressProxy(policy()) as proxy,
        AsyncExitStack() as clients,
    ):
        direct = await clients.enter_async_context(connect(proxy.port, "127.0.0.1", port))
        async with proxy.upstream(UpstreamProxy(f"127.0.0.1:{upstream_port}")) as via:
            tunnelled = await clients.enter_async_context(connect(via, "shop.test", 80))
            assert await echoes(tunnelled)
            assert await code_of(proxy.port, "127.0.0.1", via) == NOT_ALLOWED
            await until(lambda: proxy.connections_open == 2)
        assert proxy.connections_open == 1
        assert await tunnelled.reader.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", via)
        assert await echoes(direct)


@pytest.mark.parametrize(
    "server",
    [
        "ftp://u:hunter2@a.example:1",
        "https://u:hunter2@a.example",
        "http://u:hunter2@a.example:99999",
        "http://u:hunter2@a.example:0",
        "http://u:hunter2@",
        "http://u:hunter2@a.example/path",
        "http://u:hunter2@a b",
        "http://u:hunter2@[::1",
        "",
    ],
)
def test_an_upstream_that_cannot_be_used_is_named_without_its_password(server: str) -> None:
    with pytest.raises(ValueError, match=r"proxy\.server") as caught:
        UpstreamProxy(server)
    assert "hunter2" not in str(caught.value)


def test_an_upstreams_repr_keeps_its_secrets() -> None:
    upstream = UpstreamProxy("http://u:hunter2@a.example:1", "other", "hunter3")
    assert "hunter" not in repr(upstream)


PROBE = """async (site) => {
    const outcome = promise => promise.then(() => "reached", () => "failed");
    const fetched = outcome(fetch(`http://${site}/`, {mode: "no-cors"}));
    const socket = outcome(new Promise((resolve, reject) => {
        const ws = new WebSocket(`ws://${site}/ws`);
        ws.onmessage = resolve;
        ws.onerror = reject;
    }));
    const source = `fetch("http://${site}/", {mode: "no-cors"}).then(
        () => postMessage("reached"), () => postMessage("failed"))`;
    const worker = new Worker(URL.createObjectURL(new Blob([source])));
    const worked = new Promise(resolve => worker.onmessage = event => resolve(event.data));
    return Promise.all([fetched, socket, worked]);
}"""

SEND_DATAGRAMS = """async (port) => {
    const peer = new RTCPeerConnection({iceServers: [{urls: `stun:127.0.0.1:${port}`}]});
    const gathered = new Promise(resolve => {
        peer.onicegatheringstatechange = () => peer.iceGatheringState === "complete" && resolve();
    });
    peer.createDataChannel("x");
    await peer.setLocalDescription(await peer.createOffer());
    await gathered;
    await new WebTransport(`https://127.0.0.1:${port}/`).ready.catch(() => {});
}"""


@asynccontextmanager
async def serve_site() -> AsyncIterator[tuple[int, list[str]]]:
    """Run a web site; the list holds the paths that were asked for."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if request.path != "/ws":
            return web.Response(text="<title>here</title>", content_type="text/html")
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        await ws.send_str("hello")
        await ws.close()
        return ws

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1], asked
    finally:
        await runner.cleanup()


@asynccontextmanager
async def browse(proxy_port: int, context_proxy: int | None = None) -> AsyncIterator[Page]:
    """Open a page in a Chromium that is started as the instance server starts it."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_browser().path,
            chromium_sandbox=os.geteuid() != 0,
            args=[
                f"--proxy-server=socks5://127.0.0.1:{proxy_port}",
                "--proxy-bypass-list=<-loopback>",
                "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
            ],
        )
        try:
            if context_proxy is None:
                context = await browser.new_context()
            else:
                server = f"socks5://127.0.0.1:{context_proxy}"
                context = await browser.new_context(proxy={"server": server})
            yield await context.new_page()
        finally:
            await browser.close()


@pytest.mark.browser
async def test_nothing_that_a_page_in_chromium_sends_goes_round_the_policy() -> None:
    async with serve_site() as (port, _), serve_site() as (shut, asked):
        rules = policy(f"127.0.0.1:{port}, localhost:{port}")
        async with EgressProxy(rules) as proxy, browse(proxy.port) as page:
            await page.goto(f"http://127.0.0.1:{port}/")
            for host in ("127.0.0.1", "localhost"):
                assert await page.evaluate(PROBE, f"{host}:{port}") == ["reached"] * 3
            for host in ("127.0.0.1", "localhost", "localhost.", "2130706433", "[::1]"):
                assert await page.evaluate(PROBE, f"{host}:{shut}") == ["failed"] * 3
                assert isinstance(proxy.last_failure(host, shut), Refusal)
            assert asked == []
            assert proxy.refused_total >= 15


@pytest.mark.browser
async def test_neither_webrtc_nor_webtransport_in_chromium_sends_a_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stun:
        stun.bind(("127.0.0.1", 0))
        stun.setblocking(False)
        async with (
            serve_site() as (port, _),
            EgressProxy(policy()) as proxy,
            browse(proxy.port) as page,
        ):
            await page.goto(f"http://127.0.0.1:{port}/")
            await page.evaluate(SEND_DATAGRAMS, stun.getsockname()[1])
        with pytest.raises(BlockingIOError):
            stun.recv(2048)


@pytest.mark.browser
async def test_a_context_with_its_own_upstream_goes_through_it_and_nowhere_else() -> None:
    async with serve_site() as (port, asked), EgressProxy(policy()) as far:
        rules = policy(f"127.0.0.1:{far.port}, localhost:{port}")
        async with EgressProxy(rules) as proxy:
            upstream = UpstreamProxy(f"socks5://127.0.0.1:{far.port}")
            async with proxy.upstream(upstream) as via, browse(proxy.port, via) as page:
                await page.goto(f"http://localhost:{port}/")
                assert await page.title() == "here"
                assert far.connections_open > 0
                assert await page.evaluate(PROBE, f"127.0.0.1:{port}") == ["failed"] * 3
                assert asked.count("/") == 1
                assert "/ws" not in asked
