"""The test site itself: its routes answer as documented and its pages run without script errors."""

import asyncio
import contextlib
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
from aiohttp import ClientConnectionError, ClientError, ClientSession, ClientTimeout
from playwright.async_api import Browser, async_playwright

from omniboxes.browser import find_browser, sandbox_decision
from tests import site_server
from tests.site_server import SITE_DIR, Site, serve_site

ENDLESS_ON_LOAD = "endless-on-load.html"
PAGES = sorted(path.name for path in SITE_DIR.glob("*.html"))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serve_site() as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    async with ClientSession(timeout=ClientTimeout(total=10)) as session:
        yield session


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=find_browser().path, chromium_sandbox=sandbox_decision(None)[0]
        )
        async with launched:
            yield launched


async def links_of_index(site: Site, client: ClientSession) -> set[str]:
    async with client.get(site.url) as response:
        return set(re.findall(r'href="([^"]+)"', await response.text()))


async def test_every_link_of_index_resolves(site: Site, client: ClientSession) -> None:
    for link in await links_of_index(site, client):
        async with client.get(urljoin(site.url, link)) as response:
            assert response.ok, f"{link}: {response.status}"
            assert response.status == 204 or await response.read(), link


async def test_index_links_to_every_file(site: Site, client: ClientSession) -> None:
    files = {path.name for path in SITE_DIR.iterdir()} - {"index.html"}
    linked = {link.lstrip("/") for link in await links_of_index(site, client)}
    assert files <= linked


async def test_requests_are_logged_with_query_and_headers(
    site: Site, client: ClientSession
) -> None:
    await client.get(f"{site.url}/echo?q=tea", headers={"X-Test": "yes"})
    method, path, headers = site.requests[-1]
    assert (method, path, headers["x-test"]) == ("GET", "/echo?q=tea", "yes")


async def test_echo_shows_query_and_form_as_text(site: Site, client: ClientSession) -> None:
    async with client.post(f"{site.url}/echo?a=1", data={"b": "<2>"}) as response:
        assert "POST\na = 1\nb = &lt;2&gt;" in await response.text()


async def test_slow_route_waits_as_long_as_asked(site: Site, client: ClientSession) -> None:
    started = time.monotonic()
    async with client.get(f"{site.url}/slow?ms=200") as response:
        assert (await response.json())["message"] == "slow answer"
    assert time.monotonic() - started >= 0.2


async def test_bad_number_is_a_400_that_names_it(site: Site, client: ClientSession) -> None:
    async with client.get(f"{site.url}/slow?ms=soon") as response:
        assert (response.status, await response.text()) == (
            400,
            "ms must be a whole number, not 'soon'",
        )


async def test_redirects_end_on_the_landing_page(site: Site, client: ClientSession) -> None:
    async with client.get(f"{site.url}/redirect?n=3") as response:
        assert len(response.history) == 3
        assert response.url.path == "/landing.html"


async def test_hang_ends_when_the_client_disconnects(site: Site, client: ClientSession) -> None:
    request = asyncio.ensure_future(client.get(f"{site.url}/hang"))
    await site.wait_hanging(1)
    request.cancel()
    await site.wait_hanging(0)


async def test_site_closes_at_once_with_requests_open(client: ClientSession) -> None:
    async with asyncio.TaskGroup() as group:
        async with serve_site() as site:
            for path in (
                "hang",
                "hang-image",
                "hang-body",
                "slow?ms=600000",
                "slow-page?ms=600000",
            ):
                group.create_task(get_until_disconnected(client, f"{site.url}/{path}"))
            socket = await client.ws_connect(f"{site.url}/ws")
            await site.wait_hanging(3)
            started = time.monotonic()
        assert time.monotonic() - started < 5
        await socket.close()
    assert site.hanging == 0


async def get_until_disconnected(client: ClientSession, url: str) -> None:
    with contextlib.suppress(ClientError):
        async with client.get(url) as response:
            await response.read()


async def test_reset_connection_gives_no_answer(site: Site, client: ClientSession) -> None:
    with pytest.raises(ClientConnectionError):
        await client.get(f"{site.url}/reset-connection")


async def test_basic_auth_wants_its_password(site: Site, client: ClientSession) -> None:
    async with client.get(f"{site.url}/basic-auth") as response:
        assert response.status == 401
    with_password = site.url.replace("//", "//user:secret@")
    async with client.get(f"{with_password}/basic-auth") as response:
        assert "signed in as user" in await response.text()


async def test_big_page_has_the_size_asked_for(site: Site, client: ClientSession) -> None:
    async with client.get(f"{site.url}/big?mb=2") as response:
        size_bytes = len(await response.read())
    assert 2 * 2**20 <= size_bytes < 2.1 * 2**20


async def test_websocket_echoes(site: Site, client: ClientSession) -> None:
    async with client.ws_connect(f"{site.url}/ws") as socket:
        await socket.send_str("hello")
        assert await socket.receive_str() == "hello"


async def test_csp_page_carries_its_nonce(site: Site, client: ClientSession) -> None:
    async with client.get(f"{site.url}/csp.html") as response:
        assert f"'nonce-{site_server.CSP_NONCE}'" in response.headers["Content-Security-Policy"]
        assert f'nonce="{site_server.CSP_NONCE}"' in await response.text()


async def test_program_prints_its_url_first_and_stops_on_sigterm(client: ClientSession) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(site_server.__file__)),
        "--port",
        "0",
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert program.stdout is not None
        url = (await program.stdout.readline()).decode().strip()
        async with client.get(f"{url}/plain.txt") as response:
            assert (await response.text()).startswith("A plain text document.")
        program.send_signal(signal.SIGTERM)
        assert await program.wait() == 0
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()


@pytest.mark.browser
@pytest.mark.parametrize("name", [name for name in PAGES if name != ENDLESS_ON_LOAD])
async def test_page_runs_without_script_error(browser: Browser, site: Site, name: str) -> None:
    errors: list[str] = []
    async with await browser.new_context() as context:
        page = await context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"{site.url}/{name}", wait_until="domcontentloaded")
        title = await page.title()
    assert not errors
    assert title or name == "no-title.html"
