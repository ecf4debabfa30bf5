"""The site that browsers are tested on: the pages of ``tests/site`` and routes that misbehave.

As a program, ``python tests/site_server.py --port 0`` prints the site's URL on its first line and
serves until SIGINT or SIGTERM. In a test::

    async with serve_site() as site:
        await page.goto(f"{site.url}/shop.html")

The server listens on 127.0.0.1 only; ``localhost`` reaches it as well and is another origin.
Whatever waits in a handler waits through `Site`, so that closing the site ends it at once.
"""

import asyncio
import base64
import contextlib
import html
import signal
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import click
from aiohttp import WSMsgType, web
from aiohttp.typedefs import Handler
from multidict import CIMultiDictProxy

SITE_DIR = Path(__file__).parent / "site"
USER, PASSWORD = "user", "secret"
CSP_NONCE = "c2l0ZS1ub25jZQ"
"""The nonce written in csp.html; fixed, for it protects nothing."""

_CSP = (
    f"default-src 'none'; script-src 'nonce-{CSP_NONCE}'; style-src 'nonce-{CSP_NONCE}'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
_MAX_LOGGED = 10_000
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="120" height="80" viewBox="0 0 120 80">'
    '<rect width="120" height="80" fill="#2a7"/><circle cx="60" cy="40" r="24" fill="#fff"/></svg>'
)


class LoggedRequest(NamedTuple):
    """One request as it arrived; the path keeps its query string."""

    method: str
    path: str
    headers: CIMultiDictProxy[str]


class Site:
    """A running site: where it is, what was asked of it and what it keeps waiting."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: deque[LoggedRequest] = deque(maxlen=_MAX_LOGGED)
        self.hanging = 0
        self._hanging_changed = asyncio.Event()
        self._closing = asyncio.Event()

    @property
    def url(self) -> str:
        """The origin of the site, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def cross_origin_url(self) -> str:
        """The same server under a name that makes it another origin and another site."""
        return f"http://localhost:{self.port}"

    def paths(self) -> list[str]:
        """Return the paths (with queries) requested so far, oldest first."""
        return [request.path for request in self.requests]

    async def wait_hanging(self, count: int) -> None:
        """Wait until exactly `count` requests hang in a route that never answers."""
        while self.hanging != count:
            self._hanging_changed.clear()
            await self._hanging_changed.wait()

    async def hang(self) -> None:
        """Wait until the client goes away (by cancellation) or the site closes."""
        with self._counted():
            await self._closing.wait()

    async def pause(self, seconds: float) -> None:
        """Wait that long, or less when the site closes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def close(self) -> None:
        """Let go everything that waits."""
        self._closing.set()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.hanging += 1
        self._hanging_changed.set()
        try:
            yield
        finally:
            self.hanging -= 1
            self._hanging_changed.set()


_SITE = web.AppKey("site", Site)


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not text.isdecimal():
        raise web.HTTPBadRequest(text=f"{name} must be a whole number, not {text!r}")
    return int(text)


async def _pause(request: web.Request, default_ms: int) -> int:
    ms = _number(request, "ms", default_ms)
    await request.app[_SITE].pause(ms / 1000)
    return ms


def _page(title: str, body: str, status: int = 200) -> web.Response:
    text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<style>body{font:16px/1.5 sans-serif;margin:24px}output{white-space:pre-line}</style>"
        f"<h1>{html.escape(title)}</h1>{body}"
        '<p><a id="home" href="/index.html">Home</a></p></html>'
    )
    return web.Response(text=text, status=status, content_type="text/html")


def _log_page(title: str, log: str, status: int = 200) -> web.Response:
    return _page(title, f'<output id="log">{html.escape(log)}</output>', status)


async def index(request: web.Request) -> web.StreamResponse:
    """Serve index.html for the bare origin."""
    return web.FileResponse(SITE_DIR / "index.html")


async def echo(request: web.Request) -> web.StreamResponse:
    """Show the method, the query and the form fields of the request."""
    lines = [request.method]
    lines += [f"{name} = {value}" for name, value in request.query.items()]
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            value = value.filename
        lines.append(f"{name} = {value.decode() if isinstance(value, bytes) else value}")
    return _log_page("Echo", "\n".join(lines))


async def echo_headers(request: web.Request) -> web.StreamResponse:
    """Show the request's headers as plain text, one `Name: value` a line."""
    return web.Response(text="".join(f"{k}: {v}\n" for k, v in sorted(request.headers.items())))


