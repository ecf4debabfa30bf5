"""The client, against a whole tier: master, node, instance server and Chromium."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from omniboxes import errors
from omniboxes.common.wire import LeaseOptions, Viewport
from tests.conftest import API_KEY
from tests.site_server import Site
from webgym.environment.client import Instance, MasterClient
from webgym.environment.local_tier import LocalTier

pytestmark = pytest.mark.browser

PNG = b"\x89PNG"


@pytest.fixture
async def client(tier: LocalTier) -> AsyncIterator[MasterClient]:
    async with MasterClient(base_url=tier.url, api_key=API_KEY) as opened:
        yield opened


@pytest.fixture
async def browser(client: MasterClient) -> AsyncIterator[Instance]:
    async with client.lease() as leased:
        yield leased


async def _leased(client: MasterClient) -> int:
    info = await client.get_info()
    return sum(len(node["instances"]) for node in info["nodes"])


async def test_info_shows_the_capacity_that_was_asked_for(client: MasterClient) -> None:
    (node,) = (await client.get_info())["nodes"]
    assert node["healthy"]
    assert node["capacity"] == 3
    assert set(node) == {"url", "hash", "healthy", "capacity", "available", "instances"}


async def test_a_lease_is_an_id_with_its_port_and_an_opaque_node(
    client: MasterClient, browser: Instance
) -> None:
    uuid, _, port = browser.instance_id.partition(":")
    (node,) = (await client.get_info())["nodes"]
    assert len(uuid) == 36
    assert port.isdecimal()
    assert browser.node == node["hash"]
    assert browser.instance_id in node["instances"]


async def test_the_address_of_a_node_is_accepted_as_its_name(
    client: MasterClient, browser: Instance
) -> None:
    (node,) = (await client.get_info())["nodes"]
    await client.probe(browser._replace(node=node["url"]))


async def test_execute_metadata_screenshot_and_probe_see_the_same_page(
    client: MasterClient, browser: Instance, site: Site
) -> None:
    answer = await client.execute(browser, {"visit_page": {"url": f"{site.url}/shop.html"}})
    assert answer["status"] == "success"
    assert answer["settle"]["reason"] == "idle"
    page = await client.metadata(browser)
    assert (page.title, page.width, page.height) == ("Corner Shop", 1280, 768)
    assert page.url == f"{site.url}/shop.html"
    assert (await client.screenshot(browser)).startswith(PNG)
    assert (await client.screenshot(browser, "coordinates")).startswith(PNG)
    jpeg = await client.screenshot(browser, "coordinates", image_format="jpeg", quality=50)
    assert jpeg.startswith(b"\xff\xd8")
    await client.probe(browser)


async def test_step_acts_and_looks_in_one_call(
    client: MasterClient, browser: Instance, site: Site
) -> None:
    await client.execute(browser, {"visit_page": {"url": f"{site.url}/timers.html"}})
    seen = await client.step(browser)
    assert seen.marks is not None
    regions = seen.marks["interactive_regions"]
    label = next(k for k, region in regions.items() if "400" in region["aria_name"])
    seen = await client.step(
        browser,
        {"click_id": {"id": label}},
        interaction_mode="coordinates",
        expression="document.getElementById('timer-400-out').textContent",
    )
    assert seen.value == "done"
    assert seen.marks is None
    assert seen.image.startswith(PNG)
    assert seen.metadata.title == "Timers"
    assert "timer" in seen.settle["waited_for"]


async def test_lease_options_reach_the_page(client: MasterClient, site: Site) -> None:
    options = LeaseOptions(viewport=Viewport(width=800, height=600), locale="de-DE")
    async with client.lease(options=options) as browser:
        await client.execute(browser, {"visit_page": {"url": f"{site.url}/env.html"}})
        seen = await client.step(browser, expression="[innerWidth, navigator.language]")
        assert seen.value == [800, "de-DE"]


async def test_a_block_that_is_cancelled_gives_its_browser_back(client: MasterClient) -> None:
    before = await _leased(client)
    has_one = asyncio.Event()

    async def hold() -> None:
        async with client.lease():
            has_one.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await has_one.wait()
    assert await _leased(client) == before + 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await _leased(client) == before


async def test_a_released_browser_is_refused_everywhere_and_releasing_again_is_harmless(
    client: MasterClient,
) -> None:
    browser = await client.get_instance()
    await client.reset_instance(browser)
    for call in (
        client.reset_instance(browser),
        client.probe(browser),
        client.metadata(browser),
        client.screenshot(browser),
        client.execute(browser, {"back": {}}),
        client.step(browser),
    ):
        with pytest.raises(errors.InstanceNotFound, match="not in use or already released"):
            await call


async def test_errors_come_back_as_their_types(client: MasterClient, browser: Instance) -> None:
    with pytest.raises(errors.UnknownCommand, match="Unsupported command: fly"):
        await client.execute(browser, {"fly": {}})
    with pytest.raises(errors.UnknownCommand, match="Only one command"):
        await client.execute(browser, {"back": {}, "tab_and_enter": {}})
    with pytest.raises(errors.StaleMark):
        await client.execute(browser, {"click_id": {"id": "7"}})
    with pytest.raises(errors.InvalidUrl):
        await client.execute(browser, {"visit_page": {"url": "example.com"}})
    with pytest.raises(errors.EgressRefused, match=r"10\.0\.0\.1.*OMNIBOX_EGRESS_ALLOW"):
        await client.execute(browser, {"visit_page": {"url": "http://10.0.0.1/"}})
    with pytest.raises(errors.NodeNotFound, match="Node nowhere is not found"):
        await client.probe(browser._replace(node="nowhere"))
    with pytest.raises(errors.DeadlineExceeded):
        await client.execute(browser, {"sleep": {"duration": 30}}, deadline_s=0.5)
    await client.probe(browser)


async def test_an_empty_pool_is_a_retryable_error(client: MasterClient) -> None:
    leased = [await client.get_instance() for _ in range(3)]
    try:
        with pytest.raises(errors.PoolExhausted, match="No available nodes with capacity") as no:
            await client.get_instance()
        assert no.value.retryable
    finally:
        for browser in leased:
            await client.reset_instance(browser)


async def test_a_wrong_key_is_refused(tier: LocalTier) -> None:
    async with MasterClient(base_url=tier.url, api_key="wrong") as stranger:
        with pytest.raises(errors.Unauthorized, match=r"Invalid API Key\."):
            await stranger.get_info()
    async with MasterClient(base_url=tier.url) as nobody:
        with pytest.raises(errors.Unauthorized, match="API Key is missing"):
            await nobody.get_info()


async def test_a_server_that_is_not_there_is_an_unavailable_node() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    async with MasterClient("127.0.0.1", port) as client:
        with pytest.raises(errors.NodeUnavailable):
            await client.get_info()


async def test_a_client_that_was_not_opened_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await MasterClient().get_info()
