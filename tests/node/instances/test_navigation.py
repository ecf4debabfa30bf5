"""Visiting pages, going back, and all the ways in which a page does not come."""

import socket

import pytest

from omniboxes.errors import EgressRefused, InvalidRequest, InvalidUrl, NavigationFailed
from tests.node.instances.driving import Session

pytestmark = pytest.mark.browser


async def test_visit_shows_the_page(session: Session) -> None:
    answer = await session.execute("visit_page", url=f"{session.site.url}/landing.html?from=test")
    assert answer["status"] == "success"
    assert "arrived at /landing.html?from=test" in await session.page_text()


async def test_visit_follows_redirects(session: Session) -> None:
    step = await session.visit("redirect?n=3")
    assert step.metadata["url"] == f"{session.site.url}/landing.html?from=redirect"


async def test_page_with_an_error_status_is_a_page(session: Session) -> None:
    assert (await session.visit("status?code=503")).metadata["title"] == "Status 503"


async def test_visit_of_a_fragment_of_the_page_moves_within_it(session: Session) -> None:
    await session.visit("navigate.html")
    await session.evaluate("document.title = 'same document'")
    step = await session.visit("navigate.html#section")
    assert step.metadata["title"] == "same document"
    assert await session.evaluate("scrollY > 0")


@pytest.mark.parametrize("url", ["about:blank", "data:text/html,<title>Inline</title>"])
async def test_pages_that_need_no_network_can_be_visited(shared: Session, url: str) -> None:
    assert (await shared.visit(url)).metadata["url"] == url


async def test_back_without_history_changes_nothing(session: Session) -> None:
    answer = await session.execute("back")
    assert (answer["status"], answer["moved"]) == ("success", False)
    await session.visit("empty.html")
    answer = await session.execute("back")
    assert (answer["status"], answer["moved"]) == ("success", False)
    assert await session.evaluate("document.title") == "Nothing to press"


async def test_back_returns_through_the_history(session: Session) -> None:
    for page in ("empty.html", "landing.html", "timers.html"):
        await session.visit(page)
    titles = [(await session.step("back")).metadata["title"] for _ in range(3)]
    assert titles == ["Landing", "Nothing to press", "Nothing to press"]


async def test_back_within_a_document_runs_its_handlers(session: Session) -> None:
    await session.visit("navigate.html")
    await session.click("push-state", shows="log")
    await session.evaluate("""addEventListener("popstate", () =>
      setTimeout(() => { document.title = "came back"; }, 200)); 0""")
    step = await session.step("back")
    assert step.fields["moved"] is True
    assert step.metadata["title"] == "came back"
    assert await session.text("location") == "at /navigate.html"


# What is no address of a page.


@pytest.mark.parametrize(
    "url",
    [
        "example.com", "//example.com", "http://", "https:///path", "http://[::1", "not a url",
        "http://host:99999/", "javascript:alert(1)", "mailto:a@example.com", "blob:http://x/1",
        "ws://example.com", "http:", " ",
    ],
)  # fmt: skip
async def test_what_is_no_address_is_refused(shared: Session, url: str) -> None:
    with pytest.raises(InvalidUrl, match="url"):
        await shared.execute("visit_page", url=url)


@pytest.mark.parametrize("url", ["", None, 7, ["http://example.com"]])
async def test_address_of_the_wrong_type_is_refused(shared: Session, url: object) -> None:
    with pytest.raises(InvalidRequest, match="url"):
        await shared.execute("visit_page", url=url)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "chrome://version",
        "chrome://crash",
        "view-source:http://127.0.0.1/",
        "devtools://devtools/bundled/inspector.html",
    ],
)
async def test_forbidden_scheme_is_403(shared: Session, url: str) -> None:
    with pytest.raises(EgressRefused, match="never allowed"):
        await shared.execute("visit_page", url=url)


# The egress policy.


