"""A real instance server in its own process, and a session of it driven over HTTP."""

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
import psutil
from aiohttp import web

from omniboxes.common import framing
from omniboxes.errors import InstanceCrashed, InstanceNotFound, PoolExhausted, from_body
from tests.site_server import Site

KEY = "instance-key"
START_S = 30.0
DEADLINE_HEADER = "x-omnibox-deadline-s"
ALLOW = {"OMNIBOX_EGRESS_ALLOW": "127.0.0.0/8,localhost", "OMNIBOX_ENABLE_EVALUATE": "1"}


class Step(NamedTuple):
    """What one `/step` answered."""

    fields: dict[str, Any]
    image: bytes

    @property
    def value(self) -> Any:
        """The value of the expression that was evaluated after settling."""
        return self.fields["value"]

    @property
    def reason(self) -> str:
        """Why settling ended."""
        return str(self.fields["settle"]["reason"])

    @property
    def waited_for(self) -> list[str]:
        """What settling waited for."""
        return list(self.fields["settle"]["waited_for"])

    @property
    def settle_s(self) -> float:
        """How long settling took."""
        return float(self.fields["settle"]["ms"]) / 1000

    @property
    def metadata(self) -> dict[str, Any]:
        """Title, address and size of the page."""
        return dict(self.fields["metadata"])


