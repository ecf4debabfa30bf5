"""A real node server inside a test, and a client that knows its API."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import psutil

from omniboxes.common.settings import Settings
from omniboxes.node.node import NodeConfig
from omniboxes.node.server import create_app
from tests.master.running import free_port, serve

CHILD_SERVER = (sys.executable, str(Path(__file__).with_name("child_server.py")))
AVAILABLE = "x-omnibox-available"


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    headers: Any
    body: bytes
    json: Any

    @property
    def detail(self) -> str:
        return str(self.json["detail"])


class NodeClient:
    """The node's API, one call per route."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(self, method: str, path: str, **kwargs: Any) -> Reply:
        async with self._session.request(method, path, **kwargs) as answer:
            is_json = answer.content_type == "application/json"
            parsed = await answer.json() if is_json else None
            return Reply(answer.status, answer.headers, await answer.read(), parsed)

    async def get(self, options: object = None, **params: Any) -> Reply:
        return await self.send("POST", "/get", params=params, json=options)

    async def lease(self, options: object = None, **params: Any) -> str:
        reply = await self.get(options, **params)
        assert reply.status == 200, reply.body
        instance_id: str = reply.json["instance_id"]
        return instance_id

    async def reset(self, instance_id: str) -> Reply:
        return await self.send("POST", "/reset", params={"instance_id": instance_id})

    async def execute(self, instance_id: str, command: object, path: str = "/execute") -> Reply:
        return await self.send("POST", path, params={"instance_id": instance_id}, json=command)

    async def look(self, path: str, instance_id: str, **params: str) -> Reply:
        return await self.send("GET", path, params={"instance_id": instance_id, **params})

    async def info(self) -> Any:
        return (await self.send("GET", "/info")).json

    async def metrics(self) -> dict[str, float]:
        text = (await self.send("GET", "/metrics")).body.decode()
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name.removeprefix("omnibox_node_"): float(value) for name, value in lines}

    async def until_up(self) -> None:
        """Wait until the server accepts connections."""
        while True:
            try:
                await self.send("GET", "/healthz")
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)
            else:
                return

    async def until(self, condition: Callable[[Any], bool]) -> None:
        """Wait until `/info` shows it; the node has no way to tell, so ask."""
        while not condition(await self.info()):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)

    async def until_measured(self, condition: Callable[[dict[str, float]], bool]) -> None:
        """Wait until the metrics show it."""
        while not condition(await self.metrics()):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)

    async def until_available(self, count: int) -> None:
        """Wait until that many sessions can be leased."""
        await self.until(lambda info: info.get("available") == count)


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that nothing listens on."""
    while True:
        first = free_port()
        if all(_is_free(port) for port in range(first, first + count)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@asynccontextmanager
async def serve_node(
    instances: int = 2,
    settings: Settings | None = None,
    command: tuple[str, ...] = CHILD_SERVER,
) -> AsyncIterator[NodeClient]:
    """Serve a node until the block ends; yields when all its sessions are ready."""
    settings = settings or Settings(slots_per_browser=2)
    servers = -(-instances // settings.slots_per_browser)
    node_port, first_port = free_port(), free_ports(servers)
    app = create_app(NodeConfig(settings, instances, node_port, first_port, command))
    key = settings.resolved_node_key()
    async with (
        serve(app, node_port) as url,
        aiohttp.ClientSession(
            url,
            headers={"x-api-key": key} if key else None,
            timeout=aiohttp.ClientTimeout(total=40),
        ) as session,
    ):
        client = NodeClient(session)
        await client.until_available(instances)
        yield client


def processes_below(pid: int) -> list[psutil.Process]:
    """Return all processes that a process started, directly or not."""
    return psutil.Process(pid).children(recursive=True)


def processes_in(directory: Path) -> list[psutil.Process]:
    """Return the processes we started that have their temporary files below a directory."""
    found = []
    for process in processes_below(os.getpid()):
        try:
            home = process.environ().get("TMPDIR", "")
        except psutil.Error:
            continue  # ended meanwhile
        if Path(home).is_relative_to(directory):
            found.append(process)
    return found


def left_in(directory: Path) -> list[str]:
    """Return what is left in a directory: files and the processes that use it."""
    return [path.name for path in directory.iterdir()] + list(map(str, processes_in(directory)))