async def test_metadata_address_is_403_that_names_it(session: Session) -> None:
    with pytest.raises(EgressRefused, match=r"169\.254\.169\.254:80.*OMNIBOX_EGRESS_ALLOW"):
        await session.execute("visit_page", url="http://169.254.169.254/latest/meta-data/")


async def test_private_address_is_403_that_names_the_setting(session: Session) -> None:
    with pytest.raises(EgressRefused, match=r"add 10\.1\.2\.3:8080 to OMNIBOX_EGRESS_ALLOW"):
        await session.execute("visit_page", url="http://10.1.2.3:8080/")


async def test_redirect_to_a_refused_address_is_403(session: Session) -> None:
    with pytest.raises(EgressRefused, match=r"169\.254\.169\.254"):
        await session.visit("redirect-to?url=http://169.254.169.254/")
    assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"


async def test_port_of_the_server_itself_is_403(session: Session) -> None:
    port = session.server.port
    with pytest.raises(EgressRefused, match=f"127.0.0.1:{port}.*never allowed"):
        await session.execute("visit_page", url=f"http://127.0.0.1:{port}/info")


async def test_click_on_a_link_to_a_refused_address_shows_the_error(session: Session) -> None:
    await session.visit("empty.html")
    await session.evaluate("document.body.innerHTML = '<a id=a href=http://10.1.2.3/>go</a>'; 0")
    step = await session.step("click_coords", **await session.centre("a"))
    assert step.metadata["url"].startswith("chrome-error:")
    assert (await session.step("back")).metadata["title"] == "Nothing to press"


# Pages that do not come.


def refusing_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("http://unreachable.invalid/", "net::ERR_NAME_NOT_RESOLVED"),
        ("redirect-loop", "net::ERR_TOO_MANY_REDIRECTS"),
        ("reset-connection", "net::ERR_CONNECTION_RESET|net::ERR_EMPTY_RESPONSE"),
        ("download", "is a download"),
        ("no-content", "net::ERR_ABORTED"),
    ],
)
async def test_page_that_does_not_come_is_422_with_the_reason(
    shared: Session, page: str, reason: str
) -> None:
    with pytest.raises(NavigationFailed, match=reason):
        await shared.visit(page)
    assert (await shared.visit("empty.html")).metadata["title"] == "Nothing to press"


async def test_refused_connection_is_422_with_the_reason(session: Session) -> None:
    with pytest.raises(NavigationFailed, match="net::ERR_CONNECTION_REFUSED"):
        await session.visit(f"http://127.0.0.1:{refusing_port()}/")


async def test_page_stays_when_a_visit_turns_out_to_be_a_download(session: Session) -> None:
    await session.visit("empty.html")
    for page in ("download", "no-content"):
        with pytest.raises(NavigationFailed):
            await session.visit(page)
        assert await session.evaluate("document.title") == "Nothing to press"


@pytest.mark.parametrize("element", ["link-no-content", "link-mailto", "link-javascript"])
async def test_link_that_leads_nowhere_leaves_the_page(shared: Session, element: str) -> None:
    await shared.visit("navigate.html")
    step = await shared.click(element, shows="log")
    assert (step.reason, step.metadata["title"]) == ("idle", "Navigate")


async def test_download_by_a_link_is_reported(session: Session) -> None:
    await session.visit("navigate.html")
    step = await session.click("link-download", shows="log")
    assert step.fields["downloads"] == ["report.csv"]
    assert (step.reason, step.metadata["title"]) == ("idle", "Navigate")
    assert "downloads" not in (await session.step()).fields


@pytest.mark.parametrize("element", ["link-unreachable", "link-reset", "link-redirect-loop"])
async def test_link_to_a_page_that_does_not_come_shows_the_error(
    session: Session, element: str
) -> None:
    await session.visit("navigate.html")
    step = await session.click(element, shows="log")
    assert step.metadata["url"].startswith("chrome-error:")
    assert (await session.step("back")).metadata["title"] == "Navigate"
