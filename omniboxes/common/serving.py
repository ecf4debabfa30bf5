"""Running one application: bind checks, uvicorn, and an end that comes with the parent's."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING

import uvicorn

from omniboxes.errors import SetupError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

GRACE_S = 10
GC_ALLOCATIONS = 20_000


def is_loopback(host: str) -> bool:
    """Tell whether a server bound to `host` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind(host: str, key: str | None) -> None:
    """Refuse a bind that strangers could reach without a key."""
    if key is None and not is_loopback(host):
        raise SetupError(
            f"Refusing to listen on {host} without a key: anybody who reaches this machine could "
            "drive its browsers. Set OMNIBOX_API_KEY (or OMNIBOX_API_KEY_FILE), or bind 127.0.0.1."
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, or say in one sentence why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        # Who learns the port early is queued, not refused.
        sock.listen(1024)
    except OSError as exc:
        sock.close()
        raise SetupError(
            f"Cannot listen on {host}:{port} ({exc.strerror}); choose another port, or stop what "
            "uses it."
        ) from exc
    return sock


async def serve(app: FastAPI, sock: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then drain: no new connection, a bounded wait, shutdown.

    Raises the SetupError with which the lifespan refused to start, if it did.
    """
    started = _Started(app)
    config = uvicorn.Config(
        started,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=75,
        lifespan="on",
    )
    try:
        await uvicorn.Server(config).serve(sockets=[sock])
    except SystemExit:
        if started.refusal is not None:
            raise started.refusal from None
        raise


class _Started:
    """The application; a SetupError of its lifespan is kept instead of logged with a traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self.refusal: SetupError | None = None
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        failed: Message | None = None

        async def send_but_failure(message: Message) -> None:
            nonlocal failed
            if message["type"] == "lifespan.startup.failed":
                failed = message
            else:
                await send(message)

        try:
            await self._app(scope, receive, send_but_failure)
        except SetupError as exc:
            self.refusal = exc
            await send({"type": "lifespan.startup.failed"})
        except BaseException:
            if failed is not None:
                await send(failed)
            raise


def run(app: FastAPI, host: str, port: int) -> None:
    """Bind and serve in a new event loop; the body of every server's entry point."""
    run_on(app, listen(host, port))


def run_on(app: FastAPI, sock: socket.socket) -> None:
    """Serve on a socket that is bound already."""
    # What was imported lives as long as the process: the collector need not look at it again, and
    # the pages it lies in stay shared.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(app, sock))


def end_with_parent() -> None:
    """End this process when the parent's end of our stdin closes.

    A parent that is killed cannot tell its children, but the kernel closes its pipes. So no server
    of the tier ever outlives the one that started it.
    """

    def wait_for_eof() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_eof, name="end-with-parent", daemon=True).start()


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