@dataclass(eq=False)
class Server:
    """An instance server: its process, its address, the events it has told."""

    process: asyncio.subprocess.Process
    port: int
    client: aiohttp.ClientSession
    events: list[dict[str, Any]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @asynccontextmanager
    async def running(
        cls, slots: int, environment: Mapping[str, str] | None = None
    ) -> AsyncIterator["Server"]:
        """Run a server on a free port until the block ends; it has its slots when it is yielded."""
        kept = {name: value for name, value in os.environ.items() if "OMNIBOX_" not in name}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "omniboxes.node.instance_server"),
            *("--port", "0", "--slots", str(slots), "--end-with-parent"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**kept, **ALLOW, "OMNIBOX_INSTANCE_KEY": KEY, **(environment or {})},
        )
        assert process.stdout is not None
        port = json.loads(await process.stdout.readline())["port"]
        client = aiohttp.ClientSession(
            f"http://127.0.0.1:{port}",
            headers={"x-api-key": KEY},
            timeout=aiohttp.ClientTimeout(total=50),
        )
        server = cls(process, port, client)
        reader = asyncio.create_task(server._read())
        try:
            await server.wait_available(slots)
            yield server
        finally:
            await client.close()
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            await reader

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events.append(json.loads(line))
            self._changed.set()

    async def wait_available(self, count: int) -> None:
        """Wait until that many sessions can be leased."""
        async with asyncio.timeout(START_S):
            while True:
                self._changed.clear()
                if (await self.info())["available"] == count:
                    return
                await self._changed.wait()

    def ready_ids(self) -> set[str]:
        """Return the ids that can be leased, as the events say."""
        told = {event["instance_id"] for event in self.events if event["event"] == "ready"}
        return told - self.gone_ids()

    def gone_ids(self, reason: str | None = None) -> set[str]:
        """Return the ids that are no more, as the events say, whatever the reason or for one."""
        gone = [event for event in self.events if event["event"] == "gone"]
        return {event["instance_id"] for event in gone if reason in (None, event["reason"])}

    async def changed(self) -> None:
        """Wait for the next event."""
        self._changed.clear()
        await self._changed.wait()

    async def info(self) -> dict[str, Any]:
        """Return the counts of the slots."""
        info: dict[str, Any] = await self.call("GET", "/info")
        return info

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        deadline_s: float | None = None,
    ) -> Any:
        """Send a request and return the parsed answer; an error answer is raised as its type."""
        headers = {} if deadline_s is None else {DEADLINE_HEADER: str(deadline_s)}
        given = {name: str(value) for name, value in (params or {}).items()}
        async with self.client.request(
            method, path, json=json, params=given, headers=headers
        ) as answer:
            if answer.status >= 400:
                raise from_body(answer.status, await answer.json())
            if answer.content_type == framing.MEDIA_TYPE:
                return Step(*framing.decode(await answer.read()))
            if answer.content_type == "application/json":
                return await answer.json()
            return await answer.read()

    @asynccontextmanager
    async def leased(self, site: Site, **options: Any) -> AsyncIterator["Session"]:
        """Lease a session until the block ends, whatever becomes of it."""
        session = Session(self, site, await self.lease(**options))
        try:
            yield session
        finally:
            with suppress(InstanceNotFound, InstanceCrashed):
                await session.reset()

    async def lease(self, **options: Any) -> str:
        """Take a lease and return its id."""
        async with asyncio.timeout(START_S):
            while True:
                self._changed.clear()
                try:
                    answer = await self.call("POST", "/get", json=options or None)
                except PoolExhausted:
                    # A slot that the last test gave back may still be on its way.
                    await self._changed.wait()
                else:
                    return str(answer["instance_id"])

    def chromium(self) -> psutil.Process:
        """Return the browser process; distributions start it through a shell script."""
        return [p for p, line in self.browser_processes() if "--type=" not in " ".join(line)][-1]

    def renderers(self) -> list[psutil.Process]:
        """Return the processes that run pages."""
        return [p for p, line in self.browser_processes() if "--type=renderer" in line]

    def browser_processes(self) -> list[tuple[psutil.Process, list[str]]]:
        """Return all processes of the Chromium with their command lines."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # or a zombie
                line = process.cmdline()
                if line and "chrom" in process.name():
                    found.append((process, line))
        return found


@dataclass(frozen=True, eq=False)
class Session:
    """A leased session and the site it is tried on."""

    server: Server
    site: Site
    id: str

    async def call(self, method: str, path: str, **more: Any) -> Any:
        """Call a route with the id of the session."""
        params = {"instance_id": self.id, **more.pop("params", {})}
        return await self.server.call(method, path, params=params, **more)

    async def reset(self) -> None:
        """Release the session."""
        await self.call("POST", "/reset")

    async def execute(
        self, command: str, *, deadline_s: float | None = None, **arguments: Any
    ) -> dict[str, Any]:
        """Carry out a command and return its answer."""
        answer: dict[str, Any] = await self.call(
            "POST", "/execute", json={command: arguments}, deadline_s=deadline_s
        )
        return answer

    async def step(
        self,
        command: str | None = None,
        *,
        deadline_s: float | None = None,
        options: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Step:
        """Carry out a command and return what the page is and looks like then."""
        body = {"interaction_mode": "coordinates", **(options or {})}
        if command is not None:
            body[command] = arguments
        answer = await self.call("POST", "/step", json=body, deadline_s=deadline_s)
        assert isinstance(answer, Step)
        return answer

    async def visit(self, page: str, *, deadline_s: float | None = None) -> Step:
        """Visit a page of the site."""
        url = page if ":" in page.partition("?")[0] else f"{self.site.url}/{page}"
        return await self.step("visit_page", url=url, deadline_s=deadline_s)

    async def evaluate(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        return (await self.execute("evaluate", expression=expression))["value"]

    async def text(self, element: str) -> str:
        """Return the text of an element, by its id, as it is now."""
        return str(await self.evaluate(f"document.getElementById('{element}').textContent"))

    async def page_text(self) -> str:
        """Return the visible text of the page."""
        return str((await self.execute("get_webpage_text"))["text"])

    async def centre(self, element: str) -> dict[str, Any]:
        """Return where the middle of an element is, as `x` and `y`; scrolled into view."""
        found: dict[str, Any] = await self.evaluate(f"""(() => {{
          const element = document.getElementById("{element}");
          element.scrollIntoView({{ block: "nearest", behavior: "instant" }});
          const box = element.getBoundingClientRect();
          return {{ x: box.left + box.width / 2, y: box.top + box.height / 2 }};
        }})()""")
        return found

    async def click(
        self, element: str, *, shows: str | None = None, deadline_s: float | None = None
    ) -> Step:
        """Click the middle of an element; the value is the text that `shows` had in the end."""
        at = await self.centre(element)
        return await self.step(
            "click_coords", **at, options=reading(shows or f"{element}-out"), deadline_s=deadline_s
        )


@asynccontextmanager
async def serve_pages(
    pages: Mapping[str, str], ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve pages written in a test, and `/slow`, to any origin; yields the port."""

    async def page(request: web.Request) -> web.Response:
        if request.path == "/slow":
            await asyncio.sleep(0.3)
        text = pages.get(request.path, "")
        headers = {"Access-Control-Allow-Origin": "*"}
        return web.Response(text=text, content_type="text/html", headers=headers)

    app = web.Application()
    app.router.add_get("/{path:.*}", page)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def reading(element: str) -> dict[str, str]:
    """Return the option of `/step` that reads the text of an element after settling."""
    return {"expression": f"document.getElementById('{element}')?.textContent ?? null"}
