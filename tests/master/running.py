"""Running real servers inside a test: any application on uvicorn, a master over small nodes."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from fastapi import FastAPI

from omniboxes.common import serving
from omniboxes.common.settings import Settings
from omniboxes.master.server import create_app
from tests.master.small_node import SmallNode


@asynccontextmanager
async def serve(app: FastAPI, port: int = 0) -> AsyncIterator[str]:
    """Serve an application on 127.0.0.1 until the block ends and yield its URL."""
    sock = serving.listen("127.0.0.1", port)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        while not server.started:
            assert not task.done(), "the application did not start"
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def serve_node(node: SmallNode, port: int = 0) -> AsyncIterator[str]:
    """Serve a small node and yield its URL."""
    async with serve(node.app(), port) as url:
        yield url


@asynccontextmanager
async def serve_master(
    node_urls: Sequence[str],
    settings: Settings | None = None,
    registry_url: str | None = None,
    *,
    registry_interval_s: float = 0.1,
) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve a master over the nodes and yield a client whose base URL it is."""
    settings = settings or Settings()
    app = create_app(settings, node_urls, registry_url, registry_interval_s=registry_interval_s)
    key = settings.resolved_api_key()
    headers = {"x-api-key": key} if key else None
    timeout = aiohttp.ClientTimeout(total=15)
    async with (
        serve(app) as url,
        aiohttp.ClientSession(url, headers=headers, timeout=timeout) as client,
    ):
        yield client


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