async def slow(request: web.Request) -> web.StreamResponse:
    """Answer JSON after ?ms."""
    return web.json_response({"ms": await _pause(request, 300), "message": "slow answer"})


async def slow_page(request: web.Request) -> web.StreamResponse:
    """Answer a page after ?ms."""
    return _log_page("Slow page", f"answered after {await _pause(request, 800)} ms")


async def slow_image(request: web.Request) -> web.StreamResponse:
    """Answer an image of 120x80 after ?ms."""
    await _pause(request, 500)
    return web.Response(text=_SVG, content_type="image/svg+xml")


async def slow_script(request: web.Request) -> web.StreamResponse:
    """Answer after ?ms a script that calls `slowScriptLoaded`, if the page has one."""
    await _pause(request, 500)
    script = "window.slowScriptLoaded?.();"
    return web.Response(text=script, content_type="text/javascript")


async def redirect(request: web.Request) -> web.StreamResponse:
    """Redirect ?n times, then to landing.html."""
    left = _number(request, "n", 1)
    raise web.HTTPFound(f"/redirect?n={left - 1}" if left > 1 else "/landing.html?from=redirect")


async def redirect_loop(request: web.Request) -> web.StreamResponse:
    """Redirect for ever."""
    raise web.HTTPFound(f"/redirect-loop?n={_number(request, 'n', 0) + 1}")


async def redirect_to(request: web.Request) -> web.StreamResponse:
    """Redirect to ?url, wherever that is."""
    return web.Response(status=302, headers={"Location": request.query.get("url", "/")})


async def download(request: web.Request) -> web.StreamResponse:
    """Answer a small CSV attachment."""
    disposition = {"Content-Disposition": 'attachment; filename="report.csv"'}
    return web.Response(text="item,price\ntea,3\n", content_type="text/csv", headers=disposition)


async def no_content(request: web.Request) -> web.StreamResponse:
    """Answer 204."""
    return web.Response(status=204)


async def status(request: web.Request) -> web.StreamResponse:
    """Answer a page with the status ?code, 200 to 599."""
    code = _number(request, "code", 404)
    if not 200 <= code <= 599:
        raise web.HTTPBadRequest(text=f"code must be from 200 to 599, not {code}")
    return _log_page(f"Status {code}", f"this page has status {code}", code)


async def hang(request: web.Request) -> web.StreamResponse:
    """Never answer."""
    await request.app[_SITE].hang()
    return web.Response(status=503, text="the site is closing")


async def hang_body(request: web.Request) -> web.StreamResponse:
    """Answer the beginning of a page and never its end."""
    response = web.StreamResponse(headers={"Content-Type": "text/html; charset=utf-8"})
    await response.prepare(request)
    beginning = "<!doctype html><title>Unfinished page</title><p>The beginning of a page.</p>"
    # Chromium shows nothing of a document until it has a kilobyte or so.
    await response.write(beginning.encode() + b"<!--" + b"." * 2048 + b"-->")
    await request.app[_SITE].hang()
    return response


async def reset_connection(request: web.Request) -> web.StreamResponse:
    """Close the connection with a TCP reset and no answer."""
    transport = request.transport
    assert transport is not None
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    return await hang(request)


async def big(request: web.Request) -> web.StreamResponse:
    """Stream a page of ?mb megabytes: paragraphs of a kilobyte, each with a link.

    Laying out 50 MB of text takes Chromium some 15 s; with ?hidden=1 all but the first paragraphs
    are not displayed, and it takes one.
    """
    response = web.StreamResponse(headers={"Content-Type": "text/html; charset=utf-8"})
    await response.prepare(request)
    style = "<style>p:nth-of-type(n+500){display:none}</style>" if "hidden" in request.query else ""
    await response.write(f"<!doctype html><title>Big page</title>{style}<h1>Big page</h1>".encode())
    words = "The quick brown fox jumps over the lazy dog while nobody looks. " * 14
    for number in range(_number(request, "mb", 50) * 16):
        row = f'<p><a href="#{number}">Chapter {number}</a> {words}'
        await response.write((row.ljust(1023) + "\n").encode() * 64)
    await response.write(b'<div id="end">The end of the big page.</div>\n')
    return response


