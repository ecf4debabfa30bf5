"""What a lease brings for its sites: it is in force, and none of it outlives the lease."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from omniboxes.errors import EgressRefused, InvalidRequest, NavigationFailed, OmniboxError
from omniboxes.node.egress.policy import EgressPolicy
from omniboxes.node.egress.proxy import EgressProxy
from tests.node.instances.driving import Server, Session, serve_pages
from tests.site_server import PASSWORD, USER, Site

pytestmark = pytest.mark.browser


async def environment(session: Session) -> dict[str, str]:
    await session.visit("env.html")
    found: dict[str, str] = await session.evaluate(
        "Object.fromEntries([...document.querySelectorAll('output')].map((o) => [o.id, o.value]))"
    )
    return found


async def headers(session: Session) -> str:
    await session.visit("echo-headers")
    return await session.page_text()


async def test_viewport_locale_time_zone_and_user_agent_are_as_asked(
    server: Server, site: Site
) -> None:
    options = {
        "viewport": {"width": 800, "height": 600},
        "locale": "de-DE",
        "timezone_id": "Asia/Tokyo",
        "user_agent": "TestAgent/1.0",
    }
    async with server.leased(site, **options) as session:
        shown = await environment(session)
        assert shown["viewport"] == "800x600"
        assert shown["language"] == "de-DE"
        assert shown["timezone"] == "Asia/Tokyo"
        assert shown["user-agent"] == "TestAgent/1.0"
        assert shown["number"] == "1.234,5"
        assert "User-Agent: TestAgent/1.0" in await headers(session)
        step = await session.step("page_down", full_page=True)
        assert (step.metadata["width"], step.metadata["height"]) == (800, 600)
        with pytest.raises(InvalidRequest, match="800"):
            await session.execute("click_coords", x=801, y=5)
    async with server.leased(site) as session:
        shown = await environment(session)
        assert shown["viewport"] == "1280x768"
        assert shown["language"] != "de-DE"
        assert shown["timezone"] != "Asia/Tokyo"
        assert "HeadlessChrome" in shown["user-agent"]


async def test_extra_headers_are_sent_and_forgotten(server: Server, site: Site) -> None:
    async with server.leased(site, extra_http_headers={"X-Shop-Key": "abc"}) as session:
        assert "X-Shop-Key: abc" in await headers(session)
    async with server.leased(site) as session:
        assert "X-Shop-Key" not in await headers(session)


async def test_http_credentials_open_a_protected_page(server: Server, site: Site) -> None:
    credentials = {"username": USER, "password": PASSWORD}
    async with server.leased(site, http_credentials=credentials) as session:
        assert (await session.visit("basic-auth")).metadata["title"] == "Members"
        # And the rest works as without.
        await session.visit("fetch.html")
        assert (await session.click("fetch-300")).value == "slow answer"
    async with server.leased(site) as session:
        await session.visit("basic-auth")
        assert await session.page_text() == "who are you?"


async def test_storage_state_logs_an_account_in_and_is_forgotten(
    server: Server, site: Site
) -> None:
    cookie = {
        "name": "basket", "value": "tea", "domain": "127.0.0.1", "path": "/", "expires": -1,
        "httpOnly": False, "secure": False, "sameSite": "Lax",
    }  # fmt: skip
    local = {"origin": site.url, "localStorage": [{"name": "account", "value": "alice"}]}
    state = {"cookies": [cookie], "origins": [local]}
    async with server.leased(site, storage_state=state) as session:
        await session.visit("storage.html")
        assert await session.text("cookies") == "basket=tea"
        assert await session.text("local-storage") == "account=alice"
        # The state is set up before the first tenant's command: no page of it is left open.
        assert len((await session.execute("list_tabs"))["tabs"]) == 1
    async with server.leased(site) as session:
        await session.visit("storage.html")
        assert await session.text("cookies") == "none"
        assert await session.text("local-storage") == "none"


async def test_settling_cap_is_the_leases_own(server: Server, site: Site) -> None:
    async with server.leased(site, settle_cap_s=0.2) as session:
        await session.visit("timers.html")
        assert (await session.click("timer-400")).reason == "cap"
    async with server.leased(site) as session:
        await session.visit("timers.html")
        assert (await session.click("timer-400")).value == "done"


async def test_caller_alone_takes_a_warm_session(server: Server, site: Site) -> None:
    async with server.leased(site, caller="test") as session:
        assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"


# Proxies.


@asynccontextmanager
async def upstream() -> AsyncIterator[EgressProxy]:
    """Run a proxy that belongs to the user: ours, with another policy."""
    async with EgressProxy(EgressPolicy.parse("127.0.0.0/8", guarded_ports=[])) as proxy:
        yield proxy


async def test_lease_goes_out_through_its_own_proxy(server: Server, site: Site) -> None:
    async with upstream() as proxy:
        option = {"server": f"socks5://127.0.0.1:{proxy.port}"}
        async with server.leased(site, proxy=option) as session:
            assert (await session.visit("landing.html")).metadata["title"] == "Landing"
            assert proxy.connections_open > 0
    # Without that proxy, which is gone, the next tenants see the site all the same.
    for _ in range((await server.info())["slots"]):
        async with server.leased(site) as session:
            assert (await session.visit("landing.html")).metadata["title"] == "Landing"


async def test_policy_holds_for_a_lease_with_a_proxy(server: Server, site: Site) -> None:
    async with upstream() as proxy:
        option = {"server": f"socks5://127.0.0.1:{proxy.port}"}
        async with server.leased(site, proxy=option) as session:
            with pytest.raises(EgressRefused, match=r"169\.254\.169\.254"):
                await session.visit("http://169.254.169.254/")
            with pytest.raises(EgressRefused, match="never allowed"):
                await session.visit(f"http://127.0.0.1:{server.port}/")


async def test_dead_proxy_is_422_with_the_reason(server: Server, site: Site) -> None:
    async with server.leased(site, proxy={"server": "http://127.0.0.1:1"}) as session:
        with pytest.raises(NavigationFailed, match="net::ERR_PROXY_CONNECTION_FAILED"):
            await session.visit("landing.html")


async def test_proxy_at_a_refused_address_is_403(server: Server) -> None:
    with pytest.raises(EgressRefused, match=r"10\.1\.2\.3"):
        await server.lease(proxy={"server": "http://10.1.2.3:3128"})


# TLS.


@pytest.fixture(scope="module")
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    directory: Path = tmp_path_factory.mktemp("tls")
    key, certificate = directory / "key.pem", directory / "cert.pem"
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *new, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def test_tls_errors_are_ignored_only_by_the_lease_that_asks(
    server: Server, site: Site, self_signed: ssl.SSLContext
) -> None:
    async with serve_pages({"/": "<title>Secret shop</title>"}, self_signed) as port:
        url = f"https://127.0.0.1:{port}/"
        async with server.leased(site, ignore_https_errors=True) as session:
            assert (await session.visit(url)).metadata["title"] == "Secret shop"
        async with server.leased(site) as session:
            with pytest.raises(NavigationFailed, match="net::ERR_CERT_AUTHORITY_INVALID"):
                await session.visit(url)
            assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"


# Bad options.


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"no_such_option": 1}, "no_such_option"),
        ({"viewport": {"width": 10, "height": 10}}, "viewport"),
        ({"viewport": "large"}, "viewport"),
        ({"locale": "not a locale!"}, "locale"),
        ({"timezone_id": "Mars/Olympus"}, "Mars/Olympus"),
        ({"extra_http_headers": {"X": 1}}, "extra_http_headers"),
        ({"extra_http_headers": {"bad name": "x"}}, "options|extra_http_headers"),
        ({"http_credentials": {"username": "u"}}, "http_credentials"),
        ({"proxy": {"server": "ftp://127.0.0.1:21"}}, "proxy"),
        ({"proxy": {"server": "http://127.0.0.1:99999"}}, "proxy"),
        ({"proxy": {"server": "://"}}, "proxy"),
        ({"storage_state": {"cookies": [{"name": "no domain", "value": "x"}]}}, "options"),
        ({"storage_state": {"cookies": "none"}}, "options"),
        ({"storage_state": {"origins": [{"origin": "no url", "localStorage": []}]}}, "options"),
        ({"storage_state": []}, "storage_state"),
        ({"settle_cap_s": -1}, "settle_cap_s"),
    ],
)
async def test_bad_options_are_422_and_cost_no_slot(
    server: Server, options: dict[str, Any], named: str
) -> None:
    before = (await server.info())["slots"]
    with pytest.raises(InvalidRequest, match=named):
        await server.lease(**options)
    await server.wait_available(before)


async def test_many_bad_leases_leave_full_capacity(server: Server, site: Site) -> None:
    slots = (await server.info())["slots"]
    for _ in range(3):
        async with asyncio.TaskGroup() as group:
            for _ in range(slots):
                group.create_task(_refused(server))
    await server.wait_available(slots)
    async with server.leased(site) as session:
        assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"


async def _refused(server: Server) -> None:
    with pytest.raises(OmniboxError):
        await server.call("POST", "/get", json={"timezone_id": "Mars/Olympus"})