async def basic_auth(request: web.Request) -> web.StreamResponse:
    """Ask for the credentials user:secret."""
    given = request.headers.get("Authorization", "")
    if given != f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}":
        challenge = {"WWW-Authenticate": 'Basic realm="site", charset="UTF-8"'}
        return web.Response(status=401, text="who are you?", headers=challenge)
    return _log_page("Members", f"signed in as {USER}")


async def set_cookie(request: web.Request) -> web.StreamResponse:
    """Set the cookie ?name=?value and show the cookies that came."""
    name = request.query.get("name", "visit")
    value = request.query.get("value", "1")
    received = "; ".join(f"{key}={val}" for key, val in request.cookies.items()) or "none"
    response = _log_page("Cookie", f"received {received}\nset {name}={value}")
    response.set_cookie(name, value)
    return response


async def anything(request: web.Request) -> web.StreamResponse:
    """Answer an image to an image request, a script to a script's, else text; to any origin."""
    cors = {"Access-Control-Allow-Origin": "*"}
    match request.headers.get("Sec-Fetch-Dest"):
        case "image":
            return web.Response(text=_SVG, content_type="image/svg+xml", headers=cors)
        case "script":
            script = "window.anythingLoaded = true;"
            return web.Response(text=script, content_type="text/javascript", headers=cors)
        case _:
            return web.Response(text="anything", headers=cors)


async def cards(request: web.Request) -> web.StreamResponse:
    """Answer the 20 cards of ?page as JSON after ?ms."""
    await _pause(request, 150)
    first = _number(request, "page", 0) * 20 + 1
    return web.json_response({"cards": [f"Card {n}" for n in range(first, first + 20)]})


async def websocket(request: web.Request) -> web.StreamResponse:
    """Send every message back."""
    ws = web.WebSocketResponse()
    await ws.prepare(request)
    async for message in ws:
        if message.type is WSMsgType.TEXT:
            await ws.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await ws.send_bytes(message.data)
    return ws


_ROUTES: dict[str, Handler] = {
    "/": index,
    "/any": anything,
    "/basic-auth": basic_auth,
    "/big": big,
    "/cards": cards,
    "/download": download,
    "/echo": echo,
    "/echo-headers": echo_headers,
    "/favicon.ico": no_content,
    "/hang": hang,
    "/hang-body": hang_body,
    "/hang-image": hang,
    "/no-content": no_content,
    "/redirect": redirect,
    "/redirect-loop": redirect_loop,
    "/redirect-to": redirect_to,
    "/reset-connection": reset_connection,
    "/set-cookie": set_cookie,
    "/slow": slow,
    "/slow-image": slow_image,
    "/slow-page": slow_page,
    "/slow-script": slow_script,
    "/status": status,
    "/ws": websocket,
}


@web.middleware
async def _log_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    logged = LoggedRequest(request.method, request.path_qs, request.headers)
    request.app[_SITE].requests.append(logged)
    return await handler(request)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    # Revalidated, not uncached: a test must see each visit in the log of requests.
    response.headers.setdefault("Cache-Control", "no-cache")
    if request.path == "/csp.html":
        response.headers["Content-Security-Policy"] = _CSP


async def _close_site(app: web.Application) -> None:
    app[_SITE].close()


def create_app(site: Site) -> web.Application:
    """Build the application that serves `site`."""
    app = web.Application(middlewares=[_log_request])
    app[_SITE] = site
    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(_close_site)
    for path, handler in _ROUTES.items():
        app.router.add_route("*", path, handler)
    app.router.add_static("/", SITE_DIR)
    return app


@asynccontextmanager
async def serve_site(port: int = 0) -> AsyncIterator[Site]:
    """Serve the site on 127.0.0.1 until the block ends, whatever requests are open then."""
    site = Site()
    # In a thread: the static route resolves its folder on disk as it is added.
    app = await asyncio.to_thread(create_app, site)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        site.port = runner.addresses[0][1]
        yield site
    finally:
        await runner.cleanup()


async def _serve_until_signalled(port: int) -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    async with serve_site(port) as site:
        click.echo(site.url)
        await stop.wait()


@click.command()
@click.option("--port", default=0, show_default=True, help="Port on 127.0.0.1; 0 takes a free one.")
def main(port: int) -> None:
    """Serve tests/site, printing the URL on the first line."""
    asyncio.run(_serve_until_signalled(port))


if __name__ == "__main__":
    main()
